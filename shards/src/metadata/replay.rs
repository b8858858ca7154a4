//! Following a metadata log: records in, images out.
//!
//! Records between BeginTransaction and EndTransaction are held back: what is shown is the image before them (kraft.md 3.5).

use corelog_wire::records::metadata::MetadataRecord;

use super::apply::ApplyError;
use super::image::{Identity, Image};

/// The state of whoever follows the log.
pub struct Replay {
    image: Image,
    /// The image before the transaction that is open.
    before: Option<Box<Image>>,
}

impl Replay {
    pub fn new(identity: &Identity) -> Replay {
        Replay::from_image(Image::empty(identity))
    }

    pub fn from_image(image: Image) -> Replay {
        Replay {
            image,
            before: None,
        }
    }

    /// Applies one record; the image's offset becomes `offset`. Call [`Replay::begin_version`] before the first record of a change.
    pub fn apply(&mut self, offset: i64, record: &MetadataRecord) -> Result<(), ApplyError> {
        match record {
            MetadataRecord::BeginTransaction(_) if self.before.is_none() => {
                self.before = Some(Box::new(self.image.clone()));
            }
            MetadataRecord::EndTransaction(_) if self.before.is_some() => self.before = None,
            MetadataRecord::AbortTransaction(_) => {
                self.image = *self.before.take().ok_or(ApplyError::Transaction)?;
            }
            record => self.image.apply(record)?,
        }
        self.image.offset = offset;
        Ok(())
    }

    /// Moves over records that say nothing about the cluster (control records).
    pub fn skip(&mut self, offset: i64) {
        self.image.offset = offset;
    }

    pub fn set_epoch(&mut self, epoch: i32) {
        self.image.epoch = epoch;
    }

    /// What follows will be published under a new version.
    pub fn begin_version(&mut self) {
        self.image.version += 1;
    }

    /// Places all partitions anew. For the end of loading only, before anybody is told of an owner.
    pub fn place_all(&mut self) {
        self.image.place_all();
    }

    /// The image with everything applied, which may be in the middle of a transaction.
    pub fn working(&self) -> &Image {
        &self.image
    }

    /// The image that may be shown.
    pub fn shown(&self) -> &Image {
        self.before.as_deref().unwrap_or(&self.image)
    }

    pub fn in_transaction(&self) -> bool {
        self.before.is_some()
    }
}

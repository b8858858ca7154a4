//! What the cursors and writers of Produce and Fetch have in common.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::primitives::{DecodeError, Encoding, Reader, Uuid, put_text, put_uuid};

/// From this version on Produce and Fetch name topics by id.
const IDS_FROM: i16 = 13;

/// How a request or response names a topic: by id from version 13 of Produce and Fetch on, by name before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TopicRef<'a> {
    Name(&'a str),
    Id(Uuid),
}

impl TopicRef<'_> {
    /// Appends the topic as `version` names it. That the variant suits the version is the caller's part.
    pub(super) fn put(self, out: &mut BytesMut, version: i16, encoding: Encoding) {
        match self {
            Self::Name(name) => {
                assert!(
                    version < IDS_FROM,
                    "version {version} names topics by id, not {name}"
                );
                put_text(out, encoding, name);
            }
            Self::Id(id) => {
                assert!(
                    version >= IDS_FROM,
                    "version {version} names topics by name, not {id}"
                );
                put_uuid(out, id);
            }
        }
    }
}

/// A topic as a place in the frame, for walks that must not borrow from it.
#[derive(Debug, Clone)]
pub(super) enum TopicPlace {
    Name(Range<usize>),
    Id(Uuid),
}

impl TopicPlace {
    pub(super) fn read(
        reader: &mut Reader,
        version: i16,
        encoding: Encoding,
    ) -> Result<Self, DecodeError> {
        if version >= IDS_FROM {
            return Ok(Self::Id(reader.uuid()?));
        }
        let offset = reader.position();
        let name = reader.text_range(encoding)?;
        name.map(Self::Name).ok_or(DecodeError::UnexpectedNull {
            what: "string",
            offset,
        })
    }

    pub(super) fn resolve<'a>(&self, frame: &'a Bytes) -> TopicRef<'a> {
        match self {
            Self::Name(range) => TopicRef::Name(text_at(frame, range)),
            Self::Id(id) => TopicRef::Id(*id),
        }
    }
}

/// The string at a place that `Reader::text_range` returned for the same frame.
pub(super) fn text_at<'a>(frame: &'a Bytes, range: &Range<usize>) -> &'a str {
    str::from_utf8(&frame[range.clone()]).expect("text_range has checked that the bytes are UTF-8")
}

/// The count of a field that may not be null.
pub(super) fn count(
    reader: &mut Reader,
    encoding: Encoding,
    element_size: usize,
) -> Result<usize, DecodeError> {
    let offset = reader.position();
    let count = reader.array_count(encoding, element_size)?;
    count.ok_or(DecodeError::UnexpectedNull {
        what: "array",
        offset,
    })
}

/// The end of a struct of which no tag matters.
pub(super) fn end_struct(reader: &mut Reader, encoding: Encoding) -> Result<(), DecodeError> {
    if encoding.is_flexible() {
        reader.skip_tagged()
    } else {
        Ok(())
    }
}

/// The leader that a response points to; the default is "not told" and is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentLeader {
    pub leader_id: i32,
    pub leader_epoch: i32,
}

impl CurrentLeader {
    /// The client is not told.
    pub const UNTOLD: Self = Self {
        leader_id: -1,
        leader_epoch: -1,
    };
}

impl Default for CurrentLeader {
    fn default() -> Self {
        Self::UNTOLD
    }
}

/// Where a broker that a response points to is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeEndpoint<'a> {
    pub node_id: i32,
    pub host: &'a str,
    pub port: i32,
    pub rack: Option<&'a str>,
}

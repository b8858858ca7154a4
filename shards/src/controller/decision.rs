//! Deciding is pure: an image and a request in, records and a reply out. What becomes of them is [`super::Controller`]'s business.

use corelog_wire::records::metadata::MetadataRecord;

use super::Settings;
use super::random::Random;
use super::request::{Ask, Reply};
use crate::metadata::Image;

/// What a request comes to. The records stand in one batch: all of them or none.
pub struct Decision {
    pub records: Vec<MetadataRecord>,
    pub reply: Reply,
}

impl Decision {
    pub fn new(records: Vec<MetadataRecord>, reply: Reply) -> Decision {
        Decision { records, reply }
    }

    pub fn refused(reply: Reply) -> Decision {
        Decision::new(Vec::new(), reply)
    }

    /// Without its records if the client only asked whether it could be done.
    pub fn unless_validated(
        records: Vec<MetadataRecord>,
        reply: Reply,
        validate_only: bool,
    ) -> Decision {
        let records = if validate_only { Vec::new() } else { records };
        Decision { records, reply }
    }
}

/// Decides about everything but producer ids, which are not a matter of the image alone.
pub fn decide(decider: &mut Decider<'_>, ask: &Ask) -> Option<Decision> {
    match ask {
        Ask::CreateTopics(request) => Some(decider.create_topics(request)),
        Ask::DeleteTopics(topics) => Some(decider.delete_topics(topics)),
        Ask::CreatePartitions(request) => Some(decider.create_partitions(request)),
        Ask::IncrementalAlterConfigs(request) => Some(decider.incremental_alter_configs(request)),
        Ask::AlterConfigs(request) => Some(decider.alter_configs(request)),
        Ask::AllocateProducerId => None,
    }
}

/// What a decision may look at.
pub struct Decider<'a> {
    pub image: &'a Image,
    pub settings: &'a Settings,
    pub random: &'a mut Random,
}

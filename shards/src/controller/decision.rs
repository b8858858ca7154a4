//! Deciding is pure: an image and a request in, records and a reply out. What becomes of them is [`super::Controller`]'s business.

use corelog_wire::records::metadata::MetadataRecord;

use super::Settings;
use super::request::{Ask, Reply};
use crate::base::random::Random;
use crate::metadata::Image;

/// What a request comes to. The records stand in one batch: all of them or none.
pub(super) struct Decision {
    pub(super) records: Vec<MetadataRecord>,
    pub(super) reply: Reply,
}

impl Decision {
    pub(super) fn new(records: Vec<MetadataRecord>, reply: Reply) -> Decision {
        Decision { records, reply }
    }

    pub(super) fn refused(reply: Reply) -> Decision {
        Decision::new(Vec::new(), reply)
    }

    /// Without its records if the client only asked whether it could be done.
    pub(super) fn unless_validated(
        records: Vec<MetadataRecord>,
        reply: Reply,
        validate_only: bool,
    ) -> Decision {
        let records = if validate_only { Vec::new() } else { records };
        Decision { records, reply }
    }
}

/// Decides about everything but producer ids, which are not a matter of the image alone.
pub(super) fn decide(decider: &mut Decider<'_>, ask: &Ask) -> Option<Decision> {
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
pub(super) struct Decider<'a> {
    pub(super) image: &'a Image,
    pub(super) settings: &'a Settings,
    pub(super) random: &'a mut Random,
}

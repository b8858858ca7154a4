//! What the tests of this module share.

use std::sync::Arc;

use corelog_wire::records::metadata::MetadataRecord;

use super::Settings;
use super::decision::{Decider, Decision, decide};
use super::request::Ask;
use super::start::register_broker;
use crate::base::ids::{Text, Uuid};
use crate::base::random::Random;
use crate::log::Shutdown;
use crate::metadata::{Endpoint, Identity, Replay};

pub(super) fn settings() -> Settings {
    Settings {
        identity: Identity {
            cluster_id: Text::from_static("pFEZz43xSLadIStqavU4gg"),
            node_id: 1,
            shards: 2,
            statics: Arc::default(),
        },
        num_partitions: 3,
        default_replication_factor: 1,
        delete_topic_enable: true,
        rack: None,
        broker_endpoints: vec![Endpoint {
            name: Text::from_static("PLAINTEXT"),
            host: Text::from_static("127.0.0.1"),
            port: 9092,
            security_protocol: 0,
        }],
        controller_endpoints: Vec::new(),
        log_dirs: vec![Uuid([9; 16])],
        shutdown: Shutdown::Clean,
        snapshot_bytes: 20 << 20,
        snapshot_interval_ms: 3_600_000,
        seed: 1,
    }
}

/// A cluster of this broker alone.
pub(super) fn image_with_broker() -> Replay {
    let settings = settings();
    let mut replay = Replay::new(&settings.identity);
    replay.begin_version();
    apply_all(&mut replay, &register_broker(&settings, Uuid([2; 16]), 0));
    replay
}

pub(super) fn apply_all(replay: &mut Replay, records: &[MetadataRecord]) {
    for record in records {
        let offset = replay.working().offset + 1;
        replay.apply(offset, record).expect("the record is valid");
    }
}

/// Decides and applies.
pub(super) fn ask(replay: &mut Replay, settings: &Settings, ask: &Ask) -> Decision {
    let mut random = Random::new(settings.seed + replay.working().offset as u64);
    let mut decider = Decider {
        image: replay.working(),
        settings,
        random: &mut random,
    };
    let decision = decide(&mut decider, ask).expect("a matter of the image");
    apply_all(replay, &decision.records);
    decision
}

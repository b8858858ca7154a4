//! The controller on a disk that can be slow or broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::batch;
use super::leader::{Controller, log_config};
use super::load::{Loaded, SnapshotFile};
use super::request::{
    AlterConfigs, AlterResource, Ask, Change, ConfigOp, CreatePartitions, CreateTopics,
    DeleteTopic, MorePartitions, NewTopic, Refusal, Reply, Request,
};
use super::settings::Settings;
use super::testing::settings;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{FileId, FileKind, METADATA_LOG, Op, ReplyTo, ShardId, Text};
use crate::base::time::{Mono, Now};
use crate::effect::{Effect, Outbox};
use crate::event::{DiskFailure, Done};
use crate::log::{AppendBatch, Log, Origin, TailCache};
use crate::metadata::Image;
use crate::metadata::configs::ResourceKind;
use crate::part;
use corelog_wire::batch::BatchHeader;

const GOLDEN: &[u8] = include_bytes!("../../tests/golden/cluster_metadata.log");

type Files = BTreeMap<FileId, BytesMut>;

struct Rig {
    controller: Controller,
    out: Outbox,
    files: Files,
    now: Now,
    replies: Vec<(ReplyTo, Reply)>,
    published: Vec<Arc<Image>>,
    log_dir_failed: bool,
    /// What of the disk is not answered yet, while `disk_stalls`.
    stalled: Vec<(Op, Done)>,
    disk_stalls: bool,
    disk_fails: bool,
    /// Shards apply what is published at once.
    shards_follow: bool,
    next_request: u64,
}

fn at(ms: u64) -> Now {
    Now {
        mono: Mono(ms * 1000),
        wall_ms: 1_700_000_000_000 + ms as i64,
    }
}

fn log_file() -> FileId {
    FileId {
        log: METADATA_LOG,
        kind: FileKind::Log,
        base: 0,
    }
}

impl Rig {
    fn new() -> Rig {
        Rig::start(settings(), 1, Files::new(), None)
    }

    /// Starts on what an earlier run left behind.
    fn start(
        settings: Settings,
        epoch: i32,
        mut files: Files,
        snapshot: Option<&SnapshotFile>,
    ) -> Rig {
        let now = at(0);
        let content = files.entry(log_file()).or_default().clone().freeze();
        let loaded =
            Loaded::read(&settings.identity, snapshot, [content.clone()]).expect("readable");
        let log = reopened(content, now);
        let mut out = Outbox::new();
        let controller = Controller::start(now, settings, epoch, log, loaded, None, &mut out)
            .expect("startable");
        let mut rig = Rig {
            controller,
            out,
            files,
            now,
            replies: Vec::new(),
            published: Vec::new(),
            log_dir_failed: false,
            stalled: Vec::new(),
            disk_stalls: false,
            disk_fails: false,
            shards_follow: true,
            next_request: 0,
        };
        rig.pump();
        rig
    }

    /// Carries out effects until there are none.
    fn pump(&mut self) {
        while !self.out.is_empty() {
            let effects: Vec<Effect> = self.out.drain().collect();
            for effect in effects {
                self.carry_out(effect);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Write {
                op,
                file,
                position,
                chunks,
            } => {
                let content = self.files.entry(file).or_default();
                content.resize(position as usize, 0);
                chunks
                    .iter()
                    .for_each(|chunk| content.extend_from_slice(chunk));
                self.finish(op, Done::Written);
            }
            Effect::Sync { op, .. } => self.finish(op, Done::Synced),
            Effect::Replace { op, file, content } => {
                self.files.insert(file, BytesMut::from(&content[..]));
                self.finish(op, Done::Written);
            }
            Effect::Delete { op, files, .. } => {
                for file in files {
                    self.files.remove(&file);
                }
                self.finish(op, Done::Written);
            }
            Effect::Seal { op, .. } | Effect::Truncate { op, .. } => self.finish(op, Done::Written),
            Effect::Publish(image) => {
                if self.shards_follow {
                    for shard in 0..image.shards {
                        self.apply(shard, image.version);
                    }
                }
                self.published.push(image);
            }
            Effect::Reply {
                to,
                reply: part::Reply::Controller(reply),
            } => self.replies.push((to, *reply)),
            Effect::LogDirFailed { .. } => self.log_dir_failed = true,
            _ => panic!("an effect that the controller has no use for"),
        }
    }

    fn finish(&mut self, op: Op, done: Done) {
        if self.disk_fails {
            self.controller
                .on_done(self.now, op, Err(DiskFailure), &mut self.out);
        } else if self.disk_stalls {
            self.stalled.push((op, done));
        } else {
            self.controller
                .on_done(self.now, op, Ok(done), &mut self.out);
        }
    }

    fn disk_recovers(&mut self) {
        self.disk_stalls = false;
        for (op, done) in std::mem::take(&mut self.stalled) {
            self.controller
                .on_done(self.now, op, Ok(done), &mut self.out);
        }
        self.pump();
    }

    fn apply(&mut self, shard: u16, version: u64) {
        self.controller
            .on_applied(self.now, ShardId(shard), version, &mut self.out);
    }

    fn ask(&mut self, ask: Ask) -> ReplyTo {
        self.next_request += 1;
        let to = ReplyTo(self.next_request);
        let request = Request {
            timeout_ms: 1000,
            ask,
        };
        self.controller
            .on_request(self.now, to, &request, &mut self.out);
        self.pump();
        to
    }

    /// The reply to a request that is answered at once.
    fn answer(&mut self, ask: Ask) -> Reply {
        let to = self.ask(ask);
        let (last, reply) = self.replies.pop().expect("answered");
        assert_eq!(last, to);
        reply
    }

    fn image(&self) -> &Arc<Image> {
        self.published.last().expect("published")
    }

    fn replayed(&self) -> Loaded {
        let content = self.files[&log_file()].clone().freeze();
        Loaded::read(&settings().identity, None, [content]).expect("readable")
    }
}

/// A log with what is in the file, as if it had been recovered.
fn reopened(mut content: Bytes, now: Now) -> Box<Log> {
    let mut log = Log::create(METADATA_LOG, Op::CONTROLLER, Arc::new(log_config()), now);
    let (mut tail, mut out) = (TailCache::new(0), Outbox::new());
    while !content.is_empty() {
        let header = BatchHeader::parse(&content).expect("a batch");
        let batch = AppendBatch {
            bytes: content.split_to(header.total_len()),
            header,
            leader_epoch: header.partition_leader_epoch,
            origin: Origin::Controller,
        };
        log.append(now, &batch, &mut tail, &mut out)
            .expect("appended");
    }
    while !out.is_empty() {
        let effects: Vec<Effect> = out.drain().collect();
        for effect in effects {
            let (op, done) = match effect {
                Effect::Sync { op, .. } => (op, Done::Synced),
                Effect::Write { op, .. } | Effect::Replace { op, .. } => (op, Done::Written),
                _ => continue,
            };
            log.done(now, op, Ok(done), &tail, &mut out);
        }
    }
    Box::new(log)
}

fn create(name: &str, partitions: i32) -> Ask {
    Ask::CreateTopics(CreateTopics {
        topics: vec![NewTopic {
            name: Text::from(name.to_owned()),
            partitions,
            replication_factor: 1,
            ..NewTopic::default()
        }],
        validate_only: false,
    })
}

fn code(reply: &Reply) -> ErrorCode {
    let of = |refusal: &Refusal| refusal.code;
    let refused = match reply {
        Reply::CreateTopics(entries) => entries[0].as_ref().err().map(of),
        Reply::DeleteTopics(entries) => entries[0].as_ref().err().map(of),
        Reply::CreatePartitions(entries) | Reply::AlterConfigs(entries) => {
            entries[0].as_ref().err().map(of)
        }
        Reply::ProducerId(id) => id.as_ref().err().map(of),
    };
    refused.unwrap_or(ErrorCode::NONE)
}

#[test]
fn a_new_cluster_is_shown_when_its_first_records_are_durable() {
    let rig = Rig::new();
    assert_eq!(rig.published.len(), 1);
    let image = rig.image();
    assert_eq!((image.version, image.epoch), (2, 1));
    assert!(!image.brokers[&1].fenced);
    assert_eq!(image.feature("metadata.version"), 30);
    assert!(image.controllers.contains_key(&1));
    assert_eq!(
        image.brokers[&1].epoch,
        image.offset - 1,
        "the offset of the registration"
    );
    assert!(rig.replayed().image().says_the_same_as(image));
}

#[test]
fn a_topic_is_answered_only_when_it_is_durable_and_every_shard_has_applied_it() {
    let mut rig = Rig::new();
    rig.shards_follow = false;
    rig.disk_stalls = true;
    let to = rig.ask(create("t", 1));
    assert!(rig.replies.is_empty() && rig.image().topic("t").is_none());
    rig.disk_recovers();
    let version = rig.image().version;
    assert!(rig.image().topic("t").is_some(), "durable, so it is shown");
    rig.apply(0, version);
    rig.pump();
    assert!(rig.replies.is_empty(), "shard 1 has not applied it");
    rig.apply(1, version);
    rig.pump();
    assert_eq!(rig.replies.len(), 1);
    assert_eq!(
        (rig.replies[0].0, code(&rig.replies[0].1)),
        (to, ErrorCode::NONE)
    );
}

#[test]
fn what_takes_too_long_is_answered_as_timed_out_and_done_all_the_same() {
    let mut rig = Rig::new();
    rig.disk_stalls = true;
    rig.ask(create("t", 1));
    let deadline = rig.controller.next_deadline().expect("somebody waits");
    assert_eq!(deadline, at(1000).mono);
    rig.now = at(1000);
    rig.controller.on_tick(rig.now, &mut rig.out);
    rig.pump();
    assert_eq!(code(&rig.replies[0].1), ErrorCode::REQUEST_TIMED_OUT);
    rig.disk_recovers();
    assert!(rig.image().topic("t").is_some());
    assert_eq!(rig.replies.len(), 1);
}

#[test]
fn requests_that_come_while_the_disk_works_see_each_other() {
    let mut rig = Rig::new();
    rig.disk_stalls = true;
    rig.ask(create("t", 1));
    rig.ask(create("t", 1));
    assert!(
        rig.replies.is_empty(),
        "the refusal rests on what is not durable yet"
    );
    rig.disk_recovers();
    rig.replies.sort_by_key(|(to, _)| *to);
    let codes: Vec<ErrorCode> = rig.replies.iter().map(|(_, reply)| code(reply)).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS]);
}

#[test]
fn a_cancelled_request_is_not_answered() {
    let mut rig = Rig::new();
    rig.disk_stalls = true;
    let to = rig.ask(create("t", 1));
    rig.controller.on_cancelled(to);
    rig.disk_recovers();
    assert!(rig.replies.is_empty());
    assert!(rig.image().topic("t").is_some());
}

#[test]
fn a_restart_finds_everything_under_a_new_epoch() {
    let mut first = Rig::new();
    assert_eq!(code(&first.answer(create("t", 3))), ErrorCode::NONE);
    let id = first.image().topic("t").expect("there").id;
    let mut second = Rig::start(settings(), 2, first.files.clone(), None);
    let image = second.image().clone();
    assert_eq!(image.topic("t").expect("there").id, id);
    assert_eq!(image.epoch, 2);
    assert!(image.brokers[&1].epoch > first.image().brokers[&1].epoch);
    let meta = &image.topic("t").expect("there").partitions[0];
    assert_eq!(
        (meta.leader, meta.leader_epoch),
        (1, 0),
        "nothing happened to its leader"
    );
    assert_eq!(
        code(&second.answer(create("t", 3))),
        ErrorCode::TOPIC_ALREADY_EXISTS
    );
    let mut content = second.files[&log_file()].clone().freeze();
    let mut control = Vec::new();
    while let Some(batch) = batch::next(&mut content).expect("readable") {
        if batch.header.is_control() {
            control.push(batch.header.partition_leader_epoch);
        }
    }
    assert_eq!(control, [1, 2], "one leader change a start");
}

#[test]
fn a_directory_of_apache_kafka_is_taken_over() {
    let files = Files::from([(log_file(), BytesMut::from(GOLDEN))]);
    let mut rig = Rig::start(settings(), 2, files, None);
    let image = rig.image().clone();
    assert_eq!(image.topic_count(), 8);
    let broker = &image.brokers[&1];
    assert!(!broker.fenced && !broker.in_controlled_shutdown);
    assert_eq!(broker.endpoints[0].port, 9092, "the registration is ours");
    for meta in image.topics().flat_map(|topic| &topic.partitions) {
        assert_eq!(
            (meta.leader, meta.leader_epoch, &meta.isr[..]),
            (1, 2, &[1][..])
        );
        assert!(meta.elr.is_empty() && meta.last_known_elr.is_empty());
    }
    assert_eq!(
        rig.answer(Ask::AllocateProducerId),
        Reply::ProducerId(Ok(1000))
    );
    assert_eq!(rig.replayed().image().next_producer_id, 2000);
}

#[test]
fn producer_ids_are_never_given_twice() {
    let mut first = Rig::new();
    let ids: Vec<Reply> = (0..1001)
        .map(|_| first.answer(Ask::AllocateProducerId))
        .collect();
    let expected: Vec<Reply> = (0..1001).map(|id| Reply::ProducerId(Ok(id))).collect();
    assert_eq!(ids, expected);
    let mut second = Rig::start(settings(), 2, first.files, None);
    assert_eq!(
        second.answer(Ask::AllocateProducerId),
        Reply::ProducerId(Ok(2000))
    );
}

#[test]
fn a_producer_id_is_answered_when_its_block_is_durable() {
    let mut rig = Rig::new();
    rig.disk_stalls = true;
    rig.ask(Ask::AllocateProducerId);
    rig.ask(Ask::AllocateProducerId);
    assert!(rig.replies.is_empty());
    rig.disk_recovers();
    assert_eq!(rig.replies.len(), 2);
}

#[test]
fn a_failed_disk_fails_the_directory_and_everything_that_waits() {
    let mut rig = Rig::new();
    rig.disk_fails = true;
    rig.ask(create("t", 1));
    assert!(rig.log_dir_failed && rig.controller.is_stopped());
    assert_eq!(code(&rig.replies[0].1), ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(rig.image().topic("t").is_none());
    rig.ask(create("u", 1));
    assert_eq!(code(&rig.replies[1].1), ErrorCode::KAFKA_STORAGE_ERROR);
}

#[test]
fn a_stopping_controller_takes_no_requests() {
    let mut rig = Rig::new();
    rig.controller.stop(rig.now, &mut rig.out);
    rig.pump();
    assert!(rig.controller.is_stopped());
    rig.ask(create("t", 1));
    assert_eq!(code(&rig.replies[0].1), ErrorCode::NOT_CONTROLLER);
}

fn snapshots(files: &Files) -> Vec<SnapshotFile> {
    files
        .iter()
        .filter_map(|(file, content)| match file.kind {
            FileKind::MetadataSnapshot { epoch } => Some(SnapshotFile {
                end_offset: file.base,
                epoch,
                content: content.clone().freeze(),
                older: Vec::new(),
            }),
            _ => None,
        })
        .collect()
}

#[test]
fn snapshots_are_written_after_enough_records_and_the_older_one_goes() {
    let mut small = settings();
    small.snapshot_bytes = 2000;
    let mut rig = Rig::start(small.clone(), 1, Files::new(), None);
    for number in 0..20 {
        assert_eq!(
            code(&rig.answer(create(&format!("t{number}"), 3))),
            ErrorCode::NONE
        );
    }
    let found = snapshots(&rig.files);
    assert_eq!(found.len(), 1, "the newest");
    assert!(rig.controller.log().log_start() >= found[0].end_offset);
    let again = Rig::start(small, 2, rig.files.clone(), Some(&found[0]));
    assert_eq!(again.image().topic_count(), 20);
}

/// A crash between a snapshot and the deletion of the one before leaves both; a JVM node leaves more.
#[test]
fn older_snapshots_that_were_left_go_with_the_next_one() {
    let mut rig = Rig::new();
    rig.now = at(3_600_000);
    rig.controller.on_tick(rig.now, &mut rig.out);
    rig.pump();
    let mut newest = snapshots(&rig.files).remove(0);
    newest.older = vec![(1, 0), (2, 1)];
    let mut files = rig.files.clone();
    for (base, epoch) in &newest.older {
        let left = FileId {
            kind: FileKind::MetadataSnapshot { epoch: *epoch },
            base: *base,
            ..log_file()
        };
        files.insert(left, BytesMut::new());
    }
    assert_eq!(snapshots(&files).len(), 3);
    let mut rig = Rig::start(settings(), 2, files, Some(&newest));
    rig.now = at(3_600_000);
    rig.controller.on_tick(rig.now, &mut rig.out);
    rig.pump();
    let found = snapshots(&rig.files);
    assert_eq!(found.len(), 1);
    assert!(found[0].end_offset > newest.end_offset);
}

#[test]
fn a_snapshot_is_written_after_an_hour_if_there_was_a_change() {
    let mut rig = Rig::new();
    rig.now = at(3_600_000);
    rig.controller.on_tick(rig.now, &mut rig.out);
    rig.pump();
    assert_eq!(snapshots(&rig.files).len(), 1);
    rig.now = at(9_000_000);
    rig.controller.on_tick(rig.now, &mut rig.out);
    rig.pump();
    assert_eq!(snapshots(&rig.files).len(), 1, "nothing has changed since");
}

fn any_name() -> impl Strategy<Value = Text> {
    (0..5).prop_map(|number| Text::from(format!("t{number}")))
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let create = (any_name(), 1..4).prop_map(|(name, partitions)| create(&name, partitions));
    let delete = any_name().prop_map(|name| Ask::DeleteTopics(vec![DeleteTopic::Name(name)]));
    let grow = (any_name(), 1..9).prop_map(|(name, count)| {
        Ask::CreatePartitions(CreatePartitions {
            topics: vec![MorePartitions {
                name,
                count,
                assignments: None,
            }],
            validate_only: false,
        })
    });
    let change = prop_oneof![
        Just(Change::Set),
        Just(Change::Delete),
        Just(Change::Append),
        Just(Change::Subtract)
    ];
    let resource = prop_oneof![
        any_name().prop_map(|name| (ResourceKind::Topic, name)),
        Just((ResourceKind::Broker, Text::empty())),
        Just((ResourceKind::Broker, Text::from_static("1"))),
    ];
    let setting = prop_oneof![
        Just(("retention.ms", "5")),
        Just(("cleanup.policy", "compact")),
        Just(("log.retention.ms", "7")),
        Just(("log.cleanup.policy", "compact")),
    ];
    let alter = (resource, change, setting).prop_map(|((kind, name), change, (key, value))| {
        Ask::IncrementalAlterConfigs(AlterConfigs {
            resources: vec![AlterResource {
                kind,
                name,
                changes: vec![ConfigOp {
                    name: Text::from_static(key),
                    change,
                    value: Some(Text::from_static(value)),
                    broker_list: None,
                }],
            }],
            validate_only: false,
        })
    });
    prop_oneof![create, delete, grow, alter, Just(Ask::AllocateProducerId)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn replaying_its_own_log_gives_the_image_that_was_kept(asks in proptest::collection::vec(any_ask(), 0..40)) {
        let mut rig = Rig::new();
        for ask in asks {
            rig.ask(ask);
        }
        rig.answer(create("last", 1));
        let replayed = rig.replayed();
        prop_assert!(replayed.image().says_the_same_as(rig.image()));
        prop_assert_eq!(replayed.image().offset, rig.image().offset);
    }

    #[test]
    fn a_snapshot_gives_the_image_that_it_was_taken_of(asks in proptest::collection::vec(any_ask(), 0..40)) {
        let mut rig = Rig::new();
        for ask in asks {
            rig.ask(ask);
        }
        rig.now = at(3_600_000);
        rig.controller.on_tick(rig.now, &mut rig.out);
        rig.pump();
        let found = snapshots(&rig.files);
        let loaded = Loaded::read(&settings().identity, found.first(), []).expect("readable");
        prop_assert!(loaded.image().says_the_same_as(rig.image()));
    }
}

//! What the tests of the APIs share: a broker of one shard with a controller on a disk that is never slow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use corelog_shards::base::ids::{METADATA_LOG, Op, ReplyTo, ShardId, Text, Uuid};
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::controller::request::{
    AlterConfigs, AlterResource, Ask, Change, ConfigOp, CreateTopics, NewTopic, Request,
};
use corelog_shards::controller::{Controller, Loaded, Settings, log_config};
use corelog_shards::effect::{Effect, Outbox};
use corelog_shards::event::Done;
use corelog_shards::log::Log;
use corelog_shards::metadata::configs::ResourceKind;
use corelog_shards::metadata::{Endpoint, Identity, Image, Replay};
use corelog_shards::part::{Part, Reply};
use corelog_wire::frame::{RequestHeader, ResponseHeader};
use corelog_wire::primitives::{DecodeError, Reader};
use corelog_wire::records::metadata::{FeatureLevelRecord, MetadataRecord};

use super::{Answer, BrokerView, Context, Directories, Joins, Parts, Split, Step};

const NOW: Now = Now {
    mono: Mono(0),
    wall_ms: 1_700_000_000_000,
};

pub(crate) fn broker_view() -> BrokerView {
    BrokerView {
        node_id: 1,
        listener: Text::from_static("PLAINTEXT"),
        host: Text::from_static("broker.example"),
        port: 9092,
        rack: None,
        statics: BTreeMap::new(),
        auto_create_topics: true,
        delete_topic_enable: true,
        num_partitions: 1,
        default_replication_factor: 1,
        fetch_max_bytes: 57_671_680,
        max_request_partition_size_limit: 2000,
    }
}

/// A broker that APIs can be tried on.
pub(super) struct Bench {
    pub(super) broker: BrokerView,
    world: RefCell<World>,
}

struct World {
    controller: Controller,
    out: Outbox,
    image: Arc<Image>,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::with_statics(&[])
    }

    /// What the configuration file says.
    pub(super) fn with_statics(statics: &[(&str, &str)]) -> Bench {
        let mut broker = broker_view();
        let pairs = statics
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        broker.statics = pairs.collect();
        let settings = settings(&broker);
        let loaded = Loaded::read(&settings.identity, None, []).expect("nothing is there");
        let log = Log::create(METADATA_LOG, Op::CONTROLLER, Arc::new(log_config()), NOW);
        let mut out = Outbox::new();
        let image = Arc::new(Image::empty(&settings.identity));
        let controller = Controller::start(NOW, settings, 1, Box::new(log), loaded, None, &mut out)
            .expect("startable");
        let mut world = World {
            controller,
            out,
            image,
        };
        world.pump();
        Bench {
            broker,
            world: RefCell::new(world),
        }
    }

    pub(super) fn image(&self) -> Arc<Image> {
        self.world.borrow().image.clone()
    }

    pub(super) fn topic(self, name: &'static str, partitions: i32) -> Bench {
        self.world.borrow_mut().ask(Ask::CreateTopics(CreateTopics {
            topics: vec![NewTopic {
                name: Text::from_static(name),
                partitions,
                replication_factor: 1,
                ..NewTopic::default()
            }],
            validate_only: false,
        }));
        assert!(self.image().topic(name).is_some());
        self
    }

    pub(super) fn set(
        self,
        kind: i8,
        resource: &'static str,
        name: &'static str,
        value: &'static str,
    ) -> Bench {
        self.world
            .borrow_mut()
            .ask(Ask::IncrementalAlterConfigs(AlterConfigs {
                resources: vec![AlterResource {
                    kind: ResourceKind::from_code(kind).expect("known"),
                    name: Text::from_static(resource),
                    changes: vec![ConfigOp {
                        name: Text::from_static(name),
                        change: Change::Set,
                        value: Some(Text::from_static(value)),
                        broker_list: None,
                    }],
                }],
                validate_only: false,
            }));
        self
    }

    /// As if the log of another release had said so.
    pub(super) fn feature(self, name: &'static str, level: i16) -> Bench {
        self.change(MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: Text::from_static(name),
            feature_level: level,
        }))
    }

    /// Changes the image behind the controller's back.
    pub(super) fn change(self, record: MetadataRecord) -> Bench {
        let image = Image::clone(&self.image());
        let mut replay = Replay::from_image(image);
        let offset = replay.working().offset + 1;
        replay.apply(offset, &record).expect("valid");
        self.world.borrow_mut().image = Arc::new(replay.working().clone());
        self
    }
}

fn settings(broker: &BrokerView) -> Settings {
    Settings {
        identity: Identity {
            cluster_id: Text::from_static("cluster"),
            node_id: 1,
            shards: 1,
            statics: Arc::new(broker.statics.clone()),
        },
        num_partitions: broker.num_partitions,
        default_replication_factor: broker.default_replication_factor,
        delete_topic_enable: broker.delete_topic_enable,
        rack: None,
        broker_endpoints: vec![Endpoint {
            name: broker.listener.clone(),
            host: broker.host.clone(),
            port: broker.port,
            security_protocol: 0,
        }],
        controller_endpoints: Vec::new(),
        log_dirs: vec![Uuid([9; 16])],
        snapshot_bytes: u64::MAX,
        shutdown: corelog_shards::log::Shutdown::Clean,
        snapshot_interval_ms: u64::MAX,
        seed: 1,
    }
}

impl World {
    fn ask(&mut self, ask: Ask) -> Vec<Reply> {
        let request = Request {
            timeout_ms: 1000,
            ask,
        };
        self.request(&request)
    }

    fn request(&mut self, request: &Request) -> Vec<Reply> {
        self.controller
            .on_request(NOW, ReplyTo(1), request, &mut self.out);
        self.pump()
    }

    fn pump(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        while !self.out.is_empty() {
            let effects: Vec<Effect> = self.out.drain().collect();
            for effect in effects {
                let (op, done) = match effect {
                    Effect::Write { op, .. } | Effect::Replace { op, .. } => (op, Done::Written),
                    Effect::Sync { op, .. } => (op, Done::Synced),
                    Effect::Publish(image) => {
                        let version = image.version;
                        self.image = image;
                        self.controller
                            .on_applied(NOW, ShardId(0), version, &mut self.out);
                        continue;
                    }
                    Effect::Reply { reply, .. } => {
                        replies.push(reply);
                        continue;
                    }
                    _ => panic!("an effect that the controller has no use for here"),
                };
                self.controller.on_done(NOW, op, Ok(done), &mut self.out);
            }
        }
        replies
    }
}

/// Sends one request through split, shards and join, and reads the response.
pub(super) fn call<T>(
    bench: &Bench,
    api_key: i16,
    api_version: i16,
    body: impl FnOnce(&mut BytesMut),
    decode: impl FnOnce(&mut Reader) -> Result<T, DecodeError>,
) -> T {
    let header = RequestHeader {
        api_key,
        api_version,
        correlation_id: 7,
        client_id: Some(Text::from_static("test")),
    };
    let mut frame = BytesMut::new();
    header.put_frame(&mut frame, body);
    let response = exchange(bench, frame.freeze().slice(4..)).expect("an answer");
    let (read, mut reader) = ResponseHeader::parse(response.slice(4..), api_key, api_version)
        .expect("a response header");
    assert_eq!(read.correlation_id, 7);
    let message = decode(&mut reader).expect("a response");
    assert_eq!(reader.remaining(), 0, "nothing follows the response");
    message
}

/// The response to a frame, prefix included; `None` if the connection is closed.
pub(super) fn exchange(bench: &Bench, frame: Bytes) -> Option<Bytes> {
    let directories = Arc::new(Directories::default());
    let (mut parts, mut head, mut chunks) = (Parts::new(), BytesMut::new(), Vec::new());
    let mut image = bench.image();
    let mut pending = {
        let cx = context(bench, &image, &directories);
        let mut answer = Answer {
            head: &mut head,
            chunks: &mut chunks,
        };
        match super::split(&cx, frame, &mut parts, &mut answer).1 {
            Split::Ready => return Some(head.freeze()),
            Split::Wait(pending) => pending,
            Split::Silent | Split::Close(_) => return None,
        }
    };
    let mut next = 0;
    loop {
        let (owner, part) = parts.get(next).expect("a part that is not answered");
        assert_eq!(*owner, ShardId(0));
        let Part::Controller(request) = part else {
            panic!("the tests have no shard but the controller");
        };
        let replies = bench.world.borrow_mut().request(request);
        image = bench.image();
        let cx = context(bench, &image, &directories);
        let mut answer = Answer {
            head: &mut head,
            chunks: &mut chunks,
        };
        for reply in replies {
            match pending.on_reply(&cx, next, reply, &mut parts, &mut answer) {
                Step::Wait | Step::Again => {}
                Step::Done => return Some(head.freeze()),
                Step::Silent | Step::Close => return None,
            }
        }
        next += 1;
    }
}

fn context<'a>(
    bench: &'a Bench,
    image: &'a Arc<Image>,
    directories: &'a Arc<Directories>,
) -> Context<'a> {
    Context {
        now: NOW,
        image,
        broker: &bench.broker,
        directories,
        home: ShardId(0),
        client_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
}

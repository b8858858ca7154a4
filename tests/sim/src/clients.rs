//! The load: producers, consumers and an operator, each on one connection at a time.
//!
//! A client wakes up, says what it sends, and is told what was answered or that its connection is lost.

pub mod administrator;
pub mod consumer;
pub mod member;
pub mod operator;
pub mod producer;

use std::collections::BTreeMap;

use bytes::Bytes;
use corelog_shards::base::ids::{TopicPartition, Uuid};
use corelog_shards::group::groups::OFFSETS_TOPIC;

use crate::Checked;
use crate::oracle::{Answered, Said, Truth, What, is_internal};
use crate::seeded::Seeded;
use administrator::Administrator;
use consumer::Consumer;
use member::Member;
use producer::Producer;

/// The topic that groups share out. Nobody deletes it.
pub const WORK: &str = "plain-work";

/// The groups that have members.
pub const GROUPS: [&str; 2] = ["alpha", "beta"];

const UNKNOWN_TOPIC: [i16; 2] = [3, 100];

/// What a client sees when it acts.
pub struct Scene<'a> {
    pub wall_ms: i64,
    pub seeded: &'a mut Seeded,
    /// Topics that can be used: id and number of partitions, by name.
    pub topics: &'a BTreeMap<String, (Uuid, i32)>,
    pub truths: &'a BTreeMap<TopicPartition, Truth>,
    /// No new work: what is open is finished.
    pub calm: bool,
    /// The topic of offsets is to sync what it acknowledges.
    pub offsets_are_durable: bool,
}

impl Scene<'_> {
    /// Whether groups can begin: a topic of offsets that is to be another one is made before.
    fn has_topics_of_groups(&self) -> bool {
        let has = |name| self.topics.contains_key(name);
        has(WORK) && (!self.offsets_are_durable || has(OFFSETS_TOPIC))
    }

    /// Those that clients write to.
    fn partitions(&self) -> Vec<(TopicPartition, String)> {
        let mut all = self.all_partitions();
        all.retain(|(_, topic)| !is_internal(topic));
        all
    }

    fn all_partitions(&self) -> Vec<(TopicPartition, String)> {
        let of = |(name, (topic_id, partitions)): (&String, &(Uuid, i32))| {
            let (name, topic_id) = (name.clone(), *topic_id);
            (0..*partitions).map(move |partition| {
                let partition = TopicPartition {
                    topic_id,
                    partition,
                };
                (partition, name.clone())
            })
        };
        self.topics.iter().flat_map(of).collect()
    }

    fn has(&self, partition: TopicPartition) -> bool {
        self.topics
            .values()
            .any(|(id, _)| *id == partition.topic_id)
    }
}

/// A request on its way out.
pub struct Sending {
    pub what: What,
    pub version: i16,
    pub frame: Bytes,
    /// Batches in it, as the oracle knows them.
    pub uids: Vec<u64>,
}

pub struct Client {
    pub connection: Option<u64>,
    correlation: i32,
    /// Requests without an answer yet.
    outstanding: usize,
    pub role: Role,
}

pub enum Role {
    Producer(Producer),
    Consumer(Consumer),
    Member(Box<Member>),
    Administrator(Administrator),
    Operator,
}

impl Client {
    fn new(role: Role) -> Client {
        Client {
            connection: None,
            correlation: 0,
            outstanding: 0,
            role,
        }
    }

    pub fn producer(number: usize, seeded: &mut Seeded) -> Client {
        Client::new(Role::Producer(Producer::new(number, seeded)))
    }

    pub fn consumer(seeded: &mut Seeded) -> Client {
        Client::new(Role::Consumer(Consumer::new(seeded)))
    }

    /// Reads everything that is there, for the last check.
    pub fn verifier() -> Client {
        Client::new(Role::Consumer(Consumer::verifier()))
    }

    pub fn member(member: Member) -> Client {
        Client::new(Role::Member(Box::new(member)))
    }

    pub fn administrator() -> Client {
        Client::new(Role::Administrator(Administrator::default()))
    }

    pub fn operator() -> Client {
        Client::new(Role::Operator)
    }

    /// Nothing is open. A consumer always asks for more.
    pub fn is_idle(&self) -> bool {
        match &self.role {
            Role::Producer(producer) => self.outstanding == 0 && producer.has_no_open(),
            Role::Member(member) => member.is_settled(),
            Role::Administrator(_) | Role::Operator => self.outstanding == 0,
            Role::Consumer(_) => true,
        }
    }

    /// What is sent now, and in how many microseconds the client wants to act again.
    pub fn wake(&mut self, scene: &mut Scene<'_>) -> (Vec<Sending>, u64) {
        let mut sending = Vec::new();
        let (correlation, outstanding) = (&mut self.correlation, self.outstanding);
        let rest_us = match &mut self.role {
            Role::Producer(producer) => {
                producer.wake(scene, correlation, outstanding, &mut sending);
                scene.seeded.between(200, 40_000)
            }
            Role::Consumer(consumer) => {
                if outstanding == 0 {
                    sending.extend(consumer.wake(scene, correlation));
                }
                scene.seeded.between(100, 60_000)
            }
            Role::Member(member) => {
                let (sent, rest_us) = member.wake(scene, correlation, outstanding);
                sending.extend(sent);
                rest_us
            }
            Role::Administrator(administrator) => {
                if outstanding == 0 {
                    sending.extend(administrator.wake(scene, correlation));
                }
                scene.seeded.between(5_000, 300_000)
            }
            Role::Operator => {
                if outstanding == 0 {
                    sending.extend(operator::operate(scene, correlation));
                }
                scene.seeded.between(5_000, 400_000)
            }
        };
        self.outstanding += sending
            .iter()
            .filter(|sent| sent.what.is_answered())
            .count();
        (sending, rest_us)
    }

    pub fn answered(&mut self, answered: &Answered, scene: &mut Scene<'_>) -> Checked {
        self.outstanding -= 1;
        match (&mut self.role, &answered.said) {
            (Role::Producer(producer), Said::Produced(produced)) => {
                let What::Produce { batches, .. } = &answered.asked.what else {
                    return Ok(());
                };
                for ((partition, _, uid), (_, code, _)) in batches.iter().zip(produced) {
                    producer.produced(*partition, *uid, *code, scene)?;
                }
            }
            (Role::Producer(producer), Said::ProducerId(0, id, epoch)) => {
                producer.is_given(*id, *epoch);
            }
            (
                Role::Consumer(consumer),
                Said::Fetched {
                    error,
                    session,
                    partitions,
                },
            ) => consumer.fetched(*error, *session, partitions),
            (Role::Consumer(consumer), Said::Offsets(offsets)) => consumer.found(offsets),
            (Role::Member(member), Said::Group(said)) => {
                if let What::Group(ask) = answered.asked.what {
                    member.answered(ask, said, scene)?;
                }
            }
            (Role::Administrator(administrator), Said::Group(said)) => {
                if let What::Group(ask) = answered.asked.what {
                    administrator.answered(ask, said);
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub fn lost_connection(&mut self) {
        self.connection = None;
        self.outstanding = 0;
        match &mut self.role {
            Role::Producer(producer) => producer.lost_connection(),
            Role::Consumer(consumer) => consumer.forget_session(),
            Role::Member(member) => member.lost_connection(),
            Role::Administrator(administrator) => administrator.lost_connection(),
            Role::Operator => {}
        }
    }

    /// Whether it closes its connection now.
    pub fn hangs_up(&mut self) -> bool {
        match &mut self.role {
            Role::Member(member) => member.hangs_up(),
            _ => false,
        }
    }

    /// Whether it has read its group's offsets since its connection was made, if it has a group.
    pub fn is_audited(&self) -> bool {
        match &self.role {
            Role::Member(member) => member.is_audited(),
            Role::Administrator(administrator) => administrator.is_audited(),
            Role::Producer(_) | Role::Consumer(_) | Role::Operator => true,
        }
    }

    /// Whether a verifier has read all of every log.
    pub fn has_read(&self, log: TopicPartition, end: i64) -> bool {
        match &self.role {
            Role::Consumer(consumer) => consumer.is_at(log, end),
            Role::Producer(_) | Role::Member(_) | Role::Administrator(_) | Role::Operator => false,
        }
    }
}

impl What {
    pub fn is_answered(&self) -> bool {
        !matches!(self, What::Produce { acks: 0, .. })
    }
}

fn next(correlation: &mut i32) -> i32 {
    *correlation += 1;
    *correlation
}

//! Scenarios of groups (`tests/scenarios/group`).
//!
//! `log` shows the last record of each key. `join`, `sync`, `heartbeat`, `leave`, `commit` act for the client that is named; a client keeps the id that it was last given, unless it
//! says `id=` (`id=` alone: none; `id=other`: that client's; `id=!x`: x as it stands). Ids are shown as the name of the client that got
//! them, with a `'` for each one after its first.

#![allow(
    clippy::unwrap_used,
    reason = "a scenario that can't be read has failed"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};
use corelog_wire::records::data::ConsumerProtocolSubscription;

use super::rig::Rig;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text, Uuid};
use crate::group::Reply;
use crate::group::request::{
    Commit, CommitEntry, DeleteOffsets, FetchOffsets, Heartbeat, Join, Leave, List, Named,
    Protocol, Request, Sync,
};
use crate::scenario::{self, Args, scenarios};

scenarios! {
    "group", run:
    j1_who_may_join
    j2_new_members_get_an_id
    j3_how_long_a_join_takes
    j4_a_generation_begins
    j5_joining_again
    j6_sync
    j7_heartbeats_and_sessions
    j8_leaving
    j9_static_members
    j10_commits
    j11_fetching_offsets
    j12_admin
    j13_expiry
    j14_empty_groups
    g4_appends_that_fail
    hostile_members
}

fn run(name: &str, text: &str) {
    let mut stage = Stage::new();
    scenario::run(name, text, |line| stage.command(line));
}

/// One broker, its clients, and what they know.
struct Stage {
    rig: Rig,
    /// What a client believes its id to be.
    ids: BTreeMap<String, Text>,
    /// How ids are shown.
    shown: BTreeMap<Text, String>,
    given: BTreeMap<String, usize>,
    asked: BTreeMap<ReplyTo, String>,
}

impl Stage {
    fn new() -> Stage {
        Stage {
            rig: Rig::new(),
            ids: BTreeMap::new(),
            shown: BTreeMap::new(),
            given: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    fn command(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or("");
        let words: Vec<&str> = words.collect();
        let args = Args(words.clone());
        match verb {
            "new" => *self = Stage::new(),
            "wait" => self.rig.pass_ms(words[0].parse().unwrap()),
            "config" => self.configure(&args),
            "restart" => self.rig.restart(),
            "hold" => self.rig.holds = true,
            "release" => {
                self.rig.holds = false;
                while self.rig.finish_one(Ok(())) {}
            }
            "fail" => {
                let code = ErrorCode(words[0].parse().unwrap());
                self.rig.finish_one(Err(code));
            }
            "hangup" => {
                let gone: Vec<ReplyTo> = self
                    .asked
                    .iter()
                    .filter(|(_, client)| **client == words[0])
                    .map(|(to, _)| *to)
                    .collect();
                for to in gone {
                    self.rig.cancel(to);
                }
            }
            "log" => return format!("log: {}\n", self.rig.log_shown().join(" ")),
            "deletetopic" => {
                let id = self.rig.cluster.image().topic(words[0]).unwrap().id;
                self.rig.delete_topic(id);
            }
            _ => {
                let client = if args.0.first().is_some_and(|word| !word.contains('=')) {
                    words[0].to_owned()
                } else {
                    verb.to_owned()
                };
                let request = self.request(verb, &client, &args);
                self.asked.insert(self.rig.next(), client);
                self.rig.ask(&request);
            }
        }
        self.output()
    }

    fn configure(&mut self, args: &Args<'_>) {
        let config = self.rig.groups.config_mut();
        if let Some(value) = args.get("size") {
            config.size_max = value.parse().unwrap();
        }
        if let Some(value) = args.get("delay") {
            config.initial_rebalance_delay_ms = value.parse().unwrap();
        }
        if let Some(value) = args.get("retention") {
            config.offsets_retention_ms = value.parse().unwrap();
        }
        if let Some(value) = args.get("metadata") {
            config.offset_metadata_bytes_max = value.parse().unwrap();
        }
    }

    fn id(&self, client: &str, args: &Args<'_>) -> Text {
        match args.get("id") {
            Some(id) if id.starts_with('!') => Text::from(id[1..].to_owned()),
            Some("") => Text::empty(),
            Some(other) => self.ids.get(other).cloned().unwrap_or_default(),
            None => self.ids.get(client).cloned().unwrap_or_default(),
        }
    }

    fn request(&self, verb: &str, client: &str, args: &Args<'_>) -> Request {
        let home = self.rig.home;
        let group = text(args.get("group").unwrap_or("g"));
        let member_id = self.id(client, args);
        let instance_id = args.get("instance").map(text);
        let generation = args.number("gen").map_or(1, |number| number as i32);
        match verb {
            "join" => Request::Join(Join {
                home,
                group,
                member_id,
                instance_id,
                client_id: text(client),
                client_host: text("/127.0.0.1"),
                session_timeout_ms: args.number("session").unwrap_or(10_000) as i32,
                rebalance_timeout_ms: args.number("rebalance").unwrap_or(20_000) as i32,
                protocol_type: text(args.get("type").unwrap_or("consumer")),
                protocols: protocols(args),
                needs_known_id: args.number("v").unwrap_or(5) >= 4,
                may_skip_assignment: args.number("v").unwrap_or(5) >= 9,
            }),
            "sync" => Request::Sync(Sync {
                home,
                group,
                generation,
                member_id,
                instance_id,
                protocol_type: args.get("type").map(text),
                protocol: args.get("protocol").map(text),
                assignments: args
                    .list("assign")
                    .iter()
                    .map(|pair| {
                        let (client, bytes) = pair.split_once(':').unwrap();
                        (self.ids[client].clone(), Bytes::from(bytes.to_owned()))
                    })
                    .collect(),
            }),
            "heartbeat" => Request::Heartbeat(Heartbeat {
                home,
                group,
                generation,
                member_id,
                instance_id,
            }),
            "leave" => Request::Leave(Leave {
                home,
                group,
                members: vec![(member_id, instance_id)],
            }),
            "commit" => Request::Commit(Commit {
                home,
                group,
                generation,
                member_id,
                instance_id,
                retention_ms: args.number("retention").unwrap_or(-1),
                unknown_group: ErrorCode::ILLEGAL_GENERATION,
                entries: (0_u32..)
                    .zip(args.list("offsets"))
                    .map(|(at, entry)| commit_entry(at, entry, args))
                    .collect(),
            }),
            "fetch" => Request::FetchOffsets(vec![FetchOffsets {
                at: 0,
                home,
                group,
                topics: args.get("of").map(|_| {
                    let of = args.list("of");
                    of.iter()
                        .map(|pair| place(pair))
                        .map(|(topic, partition)| (topic, vec![partition]))
                        .collect()
                }),
            }]),
            "describe" => Request::Describe(vec![Named { at: 0, home, group }]),
            "delete" => {
                let groups = args.list("groups");
                let named = (0_u32..).zip(groups);
                Request::Delete(
                    named
                        .map(|(at, group)| Named {
                            at,
                            home,
                            group: text(group),
                        })
                        .collect(),
                )
            }
            "deleteoffsets" => Request::DeleteOffsets(DeleteOffsets {
                home,
                group,
                entries: (0_u32..)
                    .zip(args.list("of"))
                    .map(|(at, pair)| {
                        let (topic, partition) = place(pair);
                        (at, topic, partition)
                    })
                    .collect(),
            }),
            "list" => Request::List(List {
                states: args.list("states").into_iter().map(text).collect(),
            }),
            _ => panic!("no such command: {verb}"),
        }
    }

    fn output(&mut self) -> String {
        let mut out = String::new();
        for at in 0..self.rig.replies.len() {
            let (to, reply) = &self.rig.replies[at];
            if let (Reply::Joined(joined), Some(client)) = (reply, self.asked.get(to).cloned()) {
                let id = joined.member_id.clone();
                self.name(&client, &id);
            }
        }
        for (to, reply) in std::mem::take(&mut self.rig.replies) {
            let client = self.asked.remove(&to);
            let client = client.expect("a request is answered once");
            let _ = writeln!(out, "{client}: {}", self.show(&client, reply));
        }
        out
    }

    fn name(&mut self, client: &str, id: &Text) -> String {
        if id.is_empty() {
            return "-".to_owned();
        }
        if let Some(shown) = self.shown.get(id) {
            return shown.clone();
        }
        let given = self.given.entry(client.to_owned()).or_insert(0);
        let shown = format!("{client}{}", "'".repeat(*given));
        *given += 1;
        self.shown.insert(id.clone(), shown.clone());
        shown
    }

    fn show(&mut self, client: &str, reply: Reply) -> String {
        match reply {
            Reply::Joined(joined) => {
                let id = self.name(client, &joined.member_id);
                if !joined.code.is_error() || joined.code == ErrorCode::MEMBER_ID_REQUIRED {
                    self.ids.insert(client.to_owned(), joined.member_id.clone());
                }
                if joined.code.is_error() {
                    return format!("{} id={id}", joined.code);
                }
                let leader = self.shown.get(&joined.leader).cloned().unwrap_or_default();
                let members: Vec<String> = joined
                    .members
                    .iter()
                    .map(|member| {
                        let id = self.shown.get(&member.member_id).cloned();
                        let instance = member.instance_id.as_ref();
                        let instance = instance.map_or(String::new(), |id| format!("({id})"));
                        format!("{}{instance}", id.unwrap_or_else(|| "?".to_owned()))
                    })
                    .collect();
                let skip = if joined.skip_assignment { " skip" } else { "" };
                format!(
                    "joined id={id} gen={} protocol={} leader={leader} members=[{}]{skip}",
                    joined.generation,
                    joined.protocol.as_deref().unwrap_or("-"),
                    sorted(members).join(" ")
                )
            }
            Reply::Synced(synced) if synced.code.is_error() => synced.code.to_string(),
            Reply::Synced(synced) => {
                format!(
                    "synced assignment='{}'",
                    String::from_utf8_lossy(&synced.assignment)
                )
            }
            Reply::Heartbeat(code) => format!("heartbeat {code}"),
            Reply::Left(left) => format!("left {} {}", left.code, codes(&left.members)),
            Reply::Committed(entries) | Reply::Deleted(entries) => {
                codes(&entries.iter().map(|entry| entry.1).collect::<Vec<_>>())
            }
            Reply::Offsets(groups) => offsets(&groups[0]),
            Reply::Described(groups) => {
                let group = &groups[0];
                let members: Vec<String> = group
                    .members
                    .iter()
                    .map(|member| {
                        let id = self
                            .shown
                            .get(&member.member_id)
                            .cloned()
                            .unwrap_or_default();
                        format!("{id}='{}'", String::from_utf8_lossy(&member.assignment))
                    })
                    .collect();
                format!(
                    "{} {} type={} protocol={} members=[{}]",
                    group.code,
                    group.state,
                    group.protocol_type,
                    group.protocol,
                    sorted(members).join(" ")
                )
            }
            Reply::OffsetsDeleted(deleted) => {
                let entries: Vec<ErrorCode> = deleted.entries.iter().map(|entry| entry.1).collect();
                format!("{} {}", deleted.code, codes(&entries))
            }
            Reply::Listed(listed) => {
                let groups: Vec<String> = listed
                    .groups
                    .iter()
                    .map(|group| {
                        format!("{}({} {})", group.group, group.protocol_type, group.state)
                    })
                    .collect();
                format!("{} [{}]", listed.code, groups.join(" "))
            }
        }
    }
}

fn text(value: &str) -> Text {
    Text::from(value.to_owned())
}

/// `protocols=range,sticky` with the topics `topics=t,u` as a consumer's subscription, or `metadata=N` bytes.
fn protocols(args: &Args<'_>) -> Vec<Protocol> {
    let names = match args.get("protocols") {
        Some(_) => args.list("protocols"),
        None => vec!["range"],
    };
    let topics = args
        .get("topics")
        .unwrap_or("t")
        .split(',')
        .map(text)
        .collect();
    let mut out = BytesMut::new();
    let subscription = ConsumerProtocolSubscription {
        topics,
        ..ConsumerProtocolSubscription::default()
    };
    subscription.encode(&mut out, 1);
    let metadata = match args.number("metadata") {
        Some(size) => Bytes::from(vec![0; size as usize]),
        None => out.freeze(),
    };
    names
        .into_iter()
        .map(|name| Protocol {
            name: text(name),
            metadata: metadata.clone(),
        })
        .collect()
}

/// `t/0`
fn place(pair: &str) -> (Text, i32) {
    let (topic, partition) = pair.split_once('/').unwrap();
    (text(topic), partition.parse().unwrap())
}

/// `t/0:17`, with `metadata=N` characters of metadata.
fn commit_entry(at: u32, entry: &str, args: &Args<'_>) -> CommitEntry {
    let (place_of, offset) = entry.split_once(':').unwrap();
    let (topic, partition) = place(place_of);
    CommitEntry {
        at,
        topic,
        topic_id: Uuid::ZERO,
        partition,
        offset: offset.parse().unwrap(),
        leader_epoch: -1,
        metadata: Text::from("m".repeat(args.number("metadata").unwrap_or(0) as usize)),
    }
}

fn codes(codes: &[ErrorCode]) -> String {
    let names: Vec<String> = codes.iter().map(ErrorCode::to_string).collect();
    format!("[{}]", names.join(" "))
}

fn offsets(group: &crate::group::request::GroupOffsets) -> String {
    let all: Vec<String> = group
        .topics
        .iter()
        .flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |of| format!("{topic}/{}={}", of.partition, of.offset))
        })
        .collect();
    format!("{} [{}]", group.code, all.join(" "))
}

fn sorted(mut items: Vec<String>) -> Vec<String> {
    items.sort();
    items
}

//! Fetch (key 1), versions 4 to 18. v5 log start offset, v7 sessions, v9 leader epochs, v12 flexible and diverging epochs, v13 topic ids, v15 replica
//! state, v16 leader hints, v17 directory ids and v18 high watermark of followers (not used here).
//!
//! Rounds: with a session its owner first expands the request; then every owner peeks and watches, until there is enough or the time is up; then every
//! owner hands over what its budget allows, budgets given out in request order (F-3); with a session its owner last says what the answer includes.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::{ShardId, Text};
use corelog_shards::base::time::Mono;
use corelog_shards::part::{
    Entries, FetchCollect, FetchEntry, FetchGrant, FetchPeek, FetchPeeked, Fetched, Isolation,
    Part, Reply,
};
use corelog_shards::partition::fetch_session::{
    Begin, Begun, End, FetchSessions, SessionPartition, SessionResult, TopicKey,
};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::fetch_cursor::FetchCursor;
use corelog_wire::messages::fetch_writer::{
    AbortedTransaction, EpochEnd, FetchResponseHead, FetchResponseWriter, FetchedPartition,
};
use corelog_wire::messages::topic_ref::TopicRef;
use corelog_wire::primitives::{DecodeError, Reader};
use smallvec::SmallVec;

use super::resolve::{self, Leaders};
use super::{Answer, Context, Joins, Parts, Split, Step};

/// From here on topics are named by id, in the session too (S-3).
const IDS_FROM: i16 = 13;

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let cursor = FetchCursor::parse(Reader::new(body.clone()), header.api_version)?;
    let max_bytes = cursor
        .max_bytes()
        .max(0)
        .unsigned_abs()
        .min(cx.broker.fetch_max_bytes);
    let max_wait_ms = cursor.max_wait_ms().max(0).unsigned_abs();
    let mut pending = Pending {
        header: header.clone(),
        isolation: if cursor.isolation_level() == 1 {
            Isolation::ReadCommitted
        } else {
            Isolation::ReadUncommitted
        },
        is_follower: cursor.replica_id() >= 0,
        min_bytes: cursor.min_bytes().max(0).unsigned_abs().min(max_bytes),
        max_bytes,
        patient_until: (max_wait_ms > 0).then(|| cx.now.mono.after_ms(u64::from(max_wait_ms))),
        phase: Phase::Begin,
        session_owner: cx.home,
        session_id: 0,
        wanted: SmallVec::new(),
        outstanding: 0,
    };
    let asked = cursor.partitions().map(|partition| SessionPartition {
        topic: topic_key(&body, partition.topic),
        partition: partition.partition,
        fetch_offset: partition.fetch_offset,
        current_leader_epoch: partition.current_leader_epoch,
        last_fetched_epoch: partition.last_fetched_epoch,
        log_start_offset: partition.log_start_offset,
        max_bytes: partition.partition_max_bytes.max(0).unsigned_abs(),
    });
    let (session_id, session_epoch) = (cursor.session_id(), cursor.session_epoch());
    let step = if session_id == 0 && session_epoch == -1 {
        pending.wanted = asked
            .map(|partition| Wanted::new(cx, partition, pending.is_follower))
            .collect();
        pending.begin_peek(cx, parts, answer)
    } else {
        if session_id != 0 {
            pending.session_owner = FetchSessions::owner(session_id, cx.image.shards);
        }
        let forgotten = cursor
            .forgotten()
            .map(|(topic, partition)| (topic_key(&body, topic), partition))
            .collect();
        let by_id = header.api_version >= IDS_FROM;
        let begin = Begin {
            by_id,
            session_id,
            session_epoch,
            partitions: asked.collect(),
            forgotten,
        };
        parts.push((pending.session_owner, Part::SessionBegin(Box::new(begin))));
        pending.outstanding = 1;
        Step::Again
    };
    Ok(match step {
        Step::Done => Split::Ready,
        Step::Wait | Step::Again | Step::Silent | Step::Close => {
            Split::Wait(super::Pending::Fetch(pending))
        }
    })
}

fn topic_key(body: &Bytes, named: TopicRef<'_>) -> TopicKey {
    match named {
        TopicRef::Id(id) => TopicKey::Id(id),
        // The cursor has found it to be UTF-8 and it lies in the body; neither can fail.
        TopicRef::Name(name) => {
            TopicKey::Name(Text::from_utf8(body.slice_ref(name.as_bytes())).unwrap_or_default())
        }
    }
}

fn topic_ref(key: &TopicKey) -> TopicRef<'_> {
    match key {
        TopicKey::Name(name) => TopicRef::Name(name),
        TopicKey::Id(id) => TopicRef::Id(*id),
    }
}

/// One partition of the fetch.
struct Wanted {
    asked: SessionPartition,
    /// Who has it and what to ask there, or why nobody can be asked.
    owner: Result<(ShardId, FetchEntry), ErrorCode>,
    available: u32,
    fetched: Option<Fetched>,
    /// S-5
    include: bool,
}

impl Wanted {
    fn new(cx: &Context<'_>, asked: SessionPartition, is_follower: bool) -> Wanted {
        let owner = resolve::topic(cx.image, topic_ref(&asked.topic))
            .and_then(|topic| resolve::leader(cx, topic, asked.partition));
        let owner = match owner {
            // This node's partitions have no other replicas yet (F-1).
            Ok(_) if is_follower => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Ok((shard, partition)) => Ok((
                shard,
                FetchEntry {
                    at: 0,
                    partition,
                    offset: asked.fetch_offset,
                    current_leader_epoch: asked.current_leader_epoch,
                    last_fetched_epoch: asked.last_fetched_epoch,
                    max_bytes: asked.max_bytes,
                },
            )),
            Err(code) => Err(code),
        };
        Wanted {
            asked,
            owner,
            available: 0,
            fetched: None,
            include: true,
        }
    }

    fn code(&self) -> ErrorCode {
        match (&self.fetched, &self.owner) {
            (Some(fetched), _) => fetched.code,
            (None, Err(code)) => *code,
            (None, Ok(_)) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The session's owner expands the request.
    Begin,
    /// Owners say how much they have, and go on watching.
    Peek,
    Collect,
    /// The session's owner takes note.
    End,
}

/// A Fetch whose parts are out.
pub struct Pending {
    header: RequestHeader,
    isolation: Isolation,
    is_follower: bool,
    min_bytes: u32,
    max_bytes: u32,
    /// The wait for `min_bytes` ends here; `None` = it has ended.
    patient_until: Option<Mono>,
    phase: Phase,
    session_owner: ShardId,
    /// 0 = none.
    session_id: i32,
    wanted: SmallVec<[Wanted; 1]>,
    /// Parts of the present round that are not answered.
    outstanding: usize,
}

impl Joins for Pending {
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        _part: usize,
        reply: Reply,
        parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        match (self.phase, reply) {
            (Phase::Begin, Reply::SessionBegin(begun)) => {
                self.outstanding -= 1;
                self.on_begun(cx, *begun, parts, answer)
            }
            (Phase::Peek, Reply::FetchPeek(peeked)) => {
                self.outstanding -= 1;
                peeked.iter().for_each(|peeked| self.note(*peeked));
                self.collect_when_ready(parts)
            }
            (Phase::Peek, Reply::FetchWake(peeked)) => {
                self.note(peeked);
                self.collect_when_ready(parts)
            }
            (Phase::Collect, Reply::FetchCollect(fetched)) => {
                self.outstanding -= 1;
                for fetched in fetched {
                    let at = fetched.at as usize;
                    self.wanted[at].fetched = Some(fetched);
                }
                self.finish_when_collected(cx, parts, answer)
            }
            (Phase::End, Reply::SessionEnd(ended)) => {
                for (wanted, include) in self.wanted.iter_mut().zip(ended.include) {
                    wanted.include = include;
                }
                self.write(cx, ErrorCode::NONE, answer)
            }
            // A wake-up of a round that is over.
            _ => Step::Wait,
        }
    }

    fn deadline(&self) -> Option<Mono> {
        if self.phase == Phase::Peek {
            self.patient_until
        } else {
            None
        }
    }

    fn on_deadline(
        &mut self,
        _cx: &Context<'_>,
        parts: &mut Parts,
        _answer: &mut Answer<'_>,
    ) -> Step {
        if self.phase != Phase::Peek {
            return Step::Wait;
        }
        self.patient_until = None;
        self.collect_when_ready(parts)
    }

    /// A long poll: everything has been said, and it was not enough.
    fn parked(&self) -> bool {
        self.phase == Phase::Peek && self.outstanding == 0
    }
}

impl Pending {
    fn on_begun(
        &mut self,
        cx: &Context<'_>,
        begun: Begun,
        parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        if begun.code.is_error() {
            return self.write(cx, begun.code, answer);
        }
        self.session_id = begun.session_id;
        let is_follower = self.is_follower;
        self.wanted = begun
            .partitions
            .into_iter()
            .map(|partition| Wanted::new(cx, partition, is_follower))
            .collect();
        self.begin_peek(cx, parts, answer)
    }

    /// Round one. What can't be asked for ends the patience (F-2).
    fn begin_peek(&mut self, cx: &Context<'_>, parts: &mut Parts, answer: &mut Answer<'_>) -> Step {
        self.phase = Phase::Peek;
        let any_error = self.wanted.iter().any(|wanted| wanted.owner.is_err());
        if self.wanted.is_empty() || any_error || self.min_bytes == 0 {
            self.patient_until = None;
        }
        // One partition may say nothing until it has everything; of several, all have to say what they have.
        let wake_bytes = if self.wanted.len() == 1 {
            self.min_bytes.max(1)
        } else {
            1
        };
        let (isolation, watch) = (self.isolation, self.patient_until.is_some());
        let first = parts.len();
        for (at, wanted) in (0_u32..).zip(&mut self.wanted) {
            let Ok((shard, entry)) = &mut wanted.owner else {
                continue;
            };
            entry.at = at;
            let (shard, entry) = (*shard, *entry);
            let same_owner = parts[first..]
                .iter_mut()
                .find_map(|(owner, part)| match part {
                    Part::FetchPeek(round) if *owner == shard => Some(round),
                    _ => None,
                });
            match same_owner {
                Some(round) => round.entries.push(entry),
                None => {
                    let mut entries = Entries::new();
                    entries.push(entry);
                    parts.push((
                        shard,
                        Part::FetchPeek(FetchPeek {
                            isolation,
                            entries,
                            watch,
                            wake_bytes,
                        }),
                    ));
                }
            }
        }
        self.outstanding = parts.len() - first;
        if self.outstanding > 0 {
            Step::Again
        } else {
            self.finish_when_collected(cx, parts, answer)
        }
    }

    fn note(&mut self, peeked: FetchPeeked) {
        if let Some(wanted) = self.wanted.get_mut(peeked.at as usize) {
            wanted.available = peeked.available;
        }
        if peeked.immediate {
            self.patient_until = None;
        }
    }

    /// Ends round one when there is enough or no time left; then budgets are given out in request order (F-3).
    fn collect_when_ready(&mut self, parts: &mut Parts) -> Step {
        let available: u64 = self
            .wanted
            .iter()
            .map(|wanted| u64::from(wanted.available))
            .sum();
        let enough = available >= u64::from(self.min_bytes);
        if self.outstanding > 0 || (self.patient_until.is_some() && !enough) {
            return Step::Wait;
        }
        self.phase = Phase::Collect;
        let isolation = self.isolation;
        let mut budget = Budget {
            left: self.max_bytes,
            nothing_yet: true,
        };
        let first = parts.len();
        for wanted in &self.wanted {
            let Ok((shard, entry)) = wanted.owner else {
                continue;
            };
            let grant = budget.grant(entry, wanted.available);
            let same_owner = parts[first..]
                .iter_mut()
                .find_map(|(owner, part)| match part {
                    Part::FetchCollect(round) if *owner == shard => Some(round),
                    _ => None,
                });
            match same_owner {
                Some(round) => round.entries.push(grant),
                None => {
                    let mut entries = Entries::new();
                    entries.push(grant);
                    parts.push((
                        shard,
                        Part::FetchCollect(FetchCollect { isolation, entries }),
                    ));
                }
            }
        }
        self.outstanding = parts.len() - first;
        Step::Again
    }

    fn finish_when_collected(
        &mut self,
        cx: &Context<'_>,
        parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        if self.outstanding > 0 {
            return Step::Wait;
        }
        if self.session_id == 0 {
            return self.write(cx, ErrorCode::NONE, answer);
        }
        self.phase = Phase::End;
        let results = self.wanted.iter().map(session_result).collect();
        parts.push((
            self.session_owner,
            Part::SessionEnd(Box::new(End {
                session_id: self.session_id,
                results,
            })),
        ));
        self.outstanding = 1;
        Step::Again
    }

    fn write(&self, cx: &Context<'_>, code: ErrorCode, answer: &mut Answer<'_>) -> Step {
        let included: SmallVec<[&Wanted; 4]> =
            self.wanted.iter().filter(|wanted| wanted.include).collect();
        let topics = included.chunk_by(|a, b| a.asked.topic == b.asked.topic);
        let head = FetchResponseHead {
            throttle_time_ms: 0,
            error_code: code.0,
            session_id: self.session_id,
        };
        let header = self.header.response();
        let mut leaders = Leaders::default();
        let mut writer = FetchResponseWriter::begin(
            answer.head,
            answer.chunks,
            header,
            head,
            topics.clone().count(),
        );
        for topic in topics {
            writer.topic(topic_ref(&topic[0].asked.topic), topic.len());
            for wanted in topic {
                write_partition(cx, &mut leaders, &mut writer, wanted);
            }
        }
        writer.finish(&leaders.endpoints(cx));
        Step::Done
    }
}

fn session_result(wanted: &Wanted) -> SessionResult {
    let fetched = wanted.fetched.as_ref();
    SessionResult {
        code: wanted.code(),
        high_watermark: fetched.map_or(-1, |fetched| fetched.high_watermark),
        log_start_offset: fetched.map_or(-1, |fetched| fetched.log_start_offset),
        has_news: fetched.is_some_and(|fetched| fetched.diverging.is_some()),
        has_records: fetched.is_some_and(|fetched| !fetched.records.is_empty()),
    }
}

fn write_partition(
    cx: &Context<'_>,
    leaders: &mut Leaders,
    writer: &mut FetchResponseWriter<'_>,
    wanted: &Wanted,
) {
    let refused = Fetched::error(0, wanted.code());
    let fetched = wanted.fetched.as_ref().unwrap_or(&refused);
    let topic = topic_ref(&wanted.asked.topic);
    let aborted: Option<SmallVec<[AbortedTransaction; 2]>> =
        fetched.aborted.as_ref().map(|aborted| {
            aborted
                .iter()
                .map(|&(producer_id, first_offset)| AbortedTransaction {
                    producer_id,
                    first_offset,
                })
                .collect()
        });
    let partition = FetchedPartition {
        partition_index: wanted.asked.partition,
        error_code: fetched.code.0,
        high_watermark: fetched.high_watermark,
        last_stable_offset: fetched.last_stable_offset,
        log_start_offset: fetched.log_start_offset,
        diverging_epoch: fetched
            .diverging
            .map(|(epoch, end_offset)| EpochEnd { epoch, end_offset }),
        current_leader: leaders.of(cx.image, topic, wanted.asked.partition, fetched.code),
        snapshot_id: None,
        aborted_transactions: aborted.as_deref(),
        preferred_read_replica: -1,
    };
    // Empty, never null: not every client knows null records.
    writer.partition(&partition, Some(&fetched.records));
}

/// What is left of the answer's size, in request order.
struct Budget {
    left: u32,
    nothing_yet: bool,
}

impl Budget {
    fn grant(&mut self, entry: FetchEntry, available: u32) -> FetchGrant {
        // The first that has anything sends at least one whole batch, however large.
        let at_least_one = self.nothing_yet && available > 0;
        let bytes = available.min(self.left);
        self.nothing_yet &= available == 0;
        self.left -= bytes;
        FetchGrant {
            entry,
            bytes,
            at_least_one,
        }
    }
}

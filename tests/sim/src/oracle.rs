//! What has to be true of answers, and of what a crash leaves.
//!
//! The oracle sees every batch on its way to the disk: that is the truth about a log. Then it holds against it what the broker says: acknowledgements
//! (at the moment at which they leave the broker), records that it serves, log ends after a restart. Two floors per log never go down without
//! permission: what a kill of the process may not take away, and what a power cut may not.

pub mod groups;
mod said;

pub use said::{Answered, Asked, Crash, Got, GroupAsk, GroupSaid, Kind, Said, What};

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use corelog_shards::base::ids::{FileId, TopicPartition, Uuid};
use corelog_wire::batch::{BatchHeader, HEADER_LEN};

use crate::history::Hash;
use crate::{Checked, Failure, must};
use groups::Groups;

/// The first byte of a batch that its producer's copy and the log's have in common: its checksum.
const COMMON: usize = 17;

/// What coordinators write, no client has sent.
pub fn is_internal(topic: &str) -> bool {
    topic.starts_with("__")
}

/// A batch in a log.
#[derive(Debug, Clone)]
pub struct Batch {
    pub uid: u64,
    pub end: i64,
    pub bytes: Bytes,
    pub file: FileId,
    pub position: u64,
    /// (producer, epoch, first sequence)
    pub sequence: Option<(i64, i16, i32)>,
}

/// One log as it has to be.
#[derive(Debug)]
pub struct Truth {
    pub topic: String,
    pub kind: Kind,
    /// By base offset.
    pub batches: BTreeMap<i64, Batch>,
    pub end: i64,
    sequences: BTreeSet<(i64, i16, i32)>,
    /// Which batch was ever given this offset in this leader epoch.
    given: BTreeMap<(i64, i32), u64>,
    floor_kill: i64,
    floor_power: i64,
    /// Compared with the disk in this run of the broker.
    pub written_seen: i64,
    pub synced_seen: i64,
    pub high_watermark_seen: i64,
}

impl Truth {
    fn new(topic: String, kind: Kind) -> Truth {
        Truth {
            kind,
            topic,
            batches: BTreeMap::new(),
            end: 0,
            sequences: BTreeSet::new(),
            given: BTreeMap::new(),
            floor_kill: 0,
            floor_power: 0,
            written_seen: 0,
            synced_seen: 0,
            high_watermark_seen: 0,
        }
    }

    /// The batch that holds `offset`.
    fn batch_at(&self, offset: i64) -> Option<(i64, &Batch)> {
        let (base, batch) = self.batches.range(..=offset).next_back()?;
        (offset < batch.end).then_some((*base, batch))
    }

    /// Whether this batch of an idempotent producer is the next one, or among its last five (I-2, I-5, I-10).
    pub fn has_to_take(&self, producer: (i64, i16), sequence: i32, uid: u64) -> bool {
        let of = |(base, batch): (&i64, &Batch)| {
            let (id, epoch, first) = batch.sequence?;
            let end = first + (batch.end - base) as i32;
            ((id, epoch) == producer).then_some((end, batch.uid))
        };
        let newest: Vec<_> = self.batches.iter().rev().filter_map(of).take(5).collect();
        let is_next = newest.first().is_some_and(|(end, _)| *end == sequence);
        is_next || newest.iter().any(|(_, there)| *there == uid)
    }
}

/// See the module.
#[derive(Default)]
pub struct Oracle {
    pub truths: BTreeMap<TopicPartition, Truth>,
    /// Identities of all batches that were ever sent.
    sent: BTreeSet<u64>,
    /// All ids that a topic name has had.
    ids: BTreeMap<String, Vec<Uuid>>,
    /// Acknowledged, and nobody asked for their deletion.
    topics: BTreeMap<String, Uuid>,
    deleted: BTreeSet<Uuid>,
    /// By name and partition: records below may be gone, somebody asked for it.
    deletions: BTreeMap<(String, i32), i64>,
    producer_ids: BTreeSet<i64>,
    pub groups: Groups,
    pub acknowledged: u64,
    pub fetched: u64,
}

/// Error codes that a produce may be refused with in these runs: timing and crashes, never the batch.
const PRODUCE_CODES: &[i16] = &[0, 3, 6, 7, 45, 56, 100];

impl Oracle {
    /// The identity of a batch, as its producer sends it or as it stands in the log.
    pub fn uid(batch: &[u8]) -> u64 {
        Hash::of(batch.get(COMMON..).unwrap_or(&[]))
    }

    pub fn sends(&mut self, uid: u64) {
        self.sent.insert(uid);
    }

    pub fn names(&mut self, topic: &str, id: Uuid) {
        let ids = self.ids.entry(topic.to_owned()).or_default();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }

    fn kind_of(&self, topic: &str) -> Kind {
        match Kind::of(topic) {
            Kind::Plain if is_internal(topic) && self.groups.is_durable => Kind::Durable,
            kind => kind,
        }
    }

    /// A batch is on its way to the disk.
    pub fn appended(&mut self, topic: &str, file: FileId, position: u64, bytes: &Bytes) -> Checked {
        let log = file.log;
        let Ok(header) = BatchHeader::parse(bytes) else {
            return Err(Failure(format!(
                "{log:?} writes something that is no batch"
            )));
        };
        must!(
            bytes.len() >= HEADER_LEN && header.total_len() == bytes.len(),
            "{log:?} writes a batch of {} bytes that says {}",
            bytes.len(),
            header.total_len()
        );
        let kind = self.kind_of(topic);
        let truth = self
            .truths
            .entry(log)
            .or_insert_with(|| Truth::new(topic.to_owned(), kind));
        must!(
            header.base_offset == truth.end,
            "offsets have no gap: {log:?} gives {} where {} is next",
            header.base_offset,
            truth.end
        );
        let uid = Oracle::uid(bytes);
        must!(
            self.sent.contains(&uid) || is_internal(topic),
            "a log holds only what was sent: {log:?} offset {}",
            header.base_offset
        );
        let place = (header.base_offset, header.partition_leader_epoch);
        must!(
            *truth.given.entry(place).or_insert(uid) == uid,
            "a reader can tell that a log was cut: {log:?} has another batch at {} in epoch {} than before",
            place.0,
            place.1
        );
        let sequence = header.has_producer().then_some((
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        ));
        if let Some(sequence) = sequence {
            must!(
                truth.sequences.insert(sequence),
                "once for idempotent producers: {log:?} appends {sequence:?} again at {}",
                header.base_offset
            );
        }
        let batch = Batch {
            uid,
            end: header.next_offset(),
            bytes: bytes.clone(),
            file,
            position,
            sequence,
        };
        truth.end = batch.end;
        truth.batches.insert(header.base_offset, batch);
        Ok(())
    }

    /// What the logs of a broker that is about to end had claimed.
    pub fn claimed(&mut self, log: TopicPartition, written_end: i64, synced_end: i64) {
        if let Some(truth) = self.truths.get_mut(&log) {
            truth.floor_kill = truth.floor_kill.max(written_end);
            truth.floor_power = truth.floor_power.max(synced_end);
        }
    }

    pub fn crashed(&mut self, crash: Crash) {
        self.groups.crashed(crash);
        for truth in self.truths.values_mut() {
            truth.high_watermark_seen = 0;
            truth.written_seen = 0;
            truth.synced_seen = 0;
            if crash == Crash::PowerCut {
                truth.floor_kill = truth.floor_power;
            }
        }
    }

    /// A log has been opened, or made anew.
    pub fn opened(&mut self, log: TopicPartition, log_start: i64, log_end: i64) -> Checked {
        let topic = self.truths.get(&log).map(|truth| truth.topic.clone());
        let deletable_below = self.deletable_below(log, &topic.unwrap_or_default());
        let Some(truth) = self.truths.get_mut(&log) else {
            must!(
                log_end == 0,
                "{log:?} opens with {log_end} records that nobody wrote"
            );
            return Ok(());
        };
        let topic = &truth.topic;
        must!(
            log_end >= truth.floor_kill,
            "what was acknowledged, or said to be written, is there after a crash: {topic} {log:?} ends at {log_end}, promised was {}",
            truth.floor_kill
        );
        // A log that lost everything up to its start begins anew there (L-8), wherever that is.
        let anew = log_start == log_end && log_end <= truth.end;
        must!(
            log_end == truth.end || truth.batches.contains_key(&log_end) || anew,
            "a log ends between batches: {topic} {log:?} ends at {log_end}, the truth at {}",
            truth.end
        );
        must!(
            truth.kind == Kind::Rolling || log_start <= deletable_below,
            "nothing goes before it is asked for: {topic} {log:?} starts at {log_start}"
        );
        let sequences = &mut truth.sequences;
        truth.batches.retain(|_, batch| {
            let stays = batch.end <= log_end;
            if let (false, Some(sequence)) = (stays, batch.sequence) {
                sequences.remove(&sequence);
            }
            stays
        });
        truth.end = log_end;
        Ok(())
    }

    /// A log can't be opened. No crash that was promised to be survived may bring that about.
    pub fn not_opened(log: TopicPartition, reason: &str) -> Failure {
        Failure(format!(
            "a crash leaves every log so that it opens: {log:?}: {reason}"
        ))
    }

    /// The metadata that is shown first after a start.
    pub fn check_topics(&self, there: &BTreeMap<String, Uuid>) -> Checked {
        for (name, id) in &self.topics {
            must!(
                there.get(name) == Some(id),
                "topics that were acknowledged are there: {name} {id} is {:?}",
                there.get(name)
            );
        }
        for (name, id) in there {
            must!(
                !self.deleted.contains(id),
                "topics whose deletion was acknowledged are gone: {name} {id}"
            );
        }
        Ok(())
    }

    /// A client is about to ask.
    pub fn asks(&mut self, what: &What) {
        match what {
            What::DeleteTopic { name, .. } => {
                self.groups.topic_may_go(name);
                self.topics.remove(name);
            }
            What::DeleteRecords {
                partition,
                topic,
                offset,
            } => {
                // By name: it may reach a topic that is made under this name before the request comes.
                let key = (topic.clone(), partition.partition);
                let below = self.deletions.entry(key).or_default();
                *below = (*below).max(*offset);
            }
            _ => {}
        }
    }

    /// An answer leaves the broker.
    pub fn answers(&mut self, asked: &Asked, said: &Said) -> Checked {
        match (&asked.what, said) {
            (What::Produce { batches, .. }, Said::Produced(produced)) => {
                self.produced(batches, produced)
            }
            (What::Fetch { positions }, Said::Fetched { partitions, .. }) => partitions
                .iter()
                .try_for_each(|got| self.got(positions, &asked.watermarks, got)),
            (What::CreateTopic { name }, Said::Created(0, id)) => {
                self.topics.insert(name.clone(), *id);
                self.names(name, *id);
                Ok(())
            }
            (What::DeleteTopic { id, .. }, Said::Deleted(0)) => {
                self.deleted.insert(*id);
                Ok(())
            }
            (What::DeleteRecords { offset, .. }, Said::DeletedRecords(0, low)) => {
                must!(
                    low >= offset,
                    "records below {offset} are deleted, but the log starts at {low}"
                );
                Ok(())
            }
            (What::InitProducerId, Said::ProducerId(0, id, _)) => {
                must!(
                    self.producer_ids.insert(*id),
                    "a producer id is given once: {id} came again"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records of this log below this offset may be gone.
    fn deletable_below(&self, log: TopicPartition, topic: &str) -> i64 {
        let key = (topic.to_owned(), log.partition);
        self.deletions.get(&key).copied().unwrap_or(0)
    }

    fn candidates(&self, partition: TopicPartition, topic: &str) -> Vec<TopicPartition> {
        let mut found = vec![partition];
        for id in self.ids.get(topic).into_iter().flatten() {
            if *id != partition.topic_id {
                found.push(TopicPartition {
                    topic_id: *id,
                    partition: partition.partition,
                });
            }
        }
        found
    }

    fn produced(
        &mut self,
        batches: &[(TopicPartition, String, u64)],
        produced: &[(TopicPartition, i16, i64)],
    ) -> Checked {
        must!(
            batches.len() == produced.len(),
            "every partition of a produce is answered: {} of {}",
            produced.len(),
            batches.len()
        );
        for ((partition, topic, uid), (answered, code, base)) in batches.iter().zip(produced) {
            must!(partition == answered, "answers are in request order");
            must!(
                PRODUCE_CODES.contains(code),
                "a good batch is not refused for what it is: {topic} {partition:?} got error {code}"
            );
            if *code != 0 {
                continue;
            }
            let candidates = self.candidates(*partition, topic);
            let found = candidates.into_iter().find(|candidate| {
                let truth = self.truths.get(candidate);
                let batch = truth.and_then(|truth| truth.batches.get(base));
                batch.is_some_and(|batch| batch.uid == *uid)
            });
            let Some(truth) = found.and_then(|found| self.truths.get_mut(&found)) else {
                return Err(Failure(format!(
                    "an acknowledgement names the offset of its batch: {topic} {partition:?} offset {base} holds another"
                )));
            };
            let end = truth.batches[base].end;
            truth.floor_kill = truth.floor_kill.max(end);
            if truth.kind == Kind::Durable {
                truth.floor_power = truth.floor_power.max(end);
            }
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// How far the logs that a request names are known to be readable.
    pub fn watermarks(&self, what: &What) -> BTreeMap<TopicPartition, i64> {
        let What::Fetch { positions } = what else {
            return BTreeMap::new();
        };
        let watermark = |(partition, _, _): &(TopicPartition, String, i64)| {
            let truth = self.truths.get(partition)?;
            Some((*partition, truth.high_watermark_seen))
        };
        positions.iter().filter_map(watermark).collect()
    }

    fn got(
        &mut self,
        positions: &[(TopicPartition, String, i64)],
        watermarks: &BTreeMap<TopicPartition, i64>,
        got: &Got,
    ) -> Checked {
        let Some((partition, topic, offset)) = positions
            .iter()
            .find(|(partition, _, _)| *partition == got.partition)
        else {
            return Err(Failure(format!(
                "only what is asked for is fetched: {:?}",
                got.partition
            )));
        };
        let mut why = None;
        for candidate in self.candidates(*partition, topic) {
            let watermark = watermarks.get(&candidate).copied().unwrap_or(0);
            match self.got_from(candidate, *offset, watermark, got) {
                Ok(batches) => {
                    self.fetched += batches;
                    return Ok(());
                }
                Err(failure) => {
                    why.get_or_insert(failure);
                }
            }
        }
        why.map_or(Ok(()), Err)
    }

    fn got_from(
        &self,
        log: TopicPartition,
        offset: i64,
        watermark: i64,
        got: &Got,
    ) -> Checked<u64> {
        let Some(truth) = self.truths.get(&log) else {
            must!(
                got.records.is_empty(),
                "{log:?} has never been written to, but has records"
            );
            return Ok(0);
        };
        let topic = &truth.topic;
        if got.error == 1 {
            let gone = offset < self.deletable_below(log, topic) || truth.kind == Kind::Rolling;
            must!(
                gone || offset > watermark,
                "what is there is found: {topic} {log:?} has no {offset}, its high watermark was {watermark} before"
            );
            return Ok(0);
        }
        if got.error != 0 {
            return Ok(0);
        }
        must!(
            got.high_watermark <= truth.end,
            "the high watermark {} of {topic} {log:?} is past its end {}",
            got.high_watermark,
            truth.end
        );
        let (mut rest, mut at, mut count) = (got.records.clone(), offset, 0);
        while !rest.is_empty() {
            let Some((base, batch)) = truth.batch_at(at) else {
                return Err(Failure(format!(
                    "fetch gives only what was appended: {topic} {log:?} at {at}"
                )));
            };
            must!(
                count == 0 || base == at,
                "fetch never skips or repeats: {topic} {log:?} at {at}"
            );
            must!(
                rest.len() >= batch.bytes.len() && rest[..batch.bytes.len()] == batch.bytes[..],
                "fetch gives what was appended: {topic} {log:?} offset {base} came out different"
            );
            must!(
                batch.end <= got.high_watermark,
                "fetch gives nothing above the high watermark: {topic} {log:?} offsets {base} to {} with {}",
                batch.end,
                got.high_watermark
            );
            rest = rest.slice(batch.bytes.len()..);
            at = batch.end;
            count += 1;
        }
        Ok(count)
    }

    /// Where a reader goes on after these records.
    pub fn after(records: &[u8]) -> Option<i64> {
        let mut rest = records;
        let mut end = None;
        while let Ok(header) = BatchHeader::parse(rest) {
            if header.total_len() > rest.len() {
                break;
            }
            end = Some(header.next_offset());
            rest = &rest[header.total_len()..];
        }
        end
    }
}

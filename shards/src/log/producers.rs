//! What a log knows of its idempotent and transactional producers (kafka.md 3.4 and 3.5), and the bytes of `.snapshot` files.
//!
//! The caller asks [`Producers::check`] before an append of a client or coordinator and [`Producers::apply`] for every batch that
//! is in the log, in order: after an append, and when a log is replayed. Both need the batch's header with its final offsets.
//!
//! Not here: the verification of transactions by their coordinator (T-3); transactional batches of clients are refused before
//! they get here.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use corelog_wire::batch::{BatchHeader, checksum};
use smallvec::SmallVec;

use super::aborted::Aborted;
use super::limits::PRODUCER_BATCHES;
use crate::part::DescribedProducer;

/// Who appends (I-3, I-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Client,
    /// A group or transaction coordinator: epochs are checked, sequences are not.
    Coordinator,
    /// The controller's own log: nothing is checked.
    Controller,
}

/// Why a batch of a producer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerRefused {
    /// It is in the log already (I-2).
    Duplicate {
        base_offset: i64,
        last_offset: i64,
        timestamp_ms: i64,
    },
    OutOfOrderSequence,
    InvalidProducerEpoch,
    InvalidTxnState,
    CoordinatorFenced,
}

/// The end of a transaction, as its control record says it (T-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndMarker {
    pub commit: bool,
    pub coordinator_epoch: i32,
    pub timestamp_ms: i64,
}

/// A transaction that a marker completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    pub producer_id: i64,
    pub first_offset: i64,
    /// The marker's offset.
    pub last_offset: i64,
    pub aborted: bool,
    /// The last stable offset right after it.
    pub last_stable_offset: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Remembered {
    last_sequence: i32,
    last_offset: i64,
    offset_delta: i32,
    timestamp_ms: i64,
}

impl Remembered {
    fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }

    fn first_sequence(&self) -> i32 {
        // Sequences wrap from i32::MAX to 0.
        if self.last_sequence >= self.offset_delta {
            self.last_sequence - self.offset_delta
        } else {
            i32::MAX - (self.offset_delta - self.last_sequence) + 1
        }
    }
}

/// The newest end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ended {
    epoch: i16,
    coordinator_epoch: i32,
    /// -1: it comes from a snapshot.
    offset: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    ended: Option<Ended>,
    last_timestamp_ms: i64,
    txn_first_offset: Option<i64>,
    /// Oldest first.
    batches: SmallVec<[Remembered; PRODUCER_BATCHES]>,
}

impl Producer {
    fn new(epoch: i16) -> Producer {
        Producer {
            epoch,
            ended: None,
            last_timestamp_ms: -1,
            txn_first_offset: None,
            batches: SmallVec::new(),
        }
    }

    /// -1 before its first transaction ended.
    fn coordinator_epoch(&self) -> i32 {
        self.ended.map_or(-1, |ended| ended.coordinator_epoch)
    }

    fn last_sequence(&self) -> i32 {
        self.batches.last().map_or(-1, |batch| batch.last_sequence)
    }

    /// A new epoch forgets the batches of the old one.
    fn enter_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches.clear();
        }
    }

    fn remember(&mut self, batch: Remembered) {
        if self.batches.len() == PRODUCER_BATCHES {
            self.batches.remove(0);
        }
        self.last_timestamp_ms = batch.timestamp_ms;
        self.batches.push(batch);
    }

    fn duplicate_of(&self, header: &BatchHeader) -> Option<ProducerRefused> {
        if self.epoch != header.producer_epoch {
            return None;
        }
        let same = |batch: &&Remembered| {
            batch.first_sequence() == header.base_sequence
                && batch.last_sequence == header.last_sequence()
        };
        self.batches
            .iter()
            .find(same)
            .map(|batch| ProducerRefused::Duplicate {
                base_offset: batch.first_offset(),
                last_offset: batch.last_offset,
                timestamp_ms: batch.timestamp_ms,
            })
    }

    fn check_sequence(&self, header: &BatchHeader) -> Result<(), ProducerRefused> {
        let expected = if self.epoch == header.producer_epoch {
            match self.last_sequence() {
                i32::MAX => 0,
                last => last + 1,
            }
        } else {
            0
        };
        if header.base_sequence == expected {
            Ok(())
        } else {
            Err(ProducerRefused::OutOfOrderSequence)
        }
    }
}

/// The producers of one log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Producers {
    entries: BTreeMap<i64, Producer>,
    /// Open transactions: first offset to producer.
    ongoing: BTreeMap<i64, i64>,
    /// Completed ones whose marker may not be replicated yet: first offset to marker offset.
    unreplicated: BTreeMap<i64, i64>,
}

/// Size of the fixed part of a snapshot, and of an entry.
const SNAPSHOT_HEAD: usize = 10;
const SNAPSHOT_ENTRY: usize = 46;

impl Producers {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// May this batch be appended? `marker` is the content of a control batch.
    pub fn check(
        &self,
        origin: Origin,
        header: &BatchHeader,
        marker: Option<EndMarker>,
    ) -> Result<(), ProducerRefused> {
        if header.producer_id < 0 || origin == Origin::Controller {
            return Ok(());
        }
        let Some(known) = self.entries.get(&header.producer_id) else {
            return Ok(()); // I-6
        };
        if let Some(marker) = marker {
            return check_marker(known, header, marker);
        }
        if origin == Origin::Client
            && let Some(duplicate) = known.duplicate_of(header)
        {
            return Err(duplicate);
        }
        if header.producer_epoch < known.epoch {
            return Err(ProducerRefused::InvalidProducerEpoch); // I-3
        }
        if origin == Origin::Client {
            known.check_sequence(header)?; // I-4, I-5
        }
        if known.txn_first_offset.is_some() && !header.is_transactional() {
            return Err(ProducerRefused::InvalidTxnState); // T-2
        }
        Ok(())
    }

    /// Takes over a batch that is in the log.
    pub fn apply(&mut self, header: &BatchHeader, marker: Option<EndMarker>) -> Option<Completed> {
        if header.producer_id < 0 {
            return None;
        }
        if header.is_control() {
            // A control batch without its record was emptied by compaction: the transaction is gone as a whole.
            return marker.and_then(|marker| self.apply_marker(header, marker));
        }
        let first_offset = header.base_offset;
        let producer = self
            .entries
            .entry(header.producer_id)
            .or_insert_with(|| Producer::new(header.producer_epoch));
        producer.enter_epoch(header.producer_epoch);
        producer.remember(Remembered {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp_ms: header.max_timestamp,
        });
        if header.is_transactional() && producer.txn_first_offset.is_none() {
            producer.txn_first_offset = Some(first_offset); // T-1
            self.ongoing.insert(first_offset, header.producer_id);
        }
        None
    }

    fn apply_marker(&mut self, header: &BatchHeader, marker: EndMarker) -> Option<Completed> {
        let producer = self
            .entries
            .entry(header.producer_id)
            .or_insert_with(|| Producer::new(header.producer_epoch));
        producer.enter_epoch(header.producer_epoch);
        producer.ended = Some(Ended {
            epoch: header.producer_epoch,
            coordinator_epoch: marker.coordinator_epoch,
            offset: header.base_offset,
        });
        producer.last_timestamp_ms = marker.timestamp_ms;
        let first_offset = producer.txn_first_offset.take()?;
        let last_offset = header.base_offset;
        self.ongoing.remove(&first_offset);
        self.unreplicated.insert(first_offset, last_offset);
        Some(Completed {
            producer_id: header.producer_id,
            first_offset,
            last_offset,
            aborted: !marker.commit,
            last_stable_offset: self
                .ongoing
                .first_key_value()
                .map_or(last_offset + 1, |(first, _)| *first),
        })
    }

    /// The first offset that a reader of committed records may not see yet (T-1); at most `high_watermark`.
    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        let open = self.ongoing.first_key_value().map(|(first, _)| *first);
        let unreplicated = self
            .unreplicated
            .iter()
            .find(|(_, marker)| **marker >= high_watermark)
            .map(|(first, _)| *first);
        [open, unreplicated]
            .into_iter()
            .flatten()
            .fold(high_watermark, i64::min)
    }

    /// Markers below the high watermark hold nobody back any more.
    pub fn forget_replicated(&mut self, high_watermark: i64) {
        self.unreplicated
            .retain(|_, marker| *marker >= high_watermark);
    }

    /// Removes producers that were idle for `expiration_ms` and have no open transaction (I-7).
    pub fn expire(&mut self, wall_ms: i64, expiration_ms: i64) {
        self.entries
            .retain(|_, producer| !is_expired(producer, wall_ms, expiration_ms));
    }

    pub fn describe(&self) -> Vec<DescribedProducer> {
        let described = |(&producer_id, producer): (&i64, &Producer)| DescribedProducer {
            producer_id,
            epoch: producer.epoch,
            last_sequence: producer.last_sequence(),
            last_timestamp: producer.last_timestamp_ms,
            coordinator_epoch: producer.coordinator_epoch(),
            current_txn_start_offset: producer.txn_first_offset.unwrap_or(-1),
        };
        self.entries.iter().map(described).collect()
    }

    /// From where a replay brings all remembered batches back (I-10), of which a snapshot has only the last of each producer. Batches that
    /// end below `near_from` are too far away, and those producers are remembered by their last one.
    pub(super) fn replay_from(&self, near_from: i64, log_end: i64, aborted: &Aborted) -> i64 {
        let batches = self.entries.values().flat_map(|known| &known.batches);
        let near = batches.filter(|batch| batch.last_offset >= near_from);
        let mut from = near.map(Remembered::first_offset).fold(log_end, i64::min);
        // An aborted transaction is replayed as a whole, or its entry in the transaction index would come out wrong.
        while let Some(first) = aborted.first_offset_across(from) {
            if first < near_from {
                return log_end;
            }
            from = first;
        }
        from
    }

    /// The content of a `.snapshot` file: of each producer, the last batch only (kafka.md 5.2). Nothing in it comes from `as_of` or later, which
    /// a power cut may take; what is not known as of then is left out, for a replay from there brings it back.
    pub fn snapshot(&self, as_of: i64) -> Bytes {
        let mut out = BytesMut::with_capacity(SNAPSHOT_HEAD + self.entries.len() * SNAPSHOT_ENTRY);
        out.put_i16(1);
        out.put_u32(0);
        out.put_i32(0);
        let mut count = 0;
        for (&producer_id, producer) in &self.entries {
            let before = |batch: &&Remembered| batch.last_offset < as_of;
            let last = producer.batches.iter().rev().find(before);
            let txn_first_offset = producer.txn_first_offset.filter(|first| *first < as_of);
            let ended = producer.ended.filter(|ended| ended.offset < as_of);
            let epoch = match (last, txn_first_offset, ended) {
                (None, None, None) => continue,
                (None, None, Some(ended)) => ended.epoch,
                _ => producer.epoch,
            };
            count += 1;
            out.put_i64(producer_id);
            out.put_i16(epoch);
            out.put_i32(last.map_or(-1, |batch| batch.last_sequence));
            out.put_i64(last.map_or(-1, |batch| batch.last_offset));
            out.put_i32(last.map_or(0, |batch| batch.offset_delta));
            out.put_i64(producer.last_timestamp_ms);
            out.put_i32(ended.map_or(-1, |ended| ended.coordinator_epoch));
            out.put_i64(txn_first_offset.unwrap_or(-1));
        }
        out[6..SNAPSHOT_HEAD].copy_from_slice(&i32::to_be_bytes(count));
        let crc = checksum(&out[6..]);
        out[2..6].copy_from_slice(&crc.to_be_bytes());
        out.freeze()
    }

    /// Reads a `.snapshot` file, leaving out producers that have expired meanwhile; `None` if it is corrupt.
    pub fn from_snapshot(bytes: &[u8], wall_ms: i64, expiration_ms: i64) -> Option<Producers> {
        let mut rest = bytes;
        if rest.len() < SNAPSHOT_HEAD || rest.get_i16() != 1 {
            return None;
        }
        if rest.get_u32() != checksum(rest) {
            return None;
        }
        let count = usize::try_from(rest.get_i32()).ok()?;
        if rest.len() != count.checked_mul(SNAPSHOT_ENTRY)? {
            return None;
        }
        let mut producers = Producers::default();
        for _ in 0..count {
            let (producer_id, producer) = read_entry(&mut rest);
            if is_expired(&producer, wall_ms, expiration_ms) {
                continue;
            }
            if let Some(first) = producer.txn_first_offset {
                producers.ongoing.insert(first, producer_id);
            }
            producers.entries.insert(producer_id, producer);
        }
        Some(producers)
    }
}

fn read_entry(rest: &mut &[u8]) -> (i64, Producer) {
    let producer_id = rest.get_i64();
    let mut producer = Producer::new(rest.get_i16());
    let last = Remembered {
        last_sequence: rest.get_i32(),
        last_offset: rest.get_i64(),
        offset_delta: rest.get_i32(),
        timestamp_ms: rest.get_i64(),
    };
    producer.last_timestamp_ms = last.timestamp_ms;
    producer.ended = Some(Ended {
        epoch: producer.epoch,
        coordinator_epoch: rest.get_i32(),
        offset: -1,
    });
    let first = rest.get_i64();
    producer.txn_first_offset = (first >= 0).then_some(first);
    if last.last_offset >= 0 {
        producer.batches.push(last);
    }
    (producer_id, producer)
}

fn is_expired(producer: &Producer, wall_ms: i64, expiration_ms: i64) -> bool {
    producer.txn_first_offset.is_none()
        && wall_ms.saturating_sub(producer.last_timestamp_ms) >= expiration_ms
}

/// T-6. An equal epoch is taken, as a retry of the coordinator is.
fn check_marker(
    known: &Producer,
    header: &BatchHeader,
    marker: EndMarker,
) -> Result<(), ProducerRefused> {
    if header.producer_epoch < known.epoch {
        return Err(ProducerRefused::InvalidProducerEpoch);
    }
    if marker.coordinator_epoch < known.coordinator_epoch() {
        return Err(ProducerRefused::CoordinatorFenced);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(pid: i64, epoch: i16, sequence: i32, count: i32, offset: i64) -> BatchHeader {
        BatchHeader {
            base_offset: offset,
            batch_length: 49,
            partition_leader_epoch: 0,
            crc: 0,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: 1000,
            max_timestamp: 1000,
            producer_id: pid,
            producer_epoch: epoch,
            base_sequence: sequence,
            record_count: count,
        }
    }

    fn in_txn(mut header: BatchHeader) -> BatchHeader {
        header.attributes |= 1 << 4;
        header
    }

    fn marker(pid: i64, epoch: i16, offset: i64, commit: bool) -> (BatchHeader, Option<EndMarker>) {
        let mut header = in_txn(batch(pid, epoch, -1, 1, offset));
        header.attributes |= 1 << 5;
        let marker = EndMarker {
            commit,
            coordinator_epoch: 0,
            timestamp_ms: 1000,
        };
        (header, Some(marker))
    }

    fn check(producers: &Producers, header: &BatchHeader) -> Result<(), ProducerRefused> {
        producers.check(Origin::Client, header, None)
    }

    #[test]
    fn the_last_five_batches_are_known_as_duplicates() {
        let mut producers = Producers::default();
        for at in 0..6 {
            producers.apply(&batch(7, 0, at * 10, 10, i64::from(at) * 10), None);
        }
        for at in 1..6 {
            let refused = check(&producers, &batch(7, 0, at * 10, 10, 100));
            let base_offset = i64::from(at) * 10;
            let expected = ProducerRefused::Duplicate {
                base_offset,
                last_offset: base_offset + 9,
                timestamp_ms: 1000,
            };
            assert_eq!(refused, Err(expected));
        }
        let too_old = check(&producers, &batch(7, 0, 0, 10, 100));
        assert_eq!(too_old, Err(ProducerRefused::OutOfOrderSequence));
        // The same first sequence with another length is no duplicate.
        let other = check(&producers, &batch(7, 0, 50, 9, 100));
        assert_eq!(other, Err(ProducerRefused::OutOfOrderSequence));
        assert_eq!(check(&producers, &batch(7, 0, 60, 1, 100)), Ok(()));
    }

    #[test]
    fn sequences_go_on_and_epochs_begin_at_zero() {
        let mut producers = Producers::default();
        assert_eq!(check(&producers, &batch(7, 3, 50, 1, 0)), Ok(()));
        producers.apply(&batch(7, 3, i32::MAX, 1, 0), None);
        assert_eq!(check(&producers, &batch(7, 3, 0, 1, 1)), Ok(()));
        assert_eq!(check(&producers, &batch(7, 4, 0, 1, 1)), Ok(()));
        assert_eq!(
            check(&producers, &batch(7, 4, 1, 1, 1)),
            Err(ProducerRefused::OutOfOrderSequence)
        );
        assert_eq!(
            check(&producers, &batch(7, 2, 0, 1, 1)),
            Err(ProducerRefused::InvalidProducerEpoch)
        );
    }

    #[test]
    fn a_batch_across_the_wrap_of_sequences_is_known_again() {
        let mut producers = Producers::default();
        let wrapping = batch(7, 0, i32::MAX - 1, 4, 0);
        producers.apply(&wrapping, None);
        assert!(matches!(
            check(&producers, &wrapping),
            Err(ProducerRefused::Duplicate { base_offset: 0, .. })
        ));
        assert_eq!(check(&producers, &batch(7, 0, 2, 1, 4)), Ok(()));
    }

    #[test]
    fn coordinators_append_without_sequences() {
        let mut producers = Producers::default();
        producers.apply(&batch(7, 1, 5, 1, 0), None);
        let plain = batch(7, 1, -1, 1, 1);
        assert_eq!(producers.check(Origin::Coordinator, &plain, None), Ok(()));
        let old = batch(7, 0, -1, 1, 1);
        assert_eq!(
            producers.check(Origin::Coordinator, &old, None),
            Err(ProducerRefused::InvalidProducerEpoch)
        );
    }

    #[test]
    fn the_last_stable_offset_waits_for_open_and_unreplicated_transactions() {
        let mut producers = Producers::default();
        producers.apply(&in_txn(batch(1, 0, 0, 5, 10)), None);
        producers.apply(&in_txn(batch(2, 0, 0, 5, 15)), None);
        assert_eq!(producers.last_stable_offset(20), 10);
        assert_eq!(producers.last_stable_offset(5), 5);
        let (header, end) = marker(1, 0, 20, false);
        let completed = producers
            .apply(&header, end)
            .expect("a transaction was open");
        assert_eq!(
            completed,
            Completed {
                producer_id: 1,
                first_offset: 10,
                last_offset: 20,
                aborted: true,
                last_stable_offset: 15
            }
        );
        assert_eq!(producers.last_stable_offset(20), 10);
        assert_eq!(producers.last_stable_offset(21), 15);
        let (header, end) = marker(2, 0, 21, true);
        let completed = producers
            .apply(&header, end)
            .expect("a transaction was open");
        assert_eq!(completed.last_stable_offset, 22);
        assert_eq!(producers.last_stable_offset(22), 22);
        producers.forget_replicated(22);
        assert_eq!(producers.unreplicated.len(), 0);
    }

    #[test]
    fn a_plain_batch_inside_a_transaction_is_refused() {
        let mut producers = Producers::default();
        producers.apply(&in_txn(batch(1, 0, 0, 5, 10)), None);
        assert_eq!(
            check(&producers, &batch(1, 0, 5, 1, 15)),
            Err(ProducerRefused::InvalidTxnState)
        );
    }

    #[test]
    fn a_marker_of_an_old_coordinator_is_fenced() {
        let mut producers = Producers::default();
        let (header, mut end) = marker(1, 4, 0, true);
        end.as_mut().expect("a marker").coordinator_epoch = 9;
        producers.apply(&header, end);
        let (header, older) = marker(1, 4, 1, true);
        assert_eq!(
            producers.check(Origin::Coordinator, &header, older),
            Err(ProducerRefused::CoordinatorFenced)
        );
    }

    #[test]
    fn a_snapshot_lies_as_kafka_writes_it() {
        // kafka.md appendix A7.
        let mut producers = Producers::default();
        let mut header = in_txn(batch(1000, 4, 0, 10, 90));
        header.max_timestamp = 1_700_000_000_000;
        producers.apply(&header, None);
        let (header, end) = marker(1000, 4, 100, true);
        let mut end = end.expect("a marker");
        end.coordinator_epoch = 9;
        end.timestamp_ms = 1_700_000_000_000;
        producers.apply(&header, Some(end));
        let expected = [
            0x00, 0x01, 0x01, 0xc8, 0x0c, 0xa4, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x03, 0xe8, 0x00, 0x04, 0x00, 0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x63, 0x00, 0x00, 0x00, 0x09, 0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5,
            0x68, 0x00, 0x00, 0x00, 0x00, 0x09, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ];
        let snapshot = producers.snapshot(i64::MAX);
        assert_eq!(&snapshot[..], expected);
        let read = Producers::from_snapshot(&snapshot, 1_700_000_000_001, 1000);
        assert_eq!(read.expect("valid").snapshot(i64::MAX), snapshot);
        let expired = Producers::from_snapshot(&snapshot, 1_700_000_001_000, 1000);
        assert!(expired.expect("valid").is_empty());
    }

    #[test]
    fn a_damaged_snapshot_is_not_read() {
        let mut producers = Producers::default();
        producers.apply(&batch(7, 0, 0, 1, 0), None);
        let good = producers.snapshot(i64::MAX);
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 1;
            assert_eq!(
                Producers::from_snapshot(&bad, 0, i64::MAX),
                None,
                "byte {at}"
            );
            assert_eq!(Producers::from_snapshot(&good[..at], 0, i64::MAX), None);
        }
    }

    #[test]
    fn idle_producers_expire_unless_a_transaction_is_open() {
        let mut producers = Producers::default();
        producers.apply(&batch(1, 0, 0, 1, 0), None);
        producers.apply(&in_txn(batch(2, 0, 0, 1, 1)), None);
        producers.expire(1000 + 99, 100);
        assert_eq!(producers.describe().len(), 2);
        producers.expire(1000 + 100, 100);
        let left = producers.describe();
        assert_eq!((left.len(), left[0].producer_id), (1, 2));
        assert_eq!(left[0].current_txn_start_offset, 1);
    }
}

//! Facts about a shard's partitions, by the rows of kafka.md.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fetch;
mod lifecycle;
mod lookups;
mod oracle;
mod produce;

use bytes::Bytes;
use smallvec::smallvec;

use crate::base::error_code::ErrorCode;
use crate::base::ids::ReplyTo;
use crate::part::*;
use crate::testing::*;

/// A shard with one topic of some partitions, all online.
struct Rig {
    cluster: TestCluster,
    shard: TestShard,
    partitions: Vec<PartitionRef>,
}

impl Rig {
    fn new(partitions: i32, settings: &[(&'static str, &'static str)]) -> Rig {
        let mut cluster = TestCluster::new(1);
        let topic = cluster.create_topic("t", partitions, settings);
        let mut shard = TestShard::new();
        shard.image(&cluster);
        let partitions = (0..partitions)
            .map(|number| cluster.partition(topic, number))
            .collect();
        Rig {
            cluster,
            shard,
            partitions,
        }
    }

    fn one() -> Rig {
        Rig::new(1, &[])
    }

    fn produce_part(&self, partition: usize, acks: Acks, records: Bytes) -> Part {
        let entry = ProduceEntry {
            at: 0,
            partition: self.partitions[partition],
            records: Some(records),
        };
        Part::Produce(Produce {
            acks,
            timeout_ms: 30_000,
            zstd: true,
            entries: smallvec![entry],
        })
    }

    fn send(&mut self, partition: usize, acks: Acks, records: Bytes) -> ReplyTo {
        let part = self.produce_part(partition, acks, records);
        self.shard.part(part)
    }

    fn produced(&mut self, to: ReplyTo) -> Option<Produced> {
        match self.shard.reply(to)? {
            Reply::Produce(mut produced) => produced.pop(),
            _ => panic!("another reply"),
        }
    }

    fn produce(&mut self, partition: usize, records: Bytes) -> Produced {
        let to = self.send(partition, Acks::All, records);
        self.produced(to).unwrap()
    }

    fn fetch_entry(&self, partition: usize, offset: i64) -> FetchEntry {
        FetchEntry {
            at: partition as u32,
            partition: self.partitions[partition],
            offset,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            max_bytes: 1 << 20,
        }
    }

    fn peek_part(entry: FetchEntry, watch: bool, wake_bytes: u32) -> Part {
        Part::FetchPeek(FetchPeek {
            isolation: Isolation::ReadUncommitted,
            entries: smallvec![entry],
            watch,
            wake_bytes,
        })
    }

    fn peek(&mut self, entry: FetchEntry) -> FetchPeeked {
        match self.shard.ask(Rig::peek_part(entry, false, 1)) {
            Reply::FetchPeek(peeked) => peeked[0],
            _ => panic!("another reply"),
        }
    }

    /// Somebody reads the partition from now on.
    fn follow(&mut self, partition: usize) {
        let entry = self.fetch_entry(partition, 0);
        self.peek(entry);
    }

    fn collect_part(entry: FetchEntry, bytes: u32, at_least_one: bool) -> Part {
        let grant = FetchGrant {
            entry,
            bytes,
            at_least_one,
        };
        Part::FetchCollect(FetchCollect {
            isolation: Isolation::ReadUncommitted,
            entries: smallvec![grant],
        })
    }

    fn collect(&mut self, entry: FetchEntry) -> Fetched {
        match self.shard.ask(Rig::collect_part(entry, 1 << 20, true)) {
            Reply::FetchCollect(mut fetched) => fetched.pop().unwrap(),
            _ => panic!("another reply"),
        }
    }

    fn woken(&mut self, to: ReplyTo) -> Option<FetchPeeked> {
        match self.shard.reply(to)? {
            Reply::FetchWake(peeked) => Some(peeked),
            _ => panic!("another reply"),
        }
    }
}

fn outcome(produced: &Produced) -> (ErrorCode, i64) {
    (produced.code, produced.base_offset)
}

fn bytes_of(fetched: &Fetched) -> Vec<u8> {
    fetched.records.iter().flatten().copied().collect()
}

/// (base offset, record count) of each whole batch.
fn batches_of(fetched: &Fetched) -> Vec<(i64, i32)> {
    let bytes = bytes_of(fetched);
    corelog_wire::batch::BatchIter::new(&bytes)
        .map(|walked| walked.unwrap().header)
        .map(|header| (header.base_offset, header.record_count))
        .collect()
}

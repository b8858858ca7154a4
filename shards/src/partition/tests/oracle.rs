//! Random histories against a model: producers with sequences, retries, a disk that holds back, fetches across partitions.

use proptest::prelude::*;

use super::*;

const PARTITIONS: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    /// The producer's next batch.
    Produce {
        producer: i64,
        partition: usize,
        records: usize,
    },
    /// The producer's last batch to the partition once more.
    Retry {
        producer: i64,
        partition: usize,
    },
    Hold,
    Release,
    Fetch {
        budget: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let produce = (0_i64..3, 0..PARTITIONS, 1_usize..4);
    prop_oneof![
        6 => produce.prop_map(|(producer, partition, records)| Step::Produce { producer, partition, records }),
        2 => (0_i64..3, 0..PARTITIONS).prop_map(|(producer, partition)| Step::Retry { producer, partition }),
        1 => Just(Step::Hold),
        2 => Just(Step::Release),
        2 => (0_u32..600).prop_map(|budget| Step::Fetch { budget }),
    ]
}

/// What one producer has sent to one partition.
#[derive(Default, Clone)]
struct Sent {
    next_sequence: i32,
    last: Option<(Bytes, i64)>,
}

/// A batch under way: where, the offset it must get, its end.
struct Asked {
    to: ReplyTo,
    base_offset: i64,
}

struct World {
    rig: Rig,
    sent: Vec<Vec<Sent>>,
    /// The log as it must be: (base offset, producer, first sequence).
    logs: Vec<Vec<(i64, i64, i32)>>,
    ends: [i64; PARTITIONS],
    asked: Vec<Asked>,
}

impl World {
    fn new() -> World {
        let mut rig = Rig::new(PARTITIONS as i32, &[]);
        (0..PARTITIONS).for_each(|partition| rig.follow(partition));
        World {
            rig,
            sent: vec![vec![Sent::default(); PARTITIONS]; 3],
            logs: vec![Vec::new(); PARTITIONS],
            ends: [0; PARTITIONS],
            asked: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Produce {
                producer,
                partition,
                records,
            } => {
                let sent = &mut self.sent[producer as usize][partition];
                let batch = batch_of((producer, 0), sent.next_sequence, &vec!["v"; records]);
                let base_offset = self.ends[partition];
                self.logs[partition].push((base_offset, producer, sent.next_sequence));
                sent.next_sequence += records as i32;
                sent.last = Some((batch.clone(), base_offset));
                self.ends[partition] += records as i64;
                self.send(partition, batch, base_offset);
            }
            Step::Retry {
                producer,
                partition,
            } => {
                if let Some((batch, base_offset)) =
                    self.sent[producer as usize][partition].last.clone()
                {
                    self.send(partition, batch, base_offset);
                }
            }
            Step::Hold => self.rig.shard.hold = Hold::Everything,
            Step::Release => {
                self.rig.shard.hold = Hold::Nothing;
                self.rig.shard.release();
            }
            Step::Fetch { budget } => self.fetch(budget),
        }
    }

    fn send(&mut self, partition: usize, batch: Bytes, base_offset: i64) {
        let to = self.rig.send(partition, Acks::All, batch);
        self.asked.push(Asked { to, base_offset });
        self.check_answers();
    }

    /// Every answer names the offset that the model gave, and nothing is answered while the disk holds everything back.
    fn check_answers(&mut self) {
        let rig = &mut self.rig;
        self.asked.retain(|asked| match rig.produced(asked.to) {
            Some(produced) => {
                assert_eq!(outcome(&produced), (ErrorCode::NONE, asked.base_offset));
                false
            }
            None => true,
        });
    }

    /// Both rounds over all partitions, budgets given out in order.
    fn fetch(&mut self, budget: u32) {
        self.check_answers();
        let mut left = budget;
        let mut grants = Entries::new();
        for partition in 0..PARTITIONS {
            let entry = self.rig.fetch_entry(partition, 0);
            let available = self.rig.peek(entry).available;
            let bytes = available.min(left);
            grants.push(FetchGrant {
                entry,
                bytes,
                at_least_one: false,
            });
            left -= bytes;
        }
        let round = FetchCollect {
            isolation: Isolation::ReadUncommitted,
            entries: grants,
        };
        let Reply::FetchCollect(fetched) = self.rig.shard.ask(Part::FetchCollect(round)) else {
            panic!("another reply")
        };
        let total: usize = fetched.iter().map(|fetched| bytes_of(fetched).len()).sum();
        assert!(total <= budget as usize, "{total} bytes of {budget}");
        for (partition, fetched) in fetched.iter().enumerate() {
            self.check_log(partition, fetched);
        }
    }

    fn check_log(&self, partition: usize, fetched: &Fetched) {
        let bytes = bytes_of(fetched);
        let mut expected = self.logs[partition].iter();
        for walked in corelog_wire::batch::BatchIter::new(&bytes) {
            let header = walked.unwrap().header;
            let got = (header.base_offset, header.producer_id, header.base_sequence);
            assert_eq!(Some(&got), expected.next());
            assert!(
                header.last_offset() < fetched.high_watermark,
                "what is not committed was shown"
            );
        }
        assert!(fetched.high_watermark <= self.ends[partition]);
    }

    fn finish(mut self) {
        self.take(&Step::Release);
        self.check_answers();
        assert!(
            self.asked.is_empty(),
            "{} produces were never answered",
            self.asked.len()
        );
        self.fetch(u32::MAX);
        for partition in 0..PARTITIONS {
            let entry = self.rig.fetch_entry(partition, 0);
            let fetched = self.rig.collect(entry);
            assert_eq!(fetched.high_watermark, self.ends[partition]);
            assert_eq!(batches_of(&fetched).len(), self.logs[partition].len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_batch_is_in_the_log_once_in_order_and_answered_with_its_offset(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        world.finish();
    }
}

//! One producing connection: what it may send next, and what it waits for.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::connection::{Connection, ask};
use crate::frames::{self, Produced, ProducerId};
use crate::schedule::Random;
use crate::workload::KeyDistributor;

/// A coordinator that is still loading has this time.
const PRODUCER_ID_TIMEOUT: Duration = Duration::from_secs(30);
/// Error codes of a coordinator that is not there yet.
const PASSING: &[i16] = &[14, 15, 16];

#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) number: u32,
    pub(super) intended_ns: u64,
    pub(super) sent_ns: u64,
}

#[derive(Debug)]
pub(super) struct Producer {
    pub(super) connection: Connection,
    /// Numbers of its partitions.
    pub(super) partitions: Vec<u32>,
    /// How many batches it has chosen a partition for.
    pub(super) turns: usize,
    /// Intended times of what is due and not sent yet.
    pub(super) waiting: VecDeque<u64>,
    pub(super) in_flight: VecDeque<InFlight>,
    pub(super) wants_write: bool,
    /// Who it is, and the next sequence of each of its partitions.
    pub(super) idempotence: Option<(ProducerId, Vec<i32>)>,
    random: Option<Random>,
}

impl Producer {
    pub(super) fn new(
        connection: Connection,
        number: u32,
        partitions: Vec<u32>,
        keys: KeyDistributor,
        id: Option<ProducerId>,
    ) -> Producer {
        let random = (keys == KeyDistributor::RandomNano).then(|| Random::seeded(number.into()));
        Producer {
            connection,
            idempotence: id.map(|id| (id, vec![0; partitions.len()])),
            partitions,
            turns: 0,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            wants_write: false,
            random,
        }
    }

    /// The place of the next batch's partition among its own.
    pub(super) fn next_place(&mut self) -> usize {
        let turn = self.turns;
        self.turns += 1;
        match &mut self.random {
            Some(random) => random.below(self.partitions.len()),
            None => turn % self.partitions.len(),
        }
    }

    /// Takes the next sequence of the partition at this place, for so many records.
    pub(super) fn take_sequence(
        &mut self,
        place: usize,
        records: u32,
    ) -> Option<(ProducerId, i32)> {
        let (id, sequences) = self.idempotence.as_mut()?;
        let sequence = sequences[place];
        // Kafka's sequences begin again at 0 after the largest.
        sequences[place] = sequence.wrapping_add(records as i32) & i32::MAX;
        Some((*id, sequence))
    }
}

pub(super) fn check(sent: &InFlight, produced: Produced) -> Result<(), Failure> {
    if produced.number != sent.number {
        return Err(Failure::told(format!(
            "the broker answered number {} where {} was next: answers come in the order of requests",
            produced.number, sent.number
        )));
    }
    if produced.error != 0 {
        return Err(Failure::told(format!(
            "Produce to partition {} was answered with error {}",
            produced.partition, produced.error
        )));
    }
    Ok(())
}

/// A producer id of one's own.
pub(super) fn producer_id(address: SocketAddr) -> Result<ProducerId, Failure> {
    let began = Instant::now();
    loop {
        match frames::producer_id(&ask(address, &frames::init_producer_id())?)? {
            Ok(id) => return Ok(id),
            Err(error) if PASSING.contains(&error) && began.elapsed() < PRODUCER_ID_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => {
                return Err(Failure::told(format!(
                    "InitProducerId was answered with error {error}"
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn producer(keys: KeyDistributor, id: Option<ProducerId>) -> Producer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        Producer::new(connection, 0, vec![3, 5, 7], keys, id)
    }

    #[test]
    fn an_answer_to_something_else_or_an_error_ends_the_run() {
        let sent = InFlight {
            number: 4,
            intended_ns: 0,
            sent_ns: 0,
        };
        let answer = |number, error| {
            let partition = 0;
            check(
                &sent,
                Produced {
                    number,
                    partition,
                    error,
                },
            )
        };
        assert!(answer(4, 0).is_ok());
        assert!(answer(5, 0).unwrap_err().to_string().contains("order"));
        assert!(answer(4, 6).unwrap_err().to_string().contains("error 6"));
    }

    #[test]
    fn partitions_come_in_turns_or_at_random() {
        let mut in_turns = producer(KeyDistributor::KeyRoundRobin, None);
        let places: Vec<_> = (0..4).map(|_| in_turns.next_place()).collect();
        assert_eq!(places, [0, 1, 2, 0]);
        let mut at_random = producer(KeyDistributor::RandomNano, None);
        let mut counts = [0; 3];
        for _ in 0..3000 {
            counts[at_random.next_place()] += 1;
        }
        assert!(counts.iter().all(|count| *count > 800), "{counts:?}");
    }

    #[test]
    fn sequences_count_by_partition_and_begin_again_at_zero() {
        let id = ProducerId { id: 9, epoch: 0 };
        let mut producer = producer(KeyDistributor::NoKey, Some(id));
        assert_eq!(producer.take_sequence(1, 16), Some((id, 0)));
        assert_eq!(producer.take_sequence(1, 16), Some((id, 16)));
        assert_eq!(producer.take_sequence(0, 16), Some((id, 0)));
        producer.idempotence = Some((id, vec![i32::MAX - 15; 3]));
        assert_eq!(producer.take_sequence(2, 16), Some((id, i32::MAX - 15)));
        assert_eq!(producer.take_sequence(2, 16), Some((id, 0)));
    }
}

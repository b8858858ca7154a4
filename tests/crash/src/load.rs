//! Producers that push without pause until the broker is gone, and a consumer that follows them: what it was shown must survive as well.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corelog_wire::batch::{BatchIter, RecordIter, decoded_records, verify_crc};

use crate::connection::{Connection, DUPLICATE_SEQUENCE, is_passing};
use crate::content::{self, Batch, Producer};
use crate::ledger::{Kind, Ledger};
use crate::random::Random;

/// Requests under way on one connection; an idempotent producer may have five a partition.
const IN_FLIGHT_MAX: usize = 5;
const READ_BYTES: i32 = 1 << 20;

/// One partition under test.
pub(crate) struct Lane {
    pub(crate) number: u32,
    pub(crate) topic: &'static str,
    pub(crate) partition: i32,
    pub(crate) producer: Option<Producer>,
    ledger: Mutex<Ledger>,
}

impl Lane {
    pub(crate) fn new(
        number: u32,
        topic: &'static str,
        partition: i32,
        producer: Option<Producer>,
    ) -> Lane {
        let kind = if producer.is_some() {
            Kind::Idempotent
        } else {
            Kind::Plain
        };
        Lane {
            number,
            topic,
            partition,
            producer,
            ledger: Mutex::new(Ledger::new(kind)),
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self, why: impl std::fmt::Display) -> io::Error {
        io::Error::other(format!("{}-{}: {why}", self.topic, self.partition))
    }
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) batches: AtomicU64,
    pub(crate) records: AtomicU64,
}

/// Whether the broker is about to be killed or stopped: from then on a lost connection is no failure.
#[derive(Default)]
pub(crate) struct Ending(AtomicBool);

impl Ending {
    pub(crate) fn announce(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_near(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Pushes to these lanes in turn until the end is near or the connection goes.
pub(crate) fn produce(
    address: SocketAddr,
    lanes: &[Arc<Lane>],
    seed: u64,
    ending: &Ending,
    counts: &Counts,
) -> io::Result<()> {
    let mut random = Random::new(seed);
    let mut connection = Connection::open(address)?;
    let mut in_flight: VecDeque<(usize, Batch)> = VecDeque::new();
    let outcome = (|| -> io::Result<()> {
        while !ending.is_near() {
            while in_flight.len() < IN_FLIGHT_MAX {
                let at = random.within(0, lanes.len() as u64) as usize;
                let lane = &lanes[at];
                let batch = {
                    let mut ledger = lane.ledger();
                    let batch = content::batch(
                        &mut random,
                        lane.number,
                        ledger.next_serial,
                        lane.producer,
                    )?;
                    ledger.next_serial += u64::from(batch.count);
                    if ledger.kind == Kind::Idempotent {
                        ledger.unanswered.push_back(batch.clone());
                    }
                    batch
                };
                in_flight.push_back((at, batch.clone()));
                connection.send_produce(lane.topic, lane.partition, -1, &batch.bytes)?;
            }
            answer(&mut connection, lanes, &mut in_flight, ending, counts)?;
        }
        // What the broker still answers before it goes, counts.
        while !in_flight.is_empty() {
            answer(&mut connection, lanes, &mut in_flight, ending, counts)?;
        }
        Ok(())
    })();
    match outcome {
        Err(error) if ending.is_near() && is_lost(&error) => Ok(()),
        other => other,
    }
}

pub(crate) fn is_lost(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
    )
}

fn answer(
    connection: &mut Connection,
    lanes: &[Arc<Lane>],
    in_flight: &mut VecDeque<(usize, Batch)>,
    ending: &Ending,
    counts: &Counts,
) -> io::Result<()> {
    let produced = connection.receive_produce()?;
    let Some((at, batch)) = in_flight.pop_front() else {
        return Err(io::Error::other("an answer without a request"));
    };
    let lane = &lanes[at];
    if is_passing(produced.error) && ending.is_near() {
        // A broker that stops may say that it leads no more.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if produced.error != 0 {
        return Err(lane.broken(format_args!(
            "Produce under load gave error {}",
            produced.error
        )));
    }
    let mut ledger = lane.ledger();
    ledger.acknowledge(produced.base_offset, &batch);
    if ledger.kind == Kind::Idempotent {
        ledger.unanswered.pop_front();
    }
    counts.batches.fetch_add(1, Ordering::Relaxed);
    counts
        .records
        .fetch_add(u64::from(batch.count), Ordering::Relaxed);
    Ok(())
}

/// Follows the lanes of one topic; what it reads goes into the ledgers.
pub(crate) fn follow(address: SocketAddr, lanes: &[Arc<Lane>], ending: &Ending) -> io::Result<()> {
    let outcome = (|| -> io::Result<()> {
        let mut connection = Connection::open(address)?;
        while !ending.is_near() {
            read_once(&mut connection, lanes, ending)?;
        }
        Ok(())
    })();
    match outcome {
        Err(error) if ending.is_near() && is_lost(&error) => Ok(()),
        other => other,
    }
}

/// One fetch of all lanes (of one topic) from where reading stopped.
fn read_once(connection: &mut Connection, lanes: &[Arc<Lane>], ending: &Ending) -> io::Result<()> {
    let Some(first) = lanes.first() else {
        return Ok(());
    };
    let wanted: Vec<(i32, i64)> = lanes
        .iter()
        .map(|lane| (lane.partition, lane.ledger().seen_end()))
        .collect();
    for fetched in connection.fetch(first.topic, &wanted, 100, READ_BYTES)? {
        let lane = lanes
            .iter()
            .find(|lane| lane.partition == fetched.partition)
            .ok_or_else(|| {
                first.broken(format_args!(
                    "Fetch answered partition {}, which was not asked for",
                    fetched.partition
                ))
            })?;
        if is_passing(fetched.error) && ending.is_near() {
            continue;
        }
        if fetched.error != 0 {
            return Err(lane.broken(format_args!("Fetch gave error {}", fetched.error)));
        }
        if fetched.log_start != 0 {
            return Err(lane.broken(format_args!(
                "the log starts at {}, though nothing was deleted",
                fetched.log_start
            )));
        }
        take_in(lane, &fetched.batches, fetched.high_watermark)?;
    }
    Ok(())
}

/// Checks and notes the records of some batches.
fn take_in(lane: &Lane, bytes: &[u8], high_watermark: i64) -> io::Result<()> {
    let mut ledger = lane.ledger();
    for walked in BatchIter::new(bytes) {
        // The last batch may be cut off by the fetch's limit.
        let Ok(walked) = walked else { break };
        if !verify_crc(walked.bytes) {
            return Err(lane.broken(format_args!(
                "the batch at {} has a wrong checksum",
                walked.header.base_offset
            )));
        }
        if walked.header.last_offset() >= high_watermark {
            return Err(lane.broken(format_args!(
                "offset {} was served beyond the high watermark {high_watermark}",
                walked.header.last_offset()
            )));
        }
        let records = decoded_records(&walked.header, walked.bytes, 64 << 20)?;
        for record in RecordIter::new(&records, walked.header.record_count as usize) {
            let record = record.map_err(|error| lane.broken(error))?;
            let offset = walked.header.base_offset + i64::from(record.offset_delta);
            let serial = content::serial_of(lane.number, record.value.unwrap_or_default())
                .ok_or_else(|| {
                    lane.broken(format_args!("the record at {offset} is not what was sent"))
                })?;
            ledger
                .read(offset, serial)
                .map_err(|why| lane.broken(why))?;
        }
    }
    Ok(())
}

/// Reads every lane of one topic to its end, from its start or from where reading stopped, and settles the ledgers.
pub(crate) fn verify(
    connection: &mut Connection,
    lanes: &[Arc<Lane>],
    from_start: bool,
) -> io::Result<()> {
    for lane in lanes {
        let (error, end) = connection.list_offset(lane.topic, lane.partition, -1)?;
        if error != 0 {
            return Err(lane.broken(format_args!("ListOffsets gave error {error}")));
        }
        // A few records before the end of what was read show whether the seam holds.
        let mut at = if from_start {
            0
        } else {
            (lane.ledger().seen_end() - 500).max(0)
        };
        while at < end {
            let before = at;
            let wanted = [(lane.partition, at)];
            let fetched = connection.fetch(lane.topic, &wanted, 1_000, READ_BYTES)?;
            let Some(fetched) = fetched.into_iter().next() else {
                return Err(lane.broken("Fetch answered no partition"));
            };
            if fetched.error != 0 {
                return Err(lane.broken(format_args!("Fetch at {at} gave error {}", fetched.error)));
            }
            take_in(lane, &fetched.batches, fetched.high_watermark)?;
            at = BatchIter::new(&fetched.batches)
                .map_while(Result::ok)
                .last()
                .map_or(at, |walked| walked.header.next_offset());
            if at == before {
                return Err(lane.broken(format_args!(
                    "nothing is served at {at}, before the end {end}"
                )));
            }
        }
        lane.ledger().settle(end).map_err(|why| lane.broken(why))?;
    }
    Ok(())
}

/// Sends again what an idempotent producer had no answer for, one batch at a time, under the same sequence numbers.
pub(crate) fn send_again(connection: &mut Connection, lanes: &[Arc<Lane>]) -> io::Result<u64> {
    let mut count = 0;
    for lane in lanes {
        loop {
            let Some(batch) = lane.ledger().unanswered.front().cloned() else {
                break;
            };
            connection.send_produce(lane.topic, lane.partition, -1, &batch.bytes)?;
            let produced = connection.receive_produce()?;
            let mut ledger = lane.ledger();
            match produced.error {
                0 => ledger.acknowledge(produced.base_offset, &batch),
                // It is older than the batches that the broker remembers, so it is there; reading says whether it is.
                DUPLICATE_SEQUENCE => {}
                error => {
                    return Err(lane.broken(format_args!(
                        "sending record {} again gave error {error}",
                        batch.first
                    )));
                }
            }
            ledger.unanswered.pop_front();
            count += 1;
        }
    }
    Ok(count)
}

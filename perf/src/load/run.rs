//! The run itself: one thread, one epoll, producers that send what is due and consumers that fetch what is there.
//!
//! Latency counts from the intended time. Where there is no rate the intended time is when the producer may send, and latency and service time are one.
//! End to end is measured without touching the records: batches of a partition are sent in order by one connection and a broker keeps batches whole, so
//! the n-th batch that a consumer sees of a partition is the n-th that was sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use crate::Failure;
use crate::connection::Connection;
use crate::frames;
use crate::recorded::Recorded;
use crate::schedule::Schedule;
use crate::workload::{Acks, Workload};

/// Closer to the next batch than this the loop does not sleep: epoll rounds to milliseconds.
const SPIN_NS: u64 = 1_100_000;
/// What is on its way when sending ends may still arrive in this time.
const DRAIN: Duration = Duration::from_secs(10);
const NANOSECONDS: f64 = 1e9;

/// When what happens counts, in seconds since the run began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) begin_seconds: f64,
    pub(crate) end_seconds: f64,
}

/// How a run ends.
#[derive(Debug, Clone, Copy)]
enum Until {
    Time(u64),
    /// This many batches have been produced.
    Batches(u64),
    /// Every partition has one batch.
    Touched,
}

/// Produces, and consumes if the workload has consumers. `at_edge` is called once when the window opens and once when it closes.
pub(crate) fn run(
    address: SocketAddr,
    topic: &str,
    workload: &Workload,
    window: Window,
    at_edge: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<Recorded, Failure> {
    touch(address, topic, workload)?;
    let mut load = Load::new(address, topic, workload, Consumers::Follow)?;
    load.run(window, at_edge)?;
    Ok(load.recorded)
}

/// Produces a backlog without measuring, then reads it again and again while measuring.
pub(crate) fn run_catch_up(
    address: SocketAddr,
    topic: &str,
    workload: &Workload,
    backlog_bytes: u64,
    window: Window,
    at_edge: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<Recorded, Failure> {
    let batches = (backlog_bytes / workload.batch_payload()).max(1);
    fill(address, topic, workload, batches)?;
    let mut load = Load::new(address, topic, workload, Consumers::ReadAgain)?;
    load.run(window, at_edge)?;
    Ok(load.recorded)
}

/// Produces so many batches without measuring.
pub(crate) fn fill(
    address: SocketAddr,
    topic: &str,
    workload: &Workload,
    batches: u64,
) -> Result<(), Failure> {
    Load::new(address, topic, workload, Consumers::None)?.produce(Until::Batches(batches))
}

/// Produces one batch to each partition of a new topic without measuring: the first append makes files, and what is to be measured is what follows.
pub(crate) fn touch(address: SocketAddr, topic: &str, workload: &Workload) -> Result<(), Failure> {
    let mut unpaced = workload.clone();
    unpaced.producer_rate = None;
    // What was not acknowledged may still be on its way when the run begins.
    unpaced.acks = Acks::Leader;
    Load::new(address, topic, &unpaced, Consumers::None)?.produce(Until::Touched)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consumers {
    None,
    Follow,
    /// Without producers; from the beginning again when the end is reached.
    ReadAgain,
}

#[derive(Debug)]
struct InFlight {
    partition: u32,
    intended_ns: u64,
    sent_ns: u64,
}

#[derive(Debug)]
struct Producer {
    connection: Connection,
    /// Its partitions, in turns.
    partitions: Vec<u32>,
    /// How many batches it has chosen a partition for.
    turns: usize,
    /// Due and not sent yet.
    waiting: VecDeque<(u32, u64)>,
    in_flight: VecDeque<InFlight>,
    wants_write: bool,
}

#[derive(Debug)]
struct Consumer {
    connection: Connection,
    positions: Vec<(u32, i64)>,
    asked_ns: u64,
}

struct Load<'a> {
    workload: &'a Workload,
    topic: &'a str,
    consumption: Consumers,
    epoll: OwnedFd,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    /// The Produce of each partition.
    requests: Vec<Bytes>,
    /// Intended times of batches that no consumer has seen, by partition.
    unseen: Vec<VecDeque<u64>>,
    began: Instant,
    begin_ns: u64,
    end_ns: u64,
    until: Until,
    produced: u64,
    recorded: Recorded,
}

impl<'a> Load<'a> {
    fn new(
        address: SocketAddr,
        topic: &'a str,
        workload: &'a Workload,
        consumption: Consumers,
    ) -> Result<Load<'a>, Failure> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| Failure::io("epoll")(error.into()))?;
        let partitions = workload.partitions_per_topic;
        let mut load = Load {
            workload,
            topic,
            consumption,
            epoll,
            producers: Vec::new(),
            consumers: Vec::new(),
            requests: Vec::new(),
            unseen: vec![VecDeque::new(); partitions as usize],
            began: Instant::now(),
            begin_ns: u64::MAX,
            end_ns: u64::MAX,
            until: Until::Batches(0),
            produced: 0,
            recorded: Recorded::new(),
        };
        if consumption != Consumers::ReadAgain {
            load.open_producers(address)?;
        }
        if consumption != Consumers::None {
            load.open_consumers(address)?;
        }
        Ok(load)
    }

    fn open_producers(&mut self, address: SocketAddr) -> Result<(), Failure> {
        let workload = self.workload;
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_err(|_| Failure::told("the clock is before 1970"))?;
        let batch = frames::batch(workload, now.as_millis() as i64)?;
        let partitions = 0..workload.partitions_per_topic;
        self.requests = partitions
            .clone()
            .map(|partition| {
                frames::produce(self.topic, partition, workload.acks.on_the_wire(), &batch)
            })
            .collect();
        let count = workload.producers_per_topic;
        for number in 0..count {
            let connection = Connection::open(address)?;
            self.watch(&connection, u64::from(number))?;
            self.producers.push(Producer {
                connection,
                partitions: dealt(workload.partitions_per_topic, count, number),
                turns: 0,
                waiting: VecDeque::new(),
                in_flight: VecDeque::new(),
                wants_write: false,
            });
        }
        Ok(())
    }

    fn open_consumers(&mut self, address: SocketAddr) -> Result<(), Failure> {
        let first = self.producers.len() as u64;
        let count = self.workload.consumers;
        let begin = match self.consumption {
            Consumers::ReadAgain | Consumers::None => 0,
            // After what touched the partition.
            Consumers::Follow => i64::from(self.workload.records_per_batch),
        };
        for number in 0..count {
            let connection = Connection::open(address)?;
            self.watch(&connection, first + u64::from(number))?;
            let partitions = dealt(self.workload.partitions_per_topic, count, number);
            self.consumers.push(Consumer {
                connection,
                positions: partitions
                    .into_iter()
                    .map(|partition| (partition, begin))
                    .collect(),
                asked_ns: 0,
            });
        }
        Ok(())
    }

    fn watch(&self, connection: &Connection, number: u64) -> Result<(), Failure> {
        let data = epoll::EventData::new_u64(number);
        epoll::add(
            &self.epoll,
            connection.stream(),
            data,
            epoll::EventFlags::IN,
        )
        .map_err(|error| Failure::io("epoll")(error.into()))
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Produces without counting.
    fn produce(&mut self, until: Until) -> Result<(), Failure> {
        self.until = until;
        self.began = Instant::now();
        self.begin()?;
        while self.in_flight() > 0 {
            self.wait(None)?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        window: Window,
        at_edge: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.begin_ns = (window.begin_seconds * NANOSECONDS) as u64;
        self.end_ns = (window.end_seconds * NANOSECONDS) as u64;
        self.until = Until::Time(self.end_ns);
        let batches_a_second = self
            .workload
            .producer_rate
            .map(|rate| rate / f64::from(self.workload.records_per_batch));
        let mut schedule = batches_a_second.map(|rate| Schedule::constant(rate, self.end_ns));
        self.began = Instant::now();
        self.begin()?;
        self.run_to(&mut schedule, self.begin_ns)?;
        at_edge()?;
        self.run_to(&mut schedule, self.end_ns)?;
        at_edge()?;
        self.drain()
    }

    fn begin(&mut self) -> Result<(), Failure> {
        for at in 0..self.consumers.len() {
            self.ask(at)?;
        }
        for at in 0..self.producers.len() {
            self.pump(at)?;
        }
        Ok(())
    }

    fn run_to(&mut self, schedule: &mut Option<Schedule>, edge_ns: u64) -> Result<(), Failure> {
        loop {
            let now = self.now_ns();
            if now >= edge_ns {
                return Ok(());
            }
            let mut next = edge_ns;
            if let Some(schedule) = schedule {
                self.send_due(schedule, now)?;
                next = schedule.peek().unwrap_or(edge_ns).min(edge_ns);
            }
            self.wait(Some(next.saturating_sub(self.now_ns())))?;
        }
    }

    fn send_due(&mut self, schedule: &mut Schedule, now: u64) -> Result<(), Failure> {
        let partitions = u64::from(self.workload.partitions_per_topic);
        while let Some((number, intended)) = schedule.take_due(now) {
            let partition = (number % partitions) as u32;
            let at = partition as usize % self.producers.len();
            self.producers[at].waiting.push_back((partition, intended));
            self.pump(at)?;
        }
        Ok(())
    }

    /// Sends what this producer may send.
    fn pump(&mut self, at: usize) -> Result<(), Failure> {
        let now = self.now_ns();
        let Load {
            producers,
            requests,
            unseen,
            workload,
            until,
            produced,
            ..
        } = self;
        let producer = &mut producers[at];
        let mut pushed = false;
        while producer.in_flight.len() < workload.in_flight as usize {
            let due = match workload.producer_rate {
                Some(_) => producer.waiting.pop_front(),
                None => until
                    .allows(now, *produced, producer)
                    .then(|| (producer.next_partition(), now)),
            };
            let Some((partition, intended_ns)) = due else {
                break;
            };
            *produced += 1;
            producer
                .connection
                .push(requests[partition as usize].clone());
            pushed = true;
            if workload.acks == Acks::None {
                if self.begin_ns <= now && now < self.end_ns {
                    self.recorded.batches += 1;
                }
            } else {
                producer.in_flight.push_back(InFlight {
                    partition,
                    intended_ns,
                    sent_ns: now,
                });
            }
            if self.consumption == Consumers::Follow && workload.consumers > 0 {
                unseen[partition as usize].push_back(intended_ns);
            }
        }
        if pushed || producer.wants_write {
            self.flush(at)?;
        }
        Ok(())
    }

    fn flush(&mut self, at: usize) -> Result<(), Failure> {
        let producer = &mut self.producers[at];
        let unfinished = !producer.connection.flush()?;
        if unfinished != producer.wants_write {
            producer.wants_write = unfinished;
            let mut interest = epoll::EventFlags::IN;
            interest.set(epoll::EventFlags::OUT, unfinished);
            let data = epoll::EventData::new_u64(at as u64);
            epoll::modify(&self.epoll, producer.connection.stream(), data, interest)
                .map_err(|error| Failure::io("epoll")(error.into()))?;
        }
        Ok(())
    }

    /// Waits for sockets, no longer than until the next batch is due, and serves them.
    fn wait(&mut self, until_next_ns: Option<u64>) -> Result<(), Failure> {
        let timeout = until_next_ns.map(|ns| {
            let sleep = ns.saturating_sub(SPIN_NS);
            Timespec {
                tv_sec: (sleep / 1_000_000_000) as i64,
                tv_nsec: (sleep % 1_000_000_000) as i64,
            }
        });
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::io("epoll")(error.into())),
        }
        for event in events {
            let number = event.data.u64() as usize;
            if number < self.producers.len() {
                self.answered(number)?;
                self.pump(number)?;
            } else {
                self.received(number - self.producers.len())?;
            }
        }
        Ok(())
    }

    fn answered(&mut self, at: usize) -> Result<(), Failure> {
        let now = self.now_ns();
        let window = self.begin_ns..self.end_ns;
        let Load {
            producers,
            recorded,
            ..
        } = self;
        let Producer {
            connection,
            in_flight,
            ..
        } = &mut producers[at];
        let open = connection.receive(|frame| {
            let produced = frames::produced(frame)?;
            let Some(sent) = in_flight.pop_front() else {
                return Err(Failure::told("the broker answered what was not asked"));
            };
            check(&sent, produced)?;
            if window.contains(&now) {
                recorded.batches += 1;
            }
            if window.contains(&sent.intended_ns) {
                recorded
                    .latency
                    .record(now.saturating_sub(sent.intended_ns));
                recorded.service.record(now.saturating_sub(sent.sent_ns));
            }
            Ok(())
        })?;
        still_open(open)
    }

    fn received(&mut self, at: usize) -> Result<(), Failure> {
        let now = self.now_ns();
        let window = self.begin_ns..self.end_ns;
        let Load {
            consumers,
            recorded,
            unseen,
            consumption,
            ..
        } = self;
        let Consumer {
            connection,
            positions,
            asked_ns,
        } = &mut consumers[at];
        let mut answers = 0;
        let open = connection.receive(|frame| {
            answers += 1;
            let reading_again = *consumption == Consumers::ReadAgain;
            if reading_again && window.contains(asked_ns) {
                recorded.latency.record(now - *asked_ns);
                recorded.service.record(now - *asked_ns);
            }
            frames::fetched(frame, |fetched| {
                take(fetched, positions, reading_again, |partition, bytes| {
                    let counts = window.contains(&now);
                    if counts {
                        recorded.fetched_bytes += bytes as u64;
                        recorded.batches += u64::from(reading_again);
                    }
                    let intended = unseen[partition as usize].pop_front();
                    if let Some(intended) = intended.filter(|intended| window.contains(intended)) {
                        recorded.end_to_end.record(now.saturating_sub(intended));
                    }
                })
            })
        })?;
        still_open(open)?;
        for _ in 0..answers {
            self.ask(at)?;
        }
        Ok(())
    }

    fn ask(&mut self, at: usize) -> Result<(), Failure> {
        let asked_ns = self.now_ns();
        let consumer = &mut self.consumers[at];
        consumer.asked_ns = asked_ns;
        let request = frames::fetch(
            self.topic,
            &consumer.positions,
            self.workload.fetch_bytes,
            frames::FETCH_WAIT_MS,
        );
        consumer.connection.push(request);
        // A consumer has one small request on its way; a socket that is new or has been read from takes it.
        if consumer.connection.flush()? {
            Ok(())
        } else {
            Err(Failure::told(
                "the broker does not read from a consumer's connection",
            ))
        }
    }

    fn in_flight(&self) -> u64 {
        let outstanding = self
            .producers
            .iter()
            .map(|producer| producer.in_flight.len() + producer.waiting.len());
        outstanding.sum::<usize>() as u64
    }

    fn unseen(&self) -> u64 {
        self.unseen.iter().map(VecDeque::len).sum::<usize>() as u64
    }

    fn drain(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + DRAIN;
        while self.in_flight() + self.unseen() > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                break;
            };
            self.wait(Some(left.as_nanos() as u64))?;
        }
        self.recorded.unanswered = self.in_flight();
        self.recorded.unseen = self.unseen();
        Ok(())
    }
}

impl Until {
    fn allows(self, now: u64, produced: u64, producer: &Producer) -> bool {
        match self {
            Until::Time(end) => now < end,
            Until::Batches(count) => produced < count,
            Until::Touched => producer.turns < producer.partitions.len(),
        }
    }
}

impl Producer {
    fn next_partition(&mut self) -> u32 {
        let partition = self.partitions[self.turns % self.partitions.len()];
        self.turns += 1;
        partition
    }
}

/// The partitions of one of `owners` that they are dealt to in turns.
fn dealt(partitions: u32, owners: u32, owner: u32) -> Vec<u32> {
    (owner..partitions).step_by(owners as usize).collect()
}

fn check(sent: &InFlight, produced: frames::Produced) -> Result<(), Failure> {
    if produced.partition != sent.partition {
        return Err(Failure::told(format!(
            "the broker answered for partition {} where {} was next: answers come in the order of requests",
            produced.partition, sent.partition
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

/// Moves the position past what was fetched; `each` is called with partition and bytes of every batch.
fn take(
    fetched: frames::Fetched<'_>,
    positions: &mut [(u32, i64)],
    again: bool,
    mut each: impl FnMut(u32, usize),
) -> Result<(), Failure> {
    let partition = fetched.partition;
    if fetched.error != 0 {
        return Err(Failure::told(format!(
            "Fetch of partition {partition} was answered with error {}",
            fetched.error
        )));
    }
    let Some((_, position)) = positions.iter_mut().find(|(known, _)| *known == partition) else {
        return Err(Failure::told(format!(
            "partition {partition} was fetched and not asked for"
        )));
    };
    let before = *position;
    for batch in frames::whole_batches(fetched.batches) {
        if batch.base_offset != *position {
            return Err(Failure::told(format!(
                "partition {partition} continues at {} where {position} was next",
                batch.base_offset
            )));
        }
        *position = batch.end_offset;
        each(partition, batch.bytes);
    }
    if again && *position == before {
        *position = 0;
    }
    Ok(())
}

fn still_open(open: bool) -> Result<(), Failure> {
    if open {
        Ok(())
    } else {
        Err(Failure::told(
            "the broker closed a connection; its log says why",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_dealt_once() {
        let mut all: Vec<u32> = (0..3).flat_map(|owner| dealt(10, 3, owner)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert_eq!(dealt(10, 3, 1), [1, 4, 7]);
    }

    #[test]
    fn an_answer_to_something_else_or_an_error_ends_the_run() {
        let sent = InFlight {
            partition: 4,
            intended_ns: 0,
            sent_ns: 0,
        };
        let answer = |partition, error| check(&sent, frames::Produced { partition, error });
        assert!(answer(4, 0).is_ok());
        assert!(answer(5, 0).unwrap_err().to_string().contains("order"));
        assert!(answer(4, 6).unwrap_err().to_string().contains("error 6"));
    }

    #[test]
    fn a_gap_between_batches_is_noticed() {
        let batch = frames::batch(&Workload::find("b4").unwrap(), 0).unwrap();
        let fetched = frames::Fetched {
            partition: 1,
            error: 0,
            batches: &batch,
        };
        let mut positions = [(0, 0), (1, 0)];
        let mut seen = 0;
        take(fetched, &mut positions, false, |_, _| seen += 1).unwrap();
        assert_eq!((seen, positions), (1, [(0, 0), (1, 1)]));
        let again = take(fetched, &mut positions, false, |_, _| {});
        assert!(again.unwrap_err().to_string().contains("1 was next"));
    }

    #[test]
    fn a_reader_that_reached_the_end_begins_again() {
        let nothing = frames::Fetched {
            partition: 0,
            error: 0,
            batches: &[],
        };
        let mut positions = [(0, 7)];
        take(nothing, &mut positions, false, |_, _| {}).unwrap();
        assert_eq!(positions, [(0, 7)]);
        take(nothing, &mut positions, true, |_, _| {}).unwrap();
        assert_eq!(positions, [(0, 0)]);
    }
}

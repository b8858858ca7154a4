//! The run itself.
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

use super::consuming::{Consumer, Consumption, Positions};
use super::producing::{InFlight, Producer, check, producer_id};
use super::topics::Topics;
use crate::Failure;
use crate::connection::Connection;
use crate::frames;
use crate::interrupt;
use crate::recorded::{INTERVAL_NS, Recorded};
use crate::schedule::Schedule;
use crate::workload::{Acks, KeyDistributor, Workload};

/// Closer to the next batch than this the loop does not sleep: epoll rounds to milliseconds.
const SPIN_NS: u64 = 1_100_000;
/// What is on its way when sending ends may still arrive in this time.
const DRAIN: Duration = Duration::from_secs(10);
const NANOSECONDS: f64 = 1e9;
const EVENTS_MAX: usize = 64;

/// When what happens counts, in seconds since the run began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) begin_seconds: f64,
    pub(crate) end_seconds: f64,
}

/// What to do to whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) topics: &'a Topics,
    pub(crate) workload: &'a Workload,
    /// The broker's metrics, where it has some.
    pub(crate) metrics: Option<SocketAddr>,
}

/// What a run tells while it goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Moment<'a> {
    /// The measured time begins.
    Opens,
    /// So many seconds of it are over.
    Second(u64, &'a Recorded),
    Closes,
}

pub(crate) type Observer<'a> = dyn FnMut(Moment<'_>) -> Result<(), Failure> + 'a;

/// How a run ends.
#[derive(Debug, Clone, Copy)]
enum Until {
    Time(u64),
    /// This many batches have been produced.
    Batches(u64),
    /// Every producer has sent one batch to each of its partitions.
    Touched,
}

/// Produces, and consumes if the workload has consumers. `backlog` is what [`fill`] has left: then that is read.
pub(crate) fn run(
    job: Job<'_>,
    window: Window,
    backlog: Option<&[i64]>,
    observe: &mut Observer<'_>,
) -> Result<Recorded, Failure> {
    let consumption = match backlog {
        None => Consumption::Follow,
        Some(_) if job.workload.only_reads() => Consumption::ReadAgain,
        Some(_) => Consumption::CatchUp,
    };
    let mut load = Load::new(job, consumption)?;
    load.backlog = backlog.unwrap_or_default().to_vec();
    if let Some(crossings) = job.workload.crossings {
        load.route(crossings)?;
    }
    load.run(window, observe)?;
    Ok(load.recorded)
}

/// Produces so many batches without measuring; the ends of the partitions.
pub(crate) fn fill(job: Job<'_>, batches: u64) -> Result<Vec<i64>, Failure> {
    let workload = unpaced(job.workload);
    let job = Job {
        workload: &workload,
        ..job
    };
    let mut load = Load::new(job, Consumption::None)?;
    load.produce(Until::Batches(batches))?;
    Ok(load.ends)
}

/// Produces one batch to each partition of new topics without measuring: the first append makes files, and what is to be measured is what follows.
pub(crate) fn touch(job: Job<'_>) -> Result<(), Failure> {
    let workload = unpaced(job.workload);
    let job = Job {
        workload: &workload,
        ..job
    };
    Load::new(job, Consumption::None)?.produce(Until::Touched)
}

fn unpaced(workload: &Workload) -> Workload {
    let mut unpaced = workload.clone();
    unpaced.producer_rate = None;
    unpaced.enable_idempotence = false;
    // Every partition in its turn, so that it is known what each of them has.
    if unpaced.key_distributor == KeyDistributor::RandomNano {
        unpaced.key_distributor = KeyDistributor::KeyRoundRobin;
    }
    // What was not acknowledged may still be on its way when the run begins.
    unpaced.acks = Acks::Leader;
    unpaced
}

pub(super) struct Load<'a> {
    pub(super) job: Job<'a>,
    consumption: Consumption,
    epoll: OwnedFd,
    pub(super) producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    positions: Positions,
    /// What is read before the end of a catch-up.
    backlog: Vec<i64>,
    /// The Produce of each partition.
    pub(super) requests: Vec<Bytes>,
    batch_bytes: usize,
    /// Records sent, by partition.
    ends: Vec<i64>,
    /// Intended times of batches that no consumer has seen, by partition.
    unseen: Vec<VecDeque<u64>>,
    began: Instant,
    begin_ns: u64,
    end_ns: u64,
    until: Until,
    produced: u64,
    events: Vec<epoll::Event>,
    recorded: Recorded,
}

impl<'a> Load<'a> {
    fn new(job: Job<'a>, consumption: Consumption) -> Result<Load<'a>, Failure> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(by_epoll)?;
        let partitions = job.topics.partitions() as usize;
        let begin = match consumption {
            // After what touched the partition.
            Consumption::Follow => i64::from(job.workload.records_per_batch),
            Consumption::None | Consumption::ReadAgain | Consumption::CatchUp => 0,
        };
        let mut load = Load {
            job,
            consumption,
            epoll,
            producers: Vec::new(),
            consumers: Vec::new(),
            positions: Positions(vec![begin; partitions]),
            backlog: Vec::new(),
            requests: Vec::new(),
            batch_bytes: 0,
            ends: vec![0; partitions],
            unseen: vec![VecDeque::new(); partitions],
            began: Instant::now(),
            begin_ns: u64::MAX,
            end_ns: u64::MAX,
            until: Until::Batches(0),
            produced: 0,
            events: Vec::with_capacity(EVENTS_MAX),
            recorded: Recorded::default(),
        };
        if consumption != Consumption::ReadAgain {
            load.open_producers()?;
        }
        if consumption != Consumption::None {
            load.open_consumers()?;
        }
        Ok(load)
    }

    fn open_producers(&mut self) -> Result<(), Failure> {
        let Job {
            address,
            topics,
            workload,
            ..
        } = self.job;
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_err(|_| Failure::told("the clock is before 1970"))?;
        let batch = frames::batch(workload, now.as_millis() as i64)?;
        self.batch_bytes = batch.len();
        let acks = workload.acks.on_the_wire();
        self.requests = (0..topics.partitions())
            .map(|number| {
                let (topic, partition) = topics.of(number);
                frames::produce(topic, partition, number, acks, &batch)
            })
            .collect();
        for number in 0..workload.topics * workload.producers_per_topic {
            let id = workload
                .enable_idempotence
                .then(|| producer_id(address))
                .transpose()?;
            let connection = Connection::open(address)?;
            self.watch(&connection, u64::from(number))?;
            let partitions = topics.of_producer(workload.producers_per_topic, number);
            let keys = workload.key_distributor;
            let producer = Producer::new(connection, number, partitions, keys, id);
            self.producers.push(producer);
        }
        Ok(())
    }

    fn open_consumers(&mut self) -> Result<(), Failure> {
        let first = self.producers.len() as u64;
        let count = self.job.workload.consumer_per_subscription;
        for number in 0..count {
            let connection = Connection::open(self.job.address)?;
            self.watch(&connection, first + u64::from(number))?;
            self.consumers.push(Consumer {
                connection,
                partitions: self.job.topics.of_consumer(count, number),
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
        .map_err(by_epoll)
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Produces without counting.
    fn produce(&mut self, until: Until) -> Result<(), Failure> {
        self.until = until;
        self.began = Instant::now();
        self.pump_all()?;
        while self.in_flight() > 0 {
            if interrupt::is_asked() {
                return Err(interrupt::stopped());
            }
            self.wait(None)?;
        }
        Ok(())
    }

    fn run(&mut self, window: Window, observe: &mut Observer<'_>) -> Result<(), Failure> {
        let workload = self.job.workload;
        self.begin_ns = (window.begin_seconds * NANOSECONDS) as u64;
        self.end_ns = (window.end_seconds * NANOSECONDS) as u64;
        self.until = Until::Time(self.end_ns);
        let batches_a_second = workload
            .producer_rate
            .map(|rate| rate / f64::from(workload.records_per_batch));
        let mut schedule =
            batches_a_second.map(|rate| Schedule::new(workload.arrivals, rate, self.end_ns));
        self.began = Instant::now();
        if self.consumption != Consumption::CatchUp {
            self.ask_all()?;
        }
        self.pump_all()?;
        self.run_to(&mut schedule, self.begin_ns)?;
        observe(Moment::Opens)?;
        if self.consumption == Consumption::CatchUp {
            self.ask_all()?;
        }
        let mut second = 1;
        while !self.is_over() {
            let edge = (self.begin_ns + second * INTERVAL_NS).min(self.end_ns);
            self.run_to(&mut schedule, edge)?;
            observe(Moment::Second(second, &self.recorded))?;
            second += 1;
        }
        let now = self.now_ns();
        if self.consumption == Consumption::CatchUp && self.has_caught_up() {
            self.recorded.caught_up_seconds = Some((now - self.begin_ns) as f64 / NANOSECONDS);
        }
        self.recorded.interrupted = interrupt::is_asked();
        self.end_ns = self.end_ns.min(now);
        self.until = Until::Time(self.end_ns);
        observe(Moment::Closes)?;
        self.drain()
    }

    fn is_over(&self) -> bool {
        self.now_ns() >= self.end_ns || self.has_caught_up() || interrupt::is_asked()
    }

    fn has_caught_up(&self) -> bool {
        self.consumption == Consumption::CatchUp && self.positions.have_reached(&self.backlog)
    }

    fn ask_all(&mut self) -> Result<(), Failure> {
        (0..self.consumers.len()).try_for_each(|at| self.ask(at))
    }

    fn pump_all(&mut self) -> Result<(), Failure> {
        (0..self.producers.len()).try_for_each(|at| self.pump(at))
    }

    fn run_to(&mut self, schedule: &mut Option<Schedule>, edge_ns: u64) -> Result<(), Failure> {
        loop {
            let now = self.now_ns();
            if now >= edge_ns || self.has_caught_up() || interrupt::is_asked() {
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
        let producers = self.producers.len() as u64;
        while let Some((number, intended)) = schedule.take_due(now) {
            let at = (number % producers) as usize;
            self.producers[at].waiting.push_back(intended);
            self.pump(at)?;
        }
        Ok(())
    }

    /// Sends what this producer may send.
    fn pump(&mut self, at: usize) -> Result<(), Failure> {
        let now = self.now_ns();
        let workload = self.job.workload;
        let producer = &mut self.producers[at];
        let mut pushed = false;
        while producer.in_flight.len() < workload.in_flight as usize && !producer.wants_write {
            let due = match workload.producer_rate {
                Some(_) => producer.waiting.pop_front(),
                None => self
                    .until
                    .allows(now, self.produced, producer)
                    .then_some(now),
            };
            let Some(intended_ns) = due else {
                break;
            };
            let place = producer.next_place();
            let number = producer.partitions[place];
            let frame = &self.requests[number as usize];
            let sequence = producer.take_sequence(place, workload.records_per_batch);
            producer.connection.push(match sequence {
                None => frame.clone(),
                Some((id, sequence)) => frames::sequenced(frame, self.batch_bytes, id, sequence),
            });
            pushed = true;
            self.produced += 1;
            self.ends[number as usize] += i64::from(workload.records_per_batch);
            if workload.acks == Acks::None {
                if self.begin_ns <= now && now < self.end_ns {
                    self.recorded.batches += 1;
                }
            } else {
                producer.in_flight.push_back(InFlight {
                    number,
                    intended_ns,
                    sent_ns: now,
                });
            }
            if self.consumption == Consumption::Follow && workload.consumer_per_subscription > 0 {
                self.unseen[number as usize].push_back(intended_ns);
            }
        }
        if pushed || producer.wants_write {
            self.flush(at)?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, at: usize) -> Result<(), Failure> {
        let producer = &mut self.producers[at];
        let unfinished = !producer.connection.flush()?;
        if unfinished != producer.wants_write {
            producer.wants_write = unfinished;
            let mut interest = epoll::EventFlags::IN;
            interest.set(epoll::EventFlags::OUT, unfinished);
            let data = epoll::EventData::new_u64(at as u64);
            epoll::modify(&self.epoll, producer.connection.stream(), data, interest)
                .map_err(by_epoll)?;
        }
        Ok(())
    }

    /// Waits for sockets, no longer than until the next batch is due, and serves them.
    pub(super) fn wait(&mut self, until_next_ns: Option<u64>) -> Result<(), Failure> {
        let timeout = until_next_ns.map(|ns| {
            let sleep = ns.saturating_sub(SPIN_NS);
            Timespec {
                tv_sec: (sleep / 1_000_000_000) as i64,
                tv_nsec: (sleep % 1_000_000_000) as i64,
            }
        });
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(by_epoll(error)),
        }
        for event in &events {
            let number = event.data.u64() as usize;
            if number < self.producers.len() {
                self.answered(number)?;
                if self.producers[number].wants_write {
                    self.flush(number)?;
                }
                self.pump(number)?;
            } else {
                self.received(number - self.producers.len())?;
            }
        }
        self.events = events;
        Ok(())
    }

    fn answered(&mut self, at: usize) -> Result<(), Failure> {
        let now = self.now_ns();
        let (begin, window) = (self.begin_ns, self.begin_ns..self.end_ns);
        let recorded = &mut self.recorded;
        let Producer {
            connection,
            in_flight,
            ..
        } = &mut self.producers[at];
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
                let ended = now - begin;
                recorded
                    .latency
                    .record(ended, now.saturating_sub(sent.intended_ns));
                recorded
                    .service
                    .record(ended, now.saturating_sub(sent.sent_ns));
            }
            Ok(())
        })?;
        still_open(open)
    }

    fn received(&mut self, at: usize) -> Result<(), Failure> {
        let now = self.now_ns();
        let (begin, window) = (self.begin_ns, self.begin_ns..self.end_ns);
        let Load {
            consumers,
            positions,
            recorded,
            unseen,
            consumption,
            job,
            ..
        } = self;
        let Consumer {
            connection,
            asked_ns,
            ..
        } = &mut consumers[at];
        let mut answers = 0;
        let open = connection.receive(|frame| {
            answers += 1;
            let reading_again = *consumption == Consumption::ReadAgain;
            if reading_again && window.contains(asked_ns) {
                recorded.latency.record(now - begin, now - *asked_ns);
                recorded.service.record(now - begin, now - *asked_ns);
            }
            frames::fetched(frame, |fetched| {
                positions.take(job.topics, fetched, reading_again, |number, bytes| {
                    if window.contains(&now) {
                        recorded.fetched_bytes += bytes as u64;
                        recorded.batches += u64::from(reading_again);
                    }
                    let intended = unseen[number as usize].pop_front();
                    if let Some(intended) = intended.filter(|intended| window.contains(intended)) {
                        recorded
                            .end_to_end
                            .record(now - begin, now.saturating_sub(intended));
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
        let positions = &self.positions.0;
        let wanted = self
            .job
            .topics
            .wanted(&consumer.partitions, |number| positions[number as usize]);
        let fetch_bytes = self.job.workload.fetch_bytes;
        let request = frames::fetch(&wanted, fetch_bytes, frames::FETCH_WAIT_MS);
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

    pub(super) fn in_flight(&self) -> u64 {
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

fn by_epoll(error: rustix::io::Errno) -> Failure {
    Failure::io("epoll")(error.into())
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

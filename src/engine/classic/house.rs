//! What all threads of the engine share, and what one fact leads to.
//!
//! A thread that brings a fact carries out all that follows from it: [`Jobs`] is what it still has to do. It holds one lock at a time: of a stripe, or
//! of a front. Locks of pools, queues and mailboxes are held for a push or a number, by whoever has any other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use corelog_shards::base::ids::{ReplyTo, ShardId};
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::event::{DiskFailure, Event};
use corelog_shards::part::Reply;

use super::files::Waited;
use super::front::{Front, Link, Response, Step};
use super::pool::{ReplyPool, RequestPool, Served};
use super::processor::{Mail, Mailbox};
use super::queue::{Request, RequestQueue};
use super::stripe::{Later, Means, Stripe};
use super::timer::{Alarm, Due};
use crate::engine::clock::Clock;
use crate::engine::keeper::Teller;
use crate::engine::notice::{Asker, Notice, Notify};
use crate::engine::requests::{Carry, front_of};
use crate::engine::slow::Slow;
use crate::metrics::{self, CreditKind, Metrics, Pools};

/// Whether a thread may wait for the disk, or leaves that to the helper threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocking {
    Here,
    Helper,
}

enum Job {
    /// Something happened to a stripe; `None`: it has wishes from its start.
    Stripe(ShardId, Option<Event>),
    Reply(ReplyTo, Reply),
    /// What a front wanted to be carried for an asker is delivered.
    Carried {
        front: u16,
        asker: usize,
    },
}

/// What a thread has to do, in order, with storage that it reuses.
pub(super) struct Jobs {
    queue: VecDeque<Job>,
    later: Vec<Later>,
    blocking: Blocking,
}

impl Jobs {
    pub(super) fn new(blocking: Blocking) -> Jobs {
        Jobs {
            queue: VecDeque::new(),
            later: Vec::new(),
            blocking,
        }
    }
}

/// A front with its lock.
pub(super) struct FrontCell {
    front: Mutex<Front>,
    due: Due,
}

/// What a house is made of.
pub(super) struct Parts {
    pub(super) clock: Clock,
    pub(super) stripes: Vec<Stripe>,
    pub(super) queue: RequestQueue,
    pub(super) mailboxes: Vec<Mailbox>,
    pub(super) request_pool: RequestPool,
    pub(super) reply_pool: ReplyPool,
    pub(super) slow: Arc<Slow>,
    pub(super) teller: Teller,
    pub(super) metrics: Arc<Metrics>,
}

pub(super) struct House {
    parts: Parts,
    fronts: Vec<FrontCell>,
    alarm: Alarm,
    /// The way on which helper threads tell what they have done.
    notify: Notify,
}

impl House {
    pub(super) fn new(parts: Parts, fronts: Vec<Front>) -> Arc<House> {
        let cell = |front| FrontCell {
            front: Mutex::new(front),
            due: Due::never(),
        };
        let fronts = fronts.into_iter().map(cell).collect();
        Arc::new_cyclic(|house: &std::sync::Weak<House>| {
            let house = house.clone();
            House {
                parts,
                fronts,
                alarm: Alarm::default(),
                notify: Arc::new(move |notice| {
                    if let Some(house) = house.upgrade() {
                        house.take(notice, &mut Jobs::new(Blocking::Here));
                    }
                }),
            }
        })
    }

    pub(super) fn now(&self) -> Now {
        self.parts.clock.now()
    }

    pub(super) fn stripe_count(&self) -> usize {
        self.parts.stripes.len()
    }

    pub(super) fn queue(&self) -> &RequestQueue {
        &self.parts.queue
    }

    pub(super) fn mailbox(&self, processor: u16) -> &Mailbox {
        &self.parts.mailboxes[usize::from(processor)]
    }

    pub(super) fn request_pool(&self) -> &RequestPool {
        &self.parts.request_pool
    }

    /// Handlers and fronts of one number count in the same place: only the handler writes its times, only the holder of the front's lock the rest.
    pub(super) fn handler_counters(&self, handler: u16) -> &metrics::Core {
        self.parts.metrics.core(usize::from(handler))
    }

    pub(super) fn pools(&self) -> &Pools {
        let pools = self.parts.metrics.pools.as_ref();
        pools.expect("the classic engine is started with metrics of its threads")
    }

    /// Connections and bytes that were sent; other threads may add there too.
    pub(super) fn processor_counters(&self, processor: u16) -> &metrics::Core {
        self.parts
            .metrics
            .core(usize::from(processor) % self.fronts.len())
    }

    /// Puts a request into the global queue; waits while it is full.
    pub(super) fn enqueue(&self, request: Request) {
        if let Err(request) = self.parts.queue.try_push(request) {
            let credit = self.parts.metrics.core(0).credit(CreditKind::RequestCount);
            self.pools().queue_full.add_shared(1);
            credit.waits.add_shared(1);
            credit.waiters.add_shared(1);
            self.parts.queue.push(request);
            credit.waiters.add_shared(-1);
        }
    }

    pub(super) fn give_request_bytes(&self, bytes: usize) {
        if bytes > 0 {
            self.parts.request_pool.give(bytes, |waiter, bytes| {
                self.mailbox(waiter.processor).push(Mail::Grant {
                    channel: waiter.channel,
                    bytes,
                });
            });
        }
    }

    pub(super) fn give_reply_bytes(&self, bytes: usize) {
        if bytes > 0 {
            self.parts
                .reply_pool
                .give(bytes, |served| self.parts.queue.push_read(served));
        }
    }

    /// A handler begins a request in its own front.
    pub(super) fn begin(&self, front: u16, request: Request, jobs: &mut Jobs) {
        let now = self.now();
        let counters = self.handler_counters(front);
        let step = self.at_front(front, |front| front.begin(now, request, counters));
        self.after(front, step, jobs);
        self.run(jobs);
    }

    /// A read that has waited for room goes to its owner.
    pub(super) fn resume(&self, served: Served, jobs: &mut Jobs) {
        self.serve(served, jobs);
        self.run(jobs);
    }

    /// The client of a muted channel has gone.
    pub(super) fn hang_up(&self, link: &Arc<Link>, jobs: &mut Jobs) {
        let Some((front, asker)) = link.hang_up() else {
            return;
        };
        let front = front as u16;
        let counters = self.handler_counters(front);
        if let Some(step) = self.at_front(front, |front| front.hang_up(asker, link, counters)) {
            self.after(front, step, jobs);
        }
        self.run(jobs);
    }

    /// What threads beside the engine tell it.
    pub(super) fn take(&self, notice: Notice, jobs: &mut Jobs) {
        match notice {
            Notice::Image(image) => {
                for front in 0..self.fronts.len() {
                    self.at_front(front as u16, |front| {
                        if image.version > front.image.version {
                            front.image = Arc::clone(&image);
                        }
                    });
                }
                self.tell_all(|| Event::Image(Arc::clone(&image)), jobs);
            }
            Notice::Directories(directories) => {
                for front in 0..self.fronts.len() {
                    self.at_front(front as u16, |front| {
                        front.directories = Arc::clone(&directories);
                    });
                }
            }
            Notice::Done { asker, outcome } => {
                let event = Event::Done {
                    op: asker.op,
                    outcome,
                };
                jobs.queue.push_back(Job::Stripe(asker.shard, Some(event)));
            }
            // The log directories know it, and files are opened by them.
            Notice::Placed { .. } => {}
            Notice::Opened { shard, log, opened } => {
                self.handler_counters(0).recoveries.add_shared(1);
                let event = Event::Opened { log, opened };
                jobs.queue.push_back(Job::Stripe(shard, Some(event)));
            }
            Notice::Offline { logs } => {
                self.tell_all(|| Event::Offline { logs: logs.clone() }, jobs);
            }
            Notice::Stop => self.tell_all(|| Event::Stop, jobs),
        }
        self.run(jobs);
    }

    /// Carries out what shards wish before anything has happened.
    pub(super) fn start(&self, jobs: &mut Jobs) {
        let all = 0..self.parts.stripes.len();
        let wishes = all.map(|stripe| Job::Stripe(ShardId(stripe as u16), None));
        jobs.queue.extend(wishes);
        self.run(jobs);
    }

    /// Sleeps until something is due or `latest` has come, then carries out what is due. Only the timer thread comes here.
    pub(super) fn tick(&self, latest: Mono, jobs: &mut Jobs) {
        let dues = || -> Box<dyn Iterator<Item = &Due>> {
            let stripes = self.parts.stripes.iter().map(|stripe| &stripe.due);
            Box::new(stripes.chain(self.fronts.iter().map(|cell| &cell.due)))
        };
        self.alarm.wait(|| self.now().mono, latest, dues);
        let now = self.now();
        for (number, stripe) in self.parts.stripes.iter().enumerate() {
            if stripe.due.is_at_or_before(now.mono) {
                let tick = Job::Stripe(ShardId(number as u16), Some(Event::Tick));
                jobs.queue.push_back(tick);
            }
        }
        for (number, cell) in self.fronts.iter().enumerate() {
            if cell.due.is_at_or_before(now.mono) {
                self.expire(number as u16, now, jobs);
            }
        }
        self.run(jobs);
    }

    fn expire(&self, number: u16, now: Now, jobs: &mut Jobs) {
        let counters = self.handler_counters(number);
        while let Some(step) = self.at_front(number, |front| front.expire(now, counters)) {
            self.after(number, step, jobs);
        }
    }

    /// What can't be counted as it happens. Only the timer thread comes here.
    pub(super) fn count(&self) {
        let mut parked_free = 0;
        for number in 0..self.fronts.len() {
            parked_free += self.at_front(number as u16, |front| {
                front.recorder.turn_end();
                front.parked_free()
            });
        }
        let core = self.parts.metrics.core(0);
        let (request_bytes, byte_waiters) = self.parts.request_pool.state();
        let (reply_bytes, reply_waiters) = self.parts.reply_pool.state();
        core.credit(CreditKind::RequestBytes)
            .free
            .set(request_bytes as i64);
        core.credit(CreditKind::RequestBytes)
            .waiters
            .set(byte_waiters as i64);
        core.credit(CreditKind::ReplyBytes)
            .free
            .set(reply_bytes as i64);
        core.credit(CreditKind::ReplyBytes)
            .waiters
            .set(reply_waiters as i64);
        let queue_free = self.parts.queue.free();
        core.credit(CreditKind::RequestCount)
            .free
            .set(queue_free as i64);
        let pools = self.pools();
        let queued = self.parts.queue.capacity() - queue_free;
        pools.queue.set(queued as i64);
        let request_bytes_used = self.parts.request_pool.total() - request_bytes;
        pools.request_bytes_free.set(request_bytes as i64);
        pools.request_bytes_used.set(request_bytes_used as i64);
        for (processor, mailbox) in pools.processors.iter().zip(&self.parts.mailboxes) {
            processor.responses.set(mailbox.len() as i64);
        }
        core.credit(CreditKind::Parked).free.set(parked_free as i64);
    }

    fn tell_all(&self, event: impl Fn() -> Event, jobs: &mut Jobs) {
        for stripe in 0..self.parts.stripes.len() {
            let job = Job::Stripe(ShardId(stripe as u16), Some(event()));
            jobs.queue.push_back(job);
        }
    }

    /// Carries out everything, until nothing is left.
    fn run(&self, jobs: &mut Jobs) {
        while let Some(job) = jobs.queue.pop_front() {
            match job {
                Job::Stripe(shard, event) => self.at_stripe(shard, event, jobs),
                Job::Reply(to, reply) => {
                    let (now, front) = (self.now(), front_of(to));
                    let counters = self.handler_counters(front);
                    let step =
                        self.at_front(front, |front| front.on_reply(now, to, reply, counters));
                    if let Some(step) = step {
                        self.after(front, step, jobs);
                    }
                }
                Job::Carried { front, asker } => {
                    let next = self.at_front(front, |front| front.carried(asker));
                    self.carry(front, asker, next, jobs);
                }
            }
        }
    }

    fn at_stripe(&self, shard: ShardId, event: Option<Event>, jobs: &mut Jobs) {
        let number = usize::from(shard.0);
        let means = Means {
            slow: &self.parts.slow,
            notify: &self.notify,
            teller: &self.parts.teller,
            alarm: &self.alarm,
            counters: self.parts.metrics.core(number % self.fronts.len()),
        };
        let mut later = std::mem::take(&mut jobs.later);
        self.parts.stripes[number].on(|| self.now(), event, &means, &mut later);
        for later in later.drain(..) {
            match later {
                Later::Reply { to, reply } => jobs.queue.push_back(Job::Reply(to, reply)),
                Later::Send { to, message } => {
                    let event = Event::Message {
                        from: shard,
                        message,
                    };
                    jobs.queue.push_back(Job::Stripe(to, Some(event)));
                }
                Later::File(waited) => self.at_file(shard, waited, jobs),
                Later::LogDirFailed { log } => self.parts.teller.directory_failed(log),
            }
        }
        jobs.later = later;
    }

    fn at_file(&self, shard: ShardId, waited: Waited, jobs: &mut Jobs) {
        let Waited { op, id, work } = waited;
        match jobs.blocking {
            Blocking::Here => {
                let outcome = work.carry_out().map_err(|error| {
                    tracing::error!(file = ?id, %error, "sync or read failed");
                    DiskFailure
                });
                let event = Event::Done { op, outcome };
                jobs.queue.push_back(Job::Stripe(shard, Some(event)));
            }
            Blocking::Helper => {
                let asker = Asker { shard, op };
                self.parts
                    .slow
                    .run(id.log, asker, &self.notify, move || work.carry_out());
            }
        }
    }

    fn at_front<R>(&self, number: u16, act: impl FnOnce(&mut Front) -> R) -> R {
        let cell = &self.fronts[usize::from(number)];
        // A front that panicked has ended the process: see `start`.
        let mut front = cell.front.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut front);
        self.alarm.set(&cell.due, front.next_deadline());
        result
    }

    fn after(&self, front: u16, step: Step, jobs: &mut Jobs) {
        self.give_request_bytes(step.released);
        if let Some(response) = step.response {
            self.respond(response);
        }
        self.carry(front, step.asker, step.carry, jobs);
    }

    fn respond(&self, response: Response) {
        self.mailbox(response.processor)
            .push(Mail::Response(response));
    }

    fn carry(&self, front: u16, asker: usize, items: Vec<Carry>, jobs: &mut Jobs) {
        if items.is_empty() {
            return;
        }
        for item in items {
            if item.reply_bytes() == 0 {
                jobs.queue.push_back(delivery(item));
            } else if let Some(served) = self.parts.reply_pool.take(item) {
                self.serve(served, jobs);
            }
        }
        jobs.queue.push_back(Job::Carried { front, asker });
    }

    /// A read whose answer has room.
    fn serve(&self, served: Served, jobs: &mut Jobs) {
        let Served { item, bytes } = served;
        let Carry::Part { to, .. } = item else {
            self.give_reply_bytes(bytes);
            return;
        };
        if self.at_front(front_of(to), |front| front.reserve(to, bytes)) {
            jobs.queue.push_back(delivery(item));
        } else {
            self.give_reply_bytes(bytes);
        }
    }
}

fn delivery(item: Carry) -> Job {
    match item {
        Carry::Part { shard, to, part } => Job::Stripe(shard, Some(Event::Part { to, part })),
        Carry::Cancel { shard, to } => Job::Stripe(shard, Some(Event::Cancelled { to })),
    }
}

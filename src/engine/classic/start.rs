//! Makes the house and starts its threads.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use corelog_io::net::listener::ListenerThread;

use super::files::{Files, Stall};
use super::front::Front;
use super::handler;
use super::house::{Blocking, House, Jobs, Parts};
use super::pool::{ReplyPool, RequestPool};
use super::processor::{Limits, Mail, Processor, selector};
use super::queue::RequestQueue;
use super::stripe::Stripe;
use crate::config::BrokerConfig;
use crate::engine::listen::Bound;
use crate::engine::notice::Notify;
use crate::engine::start::{Engine, Ground, ServeError};

/// Long polls and acks=all that wait: one for each of very many connections.
const PARKED_MAX: usize = 65_536;
/// Stripes per handler. With eight, two of all handlers that are busy meet at a stripe by chance in less than half of all moments; more would only
/// cost memory and the time to tell each of a new image.
const STRIPES_PER_HANDLER: u32 = 8;
/// What numbers of shards may be (`shards`).
const STRIPES_MAX: u32 = 1024;
/// Gauges are brought up to date this often.
const COUNT_EVERY_MS: u64 = 250;

/// Stripes are the shards of this engine.
pub(in crate::engine) fn stripe_count(config: &BrokerConfig) -> u16 {
    config.shards.unwrap_or_else(|| {
        let stripes = config.io_threads.saturating_mul(STRIPES_PER_HANDLER);
        stripes.min(STRIPES_MAX).next_power_of_two() as u16
    })
}

pub(in crate::engine) struct Running {
    house: Arc<House>,
    processors: u16,
}

impl Running {
    pub(in crate::engine) fn start(ground: Ground<'_>) -> Result<Running, ServeError> {
        let config = ground.config;
        let (handlers, processors) = (config.io_threads as u16, config.network_threads as u16);
        let stripes = ground.shards.len();
        let stall = config.test_stall_file.clone().map(Stall::new).map(Arc::new);
        let stripe = |(shard, outbox)| {
            let files = Files::new(Arc::clone(&ground.dirs), stripes, stall.clone());
            Stripe::new(shard, outbox, files)
        };
        let front = |number| {
            Front::new(
                number,
                Arc::clone(&ground.image),
                ground.views.clone(),
                PARKED_MAX / usize::from(handlers),
                ground.metrics.recorder(usize::from(number)),
            )
        };
        let fronts = (0..handlers).map(front).collect();
        let (mut polls, mut mailboxes) = (Vec::new(), Vec::new());
        for _ in 0..processors {
            let (poll, mailbox) = selector().map_err(ServeError::thread("a selector"))?;
            polls.push(poll);
            mailboxes.push(mailbox);
        }
        let parts = Parts {
            clock: ground.clock,
            stripes: ground.shards.into_iter().map(stripe).collect(),
            queue: RequestQueue::new(config.queued_max_requests as usize),
            mailboxes,
            request_pool: RequestPool::new(
                config.memory.requests as usize,
                config.memory.request_max as usize,
            ),
            reply_pool: ReplyPool::new(config.memory.replies as usize),
            slow: ground.slow,
            teller: ground.teller,
            metrics: ground.metrics,
        };
        let house = House::new(parts, fronts);
        for (number, poll) in (0..).zip(polls) {
            let processor = Processor::new(number, Arc::clone(&house), limits(config), poll);
            spawn(format!("network-{number}"), move || processor.run())?;
        }
        for number in 0..handlers {
            let house = Arc::clone(&house);
            spawn(format!("handler-{number}"), move || {
                handler::run(&house, number);
            })?;
        }
        let timing = Arc::clone(&house);
        spawn("timer".to_owned(), move || time(&timing))?;
        Ok(Running { house, processors })
    }
}

impl Engine for Running {
    fn notifies(&self) -> Vec<Notify> {
        let house = Arc::clone(&self.house);
        vec![Arc::new(move |notice| {
            house.take(notice, &mut Jobs::new(Blocking::Helper));
        })]
    }

    fn accept(&self, bound: Bound) -> Result<Vec<ListenerThread>, ServeError> {
        bound.accept(|listener| {
            let (house, processors) = (Arc::clone(&self.house), self.processors);
            let mut next = 0;
            move |socket, peer| {
                house.mailbox(next).push(Mail::Socket {
                    socket,
                    peer: peer.ip(),
                    listener,
                });
                next = (next + 1) % processors;
            }
        })
    }
}

/// The timer thread. Ends only with the process.
fn time(house: &House) {
    let mut jobs = Jobs::new(Blocking::Helper);
    house.start(&mut jobs);
    let mut next_count = house.now().mono;
    loop {
        house.tick(next_count, &mut jobs);
        let now = house.now().mono;
        if now >= next_count {
            next_count = now.after_ms(COUNT_EVERY_MS);
            house.count();
        }
    }
}

fn limits(config: &BrokerConfig) -> Limits {
    Limits {
        frame_bytes_max: config.memory.request_max as usize,
        idle_ms_max: config.connections.idle_max_ms.unwrap_or(u64::MAX),
        send_ms_max: u64::from(config.connections.send_timeout_ms),
        progress_ms_max: u64::from(config.connections.receive_timeout_ms),
    }
}

/// Starts a thread that ends only with the process. A panic ends the process: a thread that is gone would leave its requests without an answer.
fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<(), ServeError> {
    let what = name.clone();
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            std::process::abort();
        }
    };
    let started: io::Result<_> = thread::Builder::new().name(name).spawn(guarded);
    started.map(drop).map_err(ServeError::thread(&what))
}

//! The design that Kafka has, over the same shards, APIs and logs: what thread per core is measured against.
//!
//! One acceptor per listener deals sockets round-robin to `num.network.threads` processors, each with an epoll selector of its own. A processor reads
//! one frame of a channel, mutes the channel until its answer is sent, and pushes the request to the one global queue (`queued.max.requests`). When that
//! is full it blocks: nothing is read any more, and TCP's windows close. `num.io.threads` handlers take requests, split them, and let the owning stripes
//! decide, each under its lock; writes go to the page cache under the lock, syncs, reads and messages to other stripes come after it. No thread
//! holds two stripes, or a stripe and a front. What waits (long polls, acks=all, joins) lies in a front's table and holds no thread; one
//! timer thread ends what waits too long.
//!
//! Reading order: `house` (what all threads share, and what one fact leads to), `stripe`, `files`, `front`, `queue`, `handler`, `processor`, `channel`,
//! `pool`, `timer`, `start`.

mod channel;
mod files;
mod front;
mod handler;
mod house;
mod pool;
mod processor;
mod queue;
mod start;
mod stripe;
mod timer;

pub(super) use start::{Running, stripe_count};

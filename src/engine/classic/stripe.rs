//! One shard and the lock that owns it.

use std::sync::{Mutex, PoisonError};

use corelog_shards::base::ids::{Op, ReplyTo, ShardId, TopicPartition};
use corelog_shards::base::time::Now;
use corelog_shards::effect::{Effect, Message, Outbox};
use corelog_shards::event::{DiskFailure, Done, Event};
use corelog_shards::part::Reply;
use corelog_shards::shard::Shard;

use super::files::{Files, Waited};
use super::timer::{Alarm, Due};
use crate::engine::keeper::Teller;
use crate::engine::notice::Notify;
use crate::engine::slow::Slow;
use crate::metrics;

/// What a fact led to that is done after the lock is given back.
pub(super) enum Later {
    Reply { to: ReplyTo, reply: Reply },
    Send { to: ShardId, message: Message },
    File(Waited),
    LogDirFailed { log: TopicPartition },
}

/// What a stripe acts with.
pub(super) struct Means<'a> {
    pub(super) slow: &'a Slow,
    pub(super) notify: &'a Notify,
    pub(super) teller: &'a Teller,
    pub(super) alarm: &'a Alarm,
    pub(super) counters: &'a metrics::Core,
}

struct Owned {
    shard: Shard,
    outbox: Outbox,
    spare: Vec<Effect>,
    done: Vec<(Op, Result<Done, DiskFailure>)>,
    files: Files,
}

pub(super) struct Stripe {
    owned: Mutex<Owned>,
    pub(super) due: Due,
}

impl Stripe {
    /// `outbox` holds what the shard wishes from the start.
    pub(super) fn new(shard: Shard, outbox: Outbox, files: Files) -> Stripe {
        Stripe {
            owned: Mutex::new(Owned {
                shard,
                outbox,
                spare: Vec::new(),
                done: Vec::new(),
                files,
            }),
            due: Due::never(),
        }
    }

    /// Locks the stripe, lets its shard learn `event` (or only carries out what it wishes already), and writes what it wishes to be written. What is
    /// to be done without the lock is added to `later`.
    pub(super) fn on(
        &self,
        now: impl FnOnce() -> Now,
        event: Option<Event>,
        means: &Means<'_>,
        later: &mut Vec<Later>,
    ) {
        // A shard that panicked has ended the process: see `start`.
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        let owned = &mut *owned;
        if let Some(event) = event {
            owned.shard.on(now, event, &mut owned.outbox);
        }
        while !owned.outbox.is_empty() {
            let mut effects = std::mem::take(&mut owned.spare);
            owned.outbox.swap(&mut effects);
            for effect in effects.drain(..) {
                owned.carry_out(effect, means, later);
            }
            owned.spare = effects;
            let mut done = std::mem::take(&mut owned.done);
            for (op, outcome) in done.drain(..) {
                let event = Event::Done { op, outcome };
                owned.shard.on(now, event, &mut owned.outbox);
            }
            owned.done = done;
        }
        means.alarm.set(&self.due, owned.shard.next_deadline());
    }
}

impl Owned {
    fn carry_out(&mut self, effect: Effect, means: &Means<'_>, later: &mut Vec<Later>) {
        match effect {
            Effect::Reply { to, reply } => later.push(Later::Reply { to, reply }),
            Effect::Send { to, message } => later.push(Later::Send { to, message }),
            Effect::LogDirFailed { log } => later.push(Later::LogDirFailed { log }),
            Effect::Write {
                op,
                file,
                position,
                chunks,
            } => {
                let written = self.files.write(file, position, &chunks);
                means.counters.writes.add_shared(1);
                let bytes: usize = chunks.iter().map(bytes::Bytes::len).sum();
                means.counters.write_bytes.add_shared(bytes as u64);
                if let Err(error) = &written {
                    means.counters.disk_failures.add_shared(1);
                    tracing::error!(file = %self.files.shown(file), position, %error, "write failed");
                }
                let outcome = written.map(|()| Done::Written).map_err(|_| DiskFailure);
                self.done.push((op, outcome));
            }
            Effect::Sync { op, file } => {
                means.counters.syncs.add_shared(1);
                let work = self.files.sync(op, file);
                self.after_the_lock(op, work, later);
            }
            Effect::Read {
                op,
                file,
                position,
                len,
            } => {
                means.counters.reads.add_shared(1);
                means.counters.read_bytes.add_shared(len.into());
                let work = self.files.read(op, file, position, len);
                self.after_the_lock(op, work, later);
            }
            // These stand in the order of the calls, so the keeper hears of them under the lock: it must not take an old one for a new one.
            Effect::Publish(image) => means.teller.publish(image),
            Effect::Checkpoint(reports) => means.teller.checkpoint(reports),
            Effect::Stopped => means.teller.stopped(self.shard.id()),
            Effect::Map { .. }
            | Effect::Seal { .. }
            | Effect::Truncate { .. }
            | Effect::Replace { .. }
            | Effect::Delete { .. }
            | Effect::CreateLog { .. }
            | Effect::OpenLog { .. }
            | Effect::DeleteLog { .. } => self.slowly(effect, means),
        }
    }

    fn after_the_lock(&mut self, op: Op, work: std::io::Result<Waited>, later: &mut Vec<Later>) {
        match work {
            Ok(waited) => later.push(Later::File(waited)),
            Err(error) => {
                tracing::error!(%error, "open failed");
                self.done.push((op, Err(DiskFailure)));
            }
        }
    }

    /// Leaves it to a helper thread: under the lock, so that what concerns one log stays in order.
    fn slowly(&mut self, effect: Effect, means: &Means<'_>) {
        match &effect {
            Effect::Seal { file, .. }
            | Effect::Truncate { file, .. }
            | Effect::Replace { file, .. } => self.files.close(*file),
            Effect::Delete { files, .. } => {
                for file in files {
                    self.files.close(*file);
                }
            }
            Effect::DeleteLog { log, .. } => self.files.close_all(*log),
            _ => {}
        }
        let log = match &effect {
            Effect::Map { file, .. }
            | Effect::Seal { file, .. }
            | Effect::Truncate { file, .. }
            | Effect::Replace { file, .. } => Some(file.log),
            Effect::Delete { files, .. } => files.first().map(|file| file.log),
            _ => None,
        };
        let directory = log.and_then(|log| self.files.directory(log));
        means
            .slow
            .effect(self.shard.id(), effect, directory, means.notify);
    }
}

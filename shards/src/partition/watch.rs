//! Long polls: fetches that wait until there is something to read. Woken when a watermark moves, never by polling.

use rustc_hash::FxHashMap;
use slab::Slab;

use super::fetch::peek;
use super::state::{Partition, Watcher};
use crate::base::ids::ReplyTo;
use crate::effect::Outbox;
use crate::log::TailCache;
use crate::part::{Entries, FetchEntry, FetchPeeked, Isolation, Reply};

/// All watches of a shard.
#[derive(Default)]
pub(super) struct Watches {
    watches: Slab<Watch>,
    by_asker: FxHashMap<ReplyTo, u32>,
}

struct Watch {
    to: ReplyTo,
    isolation: Isolation,
    wake_bytes: u32,
    entries: Entries<Watched>,
}

struct Watched {
    fetch: FetchEntry,
    /// What the asker was last told.
    told: u32,
    /// The partition's slot and this entry's place among its watchers; `None` once the partition is gone.
    place: Option<(u32, u32)>,
}

impl Watches {
    /// Begins a watch without entries.
    pub(super) fn open(&mut self, to: ReplyTo, isolation: Isolation, wake_bytes: u32) -> u32 {
        let key = self.watches.insert(Watch {
            to,
            isolation,
            wake_bytes: wake_bytes.max(1),
            entries: Entries::new(),
        }) as u32;
        self.by_asker.insert(to, key);
        key
    }

    /// Adds `partition` in `slot` to the watch; `told` is what the answer says of it.
    pub(super) fn add(
        &mut self,
        key: u32,
        slot: u32,
        partition: &mut Partition,
        fetch: FetchEntry,
        told: u32,
    ) {
        let watch = &mut self.watches[key as usize];
        let entry = watch.entries.len() as u32;
        watch.entries.push(Watched {
            fetch,
            told,
            place: Some((slot, partition.watchers.len() as u32)),
        });
        partition.watchers.push(Watcher { key, entry });
    }

    /// Tells everybody who watches `partition` and for whom it now has more, or something that can't wait.
    pub(super) fn wake(&mut self, partition: &Partition, tail: &TailCache, out: &mut Outbox) {
        for watcher in &partition.watchers {
            let watch = &mut self.watches[watcher.key as usize];
            let watched = &mut watch.entries[watcher.entry as usize];
            let peeked = peek(Some(partition), &watched.fetch, watch.isolation, tail);
            let more = peeked.available >= watch.wake_bytes && peeked.available > watched.told;
            if more || peeked.immediate {
                watched.told = peeked.available;
                out.reply(watch.to, Reply::FetchWake(peeked));
            }
        }
    }

    /// The partition of these watchers can't be read any more: whoever fetches it will be told why.
    pub(super) fn release(&mut self, watchers: &mut Vec<Watcher>, out: &mut Outbox) {
        for watcher in watchers.drain(..) {
            let watch = &mut self.watches[watcher.key as usize];
            let watched = &mut watch.entries[watcher.entry as usize];
            watched.place = None;
            let peeked = FetchPeeked {
                at: watched.fetch.at,
                available: 0,
                immediate: true,
            };
            out.reply(watch.to, Reply::FetchWake(peeked));
        }
    }

    /// Ends the watch of `to`. False if there is none.
    pub(super) fn cancel(&mut self, to: ReplyTo, slots: &mut [Option<Box<Partition>>]) -> bool {
        let Some(key) = self.by_asker.remove(&to) else {
            return false;
        };
        let watch = self.watches.remove(key as usize);
        for watched in watch.entries {
            let Some((slot, place)) = watched.place else {
                continue;
            };
            let Some(partition) = slots[slot as usize].as_deref_mut() else {
                continue;
            };
            partition.watchers.swap_remove(place as usize);
            let Some(moved) = partition.watchers.get(place as usize) else {
                continue;
            };
            if let Some(watch) = self.watches.get_mut(moved.key as usize) {
                watch.entries[moved.entry as usize].place = Some((slot, place));
            }
        }
        true
    }
}

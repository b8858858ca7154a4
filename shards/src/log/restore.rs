//! What recovery restores beside the segments: producers, aborted transactions, snapshots (L-8, I-9, I-10).

use bytes::BytesMut;

use super::OpenFailure;
use super::aborted::{self, Aborted, AbortedTxn};
use super::batch_walk::Walk;
use super::limits::REPLAY_BYTES_MAX;
use super::listing::Listing;
use super::marker::end_marker;
use super::offset_index;
use super::producers::Producers;
use super::recovery::{Recovery, Shutdown};
use super::settle;

impl Recovery<'_> {
    /// The producers as of the log's end, all aborted transactions (L-8, I-9, I-10), and the offset from which the log was replayed.
    pub(super) fn restore_producers(
        &mut self,
        log_end: i64,
    ) -> Result<(Producers, Aborted, i64), OpenFailure> {
        let (known, believed_below) = self.read_aborted()?;
        let limit = log_end
            .min(believed_below)
            .min(self.snapshots_believed_to());
        let (mut producers, from) = match self.newest_snapshot(limit)? {
            Some((offset, producers)) => (producers, offset),
            // Where a clean stop wrote none, there are none; a cut may have taken the ones that there were.
            None if self.input.shutdown == Shutdown::Clean
                && believed_below == i64::MAX
                && self.limit == i64::MAX =>
            {
                (Producers::default(), log_end)
            }
            // Also what lies below the log's start, as long as it is there.
            None => (Producers::default(), self.first_base()),
        };
        let mut aborted = Aborted::default();
        for entry in known.into_iter().filter(|entry| entry.last_offset < from) {
            aborted.push(entry);
        }
        self.replay(&mut producers, &mut aborted, from)?;
        let expiration_ms = self.input.config.producer_expiration_ms;
        producers.expire(self.input.now.wall_ms, expiration_ms);
        self.write_aborted(&aborted, from)?;
        Ok((producers, aborted, from))
    }

    /// A snapshot above this may be newer than the transaction index that goes with it.
    fn snapshots_believed_to(&self) -> i64 {
        match self.input.shutdown {
            Shutdown::Clean => i64::MAX,
            // Only settled segments are ever deleted.
            Shutdown::Crashed => self.input.recovery_point.max(self.first_base()),
            Shutdown::CrashedElsewhere => {
                let changed = self.opened.iter().find(|opened| opened.changed);
                changed.map_or(i64::MAX, |opened| opened.segment.base)
            }
        }
    }

    /// What the `.txnindex` files say, and the base of the first segment whose file is damaged.
    fn read_aborted(&mut self) -> Result<(Vec<AbortedTxn>, i64), OpenFailure> {
        let mut all = Vec::new();
        let mut believed_below = i64::MAX;
        for at in 0..self.opened.len() {
            let base = self.opened[at].segment.base;
            let bytes = self.read_whole(base, "txnindex")?;
            let end = self.opened[at].end;
            let (entries, whole) = Aborted::parse(&bytes, base, end);
            self.opened[at].segment.aborted = entries.len() as u64;
            if !whole && !self.opened[at].changed {
                believed_below = believed_below.min(base);
                self.opened[at].changed = true;
            }
            all.extend(entries);
        }
        Ok((all, believed_below))
    }

    /// The snapshot to replay from: of those at or below `limit`, the oldest that is near the newest (see [`REPLAY_BYTES_MAX`]).
    fn newest_snapshot(&mut self, limit: i64) -> Result<Option<(i64, Producers)>, OpenFailure> {
        let mut chosen = None;
        // Where the newest lies, once a second is compared with it.
        let mut newest_at = None;
        for offset in self.listing.snapshots().into_iter().rev() {
            if offset > limit {
                continue;
            }
            if let Some((newer, _)) = &chosen {
                if offset < self.first_base() {
                    break; // What lies between was deleted.
                }
                let newest = match newest_at {
                    Some(place) => place,
                    None => self.place_of(*newer)?,
                };
                newest_at = Some(newest);
                if newest.saturating_sub(self.place_of(offset)?) > REPLAY_BYTES_MAX {
                    break;
                }
            }
            if let Some(producers) = self.read_snapshot(offset)? {
                chosen = Some((offset, producers));
            }
        }
        Ok(chosen)
    }

    /// `None` if the file was damaged; then it is gone.
    fn read_snapshot(&mut self, offset: i64) -> Result<Option<Producers>, OpenFailure> {
        let bytes = self.read_whole(offset, "snapshot")?;
        let wall_ms = self.input.now.wall_ms;
        let expiration_ms = self.input.config.producer_expiration_ms;
        let read = Producers::from_snapshot(&bytes, wall_ms, expiration_ms);
        if read.is_none() {
            tracing::info!(log = ?self.input.id, offset, "a producer snapshot is damaged; an older one is used");
            self.listing.delete(offset, "snapshot", &mut self.disk)?;
        }
        Ok(read)
    }

    /// Bytes of the log below an offset, but for less than an index interval.
    fn place_of(&mut self, offset: i64) -> Result<u64, OpenFailure> {
        let mut place = 0;
        for at in 0..self.opened.len() {
            if self.opened[at].end > offset {
                let base = self.opened[at].segment.base;
                let index = self.read_whole(base, "index")?;
                return Ok(place + u64::from(offset_index::floor(&index, offset - base)));
            }
            place += self.opened[at].segment.size;
        }
        Ok(place)
    }

    /// Applies all batches from `from` on.
    fn replay(
        &mut self,
        producers: &mut Producers,
        aborted: &mut Aborted,
        from: i64,
    ) -> Result<(), OpenFailure> {
        for at in 0..self.opened.len() {
            if self.opened[at].end <= from {
                continue;
            }
            let (base, size) = (self.opened[at].segment.base, self.opened[at].segment.size);
            // What is written to the disk is the whole index, whether it is held in memory or not.
            let index = self.read_whole(base, "index")?;
            let start = u64::from(offset_index::floor(&index, from - base)).min(size);
            let mut walk = Walk::new(Listing::name(base, "log"), start, size);
            while let Some((header, batch)) = walk.next(&mut self.disk)? {
                if header.base_offset < from {
                    continue;
                }
                let completed = producers.apply(&header, end_marker(&header, &batch));
                if let Some(completed) = completed.filter(|completed| completed.aborted) {
                    aborted.push(AbortedTxn {
                        producer_id: completed.producer_id,
                        first_offset: completed.first_offset,
                        last_offset: completed.last_offset,
                        last_stable_offset: completed.last_stable_offset,
                    });
                }
            }
        }
        Ok(())
    }

    /// Writes the transaction indexes of the segments that were replayed and changed.
    fn write_aborted(&mut self, aborted: &Aborted, from: i64) -> Result<(), OpenFailure> {
        for at in 0..self.opened.len() {
            let opened = &self.opened[at];
            let (base, end) = (opened.segment.base, opened.end);
            if !opened.changed || end < from {
                continue;
            }
            let mut bytes = BytesMut::new();
            for entry in aborted
                .from(base)
                .iter()
                .take_while(|entry| entry.last_offset < end)
            {
                entry.encode(&mut bytes);
            }
            self.opened[at].segment.aborted = (bytes.len() / aborted::ENTRY) as u64;
            if !bytes.is_empty() || self.listing.has(base, "txnindex") {
                self.rewrite(base, "txnindex", &bytes)?;
            }
        }
        Ok(())
    }

    /// Removes the snapshots that no longer stand for anything, and after a crash or a cut writes those that a round would. Gives those that
    /// are there.
    pub(super) fn settle_snapshots(
        &mut self,
        producers: &Producers,
        aborted: &Aborted,
        replayed_from: i64,
        log_end: i64,
    ) -> Result<Vec<i64>, OpenFailure> {
        let stopped = self.input.shutdown == Shutdown::Clean && self.limit == i64::MAX;
        let from = if stopped {
            replayed_from
        } else {
            producers.replay_from(self.near_from(), log_end, aborted)
        };
        let all = self.listing.snapshots();
        let newest = all
            .iter()
            .copied()
            .filter(|offset| *offset <= log_end)
            .max();
        for offset in all {
            let is_base = self
                .opened
                .iter()
                .any(|opened| opened.segment.base == offset);
            let stays = offset <= log_end && (is_base || offset == from || Some(offset) == newest);
            if !stays {
                self.listing.delete(offset, "snapshot", &mut self.disk)?;
            }
        }
        if !stopped && log_end > 0 {
            for offset in [from, log_end] {
                self.write_snapshot(offset, producers)?;
            }
        }
        Ok(self.listing.snapshots())
    }

    fn write_snapshot(&mut self, offset: i64, producers: &Producers) -> Result<(), OpenFailure> {
        if self.listing.has(offset, "snapshot") {
            return Ok(());
        }
        let content = producers.snapshot(offset);
        self.listing
            .set_len(offset, "snapshot", content.len() as u64);
        let name = Listing::name(offset, "snapshot");
        self.disk.replace(name, content)
    }

    fn near_from(&self) -> i64 {
        let Some((active, sealed)) = self.opened.split_last() else {
            return i64::MAX;
        };
        let sealed = sealed.iter().rev().map(|opened| &opened.segment);
        let sealed = sealed.map(|segment| (segment.base, segment.size));
        settle::near_from(&active.segment, sealed)
    }
}

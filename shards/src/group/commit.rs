//! OffsetCommit (J-10), OffsetFetch (J-11), OffsetDelete (J-12), and what becomes of a batch of offsets.

use super::classic::{Group, State};
use super::limits::TOMBSTONES_PER_BATCH;
use super::offsets::{Change, Committed, Offsets};
use super::outcome::{Outcome, Then, commit_failed, offset_delete_failed};
use super::record::{group_tombstone, offset_record};
use super::request::{
    Commit, CommitEntry, DeleteOffsets, FetchOffsets, GroupOffsets, OffsetOf, OffsetsDeleted, Reply,
};
use super::turn::{Turn, Write};
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, Text};

impl Group {
    /// For a group that exists, or is made for a commit without a generation (a simple group).
    pub(super) fn commit(&mut self, turn: &mut Turn<'_>, to: ReplyTo, commit: &Commit) {
        if let Err(code) = self.check_commit(commit) {
            let all = commit
                .entries
                .iter()
                .map(|entry| (entry.at, code))
                .collect();
            turn.replies.push((to, Reply::Committed(all)));
            return;
        }
        if matches!(self.state, State::Stable | State::PreparingRebalance) {
            self.touch(turn, &commit.member_id);
        }
        let expire_ms = match commit.retention_ms {
            -1 => -1,
            retention_ms => turn.now.wall_ms.saturating_add(retention_ms),
        };
        let mut codes = Vec::with_capacity(commit.entries.len());
        let mut changes = Vec::with_capacity(commit.entries.len());
        for entry in &commit.entries {
            if entry.metadata.encode_utf16().count() > turn.config.offset_metadata_bytes_max {
                codes.push((entry.at, ErrorCode::OFFSET_METADATA_TOO_LARGE));
                continue;
            }
            codes.push((entry.at, ErrorCode::NONE));
            changes.push(change(entry, turn.now.wall_ms, expire_ms));
        }
        let then = Then::Answer {
            to: Some(to),
            ready: Reply::Committed(codes),
            failed: commit_failed,
        };
        self.write_offsets(turn, changes, false, then);
    }

    fn check_commit(&self, commit: &Commit) -> Result<(), ErrorCode> {
        // An administrator's commit, or one of a consumer that assigns itself.
        if commit.generation < 0 && self.state == State::Empty {
            return Ok(());
        }
        if commit.generation < 0 && commit.member_id.is_empty() && commit.instance_id.is_none() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.check_member(&commit.member_id, commit.instance_id.as_ref())?;
        if commit.generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        if self.state == State::CompletingRebalance {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        Ok(())
    }

    /// Appends changes of offsets as one batch. `dies`: the group's own record is deleted too.
    fn write_offsets(&mut self, turn: &mut Turn<'_>, changes: Vec<Change>, dies: bool, then: Then) {
        let mut records: Vec<_> = changes
            .iter()
            .map(|change| offset_record(&self.id, change))
            .collect();
        if dies {
            records.push(group_tombstone(&self.id));
        }
        for change in &changes {
            self.offsets.appended(change);
        }
        let outcome = Outcome::Offsets {
            changes,
            dies,
            then,
        };
        self.write(turn, records, outcome);
    }

    /// Asks for a batch of this group. One without records is committed at once.
    pub(super) fn write(
        &mut self,
        turn: &mut Turn<'_>,
        records: Vec<crate::coordinator::replay::Record>,
        outcome: Outcome,
    ) {
        self.writes_under_way += 1;
        turn.writes.push(Write {
            group: self.id.clone(),
            records,
            outcome,
        });
    }

    /// Deletes `changes`, in batches that are not too large; each calls `then`.
    pub(super) fn delete_offsets(
        &mut self,
        turn: &mut Turn<'_>,
        changes: Vec<Change>,
        dies: bool,
        mut then: impl FnMut() -> Then,
    ) {
        let mut rest = changes;
        while rest.len() > TOMBSTONES_PER_BATCH {
            let later = rest.split_off(TOMBSTONES_PER_BATCH);
            self.write_offsets(turn, std::mem::replace(&mut rest, later), false, then());
        }
        if dies {
            self.is_recorded = false;
        }
        if dies || !rest.is_empty() {
            self.write_offsets(turn, rest, dies, then());
        }
    }

    /// A batch of offsets is committed, or never will be. What is left to do is for the caller.
    pub(super) fn offsets_settled(
        &mut self,
        changes: Vec<Change>,
        dies: bool,
        result: Result<(), ErrorCode>,
    ) {
        match result {
            Ok(()) => {
                for change in changes {
                    self.offsets.commit(change);
                }
            }
            Err(_) => {
                for change in &changes {
                    self.offsets.fail(change);
                }
                self.is_recorded |= dies;
            }
        }
    }

    pub(super) fn fetch_offsets(&self, asked: &FetchOffsets) -> GroupOffsets {
        fetch(asked, &self.offsets)
    }

    /// J-12. Offsets that are in use stay.
    pub(super) fn delete_some_offsets(
        &mut self,
        turn: &mut Turn<'_>,
        to: ReplyTo,
        delete: &DeleteOffsets,
    ) {
        if self.state != State::Empty && !self.is_consumer_group() {
            let deleted = OffsetsDeleted {
                code: ErrorCode::NON_EMPTY_GROUP,
                entries: Vec::new(),
            };
            turn.replies.push((to, Reply::OffsetsDeleted(deleted)));
            return;
        }
        let (mut entries, mut changes) = (Vec::new(), Vec::new());
        for (at, topic, partition) in &delete.entries {
            if self.subscribes_to(topic) {
                entries.push((*at, ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC));
                continue;
            }
            entries.push((*at, ErrorCode::NONE));
            if self.offsets.contains(topic, *partition) {
                changes.push(Change {
                    topic: topic.detached(),
                    partition: *partition,
                    to: None,
                });
            }
        }
        self.lingers |= !changes.is_empty();
        let ready = Reply::OffsetsDeleted(OffsetsDeleted {
            code: ErrorCode::NONE,
            entries,
        });
        let then = Then::Answer {
            to: Some(to),
            ready,
            failed: offset_delete_failed,
        };
        self.write_offsets(turn, changes, false, then);
    }
}

/// The answer for a group that there is not: no offset, no error (J-11).
pub(super) fn fetch_unknown(asked: &FetchOffsets) -> GroupOffsets {
    fetch(asked, &Offsets::default())
}

fn fetch(asked: &FetchOffsets, offsets: &Offsets) -> GroupOffsets {
    let topics = match &asked.topics {
        None => offsets
            .committed()
            .map(|(topic, partitions)| {
                let set =
                    partitions.map(|(partition, committed)| shown(partition, Some(committed)));
                (topic.clone(), set.collect::<Vec<_>>())
            })
            .filter(|(_, partitions)| !partitions.is_empty())
            .collect(),
        Some(topics) => topics
            .iter()
            .map(|(topic, partitions)| {
                let asked = partitions.iter();
                let set = asked.map(|partition| shown(*partition, offsets.get(topic, *partition)));
                (topic.clone(), set.collect())
            })
            .collect(),
    };
    GroupOffsets {
        at: asked.at,
        code: ErrorCode::NONE,
        topics,
    }
}

fn shown(partition: i32, committed: Option<&Committed>) -> OffsetOf {
    OffsetOf {
        partition,
        offset: committed.map_or(-1, |committed| committed.offset),
        leader_epoch: committed.map_or(-1, |committed| committed.leader_epoch),
        metadata: committed.map_or(Text::empty(), |committed| committed.metadata.clone()),
    }
}

fn change(entry: &CommitEntry, now_ms: i64, expire_ms: i64) -> Change {
    Change {
        topic: entry.topic.detached(),
        partition: entry.partition,
        to: Some(Committed {
            offset: entry.offset,
            leader_epoch: entry.leader_epoch,
            metadata: entry.metadata.detached(),
            commit_ms: now_ms,
            expire_ms,
            topic_id: entry.topic_id,
        }),
    }
}

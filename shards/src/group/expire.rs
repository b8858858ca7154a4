//! Offsets that nobody has used for `offsets.retention.minutes` (J-13), and those of deleted topics.

use super::classic::{Group, State};
use super::offsets::{Change, Committed};
use super::outcome::Then;
use super::turn::Turn;

impl Group {
    /// Deletes what has expired; the group itself when nothing is left of it.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        let lingered = std::mem::take(&mut self.lingers);
        let expired: Vec<Change> = self
            .offsets
            .settled()
            .filter(|(topic, _, committed)| {
                !self.subscribes_to(topic) && self.is_expired(turn, committed)
            })
            .map(|(topic, partition, _)| Change {
                topic: topic.clone(),
                partition,
                to: None,
            })
            .collect();
        let all = self.offsets.deletions(None).len() == expired.len();
        let is_known = self.is_recorded || lingered || !expired.is_empty();
        let dies = all && is_known && self.state == State::Empty && self.writes_under_way == 0;
        if !expired.is_empty() || dies {
            tracing::debug!(group = %self.id, offsets = expired.len(), dies, "offsets have expired");
            self.delete_offsets(turn, expired, dies, || Then::Nobody);
        }
    }

    fn is_expired(&self, turn: &Turn<'_>, committed: &Committed) -> bool {
        let now_ms = turn.now.wall_ms;
        let Some(since_ms) = self.unused_since(committed) else {
            return false;
        };
        if committed.expire_ms != -1 {
            return now_ms >= committed.expire_ms;
        }
        now_ms.saturating_sub(since_ms) >= turn.config.offsets_retention_ms
    }

    /// From when on an offset has not been in use; `None` = its group may be using it.
    fn unused_since(&self, committed: &Committed) -> Option<i64> {
        if self.protocol_type.is_none() {
            return Some(committed.commit_ms);
        }
        match self.state {
            State::Empty => Some(self.state_since_ms.unwrap_or(committed.commit_ms)),
            State::Stable if self.is_consumer_group() && self.subscribed.is_some() => {
                Some(committed.commit_ms)
            }
            State::Stable | State::PreparingRebalance | State::CompletingRebalance => None,
        }
    }

    /// The topic is gone.
    pub(super) fn forget_topic(&mut self, turn: &mut Turn<'_>, topic: &str) {
        let deletions = self.offsets.deletions(Some(topic));
        if !deletions.is_empty() {
            self.lingers = true;
            self.delete_offsets(turn, deletions, false, || Then::Nobody);
        }
    }
}

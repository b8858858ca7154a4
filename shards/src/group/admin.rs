//! DescribeGroups, ListGroups, DeleteGroups (J-12).

use super::classic::{Group, State};
use super::outcome::Then;
use super::request::{Described, DescribedMember, List, ListedGroup};
use super::turn::Turn;
use crate::base::error_code::ErrorCode;
use crate::base::ids::Text;

impl Group {
    pub(super) fn describe(&self, at: u32) -> Described {
        let is_stable = self.state == State::Stable;
        let protocol = self
            .protocol
            .clone()
            .filter(|_| is_stable)
            .unwrap_or_default();
        let members = self.members().map(|(id, member)| DescribedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if is_stable {
                member.metadata(&protocol)
            } else {
                bytes::Bytes::new()
            },
            assignment: if is_stable {
                member.assignment.clone()
            } else {
                bytes::Bytes::new()
            },
        });
        Described {
            at,
            code: ErrorCode::NONE,
            state: self.state.name(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            members: members.collect(),
            protocol,
        }
    }

    pub(super) fn listed(&self, list: &List) -> Option<ListedGroup> {
        let state = self.state.name();
        let wanted = |filter: &Text| filter.eq_ignore_ascii_case(state);
        if !list.states.is_empty() && !list.states.iter().any(wanted) {
            return None;
        }
        Some(ListedGroup {
            group: self.id.clone(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state,
        })
    }

    /// Deletes the group and its offsets; `then` is called by each batch that this takes. `Ok` = how many there are.
    pub(super) fn delete(
        &mut self,
        turn: &mut Turn<'_>,
        mut then: impl FnMut() -> Then,
    ) -> Result<usize, ErrorCode> {
        if self.state != State::Empty {
            return Err(ErrorCode::NON_EMPTY_GROUP);
        }
        self.clear_pending();
        self.lingers = false;
        let deletions = self.offsets.deletions(None);
        let mut batches = 0;
        // A group without a record of its own is deleted as well: a broker that loads the log makes one for its offsets.
        self.delete_offsets(turn, deletions, true, || {
            batches += 1;
            then()
        });
        Ok(batches)
    }
}

//! LeaveGroup (J-8): of members themselves, and of administrators by instance id.

use super::classic::Group;
use super::request::{Leave, Left};
use super::turn::Turn;
use crate::base::error_code::ErrorCode;
use crate::base::ids::Text;

impl Group {
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>, leave: &Leave) -> Left {
        let members: Vec<ErrorCode> = leave
            .members
            .iter()
            .map(|(id, instance_id)| self.leave_one(turn, id, instance_id.as_ref()))
            .collect();
        if members.contains(&ErrorCode::NONE) {
            self.members_left(turn);
        }
        Left {
            code: ErrorCode::NONE,
            members,
        }
    }

    fn leave_one(
        &mut self,
        turn: &mut Turn<'_>,
        id: &Text,
        instance_id: Option<&Text>,
    ) -> ErrorCode {
        if id.is_empty() {
            let known =
                instance_id.and_then(|instance_id| self.static_member(instance_id).cloned());
            let Some(known) = known else {
                return ErrorCode::UNKNOWN_MEMBER_ID;
            };
            self.dismiss(turn, &known);
            return ErrorCode::NONE;
        }
        if self.remove_pending(id) {
            return ErrorCode::NONE;
        }
        if let Err(code) = self.check_member(id, instance_id) {
            return code;
        }
        self.dismiss(turn, id);
        ErrorCode::NONE
    }
}

//! An administrator: offsets of a group without members are set, read and deleted, and groups too.

use corelog_shards::base::ids::Text;

use super::{Scene, Sending, next};
use crate::load::groups::{self, Versions, Who};
use crate::oracle::{GroupAsk, GroupSaid, What};

/// The group that has no members.
const BARE: &str = "bare";

/// See the module.
#[derive(Default)]
pub struct Administrator {
    commits: i64,
    has_found: bool,
    is_audited: bool,
}

impl Administrator {
    pub(super) fn is_audited(&self) -> bool {
        self.is_audited
    }

    pub(super) fn lost_connection(&mut self) {
        self.has_found = false;
        self.is_audited = false;
    }

    pub(super) fn wake(&mut self, scene: &mut Scene<'_>, correlation: &mut i32) -> Option<Sending> {
        if !scene.has_topics_of_groups() {
            return None;
        }
        let group = Text::from_static(BARE);
        let number = next(correlation);
        let partitions = scene.partitions();
        let wish = if scene.calm {
            99
        } else {
            scene.seeded.below(100)
        };
        let (ask, (version, frame)) = match wish {
            _ if !self.has_found => (GroupAsk::Find, groups::find(number, 4, &group)),
            // Of a group that has members, mostly.
            0..4 => {
                let group =
                    Text::from_static(super::GROUPS[scene.seeded.index(super::GROUPS.len())]);
                (GroupAsk::DeleteGroup, groups::delete_group(number, &group))
            }
            4..9 => (GroupAsk::DeleteGroup, groups::delete_group(number, &group)),
            9..20 if !partitions.is_empty() => {
                let (partition, topic) = scene.seeded.pick(&partitions);
                let frame = groups::delete_offset(number, &group, topic, *partition);
                (GroupAsk::DeleteOffset, frame)
            }
            20..80 if !partitions.is_empty() => {
                let (partition, topic) = scene.seeded.pick(&partitions);
                let who = Who {
                    group,
                    generation: -1,
                    member: Text::empty(),
                    instance: None,
                };
                self.commits += 1;
                let offset = self.commits;
                let offsets = [(topic.clone(), partition.partition, offset)];
                let frame = groups::commit(number, Versions::NEW.commit, &who, &offsets);
                (GroupAsk::Commit, frame)
            }
            _ => {
                let version = Versions::NEW.fetch;
                (GroupAsk::Offsets, groups::fetch(number, version, &group))
            }
        };
        Some(Sending {
            what: What::Group(ask),
            version,
            frame,
            uids: Vec::new(),
        })
    }

    pub(super) fn answered(&mut self, ask: GroupAsk, said: &GroupSaid) {
        match (ask, said) {
            (GroupAsk::Find, GroupSaid::Code(0)) => self.has_found = true,
            (GroupAsk::Offsets, GroupSaid::Code(0)) => self.is_audited = true,
            _ => {}
        }
    }
}

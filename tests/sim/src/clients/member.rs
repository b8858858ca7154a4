//! A member of a consumer group: it joins, is given partitions, commits, and at times leaves, dies, hangs, changes its mind or pretends to be
//! somebody else. Its clock goes slow or fast.

use bytes::{BufMut, Bytes, BytesMut};
use corelog_shards::base::ids::Text;

use super::{Scene, Sending, WORK, next};
use crate::load::groups::{self, Joining, Versions, Who};
use crate::oracle::groups::{FORGED, assignment_of};
use crate::oracle::{GroupAsk, GroupSaid, What};
use crate::seeded::Seeded;
use crate::{Checked, Failure};

const UNKNOWN_TOPIC: i16 = 3;
const LOADING: i16 = 14;
const NOT_AVAILABLE: i16 = 15;
const NOT_COORDINATOR: i16 = 16;
const ILLEGAL_GENERATION: i16 = 22;
const UNKNOWN_MEMBER: i16 = 25;
const REBALANCE: i16 = 27;
/// The power was cut, and everything is gone.
const GROUP_NOT_FOUND: i16 = 69;
const MEMBER_ID_REQUIRED: i16 = 79;
const FENCED: i16 = 82;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// To ask who coordinates the group, then what it has committed.
    Find,
    Audit,
    Join,
    Sync,
    In,
    Leave,
}

/// See the module.
pub struct Member {
    number: usize,
    group: Text,
    instance: Option<Text>,
    versions: Versions,
    /// How slowly its clock goes, of 100.
    drift_percent: u64,
    session_ms: i32,
    rebalance_ms: i32,
    /// Empty: it has none.
    id: Text,
    former_id: Text,
    generation: i32,
    protocol: Text,
    step: Step,
    /// Where it goes on when it has found its coordinator.
    resume: Step,
    /// Whom it shares out to; empty unless it leads.
    members: Vec<Text>,
    mine: Vec<i32>,
    mood: u8,
    commits: i64,
    /// The request that waits for its answer is not meant.
    forges: bool,
    hangs_up: bool,
    /// Another one has its place, and there is no trouble any more.
    is_retired: bool,
    is_audited: bool,
    calm_commits: u32,
}

impl Member {
    /// The members of one group, some of them static; at times two of them take themselves for the same.
    pub fn all_of(group: &'static str, first: usize, seeded: &mut Seeded) -> Vec<Member> {
        let count = seeded.between(1, 4) as usize;
        let doubles = seeded.once_in(4);
        let member = |at: usize| {
            let versions = *seeded.pick(&[
                Versions::OLD,
                Versions::MIDDLE,
                Versions::NEW,
                Versions::NEW,
            ]);
            let is_static = versions.know_instances() && seeded.percent(50);
            let instance = if doubles { at / 2 } else { at };
            let session_ms = *seeded.pick(&[500, 1_000, 3_000]);
            Member {
                number: first + at,
                group: Text::from_static(group),
                instance: is_static.then(|| Text::from(format!("{group}-{instance}"))),
                versions,
                drift_percent: *seeded.pick(&[30, 90, 100, 110, 400]),
                session_ms,
                rebalance_ms: *seeded.pick(&[session_ms, 2_000, 4_000]),
                id: Text::empty(),
                former_id: Text::empty(),
                generation: -1,
                protocol: Text::empty(),
                step: Step::Find,
                resume: Step::Join,
                members: Vec::new(),
                mine: Vec::new(),
                mood: 0,
                commits: 0,
                forges: false,
                hangs_up: false,
                is_retired: false,
                is_audited: false,
                calm_commits: 0,
            }
        };
        (0..count).map(member).collect()
    }

    /// Whether it has worked since trouble ended.
    pub(super) fn is_settled(&self) -> bool {
        self.is_retired || self.calm_commits > 0
    }

    /// Whether it has read its group's offsets over this connection.
    pub(super) fn is_audited(&self) -> bool {
        self.is_retired || self.is_audited
    }

    /// Whether it closes its connection now.
    pub(super) fn hangs_up(&mut self) -> bool {
        std::mem::take(&mut self.hangs_up)
    }

    pub(super) fn lost_connection(&mut self) {
        self.resume = match self.step {
            Step::Find | Step::Audit => self.resume,
            Step::Join | Step::Leave => Step::Join,
            Step::Sync => Step::Sync,
            Step::In => Step::In,
        };
        self.step = Step::Find;
        self.is_audited = false;
        self.forges = false;
    }

    fn who(&self) -> Who {
        Who {
            group: self.group.clone(),
            generation: self.generation,
            member: self.id.clone(),
            instance: self.instance.clone(),
        }
    }

    /// What it sends, and in how many microseconds of its own it wants to act again.
    pub(super) fn wake(
        &mut self,
        scene: &mut Scene<'_>,
        correlation: &mut i32,
        outstanding: usize,
    ) -> (Option<Sending>, u64) {
        if self.is_retired || !scene.has_topics_of_groups() {
            return (None, 500_000);
        }
        if outstanding > 0 {
            self.hangs_up = !scene.calm && scene.seeded.once_in(150);
            return (None, scene.seeded.between(10_000, 200_000));
        }
        let rest_us = match self.step {
            Step::In => scene.seeded.between(10_000, 300_000),
            _ => scene.seeded.between(500, 30_000),
        };
        let drift_percent = if scene.calm { 100 } else { self.drift_percent };
        let mut rest_us = rest_us * drift_percent / 100;
        if self.step == Step::In && !scene.calm {
            if scene.seeded.once_in(60) {
                // It hangs, perhaps for longer than its session lasts.
                rest_us += scene.seeded.below(self.session_ms as u64 * 2_000);
            }
            self.whim(scene);
        }
        (self.ask(scene, correlation), rest_us)
    }

    fn ask(&mut self, scene: &mut Scene<'_>, correlation: &mut i32) -> Option<Sending> {
        if self.hangs_up {
            return None;
        }
        let number = next(correlation);
        let versions = self.versions;
        let (ask, (version, frame)) = match self.step {
            Step::Find => (
                GroupAsk::Find,
                groups::find(number, versions.find, &self.group),
            ),
            Step::Audit => (
                GroupAsk::Offsets,
                groups::fetch(number, versions.fetch, &self.group),
            ),
            Step::Join => (
                GroupAsk::Join,
                groups::join(number, versions.join, &self.who(), &self.joining()),
            ),
            Step::Sync => {
                let assignments = self.share_out(scene);
                let frame = groups::sync(
                    number,
                    versions.sync,
                    &self.who(),
                    &self.protocol,
                    &assignments,
                );
                (GroupAsk::Sync, frame)
            }
            Step::In => self.take_part(scene, number),
            Step::Leave => (
                GroupAsk::Leave,
                groups::leave(number, versions.leave, &self.who()),
            ),
        };
        Some(Sending {
            what: What::Group(ask),
            version,
            frame,
            uids: Vec::new(),
        })
    }

    fn joining(&self) -> Joining {
        let metadata = groups::subscription(WORK, self.mood);
        let both = [Text::from_static("range"), Text::from_static("sticky")];
        let protocols = both.map(|name| (name, metadata.clone())).to_vec();
        Joining {
            session_ms: self.session_ms,
            rebalance_ms: self.rebalance_ms,
            protocols,
        }
    }

    /// Every decision has a number of its own: a leader that asks twice decides twice.
    fn share_out(&self, scene: &mut Scene<'_>) -> Vec<(Text, Bytes)> {
        let partitions = scene.topics.get(WORK).map_or(0, |(_, count)| *count);
        let decision = scene.seeded.number() as u32;
        let share = |(at, member): (usize, &Text)| {
            let mut assignment = BytesMut::new();
            assignment.put_u32(decision);
            for partition in (0..partitions).skip(at).step_by(self.members.len()) {
                assignment.put_i32(partition);
            }
            (member.clone(), assignment.freeze())
        };
        self.members.iter().enumerate().map(share).collect()
    }

    fn take_part(&mut self, scene: &mut Scene<'_>, number: i32) -> (GroupAsk, (i16, Bytes)) {
        let versions = self.versions;
        if !scene.calm && scene.seeded.once_in(12) {
            self.forges = true;
            let (topic, partition) = (WORK.to_owned(), 0);
            let forged = self.forged(scene);
            let frame = groups::commit(
                number,
                versions.commit,
                &forged,
                &[(topic, partition, FORGED)],
            );
            return (GroupAsk::Commit, frame);
        }
        if scene.seeded.percent(30) {
            let frame = groups::heartbeat(number, versions.heartbeat, &self.who());
            return (GroupAsk::Heartbeat, frame);
        }
        let offsets = self.offsets(scene);
        let frame = groups::commit(number, versions.commit, &self.who(), &offsets);
        (GroupAsk::Commit, frame)
    }

    /// Its partitions, and at times one of another topic.
    fn offsets(&mut self, scene: &mut Scene<'_>) -> Vec<(String, i32, i64)> {
        let mut cells: Vec<(String, i32)> =
            self.mine.iter().map(|at| (WORK.to_owned(), *at)).collect();
        if cells.is_empty() || scene.seeded.once_in(5) {
            let all = scene.partitions();
            let (partition, topic) = scene.seeded.pick(&all).clone();
            if !cells.contains(&(topic.clone(), partition.partition)) {
                cells.push((topic, partition.partition));
                cells.sort();
            }
        }
        let mut offset = || {
            self.commits += 1;
            ((self.number as i64) << 24) + self.commits
        };
        cells
            .into_iter()
            .map(|(topic, partition)| (topic, partition, offset()))
            .collect()
    }

    /// Somebody who is not a member of the present generation.
    fn forged(&self, scene: &mut Scene<'_>) -> Who {
        let own = self.who();
        match scene.seeded.below(4) {
            0 => Who {
                generation: own.generation + 1_000,
                ..own
            },
            1 if own.generation > 0 => Who {
                generation: own.generation - 1,
                ..own
            },
            2 if self.instance.is_some() && !self.former_id.is_empty() => Who {
                member: self.former_id.clone(),
                ..own
            },
            _ => Who {
                member: Text::from_static("nobody"),
                instance: None,
                ..own
            },
        }
    }

    fn whim(&mut self, scene: &mut Scene<'_>) {
        match scene.seeded.below(120) {
            0 => {
                self.mood = self.mood.wrapping_add(1);
                self.step = Step::Join;
            }
            3 | 4 => self.step = Step::Leave,
            // A static one is started again.
            1 | 2 => {
                self.forget_id();
                self.step = Step::Join;
                self.hangs_up = scene.seeded.percent(50);
            }
            _ => {}
        }
    }

    fn forget_id(&mut self) {
        if !self.id.is_empty() {
            self.former_id = std::mem::take(&mut self.id);
        }
    }

    pub(super) fn answered(
        &mut self,
        ask: GroupAsk,
        said: &GroupSaid,
        scene: &Scene<'_>,
    ) -> Checked {
        if std::mem::take(&mut self.forges) {
            return Ok(());
        }
        match (ask, said) {
            (GroupAsk::Find, GroupSaid::Code(0)) => self.step = Step::Audit,
            (GroupAsk::Offsets, GroupSaid::Code(0)) => {
                self.is_audited = true;
                self.step = self.resume;
            }
            (GroupAsk::Heartbeat, GroupSaid::Code(0)) => {}
            (GroupAsk::Heartbeat | GroupAsk::Find | GroupAsk::Offsets, GroupSaid::Code(code)) => {
                self.told(*code, scene)?;
            }
            (_, GroupSaid::Joined { code, member, .. }) if *code == MEMBER_ID_REQUIRED => {
                self.id = member.clone();
            }
            (
                _,
                GroupSaid::Joined {
                    code: 0,
                    generation,
                    leads,
                    member,
                    members,
                    protocol,
                    ..
                },
            ) => {
                if *member != self.id {
                    self.forget_id();
                    self.id = member.clone();
                }
                self.generation = *generation;
                self.protocol = protocol.clone();
                self.members = if *leads { members.clone() } else { Vec::new() };
                self.step = Step::Sync;
            }
            (_, GroupSaid::Synced(0, assignment)) => {
                self.mine = assignment_of(assignment).map_or_else(Vec::new, |(_, mine)| mine);
                self.step = Step::In;
            }
            (_, GroupSaid::Joined { code, .. } | GroupSaid::Synced(code, _)) => {
                self.told(*code, scene)?;
            }
            (_, GroupSaid::Committed(codes)) => {
                for code in codes {
                    match *code {
                        0 => self.calm_commits += u32::from(scene.calm),
                        // Another topic than its own is gone.
                        UNKNOWN_TOPIC => {}
                        code => self.told(code, scene)?,
                    }
                }
            }
            // Whatever it is told, it is gone.
            (_, GroupSaid::Code(_)) => {
                self.forget_id();
                self.step = Step::Join;
            }
        }
        Ok(())
    }

    /// What an error means for a member; there are some that a member that does what it should can't get.
    fn told(&mut self, code: i16, scene: &Scene<'_>) -> Checked {
        match code {
            LOADING | NOT_AVAILABLE | NOT_COORDINATOR => {}
            ILLEGAL_GENERATION | REBALANCE => self.step = Step::Join,
            UNKNOWN_MEMBER | GROUP_NOT_FOUND | FENCED => {
                self.is_retired = scene.calm && code == FENCED;
                self.forget_id();
                self.step = Step::Join;
            }
            _ => {
                return Err(Failure(format!(
                    "a member is told what it can act on: {} {:?} in {:?} got error {code}",
                    self.group.as_str(),
                    self.id,
                    self.step
                )));
            }
        }
        Ok(())
    }
}

//! Wishes of shards and what becomes of them: on the disk, at other cores, in the metadata.

use std::sync::Arc;

use bytes::BytesMut;
use corelog_shards::base::ids::{FileKind, METADATA_LOG, ShardId, TopicPartition};
use corelog_shards::effect::Effect;
use corelog_shards::event::Event;
use corelog_shards::metadata::Image;

use super::{Action, Hop, World};
use crate::device::Finished;
use crate::invariants;
use crate::oracle::Crash;
use crate::shown::Shown;
use crate::start::note;
use crate::{Checked, must};

impl World {
    /// Carries out the wishes of a shard, one after the other.
    pub fn drain(&mut self, core: usize) -> Checked {
        let incarnation = self.incarnation;
        loop {
            let effects: Vec<Effect> = match self.cores.get_mut(core) {
                Some(core) => core.out.drain().collect(),
                None => return Ok(()),
            };
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects {
                self.carry_out(core, effect)?;
                self.count_down()?;
                if self.incarnation != incarnation {
                    return Ok(());
                }
            }
        }
    }

    fn count_down(&mut self) -> Checked {
        if let Some((left, crash)) = &mut self.crash_in {
            if *left == 0 {
                let crash = *crash;
                return self.crash(crash);
            }
            *left -= 1;
        }
        Ok(())
    }

    fn carry_out(&mut self, core: usize, effect: Effect) -> Checked {
        self.note(format_args!("core {core} wishes {}", Shown(&effect)));
        match effect {
            Effect::Reply { to, reply } => self.reply(core, to, reply),
            Effect::Send { to, message } => {
                let from = ShardId(core as u16);
                self.send_hop(core, usize::from(to.0), Hop::Message { from, message });
                Ok(())
            }
            Effect::Publish(image) => self.publish(image),
            Effect::Checkpoint(lines) => {
                for line in &lines {
                    if let Some((root, name)) = self.device.places.get(&line.log) {
                        note(&mut self.checkpoints[usize::from(*root)], name, line);
                    }
                }
                if !self.checkpoints_due {
                    self.checkpoints_due = true;
                    let delay = self.seeded.below(5_000_000);
                    self.later(delay, Action::Checkpoints { file: 0 });
                }
                Ok(())
            }
            Effect::Stopped => {
                self.cores[core].stopped = true;
                if self.cores.iter().all(|core| core.stopped) {
                    return self.stopped();
                }
                Ok(())
            }
            Effect::LogDirFailed { log } => self.dir_failed(log),
            Effect::OpenLog { log, .. } => {
                let delay = self.seeded.below(300_000);
                self.later(delay, Action::Recover { core, log });
                Ok(())
            }
            effect => self.give_device(core, effect),
        }
    }

    fn give_device(&mut self, core: usize, effect: Effect) -> Checked {
        match &effect {
            Effect::Write {
                file,
                position,
                chunks,
                ..
            } if file.kind == FileKind::Log && file.log != METADATA_LOG => {
                let mut bytes = BytesMut::new();
                chunks
                    .iter()
                    .for_each(|chunk| bytes.extend_from_slice(chunk));
                // A write of nothing makes the file of a new segment.
                if !bytes.is_empty() {
                    let topic = self.topic_of(file.log);
                    self.oracle
                        .appended(&topic, *file, *position, &bytes.freeze())?;
                }
            }
            Effect::CreateLog { log, name, .. } => {
                self.oracle.opened(*log, 0, 0)?;
                self.forget_checkpoints(name);
            }
            Effect::DeleteLog { log, .. } => {
                if let Some((root, name)) = self.device.places.get(log)
                    && let Some(key) = crate::start::parse_name(name)
                {
                    for lines in &mut self.checkpoints[usize::from(*root)] {
                        lines.remove(&key);
                    }
                }
            }
            _ => {}
        }
        must!(
            self.device.take(core as u16, effect),
            "every effect is carried out"
        );
        let delay = self.delay(200);
        let at = self.stalled_until_us.max(self.now_us) + delay;
        self.at(at, Action::Device);
        Ok(())
    }

    fn topic_of(&self, log: TopicPartition) -> String {
        let image = self.image.as_ref();
        let topic = image.and_then(|image| image.topic_by_id(log.topic_id));
        topic.map_or_else(String::new, |topic| topic.name.as_str().to_owned())
    }

    pub(super) fn device_step(&mut self) -> Checked {
        if self.device.pending() == 0 {
            return Ok(());
        }
        if self.now_us < self.stalled_until_us {
            self.at(self.stalled_until_us, Action::Device);
            return Ok(());
        }
        let wall_ms = self.now().wall_ms;
        match self.device.step(&mut self.seeded, wall_ms) {
            Some(finished) => {
                self.note(format_args!(
                    "disk {} of {:?} {}",
                    finished.op.seq as i64,
                    finished.op.slot as i32,
                    if finished.outcome.is_ok() {
                        "happens"
                    } else {
                        "FAILS"
                    }
                ));
                let delay = self.delay(100);
                self.later(delay, Action::Done(Box::new(finished)));
            }
            None => self.later(1_000, Action::Device),
        }
        self.count_down()
    }

    pub(super) fn done(&mut self, finished: Finished) -> Checked {
        let Finished {
            shard,
            op,
            file,
            outcome,
            change,
        } = finished;
        self.note(format_args!(
            "core {shard} is told {} of {}",
            op.seq as i64, op.slot as i32
        ));
        if let Some((path, name, change)) = change {
            self.device.disk.told(&path, &name, change);
        }
        self.deliver(usize::from(shard), Event::Done { op, outcome })?;
        match file {
            Some(file) if self.up => invariants::check_log(self, file.log),
            _ => Ok(()),
        }
    }

    fn dir_failed(&mut self, log: TopicPartition) -> Checked {
        let root = self.device.places.get(&log).map_or(0, |path| path.0);
        if root == 0 {
            // The metadata directory: the broker has to stop.
            return self.crash(Crash::Kill);
        }
        let logs: Vec<TopicPartition> = self
            .device
            .places
            .iter()
            .filter(|(_, path)| path.0 == root)
            .map(|(log, _)| *log)
            .collect();
        for core in 0..self.cores.len() {
            self.cores[core].has_failed = true;
            let logs = logs.clone();
            self.send_hop(core, core, Hop::Offline { logs });
        }
        Ok(())
    }

    fn publish(&mut self, image: Arc<Image>) -> Checked {
        self.image = Some(Arc::clone(&image));
        for topic in image.sorted_topics() {
            self.oracle.names(topic.name.as_str(), topic.id);
        }
        if !self.published {
            self.published = true;
            self.put_strays_aside()?;
        }
        for core in 0..self.cores.len() {
            let image = Arc::clone(&image);
            let delay = self.delay(300);
            self.later(delay, Action::Image { core, image });
        }
        Ok(())
    }

    pub(super) fn take_image(&mut self, core: usize, image: Arc<Image>) -> Checked {
        if self.cores[core].image.version >= image.version && self.cores[core].has_applied {
            return Ok(());
        }
        self.note(format_args!("core {core} image {}", image.version));
        self.cores[core].image = Arc::clone(&image);
        self.cores[core].has_applied = true;
        let incarnation = self.incarnation;
        self.deliver(core, Event::Image(Arc::clone(&image)))?;
        if self.incarnation != incarnation {
            return Ok(());
        }
        invariants::one_owner(self)?;
        if self
            .cores
            .iter()
            .all(|core| core.image.version >= image.version && core.has_applied)
        {
            self.accepting = true;
            let topics = image.sorted_topics();
            let entry = |topic: &&Arc<corelog_shards::metadata::Topic>| {
                let partitions = topic.partitions.len() as i32;
                (topic.name.as_str().to_owned(), (topic.id, partitions))
            };
            self.topics = topics.iter().map(entry).collect();
        }
        Ok(())
    }
}

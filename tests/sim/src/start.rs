//! How the node starts, stops and dies: what `engine::metadata` and `engine::recovery` do, over the virtual disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use corelog_shards::base::ids::{METADATA_LOG, Op, ShardId, Text, TopicPartition, Uuid};
use corelog_shards::base::time::Now;
use corelog_shards::controller::{
    Controller, Loaded, QuorumState, Settings, SnapshotFile, log_config,
};
use corelog_shards::effect::{Outbox, PartitionCheckpoint};
use corelog_shards::log::checkpoint_format::{OffsetLine, format_offsets, parse_offsets};
use corelog_shards::log::{
    DirEntry, DiskOrder, Log, OpenFailure, RecoveryInput, Shutdown, recover,
};
use corelog_shards::metadata::{Endpoint, Identity, TopicConfig};
use corelog_shards::shard::{Shard, ShardConfig};

use crate::disk::{Disk, Path};
use crate::node::{Core, NODE, statics};
use crate::oracle::Crash;
use crate::world::{Action, World};
use crate::{Checked, Failure, must};

const METADATA_DIR: &str = "__cluster_metadata-0";
const FILES: [&str; 3] = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
];

/// Lines of the checkpoint files of one log directory, in the order of [`FILES`].
pub type Checkpoints = [BTreeMap<(String, i32), i64>; 3];

pub fn parse_name(name: &str) -> Option<(String, i32)> {
    let (topic, partition) = name.rsplit_once('-')?;
    Some((
        topic.to_owned(),
        partition.parse().ok().filter(|p| *p >= 0)?,
    ))
}

/// Takes over what a shard reports.
pub fn note(checkpoints: &mut Checkpoints, name: &str, line: &PartitionCheckpoint) {
    let Some(key) = parse_name(name) else { return };
    let [recovery, watermarks, starts] = checkpoints;
    recovery.insert(key.clone(), line.recovery_point);
    watermarks.insert(key.clone(), line.high_watermark);
    if line.log_start_offset > line.first_segment_base {
        starts.insert(key, line.log_start_offset);
    } else {
        starts.remove(&key);
    }
}

fn text(lines: &BTreeMap<(String, i32), i64>) -> String {
    let line = |((topic, partition), offset): (&(String, i32), &i64)| OffsetLine {
        topic: topic.clone(),
        partition: *partition,
        offset: *offset,
    };
    format_offsets(&lines.iter().map(line).collect::<Vec<_>>())
}

fn read_checkpoints(disk: &Disk, root: u8) -> Checked<Checkpoints> {
    let mut checkpoints = Checkpoints::default();
    for (file, lines) in FILES.iter().zip(&mut checkpoints) {
        let Some(text) = disk.texts.get(&(root, (*file).to_owned())) else {
            continue;
        };
        let parsed = parse_offsets(text).map_err(|why| Failure(format!("{file}: {why}")))?;
        let entry = |line: OffsetLine| ((line.topic, line.partition), line.offset);
        *lines = parsed.into_iter().map(entry).collect();
    }
    Ok(checkpoints)
}

/// A recovery that is killed halfway gives this many orders; `None` = it is not killed.
type Patience = Option<u64>;

/// Runs the recovery of one log.
pub fn open(
    disk: &mut Disk,
    path: &Path,
    mut patience: Patience,
    input: RecoveryInput,
) -> Result<Box<Log>, OpenFailure> {
    let wall_ms = input.now.wall_ms;
    recover(input, &mut |order| {
        if let Some(left) = &mut patience {
            *left = left.checked_sub(1).ok_or("the process is killed")?;
        }
        obey(disk, path, order, wall_ms)
    })
}

fn obey(disk: &mut Disk, path: &Path, order: DiskOrder, wall_ms: i64) -> Result<Bytes, String> {
    match order {
        DiskOrder::Read {
            name,
            position,
            len,
        } => {
            let content = disk
                .read(path, &name)
                .ok_or_else(|| format!("{name} is not there"))?;
            let from = content.len().min(position as usize);
            let len = (len as usize).min(content.len() - from);
            return Ok(Bytes::copy_from_slice(&content[from..from + len]));
        }
        DiskOrder::Write {
            name,
            position,
            bytes,
        } => {
            disk.write(path, &name, position, bytes, wall_ms);
        }
        DiskOrder::Truncate { name, len } => {
            disk.set_len(path, &name, len, wall_ms);
        }
        DiskOrder::Replace { name, content } => disk.replace(path, &name, &content, wall_ms),
        DiskOrder::Delete { name } => disk.unlink(path, &name),
        DiskOrder::Rename { from, to } => disk.rename(path, &from, &to),
        DiskOrder::Sync { name } => disk.sync_content(path, &name),
        DiskOrder::SyncDirectory => disk.sync_dir(path),
    }
    Ok(Bytes::new())
}

fn listing(disk: &Disk, path: &Path) -> Vec<DirEntry> {
    let entry = |(name, len, modified_ms)| DirEntry {
        name,
        len,
        modified_ms,
    };
    disk.list(path).into_iter().map(entry).collect()
}

impl World {
    /// Starts the node with some number of shards.
    pub fn start(&mut self) -> Checked {
        let shards = self.seeded.between(1, 4) as u16;
        let now = self.now();
        let clean = self.device.disk.texts.remove(&clean_mark()).is_some();
        self.shutdown = if clean {
            Shutdown::Clean
        } else {
            Shutdown::Crashed
        };
        self.checkpoints = [
            read_checkpoints(&self.device.disk, 0)?,
            read_checkpoints(&self.device.disk, 1)?,
        ];
        let existing = self.find_replicas();
        let (incarnation, how, replicas) = (self.incarnation, self.shutdown, existing.len());
        self.note(format_args!(
            "START {incarnation} with {shards} shards, {how:?}, {replicas} replicas"
        ));
        let Some((controller, out, image)) = self.load_metadata(shards, now)? else {
            return Ok(());
        };
        self.up = true;
        self.published = false;
        self.image = None;
        let mut controller = Some(Box::new(controller));
        let mut out = Some(out);
        let fails = self.faults && self.seeded.percent(10);
        self.device.fails_once_in = [0, if fails { 60 } else { 0 }];
        if self.faults && self.seeded.percent(4) {
            self.device.fails_once_in[0] = 100;
        }
        for id in 0..shards {
            let shard = Shard::new(ShardConfig {
                id: ShardId(id),
                shards,
                node_id: NODE,
                tail_cache_bytes: *self.seeded.pick(&[0, 4_000, 1 << 20]),
                existing: existing.iter().copied().collect(),
                parked_max: 100,
                fetch_session_slots: 20,
                retention_check_interval_ms: 5_000,
                initial_task_delay_ms: 5_000,
                seed: self.seeded.number(),
                controller: controller.take(),
            });
            let mut core = Core::new(shard, id, Arc::clone(&image));
            core.out = out.take().unwrap_or_default();
            self.cores.push(core);
        }
        self.drain(0)
    }

    fn find_replicas(&mut self) -> Vec<TopicPartition> {
        self.device.places.clear();
        let mut found = Vec::new();
        let dirs: Vec<(Path, Option<Uuid>)> = self
            .device
            .disk
            .dirs()
            .map(|(path, id)| (path.clone(), id))
            .collect();
        for (path, topic_id) in dirs {
            let name = &path.1;
            if name == METADATA_DIR {
                self.device.places.insert(METADATA_LOG, path);
            } else if name.ends_with("-delete") {
                self.device.disk.remove_dir(&path);
            } else if !name.ends_with("-stray")
                && let Some((_, partition)) = parse_name(name)
            {
                let Some(topic_id) = topic_id else {
                    self.device.rename_away(&path, "stray");
                    continue;
                };
                let id = TopicPartition {
                    topic_id,
                    partition,
                };
                self.device.places.insert(id, path);
                found.push(id);
            }
        }
        found
    }

    /// The controller with its first wishes, and the image as far as it was durable. `None` if the start was killed on the way.
    fn load_metadata(
        &mut self,
        shards: u16,
        now: Now,
    ) -> Checked<Option<(Controller, Outbox, Arc<corelog_shards::metadata::Image>)>> {
        let path: Path = (0, METADATA_DIR.to_owned());
        if !self.device.places.contains_key(&METADATA_LOG) {
            self.device.disk.create_dir(&path);
            self.device.disk.set_topic_id(&path, METADATA_LOG.topic_id);
            self.device.places.insert(METADATA_LOG, path.clone());
        }
        let input = RecoveryInput {
            id: METADATA_LOG,
            slot: Op::CONTROLLER,
            files: listing(&self.device.disk, &path),
            shutdown: self.shutdown,
            recovery_point: self.checkpoint(METADATA_LOG, 0),
            log_start: self.checkpoint(METADATA_LOG, 2),
            truncate_to: None,
            config: Arc::new(log_config()),
            now,
        };
        let patience = self.patience();
        let log = match open(&mut self.device.disk, &path, patience, input) {
            Ok(log) => log,
            Err(_) if patience.is_some() => return self.dies_at_start(),
            Err(failure) => return Err(Failure(format!("metadata log: {}", failure.reason))),
        };
        let identity = Identity {
            cluster_id: Text::from_static("simulated"),
            node_id: NODE,
            shards,
            statics: Arc::new(statics()),
        };
        let bad =
            |why: String| Failure(format!("the metadata can be loaded after any crash: {why}"));
        let (snapshot, segments) = self.metadata_files(&path);
        let loaded = Loaded::read(&identity, snapshot.as_ref(), segments)
            .map_err(|failure| bad(failure.to_string()))?;
        let image = Arc::new(loaded.image().clone());
        let quorum_path: Path = (0, "quorum-state".to_owned());
        let quorum = match self.device.disk.texts.get(&quorum_path) {
            Some(text) => QuorumState::parse(text).map_err(|why| bad(why.to_string()))?,
            None => QuorumState::new(),
        };
        let elected = quorum.elected(NODE);
        self.device
            .disk
            .texts
            .insert(quorum_path, elected.to_json());
        let settings = Settings {
            identity,
            num_partitions: 1,
            default_replication_factor: 1,
            delete_topic_enable: true,
            rack: None,
            broker_endpoints: vec![Endpoint {
                name: Text::from_static("PLAINTEXT"),
                host: Text::from_static("simulated"),
                port: 9092,
                security_protocol: 0,
            }],
            controller_endpoints: Vec::new(),
            log_dirs: vec![Uuid([9; 16])],
            shutdown: self.shutdown,
            snapshot_bytes: 4_000,
            snapshot_interval_ms: 60_000,
            seed: self.seeded.number(),
        };
        let mut out = Outbox::new();
        let epoch = elected.leader_epoch;
        let controller = Controller::start(now, settings, epoch, log, loaded, None, &mut out)
            .map_err(|failure| bad(failure.to_string()))?;
        Ok(Some((controller, out, image)))
    }

    fn dies_at_start<T>(&mut self) -> Checked<Option<T>> {
        self.note(format_args!("killed while the metadata log is recovered"));
        let crash = self.any_crash();
        self.crash(crash)?;
        Ok(None)
    }

    fn metadata_files(&self, path: &Path) -> (Option<SnapshotFile>, Vec<Bytes>) {
        let (mut snapshot, mut segments) = (None, Vec::new());
        for (name, _, _) in self.device.disk.list(path) {
            let content = || {
                let content = self.device.disk.read(path, &name).unwrap_or(&[]);
                Bytes::copy_from_slice(content)
            };
            if name.strip_suffix(".log").is_some() {
                segments.push(content());
            } else if let Some((end, epoch)) = name
                .strip_suffix(".checkpoint")
                .and_then(|stem| stem.split_once('-'))
                && let (Ok(end_offset), Ok(epoch)) = (end.parse(), epoch.parse())
            {
                snapshot = Some(SnapshotFile {
                    end_offset,
                    epoch,
                    content: content(),
                    older: Vec::new(),
                });
            }
        }
        (snapshot, segments)
    }

    /// What the checkpoint file `file` says of a log; 0 where it says nothing.
    fn checkpoint(&self, log: TopicPartition, file: usize) -> i64 {
        let place = self.device.places.get(&log);
        let found = place.and_then(|(root, name)| {
            let key = parse_name(name)?;
            self.checkpoints[usize::from(*root)][file]
                .get(&key)
                .copied()
        });
        found.unwrap_or(0)
    }

    /// A recovery is killed halfway now and then.
    fn patience(&mut self) -> Patience {
        let killed = self.faults && self.seeded.once_in(40);
        killed.then(|| self.seeded.below(20))
    }

    pub fn any_crash(&mut self) -> Crash {
        *self.seeded.pick(&[Crash::Kill, Crash::PowerCut])
    }

    /// Recovers a log; the shard is told later.
    pub fn recover(&mut self, core: usize, log: TopicPartition) -> Checked {
        let Some(path) = self.device.places.get(&log).cloned() else {
            // Its topic has been deleted meanwhile.
            let deleted = self
                .image
                .as_ref()
                .is_none_or(|image| image.partition(log).is_none());
            must!(deleted, "{log:?} is to be opened, but has no directory");
            let reason = "the replica has no directory".to_owned();
            let opened = Err(OpenFailure { reason });
            self.later(0, Action::Opened { core, log, opened });
            return Ok(());
        };
        let topic = self
            .image
            .as_ref()
            .and_then(|image| image.topic_by_id(log.topic_id).cloned());
        let input = RecoveryInput {
            id: log,
            slot: 0,
            files: listing(&self.device.disk, &path),
            shutdown: self.shutdown,
            recovery_point: self.checkpoint(log, 0),
            log_start: self.checkpoint(log, 2),
            truncate_to: None,
            config: topic.map_or_else(
                || Arc::new(TopicConfig::default()),
                |topic| Arc::clone(&topic.config),
            ),
            now: self.now(),
        };
        let patience = self.patience();
        match open(&mut self.device.disk, &path, patience, input) {
            Ok(opened) => {
                self.note(format_args!(
                    "recovered {} from {} to {}",
                    path.1,
                    opened.log_start(),
                    opened.log_end()
                ));
                self.oracle
                    .opened(log, opened.log_start(), opened.log_end())?;
                let delay = self.seeded.below(200_000);
                let opened = Ok(opened);
                self.later(delay, Action::Opened { core, log, opened });
                Ok(())
            }
            Err(_) if patience.is_some() => {
                self.note(format_args!("killed while {} is recovered", path.1));
                let crash = self.any_crash();
                self.crash(crash)
            }
            Err(failure) => Err(crate::oracle::Oracle::not_opened(log, &failure.reason)),
        }
    }

    /// Writes one of the checkpoint files of both log directories; then the next.
    pub fn write_checkpoints(&mut self, file: usize) {
        for root in 0..2_u8 {
            let lines = &self.checkpoints[usize::from(root)][file];
            let path = (root, FILES[file].to_owned());
            self.device.disk.texts.insert(path, text(lines));
        }
        if file + 1 < FILES.len() {
            let delay = self.seeded.below(2_000);
            self.later(delay, Action::Checkpoints { file: file + 1 });
        } else {
            self.checkpoints_due = false;
        }
    }

    fn write_all_checkpoints(&mut self) {
        for (file, name) in FILES.iter().enumerate() {
            for root in 0..2_u8 {
                let lines = &self.checkpoints[usize::from(root)][file];
                let path = (root, (*name).to_owned());
                self.device.disk.texts.insert(path, text(lines));
            }
        }
    }

    /// A replica of this name is about to be made: what is remembered of an older one goes first, from the files too.
    pub fn forget_checkpoints(&mut self, name: &str) {
        let Some(key) = parse_name(name) else { return };
        for lines in self.checkpoints.iter_mut().flatten() {
            lines.remove(&key);
        }
        self.write_all_checkpoints();
    }

    fn claim(&mut self) {
        for core in &self.cores {
            for log in self.oracle.truths.keys().copied().collect::<Vec<_>>() {
                let partition = core.shard.partitions().get(log);
                if let Some(log) = partition.and_then(|partition| partition.online()) {
                    self.oracle
                        .claimed(log.id(), log.written_end(), log.synced_end());
                }
            }
        }
    }

    /// The process dies, or the machine does.
    pub fn crash(&mut self, crash: Crash) -> Checked {
        let pending = self.device.pending();
        self.note(format_args!(
            "CRASH {crash:?} with {pending} operations under way"
        ));
        self.claim();
        let wall_ms = self.now().wall_ms;
        self.device.kill(&mut self.seeded, wall_ms);
        if crash == Crash::PowerCut {
            self.device.disk.cut_power(&mut self.seeded);
        }
        self.end(crash);
        Ok(())
    }

    /// All shards have stopped: the engine leaves the sign of it.
    pub fn stopped(&mut self) -> Checked {
        self.note(format_args!("STOPPED cleanly"));
        self.claim();
        let wall_ms = self.now().wall_ms;
        self.device.kill(&mut self.seeded, wall_ms);
        self.write_all_checkpoints();
        let failed = self.cores.iter().any(|core| core.has_failed);
        if !failed {
            self.device.disk.texts.insert(clean_mark(), String::new());
        }
        let crash = self.any_crash();
        if crash == Crash::PowerCut {
            self.device.disk.cut_power(&mut self.seeded);
        }
        self.clean_stops += 1;
        self.end(crash);
        Ok(())
    }

    fn end(&mut self, crash: Crash) {
        self.oracle.crashed(crash);
        self.cores.clear();
        self.parts.clear();
        self.channels.clear();
        self.up = false;
        self.accepting = false;
        self.stopping = false;
        self.checkpoints_due = false;
        self.crash_in = None;
        self.device.metadata_frozen = false;
        self.incarnation += 1;
        for client in &mut self.clients {
            client.lost_connection();
        }
        self.net.connections.clear();
        let delay = self.seeded.between(1_000, 500_000);
        self.later(delay, Action::Start);
    }

    /// Replicas that the metadata does not know are put aside (L-10), once per start.
    pub fn put_strays_aside(&mut self) -> Checked {
        let Some(image) = self.image.clone() else {
            return Ok(());
        };
        let strays: Vec<TopicPartition> = self
            .device
            .places
            .keys()
            .filter(|id| **id != METADATA_LOG && image.partition(**id).is_none())
            .copied()
            .collect();
        for id in strays {
            if let Some(path) = self.device.places.remove(&id) {
                self.device.rename_away(&path, "stray");
            }
        }
        let there = image.sorted_topics();
        let there: BTreeMap<String, Uuid> = there
            .iter()
            .map(|topic| (topic.name.as_str().to_owned(), topic.id))
            .collect();
        must!(
            there.len() == image.topic_count(),
            "every topic has one name"
        );
        self.oracle.check_topics(&there)
    }
}

fn clean_mark() -> Path {
    (0, ".kafka_cleanshutdown".to_owned())
}

//! Loads the metadata directory at start and lets the controller take it over (kraft.md 9.1, 10). Before any core runs; may block.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corelog_io::disk::dir;
use corelog_shards::base::ids::{METADATA_LOG, Op, Text, TopicPartition};
use corelog_shards::base::time::Now;
use corelog_shards::controller::{
    Controller, Loaded, QuorumState, Settings, SnapshotFile, log_config,
};
use corelog_shards::effect::Outbox;
use corelog_shards::log::{Log, Shutdown};
use corelog_shards::metadata::{Endpoint, Identity as ImageIdentity, Image};

use super::log_dirs::{LogDirs, seed_of};
use super::random_u64;
use super::recovery::{Opening, open};
use super::start::ServeError;
use super::storage::{self, Checkpoints, METADATA_LOG_NAME};
use crate::config::BrokerConfig;
use crate::config::format::{BOOTSTRAP_FILE_NAME, Identity};

/// What stands when the metadata is loaded.
pub struct Metadata {
    pub controller: Controller,
    /// What the controller wishes already.
    pub outbox: Outbox,
    pub dirs: Arc<LogDirs>,
    /// Replicas that are on disk.
    pub found: Vec<TopicPartition>,
    pub shutdown: Shutdown,
    /// The image as far as it was durable before this start.
    pub image: Arc<Image>,
}

/// A private mark beside Kafka's files: the leader epoch under which this broker last ran. If quorum-state has moved on, another
/// broker has had the directory in between, and its crash is not ours.
const OWNER_FILE: &str = ".corelog";
const QUORUM_STATE: &str = "quorum-state";

pub fn load(
    config: &BrokerConfig,
    identity: &Identity,
    shards: u16,
    now: Now,
    endpoints: Vec<Endpoint>,
) -> Result<Metadata, ServeError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |why: io::Error| ServeError::Directory {
            path: path.clone(),
            why,
        }
    };
    let metadata_dir = config.metadata_log_dir.join(METADATA_LOG_NAME);
    let quorum = read_quorum_state(&metadata_dir)?;
    let roots = config.all_dirs();
    let mut clean = true;
    let mut checkpoints = Vec::new();
    for root in &roots {
        clean &= storage::take_clean_shutdown(root)
            .map_err(at(root))?
            .is_some();
        checkpoints.push(Checkpoints::read(root).map_err(at(root))?);
    }
    let shutdown = match (
        clean,
        was_ours(&config.metadata_log_dir, quorum.leader_epoch),
    ) {
        (true, _) => Shutdown::Clean,
        (false, true) => Shutdown::Crashed,
        (false, false) => Shutdown::CrashedElsewhere,
    };
    let seed =
        identity.directory_ids.first().map_or(0, |id| seed_of(*id)) ^ u128::from(random_u64());
    let metadata_checkpoint = checkpoints.first().map_or((0, 0), |checkpoints| {
        let key = ("__cluster_metadata".to_owned(), 0);
        let get = |of: &std::collections::BTreeMap<(String, i32), i64>| {
            of.get(&key).copied().unwrap_or(0)
        };
        (
            get(&checkpoints.recovery_points),
            get(&checkpoints.log_starts),
        )
    });
    let dirs = Arc::new(LogDirs::new(roots.clone(), checkpoints, seed));
    let found = list_replicas(&roots, &dirs)?;

    let log = open_metadata_log(config, &metadata_dir, metadata_checkpoint, shutdown, now)?;
    dirs.found(
        METADATA_LOG,
        metadata_index(config, &roots),
        METADATA_LOG_NAME.to_owned(),
    );
    let failed = |why: String| ServeError::Metadata {
        path: metadata_dir.clone(),
        why,
    };
    let image_identity = ImageIdentity {
        node_id: identity.node_id,
        cluster_id: Text::from(identity.cluster_id.clone()),
        shards,
        statics: config.statics_for_image(),
    };
    let snapshot = newest_snapshot(&metadata_dir).map_err(at(&metadata_dir))?;
    let segments = read_segments(&metadata_dir).map_err(at(&metadata_dir))?;
    let loaded = Loaded::read(&image_identity, snapshot.as_ref(), segments)
        .map_err(|failure| failed(failure.to_string()))?;
    let image = Arc::new(loaded.image().clone());
    let elected = quorum.elected(identity.node_id);
    // Durable before the controller acts in its epoch (9.1).
    dir::write_atomically(
        &metadata_dir.join(QUORUM_STATE),
        elected.to_json().as_bytes(),
    )
    .map_err(at(&metadata_dir))?;
    dir::write_atomically(
        &config.metadata_log_dir.join(OWNER_FILE),
        elected.leader_epoch.to_string().as_bytes(),
    )
    .map_err(at(&config.metadata_log_dir))?;
    let mut log_dirs = identity.directory_ids.clone();
    log_dirs.sort_unstable();
    let settings = Settings {
        identity: image_identity,
        num_partitions: config.num_partitions,
        default_replication_factor: config.default_replication_factor,
        delete_topic_enable: config.delete_topic_enable,
        rack: config.rack.clone().map(Text::from),
        broker_endpoints: endpoints,
        controller_endpoints: Vec::new(),
        log_dirs,
        shutdown,
        snapshot_bytes: config.snapshot_after_bytes,
        snapshot_interval_ms: config.snapshot_after_ms,
        seed: random_u64(),
    };
    let bootstrap = read_if_there(&config.metadata_log_dir.join(BOOTSTRAP_FILE_NAME))
        .map_err(at(&config.metadata_log_dir))?;
    let mut outbox = Outbox::new();
    let controller = Controller::start(
        now,
        settings,
        elected.leader_epoch,
        log,
        loaded,
        bootstrap,
        &mut outbox,
    )
    .map_err(|failure| failed(failure.to_string()))?;
    Ok(Metadata {
        controller,
        outbox,
        dirs,
        found,
        shutdown,
        image,
    })
}

fn metadata_index(config: &BrokerConfig, roots: &[PathBuf]) -> u16 {
    roots
        .iter()
        .position(|root| *root == config.metadata_log_dir)
        .unwrap_or(0) as u16
}

fn was_ours(metadata_log_dir: &Path, leader_epoch: i32) -> bool {
    let mark = fs::read_to_string(metadata_log_dir.join(OWNER_FILE));
    mark.is_ok_and(|mark| mark.trim() == leader_epoch.to_string())
}

fn read_quorum_state(directory: &Path) -> Result<QuorumState, ServeError> {
    let path = directory.join(QUORUM_STATE);
    match fs::read_to_string(&path) {
        Ok(text) => QuorumState::parse(&text).map_err(|why| ServeError::Metadata {
            path,
            why: why.to_string(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(QuorumState::new()),
        Err(why) => Err(ServeError::Directory { path, why }),
    }
}

/// Tells `dirs` what is on disk: replicas, strays, deletions that were begun.
fn list_replicas(roots: &[PathBuf], dirs: &LogDirs) -> Result<Vec<TopicPartition>, ServeError> {
    let mut logs = Vec::new();
    for (index, root) in roots.iter().enumerate() {
        let at = |why| ServeError::Directory {
            path: root.clone(),
            why,
        };
        let found = storage::scan(root).map_err(at)?;
        for path in found.to_delete {
            dirs.doom(path, Duration::ZERO);
        }
        for name in found.nameless {
            let renamed = dirs.stray(index as u16, &name).map_err(at)?;
            tracing::warn!(directory = %renamed.display(), "a replica without partition.metadata: renamed; remove it if its data is not needed");
        }
        for log in found.logs {
            logs.push(log.id);
            dirs.found(log.id, index as u16, log.name);
        }
    }
    Ok(logs)
}

fn open_metadata_log(
    config: &BrokerConfig,
    directory: &Path,
    (recovery_point, log_start): (i64, i64),
    shutdown: Shutdown,
    now: Now,
) -> Result<Box<Log>, ServeError> {
    if !directory.join("partition.metadata").exists() {
        storage::create_log(
            &config.metadata_log_dir,
            METADATA_LOG_NAME,
            METADATA_LOG.topic_id,
        )
        .map_err(|why| ServeError::Directory {
            path: directory.to_owned(),
            why,
        })?;
    }
    let opening = Opening {
        id: METADATA_LOG,
        slot: Op::CONTROLLER,
        directory,
        recovery_point,
        log_start,
        config: Arc::new(log_config()),
        shutdown,
        now,
    };
    open(opening).map_err(|failure| ServeError::Metadata {
        path: directory.to_owned(),
        why: failure.reason,
    })
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// `<end offset>-<epoch>.checkpoint`; the one of the bootstrap (0-0) is not a snapshot of the log.
fn newest_snapshot(directory: &Path) -> io::Result<Option<SnapshotFile>> {
    let mut found = Vec::new();
    for name in names(directory)? {
        let parsed = name
            .strip_suffix(".checkpoint")
            .and_then(|stem| stem.split_once('-'));
        let Some((end_offset, epoch)) = parsed
            .and_then(|(end, epoch)| Some((end.parse::<i64>().ok()?, epoch.parse::<i32>().ok()?)))
        else {
            continue;
        };
        if end_offset > 0 {
            found.push((end_offset, epoch, name));
        }
    }
    let Some((end_offset, epoch, name)) = found.pop() else {
        return Ok(None);
    };
    Ok(Some(SnapshotFile {
        end_offset,
        epoch,
        content: Bytes::from(fs::read(directory.join(name))?),
        older: found
            .into_iter()
            .map(|(end_offset, epoch, _)| (end_offset, epoch))
            .collect(),
    }))
}

fn read_segments(directory: &Path) -> io::Result<Vec<Bytes>> {
    let logs = names(directory)?.into_iter().filter(|name| {
        Path::new(name)
            .extension()
            .is_some_and(|extension| extension == "log")
    });
    logs.map(|name| fs::read(directory.join(name)).map(Bytes::from))
        .collect()
}

fn read_if_there(path: &Path) -> io::Result<Option<Bytes>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(Bytes::from(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

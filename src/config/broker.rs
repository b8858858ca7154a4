//! The configuration of a broker, typed and checked as a whole. Units are in the names, as in Kafka's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use corelog_io::cpu;

use super::listeners::Listeners;
use super::memory::{self, MemoryPlan};
use super::settings::{ConfigError, Settings};

/// What the engine, the APIs and the console need to know. Immutable: what may change while the broker runs is in the metadata image.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    pub node_id: i32,
    pub rack: Option<String>,
    pub listeners: Listeners,
    /// At least one; the first holds `__cluster_metadata-0` unless `metadata_log_dir` says otherwise.
    pub log_dirs: Vec<PathBuf>,
    /// One of `log_dirs`, or a directory of its own.
    pub metadata_log_dir: PathBuf,
    /// `None` = no console.
    pub admin_listener: Option<String>,

    pub engine: EngineKind,
    /// `num.network.threads` and `num.io.threads`: of the classic engine only.
    pub network_threads: u32,
    pub io_threads: u32,
    /// `None` = all that the cpuset and the CPU quota allow.
    pub cores: Option<Vec<usize>>,
    /// `None` = one per core.
    pub shards: Option<u16>,
    pub memory: MemoryPlan,

    pub connections: ConnectionLimits,
    pub queued_max_requests: u32,
    pub fetch_max_bytes: u32,
    pub fetch_session_slots: u32,
    pub max_request_partition_size_limit: i32,

    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub auto_create_topics: bool,
    pub delete_topic_enable: bool,
    /// Everything that was given, by Kafka's name (source STATIC_BROKER_CONFIG, D-4).
    pub statics: BTreeMap<String, String>,

    pub tasks: TaskTimes,
    pub recovery_threads_per_dir: u32,
    /// 0 = left to the kernel.
    pub write_behind_bytes: u32,
    /// A test's hold on the disk.
    pub test_stall_file: Option<PathBuf>,
    pub snapshot_after_bytes: u64,
    pub snapshot_after_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// One pinned thread per core.
    Percore,
    /// Network threads, one queue, handler threads, as in Kafka.
    Classic,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// `None` = as the system has it.
    pub send_buffer_bytes: Option<u32>,
    /// `None` = as the system has it.
    pub receive_buffer_bytes: Option<u32>,
    pub backlog: u32,
    /// `None` = never.
    pub idle_max_ms: Option<u64>,
    pub max: u32,
    pub max_per_ip: u32,
    pub max_per_ip_overrides: BTreeMap<IpAddr, u32>,
    pub receive_timeout_ms: u32,
    pub send_timeout_ms: u32,
}

/// When the periodic tasks run (L-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskTimes {
    pub first_after_ms: u64,
    pub retention_every_ms: u64,
    pub recovery_points_every_ms: u64,
    pub log_starts_every_ms: u64,
    pub high_watermarks_every_ms: u64,
}

impl BrokerConfig {
    /// What the metadata image takes the defaults of topics from, below dynamic settings.
    pub fn statics_for_image(&self) -> Arc<BTreeMap<String, String>> {
        Arc::new(self.statics.clone())
    }

    /// Reads what the table cannot check by itself. Touches nothing.
    pub fn of(settings: &Settings) -> Result<BrokerConfig, ConfigError> {
        let mut problems = Vec::new();
        refuse_what_is_not_built(settings, &mut problems);
        let listeners = collect(Listeners::of(settings, &host_name()), &mut problems);
        let plan = MemoryPlan::of(settings, memory::memory_of_this_process());
        let memory = collect(plan, &mut problems);
        let log_dirs = log_dirs(settings, &mut problems);
        let cores = core_list(settings, &mut problems);
        let connections = connections(settings, &mut problems);
        for name in ["num.network.threads", "num.io.threads"] {
            let threads: u32 = settings.number(name);
            if threads > THREADS_MAX {
                problems.push(format!(
                    "{name}={threads}: more threads than the engine can name; give at most {THREADS_MAX}"
                ));
            }
        }
        match (listeners, memory) {
            (Some(listeners), Some(memory)) if problems.is_empty() => Ok(assemble(
                settings,
                listeners,
                memory,
                log_dirs,
                cores,
                connections,
            )),
            _ => Err(ConfigError::Invalid(problems)),
        }
    }

    /// The log directories and, when it is not one of them, the metadata directory.
    pub fn all_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = self.log_dirs.clone();
        if !dirs.contains(&self.metadata_log_dir) {
            dirs.push(self.metadata_log_dir.clone());
        }
        dirs
    }
}

fn assemble(
    settings: &Settings,
    listeners: Listeners,
    memory: MemoryPlan,
    log_dirs: Vec<PathBuf>,
    cores: Option<Vec<usize>>,
    connections: ConnectionLimits,
) -> BrokerConfig {
    let metadata_log_dir = settings
        .effective("metadata.log.dir")
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| log_dirs[0].clone(), PathBuf::from);
    BrokerConfig {
        node_id: settings.number("node.id"),
        rack: settings.effective("broker.rack"),
        listeners,
        metadata_log_dir,
        log_dirs,
        admin_listener: settings
            .effective("admin.listener")
            .filter(|address| !address.is_empty()),
        engine: match settings.text("engine").as_str() {
            "classic" => EngineKind::Classic,
            _ => EngineKind::Percore,
        },
        network_threads: settings.number("num.network.threads"),
        io_threads: settings.number("num.io.threads"),
        cores,
        shards: settings
            .effective("shards")
            .map(|_| settings.number("shards")),
        memory,
        connections,
        queued_max_requests: settings.number("queued.max.requests"),
        fetch_max_bytes: settings.number("fetch.max.bytes"),
        fetch_session_slots: settings.number("max.incremental.fetch.session.cache.slots"),
        max_request_partition_size_limit: settings.number("max.request.partition.size.limit"),
        num_partitions: settings.number("num.partitions"),
        default_replication_factor: settings.number("default.replication.factor"),
        auto_create_topics: settings.flag("auto.create.topics.enable"),
        delete_topic_enable: settings.flag("delete.topic.enable"),
        statics: settings.given().clone(),
        tasks: TaskTimes {
            first_after_ms: settings.number("log.initial.task.delay.ms"),
            retention_every_ms: settings.number("log.retention.check.interval.ms"),
            recovery_points_every_ms: settings.number("log.flush.offset.checkpoint.interval.ms"),
            log_starts_every_ms: settings.number("log.flush.start.offset.checkpoint.interval.ms"),
            high_watermarks_every_ms: settings
                .number("replica.high.watermark.checkpoint.interval.ms"),
        },
        recovery_threads_per_dir: settings.number("num.recovery.threads.per.data.dir"),
        write_behind_bytes: settings.number("log.write.behind.bytes"),
        test_stall_file: settings
            .effective("test.disk.stall.file")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
        snapshot_after_bytes: settings.number("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_after_ms: settings.number("metadata.log.max.snapshot.interval.ms"),
    }
}

/// The classic engine numbers its threads in 10 bits. More would not help on any machine.
const THREADS_MAX: u32 = 1024;

/// What would be unsafe, or wrong, to ignore.
fn refuse_what_is_not_built(settings: &Settings, problems: &mut Vec<String>) {
    let roles: BTreeSet<String> = settings.list("process.roles").into_iter().collect();
    if !roles
        .iter()
        .map(String::as_str)
        .eq(["broker", "controller"])
    {
        problems.push(format!(
            "process.roles={}: joining other controllers is not built yet; give broker,controller, or leave it out",
            settings.text("process.roles")
        ));
    }
    if settings.list("controller.quorum.voters").len() > 1 {
        problems.push(format!(
            "controller.quorum.voters={}: this broker is its own and only controller; leave the property out",
            settings.text("controller.quorum.voters")
        ));
    }
    if settings.flag("remote.log.storage.system.enable") {
        problems.push(
            "remote.log.storage.system.enable=true: tiered storage is not built; set it to false"
                .to_owned(),
        );
    }
    let authorizer = settings.text("authorizer.class.name");
    if !authorizer.is_empty() {
        problems.push(format!(
            "authorizer.class.name={authorizer}: authorisation is not built yet and would be skipped; leave the property out"
        ));
    }
}

fn log_dirs(settings: &Settings, problems: &mut Vec<String>) -> Vec<PathBuf> {
    let dirs: Vec<PathBuf> = settings
        .list("log.dirs")
        .into_iter()
        .map(PathBuf::from)
        .collect();
    let distinct: BTreeSet<&PathBuf> = dirs.iter().collect();
    if dirs.is_empty() || dirs.iter().any(|dir| dir.as_os_str().is_empty()) {
        problems.push("log.dirs: no directory; give at least one path".to_owned());
    } else if distinct.len() < dirs.len() {
        problems.push("log.dirs: a directory stands twice; give each one once".to_owned());
    }
    dirs
}

fn core_list(settings: &Settings, problems: &mut Vec<String>) -> Option<Vec<usize>> {
    let text = settings
        .effective("cores")
        .filter(|text| !text.is_empty())?;
    let parsed = cpu::parse_core_list(&text, &cpu::allowed_cores());
    let parsed = parsed.map_err(|why| ConfigError::one(format!("cores: {why}")));
    collect(parsed, problems)
}

fn connections(settings: &Settings, problems: &mut Vec<String>) -> ConnectionLimits {
    let buffer = |name| u32::try_from(settings.number::<i64>(name)).ok();
    let mut max_per_ip_overrides = BTreeMap::new();
    for entry in settings.list("max.connections.per.ip.overrides") {
        // From the right: IPv6 addresses have colons too.
        let pair = entry.rsplit_once(':').and_then(|(address, count)| {
            let address = address.trim_start_matches('[').trim_end_matches(']');
            Some((address.parse().ok()?, count.trim().parse().ok()?))
        });
        match pair {
            Some((address, count)) => {
                max_per_ip_overrides.insert(address, count);
            }
            None => problems.push(format!(
                "max.connections.per.ip.overrides: \"{entry}\" is no pair; give address:count with a numeric address"
            )),
        }
    }
    ConnectionLimits {
        send_buffer_bytes: buffer("socket.send.buffer.bytes"),
        receive_buffer_bytes: buffer("socket.receive.buffer.bytes"),
        backlog: settings.number("socket.listen.backlog.size"),
        idle_max_ms: u64::try_from(settings.number::<i64>("connections.max.idle.ms")).ok(),
        max: settings.number("max.connections"),
        max_per_ip: settings.number("max.connections.per.ip"),
        max_per_ip_overrides,
        receive_timeout_ms: settings.number("connection.receive.timeout.ms"),
        send_timeout_ms: settings.number("connection.send.timeout.ms"),
    }
}

fn collect<T>(result: Result<T, ConfigError>, problems: &mut Vec<String>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(ConfigError::Invalid(more)) => {
            problems.extend(more);
            None
        }
        Err(other) => {
            problems.push(other.to_string());
            None
        }
    }
}

/// The name of this machine, which Kafka advertises for a listener on all interfaces.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Result<BrokerConfig, ConfigError> {
        let settings = Settings::from_pairs(pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())))?;
        BrokerConfig::of(&settings)
    }

    #[test]
    fn it_starts_without_any_file() {
        let config = config(&[]).unwrap();
        assert_eq!(config.node_id, 1);
        assert_eq!(config.log_dirs, [PathBuf::from("./data")]);
        assert_eq!(config.metadata_log_dir, PathBuf::from("./data"));
        assert_eq!(config.all_dirs().len(), 1);
        assert_eq!(config.admin_listener.as_deref(), Some("127.0.0.1:9644"));
        assert_eq!((config.cores, config.shards), (None, None));
        assert!(config.statics.is_empty());
        assert_eq!(config.connections.send_buffer_bytes, Some(102_400));
    }

    #[test]
    fn kafkas_own_example_file_is_accepted_as_it_is() {
        let config = config(&[
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            ("controller.quorum.bootstrap.servers", "localhost:9093"),
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("inter.broker.listener.name", "PLAINTEXT"),
            ("controller.listener.names", "CONTROLLER"),
            (
                "listener.security.protocol.map",
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            ),
            ("num.network.threads", "3"),
            ("num.io.threads", "8"),
            ("log.dirs", "/tmp/kraft-combined-logs"),
            ("num.recovery.threads.per.data.dir", "2"),
            ("offsets.topic.replication.factor", "1"),
            ("share.coordinator.state.topic.min.isr", "1"),
            ("log.retention.hours", "168"),
        ])
        .unwrap();
        assert_eq!(config.statics_for_image()["log.retention.hours"], "168");
        assert_eq!(config.listeners.open.len(), 1);
    }

    #[test]
    fn minus_one_and_null_become_none() {
        let core = cpu::allowed_cores()[0];
        let config = config(&[
            ("socket.send.buffer.bytes", "-1"),
            ("connections.max.idle.ms", "-1"),
            ("admin.listener", ""),
            ("shards", "4"),
            ("cores", &core.to_string()),
            ("max.connections.per.ip.overrides", "127.0.0.1:5,[::1]:6"),
        ])
        .unwrap();
        assert_eq!(config.connections.send_buffer_bytes, None);
        assert_eq!(config.connections.idle_max_ms, None);
        assert_eq!(config.connections.max_per_ip_overrides.len(), 2);
        assert_eq!(config.admin_listener, None);
        assert_eq!(config.shards, Some(4));
        assert_eq!(config.cores, Some(vec![core]));
    }

    #[test]
    fn what_must_not_be_ignored_is_refused() {
        for (name, value, part) in [
            (
                "process.roles",
                "broker",
                "joining other controllers is not built",
            ),
            ("authorizer.class.name", "a.B", "authorisation is not built"),
            ("remote.log.storage.system.enable", "true", "tiered storage"),
            ("controller.quorum.voters", "1@a:1,2@b:1", "only controller"),
            ("log.dirs", "a,a", "stands twice"),
            ("log.dirs", "", "no directory"),
            ("cores", "x", "neither a core nor a range"),
            ("max.connections.per.ip.overrides", "localhost", "no pair"),
        ] {
            let error = config(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(part), "{name}={value}: {error}");
        }
    }

    #[test]
    fn no_value_that_the_table_allows_makes_it_panic() {
        let extremes = [
            i64::MIN,
            i32::MIN.into(),
            -2,
            -1,
            0,
            1,
            40_000,
            i32::MAX.into(),
            i64::MAX,
        ];
        for row in table::properties() {
            for value in extremes {
                let text = value.to_string();
                if let Ok(settings) = Settings::from_pairs([(row.name.to_owned(), text)]) {
                    let _ = BrokerConfig::of(&settings);
                }
            }
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let error = config(&[
            ("process.roles", "broker"),
            ("log.dirs", ""),
            ("cores", "x"),
        ])
        .unwrap_err()
        .to_string();
        assert!(error.starts_with("3 things are wrong"), "{error}");
    }
}

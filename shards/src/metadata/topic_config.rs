//! The configuration that a partition runs with (kafka.md 13.2, column T): the one table of topic properties, and their values parsed.
//!
//! Everything that says something about a topic property takes it from [`TOPIC_PROPERTIES`]: parsing, the checks of CreateTopics and
//! (Incremental)AlterConfigs, DescribeConfigs, and the broker's table of properties for the names that topics share with it (12.1).

use super::properties::{Check, InvalidValue, Kind, Property, Value, find};

const fn property(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    check: Check,
    server: Option<&'static str>,
    doc: &'static str,
) -> Property {
    Property {
        name,
        kind,
        default,
        check,
        server_default_name: server,
        server_synonyms: &[],
        doc,
    }
}

const fn with_synonyms(
    mut property: Property,
    synonyms: &'static [(&'static str, i64)],
) -> Property {
    property.server_synonyms = synonyms;
    property
}

const NO_TIERED_STORAGE: &str = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.";
const HOUR_MS: i64 = 3_600_000;

/// Every property of a topic, in the order of their names.
#[rustfmt::skip]
pub const TOPIC_PROPERTIES: &[Property] = &[
    property("cleanup.policy", Kind::List, "delete", Check::OneOf(&["compact", "delete"]), Some("log.cleanup.policy"), "What happens to old segments: they are deleted, compacted, or both. Empty: neither."),
    property("compression.gzip.level", Kind::Int, "-1", Check::GzipLevel, Some("compression.gzip.level"), "The level at which the broker compresses with gzip."),
    property("compression.lz4.level", Kind::Int, "9", Check::Between(1, 17), Some("compression.lz4.level"), "The level at which the broker compresses with lz4."),
    property("compression.type", Kind::String, "producer", Check::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Some("compression.type"), "The codec in which batches are stored; 'producer' keeps what the producer sent."),
    property("compression.zstd.level", Kind::Int, "3", Check::Between(-131_072, 22), Some("compression.zstd.level"), "The level at which the broker compresses with zstd."),
    property("delete.retention.ms", Kind::Long, "86400000", Check::AtLeast(0), Some("log.cleaner.delete.retention.ms"), "How long a compacted topic keeps the markers of deleted keys."),
    property("file.delete.delay.ms", Kind::Long, "60000", Check::AtLeast(0), Some("log.segment.delete.delay.ms"), "How long a file stays on disk, renamed, after it was deleted from the log."),
    property("flush.messages", Kind::Long, "9223372036854775807", Check::AtLeast(1), Some("log.flush.interval.messages"), "After how many messages the log is synced to disk."),
    with_synonyms(property("flush.ms", Kind::Long, "9223372036854775807", Check::AtLeast(0), Some("log.flush.interval.ms"), "After how much time the log is synced to disk."), &[("log.flush.scheduler.interval.ms", 1)]),
    property("follower.replication.throttled.replicas", Kind::List, "", Check::ThrottledReplicas, None, "Replicas whose replication is throttled at the follower."),
    property("index.interval.bytes", Kind::Int, "4096", Check::AtLeast(0), Some("log.index.interval.bytes"), "How many bytes of log lie between two entries of the offset index."),
    property("leader.replication.throttled.replicas", Kind::List, "", Check::ThrottledReplicas, None, "Replicas whose replication is throttled at the leader."),
    property("local.retention.bytes", Kind::Long, "-2", Check::AtLeast(-2), Some("log.local.retention.bytes"), "Of no effect without tiered storage."),
    property("local.retention.ms", Kind::Long, "-2", Check::AtLeast(-2), Some("log.local.retention.ms"), "Of no effect without tiered storage."),
    property("max.compaction.lag.ms", Kind::Long, "9223372036854775807", Check::AtLeast(1), Some("log.cleaner.max.compaction.lag.ms"), "How long a message of a compacted topic may stay uncompacted."),
    property("max.message.bytes", Kind::Int, "1048588", Check::AtLeast(0), Some("message.max.bytes"), "The largest record batch that is accepted, after compression."),
    property("message.timestamp.after.max.ms", Kind::Long, "3600000", Check::AtLeast(0), Some("log.message.timestamp.after.max.ms"), "How far a message's timestamp may lie after the broker's time."),
    property("message.timestamp.before.max.ms", Kind::Long, "9223372036854775807", Check::AtLeast(0), Some("log.message.timestamp.before.max.ms"), "How far a message's timestamp may lie before the broker's time."),
    property("message.timestamp.type", Kind::String, "CreateTime", Check::OneOf(&["CreateTime", "LogAppendTime"]), Some("log.message.timestamp.type"), "Whose clock a message's timestamp is read from."),
    property("min.cleanable.dirty.ratio", Kind::Double, "0.5", Check::BetweenDouble(0.0, 1.0), Some("log.cleaner.min.cleanable.ratio"), "How much of the log must be uncompacted before it is compacted again."),
    property("min.compaction.lag.ms", Kind::Long, "0", Check::AtLeast(0), Some("log.cleaner.min.compaction.lag.ms"), "How long a message stays uncompacted at least."),
    property("min.insync.replicas", Kind::Int, "1", Check::AtLeast(1), Some("min.insync.replicas"), "How many replicas must be in sync for a produce with acks=all."),
    property("preallocate", Kind::Boolean, "false", Check::Any, Some("log.preallocate"), "Whether a segment file is preallocated."),
    property("remote.log.copy.disable", Kind::Boolean, "false", Check::OnlyFalse(NO_TIERED_STORAGE), None, "Of no effect without tiered storage."),
    property("remote.log.delete.on.disable", Kind::Boolean, "false", Check::OnlyFalse(NO_TIERED_STORAGE), None, "Of no effect without tiered storage."),
    property("remote.storage.enable", Kind::Boolean, "false", Check::OnlyFalse(NO_TIERED_STORAGE), None, "Tiered storage, which this broker does not have."),
    property("retention.bytes", Kind::Long, "-1", Check::Any, Some("log.retention.bytes"), "How large a partition may grow before its oldest segments are deleted; -1: no limit."),
    with_synonyms(property("retention.ms", Kind::Long, "604800000", Check::AtLeast(-1), Some("log.retention.ms"), "How old a segment may grow before it is deleted; -1: no limit."), &[("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)]),
    property("segment.bytes", Kind::Int, "1073741824", Check::AtLeast(1_048_576), Some("log.segment.bytes"), "The size of a segment file."),
    property("segment.index.bytes", Kind::Int, "10485760", Check::AtLeast(4), Some("log.index.size.max.bytes"), "The size of an index file."),
    with_synonyms(property("segment.jitter.ms", Kind::Long, "0", Check::AtLeast(0), Some("log.roll.jitter.ms"), "How much a segment's rolling is brought forward at random."), &[("log.roll.jitter.hours", HOUR_MS)]),
    with_synonyms(property("segment.ms", Kind::Long, "604800000", Check::AtLeast(1), Some("log.roll.ms"), "After how much time a segment is rolled although it is not full."), &[("log.roll.hours", HOUR_MS)]),
    property("unclean.leader.election.enable", Kind::Boolean, "false", Check::Any, Some("unclean.leader.election.enable"), "Whether a replica that is not in sync may become the leader."),
];

/// The topic property with this name.
pub fn topic_property(name: &str) -> Option<&'static Property> {
    find(TOPIC_PROPERTIES, name)
}

/// The topic property that the broker property `name` gives the default of, and what the value is to be multiplied by.
pub fn by_server_name(name: &str) -> Option<(&'static Property, i64)> {
    TOPIC_PROPERTIES.iter().find_map(|property| {
        if property.server_default_name == Some(name) {
            return Some((property, 1));
        }
        let (_, factor) = property
            .server_synonyms
            .iter()
            .find(|(synonym, _)| *synonym == name)?;
        Some((property, *factor))
    })
}

/// Numbers of the broker that every partition runs with and no topic can change; all are at least 1.
pub(super) const BROKER_NUMBERS: &[&str] = &[
    "producer.id.expiration.ms",
    "producer.id.expiration.check.interval.ms",
];

/// Effective values; the units are in the names, the defaults are Kafka's.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    pub compression_type: CompressionType,
    pub gzip_level: i32,
    pub lz4_level: i32,
    pub zstd_level: i32,
    pub segment_bytes: u32,
    /// i64::MAX = never
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub segment_index_bytes: u32,
    pub index_interval_bytes: u32,
    /// -1 = no limit
    pub retention_ms: i64,
    /// -1 = no limit
    pub retention_bytes: i64,
    pub file_delete_delay_ms: u64,
    /// i64::MAX = never by count
    pub flush_messages: i64,
    /// i64::MAX = never by time
    pub flush_ms: i64,
    pub max_message_bytes: u32,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    pub min_insync_replicas: u32,
    pub preallocate: bool,
    pub delete_retention_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub unclean_leader_election: bool,
    /// Of the broker, the same for all topics, as the next (I-7).
    pub producer_expiration_ms: i64,
    pub producer_check_ms: u64,
}

/// `cleanup.policy`: both may hold, or neither (L-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// Keep what the producer sent.
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

impl TopicConfig {
    /// Sets the property `name` to `raw`. Properties that no partition has to know are checked and otherwise left alone.
    pub fn set(&mut self, property: &Property, raw: &str) -> Result<(), InvalidValue> {
        match property.parse(raw)? {
            Value::Boolean(value) => self.set_flag(property.name, value),
            Value::Number(value) => self.set_number(property.name, value),
            Value::Double(value) => self.min_cleanable_dirty_ratio = value,
            Value::String(value) => self.set_choice(property.name, &value),
            Value::List(values) => {
                if property.name == "cleanup.policy" {
                    self.cleanup_policy = CleanupPolicy {
                        delete: values.iter().any(|value| value == "delete"),
                        compact: values.iter().any(|value| value == "compact"),
                    };
                }
            }
        }
        Ok(())
    }

    /// Sets one of [`BROKER_NUMBERS`].
    pub(super) fn set_broker_number(&mut self, name: &str, value: i64) {
        match name {
            "producer.id.expiration.ms" => self.producer_expiration_ms = value,
            "producer.id.expiration.check.interval.ms" => self.producer_check_ms = value as u64,
            _ => {}
        }
    }

    fn set_flag(&mut self, name: &str, value: bool) {
        match name {
            "preallocate" => self.preallocate = value,
            "unclean.leader.election.enable" => self.unclean_leader_election = value,
            _ => {}
        }
    }

    fn set_choice(&mut self, name: &str, value: &str) {
        match (name, value) {
            ("compression.type", "uncompressed") => {
                self.compression_type = CompressionType::Uncompressed;
            }
            ("compression.type", "gzip") => self.compression_type = CompressionType::Gzip,
            ("compression.type", "snappy") => self.compression_type = CompressionType::Snappy,
            ("compression.type", "lz4") => self.compression_type = CompressionType::Lz4,
            ("compression.type", "zstd") => self.compression_type = CompressionType::Zstd,
            ("compression.type", _) => self.compression_type = CompressionType::Producer,
            ("message.timestamp.type", "LogAppendTime") => {
                self.timestamp_type = TimestampType::LogAppendTime;
            }
            ("message.timestamp.type", _) => self.timestamp_type = TimestampType::CreateTime,
            _ => {}
        }
    }

    /// The value has passed the property's check, so none of the conversions loses anything.
    fn set_number(&mut self, name: &str, value: i64) {
        match name {
            "compression.gzip.level" => self.gzip_level = value as i32,
            "compression.lz4.level" => self.lz4_level = value as i32,
            "compression.zstd.level" => self.zstd_level = value as i32,
            "segment.bytes" => self.segment_bytes = value as u32,
            "segment.ms" => self.segment_ms = value,
            "segment.jitter.ms" => self.segment_jitter_ms = value,
            "segment.index.bytes" => self.segment_index_bytes = value as u32,
            "index.interval.bytes" => self.index_interval_bytes = value as u32,
            "retention.ms" => self.retention_ms = value,
            "retention.bytes" => self.retention_bytes = value,
            "file.delete.delay.ms" => self.file_delete_delay_ms = value as u64,
            "flush.messages" => self.flush_messages = value,
            "flush.ms" => self.flush_ms = value,
            "max.message.bytes" => self.max_message_bytes = value as u32,
            "message.timestamp.before.max.ms" => self.timestamp_before_max_ms = value,
            "message.timestamp.after.max.ms" => self.timestamp_after_max_ms = value,
            "min.insync.replicas" => self.min_insync_replicas = value as u32,
            "delete.retention.ms" => self.delete_retention_ms = value,
            "min.compaction.lag.ms" => self.min_compaction_lag_ms = value,
            "max.compaction.lag.ms" => self.max_compaction_lag_ms = value,
            _ => {}
        }
    }
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            cleanup_policy: CleanupPolicy {
                delete: true,
                compact: false,
            },
            compression_type: CompressionType::Producer,
            gzip_level: -1,
            lz4_level: 9,
            zstd_level: 3,
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            retention_ms: 7 * 24 * 3_600_000,
            retention_bytes: -1,
            file_delete_delay_ms: 60_000,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            min_insync_replicas: 1,
            preallocate: false,
            delete_retention_ms: 86_400_000,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            unclean_leader_election: false,
            producer_expiration_ms: 86_400_000,
            producer_check_ms: 600_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_table_are_the_defaults_of_the_struct() {
        let mut from_table = TopicConfig {
            // Values that are no default, so that a property that is not set would be seen.
            segment_bytes: 7,
            retention_ms: 7,
            flush_ms: 7,
            max_message_bytes: 7,
            min_cleanable_dirty_ratio: 0.7,
            ..TopicConfig::default()
        };
        for property in TOPIC_PROPERTIES {
            from_table
                .set(property, property.default)
                .expect("defaults are valid");
        }
        assert_eq!(from_table, TopicConfig::default());
    }

    #[test]
    fn the_table_is_sorted_by_name() {
        assert!(TOPIC_PROPERTIES.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn broker_names_lead_to_topic_properties() {
        let of = |name| by_server_name(name).map(|(property, factor)| (property.name, factor));
        assert_eq!(of("log.roll.hours"), Some(("segment.ms", 3_600_000)));
        assert_eq!(of("log.retention.minutes"), Some(("retention.ms", 60_000)));
        assert_eq!(of("message.max.bytes"), Some(("max.message.bytes", 1)));
        assert_eq!(of("num.partitions"), None);
    }

    #[test]
    fn tiered_storage_is_refused() {
        let property = topic_property("remote.storage.enable").expect("known");
        assert!(property.parse("true").is_err());
        assert!(property.parse("false").is_ok());
    }
}

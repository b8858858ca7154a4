//! The settings of the group coordinator (kafka.md 13.5), by Kafka's names, as the metadata image has them.

use corelog_wire::compress::Codec;

use crate::metadata::Image;
use crate::metadata::configs::Source;

/// Times in milliseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    pub session_timeout_min_ms: i32,
    pub session_timeout_max_ms: i32,
    pub initial_rebalance_delay_ms: u64,
    pub size_max: usize,
    pub offset_metadata_bytes_max: usize,
    pub offsets_retention_ms: i64,
    pub expiration_check_interval_ms: u64,
    pub commit_timeout_ms: u64,
    pub load_buffer_bytes: u32,
    pub offsets_codec: Codec,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            size_max: i32::MAX as usize,
            offset_metadata_bytes_max: 4_096,
            offsets_retention_ms: 10_080 * 60_000,
            expiration_check_interval_ms: 600_000,
            commit_timeout_ms: 5_000,
            load_buffer_bytes: 5_242_880,
            offsets_codec: Codec::None,
        }
    }
}

impl GroupConfig {
    /// What the image's configuration file says, else the default. The broker has checked every value at start.
    pub fn of(image: &Image) -> GroupConfig {
        let number = |name: &str| -> Option<i64> {
            let value = image.configs.server_value(Source::Static, name)?;
            value.trim().parse().ok()
        };
        let millis = |name: &str, default: u64| {
            number(name).map_or(default, |value| u64::try_from(value).unwrap_or(0))
        };
        let bounded = |name: &str, default: i32| {
            number(name).map_or(default, |value| i32::try_from(value).unwrap_or(default))
        };
        let own = GroupConfig::default();
        GroupConfig {
            session_timeout_min_ms: bounded(
                "group.min.session.timeout.ms",
                own.session_timeout_min_ms,
            ),
            session_timeout_max_ms: bounded(
                "group.max.session.timeout.ms",
                own.session_timeout_max_ms,
            ),
            initial_rebalance_delay_ms: millis(
                "group.initial.rebalance.delay.ms",
                own.initial_rebalance_delay_ms,
            ),
            size_max: bounded("group.max.size", i32::MAX).max(1) as usize,
            offset_metadata_bytes_max: millis("offset.metadata.max.bytes", 4_096) as usize,
            offsets_retention_ms: number("offsets.retention.minutes")
                .map_or(own.offsets_retention_ms, |minutes| {
                    minutes.saturating_mul(60_000)
                }),
            expiration_check_interval_ms: millis(
                "offsets.retention.check.interval.ms",
                own.expiration_check_interval_ms,
            ),
            commit_timeout_ms: millis("offsets.commit.timeout.ms", own.commit_timeout_ms),
            load_buffer_bytes: bounded("offsets.load.buffer.size", 5_242_880).unsigned_abs(),
            offsets_codec: number("offsets.topic.compression.codec")
                .and_then(|code| Codec::from_id(u8::try_from(code).ok()?))
                .unwrap_or(Codec::None),
        }
    }
}

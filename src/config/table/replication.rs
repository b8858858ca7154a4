//! Replication (kafka.md 13.3).

use super::{Property, bool, int, long, text};

#[rustfmt::skip]
pub(super) const ROWS: &[Property] = &[
    bool("auto.leader.rebalance.enable", Some("true")),
    int("default.replication.factor", Some("1")).within(1, 32_767).used("Replication factor of a topic that is created without one."),
    int("delete.records.purgatory.purge.interval.requests", Some("1")),
    int("fetch.purgatory.purge.interval.requests", Some("1000")),
    bool("follower.fetch.last.tiered.offset.enable", Some("false")).cluster_wide(),
    long("leader.imbalance.check.interval.seconds", Some("300")).at_least(1),
    int("num.replica.alter.log.dirs.threads", None),
    int("num.replica.fetchers", Some("1")).at_least(1).cluster_wide(),
    int("producer.purgatory.purge.interval.requests", Some("1000")),
    int("replica.fetch.backoff.ms", Some("1000")).at_least(0),
    int("replica.fetch.max.bytes", Some("1048576")).at_least(0),
    int("replica.fetch.min.bytes", Some("1")),
    int("replica.fetch.response.max.bytes", Some("10485760")).at_least(0),
    int("replica.fetch.wait.max.ms", Some("500")),
    long("replica.high.watermark.checkpoint.interval.ms", Some("5000")).at_least(1).used("How often high watermarks are written."),
    long("replica.lag.time.max.ms", Some("30000")),
    text("replica.selector.class", None),
    int("replica.socket.receive.buffer.bytes", Some("65536")),
    int("replica.socket.timeout.ms", Some("30000")),
    int("share.fetch.purgatory.purge.interval.requests", Some("1000")),
    long("unclean.leader.election.interval.ms", Some("300000")).at_least(1).internal(),
    long("replica.alter.log.dirs.io.max.bytes.per.second", Some("9223372036854775807")).at_least(0).cluster_wide(),
    long("leader.replication.throttled.rate", Some("9223372036854775807")).at_least(0).cluster_wide(),
    long("follower.replication.throttled.rate", Some("9223372036854775807")).at_least(0).cluster_wide(),
];

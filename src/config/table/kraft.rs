//! The control plane (kafka.md 13.4).

use super::{Property, bool, int, list, long};

#[rustfmt::skip]
pub(super) const ROWS: &[Property] = &[
    int("broker.heartbeat.interval.ms", Some("2000")),
    int("broker.session.timeout.ms", Some("9000")),
    list("controller.listener.names", Some("")).used("Listeners of this list are not opened: the controller is embedded."),
    long("controller.performance.always.log.threshold.ms", Some("2000")).at_least(0).internal(),
    long("controller.performance.sample.period.ms", Some("60000")).at_least(100).internal(),
    int("controller.quorum.append.linger.ms", Some("25")).at_least(0),
    bool("controller.quorum.auto.join.enable", Some("false")),
    list("controller.quorum.bootstrap.servers", Some("")),
    int("controller.quorum.election.backoff.max.ms", Some("1000")).at_least(0),
    int("controller.quorum.election.timeout.ms", Some("1000")).at_least(0),
    int("controller.quorum.fetch.max.bytes", Some("1048576")).at_least(1),
    int("controller.quorum.fetch.snapshot.max.bytes", Some("1048576")).at_least(1),
    int("controller.quorum.fetch.timeout.ms", Some("2000")).at_least(0),
    int("controller.quorum.request.timeout.ms", Some("2000")).at_least(0),
    int("controller.quorum.retry.backoff.ms", Some("20")).at_least(0),
    list("controller.quorum.voters", Some("")).used("At most this node: the controller is embedded."),
    int("controller.socket.timeout.ms", Some("30000")),
    int("initial.broker.registration.timeout.ms", Some("60000")),
    long("internal.metadata.delete.delay.millis", Some("60000")).internal(),
    int("internal.metadata.log.segment.bytes", None).internal(),
    int("internal.metadata.max.batch.size.in.bytes", Some("8388608")).internal(),
    long("metadata.log.max.record.bytes.between.snapshots", Some("20971520")).at_least(1).used("Bytes of metadata records after which a snapshot is written."),
    long("metadata.log.max.snapshot.interval.ms", Some("3600000")).at_least(0).used("Time after which a snapshot of new metadata records is written."),
    int("metadata.log.segment.bytes", Some("1073741824")).at_least(8_388_608),
    long("metadata.log.segment.ms", Some("604800000")),
    int("metadata.max.idle.interval.ms", Some("500")).at_least(0),
    long("metadata.max.retention.bytes", Some("104857600")),
    long("metadata.max.retention.ms", Some("604800000")),
    long("server.max.startup.time.ms", Some("9223372036854775807")).at_least(0).internal(),
];

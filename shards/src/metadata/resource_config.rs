//! Properties of groups and of client-metrics subscriptions (D-4: resource types 32 and 16).
//!
//! They are stored, checked and described here; what acts on them are the group coordinators and telemetry.

use super::properties::{Check, Kind, Property, find};

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

/// Every property of a group, in the order of their names (13.5).
#[rustfmt::skip]
pub const GROUP_PROPERTIES: &[Property] = &[
    property("consumer.assignment.interval.ms", Kind::Int, "1000", Check::Between(0, 15_000), Some("group.consumer.assignment.interval.ms"), "How long a consumer group waits between two assignments."),
    property("consumer.heartbeat.interval.ms", Kind::Int, "5000", Check::Between(5_000, 15_000), Some("group.consumer.heartbeat.interval.ms"), "How often members of a consumer group send a heartbeat."),
    property("consumer.session.timeout.ms", Kind::Int, "45000", Check::Between(45_000, 60_000), Some("group.consumer.session.timeout.ms"), "How long a consumer group waits for a member's heartbeat."),
    property("share.assignment.interval.ms", Kind::Int, "1000", Check::Between(0, 15_000), Some("group.share.assignment.interval.ms"), "How long a share group waits between two assignments."),
    property("share.auto.offset.reset", Kind::String, "latest", Check::Any, None, "Where a share group starts that has no offset."),
    property("share.delivery.count.limit", Kind::Int, "5", Check::Between(2, 10), Some("group.share.delivery.count.limit"), "How often a record is delivered to a share group."),
    property("share.heartbeat.interval.ms", Kind::Int, "5000", Check::Between(5_000, 15_000), Some("group.share.heartbeat.interval.ms"), "How often members of a share group send a heartbeat."),
    property("share.isolation.level", Kind::String, "read_uncommitted", Check::OneOf(&["read_committed", "read_uncommitted"]), None, "Which records a share group sees of transactions."),
    property("share.partition.max.record.locks", Kind::Int, "2000", Check::Between(100, 4_000), Some("group.share.partition.max.record.locks"), "How many records of a partition a share group may hold."),
    property("share.record.lock.duration.ms", Kind::Int, "30000", Check::Between(15_000, 60_000), Some("group.share.record.lock.duration.ms"), "How long a share group holds a record."),
    property("share.renew.acknowledge.enable", Kind::Boolean, "true", Check::Any, None, "Whether members of a share group may extend how long they hold a record."),
    property("share.session.timeout.ms", Kind::Int, "45000", Check::Between(45_000, 60_000), Some("group.share.session.timeout.ms"), "How long a share group waits for a member's heartbeat."),
    property("streams.assignment.interval.ms", Kind::Int, "1000", Check::Between(0, 15_000), Some("group.streams.assignment.interval.ms"), "How long a streams group waits between two assignments."),
    property("streams.heartbeat.interval.ms", Kind::Int, "5000", Check::Between(5_000, 15_000), Some("group.streams.heartbeat.interval.ms"), "How often members of a streams group send a heartbeat."),
    property("streams.initial.rebalance.delay.ms", Kind::Int, "3000", Check::AtLeast(0), Some("group.streams.initial.rebalance.delay.ms"), "How long an empty streams group waits for more members."),
    property("streams.num.standby.replicas", Kind::Int, "0", Check::Between(0, 2), Some("group.streams.num.standby.replicas"), "How many standby replicas a streams task has."),
    property("streams.session.timeout.ms", Kind::Int, "45000", Check::Between(45_000, 60_000), Some("group.streams.session.timeout.ms"), "How long a streams group waits for a member's heartbeat."),
];

/// Every property of a client-metrics subscription (8.3).
#[rustfmt::skip]
pub const CLIENT_METRICS_PROPERTIES: &[Property] = &[
    property("interval.ms", Kind::Int, "300000", Check::Between(100, 3_600_000), None, "How often clients push their metrics."),
    property("match", Kind::List, "", Check::Any, None, "Which clients push: selector=pattern, separated by commas."),
    property("metrics", Kind::List, "", Check::Any, None, "Which metrics are pushed, by the beginning of their names."),
];

/// The group property with this name.
pub fn group_property(name: &str) -> Option<&'static Property> {
    find(GROUP_PROPERTIES, name)
}

/// The client-metrics property with this name.
pub fn client_metrics_property(name: &str) -> Option<&'static Property> {
    find(CLIENT_METRICS_PROPERTIES, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid() {
        for property in GROUP_PROPERTIES.iter().chain(CLIENT_METRICS_PROPERTIES) {
            assert!(
                property.parse(property.default).is_ok(),
                "{}",
                property.name
            );
        }
    }
}

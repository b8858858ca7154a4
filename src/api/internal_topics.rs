//! The settings of topics that the broker creates by itself (M-4): internal ones have their own.

use corelog_shards::base::ids::Text;
use corelog_shards::controller::request::{NewTopic, Setting};

use super::BrokerView;
use crate::config::table;

/// The topic `name` as it is created when a client asks for it.
pub(super) fn new_topic(broker: &BrokerView, name: &Text) -> NewTopic {
    let numbers = match &**name {
        "__consumer_offsets" => Some("offsets.topic"),
        "__transaction_state" => Some("transaction.state.log"),
        "__share_group_state" => Some("share.coordinator.state.topic"),
        _ => None,
    };
    let Some(prefix) = numbers else {
        return NewTopic {
            name: name.clone(),
            partitions: -1,
            replication_factor: -1,
            ..NewTopic::default()
        };
    };
    let number = |suffix: &str| value(broker, &format!("{prefix}.{suffix}"));
    NewTopic {
        name: name.clone(),
        partitions: number("num.partitions")
            .and_then(|text| text.parse().ok())
            .unwrap_or(-1),
        replication_factor: number("replication.factor")
            .and_then(|text| text.parse().ok())
            .unwrap_or(-1),
        settings: settings(name, number("segment.bytes"), number("min.isr")),
        ..NewTopic::default()
    }
}

/// What Kafka gives them.
fn settings(name: &str, segment_bytes: Option<String>, min_isr: Option<String>) -> Vec<Setting> {
    let is_offsets = name == "__consumer_offsets";
    let compression = if name == "__transaction_state" {
        "uncompressed"
    } else {
        "producer"
    };
    let mut all = vec![
        (
            "cleanup.policy",
            if name == "__share_group_state" {
                "delete"
            } else {
                "compact"
            }
            .to_owned(),
        ),
        ("compression.type", compression.to_owned()),
    ];
    all.extend(segment_bytes.map(|bytes| ("segment.bytes", bytes)));
    all.extend(
        min_isr
            .filter(|_| !is_offsets)
            .map(|count| ("min.insync.replicas", count)),
    );
    if name == "__transaction_state" {
        all.push(("unclean.leader.election.enable", "false".to_owned()));
    }
    if name == "__share_group_state" {
        all.push(("retention.ms", "-1".to_owned()));
    }
    all.into_iter()
        .map(|(name, value)| Setting {
            name: Text::from_static(name),
            value: Some(Text::from(value)),
        })
        .collect()
}

/// What the file says, else the default.
fn value(broker: &BrokerView, name: &str) -> Option<String> {
    let given = broker.statics.get(name).cloned();
    given.or_else(|| table::property(name)?.default.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::super::testing::broker_view;
    use super::*;

    #[test]
    fn the_offsets_topic_has_its_own_numbers() {
        let mut broker = broker_view();
        broker
            .statics
            .insert("offsets.topic.num.partitions".to_owned(), "8".to_owned());
        let topic = new_topic(&broker, &Text::from_static("__consumer_offsets"));
        assert_eq!((topic.partitions, topic.replication_factor), (8, 1));
        let names: Vec<&str> = topic
            .settings
            .iter()
            .map(|setting| &*setting.name)
            .collect();
        assert_eq!(
            names,
            ["cleanup.policy", "compression.type", "segment.bytes"]
        );
        let other = new_topic(&broker, &Text::from_static("t"));
        assert_eq!((other.partitions, other.replication_factor), (-1, -1));
        assert!(other.settings.is_empty());
    }
}

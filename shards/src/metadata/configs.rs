//! Where a setting comes from (kafka.md 12.1, D-4): the topic, the broker's dynamic settings, the cluster's dynamic defaults, the
//! configuration file, the default.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::properties::{InvalidValue, Property};
use super::topic_config::{
    BROKER_NUMBERS, TOPIC_PROPERTIES, TopicConfig, by_server_name, topic_property,
};
use crate::base::ids::Text;

/// The settings of one resource as they were given, by name.
pub type Overrides = BTreeMap<Text, Text>;

/// Kinds of resources as the protocol numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    Topic,
    Broker,
    BrokerLogger,
    ClientMetrics,
    Group,
}

impl ResourceKind {
    pub fn from_code(code: i8) -> Option<ResourceKind> {
        match code {
            2 => Some(ResourceKind::Topic),
            4 => Some(ResourceKind::Broker),
            8 => Some(ResourceKind::BrokerLogger),
            16 => Some(ResourceKind::ClientMetrics),
            32 => Some(ResourceKind::Group),
            _ => None,
        }
    }

    pub fn code(self) -> i8 {
        match self {
            ResourceKind::Topic => 2,
            ResourceKind::Broker => 4,
            ResourceKind::BrokerLogger => 8,
            ResourceKind::ClientMetrics => 16,
            ResourceKind::Group => 32,
        }
    }
}

/// Where a value was found, as DescribeConfigs numbers it (D-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Topic,
    DynamicBroker,
    DynamicDefault,
    Static,
    Default,
    BrokerLogger,
    ClientMetrics,
    Group,
}

impl Source {
    pub fn code(self) -> i8 {
        match self {
            Source::Topic => 1,
            Source::DynamicBroker => 2,
            Source::DynamicDefault => 3,
            Source::Static => 4,
            Source::Default => 5,
            Source::BrokerLogger => 6,
            Source::ClientMetrics => 7,
            Source::Group => 8,
        }
    }
}

/// One place that says a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    /// The property's name there: a broker property's outside of the topic itself.
    pub name: String,
    pub value: String,
    pub source: Source,
    /// The value in the unit of the property that was asked for (hours become milliseconds).
    pub converted: String,
}

/// Where a broker's property may be said, the place that counts first.
const SERVER_SOURCES: [Source; 3] = [
    Source::DynamicBroker,
    Source::DynamicDefault,
    Source::Static,
];

/// All settings but those of known topics, which stand with the topics.
#[derive(Debug, Clone, PartialEq)]
pub struct Configs {
    node_name: String,
    /// What the configuration file says.
    statics: Arc<BTreeMap<String, String>>,
    /// By kind and name; a broker's name is its id, "" stands for all brokers. A topic is here only as long as its own record has not come.
    resources: BTreeMap<(ResourceKind, Text), Arc<Overrides>>,
    /// What a topic without settings of its own runs with.
    default_topic: Arc<TopicConfig>,
}

impl Configs {
    pub(super) fn new(node_id: i32, statics: Arc<BTreeMap<String, String>>) -> Configs {
        let mut configs = Configs {
            node_name: node_id.to_string(),
            statics,
            resources: BTreeMap::new(),
            default_topic: Arc::default(),
        };
        configs.default_topic = Arc::new(configs.effective(&Overrides::new()));
        configs
    }

    /// What the resource was given itself.
    pub fn of(&self, kind: ResourceKind, name: &str) -> Option<&Arc<Overrides>> {
        self.resources.get(&(kind, Text::from(name.to_owned())))
    }

    /// Every resource that was given something, but for topics.
    pub fn resources(&self) -> impl Iterator<Item = (ResourceKind, &Text, &Arc<Overrides>)> {
        self.resources
            .iter()
            .map(|((kind, name), overrides)| (*kind, name, overrides))
    }

    /// What a topic without settings of its own runs with.
    pub fn default_topic(&self) -> &Arc<TopicConfig> {
        &self.default_topic
    }

    /// What a topic with these settings runs with.
    pub(super) fn topic(&self, overrides: Option<&Overrides>) -> Arc<TopicConfig> {
        match overrides {
            Some(overrides) if !overrides.is_empty() => Arc::new(self.effective(overrides)),
            _ => self.default_topic.clone(),
        }
    }

    pub(super) fn set(
        &mut self,
        kind: ResourceKind,
        name: &Text,
        key: &Text,
        value: Option<&Text>,
    ) {
        let resource = (kind, name.detached());
        let mut overrides = self.resources.remove(&resource).unwrap_or_default();
        change(&mut overrides, key, value);
        if !overrides.is_empty() {
            self.resources.insert(resource, overrides);
        }
    }

    pub(super) fn take_topic(&mut self, name: &Text) -> Option<Arc<Overrides>> {
        self.resources.remove(&(ResourceKind::Topic, name.clone()))
    }

    /// Computes what topics without settings run with anew; says whether it changed.
    pub(super) fn refresh_default_topic(&mut self) -> bool {
        let refreshed = Arc::new(self.effective(&Overrides::new()));
        let changed = refreshed != self.default_topic;
        self.default_topic = refreshed;
        changed
    }

    /// The settings a topic with these overrides runs with. A stored value that this broker can't read (another release wrote it) is
    /// passed over for the next place that says one: at start there is nobody to refuse it to.
    fn effective(&self, overrides: &Overrides) -> TopicConfig {
        let mut config = TopicConfig::default();
        for property in TOPIC_PROPERTIES {
            for synonym in self.synonyms(property, Some(overrides)) {
                if config.set(property, &synonym.converted).is_ok() {
                    break;
                }
                tracing::warn!(
                    property = %synonym.name,
                    value = %synonym.value,
                    "a stored setting can't be read by this release and is passed over"
                );
            }
        }
        for name in BROKER_NUMBERS {
            if let Some(value) = self.broker_number(name) {
                config.set_broker_number(name, value);
            }
        }
        config
    }

    fn broker_number(&self, name: &str) -> Option<i64> {
        let said = SERVER_SOURCES
            .into_iter()
            .filter_map(|source| self.server_value(source, name));
        said.filter_map(|value| value.trim().parse().ok())
            .find(|value| *value >= 1)
    }

    /// Every place that says a value of a topic property, the one that counts first.
    pub fn synonyms(&self, property: &Property, overrides: Option<&Overrides>) -> Vec<Synonym> {
        let own = overrides.and_then(|overrides| overrides.get(property.name));
        let mut found: Vec<Synonym> = own
            .map(|value| Synonym {
                name: property.name.to_owned(),
                value: value.to_string(),
                source: Source::Topic,
                converted: value.to_string(),
            })
            .into_iter()
            .collect();
        let Some(server_name) = property.server_default_name else {
            found.push(Configs::default_synonym(property, property.name));
            return found;
        };
        let names =
            std::iter::once((server_name, 1)).chain(property.server_synonyms.iter().copied());
        for source in SERVER_SOURCES {
            for (name, factor) in names.clone() {
                let value = self.server_value(source, name);
                found.extend(value.map(|value| Synonym {
                    name: name.to_owned(),
                    converted: converted(&value, factor),
                    value,
                    source,
                }));
            }
        }
        found.push(Configs::default_synonym(property, server_name));
        found
    }

    fn default_synonym(property: &Property, name: &str) -> Synonym {
        Synonym {
            name: name.to_owned(),
            value: property.default.to_owned(),
            source: Source::Default,
            converted: property.default.to_owned(),
        }
    }

    /// What `source` says of a broker property.
    pub fn server_value(&self, source: Source, name: &str) -> Option<String> {
        let overrides = match source {
            Source::DynamicBroker => self.of(ResourceKind::Broker, &self.node_name),
            Source::DynamicDefault => self.of(ResourceKind::Broker, ""),
            Source::Static => return self.statics.get(name).cloned(),
            _ => None,
        };
        Some(overrides?.get(name)?.to_string())
    }
}

/// Sets or removes one setting.
pub(super) fn change(overrides: &mut Arc<Overrides>, key: &Text, value: Option<&Text>) {
    let overrides = Arc::make_mut(overrides);
    match value {
        Some(value) => {
            overrides.insert(key.detached(), value.detached());
        }
        None => {
            overrides.remove(key);
        }
    }
}

/// `value` times `factor`; what is no number, or -1 for "no limit", stays as it is.
fn converted(value: &str, factor: i64) -> String {
    match value.trim().parse::<i64>() {
        Ok(number) if factor != 1 && number >= 0 => number.saturating_mul(factor).to_string(),
        _ => value.to_owned(),
    }
}

/// Why settings of a topic are refused, in Kafka's words. All map to INVALID_CONFIG.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    #[error("Unknown topic config name: {0}")]
    UnknownTopicProperty(String),
    #[error(transparent)]
    Value(#[from] InvalidValue),
    #[error(
        "conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})"
    )]
    CompactionLag { min: i64, max: i64 },
}

/// Checks the settings that a topic is about to have, each by itself and together.
pub fn check_topic(configs: &Configs, overrides: &Overrides) -> Result<(), InvalidConfig> {
    for (name, value) in overrides {
        topic_property(name)
            .ok_or_else(|| InvalidConfig::UnknownTopicProperty(name.to_string()))?
            .parse(value)?;
    }
    let config = configs.effective(overrides);
    let (min, max) = (config.min_compaction_lag_ms, config.max_compaction_lag_ms);
    if min > max {
        return Err(InvalidConfig::CompactionLag { min, max });
    }
    Ok(())
}

/// Checks a broker property that topics have too; others are the business of whoever knows the broker's table.
pub fn check_shared_broker_property(name: &str, value: &str) -> Result<(), InvalidValue> {
    let Some((property, factor)) = by_server_name(name) else {
        return Ok(());
    };
    let named = |invalid: InvalidValue| InvalidValue {
        name: name.to_owned(),
        value: value.to_owned(),
        reason: invalid.reason,
    };
    property
        .parse(&converted(value, factor))
        .map(|_| ())
        .map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configs(statics: &[(&str, &str)]) -> Configs {
        let statics = statics
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Configs::new(1, Arc::new(statics))
    }

    fn text(value: &str) -> Text {
        Text::from(value.to_owned())
    }

    #[test]
    fn a_topic_setting_is_looked_up_in_order_of_precedence() {
        let mut configs = configs(&[("log.retention.hours", "2"), ("log.retention.minutes", "3")]);
        let property = topic_property("retention.ms").expect("known");
        configs.set(
            ResourceKind::Broker,
            &text(""),
            &text("log.retention.ms"),
            Some(&text("20")),
        );
        configs.set(
            ResourceKind::Broker,
            &text("1"),
            &text("log.retention.ms"),
            Some(&text("10")),
        );
        let own = Overrides::from([(text("retention.ms"), text("5"))]);
        let found: Vec<(String, String, Source)> = configs
            .synonyms(property, Some(&own))
            .into_iter()
            .map(|synonym| (synonym.name, synonym.converted, synonym.source))
            .collect();
        let row = |name: &str, value: &str, source| (name.to_owned(), value.to_owned(), source);
        assert_eq!(
            found,
            [
                row("retention.ms", "5", Source::Topic),
                row("log.retention.ms", "10", Source::DynamicBroker),
                row("log.retention.ms", "20", Source::DynamicDefault),
                row("log.retention.minutes", "180000", Source::Static),
                row("log.retention.hours", "7200000", Source::Static),
                row("log.retention.ms", "604800000", Source::Default),
            ]
        );
        assert_eq!(configs.topic(Some(&own)).retention_ms, 5);
        assert!(configs.refresh_default_topic());
        assert_eq!(configs.default_topic().retention_ms, 10);
    }

    #[test]
    fn partitions_forget_producers_when_the_broker_says_so() {
        const NAME: &str = "producer.id.expiration.ms";
        let mut configs = configs(&[(NAME, "7")]);
        assert_eq!(configs.default_topic().producer_expiration_ms, 7);
        assert_eq!(configs.default_topic().producer_check_ms, 600_000);
        let set = |configs: &mut Configs, name: &str, value: Option<&str>| {
            let value = value.map(text);
            configs.set(
                ResourceKind::Broker,
                &text(name),
                &text(NAME),
                value.as_ref(),
            );
            assert!(configs.refresh_default_topic());
            configs.default_topic().producer_expiration_ms
        };
        assert_eq!(set(&mut configs, "", Some("8")), 8);
        assert_eq!(set(&mut configs, "1", Some("9")), 9);
        assert_eq!(set(&mut configs, "1", None), 8);
        // The next place that can be read counts.
        assert_eq!(set(&mut configs, "", Some("0")), 7);
    }

    #[test]
    fn a_stored_value_that_cannot_be_read_is_passed_over() {
        let configs = configs(&[("log.segment.bytes", "2000000")]);
        let own = Overrides::from([(text("segment.bytes"), text("many"))]);
        assert_eq!(configs.topic(Some(&own)).segment_bytes, 2_000_000);
    }

    #[test]
    fn settings_are_checked_together() {
        let configs = configs(&[("log.cleaner.max.compaction.lag.ms", "10")]);
        let own = Overrides::from([(text("min.compaction.lag.ms"), text("11"))]);
        assert_eq!(
            check_topic(&configs, &own),
            Err(InvalidConfig::CompactionLag { min: 11, max: 10 })
        );
        let unknown = Overrides::from([(text("retention"), text("1"))]);
        assert_eq!(
            check_topic(&configs, &unknown).map_err(|invalid| invalid.to_string()),
            Err("Unknown topic config name: retention".to_owned())
        );
    }

    #[test]
    fn broker_properties_that_topics_share_are_checked_by_the_topics_rules() {
        assert!(check_shared_broker_property("log.segment.bytes", "1").is_err());
        assert!(check_shared_broker_property("log.retention.hours", "-1").is_ok());
        assert!(check_shared_broker_property("num.io.threads", "x").is_ok());
    }
}

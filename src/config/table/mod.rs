//! The one table of broker properties: name, type, default, what is allowed, whether it may change while the broker runs, and what it
//! means here. The names, types and limits are Kafka's (kafka.md 13); where a default differs, the row says what it is, and
//! `the_defaults_that_differ_from_kafka` lists them.
//!
//! A row without `used` is accepted, checked, shown by DescribeConfigs, and has no effect: thread pools of a broker that has none, or parts of
//! Kafka that are not built. What must not be ignored silently (security, tiered storage) is refused in [`super::broker`].

mod coordinators;
mod kraft;
mod log;
mod network;
mod own;
mod replication;
mod security;

/// One property.
#[derive(Debug, Clone, Copy)]
pub struct Property {
    pub name: &'static str,
    pub kind: Kind,
    /// `None` = null.
    pub default: Option<&'static str>,
    pub allowed: Allowed,
    pub change: Change,
    /// The topic property that this one is the default of (kafka.md 12.1).
    pub topic: Option<&'static str>,
    /// Properties that stand in when this one is not given, best first, and what their value is multiplied by.
    pub or: &'static [(&'static str, i64)],
    /// Not shown by Kafka's documentation.
    pub internal: bool,
    /// What it does here; empty: nothing.
    pub doc: &'static str,
}

/// Kafka's types of configuration values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Short,
    Int,
    Long,
    Double,
    Text,
    List,
    /// Never shown.
    Password,
    Class,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    Any,
    AtLeast(i64),
    /// Both ends included.
    Within(i64, i64),
    /// For a list: every element is one of these.
    OneOf(&'static [&'static str]),
    OneOfAnyCase(&'static [&'static str]),
}

/// Whether a property may change while the broker runs (kafka.md 12.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    ReadOnly,
    PerBroker,
    ClusterWide,
}

/// All rows, section by section.
pub fn properties() -> impl Iterator<Item = &'static Property> {
    SECTIONS.iter().copied().flatten()
}

/// The row of `name`.
pub fn property(name: &str) -> Option<&'static Property> {
    properties().find(|property| property.name == name)
}

const SECTIONS: &[&[Property]] = &[
    own::ROWS,
    network::ROWS,
    log::ROWS,
    replication::ROWS,
    kraft::ROWS,
    coordinators::ROWS,
    security::ROWS,
];

const fn row(name: &'static str, kind: Kind, default: Option<&'static str>) -> Property {
    Property {
        name,
        kind,
        default,
        allowed: Allowed::Any,
        change: Change::ReadOnly,
        topic: None,
        or: &[],
        internal: false,
        doc: "",
    }
}

const fn bool(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::Bool, default)
}

const fn short(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::Short, default)
}

const fn int(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::Int, default)
}

const fn long(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::Long, default)
}

const fn double(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::Double, default)
}

const fn text(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::Text, default)
}

const fn list(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::List, default)
}

const fn password(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::Password, default)
}

const fn class(name: &'static str, default: Option<&'static str>) -> Property {
    row(name, Kind::Class, default)
}

impl Property {
    const fn at_least(mut self, min: i64) -> Property {
        self.allowed = Allowed::AtLeast(min);
        self
    }

    const fn within(mut self, min: i64, max: i64) -> Property {
        self.allowed = Allowed::Within(min, max);
        self
    }

    const fn one_of(mut self, values: &'static [&'static str]) -> Property {
        self.allowed = Allowed::OneOf(values);
        self
    }

    const fn one_of_any_case(mut self, values: &'static [&'static str]) -> Property {
        self.allowed = Allowed::OneOfAnyCase(values);
        self
    }

    const fn cluster_wide(mut self) -> Property {
        self.change = Change::ClusterWide;
        self
    }

    const fn per_broker(mut self) -> Property {
        self.change = Change::PerBroker;
        self
    }

    const fn topic(mut self, topic: &'static str) -> Property {
        self.topic = Some(topic);
        self
    }

    const fn or(mut self, or: &'static [(&'static str, i64)]) -> Property {
        self.or = or;
        self
    }

    const fn internal(mut self) -> Property {
        self.internal = true;
        self
    }

    const fn used(mut self, doc: &'static str) -> Property {
        self.doc = doc;
        self
    }

    /// Whether the property has an effect here.
    pub const fn is_used(&self) -> bool {
        !self.doc.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Settings, value};
    use super::*;

    /// The broker property that is the default of a topic property.
    fn default_of_topic_property(topic: &str) -> Option<&'static Property> {
        // Rows such as log.retention.hours only stand in for log.retention.ms, which is the one that has them in `or`.
        properties()
            .filter(|property| property.topic == Some(topic))
            .max_by_key(|property| property.or.len())
    }

    #[test]
    fn no_name_stands_twice() {
        let mut seen = BTreeSet::new();
        for property in properties() {
            assert!(seen.insert(property.name), "{} stands twice", property.name);
        }
        assert!(seen.len() > 350);
    }

    #[test]
    fn every_default_is_allowed() {
        for property in properties() {
            if let Some(default) = property.default {
                value::check(property, default).unwrap_or_else(|why| {
                    panic!("{} = {default} is not allowed: {why}", property.name)
                });
            }
        }
    }

    #[test]
    fn what_stands_in_for_a_property_exists() {
        for (name, _) in properties().flat_map(|property| property.or) {
            assert!(property(name).is_some(), "no property {name}");
        }
    }

    /// The image takes static settings as they are, so nothing may pass here that it could not use.
    #[test]
    fn topic_defaults_are_named_limited_and_synonymous_as_the_image_has_them() {
        use corelog_shards::metadata::properties::Check;
        use corelog_shards::metadata::topic_config::TOPIC_PROPERTIES;
        for theirs in TOPIC_PROPERTIES {
            let Some(name) = theirs.server_default_name else {
                continue;
            };
            let ours = default_of_topic_property(theirs.name).expect("a row");
            assert_eq!(ours.name, name);
            assert_eq!(ours.or, theirs.server_synonyms, "{name}");
            let effective = Settings::default().effective(name);
            assert_eq!(effective.as_deref(), Some(theirs.default), "{name}");
            match (ours.allowed, theirs.check) {
                (Allowed::AtLeast(ours), Check::AtLeast(theirs)) => {
                    assert_eq!(ours, theirs, "{name}");
                }
                (Allowed::Within(a, b), Check::Between(c, d)) => {
                    assert_eq!((a, b), (c, d), "{name}");
                }
                (Allowed::Within(0, 1), Check::BetweenDouble(..)) => {}
                (Allowed::OneOf(_), Check::OneOf(_) | Check::GzipLevel) => {}
                (_, Check::Any) => {}
                (ours, theirs) => panic!("{name}: {ours:?} here, {theirs:?} there"),
            }
        }
    }

    #[test]
    fn a_topic_property_has_one_broker_property_that_may_change() {
        let retention = default_of_topic_property("retention.ms").expect("a row");
        assert_eq!(retention.name, "log.retention.ms");
        for topic in properties().filter_map(|property| property.topic) {
            let default = default_of_topic_property(topic).expect("a row");
            assert_eq!(default.change, Change::ClusterWide, "{topic}");
        }
    }

    /// One node must be able to create its own internal topics, and must start without a file.
    #[test]
    fn the_defaults_that_differ_from_kafka() {
        for (name, ours) in [
            ("node.id", "1"),
            ("process.roles", "broker,controller"),
            ("controller.listener.names", ""),
            ("listeners", "PLAINTEXT://127.0.0.1:9092"),
            ("log.dir", "./data"),
            ("offsets.topic.replication.factor", "1"),
            ("transaction.state.log.replication.factor", "1"),
            ("transaction.state.log.min.isr", "1"),
            ("share.coordinator.state.topic.replication.factor", "1"),
            ("share.coordinator.state.topic.min.isr", "1"),
        ] {
            assert_eq!(property(name).and_then(|row| row.default), Some(ours));
        }
    }
}

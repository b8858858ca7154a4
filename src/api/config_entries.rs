//! The settings of a resource as they are described (D-4): value, where it comes from, and every place that says one.

use corelog_shards::metadata::configs::{Overrides, ResourceKind, Source};
use corelog_shards::metadata::properties::Property;
use corelog_shards::metadata::resource_config::{CLIENT_METRICS_PROPERTIES, GROUP_PROPERTIES};
use corelog_shards::metadata::topic_config::TOPIC_PROPERTIES;

use super::Context;
use crate::config::table::{self, Change, Kind};

/// One described setting.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) value: Option<String>,
    pub(super) source: Source,
    pub(super) read_only: bool,
    pub(super) sensitive: bool,
    /// The number of its type.
    pub(super) kind: i8,
    /// (name, value, source), the one that counts first.
    pub(super) synonyms: Vec<(String, Option<String>, Source)>,
    pub(super) doc: &'static str,
}

/// A topic with these settings of its own.
pub(super) fn of_topic<'a>(
    cx: &'a Context<'_>,
    overrides: Option<&'a Overrides>,
) -> impl Iterator<Item = Entry> + 'a {
    TOPIC_PROPERTIES.iter().map(move |property| {
        let synonyms = cx.image.configs.synonyms(property, overrides);
        let first = synonyms.first();
        Entry {
            name: property.name.to_owned(),
            value: first.map(|synonym| synonym.converted.clone()),
            source: first.map_or(Source::Default, |synonym| synonym.source),
            read_only: false,
            sensitive: false,
            kind: property.kind.code(),
            doc: property.doc,
            synonyms: synonyms
                .into_iter()
                .map(|synonym| (synonym.name, Some(synonym.value), synonym.source))
                .collect(),
        }
    })
}

/// This broker: everything that it can be told.
pub(super) fn of_broker<'a>(cx: &'a Context<'_>) -> impl Iterator<Item = Entry> + 'a {
    const SOURCES: &[Source] = &[
        Source::DynamicBroker,
        Source::DynamicDefault,
        Source::Static,
    ];
    table::properties().map(|property| broker_entry(cx, property, SOURCES, true))
}

/// The dynamic defaults of all brokers: only what was set.
pub(super) fn of_all_brokers<'a>(cx: &'a Context<'_>) -> impl Iterator<Item = Entry> + 'a {
    let defaults = cx.image.configs.of(ResourceKind::Broker, "");
    let names = defaults.into_iter().flat_map(|overrides| overrides.keys());
    names
        .filter_map(|name| table::property(name))
        .map(|property| broker_entry(cx, property, &[Source::DynamicDefault], false))
}

fn broker_entry(
    cx: &Context<'_>,
    property: &'static table::Property,
    sources: &[Source],
    defaults: bool,
) -> Entry {
    let sensitive = property.kind == Kind::Password;
    let shown = |value: String| (!sensitive).then_some(value);
    let names = std::iter::once(property.name).chain(property.or.iter().map(|(name, _)| *name));
    let mut synonyms = Vec::new();
    for source in sources {
        for name in names.clone() {
            let value = cx.image.configs.server_value(*source, name);
            synonyms.extend(value.map(|value| (name.to_owned(), shown(value), *source)));
        }
    }
    if defaults {
        let default = |name: &str| table::property(name)?.default.map(str::to_owned);
        let rest = names
            .filter_map(|name| Some((name.to_owned(), shown(default(name)?), Source::Default)));
        synonyms.extend(rest);
    }
    let own = synonyms.iter().find(|(name, ..)| name == property.name);
    Entry {
        name: property.name.to_owned(),
        value: own.and_then(|(_, value, _)| value.clone()),
        source: synonyms
            .first()
            .map_or(Source::Default, |(.., source)| *source),
        read_only: property.change == Change::ReadOnly,
        sensitive,
        kind: kind_code(property.kind),
        doc: property.doc,
        synonyms,
    }
}

fn kind_code(kind: Kind) -> i8 {
    match kind {
        Kind::Bool => 1,
        Kind::Text => 2,
        Kind::Int => 3,
        Kind::Short => 4,
        Kind::Long => 5,
        Kind::Double => 6,
        Kind::List => 7,
        Kind::Class => 8,
        Kind::Password => 9,
    }
}

/// A group or a client-metrics subscription, which may have no settings at all.
pub(super) fn of_resource(cx: &Context<'_>, kind: ResourceKind, name: &str) -> Vec<Entry> {
    let (table, own): (&[Property], Source) = match kind {
        ResourceKind::Group => (GROUP_PROPERTIES, Source::Group),
        _ => (CLIENT_METRICS_PROPERTIES, Source::ClientMetrics),
    };
    let overrides = cx.image.configs.of(kind, name);
    table
        .iter()
        .map(|property| {
            let given = overrides.and_then(|overrides| overrides.get(property.name));
            let mut synonyms: Vec<(String, Option<String>, Source)> = given
                .map(|value| (property.name.to_owned(), Some(value.to_string()), own))
                .into_iter()
                .collect();
            if let Some(server) = property.server_default_name {
                let sources = [
                    Source::DynamicBroker,
                    Source::DynamicDefault,
                    Source::Static,
                ];
                synonyms.extend(sources.iter().filter_map(|source| {
                    let value = cx.image.configs.server_value(*source, server)?;
                    Some((server.to_owned(), Some(value), *source))
                }));
            }
            let default_name = property.server_default_name.unwrap_or(property.name);
            synonyms.push((
                default_name.to_owned(),
                Some(property.default.to_owned()),
                Source::Default,
            ));
            Entry {
                name: property.name.to_owned(),
                value: synonyms[0].1.clone(),
                source: synonyms[0].2,
                read_only: false,
                sensitive: false,
                kind: property.kind.code(),
                doc: property.doc,
                synonyms,
            }
        })
        .collect()
}

/// The one logger there is; its level is set at start.
pub(super) fn of_loggers() -> Entry {
    Entry {
        name: "root".to_owned(),
        value: Some("INFO".to_owned()),
        source: Source::BrokerLogger,
        read_only: true,
        sensitive: false,
        kind: 2,
        synonyms: Vec::new(),
        doc: "The level of this broker's log.",
    }
}

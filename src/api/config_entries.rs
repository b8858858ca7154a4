//! The settings of a resource as they are described (D-4): value, where it comes from, and every place that says one.

use corelog_shards::metadata::configs::{Overrides, ResourceKind, Source};
use corelog_shards::metadata::properties::Property;
use corelog_shards::metadata::resource_config::{CLIENT_METRICS_PROPERTIES, GROUP_PROPERTIES};
use corelog_shards::metadata::topic_config::TOPIC_PROPERTIES;

use super::Context;
use crate::config::table::{self, Change, Kind};

/// One place that says a value: name there, value, kind of place.
pub(super) type SynonymOf = (String, Option<String>, Source);

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
    /// The one that counts first.
    pub(super) synonyms: Vec<SynonymOf>,
    pub(super) doc: &'static str,
}

/// A topic with these settings of its own.
pub(super) fn of_topic<'a>(
    cx: &'a Context<'_>,
    overrides: Option<&'a Overrides>,
) -> impl Iterator<Item = Entry> + 'a {
    TOPIC_PROPERTIES.iter().map(move |property| {
        let places = cx.image.configs.synonyms(property, overrides);
        let value = places.first().map(|place| place.converted.clone());
        let (own, servers): (Vec<_>, Vec<_>) = places
            .into_iter()
            .filter(|place| place.source != Source::Default)
            .map(|place| (place.name, Some(place.value), place.source))
            .partition(|(.., source)| *source == Source::Topic);
        let server = property.server_default_name.and_then(table::property);
        let servers = server.map_or(Vec::new(), |server| from_its_name(server, servers));
        let synonyms: Vec<SynonymOf> = own.into_iter().chain(servers).collect();
        Entry {
            name: property.name.to_owned(),
            value,
            source: first_source(&synonyms),
            read_only: false,
            sensitive: false,
            kind: property.kind.code(),
            doc: property.doc,
            synonyms,
        }
    })
}

/// What is said of a broker property, and its defaults, from the first place on that says it under the property's own name: Kafka does not
/// show that hours stand in for milliseconds that nobody gave.
fn from_its_name(property: &table::Property, said: Vec<SynonymOf>) -> Vec<SynonymOf> {
    let defaults = names_of(property).filter_map(|name| {
        let default = table::property(name)?.default?;
        Some((name.to_owned(), Some(default.to_owned()), Source::Default))
    });
    let all = said.into_iter().chain(defaults);
    all.skip_while(|(name, ..)| name != property.name).collect()
}

/// The names under which a broker property is looked for, for times that may be given in several units.
fn names_of(property: &table::Property) -> impl Iterator<Item = &'static str> + use<> {
    let others = if property.topic.is_some() {
        property.or
    } else {
        &[]
    };
    std::iter::once(property.name).chain(others.iter().map(|(name, _)| *name))
}

fn first_source(synonyms: &[SynonymOf]) -> Source {
    let first = synonyms.first();
    first.map_or(Source::Default, |(.., source)| *source)
}

/// This broker: everything that it can be told. Kafka's internal properties are shown when they are set.
pub(super) fn of_broker<'a>(cx: &'a Context<'_>) -> impl Iterator<Item = Entry> + 'a {
    const SOURCES: &[Source] = &[
        Source::DynamicBroker,
        Source::DynamicDefault,
        Source::Static,
    ];
    let rows = table::properties().map(|row| (row, broker_entry(cx, row, SOURCES, true)));
    rows.filter(|(row, entry)| !row.internal || entry.source != Source::Default)
        .map(|(_, entry)| entry)
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
    let mut said = Vec::new();
    for source in sources {
        for name in names_of(property) {
            let value = cx.image.configs.server_value(*source, name);
            said.extend(value.map(|value| (name.to_owned(), Some(value), *source)));
        }
    }
    let mut synonyms = if defaults {
        from_its_name(property, said)
    } else {
        said
    };
    let value = synonyms.first().and_then(|(_, value, _)| value.clone());
    if sensitive {
        for (_, value, _) in &mut synonyms {
            *value = None;
        }
    }
    Entry {
        name: property.name.to_owned(),
        value: value.filter(|_| !sensitive),
        source: first_source(&synonyms),
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
            let mut synonyms: Vec<SynonymOf> = given
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

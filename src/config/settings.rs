//! What was given, in a file and by overrides, checked: every property known by name, every value allowed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::table::{Kind, Property, properties, property};
use super::{properties as syntax, value};

/// Checked settings: the values that were given, by Kafka's names.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    given: BTreeMap<String, String>,
    warnings: Vec<String>,
}

/// Why the configuration can't be used. Every problem is a sentence that names the property, its value and what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "cannot read the configuration file {}: {why}; check the path given with --config",
        path.display()
    )]
    Unreadable { path: PathBuf, why: std::io::Error },
    #[error("{}, {why}; the file has the syntax of Java properties", path.display())]
    Syntax {
        path: PathBuf,
        why: syntax::SyntaxError,
    },
    #[error("{}", Problems(.0))]
    Invalid(Vec<String>),
}

impl ConfigError {
    pub(crate) fn one(problem: impl Into<String>) -> ConfigError {
        ConfigError::Invalid(vec![problem.into()])
    }
}

struct Problems<'a>(&'a [String]);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [one] => f.write_str(one),
            many => {
                write!(f, "{} things are wrong in the configuration:", many.len())?;
                many.iter()
                    .try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}

impl Settings {
    /// Reads `file`, if any, then applies `overrides` (`key=value` each), which win.
    pub fn load(file: Option<&Path>, overrides: &[String]) -> Result<Settings, ConfigError> {
        let mut pairs = Vec::new();
        if let Some(path) = file {
            let bytes = std::fs::read(path).map_err(|why| ConfigError::Unreadable {
                path: path.to_owned(),
                why,
            })?;
            pairs = syntax::parse(&syntax::decode(bytes)).map_err(|why| ConfigError::Syntax {
                path: path.to_owned(),
                why,
            })?;
        }
        for text in overrides {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                ConfigError::one(format!("--override {text}: give it as property=value"))
            })?;
            pairs.push((key.trim().to_owned(), value.to_owned()));
        }
        Settings::from_pairs(pairs)
    }

    /// The same from pairs; later ones win.
    pub fn from_pairs(
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        for (name, text) in pairs {
            settings.given.insert(name, text.trim().to_owned());
        }
        let mut problems = Vec::new();
        for (name, text) in &settings.given {
            match row_of(name) {
                Some(row) => {
                    if let Err(why) = value::check(row, text) {
                        problems.push(format!("{name}={}: {why}", shown(row, text)));
                    }
                }
                None if is_free(name) => {}
                None => settings.warnings.push(unknown(name)),
            }
        }
        if problems.is_empty() {
            Ok(settings)
        } else {
            Err(ConfigError::Invalid(problems))
        }
    }

    /// What an operator should know of: unknown properties.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Everything that was given, by name, unknown properties included.
    pub fn given(&self) -> &BTreeMap<String, String> {
        &self.given
    }

    /// The value that was given under this very name.
    pub fn given_value(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    /// The effective value: given, else given under a name that stands in for it, else the default. `None` = null.
    ///
    /// Panics if the table has no such property: names come from the code.
    pub fn effective(&self, name: &str) -> Option<String> {
        let row = property(name).unwrap_or_else(|| panic!("no property {name} in the table"));
        if let Some(given) = self.given_value(name) {
            return Some(given.to_owned());
        }
        for (other, factor) in row.or {
            if let Some(given) = self.given_value(other) {
                return Some(scaled(given, *factor));
            }
        }
        if let Some(default) = row.default {
            return Some(default.to_owned());
        }
        row.or.iter().find_map(|(other, factor)| {
            let default = property(other)?.default?;
            Some(scaled(default, *factor))
        })
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.effective(name).unwrap_or_default()
    }

    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        value::parse_list(&text)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        value::parse_bool(&self.text(name)).expect("checked when it was given")
    }

    /// A number as the type that its allowed range fits in.
    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &str) -> T {
        let number: i64 = self
            .text(name)
            .parse()
            .expect("checked when it was given, and never null");
        T::try_from(number)
            .ok()
            .unwrap_or_else(|| panic!("{name}={number} does not fit: the table allows too much"))
    }
}

/// Minutes and hours as milliseconds; -1 (no limit) stays what it is.
fn scaled(text: &str, factor: i64) -> String {
    match (factor, text.parse::<i64>()) {
        (1, _) | (_, Err(_) | Ok(-1)) => text.to_owned(),
        (_, Ok(number)) => number.saturating_mul(factor).to_string(),
    }
}

/// The row of a name; `listener.name.NAME.property` is that property for one listener.
fn row_of(name: &str) -> Option<&'static Property> {
    property(name).or_else(|| {
        let (_, rest) = name.strip_prefix("listener.name.")?.split_once('.')?;
        // Mechanisms come before SASL properties: listener.name.x.scram-sha-256.sasl.jaas.config
        property(rest).or_else(|| property(rest.split_once('.')?.1))
    })
}

/// Names that plugins choose.
fn is_free(name: &str) -> bool {
    ["config.providers.", "rsm.config.", "rlmm.config."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Passwords are not shown, in no message.
fn shown<'a>(row: &Property, text: &'a str) -> &'a str {
    if row.kind == Kind::Password {
        "[hidden]"
    } else {
        text
    }
}

fn unknown(name: &str) -> String {
    match nearest(name) {
        Some(near) => {
            format!("unknown property {name} is ignored; the nearest known one is {near}")
        }
        None => format!("unknown property {name} is ignored"),
    }
}

/// The known name with the fewest edits between, unless nearly everything differs.
fn nearest(name: &str) -> Option<&'static str> {
    properties()
        .map(|row| (edits(name, row.name), row.name))
        .min()
        .filter(|(edits, _)| *edits <= name.len() / 2)
        .map(|(_, near)| near)
}

/// Levenshtein's distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        Settings::from_pairs(pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())))
    }

    #[test]
    fn an_unknown_property_is_a_warning_with_the_nearest_name() {
        let settings = settings(&[("num.partitons", "3"), ("zzz", "1")]).unwrap();
        assert_eq!(
            settings.warnings(),
            [
                "unknown property num.partitons is ignored; the nearest known one is num.partitions",
                "unknown property zzz is ignored"
            ]
        );
    }

    #[test]
    fn every_bad_value_is_named_at_once() {
        let error = settings(&[
            ("num.partitions", "0"),
            ("compression.type", "lzma"),
            ("node.id", "7"),
        ])
        .unwrap_err()
        .to_string();
        assert!(error.contains("num.partitions=0: too small; give a whole number of at least 1"));
        assert!(error.contains("compression.type=lzma"));
        assert!(!error.contains("node.id"));
    }

    #[test]
    fn ms_wins_over_minutes_and_minutes_over_hours() {
        let retention = |pairs| {
            settings(pairs)
                .unwrap()
                .effective("log.retention.ms")
                .unwrap()
        };
        assert_eq!(retention(&[]), "604800000");
        assert_eq!(retention(&[("log.retention.hours", "1")]), "3600000");
        assert_eq!(
            retention(&[("log.retention.hours", "1"), ("log.retention.minutes", "2")]),
            "120000"
        );
        assert_eq!(
            retention(&[("log.retention.minutes", "2"), ("log.retention.ms", "5")]),
            "5"
        );
        assert_eq!(retention(&[("log.retention.hours", "-1")]), "-1");
    }

    #[test]
    fn broker_id_stands_in_for_node_id() {
        let node = |pairs| settings(pairs).unwrap().number::<i32>("node.id");
        assert_eq!(node(&[]), 1);
        assert_eq!(node(&[("broker.id", "5")]), 5);
        assert_eq!(node(&[("broker.id", "5"), ("node.id", "6")]), 6);
    }

    #[test]
    fn properties_of_one_listener_and_of_plugins_are_known() {
        let settings = settings(&[
            ("listener.name.external.ssl.keystore.type", "PEM"),
            ("listener.name.external.plain.sasl.jaas.config", "secret"),
            ("rsm.config.anything", "x"),
        ])
        .unwrap();
        assert_eq!(settings.warnings(), [""; 0]);
    }

    #[test]
    fn an_override_wins_over_the_file_and_needs_an_equals_sign() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.properties");
        std::fs::write(&file, "num.partitions=2\nnode.id = 4").unwrap();
        let settings = Settings::load(Some(&file), &["num.partitions=3".into()]).unwrap();
        assert_eq!(settings.number::<i32>("num.partitions"), 3);
        assert_eq!(settings.number::<i32>("node.id"), 4);
        assert!(Settings::load(None, &["num.partitions".into()]).is_err());
        let missing = Settings::load(Some(&dir.path().join("none")), &[]).unwrap_err();
        assert!(missing.to_string().contains("cannot read"));
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", "abc"), 0);
    }
}

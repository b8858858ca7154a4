//! What a configuration property is: its name, type, default, limits and text. Kafka's names, types and messages (D-4, D-5).
//!
//! The tables that use this are in [`super::topic_config`] and [`super::resource_config`]; the broker's own properties stand in the binary's
//! table, which takes what topics share from here.

use std::fmt;

/// Types as DescribeConfigs numbers them (D-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    String,
    Int,
    Long,
    Double,
    List,
}

impl Kind {
    /// The number of the type in DescribeConfigs.
    pub fn code(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "BOOLEAN",
            Kind::String => "STRING",
            Kind::Int => "INT",
            Kind::Long => "LONG",
            Kind::Double => "DOUBLE",
            Kind::List => "LIST",
        }
    }
}

/// What else a value has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Check {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    BetweenDouble(f64, f64),
    /// -1, or between 1 and 9 (gzip).
    GzipLevel,
    /// A string, or every element of a list.
    OneOf(&'static [&'static str]),
    /// `*`, or a list of `partition:replica` pairs, or `none`.
    ThrottledReplicas,
    /// Tiered storage can't be switched on.
    OnlyFalse(&'static str),
}

/// One property.
#[derive(Debug, Clone, Copy)]
pub struct Property {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub check: Check,
    /// The broker property that says the value for topics without one of their own, if there is one.
    pub server_default_name: Option<&'static str>,
    /// Other broker properties that say the same in another unit, with what their value is to be multiplied by, in falling precedence.
    pub server_synonyms: &'static [(&'static str, i64)],
    pub doc: &'static str,
}

/// A value, parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Boolean(bool),
    String(String),
    Number(i64),
    Double(f64),
    List(Vec<String>),
}

/// Why a value can't be taken, in Kafka's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid value {value} for configuration {name}: {reason}")]
pub struct InvalidValue {
    pub name: String,
    pub value: String,
    pub reason: String,
}

impl Property {
    /// Parses and checks `raw`. Space around a value has no meaning.
    pub fn parse(&self, raw: &str) -> Result<Value, InvalidValue> {
        let value = self
            .read(raw.trim())
            .map_err(|reason| self.invalid(raw, reason))?;
        match self.refuse(&value) {
            Some(reason) => Err(self.invalid(raw, reason)),
            None => Ok(value),
        }
    }

    fn invalid(&self, raw: &str, reason: String) -> InvalidValue {
        InvalidValue {
            name: self.name.to_owned(),
            value: raw.to_owned(),
            reason,
        }
    }

    fn read(&self, raw: &str) -> Result<Value, String> {
        let not_a_number = || format!("Not a number of type {}", self.kind.name());
        match self.kind {
            Kind::Boolean if raw.eq_ignore_ascii_case("true") => Ok(Value::Boolean(true)),
            Kind::Boolean if raw.eq_ignore_ascii_case("false") => Ok(Value::Boolean(false)),
            Kind::Boolean => Err("Expected value to be either true or false".to_owned()),
            Kind::String => Ok(Value::String(raw.to_owned())),
            Kind::Int => raw
                .parse::<i32>()
                .map(|number| Value::Number(number.into()))
                .map_err(|_| not_a_number()),
            Kind::Long => raw.parse().map(Value::Number).map_err(|_| not_a_number()),
            Kind::Double => match raw.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Value::Double(number)),
                _ => Err(not_a_number()),
            },
            Kind::List => Ok(Value::List(split_list(raw).map(str::to_owned).collect())),
        }
    }

    fn refuse(&self, value: &Value) -> Option<String> {
        match (self.check, value) {
            (Check::AtLeast(min), Value::Number(number)) => below(*number, min),
            (Check::Between(min, max), Value::Number(number)) => {
                below(*number, min).or_else(|| above(*number, max))
            }
            (Check::BetweenDouble(min, max), Value::Double(number)) => {
                below(*number, min).or_else(|| above(*number, max))
            }
            (Check::GzipLevel, Value::Number(number)) => (*number != -1
                && !(1..=9).contains(number))
            .then(|| "Value must be between 1 and 9 or equal to -1".to_owned()),
            (Check::OneOf(choices), Value::String(text)) => not_one_of(text, choices),
            (Check::OneOf(choices), Value::List(elements)) => elements
                .iter()
                .find_map(|element| not_one_of(element, choices))
                .or_else(|| duplicate(elements)),
            (Check::ThrottledReplicas, Value::List(elements)) => not_throttled_replicas(elements),
            (Check::OnlyFalse(reason), Value::Boolean(true)) => Some(reason.to_owned()),
            _ => None,
        }
    }
}

/// The elements of a list as Kafka cuts it: at commas, without the space around them, nothing of an empty text.
pub fn split_list(raw: &str) -> impl Iterator<Item = &str> {
    let raw = raw.trim();
    let cut = (!raw.is_empty()).then(|| raw.split(',').map(str::trim));
    cut.into_iter().flatten()
}

fn below<T: PartialOrd + fmt::Display>(number: T, min: T) -> Option<String> {
    (number < min).then(|| format!("Value must be at least {min}"))
}

fn above<T: PartialOrd + fmt::Display>(number: T, max: T) -> Option<String> {
    (number > max).then(|| format!("Value must be no more than {max}"))
}

fn not_one_of(text: &str, choices: &[&str]) -> Option<String> {
    (!choices.contains(&text)).then(|| format!("String must be one of: {}", choices.join(", ")))
}

fn duplicate(elements: &[String]) -> Option<String> {
    let repeated = elements
        .iter()
        .enumerate()
        .any(|(at, element)| elements[..at].contains(element));
    repeated.then(|| "Values must not be duplicated".to_owned())
}

fn not_throttled_replicas(elements: &[String]) -> Option<String> {
    let pair = |element: &String| {
        element.split_once(':').is_some_and(|(partition, replica)| {
            partition.parse::<u32>().is_ok() && replica.parse::<u32>().is_ok()
        })
    };
    let single = |name: &str| elements.len() == 1 && elements[0] == name;
    let fine = single("*") || single("none") || elements.iter().all(pair);
    (!fine).then(|| {
        "Must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            .to_owned()
    })
}

/// The row of `name` in a table.
pub fn find<'a>(table: &'a [Property], name: &str) -> Option<&'a Property> {
    table.iter().find(|property| property.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(kind: Kind, check: Check) -> Property {
        Property {
            name: "p",
            kind,
            default: "",
            check,
            server_default_name: None,
            server_synonyms: &[],
            doc: "",
        }
    }

    fn reason(kind: Kind, check: Check, raw: &str) -> String {
        property(kind, check)
            .parse(raw)
            .expect_err("the value is bad")
            .to_string()
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_in_kafkas_words() {
        assert_eq!(
            reason(Kind::Long, Check::Any, "abc"),
            "Invalid value abc for configuration p: Not a number of type LONG"
        );
        assert_eq!(
            reason(Kind::Int, Check::Any, "2147483648"),
            "Invalid value 2147483648 for configuration p: Not a number of type INT"
        );
        assert_eq!(
            reason(Kind::Boolean, Check::Any, "yes"),
            "Invalid value yes for configuration p: Expected value to be either true or false"
        );
        assert!(property(Kind::Double, Check::Any).parse("NaN").is_err());
    }

    #[test]
    fn a_value_outside_of_its_limits_is_refused_in_kafkas_words() {
        assert_eq!(
            reason(Kind::Int, Check::AtLeast(1), "0"),
            "Invalid value 0 for configuration p: Value must be at least 1"
        );
        assert_eq!(
            reason(Kind::Double, Check::BetweenDouble(0.0, 1.0), "1.5"),
            "Invalid value 1.5 for configuration p: Value must be no more than 1"
        );
        assert_eq!(
            reason(
                Kind::List,
                Check::OneOf(&["compact", "delete"]),
                "compact,x"
            ),
            "Invalid value compact,x for configuration p: String must be one of: compact, delete"
        );
        assert!(property(Kind::Int, Check::GzipLevel).parse("-1").is_ok());
        assert!(property(Kind::Int, Check::GzipLevel).parse("0").is_err());
        assert!(
            property(Kind::List, Check::OneOf(&["a", "b"]))
                .parse("a,a")
                .is_err()
        );
    }

    #[test]
    fn lists_are_cut_at_commas_and_an_empty_text_is_an_empty_list() {
        let list = |raw| property(Kind::List, Check::Any).parse(raw);
        assert_eq!(list(""), Ok(Value::List(vec![])));
        assert_eq!(
            list(" a , b"),
            Ok(Value::List(vec!["a".to_owned(), "b".to_owned()]))
        );
    }

    #[test]
    fn throttled_replicas_are_a_star_or_pairs() {
        let parse = |raw| property(Kind::List, Check::ThrottledReplicas).parse(raw);
        assert!(
            ["", "*", "none", "0:1,1:2"]
                .into_iter()
                .all(|raw| parse(raw).is_ok())
        );
        assert!(
            ["x", "0:1,*", "0-1"]
                .into_iter()
                .all(|raw| parse(raw).is_err())
        );
    }
}

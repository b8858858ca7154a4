//! Values as Kafka reads them: trimmed, typed, checked. Says why not, in words that stand behind "property=value: ".

use super::table::{Allowed, Kind, Property};

/// Whether `text` may be the value of `property`.
pub fn check(property: &Property, text: &str) -> Result<(), String> {
    let text = text.trim();
    match property.kind {
        Kind::Bool => parse_bool(text).map(drop),
        Kind::Short => whole_number(text, i16::MIN.into(), i16::MAX.into())
            .and_then(|number| check_range(property.allowed, number)),
        Kind::Int => whole_number(text, i32::MIN.into(), i32::MAX.into())
            .and_then(|number| check_range(property.allowed, number)),
        Kind::Long => whole_number(text, i64::MIN, i64::MAX)
            .and_then(|number| check_range(property.allowed, number)),
        Kind::Double => {
            parse_double(text).and_then(|number| check_double(property.allowed, number))
        }
        Kind::Text | Kind::Password | Kind::Class => check_word(property.allowed, text),
        Kind::List => parse_list(text)
            .iter()
            .try_for_each(|word| check_word(property.allowed, word)),
    }
    .map_err(|why| format!("{why}; {}", expected(property)))
}

/// What a property takes, for people.
pub fn expected(property: &Property) -> String {
    let what = match property.kind {
        Kind::Bool => return "give true or false".to_owned(),
        Kind::Short | Kind::Int | Kind::Long => "a whole number",
        Kind::Double => "a number",
        Kind::Text | Kind::Password => "a text",
        Kind::Class => "the name of a class",
        Kind::List => "a list separated by commas",
    };
    match property.allowed {
        Allowed::Any => format!("give {what}"),
        Allowed::AtLeast(min) => format!("give {what} of at least {min}"),
        Allowed::Within(min, max) => format!("give {what} from {min} to {max}"),
        Allowed::OneOf(words) | Allowed::OneOfAnyCase(words) if property.kind == Kind::List => {
            format!("give {what}, each one of {}", words.join(", "))
        }
        Allowed::OneOf(words) | Allowed::OneOfAnyCase(words) => {
            format!("give one of {}", words.join(", "))
        }
    }
}

/// `true` or `false` in any case, as Kafka reads it.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err("neither true nor false".to_owned())
    }
}

/// The elements of a list, trimmed. An empty text is an empty list.
pub fn parse_list(text: &str) -> Vec<&str> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(str::trim).collect()
}

fn whole_number(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not a whole number".to_owned());
    }
    match text.parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err("too large a number".to_owned()),
    }
}

fn parse_double(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err("not a number".to_owned()),
    }
}

fn check_range(allowed: Allowed, number: i64) -> Result<(), String> {
    match allowed {
        Allowed::AtLeast(min) if number < min => Err("too small".to_owned()),
        Allowed::Within(min, _) if number < min => Err("too small".to_owned()),
        Allowed::Within(_, max) if number > max => Err("too large".to_owned()),
        Allowed::OneOf(_) => check_word(allowed, &number.to_string()),
        _ => Ok(()),
    }
}

fn check_double(allowed: Allowed, number: f64) -> Result<(), String> {
    match allowed {
        Allowed::AtLeast(min) | Allowed::Within(min, _) if number < min as f64 => {
            Err("too small".to_owned())
        }
        Allowed::Within(_, max) if number > max as f64 => Err("too large".to_owned()),
        _ => Ok(()),
    }
}

fn check_word(allowed: Allowed, word: &str) -> Result<(), String> {
    let known = match allowed {
        Allowed::OneOf(words) => words.contains(&word),
        Allowed::OneOfAnyCase(words) => words.iter().any(|known| known.eq_ignore_ascii_case(word)),
        _ => true,
    };
    if known {
        Ok(())
    } else {
        Err(format!("\"{word}\" is not known"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::property;
    use super::*;

    fn checked(name: &str, text: &str) -> Result<(), String> {
        check(property(name).expect("a known property"), text)
    }

    #[test]
    fn numbers_are_whole_in_range_and_may_have_spaces_around() {
        checked("num.partitions", " 3 ").unwrap();
        checked("log.retention.bytes", "-1").unwrap();
        assert_eq!(
            checked("num.partitions", "0"),
            Err("too small; give a whole number of at least 1".to_owned())
        );
        assert_eq!(
            checked("num.partitions", "1.5"),
            Err("not a whole number; give a whole number of at least 1".to_owned())
        );
        assert!(checked("num.partitions", "3000000000").is_err());
        assert!(checked("num.partitions", "").is_err());
        assert!(checked("log.retention.bytes", "99999999999999999999").is_err());
    }

    #[test]
    fn words_are_among_the_allowed_ones() {
        checked("compression.type", "zstd").unwrap();
        checked("log.cleanup.policy", "compact, delete").unwrap();
        checked("log.cleanup.policy", "").unwrap();
        checked("group.consumer.migration.policy", "Upgrade").unwrap();
        checked("compression.gzip.level", "-1").unwrap();
        assert!(checked("compression.gzip.level", "0").is_err());
        assert!(checked("log.cleanup.policy", "compact,remove").is_err());
        let why = checked("compression.type", "lzma").unwrap_err();
        assert!(why.starts_with("\"lzma\" is not known; give one of uncompressed"));
    }

    #[test]
    fn booleans_and_doubles_are_read_as_java_does() {
        checked("auto.create.topics.enable", "TRUE").unwrap();
        assert!(checked("auto.create.topics.enable", "yes").is_err());
        checked("log.cleaner.min.cleanable.ratio", "0.5").unwrap();
        assert!(checked("log.cleaner.min.cleanable.ratio", "1.01").is_err());
        assert!(checked("log.cleaner.min.cleanable.ratio", "NaN").is_err());
    }
}

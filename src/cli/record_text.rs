//! How a record looks on a line.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::args::ConsumeArgs;

/// A record to be shown.
pub(super) struct Shown<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) timestamp_ms: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// What of it is shown.
pub(super) enum Shape {
    /// The value, with the key before it if there is a separator.
    Plain {
        key_separator: Option<String>,
        null: String,
    },
    /// One JSON object a line.
    Json,
}

impl Shape {
    pub(super) fn of(args: &ConsumeArgs) -> Shape {
        if args.json {
            Shape::Json
        } else {
            Shape::Plain {
                key_separator: args.key_separator.clone(),
                null: args.null.clone().unwrap_or_default(),
            }
        }
    }

    pub(super) fn write(&self, record: &Shown<'_>, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Shape::Plain {
                key_separator,
                null,
            } => {
                if let Some(separator) = key_separator {
                    out.write_all(record.key.unwrap_or(null.as_bytes()))?;
                    out.write_all(separator.as_bytes())?;
                }
                out.write_all(record.value.unwrap_or(null.as_bytes()))?;
            }
            Shape::Json => serde_json::to_writer(&mut *out, &object(record))?,
        }
        out.write_all(b"\n")
    }
}

fn object(record: &Shown<'_>) -> Value {
    let mut object = Map::new();
    object.insert("topic".to_owned(), json!(record.topic));
    object.insert("partition".to_owned(), json!(record.partition));
    object.insert("offset".to_owned(), json!(record.offset));
    object.insert("timestamp".to_owned(), json!(record.timestamp_ms));
    insert(&mut object, "key", record.key);
    insert(&mut object, "value", record.value);
    let header = |(name, value): &(&str, Option<&[u8]>)| {
        let mut header = Map::new();
        header.insert("name".to_owned(), json!(name));
        insert(&mut header, "value", *value);
        Value::Object(header)
    };
    if !record.headers.is_empty() {
        let headers = record.headers.iter().map(header).collect();
        object.insert("headers".to_owned(), Value::Array(headers));
    }
    Value::Object(object)
}

/// Text as text; other bytes as base64 under a name that says so.
fn insert(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let (name, value) = match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => (name.to_owned(), Value::Null),
        Some((Ok(text), _)) => (name.to_owned(), json!(text)),
        Some((Err(_), bytes)) => (format!("{name}_base64"), json!(base64(bytes))),
    };
    object.insert(name, value);
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for character in 0..4 {
            if character <= group.len() {
                let digit = bits >> (18 - 6 * character) & 63;
                text.push(char::from(ALPHABET[digit as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(shape: &Shape, key: Option<&[u8]>, value: Option<&[u8]>) -> String {
        let record = Shown {
            topic: "t",
            partition: 1,
            offset: 2,
            timestamp_ms: 3,
            key,
            value,
            headers: &[("h", Some(b"x")), ("n", None)],
        };
        let mut out = Vec::new();
        shape.write(&record, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn plain_is_the_value_with_the_key_if_asked_for() {
        let plain = |separator: Option<&str>| Shape::Plain {
            key_separator: separator.map(str::to_owned),
            null: "NULL".to_owned(),
        };
        assert_eq!(shown(&plain(None), Some(b"k"), Some(b"v")), "v\n");
        assert_eq!(shown(&plain(Some("=")), Some(b"k"), Some(b"v")), "k=v\n");
        assert_eq!(shown(&plain(Some("=")), None, None), "NULL=NULL\n");
    }

    #[test]
    fn json_keeps_what_is_no_text_as_base64() {
        let line = shown(&Shape::Json, Some(b"k\n"), Some(&[0xff, 0, 1, 2]));
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            value,
            json!({
                "topic": "t", "partition": 1, "offset": 2, "timestamp": 3,
                "key": "k\n", "value_base64": "/wABAg==",
                "headers": [{"name": "h", "value": "x"}, {"name": "n", "value": null}],
            })
        );
        assert_eq!(line.matches('\n').count(), 1);
        let nulls: Value = serde_json::from_str(&shown(&Shape::Json, None, None)).unwrap();
        assert_eq!(nulls["key"], Value::Null);
        assert_eq!(nulls["value"], Value::Null);
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}

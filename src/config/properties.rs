//! The syntax of Java's `.properties` files, as `java.util.Properties.load` reads it: comments, continued lines, `=`, `:` or white space
//! between key and value, and escapes. A key that stands twice has its last value.

use std::fmt::Write as _;

/// What is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct SyntaxError {
    /// Counts from 1; the first line of a continued one.
    pub line: usize,
    pub why: &'static str,
}

/// The pairs of a file, in its order, duplicates included.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, SyntaxError> {
    let mut pairs = Vec::new();
    let mut lines = natural_lines(text).enumerate();
    while let Some((index, first)) = lines.next() {
        let first = first.trim_start_matches(is_space);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        while ends_in_continuation(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start_matches(is_space)),
                None => break,
            }
        }
        pairs.push(pair(&logical).map_err(|why| SyntaxError {
            line: index + 1,
            why,
        })?);
    }
    Ok(pairs)
}

/// Bytes of a file as text: UTF-8, else Latin-1, which is what Java assumes.
pub fn decode(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect())
}

/// Writes pairs so that [`parse`] and Java read them back.
pub fn write(pairs: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (key, value) in pairs {
        escape(&mut out, key, Part::Key);
        out.push('=');
        escape(&mut out, value, Part::Value);
        out.push('\n');
    }
    out
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// Lines end with `\n`, `\r` or `\r\n`.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let now = rest?;
        match now.find(['\n', '\r']) {
            None => {
                rest = None;
                Some(now)
            }
            Some(end) => {
                let after = if now[end..].starts_with("\r\n") {
                    end + 2
                } else {
                    end + 1
                };
                rest = Some(&now[after..]);
                Some(&now[..end])
            }
        }
    })
}

/// An odd number of backslashes at the end.
fn ends_in_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn pair(line: &str) -> Result<(String, String), &'static str> {
    let mut escaped = false;
    let mut key_end = line.len();
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if is_space(c) || c == '=' || c == ':' {
            key_end = at;
            break;
        }
    }
    let rest = line[key_end..].trim_start_matches(is_space);
    let value = rest
        .strip_prefix(['=', ':'])
        .unwrap_or(rest)
        .trim_start_matches(is_space);
    Ok((unescape(&line[..key_end])?, unescape(value)?))
}

fn unescape(text: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(text.len());
    let mut units: Vec<u16> = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let plain = if c == '\\' {
            match chars.next() {
                Some('u') => {
                    units.push(code_unit(&mut chars)?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => break,
            }
        } else {
            c
        };
        flush(&mut units, &mut out)?;
        out.push(plain);
    }
    flush(&mut units, &mut out)?;
    Ok(out)
}

fn code_unit(chars: &mut std::str::Chars<'_>) -> Result<u16, &'static str> {
    let mut unit = 0;
    for _ in 0..4 {
        let digit = chars.next().and_then(|c| c.to_digit(16));
        unit = unit * 16 + digit.ok_or("\\u must be followed by four hexadecimal digits")?;
    }
    Ok(unit as u16)
}

/// Code units of consecutive `\u` escapes are UTF-16: two may be one character.
fn flush(units: &mut Vec<u16>, out: &mut String) -> Result<(), &'static str> {
    if !units.is_empty() {
        let text =
            String::from_utf16(units).map_err(|_| "\\u escapes do not make up a character")?;
        out.push_str(&text);
        units.clear();
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Key,
    Value,
}

fn escape(out: &mut String, text: &str, part: Part) {
    for (at, c) in text.chars().enumerate() {
        match c {
            '\\' | '=' | ':' | '#' | '!' => out.extend(['\\', c]),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x0c' => out.push_str("\\f"),
            ' ' if part == Part::Key || at == 0 => out.push_str("\\ "),
            ' '..='~' => out.push(c),
            _ => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    write!(out, "\\u{unit:04X}").expect("a String takes everything");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }

    fn one(text: &str) -> (String, String) {
        let pairs = parsed(text);
        assert_eq!(pairs.len(), 1, "{pairs:?}");
        pairs[0].clone()
    }

    #[test]
    fn key_and_value_are_separated_by_equals_colon_or_space() {
        for text in [
            "a.b=c d",
            "a.b:c d",
            "a.b c d",
            "a.b = c d",
            " \ta.b\t:  c d",
            "a.b   c d",
        ] {
            assert_eq!(one(text), ("a.b".into(), "c d".into()), "{text:?}");
        }
        assert_eq!(one("a==b"), ("a".into(), "=b".into()));
        assert_eq!(one("a"), ("a".into(), String::new()));
        assert_eq!(one("a=b "), ("a".into(), "b ".into()));
        assert_eq!(one("listeners=PLAINTEXT://:9092").1, "PLAINTEXT://:9092");
    }

    #[test]
    fn comments_and_empty_lines_are_skipped() {
        assert_eq!(
            parsed("# one\n\n   ! two\r\n \t \r#=\\\na=b").len(),
            1,
            "a comment is never continued"
        );
    }

    #[test]
    fn a_line_that_ends_in_a_backslash_goes_on_without_its_indent() {
        assert_eq!(one("a=b,\\\n   c,\\\r\n\td").1, "b,c,d");
        assert_eq!(parsed("a=b\\\\\nc=d").len(), 2, "two backslashes are one");
        assert_eq!(one("a=b\\").1, "b");
        assert_eq!(one("a=\\\n# no comment").1, "# no comment");
    }

    #[test]
    fn escapes_are_javas() {
        assert_eq!(one("a\\=\\:\\ b=c"), ("a=: b".into(), "c".into()));
        assert_eq!(one("a=\\t\\n\\r\\f\\q\\\\").1, "\t\n\r\x0cq\\");
        assert_eq!(one("a=\\u00e9\\uD83D\\uDE00").1, "é😀");
        assert_eq!(parse("x=1\na=\\u12").unwrap_err().line, 2);
        assert!(parse("a=\\uD83D").is_err());
    }

    #[test]
    fn bytes_that_are_not_utf8_are_latin1() {
        assert_eq!(decode(vec![b'a', 0xe9]), "aé");
        assert_eq!(decode("é".into()), "é");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(pairs in proptest::collection::vec(("[ -~é😀\t\n]{1,8}", "[ -~é😀\t\n\\\\]{0,12}"), 0..4)) {
            let refs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            prop_assert_eq!(parse(&write(&refs)).unwrap(), pairs);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(?s).{0,60}") {
            let _ = parse(&text);
        }
    }
}

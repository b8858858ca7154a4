//! Reads the tables; the notation is explained at the top of each.

use crate::names::{capital, snake};
use crate::schema::{Field, Kind, Rpc, Schema, Struct, Versions};

/// What a table line says before its fields.
struct Heading {
    versions: Versions,
    newest_is_unstable: bool,
    flexible_from: Option<i16>,
}

/// Every RPC of `rpcs.txt`.
pub(crate) fn rpcs(table: &str) -> Vec<Rpc> {
    let mut lines = content(table);
    let mut rpcs = Vec::new();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["##", key, name, versions, "flex", flexible] = words[..] else {
            panic!("expected \"## key Name versions flex N+\", found: {line}");
        };
        let key = key.parse().unwrap_or_else(|_| panic!("not a key: {line}"));
        let heading = heading(versions, flexible);
        let request = body(lines.next(), "req: ");
        let response = body(lines.next(), "resp: ");
        rpcs.push(Rpc {
            name: name.to_owned(),
            request: schema(Some(key), &heading, "Request", request),
            response: schema(Some(key), &heading, "Response", response),
        });
    }
    rpcs
}

/// Every record of a table of "Name [key N] versions flex N+: fields" lines.
pub(crate) fn records(table: &str) -> Vec<Schema> {
    content(table).map(record).collect()
}

fn record(line: &str) -> Schema {
    let (head, fields) = line
        .split_once(": ")
        .or_else(|| line.split_once(':'))
        .unwrap_or((line, ""));
    let words: Vec<&str> = head.split_whitespace().collect();
    match words[..] {
        [name, "key", key, versions, "flex", flexible] => {
            let key = key.parse().unwrap_or_else(|_| panic!("not a key: {line}"));
            schema(Some(key), &heading(versions, flexible), name, fields)
        }
        [name, versions, "flex", flexible] => {
            schema(None, &heading(versions, flexible), name, fields)
        }
        _ => panic!("expected \"Name [key N] versions flex N+: fields\", found: {line}"),
    }
}

/// The lines between `[name]` and the next such line.
pub(crate) fn section<'a>(table: &'a str, name: &str) -> &'a str {
    let title = format!("[{name}]\n");
    let start = table
        .find(&title)
        .unwrap_or_else(|| panic!("no section {name}"))
        + title.len();
    let rest = &table[start..];
    &rest[..rest.find("\n[").unwrap_or(rest.len())]
}

/// Lines that are neither empty nor comments.
fn content(table: &str) -> impl Iterator<Item = &str> {
    table
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .filter(|line| line.starts_with("##") || !line.starts_with('#'))
}

fn body<'a>(line: Option<&'a str>, prefix: &str) -> &'a str {
    let line = line.unwrap_or_default();
    line.strip_prefix(prefix.trim_end())
        .unwrap_or_else(|| panic!("expected \"{prefix}\", found: {line}"))
        .trim_start()
}

fn heading(range: &str, flexible: &str) -> Heading {
    let (range, newest_is_unstable) = match range.strip_suffix('*') {
        Some(range) => (range, true),
        None => (range, false),
    };
    let flexible_from = match flexible {
        "none" => None,
        first => Some(versions(&format!("v{first}")).first),
    };
    Heading {
        versions: versions(range),
        newest_is_unstable,
        flexible_from,
    }
}

fn schema(key: Option<i16>, heading: &Heading, name: &str, fields: &str) -> Schema {
    let mut parser = Parser {
        text: fields,
        at: 0,
    };
    let root = parser.fields(name, Versions::ALL);
    assert!(
        parser.at == fields.len(),
        "cannot read on at: {}",
        &fields[parser.at..]
    );
    Schema {
        key,
        versions: heading.versions,
        newest_is_unstable: heading.newest_is_unstable,
        flexible_from: heading.flexible_from,
        root,
    }
}

/// `v3`, `v3-5`, `v3+`.
fn versions(text: &str) -> Versions {
    let number = |text: &str| {
        text.parse::<i16>()
            .unwrap_or_else(|_| panic!("not a version: {text}"))
    };
    let range = text
        .strip_prefix('v')
        .unwrap_or_else(|| panic!("not a range of versions: {text}"));
    if let Some(first) = range.strip_suffix('+') {
        return Versions {
            first: number(first),
            last: i16::MAX,
        };
    }
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Versions {
        first: number(first),
        last: number(last),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn fields(&mut self, struct_name: &str, parent: Versions) -> Struct {
        let mut fields = Vec::new();
        while !self.rest().is_empty() && !self.rest().starts_with('}') {
            fields.push(self.field(struct_name, parent));
            if !self.skip(", ") {
                break;
            }
        }
        Struct {
            name: struct_name.to_owned(),
            fields,
        }
    }

    fn field(&mut self, struct_name: &str, parent: Versions) -> Field {
        let name = self.word();
        assert!(
            self.skip(":") && !name.is_empty(),
            "expected \"name:type\" at: {}{}",
            name,
            self.rest()
        );
        let kind = self.kind(&format!("{struct_name}{}", capital(name)));
        let nullable = self.skip("?");
        let mut field = Field {
            rust_name: snake(name),
            kind,
            versions: parent,
            null: nullable.then_some(Versions::ALL),
            tag: None,
            default: None,
        };
        self.options(&mut field);
        field
    }

    fn kind(&mut self, struct_name: &str) -> Kind {
        if self.skip("[]") {
            return Kind::Array(Box::new(self.kind(struct_name)));
        }
        if self.skip("{") {
            let body = self.fields(struct_name, Versions::ALL);
            assert!(self.skip("}"), "expected \"}}\" at: {}", self.rest());
            return Kind::Struct(body);
        }
        match self.word() {
            "bool" => Kind::Bool,
            "i8" => Kind::I8,
            "i16" => Kind::I16,
            "u16" => Kind::U16,
            "i32" => Kind::I32,
            "i64" => Kind::I64,
            "f64" => Kind::F64,
            "uuid" => Kind::Uuid,
            "str" => Kind::Text,
            "bytes" | "records" => Kind::Bytes,
            other => panic!("no such type: {other}{}", self.rest()),
        }
    }

    fn options(&mut self, field: &mut Field) {
        if !self.skip("(") {
            return;
        }
        let end = self
            .rest()
            .find(')')
            .unwrap_or_else(|| panic!("no \")\" after: {}", self.rest()));
        let mut words = self.rest()[..end].split(' ');
        self.at += end + 1;
        while let Some(word) = words.next() {
            if let Some(default) = word.strip_prefix('=') {
                field.default = Some(default.to_owned());
            } else if let Some(tag) = word.strip_prefix("tag") {
                field.tag = Some(tag.parse().unwrap_or_else(|_| panic!("not a tag: {word}")));
            } else if word == "null" {
                assert!(
                    field.null.is_some(),
                    "{} has \"null\" but no \"?\"",
                    field.rust_name
                );
                field.null = words.next().map(versions);
            } else {
                field.versions = versions(word);
            }
        }
    }
}

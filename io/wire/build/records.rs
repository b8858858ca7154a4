//! Writes `records`: the metadata log, the internal topics and other values that carry their own version.

use crate::arbitrary;
use crate::codec::{self, line};
use crate::schema::Schema;

const IMPORTS: &str = "use bytes::{BufMut, Bytes, BytesMut};\nuse crate::primitives::*;\n\
    #[cfg(any(test, feature = \"arbitrary\"))]\nuse crate::arbitrary::Arbitrary;";

fn start(schemas: &[Schema]) -> String {
    let mut out = String::new();
    line(&mut out, IMPORTS);
    for schema in schemas {
        codec::emit(&mut out, schema);
        arbitrary::emit(&mut out, schema);
    }
    out
}

/// Values that begin with an i16 version: `decode` reads it, `encode` writes it.
pub(crate) fn emit_data(schemas: &[Schema]) -> String {
    let mut out = start(schemas);
    for schema in schemas {
        emit_versioned(&mut out, schema);
    }
    out
}

fn emit_versioned(out: &mut String, schema: &Schema) {
    let name = &schema.root.name;
    let (first, last) = (schema.versions.first, schema.versions.last);
    line(out, &format!(
        "impl {name} {{
    pub const MIN_VERSION: i16 = {first};
    pub const MAX_VERSION: i16 = {last};

    /// Reads the version and the body; bytes after it are left alone.
    pub fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {{
        let version = reader.i16()?;
        if !({first}..={last}).contains(&version) {{
            return Err(DecodeError::UnknownVersion {{ what: \"{name}\", version: i32::from(version) }});
        }}
        Self::decode_body(reader, version, Encoding::at(version, {flexible}))
    }}

    /// Appends the version and the body. The version is one of those above.
    pub fn encode(&self, out: &mut BytesMut, version: i16) {{
        out.put_i16(version);
        self.encode_body(out, version, Encoding::at(version, {flexible}));
    }}
}}",
        flexible = schema.flexible_from_code()
    ));
}

fn key(schema: &Schema) -> i16 {
    schema
        .key
        .unwrap_or_else(|| panic!("{} has no key", schema.root.name))
}

/// An enum with a variant for each schema, named without `suffix`.
fn emit_enum(out: &mut String, name: &str, doc: &str, suffix: &str, schemas: &[&Schema]) {
    line(
        out,
        &format!("/// {doc}\n#[derive(Debug, Clone, PartialEq)]\npub enum {name} {{"),
    );
    for schema in schemas {
        line(
            out,
            &format!("{}({}),", variant(schema, suffix), schema.root.name),
        );
    }
    line(out, "}");
    line(
        out,
        &format!(
            "impl {name} {{\n/// The number that stands for the type in the log.\npub fn key(&self) -> i16 {{ match self {{"
        ),
    );
    for schema in schemas {
        line(
            out,
            &format!("Self::{}(_) => {},", variant(schema, suffix), key(schema)),
        );
    }
    line(out, "} } }");
    emit_arbitrary_enum(out, name, suffix, schemas);
}

fn emit_arbitrary_enum(out: &mut String, name: &str, suffix: &str, schemas: &[&Schema]) {
    line(
        out,
        &format!("#[cfg(any(test, feature = \"arbitrary\"))]\nimpl {name} {{"),
    );
    line(
        out,
        "/// One random value of each type, with the version that it is for.",
    );
    line(
        out,
        "pub fn arbitrary_of_each(random: &mut crate::arbitrary::Random) -> Vec<(Self, i16)> { let mut all = Vec::new();",
    );
    for schema in schemas {
        let (first, last) = (schema.versions.first, schema.versions.last);
        line(
            out,
            &format!(
                "for version in {first}..={last} {{ all.push((Self::{}({}::arbitrary(random, version)), version)); }}",
                variant(schema, suffix),
                schema.root.name
            ),
        );
    }
    line(out, "all } }");
}

fn variant(schema: &Schema, suffix: &str) -> String {
    let name = &schema.root.name;
    name.strip_suffix(suffix)
        .unwrap_or_else(|| panic!("{name} does not end in {suffix}"))
        .to_owned()
}

/// The arms that read a body by type and version into an enum's variant.
fn emit_decode_arms(out: &mut String, suffix: &str, schemas: &[&Schema]) {
    for schema in schemas {
        let name = &schema.root.name;
        let (first, last) = (schema.versions.first, schema.versions.last);
        line(
            out,
            &format!(
                "{} if ({first}..={last}).contains(&version) => Ok(Self::{}({name}::decode_body(reader, version, Encoding::at(version, {}))?)),",
                key(schema),
                variant(schema, suffix),
                schema.flexible_from_code()
            ),
        );
        line(
            out,
            &format!(
                "{} => Err(DecodeError::UnknownVersion {{ what: \"{name}\", version: i32::from(version) }}),",
                key(schema)
            ),
        );
    }
}

fn emit_encode_arms(out: &mut String, suffix: &str, schemas: &[&Schema]) {
    for schema in schemas {
        line(
            out,
            &format!(
                "Self::{}(value) => value.encode_body(out, version, Encoding::at(version, {})),",
                variant(schema, suffix),
                schema.flexible_from_code()
            ),
        );
    }
}

/// Reading and writing of a body for an enum; the framing around it is the module's that includes this.
fn emit_enum_codec(out: &mut String, name: &str, suffix: &str, schemas: &[&Schema]) {
    line(out, &format!("impl {name} {{"));
    line(
        out,
        "fn decode_typed(key: i16, version: i16, reader: &mut Reader) -> Result<Self, DecodeError> { match key {",
    );
    emit_decode_arms(out, suffix, schemas);
    line(
        out,
        &format!(
            "_ => Err(DecodeError::UnknownType {{ what: \"{name}\", key: i32::from(key) }}), }} }}"
        ),
    );
    line(
        out,
        "fn encode_typed(&self, out: &mut BytesMut, version: i16) { match self {",
    );
    emit_encode_arms(out, suffix, schemas);
    line(out, "} }");
    line(
        out,
        "/// The newest version that this crate knows of the record's type.\npub fn newest_version(&self) -> i16 { match self {",
    );
    for schema in schemas {
        line(
            out,
            &format!(
                "Self::{}(_) => {},",
                variant(schema, suffix),
                schema.versions.last
            ),
        );
    }
    line(out, "} } }");
}

pub(crate) fn emit_metadata(schemas: &[Schema]) -> String {
    let mut out = start(schemas);
    let all: Vec<&Schema> = schemas.iter().collect();
    emit_enum(
        &mut out,
        "MetadataRecord",
        "A record of the metadata log.",
        "Record",
        &all,
    );
    emit_enum_codec(&mut out, "MetadataRecord", "Record", &all);
    out
}

/// An internal topic: `<Topic>Key` and `<Topic>Value`.
pub(crate) fn emit_topic(topic: &str, schemas: &[Schema]) -> String {
    let mut out = start(schemas);
    for suffix in ["Key", "Value"] {
        let of_kind: Vec<&Schema> = schemas
            .iter()
            .filter(|schema| schema.root.name.ends_with(suffix))
            .collect();
        let name = format!("{topic}{suffix}");
        let doc = format!("The {} of a record, by type.", suffix.to_lowercase());
        emit_enum(&mut out, &name, &doc, suffix, &of_kind);
        emit_enum_codec(&mut out, &name, suffix, &of_kind);
    }
    out
}

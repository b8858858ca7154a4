//! Writes a struct, its defaults and its codec.

use std::fmt::Write;

use crate::schema::{Field, Kind, Schema, Struct};

/// A struct and all structs inside it. The root's `decode` and `encode` are written by the caller's file; nested ones are
/// private to it.
pub(crate) fn emit(out: &mut String, schema: &Schema) {
    emit_struct(out, schema, &schema.root);
}

fn emit_struct(out: &mut String, schema: &Schema, body: &Struct) {
    emit_type(out, body);
    emit_default(out, body);
    line(out, &format!("impl {} {{", body.name));
    emit_decode(out, schema, body);
    emit_encode(out, schema, body);
    line(out, "}");
    for field in &body.fields {
        if let Some(inner) = inner_struct(&field.kind) {
            emit_struct(out, schema, inner);
        }
    }
}

pub(crate) fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a String does not fail");
}

fn inner_struct(kind: &Kind) -> Option<&Struct> {
    match kind {
        Kind::Struct(body) => Some(body),
        Kind::Array(element) => inner_struct(element),
        _ => None,
    }
}

fn emit_type(out: &mut String, body: &Struct) {
    line(out, "#[derive(Debug, Clone, PartialEq)]");
    line(out, &format!("pub struct {} {{", body.name));
    for field in &body.fields {
        line(
            out,
            &format!("pub {}: {},", field.rust_name, field_type(field)),
        );
    }
    line(out, "}");
}

fn field_type(field: &Field) -> String {
    let plain = kind_type(&field.kind);
    if field.null.is_some() {
        format!("Option<{plain}>")
    } else {
        plain
    }
}

fn kind_type(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "bool".to_owned(),
        Kind::I8 => "i8".to_owned(),
        Kind::I16 => "i16".to_owned(),
        Kind::U16 => "u16".to_owned(),
        Kind::I32 => "i32".to_owned(),
        Kind::I64 => "i64".to_owned(),
        Kind::F64 => "f64".to_owned(),
        Kind::Uuid => "Uuid".to_owned(),
        Kind::Text => "Text".to_owned(),
        Kind::Bytes => "Bytes".to_owned(),
        Kind::Struct(body) => body.name.clone(),
        Kind::Array(element) => format!("Vec<{}>", kind_type(element)),
    }
}

fn emit_default(out: &mut String, body: &Struct) {
    line(
        out,
        &format!(
            "impl Default for {} {{ fn default() -> Self {{ Self {{",
            body.name
        ),
    );
    for field in &body.fields {
        line(
            out,
            &format!("{}: {},", field.rust_name, default_code(field)),
        );
    }
    line(out, "} } }");
}

fn default_code(field: &Field) -> String {
    match (field.null, field.default.as_deref()) {
        (None, _) => plain_default(field),
        (Some(_), None) => "None".to_owned(),
        (Some(_), Some("empty")) => format!("Some({})", plain_default(field)),
        (Some(_), Some(other)) => {
            panic!("{}: null or empty by default, not {other}", field.rust_name)
        }
    }
}

fn plain_default(field: &Field) -> String {
    let given = field.default.as_deref().filter(|given| !given.is_empty());
    match &field.kind {
        Kind::Bool => given.map_or_else(|| "false".to_owned(), str::to_lowercase),
        Kind::I8 | Kind::I16 | Kind::U16 | Kind::I32 | Kind::I64 => given.unwrap_or("0").to_owned(),
        Kind::F64 => "0.0".to_owned(),
        Kind::Uuid => "Uuid::ZERO".to_owned(),
        Kind::Text => "Text::empty()".to_owned(),
        Kind::Bytes => "Bytes::new()".to_owned(),
        Kind::Struct(body) => format!("{}::default()", body.name),
        Kind::Array(_) => "Vec::new()".to_owned(),
    }
}

/// Tagged fields in the order of their tags.
fn tagged(body: &Struct) -> Vec<(u32, &Field)> {
    let mut tagged: Vec<(u32, &Field)> = body
        .fields
        .iter()
        .filter_map(|field| Some((field.tag?, field)))
        .collect();
    tagged.sort_by_key(|(tag, _)| *tag);
    tagged
}

fn emit_decode(out: &mut String, schema: &Schema, body: &Struct) {
    line(
        out,
        "pub(crate) fn decode_body(reader: &mut Reader, version: i16, encoding: Encoding) -> Result<Self, DecodeError> {",
    );
    for field in &body.fields {
        let name = &field.rust_name;
        if field.tag.is_some() {
            line(out, &format!("let mut {name} = {};", default_code(field)));
            continue;
        }
        let read = guarded(schema, field, &decode_field(schema, field));
        line(out, &format!("let {name} = {read};"));
    }
    if schema.flexible_from.is_some() {
        line(out, "if encoding.is_flexible() {");
        emit_decode_tags(out, schema, body);
        line(out, "}");
    }
    let names: Vec<&str> = body
        .fields
        .iter()
        .map(|field| field.rust_name.as_str())
        .collect();
    line(out, &format!("Ok(Self {{ {} }})\n}}", names.join(", ")));
}

/// The expression, or the field's default in versions that lack the field.
fn guarded(schema: &Schema, field: &Field, read: &str) -> String {
    match field.versions.condition(schema.versions) {
        Some(condition) => format!(
            "if {condition} {{ {read} }} else {{ {} }}",
            default_code(field)
        ),
        None => read.to_owned(),
    }
}

fn emit_decode_tags(out: &mut String, schema: &Schema, body: &Struct) {
    if tagged(body).is_empty() {
        line(out, "reader.skip_tagged()?;");
        return;
    }
    line(out, "reader.tagged(|tag, reader| { match tag {");
    for (tag, field) in tagged(body) {
        let guard = field
            .versions
            .condition(schema.versions)
            .map_or_else(String::new, |test| format!("if {test}"));
        let read = match (&field.kind, field.null) {
            // Inside a tagged section presence is an unsigned varint, not an i8.
            (Kind::Struct(inner), Some(_)) => {
                format!(
                    "if reader.uvarint()? == 0 {{ None }} else {{ Some({}) }}",
                    decode_struct(inner)
                )
            }
            _ => decode_field(schema, field),
        };
        line(
            out,
            &format!("{tag} {guard} => {{ {} = {read}; }}", field.rust_name),
        );
    }
    line(out, "_ => return Ok(false), } Ok(true) })?;");
}

fn decode_field(schema: &Schema, field: &Field) -> String {
    let Some(null) = field.null else {
        return decode_kind(schema, &field.kind);
    };
    let nullable = match &field.kind {
        Kind::Text => "reader.nullable_text(encoding)?".to_owned(),
        Kind::Bytes => "reader.nullable_bytes(encoding)?".to_owned(),
        Kind::Array(element) => decode_array("nullable_array", schema, element),
        Kind::Struct(inner) => format!(
            "if reader.struct_is_present()? {{ Some({}) }} else {{ None }}",
            decode_struct(inner)
        ),
        other => panic!("{}: {other:?} cannot be null", field.rust_name),
    };
    match null.condition(schema.versions) {
        _ if null.covers(field.versions) => nullable,
        None => nullable,
        Some(condition) => {
            format!(
                "if {condition} {{ {nullable} }} else {{ Some({}) }}",
                decode_kind(schema, &field.kind)
            )
        }
    }
}

fn decode_kind(schema: &Schema, kind: &Kind) -> String {
    match kind {
        Kind::Text => "reader.text(encoding)?".to_owned(),
        Kind::Bytes => "reader.bytes(encoding)?".to_owned(),
        Kind::Struct(inner) => decode_struct(inner),
        Kind::Array(element) => decode_array("array", schema, element),
        plain => format!("reader.{}()?", kind_type(plain).to_lowercase()),
    }
}

fn decode_struct(body: &Struct) -> String {
    format!("{}::decode_body(reader, version, encoding)?", body.name)
}

fn decode_array(method: &str, schema: &Schema, element: &Kind) -> String {
    let size = schema.smallest(element);
    format!(
        "reader.{method}(encoding, {size}, |reader| Ok({}))?",
        decode_kind(schema, element)
    )
}

fn emit_encode(out: &mut String, schema: &Schema, body: &Struct) {
    line(
        out,
        "pub(crate) fn encode_body(&self, out: &mut BytesMut, version: i16, encoding: Encoding) {",
    );
    for field in body.fields.iter().filter(|field| field.tag.is_none()) {
        let write = encode_field(schema, field);
        match field.versions.condition(schema.versions) {
            Some(condition) => line(out, &format!("if {condition} {{ {write} }}")),
            None => line(out, &write),
        }
    }
    if schema.flexible_from.is_some() {
        line(out, "if encoding.is_flexible() {");
        emit_encode_tags(out, schema, body);
        line(out, "}");
    }
    line(out, "}");
}

fn emit_encode_tags(out: &mut String, schema: &Schema, body: &Struct) {
    let tagged = tagged(body);
    if tagged.is_empty() {
        line(out, "out.put_u8(0);");
        return;
    }
    for (tag, field) in &tagged {
        let test = field
            .versions
            .condition(schema.versions)
            .map_or_else(String::new, |test| format!("{test} && "));
        line(
            out,
            &format!("let tag_{tag} = {test}{};", differs_from_default(field)),
        );
    }
    let counts: Vec<String> = tagged
        .iter()
        .map(|(tag, _)| format!("u32::from(tag_{tag})"))
        .collect();
    line(out, &format!("put_uvarint(out, {});", counts.join(" + ")));
    for (tag, field) in &tagged {
        let write = match (&field.kind, field.null) {
            (Kind::Struct(_), Some(_)) => format!(
                "match &self.{} {{ Some(value) => {{ put_uvarint(out, 1); value.encode_body(out, version, encoding) }} None => out.put_u8(0) }}",
                field.rust_name
            ),
            _ => encode_field(schema, field),
        };
        line(
            out,
            &format!("if tag_{tag} {{ put_tagged(out, {tag}, |out| {{ {write} }}); }}"),
        );
    }
}

fn differs_from_default(field: &Field) -> String {
    let name = &field.rust_name;
    match (&field.kind, field.null) {
        (_, Some(_)) if field.default.is_none() => format!("self.{name}.is_some()"),
        (Kind::Text | Kind::Bytes | Kind::Array(_), None) => format!("!self.{name}.is_empty()"),
        (Kind::Bool, None) if default_code(field) == "false" => format!("self.{name}"),
        _ => format!("self.{name} != {}", default_code(field)),
    }
}

fn encode_field(schema: &Schema, field: &Field) -> String {
    let name = format!("self.{}", field.rust_name);
    let Some(null) = field.null else {
        return encode_kind(&field.kind, &name, &format!("&{name}"));
    };
    let nullable = match &field.kind {
        Kind::Text => format!("put_nullable_text(out, encoding, {name}.as_deref());"),
        Kind::Bytes => format!("put_nullable_bytes(out, encoding, {name}.as_deref());"),
        Kind::Array(element) => {
            format!(
                "put_nullable_array(out, encoding, {name}.as_deref(), |out, item| {{ {} }});",
                encode_element(element)
            )
        }
        Kind::Struct(_) => format!(
            "match &{name} {{ Some(value) => {{ out.put_i8(1); value.encode_body(out, version, encoding); }} None => out.put_i8(-1) }}"
        ),
        other => panic!("{}: {other:?} cannot be null", field.rust_name),
    };
    match null.condition(schema.versions) {
        _ if null.covers(field.versions) => nullable,
        None => nullable,
        // Versions that have no null get an empty value.
        Some(condition) => {
            let empty = format!("{name}.as_deref().unwrap_or_default()");
            format!(
                "if {condition} {{ {nullable} }} else {{ {} }}",
                encode_kind(&field.kind, &empty, &empty)
            )
        }
    }
}

/// Writes a value: `place` is an expression of its type, `reference` one of a reference to it.
fn encode_kind(kind: &Kind, place: &str, reference: &str) -> String {
    match kind {
        Kind::Bool => format!("put_bool(out, {place});"),
        Kind::Uuid => format!("put_uuid(out, {place});"),
        Kind::Text => format!("put_text(out, encoding, {reference});"),
        Kind::Bytes => format!("put_bytes(out, encoding, {reference});"),
        Kind::Struct(_) => format!("{place}.encode_body(out, version, encoding);"),
        Kind::Array(element) => {
            format!(
                "put_array(out, encoding, {reference}, |out, item| {{ {} }});",
                encode_element(element)
            )
        }
        plain => format!("out.put_{}({place});", kind_type(plain)),
    }
}

fn encode_element(element: &Kind) -> String {
    match element {
        Kind::Struct(_) => "item.encode_body(out, version, encoding);".to_owned(),
        other => encode_kind(other, "*item", "item"),
    }
}

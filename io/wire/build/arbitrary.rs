//! Writes the generators of random values, which tests ask for by feature.

use crate::codec::line;
use crate::schema::{Field, Kind, Schema, Struct};

pub(crate) fn emit(out: &mut String, schema: &Schema) {
    emit_struct(out, schema, &schema.root);
}

fn emit_struct(out: &mut String, schema: &Schema, body: &Struct) {
    line(out, "#[cfg(any(test, feature = \"arbitrary\"))]");
    line(
        out,
        &format!("impl crate::arbitrary::Arbitrary for {} {{", body.name),
    );
    line(
        out,
        "fn arbitrary(random: &mut crate::arbitrary::Random, version: i16) -> Self {",
    );
    line(out, "let mut value = Self::default();");
    for field in &body.fields {
        let write = format!(
            "value.{} = {};",
            field.rust_name,
            field_value(schema, field)
        );
        match field.versions.condition(schema.versions) {
            Some(condition) => line(out, &format!("if {condition} {{ {write} }}")),
            None => line(out, &write),
        }
    }
    line(out, "value\n}\n}");
    for field in &body.fields {
        emit_inner(out, schema, &field.kind);
    }
}

fn emit_inner(out: &mut String, schema: &Schema, kind: &Kind) {
    match kind {
        Kind::Struct(body) => emit_struct(out, schema, body),
        Kind::Array(element) => emit_inner(out, schema, element),
        _ => {}
    }
}

fn field_value(schema: &Schema, field: &Field) -> String {
    let value = kind_value(&field.kind);
    let Some(null) = field.null else {
        return value;
    };
    let maybe = format!("if random.one_in(4) {{ None }} else {{ Some({value}) }}");
    match null.condition(schema.versions) {
        _ if null.covers(field.versions) => maybe,
        None => maybe,
        Some(condition) => format!("if {condition} {{ {maybe} }} else {{ Some({value}) }}"),
    }
}

fn kind_value(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "random.one_in(2)".to_owned(),
        Kind::I8 => "random.number() as i8".to_owned(),
        Kind::I16 => "random.number() as i16".to_owned(),
        Kind::U16 => "random.number() as u16".to_owned(),
        Kind::I32 => "random.number() as i32".to_owned(),
        Kind::I64 => "random.number()".to_owned(),
        Kind::F64 => "random.float()".to_owned(),
        Kind::Uuid => "random.uuid()".to_owned(),
        Kind::Text => "random.text()".to_owned(),
        Kind::Bytes => "random.bytes()".to_owned(),
        Kind::Struct(body) => format!("{}::arbitrary(random, version)", body.name),
        Kind::Array(element) => format!("random.array(|random| {})", kind_value(element)),
    }
}

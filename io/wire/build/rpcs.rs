//! Writes `messages`: a module for each RPC and the table of all of them.

use crate::arbitrary;
use crate::codec::{self, line};
use crate::names::snake;
use crate::schema::{Rpc, Schema};

pub(crate) fn emit(rpcs: &[Rpc]) -> String {
    let mut out = String::new();
    for rpc in rpcs {
        emit_module(&mut out, rpc);
    }
    emit_table(&mut out, rpcs);
    emit_list(&mut out, rpcs);
    out
}

fn module(rpc: &Rpc) -> String {
    snake(&rpc.name)
}

/// Newest version that is advertised.
fn newest(schema: &Schema) -> i16 {
    schema.versions.last - i16::from(schema.newest_is_unstable)
}

fn emit_module(out: &mut String, rpc: &Rpc) {
    let (first, last) = (rpc.request.versions.first, rpc.request.versions.last);
    line(
        out,
        &format!("/// {}, versions {first} to {last}.", rpc.name),
    );
    line(out, "#[rustfmt::skip]");
    line(
        out,
        "#[allow(clippy::all, clippy::pedantic, unused_imports, unused_variables, unused_mut, dead_code, reason = \"written by the build script\")]",
    );
    line(out, &format!("pub mod {} {{", module(rpc)));
    line(
        out,
        "use bytes::{BufMut, Bytes, BytesMut};\nuse crate::primitives::*;",
    );
    line(
        out,
        "#[cfg(any(test, feature = \"arbitrary\"))]\nuse crate::arbitrary::Arbitrary;",
    );
    for schema in [&rpc.request, &rpc.response] {
        codec::emit(out, schema);
        emit_root(out, &rpc.name, schema);
        arbitrary::emit(out, schema);
    }
    line(out, "}");
}

fn emit_root(out: &mut String, api: &str, schema: &Schema) {
    let name = &schema.root.name;
    let key = schema.key.expect("every RPC has a key");
    let (first, last) = (schema.versions.first, schema.versions.last);
    line(out, &format!(
        "impl {name} {{
    pub const KEY: i16 = {key};
    pub const MIN_VERSION: i16 = {first};
    /// The newest version to advertise.
    pub const MAX_VERSION: i16 = {};
    /// The newest version that can be read and written; above `MAX_VERSION` if that one is unstable.
    pub const CODEC_MAX_VERSION: i16 = {last};
    pub const FLEXIBLE_FROM: Option<i16> = {};

    /// Reads the body of a {name} and leaves the reader behind it. Kafka tolerates bytes after it, and so do we.
    pub fn decode(reader: &mut Reader, version: i16) -> Result<Self, DecodeError> {{
        if !(Self::MIN_VERSION..=Self::CODEC_MAX_VERSION).contains(&version) {{
            return Err(DecodeError::UnknownVersion {{ what: \"{api} {name}\", version: i32::from(version) }});
        }}
        Self::decode_body(reader, version, Encoding::at(version, Self::FLEXIBLE_FROM))
    }}

    /// Appends the body as of `version`, which is one that `decode` would take. Fields that the version lacks are left out,
    /// whatever they hold.
    pub fn encode(&self, out: &mut BytesMut, version: i16) {{
        self.encode_body(out, version, Encoding::at(version, Self::FLEXIBLE_FROM));
    }}
}}",
        newest(schema), schema.flexible_from_code()
    ));
}

fn emit_table(out: &mut String, rpcs: &[Rpc]) {
    line(
        out,
        "/// Every RPC that this crate can read and write, by key.",
    );
    line(out, "#[rustfmt::skip]\npub const APIS: &[ApiSchema] = &[");
    for rpc in rpcs {
        let schema = &rpc.request;
        line(
            out,
            &format!(
                "ApiSchema {{ key: {}, name: \"{}\", min: {}, max: {}, flexible_from: {} }},",
                schema.key.expect("every RPC has a key"),
                rpc.name,
                schema.versions.first,
                newest(schema),
                schema.flexible_from_code()
            ),
        );
    }
    line(out, "];");
}

/// `with_every_rpc!(f)` is `f! { (module, Name) ... }`, for code that does the same with each RPC.
fn emit_list(out: &mut String, rpcs: &[Rpc]) {
    line(
        out,
        "/// Calls a macro with the module of every RPC: `f! { produce fetch ... }`.",
    );
    line(out, "#[rustfmt::skip]\n#[macro_export]");
    line(
        out,
        "macro_rules! with_every_rpc { ($call:ident) => { $call! {",
    );
    for rpc in rpcs {
        line(out, &module(rpc));
    }
    line(out, "} } }");
}

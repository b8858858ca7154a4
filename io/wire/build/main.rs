//! Turns the tables in `schema/` into Rust: structs, codecs and, for tests, generators of random values.
//!
//! `schema` is what a table means, `parse` reads one, `codec` and `arbitrary` write a struct, `rpcs` and `records` write a
//! whole file. A mistake in a table stops the build with the line that has it.

#![allow(
    clippy::print_stdout,
    reason = "a build script talks to cargo on its standard output"
)]

mod arbitrary;
mod codec;
mod names;
mod parse;
mod records;
mod rpcs;
mod schema;

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=schema");
    println!("cargo::rerun-if-changed=build");
    let target = env::var("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let target = Path::new(&target);
    write(
        target,
        "rpcs.rs",
        &rpcs::emit(&parse::rpcs(&read("schema/rpcs.txt"))),
    );
    write(
        target,
        "metadata_records.rs",
        &records::emit_metadata(&parse::records(&read("schema/metadata_records.txt"))),
    );
    write(
        target,
        "data.rs",
        &records::emit_data(&parse::records(&read("schema/data.txt"))),
    );
    let topics = read("schema/internal_topics.txt");
    for (topic, module) in [
        ("offsets", "Offsets"),
        ("transactions", "Transaction"),
        ("share_state", "ShareState"),
    ] {
        let schemas = parse::records(parse::section(&topics, topic));
        write(
            target,
            &format!("{topic}.rs"),
            &records::emit_topic(module, &schemas),
        );
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

fn write(target: &Path, name: &str, code: &str) {
    let path = target.join(name);
    fs::write(&path, code)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

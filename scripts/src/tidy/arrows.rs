//! Who may know whom: arrows between the crates, and between the modules of two of them (architecture.md 3).

use super::{Source, positions};

/// (manifest, our crates that it may depend on). `io` and `shards` never meet.
const CRATES: &[(&str, &[&str])] = &[
    ("io/wire/Cargo.toml", &[]),
    ("io/Cargo.toml", &["corelog-wire"]),
    ("shards/Cargo.toml", &["corelog-wire"]),
    ("perf/Cargo.toml", &["corelog-io", "corelog-wire"]),
    (
        "Cargo.toml",
        &[
            "corelog-io",
            "corelog-wire",
            "corelog-shards",
            "corelog-perf",
        ],
    ),
    (
        "tests/sim/Cargo.toml",
        &["corelog-shards", "corelog-wire", "corelog"],
    ),
    ("tests/crash/Cargo.toml", &["corelog-wire"]),
    ("tests/fuzz/Cargo.toml", &["corelog-wire"]),
    ("scripts/Cargo.toml", &[]),
];

/// (folder of a crate, module of it, modules of the same crate that it may not name)
const FORBIDDEN: &[(&str, &str, &[&str])] = &[
    // The engine knows these; they do not know it.
    ("src", "api", &["engine", "cli", "console", "metrics"]),
    ("src", "security", &["engine", "cli", "console"]),
    (
        "src",
        "config",
        &["engine", "cli", "console", "metrics", "api"],
    ),
    ("src", "metrics", &["engine", "cli", "console", "config"]),
    ("src", "console", &["engine", "cli", "config"]),
    ("src", "engine", &["cli"]),
    // base ◄ log ◄ partition ◄ replica; partition ◄ coordinator ◄ group, txn, controller; base ◄ metadata ◄ group, txn, controller.
    (
        "shards/src",
        "base",
        &[
            "log",
            "partition",
            "replica",
            "coordinator",
            "group",
            "txn",
            "controller",
            "metadata",
            "shard",
            "part",
            "event",
            "effect",
        ],
    ),
    (
        "shards/src",
        "metadata",
        &[
            "log",
            "partition",
            "replica",
            "coordinator",
            "group",
            "txn",
            "controller",
            "shard",
        ],
    ),
    (
        "shards/src",
        "log",
        &[
            "partition",
            "replica",
            "coordinator",
            "group",
            "txn",
            "controller",
            "shard",
        ],
    ),
    (
        "shards/src",
        "partition",
        &[
            "replica",
            "coordinator",
            "group",
            "txn",
            "controller",
            "shard",
        ],
    ),
    (
        "shards/src",
        "replica",
        &["coordinator", "group", "txn", "controller", "shard"],
    ),
    (
        "shards/src",
        "coordinator",
        &["group", "txn", "controller", "shard"],
    ),
    ("shards/src", "group", &["txn", "controller", "shard"]),
    ("shards/src", "txn", &["group", "controller", "shard"]),
    ("shards/src", "controller", &["group", "txn", "shard"]),
];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        if source.path.ends_with("Cargo.toml") {
            problems.extend(manifest(source));
        } else if source.is_rust() && !source.is_test() {
            problems.extend(modules(source));
        }
    }
    problems
}

fn manifest(source: &Source) -> Vec<String> {
    let Some((_, allowed)) = CRATES.iter().find(|(path, _)| *path == source.path) else {
        // Programs of their own, such as a client in tests/clients, know none of our crates.
        let ours = dependencies(&source.content);
        return ours
            .into_iter()
            .map(|name| {
                format!(
                    "{}: depends on {name}, but tidy has no arrows for it",
                    source.path
                )
            })
            .collect();
    };
    dependencies(&source.content)
        .into_iter()
        .filter(|name| !allowed.contains(&name.as_str()))
        .map(|name| format!("{}: must not depend on {name}", source.path))
        .collect()
}

/// Our own crates among the dependencies, build and test dependencies included.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut in_dependencies = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_dependencies =
                section != "workspace.dependencies" && section.ends_with("dependencies");
        } else if in_dependencies {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            if name == "corelog" || name.starts_with("corelog-") {
                names.push(name.to_owned());
            }
        }
    }
    names
}

fn modules(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    for (folder, module, forbidden) in FORBIDDEN {
        let file = format!("{folder}/{module}.rs");
        let inside = format!("{folder}/{module}/");
        if source.path != file && !source.path.starts_with(&inside) {
            continue;
        }
        let code = source.product_code();
        for named in named_modules(&code) {
            if forbidden.contains(&named.as_str()) {
                problems.push(format!("{}: {module} must not know {named}", source.path));
            }
        }
    }
    problems.dedup();
    problems
}

/// The first name behind each `crate::`, those of a group included.
fn named_modules(code: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut names = Vec::new();
    for at in positions(code, "crate") {
        let Some(rest) = code[at + "crate".len()..].strip_prefix("::") else {
            continue;
        };
        if let Some(group) = rest.strip_prefix('{') {
            names.extend(members(group).into_iter().map(word));
        } else {
            names.push(word(rest));
        }
    }
    names
}

/// The members of a group of imports, split at its own commas only.
fn members(group: &str) -> Vec<&str> {
    let mut members = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                members.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                members.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, content: &str) -> Vec<String> {
        check(&[Source {
            path: path.to_owned(),
            content: content.to_owned(),
        }])
    }

    #[test]
    fn crates_depend_along_the_arrows() {
        let manifest =
            "[package]\nname = \"corelog-io\"\n[dependencies]\ncorelog-wire.workspace = true\n";
        assert_eq!(problems("io/Cargo.toml", manifest).len(), 0);
        let back = format!("{manifest}[dev-dependencies]\ncorelog-shards = {{ path = \"x\" }}\n");
        assert_eq!(
            problems("io/Cargo.toml", &back),
            ["io/Cargo.toml: must not depend on corelog-shards"]
        );
        let workspace = "[workspace.dependencies]\ncorelog-anything = { path = \"x\" }\n";
        assert_eq!(problems("Cargo.toml", workspace).len(), 0);
        assert_eq!(problems("new/Cargo.toml", &back).len(), 2);
    }

    #[test]
    fn modules_know_each_other_along_the_arrows() {
        assert_eq!(
            problems("src/api/fetch.rs", "use crate::engine::x;").len(),
            1
        );
        assert_eq!(
            problems(
                "src/api/fetch.rs",
                "use crate::{config::x, engine::{y, z}};"
            )
            .len(),
            1
        );
        assert_eq!(
            problems("src/api/fetch.rs", "// crate::engine\nuse crate::config;").len(),
            0
        );
        assert_eq!(
            problems(
                "src/engine/x.rs",
                "use crate::api::y; use crate::config::z;"
            )
            .len(),
            0
        );
        assert_eq!(
            problems("shards/src/log/append.rs", "use crate::partition::x;").len(),
            1
        );
        assert_eq!(
            problems("shards/src/shard.rs", "use crate::partition::x;").len(),
            0
        );
        let test = "#[cfg(test)]\nmod tests {\n use crate::partition::x;\n}";
        assert_eq!(problems("shards/src/log/append.rs", test).len(), 0);
    }
}

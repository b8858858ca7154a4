//! What may stand at the top of the repository.

use std::collections::BTreeSet;

use super::Source;

const TOP: &[&str] = &[
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "io",
    "perf",
    "scripts",
    "shards",
    "src",
    "tests",
];

/// Junk drawers: what lies in them has a name of its own.
const NO_NAMES: &[&str] = &["common", "helpers", "misc", "util", "utils"];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let tops: BTreeSet<&str> = sources
        .iter()
        .filter_map(|source| source.path.split('/').next())
        .collect();
    for top in tops {
        if !TOP.contains(&top) {
            problems.push(format!(
                "{top}: does not belong at the top; find its place, or add it to tidy with a reason"
            ));
        }
    }
    for source in sources.iter().filter(|source| source.is_rust()) {
        let mut names = source.path.trim_end_matches(".rs").split('/');
        if let Some(name) = names.find(|name| NO_NAMES.contains(name)) {
            problems.push(format!(
                "{}: \"{name}\" names nothing; name the thing",
                source.path
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_at_the_top_and_junk_drawers_are_found() {
        let source = |path: &str| Source {
            path: path.to_owned(),
            content: String::new(),
        };
        let sources = [
            source("docs/a.md"),
            source("src/utils.rs"),
            source("src/a.rs"),
        ];
        let problems = check(&sources);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}

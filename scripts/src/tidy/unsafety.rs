//! Unsafe code stands in listed files only, and there is never more of it than before without a change of the list.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Source, positions, text};
use crate::steps::Failed;

/// `path count` a line; `UPDATE=1 cargo xtask tidy` rewrites it, and the diff is the review.
const LIST: &str = "scripts/unsafe.txt";

pub(super) fn check(root: &Path, sources: &[Source]) -> Result<Vec<String>, Failed> {
    let found = counts(sources);
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        let lines: Vec<String> = found
            .iter()
            .map(|(path, count)| format!("{path} {count}\n"))
            .collect();
        std::fs::write(root.join(LIST), lines.concat())
            .map_err(|error| Failed(format!("cannot write {LIST}: {error}")))?;
        return Ok(misplaced(&found));
    }
    let list = sources
        .iter()
        .find(|source| source.path == LIST)
        .map_or("", |source| source.content.as_str());
    let mut problems = misplaced(&found);
    problems.extend(differences(&found, &parse(list)?));
    Ok(problems)
}

fn counts(sources: &[Source]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let code = text::code(&source.content);
        let count = positions(&code, "unsafe").count();
        if count > 0 {
            counts.insert(source.path.as_str(), count);
        }
    }
    counts
}

/// Unsafe code is a matter of the machine; the counting allocators of tests are the one exception.
fn misplaced(found: &BTreeMap<&str, usize>) -> Vec<String> {
    let allowed = |path: &str| {
        (path.starts_with("io/src/") && !path.starts_with("io/wire/"))
            || path.ends_with("tests/allocation.rs")
    };
    found
        .keys()
        .filter(|path| !allowed(path))
        .map(|path| format!("{path}: unsafe code; it belongs to io/src"))
        .collect()
}

fn differences(found: &BTreeMap<&str, usize>, listed: &BTreeMap<&str, usize>) -> Vec<String> {
    let paths: std::collections::BTreeSet<&&str> = found.keys().chain(listed.keys()).collect();
    paths
        .into_iter()
        .filter_map(|path| {
            let (now, before) = (found.get(path).unwrap_or(&0), listed.get(path).unwrap_or(&0));
            (now != before).then(|| {
                format!("{path}: {now} times unsafe, {LIST} says {before}; review, then UPDATE=1 cargo xtask tidy")
            })
        })
        .collect()
}

fn parse(list: &str) -> Result<BTreeMap<&str, usize>, Failed> {
    list.lines()
        .map(|line| {
            line.split_once(' ')
                .and_then(|(path, count)| Some((path, count.parse().ok()?)))
                .ok_or_else(|| Failed(format!("{LIST}: \"{line}\" is no path with a count")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, content: &str) -> Source {
        Source {
            path: path.to_owned(),
            content: content.to_owned(),
        }
    }

    #[test]
    fn words_in_comments_and_lints_do_not_count() {
        let sources = [source(
            "io/src/a.rs",
            "// unsafe\n#![expect(unsafe_code)]\nunsafe { f(\"unsafe\") }\nunsafe impl Send for A {}",
        )];
        assert_eq!(counts(&sources).get("io/src/a.rs"), Some(&2));
    }

    #[test]
    fn more_or_less_than_listed_and_outside_of_io_are_problems() {
        let sources = [
            source("src/a.rs", "unsafe {}"),
            source("io/src/b.rs", "unsafe {} unsafe {}"),
        ];
        let found = counts(&sources);
        assert_eq!(misplaced(&found).len(), 1);
        let listed = parse("io/src/b.rs 1\nio/src/c.rs 1\nsrc/a.rs 1").expect("a list");
        let problems = differences(&found, &listed);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("io/src/b.rs: 2 times unsafe"));
        assert!(problems[1].starts_with("io/src/c.rs: 0 times unsafe"));
    }
}

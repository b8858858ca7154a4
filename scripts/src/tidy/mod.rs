//! The rules of the house that no compiler checks (architecture.md 3 and 8): short tables here, one file for each way of looking.

mod arrows;
mod homes;
mod layout;
mod text;
mod unsafety;

use std::path::Path;
use std::process::Command;

use crate::steps::Failed;

/// One file of the repository.
struct Source {
    /// From the root, with slashes.
    path: String,
    content: String,
}

/// All problems, each a sentence that begins with the file.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, Failed> {
    let sources = sources(root)?;
    let mut problems = layout::check(&sources);
    problems.extend(arrows::check(&sources));
    problems.extend(homes::check(&sources));
    problems.extend(text::check(&sources));
    problems.extend(unsafety::check(root, &sources)?);
    Ok(problems)
}

/// Text files that are or would be in the repository.
fn sources(root: &Path) -> Result<Vec<Source>, Failed> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| Failed(format!("cannot run git: {error}; is it installed?")))?;
    if !listed.status.success() {
        let why = String::from_utf8_lossy(&listed.stderr).trim().to_owned();
        return Err(Failed(format!("git ls-files: {why}")));
    }
    let paths = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut sources = Vec::new();
    for path in paths.lines() {
        // What is deleted but not committed, and what is no text, is not looked at.
        if let Ok(content) = std::fs::read_to_string(root.join(path)) {
            sources.push(Source {
                path: path.to_owned(),
                content,
            });
        }
    }
    Ok(sources)
}

impl Source {
    fn is_rust(&self) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|extension| extension == "rs")
    }

    /// What is compiled into the product: no tests, no comments, no strings.
    fn product_code(&self) -> String {
        text::code(text::without_tests(&self.content))
    }

    fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.ends_with("tests.rs")
            || self.path.contains("/tests/")
            || self.path.contains("/benches/")
    }
}

/// Whether `name` stands in `code` as a word of its own.
fn mentions(code: &str, name: &str) -> bool {
    positions(code, name).next().is_some()
}

fn positions<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = code[..*at].chars().next_back();
            let after = code[at + name.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        assert!(mentions("use libc::c_int;", "libc"));
        assert!(!mentions("use mylibc::c_int; libc_x", "libc"));
    }

    #[test]
    fn this_repository_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let problems = check(&root).expect("git is there");
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

//! Rules for every file, and reading Rust roughly: comments and strings blanked, tests cut off.

use super::Source;

/// A file is read in one sitting.
const LINES_MAX: usize = 1000;
/// Longer, each with its reason.
const LONGER: &[(&str, &str)] = &[];
/// Kept elsewhere than in comments: in the issue tracker.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        let path = &source.path;
        for (index, line) in source.content.lines().enumerate() {
            for word in UNFINISHED.iter().filter(|word| super::mentions(line, word)) {
                problems.push(format!(
                    "{path}:{}: {word}: finish it, or file an issue",
                    index + 1
                ));
            }
        }
        let lines = source.content.lines().count();
        let excepted = LONGER.iter().any(|(longer, _)| longer == path);
        if source.is_rust() && lines > LINES_MAX && !excepted {
            problems.push(format!(
                "{path}: {lines} lines; split it, at most {LINES_MAX} can be read in one sitting"
            ));
        }
        if excepted && lines <= LINES_MAX {
            problems.push(format!(
                "{path}: {lines} lines are few enough; take it from the exceptions of tidy"
            ));
        }
    }
    problems
}

/// Everything before the first test module that stands in the file.
pub(super) fn without_tests(content: &str) -> &str {
    let mut at = 0;
    while let Some(found) = content[at..].find("#[cfg(test)]") {
        let here = at + found;
        let after = content[here + "#[cfg(test)]".len()..].trim_start();
        if after.starts_with("mod ") && after.lines().next().is_some_and(|line| line.ends_with('{'))
        {
            return &content[..here];
        }
        at = here + 1;
    }
    content
}

/// The same text with comments and the contents of strings as spaces; line breaks stay.
pub(super) fn code(content: &str) -> String {
    let mut out = String::with_capacity(content.len());
    let bytes = content.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &content[at..];
        let length = skipped(
            rest,
            at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_'),
        );
        if length > 0 {
            out.extend(
                rest[..length]
                    .chars()
                    .map(|c| if c == '\n' { '\n' } else { ' ' }),
            );
            at += length;
        } else {
            let c = rest.chars().next().expect("at is before the end");
            out.push(c);
            at += c.len_utf8();
        }
    }
    out
}

/// The length of the comment, string or character that `rest` begins with; 0 if none.
fn skipped(rest: &str, in_word: bool) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    if let Some(text) = rest.strip_prefix('"') {
        return 1 + quoted(text);
    }
    if !in_word && let Some(raw) = rest.strip_prefix('r') {
        let hashes = raw.bytes().take_while(|byte| *byte == b'#').count();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = 1 + hashes + 1;
            return rest[body..]
                .find(&close)
                .map_or(rest.len(), |end| body + end + close.len());
        }
    }
    if let Some(quote) = rest.strip_prefix('\'') {
        let mut chars = quote.chars();
        return match (chars.next(), chars.next()) {
            // 'x' is a character, 'x is a lifetime.
            (Some(c), Some('\'')) if c != '\\' => 1 + c.len_utf8() + 1,
            (Some('\\'), Some(escaped)) => {
                let head = 2 + escaped.len_utf8();
                rest[head..].find('\'').map_or(head, |end| head + end + 1)
            }
            _ => 0,
        };
    }
    0
}

/// Up to and with the closing quote.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blanked() {
        for (text, left) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b */ c", "a         c"),
            ("f(\"x\\\"y\") z", "f(      ) z"),
            ("r#\"x\"y\"# z", "         z"),
            ("'a' '\\n' '\\'' 'b", "              'b"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("for\"x\"", "for   "),
        ] {
            assert_eq!(code(text), left, "{text}");
        }
    }

    #[test]
    fn tests_in_the_file_are_cut_off_and_a_module_line_is_not() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\nb\n}"), "a\n");
        let text = "#[cfg(test)]\nmod tests;\nb";
        assert_eq!(without_tests(text), text);
    }

    #[test]
    fn unfinished_and_endless_files_are_found() {
        let source = |path: &str, content: String| Source {
            path: path.to_owned(),
            content,
        };
        let sources = [
            source("a.rs", format!("x\n// {}: y\n", UNFINISHED[0])),
            source("b.rs", "x\n".repeat(LINES_MAX + 1)),
            source("c.md", "x\n".repeat(LINES_MAX + 1)),
        ];
        let problems = check(&sources);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("a.rs:2: "));
        assert!(problems[1].starts_with("b.rs: "));
    }
}

//! Scenario files, `tests/scenarios/<area>/<name>.scn`: a comment, commands, `----`, what came of them; blocks are apart by an empty line.
//! `UPDATE=1` writes what came of them into the files; review the diff.
//!
//! What a command does is the area's: [`run`] gives it one line and takes what came of that.

#![allow(
    clippy::unwrap_used,
    reason = "a scenario that can't be read has failed"
)]

use std::fmt::Write as _;

/// One test for each file of `tests/scenarios/<area>`; `$run` gets the file's name and its text.
macro_rules! scenarios {
    ($area:literal, $run:path: $($name:ident)*) => {
        $(#[test]
        fn $name() {
            let text = include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/../tests/scenarios/", $area, "/", stringify!($name), ".scn"
            ));
            $run(concat!($area, "/", stringify!($name)), text);
        })*
    };
}
pub(crate) use scenarios;

/// Runs the commands of a scenario and compares what came of them with what the file says.
pub(crate) fn run(name: &str, text: &str, mut command: impl FnMut(&str) -> String) {
    let mut actual = String::new();
    for block in text.trim_end().split("\n\n") {
        let commands = block.split("\n----").next().unwrap_or("").trim_end();
        let mut output = String::new();
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            output.push_str(&command(line));
        }
        let _ = write!(actual, "{commands}\n----\n{output}\n");
    }
    let actual = format!("{}\n", actual.trim_end());
    if std::env::var("UPDATE").is_ok() {
        update(name, &actual);
    } else {
        assert_eq!(
            actual, text,
            "scenario {name}; UPDATE=1 writes what came of it"
        );
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "only when a person asks for new expectations"
)]
fn update(name: &str, actual: &str) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/scenarios");
    std::fs::write(format!("{directory}/{name}.scn"), actual).expect("the scenario can be written");
}

/// Words after the command; `key=value` ones by key.
pub(crate) struct Args<'a>(pub(crate) Vec<&'a str>);

impl<'a> Args<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        let mut pairs = self.0.iter().filter_map(|word| word.split_once('='));
        pairs.find(|(own, _)| *own == key).map(|(_, value)| value)
    }

    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        self.get(key).map(|value| value.parse().unwrap())
    }

    pub(crate) fn list(&self, key: &str) -> Vec<&'a str> {
        let value = self.get(key).unwrap_or("");
        value.split(',').filter(|item| !item.is_empty()).collect()
    }

    /// The words that are no `key=value`.
    pub(crate) fn plain(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.0.iter().copied().filter(|word| !word.contains('='))
    }
}

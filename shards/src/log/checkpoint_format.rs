//! The text files of a log directory (kafka.md 5.2): offset checkpoints, `leader-epoch-checkpoint`, `partition.metadata`.
//!
//! Functions between text and values. A malformed file is a storage error: the caller takes the directory offline. Not here:
//! `meta.properties` and `.kafka_cleanshutdown`, which are the node's, not a log's.

use std::fmt::Write as _;

use super::epochs::{EpochStart, Epochs};
use crate::base::ids::Uuid;

/// Why a checkpoint can't be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is {found:?} where {expected} was expected")]
pub struct Malformed {
    pub line: usize,
    pub found: String,
    pub expected: &'static str,
}

/// One line of an offset checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetLine {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    at: usize,
    text: &'a str,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Lines<'a> {
        Lines {
            lines: text.lines().enumerate(),
            at: 0,
            text: "",
        }
    }

    fn next(&mut self) -> &'a str {
        match self.lines.next() {
            Some((at, text)) => {
                self.at = at + 1;
                self.text = text;
            }
            None => {
                self.at += 1;
                self.text = "";
            }
        }
        self.text
    }

    fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed {
            line: self.at,
            found: self.text.chars().take(100).collect(),
            expected,
        }
    }

    /// The version line and the count line, then as many entries, then nothing.
    fn entries<T>(
        mut self,
        expected: &'static str,
        parse: impl Fn(&mut std::str::SplitWhitespace<'a>) -> Option<T>,
    ) -> Result<Vec<T>, Malformed> {
        if self.next() != "0" {
            return Err(self.malformed("version 0"));
        }
        let count: usize = match self.next().parse() {
            Ok(count) => count,
            Err(_) => return Err(self.malformed("the number of entries")),
        };
        let mut entries = Vec::new();
        for _ in 0..count {
            let mut words = self.next().split_whitespace();
            match (parse(&mut words), words.next()) {
                (Some(entry), None) => entries.push(entry),
                _ => return Err(self.malformed(expected)),
            }
        }
        if self.lines.next().is_some() {
            return Err(self.malformed("the end of the file after the last entry"));
        }
        Ok(entries)
    }
}

/// Reads `recovery-point-offset-checkpoint`, `replication-offset-checkpoint`, `log-start-offset-checkpoint` and
/// `cleaner-offset-checkpoint`.
pub fn parse_offsets(text: &str) -> Result<Vec<OffsetLine>, Malformed> {
    Lines::new(text).entries("topic, partition and offset", |words| {
        Some(OffsetLine {
            topic: words.next()?.to_owned(),
            partition: words.next()?.parse().ok()?,
            offset: words.next()?.parse().ok()?,
        })
    })
}

pub fn format_offsets(lines: &[OffsetLine]) -> String {
    let mut text = format!("0\n{}\n", lines.len());
    for line in lines {
        write_line(
            &mut text,
            format_args!("{} {} {}", line.topic, line.partition, line.offset),
        );
    }
    text
}

/// Reads `leader-epoch-checkpoint`.
pub(super) fn parse_epochs(text: &str) -> Result<Epochs, Malformed> {
    let entries = Lines::new(text).entries("epoch and start offset", |words| {
        Some(EpochStart {
            epoch: words.next()?.parse().ok()?,
            start: words.next()?.parse().ok()?,
        })
    })?;
    Epochs::from_entries(entries).ok_or_else(|| Malformed {
        line: 3,
        found: text.chars().take(100).collect(),
        expected: "epochs and start offsets that grow",
    })
}

pub(super) fn format_epochs(epochs: &Epochs) -> String {
    let mut text = format!("0\n{}\n", epochs.entries().len());
    for entry in epochs.entries() {
        write_line(&mut text, format_args!("{} {}", entry.epoch, entry.start));
    }
    text
}

/// Reads `partition.metadata`: the topic's id.
pub fn parse_partition_metadata(text: &str) -> Result<Uuid, Malformed> {
    let mut lines = Lines::new(text);
    if lines.next() != "version: 0" {
        return Err(lines.malformed("version: 0"));
    }
    let id = lines
        .next()
        .strip_prefix("topic_id: ")
        .and_then(|id| id.parse().ok());
    id.ok_or_else(|| lines.malformed("topic_id: and a topic id"))
}

pub fn format_partition_metadata(topic_id: Uuid) -> String {
    // Kafka ends the last line without a line feed.
    format!("version: 0\ntopic_id: {topic_id}")
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_checkpoint_is_read_back() {
        let text = "0\n2\nfoo 0 100\n__consumer_offsets 49 7\n";
        let lines = parse_offsets(text).expect("valid");
        assert_eq!(lines[1].topic, "__consumer_offsets");
        assert_eq!((lines[1].partition, lines[1].offset), (49, 7));
        assert_eq!(format_offsets(&lines), text);
        assert_eq!(parse_offsets("0\n0\n").expect("valid"), []);
    }

    #[test]
    fn malformed_checkpoints_say_where() {
        for (text, line) in [
            ("", 1),
            ("1\n0\n", 1),
            ("0\nx\n", 2),
            ("0\n1\n", 3),
            ("0\n1\nfoo 0\n", 3),
            ("0\n1\nfoo 0 1 2\n", 3),
            ("0\n99999999999\nfoo 0 1\n", 4),
            ("0\n1\nfoo 0 1\nbar 0 1\n", 3),
        ] {
            assert_eq!(parse_offsets(text).expect_err(text).line, line, "{text:?}");
        }
    }

    #[test]
    fn a_leader_epoch_checkpoint_is_read_back() {
        let text = "0\n2\n0 0\n3 100\n";
        assert_eq!(format_epochs(&parse_epochs(text).expect("valid")), text);
        assert!(parse_epochs("0\n2\n3 100\n0 0\n").is_err());
    }

    #[test]
    fn partition_metadata_is_read_back() {
        let text = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ";
        let id = parse_partition_metadata(text).expect("valid");
        assert_eq!(id, crate::base::ids::METADATA_TOPIC_ID);
        assert_eq!(format_partition_metadata(id), text);
        assert!(parse_partition_metadata("version: 0\ntopic_id: !").is_err());
    }
}

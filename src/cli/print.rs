//! Output for people and for pipes.

use std::io::Write;

use super::failure::Failure;
use crate::api::table::APIS;

/// Writes one line.
pub(super) fn line(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    writeln!(out, "{text}").map_err(Failure::Output)
}

/// Rows in columns that are as wide as their widest cell; the last one is not padded.
pub(super) fn table(out: &mut dyn Write, rows: &[Vec<String>]) -> Result<(), Failure> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut text = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width + 2 - cell.chars().count();
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', padding));
        }
        line(out, text.trim_end())?;
    }
    Ok(())
}

/// `corelog version`
pub(super) fn version(out: &mut dyn Write) -> Result<(), Failure> {
    line(out, &format!("corelog {}", env!("CARGO_PKG_VERSION")))?;
    line(out, "speaks the protocol of Apache Kafka 4.x:")?;
    let rows: Vec<Vec<String>> = APIS
        .iter()
        .map(|api| {
            vec![
                format!("  {}", api.key),
                api.name.to_owned(),
                format!("{} to {}", api.min, api.max),
            ]
        })
        .collect();
    table(out, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![
            vec!["a".to_owned(), "bb".to_owned()],
            vec!["ccc".to_owned(), String::new()],
        ];
        let mut out = Vec::new();
        table(&mut out, &rows).unwrap();
        assert_eq!(out, b"a    bb\nccc\n");
    }

    #[test]
    fn the_version_lists_every_api() {
        let mut out = Vec::new();
        version(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2 + APIS.len());
        assert!(text.contains("Produce"));
    }
}

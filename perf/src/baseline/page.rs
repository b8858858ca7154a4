//! The page in `perf/baselines/`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::aims;
use super::plan::{Form, P99_MS};
use crate::Failure;
use crate::recorded::Spread;
use crate::results::Results;
use crate::start::Started;
use crate::sweep::{self, Knee};
use crate::table::{self, three};

/// What people write below it stays when the page is written again.
const NOTES: &str = "## Notes\n";
const NO_NOTES: &str = "\nNone yet: say here why what lost has lost, and what was tried.\n";

/// Today, by UTC.
pub(crate) fn today() -> Result<String, Failure> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| Failure::told("the clock is before 1970"))?;
    Ok(date(since.as_secs() / 86_400))
}

/// The date that is so many days after 1970 began.
fn date(days: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    loop {
        let length = 365 + u64::from(is_leap(year));
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

pub(crate) fn write_page(
    results: &Results,
    form: Form,
    date: &str,
    path: &Path,
) -> Result<(), Failure> {
    let before = std::fs::read_to_string(path).unwrap_or_default();
    let page = page(results, form, date, &before)?;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(Failure::at(dir))?;
    }
    std::fs::write(path, page).map_err(Failure::at(path))
}

fn page(results: &Results, form: Form, date: &str, before: &str) -> Result<String, Failure> {
    let what = match form {
        Form::Short => "short form",
        Form::Full => "full form",
    };
    let mut out = format!("# {date}: baseline, {what}\n\n{}\n\n", results.host.line());
    out += &how(results);
    out += "\n## What was wanted\n\nRatios of the same repeat, so what the machine does to both cancels out.\n\n";
    out += &aims::rows(results)?;
    let names = results.workload_names();
    let (paced, points): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains('@'));
    out += "\n## One point each\n\nMedians of the repeats; *÷ first* is CPU per record against the first target. *waited*, *load* and *others* are in cores. The floor serves no Fetch and syncs nothing.\n\n";
    out += &table::table_of(results, &points)?;
    let knees = knees(results, &points);
    if !knees.is_empty() {
        out += "\n## To the knee\n\n";
        out += &sweep::knees(&knees, P99_MS)?;
    }
    if !paced.is_empty() {
        out += "\n## The way there, and shares of Apache Kafka's highest rate\n\n";
        out += &table::table_of(results, &paced)?;
    }
    out += &starts(&results.starts)?;
    out += "\n";
    out += NOTES;
    out += before
        .split_once(NOTES)
        .map_or(NO_NOTES, |(_, notes)| notes);
    Ok(out)
}

fn how(results: &Results) -> String {
    let mut out = String::new();
    for used in &results.targets {
        out.extend(["- ", &used.name, ": `", &used.command, "`\n"]);
    }
    let runs = &results.runs;
    let count = |holds: fn(&crate::measure::Run) -> bool| {
        runs.iter().filter(|run| holds(run)).count().to_string()
    };
    let full = count(|run| run.page_cache_full);
    let doubtful = count(crate::measure::Run::is_doubtful);
    let busy = count(|run| run.other_cores > 0.1);
    out.extend([
        "- ",
        &runs.len().to_string(),
        " runs; before ",
        &full,
        " the page cache was full; in ",
        &doubtful,
        " more than 2% of a core was stolen; in ",
        &busy,
        " others on the machine used more than a tenth of a core\n",
    ]);
    for failure in &results.failures {
        out.extend(["- **not measured**: ", failure, "\n"]);
    }
    out
}

fn knees(results: &Results, workloads: &[&str]) -> Vec<Knee> {
    let targets = results.target_names(None);
    let all = workloads
        .iter()
        .flat_map(|workload| targets.iter().map(move |target| (*workload, *target)));
    all.filter_map(|(workload, target)| sweep::knee(results, workload, target, P99_MS))
        .collect()
}

fn starts(starts: &[Started]) -> Result<String, Failure> {
    let mut out = String::from(
        "\n## B14: start and memory\n\nMedian (lowest to highest).\n\n| target | answers on an empty directory, ms | answers after kill -9, ms | writable after kill -9, ms | MiB at rest | MiB under B2 | repeats |\n|---|---|---|---|---|---|---|\n",
    );
    let mut targets: Vec<&str> = Vec::new();
    for started in starts {
        if !targets.contains(&&*started.target) {
            targets.push(&started.target);
        }
    }
    for target in targets {
        let of: Vec<&Started> = starts
            .iter()
            .filter(|started| started.target == target)
            .collect();
        let cell = |number: fn(&Started) -> f64| -> Result<String, Failure> {
            let Spread {
                median,
                lowest,
                highest,
            } = Spread::of(of.iter().map(|started| number(started)))?;
            Ok(format!(
                "{} ({} to {})",
                three(median),
                three(lowest),
                three(highest)
            ))
        };
        let cells = [
            cell(|started| started.empty_ms)?,
            cell(|started| started.after_kill_ms)?,
            cell(|started| started.writable_after_kill_ms)?,
            cell(|started| started.at_rest.rss_bytes as f64 / f64::from(1 << 20))?,
            cell(|started| started.under_load.rss_bytes as f64 / f64::from(1 << 20))?,
        ];
        writeln!(out, "| {target} | {} | {} |", cells.join(" | "), of.len())
            .map_err(|_| Failure::told("the table can't be written"))?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure;
    use crate::process::Memory;
    use crate::results;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_788), "2026-12-01");
        assert_eq!(date(20_818), "2026-12-31");
    }

    #[test]
    fn notes_stay_when_the_page_is_written_again() {
        let mut results = results::example(vec![
            measure::example("b1", "percore", 1, 1.0),
            measure::example("b1@max", "percore", 1, 1.0),
        ]);
        results.failures.push("b2 on kafka: it ended".to_owned());
        results.starts.push(Started {
            target: "percore".to_owned(),
            repeat: 1,
            empty_ms: 55.0,
            at_rest: Memory::default(),
            under_load: Memory::default(),
            after_kill_ms: 44.0,
            writable_after_kill_ms: 66.0,
        });
        let first = page(&results, Form::Short, "2026-12-01", "").unwrap();
        assert!(first.ends_with(NO_NOTES), "{first}");
        assert!(first.contains("- **not measured**: b2 on kafka: it ended\n"));
        assert!(first.contains("| percore | 55.0 (55.0 to 55.0) | 44.0"));
        let noted = first.replace(NO_NOTES, "\nIt lost because.\n");
        let again = page(&results, Form::Full, "2026-12-01", &noted).unwrap();
        assert!(again.ends_with("## Notes\n\nIt lost because.\n"), "{again}");
        assert!(again.contains("full form"));
    }
}

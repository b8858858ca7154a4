//! What is wanted of a baseline, as ratios of two targets in one run of the lab.

use std::fmt::Write as _;

use crate::Failure;
use crate::measure::Run;
use crate::results::Results;
use crate::table::three;
use crate::verdict::Ratio;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// CPU seconds per million records.
    Cpu,
    /// 99.9th percentile of what a client waits for.
    Tail,
    /// Records a second; more is better.
    Rate,
}

/// `other` ÷ percore (for rates percore ÷ `other`) is wanted to be at least this.
#[derive(Debug, Clone, Copy)]
struct Aim {
    workload: &'static str,
    of: Of,
    other: &'static str,
    at_least: f64,
}

const fn aim(workload: &'static str, of: Of, other: &'static str, at_least: f64) -> Aim {
    Aim {
        workload,
        of,
        other,
        at_least,
    }
}

const OURS: &str = "percore";

/// Tails are compared at 80% of Apache Kafka's highest rate, or at the rate that the workload names.
const AIMS: &[Aim] = &[
    aim("b1", Of::Cpu, "kafka", 5.0),
    aim("b1", Of::Cpu, "floor", 0.7),
    aim("b1", Of::Cpu, "classic", 1.3),
    aim("b1@80pct-of-kafka", Of::Tail, "kafka", 4.0),
    aim("b9", Of::Tail, "kafka", 4.0),
    aim("b2", Of::Cpu, "kafka", 4.0),
    aim("b2", Of::Cpu, "floor", 0.7),
    aim("b2", Of::Cpu, "classic", 1.3),
    aim("b2@80pct-of-kafka", Of::Tail, "kafka", 4.0),
    aim("b3", Of::Cpu, "kafka", 2.5),
    aim("b3", Of::Cpu, "floor", 0.7),
    aim("b3", Of::Cpu, "classic", 1.3),
    aim("b3@80pct-of-kafka", Of::Tail, "kafka", 4.0),
    aim("b8", Of::Tail, "kafka", 4.0),
    aim("b4", Of::Cpu, "kafka", 4.5),
    aim("b4", Of::Cpu, "floor", 0.75),
    aim("b4", Of::Cpu, "classic", 1.3),
    aim("b4@80pct-of-kafka", Of::Tail, "kafka", 4.0),
    aim("b5", Of::Cpu, "kafka", 2.5),
    aim("b5", Of::Cpu, "floor", 0.7),
    aim("b5@80pct-of-kafka", Of::Tail, "kafka", 4.0),
    aim("b6", Of::Cpu, "kafka", 3.0),
    aim("b6", Of::Tail, "kafka", 4.0),
    aim("b7", Of::Cpu, "kafka", 3.0),
    aim("b7", Of::Tail, "kafka", 4.0),
    aim("b10", Of::Cpu, "kafka", 4.0),
    aim("b10", Of::Rate, "kafka", 3.0),
    aim("b10@80pct-of-kafka", Of::Tail, "kafka", 2.0),
    aim("b11", Of::Cpu, "kafka", 4.0),
    aim("b11", Of::Rate, "kafka", 3.0),
    aim("b11@80pct-of-kafka", Of::Tail, "kafka", 2.0),
    aim("b12", Of::Cpu, "kafka", 1.3),
    aim("b12-cold", Of::Cpu, "kafka", 1.3),
    aim("b13", Of::Cpu, "kafka", 2.5),
    aim("b13", Of::Tail, "kafka", 10.0),
];

impl Of {
    fn name(self) -> &'static str {
        match self {
            Of::Cpu => "CPU",
            Of::Tail => "p99.9",
            Of::Rate => "rate",
        }
    }

    fn number(self, run: &Run) -> Option<f64> {
        match self {
            Of::Cpu => Some(run.cpu_seconds_per_million_records).filter(|cpu| *cpu > 0.0),
            Of::Tail => run.tail()?.p999_us,
            Of::Rate => Some(run.records_per_second).filter(|rate| *rate > 0.0),
        }
    }
}

/// A row for each aim that something was measured for.
pub(super) fn rows(results: &Results) -> Result<String, Failure> {
    let mut out = String::from(
        "| workload | what | ratio (95% band, repeats) | wanted | reached |\n|---|---|---|---|---|\n",
    );
    for aim in AIMS {
        let (above, below) = match aim.of {
            Of::Cpu | Of::Tail => (aim.other, OURS),
            Of::Rate => (OURS, aim.other),
        };
        let pairs = results.pairs(aim.workload, (above, below), |run| aim.of.number(run));
        // What neither was measured nor has enough samples has no ratio.
        let Ok(ratio) = Ratio::of(&pairs) else {
            continue;
        };
        let reached = if ratio.mean >= aim.at_least {
            "yes"
        } else {
            "**no**"
        };
        let band = match ratio.repeats {
            1 => "one repeat".to_owned(),
            repeats => format!("{} to {}, {repeats}", three(ratio.low), three(ratio.high)),
        };
        writeln!(
            out,
            "| {} | {}, {above} ÷ {below} | {} ({band}) | {} | {reached} |",
            aim.workload,
            aim.of.name(),
            three(ratio.mean),
            aim.at_least
        )
        .map_err(|_| Failure::told("the table can't be written"))?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure;
    use crate::results;

    #[test]
    fn aims_are_reached_or_not() {
        let mut runs = Vec::new();
        for repeat in 1..=3 {
            runs.push(measure::example("b1", "percore", repeat, 1.0));
            runs.push(measure::example("b1", "kafka", repeat, 6.0));
            runs.push(measure::example("b1", "floor", repeat, 0.6));
            let mut slow = measure::example("b10", "kafka", repeat, 8.0);
            slow.records_per_second = 200.0;
            runs.push(slow);
            runs.push(measure::example("b10", "percore", repeat, 1.0));
        }
        let rows = rows(&results::example(runs)).unwrap();
        for row in [
            "| b1 | CPU, kafka ÷ percore | 6.00 (6.00 to 6.00, 3) | 5 | yes |",
            "| b1 | CPU, floor ÷ percore | 0.600 (0.600 to 0.600, 3) | 0.7 | **no** |",
            "| b10 | rate, percore ÷ kafka | 5.00 (5.00 to 5.00, 3) | 3 | yes |",
        ] {
            assert!(rows.contains(row), "{row}: {rows}");
        }
        assert!(!rows.contains("classic"), "{rows}");
        assert!(!rows.contains("p99.9"), "too few samples: {rows}");
    }
}

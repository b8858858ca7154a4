//! What was measured, as a directory: `results.json` with everything needed to repeat it, and an interval log a run.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::hlog::Log;
use crate::host::Host;
use crate::measure::{Measured, Run};
use crate::start::Started;
use crate::target::Broker;
use crate::workload::Workload;

const FILE: &str = "results.json";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TargetUsed {
    pub(crate) name: String,
    /// With all settings that it was given.
    pub(crate) command: String,
    /// From the start of the process to its first answer.
    pub(crate) started_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) host: Host,
    pub(crate) targets: Vec<TargetUsed>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) runs: Vec<Run>,
    pub(crate) starts: Vec<Started>,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
    #[serde(skip)]
    dir: PathBuf,
}

impl Results {
    /// An empty collection, kept in this directory from the first run on.
    pub(crate) fn new(host: Host, dir: &Path) -> Result<Results, Failure> {
        std::fs::create_dir_all(dir).map_err(Failure::at(dir))?;
        Ok(Results {
            host,
            targets: Vec::new(),
            workloads: Vec::new(),
            runs: Vec::new(),
            starts: Vec::new(),
            failures: Vec::new(),
            dir: dir.to_owned(),
        })
    }

    pub(crate) fn open(dir: &Path) -> Result<Results, Failure> {
        let path = dir.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(Failure::at(&path))?;
        let mut results: Results = serde_json::from_str(&text)
            .map_err(|error| Failure::told(format!("{}: {error}", path.display())))?;
        dir.clone_into(&mut results.dir);
        Ok(results)
    }

    /// What is there already, or nothing yet.
    pub(crate) fn open_or_new(host: Host, dir: &Path) -> Result<Results, Failure> {
        if dir.join(FILE).exists() {
            let mut results = Results::open(dir)?;
            // They are tried again.
            results.failures.clear();
            Ok(results)
        } else {
            Results::new(host, dir)
        }
    }

    pub(crate) fn started(&mut self, broker: &Broker) {
        if !self.targets.iter().any(|used| used.name == broker.name) {
            self.targets.push(TargetUsed {
                name: broker.name.clone(),
                command: broker.command.clone(),
                started_ms: broker.started_in.as_secs_f64() * 1e3,
            });
        }
    }

    /// Keeps one run, on disk before this returns.
    pub(crate) fn add(&mut self, workload: &Workload, measured: Measured) -> Result<(), Failure> {
        let Measured {
            mut run,
            log,
            began,
        } = measured;
        if !self.workloads.contains(workload) {
            self.workloads.push(workload.clone());
        }
        let name = format!("{}-{}-{}.hlog", run.workload, run.target, run.repeat);
        let path = self.dir.join(&name);
        let comment = format!("{} on {}, repeat {}", run.workload, run.target, run.repeat);
        std::fs::write(&path, log.write(&comment, began)?).map_err(Failure::at(&path))?;
        run.log = Some(name);
        // What was cut short is measured again, in its place.
        self.runs.retain(|known| {
            (&known.workload, &known.target, known.repeat)
                != (&run.workload, &run.target, run.repeat)
        });
        self.runs.push(run);
        self.save()
    }

    /// The file is replaced as a whole, so that an interruption leaves the old one.
    pub(crate) fn save(&self) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::told(format!("the results as JSON: {error}")))?;
        text.push('\n');
        let (new, path) = (self.dir.join("results.json.new"), self.dir.join(FILE));
        std::fs::write(&new, text).map_err(Failure::at(&new))?;
        std::fs::rename(&new, &path).map_err(Failure::at(&path))
    }

    /// The histograms of a run.
    pub(crate) fn log(&self, run: &Run) -> Result<Log, Failure> {
        let Some(name) = &run.log else {
            return Ok(Log::default());
        };
        let path = self.dir.join(name);
        let bytes = std::fs::read(&path).map_err(Failure::at(&path))?;
        Log::read(&bytes)
    }

    pub(crate) fn of<'a>(&'a self, workload: &str, target: &str) -> Vec<&'a Run> {
        let all = self.runs.iter();
        all.filter(|run| run.workload == workload && run.target == target)
            .collect()
    }

    /// Those that were not cut short: conclusions are drawn from them alone.
    pub(crate) fn complete<'a>(&'a self, workload: &str, target: &str) -> Vec<&'a Run> {
        let mut runs = self.of(workload, target);
        runs.retain(|run| !run.interrupted);
        runs
    }

    pub(crate) fn has(&self, workload: &str, target: &str, repeat: u32) -> bool {
        let runs = self.complete(workload, target);
        runs.iter().any(|run| run.repeat == repeat)
    }

    /// Workloads in the order of their first run.
    pub(crate) fn workload_names(&self) -> Vec<&str> {
        distinct(self.runs.iter().map(|run| &*run.workload))
    }

    /// Targets of a workload, or of all, in the order of their first run.
    pub(crate) fn target_names(&self, workload: Option<&str>) -> Vec<&str> {
        let runs = self.runs.iter();
        let of_it = runs.filter(|run| workload.is_none_or(|workload| run.workload == workload));
        distinct(of_it.map(|run| &*run.target))
    }

    /// Numbers of the same repeat on two targets: the first one's and the second one's.
    pub(crate) fn pairs(
        &self,
        workload: &str,
        targets: (&str, &str),
        number: impl Fn(&Run) -> Option<f64>,
    ) -> Vec<(f64, f64)> {
        let others = self.complete(workload, targets.1);
        let pairs = self
            .complete(workload, targets.0)
            .into_iter()
            .filter_map(|run| {
                let other = others.iter().find(|other| other.repeat == run.repeat)?;
                Some((number(run)?, number(other)?))
            });
        pairs.collect()
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// Results with these runs and without a place on disk, for tests of other files.
#[cfg(test)]
pub(crate) fn example(runs: Vec<Run>) -> Results {
    Results {
        host: Host::here("0", 1, Path::new(".")),
        targets: Vec::new(),
        workloads: Vec::new(),
        runs,
        starts: Vec::new(),
        failures: Vec::new(),
        dir: PathBuf::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::measure;

    fn measured(target: &str, repeat: u32) -> Measured {
        let mut log = Log::default();
        log.latency.record(0, 1_000_000);
        Measured {
            run: measure::example("b1", target, repeat, 1.0),
            log,
            began: SystemTime::now(),
        }
    }

    #[test]
    fn results_are_read_back_with_what_is_needed_to_repeat_them() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::here("0", 1, dir.path());
        let mut results = Results::new(host, dir.path()).unwrap();
        let workload = Workload::find("b1").unwrap();
        results.add(&workload, measured("floor", 1)).unwrap();
        results.add(&workload, measured("floor", 2)).unwrap();
        let read = Results::open(dir.path()).unwrap();
        assert_eq!(read, results);
        results.add(&workload, measured("floor", 2)).unwrap();
        assert_eq!(results.runs.len(), 2, "measured again, not twice");
        assert_eq!(read.workloads, [workload]);
        assert!(!read.host.kernel.is_empty());
        let log = read.log(&read.runs[1]).unwrap();
        assert_eq!(log.latency.merged().histogram().len(), 1);
    }

    #[test]
    fn a_run_that_was_cut_short_is_done_again() {
        let mut cut = measure::example("b1", "percore", 2, 1.0);
        cut.interrupted = true;
        let results = example(vec![measure::example("b1", "percore", 1, 1.0), cut]);
        assert!(results.has("b1", "percore", 1));
        assert!(!results.has("b1", "percore", 2));
        assert!(!results.has("b1", "kafka", 1));
    }

    #[test]
    fn pairs_are_of_the_same_repeat() {
        let run = |target, repeat, cpu| measure::example("b1", target, repeat, cpu);
        let results = example(vec![
            run("a", 1, 1.0),
            run("b", 1, 2.0),
            run("a", 2, 3.0),
            run("b", 3, 4.0),
            run("a", 4, 3.0),
            Run {
                interrupted: true,
                ..run("b", 4, 4.0)
            },
        ]);
        let cpu = |run: &Run| Some(run.cpu_seconds);
        assert_eq!(results.pairs("b1", ("b", "a"), cpu), [(2.0, 1.0)]);
    }
}

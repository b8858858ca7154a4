//! What can be said on the command line.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::Failure;
use crate::baseline;
use crate::compare;
use crate::floor;
use crate::growth;
use crate::hop;
use crate::interrupt;
use crate::lab::Setup;
use crate::memory;
use crate::report;
use crate::results::Results;
use crate::start;
use crate::sweep;
use crate::table;
use crate::target::{self, Place, Target, told_apart};
use crate::workload::{Arrivals, Workload};

/// The arguments of `corelog bench`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure workloads on one or several targets, interleaved.
    Run(RunArgs),
    /// Compare two or three targets: interleaved repeats, and whether they differ.
    Ab(RunArgs),
    /// From a light load to the knee: the highest rate that holds a given p99.
    Sweep(SweepArgs),
    /// One HTML page of results.
    Report(ReportArgs),
    /// Measure memory at rest, per idle connection and per idle partition.
    Memory(MemoryArgs),
    /// B14: how long a start takes, empty and after kill -9, and memory at rest and under B2.
    Start(StartArgs),
    /// What a record costs as connections, partitions and batches grow.
    Growth(GrowthArgs),
    /// What a request costs that is for another core of corelog.
    Hop(HopArgs),
    /// All of it, for the record: a page in perf/baselines. Goes on where it was interrupted.
    Baseline(BaselineArgs),
    /// List the workloads.
    List,
    /// Be the floor: reads, checks, appends, answers, and nothing else.
    Floor {
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
        #[arg(long, value_name = "DIRECTORY")]
        dir: PathBuf,
    },
    /// Be the null target: reads and answers, and nothing else.
    Null {
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
    },
}

/// Where and how targets run.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The broker's cores.
    #[arg(long, default_value = "0", value_name = "LIST")]
    pub(crate) cores: String,
    /// The core of the load.
    #[arg(long, default_value_t = 1, value_name = "CORE")]
    pub(crate) load_core: usize,
    /// Data of the targets, removed when they stop.
    #[arg(long, default_value = "target/bench", value_name = "DIRECTORY")]
    dir: PathBuf,
    /// The first port; each target takes ten.
    #[arg(long, default_value_t = 25000)]
    port: u16,
    /// A property of the broker, any number of times; for corelog and Apache Kafka.
    #[arg(long = "property", value_name = "KEY=VALUE")]
    properties: Vec<String>,
    /// The script that runs Apache Kafka.
    #[arg(long, default_value = "perf/kafka/kafka.sh", value_name = "FILE")]
    kafka_script: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// percore, classic, kafka:DIRECTORY-WITH-JARS, floor, null, or ADDRESS:PORT@PID for what is running. percore:BINARY and classic:BINARY are another build,
    /// NAME=… gives a name of its own. Any number of times; ratios are to the first.
    #[arg(short, long = "target", required = true, value_name = "TARGET")]
    targets: Vec<Target>,
}

/// What a workload may be changed to.
#[derive(Debug, Args)]
struct WorkloadArgs {
    /// Names that `list` shows, or paths of .toml files.
    #[arg(required = true)]
    workloads: Vec<String>,
    /// Seconds, instead of the workload's own.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Seconds, instead of the workload's own.
    #[arg(long, value_name = "SECONDS")]
    warmup: Option<f64>,
    /// Records a second, instead of the workload's own.
    #[arg(long)]
    rate: Option<f64>,
    /// How far apart the times of an open loop are, instead of the workload's own.
    #[arg(long, value_enum)]
    arrivals: Option<Arrivals>,
}

/// What belongs to every run.
#[derive(Debug, Args)]
struct LabArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Seconds of the first workload on every target before anything counts.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    heat: f64,
    /// Fill the page cache before each run, with a file as large as the memory.
    #[arg(long)]
    full_page_cache: bool,
    /// Where results go, after every run; runs that lie there already stay.
    #[arg(long, default_value = "target/bench-results", value_name = "DIRECTORY")]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    workloads: WorkloadArgs,
    #[command(flatten)]
    lab: LabArgs,
    #[arg(long, default_value_t = 5)]
    repeats: u32,
}

#[derive(Debug, Args)]
struct SweepArgs {
    #[command(flatten)]
    workloads: WorkloadArgs,
    #[command(flatten)]
    lab: LabArgs,
    /// The p99 that must hold, in milliseconds: of the consumer's receipt where the workload has consumers, else of the answer.
    #[arg(long, default_value_t = 10.0, value_name = "MS")]
    p99: f64,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// What `run`, `ab` or `sweep` have left.
    #[arg(default_value = "target/bench-results")]
    results: PathBuf,
    /// The page.
    #[arg(
        long,
        default_value = "target/bench-results/report.html",
        value_name = "FILE"
    )]
    html: PathBuf,
}

#[derive(Debug, Args)]
struct MemoryArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[arg(long, default_value_t = 2000)]
    connections: u32,
    #[arg(long, default_value_t = 2000)]
    partitions: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct StartArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// What is in its one partition when the broker is killed.
    #[arg(long, default_value_t = 1.0, value_name = "GB")]
    gigabytes: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct GrowthArgs {
    #[command(flatten)]
    lab: LabArgs,
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// Measured seconds of each run.
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    duration: f64,
}

#[derive(Debug, Args)]
struct HopArgs {
    #[command(flatten)]
    lab: LabArgs,
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// The cores of the broker that has two.
    #[arg(long, default_value = "0,1", value_name = "LIST")]
    two_cores: String,
}

#[derive(Debug, Args)]
struct BaselineArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Three repeats, one point a workload: at most 40 minutes.
    #[arg(long)]
    short: bool,
    /// Leave the page cache as it is, for a first look: what is measured then is a fresh machine.
    #[arg(long)]
    page_cache_as_it_is: bool,
    /// The baseline's name; give it to go on with one of another day [default: today].
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
    /// What has been measured, by date.
    #[arg(long, default_value = "target/baselines", value_name = "DIRECTORY")]
    out: PathBuf,
    /// Where the page goes.
    #[arg(long, default_value = "perf/baselines", value_name = "DIRECTORY")]
    pages: PathBuf,
}

/// Does what the arguments say. `own_prefix` stands before these arguments when this program is called: the floor is this program once more.
pub fn run(arguments: &Arguments, own_prefix: &[&str]) -> Result<(), Failure> {
    match &arguments.command {
        Command::Floor { listen, dir } => return floor::serve(*listen, Some(dir)),
        Command::Null { listen } => return floor::serve(*listen, None),
        _ => interrupt::watch()?,
    }
    match &arguments.command {
        Command::Run(run) => compare_targets(run, own_prefix),
        Command::Ab(run) => decide(run, own_prefix),
        Command::Sweep(sweep) => sweep_targets(sweep, own_prefix),
        Command::Report(report) => write_report(report),
        Command::Memory(memory) => measure_memory(memory, own_prefix),
        Command::Start(start) => measure_start(start, own_prefix),
        Command::Growth(growth) => grow(growth, own_prefix),
        Command::Hop(hop) => measure_hop(hop, own_prefix),
        Command::Baseline(baseline) => measure_baseline(baseline, own_prefix),
        Command::List | Command::Floor { .. } | Command::Null { .. } => list(),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}").map_err(Failure::io("cannot write the output"))
}

fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::told(format!("the results as JSON: {error}")))?;
    print(&text)
}

impl PlaceArgs {
    pub(crate) fn place(&self, own_prefix: &[&str]) -> Result<Place, Failure> {
        std::fs::create_dir_all(&self.dir).map_err(Failure::at(&self.dir))?;
        Ok(Place {
            cores: self.cores.clone(),
            dir: std::path::absolute(&self.dir).map_err(Failure::at(&self.dir))?,
            port: self.port,
            // What a run leaves must be gone before the next one.
            properties: std::iter::once("log.segment.delete.delay.ms=1000".to_owned())
                .chain(self.properties.iter().cloned())
                .collect(),
            kafka_script: self.kafka_script.clone(),
            own_prefix: own_prefix.iter().map(|word| (*word).to_owned()).collect(),
            _lock: target::lock(&self.dir)?,
        })
    }
}

impl WorkloadArgs {
    fn workloads(&self) -> Result<Vec<Workload>, Failure> {
        self.workloads
            .iter()
            .map(|name| self.workload(name))
            .collect()
    }

    fn workload(&self, name: &str) -> Result<Workload, Failure> {
        let mut workload = Workload::find(name)?;
        if let Some(seconds) = self.duration {
            workload.test_duration_seconds = seconds;
        }
        if let Some(seconds) = self.warmup {
            workload.warmup_duration_seconds = seconds;
        }
        if self.rate.is_some() {
            workload.producer_rate = self.rate;
        }
        if let Some(arrivals) = self.arrivals {
            workload.arrivals = arrivals;
        }
        workload.check().map_err(Failure::Told)?;
        Ok(workload)
    }
}

impl TargetArgs {
    pub(crate) fn targets(&self) -> Vec<Target> {
        told_apart(self.targets.clone())
    }
}

impl LabArgs {
    /// Calls `with` with the lab as these arguments want it.
    fn set_up<T>(
        &self,
        own_prefix: &[&str],
        with: impl FnOnce(&Setup<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        with(&Setup {
            targets: &self.targets.targets(),
            place: &self.place.place(own_prefix)?,
            load_core: self.place.load_core,
            full_page_cache: self.full_page_cache,
            out: &self.out,
        })
    }
}

fn compared(arguments: &RunArgs, own_prefix: &[&str]) -> Result<Results, Failure> {
    let plan = compare::Plan {
        workloads: arguments.workloads.workloads()?,
        repeats: arguments.repeats,
        heat_seconds: arguments.lab.heat,
    };
    arguments
        .lab
        .set_up(own_prefix, |setup| compare::run(&plan, setup))
}

fn compare_targets(arguments: &RunArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    print(&table::table(&compared(arguments, own_prefix)?)?)
}

fn decide(arguments: &RunArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let count = arguments.lab.targets.targets.len();
    if !(2..=3).contains(&count) {
        return Err(Failure::told(format!(
            "ab compares two or three targets, not {count}"
        )));
    }
    let results = compared(arguments, own_prefix)?;
    print(&table::table(&results)?)?;
    print(&table::verdicts(&results))
}

fn sweep_targets(arguments: &SweepArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let plan = sweep::Plan {
        workloads: arguments.workloads.workloads()?,
        p99_ms: arguments.p99,
        heat_seconds: arguments.lab.heat,
    };
    let (results, knees) = arguments
        .lab
        .set_up(own_prefix, |setup| sweep::run(&plan, setup))?;
    print(&sweep::shown(&results, &knees, plan.p99_ms)?)
}

fn write_report(arguments: &ReportArgs) -> Result<(), Failure> {
    let results = Results::open(&arguments.results)?;
    let page = report::page(&results)?;
    std::fs::write(&arguments.html, page).map_err(Failure::at(&arguments.html))?;
    print(&table::table(&results)?)?;
    print(&format!("{}", arguments.html.display()))
}

fn measure_memory(arguments: &MemoryArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let place = arguments.place.place(own_prefix)?;
    for target in &arguments.targets.targets() {
        let memory = memory::measure(target, &place, arguments.connections, arguments.partitions)?;
        if arguments.json {
            print_json(&memory)?;
        } else {
            print(&table::at_rest(&memory))?;
        }
    }
    Ok(())
}

fn measure_start(arguments: &StartArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let place = arguments.place.place(own_prefix)?;
    for repeat in 1..=arguments.repeats {
        for target in &arguments.targets.targets() {
            let plan = start::Plan {
                target,
                place: &place,
                number: 0,
                gigabytes: arguments.gigabytes,
            };
            let started = start::measure(plan, repeat)?;
            if arguments.json {
                print_json(&started)?;
            } else {
                print(&table::started(&started))?;
            }
        }
    }
    Ok(())
}

fn grow(arguments: &GrowthArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let plan = growth::Plan {
        repeats: arguments.repeats,
        seconds: arguments.duration,
        heat_seconds: arguments.lab.heat,
    };
    let results = arguments
        .lab
        .set_up(own_prefix, |setup| growth::run(&plan, setup))?;
    let page = arguments.lab.out.join("growth.html");
    std::fs::write(&page, growth::page(&results)?).map_err(Failure::at(&page))?;
    print(&growth::shown(&results)?)?;
    print(&format!("{}", page.display()))
}

fn measure_hop(arguments: &HopArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let plan = hop::Plan {
        repeats: arguments.repeats,
        two_cores: arguments.two_cores.clone(),
    };
    let results = arguments
        .lab
        .set_up(own_prefix, |setup| hop::run(&plan, setup))?;
    print(&hop::shown(&results)?)
}

fn measure_baseline(arguments: &BaselineArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let date = match &arguments.date {
        Some(date) => date.clone(),
        None => baseline::today()?,
    };
    let page = arguments.pages.join(format!("{date}.md"));
    let form = if arguments.short {
        baseline::Form::Short
    } else {
        baseline::Form::Full
    };
    let state = arguments.out.join(&date);
    let place = arguments.place.place(own_prefix)?;
    let results = baseline::run(
        form,
        &Setup {
            targets: &arguments.targets.targets(),
            place: &place,
            load_core: arguments.place.load_core,
            full_page_cache: !arguments.page_cache_as_it_is,
            out: &state,
        },
    )?;
    baseline::write_page(&results, form, &date, &page)?;
    print(&format!("{}", page.display()))
}

fn list() -> Result<(), Failure> {
    for workload in Workload::built_in()? {
        print(&format!("{:40} {}", workload.name, workload.about))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: Arguments,
    }

    #[test]
    fn the_arguments_are_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn what_is_given_wins_over_the_workload() {
        let line = "bench run b6 -t floor --rate 10 --duration 1 --warmup 0.5 --arrivals poisson";
        let Command::Run(run) = Line::parse_from(line.split(' ')).bench.command else {
            panic!("not a run");
        };
        let workload = run.workloads.workload("b6").unwrap();
        assert_eq!(workload.producer_rate, Some(10.0));
        assert_eq!(workload.arrivals, Arrivals::Poisson);
        let seconds = (
            workload.test_duration_seconds,
            workload.warmup_duration_seconds,
        );
        assert_eq!(seconds, (1.0, 0.5));
    }
}

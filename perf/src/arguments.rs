//! What can be said on the command line.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::Failure;
use crate::compare::{self, Plan};
use crate::floor;
use crate::memory;
use crate::report::{self, Host, Report};
use crate::start;
use crate::target::{Place, Target};
use crate::workload::Workload;

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
    /// Measure memory at rest, per idle connection and per idle partition.
    Memory(MemoryArgs),
    /// Measure how long a start takes: empty, and after kill -9.
    Start(StartArgs),
    /// List the workloads.
    List,
    /// Be the floor: reads, checks, appends, answers, and nothing else.
    Floor {
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
        #[arg(long, value_name = "DIRECTORY")]
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
struct PlaceArgs {
    /// percore, percore:BINARY, kafka:DIRECTORY-WITH-JARS, floor, or ADDRESS:PORT@PID for what is running. Any number of times; ratios are to the first.
    #[arg(short, long = "target", required = true, value_name = "TARGET")]
    targets: Vec<Target>,
    /// The broker's cores.
    #[arg(long, default_value = "0", value_name = "LIST")]
    cores: String,
    /// The core of the load.
    #[arg(long, default_value_t = 1, value_name = "CORE")]
    load_core: usize,
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
struct RunArgs {
    /// Names that `list` shows, or paths of .toml files.
    #[arg(required = true)]
    workloads: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// Seconds of the first workload on every target before anything counts.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    heat: f64,
    /// Instead of the workload's own.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Instead of the workload's own.
    #[arg(long, value_name = "SECONDS")]
    warmup: Option<f64>,
    /// Records a second, instead of the workload's own.
    #[arg(long)]
    rate: Option<f64>,
    /// Gigabytes to write before each run so that the page cache is full.
    #[arg(long, value_name = "GB")]
    fill_cache: Option<f64>,
    /// Where results go as JSON, after every run.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct MemoryArgs {
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
    place: PlaceArgs,
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// The topic that is there when the broker is killed.
    #[arg(long, default_value = "b1")]
    workload: String,
    /// What is in it.
    #[arg(long, default_value_t = 1.0, value_name = "GB")]
    gigabytes: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Does what the arguments say. `own_prefix` stands before these arguments when this program is called: the floor is this program once more.
pub fn run(arguments: &Arguments, own_prefix: &[&str]) -> Result<(), Failure> {
    match &arguments.command {
        Command::Run(run) => compare_targets(run, own_prefix),
        Command::Memory(memory) => measure_memory(memory, own_prefix),
        Command::Start(start) => measure_start(start, own_prefix),
        Command::List => list(),
        Command::Floor { listen, dir } => floor::serve(*listen, dir),
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
    fn place(&self, own_prefix: &[&str]) -> Result<Place, Failure> {
        std::fs::create_dir_all(&self.dir).map_err(Failure::at(&self.dir))?;
        Ok(Place {
            cores: self.cores.clone(),
            dir: std::path::absolute(&self.dir).map_err(Failure::at(&self.dir))?,
            port: self.port,
            properties: self.properties.clone(),
            kafka_script: self.kafka_script.clone(),
            own_prefix: own_prefix.iter().map(|word| (*word).to_owned()).collect(),
        })
    }
}

impl RunArgs {
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
        workload.check().map_err(Failure::Told)?;
        Ok(workload)
    }
}

fn compare_targets(arguments: &RunArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let names = arguments.workloads.iter();
    let plan = Plan {
        workloads: names
            .map(|name| arguments.workload(name))
            .collect::<Result<_, _>>()?,
        targets: arguments.place.targets.clone(),
        repeats: arguments.repeats,
        heat_seconds: arguments.heat,
        load_core: arguments.place.load_core,
        fill_cache_gb: arguments.fill_cache,
        json: arguments.json.clone(),
    };
    let place = arguments.place.place(own_prefix)?;
    let report = Report::new(Host::here(&place.cores, plan.load_core));
    let report = compare::run(&plan, &place, report)?;
    print(&report.table()?)
}

fn measure_memory(arguments: &MemoryArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let place = arguments.place.place(own_prefix)?;
    for target in &arguments.place.targets {
        let memory = memory::measure(target, &place, arguments.connections, arguments.partitions)?;
        if arguments.json {
            print_json(&memory)?;
        } else {
            print(&report::at_rest(&memory))?;
        }
    }
    Ok(())
}

fn measure_start(arguments: &StartArgs, own_prefix: &[&str]) -> Result<(), Failure> {
    let place = arguments.place.place(own_prefix)?;
    let workload = Workload::find(&arguments.workload)?;
    for repeat in 1..=arguments.repeats {
        for target in &arguments.place.targets {
            let started = start::measure(target, &place, repeat, &workload, arguments.gigabytes)?;
            if arguments.json {
                print_json(&started)?;
            } else {
                print(&report::started(&started))?;
            }
        }
    }
    Ok(())
}

fn list() -> Result<(), Failure> {
    for workload in Workload::built_in()? {
        print(&format!("{:4} {}", workload.name, workload.about))?;
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
        let line = "bench run b6 -t floor --rate 10 --duration 1 --warmup 0.5";
        let Command::Run(run) = Line::parse_from(line.split(' ')).bench.command else {
            panic!("not a run");
        };
        let workload = run.workload("b6").unwrap();
        assert_eq!(workload.producer_rate, Some(10.0));
        let seconds = (
            workload.test_duration_seconds,
            workload.warmup_duration_seconds,
        );
        assert_eq!(seconds, (1.0, 0.5));
    }
}

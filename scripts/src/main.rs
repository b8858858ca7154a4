//! `cargo xtask VERB`: the habits of the project. Needs nothing but cargo and git; verbs that need more say so.

mod steps;
mod tidy;

use std::process::ExitCode;

use steps::{Failed, Steps};

const USAGE: &str = "usage: cargo xtask VERB [ARGUMENTS]

  check            formatting, clippy with warnings denied, tidy
  tidy             the rules of the house alone (UPDATE=1 rewrites the counts of unsafe)
  test             every test that needs nothing but Rust and a C compiler
  sim [ARGS]       the simulator: --seed S, --seeds N
  it [ARGS]        tests against a real broker on loopback
  clients [ARGS]   real client libraries, those that are installed (tests/clients/install.sh)
  crash [ARGS]     kill -9 under load
  bench [ARGS]     open-loop load
  loom             exhaustive interleavings of what cores share
  gate             what test leaves out: check, sim, clients, crash
  ci               test and gate";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let done = Steps::at_root().and_then(|mut steps| run(&mut steps, &verb, &rest));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(steps: &mut Steps, verb: &str, rest: &[String]) -> Result<(), Failed> {
    match verb {
        "check" => check(steps),
        "tidy" => steps.tidy(),
        "test" => test(steps, rest),
        "sim" => sim(steps, rest),
        "it" => steps.cargo(
            &[
                "test",
                "--package",
                "corelog",
                "--test",
                "it",
                "--test",
                "it-classic",
                "--",
            ],
            rest,
        ),
        "clients" => clients(steps, rest),
        "crash" => crash(steps, rest),
        "bench" => {
            let bench = ["run", "--release", "--package", "corelog-perf", "--"];
            steps.cargo(&bench, rest)
        }
        "loom" => loom(steps),
        "gate" => gate(steps),
        "ci" => test(steps, &[]).and_then(|()| gate(steps)),
        _ => Err(Failed(USAGE.to_owned())),
    }
}

fn check(steps: &mut Steps) -> Result<(), Failed> {
    steps.cargo(&["fmt", "--all", "--check"], &[])?;
    steps.tidy()?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    steps.cargo(&clippy, &[])
}

fn test(steps: &mut Steps, rest: &[String]) -> Result<(), Failed> {
    steps.cargo(&["test", "--workspace"], rest)
}

fn sim(steps: &mut Steps, rest: &[String]) -> Result<(), Failed> {
    steps.cargo(
        &["run", "--release", "--package", "corelog-sim", "--"],
        rest,
    )
}

fn clients(steps: &mut Steps, rest: &[String]) -> Result<(), Failed> {
    steps.cargo(&["build", "--release"], &[])?;
    steps.script("tests/clients/run.sh", rest)
}

fn crash(steps: &mut Steps, rest: &[String]) -> Result<(), Failed> {
    steps.cargo(&["build", "--release"], &[])?;
    steps.script("tests/crash/run.sh", rest)
}

fn loom(steps: &mut Steps) -> Result<(), Failed> {
    steps.env("RUSTFLAGS", "--cfg loom");
    let loom = ["test", "--package", "corelog-io", "--release", "loom"];
    steps.cargo(&loom, &[])
}

fn gate(steps: &mut Steps) -> Result<(), Failed> {
    check(steps)?;
    sim(steps, &["--seeds".to_owned(), "200".to_owned()])?;
    clients(steps, &[])?;
    crash(steps, &["--smoke".to_owned()])
}

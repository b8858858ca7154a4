//! `cargo xtask sim [--seed S] [--seeds N] [--events N]`: runs seeds, each twice; shows what failed and how to repeat it.
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use corelog_sim::Failure;
use corelog_sim::history::last_events;
use corelog_sim::run::{Length, Summary, run_twice};

thread_local! {
    /// The seed that this thread runs.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

struct Arguments {
    first: u64,
    seeds: u64,
    length: Length,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        first: 1,
        seeds: 200,
        length: Length::default(),
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given
            .next()
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| format!("{name} needs a number"))?;
        match name.as_str() {
            "--seed" => (arguments.first, arguments.seeds) = (value, 1),
            "--from" => arguments.first = value,
            "--seeds" => arguments.seeds = value,
            "--events" => arguments.length.events = value,
            _ => {
                return Err(format!(
                    "{name} is not known; there are --seed S, --seeds N, --from S and --events N"
                ));
            }
        }
    }
    Ok(arguments)
}

fn explain(seed: u64, length: Length, why: &str) {
    println!("{}", last_events());
    println!("seed {seed} FAILED: {why}");
    println!(
        "repeat with: cargo xtask sim --seed {seed} --events {}",
        length.events
    );
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("sim: {why}");
            return ExitCode::from(2);
        }
    };
    let length = arguments.length;
    std::panic::set_hook(Box::new(move |panic| {
        explain(SEED.get(), length, &format!("panic: {panic}"));
    }));
    let began = Instant::now();
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let totals = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| work(&arguments, &next, &failed)))
            .collect();
        let finished = workers.into_iter().filter_map(|worker| worker.join().ok());
        finished.flatten().collect::<Vec<Summary>>()
    });
    let sum = |of: fn(&Summary) -> u64| totals.iter().map(of).sum::<u64>();
    println!(
        "{} seeds, each twice: {} events, {} starts, {} clean stops, {} batches acknowledged, {} fetched, {} offsets committed, {} assignments given out, in {:.1} s",
        totals.len(),
        sum(|summary| summary.events),
        sum(|summary| u64::from(summary.starts)),
        sum(|summary| summary.clean_stops),
        sum(|summary| summary.acknowledged),
        sum(|summary| summary.fetched),
        sum(|summary| summary.commits),
        sum(|summary| summary.assignments),
        began.elapsed().as_secs_f64()
    );
    if failed.load(Ordering::SeqCst) || totals.len() as u64 != arguments.seeds {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Takes seeds until there are none, or one fails.
fn work(arguments: &Arguments, next: &AtomicU64, failed: &AtomicBool) -> Vec<Summary> {
    let mut done = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if number >= arguments.seeds || failed.load(Ordering::SeqCst) {
            return done;
        }
        let seed = arguments.first + number;
        let length = arguments.length;
        SEED.set(seed);
        match run_twice(seed, length) {
            Ok(summary) => done.push(summary),
            Err(Failure(why)) => {
                failed.store(true, Ordering::SeqCst);
                explain(seed, length, &why);
                return done;
            }
        }
    }
}

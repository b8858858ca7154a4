//! One run: a workload on a broker, and what it cost.

use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::cache::{self, Filler, PageCache};
use crate::hlog::Log;
use crate::idle;
use crate::interrupt;
use crate::load::{self, Job, Moment, Topics, Window};
use crate::process::{Machine, Memory, Spent, Threads};
use crate::progress::Progress;
use crate::recorded::{Recorded, Summary};
use crate::stages::{self, Stage};
use crate::target::Broker;
use crate::workload::Workload;

/// More stolen than this share of a core makes a run doubtful.
const STOLEN_MAX: f64 = 0.02;
/// An open-loop run that sent less than this share of its rate did not keep it.
const KEPT_MIN: f64 = 0.98;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub workload: String,
    pub target: String,
    pub repeat: u32,
    /// Seconds since 1970 when the measured time began.
    pub began: u64,
    pub seconds: f64,
    /// Records a second that were asked for.
    pub rate: Option<f64>,
    pub records_per_second: f64,
    /// Of values produced, or of batches read when nothing is produced.
    pub megabytes_per_second: f64,
    /// Of batches that consumers received.
    pub fetched_megabytes_per_second: f64,
    /// Of all threads of the broker.
    pub cpu_seconds: f64,
    pub cpu_seconds_per_million_records: f64,
    pub cpu_seconds_per_gigabyte: f64,
    pub threads: Vec<Threads>,
    /// Core seconds a second that the broker's threads were ready and had no core.
    pub waited: f64,
    /// Cores that the load used; near 1 the load is the limit.
    pub load_cores: f64,
    /// Cores that neither broker nor load used: others on the machine, and the kernel's own threads.
    pub other_cores: f64,
    pub stolen_cores: f64,
    /// Core seconds a second in which a quota kept threads from running.
    pub throttled: f64,
    pub memory: Memory,
    /// When the run began.
    pub page_cache: PageCache,
    /// It was filled on purpose, and was full.
    pub page_cache_full: bool,
    /// From the intended time to the answer.
    pub latency: Option<Summary>,
    /// From sending to the answer.
    pub service: Option<Summary>,
    /// From the intended time to the consumer's receipt.
    pub end_to_end: Option<Summary>,
    pub unanswered: u64,
    pub unseen: u64,
    /// Until a backlog had been read.
    pub caught_up_seconds: Option<f64>,
    /// Each second: records, and cores that the broker used.
    pub each_second: Vec<(f64, f64)>,
    /// What the broker itself says, warm-up included.
    pub stages: Vec<Stage>,
    /// Ended before its time.
    pub interrupted: bool,
    /// The interval log, next to the results.
    pub log: Option<String>,
}

impl Run {
    /// Whether the hypervisor took so much that the run says little.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.stolen_cores > STOLEN_MAX
    }

    /// Whether nothing happened, although nobody ended it.
    pub(crate) fn is_void(&self) -> bool {
        let seen = self.records_per_second > 0.0 || self.fetched_megabytes_per_second > 0.0;
        !seen && !self.interrupted
    }

    /// Whether the broker took what was offered.
    pub(crate) fn kept_its_rate(&self) -> bool {
        let offered = self.rate.unwrap_or(0.0);
        self.unanswered == 0 && self.records_per_second >= offered * KEPT_MIN
    }

    /// What a client of this workload waits for: the consumer's receipt where there is a consumer.
    pub(crate) fn tail(&self) -> Option<&Summary> {
        self.end_to_end.as_ref().or(self.latency.as_ref())
    }
}

/// A run and its histograms.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) run: Run,
    pub(crate) log: Log,
    pub(crate) began: SystemTime,
}

/// What was spent up to one edge of the measured time.
struct Edge {
    at: Instant,
    broker: Spent,
    threads: Vec<Threads>,
    load: Spent,
    machine: Machine,
    memory: Memory,
}

impl Edge {
    fn now(pid: u32) -> Result<Edge, Failure> {
        Ok(Edge {
            at: Instant::now(),
            broker: Spent::of(pid)?,
            threads: Threads::of(pid)?,
            load: Spent::of(std::process::id())?,
            machine: Machine::now()?,
            memory: Memory::of(pid)?,
        })
    }
}

/// What is noted while the run goes on.
struct Notes<'a> {
    pid: u32,
    workload: &'a Workload,
    progress: Progress,
    began: Option<SystemTime>,
    edges: Vec<Edge>,
    /// When, batches and the broker's CPU seconds so far, each second.
    marks: Vec<(Instant, u64, f64)>,
}

impl Notes<'_> {
    fn observe(&mut self, moment: Moment<'_>) -> Result<(), Failure> {
        match moment {
            Moment::Opens => {
                self.began = Some(SystemTime::now());
                let edge = Edge::now(self.pid)?;
                self.marks.push((edge.at, 0, edge.broker.cpu_seconds));
                self.edges.push(edge);
            }
            Moment::Second(second, recorded) => {
                let cpu_seconds = Spent::cpu_seconds_of(self.pid)?;
                self.marks
                    .push((Instant::now(), recorded.batches, cpu_seconds));
                self.progress.second(second, recorded);
            }
            Moment::Closes => self.edges.push(Edge::now(self.pid)?),
        }
        Ok(())
    }

    fn each_second(&self) -> Vec<(f64, f64)> {
        let records = f64::from(self.workload.records_per_batch);
        let pairs = self.marks.windows(2).map(|pair| {
            let seconds = (pair[1].0 - pair[0].0).as_secs_f64();
            let batches = (pair[1].1 - pair[0].1) as f64;
            (
                batches * records / seconds,
                (pair[1].2 - pair[0].2) / seconds,
            )
        });
        pairs.collect()
    }
}

/// Measures one run on topics of its own, which are gone afterwards.
pub(crate) fn measure(
    broker: &Broker,
    workload: &Workload,
    repeat: u32,
    filler: Option<&mut Filler>,
) -> Result<Measured, Failure> {
    let mut workload = workload.clone();
    if !broker.kind.serves_fetch() {
        if workload.only_reads() {
            return Err(Failure::told(format!(
                "{} serves no Fetch, and {} does nothing else",
                broker.name, workload.name
            )));
        }
        workload.consumer_per_subscription = 0;
        workload.consumer_backlog_size_gb = None;
    }
    let idle = idle::open(broker.address, workload.idle_connections)?;
    let prefix = format!("bench-{}-{repeat}-{}", workload.name, std::process::id());
    let topics = Topics::named(&prefix, &workload);
    broker.create_topics(&topics, &workload)?;
    let measured = measure_on(broker, &workload, repeat, &topics, filler);
    broker.delete_topics(&topics)?;
    drop(idle);
    measured
}

fn measure_on(
    broker: &Broker,
    workload: &Workload,
    repeat: u32,
    topics: &Topics,
    filler: Option<&mut Filler>,
) -> Result<Measured, Failure> {
    let job = Job {
        address: broker.address,
        topics,
        workload,
        metrics: broker.metrics,
    };
    let backlog = match workload.consumer_backlog_size_gb {
        None => {
            load::touch(job)?;
            None
        }
        Some(gigabytes) => {
            let batches = (gigabytes * 1e9) as u64 / workload.batch_payload();
            Some(load::fill(job, batches.max(1))?)
        }
    };
    cache::flush_dirty_pages();
    let mut filler = filler;
    if let Some(filler) = &mut filler {
        filler.fill()?;
    }
    if workload.cold_backlog {
        let dir = broker.data_dir().ok_or_else(|| {
            Failure::told("only the data of a broker that was started here can be made cold")
        })?;
        cache::evict(dir)?;
    }
    if interrupt::is_asked() {
        return Err(interrupt::stopped());
    }
    let page_cache = PageCache::now()?;
    let page_cache_full = filler.is_some_and(|filler| filler.is_full(&page_cache));
    let stages_before = broker.metrics.map(stages::scrape_totals).transpose()?;
    let window = Window {
        begin_seconds: workload.warmup_duration_seconds,
        end_seconds: workload.warmup_duration_seconds + workload.test_duration_seconds,
    };
    let what = format!("{} {} #{repeat}", workload.name, broker.name);
    let seconds = workload.test_duration_seconds;
    let mut notes = Notes {
        pid: broker.pid,
        workload,
        progress: Progress::new(what, seconds, workload.records_per_batch),
        began: None,
        edges: Vec::new(),
        marks: Vec::new(),
    };
    let recorded = load::run(job, window, backlog.as_deref(), &mut |moment| {
        notes.observe(moment)
    })?;
    notes.progress.end();
    let stages = match (broker.metrics, stages_before) {
        (Some(address), Some(before)) => {
            stages::between(&before, &stages::totals_when_merged(address)?)
        }
        _ => Vec::new(),
    };
    let [begin, end] = &notes.edges[..] else {
        return Err(Failure::told("the run ended before it was measured"));
    };
    let began = notes.began.unwrap_or(SystemTime::UNIX_EPOCH);
    let run = Run {
        repeat,
        began: began
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs(),
        page_cache,
        page_cache_full,
        each_second: notes.each_second(),
        stages,
        ..describe(broker, workload, begin, end, &recorded)
    };
    Ok(Measured {
        run,
        log: Log::of(&recorded),
        began,
    })
}

fn describe(
    broker: &Broker,
    workload: &Workload,
    begin: &Edge,
    end: &Edge,
    recorded: &Recorded,
) -> Run {
    let seconds = (end.at - begin.at).as_secs_f64();
    let records = (recorded.batches * u64::from(workload.records_per_batch)) as f64;
    let fetched = recorded.fetched_bytes as f64;
    let produced = if workload.only_reads() {
        0.0
    } else {
        records * f64::from(workload.message_size)
    };
    // A catch-up moves what it reads and what it writes; who only follows reads what was counted when it was produced.
    let bytes = if workload.consumer_backlog_size_gb.is_some() {
        produced + fetched
    } else {
        produced
    };
    let spent = end.broker.since(begin.broker);
    let load = end.load.since(begin.load);
    let busy = end.machine.busy_seconds - begin.machine.busy_seconds;
    let stolen = end.machine.stolen_seconds - begin.machine.stolen_seconds;
    let throttled = end.machine.throttled_seconds - begin.machine.throttled_seconds;
    Run {
        workload: workload.name.clone(),
        target: broker.name.clone(),
        repeat: 0,
        began: 0,
        seconds,
        rate: workload.producer_rate,
        records_per_second: records / seconds,
        megabytes_per_second: if workload.only_reads() {
            fetched
        } else {
            produced
        } / seconds
            / 1e6,
        fetched_megabytes_per_second: fetched / seconds / 1e6,
        cpu_seconds: spent.cpu_seconds,
        cpu_seconds_per_million_records: per(spent.cpu_seconds, records) * 1e6,
        cpu_seconds_per_gigabyte: per(spent.cpu_seconds, bytes) * 1e9,
        threads: Threads::since(end.threads.clone(), &begin.threads),
        waited: spent.waited_seconds / seconds,
        load_cores: load.cpu_seconds / seconds,
        other_cores: ((busy - spent.cpu_seconds - load.cpu_seconds) / seconds).max(0.0),
        stolen_cores: stolen / seconds,
        throttled: throttled / seconds,
        memory: end.memory,
        page_cache: PageCache::default(),
        page_cache_full: false,
        latency: recorded.latency.merged().summary(),
        service: recorded.service.merged().summary(),
        end_to_end: recorded.end_to_end.merged().summary(),
        unanswered: recorded.unanswered,
        unseen: recorded.unseen,
        caught_up_seconds: recorded.caught_up_seconds,
        each_second: Vec::new(),
        stages: Vec::new(),
        interrupted: recorded.interrupted,
        log: None,
    }
}

/// JSON has no infinity: of nothing the cost is 0, and the count beside it says so.
fn per(cost: f64, count: f64) -> f64 {
    if count > 0.0 { cost / count } else { 0.0 }
}

/// A run as tests of other files need it.
#[cfg(test)]
pub(crate) fn example(workload: &str, target: &str, repeat: u32, cpu: f64) -> Run {
    Run {
        workload: workload.to_owned(),
        target: target.to_owned(),
        repeat,
        began: 1_800_000_000,
        seconds: 10.0,
        rate: None,
        records_per_second: 1000.0,
        megabytes_per_second: 1.0,
        fetched_megabytes_per_second: 0.0,
        cpu_seconds: cpu,
        cpu_seconds_per_million_records: cpu,
        cpu_seconds_per_gigabyte: cpu,
        threads: Vec::new(),
        waited: 0.0,
        load_cores: 0.5,
        other_cores: 0.0,
        stolen_cores: 0.0,
        throttled: 0.0,
        memory: Memory::default(),
        page_cache: PageCache::default(),
        page_cache_full: false,
        latency: Some(Summary {
            count: 5000,
            mean_us: 1600.0,
            p50_us: 1500.0,
            p99_us: Some(3000.0),
            p999_us: None,
            p9999_us: None,
            max_us: 9000.0,
        }),
        service: None,
        end_to_end: None,
        unanswered: 0,
        unseen: 0,
        caught_up_seconds: None,
        each_second: vec![(1000.0, 0.5); 10],
        stages: Vec::new(),
        interrupted: false,
        log: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_two_percent_stolen_makes_a_run_doubtful() {
        let mut run = example("b1", "percore", 1, 1.0);
        run.stolen_cores = 0.019;
        assert!(!run.is_doubtful());
        run.stolen_cores = 0.021;
        assert!(run.is_doubtful());
    }

    #[test]
    fn a_run_without_any_answer_is_void() {
        let mut run = example("b1", "percore", 1, 1.0);
        assert!(!run.is_void());
        run.records_per_second = 0.0;
        assert!(run.is_void());
        run.interrupted = true;
        assert!(!run.is_void());
    }

    #[test]
    fn a_rate_is_kept_when_all_of_it_was_answered() {
        let mut run = example("b1", "percore", 1, 1.0);
        assert!(run.kept_its_rate(), "none was asked for");
        run.rate = Some(1010.0);
        assert!(run.kept_its_rate());
        run.unanswered = 1;
        assert!(!run.kept_its_rate());
        run.unanswered = 0;
        run.rate = Some(1100.0);
        assert!(!run.kept_its_rate());
    }
}

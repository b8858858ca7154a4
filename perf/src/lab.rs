//! The bench itself: brokers that are started once, the page cache, and what has been measured so far.
//!
//! Brokers idle while another is measured, so that a JVM is as warm as it gets; each run has topics of its own, which are deleted afterwards.

use std::io::Write as _;
use std::path::Path;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::Failure;
use crate::cache::{Filler, PageCache};
use crate::host::Host;
use crate::idle;
use crate::interrupt;
use crate::measure::{self, Run};
use crate::results::Results;
use crate::table;
use crate::target::{Broker, Place, Target};
use crate::workload::Workload;

/// Connections and files of the largest workload and of a broker under it: three files a partition.
const OPEN_FILES: u64 = 100_000;

/// What brokers have on disk at most: a backlog of 10 GB and what is produced beside it, or fast writes that are not deleted yet.
const RUN_BYTES: u64 = 14_000_000_000;

#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) brokers: Vec<Broker>,
    pub(crate) results: Results,
    filler: Option<Filler>,
}

/// How a lab is set up.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) targets: &'a [Target],
    pub(crate) place: &'a Place,
    pub(crate) load_core: usize,
    /// The page cache is full before every run.
    pub(crate) full_page_cache: bool,
    /// Where results go.
    pub(crate) out: &'a Path,
}

impl Lab {
    /// Starts everything; results that lie in the directory already are kept.
    pub(crate) fn open(setup: &Setup<'_>) -> Result<Lab, Failure> {
        // Where the limit can't be raised so far, the workload that needs it says so.
        let _ = idle::allow_open_files(OPEN_FILES);
        let host = Host::here(&setup.place.cores, setup.load_core, &setup.place.dir);
        let results = Results::open_or_new(host, setup.out)?;
        let filler = setup
            .full_page_cache
            .then(|| fill(&setup.place.dir))
            .transpose()?;
        // Before the brokers, which are pinned by what starts them.
        pin_to(setup.load_core)?;
        let mut lab = Lab {
            brokers: Vec::new(),
            results,
            filler,
        };
        for target in setup.targets {
            lab.start(target, setup.place)?;
        }
        Ok(lab)
    }

    /// Measures by `work`; ended early by an interruption, it gives what there is.
    pub(crate) fn measure(
        mut self,
        work: impl FnOnce(&mut Lab) -> Result<(), Failure>,
    ) -> Result<Results, Failure> {
        match work(&mut self) {
            Err(_) if interrupt::is_asked() && !self.results.runs.is_empty() => {}
            done => done?,
        }
        Ok(self.results)
    }

    /// One more broker.
    pub(crate) fn start(&mut self, target: &Target, place: &Place) -> Result<(), Failure> {
        let broker = target.start(place, self.brokers.len() as u16)?;
        self.results.started(&broker);
        self.brokers.push(broker);
        Ok(())
    }

    /// Load on each broker that does not count.
    pub(crate) fn heat(&mut self, workload: &Workload, seconds: f64) -> Result<(), Failure> {
        (0..self.brokers.len()).try_for_each(|at| self.heat_one(at, workload, seconds))
    }

    pub(crate) fn heat_one(
        &mut self,
        at: usize,
        workload: &Workload,
        seconds: f64,
    ) -> Result<(), Failure> {
        if seconds <= 0.0 {
            return Ok(());
        }
        let mut workload = workload.clone();
        workload.warmup_duration_seconds = 0.0;
        workload.test_duration_seconds = seconds;
        workload.consumer_backlog_size_gb = None;
        workload.cold_backlog = false;
        measure::measure(&self.brokers[at], &workload, 0, None).map(|_| ())
    }

    /// Whether there is something to measure: reading alone means nothing to what serves no Fetch.
    pub(crate) fn can_run(&self, at: usize, workload: &Workload) -> bool {
        self.brokers[at].kind.serves_fetch() || !workload.only_reads()
    }

    /// Runs the workload so often on every broker, in turns; what is there already is not measured again. What fails is noted, and the others go on.
    pub(crate) fn interleave(&mut self, workload: &Workload, repeats: u32) -> Result<(), Failure> {
        for repeat in 1..=repeats {
            for at in 0..self.brokers.len() {
                let name = self.brokers[at].name.clone();
                if self.can_run(at, workload) && !self.results.has(&workload.name, &name, repeat) {
                    let what = format!("{} on {name}, repeat {repeat}", workload.name);
                    let done = self.run(at, workload, repeat).map(|_| ());
                    self.note_failure(&what, done)?;
                }
            }
        }
        Ok(())
    }

    /// A failure becomes a line of the results; an interruption stays what it is.
    pub(crate) fn note_failure(
        &mut self,
        what: &str,
        done: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match done {
            Err(failure) if !interrupt::is_asked() => {
                tell(&format!("{what}: {failure}"));
                self.results.failures.push(format!("{what}: {failure}"));
                self.results.save()
            }
            done => done,
        }
    }

    /// One run on the broker at this place, kept at once; one that failed is tried again. An interruption is an error before the next.
    pub(crate) fn run(
        &mut self,
        at: usize,
        workload: &Workload,
        repeat: u32,
    ) -> Result<Run, Failure> {
        match self.run_once(at, workload, repeat) {
            Err(failure) if !interrupt::is_asked() => {
                let name = &self.brokers[at].name;
                tell(&format!(
                    "{} on {name}: {failure}; once more",
                    workload.name
                ));
                self.run_once(at, workload, repeat)
            }
            done => done,
        }
    }

    fn run_once(&mut self, at: usize, workload: &Workload, repeat: u32) -> Result<Run, Failure> {
        if interrupt::is_asked() {
            return Err(interrupt::stopped());
        }
        let filler = self.filler.as_mut();
        let measured = measure::measure(&self.brokers[at], workload, repeat, filler)?;
        if measured.run.is_void() {
            return Err(Failure::told(
                "nothing was answered in the measured time; either the broker or the machine stood still",
            ));
        }
        tell(&table::line(&measured.run));
        let run = measured.run.clone();
        self.results.add(workload, measured)?;
        Ok(run)
    }
}

/// Progress; the results are elsewhere, so a terminal that is gone is no failure.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A file as large as the memory, so that it fills whatever programs leave; written once and read from then on.
fn fill(dir: &Path) -> Result<Filler, Failure> {
    let memory = PageCache::now()?.total_bytes;
    let disk =
        rustix::fs::statvfs(dir).map_err(|error| Failure::at(dir)(std::io::Error::from(error)))?;
    enough_disk(disk.f_bavail * disk.f_frsize, memory)?;
    tell(&format!(
        "filling the page cache: {} GB",
        memory / 1_000_000_000
    ));
    Filler::create(dir, memory)
}

/// A disk that fills up in the middle fails every run from there on.
fn enough_disk(free: u64, filler: u64) -> Result<(), Failure> {
    let needed = filler + RUN_BYTES;
    if free >= needed {
        return Ok(());
    }
    let gb = |bytes: u64| bytes / 1_000_000_000;
    Err(Failure::told(format!(
        "{} GB of disk are free, and a full page cache and the largest run need {}; make room, give another --dir, or leave the page cache as it is",
        gb(free),
        gb(needed)
    )))
}

fn pin_to(core: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .map_err(|error| Failure::io(format!("cannot pin the load to core {core}"))(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_would_fill_up_is_refused_before_anything_is_written() {
        let gb = 1_000_000_000;
        assert!(enough_disk(40 * gb, 25 * gb).is_ok());
        let told = enough_disk(32 * gb, 25 * gb).unwrap_err().to_string();
        assert!(told.contains("32 GB of disk are free"), "{told}");
        assert!(told.contains("need 39"), "{told}");
    }
}

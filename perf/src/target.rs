//! Brokers to measure: started on given cores with a fresh directory, and stopped; or whatever is running.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;
use crate::connection::ask;
use crate::frames;
use crate::interrupt;
use crate::load::Topics;
use crate::workload::Workload;

const START_TIMEOUT: Duration = Duration::from_mins(1);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Each target has so many ports.
const PORTS_EACH: u16 = 10;
/// Where corelog's metrics are, counted from its port.
const ADMIN_PORT: u16 = 1;
const LAST_LINES: usize = 6;
/// How exact a start is timed.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// What can be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// corelog, a thread per core; without a binary the one that runs now.
    Percore {
        binary: Option<PathBuf>,
    },
    /// corelog with thread pools as Kafka has them.
    Classic {
        binary: Option<PathBuf>,
    },
    /// Apache Kafka from a directory of jars.
    Kafka {
        jars: PathBuf,
    },
    /// Does the unavoidable and nothing else.
    Floor,
    /// Answers at once: what it costs is what the load itself costs.
    Null,
    Running {
        address: SocketAddr,
        pid: u32,
    },
}

/// One of them and the name that it has in reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

const HOW_TO_NAME: &str = "give percore, classic, kafka:DIRECTORY-WITH-JARS, floor, null, or ADDRESS:PORT@PID for what is running; percore:BINARY and classic:BINARY for another build; and NAME= in front for a name of its own";

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let (name, kind) = match text.split_once('=').filter(|(name, _)| is_name(name)) {
            Some((name, kind)) => (Some(name), kind),
            None => (None, text),
        };
        let kind = Kind::parse(kind).ok_or_else(|| HOW_TO_NAME.to_owned())?;
        Ok(Target {
            name: name.map_or_else(|| kind.name(), str::to_owned),
            kind,
        })
    }
}

impl Kind {
    fn parse(text: &str) -> Option<Kind> {
        Some(match text.split_once(':') {
            None if text == "percore" => Kind::Percore { binary: None },
            None if text == "classic" => Kind::Classic { binary: None },
            None if text == "floor" => Kind::Floor,
            None if text == "null" => Kind::Null,
            Some(("percore", binary)) => Kind::Percore {
                binary: Some(binary.into()),
            },
            Some(("classic", binary)) => Kind::Classic {
                binary: Some(binary.into()),
            },
            Some(("kafka", jars)) => Kind::Kafka { jars: jars.into() },
            _ => running(text)?,
        })
    }

    fn name(&self) -> String {
        match self {
            Kind::Percore { .. } => "percore".to_owned(),
            Kind::Classic { .. } => "classic".to_owned(),
            Kind::Kafka { .. } => "kafka".to_owned(),
            Kind::Floor => "floor".to_owned(),
            Kind::Null => "null".to_owned(),
            Kind::Running { address, pid } => format!("{address}@{pid}"),
        }
    }

    /// Whether there is something to fetch from it.
    pub(crate) fn serves_fetch(&self) -> bool {
        !matches!(self, Kind::Floor | Kind::Null)
    }

    fn is_ours(&self) -> bool {
        matches!(self, Kind::Percore { .. } | Kind::Classic { .. })
    }
}

fn running(text: &str) -> Option<Kind> {
    let (address, pid) = text.rsplit_once('@')?;
    Some(Kind::Running {
        address: address.parse().ok()?,
        pid: pid.parse().ok()?,
    })
}

/// Gives targets that share a name numbers, so that results do not mix.
pub(crate) fn told_apart(mut targets: Vec<Target>) -> Vec<Target> {
    for at in 1..targets.len() {
        let name = targets[at].name.clone();
        let taken = |name: &str| targets[..at].iter().any(|target| target.name == name);
        let free = (2..=targets.len() + 1)
            .map(|number| format!("{name}-{number}"))
            .find(|free| !taken(free));
        if taken(&name) {
            targets[at].name = free.unwrap_or(name);
        }
    }
    targets
}

/// Where and how targets run.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// As taskset takes them.
    pub(crate) cores: String,
    pub(crate) dir: PathBuf,
    pub(crate) port: u16,
    /// `key=value`, for percore and Kafka.
    pub(crate) properties: Vec<String>,
    /// Where kafka.sh is.
    pub(crate) kafka_script: PathBuf,
    /// What stands before the arguments of this program: `["bench"]` in `corelog bench`.
    pub(crate) own_prefix: Vec<String>,
    /// Held as long as somebody uses `dir`: two at once would remove each other's data and disturb each other's measurements.
    pub(crate) _lock: Arc<File>,
}

/// Takes the directory for one program at a time.
pub(crate) fn lock(dir: &Path) -> Result<Arc<File>, Failure> {
    let path = dir.join("lock");
    let file = File::create(&path).map_err(Failure::at(&path))?;
    file.try_lock().map_err(|_| {
        Failure::told(format!(
            "{} is used by another bench; wait for it, or give another --dir and --port",
            dir.display()
        ))
    })?;
    Ok(Arc::new(file))
}

/// A broker that answers.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    /// From the start of the process to its first answer.
    pub(crate) started_in: Duration,
    /// Where it shows its metrics.
    pub(crate) metrics: Option<SocketAddr>,
    /// What it was started with.
    pub(crate) command: String,
    child: Option<Child>,
    dir: Option<PathBuf>,
}

impl Target {
    /// Starts the target on an empty directory of its own and waits until it answers. `number` keeps targets of one run apart.
    pub(crate) fn start(&self, place: &Place, number: u16) -> Result<Broker, Failure> {
        let dir = place.dir.join(format!("broker-{number}"));
        if let Kind::Running { address, pid } = self.kind {
            return Ok(Broker {
                name: self.name.clone(),
                kind: self.kind.clone(),
                address,
                pid,
                started_in: Duration::ZERO,
                metrics: None,
                command: String::new(),
                child: None,
                dir: None,
            });
        }
        remove(&dir)?;
        std::fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
        self.start_in(place, number, dir)
    }

    fn start_in(&self, place: &Place, number: u16, dir: PathBuf) -> Result<Broker, Failure> {
        let port = place.port + number * PORTS_EACH;
        let mut command = self.command(place, port, &dir)?;
        let path = dir.join("output");
        let output = File::create(&path).map_err(Failure::at(&path))?;
        let errors = output.try_clone().map_err(Failure::at(&path))?;
        let began = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C is for the load; brokers are stopped when it has written its results.
            .process_group(0)
            .spawn()
            .map_err(Failure::io(format!("cannot start {}", self.name)))?;
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut broker = Broker {
            name: self.name.clone(),
            kind: self.kind.clone(),
            address: loopback(port),
            pid: child.id(),
            started_in: Duration::ZERO,
            metrics: self.kind.is_ours().then(|| loopback(port + ADMIN_PORT)),
            command: shown(&command),
            child: Some(child),
            dir: Some(dir),
        };
        broker.wait_until_it_answers(began, &path)?;
        Ok(broker)
    }

    /// `setpriv` and `taskset` become the broker, so their process id is the broker's. When this program ends in whatever way, so does the broker.
    fn command(&self, place: &Place, port: u16, dir: &Path) -> Result<Command, Failure> {
        let own = || std::env::current_exe().map_err(Failure::io("cannot find this program"));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "-c", &place.cores]);
        match &self.kind {
            Kind::Percore { binary } | Kind::Classic { binary } => {
                let binary = match binary {
                    Some(binary) => binary.clone(),
                    None if place.own_prefix.is_empty() => {
                        return Err(Failure::told(format!(
                            "this program is no broker; give {}:BINARY",
                            self.kind.name()
                        )));
                    }
                    None => own()?,
                };
                command.arg(binary).args(["serve", "--cores", &place.cores]);
                let engine = format!("engine={}", self.kind.name());
                let data = format!("log.dirs={}", dir.join("data").display());
                let listeners = format!("listeners=PLAINTEXT://127.0.0.1:{port}");
                let admin = format!("admin.listener=127.0.0.1:{}", port + ADMIN_PORT);
                let given = place.properties.iter().map(String::as_str);
                for property in [&*engine, &*data, &*listeners, &*admin]
                    .into_iter()
                    .chain(given)
                {
                    command.args(["--override", property]);
                }
            }
            Kind::Kafka { jars } => {
                command.arg(&place.kafka_script).arg("run").arg(jars);
                command
                    .arg(port.to_string())
                    .arg(dir)
                    .args(&place.properties);
            }
            Kind::Floor | Kind::Null => {
                command.arg(own()?).args(&place.own_prefix);
                command.arg(self.kind.name());
                command.args(["--listen", &format!("127.0.0.1:{port}")]);
                if self.kind == Kind::Floor {
                    command.arg("--dir").arg(dir.join("data"));
                }
            }
            Kind::Running { .. } => {
                return Err(Failure::told(format!(
                    "{} is running; it can't be started",
                    self.name
                )));
            }
        }
        Ok(command)
    }
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// The end of what a broker that did not start has said.
fn last_words(output: &Path) -> String {
    let bytes = std::fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ")
}

impl Broker {
    fn wait_until_it_answers(&mut self, began: Instant, output: &Path) -> Result<(), Failure> {
        while began.elapsed() < START_TIMEOUT {
            if ask(self.address, &frames::api_versions()).is_ok() {
                self.started_in = began.elapsed();
                return Ok(());
            }
            let ended = self.child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                return Err(Failure::told(format!(
                    "{} ended with {status} before it answered; its last words:\n  {}",
                    self.name,
                    last_words(output)
                )));
            }
            if interrupt::is_asked() {
                return Err(interrupt::stopped());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(Failure::told(format!(
            "{} does not answer on {}; its last words:\n  {}",
            self.name,
            self.address,
            last_words(output)
        )))
    }

    /// kill -9, and the same broker again on the same directory.
    pub(crate) fn killed_and_started_again(
        mut self,
        target: &Target,
        place: &Place,
        number: u16,
    ) -> Result<Broker, Failure> {
        let (Some(mut child), Some(dir)) = (self.child.take(), self.dir.take()) else {
            return Err(Failure::told(format!("{} was not started here", self.name)));
        };
        child.kill().map_err(Failure::io("kill"))?;
        child.wait().map_err(Failure::io("wait"))?;
        target.start_in(place, number, dir)
    }

    /// Where its data is, if it was started here.
    pub(crate) fn data_dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    pub(crate) fn create_topics(
        &self,
        topics: &Topics,
        workload: &Workload,
    ) -> Result<(), Failure> {
        for name in topics.names() {
            let partitions = workload.partitions_per_topic;
            let request = frames::create_topic(name, partitions, workload.topic_config.iter());
            done(
                "CreateTopics",
                frames::created(&ask(self.address, &request)?)?,
            )?;
        }
        if self.kind.serves_fetch() {
            self.wait_until_led(topics)?;
        }
        Ok(())
    }

    /// A broker may acknowledge a topic before it takes records for it.
    fn wait_until_led(&self, topics: &Topics) -> Result<(), Failure> {
        let all: Vec<u32> = (0..topics.partitions()).collect();
        let probe = frames::fetch(&topics.wanted(&all, |_| 0), 1, 0);
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            let mut led = 0;
            frames::fetched(&ask(self.address, &probe)?, |fetched| {
                led += u32::from(fetched.error == 0);
                Ok(())
            })?;
            if led == topics.partitions() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failure::told("some partitions do not get a leader"))
    }

    pub(crate) fn delete_topics(&self, topics: &Topics) -> Result<(), Failure> {
        for name in topics.names() {
            let answer: Bytes = ask(self.address, &frames::delete_topic(name))?;
            done("DeleteTopics", frames::deleted(&answer)?)?;
        }
        Ok(())
    }
}

fn done(what: &str, error: i16) -> Result<(), Failure> {
    match error {
        0 => Ok(()),
        error => Err(Failure::told(format!(
            "{what} was answered with error {error}"
        ))),
    }
}

fn remove(dir: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::at(dir)(error)),
        _ => Ok(()),
    }
}

impl Drop for Broker {
    /// Asks the broker to stop, ends it if it does not, and removes its data.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended by itself; then there is nothing to stop.
                let _ = kill_process(pid, Signal::TERM);
            }
            let asked = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < STOP_TIMEOUT {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(dir) = self.dir.take() {
            // What stays is found and removed by the next start.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        text.parse::<Target>().unwrap().kind
    }

    #[test]
    fn targets_are_what_they_are_called() {
        assert_eq!(kind("percore"), Kind::Percore { binary: None });
        let binary = Some("a/b".into());
        assert_eq!(
            kind("percore:a/b"),
            Kind::Percore {
                binary: binary.clone()
            }
        );
        assert_eq!(kind("classic:a/b"), Kind::Classic { binary });
        assert_eq!(
            kind("kafka:libs"),
            Kind::Kafka {
                jars: "libs".into()
            }
        );
        assert_eq!((kind("floor"), kind("null")), (Kind::Floor, Kind::Null));
        let running = Kind::Running {
            address: "127.0.0.1:9092".parse().unwrap(),
            pid: 17,
        };
        assert_eq!(kind("127.0.0.1:9092@17"), running);
        for bad in [
            "",
            "kafka",
            "localhost:9092",
            "127.0.0.1:9092",
            "floor:x",
            "=floor",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_directory_is_for_one_bench_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        let told = lock(dir.path()).unwrap_err().to_string();
        assert!(told.contains("another bench"), "{told}");
        drop(first);
        assert!(lock(dir.path()).is_ok());
    }

    #[test]
    fn targets_have_names_of_their_own() {
        let targets = ["percore", "old=percore:x", "percore", "percore"];
        let parsed = targets.iter().map(|text| text.parse().unwrap());
        let names: Vec<String> = told_apart(parsed.collect())
            .into_iter()
            .map(|target| target.name)
            .collect();
        assert_eq!(names, ["percore", "old", "percore-2", "percore-3"]);
    }

    #[test]
    fn a_broker_that_refuses_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place {
            cores: "0".to_owned(),
            dir: dir.path().to_owned(),
            port: 1,
            properties: Vec::new(),
            kafka_script: PathBuf::new(),
            own_prefix: Vec::new(),
            _lock: lock(dir.path()).unwrap(),
        };
        // `ls` does not take the arguments, as a corelog without that engine.
        let target: Target = "classic:ls".parse().unwrap();
        let told = target.start(&place, 0).unwrap_err().to_string();
        assert!(told.contains("classic ended with"), "{told}");
        assert!(told.contains("ls: "), "{told}");
    }
}

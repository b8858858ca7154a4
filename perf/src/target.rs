//! Brokers to measure: started on given cores with a fresh directory, and stopped; or whatever is running.

use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;
use crate::connection::ask;
use crate::frames;
use crate::workload::Workload;

const START_TIMEOUT: Duration = Duration::from_mins(1);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How exact a start is timed.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// What can be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// corelog; without a binary the one that runs now.
    Percore {
        binary: Option<PathBuf>,
    },
    /// Apache Kafka from a directory of jars.
    Kafka {
        jars: PathBuf,
    },
    Floor,
    Running {
        address: SocketAddr,
        pid: u32,
    },
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text.split_once(':') {
            None if text == "percore" => Ok(Target::Percore { binary: None }),
            None if text == "floor" => Ok(Target::Floor),
            Some(("percore", binary)) => Ok(Target::Percore {
                binary: Some(binary.into()),
            }),
            Some(("kafka", jars)) => Ok(Target::Kafka { jars: jars.into() }),
            _ => running(text).ok_or_else(|| {
                "give percore, percore:BINARY, kafka:DIRECTORY-WITH-JARS, floor, or ADDRESS:PORT@PID for what is running".to_owned()
            }),
        }
    }
}

fn running(text: &str) -> Option<Target> {
    let (address, pid) = text.rsplit_once('@')?;
    Some(Target::Running {
        address: address.parse().ok()?,
        pid: pid.parse().ok()?,
    })
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Percore { .. } => out.write_str("percore"),
            Target::Kafka { .. } => out.write_str("kafka"),
            Target::Floor => out.write_str("floor"),
            Target::Running { address, pid } => write!(out, "{address}@{pid}"),
        }
    }
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
}

/// A broker that answers.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    /// From the start of the process to its first answer.
    pub(crate) started_in: Duration,
    child: Option<Child>,
    dir: Option<PathBuf>,
}

impl Target {
    /// Starts the target on an empty directory of its own and waits until it answers. `number` keeps targets of one run apart.
    pub(crate) fn start(&self, place: &Place, number: u16) -> Result<Broker, Failure> {
        let dir = place.dir.join(format!("{}-{number}", self.file_name()));
        if let Target::Running { address, pid } = self {
            return Ok(Broker {
                name: self.to_string(),
                address: *address,
                pid: *pid,
                started_in: Duration::ZERO,
                child: None,
                dir: None,
            });
        }
        remove(&dir)?;
        std::fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
        self.start_in(place, number, dir)
    }

    fn file_name(&self) -> &'static str {
        match self {
            Target::Percore { .. } => "percore",
            Target::Kafka { .. } => "kafka",
            Target::Floor => "floor",
            Target::Running { .. } => "running",
        }
    }

    fn start_in(&self, place: &Place, number: u16, dir: PathBuf) -> Result<Broker, Failure> {
        let port = place.port + 10 * number;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let output = dir.join("output");
        let file = File::create(&output).map_err(Failure::at(&output))?;
        let errors = file.try_clone().map_err(Failure::at(&output))?;
        let mut command = self.command(place, port, &dir)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::from(file))
            .stderr(Stdio::from(errors));
        let began = Instant::now();
        let child = command
            .spawn()
            .map_err(Failure::io(format!("cannot start {self} by taskset")))?;
        let mut broker = Broker {
            name: self.to_string(),
            address,
            pid: child.id(),
            started_in: Duration::ZERO,
            child: Some(child),
            dir: Some(dir),
        };
        broker.wait_until_it_answers(began, &output)?;
        Ok(broker)
    }

    fn command(&self, place: &Place, port: u16, dir: &Path) -> Result<Command, Failure> {
        let own = || std::env::current_exe().map_err(Failure::io("cannot find this program"));
        let mut command = Command::new("taskset");
        command.args(["-c", &place.cores]);
        match self {
            Target::Percore { binary } => {
                let binary = match binary {
                    Some(binary) => binary.clone(),
                    None if place.own_prefix.is_empty() => {
                        return Err(Failure::told(
                            "this program is no broker; give percore:BINARY",
                        ));
                    }
                    None => own()?,
                };
                command.arg(binary).args(["serve", "--cores", &place.cores]);
                let data = format!("log.dirs={}", dir.join("data").display());
                let listeners = format!("listeners=PLAINTEXT://127.0.0.1:{port}");
                let admin = format!("admin.listener=127.0.0.1:{}", port + 1);
                let given = place.properties.iter().map(String::as_str);
                for property in [&*data, &*listeners, &*admin].into_iter().chain(given) {
                    command.args(["--override", property]);
                }
            }
            Target::Kafka { jars } => {
                command.arg(&place.kafka_script).arg("run").arg(jars);
                command
                    .arg(port.to_string())
                    .arg(dir)
                    .args(&place.properties);
            }
            Target::Floor => {
                command.arg(own()?).args(&place.own_prefix);
                command.args(["floor", "--listen", &format!("127.0.0.1:{port}"), "--dir"]);
                command.arg(dir.join("data"));
            }
            Target::Running { .. } => {
                return Err(Failure::told(format!(
                    "{self} is running; it can't be started"
                )));
            }
        }
        Ok(command)
    }
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
                    "{} ended with {status} before it answered; {} says why",
                    self.name,
                    output.display()
                )));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(Failure::told(format!(
            "{} does not answer on {}; {} says more",
            self.name,
            self.address,
            output.display()
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

    pub(crate) fn create_topic(&self, name: &str, workload: &Workload) -> Result<(), Failure> {
        let request = frames::create_topic(
            name,
            workload.partitions_per_topic,
            workload.topic_config.iter(),
        );
        done(
            "CreateTopics",
            frames::created(&ask(self.address, &request)?)?,
        )?;
        // The floor serves no Fetch, and is ready as it is.
        if self.name == Target::Floor.to_string() {
            return Ok(());
        }
        self.wait_until_led(name, workload)
    }

    /// A broker may acknowledge a topic before it takes records for it.
    fn wait_until_led(&self, topic: &str, workload: &Workload) -> Result<(), Failure> {
        let positions: Vec<(u32, i64)> = (0..workload.partitions_per_topic)
            .map(|partition| (partition, 0))
            .collect();
        let probe = frames::fetch(topic, &positions, 1, 0);
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            let mut led = 0;
            frames::fetched(&ask(self.address, &probe)?, |fetched| {
                led += u32::from(fetched.error == 0);
                Ok(())
            })?;
            if led == workload.partitions_per_topic {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failure::told(format!(
            "{topic} has partitions without a leader"
        )))
    }

    pub(crate) fn delete_topic(&self, name: &str) -> Result<(), Failure> {
        let answer: Bytes = ask(self.address, &frames::delete_topic(name))?;
        done("DeleteTopics", frames::deleted(&answer)?)
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

    #[test]
    fn targets_are_told_apart() {
        assert_eq!("percore".parse(), Ok(Target::Percore { binary: None }));
        assert_eq!(
            "percore:a/b".parse(),
            Ok(Target::Percore {
                binary: Some("a/b".into())
            })
        );
        assert_eq!(
            "kafka:libs".parse(),
            Ok(Target::Kafka {
                jars: "libs".into()
            })
        );
        assert_eq!("floor".parse(), Ok(Target::Floor));
        assert_eq!(
            "127.0.0.1:9092@17".parse(),
            Ok(Target::Running {
                address: "127.0.0.1:9092".parse().unwrap(),
                pid: 17
            })
        );
        for bad in ["", "kafka", "localhost:9092", "127.0.0.1:9092", "floor:x"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}

//! The broker under test as a process: started, timed until it answers, killed or stopped.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::connection::Connection;

pub(crate) struct Broker {
    child: Child,
    pub(crate) address: SocketAddr,
    /// From the start of the process to the first answer to ApiVersions.
    pub(crate) answered_after: Duration,
}

/// Which broker is under test.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Tested {
    /// The broker's binary [default: $`CORELOG_BIN`, else target/release/corelog].
    #[arg(long)]
    bin: Option<PathBuf>,
    /// What it runs on [default: the broker's own].
    #[arg(long)]
    engine: Option<String>,
}

/// A directory of its own for a run: `data` and the broker's output.
pub(crate) struct Home {
    path: PathBuf,
    keep: bool,
    bin: PathBuf,
    port: u16,
    settings: Vec<String>,
}

impl Home {
    pub(crate) fn new(tested: &Tested, keep: bool, seed: u64) -> io::Result<Home> {
        let bin = tested
            .bin
            .clone()
            .or_else(|| std::env::var_os("CORELOG_BIN").map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from("target/release/corelog"));
        if !bin.exists() {
            return Err(io::Error::other(format!(
                "no broker at {}: cargo build --release, or give --bin",
                bin.display()
            )));
        }
        let path =
            std::env::temp_dir().join(format!("corelog-crash-{}-{seed}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Home {
            path,
            keep,
            bin,
            port: free_port()?,
            settings: tested
                .engine
                .iter()
                .map(|engine| format!("engine={engine}"))
                .collect(),
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Properties of the broker, beside those of every run.
    pub(crate) fn with(mut self, settings: &[String]) -> Home {
        self.settings.extend_from_slice(settings);
        self
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(crate) fn start(&self, shards: Option<u16>) -> io::Result<Broker> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&self.bin);
        command.arg("serve");
        for setting in [
            format!("listeners=PLAINTEXT://127.0.0.1:{}", self.port),
            format!("log.dirs={}", self.data().display()),
            "admin.listener=".to_owned(),
        ]
        .iter()
        .chain(&self.settings)
        {
            command.arg("--override").arg(setting);
        }
        if let Some(shards) = shards {
            command.arg("--shards").arg(shards.to_string());
        }
        let begun = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut broker = Broker {
            child,
            address,
            answered_after: Duration::ZERO,
        };
        loop {
            if Connection::open(address)
                .and_then(|mut c| c.api_versions())
                .is_ok()
            {
                broker.answered_after = begun.elapsed();
                return Ok(broker);
            }
            if let Some(status) = broker.child.try_wait()? {
                return Err(io::Error::other(format!(
                    "the broker ended at start with {status}: {}",
                    self.last_words()
                )));
            }
            if begun.elapsed() > Duration::from_mins(1) {
                broker.kill()?;
                return Err(io::Error::other(format!(
                    "the broker does not answer 60 s after its start: {}",
                    self.last_words()
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("broker.log")
    }

    /// The end of what the broker said.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.keep || std::thread::panicking() {
            println!("kept {}", self.path.display());
        } else if let Err(error) = fs::remove_dir_all(&self.path) {
            println!("cannot remove {}: {error}", self.path.display());
        }
    }
}

impl Broker {
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Whether it still runs; if not, how it ended.
    pub(crate) fn check_running(&mut self) -> io::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(io::Error::other(format!(
                "the broker ended by itself with {status}"
            ))),
        }
    }

    /// A clean stop by SIGTERM, which must end with success within 30 s.
    pub(crate) fn stop(mut self) -> io::Result<Duration> {
        let begun = Instant::now();
        let sent = Command::new("kill")
            .arg("-TERM")
            .arg(self.child.id().to_string())
            .status()?;
        if !sent.success() {
            return Err(io::Error::other(
                "the broker was gone before it could be stopped",
            ));
        }
        while begun.elapsed() < Duration::from_secs(30) {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(begun.elapsed());
                }
                return Err(io::Error::other(format!(
                    "a clean stop ended with {status}"
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill()?;
        Err(io::Error::other("a clean stop took more than 30 s"))
    }

    /// Anonymous resident memory in KiB: what the broker holds, without mapped files.
    pub(crate) fn rss_anon_kib(&self) -> io::Result<u64> {
        let status = fs::read_to_string(
            Path::new("/proc")
                .join(self.child.id().to_string())
                .join("status"),
        )?;
        status
            .lines()
            .find_map(|line| {
                line.strip_prefix("RssAnon:")?
                    .trim()
                    .strip_suffix("kB")?
                    .trim()
                    .parse()
                    .ok()
            })
            .ok_or_else(|| io::Error::other("no RssAnon in the process's status"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // A broker that ended already cannot be killed, which is as well.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.kill().ok();
        }
    }
}

/// A port below the ephemeral range that nobody listens on.
fn free_port() -> io::Result<u16> {
    let start = 20_000 + (std::process::id() % 6_000) as u16;
    (start..32_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| io::Error::other("no free port below 32000"))
}

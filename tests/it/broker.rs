//! A broker as a process, and the directory in which it lives.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::Client;
use crate::{ENGINE, proc};

/// No case needs longer; a broker that runs for longer is killed.
const LIFETIME_MAX: Duration = Duration::from_mins(2);
/// A loaded machine may take its time.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Ports are below the range from which the kernel takes those of clients.
const FIRST_PORT: u16 = 26_000;
const PORTS: u16 = 1_000;
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    // Several test processes at once start at different places.
    let start = (std::process::id() % 10) as u16 * (PORTS / 10);
    for _ in 0..PORTS {
        let port = FIRST_PORT + (start + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST_PORT} on is free");
}

/// Asks until the answer is there; what was waited for is in the panic of one that never comes.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(POLL_EVERY);
    }
}

/// What a broker runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Percore,
    Classic,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Percore => "percore",
            Engine::Classic => "classic",
        }
    }
}

/// The directory of one case, with its port: several brokers may live in it, one after another.
pub(crate) struct Home {
    engine: Engine,
    root: TempDir,
    port: u16,
    admin_port: u16,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home::on(ENGINE)
    }

    /// For a case that needs a certain engine.
    pub(crate) fn on(engine: Engine) -> Home {
        Home {
            engine,
            root: tempfile::tempdir().unwrap(),
            port: free_port(),
            admin_port: free_port(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.admin_port))
    }

    fn log(&self) -> PathBuf {
        self.path("broker.log")
    }

    /// The file whose existence holds the disk of a broker that was started with `stall_option`.
    fn stall_sign(&self) -> PathBuf {
        self.path("stall")
    }

    pub(crate) fn stall_option(&self) -> String {
        format!("test.disk.stall.file={}", self.stall_sign().display())
    }

    /// From its return on the broker begins no write.
    pub(crate) fn hold_disk(&self) {
        if self.engine == Engine::Classic {
            // Each write looks for the sign.
            fs::write(self.stall_sign(), "").unwrap();
            return;
        }
        let told = self.told();
        let before = told.matches("the disk is held").count();
        let (_, cores) = told.rsplit_once(" cores=[").unwrap();
        let cores = cores.split(']').next().unwrap().split(',').count();
        fs::write(self.stall_sign(), "").unwrap();
        eventually("every core holds its disk", || {
            (self.told().matches("the disk is held").count() == before + cores).then_some(())
        });
    }

    pub(crate) fn let_disk_go(&self) {
        fs::remove_file(self.stall_sign()).unwrap();
    }

    /// What the brokers of this home have said.
    pub(crate) fn told(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// `corelog serve` with the settings of this home, then `more`, which win.
    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelog"));
        command.arg("serve");
        let own = [
            format!("engine={}", self.engine.name()),
            format!("listeners=PLAINTEXT://127.0.0.1:{}", self.port),
            format!("log.dirs={}", self.data().display()),
            format!("admin.listener=127.0.0.1:{}", self.admin_port),
        ];
        for setting in own.iter().map(String::as_str).chain(more.iter().copied()) {
            command.arg("--override").arg(setting);
        }
        command.stdin(Stdio::null());
        command
    }

    /// A start that must fail: how it ended and what it said.
    pub(crate) fn fails(&self, more: &[&str]) -> (ExitStatus, String) {
        let child = self
            .command(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let guard = Watch::over(child.id());
        let output = child.wait_with_output().unwrap();
        drop(guard);
        let text = [output.stdout, output.stderr].concat();
        (output.status, String::from_utf8_lossy(&text).into_owned())
    }

    /// A broker with `shards` shards that answers.
    pub(crate) fn start(&self, shards: u16, more: &[&str]) -> Broker {
        let served = || self.told().matches("serving").count();
        let before = served();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let child = self
            .command(more)
            .args(["--shards", &shards.to_string()])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut broker = Broker {
            watch: Watch::over(child.id()),
            child,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)),
            log: self.log(),
        };
        eventually("the broker answers ApiVersions", || {
            if let Some(status) = broker.ended() {
                panic!("the broker ended at its start, {status}:\n{}", self.told());
            }
            // Whoever answers on this port has to be the one that was started here.
            (served() > before).then_some(())?;
            Client::try_connect(broker.address).ok()?.try_api_versions()
        });
        broker
    }
}

/// Kills a process that lives for too long.
struct Watch {
    _over: Sender<()>,
}

impl Watch {
    fn over(pid: u32) -> Watch {
        let (over, ended) = mpsc::channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(LIFETIME_MAX) == Err(RecvTimeoutError::Timeout) {
                signal(pid, "KILL");
            }
        });
        Watch { _over: over }
    }
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status()
        .unwrap();
    assert!(sent.success(), "process {pid} was gone before SIG{name}");
}

pub(crate) struct Broker {
    child: Child,
    #[expect(
        dead_code,
        reason = "kills what outlives its case, until it is dropped"
    )]
    watch: Watch,
    address: SocketAddr,
    log: PathBuf,
}

impl Broker {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connect(&self) -> Client {
        Client::try_connect(self.address).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Anonymous resident memory in bytes.
    pub(crate) fn rss_anon(&self) -> u64 {
        proc::rss_anon(self.pid())
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        eventually("the broker ends", || self.child.try_wait().unwrap())
    }

    /// `kill -9`
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A clean stop, which must succeed.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait_for_end();
        assert!(
            status.success(),
            "a clean stop ended with {status}:\n{}",
            self.told()
        );
    }

    fn told(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It may end by itself in between.
            drop(self.child.kill());
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            eprintln!("---- what the broker said ----\n{}", self.told());
        }
    }
}

/// Every file below `root`, by its path from there.
pub(crate) fn files(root: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                let path = entry.path();
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.push((name, entry.metadata().unwrap().len()));
            }
        }
    }
    found.sort();
    found
}

//! The thread itself: one runtime for what it serves and for what the engine hands to it.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::health::Health;
use super::http::Console;
use crate::metrics::Metrics;

/// How often histograms are merged. Rarer would make `/metrics` stale, more often would make idle cores hand over for nothing.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

/// What the process ends with when it is told twice to stop.
const FORCED_EXIT_CODE: i32 = 2;

/// The running thread. Dropping it stops it.
#[derive(Debug)]
pub struct Housekeeping {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Housekeeping {
    /// Starts the thread. Without a console it only merges.
    pub fn start(
        console: Option<Console>,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
    ) -> io::Result<Housekeeping> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("housekeeping".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        () = run(console, metrics, health) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Housekeeping {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Calls `stop` on the first SIGTERM or SIGINT. The second one ends the process at once, as an operator who repeats it wants.
    pub fn on_stop_signal(&self, stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let _runtime = self.handle.enter();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        self.handle.spawn(async move {
            let mut next = async || {
                tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                }
            };
            let signal = next().await;
            tracing::info!(signal, "stopping; send the signal again to stop at once");
            stop();
            let signal = next().await;
            tracing::warn!(
                signal,
                "stopped at once; logs will be recovered at the next start"
            );
            std::process::exit(FORCED_EXIT_CODE);
        });
        Ok(())
    }

    /// For work of the engine that may wait: `handle().spawn(…)`.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the housekeeping thread panicked; please report what it printed");
        }
    }
}

async fn run(console: Option<Console>, metrics: Arc<Metrics>, health: Arc<Health>) {
    if let Some(console) = console {
        let serving = console.serve(Arc::clone(&metrics), health);
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::warn!(%error, "the console stopped; restart the broker to have /metrics again");
            }
        });
    }
    let mut ticks = tokio::time::interval(COLLECT_EVERY);
    loop {
        ticks.tick().await;
        metrics.collect_latencies();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use super::super::BrokerState;
    use super::*;

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_console_answers_until_housekeeping_stops() {
        let console = Console::bind("127.0.0.1:0").unwrap();
        let address = console.local_addr().unwrap();
        let health = Arc::new(Health::new(1));
        let housekeeping =
            Housekeeping::start(Some(console), Metrics::new(1), Arc::clone(&health)).unwrap();
        assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
        let starting = get(address, "/readyz");
        assert!(starting.starts_with("HTTP/1.1 503"), "{starting}");
        assert!(starting.ends_with("starting\n"), "{starting}");
        health.set(BrokerState::Running);
        assert!(get(address, "/readyz").starts_with("HTTP/1.1 200"));
        let metrics = get(address, "/metrics");
        assert!(metrics.contains("content-type: text/plain; version=0.0.4"));
        assert!(metrics.contains("corelog_core_busy_us_total{core=\"0\"} 0"));
        assert!(metrics.contains("kafka_server_kafkaserver_brokerstate 3"));
        assert!(metrics.contains("corelog_info{version="));
        assert!(get(address, "/other").starts_with("HTTP/1.1 404"));
        drop(housekeeping);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn an_address_in_use_is_told_with_what_to_do() {
        let first = Console::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap().to_string();
        let error = Console::bind(&address).unwrap_err().to_string();
        assert!(
            error.contains(&format!("admin.listener={address}")),
            "{error}"
        );
        assert!(error.contains("stop what uses it"), "{error}");
        assert!(Console::bind("no port").is_err());
    }

    #[test]
    fn it_runs_without_a_console() {
        let housekeeping =
            Housekeeping::start(None, Metrics::new(1), Arc::new(Health::new(1))).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        housekeeping.handle().spawn(async move {
            let _ = sender.send(std::thread::current().name().map(str::to_owned));
        });
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("housekeeping"));
    }
}

//! `/metrics`, `/healthz`, `/readyz`.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::health::Health;
use crate::metrics::{Metrics, exposition};

/// A bound console: it takes connections, and answers them once it is served.
#[derive(Debug)]
pub struct Console {
    listener: TcpListener,
}

/// Why the console can't be there.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on admin.listener={address}: {why}; stop what uses it, set admin.listener to another host:port, or to nothing for no console"
)]
pub struct ConsoleError {
    pub address: String,
    pub why: io::Error,
}

/// A process that was killed a moment ago may still be giving its ports back: tries for a second before it says that an address is in use.
pub fn bind_patiently<T>(bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BIND_TRIES {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                std::thread::sleep(BIND_PAUSE);
            }
            bound => return bound,
        }
    }
    bind()
}

const BIND_TRIES: u32 = 20;
const BIND_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

impl Console {
    /// Binds early, so that an address in use is told before anything else is touched.
    pub fn bind(address: &str) -> Result<Console, ConsoleError> {
        let bind = || {
            let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such address");
            for candidate in address.to_socket_addrs()? {
                match bind_patiently(|| TcpListener::bind(candidate)) {
                    Ok(listener) => {
                        listener.set_nonblocking(true)?;
                        return Ok(listener);
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        bind()
            .map(|listener| Console { listener })
            .map_err(|why| ConsoleError {
                address: address.to_owned(),
                why,
            })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the future is dropped.
    pub(super) async fn serve(self, metrics: Arc<Metrics>, health: Arc<Health>) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let router = Router::new()
            .route("/metrics", get(exposition))
            .route("/healthz", get(alive))
            .route("/readyz", get(ready))
            .with_state(Shared { metrics, health });
        axum::serve(listener, router).await
    }
}

#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

async fn exposition(State(shared): State<Shared>) -> impl IntoResponse {
    let state = shared.health.state();
    shared.metrics.broker.state.set(state as i64);
    (
        [(header::CONTENT_TYPE, exposition::CONTENT_TYPE)],
        shared.metrics.render(),
    )
}

async fn alive(State(shared): State<Shared>) -> impl IntoResponse {
    status(shared.health.alive())
}

async fn ready(State(shared): State<Shared>) -> impl IntoResponse {
    status(shared.health.ready())
}

fn status(health: Result<(), String>) -> (StatusCode, String) {
    match health {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

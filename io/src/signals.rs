//! The signals that ask the process to stop.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::thread::{self, JoinHandle};

/// Which of them came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
}

/// Listens until it is dropped.
#[derive(Debug)]
pub struct StopSignals {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl StopSignals {
    /// Calls `on_signal`, on a thread of its own, for each signal that comes; the process is not ended.
    pub fn listen(mut on_signal: impl FnMut(StopSignal) + Send + 'static) -> io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let handle = signals.handle();
        let thread = thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    on_signal(if signal == SIGTERM {
                        StopSignal::Terminate
                    } else {
                        StopSignal::Interrupt
                    });
                }
            })?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_signal_is_reported_and_none_ends_the_process() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let signals = StopSignals::listen(move |signal| sender.send(signal).unwrap()).unwrap();
        for (raised, expected) in [
            (SIGTERM, StopSignal::Terminate),
            (SIGINT, StopSignal::Interrupt),
        ] {
            signal_hook::low_level::raise(raised).unwrap();
            assert_eq!(
                receiver.recv_timeout(Duration::from_secs(20)).unwrap(),
                expected
            );
        }
        drop(signals);
    }
}

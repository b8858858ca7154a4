//! What the broker is up to, set by the engine, told by the console.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// Kafka's states of a broker (kafka.md 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BrokerState {
    NotRunning = 0,
    Starting = 1,
    Recovery = 2,
    Running = 3,
    ShuttingDown = 7,
}

impl BrokerState {
    pub fn name(self) -> &'static str {
        match self {
            BrokerState::NotRunning => "not running",
            BrokerState::Starting => "starting",
            BrokerState::Recovery => "recovering logs",
            BrokerState::Running => "running",
            BrokerState::ShuttingDown => "shutting down",
        }
    }
}

/// Shared by the engine, which sets it, and the console.
#[derive(Debug)]
pub struct Health {
    state: AtomicU8,
    /// One for each core.
    stalled: Box<[AtomicBool]>,
}

impl Health {
    pub fn new(cores: usize) -> Health {
        Health {
            state: AtomicU8::new(BrokerState::Starting as u8),
            stalled: (0..cores).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    pub fn set(&self, state: BrokerState) {
        self.state.store(state as u8, Relaxed);
    }

    pub fn state(&self) -> BrokerState {
        match self.state.load(Relaxed) {
            1 => BrokerState::Starting,
            2 => BrokerState::Recovery,
            3 => BrokerState::Running,
            7 => BrokerState::ShuttingDown,
            _ => BrokerState::NotRunning,
        }
    }

    /// Set by the watchdog while the loop of a core stands still.
    pub fn set_stalled(&self, core: usize, stalled: bool) {
        self.stalled[core].store(stalled, Relaxed);
    }

    /// Alive: every core's loop goes round. `Err` says which one does not.
    pub fn alive(&self) -> Result<(), String> {
        match self
            .stalled
            .iter()
            .position(|stalled| stalled.load(Relaxed))
        {
            None => Ok(()),
            Some(core) => Err(format!("core {core} stands still")),
        }
    }

    /// Ready: alive and serving clients. `Err` says what it waits for.
    pub fn ready(&self) -> Result<(), String> {
        self.alive()?;
        match self.state() {
            BrokerState::Running => Ok(()),
            other => Err(other.name().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_running_and_no_core_stands_still() {
        let health = Health::new(2);
        assert_eq!(health.ready(), Err("starting".to_owned()));
        assert_eq!(health.alive(), Ok(()));
        health.set(BrokerState::Running);
        assert_eq!(health.ready(), Ok(()));
        health.set_stalled(1, true);
        assert_eq!(health.alive(), Err("core 1 stands still".to_owned()));
        assert!(health.ready().is_err());
        health.set_stalled(1, false);
        health.set(BrokerState::ShuttingDown);
        assert_eq!(health.ready(), Err("shutting down".to_owned()));
    }

    #[test]
    fn every_state_is_read_as_it_was_set() {
        let health = Health::new(0);
        for state in [
            BrokerState::NotRunning,
            BrokerState::Starting,
            BrokerState::Recovery,
            BrokerState::Running,
            BrokerState::ShuttingDown,
        ] {
            health.set(state);
            assert_eq!(health.state(), state);
        }
    }
}

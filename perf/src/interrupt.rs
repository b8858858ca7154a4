//! Ctrl-C: the run that goes on ends early, and what was measured so far is written. The second one ends the program.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::Failure;

/// What the second signal ends the program with, as shells have it for SIGINT.
const EXIT_CODE: i32 = 130;

fn asked() -> &'static Arc<AtomicBool> {
    static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    ASKED.get_or_init(Arc::default)
}

/// To be called once, before brokers are started.
pub(crate) fn watch() -> Result<(), Failure> {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down and raises it, the second finds it up.
        flag::register_conditional_shutdown(signal, EXIT_CODE, Arc::clone(asked()))
            .and_then(|_| flag::register(signal, Arc::clone(asked())))
            .map_err(Failure::io("cannot watch for Ctrl-C"))?;
    }
    Ok(())
}

/// Whether to end.
pub(crate) fn is_asked() -> bool {
    asked().load(Relaxed)
}

/// For what has no result yet that could be kept.
pub(crate) fn stopped() -> Failure {
    Failure::told("stopped; what was measured before has been kept")
}

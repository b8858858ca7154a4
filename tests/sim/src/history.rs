//! The history of a run: its hash, by which two runs are compared, and its last lines, which are shown when something fails.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{self, Write};

/// Lines that are shown after a failure.
const SHOWN: usize = 150;

thread_local! {
    /// The last lines of the run on this thread, for the panic hook of the program.
    static LAST: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
}

/// FNV-1a, 64 bits: not secure, but the same everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(u64);

impl Hash {
    pub fn new() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn value(self) -> u64 {
        self.0
    }

    /// The hash of some bytes alone.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Hash::new();
        hash.add(bytes);
        hash.0
    }
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::new()
    }
}

/// What has happened so far.
#[derive(Debug, Default)]
pub struct History {
    hash: Hash,
    events: u64,
}

impl History {
    pub fn new() -> History {
        LAST.with_borrow_mut(VecDeque::clear);
        History::default()
    }

    /// Notes one event.
    pub fn note(&mut self, at_us: u64, line: fmt::Arguments<'_>) {
        LAST.with_borrow_mut(|last| {
            let mut text = if last.len() == SHOWN {
                last.pop_front().unwrap_or_default()
            } else {
                String::new()
            };
            text.clear();
            // Writing to a string does not fail.
            let _ = write!(text, "{at_us:>11} {line}");
            self.hash.add(text.as_bytes());
            last.push_back(text);
        });
        self.events += 1;
    }

    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    pub fn events(&self) -> u64 {
        self.events
    }
}

/// The last events of the run that this thread is in.
pub fn last_events() -> String {
    LAST.with_borrow(|last| {
        last.iter().fold(String::new(), |mut shown, line| {
            shown.push_str(line);
            shown.push('\n');
            shown
        })
    })
}

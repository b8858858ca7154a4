// Modules of both roots, so that a new one runs on both engines.

mod broker;
mod client;
mod proc;
mod topic;

mod backpressure;
mod console;
mod failed_starts;
mod fetching;
mod hostile;
mod idle;
mod leaks;
mod ordering;
mod producing;
mod restarts;
mod sessions;
mod starting;
mod topics;
mod versions;

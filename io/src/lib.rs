//! The machine: executors, rings, sockets and disks. All unsafe code of the workspace lives here.

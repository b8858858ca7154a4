//! What Linux says of processes and sockets.

use std::fs;
use std::net::SocketAddr;

/// Anonymous resident memory of a process in bytes: what it holds, without mapped files.
pub(crate) fn rss_anon(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    let kib: u64 = line
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kib * 1024
}

/// A socket's number for its timer when the other end's window is zero and is probed (`tr` in `/proc/net/tcp`).
const ZERO_WINDOW_PROBE: &str = "04";

/// How many of the sockets that are connected to `server` find that its receive window is zero.
pub(crate) fn zero_windows(server: SocketAddr) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!("0100007F:{:04X}", server.port());
    let probes = table.lines().skip(1).filter(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // sl local_address rem_address st tx_queue:rx_queue tr:tm->when …
        fields[2] == remote && fields[5].split(':').next() == Some(ZERO_WINDOW_PROBE)
    });
    probes.count()
}

//! Properties that only corelog has. A Kafka broker warns about them and goes on.

use super::{Property, int, long, text};

#[rustfmt::skip]
pub(super) const ROWS: &[Property] = &[
    text("engine", Some("percore")).one_of(&["percore", "classic"])
        .used("percore: one pinned thread per core. classic: network threads, one request queue and handler threads, as in Kafka."),
    text("cores", None)
        .used("The cores to run on, such as 0,2-5; by default all that the cpuset and the CPU quota allow."),
    int("shards", None).within(1, 1024)
        .used("Units of ownership that partitions are spread over; by default one per core, or eight per handler thread of the classic engine. May change from start to start."),
    long("memory.budget.bytes", Some("-1")).at_least(-1)
        .used("The sum of all pools; -1: a quarter of the memory that the cgroup allows, at most 1 GiB."),
    text("admin.listener", Some("127.0.0.1:9644"))
        .used("host:port of /metrics, /healthz and /readyz; empty: none."),
    int("log.write.behind.bytes", Some("4194304")).within(0, 1 << 30)
        .used("The window after which the kernel is asked to write back what a log has written; 0: left to the kernel."),
    int("connection.receive.timeout.ms", Some("30000")).at_least(1)
        .used("A request whose bytes do not get further for this long closes its connection."),
    int("connection.send.timeout.ms", Some("30000")).at_least(1)
        .used("A client that does not take its answers for this long is disconnected."),
    text("test.disk.stall.file", Some(""))
        .used("For tests: while this file exists, nothing is written to any log; empty: never."),
    text("log.format", Some("human")).one_of(&["human", "json"])
        .used("How log lines look."),
];

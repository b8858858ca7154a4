//! One home per third-party crate (and per kind of our own things): where its name may stand in product code.

use super::{Source, positions};

/// (name in code, places where it may stand, as beginnings of paths)
const HOMES: &[(&str, &[&str])] = &[
    ("glommio", &["io/src/"]),
    ("io_uring", &["io/src/"]),
    ("libc", &["io/src/"]),
    ("socket2", &["io/src/"]),
    ("memmap2", &["io/src/disk/map.rs"]),
    ("sharded_slab", &["io/src/slots.rs"]),
    ("core_affinity", &["io/src/cpu"]),
    ("crc32c", &["io/wire/src/batch/", "shards/src/log/"]),
    ("flate2", &["io/wire/src/compress/"]),
    ("lz4_flex", &["io/wire/src/compress/"]),
    ("snap", &["io/wire/src/compress/"]),
    ("zstd", &["io/wire/src/compress/"]),
    ("twox_hash", &["io/wire/src/compress/"]),
    ("hdrhistogram", &["src/metrics/", "perf/"]),
    ("plotters", &["perf/src/report/chart.rs"]),
    ("signal_hook", &["perf/src/interrupt.rs"]),
    ("base64", &["perf/src/hlog.rs"]),
    ("prometheus_client", &["src/metrics/"]),
    ("axum", &["src/console/"]),
    ("mio", &["src/engine/classic/"]),
    ("clap", &["src/cli/", "src/main.rs", "perf/"]),
    ("tracing_subscriber", &["src/cli/logging.rs", "perf/"]),
    ("serde_json", &["src/cli/", "perf/"]),
    ("rustix", &["perf/"]),
    // RPC message types stop at the API and at the clients of the command line (architecture.md 8).
    ("corelog_wire::messages", &["src/api/", "src/cli/", "perf/"]),
    ("corelog_perf", &["src/cli/", "perf/src/main.rs"]),
];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let product = sources.iter().filter(|source| {
        source.is_rust() && !source.is_test() && !source.path.ends_with("build.rs")
    });
    for source in product {
        let code = source.product_code();
        for (name, places) in HOMES {
            let at_home = places.iter().any(|place| source.path.starts_with(place));
            if !at_home && begins_a_path(&code, name) {
                problems.push(format!(
                    "{}: {name} has its home in {}",
                    source.path,
                    places.join(", ")
                ));
            }
        }
    }
    problems
}

/// `name::` as the beginning of a path, not inside one (`crate::zstd::…`).
fn begins_a_path(code: &str, name: &str) -> bool {
    positions(code, name)
        .any(|at| code[at + name.len()..].starts_with("::") && !code[..at].ends_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, content: &str) -> usize {
        let source = Source {
            path: path.to_owned(),
            content: content.to_owned(),
        };
        check(&[source]).len()
    }

    #[test]
    fn a_crate_is_used_at_home_only() {
        assert_eq!(problems("src/engine/a.rs", "use libc::c_int;"), 1);
        assert_eq!(problems("io/src/a.rs", "use libc::c_int;"), 0);
        assert_eq!(
            problems("src/engine/a.rs", "// libc::c_int\nlet x = \"libc::x\";"),
            0
        );
        assert_eq!(
            problems(
                "src/engine/a.rs",
                "#[cfg(test)]\nmod tests {\nuse libc::c_int;\n}"
            ),
            0
        );
        assert_eq!(problems("tests/it/a.rs", "use libc::c_int;"), 0);
        assert_eq!(
            problems("src/engine/a.rs", "use corelog_wire::messages::fetch;"),
            1
        );
        assert_eq!(
            problems("src/api/a.rs", "use corelog_wire::messages::fetch;"),
            0
        );
    }

    #[test]
    fn a_module_of_ours_may_have_the_name_of_a_crate() {
        assert_eq!(
            problems("io/wire/src/a.rs", "use crate::zstd::x; self::snap::y();"),
            0
        );
    }
}

//! All metrics, and their text in Prometheus' exposition format. Names that dashboards know keep Kafka's names in
//! the form that the usual exporter rules give them (kafka.md 14); what only a broker of cores has is called `corelog_core_*` and has a `core` label.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::counters::{Broker, Core, Counter, CreditKind, Gauge};
use super::latency::{Exchange, Family, Latencies, Recorder, Stage};
use super::pools::Pools;
use super::process::{self, Process};
use crate::api::table::{APIS, FETCH, PRODUCE};

/// The content type that belongs to the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper ends of the buckets of request times, in microseconds. Finer below a millisecond, where this broker lives.
const BUCKETS_US: [u64; 16] = [
    50, 100, 200, 400, 700, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 10_000_000,
];

/// Everything that is counted, by core and for the whole broker.
pub struct Metrics {
    cores: Box<[CachePadded<Core>]>,
    pub broker: Broker,
    /// Of the classic engine only.
    pub pools: Option<Pools>,
    exchanges: Vec<Arc<Exchange>>,
    /// What has been merged so far. Only the housekeeping thread comes here.
    totals: Mutex<Latencies>,
}

impl Metrics {
    pub fn new(cores: usize) -> Arc<Metrics> {
        Metrics::with_pools(cores, None)
    }

    /// Of an engine whose threads stand in `pools`; `cores` is how many count apart from each other.
    pub fn with_pools(cores: usize, pools: Option<Pools>) -> Arc<Metrics> {
        process::start_seconds();
        Arc::new(Metrics {
            cores: (0..cores).map(|_| CachePadded::default()).collect(),
            broker: Broker::default(),
            pools,
            exchanges: (0..cores).map(|_| Exchange::new()).collect(),
            totals: Mutex::default(),
        })
    }

    /// The counters of one core. Only that core may change them.
    pub fn core(&self, core: usize) -> &Core {
        &self.cores[core]
    }

    /// The histograms of one core; to be asked for once.
    pub fn recorder(&self, core: usize) -> Recorder {
        Recorder::new(Arc::clone(&self.exchanges[core]))
    }

    /// Merges what the cores have recorded. Called about once a second: what is rendered is at most two calls old.
    pub fn collect_latencies(&self) {
        let mut totals = self.totals();
        for exchange in &self.exchanges {
            exchange.collect(&mut totals);
        }
        if let Some(pools) = &self.pools {
            pools.sample(Instant::now());
        }
    }

    /// The whole text.
    pub fn render(self: &Arc<Metrics>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(View(Arc::clone(self))));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a String takes everything");
        text
    }

    fn totals(&self) -> MutexGuard<'_, Latencies> {
        // Histograms are whole after every call: a panic elsewhere does not spoil them.
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sum(&self, of: impl Fn(&Core) -> u64) -> u64 {
        self.cores.iter().map(|core| of(core)).sum()
    }
}

/// What the encoder asks for the samples.
struct View(Arc<Metrics>);

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}

impl Collector for View {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut out = Out(encoder);
        broker_totals(&self.0, &mut out)?;
        requests(&self.0, &mut out)?;
        core_counters(&self.0, &mut out)?;
        credits(&self.0, &mut out)?;
        if let Some(pools) = &self.0.pools {
            thread_pools(pools, &mut out)?;
        }
        latencies(&self.0, &mut out)?;
        process_metrics(&mut out)
    }
}

/// Writes whole families: a descriptor, then its samples. Names of counters get their `_total` from the encoder.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, kind)?;
        samples(&mut encoder)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |samples| {
            encode_counter(samples, value)
        })
    }

    fn gauge(&mut self, name: &str, help: &str, value: i64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, |samples| {
            samples.encode_gauge(&value)
        })
    }
}

fn encode_counter(encoder: &mut MetricEncoder<'_>, value: u64) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

fn counter_sample(
    samples: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    value: u64,
) -> fmt::Result {
    encode_counter(&mut samples.encode_family(labels)?, value)
}

fn gauge_sample(
    samples: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    value: i64,
) -> fmt::Result {
    samples.encode_family(labels)?.encode_gauge(&value)
}

/// Names that dashboards of Kafka know, summed over the cores.
fn broker_totals(metrics: &Metrics, out: &mut Out<'_>) -> fmt::Result {
    type Sum = fn(&Core) -> u64;
    const TOTALS: [(&str, &str, Sum); 7] = [
        ("messagesin", "Records that were appended", |core| {
            core.records_in.get()
        }),
        ("bytesin", "Bytes of records that were appended", |core| {
            core.record_bytes_in.get()
        }),
        ("bytesout", "Bytes of records that were sent", |core| {
            core.record_bytes_out.get()
        }),
        ("totalproducerequests", "Produce requests", |core| {
            core.requests.of(PRODUCE).get()
        }),
        ("totalfetchrequests", "Fetch requests", |core| {
            core.requests.of(FETCH).get()
        }),
        (
            "failedproducerequests",
            "Produce requests with an error",
            |core| core.request_errors.of(PRODUCE).get(),
        ),
        (
            "failedfetchrequests",
            "Fetch requests with an error",
            |core| core.request_errors.of(FETCH).get(),
        ),
    ];
    for (name, help, of) in TOTALS {
        let name = format!("kafka_server_brokertopicmetrics_{name}");
        out.counter(&name, help, metrics.sum(of))?;
    }
    let broker = &metrics.broker;
    out.family(
        "corelog_info",
        "What runs here",
        MetricType::Gauge,
        |samples| gauge_sample(samples, &[("version", env!("CARGO_PKG_VERSION"))], 1),
    )?;
    let gauges: [(&str, &str, &Gauge); 7] = [
        (
            "kafka_server_kafkaserver_brokerstate",
            "1 starting, 2 recovering, 3 running, 7 shutting down",
            &broker.state,
        ),
        (
            "kafka_server_replicamanager_partitioncount",
            "Partitions on this broker",
            &broker.partitions,
        ),
        (
            "kafka_server_replicamanager_leadercount",
            "Partitions that this broker leads",
            &broker.leaders,
        ),
        (
            "kafka_server_replicamanager_offlinereplicacount",
            "Partitions whose log cannot be used",
            &broker.offline_partitions,
        ),
        (
            "kafka_controller_kafkacontroller_globaltopiccount",
            "Topics of the cluster",
            &broker.topics,
        ),
        (
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that cannot be used",
            &broker.offline_directories,
        ),
        (
            "kafka_server_broker_metadata_metrics_last_applied_record_offset",
            "Offset of the last metadata record that was applied",
            &broker.metadata_offset,
        ),
    ];
    gauges
        .into_iter()
        .try_for_each(|(name, help, gauge)| out.gauge(name, help, gauge.get()))
}

fn requests(metrics: &Metrics, out: &mut Out<'_>) -> fmt::Result {
    type PerApi = fn(&Core, i16) -> u64;
    const FAMILIES: [(&str, &str, PerApi); 2] = [
        (
            "kafka_network_requestmetrics_requests",
            "Requests",
            |core, key| core.requests.of(key).get(),
        ),
        (
            "corelog_request_errors",
            "Requests that were answered with an error or closed their connection",
            |core, key| core.request_errors.of(key).get(),
        ),
    ];
    for (name, help, of) in FAMILIES {
        out.family(name, help, MetricType::Counter, |samples| {
            APIS.iter().try_for_each(|api| {
                let count = metrics.sum(|core| of(core, api.key));
                counter_sample(samples, &[("request", api.name)], count)
            })
        })?;
    }
    Ok(())
}

fn core_counters(metrics: &Metrics, out: &mut Out<'_>) -> fmt::Result {
    type CounterOf = fn(&Core) -> &Counter;
    type GaugeOf = fn(&Core) -> &Gauge;
    const COUNTERS: [(&str, &str, CounterOf); 20] = [
        ("busy_us", "Microseconds in which the loop worked", |core| {
            &core.busy_us
        }),
        ("idle_us", "Microseconds in which the loop waited", |core| {
            &core.idle_us
        }),
        ("turns", "Passes of the loop", |core| &core.turns),
        (
            "long_turns",
            "Passes of the loop that took more than 2 ms of CPU time",
            |core| &core.long_turns,
        ),
        ("connections_opened", "Connections taken over", |core| {
            &core.connections_opened
        }),
        ("connections_closed", "Connections closed", |core| {
            &core.connections_closed
        }),
        (
            "connections_refused",
            "Connections closed because of what came",
            |core| &core.connections_refused,
        ),
        ("bytes_in", "Bytes received", |core| &core.bytes_in),
        ("bytes_out", "Bytes sent", |core| &core.bytes_out),
        (
            "mesh_full",
            "Times that a ring to another core was full",
            |core| &core.mesh_full,
        ),
        ("hops_sent", "Messages sent to other cores", |core| {
            &core.hops_sent
        }),
        ("hops_received", "Messages of other cores", |core| {
            &core.hops_received
        }),
        ("doorbells", "Times that another core was woken", |core| {
            &core.doorbells
        }),
        ("writes", "Writes to files", |core| &core.writes),
        ("write_bytes", "Bytes written to files", |core| {
            &core.write_bytes
        }),
        ("syncs", "Syncs of files", |core| &core.syncs),
        ("reads", "Reads of files", |core| &core.reads),
        ("read_bytes", "Bytes read of files", |core| &core.read_bytes),
        (
            "disk_failures",
            "Writes, syncs and reads that failed",
            |core| &core.disk_failures,
        ),
        ("recoveries", "Logs that were recovered", |core| {
            &core.recoveries
        }),
    ];
    const GAUGES: [(&str, &str, GaugeOf); 5] = [
        ("connections", "Open connections", |core| &core.connections),
        (
            "mesh_depth",
            "Messages that wait in rings of the core",
            |core| &core.mesh_depth,
        ),
        (
            "longest_turn_us",
            "CPU time in microseconds of the longest pass that ended in the last ten to twenty seconds",
            |core| &core.longest_turn_us,
        ),
        ("groups", "Consumer groups", |core| &core.groups),
        ("group_bytes", "Memory of consumer groups", |core| {
            &core.group_bytes
        }),
    ];
    for (name, help, of) in COUNTERS {
        let name = format!("corelog_core_{name}");
        out.family(&name, help, MetricType::Counter, |samples| {
            each_core(metrics, |label, core| {
                counter_sample(samples, &[("core", label)], of(core).get())
            })
        })?;
    }
    for (name, help, of) in GAUGES {
        let name = format!("corelog_core_{name}");
        out.family(&name, help, MetricType::Gauge, |samples| {
            each_core(metrics, |label, core| {
                gauge_sample(samples, &[("core", label)], of(core).get())
            })
        })?;
    }
    Ok(())
}

/// Which credit is missing, and who waits for it.
fn credits(metrics: &Metrics, out: &mut Out<'_>) -> fmt::Result {
    fn labels(core: &str, kind: CreditKind) -> [(&str, &str); 2] {
        [("core", core), ("credit", kind.name())]
    }
    out.family(
        "corelog_core_credits_free",
        "Credits that are not taken",
        MetricType::Gauge,
        |samples| {
            each_credit(metrics, |label, core, kind| {
                gauge_sample(samples, &labels(label, kind), core.credit(kind).free.get())
            })
        },
    )?;
    out.family(
        "corelog_core_credit_waiters",
        "Who waits for a credit now",
        MetricType::Gauge,
        |samples| {
            each_credit(metrics, |label, core, kind| {
                gauge_sample(
                    samples,
                    &labels(label, kind),
                    core.credit(kind).waiters.get(),
                )
            })
        },
    )?;
    out.family(
        "corelog_core_credit_waits",
        "Times that somebody had to wait for a credit",
        MetricType::Counter,
        |samples| {
            each_credit(metrics, |label, core, kind| {
                counter_sample(samples, &labels(label, kind), core.credit(kind).waits.get())
            })
        },
    )
}

fn latencies(metrics: &Metrics, out: &mut Out<'_>) -> fmt::Result {
    let totals = metrics.totals();
    out.family(
        "corelog_request_seconds",
        "Time of requests by stage",
        MetricType::Histogram,
        |samples| {
            for family in Family::ALL {
                for stage in Stage::ALL {
                    let labels = [("request", family.name()), ("stage", stage.name())];
                    samples
                        .encode_family(&labels)?
                        .encode_histogram::<NoLabelSet>(
                            seconds(totals.sum_us(family, stage)),
                            totals.of(family, stage).len(),
                            &buckets(&totals, family, stage),
                            None,
                        )?;
                }
            }
            Ok(())
        },
    )
}

/// (upper end in seconds, how many are in this bucket alone); the encoder adds the last bucket, without an end.
fn buckets(totals: &Latencies, family: Family, stage: Stage) -> Vec<(f64, u64)> {
    let histogram = totals.of(family, stage);
    let mut below = 0;
    let mut buckets = Vec::with_capacity(BUCKETS_US.len());
    for end_us in BUCKETS_US {
        let count = histogram.count_between(0, end_us);
        buckets.push((seconds(end_us), count - below));
        below = count;
    }
    buckets
}

fn thread_pools(pools: &Pools, out: &mut Out<'_>) -> fmt::Result {
    let idle = pools.idle(Instant::now());
    let averages = [
        (
            "kafka_network_socketserver_networkprocessoravgidlepercent",
            "Share of time from 0 to 1 that network threads wait in their selectors",
            idle.processors_avg,
        ),
        (
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
            "Share of time from 0 to 1 that handler threads wait for requests",
            idle.handlers_avg,
        ),
    ];
    for (name, help, share) in averages {
        out.family(name, help, MetricType::Gauge, |samples| {
            samples.encode_gauge(&share)
        })?;
    }
    out.family(
        "kafka_network_processor_idlepercent",
        "Share of time from 0 to 1 that a network thread waits in its selector",
        MetricType::Gauge,
        |samples| {
            let mut each = idle.processors.iter().enumerate();
            each.try_for_each(|(number, share)| {
                let labels = [("networkprocessor", number.to_string())];
                samples.encode_family(&labels)?.encode_gauge(share)
            })
        },
    )?;
    out.gauge(
        "kafka_network_requestchannel_requestqueuesize",
        "Requests that wait for a handler thread",
        pools.queue.get(),
    )?;
    out.family(
        "kafka_network_requestchannel_responsequeuesize",
        "Answers that wait for their network thread",
        MetricType::Gauge,
        |samples| {
            let mut each = pools.processors.iter().enumerate();
            each.try_for_each(|(number, processor)| {
                let labels = [("processor", number.to_string())];
                gauge_sample(samples, &labels, processor.responses.get())
            })
        },
    )?;
    out.counter(
        "corelog_request_queue_full",
        "Times that a network thread found the request queue full",
        pools.queue_full.get(),
    )?;
    out.gauge(
        "kafka_network_socketserver_memorypoolavailable",
        "Bytes of queued.max.request.bytes that are free",
        pools.request_bytes_free.get(),
    )?;
    out.gauge(
        "kafka_network_socketserver_memorypoolused",
        "Bytes of queued.max.request.bytes that requests hold",
        pools.request_bytes_used.get(),
    )
}

fn process_metrics(out: &mut Out<'_>) -> fmt::Result {
    let process = Process::now();
    let gauges: [(&str, &str, u64); 4] = [
        (
            "process_resident_memory_bytes",
            "Resident memory",
            process.resident_bytes,
        ),
        (
            "corelog_process_anonymous_memory_bytes",
            "Resident memory that is no file",
            process.anonymous_bytes,
        ),
        ("process_threads", "Threads", process.threads),
        (
            "process_open_fds",
            "Open file descriptors",
            process.open_files,
        ),
    ];
    for (name, help, value) in gauges {
        out.gauge(name, help, value as i64)?;
    }
    out.family(
        "process_start_time_seconds",
        "Start of the process since the Unix epoch",
        MetricType::Gauge,
        |samples| samples.encode_gauge(&process::start_seconds()),
    )?;
    out.family(
        "process_cpu_seconds",
        "User and system time",
        MetricType::Counter,
        |samples| samples.encode_counter::<NoLabelSet, f64, f64>(&process.cpu_seconds, None),
    )
}

fn each_core(metrics: &Metrics, mut sample: impl FnMut(&str, &Core) -> fmt::Result) -> fmt::Result {
    let mut cores = metrics.cores.iter().enumerate();
    cores.try_for_each(|(index, core)| sample(&index.to_string(), core))
}

fn each_credit(
    metrics: &Metrics,
    mut sample: impl FnMut(&str, &Core, CreditKind) -> fmt::Result,
) -> fmt::Result {
    each_core(metrics, |label, core| {
        CreditKind::ALL
            .into_iter()
            .try_for_each(|kind| sample(label, core, kind))
    })
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, sample: &str) -> Option<f64> {
        let line = text.lines().find(|line| {
            line.strip_prefix(sample)
                .is_some_and(|rest| rest.starts_with(' '))
        })?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    #[test]
    fn kafkas_names_are_sums_and_ours_have_a_core() {
        let metrics = Metrics::new(2);
        metrics.core(0).record_bytes_in.add(10);
        metrics.core(1).record_bytes_in.add(5);
        metrics.core(1).busy_us.add(7);
        metrics.core(1).requests.of(PRODUCE).increment();
        metrics.broker.partitions.set(3);
        let credit = metrics.core(0).credit(CreditKind::ReplyBytes);
        credit.free.set(100);
        credit.waiters.set(2);
        let text = metrics.render();
        for (sample, expected) in [
            ("kafka_server_brokertopicmetrics_bytesin_total", 15.0),
            (
                "kafka_server_brokertopicmetrics_totalproducerequests_total",
                1.0,
            ),
            ("kafka_server_replicamanager_partitioncount", 3.0),
            (
                "kafka_network_requestmetrics_requests_total{request=\"Produce\"}",
                1.0,
            ),
            ("corelog_core_busy_us_total{core=\"1\"}", 7.0),
            ("corelog_core_busy_us_total{core=\"0\"}", 0.0),
            (
                "corelog_core_credits_free{core=\"0\",credit=\"reply_bytes\"}",
                100.0,
            ),
            (
                "corelog_core_credit_waiters{core=\"0\",credit=\"reply_bytes\"}",
                2.0,
            ),
        ] {
            assert_eq!(value(&text, sample), Some(expected), "{sample} in\n{text}");
        }
        assert!(value(&text, "process_resident_memory_bytes") > Some(0.0));
    }

    #[test]
    fn request_times_are_buckets_in_seconds() {
        let metrics = Metrics::new(1);
        let mut recorder = metrics.recorder(0);
        recorder.record(Family::Produce, Stage::Total, 60);
        recorder.record(Family::Produce, Stage::Total, 3_000_000);
        recorder.turn_end();
        metrics.collect_latencies();
        let text = metrics.render();
        let labels = "{request=\"Produce\",stage=\"total\"}";
        let bucket = |end: &str| {
            let sample = format!(
                "corelog_request_seconds_bucket{{request=\"Produce\",stage=\"total\",le=\"{end}\"}}"
            );
            value(&text, &sample).unwrap_or_else(|| panic!("no {sample} in\n{text}")) as u64
        };
        assert_eq!(bucket("5e-05"), 0);
        assert_eq!(bucket("0.0001"), 1);
        assert_eq!(bucket("1"), 1);
        assert_eq!(bucket("10"), 2);
        assert_eq!(bucket("+Inf"), 2);
        let sum = value(&text, &format!("corelog_request_seconds_sum{labels}")).unwrap();
        assert!((sum - 3.00006).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample() {
        let text = Metrics::new(1).render();
        for line in text.lines() {
            let number = line
                .rsplit_once(' ')
                .map(|(_, number)| number.parse::<f64>());
            assert!(
                line.starts_with("# ") || matches!(number, Some(Ok(_))),
                "{line}"
            );
        }
    }
}

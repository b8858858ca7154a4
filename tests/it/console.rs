//! `/metrics`, `/healthz` and `/readyz` of a running broker.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::ENGINE;
use crate::broker::{Engine, Home, eventually};
use crate::client::ANSWER_WITHIN;
use crate::topic::{append, create, fetch_request, values};

/// The whole answer, head included.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of one sample, named with its labels.
pub(crate) fn metric(text: &str, sample: &str) -> Option<f64> {
    let line = text.lines().find(|line| {
        line.strip_prefix(sample)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn a_running_broker_is_alive_and_ready() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    for path in ["/healthz", "/readyz"] {
        let answer = eventually("alive and ready", || {
            let answer = get(home.admin(), path);
            answer.starts_with("HTTP/1.1 200").then_some(answer)
        });
        assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    }
    assert!(get(home.admin(), "/nothing").starts_with("HTTP/1.1 404"));
    broker.stop();
    assert!(TcpStream::connect(home.admin()).is_err());
}

#[test]
fn metrics_tell_what_the_broker_did() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "counted", 4);
    for partition in 0..4 {
        append(&mut client, &topic, partition, &values("x", 5));
        let _ = client.call(&fetch_request(&topic, 12, &[(partition, 0)]), 12);
    }
    let due = [
        ("kafka_server_kafkaserver_brokerstate", 3.0),
        (
            "kafka_server_brokertopicmetrics_totalproducerequests_total",
            4.0,
        ),
        (
            "kafka_server_brokertopicmetrics_totalfetchrequests_total",
            4.0,
        ),
        (
            "kafka_network_requestmetrics_requests_total{request=\"Produce\"}",
            4.0,
        ),
        (
            "kafka_network_requestmetrics_requests_total{request=\"CreateTopics\"}",
            1.0,
        ),
        ("kafka_server_replicamanager_partitioncount", 4.0),
        ("kafka_server_replicamanager_leadercount", 4.0),
        ("kafka_controller_kafkacontroller_globaltopiccount", 1.0),
    ];
    let mut missing = Vec::new();
    for (sample, value) in due {
        let mut last = None;
        for _ in 0..100 {
            last = metric(&get(home.admin(), "/metrics"), sample);
            if last == Some(value) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        if last != Some(value) {
            missing.push((sample, value, last));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    broker.stop();
}

#[test]
fn metrics_tell_of_every_core_and_credit() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "counted", 4);
    for partition in 0..4 {
        append(&mut client, &topic, partition, &values("x", 5));
    }
    let text = get(home.admin(), "/metrics");
    assert!(
        text.contains("content-type: text/plain; version=0.0.4"),
        "{text}"
    );
    let sum = |name: &str| -> f64 {
        // Handlers count apart in the classic engine, as cores do in this one.
        let of = |core: usize| metric(&text, &format!("{name}{{core=\"{core}\"}}"));
        let all: Vec<f64> = (0..).map_while(of).collect();
        assert!(all.len() >= 2, "{name} of {} cores", all.len());
        all.into_iter().sum()
    };
    let mut positive = vec![
        "busy_us_total",
        "idle_us_total",
        "turns_total",
        "connections_opened_total",
        "bytes_in_total",
        "bytes_out_total",
        "writes_total",
        "write_bytes_total",
    ];
    let mut credits = vec!["request_bytes", "request_count", "reply_bytes", "parked"];
    // Nothing hops in the classic engine.
    if ENGINE == Engine::Percore {
        positive.extend(["hops_sent_total", "hops_received_total", "doorbells_total"]);
        credits.push("ring_slots");
    }
    let zero: Vec<&str> = positive
        .into_iter()
        .filter(|name| sum(&format!("corelog_core_{name}")) <= 0.0)
        .collect();
    assert!(zero.is_empty(), "still zero: {zero:?}");
    for credit in credits {
        let free = metric(
            &text,
            &format!("corelog_core_credits_free{{core=\"0\",credit=\"{credit}\"}}"),
        );
        assert!(free > Some(0.0), "{credit}: {free:?}");
        let waiters = metric(
            &text,
            &format!("corelog_core_credit_waiters{{core=\"0\",credit=\"{credit}\"}}"),
        );
        assert_eq!(waiters, Some(0.0), "{credit}");
    }
    broker.stop();
}

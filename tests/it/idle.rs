//! Connections that do nothing, and readers that do not read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::broker::{Home, eventually};
use crate::client::frame;
use crate::console::{get, metric};
use crate::topic::{append, create, fetch_request, read_all};

const CONNECTIONS: usize = 1000;
/// The aim of the first release: under 6 KiB for each.
const IDLE_BYTES_MAX: u64 = 6 << 10;

#[test]
fn an_idle_connection_costs_little() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    // The first connections bring tables that stay.
    let first: Vec<_> = (0..50).map(|_| broker.connect()).collect();
    assert!(broker.connect().try_api_versions().is_some());
    let before = broker.rss_anon();
    let mut idle: Vec<_> = (0..CONNECTIONS).map(|_| broker.connect()).collect();
    // They have all been served once: their buffers must be given back.
    for client in &mut idle {
        assert!(client.try_api_versions().is_some());
    }
    eventually("each costs less than 6 KiB", || {
        let each = broker.rss_anon().saturating_sub(before) / CONNECTIONS as u64;
        (each < IDLE_BYTES_MAX).then_some(())
    });
    assert!(
        idle.iter_mut()
            .all(|client| client.try_api_versions().is_some()),
        "and they are still served"
    );
    drop(first);
    broker.stop();
}

#[test]
fn an_idle_connection_is_closed_when_its_time_is_up() {
    let home = Home::new();
    let broker = home.start(1, &["connections.max.idle.ms=1000"]);
    let mut silent = broker.connect();
    let mut served = broker.connect();
    assert!(served.try_api_versions().is_some());
    assert!(silent.is_closed());
    assert!(served.is_closed());
    broker.stop();
}

#[test]
fn a_reader_that_takes_no_answers_is_disconnected_and_bounded() {
    const BUDGET: u64 = 64 << 20;
    let home = Home::new();
    let broker = home.start(
        2,
        &[
            &format!("memory.budget.bytes={BUDGET}"),
            "connection.send.timeout.ms=1000",
        ],
    );
    let mut client = broker.connect();
    let topic = create(&mut client, "large", 2);
    for partition in 0..2 {
        for _ in 0..16 {
            append(&mut client, &topic, partition, &["r".repeat(500_000)]);
        }
    }
    let at_rest = broker.rss_anon();
    let request = fetch_request(&topic, 12, &[(0, 0), (1, 0)]);
    let mut deaf: Vec<TcpStream> = Vec::new();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(broker.address()).unwrap();
        for id in 0..20 {
            stream.write_all(&frame(&request, 12, id)).unwrap();
        }
        deaf.push(stream);
    }
    let open = || {
        let text = get(home.admin(), "/metrics");
        let each = (0..2).map(|core| format!("corelog_core_connections{{core=\"{core}\"}}"));
        each.filter_map(|name| metric(&text, &name)).sum::<f64>()
    };
    let mut most = 0;
    eventually("those that do not read are disconnected", || {
        most = most.max(broker.rss_anon().saturating_sub(at_rest));
        (open() <= 1.0).then_some(())
    });
    assert!(
        most <= BUDGET,
        "{most} bytes more than at rest, with a budget of {BUDGET}"
    );
    assert_eq!(read_all(&mut client, &topic)[&1].len(), 16);
    drop(deaf);
    broker.stop();
}

#[test]
fn a_slow_reader_that_takes_its_answers_is_served() {
    let home = Home::new();
    let broker = home.start(1, &["connection.send.timeout.ms=1000"]);
    let mut client = broker.connect();
    // One answer brings at most some MiB of a partition that nobody has read, so there are several.
    let topic = create(&mut client, "large", 8);
    for partition in 0..8 {
        for _ in 0..5 {
            append(&mut client, &topic, partition, &["r".repeat(500_000)]);
        }
    }
    let from: Vec<(i32, i64)> = (0..8).map(|partition| (partition, 0)).collect();
    let request = fetch_request(&topic, 12, &from);
    let mut stream = TcpStream::connect(broker.address()).unwrap();
    stream.write_all(&frame(&request, 12, 1)).unwrap();
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).unwrap();
    let length = u32::from_be_bytes(prefix) as usize;
    assert!(length > 18_000_000, "{length}");
    // Takes longer for all of it than a reader may take nothing for, several times.
    let (mut got, mut chunk) = (0, vec![0; 400_000]);
    while got < length {
        let read = stream.read(&mut chunk).unwrap();
        assert_ne!(read, 0, "disconnected after {got} of {length} bytes");
        got += read;
        std::thread::sleep(Duration::from_millis(50));
    }
    broker.stop();
}

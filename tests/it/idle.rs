//! Connections that do nothing, and readers that do not read.

use crate::broker::{Home, eventually};

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

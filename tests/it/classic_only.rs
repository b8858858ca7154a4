//! What only the classic engine has.

use corelog_wire::messages::produce;

use crate::broker::{Home, eventually};
use crate::console::{get, metric};
use crate::topic::{
    append, batch, create, fetch_request, produce_request, produced, read_all, values,
};

const VERSION: i16 = 9;

#[test]
fn a_full_queue_stops_the_processors_and_is_told() {
    const CLIENTS: usize = 8;
    let home = Home::new();
    let broker = home.start(
        2,
        &[
            "num.io.threads=1",
            "num.network.threads=2",
            "queued.max.requests=2",
            &home.stall_option(),
        ],
    );
    let mut client = broker.connect();
    let topic = create(&mut client, "queued", 1);
    append(&mut client, &topic, 0, &values("there", 1));
    home.hold_disk();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| broker.connect()).collect();
    for client in &mut clients {
        let request = produce_request(&topic, VERSION, -1, &[(0, batch(&values("held", 1)))]);
        client.send(&request, VERSION);
    }
    let of = |name: &str| metric(&get(home.admin(), "/metrics"), name);
    // One is in the handler's hands, two wait in the queue, and each processor stands with one that finds no place.
    let queued = "kafka_network_requestchannel_requestqueuesize";
    eventually("the queue is full", || {
        (of(queued) == Some(2.0)).then_some(())
    });
    let waiters = "corelog_core_credit_waiters{core=\"0\",credit=\"request_count\"}";
    eventually("both processors wait", || {
        (of(waiters) == Some(2.0)).then_some(())
    });
    assert!(of("corelog_request_queue_full_total") >= Some(2.0));
    home.let_disk_go();
    for client in &mut clients {
        assert_eq!(produced(&client.receive::<produce::Request>(VERSION)).0, 0);
    }
    assert_eq!(read_all(&mut client, &topic)[&0].len(), 1 + CLIENTS);
    eventually("the queue is empty", || {
        (of(queued) == Some(0.0)).then_some(())
    });
    broker.stop();
}

#[test]
fn a_long_poll_whose_client_goes_before_it_is_read_ends_with_it() {
    let home = Home::new();
    let broker = home.start(
        2,
        &[
            "num.io.threads=1",
            "num.network.threads=1",
            "queued.max.requests=1",
            &home.stall_option(),
        ],
    );
    let mut client = broker.connect();
    let topic = create(&mut client, "left", 1);
    append(&mut client, &topic, 0, &values("there", 1));
    let mut reader = broker.connect();
    assert!(reader.try_api_versions().is_some());
    // The processor stands still: one request in the handler's hands, one in the queue, one that finds no place.
    home.hold_disk();
    let mut stuck: Vec<_> = (0..3).map(|_| broker.connect()).collect();
    for client in &mut stuck {
        let request = produce_request(&topic, VERSION, -1, &[(0, batch(&values("held", 1)))]);
        client.send(&request, VERSION);
    }
    let of = |name: &str| metric(&get(home.admin(), "/metrics"), name);
    let waiters = "corelog_core_credit_waiters{core=\"0\",credit=\"request_count\"}";
    eventually("the processor waits", || {
        (of(waiters) == Some(1.0)).then_some(())
    });
    // It learns of the request and of the end at once.
    let mut poll = fetch_request(&topic, 12, &[(0, 4)]);
    (poll.max_wait_ms, poll.min_bytes) = (600_000, 50_000_000);
    reader.send(&poll, 12);
    drop(reader);
    home.let_disk_go();
    for client in &mut stuck {
        assert_eq!(produced(&client.receive::<produce::Request>(VERSION)).0, 0);
    }
    eventually("only the others are connected", || {
        (of("corelog_core_connections{core=\"0\"}") == Some(4.0)).then_some(())
    });
    broker.stop();
}

#[test]
fn metrics_tell_how_idle_the_threads_are() {
    let home = Home::new();
    let broker = home.start(2, &["num.network.threads=2"]);
    assert!(broker.connect().try_api_versions().is_some());
    for name in [
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_network_processor_idlepercent{networkprocessor=\"1\"}",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
    ] {
        let idle = eventually(name, || {
            metric(&get(home.admin(), "/metrics"), name).filter(|idle| *idle > 0.0)
        });
        assert!(idle <= 1.0, "{name}: {idle}");
    }
    let text = get(home.admin(), "/metrics");
    for name in [
        "kafka_network_requestchannel_requestqueuesize",
        "kafka_network_requestchannel_responsequeuesize{processor=\"0\"}",
        "kafka_network_socketserver_memorypoolused",
        "corelog_request_queue_full_total",
    ] {
        assert_eq!(metric(&text, name), Some(0.0), "{name}");
    }
    assert!(metric(&text, "kafka_network_socketserver_memorypoolavailable") > Some(0.0));
    broker.stop();
}

//! Whatever clients do, and however they go: every credit comes back.

use std::net::SocketAddr;

use crate::broker::{Home, eventually};
use crate::client::{Client, frame};
use crate::console::{get, metric};
use crate::topic::{Topic, append, batch, create, fetch_request, produce_request, values};

const CREDITS: [&str; 4] = ["request_bytes", "request_count", "reply_bytes", "parked"];

/// What is free of each credit, of both cores.
fn free(admin: SocketAddr) -> Vec<(String, f64)> {
    let text = get(admin, "/metrics");
    let each = CREDITS
        .iter()
        .flat_map(|credit| (0..2).map(move |core| (core, credit)));
    each.map(|(core, credit)| {
        let name = format!("corelog_core_credits_free{{core=\"{core}\",credit=\"{credit}\"}}");
        let value = metric(&text, &name).unwrap();
        (name, value)
    })
    .collect()
}

fn long_polls(client: &mut Client, topic: &Topic) {
    let mut request = fetch_request(topic, 12, &[(0, 1000), (1, 0), (2, 0), (3, 0)]);
    request.topics[0].partitions.remove(0);
    (request.max_wait_ms, request.min_bytes) = (60_000, 50_000_000);
    client.send(&request, 12);
}

#[test]
fn every_credit_comes_back_when_clients_go() {
    let home = Home::new();
    let broker = home.start(2, &["auto.create.topics.enable=false"]);
    let mut client = broker.connect();
    let topic = create(&mut client, "used", 4);
    for partition in 0..4 {
        for _ in 0..10 {
            append(&mut client, &topic, partition, &["r".repeat(200_000)]);
        }
    }
    let rest = eventually("the broker is at rest", || {
        let before = free(home.admin());
        std::thread::sleep(std::time::Duration::from_millis(1500));
        (free(home.admin()) == before).then_some(before)
    });
    let large = batch(&["x".repeat(300_000)]);
    for round in 0..4 {
        let mut clients: Vec<Client> = (0..40).map(|_| broker.connect()).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            let partition = n as i32 % 4;
            let produce = |acks| produce_request(&topic, 9, acks, &[(partition, large.clone())]);
            match (n + round) % 8 {
                0 => long_polls(client, &topic),
                // Answers that are never taken.
                1 => (0..10).for_each(|_| {
                    client.send(
                        &fetch_request(&topic, 12, &[(0, 0), (1, 0), (2, 0), (3, 0)]),
                        12,
                    );
                }),
                2 => (0..5).for_each(|_| client.send(&produce(-1), 9)),
                3 => (0..5).for_each(|_| {
                    client.send_unanswered(&produce(0), 9);
                }),
                // Half a request.
                4 => client.write(&frame(&produce(-1), 9, 1)[..150_000]).unwrap(),
                5 => client.write(&[0, 0]).unwrap(),
                // Errors: closes by the broker, and ordinary ones.
                6 => client.write(&[0xff; 40]).unwrap(),
                _ => {
                    let elsewhere = Topic {
                        name: "nowhere".into(),
                        ..topic.clone()
                    };
                    client.send(
                        &produce_request(&elsewhere, 9, -1, &[(0, batch(&values("x", 1)))]),
                        9,
                    );
                }
            }
        }
        // They go while the broker is at it.
        drop(clients);
    }
    let mut now = Vec::new();
    let back = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually("every credit is back", || {
            now = free(home.admin());
            (now == rest).then_some(())
        });
    }));
    assert!(back.is_ok(), "at rest {rest:#?}, afterwards {now:#?}");
    append(&mut client, &topic, 0, &values("after", 1));
    broker.stop();
}

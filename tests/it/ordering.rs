//! Order on a connection, and idempotent producers.

use corelog_wire::messages::{init_producer_id, metadata, produce};

use crate::broker::{Home, eventually};
use crate::client::Client;
use crate::topic::{
    append, batch, batch_with, create, numbered, produce_request, produced, read_all, values,
};
use corelog_wire::compress::Codec;

const VERSION: i16 = 9;
const OUT_OF_ORDER_SEQUENCE: i16 = 45;
const INVALID_PRODUCER_EPOCH: i16 = 47;
const COORDINATOR_LOADING: i16 = 14;

pub(crate) fn new_producer(client: &mut Client) -> (i64, i16) {
    let request = init_producer_id::Request {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    eventually("a producer id", || {
        let answer = client.call(&request, 4);
        assert!(
            [0, COORDINATOR_LOADING].contains(&answer.error_code),
            "error {}",
            answer.error_code
        );
        (answer.error_code == 0).then_some((answer.producer_id, answer.producer_epoch))
    })
}

#[test]
fn pipelined_requests_are_answered_and_land_in_order() {
    const REQUESTS: i64 = 500;
    let home = Home::new();
    let broker = home.start(4, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "lined-up", 4);
    let value = |n: i64| format!("{n}");
    for n in 0..REQUESTS {
        let request = produce_request(&topic, VERSION, -1, &[((n % 4) as i32, batch(&[value(n)]))]);
        client.send(&request, VERSION);
    }
    for n in 0..REQUESTS {
        // The client asserts that this is the answer to request n.
        let answer = client.receive::<produce::Request>(VERSION);
        assert_eq!(produced(&answer), (0, n / 4));
    }
    for (partition, got) in read_all(&mut client, &topic) {
        let due = (0..REQUESTS)
            .filter(|n| n % 4 == i64::from(partition))
            .map(value);
        assert_eq!(got, numbered(due), "partition {partition}");
    }
    broker.stop();
}

#[test]
fn other_requests_among_pipelined_ones_keep_their_place() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "mixed", 2);
    for n in 0..60 {
        let one = batch(&[format!("{n}")]);
        client.send(
            &produce_request(&topic, VERSION, -1, &[(n % 2, one.clone())]),
            VERSION,
        );
        client.send(&metadata::Request::default(), 9);
        // No answer: the place of the next one moves up.
        client.send_unanswered(
            &produce_request(&topic, VERSION, 0, &[(n % 2, one)]),
            VERSION,
        );
    }
    for n in 0..60 {
        let answer = client.receive::<produce::Request>(VERSION);
        assert_eq!(produced(&answer), (0, i64::from(n / 2 * 2)));
        assert_eq!(client.receive::<metadata::Request>(9).topics.len(), 1);
    }
    let all = eventually("the last record without acknowledgement is there", || {
        let all = read_all(&mut client, &topic);
        (all[&1].len() == 60).then_some(all)
    });
    let due = |odd: i32| {
        (0..60)
            .filter(move |n| n % 2 == odd)
            .flat_map(|n| [format!("{n}"), format!("{n}")])
    };
    assert_eq!(all[&0], numbered(due(0)));
    assert_eq!(all[&1], numbered(due(1)));
    broker.stop();
}

#[test]
fn a_duplicate_is_answered_with_the_old_offset() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "once", 2);
    let (id, epoch) = new_producer(&mut client);
    for partition in 0..2 {
        append(&mut client, &topic, partition, &values("before", 3));
        let mut send = |sequence: i32, records: &[String]| {
            let bytes = batch_with(Codec::None, Some((id, epoch, sequence)), records);
            let request = produce_request(&topic, VERSION, -1, &[(partition, bytes)]);
            produced(&client.call(&request, VERSION))
        };
        assert_eq!(send(0, &values("a", 2)), (0, 3));
        assert_eq!(send(2, &values("b", 2)), (0, 5));
        assert_eq!(send(0, &values("a", 2)), (0, 3), "the first again");
        assert_eq!(send(2, &values("b", 2)), (0, 5), "the second again");
        assert_eq!(send(7, &values("gap", 1)).0, OUT_OF_ORDER_SEQUENCE);
        assert_eq!(send(4, &values("c", 1)), (0, 7));
    }
    let all = read_all(&mut client, &topic);
    assert!(all.values().all(|got| got.len() == 8), "{all:?}");
    broker.stop();
}

#[test]
fn an_older_epoch_of_a_producer_is_refused() {
    let home = Home::new();
    let broker = home.start(1, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "fenced", 1);
    let (id, epoch) = new_producer(&mut client);
    let mut send = |epoch: i16, sequence: i32| {
        let bytes = batch_with(Codec::None, Some((id, epoch, sequence)), &values("x", 1));
        produced(&client.call(
            &produce_request(&topic, VERSION, -1, &[(0, bytes)]),
            VERSION,
        ))
        .0
    };
    assert_eq!(send(epoch + 1, 0), 0);
    assert_eq!(send(epoch, 0), INVALID_PRODUCER_EPOCH);
    assert_eq!(send(epoch + 1, 1), 0);
    broker.stop();
}

#[test]
fn pipelined_batches_of_an_idempotent_producer_are_stored_once_each() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "five", 1);
    let (id, epoch) = new_producer(&mut client);
    // Five in flight, as producers do, and all of them once more.
    for round in 0..40 {
        for _ in 0..2 {
            for n in 0..5 {
                let sequence = round * 5 + n;
                let bytes = batch_with(
                    Codec::None,
                    Some((id, epoch, sequence)),
                    &[format!("{sequence}")],
                );
                client.send(
                    &produce_request(&topic, VERSION, -1, &[(0, bytes)]),
                    VERSION,
                );
            }
        }
    }
    for round in 0..40 {
        for again in 0..2 {
            for n in 0..5 {
                let answer = client.receive::<produce::Request>(VERSION);
                assert_eq!(
                    produced(&answer),
                    (0, i64::from(round * 5 + n)),
                    "round {round}.{again}"
                );
            }
        }
    }
    assert_eq!(
        read_all(&mut client, &topic)[&0],
        numbered((0..200).map(|n| format!("{n}")))
    );
    broker.stop();
}

#[test]
fn producer_ids_are_never_given_twice() {
    let home = Home::new();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let broker = home.start(2, &[]);
        for _ in 0..4 {
            let mut client = broker.connect();
            let (id, epoch) = new_producer(&mut client);
            assert_eq!(epoch, 0);
            assert!(seen.insert(id), "{id} twice");
        }
        broker.kill();
    }
}

//! What no client sends. Connections are closed or answered as Kafka does; the broker goes on, and claims reserve no memory.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use corelog_wire::messages::{api_versions, fetch, metadata, produce};

use crate::broker::{Broker, Home, eventually};
use crate::client::{Client, frame, raw_frame};
use crate::topic::{Topic, append, batch, create, fetch_request, fetched, produce_request, values};

const MIB: u64 = 1 << 20;
/// Kafka's default of `socket.request.max.bytes`.
const FRAME_BYTES_MAX: i32 = 104_857_600;
/// How far memory may rise by what was only claimed.
const RISE_MAX: u64 = 64 * MIB;

struct Scene {
    broker: Broker,
    /// Was there before, and must notice nothing.
    bystander: Client,
    topic: Topic,
    written: i64,
    at_rest: u64,
}

impl Scene {
    fn new(home: &Home, more: &[&str]) -> Scene {
        let broker = home.start(2, more);
        let mut bystander = broker.connect();
        let topic = create(&mut bystander, "good", 1);
        let mut scene = Scene {
            at_rest: 0,
            broker,
            bystander,
            topic,
            written: 0,
        };
        scene.serves();
        scene.at_rest = scene.broker.rss_anon();
        scene
    }

    /// An old and a new connection write, and read what they wrote.
    fn serves(&mut self) {
        let mut fresh = self.broker.connect();
        for client in [&mut self.bystander, &mut fresh] {
            assert_eq!(
                append(client, &self.topic, 0, &values("good", 3)),
                self.written
            );
            let answer = client.call(&fetch_request(&self.topic, 12, &[(0, self.written)]), 12);
            assert_eq!(fetched(&answer)[0].values.len(), 3);
            self.written += 3;
        }
    }

    fn throw(&self, bytes: &[u8]) -> Client {
        let mut client = self.broker.connect();
        // It may be closed while we write.
        drop(client.write(bytes));
        client
    }

    fn memory_is_bounded(&self) {
        let rise = self.broker.rss_anon().saturating_sub(self.at_rest);
        assert!(rise <= RISE_MAX, "memory rose by {} MiB", rise / MIB);
    }

    fn end(mut self) {
        assert!(self.broker.ended().is_none(), "the broker ended by itself");
        self.serves();
        self.broker.stop();
    }
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn lengths_that_cannot_be_close_the_connection() {
    let home = Home::new();
    let scene = Scene::new(&home, &[]);
    for length in [-1, i32::MIN, i32::MAX, FRAME_BYTES_MAX + 1] {
        assert!(
            scene.throw(&length.to_be_bytes()).is_closed(),
            "length {length}"
        );
    }
    // Too short for a header.
    for length in 0..8_i32 {
        let mut short = length.to_be_bytes().to_vec();
        short.resize(4 + length as usize, 0);
        assert!(scene.throw(&short).is_closed(), "{length} bytes");
    }
    for other in ["GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00"] {
        assert!(scene.throw(other.as_bytes()).is_closed(), "{other:?}");
    }
    scene.memory_is_bounded();
    scene.end();
}

#[test]
fn a_length_that_is_only_claimed_reserves_nothing_and_others_are_served() {
    let home = Home::new();
    let mut scene = Scene::new(&home, &[]);
    let mut claim = FRAME_BYTES_MAX.to_be_bytes().to_vec();
    claim.extend_from_slice(&raw_frame(0, 9, &[0; 100])[4..]);
    let held: Vec<Client> = (0..100).map(|_| scene.throw(&claim)).collect();
    scene.serves();
    scene.memory_is_bounded();
    drop(held);
    scene.end();
}

#[test]
fn counts_that_are_only_claimed_reserve_nothing() {
    let home = Home::new();
    let scene = Scene::new(&home, &[]);
    // Versions before the flexible ones: a count is four bytes at a known place.
    for (key, version, before) in [
        (0, 8, 8),
        (1, 11, 25),
        (2, 5, 5),
        (3, 4, 0),
        (19, 4, 0),
        (20, 3, 0),
        (32, 2, 0),
    ] {
        for count in [i32::MAX, 0x1000_0000, 1_000_000, -2, i32::MIN] {
            let mut body = vec![0xff; before];
            body.extend_from_slice(&count.to_be_bytes());
            assert!(
                scene
                    .throw(&raw_frame(key, version, &body))
                    .reaction(Duration::from_secs(20))
                    .is_some(),
                "API {key}, count {count}"
            );
        }
    }
    scene.memory_is_bounded();
    scene.end();
}

fn good_frames(topic: &Topic) -> Vec<Vec<u8>> {
    let elsewhere = Topic {
        name: "elsewhere".into(),
        ..topic.clone()
    };
    let named = api_versions::Request {
        client_software_name: "it".into(),
        client_software_version: "1".into(),
        ..Default::default()
    };
    let produces =
        |version| produce_request(&elsewhere, version, -1, &[(0, batch(&values("x", 3)))]);
    let fetches = |version| fetch_request(&elsewhere, version, &[(0, 0)]);
    let about = metadata::Request {
        topics: Some(vec![metadata::RequestTopics {
            name: Some("good".into()),
            ..Default::default()
        }]),
        ..Default::default()
    };
    vec![
        frame::<produce::Request>(&produces(8), 8, 1).to_vec(),
        frame::<produce::Request>(&produces(9), 9, 1).to_vec(),
        frame::<fetch::Request>(&fetches(11), 11, 1).to_vec(),
        frame::<fetch::Request>(&fetches(12), 12, 1).to_vec(),
        frame(&about, 8, 1).to_vec(),
        frame(&about, 12, 1).to_vec(),
        frame(&named, 3, 1).to_vec(),
    ]
}

#[test]
fn frames_that_are_cut_off_are_closed_or_answered() {
    let home = Home::new();
    let scene = Scene::new(&home, &["auto.create.topics.enable=false"]);
    for whole in good_frames(&scene.topic) {
        for end in (5..whole.len()).step_by(3) {
            // The length says that this is all.
            let mut cut = whole[..end].to_vec();
            cut[..4].copy_from_slice(&(end as i32 - 4).to_be_bytes());
            let mut client = scene.throw(&cut);
            assert!(
                client.reaction(Duration::from_secs(20)).is_some(),
                "cut to {end} bytes: no reaction"
            );
            // The length promises more, and the sender goes.
            drop(scene.throw(&whole[..end]));
        }
    }
    scene.memory_is_bounded();
    scene.end();
}

#[test]
fn a_sender_that_goes_in_the_middle_is_closed() {
    let home = Home::new();
    let scene = Scene::new(&home, &[]);
    let whole = good_frames(&scene.topic).remove(1);
    let mut client = scene.throw(&whole[..whole.len() / 2]);
    client.end_of_sending();
    assert!(client.is_closed());
    scene.end();
}

#[test]
fn random_and_damaged_frames_do_no_harm() {
    let home = Home::new();
    let scene = Scene::new(&home, &["auto.create.topics.enable=false"]);
    let mut random = Random(0x1234_5678_9abc_def1);
    let good = good_frames(&scene.topic);
    for group in 0..30 {
        let clients: Vec<Client> = (0..50)
            .map(|n| {
                let frame = if n % 2 == 0 {
                    let length = random.next() as usize % 300;
                    raw_frame(
                        random.next() as i16 % 96,
                        random.next() as i16 % 20,
                        &random.bytes(length),
                    )
                } else {
                    let mut frame = good[random.next() as usize % good.len()].clone();
                    for _ in 0..=random.next() % 5 {
                        let at = 4 + random.next() as usize % (frame.len() - 4);
                        frame[at] = [0xff, 0x7f, random.next() as u8][random.next() as usize % 3];
                    }
                    frame
                };
                scene.throw(&frame)
            })
            .collect();
        drop(clients);
        assert!(
            scene.broker.connect().try_api_versions().is_some(),
            "group {group}"
        );
    }
    scene.memory_is_bounded();
    scene.end();
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_answered() {
    let home = Home::new();
    let scene = Scene::new(&home, &[]);
    let mut client = scene.broker.connect();
    for byte in good_frames(&scene.topic).pop().unwrap() {
        client.write(&[byte]).unwrap();
    }
    assert!(!client.is_closed());
    scene.end();
}

#[test]
fn a_frame_whose_rest_does_not_come_is_given_up() {
    let home = Home::new();
    let scene = Scene::new(&home, &["connection.receive.timeout.ms=500"]);
    let mut starts = good_frames(&scene.topic);
    starts.push(vec![0]);
    let clients: Vec<Client> = starts
        .iter()
        .map(|whole| scene.throw(&whole[..whole.len().div_ceil(2)]))
        .collect();
    for mut client in clients {
        assert!(client.is_closed());
    }
    scene.end();
}

#[test]
fn thousands_of_connections_that_send_one_byte_do_not_stop_the_others() {
    const CONNECTIONS: usize = 2000;
    let home = Home::new();
    // A small budget, so that a window for each would be more than there is.
    let mut scene = Scene::new(&home, &["memory.budget.bytes=33554432"]);
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(scene.broker.address()).unwrap();
        stream.write_all(&[0]).unwrap();
        held.push(stream);
    }
    scene.serves();
    scene.memory_is_bounded();
    for stream in held {
        // The broker may have closed it already.
        drop(stream.shutdown(Shutdown::Both));
    }
    let at_rest = scene.at_rest;
    eventually("memory is given back", || {
        (scene.broker.rss_anon() < at_rest + RISE_MAX).then_some(())
    });
    scene.end();
}

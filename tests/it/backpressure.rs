//! A disk that stands still while producers push: memory stays bounded, sockets are not read, metrics say why, and nothing is lost.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use bytes::{Bytes, BytesMut};
use corelog_wire::frame::ResponseHeader;
use corelog_wire::messages::produce;

use crate::broker::{Broker, Home, eventually};
use crate::client::{Client, frame};
use crate::console::{get, metric};
use crate::proc::zero_windows;
use crate::topic::{
    Topic, append, batch, create, fetch_request, produce_request, produced, read_all, values,
};

const VERSION: i16 = 9;
const BUDGET: u64 = 64 << 20;
const PRODUCERS: usize = 200;

/// A producer that never waits for answers before it sends.
struct Pusher {
    stream: TcpStream,
    number: usize,
    topic: Topic,
    /// Of the frame that is being sent.
    rest: Bytes,
    begun: usize,
    requests: usize,
    value_bytes: usize,
    inbox: BytesMut,
    answered: usize,
}

impl Pusher {
    fn new(
        broker: &Broker,
        number: usize,
        topic: &Topic,
        requests: usize,
        value_bytes: usize,
    ) -> Pusher {
        let stream = TcpStream::connect(broker.address()).unwrap();
        stream.set_nonblocking(true).unwrap();
        Pusher {
            stream,
            number,
            topic: topic.clone(),
            rest: Bytes::new(),
            begun: 0,
            requests,
            value_bytes,
            inbox: BytesMut::new(),
            answered: 0,
        }
    }

    fn value(&self, n: usize) -> String {
        format!("{}/{n}/{}", self.number, "x".repeat(self.value_bytes))
    }

    fn partition(&self) -> i32 {
        self.number as i32 % self.topic.partitions
    }

    fn next_frame(&self) -> Bytes {
        let one = batch(&[self.value(self.begun)]);
        let request = produce_request(&self.topic, VERSION, -1, &[(self.partition(), one)]);
        frame(&request, VERSION, self.begun as i32).freeze()
    }

    /// Writes until the socket takes no more; true if it took anything.
    fn push(&mut self) -> bool {
        let mut took = false;
        while self.begun < self.requests || !self.rest.is_empty() {
            if self.rest.is_empty() {
                self.rest = self.next_frame();
                self.begun += 1;
            }
            if !self.flush() {
                return took;
            }
            took = true;
        }
        took
    }

    /// Writes what is left of the present frame; true when all of it has gone.
    fn flush(&mut self) -> bool {
        while !self.rest.is_empty() {
            match self.stream.write(&self.rest) {
                Ok(sent) => drop(self.rest.split_to(sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => panic!("producer {}: {error}", self.number),
            }
        }
        true
    }

    /// Takes what answers are there; each must belong to the oldest request without one.
    fn take_answers(&mut self) {
        let mut chunk = [0; 16 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => panic!("producer {} was disconnected", self.number),
                Ok(got) => self.inbox.extend_from_slice(&chunk[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("producer {}: {error}", self.number),
            }
        }
        while let Some(prefix) = self.inbox.first_chunk::<4>() {
            let end = 4 + u32::from_be_bytes(*prefix) as usize;
            if self.inbox.len() < end {
                return;
            }
            let answer = self.inbox.split_to(end).freeze().slice(4..);
            let (header, mut reader) = ResponseHeader::parse(answer, 0, VERSION).unwrap();
            assert_eq!(
                header.correlation_id, self.answered as i32,
                "producer {}",
                self.number
            );
            let response = produce::Response::decode(&mut reader, VERSION).unwrap();
            assert_eq!(produced(&response).0, 0, "producer {}", self.number);
            self.answered += 1;
        }
    }
}

#[test]
fn a_disk_that_stands_still_stops_the_senders_and_nothing_is_lost() {
    // As much as sockets of both sides and the broker's pools can hold many times over.
    const REQUESTS: usize = 1000;
    let home = Home::new();
    let broker = home.start(
        2,
        &[
            &format!("memory.budget.bytes={BUDGET}"),
            "socket.request.max.bytes=1048576",
            // A channel of the classic engine has one request under way: fewer places than channels.
            "queued.max.requests=100",
            &home.stall_option(),
        ],
    );
    let mut client = broker.connect();
    let topic = create(&mut client, "pushed", 8);
    for partition in 0..8 {
        append(&mut client, &topic, partition, &values("first", 1));
    }
    let mut pushers: Vec<Pusher> = (0..PRODUCERS)
        .map(|n| Pusher::new(&broker, n, &topic, REQUESTS, 16 << 10))
        .collect();
    let at_rest = broker.rss_anon();

    home.hold_disk();
    let mut most = 0;
    // Everybody pushes until nobody's socket takes anything for a while: then the broker does not read any more.
    let mut still = 0;
    eventually("the sockets take no more", || {
        let moved = pushers
            .iter_mut()
            .filter_map(|pusher| pusher.push().then_some(()))
            .count();
        still = if moved == 0 { still + 1 } else { 0 };
        most = most.max(broker.rss_anon().saturating_sub(at_rest));
        (still >= 100).then_some(())
    });
    let begun: usize = pushers.iter().map(|pusher| pusher.begun).sum();
    assert!(
        begun < PRODUCERS * REQUESTS,
        "every socket took all that there was"
    );
    assert!(
        most <= BUDGET,
        "{most} bytes more than at rest, with a budget of {BUDGET}"
    );
    let closed = eventually("the receive windows of the broker close", || {
        let closed = zero_windows(broker.address());
        (closed >= PRODUCERS / 2).then_some(closed)
    });
    let text = get(home.admin(), "/metrics");
    let waiters: f64 = ["request_bytes", "request_count", "ring_slots"]
        .iter()
        .flat_map(|credit| (0..2).map(move |core| (core, credit)))
        .filter_map(|(core, credit)| {
            metric(
                &text,
                &format!("corelog_core_credit_waiters{{core=\"{core}\",credit=\"{credit}\"}}"),
            )
        })
        .sum();
    assert!(
        waiters >= 1.0,
        "{closed} windows are closed, and nobody is said to wait:\n{text}"
    );

    home.let_disk_go();
    eventually("every request that was begun is answered", || {
        for pusher in &mut pushers {
            pusher.flush();
            pusher.take_answers();
        }
        pushers
            .iter()
            .all(|pusher| pusher.answered == pusher.begun)
            .then_some(())
    });
    let all = read_all(&mut client, &topic);
    for (partition, got) in &all {
        let mine: Vec<&Pusher> = pushers
            .iter()
            .filter(|pusher| pusher.partition() == *partition)
            .collect();
        assert_eq!(
            got.len(),
            1 + mine.iter().map(|pusher| pusher.begun).sum::<usize>()
        );
        for pusher in mine {
            let prefix = format!("{}/", pusher.number);
            let order: Vec<usize> = got
                .iter()
                .filter_map(|(_, value)| {
                    value.strip_prefix(&prefix)?.split('/').next()?.parse().ok()
                })
                .collect();
            assert_eq!(
                order,
                (0..pusher.begun).collect::<Vec<_>>(),
                "of producer {}",
                pusher.number
            );
        }
    }
    drop(pushers);
    broker.stop();
}

#[test]
fn others_are_served_while_one_partition_waits_for_nothing() {
    let home = Home::new();
    let broker = home.start(2, &[&home.stall_option()]);
    let mut client = broker.connect();
    let topic = create(&mut client, "half", 2);
    append(&mut client, &topic, 0, &values("there", 2));
    home.hold_disk();
    let mut stuck = broker.connect();
    stuck.send(
        &produce_request(&topic, VERSION, -1, &[(1, batch(&values("held", 1)))]),
        VERSION,
    );
    // What needs no disk goes on.
    for _ in 0..5 {
        assert!(client.try_api_versions().is_some());
    }
    home.let_disk_go();
    assert_eq!(
        produced(&stuck.receive::<produce::Request>(VERSION)),
        (0, 0)
    );
    assert_eq!(read_all(&mut client, &topic)[&0].len(), 2);
    broker.stop();
}

#[test]
fn beginnings_of_large_requests_do_not_keep_each_other_from_their_ends() {
    const REQUESTS: usize = 4;
    let home = Home::new();
    // 200 beginnings of a window each are more than the pool of 8 MiB.
    let broker = home.start(
        2,
        &[
            "memory.budget.bytes=33554432",
            "socket.request.max.bytes=1048576",
        ],
    );
    let mut client = broker.connect();
    let topic = create(&mut client, "large", 4);
    let mut pushers: Vec<Pusher> = (0..PRODUCERS)
        .map(|n| Pusher::new(&broker, n, &topic, REQUESTS, 200_000))
        .collect();
    eventually("every request is answered", || {
        for pusher in &mut pushers {
            pusher.push();
            pusher.take_answers();
        }
        pushers
            .iter()
            .all(|pusher| pusher.answered == REQUESTS)
            .then_some(())
    });
    broker.stop();
}

#[test]
fn catching_up_holds_no_more_than_the_budget() {
    let home = Home::new();
    let broker = home.start(2, &[&format!("memory.budget.bytes={BUDGET}")]);
    let mut client = broker.connect();
    let topic = create(&mut client, "old", 2);
    for n in 0..80 {
        append(&mut client, &topic, n % 2, &["r".repeat(900_000)]);
    }
    for _ in 0..3 {
        assert_eq!(read_all(&mut client, &topic)[&1].len(), 40);
        let held = broker.rss_anon();
        assert!(held <= BUDGET, "{held} bytes with a budget of {BUDGET}");
    }
    broker.stop();
}

#[test]
fn those_who_take_no_answers_leave_places_for_others() {
    let home = Home::new();
    let broker = home.start(2, &["connection.send.timeout.ms=600000"]);
    let mut client = broker.connect();
    let topic = create(&mut client, "large", 2);
    for n in 0..16 {
        append(&mut client, &topic, n % 2, &["r".repeat(500_000)]);
    }
    let request = fetch_request(&topic, 12, &[(0, 0), (1, 0)]);
    let mut deaf: Vec<Client> = (0..6).map(|_| broker.connect()).collect();
    for client in &mut deaf {
        for _ in 0..200 {
            client.send(&request, 12);
        }
    }
    for _ in 0..20 {
        assert!(client.try_api_versions().is_some());
    }
    append(&mut client, &topic, 0, &values("served", 1));
    drop(deaf);
    broker.stop();
}

#[test]
fn any_number_of_requests_without_answers_is_taken() {
    const REQUESTS: i64 = 3000;
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = create(&mut client, "silent", 1);
    for _ in 0..REQUESTS {
        client.send_unanswered(
            &produce_request(&topic, 9, 0, &[(0, batch(&values("v", 1)))]),
            9,
        );
    }
    // Behind all of them on the same connection.
    assert_eq!(append(&mut client, &topic, 0, &values("last", 1)), REQUESTS);
    broker.stop();
}

//! What no client sends. The broker may close such a connection or answer as Kafka does; it goes on serving others meanwhile, and what was
//! only claimed reserves no memory.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};

use crate::broker::{Broker, Home, Tested};
use crate::connection::{Connection, fetch_body, produce_body, put_text, request};
use crate::content;
use crate::random::Random;

const TOPIC: &str = "hostile";
/// Kafka's default `socket.request.max.bytes`.
const FRAME_MAX: i32 = 104_857_600;
const MIB: u64 = 1024;
/// How far anonymous memory may rise while claims of gigabytes are outstanding, in KiB.
const CLAIMS_RISE_MAX_KIB: u64 = 96 * MIB;
/// When a good client must be served again, however many claims there are: `connection.receive.timeout.ms` and some.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(45);
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    Closed,
    Answered,
    Silent,
}

struct Scene {
    broker: Broker,
    address: SocketAddr,
    /// A client that was there before and must not notice anything.
    bystander: Connection,
    written: i64,
    random: Random,
}

pub(crate) struct Size {
    pub(crate) connections: usize,
    pub(crate) frames: u32,
}

pub(crate) fn run(tested: &Tested, seed: u64, size: &Size, skip: Option<&str>) -> io::Result<()> {
    let home = Home::new(tested, false, seed)?;
    let outcome = scenes(&home, seed, size, skip);
    outcome.map_err(|error| {
        io::Error::other(format!(
            "{error} (the broker's last words: {})",
            home.last_words()
        ))
    })
}

type Act = fn(&mut Scene, &Size) -> io::Result<String>;
const ACTS: [(&str, Act); 10] = [
    ("frame lengths that cannot be", lengths),
    ("large frames that are claimed and not sent", claims),
    ("counts that are claimed and not sent", counts),
    ("keys and versions that are not known", unknown),
    ("frames that are cut off", truncated),
    ("batches that are damaged", damaged_batches),
    ("a sender of one byte at a time", slow_sender),
    ("random frames", random_frames),
    ("frames with a few bytes changed", mutated_frames),
    ("connections that send one byte", one_byte_each),
];

fn scenes(home: &Home, seed: u64, size: &Size, skip: Option<&str>) -> io::Result<()> {
    let broker = home.start(None)?;
    let address = broker.address;
    let mut bystander = Connection::open(address)?;
    bystander.create_topic(TOPIC, 1, &[("retention.ms", "-1")])?;
    bystander.await_leader(TOPIC, 0)?;
    let mut scene = Scene {
        broker,
        address,
        bystander,
        written: 0,
        random: Random::new(seed),
    };
    scene.serves()?;
    for (what, act) in ACTS {
        if skip.is_some_and(|skip| what.contains(skip)) {
            println!("{what}: left out");
            continue;
        }
        let told = act(&mut scene, size)
            .and_then(|told| scene.serves().map(|()| told))
            .map_err(|error| io::Error::other(format!("{what}: {error}")))?;
        println!(
            "{what}: {told}; {} MiB anonymous",
            scene.broker.rss_anon_kib()? / MIB
        );
    }
    let took = scene.broker.stop()?;
    println!("clean stop after all of it: {} ms", took.as_millis());
    Ok(())
}

impl Scene {
    /// The broker runs, an old and a new connection are served, and what they write is read back.
    fn serves(&mut self) -> io::Result<()> {
        self.broker.check_running()?;
        let begun = Instant::now();
        let mut fresh = Connection::open(self.address)?;
        fresh.api_versions()?;
        for connection in [&mut self.bystander, &mut fresh] {
            let batch = content::batch(&mut self.random, 1, self.written as u64, None)?;
            connection.send_produce(TOPIC, 0, -1, &batch.bytes)?;
            let produced = connection.receive_produce()?;
            if (produced.error, produced.base_offset) != (0, self.written) {
                return Err(io::Error::other(format!(
                    "a good client's batch got error {}, offset {} (due: {})",
                    produced.error, produced.base_offset, self.written
                )));
            }
            let fetched = connection.fetch(TOPIC, &[(0, self.written)], 1_000, 1 << 20)?;
            self.written += i64::from(batch.count);
            if !fetched
                .iter()
                .all(|f| f.error == 0 && f.high_watermark == self.written && !f.batches.is_empty())
            {
                return Err(io::Error::other(
                    "a good client does not read what it wrote",
                ));
            }
        }
        if begun.elapsed() > Duration::from_secs(5) {
            return Err(io::Error::other(format!(
                "good clients were served in {} ms",
                begun.elapsed().as_millis()
            )));
        }
        Ok(())
    }

    fn throw(&self, bytes: &[u8]) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        // The broker may have closed it while we write.
        if let Err(error) = stream.write_all(bytes)
            && !matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            )
        {
            return Err(error);
        }
        Ok(stream)
    }

    fn reaction(&self, bytes: &[u8], within: Duration) -> io::Result<Reaction> {
        await_reaction(&mut self.throw(bytes)?, within)
    }

    fn must_close(&self, what: &str, bytes: &[u8]) -> io::Result<()> {
        match self.reaction(bytes, CLOSE_WITHIN)? {
            Reaction::Closed => Ok(()),
            other => Err(io::Error::other(format!(
                "{what}: the connection was {other:?}, not closed"
            ))),
        }
    }
}

fn await_reaction(stream: &mut TcpStream, within: Duration) -> io::Result<Reaction> {
    stream.set_read_timeout(Some(within))?;
    match stream.read(&mut [0; 4096]) {
        Ok(0) => Ok(Reaction::Closed),
        Ok(_) => Ok(Reaction::Answered),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Ok(Reaction::Silent)
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ) =>
        {
            Ok(Reaction::Closed)
        }
        Err(error) => Err(error),
    }
}

fn lengths(scene: &mut Scene, _: &Size) -> io::Result<String> {
    for length in [-1, i32::MIN, i32::MAX, FRAME_MAX + 1] {
        scene.must_close(&format!("length {length}"), &length.to_be_bytes())?;
    }
    for length in 0..8_i32 {
        let mut frame = BytesMut::from(&length.to_be_bytes()[..]);
        frame.put_bytes(0, length as usize);
        scene.must_close(&format!("a frame of {length} bytes"), &frame)?;
    }
    Ok("each connection was closed".to_owned())
}

fn claims(scene: &mut Scene, _: &Size) -> io::Result<String> {
    let rest = scene.broker.rss_anon_kib()?;
    let mut claim = BytesMut::from(&FRAME_MAX.to_be_bytes()[..]);
    claim.put_slice(&request(0, 8, 1, &[])[4..]);
    let open: Vec<TcpStream> = (0..300)
        .map(|_| scene.throw(&claim))
        .collect::<io::Result<_>>()?;
    std::thread::sleep(Duration::from_millis(500));
    let rise = scene.broker.rss_anon_kib()?.saturating_sub(rest);
    // Credits may be out, until the broker gives up on senders that send nothing.
    let begun = Instant::now();
    let mut fresh = Connection::open(scene.address)?;
    fresh.patience(GIVEN_UP_WITHIN)?;
    fresh.api_versions().map_err(|error| {
        let waited = begun.elapsed().as_secs();
        io::Error::other(format!(
            "a good client was not served within {waited} s of 300 claims of 100 MiB: {error}"
        ))
    })?;
    let waited = begun.elapsed();
    drop(open);
    if rise > CLAIMS_RISE_MAX_KIB {
        return Err(io::Error::other(format!(
            "300 claims of 100 MiB raised anonymous memory by {} MiB",
            rise / MIB
        )));
    }
    Ok(format!(
        "300 claims of 100 MiB raised memory by {} MiB; a good client waited {} ms",
        rise / MIB,
        waited.as_millis()
    ))
}

fn counts(scene: &mut Scene, _: &Size) -> io::Result<String> {
    let rest = scene.broker.rss_anon_kib()?;
    let mut sent = 0;
    // Key, version and what stands before the count: Produce, Fetch, ListOffsets, Metadata, CreateTopics, DeleteTopics, DescribeConfigs.
    let produce = [
        &(-1_i16).to_be_bytes()[..],
        &(-1_i16).to_be_bytes(),
        &1000_i32.to_be_bytes(),
    ]
    .concat();
    let fetch = [
        &(-1_i32).to_be_bytes()[..],
        &[0; 4],
        &[0; 4],
        &(1_i32 << 20).to_be_bytes(),
        &[0],
        &[0; 4],
        &(-1_i32).to_be_bytes(),
    ]
    .concat();
    let offsets = [&(-1_i32).to_be_bytes()[..], &[0]].concat();
    let before: [(i16, i16, &[u8]); 7] = [
        (0, 8, &produce),
        (1, 11, &fetch),
        (2, 5, &offsets),
        (3, 4, &[]),
        (19, 4, &[]),
        (20, 3, &[]),
        (32, 2, &[]),
    ];
    for (key, version, start) in before {
        for count in [i32::MAX, 0x1000_0000, 1_000_000, -2, i32::MIN] {
            let body = [start, &count.to_be_bytes()].concat();
            scene.reaction(&request(key, version, 1, &body), Duration::from_millis(500))?;
            sent += 1;
        }
    }
    let rise = scene.broker.rss_anon_kib()?.saturating_sub(rest);
    if rise > CLAIMS_RISE_MAX_KIB {
        return Err(io::Error::other(format!(
            "claimed counts raised anonymous memory by {} MiB",
            rise / MIB
        )));
    }
    Ok(format!(
        "{sent} requests raised memory by {} MiB",
        rise / MIB
    ))
}

fn unknown(scene: &mut Scene, _: &Size) -> io::Result<String> {
    for key in [-1, 93, 999, i16::MAX, i16::MIN] {
        scene.must_close(&format!("API key {key}"), &request(key, 0, 1, &[]))?;
    }
    for (key, version) in [(0, 99), (0, -1), (1, 3), (3, 99), (0, 2), (19, 0)] {
        scene.must_close(
            &format!("API key {key} in version {version}"),
            &request(key, version, 1, &[]),
        )?;
    }
    // ApiVersions alone is answered, in version 0, so that a newer client can learn what there is.
    let mut stream = scene.throw(&request(18, 99, 7, &[0, 2, b'a', 2, b'1', 0]))?;
    stream.set_read_timeout(Some(CLOSE_WITHIN))?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    if answer[4..10] != [0, 0, 0, 7, 0, 35] {
        return Err(io::Error::other(format!(
            "ApiVersions in version 99 was answered with {answer:?}"
        )));
    }
    Ok("closed, and ApiVersions answered UNSUPPORTED_VERSION".to_owned())
}

/// Good frames of a few kinds, for cutting and changing.
fn good_frames(scene: &mut Scene) -> io::Result<Vec<BytesMut>> {
    let batch = content::batch(&mut scene.random, 1, 0, None)?;
    let mut metadata = BytesMut::new();
    metadata.put_i32(1);
    put_text(&mut metadata, TOPIC);
    metadata.put_u8(0);
    let mut offsets = BytesMut::new();
    offsets.put_i32(-1);
    offsets.put_u8(0);
    offsets.put_i32(1);
    put_text(&mut offsets, TOPIC);
    for n in [1, 0, -1] {
        offsets.put_i32(n);
    }
    offsets.put_i64(-1);
    Ok(vec![
        // To a topic that is not there: what gets through must not count among the good client's records.
        BytesMut::from(&request(0, 8, 1, &produce_body("elsewhere", 0, -1, &batch.bytes))[..]),
        BytesMut::from(&request(1, 11, 1, &fetch_body(TOPIC, &[(0, 0)], 10, 1 << 16))[..]),
        BytesMut::from(&request(3, 4, 1, &metadata)[..]),
        BytesMut::from(&request(2, 5, 1, &offsets)[..]),
        BytesMut::from(&request(18, 3, 1, &[0, 2, b'a', 2, b'1', 0])[..]),
    ])
}

fn truncated(scene: &mut Scene, _: &Size) -> io::Result<String> {
    let mut tally = Tally::default();
    for frame in good_frames(scene)? {
        let step = (frame.len() / 60).max(1);
        for end in (5..frame.len()).step_by(step) {
            // The length says that this is all.
            let mut cut = BytesMut::from(&frame[..end]);
            cut[..4].copy_from_slice(&(end as i32 - 4).to_be_bytes());
            let reaction = scene.reaction(&cut, CLOSE_WITHIN)?;
            if reaction == Reaction::Silent {
                return Err(io::Error::other(format!(
                    "a frame cut to {end} bytes was neither answered nor closed"
                )));
            }
            tally.add(&reaction);
            // The length promises more, and the sender goes away.
            scene
                .throw(&frame[..end])?
                .shutdown(Shutdown::Both)
                .or_else(ignore_gone)?;
        }
    }
    Ok(tally.to_string())
}

fn ignore_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotConnected {
        Ok(())
    } else {
        Err(error)
    }
}

fn damaged_batches(scene: &mut Scene, _: &Size) -> io::Result<String> {
    let mut refused = 0;
    for _ in 0..300 {
        let batch = content::batch(&mut scene.random, 1, 0, None)?;
        let mut bytes = BytesMut::from(&batch.bytes[..]);
        // Offset and leader epoch (bytes 0 to 7 and 12 to 15) are the broker's to set, so damage there is none.
        let at = scene.random.within(16, bytes.len() as u64) as usize;
        bytes[at] ^= 1 << scene.random.within(0, 8);
        let mut connection = Connection::open(scene.address)?;
        connection.send_produce(TOPIC, 0, -1, &bytes)?;
        match connection.receive_produce() {
            Ok(produced) if produced.error == 0 => {
                return Err(io::Error::other(format!(
                    "a batch with a bit turned in byte {at} was accepted"
                )));
            }
            Ok(_) => refused += 1,
            Err(error)
                if error.kind() == io::ErrorKind::UnexpectedEof
                    || error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error),
        }
    }
    Ok(format!(
        "{refused} of 300 were refused with an error, the rest by closing"
    ))
}

fn slow_sender(scene: &mut Scene, _: &Size) -> io::Result<String> {
    let frame = request(18, 0, 9, &[]);
    let mut stream = scene.throw(&[])?;
    for byte in &frame {
        stream.write_all(&[*byte])?;
        std::thread::sleep(Duration::from_millis(20));
    }
    match await_reaction(&mut stream, CLOSE_WITHIN)? {
        Reaction::Answered => Ok("was answered".to_owned()),
        other => Err(io::Error::other(format!(
            "a frame sent byte by byte: {other:?}"
        ))),
    }
}

#[derive(Default)]
struct Tally {
    closed: u32,
    answered: u32,
    silent: u32,
}

impl Tally {
    fn add(&mut self, reaction: &Reaction) {
        match reaction {
            Reaction::Closed => self.closed += 1,
            Reaction::Answered => self.answered += 1,
            Reaction::Silent => self.silent += 1,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} closed, {} answered, {} silent",
            self.closed, self.answered, self.silent
        )
    }
}

/// Throws frames in groups, so that those which wait (a long poll, say) do not hold up the rest.
fn throw_all(
    scene: &mut Scene,
    count: u32,
    mut make: impl FnMut(&mut Scene) -> io::Result<BytesMut>,
) -> io::Result<String> {
    let mut tally = Tally::default();
    let mut left = count;
    while left > 0 {
        let group = left.min(100);
        left -= group;
        let mut streams = Vec::new();
        for _ in 0..group {
            let frame = make(scene)?;
            streams.push(scene.throw(&frame)?);
        }
        std::thread::sleep(Duration::from_millis(20));
        for mut stream in streams {
            tally.add(&await_reaction(&mut stream, Duration::from_millis(2))?);
        }
        scene.broker.check_running()?;
    }
    Ok(tally.to_string())
}

fn random_frames(scene: &mut Scene, size: &Size) -> io::Result<String> {
    throw_all(scene, size.frames, |scene| {
        let random = &mut scene.random;
        let length = random.within(0, 300) as usize;
        let body = random.bytes(length);
        if random.one_in(4) {
            // Not even a header.
            let mut frame = BytesMut::from(&(length as i32).to_be_bytes()[..]);
            frame.put_slice(&body);
            return Ok(frame);
        }
        let (key, version) = (random.within(0, 95) as i16, random.within(0, 20) as i16);
        Ok(BytesMut::from(&request(key, version, 1, &body)[..]))
    })
}

fn mutated_frames(scene: &mut Scene, size: &Size) -> io::Result<String> {
    let good = good_frames(scene)?;
    throw_all(scene, size.frames, |scene| {
        let random = &mut scene.random;
        let mut frame = good[random.within(0, good.len() as u64) as usize].clone();
        for _ in 0..random.within(1, 6) {
            let at = random.within(4, frame.len() as u64) as usize;
            frame[at] = match random.within(0, 3) {
                0 => 0xff,
                1 => 0x7f,
                _ => random.next() as u8,
            };
        }
        Ok(frame)
    })
}

fn one_byte_each(scene: &mut Scene, size: &Size) -> io::Result<String> {
    let count = size.connections;
    let rest = scene.broker.rss_anon_kib()?;
    let begun = Instant::now();
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        open.push(scene.throw(&[0])?);
    }
    let opened = begun.elapsed();
    std::thread::sleep(Duration::from_millis(500));
    let served = Instant::now();
    scene.serves()?;
    let served = served.elapsed();
    let rise = scene.broker.rss_anon_kib()?.saturating_sub(rest);
    let mut dropped = 0;
    for stream in &mut open {
        stream.set_nonblocking(true)?;
        dropped += u32::from(matches!(stream.read(&mut [0; 1]), Ok(0)));
    }
    drop(open);
    Ok(format!(
        "{count} opened in {:.1} s, {dropped} closed by the broker, {:.1} KiB each; good clients served in {} ms meanwhile",
        opened.as_secs_f64(),
        rise as f64 / count as f64,
        served.as_millis()
    ))
}

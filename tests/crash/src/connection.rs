//! A connection that speaks the few requests needed, each written out by hand in a version before the flexible ones, which every 4.x broker takes:
//! ApiVersions 0, CreateTopics 4, InitProducerId 1, Produce 8, Fetch 11, ListOffsets 5.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::content::Producer;

pub(crate) const NOT_LEADER: i16 = 6;
pub(crate) const UNKNOWN_TOPIC: i16 = 3;
pub(crate) const LEADER_NOT_AVAILABLE: i16 = 5;
pub(crate) const DUPLICATE_SEQUENCE: i16 = 46;
pub(crate) const COORDINATOR_LOADING: i16 = 14;

/// A broker that has just started has no leader for a partition until it has been recovered.
pub(crate) fn is_passing(error: i16) -> bool {
    matches!(error, NOT_LEADER | UNKNOWN_TOPIC | LEADER_NOT_AVAILABLE)
}

pub(crate) struct Connection {
    stream: TcpStream,
    correlation: i32,
    answered: i32,
}

pub(crate) struct Produced {
    pub(crate) error: i16,
    pub(crate) base_offset: i64,
}

pub(crate) struct Fetched {
    pub(crate) partition: i32,
    pub(crate) error: i16,
    pub(crate) high_watermark: i64,
    pub(crate) log_start: i64,
    pub(crate) batches: Bytes,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        Ok(Connection {
            stream,
            correlation: 0,
            answered: 0,
        })
    }

    /// How long an answer may take.
    pub(crate) fn patience(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))
    }

    /// Writes a request and leaves its answer for later.
    pub(crate) fn send(&mut self, key: i16, version: i16, body: &[u8]) -> io::Result<()> {
        self.correlation += 1;
        self.stream
            .write_all(&request(key, version, self.correlation, body))
    }

    /// The body of the next answer.
    pub(crate) fn receive(&mut self) -> io::Result<Bytes> {
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix)?;
        let length = usize::try_from(i32::from_be_bytes(prefix)).map_err(io::Error::other)?;
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        let mut frame = Bytes::from(frame);
        self.answered += 1;
        let correlation = frame.try_get_i32().map_err(io::Error::other)?;
        if correlation != self.answered {
            return Err(io::Error::other(format!(
                "request {} was answered with correlation id {correlation}",
                self.answered
            )));
        }
        Ok(frame)
    }

    pub(crate) fn ask(&mut self, key: i16, version: i16, body: &[u8]) -> io::Result<Bytes> {
        self.send(key, version, body)?;
        self.receive()
    }

    pub(crate) fn api_versions(&mut self) -> io::Result<()> {
        let error = self
            .ask(18, 0, &[])?
            .try_get_i16()
            .map_err(io::Error::other)?;
        expect_none(error, "ApiVersions")
    }

    pub(crate) fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> io::Result<()> {
        let mut body = BytesMut::new();
        body.put_i32(1);
        put_text(&mut body, name);
        body.put_i32(partitions);
        body.put_i16(1);
        body.put_i32(0);
        body.put_i32(configs.len() as i32);
        for (key, value) in configs {
            put_text(&mut body, key);
            put_text(&mut body, value);
        }
        body.put_i32(20_000);
        body.put_u8(0);
        parsed(self.ask(19, 4, &body)?, |answer| {
            answer.skip(8)?;
            answer.text()?;
            answer.short()
        })
        .and_then(|error| expect_none(error, "CreateTopics"))
    }

    pub(crate) fn init_producer_id(&mut self) -> io::Result<Producer> {
        let mut body = BytesMut::new();
        body.put_i16(-1);
        body.put_i32(60_000);
        for _ in 0..100 {
            let (error, producer) = parsed(self.ask(22, 1, &body)?, |answer| {
                answer.skip(4)?;
                let error = answer.short()?;
                Ok((
                    error,
                    Producer {
                        id: answer.long()?,
                        epoch: answer.short()?,
                    },
                ))
            })?;
            if error == COORDINATOR_LOADING {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            expect_none(error, "InitProducerId")?;
            return Ok(producer);
        }
        Err(io::Error::other(
            "InitProducerId: the coordinator is loading, still",
        ))
    }

    pub(crate) fn send_produce(
        &mut self,
        topic: &str,
        partition: i32,
        acks: i16,
        batch: &[u8],
    ) -> io::Result<()> {
        self.send(0, 8, &produce_body(topic, partition, acks, batch))
    }

    pub(crate) fn receive_produce(&mut self) -> io::Result<Produced> {
        parsed(self.receive()?, |answer| {
            answer.skip(4)?;
            answer.text()?;
            answer.skip(8)?;
            Ok(Produced {
                error: answer.short()?,
                base_offset: answer.long()?,
            })
        })
    }

    /// One fetch of several partitions of one topic, without a session.
    pub(crate) fn fetch(
        &mut self,
        topic: &str,
        from: &[(i32, i64)],
        max_wait_ms: i32,
        partition_max_bytes: i32,
    ) -> io::Result<Vec<Fetched>> {
        let answer = self.ask(
            1,
            11,
            &fetch_body(topic, from, max_wait_ms, partition_max_bytes),
        )?;
        parsed(answer, |answer| {
            answer.skip(4)?;
            let error = answer.short()?;
            if error != 0 {
                return Err(io::Error::other(format!(
                    "Fetch as a whole gave error {error}"
                )));
            }
            answer.skip(4)?;
            let mut out = Vec::new();
            for _ in 0..answer.int()? {
                answer.text()?;
                for _ in 0..answer.int()? {
                    let (partition, error, high_watermark) =
                        (answer.int()?, answer.short()?, answer.long()?);
                    answer.skip(8)?;
                    let log_start = answer.long()?;
                    let aborted = answer.int()?.max(0);
                    answer.skip(aborted as usize * 16 + 4)?;
                    out.push(Fetched {
                        partition,
                        error,
                        high_watermark,
                        log_start,
                        batches: answer.bytes()?,
                    });
                }
            }
            Ok(out)
        })
    }

    /// Error code and offset; -1 asks for the end, -2 for the start.
    pub(crate) fn list_offset(
        &mut self,
        topic: &str,
        partition: i32,
        time: i64,
    ) -> io::Result<(i16, i64)> {
        let mut body = BytesMut::new();
        body.put_i32(-1);
        body.put_u8(0);
        body.put_i32(1);
        put_text(&mut body, topic);
        body.put_i32(1);
        body.put_i32(partition);
        body.put_i32(-1);
        body.put_i64(time);
        parsed(self.ask(2, 5, &body)?, |answer| {
            answer.skip(8)?;
            answer.text()?;
            answer.skip(8)?;
            let error = answer.short()?;
            answer.skip(8)?;
            Ok((error, answer.long()?))
        })
    }

    /// A partition that is new, or that is still being recovered, has no leader for a moment.
    pub(crate) fn await_leader(&mut self, topic: &str, partition: i32) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let (error, _) = self.list_offset(topic, partition, -1)?;
            if error == 0 {
                return Ok(());
            }
            if !is_passing(error) || begun.elapsed() > Duration::from_mins(1) {
                return Err(io::Error::other(format!(
                    "{topic}-{partition} has no leader: error {error} after {} ms",
                    begun.elapsed().as_millis()
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A whole frame: length, header (version 1) and body.
pub(crate) fn request(key: i16, version: i16, correlation: i32, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(body.len() + 19);
    frame.put_i32(15 + body.len() as i32);
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(correlation);
    put_text(&mut frame, "crash");
    frame.put_slice(body);
    frame.freeze()
}

pub(crate) fn produce_body(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> BytesMut {
    let mut body = BytesMut::with_capacity(batch.len() + 64);
    body.put_i16(-1);
    body.put_i16(acks);
    body.put_i32(20_000);
    body.put_i32(1);
    put_text(&mut body, topic);
    body.put_i32(1);
    body.put_i32(partition);
    body.put_i32(batch.len() as i32);
    body.put_slice(batch);
    body
}

pub(crate) fn fetch_body(
    topic: &str,
    from: &[(i32, i64)],
    max_wait_ms: i32,
    partition_max_bytes: i32,
) -> BytesMut {
    let mut body = BytesMut::new();
    body.put_i32(-1);
    body.put_i32(max_wait_ms);
    body.put_i32(1);
    body.put_i32(8 << 20);
    body.put_u8(0);
    body.put_i32(0);
    body.put_i32(-1);
    body.put_i32(1);
    put_text(&mut body, topic);
    body.put_i32(from.len() as i32);
    for (partition, offset) in from {
        body.put_i32(*partition);
        body.put_i32(-1);
        body.put_i64(*offset);
        body.put_i64(-1);
        body.put_i32(partition_max_bytes);
    }
    body.put_i32(0);
    put_text(&mut body, "");
    body
}

pub(crate) fn put_text(body: &mut BytesMut, text: &str) {
    body.put_i16(text.len() as i16);
    body.put_slice(text.as_bytes());
}

fn expect_none(error: i16, what: &str) -> io::Result<()> {
    match error {
        0 => Ok(()),
        _ => Err(io::Error::other(format!("{what} gave error {error}"))),
    }
}

/// An answer that is read from its start.
pub(crate) struct Answer(Bytes);

pub(crate) fn parsed<T>(
    frame: Bytes,
    read: impl FnOnce(&mut Answer) -> io::Result<T>,
) -> io::Result<T> {
    read(&mut Answer(frame))
}

impl Answer {
    pub(crate) fn short(&mut self) -> io::Result<i16> {
        self.0.try_get_i16().map_err(io::Error::other)
    }

    pub(crate) fn int(&mut self) -> io::Result<i32> {
        self.0.try_get_i32().map_err(io::Error::other)
    }

    pub(crate) fn long(&mut self) -> io::Result<i64> {
        self.0.try_get_i64().map_err(io::Error::other)
    }

    pub(crate) fn skip(&mut self, count: usize) -> io::Result<()> {
        self.raw(count).map(drop)
    }

    pub(crate) fn text(&mut self) -> io::Result<Bytes> {
        let length = self.short()?.max(0);
        self.raw(length as usize)
    }

    pub(crate) fn word(&mut self) -> io::Result<String> {
        let text = self.text()?;
        String::from_utf8(text.to_vec()).map_err(io::Error::other)
    }

    pub(crate) fn bytes(&mut self) -> io::Result<Bytes> {
        let length = self.int()?.max(0);
        self.raw(length as usize)
    }

    fn raw(&mut self, count: usize) -> io::Result<Bytes> {
        if self.0.len() < count {
            return Err(io::Error::other("the answer ends too early"));
        }
        Ok(self.0.split_to(count))
    }
}

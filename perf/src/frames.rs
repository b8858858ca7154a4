//! The requests that the load sends and what it reads of their answers, in versions before the flexible ones, which every 4.x broker takes.
//!
//! Written out by hand because frames are built once and sent a million times, and because answers are read without allocating.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use corelog_wire::batch::{BatchBuilder, BatchHeader, NewRecord};
use corelog_wire::compress::Codec;

use crate::Failure;
use crate::workload::Workload;

pub(crate) const PRODUCE: i16 = 0;
pub(crate) const FETCH: i16 = 1;
pub(crate) const API_VERSIONS: i16 = 18;
pub(crate) const CREATE_TOPICS: i16 = 19;
pub(crate) const DELETE_TOPICS: i16 = 20;

pub(crate) const PRODUCE_VERSION: i16 = 8;
const FETCH_VERSION: i16 = 11;
const CREATE_TOPICS_VERSION: i16 = 4;
const DELETE_TOPICS_VERSION: i16 = 3;

const TIMEOUT_MS: i32 = 30_000;
/// A consumer's Fetch that finds nothing is answered after this time.
pub(crate) const FETCH_WAIT_MS: i32 = 500;

/// The bytes could not be what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<bytes::TryGetError> for Malformed {
    fn from(_: bytes::TryGetError) -> Malformed {
        Malformed
    }
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Failure {
        Failure::told("the broker's answer cannot be read; is it a Kafka broker of version 4?")
    }
}

fn request(key: i16, version: i16, correlation: i32, body: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(correlation);
    put_text(&mut frame, "bench");
    body(&mut frame);
    let length = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame.freeze()
}

fn put_text(out: &mut BytesMut, text: &str) {
    out.put_i16(text.len() as i16);
    out.extend_from_slice(text.as_bytes());
}

/// A batch as the workload describes it. Values do not repeat within 4 KiB, so that compression by a file system gains little.
pub(crate) fn batch(workload: &Workload, timestamp_ms: i64) -> Result<Bytes, Failure> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let value: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(workload.message_size as usize)
    .collect();
    let mut batch = BatchBuilder::new(Codec::None);
    for _ in 0..workload.records_per_batch {
        batch.add(&NewRecord {
            timestamp_ms,
            key: None,
            value: Some(&value),
            headers: &[],
        });
    }
    batch.build().map_err(Failure::io("the batch"))
}

/// Produce of one batch. The partition is the correlation id, so that one frame a partition is enough and an answer still shows what it answers.
pub(crate) fn produce(topic: &str, partition: u32, acks: i16, batch: &[u8]) -> Bytes {
    request(PRODUCE, PRODUCE_VERSION, partition as i32, |body| {
        body.put_i16(-1);
        body.put_i16(acks);
        body.put_i32(TIMEOUT_MS);
        body.put_i32(1);
        put_text(body, topic);
        body.put_i32(1);
        body.put_i32(partition as i32);
        body.put_i32(batch.len() as i32);
        body.extend_from_slice(batch);
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Produced {
    pub(crate) partition: u32,
    pub(crate) error: i16,
}

/// The answer to a Produce of one batch; `frame` is without its length.
pub(crate) fn produced(mut frame: &[u8]) -> Result<Produced, Malformed> {
    let partition = frame.try_get_i32()? as u32;
    expect(frame.try_get_i32()?, 1)?;
    skip_text(&mut frame)?;
    expect(frame.try_get_i32()?, 1)?;
    expect(frame.try_get_i32()?, partition as i32)?;
    Ok(Produced {
        partition,
        error: frame.try_get_i16()?,
    })
}

/// A Fetch without a session of partitions at their positions. It waits so long for one byte.
pub(crate) fn fetch(topic: &str, positions: &[(u32, i64)], max_bytes: u32, wait_ms: i32) -> Bytes {
    request(FETCH, FETCH_VERSION, 0, |body| {
        body.put_i32(-1);
        body.put_i32(wait_ms);
        body.put_i32(1);
        body.put_i32(max_bytes as i32);
        body.put_i8(0);
        body.put_i32(0);
        body.put_i32(-1);
        body.put_i32(1);
        put_text(body, topic);
        body.put_i32(positions.len() as i32);
        for (partition, offset) in positions {
            body.put_i32(*partition as i32);
            body.put_i32(-1);
            body.put_i64(*offset);
            body.put_i64(-1);
            body.put_i32(max_bytes as i32);
        }
        body.put_i32(0);
        put_text(body, "");
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fetched<'a> {
    pub(crate) partition: u32,
    pub(crate) error: i16,
    pub(crate) batches: &'a [u8],
}

/// Calls `each` for every partition of a Fetch's answer.
pub(crate) fn fetched(
    mut frame: &[u8],
    mut each: impl FnMut(Fetched<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let rest = &mut frame;
    let error = fetched_head(rest)?;
    if error != 0 {
        return Err(Failure::told(format!(
            "Fetch was answered with error {error}"
        )));
    }
    for _ in 0..get_i32(rest)? {
        skip_text(rest)?;
        for _ in 0..get_i32(rest)? {
            each(fetched_partition(rest)?)?;
        }
    }
    Ok(())
}

fn fetched_head(frame: &mut &[u8]) -> Result<i16, Malformed> {
    skip(frame, 4 + 4)?;
    let error = frame.try_get_i16()?;
    skip(frame, 4)?;
    Ok(error)
}

fn fetched_partition<'a>(frame: &mut &'a [u8]) -> Result<Fetched<'a>, Malformed> {
    let partition = frame.try_get_i32()? as u32;
    let error = frame.try_get_i16()?;
    skip(frame, 8 + 8 + 8)?;
    let aborted = frame.try_get_i32()?.max(0) as usize;
    skip(frame, aborted * 16 + 4)?;
    let length = frame.try_get_i32()?.max(0) as usize;
    let batches = frame.get(..length).ok_or(Malformed)?;
    frame.advance(length);
    Ok(Fetched {
        partition,
        error,
        batches,
    })
}

/// What one whole batch is to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchSeen {
    pub(crate) base_offset: i64,
    pub(crate) end_offset: i64,
    pub(crate) bytes: usize,
}

/// The whole batches of a run; the last may be cut off by the limit of a Fetch.
pub(crate) fn whole_batches(mut run: &[u8]) -> impl Iterator<Item = BatchSeen> {
    std::iter::from_fn(move || {
        let header = BatchHeader::parse(run).ok()?;
        let bytes = header.total_len();
        run = run.get(bytes..)?;
        Some(BatchSeen {
            base_offset: header.base_offset,
            end_offset: header.base_offset + i64::from(header.last_offset_delta) + 1,
            bytes,
        })
    })
}

pub(crate) fn api_versions() -> Bytes {
    request(API_VERSIONS, 0, 0, |_| {})
}

pub(crate) fn create_topic<'a>(
    name: &str,
    partitions: u32,
    configs: impl ExactSizeIterator<Item = (&'a String, &'a String)>,
) -> Bytes {
    request(CREATE_TOPICS, CREATE_TOPICS_VERSION, 0, |body| {
        body.put_i32(1);
        put_text(body, name);
        body.put_i32(partitions as i32);
        body.put_i16(1);
        body.put_i32(0);
        body.put_i32(configs.len() as i32);
        for (key, value) in configs {
            put_text(body, key);
            put_text(body, value);
        }
        body.put_i32(TIMEOUT_MS);
        body.put_u8(0);
    })
}

/// The error of the one topic in an answer to [`create_topic`].
pub(crate) fn created(mut frame: &[u8]) -> Result<i16, Malformed> {
    skip(&mut frame, 4 + 4)?;
    expect(frame.try_get_i32()?, 1)?;
    skip_text(&mut frame)?;
    Ok(frame.try_get_i16()?)
}

pub(crate) fn delete_topic(name: &str) -> Bytes {
    request(DELETE_TOPICS, DELETE_TOPICS_VERSION, 0, |body| {
        body.put_i32(1);
        put_text(body, name);
        body.put_i32(TIMEOUT_MS);
    })
}

/// The error of the one topic in an answer to [`delete_topic`].
pub(crate) fn deleted(frame: &[u8]) -> Result<i16, Malformed> {
    created(frame)
}

/// What the floor reads of a Produce of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProduceSeen<'a> {
    pub(crate) correlation: i32,
    pub(crate) acks: i16,
    pub(crate) topic: &'a [u8],
    pub(crate) partition: u32,
    pub(crate) batch: &'a [u8],
}

/// The api key, version and correlation id of a request, and its body; `frame` is without its length.
pub(crate) fn request_head(mut frame: &[u8]) -> Result<(i16, i16, i32, &[u8]), Malformed> {
    let (key, version) = (frame.try_get_i16()?, frame.try_get_i16()?);
    let correlation = frame.try_get_i32()?;
    skip_text(&mut frame)?;
    Ok((key, version, correlation, frame))
}

pub(crate) fn produce_seen(
    correlation: i32,
    mut body: &[u8],
) -> Result<ProduceSeen<'_>, Malformed> {
    skip_text(&mut body)?;
    let acks = body.try_get_i16()?;
    skip(&mut body, 4)?;
    expect(body.try_get_i32()?, 1)?;
    let topic = text(&mut body)?;
    expect(body.try_get_i32()?, 1)?;
    let partition = body.try_get_i32()? as u32;
    let length = body.try_get_i32()?.max(0) as usize;
    Ok(ProduceSeen {
        correlation,
        acks,
        topic,
        partition,
        batch: body.get(..length).ok_or(Malformed)?,
    })
}

/// The floor's answer to a Produce.
pub(crate) fn put_produced(
    out: &mut BytesMut,
    seen: &ProduceSeen<'_>,
    error: i16,
    base_offset: i64,
) {
    put_framed(out, seen.correlation, |out| {
        out.put_i32(1);
        out.put_i16(seen.topic.len() as i16);
        out.extend_from_slice(seen.topic);
        out.put_i32(1);
        out.put_i32(seen.partition as i32);
        out.put_i16(error);
        out.put_i64(base_offset);
        out.put_i64(-1);
        out.put_i64(0);
        out.put_i32(0);
        out.put_i16(-1);
        out.put_i32(0);
    });
}

/// The floor's answer to the creation or deletion of one topic: done.
pub(crate) fn put_topic_done(
    out: &mut BytesMut,
    key: i16,
    correlation: i32,
    mut body: &[u8],
) -> Result<(), Malformed> {
    expect(body.try_get_i32()?, 1)?;
    let name = text(&mut body)?;
    put_framed(out, correlation, |out| {
        out.put_i32(0);
        out.put_i32(1);
        out.put_i16(name.len() as i16);
        out.extend_from_slice(name);
        out.put_i16(0);
        if key == CREATE_TOPICS {
            out.put_i16(-1);
        }
    });
    Ok(())
}

/// The floor's answer to ApiVersions 0: nothing is named, it answers.
pub(crate) fn put_api_versions(out: &mut BytesMut, correlation: i32) {
    put_framed(out, correlation, |out| {
        out.put_i16(0);
        out.put_i32(0);
    });
}

fn put_framed(out: &mut BytesMut, correlation: i32, body: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_i32(0);
    out.put_i32(correlation);
    body(out);
    let length = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn expect(value: i32, expected: i32) -> Result<(), Malformed> {
    (value == expected).then_some(()).ok_or(Malformed)
}

fn get_i32(frame: &mut &[u8]) -> Result<i32, Malformed> {
    Ok(frame.try_get_i32()?)
}

fn skip(frame: &mut &[u8], count: usize) -> Result<(), Malformed> {
    *frame = frame.get(count..).ok_or(Malformed)?;
    Ok(())
}

fn text<'a>(frame: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = frame.try_get_i16()?.max(0) as usize;
    let text = frame.get(..length).ok_or(Malformed)?;
    frame.advance(length);
    Ok(text)
}

fn skip_text(frame: &mut &[u8]) -> Result<(), Malformed> {
    text(frame).map(|_| ())
}

#[cfg(test)]
mod tests {
    use corelog_wire::frame::RequestHeader;
    use corelog_wire::messages::fetch_cursor::FetchCursor;
    use corelog_wire::messages::produce_cursor::ProduceCursor;

    use super::*;

    fn of_the_workload() -> Bytes {
        batch(&Workload::find("b2").unwrap(), 7).unwrap()
    }

    #[test]
    fn a_produce_is_what_the_codec_reads() {
        let batch = of_the_workload();
        let (header, reader) =
            RequestHeader::parse(produce("t", 5, -1, &batch).slice(4..)).unwrap();
        assert_eq!((header.api_key, header.correlation_id), (PRODUCE, 5));
        let cursor = ProduceCursor::parse(reader, header.api_version).unwrap();
        assert_eq!((cursor.acks(), cursor.partition_count()), (-1, 1));
    }

    #[test]
    fn a_fetch_is_what_the_codec_reads() {
        let frame = fetch("t", &[(1, 10), (2, 20)], 4096, 0);
        let (header, reader) = RequestHeader::parse(frame.slice(4..)).unwrap();
        let cursor = FetchCursor::parse(reader, header.api_version).unwrap();
        let offsets: Vec<_> = cursor
            .partitions()
            .map(|partition| partition.fetch_offset)
            .collect();
        assert_eq!(offsets, [10, 20]);
    }

    #[test]
    fn the_floor_reads_what_the_load_sends_and_is_read_by_it() {
        let batch = of_the_workload();
        let frame = produce("t", 5, 1, &batch);
        let (key, version, correlation, body) = request_head(&frame[4..]).unwrap();
        assert_eq!((key, version), (PRODUCE, PRODUCE_VERSION));
        let seen = produce_seen(correlation, body).unwrap();
        assert_eq!(
            (seen.acks, seen.topic, seen.batch),
            (1, &b"t"[..], &batch[..])
        );
        let mut answer = BytesMut::new();
        put_produced(&mut answer, &seen, 2, 0);
        assert_eq!(
            produced(&answer[4..]),
            Ok(Produced {
                partition: 5,
                error: 2
            })
        );
    }

    #[test]
    fn creating_and_deleting_a_topic_are_answered_by_the_floor() {
        let none = std::collections::BTreeMap::new();
        for frame in [create_topic("t", 3, none.iter()), delete_topic("t")] {
            let (key, _, correlation, body) = request_head(&frame[4..]).unwrap();
            let mut answer = BytesMut::new();
            put_topic_done(&mut answer, key, correlation, body).unwrap();
            assert_eq!(created(&answer[4..]), Ok(0));
        }
    }

    #[test]
    fn a_cut_off_batch_is_not_seen() {
        let batch = of_the_workload();
        let run = [&batch[..], &batch[..batch.len() - 1]].concat();
        let seen: Vec<_> = whole_batches(&run).collect();
        assert_eq!(
            seen,
            [BatchSeen {
                base_offset: 0,
                end_offset: 16,
                bytes: batch.len()
            }]
        );
    }

    #[test]
    fn answers_that_end_early_are_malformed() {
        assert_eq!(produced(&[0, 0, 0]), Err(Malformed));
        assert_eq!(created(&[0; 9]), Err(Malformed));
        assert!(fetched(&[0; 12], |_| Ok(())).is_err());
    }
}

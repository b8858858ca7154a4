//! The requests that the load sends and what it reads of their answers, in versions before the flexible ones, which every 4.x broker takes.
//!
//! Written out by hand because frames are built once and sent a million times, and because answers are read without allocating.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use corelog_wire::batch::{BatchBuilder, BatchHeader, NewRecord, set_producer};

use crate::Failure;
use crate::schedule::Random;
use crate::workload::{Compression, KeyDistributor, Workload};

pub(crate) const PRODUCE: i16 = 0;
pub(crate) const FETCH: i16 = 1;
pub(crate) const API_VERSIONS: i16 = 18;
pub(crate) const CREATE_TOPICS: i16 = 19;
pub(crate) const DELETE_TOPICS: i16 = 20;
pub(crate) const INIT_PRODUCER_ID: i16 = 22;

pub(crate) const PRODUCE_VERSION: i16 = 8;
const FETCH_VERSION: i16 = 11;
const CREATE_TOPICS_VERSION: i16 = 4;
const DELETE_TOPICS_VERSION: i16 = 3;
const INIT_PRODUCER_ID_VERSION: i16 = 1;

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

/// A batch as the workload describes it. What is random in a value does not repeat within 4 KiB, so that compression gains nothing there.
pub(crate) fn batch(workload: &Workload, timestamp_ms: i64) -> Result<Bytes, Failure> {
    let mut random = Random::seeded(0);
    let size = workload.message_size as usize;
    let mut batch = BatchBuilder::new(workload.compression.codec());
    let mut value = vec![0; size];
    let random_bytes = (size as f64 * workload.random_bytes_ratio).round() as usize;
    let compressed = workload.compression != Compression::None;
    for number in 0..workload.records_per_batch {
        // Each value of a compressed batch differs, or the batch would be one value.
        if number == 0 || compressed {
            value[..random_bytes].fill_with(|| random.next() as u8);
        }
        let key = random.next().to_be_bytes();
        batch.add(&NewRecord {
            timestamp_ms,
            key: (workload.key_distributor != KeyDistributor::NoKey).then_some(&key[..]),
            value: Some(&value),
            headers: &[],
        });
    }
    batch.build().map_err(Failure::io("the batch"))
}

/// Produce of one batch, whose bytes are the last ones of the frame. The correlation id is the partition's number among those of all topics, so that one frame a
/// partition is enough and an answer still shows what it answers.
pub(crate) fn produce(topic: &str, partition: u32, number: u32, acks: i16, batch: &[u8]) -> Bytes {
    request(PRODUCE, PRODUCE_VERSION, number as i32, |body| {
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

/// Who produces, for brokers that look for duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerId {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// The same frame with a producer and the sequence of its first record; `batch_bytes` are its last ones.
pub(crate) fn sequenced(
    frame: &[u8],
    batch_bytes: usize,
    producer: ProducerId,
    base_sequence: i32,
) -> Bytes {
    let mut copy = BytesMut::from(frame);
    let batch = frame.len() - batch_bytes;
    set_producer(
        &mut copy[batch..],
        producer.id,
        producer.epoch,
        base_sequence,
    );
    copy.freeze()
}

pub(crate) fn init_producer_id() -> Bytes {
    request(INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, 0, |body| {
        body.put_i16(-1);
        body.put_i32(TIMEOUT_MS);
    })
}

/// The answer to [`init_producer_id`]: an error, or who one is.
pub(crate) fn producer_id(mut frame: &[u8]) -> Result<Result<ProducerId, i16>, Malformed> {
    skip(&mut frame, 4 + 4)?;
    let error = frame.try_get_i16()?;
    if error != 0 {
        return Ok(Err(error));
    }
    Ok(Ok(ProducerId {
        id: frame.try_get_i64()?,
        epoch: frame.try_get_i16()?,
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Produced {
    /// As in [`produce`].
    pub(crate) number: u32,
    pub(crate) partition: u32,
    pub(crate) error: i16,
}

/// The answer to a Produce of one batch; `frame` is without its length.
pub(crate) fn produced(mut frame: &[u8]) -> Result<Produced, Malformed> {
    let number = frame.try_get_i32()? as u32;
    expect(frame.try_get_i32()?, 1)?;
    skip_text(&mut frame)?;
    expect(frame.try_get_i32()?, 1)?;
    Ok(Produced {
        number,
        partition: frame.try_get_i32()? as u32,
        error: frame.try_get_i16()?,
    })
}

/// The partitions of one topic and where to read them from.
pub(crate) struct Wanted<'a> {
    pub(crate) topic: &'a str,
    pub(crate) positions: Vec<(u32, i64)>,
}

/// A Fetch without a session. It waits so long for one byte.
pub(crate) fn fetch(wanted: &[Wanted<'_>], max_bytes: u32, wait_ms: i32) -> Bytes {
    request(FETCH, FETCH_VERSION, 0, |body| {
        body.put_i32(-1);
        body.put_i32(wait_ms);
        body.put_i32(1);
        body.put_i32(max_bytes as i32);
        body.put_i8(0);
        body.put_i32(0);
        body.put_i32(-1);
        body.put_i32(wanted.len() as i32);
        for Wanted { topic, positions } in wanted {
            put_text(body, topic);
            body.put_i32(positions.len() as i32);
            for (partition, offset) in positions {
                body.put_i32(*partition as i32);
                body.put_i32(-1);
                body.put_i64(*offset);
                body.put_i64(-1);
                body.put_i32(max_bytes as i32);
            }
        }
        body.put_i32(0);
        put_text(body, "");
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fetched<'a> {
    pub(crate) topic: &'a [u8],
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
        let topic = text(rest)?;
        for _ in 0..get_i32(rest)? {
            each(fetched_partition(topic, rest)?)?;
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

fn fetched_partition<'a>(topic: &'a [u8], frame: &mut &'a [u8]) -> Result<Fetched<'a>, Malformed> {
    let partition = frame.try_get_i32()? as u32;
    let error = frame.try_get_i16()?;
    skip(frame, 8 + 8 + 8)?;
    let aborted = frame.try_get_i32()?.max(0) as usize;
    skip(frame, aborted * 16 + 4)?;
    let length = frame.try_get_i32()?.max(0) as usize;
    let batches = frame.get(..length).ok_or(Malformed)?;
    frame.advance(length);
    Ok(Fetched {
        topic,
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

pub(crate) fn expect(value: i32, expected: i32) -> Result<(), Malformed> {
    (value == expected).then_some(()).ok_or(Malformed)
}

fn get_i32(frame: &mut &[u8]) -> Result<i32, Malformed> {
    Ok(frame.try_get_i32()?)
}

pub(crate) fn skip(frame: &mut &[u8], count: usize) -> Result<(), Malformed> {
    *frame = frame.get(count..).ok_or(Malformed)?;
    Ok(())
}

pub(crate) fn text<'a>(frame: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = frame.try_get_i16()?.max(0) as usize;
    let text = frame.get(..length).ok_or(Malformed)?;
    frame.advance(length);
    Ok(text)
}

pub(crate) fn skip_text(frame: &mut &[u8]) -> Result<(), Malformed> {
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
            RequestHeader::parse(produce("t", 5, 5, -1, &batch).slice(4..)).unwrap();
        assert_eq!((header.api_key, header.correlation_id), (PRODUCE, 5));
        let cursor = ProduceCursor::parse(reader, header.api_version).unwrap();
        assert_eq!((cursor.acks(), cursor.partition_count()), (-1, 1));
    }

    #[test]
    fn a_fetch_is_what_the_codec_reads() {
        let wanted = Wanted {
            topic: "t",
            positions: vec![(1, 10), (2, 20)],
        };
        let frame = fetch(&[wanted], 4096, 0);
        let (header, reader) = RequestHeader::parse(frame.slice(4..)).unwrap();
        let cursor = FetchCursor::parse(reader, header.api_version).unwrap();
        let offsets: Vec<_> = cursor
            .partitions()
            .map(|partition| partition.fetch_offset)
            .collect();
        assert_eq!(offsets, [10, 20]);
    }

    #[test]
    fn a_sequenced_frame_has_its_producer_and_a_checksum_that_is_right() {
        let batch = of_the_workload();
        let frame = produce("t", 5, 5, -1, &batch);
        let producer = ProducerId { id: 77, epoch: 3 };
        let sequenced = sequenced(&frame, batch.len(), producer, 16);
        assert_eq!(
            sequenced.len(),
            frame.len(),
            "a producer takes no more room"
        );
        let sent = &sequenced[frame.len() - batch.len()..];
        assert!(corelog_wire::batch::verify_crc(sent));
        let header = BatchHeader::parse(sent).unwrap();
        assert_eq!(
            (
                header.producer_id,
                header.producer_epoch,
                header.base_sequence
            ),
            (77, 3, 16)
        );
    }

    #[test]
    fn half_random_values_compress_to_about_half() {
        let mut workload = Workload::find("lz4").unwrap();
        let compressed = batch(&workload, 0).unwrap().len();
        workload.compression = Compression::None;
        let plain = batch(&workload, 0).unwrap().len();
        let share = compressed as f64 / plain as f64;
        assert!((0.45..0.6).contains(&share), "{share}");
    }

    #[test]
    fn keys_are_there_when_the_workload_says_so() {
        let keyed = Workload::find("keyed").unwrap();
        let mut unkeyed = keyed.clone();
        unkeyed.key_distributor = KeyDistributor::NoKey;
        let more = batch(&keyed, 0).unwrap().len() - batch(&unkeyed, 0).unwrap().len();
        assert_eq!(more, 4 * 8, "eight bytes a record");
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

//! What reading and writing takes from the heap: never more than a small multiple of the frame, whatever the frame claims,
//! and nothing at all on the data path once its buffers exist.

#![allow(
    unsafe_code,
    reason = "an allocator that counts must be an allocator; it only hands on to the system's"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a failed conversion is the test's failure"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use corelog_wire::batch::{
    Action, BatchBuilder, NewRecord, TimestampType, ValidationParams, max_timestamp_record,
    validate_records,
};
use corelog_wire::compress::Codec;
use corelog_wire::frame::ResponseHeader;
use corelog_wire::messages::fetch_cursor::FetchCursor;
use corelog_wire::messages::fetch_writer::{
    FetchResponseHead, FetchResponseWriter, FetchedPartition,
};
use corelog_wire::messages::produce_cursor::ProduceCursor;
use corelog_wire::messages::produce_writer::{ProduceResponseWriter, ProducedPartition};
use corelog_wire::messages::topic_ref::{CurrentLeader, TopicRef};
use corelog_wire::messages::{fetch, produce};
use corelog_wire::primitives::{Reader, Text};

/// Counts, per thread so that tests do not see each other.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed on unchanged to the system's allocator, whose contract is the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.get() + layout.size();
        HELD.set(held);
        PEAK.set(PEAK.get().max(held));
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // What another thread allocated may be freed here.
        HELD.set(HELD.get().saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `work` held at once beyond those held before it, and its calls of the allocator.
fn measured(work: impl FnOnce()) -> (usize, usize) {
    let (before, calls) = (HELD.get(), CALLS.get());
    PEAK.set(before);
    work();
    (PEAK.get() - before, CALLS.get() - calls)
}

type Decode = fn(Bytes, i16);

macro_rules! decoders {
    ($($module:ident)*) => {
        vec![$({
            use corelog_wire::messages::$module::{Request, Response};
            let request: Decode = |frame, version| drop(Request::decode(&mut Reader::new(frame), version));
            let response: Decode = |frame, version| drop(Response::decode(&mut Reader::new(frame), version));
            (stringify!($module), Request::MIN_VERSION..=Request::CODEC_MAX_VERSION, request, response)
        }),*]
    };
}

/// Frames that claim as much as they can: huge counts, and many empty or tiny elements.
fn greedy_frames() -> Vec<Bytes> {
    const LENGTH: usize = 4096;
    let repeated = |pattern: &[u8]| {
        pattern
            .iter()
            .copied()
            .cycle()
            .take(LENGTH)
            .collect::<Bytes>()
    };
    let mut frames: Vec<Bytes> = [
        &[0x7f, 0xff, 0xff, 0xff][..],
        &[0xff, 0xff, 0xff, 0xff, 0x07],
        &[0x00],
        &[0x01],
        &[0x02],
        &[0x00, 0x00, 0x0f, 0x00],
        &[0xff, 0x1f, 0x01, 0x01, 0x01],
    ]
    .map(repeated)
    .into();
    // A plausible start, then a count that the rest of the frame may be able to hold, in both encodings.
    for skip in 0..48 {
        for count in [100_u16, 400, 1000, 3900] {
            let mut frame = BytesMut::zeroed(LENGTH);
            frame[skip + 2..skip + 4].copy_from_slice(&count.to_be_bytes());
            frames.push(frame.freeze());
            let mut frame = BytesMut::zeroed(LENGTH);
            frame[skip..skip + 2].copy_from_slice(&[count as u8 | 0x80, (count >> 7) as u8]);
            frame[skip + 2..].fill(1);
            frames.push(frame.freeze());
        }
    }
    frames
}

/// An empty string is one byte of a frame and 32 in memory, and so are fields of other versions, which cost nothing there.
const MULTIPLE: usize = 36;

#[test]
fn no_frame_takes_more_than_a_multiple_of_its_size() {
    let decoders = corelog_wire::with_every_rpc!(decoders);
    for (name, versions, request, response) in decoders {
        for version in versions {
            for frame in greedy_frames() {
                for decode in [request, response] {
                    let bound = MULTIPLE * frame.len();
                    let (peak, _) = measured(|| decode(frame.clone(), version));
                    assert!(
                        peak <= bound,
                        "{name} v{version}: {peak} bytes for {}",
                        frame.len()
                    );
                }
            }
        }
    }
}

/// A frame as a connection's buffer gives it: already shared.
fn shared(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write(&mut out);
    let frame = out.freeze();
    drop(frame.clone());
    frame
}

#[test]
fn a_produce_request_is_read_and_answered_without_an_allocation() {
    let partition = |index| produce::RequestTopicDataPartitionData {
        index,
        records: Some(Bytes::from_static(b"records")),
    };
    let request = produce::Request {
        topic_data: vec![produce::RequestTopicData {
            name: Text::from("topic"),
            partition_data: (0..8).map(partition).collect(),
            ..produce::RequestTopicData::default()
        }],
        ..produce::Request::default()
    };
    let frame = shared(|out| request.encode(out, 12));
    let mut out = BytesMut::with_capacity(4096);
    let (_, calls) = measured(|| {
        let cursor = ProduceCursor::parse(Reader::new(frame.clone()), 12).unwrap();
        let mut writer = ProduceResponseWriter::begin(&mut out, 12, cursor.topic_count());
        for partition in cursor.partitions() {
            if partition.index == 0 {
                writer.topic(partition.topic, partition.partitions_of_topic);
            }
            assert_eq!(partition.records.as_deref(), Some(&b"records"[..]));
            writer.partition(&ProducedPartition {
                index: partition.index,
                error_code: 0,
                base_offset: 1,
                log_append_time_ms: -1,
                log_start_offset: 0,
                record_errors: &[],
                error_message: None,
                current_leader: CurrentLeader::UNTOLD,
            });
        }
        writer.finish(0, &[]);
    });
    assert_eq!(calls, 0);
}

#[test]
fn a_fetch_request_is_read_and_answered_without_an_allocation() {
    let request = fetch::Request {
        topics: vec![fetch::RequestTopics {
            topic: Text::from("topic"),
            partitions: vec![fetch::RequestTopicsPartitions::default(); 4],
            ..fetch::RequestTopics::default()
        }],
        ..fetch::Request::default()
    };
    let frame = shared(|out| request.encode(out, 12));
    let records = shared(|out| out.extend_from_slice(&[7; 1000]));
    let header = ResponseHeader {
        api_key: 1,
        api_version: 12,
        correlation_id: 1,
    };
    let (mut out, mut chunks) = (BytesMut::with_capacity(4096), Vec::with_capacity(16));
    // The first split of a buffer makes it shared.
    drop(out.split());
    let (_, calls) = measured(|| {
        let cursor = FetchCursor::parse(Reader::new(frame.clone()), 12).unwrap();
        let head = FetchResponseHead::default();
        let mut writer = FetchResponseWriter::begin(&mut out, &mut chunks, header, head, 1);
        writer.topic(TopicRef::Name("topic"), cursor.partition_count());
        for partition in cursor.partitions() {
            let answer = FetchedPartition {
                partition_index: partition.partition,
                error_code: 0,
                high_watermark: 1,
                last_stable_offset: 1,
                log_start_offset: 0,
                diverging_epoch: None,
                current_leader: CurrentLeader::UNTOLD,
                snapshot_id: None,
                aborted_transactions: None,
                preferred_read_replica: -1,
            };
            writer.partition(&answer, Some(std::slice::from_ref(&records)));
        }
        writer.finish(&[]);
    });
    assert_eq!((calls, chunks.len()), (0, 9));
}

fn params() -> ValidationParams {
    ValidationParams {
        now_ms: 0,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        compacted: false,
        target: None,
        max_batch_bytes: 1 << 20,
        zstd_allowed: true,
    }
}

/// A batch of records of as many zeros each.
fn zeros(codec: Codec, records: usize, bytes: usize) -> Bytes {
    let value = vec![0; bytes];
    let mut builder = BatchBuilder::new(codec);
    for _ in 0..records {
        builder.add(&NewRecord {
            timestamp_ms: 5,
            key: None,
            value: Some(&value),
            headers: &[("name", Some(b"value"))],
        });
    }
    builder.build().unwrap()
}

#[test]
fn an_uncompressed_batch_is_checked_without_the_heap() {
    let batch = zeros(Codec::None, 160, 100);
    let (held, calls) = measured(|| {
        let validated = validate_records(&batch, &params()).unwrap();
        assert_eq!(validated.action, Action::InPlace);
    });
    assert_eq!((held, calls), (0, 0));
}

/// zstd's own memory is not seen here; its window is bounded by the library, and by the 8 MiB that its encoder's usual levels
/// ask for.
#[test]
fn a_small_batch_of_many_megabytes_is_checked_in_a_few_hundred_kilobytes() {
    const HELD_MAX: usize = 300 << 10;
    // One record, and many.
    for (codec, records, bytes) in [
        (Codec::Zstd, 1, 100 << 20),
        (Codec::Zstd, 1000, 20 << 10),
        (Codec::Gzip, 1, 20 << 20),
        (Codec::Gzip, 1000, 20 << 10),
        (Codec::Lz4, 1, 20 << 20),
        (Codec::Lz4, 1000, 20 << 10),
    ] {
        let batch = zeros(codec, records, bytes);
        assert!(batch.len() < 1 << 20, "{} bytes", batch.len());
        let (held, _) = measured(|| {
            let validated = validate_records(&batch, &params()).unwrap();
            assert_eq!(validated.action, Action::InPlace);
            max_timestamp_record(&batch).unwrap().unwrap();
        });
        assert!(held < HELD_MAX, "{codec:?}: {held} bytes");
    }
}

#[test]
fn recompressing_holds_little_more_than_the_result() {
    let batch = zeros(Codec::Lz4, 1000, 20 << 10);
    let params = ValidationParams {
        target: Some((Codec::Gzip, 6)),
        ..params()
    };
    let (held, _) = measured(|| {
        let validated = validate_records(&batch, &params).unwrap();
        assert!(matches!(validated.action, Action::Rewritten(_)));
    });
    assert!(held < 1 << 20, "{held} bytes");
    // Uncompressed it would be more than the topic takes; that is noticed long before all of it is there.
    let plain = ValidationParams {
        target: Some((Codec::None, 0)),
        ..params
    };
    let (held, _) = measured(|| assert!(validate_records(&batch, &plain).is_err()));
    assert!(held < 4 << 20, "{held} bytes");
}

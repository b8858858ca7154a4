//! Writing a Fetch response around records that are not copied.
//!
//! The frame leaves as a list of chunks: stretches of the buffer with everything but the records, and between them the
//! records as the log gave them. The caller keeps buffer and list for the next response. A buffer that has been split before
//! (`BytesMut::split`) is split again without an allocation, and so is the list once it has grown.
//!
//! `begin`, then for each topic `topic` and its partitions, then `finish`. A wrong count is our own mistake and is asserted.

use bytes::{BufMut, Bytes, BytesMut};

use super::fetch::Response;
use super::produce_writer::{put_current_leader, put_no_tags, put_node_endpoints};
use super::topic_ref::{CurrentLeader, NodeEndpoint, TopicRef};
use crate::frame::{PREFIX_LENGTH, ResponseHeader, size_prefix};
use crate::primitives::{
    Encoding, put_array_count, put_bytes_length, put_nullable_array, put_tagged, put_uvarint,
};

/// The fields in front of the topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FetchResponseHead {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub session_id: i32,
}

/// The answer for one partition, without its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchedPartition<'a> {
    pub partition_index: i32,
    pub error_code: i16,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// The end of the largest epoch that both sides have, if the follower must truncate.
    pub diverging_epoch: Option<EpochEnd>,
    pub current_leader: CurrentLeader,
    /// The snapshot to fetch instead (metadata log only).
    pub snapshot_id: Option<EpochEnd>,
    /// `None` for isolation level "read uncommitted".
    pub aborted_transactions: Option<&'a [AbortedTransaction]>,
    pub preferred_read_replica: i32,
}

/// An epoch and the offset where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    pub epoch: i32,
    pub end_offset: i64,
}

/// A transaction whose records a "read committed" consumer skips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// A whole Fetch response, prefix and header included, as it grows.
#[derive(Debug)]
pub struct FetchResponseWriter<'a> {
    out: &'a mut BytesMut,
    chunks: &'a mut Vec<Bytes>,
    /// The chunk with the prefix, which is known last, and its place in `chunks`.
    first: Option<BytesMut>,
    first_at: usize,
    /// Bytes that have been moved to `chunks` or `first`.
    size: usize,
    version: i16,
    encoding: Encoding,
    topics_left: usize,
    partitions_left: usize,
}

impl<'a> FetchResponseWriter<'a> {
    /// Starts a frame of `topic_count` topics. `out` must be empty; the chunks are appended to `chunks`.
    pub fn begin(
        out: &'a mut BytesMut,
        chunks: &'a mut Vec<Bytes>,
        header: ResponseHeader,
        head: FetchResponseHead,
        topic_count: usize,
    ) -> Self {
        assert!(
            out.is_empty(),
            "{} bytes of something else are in the buffer",
            out.len()
        );
        let version = header.api_version;
        let encoding = Encoding::at(version, Response::FLEXIBLE_FROM);
        out.put_bytes(0, PREFIX_LENGTH);
        header.encode(out);
        out.put_i32(head.throttle_time_ms);
        if version >= 7 {
            out.put_i16(head.error_code);
            out.put_i32(head.session_id);
        }
        put_array_count(out, encoding, Some(topic_count));
        let first_at = chunks.len();
        Self {
            out,
            chunks,
            first: None,
            first_at,
            size: 0,
            version,
            encoding,
            topics_left: topic_count,
            partitions_left: 0,
        }
    }

    pub fn topic(&mut self, topic: TopicRef<'_>, partition_count: usize) {
        assert!(
            self.partitions_left == 0,
            "{} partitions of a topic are missing",
            self.partitions_left
        );
        assert!(self.topics_left > 0, "more topics than announced");
        topic.put(self.out, self.version, self.encoding);
        put_array_count(self.out, self.encoding, Some(partition_count));
        self.topics_left -= 1;
        self.partitions_left = partition_count;
        if partition_count == 0 {
            put_no_tags(self.out, self.encoding);
        }
    }

    /// A partition and its records, which may come in pieces; `None` is null.
    pub fn partition(&mut self, partition: &FetchedPartition<'_>, records: Option<&[Bytes]>) {
        assert!(self.partitions_left > 0, "more partitions than announced");
        self.put_fields(partition);
        let length = records.map(|pieces| pieces.iter().map(Bytes::len).sum());
        put_bytes_length(self.out, self.encoding, length);
        self.put_records(records.unwrap_or_default());
        if self.encoding.is_flexible() {
            self.put_tags(partition);
        }
        self.partitions_left -= 1;
        if self.partitions_left == 0 {
            put_no_tags(self.out, self.encoding);
        }
    }

    fn put_fields(&mut self, partition: &FetchedPartition<'_>) {
        let (encoding, version) = (self.encoding, self.version);
        let out = &mut *self.out;
        out.put_i32(partition.partition_index);
        out.put_i16(partition.error_code);
        out.put_i64(partition.high_watermark);
        out.put_i64(partition.last_stable_offset);
        if version >= 5 {
            out.put_i64(partition.log_start_offset);
        }
        put_nullable_array(
            out,
            encoding,
            partition.aborted_transactions,
            |out, transaction| {
                out.put_i64(transaction.producer_id);
                out.put_i64(transaction.first_offset);
                put_no_tags(out, encoding);
            },
        );
        if version >= 11 {
            out.put_i32(partition.preferred_read_replica);
        }
    }

    fn put_records(&mut self, pieces: &[Bytes]) {
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            self.flush();
            self.size += piece.len();
            self.chunks.push(piece.clone());
        }
    }

    fn put_tags(&mut self, partition: &FetchedPartition<'_>) {
        let leader =
            Some(partition.current_leader).filter(|leader| *leader != CurrentLeader::UNTOLD);
        let (diverging, snapshot) = (partition.diverging_epoch, partition.snapshot_id);
        let count = [diverging.is_some(), leader.is_some(), snapshot.is_some()];
        put_uvarint(self.out, count.map(u32::from).iter().sum());
        if let Some(diverging) = diverging {
            put_tagged(self.out, 0, |out| {
                out.put_i32(diverging.epoch);
                out.put_i64(diverging.end_offset);
                out.put_u8(0);
            });
        }
        if let Some(leader) = leader {
            put_tagged(self.out, 1, |out| put_current_leader(out, leader));
        }
        if let Some(snapshot) = snapshot {
            put_tagged(self.out, 2, |out| {
                out.put_i64(snapshot.end_offset);
                out.put_i32(snapshot.epoch);
                out.put_u8(0);
            });
        }
    }

    /// Moves what has been written to the chunks.
    fn flush(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let chunk = self.out.split();
        self.size += chunk.len();
        if self.first.is_none() {
            // Its place; the chunk itself follows when the size is known.
            self.chunks.push(Bytes::new());
            self.first = Some(chunk);
        } else {
            self.chunks.push(chunk.freeze());
        }
    }

    /// Ends the frame and returns its size with the prefix. `nodes` are those that the partitions' leaders name.
    pub fn finish(mut self, nodes: &[NodeEndpoint<'_>]) -> usize {
        let missing = (self.topics_left, self.partitions_left);
        assert!(
            missing == (0, 0),
            "topics and partitions {missing:?} are missing"
        );
        put_node_endpoints(
            self.out,
            self.encoding,
            if self.version >= 16 { nodes } else { &[] },
        );
        self.flush();
        let mut first = self
            .first
            .take()
            .expect("begin has written a prefix and flush has moved it");
        first[..PREFIX_LENGTH].copy_from_slice(&size_prefix(self.size - PREFIX_LENGTH));
        self.chunks[self.first_at] = first.freeze();
        self.size
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{Arbitrary, Random};
    use crate::messages::fetch::{ResponseResponses, ResponseResponsesPartitions};

    fn header(version: i16) -> ResponseHeader {
        ResponseHeader {
            api_key: Response::KEY,
            api_version: version,
            correlation_id: 77,
        }
    }

    fn by_writer(
        response: &Response,
        version: i16,
        out: &mut BytesMut,
        chunks: &mut Vec<Bytes>,
    ) -> usize {
        let head = FetchResponseHead {
            throttle_time_ms: response.throttle_time_ms,
            error_code: response.error_code,
            session_id: response.session_id,
        };
        let mut writer = FetchResponseWriter::begin(
            out,
            chunks,
            header(version),
            head,
            response.responses.len(),
        );
        for topic in &response.responses {
            write_topic(&mut writer, topic, version);
        }
        let nodes: Vec<NodeEndpoint<'_>> = response
            .node_endpoints
            .iter()
            .map(|node| NodeEndpoint {
                node_id: node.node_id,
                host: &node.host,
                port: node.port,
                rack: node.rack.as_deref(),
            })
            .collect();
        writer.finish(&nodes)
    }

    fn write_topic(writer: &mut FetchResponseWriter<'_>, topic: &ResponseResponses, version: i16) {
        let name = if version >= 13 {
            TopicRef::Id(topic.topic_id)
        } else {
            TopicRef::Name(&topic.topic)
        };
        writer.topic(name, topic.partitions.len());
        for partition in &topic.partitions {
            write_partition(writer, partition);
        }
    }

    fn told(epoch: i32, end_offset: i64) -> Option<EpochEnd> {
        Some(EpochEnd { epoch, end_offset }).filter(|end| (end.epoch, end.end_offset) != (-1, -1))
    }

    fn write_partition(
        writer: &mut FetchResponseWriter<'_>,
        partition: &ResponseResponsesPartitions,
    ) {
        let aborted: Option<Vec<AbortedTransaction>> =
            partition.aborted_transactions.as_ref().map(|all| {
                let all = all.iter();
                all.map(|one| AbortedTransaction {
                    producer_id: one.producer_id,
                    first_offset: one.first_offset,
                })
                .collect()
            });
        // In two pieces, as from the end of one segment and the start of the next.
        let pieces = partition.records.as_ref().map(|records| {
            let middle = records.len() / 2;
            [records.slice(..middle), records.slice(middle..)]
        });
        let answer = FetchedPartition {
            partition_index: partition.partition_index,
            error_code: partition.error_code,
            high_watermark: partition.high_watermark,
            last_stable_offset: partition.last_stable_offset,
            log_start_offset: partition.log_start_offset,
            diverging_epoch: told(
                partition.diverging_epoch.epoch,
                partition.diverging_epoch.end_offset,
            ),
            current_leader: CurrentLeader {
                leader_id: partition.current_leader.leader_id,
                leader_epoch: partition.current_leader.leader_epoch,
            },
            snapshot_id: told(
                partition.snapshot_id.epoch,
                partition.snapshot_id.end_offset,
            ),
            aborted_transactions: aborted.as_deref(),
            preferred_read_replica: partition.preferred_read_replica,
        };
        writer.partition(&answer, pieces.as_ref().map(<[Bytes; 2]>::as_slice));
    }

    proptest! {
        #[test]
        fn the_writer_writes_what_the_codec_writes(seed: u64) {
            let mut random = Random::new(seed);
            let (mut out, mut chunks) = (BytesMut::new(), vec![Bytes::from_static(b"an earlier response")]);
            for version in Response::MIN_VERSION..=Response::CODEC_MAX_VERSION {
                let response = Response::arbitrary(&mut random, version);
                let mut expected = BytesMut::new();
                header(version).put_frame(&mut expected, |out| response.encode(out, version));
                chunks.truncate(1);
                let size = by_writer(&response, version, &mut out, &mut chunks);
                prop_assert_eq!(chunks[1..].concat(), &expected[..], "version {}", version);
                prop_assert_eq!(size, expected.len());
            }
        }
    }

    #[test]
    fn records_are_handed_on_and_not_copied() {
        let records = Bytes::from(vec![1; 1000]);
        let response = Response {
            responses: vec![ResponseResponses {
                partitions: vec![ResponseResponsesPartitions {
                    records: Some(records.clone()),
                    ..ResponseResponsesPartitions::default()
                }],
                ..ResponseResponses::default()
            }],
            ..Response::default()
        };
        let (mut out, mut chunks) = (BytesMut::new(), Vec::new());
        by_writer(&response, 12, &mut out, &mut chunks);
        assert_eq!(chunks.len(), 4);
        assert_eq!(chunks[1].as_ptr(), records.as_ptr());
        assert_eq!(chunks[2].as_ptr(), records[500..].as_ptr());
    }
}

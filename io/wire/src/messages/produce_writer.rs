//! Writing a Produce response straight into a buffer.
//!
//! The caller knows the counts beforehand and gives topics and partitions in order:
//! `begin`, then for each topic `topic` and its partitions, then `finish`. A wrong count is our own mistake and is asserted.

use bytes::{BufMut, BytesMut};

use super::produce::Response;
use super::topic_ref::{CurrentLeader, NodeEndpoint, TopicRef};
use crate::primitives::{
    Encoding, put_array, put_array_count, put_nullable_text, put_tagged, put_text, put_uvarint,
};

/// The answer for one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducedPartition<'a> {
    pub index: i32,
    pub error_code: i16,
    pub base_offset: i64,
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
    pub record_errors: &'a [RecordError<'a>],
    pub error_message: Option<&'a str>,
    pub current_leader: CurrentLeader,
}

/// A record for which its whole batch was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordError<'a> {
    pub batch_index: i32,
    pub message: Option<&'a str>,
}

/// The body of a Produce response as it grows.
#[derive(Debug)]
pub struct ProduceResponseWriter<'a> {
    out: &'a mut BytesMut,
    version: i16,
    encoding: Encoding,
    topics_left: usize,
    partitions_left: usize,
}

impl<'a> ProduceResponseWriter<'a> {
    /// Starts a body of `topic_count` topics at the end of `out`.
    pub fn begin(out: &'a mut BytesMut, version: i16, topic_count: usize) -> Self {
        let encoding = Encoding::at(version, Response::FLEXIBLE_FROM);
        put_array_count(out, encoding, Some(topic_count));
        Self {
            out,
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
            self.no_tags();
        }
    }

    pub fn partition(&mut self, partition: &ProducedPartition<'_>) {
        assert!(self.partitions_left > 0, "more partitions than announced");
        self.out.put_i32(partition.index);
        self.out.put_i16(partition.error_code);
        self.out.put_i64(partition.base_offset);
        self.out.put_i64(partition.log_append_time_ms);
        if self.version >= 5 {
            self.out.put_i64(partition.log_start_offset);
        }
        if self.version >= 8 {
            self.put_errors(partition);
        }
        self.put_leader(partition.current_leader);
        self.partitions_left -= 1;
        if self.partitions_left == 0 {
            self.no_tags();
        }
    }

    fn put_errors(&mut self, partition: &ProducedPartition<'_>) {
        let encoding = self.encoding;
        put_array(self.out, encoding, partition.record_errors, |out, error| {
            out.put_i32(error.batch_index);
            put_nullable_text(out, encoding, error.message);
            put_no_tags(out, encoding);
        });
        put_nullable_text(self.out, encoding, partition.error_message);
    }

    fn put_leader(&mut self, leader: CurrentLeader) {
        if self.version < 10 || leader == CurrentLeader::UNTOLD {
            return self.no_tags();
        }
        put_uvarint(self.out, 1);
        put_tagged(self.out, 0, |out| put_current_leader(out, leader));
    }

    /// Ends the body. `nodes` are those that the partitions' leaders name.
    pub fn finish(self, throttle_time_ms: i32, nodes: &[NodeEndpoint<'_>]) {
        let missing = (self.topics_left, self.partitions_left);
        assert!(
            missing == (0, 0),
            "topics and partitions {missing:?} are missing"
        );
        self.out.put_i32(throttle_time_ms);
        put_node_endpoints(
            self.out,
            self.encoding,
            if self.version >= 10 { nodes } else { &[] },
        );
    }

    fn no_tags(&mut self) {
        put_no_tags(self.out, self.encoding);
    }
}

pub(super) fn put_no_tags(out: &mut BytesMut, encoding: Encoding) {
    if encoding.is_flexible() {
        out.put_u8(0);
    }
}

pub(super) fn put_current_leader(out: &mut BytesMut, leader: CurrentLeader) {
    out.put_i32(leader.leader_id);
    out.put_i32(leader.leader_epoch);
    out.put_u8(0);
}

/// The tagged section at the end of both responses, which holds the endpoints if there are any.
pub(super) fn put_node_endpoints(
    out: &mut BytesMut,
    encoding: Encoding,
    nodes: &[NodeEndpoint<'_>],
) {
    if nodes.is_empty() {
        return put_no_tags(out, encoding);
    }
    put_uvarint(out, 1);
    put_tagged(out, 0, |out| {
        put_array(out, encoding, nodes, |out, node| {
            out.put_i32(node.node_id);
            put_text(out, encoding, node.host);
            out.put_i32(node.port);
            put_nullable_text(out, encoding, node.rack);
            put_no_tags(out, encoding);
        });
    });
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
    use crate::messages::produce::{ResponseResponses, ResponseResponsesPartitionResponses};

    fn by_writer(response: &Response, version: i16) -> BytesMut {
        let mut out = BytesMut::new();
        let mut writer = ProduceResponseWriter::begin(&mut out, version, response.responses.len());
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
        writer.finish(response.throttle_time_ms, &nodes);
        out
    }

    fn write_topic(
        writer: &mut ProduceResponseWriter<'_>,
        topic: &ResponseResponses,
        version: i16,
    ) {
        let name = if version >= 13 {
            TopicRef::Id(topic.topic_id)
        } else {
            TopicRef::Name(&topic.name)
        };
        writer.topic(name, topic.partition_responses.len());
        for partition in &topic.partition_responses {
            write_partition(writer, partition);
        }
    }

    fn write_partition(
        writer: &mut ProduceResponseWriter<'_>,
        partition: &ResponseResponsesPartitionResponses,
    ) {
        let errors: Vec<RecordError<'_>> = partition
            .record_errors
            .iter()
            .map(|error| RecordError {
                batch_index: error.batch_index,
                message: error.batch_index_error_message.as_deref(),
            })
            .collect();
        writer.partition(&ProducedPartition {
            index: partition.index,
            error_code: partition.error_code,
            base_offset: partition.base_offset,
            log_append_time_ms: partition.log_append_time_ms,
            log_start_offset: partition.log_start_offset,
            record_errors: &errors,
            error_message: partition.error_message.as_deref(),
            current_leader: CurrentLeader {
                leader_id: partition.current_leader.leader_id,
                leader_epoch: partition.current_leader.leader_epoch,
            },
        });
    }

    proptest! {
        #[test]
        fn the_writer_writes_what_the_codec_writes(seed: u64) {
            let mut random = Random::new(seed);
            for version in Response::MIN_VERSION..=Response::CODEC_MAX_VERSION {
                let response = Response::arbitrary(&mut random, version);
                let mut expected = BytesMut::new();
                response.encode(&mut expected, version);
                prop_assert_eq!(by_writer(&response, version), expected, "version {}", version);
            }
        }
    }

    #[test]
    #[should_panic(expected = "are missing")]
    fn a_response_that_lacks_a_topic_is_our_mistake() {
        let mut out = BytesMut::new();
        ProduceResponseWriter::begin(&mut out, 9, 1).finish(0, &[]);
    }

    #[test]
    #[should_panic(expected = "names topics by id")]
    fn a_topic_is_named_as_the_version_names_it() {
        let mut out = BytesMut::new();
        ProduceResponseWriter::begin(&mut out, 13, 1).topic(TopicRef::Name("t"), 0);
    }
}

//! Reading a Produce request (versions 3 to 13) where it lies, without a heap allocation.
//!
//! [`ProduceCursor::parse`] walks the whole body once, tags included, so nothing has been acted on when a malformed body is
//! refused. [`ProduceCursor::partitions`] walks it again. Not here: what is inside the records.

use std::ops::Range;

use bytes::Bytes;

use super::produce::Request;
use super::topic_ref::{TopicPlace, TopicRef, count, end_struct, text_at};
use crate::primitives::{DecodeError, Encoding, Reader};

/// Fewest bytes of a topic and of a partition in any version.
const TOPIC_SIZE: usize = 3;
const PARTITION_SIZE: usize = 6;

/// A Produce request whose structure has been checked.
#[derive(Debug, Clone)]
pub struct ProduceCursor {
    transactional_id: Option<Range<usize>>,
    acks: i16,
    timeout_ms: i32,
    topic_count: usize,
    partition_count: usize,
    walk: Walk,
}

/// The data for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducePartition<'a> {
    pub topic: TopicRef<'a>,
    /// The place of the topic among those that [`ProduceCursor::topic_count`] counts.
    pub topic_position: usize,
    /// How many partitions the request has under this entry of the topic.
    pub partitions_of_topic: usize,
    pub index: i32,
    /// A slice of the frame.
    pub records: Option<Bytes>,
}

impl ProduceCursor {
    /// Checks the body that follows in `reader`.
    pub fn parse(mut reader: Reader, version: i16) -> Result<Self, DecodeError> {
        if !(Request::MIN_VERSION..=Request::CODEC_MAX_VERSION).contains(&version) {
            return Err(DecodeError::UnknownVersion {
                what: "Produce Request",
                version: i32::from(version),
            });
        }
        let encoding = Encoding::at(version, Request::FLEXIBLE_FROM);
        let transactional_id = reader.text_range(encoding)?;
        let acks = reader.i16()?;
        let timeout_ms = reader.i32()?;
        let topics_left = count(&mut reader, encoding, TOPIC_SIZE)?;
        let walk = Walk::new(reader, version, encoding, topics_left);
        let (topic_count, partition_count) = walk.clone().finish()?;
        Ok(Self {
            transactional_id,
            acks,
            timeout_ms,
            topic_count,
            partition_count,
            walk,
        })
    }

    pub fn transactional_id(&self) -> Option<&str> {
        let range = self.transactional_id.as_ref()?;
        Some(text_at(self.walk.reader.frame(), range))
    }

    pub fn acks(&self) -> i16 {
        self.acks
    }

    pub fn timeout_ms(&self) -> i32 {
        self.timeout_ms
    }

    /// Entries of topics that have a partition; those without have nothing to answer.
    pub fn topic_count(&self) -> usize {
        self.topic_count
    }

    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// Every partition in the order of the request.
    pub fn partitions(&self) -> ProducePartitions<'_> {
        ProducePartitions {
            frame: self.walk.reader.frame(),
            walk: self.walk.clone(),
        }
    }
}

/// See [`ProduceCursor::partitions`].
#[derive(Debug)]
pub struct ProducePartitions<'a> {
    frame: &'a Bytes,
    walk: Walk,
}

impl<'a> Iterator for ProducePartitions<'a> {
    type Item = ProducePartition<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.walk.step().expect("parse has walked the same bytes");
        let produced = step?;
        Some(ProducePartition {
            topic: self.walk.topic.resolve(self.frame),
            topic_position: self.walk.topics_seen - 1,
            partitions_of_topic: self.walk.partitions_of_topic,
            index: produced.index,
            records: produced.records.map(|range| self.frame.slice(range)),
        })
    }
}

/// A partition without its topic, its records as a place in the frame.
struct Produced {
    index: i32,
    records: Option<Range<usize>>,
}

/// A position between two partitions.
#[derive(Debug, Clone)]
struct Walk {
    reader: Reader,
    version: i16,
    encoding: Encoding,
    topics_left: usize,
    topics_seen: usize,
    topic: TopicPlace,
    partitions_left: usize,
    partitions_of_topic: usize,
}

impl Walk {
    fn new(reader: Reader, version: i16, encoding: Encoding, topics_left: usize) -> Self {
        Self {
            reader,
            version,
            encoding,
            topics_left,
            topics_seen: 0,
            topic: TopicPlace::Name(0..0),
            partitions_left: 0,
            partitions_of_topic: 0,
        }
    }

    fn step(&mut self) -> Result<Option<Produced>, DecodeError> {
        while self.partitions_left == 0 {
            if self.topics_left == 0 {
                return Ok(None);
            }
            self.enter_topic()?;
        }
        let index = self.reader.i32()?;
        let records = self.reader.bytes_range(self.encoding)?;
        end_struct(&mut self.reader, self.encoding)?;
        self.partitions_left -= 1;
        if self.partitions_left == 0 {
            end_struct(&mut self.reader, self.encoding)?;
        }
        Ok(Some(Produced { index, records }))
    }

    fn enter_topic(&mut self) -> Result<(), DecodeError> {
        self.topics_left -= 1;
        self.topic = TopicPlace::read(&mut self.reader, self.version, self.encoding)?;
        self.partitions_left = count(&mut self.reader, self.encoding, PARTITION_SIZE)?;
        self.partitions_of_topic = self.partitions_left;
        if self.partitions_left == 0 {
            return end_struct(&mut self.reader, self.encoding);
        }
        self.topics_seen += 1;
        Ok(())
    }

    /// Walks to the end of the request and counts its topics and partitions.
    fn finish(mut self) -> Result<(usize, usize), DecodeError> {
        let mut partitions = 0;
        while self.step()?.is_some() {
            partitions += 1;
        }
        end_struct(&mut self.reader, self.encoding)?;
        Ok((self.topics_seen, partitions))
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{Arbitrary, Random};

    type Seen = Vec<(String, i32, Option<Bytes>)>;

    /// What the cursor says of a body, in the terms of the struct.
    fn by_cursor(body: Bytes, version: i16) -> Result<Seen, DecodeError> {
        let cursor = ProduceCursor::parse(Reader::new(body), version)?;
        let mut all = vec![(
            format!("{:?}", cursor.transactional_id()),
            cursor.timeout_ms() ^ i32::from(cursor.acks()),
            None,
        )];
        let mut topics = 0;
        for partition in cursor.partitions() {
            assert!(partition.partitions_of_topic > 0);
            topics = partition.topic_position + 1;
            let topic = match partition.topic {
                TopicRef::Name(name) => name.to_owned(),
                TopicRef::Id(id) => id.to_string(),
            };
            all.push((topic, partition.index, partition.records));
        }
        assert_eq!(cursor.topic_count(), topics);
        assert_eq!(cursor.partition_count(), all.len() - 1);
        Ok(all)
    }

    fn by_codec(body: Bytes, version: i16) -> Result<Seen, DecodeError> {
        let request = Request::decode(&mut Reader::new(body), version)?;
        let id = request.transactional_id.as_deref();
        let mut all = vec![(
            format!("{id:?}"),
            request.timeout_ms ^ i32::from(request.acks),
            None,
        )];
        for topic in request.topic_data {
            let name = if version >= 13 {
                topic.topic_id.to_string()
            } else {
                topic.name.to_string()
            };
            let partitions = topic.partition_data.into_iter();
            all.extend(
                partitions.map(|partition| (name.clone(), partition.index, partition.records)),
            );
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn the_cursor_reads_what_the_codec_reads(seed: u64) {
            let mut random = Random::new(seed);
            for version in Request::MIN_VERSION..=Request::CODEC_MAX_VERSION {
                let mut out = BytesMut::new();
                Request::arbitrary(&mut random, version).encode(&mut out, version);
                let whole = by_codec(out.clone().freeze(), version);
                prop_assert!(whole.is_ok());
                prop_assert_eq!(by_cursor(out.clone().freeze(), version), whole);
                let at = random.below(out.len());
                if random.one_in(2) {
                    out[at] = random.bits() as u8;
                } else {
                    out.truncate(at);
                }
                let (cursor, codec) = (by_cursor(out.clone().freeze(), version), by_codec(out.freeze(), version));
                prop_assert_eq!(cursor.ok(), codec.ok());
            }
        }
    }

    #[test]
    fn versions_without_a_cursor_are_refused() {
        for version in [0, 2, 14] {
            let refused = ProduceCursor::parse(Reader::new(Bytes::from_static(&[0; 64])), version);
            assert!(matches!(refused, Err(DecodeError::UnknownVersion { .. })));
        }
    }
}

//! Reading a Fetch request (versions 4 to 18) where it lies, without a heap allocation.
//!
//! [`FetchCursor::parse`] walks the whole body once, tags included, so a malformed body is refused before anything has been
//! acted on. The iterators walk it again. Not here: fetch sessions.

use std::ops::Range;

use bytes::Bytes;

use super::fetch::Request;
use super::topic_ref::{TopicPlace, TopicRef, count, end_struct, text_at};
use crate::primitives::{DecodeError, Encoding, Reader, Uuid};

/// Fewest bytes of a topic and of a partition (a forgotten one) in any version.
const TOPIC_SIZE: usize = 3;
const PARTITION_SIZE: usize = 4;

/// A Fetch request whose structure has been checked. Fields that the version lacks have their defaults.
#[derive(Debug, Clone)]
pub struct FetchCursor {
    head: Head,
    cluster_id: Option<Range<usize>>,
    replica: Replica,
    rack_id: Range<usize>,
    topic_count: usize,
    partition_count: usize,
    partitions: Walk,
    forgotten: Walk,
}

/// The fields in front of the topics.
#[derive(Debug, Clone)]
struct Head {
    replica_id: i32,
    max_wait_ms: i32,
    min_bytes: i32,
    max_bytes: i32,
    isolation_level: i8,
    session_id: i32,
    session_epoch: i32,
}

impl Head {
    fn read(reader: &mut Reader, version: i16) -> Result<Self, DecodeError> {
        Ok(Self {
            replica_id: if version <= 14 { reader.i32()? } else { -1 },
            max_wait_ms: reader.i32()?,
            min_bytes: reader.i32()?,
            max_bytes: reader.i32()?,
            isolation_level: reader.i8()?,
            session_id: if version >= 7 { reader.i32()? } else { 0 },
            session_epoch: if version >= 7 { reader.i32()? } else { -1 },
        })
    }
}

/// Who fetches: -1 is a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Replica {
    id: i32,
    epoch: i64,
}

/// What is asked of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPartition<'a> {
    pub topic: TopicRef<'a>,
    pub partition: i32,
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    pub last_fetched_epoch: i32,
    pub log_start_offset: i64,
    pub partition_max_bytes: i32,
    pub replica_directory_id: Uuid,
    /// What the follower knows; `i64::MAX` if it did not say (v18+).
    pub high_watermark: i64,
}

impl FetchCursor {
    /// Checks the body that follows in `reader`.
    pub fn parse(mut reader: Reader, version: i16) -> Result<Self, DecodeError> {
        if !(Request::MIN_VERSION..=Request::CODEC_MAX_VERSION).contains(&version) {
            return Err(DecodeError::UnknownVersion {
                what: "Fetch Request",
                version: i32::from(version),
            });
        }
        let encoding = Encoding::at(version, Request::FLEXIBLE_FROM);
        let head = Head::read(&mut reader, version)?;
        let partitions = Walk::start(reader, version, encoding)?;
        let (mut reader, topic_count, partition_count) = partitions.clone().finish(Walk::fetch)?;
        let mut forgotten = Walk::nothing(reader.clone(), version, encoding);
        if version >= 7 {
            forgotten = Walk::start(reader, version, encoding)?;
            (reader, _, _) = forgotten.clone().finish(Walk::forget)?;
        }
        let rack_id = if version >= 11 {
            rack_id(&mut reader, encoding)?
        } else {
            0..0
        };
        let tags = Tags::read(&mut reader, version, encoding)?;
        Ok(Self {
            replica: tags.replica.unwrap_or(Replica {
                id: head.replica_id,
                epoch: -1,
            }),
            cluster_id: tags.cluster_id,
            head,
            rack_id,
            topic_count,
            partition_count,
            partitions,
            forgotten,
        })
    }

    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_ref().map(|range| self.text(range))
    }

    /// The broker that fetches, -1 for a consumer; wherever the version has it.
    pub fn replica_id(&self) -> i32 {
        self.replica.id
    }

    /// The broker epoch of the replica (v15+), else -1.
    pub fn replica_epoch(&self) -> i64 {
        self.replica.epoch
    }

    pub fn max_wait_ms(&self) -> i32 {
        self.head.max_wait_ms
    }

    pub fn min_bytes(&self) -> i32 {
        self.head.min_bytes
    }

    pub fn max_bytes(&self) -> i32 {
        self.head.max_bytes
    }

    pub fn isolation_level(&self) -> i8 {
        self.head.isolation_level
    }

    pub fn session_id(&self) -> i32 {
        self.head.session_id
    }

    pub fn session_epoch(&self) -> i32 {
        self.head.session_epoch
    }

    pub fn rack_id(&self) -> &str {
        self.text(&self.rack_id)
    }

    /// Entries of topics that have a partition.
    pub fn topic_count(&self) -> usize {
        self.topic_count
    }

    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// Every partition in the order of the request.
    pub fn partitions(&self) -> FetchPartitions<'_> {
        FetchPartitions {
            frame: self.partitions.reader.frame(),
            walk: self.partitions.clone(),
        }
    }

    /// The partitions that an incremental session is to drop.
    pub fn forgotten(&self) -> ForgottenPartitions<'_> {
        ForgottenPartitions {
            frame: self.forgotten.reader.frame(),
            walk: self.forgotten.clone(),
        }
    }

    fn text(&self, range: &Range<usize>) -> &str {
        text_at(self.partitions.reader.frame(), range)
    }
}

fn rack_id(reader: &mut Reader, encoding: Encoding) -> Result<Range<usize>, DecodeError> {
    let offset = reader.position();
    let rack_id = reader.text_range(encoding)?;
    rack_id.ok_or(DecodeError::UnexpectedNull {
        what: "string",
        offset,
    })
}

/// The tagged section at the end of the request.
struct Tags {
    cluster_id: Option<Range<usize>>,
    replica: Option<Replica>,
}

impl Tags {
    fn read(reader: &mut Reader, version: i16, encoding: Encoding) -> Result<Self, DecodeError> {
        let mut tags = Self {
            cluster_id: None,
            replica: None,
        };
        if !encoding.is_flexible() {
            return Ok(tags);
        }
        reader.tagged(|tag, reader| {
            match tag {
                0 => tags.cluster_id = reader.text_range(encoding)?,
                1 if version >= 15 => {
                    let (id, epoch) = (reader.i32()?, reader.i64()?);
                    reader.skip_tagged()?;
                    tags.replica = Some(Replica { id, epoch });
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(tags)
    }
}

/// See [`FetchCursor::partitions`].
#[derive(Debug)]
pub struct FetchPartitions<'a> {
    frame: &'a Bytes,
    walk: Walk,
}

impl<'a> Iterator for FetchPartitions<'a> {
    type Item = FetchPartition<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let asked = self
            .walk
            .step(Walk::fetch)
            .expect("parse has walked the same bytes")?;
        Some(FetchPartition {
            topic: self.walk.topic.resolve(self.frame),
            partition: asked.partition,
            current_leader_epoch: asked.current_leader_epoch,
            fetch_offset: asked.fetch_offset,
            last_fetched_epoch: asked.last_fetched_epoch,
            log_start_offset: asked.log_start_offset,
            partition_max_bytes: asked.partition_max_bytes,
            replica_directory_id: asked.replica_directory_id,
            high_watermark: asked.high_watermark,
        })
    }
}

/// See [`FetchCursor::forgotten`].
#[derive(Debug)]
pub struct ForgottenPartitions<'a> {
    frame: &'a Bytes,
    walk: Walk,
}

impl<'a> Iterator for ForgottenPartitions<'a> {
    type Item = (TopicRef<'a>, i32);

    fn next(&mut self) -> Option<Self::Item> {
        let partition = self
            .walk
            .step(Walk::forget)
            .expect("parse has walked the same bytes")?;
        Some((self.walk.topic.resolve(self.frame), partition))
    }
}

/// A partition without its topic.
struct Asked {
    partition: i32,
    current_leader_epoch: i32,
    fetch_offset: i64,
    last_fetched_epoch: i32,
    log_start_offset: i64,
    partition_max_bytes: i32,
    replica_directory_id: Uuid,
    high_watermark: i64,
}

/// A position between two partitions of either list of topics.
#[derive(Debug, Clone)]
struct Walk {
    reader: Reader,
    version: i16,
    encoding: Encoding,
    topics_left: usize,
    topics_seen: usize,
    topic: TopicPlace,
    partitions_left: usize,
}

impl Walk {
    fn nothing(reader: Reader, version: i16, encoding: Encoding) -> Self {
        Self {
            reader,
            version,
            encoding,
            topics_left: 0,
            topics_seen: 0,
            topic: TopicPlace::Name(0..0),
            partitions_left: 0,
        }
    }

    fn start(mut reader: Reader, version: i16, encoding: Encoding) -> Result<Self, DecodeError> {
        let topics_left = count(&mut reader, encoding, TOPIC_SIZE)?;
        Ok(Self {
            topics_left,
            ..Self::nothing(reader, version, encoding)
        })
    }

    /// The next partition, which `read` reads.
    fn step<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        while self.partitions_left == 0 {
            if self.topics_left == 0 {
                return Ok(None);
            }
            self.enter_topic()?;
        }
        let partition = read(self)?;
        self.partitions_left -= 1;
        if self.partitions_left == 0 {
            end_struct(&mut self.reader, self.encoding)?;
        }
        Ok(Some(partition))
    }

    fn enter_topic(&mut self) -> Result<(), DecodeError> {
        self.topics_left -= 1;
        self.topic = TopicPlace::read(&mut self.reader, self.version, self.encoding)?;
        // The smaller of the two kinds of partition; each is read in full before the next is believed.
        self.partitions_left = count(&mut self.reader, self.encoding, PARTITION_SIZE)?;
        if self.partitions_left == 0 {
            return end_struct(&mut self.reader, self.encoding);
        }
        self.topics_seen += 1;
        Ok(())
    }

    /// Walks to the end of the list; the reader behind it, its topics, its partitions.
    fn finish<T>(
        mut self,
        read: impl Fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<(Reader, usize, usize), DecodeError> {
        let mut partitions = 0;
        while self.step(&read)?.is_some() {
            partitions += 1;
        }
        Ok((self.reader, self.topics_seen, partitions))
    }

    fn forget(&mut self) -> Result<i32, DecodeError> {
        self.reader.i32()
    }

    fn fetch(&mut self) -> Result<Asked, DecodeError> {
        let (reader, version) = (&mut self.reader, self.version);
        let mut asked = Asked {
            partition: reader.i32()?,
            current_leader_epoch: if version >= 9 { reader.i32()? } else { -1 },
            fetch_offset: reader.i64()?,
            last_fetched_epoch: if version >= 12 { reader.i32()? } else { -1 },
            log_start_offset: if version >= 5 { reader.i64()? } else { -1 },
            partition_max_bytes: reader.i32()?,
            replica_directory_id: Uuid::ZERO,
            high_watermark: i64::MAX,
        };
        if self.encoding.is_flexible() {
            reader.tagged(|tag, reader| {
                match tag {
                    0 if version >= 17 => asked.replica_directory_id = reader.uuid()?,
                    1 if version >= 18 => asked.high_watermark = reader.i64()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(asked)
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
    use crate::messages::fetch::{
        RequestForgottenTopicsData, RequestReplicaState, RequestTopics, RequestTopicsPartitions,
    };
    use crate::primitives::Text;

    fn name_and_id(topic: TopicRef<'_>) -> (Text, Uuid) {
        match topic {
            TopicRef::Name(name) => (Text::from(name.to_owned()), Uuid::ZERO),
            TopicRef::Id(id) => (Text::empty(), id),
        }
    }

    /// The request that a cursor sees, one entry of a topic for each partition.
    fn by_cursor(body: Bytes, version: i16) -> Result<Request, DecodeError> {
        let cursor = FetchCursor::parse(Reader::new(body), version)?;
        assert_eq!(cursor.partitions().count(), cursor.partition_count());
        assert!(cursor.topic_count() <= cursor.partition_count());
        let state = RequestReplicaState {
            replica_id: cursor.replica_id(),
            replica_epoch: cursor.replica_epoch(),
        };
        Ok(Request {
            cluster_id: cursor.cluster_id().map(|id| Text::from(id.to_owned())),
            replica_id: if version <= 14 {
                cursor.replica_id()
            } else {
                -1
            },
            replica_state: if version <= 14 {
                RequestReplicaState::default()
            } else {
                state
            },
            max_wait_ms: cursor.max_wait_ms(),
            min_bytes: cursor.min_bytes(),
            max_bytes: cursor.max_bytes(),
            isolation_level: cursor.isolation_level(),
            session_id: cursor.session_id(),
            session_epoch: cursor.session_epoch(),
            topics: cursor.partitions().map(topic).collect(),
            forgotten_topics_data: cursor.forgotten().map(forgotten).collect(),
            rack_id: Text::from(cursor.rack_id().to_owned()),
        })
    }

    fn topic(asked: FetchPartition<'_>) -> RequestTopics {
        let (topic, topic_id) = name_and_id(asked.topic);
        let partition = RequestTopicsPartitions {
            partition: asked.partition,
            current_leader_epoch: asked.current_leader_epoch,
            fetch_offset: asked.fetch_offset,
            last_fetched_epoch: asked.last_fetched_epoch,
            log_start_offset: asked.log_start_offset,
            partition_max_bytes: asked.partition_max_bytes,
            replica_directory_id: asked.replica_directory_id,
            high_watermark: asked.high_watermark,
        };
        RequestTopics {
            topic,
            topic_id,
            partitions: vec![partition],
        }
    }

    fn forgotten((topic, partition): (TopicRef<'_>, i32)) -> RequestForgottenTopicsData {
        let (topic, topic_id) = name_and_id(topic);
        RequestForgottenTopicsData {
            topic,
            topic_id,
            partitions: vec![partition],
        }
    }

    fn by_codec(body: Bytes, version: i16) -> Result<Request, DecodeError> {
        let mut request = Request::decode(&mut Reader::new(body), version)?;
        let topics = std::mem::take(&mut request.topics).into_iter();
        let split = |topic: RequestTopics| {
            let partitions = topic.partitions.clone().into_iter();
            partitions.map(move |partition| RequestTopics {
                partitions: vec![partition],
                ..topic.clone()
            })
        };
        request.topics = topics.flat_map(split).collect();
        let forgotten = std::mem::take(&mut request.forgotten_topics_data).into_iter();
        let split = |topic: RequestForgottenTopicsData| {
            let partitions = topic.partitions.clone().into_iter();
            partitions.map(move |partition| RequestForgottenTopicsData {
                partitions: vec![partition],
                ..topic.clone()
            })
        };
        request.forgotten_topics_data = forgotten.flat_map(split).collect();
        Ok(request)
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
        for version in [0, 3, 19] {
            let refused = FetchCursor::parse(Reader::new(Bytes::from_static(&[0; 64])), version);
            assert!(matches!(refused, Err(DecodeError::UnknownVersion { .. })));
        }
    }
}

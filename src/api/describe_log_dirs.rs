//! DescribeLogDirs (key 35), versions 1 to 5. v2 flexible, v3 top-level error, v4 total and usable bytes, v5 cordoned (never so here). Rules: D-7.
//!
//! Sizes come from the owners, directories from the engine. A partition whose log is still being recovered is left out.

use std::collections::BTreeMap;

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::{ShardId, Text, TopicPartition};
use corelog_shards::base::time::Mono;
use corelog_shards::metadata::Image;
use corelog_shards::part::{DescribedLog, Part, Reply};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::describe_log_dirs::{
    Request, RequestTopics, Response, ResponseResults, ResponseResultsTopics,
    ResponseResultsTopicsPartitions,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, DirectoryView, Joins, Parts, Split, Step};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let first = parts.len();
    match &request.topics {
        None => parts
            .extend((0..cx.image.shards).map(|shard| (ShardId(shard), Part::DescribeLogs(None)))),
        Some(topics) => {
            let by_owner = by_owner(cx.image, topics);
            parts.extend(
                by_owner
                    .into_iter()
                    .map(|(shard, named)| (shard, Part::DescribeLogs(Some(named)))),
            );
        }
    }
    let pending = Pending {
        header: header.clone(),
        logs: Vec::new(),
        outstanding: parts.len() - first,
    };
    if pending.outstanding == 0 {
        pending.write(cx, answer);
        return Ok(Split::Ready);
    }
    Ok(Split::Wait(super::Pending::other(pending)))
}

/// What is not there is not in the answer either.
fn by_owner(image: &Image, topics: &[RequestTopics]) -> BTreeMap<ShardId, Vec<TopicPartition>> {
    let mut by_owner = BTreeMap::<ShardId, Vec<TopicPartition>>::new();
    for named in topics {
        let Some(topic) = image.topic(&named.topic) else {
            continue;
        };
        for &partition in &named.partitions {
            let id = TopicPartition {
                topic_id: topic.id,
                partition,
            };
            if let Some(meta) = image.partition(id) {
                by_owner.entry(meta.owner).or_default().push(id);
            }
        }
    }
    by_owner
}

struct Pending {
    header: RequestHeader,
    logs: Vec<DescribedLog>,
    outstanding: usize,
}

impl Joins for Pending {
    fn on_reply(
        &mut self,
        cx: &Context<'_>,
        _part: usize,
        reply: Reply,
        _parts: &mut Parts,
        answer: &mut Answer<'_>,
    ) -> Step {
        let Reply::DescribeLogs(logs) = reply else {
            return Step::Wait;
        };
        self.logs.extend(logs);
        self.outstanding -= 1;
        if self.outstanding > 0 {
            return Step::Wait;
        }
        // The answer does not depend on which owner was faster.
        self.logs.sort_unstable_by_key(|described| described.log);
        self.write(cx, answer);
        Step::Done
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn on_deadline(
        &mut self,
        _cx: &Context<'_>,
        _parts: &mut Parts,
        _answer: &mut Answer<'_>,
    ) -> Step {
        Step::Wait
    }
}

impl Pending {
    fn write(&self, cx: &Context<'_>, answer: &mut Answer<'_>) {
        let directories = (0_u16..).zip(&cx.directories.list);
        let results = directories
            .map(|(number, directory)| self.result(cx, number, directory))
            .collect();
        let response = Response {
            throttle_time_ms: 0,
            error_code: ErrorCode::NONE.0,
            results,
        };
        answer.write(&self.header, |out| {
            response.encode(out, self.header.api_version);
        });
    }

    fn result(&self, cx: &Context<'_>, number: u16, directory: &DirectoryView) -> ResponseResults {
        let code = if directory.offline {
            ErrorCode::KAFKA_STORAGE_ERROR
        } else {
            ErrorCode::NONE
        };
        let mut topics = BTreeMap::<&str, ResponseResultsTopics>::new();
        let here =
            |log: &&DescribedLog| cx.directories.of.get(&log.log).copied().unwrap_or(0) == number;
        for log in self.logs.iter().filter(here).filter(|_| !directory.offline) {
            let Some(topic) = cx.image.topic_by_id(log.log.topic_id) else {
                continue;
            };
            let partitions = &mut topics
                .entry(&topic.name)
                .or_insert_with(|| topic_result(&topic.name))
                .partitions;
            partitions.push(ResponseResultsTopicsPartitions {
                partition_index: log.log.partition,
                partition_size: i64::try_from(log.size_bytes).unwrap_or(i64::MAX),
                // What a replica lacks to the watermark; the only replica lacks nothing.
                offset_lag: (log.high_watermark - log.log_end).max(0),
                is_future_key: false,
            });
        }
        ResponseResults {
            error_code: code.0,
            log_dir: directory.path.clone(),
            topics: topics.into_values().collect(),
            total_bytes: directory.total_bytes,
            usable_bytes: directory.usable_bytes,
            is_cordoned: false,
        }
    }
}

fn topic_result(name: &Text) -> ResponseResultsTopics {
    ResponseResultsTopics {
        name: name.clone(),
        partitions: Vec::new(),
    }
}

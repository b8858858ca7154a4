//! DescribeTopicPartitions (key 75), version 0. Flexible. Topics by name, in pages. Rules: M-9.

use std::collections::BTreeSet;

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::controller::topic_name;
use corelog_shards::metadata::{PartitionMeta, Topic, is_internal};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::describe_topic_partitions::{
    Request, Response, ResponseNextCursor, ResponseTopics, ResponseTopicsPartitions,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split, topology};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let response = describe(cx, &request);
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

fn describe(cx: &Context<'_>, request: &Request) -> Response {
    let (from_topic, from_partition) = match &request.cursor {
        Some(cursor) if cursor.partition_index < 0 => return refuse(request),
        Some(cursor) => (cursor.topic_name.clone(), cursor.partition_index as usize),
        None => (Text::empty(), 0),
    };
    let names: BTreeSet<Text> = if request.topics.is_empty() {
        cx.image.topics().map(|topic| topic.name.clone()).collect()
    } else {
        request
            .topics
            .iter()
            .map(|topic| topic.name.clone())
            .collect()
    };
    let most = cx
        .broker
        .max_request_partition_size_limit
        .min(request.response_partition_limit);
    let mut page = Page {
        response: Response::default(),
        room: usize::try_from(most).unwrap_or(0).max(1),
    };
    for name in names.range(from_topic.clone()..) {
        let first = if *name == from_topic {
            from_partition
        } else {
            0
        };
        if !page.add(cx, name, first) {
            break;
        }
    }
    page.response
}

/// A cursor that can't have come from here.
fn refuse(request: &Request) -> Response {
    let refused = request.topics.iter().map(|topic| ResponseTopics {
        name: Some(topic.name.clone()),
        error_code: ErrorCode::INVALID_REQUEST.0,
        ..ResponseTopics::default()
    });
    Response {
        topics: refused.collect(),
        ..Response::default()
    }
}

struct Page {
    response: Response,
    /// Partitions that the page still takes.
    room: usize,
}

impl Page {
    /// Adds the partitions of a topic from `first` on. False: the page is full, and the cursor says where the next one begins.
    fn add(&mut self, cx: &Context<'_>, name: &Text, first: usize) -> bool {
        if self.room == 0 {
            return self.end_at(name, 0);
        }
        let Some(topic) = cx.image.topic(name) else {
            self.response.topics.push(missing(name));
            return true;
        };
        let rest = topic.partitions.get(first..).unwrap_or_default();
        let taken = rest.len().min(self.room);
        let partitions = rest[..taken].iter().zip(first as i32..);
        self.response.topics.push(ResponseTopics {
            partitions: partitions
                .map(|(meta, index)| partition(cx, index, meta))
                .collect(),
            ..found(topic)
        });
        self.room -= taken;
        if taken < rest.len() {
            return self.end_at(name, first + taken);
        }
        true
    }

    fn end_at(&mut self, name: &Text, partition: usize) -> bool {
        self.response.next_cursor = Some(ResponseNextCursor {
            topic_name: name.clone(),
            partition_index: partition as i32,
        });
        false
    }
}

fn missing(name: &Text) -> ResponseTopics {
    let code = match topic_name::check(name) {
        Ok(()) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        Err(refusal) => refusal.code,
    };
    ResponseTopics {
        name: Some(name.clone()),
        error_code: code.0,
        is_internal: is_internal(name),
        ..ResponseTopics::default()
    }
}

fn found(topic: &Topic) -> ResponseTopics {
    ResponseTopics {
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        is_internal: is_internal(&topic.name),
        topic_authorized_operations: topology::TOPIC_OPERATIONS,
        ..ResponseTopics::default()
    }
}

fn partition(cx: &Context<'_>, index: i32, meta: &PartitionMeta) -> ResponseTopicsPartitions {
    let view = topology::partition(cx, meta, ErrorCode::LISTENER_NOT_FOUND);
    ResponseTopicsPartitions {
        error_code: view.code.0,
        partition_index: index,
        leader_id: view.leader_id,
        leader_epoch: meta.leader_epoch,
        replica_nodes: view.replicas,
        isr_nodes: view.isr,
        eligible_leader_replicas: Some(meta.elr.to_vec()),
        last_known_elr: Some(meta.last_known_elr.to_vec()),
        offline_replicas: view.offline,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;
    use corelog_wire::messages::describe_topic_partitions::{RequestCursor, RequestTopics};

    fn ask(
        bench: &Bench,
        topics: &[&'static str],
        limit: i32,
        cursor: Option<(&str, i32)>,
    ) -> Response {
        let request = Request {
            topics: topics
                .iter()
                .map(|name| RequestTopics {
                    name: Text::from_static(name),
                })
                .collect(),
            response_partition_limit: limit,
            cursor: cursor.map(|(name, partition_index)| RequestCursor {
                topic_name: Text::from(name.to_owned()),
                partition_index,
            }),
        };
        call(
            bench,
            75,
            0,
            |out| request.encode(out, 0),
            |reader| Response::decode(reader, 0),
        )
    }

    fn pages(bench: &Bench, topics: &[&'static str], limit: i32) -> Vec<Vec<(String, Vec<i32>)>> {
        let mut pages = Vec::new();
        let mut cursor: Option<(String, i32)> = None;
        loop {
            let from = cursor
                .as_ref()
                .map(|(name, partition)| (&**name, *partition));
            let response = ask(bench, topics, limit, from);
            let row = |topic: &ResponseTopics| {
                let name = topic
                    .name
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                (
                    name,
                    topic
                        .partitions
                        .iter()
                        .map(|partition| partition.partition_index)
                        .collect(),
                )
            };
            pages.push(response.topics.iter().map(row).collect());
            match response.next_cursor {
                Some(next) => cursor = Some((next.topic_name.to_string(), next.partition_index)),
                None => return pages,
            }
        }
    }

    #[test]
    fn m9_topics_come_sorted_and_in_pages() {
        let bench = Bench::new().topic("b", 2).topic("a", 3).topic("c", 1);
        let row = |name: &str, partitions: &[i32]| (name.to_owned(), partitions.to_vec());
        assert_eq!(
            pages(&bench, &[], 2),
            [
                vec![row("a", &[0, 1])],
                vec![row("a", &[2]), row("b", &[0])],
                vec![row("b", &[1]), row("c", &[0])],
            ]
        );
        assert_eq!(
            pages(&bench, &["c", "a"], 3),
            [vec![row("a", &[0, 1, 2])], vec![row("c", &[0])]]
        );
    }

    #[test]
    fn m9_unknown_and_bad_names_have_their_codes() {
        let bench = Bench::new().topic("a", 1);
        let response = ask(&bench, &["a", "nope", "b d"], 2000, None);
        let codes: Vec<i16> = response
            .topics
            .iter()
            .map(|topic| topic.error_code)
            .collect();
        assert_eq!(
            codes,
            [
                0,
                ErrorCode::INVALID_TOPIC_EXCEPTION.0,
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0
            ]
        );
        // Y-7: 3 to 8, 10 and 11.
        assert_eq!(
            response.topics[0].topic_authorized_operations,
            0b1101_1111_1000
        );
    }

    #[test]
    fn m9_the_brokers_limit_holds_and_a_bad_cursor_is_refused() {
        let bench = Bench::new().topic("a", 5);
        let response = ask(&bench, &["a"], 0, None);
        assert_eq!(response.topics[0].partitions.len(), 1, "at least one");
        let response = ask(&bench, &["a"], 2000, Some(("a", -1)));
        assert_eq!(response.topics[0].error_code, ErrorCode::INVALID_REQUEST.0);
        let response = ask(&bench, &["a"], 2000, Some(("a", 99)));
        assert!(response.topics[0].partitions.is_empty());
    }
}

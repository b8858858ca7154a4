//! ListPartitionReassignments (key 46), version 0. Flexible. Rules: D-11: only what is under way is listed, and on one broker nothing is.

use bytes::Bytes;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::list_partition_reassignments::{
    Request, Response, ResponseTopics, ResponseTopicsPartitions,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split};

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let wanted = |name: &str, partition: i32| match &request.topics {
        None => true,
        Some(topics) => topics
            .iter()
            .any(|topic| &*topic.name == name && topic.partition_indexes.contains(&partition)),
    };
    let topics = cx.image.sorted_topics().into_iter().map(|topic| {
        let moving = (0_i32..)
            .zip(&topic.partitions)
            .filter(|(_, meta)| !meta.adding.is_empty() || !meta.removing.is_empty())
            .filter(|(partition, _)| wanted(&topic.name, *partition));
        ResponseTopics {
            name: topic.name.clone(),
            partitions: moving
                .map(|(partition_index, meta)| ResponseTopicsPartitions {
                    partition_index,
                    replicas: meta.replicas.to_vec(),
                    adding_replicas: meta.adding.to_vec(),
                    removing_replicas: meta.removing.to_vec(),
                })
                .collect(),
        }
    });
    let response = Response {
        topics: topics
            .filter(|topic| !topic.partitions.is_empty())
            .collect(),
        ..Response::default()
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;

    #[test]
    fn nothing_moves_on_one_broker() {
        let bench = Bench::new().topic("a", 1);
        let response = call(
            &bench,
            46,
            0,
            |out| Request::default().encode(out, 0),
            |reader| Response::decode(reader, 0),
        );
        assert_eq!((response.error_code, response.topics.len()), (0, 0));
    }
}

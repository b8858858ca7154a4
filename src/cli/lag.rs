//! How old a record is that a group has not read yet.

use corelog_wire::batch::{BatchIter, RecordIter, TimestampType, decoded_records};
use corelog_wire::messages::fetch;

use super::client::check;
use super::cluster::{Cluster, TopicView};
use super::failure::Failure;

/// Enough for the batch that holds the record: one whole batch comes in any case (F-3).
const FETCH_BYTES: i32 = 64 << 10;
/// Memory that one batch may unfold to.
const DECOMPRESSED_MAX: usize = 256 << 20;

/// The timestamp of the first record at `offset` or after; `None` when there is none yet.
pub(super) fn timestamp_at(
    cluster: &mut Cluster,
    topic: &TopicView,
    partition: i32,
    offset: i64,
) -> Result<Option<i64>, Failure> {
    let request = fetch::Request {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: FETCH_BYTES,
        // No session: the request stands for itself (S-1).
        session_epoch: -1,
        topics: vec![fetch::RequestTopics {
            topic: topic.name.clone(),
            topic_id: topic.id,
            partitions: vec![fetch::RequestTopicsPartitions {
                partition,
                fetch_offset: offset,
                partition_max_bytes: FETCH_BYTES,
                ..fetch::RequestTopicsPartitions::default()
            }],
        }],
        ..fetch::Request::default()
    };
    let response = cluster.patiently(|cluster| {
        let (response, _) = cluster.leader(topic, partition)?.call(&request)?;
        check("cannot fetch", response.error_code, None)?;
        let answers = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions);
        for answer in answers {
            let what = format!("cannot read partition {partition} of topic {}", topic.name);
            check(what, answer.error_code, None)?;
        }
        Ok(response)
    })?;
    let answers = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions);
    let records = answers.filter_map(|answer| answer.records.as_ref());
    Ok(records
        .into_iter()
        .find_map(|bytes| first_timestamp(bytes, offset)))
}

fn first_timestamp(bytes: &[u8], offset: i64) -> Option<i64> {
    for batch in BatchIter::new(bytes) {
        let batch = batch.ok()?;
        let header = &batch.header;
        if header.next_offset() <= offset || header.is_control() {
            continue;
        }
        if header.timestamp_type() == TimestampType::LogAppendTime {
            return Some(header.max_timestamp);
        }
        let records = decoded_records(header, batch.bytes, DECOMPRESSED_MAX).ok()?;
        let count = usize::try_from(header.record_count).unwrap_or(0);
        let mut timestamps = RecordIter::new(&records, count).map_while(Result::ok);
        let found =
            timestamps.find(|record| header.base_offset + i64::from(record.offset_delta) >= offset);
        if let Some(record) = found {
            return Some(header.base_timestamp.wrapping_add(record.timestamp_delta));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use corelog_wire::batch::{BatchBuilder, NewRecord};
    use corelog_wire::compress::Codec;

    use super::*;

    #[test]
    fn the_record_itself_counts_and_not_its_batch() {
        let mut builder = BatchBuilder::new(Codec::Gzip);
        for timestamp_ms in [100, 200, 300] {
            builder.add(&NewRecord {
                timestamp_ms,
                key: None,
                value: None,
                headers: &[],
            });
        }
        let batch = builder.build().unwrap();
        assert_eq!(first_timestamp(&batch, 0), Some(100));
        assert_eq!(first_timestamp(&batch, 2), Some(300));
        assert_eq!(first_timestamp(&batch, 3), None);
        assert_eq!(first_timestamp(&batch[..20], 0), None);
    }
}

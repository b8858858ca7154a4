//! Parts that nobody may execute: which partitions they are about, and the answer that says no to all of them.

use smallvec::SmallVec;

use super::produce;
use crate::base::error_code::ErrorCode;
use crate::part::{
    DeletedRecords, DescribedProducers, EpochEnded, FetchPeeked, Fetched, ListedOffset, Part,
    PartitionRef, Reply,
};

/// The partitions that a part names with the version from which they are here.
pub fn partitions_of(part: &Part) -> SmallVec<[PartitionRef; 4]> {
    match part {
        Part::Produce(produce) => produce
            .entries
            .iter()
            .map(|entry| entry.partition)
            .collect(),
        Part::FetchPeek(round) => round.entries.iter().map(|entry| entry.partition).collect(),
        Part::FetchCollect(round) => round
            .entries
            .iter()
            .map(|grant| grant.entry.partition)
            .collect(),
        Part::ListOffsets(entries) => entries.iter().map(|entry| entry.partition).collect(),
        Part::EpochEnd(entries) => entries.iter().map(|entry| entry.partition).collect(),
        Part::DeleteRecords(request) => request
            .entries
            .iter()
            .map(|(_, partition, _)| *partition)
            .collect(),
        Part::DescribeProducers(entries) => {
            entries.iter().map(|(_, partition)| *partition).collect()
        }
        Part::Group(request) => request.homes(),
        Part::SessionBegin(_)
        | Part::SessionEnd(_)
        | Part::DescribeLogs(_)
        | Part::Controller(_) => SmallVec::new(),
    }
}

/// `code` for every entry of a part; `None` for parts that are not about partitions.
pub fn refuse(part: &Part, code: ErrorCode) -> Option<Reply> {
    Some(match part {
        Part::Produce(produce) => Reply::Produce(
            produce
                .entries
                .iter()
                .map(|entry| produce::refused(entry.at, code, None))
                .collect(),
        ),
        Part::FetchPeek(round) => {
            let refused = |at| FetchPeeked {
                at,
                available: 0,
                immediate: true,
            };
            Reply::FetchPeek(
                round
                    .entries
                    .iter()
                    .map(|entry| refused(entry.at))
                    .collect(),
            )
        }
        Part::FetchCollect(round) => Reply::FetchCollect(
            round
                .entries
                .iter()
                .map(|grant| Fetched::error(grant.entry.at, code))
                .collect(),
        ),
        Part::ListOffsets(entries) => {
            let refused = |at| ListedOffset {
                at,
                code,
                timestamp: -1,
                offset: -1,
                leader_epoch: -1,
            };
            Reply::ListOffsets(entries.iter().map(|entry| refused(entry.at)).collect())
        }
        Part::EpochEnd(entries) => {
            let refused = |at| EpochEnded {
                at,
                code,
                epoch: -1,
                end_offset: -1,
            };
            Reply::EpochEnd(entries.iter().map(|entry| refused(entry.at)).collect())
        }
        Part::DeleteRecords(request) => {
            let refused = |at| DeletedRecords {
                at,
                code,
                low_watermark: -1,
            };
            Reply::DeleteRecords(
                request
                    .entries
                    .iter()
                    .map(|(at, ..)| refused(*at))
                    .collect(),
            )
        }
        Part::DescribeProducers(entries) => {
            let refused = |at| DescribedProducers {
                at,
                code,
                producers: Vec::new(),
            };
            Reply::DescribeProducers(entries.iter().map(|(at, _)| refused(*at)).collect())
        }
        Part::Group(request) => Reply::Group(Box::new(request.unserved(code))),
        Part::SessionBegin(_)
        | Part::SessionEnd(_)
        | Part::DescribeLogs(_)
        | Part::Controller(_) => return None,
    })
}

//! What requests count, whichever engine carries them.

use bytes::Bytes;
use corelog_shards::part::{Part, Reply};
use corelog_wire::batch::BatchHeader;

use super::requests::Carry;
use crate::api::table;
use crate::metrics::{Core, Family};

/// Records on their way to their partitions.
pub(super) fn carry(counters: &Core, item: &Carry) {
    let Carry::Part {
        part: Part::Produce(produce),
        ..
    } = item
    else {
        return;
    };
    for records in produce
        .entries
        .iter()
        .filter_map(|entry| entry.records.as_ref())
    {
        let count = BatchHeader::parse(records).map_or(0, |header| header.record_count.max(0));
        counters.records_in.add(count as u64);
        counters.record_bytes_in.add(records.len() as u64);
    }
}

/// Records on their way to a client, and appends that were refused.
pub(super) fn reply(counters: &Core, reply: &Reply) {
    match reply {
        Reply::FetchCollect(fetched) => {
            let bytes = fetched
                .iter()
                .flat_map(|fetched| &fetched.records)
                .map(Bytes::len);
            counters.record_bytes_out.add(bytes.sum::<usize>() as u64);
        }
        Reply::Produce(produced) if produced.iter().any(|produced| produced.code.is_error()) => {
            counters.request_errors.of(table::PRODUCE).increment();
        }
        _ => {}
    }
}

pub(super) fn family(api_key: i16) -> Family {
    match api_key {
        table::PRODUCE => Family::Produce,
        table::FETCH => Family::Fetch,
        _ => Family::Other,
    }
}

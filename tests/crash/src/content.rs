//! What a record holds: its serial number within its partition and bytes that follow from both, so that a record which is read says which one it
//! is and whether it is whole.

use std::time::{SystemTime, UNIX_EPOCH};

use corelog_wire::batch::{BatchBuilder, NewRecord};
use corelog_wire::compress::Codec;

use crate::random::Random;

/// A batch on its way: `count` records from serial number `first`.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) bytes: bytes::Bytes,
}

#[derive(Clone, Copy)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// The value of record `serial` of partition `lane`: both numbers, then a filler whose length follows from them.
pub(crate) fn value(lane: u32, serial: u64) -> Vec<u8> {
    let mut random = Random::new(serial.wrapping_mul(31).wrapping_add(u64::from(lane)));
    let length = match random.within(0, 200) {
        0 => random.within(0, 60_000),
        1..20 => random.within(0, 3_000),
        _ => random.within(0, 120),
    };
    let mut out = Vec::with_capacity(12 + length as usize);
    out.extend_from_slice(&lane.to_be_bytes());
    out.extend_from_slice(&serial.to_be_bytes());
    out.extend((0..length).map(|i| (serial as u8).wrapping_add(i as u8)));
    out
}

/// The serial number of a record of `lane`, if its value is whole.
pub(crate) fn serial_of(lane: u32, found: &[u8]) -> Option<u64> {
    let serial = u64::from_be_bytes(found.get(4..12)?.try_into().ok()?);
    (value(lane, serial) == found).then_some(serial)
}

/// The next batch of a partition; a small one mostly, seldom a large one.
pub(crate) fn batch(
    random: &mut Random,
    lane: u32,
    first: u64,
    producer: Option<Producer>,
) -> std::io::Result<Batch> {
    let count = match random.within(0, 20) {
        0 => random.within(50, 400),
        1..8 => 1,
        _ => random.within(1, 30),
    } as u32;
    let codec = match random.within(0, 12) {
        0 => Codec::Gzip,
        1 => Codec::Lz4,
        2 => Codec::Zstd,
        3 => Codec::Snappy,
        _ => Codec::None,
    };
    // A producer whose last record is old has expired, and its sequence numbers are forgotten.
    let timestamp_ms = now_ms();
    let mut builder = BatchBuilder::new(codec);
    if let Some(producer) = producer {
        // Kafka's sequence numbers wrap at i32::MAX; no run of this program gets there.
        builder = builder.producer(producer.id, producer.epoch, first as i32);
    }
    for serial in first..first + u64::from(count) {
        builder.add(&NewRecord {
            timestamp_ms,
            key: None,
            value: Some(&value(lane, serial)),
            headers: &[],
        });
    }
    Ok(Batch {
        first,
        count,
        bytes: builder.build()?,
    })
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_which_one_it_is_only_when_it_is_whole() {
        let mut whole = value(3, 77);
        assert_eq!(serial_of(3, &whole), Some(77));
        assert_eq!(serial_of(4, &whole), None);
        whole.push(0);
        assert_eq!(serial_of(3, &whole), None);
        assert_eq!(serial_of(3, b"short"), None);
    }
}

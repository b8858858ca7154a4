//! Writing a client's batch again: with the topic's codec, or with offset deltas as they should be.

use bytes::{Bytes, BytesMut};

use super::builder::{header_room, seal};
use super::header::{BatchHeader, HEADER_LEN};
use super::stream::{RecordStream, StreamError};
use super::validate::InvalidBatch;
use crate::compress::{Codec, Writer};

/// Copies the records of a batch that was checked through another codec, one after the other, with the offset deltas 0, 1,
/// 2. `header` is as it shall be but for its codec. No more is held than the result, which may have `bytes_max` bytes.
pub(super) fn rewrite(
    batch: &[u8],
    header: &BatchHeader,
    from: Codec,
    (to, level): (Codec, i32),
    bytes_max: usize,
) -> Result<Bytes, InvalidBatch> {
    let stored = &batch[HEADER_LEN..];
    let mut records = RecordStream::new(from, stored, header.record_count)?;
    let room = header_room(BytesMut::with_capacity(batch.len()));
    let mut writer = Writer::new(to, level, room).map_err(StreamError::from)?;
    let mut index = 0;
    while records.renumber_next(index, &mut writer)? {
        index += 1;
        check_size(writer.len_so_far(), bytes_max)?;
    }
    let rewritten = writer.finish().map_err(StreamError::from)?;
    check_size(rewritten.len(), bytes_max)?;
    let mut header = *header;
    header.set_codec(to);
    Ok(seal(header, rewritten).map_err(StreamError::from)?)
}

pub(super) fn check_size(bytes: usize, max: usize) -> Result<(), InvalidBatch> {
    if bytes > max {
        return Err(InvalidBatch::TooLarge { bytes, max });
    }
    Ok(())
}

//! Walking records that are compressed, without ever holding them: a buffer of fixed size slides over the decompressed
//! bytes, and keys, values and headers that do not fit are skipped as they come.

use std::io::{self, Read};

use super::records::{RECORD_LEN_MIN, RecordError, RecordRef};
use super::varint::{Cursor, put_varint};
use crate::compress::{self, Codec};

/// Decompressed bytes held at a time: more makes few records faster to walk, less makes many slower.
const BUFFER_LEN: usize = 32 * 1024;

/// The longest varint.
const VARLONG_LEN_MAX: usize = 10;

/// What the walk tells of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) has_key: bool,
}

/// Why records cannot be walked.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The compressed data is damaged.
    #[error(transparent)]
    Codec(#[from] io::Error),
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> io::Error {
        match error {
            StreamError::Record(error) => io::Error::new(io::ErrorKind::InvalidData, error),
            StreamError::Codec(error) => error,
        }
    }
}

pub(super) struct RecordStream<'a> {
    source: Box<dyn Read + 'a>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    left: i32,
}

impl<'a> RecordStream<'a> {
    /// `stored` is what follows the header of a batch of `codec` with `count` records.
    pub(super) fn new(codec: Codec, stored: &'a [u8], count: i32) -> Result<Self, StreamError> {
        Self::with_buffer(codec, stored, count, BUFFER_LEN)
    }

    fn with_buffer(
        codec: Codec,
        stored: &'a [u8],
        count: i32,
        buffer_len: usize,
    ) -> Result<Self, StreamError> {
        Ok(RecordStream {
            source: compress::reader(codec, stored)?,
            buffer: vec![0; buffer_len].into_boxed_slice(),
            start: 0,
            end: 0,
            left: count.max(0),
        })
    }

    /// The next record; None after the promised number of them, behind which nothing may be left.
    pub(super) fn next(&mut self) -> Result<Option<RecordHead>, StreamError> {
        let Some(length) = self.next_length()? else {
            return Ok(None);
        };
        if length > self.buffer.len() {
            return self.skim(length).map(Some);
        }
        self.fill(length)?;
        if self.buffered().len() < length {
            return Err(RecordError::Truncated.into());
        }
        let record = RecordRef::parse(&self.buffered()[..length])?;
        let head = RecordHead {
            timestamp_delta: record.timestamp_delta,
            offset_delta: record.offset_delta,
            has_key: record.key.is_some(),
        };
        self.start += length;
        Ok(Some(head))
    }

    /// Copies the next record to `out` with another offset delta; false after the last. The record has been walked
    /// before: what lies behind the deltas is not looked at.
    pub(super) fn renumber_next(
        &mut self,
        offset_delta: i32,
        out: &mut compress::Writer,
    ) -> Result<bool, StreamError> {
        let Some(length) = self.next_length()? else {
            return Ok(false);
        };
        let mut left = length;
        let mut deltas = vec![self.byte(&mut left)?];
        put_varint(&mut deltas, self.varlong(&mut left)?);
        self.varint(&mut left)?;
        put_varint(&mut deltas, i64::from(offset_delta));
        let mut head = Vec::with_capacity(2 * VARLONG_LEN_MAX);
        put_varint(&mut head, (deltas.len() + left) as i64);
        head.extend_from_slice(&deltas);
        out.write(&head)?;
        self.pass(left, |piece| out.write(piece))?;
        Ok(true)
    }

    /// The length of the next record, which is consumed.
    fn next_length(&mut self) -> Result<Option<usize>, StreamError> {
        self.fill(VARLONG_LEN_MAX)?;
        if self.left == 0 {
            return if self.buffered().is_empty() {
                Ok(None)
            } else {
                Err(RecordError::AfterLast.into())
            };
        }
        self.left -= 1;
        let mut cursor = Cursor::new(self.buffered());
        let length = cursor.varint()?;
        self.start = self.end - cursor.rest.len();
        if length < RECORD_LEN_MIN {
            return Err(RecordError::Length(i64::from(length)).into());
        }
        Ok(Some(length as usize))
    }

    /// Walks a record that is longer than the buffer.
    fn skim(&mut self, length: usize) -> Result<RecordHead, StreamError> {
        let mut left = length;
        self.byte(&mut left)?;
        let timestamp_delta = self.varlong(&mut left)?;
        let offset_delta = self.varint(&mut left)?;
        let has_key = self.skip_nullable(&mut left)?;
        self.skip_nullable(&mut left)?;
        let headers = self.varint(&mut left)?;
        if headers < 0 || headers as usize > left / 2 {
            return Err(RecordError::HeaderCount(i64::from(headers)).into());
        }
        for _ in 0..headers {
            if !self.skip_nullable(&mut left)? {
                return Err(RecordError::NullHeaderKey.into());
            }
            self.skip_nullable(&mut left)?;
        }
        if left > 0 {
            return Err(RecordError::Trailing.into());
        }
        Ok(RecordHead {
            timestamp_delta,
            offset_delta,
            has_key,
        })
    }

    /// Skips a field behind its length and says whether it was there.
    fn skip_nullable(&mut self, left: &mut usize) -> Result<bool, StreamError> {
        let length = self.varint(left)?;
        let Ok(length) = usize::try_from(length) else {
            return if length == -1 {
                Ok(false)
            } else {
                Err(RecordError::Length(i64::from(length)).into())
            };
        };
        *left = left.checked_sub(length).ok_or(RecordError::Truncated)?;
        self.pass(length, |_| Ok(()))?;
        Ok(true)
    }

    fn byte(&mut self, left: &mut usize) -> Result<u8, StreamError> {
        self.field(left, |cursor| Ok(cursor.byte()?))
    }

    fn varint(&mut self, left: &mut usize) -> Result<i32, StreamError> {
        self.field(left, |cursor| Ok(cursor.varint()?))
    }

    fn varlong(&mut self, left: &mut usize) -> Result<i64, StreamError> {
        self.field(left, |cursor| Ok(cursor.varlong()?))
    }

    /// Reads one short field of a record of which `left` bytes are to come.
    fn field<T>(
        &mut self,
        left: &mut usize,
        read: impl FnOnce(&mut Cursor) -> Result<T, StreamError>,
    ) -> Result<T, StreamError> {
        self.fill(VARLONG_LEN_MAX)?;
        let visible = self.buffered().len().min(*left);
        let mut cursor = Cursor::new(&self.buffered()[..visible]);
        let value = read(&mut cursor)?;
        let taken = visible - cursor.rest.len();
        self.start += taken;
        *left -= taken;
        Ok(value)
    }

    /// Hands the next `count` bytes to `piece`, as they come.
    fn pass(
        &mut self,
        mut count: usize,
        mut piece: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), StreamError> {
        while count > 0 {
            self.fill(1)?;
            let ready = self.buffered().len().min(count);
            if ready == 0 {
                return Err(RecordError::Truncated.into());
            }
            piece(&self.buffered()[..ready])?;
            self.start += ready;
            count -= ready;
        }
        Ok(())
    }

    fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Makes at least `count` bytes ready, if the data has that many more.
    fn fill(&mut self, count: usize) -> Result<(), StreamError> {
        if self.end - self.start >= count {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < count {
            let read = self.source.read(&mut self.buffer[self.end..])?;
            if read == 0 {
                break;
            }
            self.end += read;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{BatchBuilder, HEADER_LEN, NewRecord, RecordIter};
    use super::*;

    type Heads = Vec<RecordHead>;

    /// The records up to the first error, and whether there was one.
    fn streamed(codec: Codec, stored: &[u8], count: i32, buffer_len: usize) -> (Heads, bool) {
        let mut stream = RecordStream::with_buffer(codec, stored, count, buffer_len).unwrap();
        let mut heads = Vec::new();
        loop {
            match stream.next() {
                Ok(Some(head)) => heads.push(head),
                Ok(None) => return (heads, false),
                Err(_) => return (heads, true),
            }
        }
    }

    fn iterated(section: &[u8], count: i32) -> (Heads, bool) {
        let mut heads = Vec::new();
        for record in RecordIter::new(section, count as usize) {
            let Ok(record) = record else {
                return (heads, true);
            };
            heads.push(RecordHead {
                timestamp_delta: record.timestamp_delta,
                offset_delta: record.offset_delta,
                has_key: record.key.is_some(),
            });
        }
        (heads, false)
    }

    type Record = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<Vec<u8>>);

    fn section(records: &[Record]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Codec::None);
        for (timestamp_ms, key, value, headers) in records {
            let headers: Vec<_> = headers
                .iter()
                .map(|value| ("name", (value.len() > 3).then_some(&value[..])))
                .collect();
            builder.add(&NewRecord {
                timestamp_ms: *timestamp_ms,
                key: key.as_deref(),
                value: value.as_deref(),
                headers: &headers,
            });
        }
        builder.build().unwrap()[HEADER_LEN..].to_vec()
    }

    fn records() -> impl Strategy<Value = Vec<Record>> {
        let bytes = || vec(any::<u8>(), 0..60);
        let optional = move || proptest::option::of(bytes());
        let headers = vec(vec(any::<u8>(), 0..8), 0..4);
        vec((any::<i64>(), optional(), optional(), headers), 1..20)
    }

    proptest! {
        /// However little the buffer holds, a stream sees what an iterator over the whole section sees, damage included.
        #[test]
        fn a_stream_sees_what_an_iterator_sees(
            records in records(),
            damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in proptest::option::of(any::<prop::sample::Index>()),
            buffer_len in VARLONG_LEN_MAX..100,
            miscount in -1..2_i32,
        ) {
            let mut section = section(&records);
            for (at, byte) in damage {
                let at = at.index(section.len());
                section[at] = byte;
            }
            if let Some(cut) = cut {
                section.truncate(cut.index(section.len()));
            }
            let count = records.len() as i32 + miscount;
            let expected = iterated(&section, count);
            prop_assert_eq!(&streamed(Codec::None, &section, count, buffer_len), &expected);
            prop_assert_eq!(&streamed(Codec::None, &section, count, BUFFER_LEN), &expected);
        }

        #[test]
        fn renumbering_changes_offset_deltas_and_nothing_else(records in records(), buffer_len in VARLONG_LEN_MAX..100) {
            let section = section(&records);
            let mut shifted = compress::Writer::new(Codec::None, 0, bytes::BytesMut::new()).unwrap();
            let mut stream = RecordStream::with_buffer(Codec::None, &section, records.len() as i32, buffer_len).unwrap();
            let mut delta = 1_000_000;
            while stream.renumber_next(delta, &mut shifted).unwrap() {
                delta -= 999;
            }
            let shifted = shifted.finish().unwrap();
            prop_assert_ne!(&shifted[..], &section[..]);
            let mut back = compress::Writer::new(Codec::None, 0, bytes::BytesMut::new()).unwrap();
            let mut stream = RecordStream::with_buffer(Codec::None, &shifted, records.len() as i32, buffer_len).unwrap();
            let mut delta = 0;
            while stream.renumber_next(delta, &mut back).unwrap() {
                delta += 1;
            }
            prop_assert_eq!(&back.finish().unwrap()[..], &section[..]);
        }
    }
}

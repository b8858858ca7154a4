//! The records of a batch: strict reading, one at a time, without copying.

use std::borrow::Cow;
use std::io;

use super::header::{BatchHeader, HEADER_LEN};
use super::varint::Cursor;
use crate::compress;

/// What is wrong with a record. All of them make the batch CORRUPT or INVALID_RECORD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("a record ends before its fields do")]
    Truncated,
    #[error("a variable-length number is longer than its type")]
    Varint,
    #[error("a record has the impossible length {0}")]
    Length(i64),
    #[error("a record is longer than its fields")]
    Trailing,
    #[error("a header has no key")]
    NullHeaderKey,
    #[error("a record has the impossible number of headers {0}")]
    HeaderCount(i64),
    #[error("bytes follow the last record")]
    AfterLast,
}

/// A record as it lies in its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    pub attributes: i8,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub header_count: usize,
    headers: &'a [u8],
}

/// One header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Text by convention only: Kafka's broker does not look, so a log may hold anything.
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

impl<'a> RecordRef<'a> {
    /// The headers; they were checked when the record was read.
    pub fn headers(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut cursor = Cursor::new(self.headers);
        (0..self.header_count).map(move |_| {
            header(&mut cursor).expect("the headers were checked when the record was read")
        })
    }
}

/// Walks uncompressed records. Ends after `count` records or at the first error; bytes after the last record are an error.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    cursor: Cursor<'a>,
    left: usize,
    failed: bool,
}

impl<'a> RecordIter<'a> {
    pub fn new(records: &'a [u8], count: usize) -> RecordIter<'a> {
        RecordIter {
            cursor: Cursor::new(records),
            left: count,
            failed: false,
        }
    }

    #[inline]
    fn take_record(&mut self) -> Result<RecordRef<'a>, RecordError> {
        let length = self.cursor.varint()?;
        if length < RECORD_LEN_MIN {
            return Err(RecordError::Length(i64::from(length)));
        }
        RecordRef::parse(self.cursor.take(length as usize)?)
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordRef<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.left == 0 {
            if self.cursor.rest.is_empty() {
                return None;
            }
            self.failed = true;
            return Some(Err(RecordError::AfterLast));
        }
        self.left -= 1;
        let record = self.take_record();
        self.failed = record.is_err();
        Some(record)
    }
}

/// The fewest bytes of a record: its attributes and five fields of one byte.
pub(super) const RECORD_LEN_MIN: i32 = 6;

impl<'a> RecordRef<'a> {
    /// Reads the fields of one record, all of them; `body` is what the record's length covers.
    #[inline]
    pub(super) fn parse(body: &'a [u8]) -> Result<RecordRef<'a>, RecordError> {
        let mut cursor = Cursor::new(body);
        let attributes = cursor.byte()? as i8;
        let timestamp_delta = cursor.varlong()?;
        let offset_delta = cursor.varint()?;
        let key = nullable(&mut cursor)?;
        let value = nullable(&mut cursor)?;
        let count = cursor.varint()?;
        let headers = cursor.rest;
        if count != 0 || !headers.is_empty() {
            check_headers(cursor, count)?;
        }
        Ok(RecordRef {
            attributes,
            timestamp_delta,
            offset_delta,
            key,
            value,
            header_count: count as usize,
            headers,
        })
    }
}

#[inline]
fn nullable<'a>(cursor: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, RecordError> {
    match cursor.varint()? {
        -1 => Ok(None),
        length => {
            let length =
                usize::try_from(length).map_err(|_| RecordError::Length(i64::from(length)))?;
            cursor.take(length).map(Some)
        }
    }
}

fn header<'a>(cursor: &mut Cursor<'a>) -> Result<Header<'a>, RecordError> {
    let key = nullable(cursor)?.ok_or(RecordError::NullHeaderKey)?;
    Ok(Header {
        key,
        value: nullable(cursor)?,
    })
}

/// Walks the headers, so that nothing can go wrong when they are handed out; they fill the rest of the record.
fn check_headers(mut cursor: Cursor<'_>, count: i32) -> Result<(), RecordError> {
    // A header takes two bytes at least: a larger count is a lie.
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= cursor.rest.len() / 2)
        .ok_or(RecordError::HeaderCount(i64::from(count)))?;
    for _ in 0..count {
        header(&mut cursor)?;
    }
    if cursor.rest.is_empty() {
        Ok(())
    } else {
        Err(RecordError::Trailing)
    }
}

/// The records section of a whole batch, decompressed if need be; at most `limit` bytes of it.
pub fn decoded_records<'a>(
    header: &BatchHeader,
    batch: &'a [u8],
    limit: usize,
) -> io::Result<Cow<'a, [u8]>> {
    let records = batch.get(HEADER_LEN..).unwrap_or_default();
    match header.codec() {
        Some(compress::Codec::None) => Ok(Cow::Borrowed(records)),
        Some(codec) => compress::decompress(codec, records, limit).map(Cow::Owned),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "unknown compression codec",
        )),
    }
}

/// The type of a control record, by its key (0 abort, 1 commit, 2 leader change …; kraft.md 11).
pub fn control_type(key: &[u8]) -> Option<i16> {
    let kind = key.get(2..4)?;
    Some(i16::from_be_bytes([kind[0], kind[1]]))
}

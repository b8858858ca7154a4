//! The records of a batch: strict reading, one at a time, without copying.

use std::borrow::Cow;
use std::io;

use super::header::{BatchHeader, HEADER_LEN};
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
    #[error("the key of a header is not UTF-8")]
    HeaderKeyText,
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
    pub key: &'a str,
    pub value: Option<&'a [u8]>,
}

impl<'a> RecordRef<'a> {
    /// The headers; they were checked when the record was read.
    pub fn headers(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut cursor = Cursor {
            bytes: self.headers,
        };
        (0..self.header_count).map_while(move |_| cursor.header().ok())
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
            cursor: Cursor { bytes: records },
            left: count,
            failed: false,
        }
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
            if self.cursor.bytes.is_empty() {
                return None;
            }
            self.failed = true;
            return Some(Err(RecordError::AfterLast));
        }
        self.left -= 1;
        let record = self.cursor.record();
        self.failed = record.is_err();
        Some(record)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    fn unsigned(&mut self, bytes_max: u32) -> Result<u64, RecordError> {
        let mut value = 0u64;
        for index in 0..bytes_max {
            let (&byte, rest) = self.bytes.split_first().ok_or(RecordError::Truncated)?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(RecordError::Varint)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<i32, RecordError> {
        if let Some((&byte, rest)) = self.bytes.split_first()
            && byte & 0x80 == 0
        {
            self.bytes = rest;
            return Ok(i32::from(byte >> 1) ^ -i32::from(byte & 1));
        }
        let raw = self.unsigned(5)?;
        let raw = u32::try_from(raw).map_err(|_| RecordError::Varint)?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    #[inline]
    fn varlong(&mut self) -> Result<i64, RecordError> {
        let raw = self.unsigned(10)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or(RecordError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordError> {
        match self.varint()? {
            -1 => Ok(None),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| RecordError::Length(i64::from(length)))?;
                self.take(length).map(Some)
            }
        }
    }

    fn header(&mut self) -> Result<Header<'a>, RecordError> {
        let key = self.nullable()?.ok_or(RecordError::NullHeaderKey)?;
        let key = std::str::from_utf8(key).map_err(|_| RecordError::HeaderKeyText)?;
        Ok(Header {
            key,
            value: self.nullable()?,
        })
    }

    #[inline]
    fn record(&mut self) -> Result<RecordRef<'a>, RecordError> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| RecordError::Length(i64::from(length)))?;
        let mut body = Cursor {
            bytes: self.take(length)?,
        };
        let attributes = body.take(1)?[0] as i8;
        let timestamp_delta = body.varlong()?;
        let offset_delta = body.varint()?;
        let key = body.nullable()?;
        let value = body.nullable()?;
        let count = body.varint()?;
        // A header takes two bytes at least: a larger count is a lie.
        let header_count = usize::try_from(count)
            .ok()
            .filter(|n| *n <= body.bytes.len())
            .ok_or(RecordError::HeaderCount(i64::from(count)))?;
        let headers = body.bytes;
        for _ in 0..header_count {
            body.header()?;
        }
        if !body.bytes.is_empty() {
            return Err(RecordError::Trailing);
        }
        Ok(RecordRef {
            attributes,
            timestamp_delta,
            offset_delta,
            key,
            value,
            header_count,
            headers,
        })
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

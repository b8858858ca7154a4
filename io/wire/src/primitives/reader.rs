//! Reading single values out of a frame.

use std::ops::Range;
use std::str;

use bytes::Bytes;

use super::{DecodeError, Text, Uuid};

/// How lengths are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Strings have an i16 length, bytes and arrays an i32 one, -1 is null; structs have no tags (W-7).
    Classic,
    /// Lengths are unsigned varints of n + 1, 0 is null; every struct ends in a tagged section (W-5).
    Flexible,
}

impl Encoding {
    /// The encoding of a message at `version` if `flexible_from` is its first flexible version.
    pub const fn at(version: i16, flexible_from: Option<i16>) -> Self {
        match flexible_from {
            Some(first) if version >= first => Self::Flexible,
            _ => Self::Classic,
        }
    }

    pub const fn is_flexible(self) -> bool {
        matches!(self, Self::Flexible)
    }
}

/// A cursor over one frame.
///
/// Strings and bytes are slices of the frame, not copies. No count or length is believed before it has been compared with
/// the bytes that remain, so a frame cannot make the reader reserve more than a small multiple of its own size. After an
/// error the position is unspecified; drop the reader.
#[derive(Debug, Clone)]
pub struct Reader {
    frame: Bytes,
    at: usize,
    end: usize,
}

impl Reader {
    pub fn new(frame: Bytes) -> Self {
        let end = frame.len();
        Self { frame, at: 0, end }
    }

    /// Bytes read so far, counted from the start of the frame.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// The whole frame, read or not.
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// Everything that has not been read, as a slice of the frame.
    pub fn rest(&self) -> Bytes {
        self.frame.slice(self.at..self.end)
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<Range<usize>, DecodeError> {
        if length > self.remaining() {
            return Err(DecodeError::Truncated {
                what,
                offset: self.at,
            });
        }
        let start = self.at;
        self.at += length;
        Ok(start..self.at)
    }

    fn fixed<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let range = self.take(N, what)?;
        let mut value = [0; N];
        value.copy_from_slice(&self.frame[range]);
        Ok(value)
    }

    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.fixed::<1>("bool")?[0] != 0)
    }

    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.fixed("i8")?))
    }

    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.fixed("i16")?))
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.fixed("u16")?))
    }

    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.fixed("i32")?))
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.fixed("u32")?))
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.fixed("i64")?))
    }

    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        Ok(f64::from_be_bytes(self.fixed("f64")?))
    }

    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid(self.fixed("uuid")?))
    }

    /// An unsigned varint of at most 32 bits: seven bits a byte, the lowest first, at most five bytes.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let value = self.varint_bits("uvarint", 5)?;
        u32::try_from(value).map_err(|_| DecodeError::VarintTooLong {
            what: "uvarint",
            offset: self.at,
        })
    }

    /// A zig-zag varint of at most 32 bits.
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        let value = self.varint_bits("varint", 5)?;
        let value = u32::try_from(value).map_err(|_| DecodeError::VarintTooLong {
            what: "varint",
            offset: self.at,
        })?;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    /// A zig-zag varint of at most 64 bits, in at most ten bytes.
    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        let value = self.varint_bits("varlong", 10)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn varint_bits(&mut self, what: &'static str, longest: u32) -> Result<u64, DecodeError> {
        let offset = self.at;
        let mut value = 0_u64;
        for index in 0..longest {
            let byte = u64::from(self.fixed::<1>(what)?[0]);
            let bits = byte & 0x7f;
            if index == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong { what, offset })
    }

    /// The length of bytes or the count of an array; `None` for null.
    fn length(
        &mut self,
        encoding: Encoding,
        what: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        let offset = self.at;
        match encoding {
            Encoding::Flexible => Ok((self.uvarint()? as usize).checked_sub(1)),
            Encoding::Classic => classic_length(self.i32()?, what, offset),
        }
    }

    fn text_length(&mut self, encoding: Encoding) -> Result<Option<usize>, DecodeError> {
        let offset = self.at;
        match encoding {
            Encoding::Flexible => self.length(encoding, "string"),
            Encoding::Classic => classic_length(i32::from(self.i16()?), "string", offset),
        }
    }

    /// Where a string lies in the frame; its bytes have been found to be UTF-8.
    pub(crate) fn text_range(
        &mut self,
        encoding: Encoding,
    ) -> Result<Option<Range<usize>>, DecodeError> {
        let Some(length) = self.text_length(encoding)? else {
            return Ok(None);
        };
        let range = self.take(length, "string")?;
        match str::from_utf8(&self.frame[range.clone()]) {
            Ok(_) => Ok(Some(range)),
            Err(_) => Err(DecodeError::NotUtf8 {
                offset: range.start,
            }),
        }
    }

    pub fn nullable_text(&mut self, encoding: Encoding) -> Result<Option<Text>, DecodeError> {
        let range = self.text_range(encoding)?;
        let offset = self.at;
        range
            .map(|range| {
                Text::from_utf8(self.frame.slice(range)).ok_or(DecodeError::NotUtf8 { offset })
            })
            .transpose()
    }

    pub fn text(&mut self, encoding: Encoding) -> Result<Text, DecodeError> {
        let offset = self.at;
        self.nullable_text(encoding)?
            .ok_or(DecodeError::UnexpectedNull {
                what: "string",
                offset,
            })
    }

    /// Where a run of bytes lies in the frame.
    pub(crate) fn bytes_range(
        &mut self,
        encoding: Encoding,
    ) -> Result<Option<Range<usize>>, DecodeError> {
        match self.length(encoding, "bytes")? {
            Some(length) => Ok(Some(self.take(length, "bytes")?)),
            None => Ok(None),
        }
    }

    pub fn nullable_bytes(&mut self, encoding: Encoding) -> Result<Option<Bytes>, DecodeError> {
        Ok(self
            .bytes_range(encoding)?
            .map(|range| self.frame.slice(range)))
    }

    pub fn bytes(&mut self, encoding: Encoding) -> Result<Bytes, DecodeError> {
        let offset = self.at;
        self.nullable_bytes(encoding)?
            .ok_or(DecodeError::UnexpectedNull {
                what: "bytes",
                offset,
            })
    }

    /// The next `length` bytes, whatever they are.
    pub fn raw(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        let range = self.take(length, "bytes")?;
        Ok(self.frame.slice(range))
    }

    /// The number of elements of an array, each of which takes at least `element_size` bytes; `None` for null.
    pub fn array_count(
        &mut self,
        encoding: Encoding,
        element_size: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let offset = self.at;
        let Some(count) = self.length(encoding, "array")? else {
            return Ok(None);
        };
        if count > self.remaining() / element_size.max(1) {
            return Err(DecodeError::CountTooLarge {
                offset,
                count,
                remaining: self.remaining(),
            });
        }
        Ok(Some(count))
    }

    pub fn nullable_array<T>(
        &mut self,
        encoding: Encoding,
        element_size: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.array_count(encoding, element_size)? else {
            return Ok(None);
        };
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    pub fn array<T>(
        &mut self,
        encoding: Encoding,
        element_size: usize,
        element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let offset = self.at;
        self.nullable_array(encoding, element_size, element)?
            .ok_or(DecodeError::UnexpectedNull {
                what: "array",
                offset,
            })
    }

    /// Whether a nullable struct follows: an i8, negative for null (W-5).
    pub fn struct_is_present(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? >= 0)
    }

    /// A tagged section. `field` is given each tag with a reader that ends where the field ends; it answers whether it knows
    /// the tag. Unknown tags are skipped, known ones must be as long as they say.
    pub fn tagged(
        &mut self,
        mut field: impl FnMut(u32, &mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut previous = None;
        for _ in 0..self.uvarint()? {
            let offset = self.at;
            let tag = self.uvarint()?;
            if previous.is_some_and(|previous| tag <= previous) {
                return Err(DecodeError::TagOrder { offset, tag });
            }
            previous = Some(tag);
            let size = self.uvarint()? as usize;
            let content = self.take(size, "tagged field")?;
            self.within(content, offset, tag, &mut field)?;
        }
        Ok(())
    }

    fn within(
        &mut self,
        content: Range<usize>,
        offset: usize,
        tag: u32,
        field: &mut impl FnMut(u32, &mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let end = self.end;
        (self.at, self.end) = (content.start, content.end);
        let known = field(tag, self)?;
        if known && self.at != content.end {
            return Err(DecodeError::TagSize { offset, tag });
        }
        (self.at, self.end) = (content.end, end);
        Ok(())
    }

    /// A tagged section of which no tag is known.
    pub fn skip_tagged(&mut self) -> Result<(), DecodeError> {
        self.tagged(|_, _| Ok(false))
    }
}

fn classic_length(
    length: i32,
    what: &'static str,
    offset: usize,
) -> Result<Option<usize>, DecodeError> {
    match usize::try_from(length) {
        Ok(length) => Ok(Some(length)),
        Err(_) if length == -1 => Ok(None),
        Err(_) => Err(DecodeError::NegativeLength {
            what,
            offset,
            length,
        }),
    }
}

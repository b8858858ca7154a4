//! Appending single values to a buffer.
//!
//! Integers and floats are `BufMut`'s own big-endian `put_*`. Nothing here fails: what does not fit its length field is
//! either impossible (asserted) or cut (see [`put_text`]).

use bytes::{BufMut, BytesMut};

use super::{Encoding, Uuid};

/// The longest string that the classic encoding can carry, in bytes.
const CLASSIC_TEXT_MAX: usize = i16::MAX as usize;

/// Bytes of `value` as an unsigned varint.
pub const fn uvarint_size(value: u32) -> usize {
    let bits = u32::BITS - value.leading_zeros();
    if bits == 0 {
        1
    } else {
        bits.div_ceil(7) as usize
    }
}

pub fn put_uvarint(out: &mut BytesMut, value: u32) {
    put_varint_bits(out, u64::from(value));
}

/// Zig-zag, as in records and their headers.
pub fn put_varint(out: &mut BytesMut, value: i32) {
    put_varint_bits(out, u64::from(((value << 1) ^ (value >> 31)) as u32));
}

/// Zig-zag, as in records.
pub fn put_varlong(out: &mut BytesMut, value: i64) {
    put_varint_bits(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn put_varint_bits(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

pub fn put_bool(out: &mut BytesMut, value: bool) {
    out.put_u8(u8::from(value));
}

pub fn put_uuid(out: &mut BytesMut, value: Uuid) {
    out.put_slice(&value.0);
}

/// A classic string is at most 32767 bytes long. A longer one, which a client can only have brought in through a flexible
/// version, is cut at a character so that the frame stays well formed.
pub fn put_text(out: &mut BytesMut, encoding: Encoding, text: &str) {
    match encoding {
        Encoding::Flexible => {
            put_compact_length(out, text.len());
            out.put_slice(text.as_bytes());
        }
        Encoding::Classic => {
            let text = &text[..text.floor_char_boundary(CLASSIC_TEXT_MAX)];
            out.put_i16(text.len() as i16);
            out.put_slice(text.as_bytes());
        }
    }
}

pub fn put_nullable_text(out: &mut BytesMut, encoding: Encoding, text: Option<&str>) {
    match (text, encoding) {
        (Some(text), _) => put_text(out, encoding, text),
        (None, Encoding::Flexible) => out.put_u8(0),
        (None, Encoding::Classic) => out.put_i16(-1),
    }
}

pub fn put_bytes(out: &mut BytesMut, encoding: Encoding, bytes: &[u8]) {
    put_bytes_length(out, encoding, Some(bytes.len()));
    out.put_slice(bytes);
}

pub fn put_nullable_bytes(out: &mut BytesMut, encoding: Encoding, bytes: Option<&[u8]>) {
    put_bytes_length(out, encoding, bytes.map(<[u8]>::len));
    out.put_slice(bytes.unwrap_or_default());
}

/// The length of bytes or records that follow by another way than this buffer; `None` is null.
pub fn put_bytes_length(out: &mut BytesMut, encoding: Encoding, length: Option<usize>) {
    put_array_count(out, encoding, length);
}

/// The count in front of an array's elements; `None` is null.
pub fn put_array_count(out: &mut BytesMut, encoding: Encoding, count: Option<usize>) {
    match (count, encoding) {
        (Some(count), Encoding::Flexible) => put_compact_length(out, count),
        (Some(count), Encoding::Classic) => out.put_i32(checked_length(count)),
        (None, Encoding::Flexible) => out.put_u8(0),
        (None, Encoding::Classic) => out.put_i32(-1),
    }
}

fn put_compact_length(out: &mut BytesMut, length: usize) {
    put_uvarint(out, checked_length(length) as u32 + 1);
}

fn checked_length(length: usize) -> i32 {
    // A frame is at most i32::MAX bytes (W-1), so a longer part of one is our own mistake.
    i32::try_from(length).expect("a part of a frame is shorter than the longest frame")
}

pub fn put_array<T>(
    out: &mut BytesMut,
    encoding: Encoding,
    elements: &[T],
    mut element: impl FnMut(&mut BytesMut, &T),
) {
    put_array_count(out, encoding, Some(elements.len()));
    for value in elements {
        element(out, value);
    }
}

pub fn put_nullable_array<T>(
    out: &mut BytesMut,
    encoding: Encoding,
    elements: Option<&[T]>,
    element: impl FnMut(&mut BytesMut, &T),
) {
    match elements {
        Some(elements) => put_array(out, encoding, elements, element),
        None => put_array_count(out, encoding, None),
    }
}

/// One field of a tagged section: tag, size, then what `content` writes. The size is filled in afterwards, without a
/// buffer of its own: content of 128 bytes and more is moved by the bytes that its size needs beyond the first.
pub fn put_tagged(out: &mut BytesMut, tag: u32, content: impl FnOnce(&mut BytesMut)) {
    put_uvarint(out, tag);
    let size_at = out.len();
    out.put_u8(0);
    let start = out.len();
    content(out);
    let size = out.len() - start;
    let size_field = uvarint_size(checked_length(size) as u32);
    out.put_bytes(0, size_field - 1);
    out.copy_within(start..start + size, size_at + size_field);
    let mut rest = size;
    for (index, byte) in out[size_at..size_at + size_field].iter_mut().enumerate() {
        let more = if index + 1 < size_field { 0x80 } else { 0 };
        *byte = (rest as u8 & 0x7f) | more;
        rest >>= 7;
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::primitives::{DecodeError, Reader};

    fn written(write: impl FnOnce(&mut BytesMut)) -> Reader {
        let mut out = BytesMut::new();
        write(&mut out);
        Reader::new(out.freeze())
    }

    proptest! {
        #[test]
        fn varints_survive_a_round_trip(unsigned: u32, short: i32, long: i64) {
            let mut reader = written(|out| {
                put_uvarint(out, unsigned);
                put_varint(out, short);
                put_varlong(out, long);
            });
            prop_assert_eq!(reader.uvarint().unwrap(), unsigned);
            prop_assert_eq!(reader.position(), uvarint_size(unsigned));
            prop_assert_eq!(reader.varint().unwrap(), short);
            prop_assert_eq!(reader.varlong().unwrap(), long);
            prop_assert_eq!(reader.remaining(), 0);
        }

        #[test]
        fn a_tagged_field_of_any_size_is_read_back(size in 0_usize..40_000, tag: u32) {
            let content = vec![7; size];
            let mut reader = written(|out| {
                put_uvarint(out, 1);
                put_tagged(out, tag, |out| out.put_slice(&content));
            });
            let mut seen = None;
            reader.tagged(|tag, field| {
                seen = Some((tag, field.raw(field.remaining())?));
                Ok(true)
            }).unwrap();
            prop_assert_eq!(seen, Some((tag, Bytes::from(content))));
            prop_assert_eq!(reader.remaining(), 0);
        }

        #[test]
        fn text_and_bytes_survive_both_encodings(text: String, bytes: Vec<u8>) {
            for encoding in [Encoding::Classic, Encoding::Flexible] {
                let mut reader = written(|out| {
                    put_text(out, encoding, &text);
                    put_nullable_text(out, encoding, None);
                    put_bytes(out, encoding, &bytes);
                    put_nullable_bytes(out, encoding, None);
                });
                prop_assert_eq!(&*reader.text(encoding).unwrap(), text.as_str());
                prop_assert_eq!(reader.nullable_text(encoding).unwrap(), None);
                prop_assert_eq!(reader.bytes(encoding).unwrap(), bytes.clone());
                prop_assert_eq!(reader.nullable_bytes(encoding).unwrap(), None);
                prop_assert_eq!(reader.remaining(), 0);
            }
        }
    }

    #[test]
    fn a_text_too_long_for_the_classic_encoding_is_cut_at_a_character() {
        let text = "ö".repeat(20_000);
        let mut reader = written(|out| put_text(out, Encoding::Classic, &text));
        assert_eq!(reader.text(Encoding::Classic).unwrap().len(), 32_766);
        assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn varints_longer_than_their_type_are_refused() {
        let five = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x1f]);
        let eleven = Bytes::from_static(&[0xff; 11]);
        assert!(matches!(
            Reader::new(five.clone()).uvarint(),
            Err(DecodeError::VarintTooLong { .. })
        ));
        assert!(matches!(
            Reader::new(five).varint(),
            Err(DecodeError::VarintTooLong { .. })
        ));
        assert!(matches!(
            Reader::new(eleven.clone()).uvarint(),
            Err(DecodeError::VarintTooLong { .. })
        ));
        assert!(matches!(
            Reader::new(eleven).varlong(),
            Err(DecodeError::VarintTooLong { .. })
        ));
    }

    #[test]
    fn a_count_is_compared_with_the_bytes_that_remain() {
        let frame = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1]);
        let refused = Reader::new(frame).array(Encoding::Classic, 4, Reader::i32);
        assert_eq!(
            refused,
            Err(DecodeError::CountTooLarge {
                offset: 0,
                count: 0x7fff_ffff,
                remaining: 4
            })
        );
    }

    #[test]
    fn tags_ascend_and_are_as_long_as_they_say() {
        let repeated = Bytes::from_static(&[2, 5, 0, 5, 0]);
        let short = Bytes::from_static(&[1, 5, 2, 0, 0]);
        let unknown = Bytes::from_static(&[2, 5, 2, 9, 9, 6, 0]);
        let one_byte = |_, field: &mut Reader| field.i8().map(|_| true);
        assert!(matches!(
            Reader::new(repeated).skip_tagged(),
            Err(DecodeError::TagOrder { tag: 5, .. })
        ));
        assert!(matches!(
            Reader::new(short).tagged(one_byte),
            Err(DecodeError::TagSize { tag: 5, .. })
        ));
        let mut reader = Reader::new(unknown);
        assert_eq!(reader.skip_tagged(), Ok(()));
        assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn null_is_refused_where_it_is_not_allowed() {
        let null = Bytes::from_static(&[0xff; 4]);
        let negative = Bytes::from_static(&[0xff, 0xfe]);
        assert!(matches!(
            Reader::new(null.clone()).bytes(Encoding::Classic),
            Err(DecodeError::UnexpectedNull { .. })
        ));
        assert!(matches!(
            Reader::new(null).text(Encoding::Classic),
            Err(DecodeError::UnexpectedNull { .. })
        ));
        assert!(matches!(
            Reader::new(negative).text(Encoding::Classic),
            Err(DecodeError::NegativeLength { .. })
        ));
    }
}

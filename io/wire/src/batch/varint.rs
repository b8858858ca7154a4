//! Zig-zag varints, as records have them. Lengths and deltas nearly always take one or two bytes; those are decided inline.

use bytes::BufMut;

use super::records::RecordError;

/// A place in a slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, RecordError> {
        let (first, rest) = self.rest.split_first().ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    /// The next `length` bytes.
    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<i32, RecordError> {
        match *self.rest {
            [a, ref rest @ ..] if a < 0x80 => {
                self.rest = rest;
                Ok(unzigzag32(u32::from(a)))
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.rest = rest;
                Ok(unzigzag32(u32::from(a & 0x7f) | u32::from(b) << 7))
            }
            _ => {
                let raw = self.long_varint(5)?;
                let raw = u32::try_from(raw).map_err(|_| RecordError::Varint)?;
                Ok(unzigzag32(raw))
            }
        }
    }

    #[inline]
    pub(super) fn varlong(&mut self) -> Result<i64, RecordError> {
        match *self.rest {
            [a, ref rest @ ..] if a < 0x80 => {
                self.rest = rest;
                Ok(unzigzag64(u64::from(a)))
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.rest = rest;
                Ok(unzigzag64(u64::from(a & 0x7f) | u64::from(b) << 7))
            }
            _ => Ok(unzigzag64(self.long_varint(10)?)),
        }
    }

    #[cold]
    fn long_varint(&mut self, longest: usize) -> Result<u64, RecordError> {
        let mut value = 0u64;
        for index in 0..longest {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * index as u32;
            // The tenth byte of a varlong has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(RecordError::Varint);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(RecordError::Varint)
    }
}

#[inline]
fn unzigzag32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[inline]
fn unzigzag64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Bytes that `value` takes, as a varint or as a varlong.
pub(super) fn varint_len(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends `value`; an i32 is written the same way whether it is called varint or varlong.
pub(super) fn put_varint(out: &mut impl BufMut, value: i64) {
    let mut raw = zigzag(value);
    while raw >= 0x80 {
        out.put_u8(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.put_u8(raw as u8);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use proptest::prelude::*;

    use super::*;

    fn written(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        out
    }

    #[test]
    fn the_extremes_have_their_known_bytes() {
        assert_eq!(written(0), [0]);
        assert_eq!(written(-1), [1]);
        assert_eq!(written(63), [0x7e]);
        assert_eq!(written(64), [0x80, 1]);
        assert_eq!(written(i64::from(i32::MAX)), [0xfe, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(written(i64::from(i32::MIN)), [0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(written(i64::MIN).len(), 10);
    }

    #[test]
    fn a_value_wider_than_its_type_is_refused() {
        let sixth_byte = [0x80, 0x80, 0x80, 0x80, 0x80, 1];
        assert_eq!(Cursor::new(&sixth_byte).varint(), Err(RecordError::Varint));
        let bit_32 = [0x80, 0x80, 0x80, 0x80, 0x10];
        assert_eq!(Cursor::new(&bit_32).varint(), Err(RecordError::Varint));
        let bit_64 = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2];
        assert_eq!(Cursor::new(&bit_64).varlong(), Err(RecordError::Varint));
        assert_eq!(Cursor::new(&[0x80]).varint(), Err(RecordError::Truncated));
        assert_eq!(Cursor::new(&[]).varlong(), Err(RecordError::Truncated));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(long: i64, int: i32, small in -70_000i32..70_000) {
            for value in [long, i64::from(int), i64::from(small)] {
                let bytes = written(value);
                prop_assert_eq!(bytes.len(), varint_len(value));
                let mut cursor = Cursor::new(&bytes);
                prop_assert_eq!(cursor.varlong().unwrap(), value);
                prop_assert!(cursor.rest.is_empty());
            }
            for value in [int, small] {
                let bytes = written(i64::from(value));
                let mut cursor = Cursor::new(&bytes);
                prop_assert_eq!(cursor.varint().unwrap(), value);
                prop_assert!(cursor.rest.is_empty());
            }
        }
    }
}

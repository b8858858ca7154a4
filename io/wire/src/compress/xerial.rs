//! The framing that Kafka's Snappy has: a header of 16 bytes, then blocks of {i32 length, raw Snappy}. Some clients send a raw block without any
//! framing; that is read too.

use std::io::{self, Read};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER: usize = 16;
/// As the Java library cuts its blocks.
const BLOCK_BYTES: usize = 32 << 10;
/// A block that claims more was not written by any client.
const BLOCK_BYTES_MAX: usize = 64 << 20;

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(super) fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(HEADER + bytes.len() / 2);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in bytes.chunks(BLOCK_BYTES) {
        let packed = encoder.compress_vec(block).map_err(io::Error::other)?;
        out.extend_from_slice(&(packed.len() as i32).to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(out)
}

/// Gives the content block by block.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> io::Result<Reader<'a>> {
        let framed = bytes.starts_with(&MAGIC);
        let rest = if framed {
            bytes
                .get(HEADER..)
                .ok_or_else(|| invalid("a snappy header is cut off"))?
        } else {
            bytes
        };
        Ok(Reader {
            rest,
            framed,
            block: Vec::new(),
            at: 0,
        })
    }

    fn next_block(&mut self) -> io::Result<bool> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        let packed = if self.framed {
            let (length, rest) = self
                .rest
                .split_first_chunk::<4>()
                .ok_or_else(|| invalid("a snappy block is cut off"))?;
            let length = usize::try_from(i32::from_be_bytes(*length))
                .map_err(|_| invalid("a snappy block has a negative length"))?;
            let (packed, rest) = rest
                .split_at_checked(length)
                .ok_or_else(|| invalid("a snappy block is cut off"))?;
            self.rest = rest;
            packed
        } else {
            std::mem::take(&mut self.rest)
        };
        let length =
            snap::raw::decompress_len(packed).map_err(|_| invalid("a snappy block is damaged"))?;
        // Snappy can't shrink more than about 1:21: a larger claim reserves nothing.
        if length > BLOCK_BYTES_MAX || length > packed.len().saturating_mul(32) + 64 {
            return Err(invalid("a snappy block claims an impossible size"));
        }
        self.block = snap::raw::Decoder::new()
            .decompress_vec(packed)
            .map_err(|_| invalid("a snappy block is damaged"))?;
        self.at = 0;
        Ok(true)
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let n = out.len().min(self.block.len() - self.at);
        out[..n].copy_from_slice(&self.block[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

//! The framing that Kafka's Snappy has: a header of 16 bytes, then blocks of {i32 length, raw Snappy}. Some clients send a raw block without any
//! framing; that is read too.

use std::io::{self, Read};

use bytes::{BufMut, BytesMut};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Behind the magic: the version, and the oldest that can read it.
const VERSION: i32 = 1;
const HEADER: usize = 16;
/// As the Java library cuts its blocks.
const BLOCK_BYTES: usize = 32 << 10;
/// A block that claims more was not written by any client.
const BLOCK_BYTES_MAX: usize = 64 << 20;

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Takes content and writes it block by block.
pub(super) struct Writer {
    out: BytesMut,
    pending: Vec<u8>,
    encoder: snap::raw::Encoder,
}

impl Writer {
    pub(super) fn new(mut out: BytesMut) -> Writer {
        out.extend_from_slice(&MAGIC);
        out.put_i32(VERSION);
        out.put_i32(VERSION);
        Writer {
            out,
            pending: Vec::with_capacity(BLOCK_BYTES),
            encoder: snap::raw::Encoder::new(),
        }
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = bytes.len().min(BLOCK_BYTES - self.pending.len());
            self.pending.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.pending.len() == BLOCK_BYTES {
                self.put_block()?;
            }
        }
        Ok(())
    }

    fn put_block(&mut self) -> io::Result<()> {
        let packed = self
            .encoder
            .compress_vec(&self.pending)
            .map_err(io::Error::other)?;
        self.out.put_i32(packed.len() as i32);
        self.out.extend_from_slice(&packed);
        self.pending.clear();
        Ok(())
    }

    pub(super) fn len_so_far(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(mut self) -> io::Result<BytesMut> {
        if !self.pending.is_empty() {
            self.put_block()?;
        }
        Ok(self.out)
    }
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
        self.block.resize(length, 0);
        self.at = 0;
        snap::raw::Decoder::new()
            .decompress(packed, &mut self.block)
            .map_err(|_| invalid("a snappy block is damaged"))?;
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

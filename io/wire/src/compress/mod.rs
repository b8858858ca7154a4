//! The codecs of record batches (kafka.md 3.1), each by a library.
//!
//! zstd: bindings to the reference implementation. lz4_flex: LZ4 frames in Rust. snap: raw Snappy in Rust; the framing that Kafka puts around it is
//! in [`xerial`]. flate2: gzip. Levels are Kafka's, also where a library has fewer.

mod xerial;

use std::io::{self, Read, Write};

use bytes::{BufMut, BytesMut};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

/// Bits 0 to 2 of a batch's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    pub const ALL: [Codec; 5] = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];

    pub fn from_id(id: u8) -> Option<Codec> {
        Codec::ALL.get(usize::from(id)).copied()
    }

    pub fn id(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// Kafka's name in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// The default of `compression.<codec>.level`.
    pub fn default_level(self) -> i32 {
        match self {
            Codec::None | Codec::Snappy => 0,
            Codec::Gzip => -1,
            Codec::Lz4 => 9,
            Codec::Zstd => 3,
        }
    }
}

/// Compresses whole. Levels that a codec does not know fall back to its default.
pub fn compress(codec: Codec, level: i32, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = Writer::new(codec, level, BytesMut::new())?;
    writer.write(bytes)?;
    Ok(writer.finish()?.into())
}

/// Compresses piece by piece, behind what a buffer already holds.
///
/// Levels are Kafka's: gzip 1 to 9, zstd -131072 to 22. Snappy has none. lz4 has one: Kafka's default, 9, stands for the fast
/// compressor, and so do all others here; they cost less time than in Kafka and give larger batches.
pub struct Writer(Encoder);

type Sink = bytes::buf::Writer<BytesMut>;

enum Encoder {
    None(BytesMut),
    Gzip(flate2::write::GzEncoder<Sink>),
    Snappy(xerial::Writer),
    Lz4(Box<FrameEncoder<Sink>>),
    Zstd(zstd::Encoder<'static, Sink>),
}

impl Writer {
    /// Levels that the codec does not know fall back to its default.
    pub fn new(codec: Codec, level: i32, out: BytesMut) -> io::Result<Writer> {
        Ok(Writer(match codec {
            Codec::None => Encoder::None(out),
            Codec::Gzip => {
                let level = u32::try_from(level)
                    .ok()
                    .filter(|level| (1..=9).contains(level))
                    .map_or_else(flate2::Compression::default, flate2::Compression::new);
                Encoder::Gzip(flate2::write::GzEncoder::new(out.writer(), level))
            }
            Codec::Snappy => Encoder::Snappy(xerial::Writer::new(out)),
            Codec::Lz4 => {
                // As Kafka's own writer; some clients cannot read blocks that refer to each other.
                let info = FrameInfo::new()
                    .block_mode(BlockMode::Independent)
                    .block_size(BlockSize::Max64KB);
                Encoder::Lz4(Box::new(FrameEncoder::with_frame_info(info, out.writer())))
            }
            Codec::Zstd => Encoder::Zstd(zstd::Encoder::new(out.writer(), level)?),
        }))
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Encoder::None(out) => out.extend_from_slice(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes)?,
            Encoder::Snappy(encoder) => encoder.write(bytes)?,
            Encoder::Lz4(encoder) => encoder.write_all(bytes)?,
            Encoder::Zstd(encoder) => encoder.write_all(bytes)?,
        }
        Ok(())
    }

    /// Bytes in the buffer so far; the codec may hold some back.
    pub fn len_so_far(&self) -> usize {
        match &self.0 {
            Encoder::None(out) => out.len(),
            Encoder::Gzip(encoder) => encoder.get_ref().get_ref().len(),
            Encoder::Snappy(encoder) => encoder.len_so_far(),
            Encoder::Lz4(encoder) => encoder.get_ref().get_ref().len(),
            Encoder::Zstd(encoder) => encoder.get_ref().get_ref().len(),
        }
    }

    /// Completes the compressed data and gives the buffer back.
    pub fn finish(self) -> io::Result<BytesMut> {
        match self.0 {
            Encoder::None(out) => Ok(out),
            Encoder::Gzip(encoder) => Ok(encoder.finish()?.into_inner()),
            Encoder::Snappy(encoder) => encoder.finish(),
            Encoder::Lz4(encoder) => match encoder.finish() {
                Ok(out) => Ok(out.into_inner()),
                Err(error) => Err(io::Error::other(error)),
            },
            Encoder::Zstd(encoder) => Ok(encoder.finish()?.into_inner()),
        }
    }
}

/// Reads the decompressed bytes piece by piece.
pub fn reader<'a>(codec: Codec, bytes: &'a [u8]) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match codec {
        Codec::None => Box::new(bytes),
        Codec::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(bytes)),
        Codec::Snappy => Box::new(xerial::Reader::new(bytes)?),
        Codec::Lz4 => Box::new(FrameDecoder::new(bytes)),
        Codec::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(bytes)?),
    })
}

/// Decompresses whole, at most `limit` bytes: more is an error.
pub fn decompress(codec: Codec, bytes: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let read = reader(codec, bytes)?
        .take(limit as u64 + 1)
        .read_to_end(&mut out)?;
    if read > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "decompressed records are larger than allowed",
        ));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn every_codec_gives_back_what_it_took() {
        for codec in Codec::ALL {
            for size in [0, 1, 1000, 100_000, 300_000] {
                let bytes: Vec<u8> = (0..size).map(|i: usize| (i * i / 7) as u8).collect();
                let packed = compress(codec, codec.default_level(), &bytes).unwrap();
                assert_eq!(
                    decompress(codec, &packed, size).unwrap(),
                    bytes,
                    "{codec:?} {size}"
                );
                assert!(size == 0 || decompress(codec, &packed, size - 1).is_err());
            }
        }
    }

    #[test]
    fn rubbish_is_an_error_and_never_a_panic() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let packed = compress(codec, codec.default_level(), &[7; 5000]).unwrap();
            for cut in 0..packed.len() {
                let mut bytes = packed.clone();
                bytes[cut] ^= 0x55;
                let _flipped = decompress(codec, &bytes, 1 << 20);
                let _cut = decompress(codec, &packed[..cut], 1 << 20);
            }
        }
    }

    const TEXT: &[u8] = b"a batch of records, again and again. ";

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    fn repeated(times: usize) -> Vec<u8> {
        TEXT.repeat(times)
    }

    #[test]
    fn a_zstd_frame_without_its_content_size_is_read() {
        // By the zstd program from a pipe, 40 times the text.
        let frame = "28b52ffd00584d0100f861206261746368206f66207265636f7264732c20616761696e20616e642e200200a021f571c58a13";
        assert_eq!(
            decompress(Codec::Zstd, &hex(frame), 2000).unwrap(),
            repeated(40)
        );
    }

    #[test]
    fn an_lz4_frame_with_everything_that_is_optional_is_read() {
        // By liblz4: linked blocks, block checksums, content checksum, content size.
        let frame = "04224d187c40c8050000000000004932000000f20e61206261746368206f66207265636f7264732c20616761696e20616e64\
                     0a002f2e202500ffffffffff905061696e2e20e915c4740000000007a95577";
        let frame = frame.replace(char::is_whitespace, "");
        assert_eq!(
            decompress(Codec::Lz4, &hex(&frame), 2000).unwrap(),
            repeated(40)
        );
    }

    #[test]
    fn lz4_blocks_that_refer_to_each_other_are_read() {
        let info = FrameInfo::new()
            .block_mode(BlockMode::Linked)
            .block_size(BlockSize::Max64KB)
            .block_checksums(true)
            .content_checksum(true);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&repeated(9000)).unwrap();
        let frame = encoder.finish().unwrap();
        assert_eq!(
            decompress(Codec::Lz4, &frame, 400_000).unwrap(),
            repeated(9000)
        );
    }

    #[test]
    fn lz4_is_written_as_kafka_demands() {
        let frame = compress(Codec::Lz4, 9, &repeated(9000)).unwrap();
        // The magic; version 1, independent blocks and nothing else; blocks of at most 64 KiB.
        assert_eq!(frame[..6], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40]);
    }

    #[test]
    fn snappy_without_framing_is_read() {
        // By the reference library, 40 times the text.
        let block = "c80b7061206261746368206f66207265636f7264732c20616761696e20616e64090a042e20fe2500fe2500fe2500fe2500fe\
                     2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500fe2500\
                     fe25008a2500";
        let block = block.replace(char::is_whitespace, "");
        assert_eq!(
            decompress(Codec::Snappy, &hex(&block), 2000).unwrap(),
            repeated(40)
        );
    }

    #[test]
    fn a_snappy_block_that_claims_more_than_it_can_hold_takes_no_memory() {
        // 60 MiB in five bytes.
        let block = [0x80, 0x80, 0x80, 0x1e, 0x00];
        assert!(decompress(Codec::Snappy, &block, 1 << 30).is_err());
    }

    #[test]
    fn gzip_of_several_members_is_read() {
        let member = compress(Codec::Gzip, -1, &repeated(3)).unwrap();
        let two = [member.clone(), member].concat();
        assert_eq!(decompress(Codec::Gzip, &two, 1000).unwrap(), repeated(6));
    }

    #[test]
    fn a_level_changes_the_size_where_the_codec_has_levels() {
        let words: Vec<u8> = (0..60_000_u32)
            .flat_map(|n| (n * n % 1009).to_string().into_bytes())
            .collect();
        for (codec, fast, thorough) in [(Codec::Gzip, 1, 9), (Codec::Zstd, -50, 12)] {
            let size = |level| compress(codec, level, &words).unwrap().len();
            assert!(size(fast) > size(thorough), "{codec:?}");
        }
        // No level of gzip, so its default.
        assert_eq!(
            compress(Codec::Gzip, 77, &words).unwrap(),
            compress(Codec::Gzip, -1, &words).unwrap()
        );
    }
}

//! The codecs of record batches (kafka.md 3.1), each by a library.
//!
//! zstd: bindings to the reference implementation. lz4_flex: LZ4 frames in Rust. snap: raw Snappy in Rust; the framing that Kafka puts around it is
//! in [`xerial`]. flate2: gzip. Levels are Kafka's, also where a library has fewer.

mod xerial;

use std::io::{self, Read, Write};

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
    match codec {
        Codec::None => Ok(bytes.to_vec()),
        Codec::Gzip => {
            let level = u32::try_from(level)
                .ok()
                .filter(|level| (1..=9).contains(level))
                .map_or_else(flate2::Compression::default, flate2::Compression::new);
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes)?;
            encoder.finish()
        }
        Codec::Snappy => xerial::compress(bytes),
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_mode(lz4_flex::frame::BlockMode::Independent)
                .block_size(lz4_flex::frame::BlockSize::Max64KB);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(bytes)?;
            encoder.finish().map_err(io::Error::other)
        }
        Codec::Zstd => zstd::bulk::compress(bytes, level),
    }
}

/// Reads the decompressed bytes piece by piece.
pub fn reader<'a>(codec: Codec, bytes: &'a [u8]) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match codec {
        Codec::None => Box::new(bytes),
        Codec::Gzip => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
        Codec::Snappy => Box::new(xerial::Reader::new(bytes)?),
        Codec::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(bytes)),
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
}

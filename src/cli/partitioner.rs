//! Where a record with a key goes: as Kafka's Java client decides, so that records of one key stay together whoever writes them.

/// Murmur2 with Kafka's seed, sign bit cleared, modulo the count.
pub(super) fn of_key(key: &[u8], partitions: u32) -> i32 {
    ((murmur2(key) & 0x7fff_ffff) % partitions.max(1)) as i32
}

fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    for (index, byte) in rest.iter().enumerate().rev() {
        hash ^= u32::from(*byte) << (8 * index);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of Kafka's own test of its hash.
    #[test]
    fn the_hash_is_kafkas() {
        for (text, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn every_key_has_a_partition() {
        for count in [0, 1, 3, 1000] {
            for key in ["", "a", "foobar"] {
                let partition = of_key(key.as_bytes(), count);
                assert!((0..count.max(1) as i32).contains(&partition));
            }
        }
    }
}

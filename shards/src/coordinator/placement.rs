//! Which partition of an internal topic coordinates a key (G-1).

/// The partition, below `partitions`, that coordinates `key`.
pub fn partition_of(key: &str, partitions: i32) -> i32 {
    assert!(partitions > 0, "a topic has partitions, not {partitions}");
    let hash = java_hash(key);
    // Kafka's Utils.abs, which is not the toPositive of producers.
    let positive = if hash == i32::MIN { 0 } else { hash.abs() };
    positive % partitions
}

/// Java's String.hashCode: over UTF-16 code units.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g1_the_hash_is_javas() {
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("abc"), 96_354);
        assert_eq!(java_hash("my-consumer-group"), 1_513_705_513);
        // Two surrogates: 0xd83d * 31 + 0xde00.
        assert_eq!(java_hash("😀"), 0xd83d * 31 + 0xde00);
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
    }

    #[test]
    fn g1_the_smallest_hash_has_no_absolute_value_and_goes_to_partition_0() {
        assert_eq!(partition_of("polygenelubricants", 50), 0);
        assert_eq!(partition_of("abc", 50), 4);
        assert_eq!(partition_of("my-consumer-group", 50), 13);
    }
}

//! The records of `__consumer_offsets` (kafka.md 7.2): committed offsets and the state of groups.

pub use generated::*;

mod generated {
    #![allow(
        clippy::all,
        clippy::pedantic,
        unused_imports,
        unused_variables,
        unused_mut,
        dead_code,
        reason = "written by the build script"
    )]
    include!(concat!(env!("OUT_DIR"), "/offsets.rs"));

    crate::records::typed_codecs!(OffsetsKey, OffsetsValue);

    impl OffsetsValue {
        /// The version that Kafka 4.4 writes. An `OffsetCommit` with an explicit expiry must be written in version 1
        /// instead, the only one that can carry it.
        pub fn written_version(&self) -> i16 {
            match self {
                Self::OffsetCommit(value) if value.expire_timestamp != -1 => 1,
                Self::OffsetCommit(_) => 4,
                Self::GroupMetadata(_) => 3,
                _ => 0,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use bytes::{Bytes, BytesMut};
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::Random;
    use crate::primitives::DecodeError;

    proptest! {
        #[test]
        fn every_key_and_value_survives_in_every_version(seed: u64) {
            let mut random = Random::new(seed);
            for (key, _) in OffsetsKey::arbitrary_of_each(&mut random) {
                let mut out = BytesMut::new();
                key.encode(&mut out);
                prop_assert_eq!(OffsetsKey::decode(&out.freeze()).unwrap(), key);
            }
            for (value, version) in OffsetsValue::arbitrary_of_each(&mut random) {
                let mut out = BytesMut::new();
                value.encode(&mut out, version);
                prop_assert_eq!(OffsetsValue::decode(value.key(), &out.freeze()).unwrap(), value);
            }
        }
    }

    #[test]
    fn unknown_types_and_versions_are_told_apart() {
        let unknown = OffsetsKey::decode(&Bytes::from_static(&[0, 99, 0, 0])).unwrap_err();
        assert!(matches!(unknown, DecodeError::UnknownType { key: 99, .. }));
        let newer = OffsetsValue::decode(0, &Bytes::from_static(&[0, 9, 0, 0])).unwrap_err();
        assert!(matches!(
            newer,
            DecodeError::UnknownVersion { version: 9, .. }
        ));
    }
}

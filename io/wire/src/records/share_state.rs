//! The records of `__share_group_state` (kafka.md 8.2).

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
    include!(concat!(env!("OUT_DIR"), "/share_state.rs"));

    crate::records::typed_codecs!(ShareStateKey, ShareStateValue);
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
            for (key, _) in ShareStateKey::arbitrary_of_each(&mut random) {
                let mut out = BytesMut::new();
                key.encode(&mut out);
                prop_assert_eq!(ShareStateKey::decode(&out.freeze()).unwrap(), key);
            }
            for (value, version) in ShareStateValue::arbitrary_of_each(&mut random) {
                let mut out = BytesMut::new();
                value.encode(&mut out, version);
                prop_assert_eq!(ShareStateValue::decode(value.key(), &out.freeze()).unwrap(), value);
            }
        }
    }

    #[test]
    fn unknown_types_and_versions_are_told_apart() {
        let unknown = ShareStateKey::decode(&Bytes::from_static(&[0, 99, 0, 0])).unwrap_err();
        assert!(matches!(unknown, DecodeError::UnknownType { key: 99, .. }));
        let newer = ShareStateValue::decode(0, &Bytes::from_static(&[0, 9, 0, 0])).unwrap_err();
        assert!(matches!(
            newer,
            DecodeError::UnknownVersion { version: 9, .. }
        ));
    }
}

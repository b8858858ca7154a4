//! The records of `__transaction_state` (kafka.md 8.1). Values are written in version 1 from transaction.version 1 on, before that in version 0.

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
    include!(concat!(env!("OUT_DIR"), "/transactions.rs"));

    crate::records::typed_codecs!(TransactionKey, TransactionValue);
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
            for (key, _) in TransactionKey::arbitrary_of_each(&mut random) {
                let mut out = BytesMut::new();
                key.encode(&mut out);
                prop_assert_eq!(TransactionKey::decode(&out.freeze()).unwrap(), key);
            }
            for (value, version) in TransactionValue::arbitrary_of_each(&mut random) {
                let mut out = BytesMut::new();
                value.encode(&mut out, version);
                prop_assert_eq!(TransactionValue::decode(value.key(), &out.freeze()).unwrap(), value);
            }
        }
    }

    #[test]
    fn unknown_types_and_versions_are_told_apart() {
        let unknown = TransactionKey::decode(&Bytes::from_static(&[0, 99, 0, 0])).unwrap_err();
        assert!(matches!(unknown, DecodeError::UnknownType { key: 99, .. }));
        let newer = TransactionValue::decode(0, &Bytes::from_static(&[0, 9, 0, 0])).unwrap_err();
        assert!(matches!(
            newer,
            DecodeError::UnknownVersion { version: 9, .. }
        ));
    }
}

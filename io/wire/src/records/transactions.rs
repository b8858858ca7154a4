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

    impl TransactionKey {
        /// Reads a record's key. Other types than these are written by newer brokers: skip such records and keep them (G-5).
        pub fn decode(key: &Bytes) -> Result<Self, DecodeError> {
            let mut reader = Reader::new(key.clone());
            let kind = reader.i16()?;
            Self::decode_typed(kind, 0, &mut reader)
        }

        /// Appends the key: the type, which is also the version that Kafka's schemas give it, then the body.
        pub fn encode(&self, out: &mut BytesMut) {
            out.put_i16(self.key());
            self.encode_typed(out, 0);
        }
    }

    impl TransactionValue {
        /// Reads the value of a record whose key is of type `kind` ([`TransactionKey::key`]).
        pub fn decode(kind: i16, value: &Bytes) -> Result<Self, DecodeError> {
            let mut reader = Reader::new(value.clone());
            let version = reader.i16()?;
            Self::decode_typed(kind, version, &mut reader)
        }

        /// Appends the value of `version`: the version, then the body.
        pub fn encode(&self, out: &mut BytesMut, version: i16) {
            out.put_i16(version);
            self.encode_typed(out, version);
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

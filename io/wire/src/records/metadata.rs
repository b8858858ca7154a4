//! The records of the metadata log (kraft.md 3.5 and 8).
//!
//! A value is a frame version, the type and version of the record as unsigned varints, and a flexible body. A record of a type
//! or version that this crate does not know is an error: whoever follows the log must stop, not skip (kraft.md 5.1).

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
    include!(concat!(env!("OUT_DIR"), "/metadata_records.rs"));

    /// The only version of the frame that Kafka has ever written.
    const FRAME_VERSION: u32 = 1;

    impl MetadataRecord {
        /// Reads a record's value.
        pub fn decode(value: &Bytes) -> Result<Self, DecodeError> {
            let mut reader = Reader::new(value.clone());
            let frame = reader.uvarint()?;
            if frame != FRAME_VERSION {
                return Err(DecodeError::UnknownVersion {
                    what: "metadata record frame",
                    version: frame as i32,
                });
            }
            let (key, version) = (reader.uvarint()?, reader.uvarint()?);
            let key = i16::try_from(key).map_err(|_| DecodeError::UnknownType {
                what: "MetadataRecord",
                key: key as i32,
            })?;
            let version = i16::try_from(version).map_err(|_| DecodeError::UnknownVersion {
                what: "MetadataRecord",
                version: version as i32,
            })?;
            Self::decode_typed(key, version, &mut reader)
        }

        /// Appends the value of a record of `version`.
        pub fn encode(&self, out: &mut BytesMut, version: i16) {
            put_uvarint(out, FRAME_VERSION);
            put_uvarint(out, u32::from(self.key() as u16));
            put_uvarint(out, u32::from(version as u16));
            self.encode_typed(out, version);
        }

        /// The version to write while the cluster is at `metadata_version` (kraft.md 5.2): a newer one could not be read by
        /// every broker that the level admits.
        pub fn version_at(&self, metadata_version: i16) -> i16 {
            let levels: &[i16] = match self {
                Self::RegisterBroker(_) => &[7, 8, 17, 30],
                Self::Partition(_) | Self::PartitionChange(_) => &[17, 23],
                Self::BrokerRegistrationChange(_) => &[7, 17, 30],
                _ => &[],
            };
            levels
                .iter()
                .filter(|level| metadata_version >= **level)
                .count() as i16
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
        fn every_record_survives_in_every_version(seed: u64) {
            for (record, version) in MetadataRecord::arbitrary_of_each(&mut Random::new(seed)) {
                let mut value = BytesMut::new();
                record.encode(&mut value, version);
                prop_assert_eq!(MetadataRecord::decode(&value.freeze()).unwrap(), record);
            }
        }
    }

    #[test]
    fn unknown_frames_types_and_versions_stop_the_reader() {
        let read =
            |value: &'static [u8]| MetadataRecord::decode(&Bytes::from_static(value)).unwrap_err();
        assert!(matches!(
            read(&[2, 20, 0, 0]),
            DecodeError::UnknownVersion { version: 2, .. }
        ));
        assert!(matches!(
            read(&[1, 6, 0, 0]),
            DecodeError::UnknownType { key: 6, .. }
        ));
        assert!(matches!(
            read(&[1, 20, 1, 0]),
            DecodeError::UnknownVersion { version: 1, .. }
        ));
        assert!(matches!(
            read(&[1, 0x80, 0x80, 4, 0]),
            DecodeError::UnknownType { key: 65_536, .. }
        ));
        assert!(matches!(read(&[1]), DecodeError::Truncated { .. }));
    }

    #[test]
    fn the_version_of_a_record_follows_the_metadata_version() {
        let registered = MetadataRecord::RegisterBroker(RegisterBrokerRecord::default());
        let partition = MetadataRecord::Partition(PartitionRecord::default());
        let topic = MetadataRecord::Topic(TopicRecord::default());
        assert_eq!(
            [7, 8, 17, 29, 30].map(|level| registered.version_at(level)),
            [1, 2, 3, 3, 4]
        );
        assert_eq!(
            [16, 17, 22, 23].map(|level| partition.version_at(level)),
            [0, 1, 1, 2]
        );
        assert_eq!(topic.version_at(30), 0);
    }

    #[test]
    fn at_the_newest_production_level_every_record_has_its_newest_version() {
        for (record, _) in MetadataRecord::arbitrary_of_each(&mut Random::new(0)) {
            assert_eq!(record.version_at(30), record.newest_version(), "{record:?}");
        }
    }
}

//! Control records: transaction markers and the records of the raft layer (kraft.md 11).
//!
//! They stand alone in batches with the control flag. The key says the type; the value begins with its own version.

use bytes::{BufMut, Bytes, BytesMut};

use super::data::{
    EndTxnMarker, KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord,
    SnapshotHeaderRecord, VotersRecord,
};
use crate::primitives::{DecodeError, Reader};

/// The version of the key. Keys of newer versions are read as this one, of which they are an extension.
const KEY_VERSION: i16 = 0;

/// A control record.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlRecord {
    Abort(EndTxnMarker),
    Commit(EndTxnMarker),
    LeaderChange(LeaderChangeMessage),
    SnapshotHeader(SnapshotHeaderRecord),
    SnapshotFooter(SnapshotFooterRecord),
    KRaftVersion(KRaftVersionRecord),
    Voters(VotersRecord),
}

impl ControlRecord {
    /// Reads a record. Types that this crate does not know are an error; a data log may skip them, the metadata log not.
    pub fn decode(key: &Bytes, value: &Bytes) -> Result<Self, DecodeError> {
        let mut key = Reader::new(key.clone());
        let version = key.i16()?;
        if version < KEY_VERSION {
            return Err(DecodeError::UnknownVersion {
                what: "control record key",
                version: i32::from(version),
            });
        }
        let value = &mut Reader::new(value.clone());
        match key.i16()? {
            0 => EndTxnMarker::decode(value).map(Self::Abort),
            1 => EndTxnMarker::decode(value).map(Self::Commit),
            2 => LeaderChangeMessage::decode(value).map(Self::LeaderChange),
            3 => SnapshotHeaderRecord::decode(value).map(Self::SnapshotHeader),
            4 => SnapshotFooterRecord::decode(value).map(Self::SnapshotFooter),
            5 => KRaftVersionRecord::decode(value).map(Self::KRaftVersion),
            6 => VotersRecord::decode(value).map(Self::Voters),
            key => Err(DecodeError::UnknownType {
                what: "control record",
                key: i32::from(key),
            }),
        }
    }

    /// The number of the type in the key.
    pub fn kind(&self) -> i16 {
        match self {
            Self::Abort(_) => 0,
            Self::Commit(_) => 1,
            Self::LeaderChange(_) => 2,
            Self::SnapshotHeader(_) => 3,
            Self::SnapshotFooter(_) => 4,
            Self::KRaftVersion(_) => 5,
            Self::Voters(_) => 6,
        }
    }

    pub fn encode_key(&self, out: &mut BytesMut) {
        out.put_i16(KEY_VERSION);
        out.put_i16(self.kind());
    }

    /// Appends the value in version 0, which is the only one that Kafka writes (kraft.md 9.1).
    pub fn encode_value(&self, out: &mut BytesMut) {
        match self {
            Self::Abort(body) | Self::Commit(body) => body.encode(out, 0),
            Self::LeaderChange(body) => body.encode(out, 0),
            Self::SnapshotHeader(body) => body.encode(out, 0),
            Self::SnapshotFooter(body) => body.encode(out, 0),
            Self::KRaftVersion(body) => body.encode(out, 0),
            Self::Voters(body) => body.encode(out, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{Arbitrary, Random};

    fn of_each(random: &mut Random) -> Vec<ControlRecord> {
        vec![
            ControlRecord::Abort(EndTxnMarker::arbitrary(random, 0)),
            ControlRecord::Commit(EndTxnMarker::arbitrary(random, 0)),
            ControlRecord::LeaderChange(LeaderChangeMessage::arbitrary(random, 0)),
            ControlRecord::SnapshotHeader(SnapshotHeaderRecord::arbitrary(random, 0)),
            ControlRecord::SnapshotFooter(SnapshotFooterRecord::arbitrary(random, 0)),
            ControlRecord::KRaftVersion(KRaftVersionRecord::arbitrary(random, 0)),
            ControlRecord::Voters(VotersRecord::arbitrary(random, 0)),
        ]
    }

    proptest! {
        #[test]
        fn every_control_record_is_read_back(seed: u64) {
            for record in of_each(&mut Random::new(seed)) {
                let (mut key, mut value) = (BytesMut::new(), BytesMut::new());
                record.encode_key(&mut key);
                record.encode_value(&mut value);
                prop_assert_eq!(ControlRecord::decode(&key.freeze(), &value.freeze()).unwrap(), record);
            }
        }
    }

    #[test]
    fn unknown_types_and_versions_are_errors() {
        let read = |key: &'static [u8], value: &'static [u8]| {
            ControlRecord::decode(&Bytes::from_static(key), &Bytes::from_static(value)).unwrap_err()
        };
        assert!(matches!(
            read(&[0, 0, 0, 7], &[0, 0]),
            DecodeError::UnknownType { key: 7, .. }
        ));
        assert!(matches!(
            read(&[0xff, 0xff, 0, 1], &[0, 0]),
            DecodeError::UnknownVersion { version: -1, .. }
        ));
        assert!(matches!(
            read(&[0, 0, 0, 1], &[0, 1, 0, 0, 0, 0]),
            DecodeError::UnknownVersion { version: 1, .. }
        ));
        assert!(matches!(
            read(&[0, 0, 0], &[]),
            DecodeError::Truncated { .. }
        ));
    }
}

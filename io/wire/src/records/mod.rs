//! What Kafka writes into its own logs.
//!
//! - [`metadata`]: the records of the metadata log
//! - [`control`]: control records of any log
//! - [`offsets`], [`transactions`], [`share_state`]: the internal topics
//! - [`data`]: other values that begin with their own version, such as the consumer protocol
//!
//! All structs are written by the build script from the tables in `schema/`.

/// Reading and writing of the keys and values of an internal topic, around what the build script has written for their bodies. For use where
/// that is included.
macro_rules! typed_codecs {
    ($key:ident, $value:ident) => {
        impl $key {
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

        impl $value {
            /// Reads the value of a record whose key is of type `kind`.
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
    };
}
use typed_codecs;

pub mod control;
pub mod data;
pub mod metadata;
pub mod offsets;
pub mod share_state;
pub mod transactions;

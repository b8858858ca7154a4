//! The smallest pieces of the protocol: text, ids, and how single values lie in bytes.
//!
//! A [`Reader`] walks a frame and hands out slices of it; the `put_*` functions append to a `BytesMut`. Both know the two
//! encodings of the protocol ([`Encoding`], W-5 and W-7). Not here: anything that knows a message.

mod error;
mod reader;
mod text;
mod uuid;
mod writer;

pub use error::DecodeError;
pub use reader::{Encoding, Reader};
pub use text::Text;
pub use uuid::{ParseUuidError, Uuid};
pub use writer::{
    put_array, put_array_count, put_bool, put_bytes, put_bytes_length, put_nullable_array,
    put_nullable_bytes, put_nullable_text, put_tagged, put_text, put_uuid, put_uvarint, put_varint,
    put_varlong, uvarint_size,
};

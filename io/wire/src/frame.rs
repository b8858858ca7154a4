//! What stands around a message: the size in front of a frame (W-1) and the headers of requests and responses (W-2, W-3).
//!
//! A reader of a socket asks [`frame_length`] how many bytes to wait for and gives the whole frame, without its prefix, to
//! [`RequestHeader::parse`]. Writers append a complete frame, prefix included, to a buffer. Not here: sockets, and which
//! versions a listener allows.

use bytes::{BufMut, Bytes, BytesMut};

use crate::messages::{api_schema, api_versions};
use crate::primitives::{DecodeError, Encoding, Reader, Text, put_nullable_text};

/// Bytes of the size in front of every frame.
pub const PREFIX_LENGTH: usize = 4;

/// The size in front of a frame is not one to wait for. The connection is closed (W-1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame claims the negative size {size}")]
    Negative { size: i32 },
    #[error("a frame claims {size} bytes; at most {max} are allowed (socket.request.max.bytes)")]
    TooLarge { size: usize, max: usize },
}

/// The bytes that follow the prefix of a frame; at most `max`.
pub fn frame_length(prefix: [u8; PREFIX_LENGTH], max: usize) -> Result<usize, FrameError> {
    let size = i32::from_be_bytes(prefix);
    let length = usize::try_from(size).map_err(|_| FrameError::Negative { size })?;
    if length > max {
        Err(FrameError::TooLarge { size: length, max })
    } else {
        Ok(length)
    }
}

/// The header of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Text>,
}

/// A frame whose header could not be read. The connection is closed without an answer (W-9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Which header it has cannot be known either.
    #[error("no API has the key {api_key}")]
    UnknownApi { api_key: i16 },
    #[error("the header cannot be read: {0}")]
    Malformed(#[from] DecodeError),
}

impl RequestHeader {
    /// Reads the header of `frame` (without its prefix) and returns it with a reader of the body.
    ///
    /// The version is not compared with what is supported: a too new ApiVersions request must be answered, anything
    /// else not, and which range counts depends on the listener.
    pub fn parse(frame: Bytes) -> Result<(Self, Reader), HeaderError> {
        let mut reader = Reader::new(frame);
        let (api_key, api_version) = (reader.i16()?, reader.i16()?);
        let encoding =
            encoding_of(api_key, api_version).ok_or(HeaderError::UnknownApi { api_key })?;
        let correlation_id = reader.i32()?;
        // A classic string in both versions of the header.
        let client_id = reader.nullable_text(Encoding::Classic)?;
        if encoding.is_flexible() {
            reader.skip_tagged()?;
        }
        Ok((
            Self {
                api_key,
                api_version,
                correlation_id,
                client_id,
            },
            reader,
        ))
    }

    /// The header of the response to this request.
    pub fn response(&self) -> ResponseHeader {
        ResponseHeader {
            api_key: self.api_key,
            api_version: self.api_version,
            correlation_id: self.correlation_id,
        }
    }

    /// Appends a whole request; `body` appends the message.
    pub fn put_frame(&self, out: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
        put_frame(out, |out| {
            out.put_i16(self.api_key);
            out.put_i16(self.api_version);
            out.put_i32(self.correlation_id);
            put_nullable_text(out, Encoding::Classic, self.client_id.as_deref());
            if encoding_of(self.api_key, self.api_version).is_some_and(Encoding::is_flexible) {
                out.put_u8(0);
            }
            body(out);
        });
    }
}

/// What decides the header of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Appends the header alone.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_i32(self.correlation_id);
        if self.is_tagged() {
            out.put_u8(0);
        }
    }

    /// Appends a whole response; `body` appends the message.
    pub fn put_frame(&self, out: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
        put_frame(out, |out| {
            self.encode(out);
            body(out);
        });
    }

    /// Reads the header of `frame` (without its prefix), the response to a request of this API and version.
    pub fn parse(
        frame: Bytes,
        api_key: i16,
        api_version: i16,
    ) -> Result<(Self, Reader), DecodeError> {
        let mut reader = Reader::new(frame);
        let header = Self {
            api_key,
            api_version,
            correlation_id: reader.i32()?,
        };
        if header.is_tagged() {
            reader.skip_tagged()?;
        }
        Ok((header, reader))
    }

    /// ApiVersions never has a tagged header: its client cannot know yet what the server speaks (W-3).
    fn is_tagged(&self) -> bool {
        let flexible =
            encoding_of(self.api_key, self.api_version).is_some_and(Encoding::is_flexible);
        flexible && self.api_key != api_versions::Response::KEY
    }
}

fn encoding_of(api_key: i16, api_version: i16) -> Option<Encoding> {
    api_schema(api_key).map(|api| Encoding::at(api_version, api.flexible_from))
}

/// Appends what `content` appends, with its size in front.
pub fn put_frame(out: &mut BytesMut, content: impl FnOnce(&mut BytesMut)) {
    let prefix_at = out.len();
    out.put_i32(0);
    content(out);
    let size = out.len() - prefix_at - PREFIX_LENGTH;
    out[prefix_at..prefix_at + PREFIX_LENGTH].copy_from_slice(&size_prefix(size));
}

/// The prefix of a frame of `size` bytes.
pub(crate) fn size_prefix(size: usize) -> [u8; PREFIX_LENGTH] {
    i32::try_from(size)
        .expect("what we write is bounded far below 2 GiB")
        .to_be_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use super::*;
    use crate::messages::metadata;

    fn header(api_key: i16, api_version: i16) -> RequestHeader {
        RequestHeader {
            api_key,
            api_version,
            correlation_id: 7,
            client_id: Some(Text::from("me")),
        }
    }

    #[test]
    fn sizes_outside_the_limits_are_refused() {
        assert_eq!(frame_length([0, 0, 0, 0], 10), Ok(0));
        assert_eq!(frame_length([0, 0, 0, 10], 10), Ok(10));
        assert_eq!(
            frame_length([0, 0, 0, 11], 10),
            Err(FrameError::TooLarge { size: 11, max: 10 })
        );
        assert_eq!(
            frame_length([0xff; 4], 10),
            Err(FrameError::Negative { size: -1 })
        );
        assert!(matches!(
            frame_length(*b"GET ", 104_857_600),
            Err(FrameError::TooLarge { .. })
        ));
    }

    #[test]
    fn every_header_is_read_back_with_its_body() {
        for api in crate::messages::APIS {
            for version in api.min..=api.max {
                for client_id in [None, Some(Text::from("me"))] {
                    let header = RequestHeader {
                        client_id,
                        ..header(api.key, version)
                    };
                    let mut out = BytesMut::new();
                    header.put_frame(&mut out, |out| out.put_slice(b"body"));
                    let size = frame_length(out[..4].try_into().unwrap(), 100).unwrap();
                    assert_eq!(size, out.len() - PREFIX_LENGTH);
                    let (parsed, reader) = RequestHeader::parse(out.freeze().slice(4..)).unwrap();
                    assert_eq!((parsed, &reader.rest()[..]), (header, &b"body"[..]));
                }
            }
        }
    }

    #[test]
    fn unknown_and_removed_apis_have_no_header() {
        for api_key in [-1, 4, 5, 6, 7, 95, i16::MAX] {
            let mut out = BytesMut::new();
            header(api_key, 0).put_frame(&mut out, |_| ());
            let refused = RequestHeader::parse(out.freeze().slice(4..));
            assert_eq!(
                refused.map(|(header, _)| header),
                Err(HeaderError::UnknownApi { api_key })
            );
        }
    }

    #[test]
    fn a_short_header_is_an_error() {
        let mut out = BytesMut::new();
        header(metadata::Request::KEY, 9).put_frame(&mut out, |_| ());
        let frame = out.freeze().slice(4..);
        for end in 0..frame.len() {
            assert!(
                matches!(
                    RequestHeader::parse(frame.slice(..end)),
                    Err(HeaderError::Malformed(_))
                ),
                "{end}"
            );
        }
    }

    #[test]
    fn a_too_new_api_versions_request_has_a_readable_header() {
        let mut out = BytesMut::new();
        header(api_versions::Request::KEY, 99).put_frame(&mut out, |out| out.put_slice(b"?"));
        let (parsed, _) = RequestHeader::parse(out.freeze().slice(4..)).unwrap();
        assert_eq!((parsed.api_version, parsed.correlation_id), (99, 7));
    }

    #[test]
    fn response_headers_are_tagged_in_flexible_versions_except_for_api_versions() {
        for (api_key, api_version, length) in
            [(3, 8, 4), (3, 9, 5), (18, 0, 4), (18, 4, 4), (17, 1, 4)]
        {
            let header = header(api_key, api_version).response();
            let mut out = BytesMut::new();
            header.encode(&mut out);
            assert_eq!(out.len(), length, "{api_key} v{api_version}");
            let (parsed, reader) =
                ResponseHeader::parse(out.freeze(), api_key, api_version).unwrap();
            assert_eq!((parsed, reader.remaining()), (header, 0));
        }
    }
}

//! Why bytes could not be read as a message.

/// What is wrong with the bytes and where: `offset` counts from the start of the frame that the reader was made of.
///
/// A broker closes the connection on any of these (W-9); there is no answer that the client could read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the frame ends inside a {what} at byte {offset}")]
    Truncated { what: &'static str, offset: usize },
    #[error("{what} at byte {offset} has the length {length}, which is negative")]
    NegativeLength {
        what: &'static str,
        offset: usize,
        length: i32,
    },
    #[error("{what} at byte {offset} is null where null is not allowed")]
    UnexpectedNull { what: &'static str, offset: usize },
    #[error(
        "an array at byte {offset} claims {count} elements; the {remaining} bytes that follow cannot hold them"
    )]
    CountTooLarge {
        offset: usize,
        count: usize,
        remaining: usize,
    },
    #[error("a {what} at byte {offset} does not end within its longest form")]
    VarintTooLong { what: &'static str, offset: usize },
    #[error("a string at byte {offset} is not UTF-8")]
    NotUtf8 { offset: usize },
    #[error("tag {tag} at byte {offset} does not come after the tag before it")]
    TagOrder { offset: usize, tag: u32 },
    #[error("tag {tag} at byte {offset} has a size other than its content")]
    TagSize { offset: usize, tag: u32 },
    #[error("{what} has no version {version}")]
    UnknownVersion { what: &'static str, version: i32 },
    #[error("{what} has no type {key}")]
    UnknownType { what: &'static str, key: i32 },
}

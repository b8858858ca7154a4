//! How effects, parts and replies are shown in the history.

use std::fmt;

use bytes::Bytes;
use corelog_shards::effect::Effect;
use corelog_shards::group::Request;
use corelog_shards::part::{Part, Reply};

/// An effect, in a few words.
pub struct Shown<'a>(pub &'a Effect);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Effect::Reply { reply, .. } => write!(out, "reply {}", reply_name(reply)),
            Effect::Send { to, .. } => write!(out, "message to {}", to.0),
            Effect::Write {
                op,
                file,
                position,
                chunks,
            } => {
                let len: usize = chunks.iter().map(Bytes::len).sum();
                write!(
                    out,
                    "write {} of {}: {:?} {} at {position}, {len} bytes",
                    op.seq, op.slot as i32, file.kind, file.base
                )
            }
            Effect::Sync { op, file } => {
                write!(
                    out,
                    "sync {} of {}: {:?} {}",
                    op.seq, op.slot as i32, file.kind, file.base
                )
            }
            Effect::Read {
                op,
                file,
                position,
                len,
            } => write!(
                out,
                "read {} of {}: {:?} {} at {position}, {len} bytes",
                op.seq, op.slot as i32, file.kind, file.base
            ),
            Effect::Map { op, file } => {
                write!(
                    out,
                    "map {} of {}: {:?} {}",
                    op.seq, op.slot as i32, file.kind, file.base
                )
            }
            Effect::Seal { op, file, len } | Effect::Truncate { op, file, len } => write!(
                out,
                "length {} of {}: {:?} {} is {len}",
                op.seq, op.slot as i32, file.kind, file.base
            ),
            Effect::Replace { op, file, content } => write!(
                out,
                "replace {} of {}: {:?} {} with {} bytes",
                op.seq,
                op.slot as i32,
                file.kind,
                file.base,
                content.len()
            ),
            Effect::Delete { op, files, .. } => {
                write!(
                    out,
                    "delete {} of {}: {} files",
                    op.seq,
                    op.slot as i32,
                    files.len()
                )
            }
            Effect::CreateLog { op, name, .. } => {
                write!(out, "create of {}: {}", op.slot as i32, name.as_str())
            }
            Effect::OpenLog { name, .. } => write!(out, "open {}", name.as_str()),
            Effect::DeleteLog { op, log, .. } => {
                write!(
                    out,
                    "delete of {}: {}-{}",
                    op.slot as i32, log.topic_id, log.partition
                )
            }
            Effect::Publish(image) => write!(out, "publish {}", image.version),
            Effect::Checkpoint(lines) => write!(out, "checkpoint of {}", lines.len()),
            Effect::LogDirFailed { .. } => write!(out, "log directory failed"),
            Effect::Stopped => write!(out, "stopped"),
        }
    }
}

pub fn part_name(part: &Part) -> &'static str {
    match part {
        Part::Produce(_) => "produce",
        Part::FetchPeek(_) => "peek",
        Part::FetchCollect(_) => "collect",
        Part::SessionBegin(_) => "session begin",
        Part::SessionEnd(_) => "session end",
        Part::ListOffsets(_) => "list offsets",
        Part::DeleteRecords(_) => "delete records",
        Part::Group(request) => group_request_name(request),
        Part::Controller(_) => "controller",
        _ => "other",
    }
}

pub fn reply_name(reply: &Reply) -> &'static str {
    match reply {
        Reply::Produce(_) => "produce",
        Reply::FetchPeek(_) => "peek",
        Reply::FetchWake(_) => "wake",
        Reply::FetchCollect(_) => "collect",
        Reply::SessionBegin(_) => "session begin",
        Reply::SessionEnd(_) => "session end",
        Reply::ListOffsets(_) => "list offsets",
        Reply::DeleteRecords(_) => "delete records",
        Reply::Group(_) => "group",
        Reply::Controller(_) => "controller",
        _ => "other",
    }
}

fn group_request_name(request: &Request) -> &'static str {
    match request {
        Request::Join(_) => "join",
        Request::Sync(_) => "sync",
        Request::Heartbeat(_) => "heartbeat",
        Request::Leave(_) => "leave",
        Request::Commit(_) => "commit",
        Request::FetchOffsets(_) => "fetch offsets",
        Request::Describe(_) => "describe groups",
        Request::Delete(_) => "delete groups",
        Request::DeleteOffsets(_) => "delete offsets",
        Request::List(_) => "list groups",
    }
}

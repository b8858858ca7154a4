//! What a group's member sends, each request in its last version before the flexible ones: FindCoordinator 2, JoinGroup 5, SyncGroup 3,
//! Heartbeat 3, LeaveGroup 3, OffsetCommit 7, OffsetFetch 5, DescribeGroups 4.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};

use crate::connection::{Connection, parsed, put_text};

pub(crate) const NOT_AVAILABLE: i16 = 15;
pub(crate) const NOT_COORDINATOR: i16 = 16;
pub(crate) const ILLEGAL_GENERATION: i16 = 22;
pub(crate) const UNKNOWN_MEMBER: i16 = 25;
pub(crate) const REBALANCE: i16 = 27;
pub(crate) const MEMBER_ID_REQUIRED: i16 = 79;
pub(crate) const FENCED_INSTANCE: i16 = 82;

/// Who asks, as far as a request says it.
#[derive(Clone, Debug)]
pub(crate) struct Who<'a> {
    pub(crate) group: &'a str,
    pub(crate) generation: i32,
    pub(crate) member: &'a str,
    pub(crate) instance: Option<&'a str>,
}

pub(crate) struct Timeouts {
    pub(crate) session_ms: i32,
    pub(crate) rebalance_ms: i32,
}

pub(crate) struct Joined {
    pub(crate) error: i16,
    pub(crate) generation: i32,
    pub(crate) leader: String,
    pub(crate) member: String,
    /// Everybody, for the leader.
    pub(crate) members: Vec<String>,
}

pub(crate) struct Synced {
    pub(crate) error: i16,
    pub(crate) assignment: Bytes,
}

/// One partition's answer to OffsetFetch; -1 = nothing was committed.
pub(crate) struct Committed {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) error: i16,
}

pub(crate) const PROTOCOL: &str = "crash";

impl Connection {
    pub(crate) fn find_coordinator(&mut self, group: &str) -> io::Result<i16> {
        let mut body = BytesMut::new();
        put_text(&mut body, group);
        body.put_u8(0);
        parsed(self.ask(10, 2, &body)?, |answer| {
            answer.skip(4)?;
            answer.short()
        })
    }

    pub(crate) fn send_join(
        &mut self,
        who: &Who<'_>,
        timeouts: &Timeouts,
        metadata: &[u8],
    ) -> io::Result<()> {
        let mut body = BytesMut::new();
        put_text(&mut body, who.group);
        body.put_i32(timeouts.session_ms);
        body.put_i32(timeouts.rebalance_ms);
        put_text(&mut body, who.member);
        put_optional(&mut body, who.instance);
        put_text(&mut body, "consumer");
        body.put_i32(1);
        put_text(&mut body, PROTOCOL);
        put_bytes(&mut body, metadata);
        self.send(11, 5, &body)
    }

    pub(crate) fn receive_join(&mut self) -> io::Result<Joined> {
        parsed(self.receive()?, |answer| {
            answer.skip(4)?;
            let error = answer.short()?;
            let generation = answer.int()?;
            answer.text()?;
            let (leader, member) = (answer.word()?, answer.word()?);
            let mut members = Vec::new();
            for _ in 0..answer.int()? {
                members.push(answer.word()?);
                answer.text()?;
                answer.bytes()?;
            }
            Ok(Joined {
                error,
                generation,
                leader,
                member,
                members,
            })
        })
    }

    pub(crate) fn send_sync(
        &mut self,
        who: &Who<'_>,
        assignments: &[(String, Bytes)],
    ) -> io::Result<()> {
        let mut body = BytesMut::new();
        put_who(&mut body, who);
        body.put_i32(assignments.len() as i32);
        for (member, assignment) in assignments {
            put_text(&mut body, member);
            put_bytes(&mut body, assignment);
        }
        self.send(14, 3, &body)
    }

    pub(crate) fn receive_sync(&mut self) -> io::Result<Synced> {
        parsed(self.receive()?, |answer| {
            answer.skip(4)?;
            Ok(Synced {
                error: answer.short()?,
                assignment: answer.bytes()?,
            })
        })
    }

    pub(crate) fn heartbeat(&mut self, who: &Who<'_>) -> io::Result<i16> {
        let mut body = BytesMut::new();
        put_who(&mut body, who);
        parsed(self.ask(12, 3, &body)?, |answer| {
            answer.skip(4)?;
            answer.short()
        })
    }

    /// The request's code, or the member's when the request as a whole is well.
    pub(crate) fn leave(&mut self, who: &Who<'_>) -> io::Result<i16> {
        let mut body = BytesMut::new();
        put_text(&mut body, who.group);
        body.put_i32(1);
        put_text(&mut body, who.member);
        put_optional(&mut body, who.instance);
        parsed(self.ask(13, 3, &body)?, |answer| {
            answer.skip(4)?;
            let error = answer.short()?;
            if error != 0 {
                return Ok(error);
            }
            answer.skip(4)?;
            answer.text()?;
            answer.text()?;
            answer.short()
        })
    }

    /// Commits offsets of one topic; the codes in the order of `offsets`.
    pub(crate) fn commit(
        &mut self,
        who: &Who<'_>,
        topic: &str,
        offsets: &[(i32, i64)],
    ) -> io::Result<Vec<i16>> {
        let mut body = BytesMut::new();
        put_who(&mut body, who);
        body.put_i32(1);
        put_text(&mut body, topic);
        body.put_i32(offsets.len() as i32);
        for (partition, offset) in offsets {
            body.put_i32(*partition);
            body.put_i64(*offset);
            body.put_i32(-1);
            body.put_i16(-1);
        }
        parsed(self.ask(8, 7, &body)?, |answer| {
            answer.skip(4)?;
            let mut codes = Vec::new();
            for _ in 0..answer.int()? {
                answer.text()?;
                for _ in 0..answer.int()? {
                    answer.skip(4)?;
                    codes.push(answer.short()?);
                }
            }
            Ok(codes)
        })
    }

    /// The request's code and the committed offsets of one topic's partitions.
    pub(crate) fn committed(
        &mut self,
        group: &str,
        topic: &str,
        partitions: &[i32],
    ) -> io::Result<(i16, Vec<Committed>)> {
        let mut body = BytesMut::new();
        put_text(&mut body, group);
        body.put_i32(1);
        put_text(&mut body, topic);
        body.put_i32(partitions.len() as i32);
        for partition in partitions {
            body.put_i32(*partition);
        }
        parsed(self.ask(9, 5, &body)?, |answer| {
            answer.skip(4)?;
            let mut all = Vec::new();
            for _ in 0..answer.int()? {
                answer.text()?;
                for _ in 0..answer.int()? {
                    let (partition, offset) = (answer.int()?, answer.long()?);
                    answer.skip(4)?;
                    answer.text()?;
                    all.push(Committed {
                        partition,
                        offset,
                        error: answer.short()?,
                    });
                }
            }
            Ok((answer.short()?, all))
        })
    }

    /// State and ids of the members, for a person to read.
    pub(crate) fn describe(&mut self, group: &str) -> io::Result<String> {
        let mut body = BytesMut::new();
        body.put_i32(1);
        put_text(&mut body, group);
        body.put_u8(0);
        parsed(self.ask(15, 4, &body)?, |answer| {
            answer.skip(8)?;
            let error = answer.short()?;
            answer.text()?;
            let state = answer.word()?;
            answer.text()?;
            answer.text()?;
            let mut members = Vec::new();
            for _ in 0..answer.int()? {
                members.push(answer.word()?);
                answer.text()?;
                answer.text()?;
                answer.text()?;
                answer.bytes()?;
                answer.bytes()?;
            }
            Ok(format!(
                "error {error}, {state}, members {}",
                members.join(" ")
            ))
        })
    }
}

/// A consumer's subscription to one topic (version 0). `mood` is its user data: another one is another subscription.
pub(crate) fn subscription(topic: &str, mood: u8) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(1);
    put_text(&mut out, topic);
    put_bytes(&mut out, &[mood]);
    out.freeze()
}

/// A consumer's assignment of partitions of one topic (version 0).
pub(crate) fn assignment(topic: &str, partitions: &[i32]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(1);
    put_text(&mut out, topic);
    out.put_i32(partitions.len() as i32);
    for partition in partitions {
        out.put_i32(*partition);
    }
    put_bytes(&mut out, &[]);
    out.freeze()
}

/// The partitions in an assignment; a member that was given nothing at all has none.
pub(crate) fn assigned(assignment: Bytes) -> io::Result<Vec<i32>> {
    if assignment.is_empty() {
        return Ok(Vec::new());
    }
    parsed(assignment, |answer| {
        answer.skip(2)?;
        let mut partitions = Vec::new();
        for _ in 0..answer.int()? {
            answer.text()?;
            for _ in 0..answer.int()? {
                partitions.push(answer.int()?);
            }
        }
        Ok(partitions)
    })
}

fn put_who(body: &mut BytesMut, who: &Who<'_>) {
    put_text(body, who.group);
    body.put_i32(who.generation);
    put_text(body, who.member);
    put_optional(body, who.instance);
}

fn put_optional(body: &mut BytesMut, text: Option<&str>) {
    match text {
        Some(text) => put_text(body, text),
        None => body.put_i16(-1),
    }
}

fn put_bytes(body: &mut BytesMut, bytes: &[u8]) {
    body.put_i32(bytes.len() as i32);
    body.put_slice(bytes);
}

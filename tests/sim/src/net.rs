//! The virtual net: connections that carry bytes in order, cut into any pieces, until they are lost.
//!
//! Between connections there is no order. A lost connection loses what was under way in both directions. Not here: when a piece arrives.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::oracle::Asked;
use crate::seeded::Seeded;

/// One connection of a client to a core.
pub struct Connection {
    pub client: usize,
    pub core: usize,
    /// Pieces under way, each with the moment at which it arrives.
    pub to_broker: VecDeque<Bytes>,
    pub to_client: VecDeque<Bytes>,
    pub broker_clock: u64,
    pub client_clock: u64,
    /// What the client has of the next frame.
    pub received: BytesMut,
    /// Requests that have not been answered, in the order in which they were sent.
    pub asked: VecDeque<Asked>,
    /// Answered by the broker, not yet received as a whole by the client.
    pub answered: VecDeque<crate::oracle::Answered>,
}

/// All connections, by number.
#[derive(Default)]
pub struct Net {
    pub connections: BTreeMap<u64, Connection>,
    next: u64,
}

impl Net {
    pub fn connect(&mut self, client: usize, core: usize, now_us: u64) -> u64 {
        self.next += 1;
        let connection = Connection {
            client,
            core,
            to_broker: VecDeque::new(),
            to_client: VecDeque::new(),
            broker_clock: now_us,
            client_clock: now_us,
            received: BytesMut::new(),
            asked: VecDeque::new(),
            answered: VecDeque::new(),
        };
        self.connections.insert(self.next, connection);
        self.next
    }
}

/// Cuts a frame into pieces.
pub fn pieces(mut frame: Bytes, seeded: &mut Seeded) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    while !frame.is_empty() && pieces.len() < 3 && seeded.percent(25) {
        let at = seeded.index(frame.len());
        pieces.push(frame.split_to(at));
    }
    pieces.push(frame);
    pieces
}

/// Takes the next whole frame off the front of a stream: without its size prefix.
pub fn next_frame(stream: &mut BytesMut) -> Option<Bytes> {
    let prefix = stream.first_chunk::<4>()?;
    let len = u32::from_be_bytes(*prefix) as usize;
    if stream.len() < 4 + len {
        return None;
    }
    Some(stream.split_to(4 + len).freeze().slice(4..))
}

//! Replies leave a connection in request order (W-8), whatever the order in which they become ready.

use std::collections::VecDeque;

use bytes::Bytes;

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One frame, as pieces.
    Frame(Pieces),
    /// No response (acks=0).
    Silent,
}

/// A frame of one piece needs no allocation.
#[derive(Debug, PartialEq, Eq)]
pub enum Pieces {
    One(Bytes),
    Many(Vec<Bytes>),
}

/// The requests of one connection that have not been answered, in order.
#[derive(Debug, Default)]
pub struct ReplyOrder {
    /// Sequence number of the front of `slots`.
    first: u64,
    slots: VecDeque<Option<Outcome>>,
}

impl ReplyOrder {
    /// A request was read: its place in the order.
    pub fn admit(&mut self) -> u64 {
        self.slots.push_back(None);
        self.first + self.slots.len() as u64 - 1
    }

    /// The outcome of request `seq` is there.
    ///
    /// # Panics
    /// If the request was never admitted or has an outcome already: our fault, and order would be lost.
    pub fn ready(&mut self, seq: u64, outcome: Outcome) {
        let index = seq
            .checked_sub(self.first)
            .and_then(|i| usize::try_from(i).ok());
        let slot = index.and_then(|i| self.slots.get_mut(i));
        let slot = slot.unwrap_or_else(|| {
            panic!(
                "request {seq} is not under way (the oldest is {})",
                self.first
            )
        });
        assert!(slot.is_none(), "request {seq} has two outcomes");
        *slot = Some(outcome);
    }

    /// The next outcome that may leave.
    pub fn pop(&mut self) -> Option<Outcome> {
        let outcome = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.first += 1;
        Some(outcome)
    }

    /// Requests that have been read and not yet answered.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(n: u64) -> Outcome {
        Outcome::Frame(Pieces::One(Bytes::from(n.to_string())))
    }

    #[test]
    fn a_later_reply_waits_for_the_earlier_one() {
        let mut order = ReplyOrder::default();
        let (a, b) = (order.admit(), order.admit());
        order.ready(b, frame(b));
        assert_eq!(order.pop(), None);
        order.ready(a, Outcome::Silent);
        assert_eq!(order.pop(), Some(Outcome::Silent));
        assert_eq!(order.pop(), Some(frame(b)));
        assert!(order.is_empty());
    }

    proptest! {
        #[test]
        fn replies_leave_in_request_order(delays in proptest::collection::vec(0u8..20, 1..60)) {
            let mut order = ReplyOrder::default();
            let mut ready: Vec<(u8, u64)> = delays.iter().map(|d| (*d, order.admit())).collect();
            ready.sort_unstable();
            let mut left = Vec::new();
            for (_, seq) in ready {
                order.ready(seq, frame(seq));
                while let Some(outcome) = order.pop() {
                    left.push(outcome);
                }
            }
            let expected: Vec<Outcome> = (0..delays.len() as u64).map(frame).collect();
            prop_assert_eq!(left, expected);
        }
    }
}

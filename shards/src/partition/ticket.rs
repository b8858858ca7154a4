//! Tickets: how a read that a log finishes later finds its way back.

/// Who asked a log to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticket {
    /// Entry `index` of the collect request `key`.
    Collect { key: u32, index: u32 },
    /// Entry `index` of the ListOffsets request `key`.
    List { key: u32, index: u32 },
    /// A coordinator of this shard; the number is its own, below 2^62.
    Internal(u64),
}

const KIND: u32 = 62;
/// Two bits of the index are the kind: a request has far fewer entries than 2^30.
const INDEX_MAX: u32 = (1 << 30) - 1;

impl Ticket {
    pub(super) fn pack(self) -> u64 {
        let (kind, rest) = match self {
            Ticket::Collect { key, index } => (0, place(key, index)),
            Ticket::List { key, index } => (1, place(key, index)),
            Ticket::Internal(number) => (2, number),
        };
        assert!(rest >> KIND == 0, "ticket {rest} does not fit");
        kind << KIND | rest
    }

    pub(super) fn unpack(packed: u64) -> Ticket {
        let rest = packed & !(3 << KIND);
        let (key, index) = (rest as u32, (rest >> 32) as u32);
        match packed >> KIND {
            0 => Ticket::Collect { key, index },
            1 => Ticket::List { key, index },
            _ => Ticket::Internal(rest),
        }
    }
}

fn place(key: u32, index: u32) -> u64 {
    assert!(index <= INDEX_MAX, "entry {index} of one request");
    u64::from(key) | u64::from(index) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_comes_back_as_it_was() {
        for ticket in [
            Ticket::Collect { key: 0, index: 0 },
            Ticket::Collect {
                key: u32::MAX,
                index: INDEX_MAX,
            },
            Ticket::List { key: 7, index: 9 },
            Ticket::Internal((1 << 62) - 1),
        ] {
            assert_eq!(Ticket::unpack(ticket.pack()), ticket);
        }
    }
}

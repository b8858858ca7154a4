//! The ledger of one partition: how far it is loaded, which appends are under way.
//!
//! `T` is what the machine wants to remember of an append until its outcome is known.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::Ask;
use super::replay::{Record, Unreadable, batch_of, records_of};
use crate::base::error_code::ErrorCode;
use crate::base::ids::TopicPartition;
use crate::base::time::Mono;
use crate::effect::Chunks;

/// One step of a load reads so much: a turn replays it in about a millisecond. `offsets.load.buffer.size` only makes it smaller.
const LOAD_BYTES: u32 = 128 << 10;

/// How a partition's coordinator stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its log can't be read yet, or not any more.
    Waiting {
        refusal: ErrorCode,
    },
    /// COORDINATOR_LOAD_IN_PROGRESS
    Loading {
        next: i64,
        ticket: u64,
    },
    Active,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger<T> {
    pub partition: TopicPartition,
    pub leader_epoch: i32,
    phase: Phase,
    appends: VecDeque<Pending<T>>,
}

#[derive(Debug)]
struct Pending<T> {
    ticket: u64,
    /// Whoever waits is told to try again.
    give_up_at: Mono,
    given_up: bool,
    memory: T,
}

/// What a step of the load brought.
#[derive(Debug, PartialEq, Eq)]
pub enum LoadStep {
    More,
    Finished,
    /// The log can't be read now; the ledger waits.
    Failed,
}

impl<T> Ledger<T> {
    pub fn new(partition: TopicPartition, leader_epoch: i32) -> Ledger<T> {
        Ledger {
            partition,
            leader_epoch,
            phase: Phase::Waiting {
                refusal: ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            },
            appends: VecDeque::new(),
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What a request is told instead of being served.
    pub fn refusal(&self) -> Option<ErrorCode> {
        match self.phase {
            Phase::Waiting { refusal } => Some(refusal),
            Phase::Loading { .. } => Some(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
            Phase::Active => None,
        }
    }

    /// Begins to load, if it waits.
    pub fn load(&mut self, ticket: u64, buffer_bytes: u32, asks: &mut VecDeque<Ask>) {
        if matches!(self.phase, Phase::Waiting { .. }) {
            self.read(0, ticket, buffer_bytes, asks);
        }
    }

    fn read(&mut self, next: i64, ticket: u64, buffer_bytes: u32, asks: &mut VecDeque<Ask>) {
        self.phase = Phase::Loading { next, ticket };
        asks.push_back(Ask::Read {
            partition: self.partition,
            offset: next,
            max_bytes: buffer_bytes.min(LOAD_BYTES),
            ticket,
        });
    }

    /// Whether the load waits for the read with this ticket; an older read is of no interest any more.
    pub fn awaits(&self, read: u64) -> bool {
        matches!(self.phase, Phase::Loading { ticket, .. } if ticket == read)
    }

    /// Takes what the read that it waits for brought: hands on its records and asks for more, until there is nothing more.
    pub fn on_read(
        &mut self,
        result: Result<Chunks, ErrorCode>,
        buffer_bytes: u32,
        asks: &mut VecDeque<Ask>,
        each: impl FnMut(Record),
    ) -> LoadStep {
        let Phase::Loading { next, ticket } = self.phase else {
            return LoadStep::Failed;
        };
        let bytes = match result {
            Ok(chunks) => joined(chunks),
            Err(code) => {
                tracing::debug!(partition = ?self.partition, %code, "a coordinator's log can't be read yet");
                self.phase = Phase::Waiting {
                    // NOT_LEADER_OR_FOLLOWER: its log is still being recovered.
                    refusal: match code {
                        ErrorCode::NOT_LEADER_OR_FOLLOWER => {
                            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                        }
                        _ => ErrorCode::NOT_COORDINATOR,
                    },
                };
                return LoadStep::Failed;
            }
        };
        if bytes.is_empty() {
            self.phase = Phase::Active;
            return LoadStep::Finished;
        }
        match records_of(&bytes, next, each) {
            Ok(after) if after > next => {
                self.read(after, ticket, buffer_bytes, asks);
                LoadStep::More
            }
            Ok(_) => self.unreadable(&Unreadable::Batch { offset: next }),
            Err(error) => self.unreadable(&error),
        }
    }

    /// The log lies: what it holds was checked when it was written. Its groups are not served until the broker starts anew.
    fn unreadable(&mut self, error: &Unreadable) -> LoadStep {
        tracing::error!(
            partition = ?self.partition,
            %error,
            "a coordinator's log can't be replayed; what it coordinates is not served. Check the disk, restore the log, then restart"
        );
        self.phase = Phase::Waiting {
            refusal: ErrorCode::NOT_COORDINATOR,
        };
        LoadStep::Failed
    }

    /// Appends a batch; `memory` comes back when the outcome is known.
    pub fn append(
        &mut self,
        batch: Bytes,
        ticket: u64,
        give_up_at: Mono,
        memory: T,
        asks: &mut VecDeque<Ask>,
    ) {
        assert_eq!(self.phase, Phase::Active, "an append before the load");
        self.appends.push_back(Pending {
            ticket,
            give_up_at,
            given_up: false,
            memory,
        });
        asks.push_back(Ask::Append {
            partition: self.partition,
            batch,
            ticket,
        });
    }

    /// The memory of a finished append. Outcomes come in the order of the appends, but for one that is refused at once.
    pub fn settle(&mut self, ticket: u64) -> Option<T> {
        let at = self
            .appends
            .iter()
            .position(|pending| pending.ticket == ticket)?;
        Some(self.appends.remove(at)?.memory)
    }

    /// The appends that have taken too long by `now` and have not been looked at since: their answers can't wait for them.
    pub fn late(&mut self, now: Mono) -> impl Iterator<Item = &mut T> {
        self.appends
            .iter_mut()
            .filter(move |pending| !pending.given_up && pending.give_up_at <= now)
            .map(|pending| {
                pending.given_up = true;
                &mut pending.memory
            })
    }

    /// When [`Ledger::late`] is to be asked.
    pub fn next_give_up(&self) -> Option<Mono> {
        self.appends
            .iter()
            .find(|pending| !pending.given_up)
            .map(|pending| pending.give_up_at)
    }

    pub fn appends_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.appends.iter_mut().map(|pending| &mut pending.memory)
    }

    /// Forgets everything that is under way; the state has to be forgotten with it.
    pub fn unload(&mut self) -> Vec<T> {
        self.phase = Phase::Waiting {
            refusal: ErrorCode::NOT_COORDINATOR,
        };
        self.appends
            .drain(..)
            .map(|pending| pending.memory)
            .collect()
    }
}

fn joined(chunks: Chunks) -> Bytes {
    if chunks.len() == 1 {
        return chunks.into_iter().next().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    for chunk in chunks {
        all.extend_from_slice(&chunk);
    }
    all.freeze()
}

/// The batch of `records`, or nothing when they can't be built, which is our fault and said here.
pub fn build(
    records: &[Record],
    now_ms: i64,
    codec: corelog_wire::compress::Codec,
) -> Option<Bytes> {
    match batch_of(records, now_ms, codec) {
        Ok(batch) => Some(batch),
        Err(error) => {
            tracing::error!(%error, "a coordinator's batch can't be built");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use corelog_wire::compress::Codec;
    use smallvec::smallvec;

    use super::*;
    use crate::base::ids::METADATA_LOG;

    fn batch(base_offset: i64) -> Bytes {
        let record = Record {
            key: Bytes::from_static(b"k"),
            value: None,
        };
        let mut batch = BytesMut::from(&batch_of(&[record], 0, Codec::None).unwrap()[..]);
        corelog_wire::batch::set_base_offset(&mut batch, base_offset);
        batch.freeze()
    }

    fn read_of(asks: &mut VecDeque<Ask>) -> (i64, u64) {
        match asks.pop_front() {
            Some(Ask::Read { offset, ticket, .. }) => (offset, ticket),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn g3_a_load_goes_step_by_step_to_the_end_of_the_log() {
        let (mut ledger, mut asks) = (Ledger::<()>::new(METADATA_LOG, 0), VecDeque::new());
        let loading = Some(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        assert_eq!(ledger.refusal(), loading);
        ledger.load(7, 1 << 20, &mut asks);
        assert_eq!(ledger.refusal(), loading);
        assert_eq!(read_of(&mut asks), (0, 7));
        let mut seen = 0;
        // Compaction leaves holes: the next read goes on where the last batch ended.
        let step = ledger.on_read(
            Ok(smallvec![batch(3), batch(9)]),
            1 << 20,
            &mut asks,
            |_| seen += 1,
        );
        assert_eq!((step, seen), (LoadStep::More, 2));
        assert_eq!(read_of(&mut asks), (10, 7));
        let step = ledger.on_read(Ok(Chunks::new()), 1 << 20, &mut asks, |_| ());
        assert_eq!((step, ledger.refusal()), (LoadStep::Finished, None));
    }

    #[test]
    fn a_failed_load_can_begin_again_and_an_old_read_does_not_disturb_it() {
        let (mut ledger, mut asks) = (Ledger::<()>::new(METADATA_LOG, 0), VecDeque::new());
        ledger.load(1, 1, &mut asks);
        let failed = Err(ErrorCode::KAFKA_STORAGE_ERROR);
        assert_eq!(
            ledger.on_read(failed, 1, &mut asks, |_| ()),
            LoadStep::Failed
        );
        ledger.load(2, 1, &mut asks);
        assert_eq!((ledger.awaits(1), ledger.awaits(2)), (false, true));
        assert!(matches!(ledger.phase(), Phase::Loading { ticket: 2, .. }));
    }

    #[test]
    fn bytes_that_are_no_batch_stop_the_load() {
        let (mut ledger, mut asks) = (Ledger::<()>::new(METADATA_LOG, 0), VecDeque::new());
        ledger.load(1, 1, &mut asks);
        let garbage: Chunks = smallvec![Bytes::from_static(&[0xff; 80])];
        assert_eq!(
            ledger.on_read(Ok(garbage), 1, &mut asks, |_| ()),
            LoadStep::Failed
        );
    }

    #[test]
    fn appends_settle_once_and_the_late_ones_are_named_once() {
        let (mut ledger, mut asks) = (Ledger::new(METADATA_LOG, 0), VecDeque::new());
        ledger.load(1, 1, &mut asks);
        ledger.on_read(Ok(Chunks::new()), 1, &mut asks, |_| ());
        ledger.append(batch(0), 2, Mono(50), 'a', &mut asks);
        ledger.append(batch(0), 3, Mono(60), 'b', &mut asks);
        assert_eq!(ledger.next_give_up(), Some(Mono(50)));
        assert_eq!(
            ledger
                .late(Mono(55))
                .map(|memory| *memory)
                .collect::<String>(),
            "a"
        );
        assert_eq!(ledger.late(Mono(55)).count(), 0);
        assert_eq!(ledger.next_give_up(), Some(Mono(60)));
        assert_eq!((ledger.settle(2), ledger.settle(2)), (Some('a'), None));
        assert_eq!(ledger.unload(), ['b']);
        assert_eq!(ledger.refusal(), Some(ErrorCode::NOT_COORDINATOR));
    }
}

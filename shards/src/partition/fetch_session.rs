//! Fetch sessions (KIP-227, kafka.md 4.2). A session belongs to one shard, which its id encodes.
//!
//! A session fetch has two more rounds than a plain one: `Begin` expands the request to the session's full list of partitions, and `End` says which
//! partitions the answer has to include. One fetch of a session is under way at a time: its epoch says which.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::base::error_code::ErrorCode;
use crate::base::ids::{ShardId, Text, Uuid};
use crate::base::time::Mono;

/// How the client names a topic: by name up to Fetch v12, by id from v13.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TopicKey {
    Name(Text),
    Id(Uuid),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPartition {
    pub topic: TopicKey,
    pub partition: i32,
    pub fetch_offset: i64,
    pub current_leader_epoch: i32,
    pub last_fetched_epoch: i32,
    pub log_start_offset: i64,
    pub max_bytes: u32,
}

/// A fetch request that uses or wants a session. It goes to the shard that its session id names, or to any if that is 0.
pub struct Begin {
    /// Topics are named by id (v13 and later).
    pub by_id: bool,
    pub session_id: i32,
    pub session_epoch: i32,
    pub partitions: Vec<SessionPartition>,
    pub forgotten: Vec<(TopicKey, i32)>,
}

pub struct Begun {
    /// NONE, FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR: top level, no partitions.
    pub code: ErrorCode,
    /// 0 = no session could be had: the fetch goes on without.
    pub session_id: i32,
    /// What to fetch, in order; `at` of later parts is the index here.
    pub partitions: Vec<SessionPartition>,
}

/// What a fetch brought, per partition in the order of [`Begun::partitions`].
pub struct End {
    pub session_id: i32,
    pub results: Vec<SessionResult>,
}

pub struct SessionResult {
    pub code: ErrorCode,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    /// Records, a diverging epoch or a preferred replica: must be in the answer whatever else.
    pub has_news: bool,
    pub has_records: bool,
}

pub struct Ended {
    /// Per partition of [`Begun::partitions`]: is it in the answer (S-5)?
    pub include: Vec<bool>,
}

/// A session may be evicted for another once it has been idle this long (S-2). Kafka's figure.
const IDLE_MS: u64 = 120_000;
/// The epoch of a fetch that wants no session, or closes the one it names (S-1).
const FINAL: i32 = -1;
/// The epoch of a fetch that wants a new session (S-1).
const INITIAL: i32 = 0;

/// The sessions of one shard.
pub struct FetchSessions {
    shard: ShardId,
    shards: u16,
    /// This shard's share of `max.incremental.fetch.session.cache.slots`.
    slots_max: usize,
    random: u64,
    sessions: FxHashMap<i32, Session>,
}

struct Session {
    by_id: bool,
    /// The epoch of the next fetch.
    epoch: i32,
    /// Nothing has been answered yet: the first answer includes everything.
    fresh: bool,
    created: Mono,
    used: Mono,
    /// In the order in which they are fetched (S-4).
    partitions: BTreeMap<u64, Cached>,
    places: FxHashMap<(TopicKey, i32), u64>,
    next_place: u64,
}

struct Cached {
    request: SessionPartition,
    /// As of the last answer; -1 makes the next one include the partition.
    high_watermark: i64,
    log_start_offset: i64,
}

impl FetchSessions {
    /// `seed` makes the ids unpredictable between runs; with the same seed they are the same.
    pub fn new(shard: ShardId, shards: u16, slots: usize, seed: u64) -> FetchSessions {
        let shards = shards.max(1);
        let index = usize::from(shard.0);
        let slots_max =
            slots / usize::from(shards) + usize::from(index < slots % usize::from(shards));
        FetchSessions {
            shard,
            shards,
            slots_max,
            random: seed ^ u64::from(shard.0),
            sessions: FxHashMap::default(),
        }
    }

    /// The shard that owns a session id.
    pub fn owner(session_id: i32, shards: u16) -> ShardId {
        ShardId((session_id.unsigned_abs() % u32::from(shards.max(1))) as u16)
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    pub fn begin(&mut self, now: Mono, begin: Begin) -> Begun {
        match begin.session_epoch {
            FINAL => {
                self.sessions.remove(&begin.session_id);
                Begun {
                    code: ErrorCode::NONE,
                    session_id: 0,
                    partitions: begin.partitions,
                }
            }
            INITIAL => {
                self.sessions.remove(&begin.session_id);
                let session_id = if self.has_room(now, begin.partitions.len()) {
                    self.create(now, &begin)
                } else {
                    0
                };
                Begun {
                    code: ErrorCode::NONE,
                    session_id,
                    partitions: begin.partitions,
                }
            }
            _ => self.go_on(now, begin),
        }
    }

    /// S-3, S-4.
    fn go_on(&mut self, now: Mono, begin: Begin) -> Begun {
        let refused = |code| Begun {
            code,
            session_id: 0,
            partitions: Vec::new(),
        };
        let Some(session) = self.sessions.get_mut(&begin.session_id) else {
            return refused(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        };
        if session.epoch != begin.session_epoch {
            return refused(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != begin.by_id {
            return refused(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.forget(begin.forgotten);
        begin
            .partitions
            .into_iter()
            .for_each(|partition| session.put(partition));
        if session.partitions.is_empty() {
            self.sessions.remove(&begin.session_id);
            return Begun {
                code: ErrorCode::NONE,
                session_id: 0,
                partitions: Vec::new(),
            };
        }
        session.used = now;
        session.epoch = next_epoch(session.epoch);
        let partitions = session
            .partitions
            .values()
            .map(|cached| cached.request.clone())
            .collect();
        Begun {
            code: ErrorCode::NONE,
            session_id: begin.session_id,
            partitions,
        }
    }

    /// Finds a free slot, or frees one (S-2): of the sessions older than [`IDLE_MS`], one that is idle, else the smallest one that is smaller than the
    /// new one.
    fn has_room(&mut self, now: Mono, size: usize) -> bool {
        if self.sessions.len() < self.slots_max {
            return true;
        }
        // The smallest key decides, whatever order the map has.
        let victim = self
            .sessions
            .iter()
            .filter(|(_, session)| now.ms_since(session.created) > IDLE_MS)
            .filter(|(_, session)| {
                session.partitions.len() < size || now.ms_since(session.used) > IDLE_MS
            })
            .map(|(id, session)| {
                let idle = now.ms_since(session.used) > IDLE_MS;
                let rank = if idle { 0 } else { session.partitions.len() };
                (rank, session.used, *id)
            })
            .min();
        let Some((_, _, id)) = victim else {
            return false;
        };
        self.sessions.remove(&id);
        true
    }

    fn create(&mut self, now: Mono, begin: &Begin) -> i32 {
        let id = self.new_id();
        let mut session = Session {
            by_id: begin.by_id,
            epoch: next_epoch(INITIAL),
            fresh: true,
            created: now,
            used: now,
            partitions: BTreeMap::new(),
            places: FxHashMap::default(),
            next_place: 0,
        };
        begin
            .partitions
            .iter()
            .for_each(|partition| session.put(partition.clone()));
        self.sessions.insert(id, session);
        id
    }

    /// A positive id that is not in use and whose remainder names this shard.
    fn new_id(&mut self) -> i32 {
        let shards = u64::from(self.shards);
        let choices = (i32::MAX as u64 + 1) / shards;
        loop {
            let id = (self.next_random() % choices) * shards + u64::from(self.shard.0);
            let id = i32::try_from(id).unwrap_or(0);
            if id > 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }

    /// SplitMix64: good enough to make ids hard to meet by chance, and the same in every run with the same seed.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Takes note of what a fetch brought and says what its answer must include (S-5).
    pub fn end(&mut self, end: &End) -> Ended {
        let everything = Ended {
            include: vec![true; end.results.len()],
        };
        let Some(session) = self.sessions.get_mut(&end.session_id) else {
            return everything; // Evicted meanwhile: too much is never wrong.
        };
        if session.partitions.len() != end.results.len() {
            return everything;
        }
        let changed = session.note(&end.results);
        if std::mem::take(&mut session.fresh) {
            everything
        } else {
            Ended { include: changed }
        }
    }
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

impl Session {
    /// Adds a partition at the end of the order, or changes what is asked of it.
    fn put(&mut self, mut request: SessionPartition) {
        if let TopicKey::Name(name) = &mut request.topic {
            // The session lives longer than the request's frame.
            *name = name.detached();
        }
        let key = (request.topic.clone(), request.partition);
        if let Some(place) = self.places.get(&key)
            && let Some(cached) = self.partitions.get_mut(place)
        {
            cached.request = request;
            return;
        }
        self.places.insert(key, self.next_place);
        self.partitions.insert(
            self.next_place,
            Cached {
                request,
                high_watermark: -1,
                log_start_offset: -1,
            },
        );
        self.next_place += 1;
    }

    fn forget(&mut self, forgotten: Vec<(TopicKey, i32)>) {
        for key in forgotten {
            if let Some(place) = self.places.remove(&key) {
                self.partitions.remove(&place);
            }
        }
    }

    fn note(&mut self, results: &[SessionResult]) -> Vec<bool> {
        let mut gave_data = Vec::new();
        let mut changed = Vec::with_capacity(results.len());
        for ((place, cached), result) in self.partitions.iter_mut().zip(results) {
            changed.push(cached.note(result));
            if result.has_records {
                gave_data.push(*place);
            }
        }
        for place in gave_data {
            self.move_to_end(place);
        }
        changed
    }

    fn move_to_end(&mut self, place: u64) {
        if let Some(cached) = self.partitions.remove(&place) {
            let key = (cached.request.topic.clone(), cached.request.partition);
            self.places.insert(key, self.next_place);
            self.partitions.insert(self.next_place, cached);
            self.next_place += 1;
        }
    }
}

impl Cached {
    fn note(&mut self, result: &SessionResult) -> bool {
        if result.code.is_error() {
            // An error is told again next time, and so is its end.
            self.high_watermark = -1;
            return true;
        }
        let changed = self.high_watermark != result.high_watermark
            || self.log_start_offset != result.log_start_offset;
        self.high_watermark = result.high_watermark;
        self.log_start_offset = result.log_start_offset;
        changed || result.has_news || result.has_records
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a missing session is the test's failure"
    )]

    use super::*;

    const NOW: Mono = Mono(1_000_000_000);

    fn partition(number: i32, offset: i64) -> SessionPartition {
        SessionPartition {
            topic: TopicKey::Name(Text::from("t")),
            partition: number,
            fetch_offset: offset,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: 1000,
        }
    }

    fn begin(session_id: i32, session_epoch: i32, numbers: &[i32]) -> Begin {
        let partitions = numbers.iter().map(|number| partition(*number, 0)).collect();
        Begin {
            by_id: false,
            session_id,
            session_epoch,
            partitions,
            forgotten: Vec::new(),
        }
    }

    fn numbers(begun: &Begun) -> Vec<i32> {
        begun
            .partitions
            .iter()
            .map(|partition| partition.partition)
            .collect()
    }

    fn result(high_watermark: i64, has_records: bool) -> SessionResult {
        SessionResult {
            code: ErrorCode::NONE,
            high_watermark,
            log_start_offset: 0,
            has_news: false,
            has_records,
        }
    }

    fn end(
        sessions: &mut FetchSessions,
        session_id: i32,
        results: Vec<SessionResult>,
    ) -> Vec<bool> {
        sessions
            .end(&End {
                session_id,
                results,
            })
            .include
    }

    fn sessions(slots: usize) -> FetchSessions {
        FetchSessions::new(ShardId(1), 3, slots, 7)
    }

    #[test]
    fn an_id_names_its_shard_and_is_positive() {
        for shards in [1, 2, 3, 64] {
            for shard in [0, shards - 1] {
                let mut sessions =
                    FetchSessions::new(ShardId(shard), shards, 1000 * usize::from(shards), 42);
                for _ in 0..100 {
                    let id = sessions.begin(NOW, begin(0, 0, &[0])).session_id;
                    assert!(id > 0);
                    assert_eq!(FetchSessions::owner(id, shards), ShardId(shard));
                }
                assert_eq!(sessions.len(), 100);
            }
        }
    }

    #[test]
    fn s1_epochs_create_close_and_renew_sessions() {
        let mut sessions = sessions(30);
        let first = sessions.begin(NOW, begin(0, 0, &[0, 1]));
        assert_eq!(numbers(&first), [0, 1]);
        let second = sessions.begin(NOW, begin(first.session_id, 0, &[2]));
        assert_ne!(second.session_id, first.session_id);
        assert_eq!(sessions.len(), 1);
        let closed = sessions.begin(NOW, begin(second.session_id, -1, &[5]));
        assert_eq!((closed.session_id, numbers(&closed)), (0, vec![5]));
        assert!(sessions.is_empty());
    }

    #[test]
    fn s3_unknown_ids_wrong_epochs_and_mixed_names_are_refused() {
        let mut sessions = sessions(30);
        let id = sessions.begin(NOW, begin(0, 0, &[0])).session_id;
        assert_eq!(
            sessions.begin(NOW, begin(id + 3, 1, &[])).code,
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
        );
        assert_eq!(
            sessions.begin(NOW, begin(id, 2, &[])).code,
            ErrorCode::INVALID_FETCH_SESSION_EPOCH
        );
        let by_id = Begin {
            by_id: true,
            ..begin(id, 1, &[])
        };
        assert_eq!(
            sessions.begin(NOW, by_id).code,
            ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
        );
        assert_eq!(sessions.begin(NOW, begin(id, 1, &[])).code, ErrorCode::NONE);
        assert_eq!(
            sessions.begin(NOW, begin(id, 1, &[])).code,
            ErrorCode::INVALID_FETCH_SESSION_EPOCH
        );
        assert_eq!(sessions.begin(NOW, begin(id, 2, &[])).session_id, id);
    }

    #[test]
    fn s3_the_epoch_wraps_to_one() {
        assert_eq!(next_epoch(i32::MAX), 1);
        assert_eq!(next_epoch(1), 2);
    }

    #[test]
    fn s4_partitions_are_added_changed_and_forgotten() {
        let mut sessions = sessions(30);
        let id = sessions.begin(NOW, begin(0, 0, &[0, 1])).session_id;
        let mut change = begin(id, 1, &[2]);
        change.partitions.push(partition(1, 77));
        change.forgotten.push((TopicKey::Name(Text::from("t")), 0));
        let begun = sessions.begin(NOW, change);
        assert_eq!(numbers(&begun), [1, 2]);
        assert_eq!(begun.partitions[0].fetch_offset, 77);
    }

    #[test]
    fn s4_what_gave_data_moves_to_the_end() {
        let mut sessions = sessions(30);
        let id = sessions.begin(NOW, begin(0, 0, &[0, 1, 2])).session_id;
        end(
            &mut sessions,
            id,
            vec![result(5, true), result(5, false), result(5, true)],
        );
        assert_eq!(numbers(&sessions.begin(NOW, begin(id, 1, &[]))), [1, 0, 2]);
    }

    #[test]
    fn s4_a_session_that_is_left_empty_is_closed() {
        let mut sessions = sessions(30);
        let id = sessions.begin(NOW, begin(0, 0, &[0])).session_id;
        let mut forget = begin(id, 1, &[]);
        forget.forgotten.push((TopicKey::Name(Text::from("t")), 0));
        let begun = sessions.begin(NOW, forget);
        assert_eq!((begun.code, begun.session_id), (ErrorCode::NONE, 0));
        assert!(sessions.is_empty());
    }

    #[test]
    fn s5_only_what_changed_is_included_after_the_first_answer() {
        let mut sessions = sessions(30);
        let id = sessions.begin(NOW, begin(0, 0, &[0, 1])).session_id;
        assert_eq!(
            end(&mut sessions, id, vec![result(5, false), result(6, false)]),
            [true, true]
        );
        sessions.begin(NOW, begin(id, 1, &[]));
        assert_eq!(
            end(&mut sessions, id, vec![result(5, false), result(7, false)]),
            [false, true]
        );
        sessions.begin(NOW, begin(id, 2, &[]));
        assert_eq!(
            end(&mut sessions, id, vec![result(5, true), result(7, false)]),
            [true, false]
        );
    }

    #[test]
    fn s5_an_error_is_told_every_time_and_so_is_its_end() {
        let mut sessions = sessions(30);
        let id = sessions.begin(NOW, begin(0, 0, &[0])).session_id;
        let failed = || SessionResult {
            code: ErrorCode::KAFKA_STORAGE_ERROR,
            ..result(-1, false)
        };
        for results in [failed(), failed()] {
            assert_eq!(end(&mut sessions, id, vec![results]), [true]);
        }
        assert_eq!(end(&mut sessions, id, vec![result(5, false)]), [true]);
        assert_eq!(end(&mut sessions, id, vec![result(5, false)]), [false]);
    }

    #[test]
    fn s2_a_full_cache_evicts_the_idle_and_the_smaller_only() {
        let mut sessions = sessions(3); // one for this shard
        let first = sessions.begin(NOW, begin(0, 0, &[0, 1])).session_id;
        assert_ne!(first, 0);
        // Young and in use: no room, whatever the size.
        assert_eq!(
            sessions
                .begin(NOW.after_ms(1000), begin(0, 0, &[0, 1, 2]))
                .session_id,
            0
        );
        let later = NOW.after_ms(IDLE_MS + 1);
        sessions.begin(later, begin(first, 1, &[]));
        // Old but in use: only a larger one gets its slot.
        assert_eq!(sessions.begin(later, begin(0, 0, &[0, 1])).session_id, 0);
        assert_ne!(sessions.begin(later, begin(0, 0, &[0, 1, 2])).session_id, 0);
        // Idle: anyone.
        assert_ne!(
            sessions
                .begin(later.after_ms(IDLE_MS + 1), begin(0, 0, &[0]))
                .session_id,
            0
        );
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn without_slots_there_are_no_sessions() {
        let mut sessions = FetchSessions::new(ShardId(0), 1, 0, 1);
        assert_eq!(sessions.begin(NOW, begin(0, 0, &[0])).session_id, 0);
    }
}

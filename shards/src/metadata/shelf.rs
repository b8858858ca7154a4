//! A map that is cheap to copy with one change: some hundred pieces, shared until they are written to.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

/// Pieces of the map. More would make every copy dearer, fewer would make every change copy more entries: with 64, a change of a map
/// of 100,000 entries copies 64 pointers and some 1,600 entries.
const PIECES: usize = 64;

/// A hash map whose clone is one reference count.
#[derive(Clone)]
pub(super) struct Shelf<K, V> {
    pieces: Arc<[Arc<FxHashMap<K, V>>]>,
    len: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Shelf<K, V> {
    pub(super) fn new() -> Shelf<K, V> {
        let empty = Arc::new(FxHashMap::default());
        Shelf {
            pieces: std::iter::repeat_n(empty, PIECES).collect(),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.pieces[piece(key)].get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = piece(key);
        if !self.pieces[at].contains_key(key) {
            return None;
        }
        Arc::make_mut(&mut Arc::make_mut(&mut self.pieces)[at]).get_mut(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        let pieces = Arc::make_mut(&mut self.pieces);
        let before = Arc::make_mut(&mut pieces[piece(&key)]).insert(key, value);
        self.len += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let pieces = Arc::make_mut(&mut self.pieces);
        let removed = Arc::make_mut(&mut pieces[piece(key)]).remove(key);
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// All values, in no particular order.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.pieces.iter().flat_map(|piece| piece.values())
    }
}

/// The high bits choose the piece: the map inside uses the low ones.
fn piece<Q: Hash + ?Sized>(key: &Q) -> usize {
    (FxBuildHasher.hash_one(key) >> (u64::BITS - PIECES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut shelf = Shelf::new();
        for number in 0..1000_u64 {
            shelf.insert(number, number);
        }
        let copy = shelf.clone();
        shelf.insert(7, 8);
        assert_eq!(shelf.remove(&3), Some(3));
        if let Some(value) = shelf.get_mut(&5) {
            *value = 6;
        }
        assert_eq!((shelf.len(), copy.len()), (999, 1000));
        assert_eq!(
            [3, 5, 7].map(|key| copy.get(&key)),
            [Some(&3), Some(&5), Some(&7)]
        );
        assert_eq!(
            [3, 5, 7].map(|key| shelf.get(&key)),
            [None, Some(&6), Some(&8)]
        );
        assert_eq!(copy.values().count(), 1000);
    }

    #[test]
    fn keys_are_spread_over_the_pieces() {
        let mut shelf = Shelf::new();
        for number in 0..6400 {
            shelf.insert(format!("topic-{number}"), ());
        }
        let fullest = shelf.pieces.iter().map(|piece| piece.len()).max();
        assert!(fullest.is_some_and(|fullest| fullest < 400), "{fullest:?}");
    }
}

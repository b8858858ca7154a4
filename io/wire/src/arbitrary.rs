//! Random messages and records for tests.
//!
//! Every struct of [`crate::messages`] and [`crate::records`] implements [`Arbitrary`]. A value has only fields that its
//! version can carry, so that writing and reading it gives the same value.

use bytes::Bytes;

use crate::primitives::{Text, Uuid};

/// A value that `version` of its message can carry in full.
pub trait Arbitrary {
    fn arbitrary(random: &mut Random, version: i16) -> Self;
}

/// A small generator of numbers (SplitMix64): same seed, same values.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    /// Small and special numbers more often than chance would give them.
    pub fn number(&mut self) -> i64 {
        match self.below(4) {
            0 => [0, 1, -1, i64::MAX, i64::MIN, 0x7fff_ffff, 0x7fff][self.below(7)],
            1 => self.below(300) as i64,
            _ => self.bits() as i64,
        }
    }

    /// Never a NaN, which would not equal itself.
    pub fn float(&mut self) -> f64 {
        self.number() as f64 / 8.0
    }

    pub fn uuid(&mut self) -> Uuid {
        if self.one_in(5) {
            Uuid::ZERO
        } else {
            Uuid::from_u128(u128::from(self.bits()) << 64 | u128::from(self.bits()))
        }
    }

    fn length(&mut self) -> usize {
        match self.below(16) {
            0 => self.below(400),
            1..4 => 0,
            _ => self.below(12),
        }
    }

    pub fn text(&mut self) -> Text {
        const CHARACTERS: [char; 8] = ['a', 'Z', '0', '-', '.', 'ö', '漢', '😀'];
        let length = self.length();
        Text::from(
            (0..length)
                .map(|_| CHARACTERS[self.below(CHARACTERS.len())])
                .collect::<String>(),
        )
    }

    pub fn bytes(&mut self) -> Bytes {
        let length = self.length();
        (0..length).map(|_| self.bits() as u8).collect()
    }

    pub fn array<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let length = self.below(4);
        (0..length).map(|_| element(self)).collect()
    }
}

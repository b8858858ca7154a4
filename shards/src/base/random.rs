//! Random ids. The randomness is the engine's: a seed that it gives at start; the sequence from there is fixed.

use super::ids::Uuid;

/// A source of random numbers (SplitMix64). Not for secrets.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// A random (version 4) id that is not reserved and whose text does not begin with '-', which command lines take for an option (W-6).
    pub fn uuid(&mut self) -> Uuid {
        loop {
            let value = (u128::from(self.number()) << 64) | u128::from(self.number());
            let mut bytes = value.to_be_bytes();
            bytes[6] = (bytes[6] & 0x0f) | 0x40;
            bytes[8] = (bytes[8] & 0x3f) | 0x80;
            let id = Uuid(bytes);
            if !id.is_reserved() && !id.to_string().starts_with('-') {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn w6_random_ids_never_begin_with_a_dash_and_do_not_repeat() {
        let mut random = Random::new(1);
        let ids: BTreeSet<Uuid> = (0..10_000).map(|_| random.uuid()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| !id.to_string().starts_with('-')));
        assert!(ids.iter().all(|id| id.0[6] >> 4 == 4));
    }

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        assert_eq!(Random::new(7).uuid(), Random::new(7).uuid());
        assert_ne!(Random::new(7).uuid(), Random::new(8).uuid());
    }
}

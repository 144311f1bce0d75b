//! The simulation's randomness: everything a seed decides comes from here, and nothing else does.

/// A deterministic generator (xoshiro256**), seeded by one number.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        let mut x = seed ^ 0x6a09_e667_f3bc_c909;
        let mut split_mix = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self {
            state: [split_mix(), split_mix(), split_mix(), split_mix()],
        }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let result = self.state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = self.state[1] << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= t;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    /// Four words, for a node's own generator.
    pub fn seed(&mut self) -> [u64; 4] {
        [self.next_u64(), self.next_u64(), self.next_u64(), self.next_u64()]
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `bound`; 0 if `bound` is 0.
    pub fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True with this many chances in a million.
    pub fn ppm(&mut self, chances: u32) -> bool {
        chances > 0 && self.below(1_000_000) < u64::from(chances)
    }

    /// True with this many chances in a hundred.
    pub fn percent(&mut self, chances: u32) -> bool {
        self.below(100) < u64::from(chances)
    }

    /// One of the items; the slice must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let take = |seed| {
            (0..8)
                .map(|_| 0)
                .scan(Random::new(seed), |r, _: i32| Some(r.next_u64()))
                .collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }

    #[test]
    fn a_range_holds_both_of_its_ends() {
        let mut random = Random::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| random.range(3, 5)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
    }
}

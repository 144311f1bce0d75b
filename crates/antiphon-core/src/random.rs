//! The core's only randomness: a small generator seeded at creation (xoshiro256**).

/// A deterministic generator. Not for secrets: keys and nonces never come from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    pub(crate) fn new(seed: [u64; 4]) -> Self {
        // An all-zero state would stay zero for ever.
        let state = if seed == [0; 4] {
            [0x9e37_79b9_7f4a_7c15, 1, 2, 3]
        } else {
            seed
        };
        let mut random = Self { state };
        for _ in 0..16 {
            random.next_u64();
        }
        random
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
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

    pub(crate) fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    /// A number below `bound` (which is not 0).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

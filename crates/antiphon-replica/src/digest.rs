//! A digest of a large state that is kept up to date with each change: the sum of the hashes of its parts.
//!
//! A sum does not depend on the order in which parts came and went, so a part is added when it appears and
//! taken away when it goes: the cost is one hash of that part, whatever the size of the state. Each part must
//! say what it is (the key with the value), since two equal parts that stand for each other would not be
//! noticed. It finds mistakes and broken memory; it is no protection against a member that lies.

use twox_hash::XxHash3_64;

/// The sum over all parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// A part appeared.
    pub(crate) fn add(&mut self, part: u64) {
        self.0 = self.0.wrapping_add(part);
    }

    /// A part is gone.
    pub(crate) fn remove(&mut self, part: u64) {
        self.0 = self.0.wrapping_sub(part);
    }

    /// The digest: of all parts and of these numbers.
    pub(crate) fn with(self, numbers: &[u64]) -> u64 {
        part(&[], &[&[self.0], numbers].concat())
    }
}

/// The hash of one part: of these bytes and numbers, which are hashed one after the other and so cannot run
/// into each other.
pub(crate) fn part(bytes: &[&[u8]], numbers: &[u64]) -> u64 {
    let add = |hash, bytes: &[u8]| XxHash3_64::oneshot_with_seed(hash, bytes);
    let hash = bytes
        .iter()
        .fold(bytes.len() as u64, |hash, bytes| add(hash, bytes));
    numbers
        .iter()
        .fold(hash, |hash, number| add(hash, &number.to_le_bytes()))
}

//! Commands that came once do not come again: the window of RFC 4303, section 3.4.3.

/// How far a number may be behind the highest one that came. A sender has at most
/// [`MAX_SENT`](crate::lane::MAX_SENT) commands under way at a time by one way, so one that is
/// overtaken by so many has been on its way for a thousand times as long as they were.
pub const WIDTH: u64 = 1 << 14;

const BITS: u64 = u64::BITS as u64;

/// The numbers of one sender that came: the highest one, and which of those before it.
#[derive(Debug, Clone, Default)]
pub struct Window {
    highest: u64,
    /// A ring of bits, by number. Empty until the first number comes.
    came: Vec<u64>,
}

impl Window {
    /// Takes a number, which must be at least 1. False: it came before, or is so old that nobody can say.
    pub fn take(&mut self, number: u64) -> bool {
        if self.came.is_empty() {
            self.came = vec![0; (WIDTH / BITS) as usize];
        }
        if number == 0 || self.highest.saturating_sub(number) >= WIDTH {
            return false;
        }
        // What lies between the highest one and this has not come.
        let skipped = number.saturating_sub(self.highest).min(WIDTH);
        for gap in 0..skipped {
            self.set(number - gap, false);
        }
        self.highest = self.highest.max(number);
        let came = self.came[Self::word(number)] & Self::bit(number) != 0;
        self.set(number, true);
        !came
    }

    fn set(&mut self, number: u64, came: bool) {
        let word = &mut self.came[Self::word(number)];
        match came {
            true => *word |= Self::bit(number),
            false => *word &= !Self::bit(number),
        }
    }

    fn word(number: u64) -> usize {
        (number % WIDTH / BITS) as usize
    }

    fn bit(number: u64) -> u64 {
        1 << (number % BITS)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_is_taken_once_in_whatever_order_they_come() {
        let mut window = Window::default();
        let mut taken = BTreeSet::new();
        let (mut state, mut highest) = (7_u64, 0);
        for _ in 0..200_000 {
            // A draw around the highest one, with jumps of all sizes.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let draw = state >> 33;
            let number = match draw % 50 {
                0 => highest + draw % (3 * WIDTH),
                1..30 => highest + draw % 4,
                _ => highest.saturating_sub(draw % (2 * WIDTH)),
            };
            let fresh = number > 0 && number + WIDTH > highest && !taken.contains(&number);
            assert_eq!(window.take(number), fresh, "{number} with {highest}");
            if fresh {
                taken.insert(number);
                highest = highest.max(number);
            }
        }
    }

    #[test]
    fn the_last_number_of_all_is_no_way_around_it() {
        let mut window = Window::default();
        assert!(window.take(u64::MAX - WIDTH));
        assert!(!window.take(u64::MAX - WIDTH));
        assert!(window.take(u64::MAX - WIDTH - 5));
        assert!(window.take(u64::MAX));
        assert!(!window.take(u64::MAX));
        assert!(window.take(u64::MAX - 5));
        assert!(!window.take(u64::MAX - WIDTH));
        assert!(!window.take(0));
    }
}

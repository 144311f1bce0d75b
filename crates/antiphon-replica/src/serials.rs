//! Numbers that are never given twice: versions, fencing tokens and ids are all made here.
//!
//! ```text
//!  63                   22 21         0
//! ┌───────────────────────┬───────────┐    next = max(last + 1, founded · 2²² + 1)
//! │        founded        │   count   │    a count of 2²² carries into the upper part
//! └───────────────────────┴───────────┘
//! ```
//! `founded` is [`At::founded`](crate::At): the milliseconds since 2025 at which the state was founded, by
//! its founder's clock, and not less than a thousand times the number of the node view.
//!
//! **Within one state** every number is greater than all before it, since `next` is greater than `last`.
//! `last` is part of the state: a joiner gets it, and nothing that a machine forgets (a lock without holders,
//! a removed entry) touches it.
//!
//! **Over states that follow each other** the same holds. Let the earlier state be founded at `f`, the later
//! one at `g`, and let the earlier one have given `n` numbers, so that none is above `f · 2²² + n`. The later
//! state starts at `g · 2²² + 1`. That is more if the earlier state has given fewer than 4,194,304 numbers
//! for each millisecond from `f` to `g`. No command takes more than 4096 (a block of ids), and a group orders
//! less than a thousand commands in a millisecond, so numbers never run ahead of the time.
//! - A group that all members leave, and that is founded again, has a later `g` **if the clock of the later
//!   founder is not behind that of the earlier one** by more than the time between. To leave and to found
//!   takes several messages, so more than a millisecond.
//! - After the end of all processes the same holds if the founder's clock did not go back. If it did, the
//!   number of the node view still counts (G2).
//!
//! **Over a merge** the same holds. Two components that both go on (policy `any`) continue from the same
//! number and give the same numbers: fencing by tokens and ids that are unique need the policy `majority`.
//! When they merge, one state goes on. A member of the other component that comes back says the highest
//! number that it has seen, and `founded` grows beyond it, for all members at the same place of the order.
//! Nothing is needed of clocks. A number that only members saw that did not come back may be given again.
//!
//! The numbers end at 2⁶⁴ − 1; founders' clocks reach that in the year 2164. Then [`Serials::take`] gives
//! nothing; it never wraps and never repeats a number.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// How many bits count.
const COUNT_BITS: u32 = 22;
/// A state founded then gives numbers above this one.
pub(crate) fn founded_above(serial: u64) -> u64 {
    (serial >> COUNT_BITS) + 1
}

/// No state is founded later than this.
const LAST_FOUNDED: u64 = u64::MAX >> COUNT_BITS;

/// The last serial before those of a state that is founded at `founded`.
pub(crate) fn last_before(founded: u64) -> u64 {
    (founded.min(LAST_FOUNDED) << COUNT_BITS).saturating_sub(1)
}

/// The last number given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Serials {
    last: u64,
}

impl Serials {
    /// The next number, or `None` if there are no more.
    pub(crate) fn next(&mut self, founded: u64) -> Option<u64> {
        self.take(founded, NonZeroU32::MIN)
    }

    /// The first of so many consecutive numbers, or `None` if there are not so many left. Then none is given.
    pub(crate) fn take(&mut self, founded: u64, count: NonZeroU32) -> Option<u64> {
        let first = self
            .last
            .checked_add(1)?
            .max(founded.min(LAST_FOUNDED) << COUNT_BITS | 1);
        self.last = first.checked_add(u64::from(count.get()) - 1)?;
        Some(first)
    }

    /// Whether the state is founded later than when the last number was given: there was a merge since.
    pub(crate) fn is_before(self, founded: u64) -> bool {
        self.last >> COUNT_BITS < founded.min(LAST_FOUNDED)
    }

    /// The last number given, 0 if none was.
    pub(crate) fn last(self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).unwrap()
    }

    #[test]
    fn numbers_begin_with_when_the_state_was_founded() {
        let mut serials = Serials::default();
        assert_eq!(serials.next(7), Some(7 << COUNT_BITS | 1));
        assert_eq!(serials.take(7, count(10)), Some(7 << COUNT_BITS | 2));
        assert_eq!(serials.next(7), Some(7 << COUNT_BITS | 12));
    }

    #[test]
    fn no_group_gives_numbers_faster_than_time_goes() {
        // Ten times as many commands in a second as were ever measured.
        let each_millisecond = 1_000 * u64::from(crate::counters::MAX_BLOCK);
        assert!(each_millisecond < 1 << COUNT_BITS);
    }

    #[test]
    fn a_full_count_carries_and_still_a_state_founded_two_milliseconds_later_starts_above() {
        let mut serials = Serials {
            last: (8 << COUNT_BITS) - 1,
        };
        assert_eq!(serials.next(7), Some(8 << COUNT_BITS));
        assert!(Serials::default().next(9) > Some(serials.last()));
    }

    #[test]
    fn the_last_number_is_given_once_and_then_none() {
        let mut serials = Serials { last: u64::MAX - 2 };
        assert_eq!(serials.take(1, count(3)), None, "there are two");
        assert_eq!(serials.take(1, count(2)), Some(u64::MAX - 1));
        assert_eq!(serials.next(1), None);
        assert_eq!(serials.last(), u64::MAX);
        assert_eq!(
            Serials::default().take(LAST_FOUNDED, count(1 << COUNT_BITS >> 1)),
            Some((LAST_FOUNDED << COUNT_BITS) + 1)
        );
    }

    /// Values around each power of two: where packed halves go wrong.
    fn near_a_power_of_two() -> impl Strategy<Value = u64> {
        (0..64u32, -1i64..=1).prop_map(|(bit, off)| (1u64 << bit).wrapping_add_signed(off))
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_always_rise(
            last in near_a_power_of_two(),
            takes in prop::collection::vec((near_a_power_of_two(), 1..u32::MAX), 1..20),
        ) {
            let mut serials = Serials { last };
            for (founded, size) in takes {
                let before = serials;
                let founded = founded.min(LAST_FOUNDED);
                match serials.take(founded, count(size)) {
                    Some(first) => {
                        prop_assert!(first > before.last);
                        prop_assert!(first >> COUNT_BITS >= founded);
                        prop_assert_eq!(serials.last(), first + u64::from(size) - 1);
                    }
                    None => {
                        prop_assert_eq!(serials, before, "nothing is given");
                        let floor = before.last.max(founded << COUNT_BITS);
                        prop_assert!(u64::MAX - floor < u64::from(size));
                    }
                }
            }
        }

        #[test]
        fn a_state_that_is_founded_later_starts_above_all_of_the_earlier_one(
            founded in 0..LAST_FOUNDED >> 1,
            takes in prop::collection::vec(1..u32::MAX, 1..4),
        ) {
            let mut earlier = Serials::default();
            let mut given = 0;
            for size in takes {
                earlier.take(founded, count(size)).unwrap();
                given += u64::from(size);
            }
            let later = founded + (given >> COUNT_BITS) + 1;
            prop_assert!(Serials::default().next(later).unwrap() > earlier.last());
        }
    }
}

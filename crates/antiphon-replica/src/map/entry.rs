//! One entry of a map: its value, its version, when it was written, when it expires.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::digest::part;
use crate::{AgreedTime, Version};

/// When an entry was last written, and the flags that its writer gave it, in one word.
///
/// ```text
///  63                              16 15        0
/// ┌──────────────────────────────────┬──────────┐
/// │ agreed time in milliseconds      │  flags   │
/// └──────────────────────────────────┴──────────┘
/// ```
/// Words are ordered as their times are. The time has 48 bits, which is 8,919 years of one state; a later
/// time is kept as the last one there is, never as an early one.
///
/// Stamps of one key never go back for a member (G50), with one exception: when a map is founded anew, and no
/// member remembers the former one, agreed time and stamps begin at zero again. Versions go on, so compare
/// these across foundings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Stamp(u64);

impl Stamp {
    const FLAG_BITS: u32 = u16::BITS;

    /// The last time that a stamp can say, in milliseconds.
    pub const MAX_MILLIS: u64 = u64::MAX >> Self::FLAG_BITS;

    /// This time, or the last that there is, with these flags.
    pub fn new(time: AgreedTime, flags: u16) -> Self {
        Self(time.millis.min(Self::MAX_MILLIS) << Self::FLAG_BITS | u64::from(flags))
    }

    /// When it was.
    pub fn time(self) -> AgreedTime {
        AgreedTime {
            millis: self.0 >> Self::FLAG_BITS,
        }
    }

    /// The writer's flags: the map gives them no meaning. For example, they say how a value is encoded.
    pub fn flags(self) -> u16 {
        self.0 as u16
    }

    /// The packed word.
    pub fn word(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.time().fmt(f)?;
        match self.flags() {
            0 => Ok(()),
            flags => write!(f, " (flags {flags:#06x})"),
        }
    }
}

/// An entry as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The value: at most [`Options::max_value_bytes`](super::Options::max_value_bytes).
    pub value: Bytes,
    /// Greater than any version that this map has given before, whatever the key.
    pub version: Version,
    /// When it was written, and the writer's flags.
    pub modified: Stamp,
    /// From this time on the entry is not there any more.
    pub expires: Option<AgreedTime>,
}

impl Entry {
    /// What an entry takes of the bound in bytes beside its key and value: about what it takes in memory, in
    /// the ordered map, the index and the heap.
    pub const OVERHEAD_BYTES: u64 = 256;

    /// What an entry takes of the bound in bytes.
    pub(super) fn bytes(key: &[u8], value: &[u8]) -> u64 {
        key.len() as u64 + value.len() as u64 + Self::OVERHEAD_BYTES
    }

    pub(super) fn is_there(&self, now: AgreedTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    pub(super) fn digest(&self, key: &[u8]) -> u64 {
        let expires = self.expires.map_or([0, 0], |time| [1, time.millis]);
        part(
            &[key, &self.value],
            &[self.version.0, self.modified.word(), expires[0], expires[1]],
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values around each power of two: where packed halves go wrong.
    fn near_a_power_of_two() -> impl Strategy<Value = u64> {
        (0..64u32, -1i64..=1).prop_map(|(bit, off)| (1u64 << bit).wrapping_add_signed(off))
    }

    #[test]
    fn a_time_beyond_the_last_one_is_kept_as_the_last_one() {
        for millis in [Stamp::MAX_MILLIS, Stamp::MAX_MILLIS + 1, 1 << 63, u64::MAX] {
            let stamp = Stamp::new(AgreedTime { millis }, 0);
            assert_eq!((stamp.time().millis, stamp.flags()), (Stamp::MAX_MILLIS, 0));
        }
    }

    proptest! {
        #[test]
        fn time_and_flags_come_out_as_they_went_in(millis in near_a_power_of_two(), flags in any::<u16>(), bit in 0..16u32) {
            for flags in [flags, 1 << bit, !(1 << bit), 0, u16::MAX] {
                let stamp = Stamp::new(AgreedTime { millis }, flags);
                prop_assert_eq!(stamp.flags(), flags);
                prop_assert_eq!(stamp.time().millis, millis.min(Stamp::MAX_MILLIS));
            }
        }

        #[test]
        fn a_later_time_is_a_greater_stamp_whatever_the_flags(
            one in near_a_power_of_two(),
            other in near_a_power_of_two(),
            flags in any::<(u16, u16)>(),
        ) {
            let [one, other] = [one, other].map(|millis| millis.min(Stamp::MAX_MILLIS));
            let stamp = |millis, flags| Stamp::new(AgreedTime { millis }, flags);
            if one != other {
                prop_assert_eq!(stamp(one, flags.0) < stamp(other, flags.1), one < other);
            }
        }
    }
}

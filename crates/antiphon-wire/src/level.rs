//! Wire levels: which messages the members of a view may use with each other (R24).
//!
//! The frame's version says how to read a frame at all. The wire level says which records and message
//! variants may be in it. Every build supports a range. A view carries the highest level that all its members
//! speak, and the level changes only with a view. So during a rolling upgrade no member receives what it
//! cannot read.

use std::fmt;

use crate::wire_struct;

wire_struct! {
    /// The wire levels one build can use.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct WireLevels {
        /// The lowest.
        pub min: u8,
        /// The highest.
        pub max: u8,
    }
}

/// The wire levels this build can use.
pub const WIRE_LEVELS: WireLevels = WireLevels { min: 1, max: 1 };

impl WireLevels {
    /// The highest level both sides can use.
    pub fn negotiate(self, theirs: WireLevels) -> Result<u8, LevelMismatch> {
        let level = self.max.min(theirs.max);
        if theirs.min <= theirs.max && level >= self.min && level >= theirs.min {
            Ok(level)
        } else {
            Err(LevelMismatch { ours: self, theirs })
        }
    }

    /// Whether this build can take part in a view of this level.
    pub fn contains(self, level: u8) -> bool {
        (self.min..=self.max).contains(&level)
    }
}

/// Negotiates between the ranges of two builds given as numbers; see [`WireLevels::negotiate`].
pub fn negotiate(ours: (u8, u8), theirs: (u8, u8)) -> Result<u8, LevelMismatch> {
    WireLevels {
        min: ours.0,
        max: ours.1,
    }
    .negotiate(WireLevels {
        min: theirs.0,
        max: theirs.1,
    })
}

/// Two builds have no wire level in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelMismatch {
    /// What this build speaks.
    pub ours: WireLevels,
    /// What the other says it speaks.
    pub theirs: WireLevels,
}

impl fmt::Display for LevelMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, theirs } = self;
        write!(
            f,
            "no wire level in common: this node speaks {} to {}, the other {} to {}: ",
            ours.min, ours.max, theirs.min, theirs.max
        )?;
        if theirs.min > theirs.max {
            f.write_str("the other side's range is empty, repair it")
        } else if theirs.min > ours.max {
            f.write_str("upgrade this node")
        } else {
            f.write_str("upgrade the other side")
        }
    }
}

impl std::error::Error for LevelMismatch {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_builds_meet_at_the_highest_level_both_speak() {
        assert_eq!(negotiate((1, 2), (2, 3)), Ok(2));
        assert_eq!(negotiate((2, 3), (1, 2)), Ok(2));
        assert_eq!(negotiate((1, 4), (2, 3)), Ok(3));
        assert_eq!(WIRE_LEVELS.negotiate(WIRE_LEVELS), Ok(WIRE_LEVELS.max));
    }

    #[test]
    fn a_mismatch_names_the_side_that_must_change() {
        let newer = negotiate((1, 2), (3, 4)).unwrap_err();
        assert!(newer.to_string().ends_with("upgrade this node"), "{newer}");
        let older = negotiate((3, 4), (1, 2)).unwrap_err();
        assert!(older.to_string().ends_with("upgrade the other side"), "{older}");
        let broken = negotiate((1, 2), (2, 1)).unwrap_err();
        assert!(broken.to_string().contains("range is empty"), "{broken}");
    }
}

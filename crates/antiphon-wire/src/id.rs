//! Identities: which node, which cluster, which view.

use std::fmt;
use std::str::FromStr;

use crate::codec::{DecodeError, Reader, Wire};
use crate::wire_struct;

/// One start of one node: 128 random bits, fresh at each start and after each expulsion, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// The unbroken chain of primary views since one founding. Its first 48 bits are the time of that founding,
/// the others are random. So lineages are ordered by the time of their founding, as far as the clocks of
/// hosts agree, whichever node founded them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage(pub u128);

/// A short name of a lineage for heartbeats, of which a node sends many: half of the bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineageMark(pub u64);

/// A group's identity inside its lineage, made by the node that founded it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// A short name of a view, where the view itself is known: the first 128 bits of the SHA-256 of its encoding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewDigest(pub u128);

impl ViewDigest {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
        let mut first = [0; 16];
        first.copy_from_slice(&hash.as_ref()[..16]);
        Self(u128::from_le_bytes(first))
    }
}

/// A text that is no identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdError {
    expected: &'static str,
    given: String,
}

impl IdError {
    fn new(expected: &'static str, given: &str) -> Self {
        Self {
            expected,
            given: given.chars().take(80).collect(),
        }
    }
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, not {:?}", self.expected, self.given)
    }
}

impl std::error::Error for IdError {}

macro_rules! fixed_id {
    ($name:ident, $int:ty, $digits:literal, $expected:literal) => {
        impl Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0.to_le_bytes());
            }
            fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
                Ok(Self(<$int>::from_le_bytes(input.array()?)))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $digits, self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $digits, self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                // `from_str_radix` alone would take a sign.
                let digits = 2 * size_of::<$int>();
                let hex = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit());
                let value = hex.then(|| <$int>::from_str_radix(text, 16).ok()).flatten();
                value.map(Self).ok_or_else(|| IdError::new($expected, text))
            }
        }
    };
}
fixed_id!(Incarnation, u128, "{:032x}", "32 hex digits");
fixed_id!(Lineage, u128, "{:032x}", "32 hex digits");
fixed_id!(LineageMark, u64, "{:016x}", "16 hex digits");
fixed_id!(GroupId, u64, "{:016x}", "16 hex digits");
fixed_id!(ViewDigest, u128, "{:032x}", "32 hex digits");

/// A primary view's place among all primary views of a cluster. It is for anything that must only accept what
/// is newer: a fencing token, a write. Stamps are ordered by the founding time of the lineage, then by the
/// place in it; the order of the text is the same.
///
/// It rises with each view of a lineage, and over each recovery and founding, without a disk. The condition
/// is that no founder's clock is behind a former founder's clock by as much as the time between the two
/// foundings. A cluster that gives way to one that was founded before takes that cluster's lower stamps: all
/// that it did since is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewStamp {
    /// The chain of views, by its founding.
    pub lineage: Lineage,
    /// The place in it.
    pub view: ViewId,
}

impl fmt::Display for ViewStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ViewId { epoch, counter } = self.view;
        write!(f, "{}-{epoch:08x}-{counter:08x}", self.lineage)
    }
}

impl FromStr for ViewStamp {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let number = |digits: &str| {
            let hex = digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        let read = || {
            let mut parts = text.splitn(3, '-');
            let lineage = parts.next()?.parse().ok()?;
            let (epoch, counter) = (number(parts.next()?)?, number(parts.next()?)?);
            let view = ViewId { epoch, counter };
            Some(Self { lineage, view })
        };
        read().ok_or_else(|| IdError::new("LINEAGE-EPOCH-COUNTER of 32, 8 and 8 hex digits", text))
    }
}

impl Lineage {
    /// The lowest bits, which are random.
    const RANDOM_BITS: u32 = 80;
    /// The latest founding that there can be.
    const MAX_FOUNDED_MS: u64 = (1 << (128 - Self::RANDOM_BITS)) - 1;

    /// A lineage that is founded so many milliseconds after 1970. Random bits tell it apart from all others
    /// of that time.
    pub fn founded_at(unix_ms: u64, random: u128) -> Self {
        let time = u128::from(unix_ms.min(Self::MAX_FOUNDED_MS)) << Self::RANDOM_BITS;
        Self(time | (random & ((1 << Self::RANDOM_BITS) - 1)))
    }

    /// When it was founded, in milliseconds since 1970, by the founder's clock; later than the lineage that
    /// it goes on from.
    pub fn founded_ms(self) -> u64 {
        (self.0 >> Self::RANDOM_BITS) as u64
    }

    /// The last 64 bits.
    pub fn mark(self) -> LineageMark {
        LineageMark(self.0 as u64)
    }
}

impl Incarnation {
    /// The first eight hex digits: enough for a log line.
    pub fn short(&self) -> String {
        format!("{:08x}", (self.0 >> 96) as u32)
    }
}

wire_struct! {
    /// The place of a primary view in its lineage. Ordered; the next primary view has the next counter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct ViewId {
        /// Rises at a recovery by hand; 1 from founding on.
        pub epoch: u32,
        /// Rises by one with each primary view; the founding view has 1.
        pub counter: u32,
    }
}

wire_struct! {
    /// A group view: the node view it was made in, and its number among the group's views.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct GroupViewId {
        /// The node view under which the flush that installed this view was led (its ballot).
        pub node: ViewId,
        /// The node view's number, for people and embedders.
        pub number: u32,
        /// Rises by at least one with each view of the group.
        pub k: u32,
    }
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.counter)
    }
}

impl FromStr for ViewId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let number = |digits: &str| {
            let all = digits.bytes().all(|digit| digit.is_ascii_digit());
            all.then(|| digits.parse().ok()).flatten()
        };
        let read = || {
            let (epoch, counter) = text.split_once(':')?;
            Some(Self {
                epoch: number(epoch)?,
                counter: number(counter)?,
            })
        };
        read().ok_or_else(|| IdError::new("EPOCH:COUNTER, such as 1:4", text))
    }
}

impl fmt::Display for GroupViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.k)
    }
}

#[cfg(test)]
mod stamps {
    use super::*;

    fn stamp(unix_ms: u64, random: u128, counter: u32) -> ViewStamp {
        ViewStamp {
            lineage: Lineage::founded_at(unix_ms, random),
            view: ViewId { epoch: 1, counter },
        }
    }

    #[test]
    fn what_was_founded_later_has_the_higher_stamp_in_bytes_and_as_text() {
        let stamps = [
            stamp(1_700_000_000_000, u128::MAX, 900),
            stamp(1_700_000_000_001, 0, 1),
            stamp(1_700_000_000_001, 0, 2),
            stamp(u64::MAX, 7, 1),
        ];
        assert!(stamps.is_sorted() && stamps.map(|stamp| stamp.to_string()).is_sorted());
        for stamp in stamps {
            assert_eq!(stamp.to_string().parse(), Ok(stamp));
        }
        assert!("1-2-3".parse::<ViewStamp>().is_err());
        assert_eq!(stamps[0].lineage.founded_ms(), 1_700_000_000_000);
        assert_ne!(stamps[0].lineage.mark(), stamps[1].lineage.mark());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_is_shown_and_nothing_else_is() {
        let incarnation = Incarnation(0xab12_cd34 << 96);
        assert_eq!(incarnation.to_string().parse(), Ok(incarnation));
        assert_eq!("000000000000002a".parse(), Ok(GroupId(42)));
        assert_eq!("1:4".parse(), Ok(ViewId { epoch: 1, counter: 4 }));
        for wrong in [
            "",
            "2a",
            "+00000000000002a",
            "000000000000002g",
            "0000000000000002a",
        ] {
            assert!(wrong.parse::<GroupId>().is_err(), "{wrong}");
        }
        for wrong in ["", "1", ":", "1:", "+1:4", "1:4:5", "1:4294967296"] {
            assert!(wrong.parse::<ViewId>().is_err(), "{wrong}");
        }
        assert_eq!(
            "x".parse::<ViewId>().unwrap_err().to_string(),
            "expected EPOCH:COUNTER, such as 1:4, not \"x\""
        );
    }
}

//! Identities: who, which cluster, which view.

use std::fmt;

use crate::codec::{DecodeError, Reader, Wire};
use crate::wire_struct;

/// One start of one node: 128 random bits, fresh at each start and after each expulsion, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// The unbroken chain of primary views since one founding: 128 random bits made at that founding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage(pub u128);

/// What tells lineages apart in heartbeats, of which a node sends many: half of the bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineageMark(pub u64);

/// A group's identity inside its lineage, made by the node that founded it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// What stands for a view where the view itself is known: the first 128 bits of the SHA-256 of its encoding.
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

macro_rules! fixed_id {
    ($name:ident, $int:ty, $digits:literal) => {
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
    };
}
fixed_id!(Incarnation, u128, "{:032x}");
fixed_id!(Lineage, u128, "{:032x}");
fixed_id!(LineageMark, u64, "{:016x}");
fixed_id!(GroupId, u64, "{:016x}");
fixed_id!(ViewDigest, u128, "{:032x}");

impl Lineage {
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
    /// A group view: which node view it was made in, and the how-manieth of the group it is.
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

impl fmt::Display for GroupViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.k)
    }
}

//! Tags: the scope of a message, and what it comes after.

use crate::codec::{put_varint, varint_len};

/// What stands before a message of a scoped group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag {
    /// The scope.
    pub scope: u32,
    /// What has to be delivered first.
    pub after: After,
}

/// What a message of a scoped group comes after, in its sender's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum After {
    /// Nothing.
    #[default]
    Nothing,
    /// The message so many numbers before it.
    One(u32),
    /// All messages up to the one so many numbers before it.
    All(u32),
}

impl Tag {
    /// The most bytes of a tag.
    pub const MAX_BYTES: usize = 9;

    /// As bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.scope.to_le_bytes());
        let after = match self.after {
            After::Nothing => 0,
            After::One(back) => u64::from(back) << 1,
            After::All(back) => u64::from(back) << 1 | 1,
        };
        put_varint(out, after);
    }

    /// How many bytes it takes.
    pub fn cost(&self) -> usize {
        let back = match self.after {
            After::Nothing => 0,
            After::One(back) | After::All(back) => back,
        };
        4 + varint_len(u64::from(back) << 1 | 1)
    }

    /// From the front of a message, with how many bytes it takes.
    pub fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let scope = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let mut value = 0_u64;
        for (at, byte) in bytes[4..].iter().take(5).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if *byte >= 0x80 {
                continue;
            }
            // One encoding per value.
            if at > 0 && *byte == 0 {
                return None;
            }
            let back = u32::try_from(value >> 1).ok()?;
            let after = match (back, value & 1) {
                (0, 0) => After::Nothing,
                (0, _) => return None,
                (_, 0) => After::One(back),
                _ => After::All(back),
            };
            return Some((Self { scope, after }, 5 + at));
        }
        None
    }
}

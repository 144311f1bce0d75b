//! How much one member may tell another, and how often a message is sent again.

use std::time::Duration;

use antiphon_wire::Block;
use antiphon_wire::block::PIECE_BYTES;

use crate::Profile;
use crate::group::MAX_GROUP_MEMBERS;

/// The most bytes of direct messages from one member to another that the receiver's application has not
/// taken, each with [`TELL_OVERHEAD`].
pub const TELL_CREDIT_BYTES: usize = 1 << 20;

/// The most bytes of a direct message: what fits a block.
pub const MAX_TELL_BYTES: usize = PIECE_BYTES;

/// What each direct message takes of the credit besides its payload.
pub const TELL_OVERHEAD: usize = 64;

/// The most bytes of a lost tail that are sent again at once.
pub(crate) const MAX_AGAIN_BYTES: usize = TELL_CREDIT_BYTES / 8;

/// The most bytes of direct messages that an application was given and has not taken.
pub(crate) const MAX_UNTAKEN_BYTES: usize = MAX_GROUP_MEMBERS * TELL_CREDIT_BYTES;

/// No number reaches this far: the number after it is a number too.
pub(crate) const MAX_NUMBER: u64 = 1 << 62;

/// What messages take of the credit.
pub(crate) fn charge(block: &Block) -> usize {
    block.bytes().len() + block.count() as usize * TELL_OVERHEAD
}

/// How long a sender waits for an answer, at this attempt.
pub(crate) fn patience(profile: &Profile, attempt: u32) -> Duration {
    profile.retransmit * 2 * (1 << attempt.min(3))
}

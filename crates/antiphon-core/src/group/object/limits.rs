//! How much of an object is asked for at a time, and how often again.

use std::time::Duration;

use antiphon_wire::object::CHUNK_BYTES;

use crate::Profile;

/// The fewest chunks that a receiver grants: one on its way, one being sent, one being asked for.
pub(crate) const LEAST_GRANT: u32 = 3;

/// Bytes between a sender and all its receivers: what 130 Mbit/s carry in the time after which control is
/// sent again.
pub(crate) fn window(profile: &Profile) -> usize {
    let bytes = profile.retransmit.as_millis() as usize * (16 << 10);
    bytes.clamp(256 << 10, 16 << 20)
}

/// How many chunks one of so many receivers grants.
pub(crate) fn grant(profile: &Profile, receivers: usize) -> u32 {
    let chunks = window(profile) / CHUNK_BYTES / receivers.max(1);
    (chunks as u32).max(LEAST_GRANT)
}

/// How long a member waits for an answer, at this attempt.
pub(crate) fn patience(profile: &Profile, attempt: u32) -> Duration {
    profile.retransmit * 2 * (1 << attempt.min(3))
}

//! What can be set, and the limits of requests.

use std::time::Duration;

use antiphon_core::MAX_TELL_BYTES;

/// The most bytes of a request's or a reply's payload: a direct message, less what [`Calls`](super::Calls)
/// put before it. Larger things go as messages to the group, or in parts.
pub const MAX_CALL_BYTES: usize = MAX_TELL_BYTES - 256;
/// The most bytes of a verb.
pub const MAX_VERB_BYTES: usize = 128;
/// The most verbs that a member serves.
pub const MAX_VERBS: usize = 256;
/// The longest time that a call may take.
pub const MAX_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// How [`Calls`](super::Calls) work. Members may have different ones; `max_depth` should be the same.
///
/// What is said to be *for each depth* exists once for calls from outside, and again for the calls that
/// handlers make, and so on: see the page of [`calls`](super).
#[derive(Debug, Clone)]
pub struct Config {
    /// Handlers that run at once, for each depth.
    pub max_running: usize,
    /// Requests that wait for a handler, for each depth; more are answered as busy.
    pub max_queued: usize,
    /// Bytes of their verbs and payloads, for each depth; more are answered as busy.
    pub max_queued_bytes: usize,
    /// Handlers may call handlers that call handlers, and so on, so often; a call beyond that is refused.
    pub max_depth: u8,
    /// Calls of this member that have not ended, for each depth; more are refused as full.
    pub max_in_flight: usize,
    /// Bytes of requests that wait to be sent; more are refused as full.
    pub max_unsent_bytes: usize,
    /// Requests of one caller that are here without their reply having been sent. What comes beyond that is
    /// dropped: only a caller that does not read its replies gets here.
    pub max_owed: usize,
    /// Bytes of replies that wait to be sent to one caller. Beyond that the caller learns only that the
    /// handler ran ([`Failure::ReplyLost`](super::Failure::ReplyLost)).
    pub max_reply_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_running: 64,
            max_queued: 256,
            max_queued_bytes: 4 << 20,
            max_depth: 8,
            max_in_flight: 1024,
            max_unsent_bytes: 8 << 20,
            max_owed: 4096,
            max_reply_bytes: 8 << 20,
        }
    }
}

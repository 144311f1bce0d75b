//! What a member said of itself.

use antiphon_wire::ViewId;

/// What a member said of itself in its last heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) round: u64,
    pub(crate) view: ViewId,
    pub(crate) primary: bool,
    pub(crate) leaving: bool,
    pub(crate) wire_level: u8,
}

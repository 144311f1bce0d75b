//! What a member said of itself.

use antiphon_wire::{NodeView, ViewId};

/// What a member said of itself in its last heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) round: u64,
    pub(crate) view: ViewId,
    pub(crate) primary: bool,
    pub(crate) leaving: bool,
    pub(crate) wire_level: u8,
}

impl Report {
    /// What goes without saying of a member of this view.
    pub(crate) fn unsaid(view: &NodeView) -> Self {
        Self {
            round: 0,
            view: view.primary_id(),
            primary: true,
            leaving: false,
            wire_level: view.wire_level,
        }
    }
}

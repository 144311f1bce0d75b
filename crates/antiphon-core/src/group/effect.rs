//! What the group layer wants done, and how large a group and the cause of a removal may be.

use antiphon_wire::group::{GroupData, GroupMessage};
use antiphon_wire::{Evidence, Incarnation};

use crate::{Class, GroupEvent, GroupHandle};

/// What the group layer wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Reliable and ordered per peer, control class. The node adds the installed primary view's id; the
    /// receiver handles it only once it has installed that view.
    Send {
        /// The receiver.
        to: Incarnation,
        /// The message.
        message: GroupMessage,
    },
    /// Unreliable records, encoded and sealed once for all targets. Together below
    /// `frame::MAX_RECORDS_BYTES`.
    Data {
        /// The receivers.
        to: Vec<Incarnation>,
        /// The kind of connection.
        class: Class,
        /// The records.
        records: Vec<GroupData>,
    },
    /// The same to one member, in a frame that it hands on to the next (see `dissemination/mod.rs`).
    Chain {
        /// The first receiver.
        to: Incarnation,
        /// The records.
        records: Vec<GroupData>,
    },
    /// The same to all of these at once, by IP multicast where they hear it (see `dissemination/air.rs`).
    Multicast {
        /// The receivers.
        to: Vec<Incarnation>,
        /// The records.
        records: Vec<GroupData>,
    },
    /// This peer holds up a flush.
    Accuse {
        /// The peer.
        peer: Incarnation,
        /// What the peer did.
        evidence: Evidence,
    },
    /// For the application.
    Event(GroupHandle, GroupEvent),
}

/// The most members of a group: each acknowledges every other's messages.
pub const MAX_GROUP_MEMBERS: usize = 64;

/// The most bytes of a cause of a removal. A longer one does not come from this program.
pub(crate) const MAX_CAUSE_BYTES: usize = 256;

//! What the group layer wants done, and how large a group may be.

use antiphon_wire::group::{GroupData, GroupMessage};
use antiphon_wire::{Evidence, Incarnation};

use crate::{Class, GroupEvent, GroupHandle};

/// What the group layer wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Reliable and ordered per peer, control class. The node adds the installed primary view's id; the
    /// receiver handles it only once it has installed that view.
    Send {
        /// To whom.
        to: Incarnation,
        /// What.
        message: GroupMessage,
    },
    /// Unreliable records, encoded and sealed once for all targets. Together below
    /// `frame::MAX_RECORDS_BYTES`.
    Data {
        /// To whom.
        to: Vec<Incarnation>,
        /// On which connection.
        class: Class,
        /// What.
        records: Vec<GroupData>,
    },
    /// The same to one member, in a frame that it hands on to the next (see `spread/mod.rs`).
    Chain {
        /// To whom first.
        to: Incarnation,
        /// What.
        records: Vec<GroupData>,
    },
    /// The same to all of these at once, by IP multicast where they hear it (see `spread/air.rs`).
    Cast {
        /// To whom.
        to: Vec<Incarnation>,
        /// What.
        records: Vec<GroupData>,
    },
    /// This peer holds up a flush.
    Accuse {
        /// Who.
        peer: Incarnation,
        /// What it did.
        evidence: Evidence,
    },
    /// For the application.
    Event(GroupHandle, GroupEvent),
}

/// The most members of a group: each acknowledges every other's messages.
pub const MAX_GROUP_MEMBERS: usize = 64;

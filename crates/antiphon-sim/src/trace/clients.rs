//! What clients of members see and do.

use std::sync::Arc;

use antiphon_core::wire::Incarnation;
use antiphon_replica::clients::{ClientId, ClientView, ClientViewId, Departure};

/// What a member's clients did, or were told. What is said of none in particular is told to all that are in.
#[derive(Debug, Clone)]
pub enum ClientDeed {
    /// The application begins to have clients as this incarnation, or goes on as another one: it has none in.
    Is(Incarnation),
    /// A client wants to be in.
    Enters(u32),
    /// A client wants to be out.
    Leaves(u32),
    /// A client is in, from the view on that follows.
    Entered(u32),
    /// A client is out.
    Gone(u32, Departure),
    /// A view.
    View(Arc<ClientView>),
    /// What follows was completed by a flush among the members of these.
    Transitional(Vec<ClientId>),
    /// The primary was lost.
    Suspended,
    /// A client says something that no other one says: the group took it.
    Says {
        /// Which client.
        number: u32,
        /// What.
        op: u64,
    },
    /// What a client said.
    Hears {
        /// Which.
        from: ClientId,
        /// In which view.
        view: ClientViewId,
        /// What.
        op: u64,
    },
    /// The group says that this is not delivered, or that it cannot say.
    NotDelivered(u64),
    /// Something that must not happen while all keep the rules.
    Wrong(String),
}

//! Clients, their views, what happens to them, and why they are refused.

use std::fmt;
use std::sync::Arc;

use antiphon_core::wire::{GroupViewId, Incarnation};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Bundle, MAX_CLIENTS, MAX_NAME_BYTES};

/// Which client: no other one that is in the group at the time has the same. A node that leaves the group and
/// joins it again counts anew; with [`Client::since`] no two are ever the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    /// The member that it is a client of.
    pub node: Incarnation,
    /// That member's number for it.
    pub number: u32,
}

/// A client in the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Which.
    pub id: ClientId,
    /// What its member calls it; two clients may have the same name.
    pub name: String,
    /// The first view that has it.
    pub since: ClientViewId,
}

/// A view of clients: which view of the group it was made in, and after how many changes there. Strictly
/// increasing at each member, and the same view everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientViewId {
    /// The view of the members.
    pub group: GroupViewId,
    /// How many messages of that view had changed the clients.
    pub change: u32,
}

/// `57301.4.2`.
impl fmt::Display for ClientViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.group, self.change)
    }
}

/// An agreed list of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientView {
    /// Its identity.
    pub id: ClientViewId,
    /// By seniority: the one that has been in for the longest time is the first.
    pub members: Vec<Arc<Client>>,
    /// Those that the previous view did not have.
    pub joined: Vec<Arc<Client>>,
    /// Those of the previous view that are gone, and why.
    pub departed: Vec<(Arc<Client>, Departure)>,
}

/// Why a client is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Departure {
    /// It left in order.
    Left,
    /// Otherwise.
    Lost {
        /// How: at most 200 bytes.
        cause: String,
    },
}

impl Departure {
    /// Not in order, and why. A cause that is too long is cut.
    pub fn lost(cause: impl Into<String>) -> Self {
        let mut cause = cause.into();
        while cause.len() > super::MAX_CAUSE_BYTES {
            cause.pop();
        }
        Departure::Lost { cause }
    }
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Departure::Left => f.write_str("left"),
            Departure::Lost { cause } => f.write_str(cause),
        }
    }
}

/// What happened. What is said of no client in particular is for all clients of this member that are in the
/// group at that place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This client of this member is in from the view on that follows at once.
    Entered {
        /// Its number.
        number: u32,
    },
    /// This client of this member is out; nothing follows for it.
    Gone {
        /// Its number.
        number: u32,
        /// Why.
        departure: Departure,
    },
    /// A view: what follows is delivered in it.
    View(Arc<ClientView>),
    /// A client said something.
    Message {
        /// Which.
        from: Arc<Client>,
        /// In which view.
        view: ClientViewId,
        /// What.
        payload: Bytes,
    },
    /// A client said several things at once.
    Bundle {
        /// Which.
        from: Arc<Client>,
        /// In which view.
        view: ClientViewId,
        /// What.
        messages: Bundle,
    },
    /// What follows until the next view was completed among these clients only.
    Transitional {
        /// By seniority.
        members: Vec<Arc<Client>>,
    },
    /// The primary was lost: nothing is delivered and nothing can be said until the next event.
    Suspended,
    /// This member was removed, or is back as a fresh incarnation: its clients are out, and each comes in
    /// again, as another one ([`Event::Entered`]).
    Resync {
        /// Why.
        cause: String,
    },
    /// A member sent something that makes no sense, and it was ignored.
    Malformed {
        /// Which.
        from: Incarnation,
        /// What was expected.
        what: &'static str,
    },
}

/// For the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// If the group says what became of it other than by its delivery, hand that with this number to
    /// [`Clients::handle_receipt`](super::Clients::handle_receipt).
    pub number: u64,
    /// What to send to all.
    pub payload: Vec<u8>,
    /// Whether it has to be safe: delivered anywhere only when all members hold it.
    pub safe: bool,
}

/// Why nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// A name is empty, too long, or has control characters.
    Name,
    /// This member has [`MAX_CLIENTS`] clients in the group.
    Full,
    /// The client is not in the group: not yet, not any more, or not just now.
    NotIn,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Name => write!(
                f,
                "a client's name has 1 to {MAX_NAME_BYTES} bytes without control characters: take another"
            ),
            Refusal::Full => write!(
                f,
                "this node has {MAX_CLIENTS} clients in the group, which is the bound: ask another node"
            ),
            Refusal::NotIn => f.write_str("this client is not in the group now: wait for its view"),
        }
    }
}

impl std::error::Error for Refusal {}

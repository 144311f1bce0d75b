//! How views came to be decided, for whoever judges a node from outside.
//!
//! Events tell what was decided, but not who voted for it. A simulator that must tell a rightful decision
//! from that of a minority reads the votes here. Nothing in the core reads them, and they are only kept if
//! asked for.

use std::sync::Arc;

use antiphon_wire::membership::{Ballot, SlotId};
use antiphon_wire::{Incarnation, NodeView};

/// One step towards a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BallotNote {
    /// The incarnation that did it.
    pub by: Incarnation,
    /// The slot.
    pub slot: SlotId,
    /// The ballot; of a certificate, the last one accepted.
    pub ballot: Option<Ballot>,
    /// The ballot's value; of a certificate, the view under which the dead voted last.
    pub view: Arc<NodeView>,
    /// What it did.
    pub step: BallotStep,
}

/// What a node did about a ballot's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BallotStep {
    /// It accepted it, as a voter or as a joiner.
    Accepted,
    /// It proposed it and found it decided, with these out of the count.
    Decided {
        /// Those it held a usable proof of death of.
        dead: Vec<Incarnation>,
    },
    /// It got a proof of death that shows this as the last vote.
    Certified {
        /// Whose death.
        dead: Incarnation,
    },
}

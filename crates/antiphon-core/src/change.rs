//! What a view changed, for those who ask long after: without its members, of which a large cluster has
//! thousands in each view.

use std::collections::BTreeSet;

use antiphon_wire::{Accusation, Cause, Incarnation, NodeView, NodeViewId};

/// What a node view changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ViewChange {
    /// The view.
    pub id: NodeViewId,
    /// Its number.
    pub number: u32,
    /// How many members it had.
    pub members: usize,
    /// The members that the primary view before did not have, with their names, by seniority.
    pub joined: Vec<(Incarnation, String)>,
    /// Those of the primary view before that it did not have.
    pub departed: Vec<Departed>,
}

/// A member that a view did not have any more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Departed {
    /// Which.
    pub incarnation: Incarnation,
    /// Its name.
    pub name: String,
    /// Why.
    pub cause: Cause,
    /// Who accused it, of what.
    pub accusers: Vec<Accusation>,
}

impl ViewChange {
    /// What this view changed.
    pub fn of(view: &NodeView) -> Self {
        let joined: BTreeSet<Incarnation> = view.joined.iter().copied().collect();
        let new = view
            .members
            .iter()
            .filter(|member| joined.contains(&member.incarnation));
        let departed = view.departed.iter().map(|departure| Departed {
            incarnation: departure.member.incarnation,
            name: departure.member.name.clone(),
            cause: departure.cause.clone(),
            accusers: departure.accusers.clone(),
        });
        Self {
            id: view.id,
            number: view.number,
            members: view.members.len(),
            joined: new
                .map(|member| (member.incarnation, member.name.clone()))
                .collect(),
            departed: departed.collect(),
        }
    }

    /// Whether it is of a primary view.
    pub fn is_primary(&self) -> bool {
        matches!(self.id, NodeViewId::Primary { .. })
    }

    /// How much it takes to keep: nodes that came and went, and accusations of them.
    pub fn weight(&self) -> usize {
        let gone = self.departed.iter().map(|departed| 1 + departed.accusers.len());
        self.joined.len() + gone.sum::<usize>()
    }
}

//! What a view changed, for those who ask long after: without its members, of which a large cluster has
//! thousands in each view.

use std::collections::BTreeSet;
use std::fmt;

#[cfg(feature = "serde")]
use antiphon_wire::json::Written;
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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

    /// The name of a node that came or went with this view; the first digits of any other.
    pub fn name_of(&self, incarnation: Incarnation) -> String {
        let joined = self.joined.iter().map(|(joined, name)| (joined, name));
        let departed = self.departed.iter().map(|gone| (&gone.incarnation, &gone.name));
        let known = joined.chain(departed).find(|(known, _)| **known == incarnation);
        known.map_or_else(|| incarnation.short(), |(_, name)| name.clone())
    }

    /// How much it takes to keep: nodes that came and went, and accusations of them.
    pub fn weight(&self) -> usize {
        let gone = self.departed.iter().map(|departed| 1 + departed.accusers.len());
        self.joined.len() + gone.sum::<usize>()
    }
}

/// `view 57301: 1200 members, joined: b, left: c, d: crashed (a: silent for 1500 ms)`.
impl fmt::Display for ViewChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let majority = if self.is_primary() {
            ""
        } else {
            " without a majority"
        };
        write!(f, "view {}{majority}: {} members", self.number, self.members)?;
        for (_, name) in &self.joined {
            write!(f, ", joined: {name}")?;
        }
        let name = |incarnation| self.name_of(incarnation);
        for gone in &self.departed {
            write!(f, ", {}: {}", gone.name, gone.cause.with_names(&name))?;
            for said in &gone.accusers {
                write!(f, " ({})", said.with_names(&name))?;
            }
        }
        Ok(())
    }
}

/// `d: crashed (1f3a9c20: silent for 1500 ms)`.
impl fmt::Display for Departed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.cause)?;
        self.accusers.iter().try_for_each(|said| write!(f, " ({said})"))
    }
}

/// As a view whose members are not known.
#[cfg(feature = "serde")]
impl serde::Serialize for ViewChange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Gone<'a> {
            name: &'a str,
            incarnation: Incarnation,
        }
        let joined = self.joined.iter().map(|(_, name)| name.clone()).collect();
        let mut view = Written::new(self.id, self.number, Vec::new(), Some(self.members), joined);
        for Departed {
            incarnation,
            name,
            cause,
            accusers,
        } in &self.departed
        {
            let gone = Gone {
                name,
                incarnation: *incarnation,
            };
            view.depart(gone, cause, accusers, &|incarnation| self.name_of(incarnation));
        }
        view.serialize(serializer)
    }
}

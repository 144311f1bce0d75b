//! What a recovery by hand (R11) would mean, and why it is refused. What it does is on the page of
//! `membership/recovery.rs`.

use std::fmt;
use std::time::Duration;

use antiphon_wire::{Lineage, Member, ViewId};

/// What would be given up if this node went on alone, by an operator's word. From
/// [`Node::recovery`](crate::Node::recovery); it is good for [`Node::recover`](crate::Node::recover) as long
/// as the node has installed no other primary view, and there is not [more to warn of](Self::warns_of_more).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Recovery {
    /// The lineage of views that would end here.
    pub lineage: Lineage,
    /// The last primary view that this node installed, in this incarnation or an earlier one of its process:
    /// what it has is as of that view.
    pub view: ViewId,
    /// That view's number.
    pub number: u32,
    /// Since when this node knows that it has lost the majority.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "lost_ms", with = "antiphon_wire::json::millis")
    )]
    pub lost: Duration,
    /// Whether the members that this node hears could decide by themselves: then the cluster most likely
    /// comes back without any recovery, within seconds.
    pub quorum: bool,
    /// Whether this node voted for a next view, and does not know what came of it: those that it does not
    /// hear may have decided it, few as they are.
    pub undecided: bool,
    /// Whether a cluster has gone on without this node, which was removed from it or gave way to it, and has
    /// looked for it in vain since.
    pub replaced: bool,
    /// This node's votes.
    pub weight: u16,
    /// The other members of that view by seniority, all of which would be left behind.
    pub others: Vec<Abandoned>,
}

/// A member that a recovery leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Abandoned {
    /// Who.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub member: Member,
    /// How long ago it was last heard.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "heard_ms", with = "antiphon_wire::json::millis")
    )]
    pub heard: Duration,
    /// Whether this node hears it now: then it gives up its own state and joins as a new incarnation.
    pub here: bool,
    /// Whether its process is proven to have ended.
    pub dead: bool,
}

impl Recovery {
    /// Whether those that are neither heard nor proven dead might be a majority that goes on without this
    /// node, of the last view or of one after it, or a cluster has gone on already. Then a recovery makes a
    /// second cluster beside the first.
    pub fn may_fork(&self) -> bool {
        let weight = |abandoned: &Abandoned| u32::from(abandoned.member.weight);
        // The dead have no vote any more.
        let living = self.others.iter().filter(|other| !other.dead);
        let total = u32::from(self.weight) + living.clone().map(weight).sum::<u32>();
        let unknown: u32 = living.filter(|other| !other.here).map(weight).sum();
        self.replaced || unknown > 0 && (self.undecided || 2 * unknown >= total)
    }

    /// Whether there is a warning here beyond these two, which a person was shown: a quorum is heard, or a
    /// recovery may make a second cluster.
    pub fn warns_of_more(&self, quorum: bool, may_fork: bool) -> bool {
        self.quorum && !quorum || self.may_fork() && !may_fork
    }
}

/// Why a node does not go on alone. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryError {
    /// It was a member of no view that it knows of, so there is nothing that it could go on from.
    NoView,
    /// It is in a primary view: the cluster is there, or its loss was not noticed yet.
    Primary {
        /// The view's number.
        number: u32,
    },
    /// It has no vote (weight 0), so that it can be no cluster alone.
    NoVote,
    /// It was a member, and looks for the cluster that went on without it, or that it gave way to: that may
    /// answer yet.
    Looking {
        /// When it has looked for that much longer in vain, it may be recovered.
        left: Duration,
    },
    /// It is leaving.
    Leaving,
    /// What was shown to the operator is not so any more, or not all that is to be known now.
    Changed,
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::NoView => f.write_str(
                "the node is a member of no view, so there is nothing that it could go on from: recover from a node that was a member when the majority was lost; to begin anew, start a node with --found",
            ),
            RecoveryError::Primary { number } => write!(
                f,
                "the node is in the primary view {number}: nothing is to be recovered. If the others are gone, it notices within its detection time and says so; then ask again"
            ),
            RecoveryError::NoVote => f.write_str(
                "the node has no vote (weight 0), and a cluster needs one that has: recover from another survivor",
            ),
            RecoveryError::Looking { left } => write!(
                f,
                "the node is a member of no view, since it was removed or gave way, and looks for the cluster that goes on. If none answers for {} more seconds, it can be recovered as what it was before: ask again then",
                left.as_secs() + 1
            ),
            RecoveryError::Leaving => f.write_str("the node is leaving: recover from another survivor"),
            RecoveryError::Changed => f.write_str(
                "the node has installed another view since, has gone on by itself, or hears others than were shown: look at it again before anything is given up",
            ),
        }
    }
}

impl std::error::Error for RecoveryError {}

antiphon_wire::written_as_text!(RecoveryError);

/// What would be given up, a line for each member.
impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, view, lost) = (self.number, self.view, self.lost);
        write!(
            f,
            "goes on alone from view {number} ({view}), without a majority for {lost:?}"
        )?;
        if self.may_fork() {
            f.write_str("; the others MAY GO ON as another cluster")?;
        }
        self.others
            .iter()
            .try_for_each(|other| write!(f, "\n- leaves {other} behind"))
    }
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.dead, self.here) {
            (true, _) => "has ended",
            (_, true) => "is heard",
            _ => "is not heard",
        };
        write!(f, "{} ({state}, last heard {:?} ago)", self.member, self.heard)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use antiphon_wire::Incarnation;

    use super::*;

    #[derive(Clone, Copy)]
    enum Is {
        Here,
        Unheard,
        Dead,
    }

    fn beside(others: &[Is], undecided: bool) -> Recovery {
        let abandoned = |(index, is): (usize, &Is)| Abandoned {
            member: Member {
                incarnation: Incarnation(2 + index as u128),
                name: format!("n{index}"),
                addr: SocketAddr::from(([127, 0, 0, 1], 7000 + index as u16)),
                further: Vec::new(),
                metadata: Default::default(),
                weight: 1,
            },
            heard: Duration::ZERO,
            here: matches!(is, Is::Here),
            dead: matches!(is, Is::Dead),
        };
        Recovery {
            lineage: Lineage(1),
            view: ViewId { epoch: 1, counter: 1 },
            number: 1,
            lost: Duration::ZERO,
            quorum: false,
            undecided,
            replaced: false,
            weight: 1,
            others: others.iter().enumerate().map(abandoned).collect(),
        }
    }

    #[test]
    fn those_who_are_not_heard_may_go_on_if_they_are_half_of_the_living_or_may_have_decided() {
        use Is::{Dead, Here, Unheard};
        for (others, decided, undecided) in [
            (&[][..], false, false),
            (&[Here, Here], false, false),
            (&[Here, Unheard], false, true),
            (&[Unheard], true, true),
            (&[Unheard, Unheard], true, true),
            (&[Here, Unheard, Unheard], true, true),
            // The dead decide nothing, and nobody needs their votes.
            (&[Dead, Dead], false, false),
            (&[Here, Dead, Dead], false, false),
            (&[Here, Dead, Unheard], false, true),
            (&[Dead, Dead, Unheard], true, true),
        ] {
            let fork = |may_have_voted| beside(others, may_have_voted).may_fork();
            let states: String = others
                .iter()
                .map(|is| match is {
                    Here => 'h',
                    Unheard => 'u',
                    Dead => 'd',
                })
                .collect();
            assert_eq!((fork(false), fork(true)), (decided, undecided), "{states}");
        }
    }
}

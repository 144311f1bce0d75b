//! What is remembered of a sorted run.

use super::super::{Id, MAX_IDS, ids};
#[cfg(test)]
use super::super::{Standing, Summary};
use super::{Conclusion, Set};

/// Everything at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) nodes: [Node; MAX_IDS],
    /// The slot, and the members that vote in it.
    pub(super) slot: u8,
    pub(super) before: Set,
    /// The view it has decided; empty if none.
    pub(super) decided: Set,
    pub(super) crashes_left: u8,
    pub(super) broken: Option<Broken>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// No member any more, or never one.
    Absent,
    /// Wants to join; acknowledges every view that has it.
    Outside,
    /// A member that has not installed the view before. It is silent, and so need not be told apart from a
    /// member that is; only a planted mistake makes it answer.
    Behind,
    Alive(Vote),
    Dead {
        /// What all its lifelines show.
        shown: Vote,
        /// What only some of them show: the vote during which it was killed.
        hidden: Option<Vote>,
        /// Whether it may yet turn out to have been killed while it voted.
        open: bool,
    },
}

/// What was accepted last: the rank of the ballot among all that matter, from 1, and the view. Rank 0 is
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Vote {
    pub(super) rank: u8,
    pub(super) view: Set,
}

pub(super) const NOTHING: Vote = Vote { rank: 0, view: 0 };

/// In a leaderless slot, the rank of the fast ballot, whether or not anyone has cast a vote in it.
pub(super) const FAST_RANK: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    /// R1.
    Twice(Set, Set),
    /// R3.
    NotJoint(Set),
}

impl State {
    /// What a living member has accepted last.
    pub(super) fn vote(&self, id: Id) -> Option<Vote> {
        match self.nodes[usize::from(id)] {
            Node::Alive(vote) => Some(vote),
            _ => None,
        }
    }

    /// The same; or the vote of a dead member that may have been killed while it voted after that.
    pub(super) fn last(&self, id: Id) -> Option<Vote> {
        match self.nodes[usize::from(id)] {
            Node::Alive(vote)
            | Node::Dead {
                shown: vote,
                open: true,
                ..
            } => Some(vote),
            _ => None,
        }
    }

    /// The last vote of a dead member that some lifeline shows and that has no acceptance above this rank;
    /// the later one if both are such.
    pub(super) fn shown(&self, id: Id, highest: u8) -> Option<Vote> {
        let Node::Dead { shown, hidden, .. } = self.nodes[usize::from(id)] else {
            return None;
        };
        let votes = [hidden, Some(shown)].into_iter().flatten();
        votes.into_iter().find(|vote| vote.rank <= highest)
    }

    pub(super) fn votes(&self) -> impl Iterator<Item = Vote> {
        self.nodes
            .iter()
            .flat_map(|node| match *node {
                Node::Alive(vote) => [Some(vote), None],
                Node::Dead { shown, hidden, .. } => [Some(shown), hidden],
                Node::Absent | Node::Outside | Node::Behind => [None, None],
            })
            .flatten()
    }

    pub(super) fn highest(&self) -> u8 {
        self.votes().map(|vote| vote.rank).max().unwrap_or(0)
    }

    pub(super) fn value_of(&self, rank: u8) -> Option<Set> {
        self.votes().find(|vote| vote.rank == rank).map(|vote| vote.view)
    }

    pub(super) fn set_of(&self, test: impl Fn(&Node) -> bool) -> Set {
        ids()
            .filter(|id| test(&self.nodes[usize::from(*id)]))
            .fold(0, |set, id| set | 1 << id)
    }

    pub(super) fn kill(&mut self, id: Id) {
        let node = &mut self.nodes[usize::from(id)];
        if let Node::Alive(shown) = *node {
            *node = Node::Dead {
                shown,
                hidden: None,
                open: true,
            };
            self.crashes_left -= 1;
        }
    }

    pub(super) fn decide(&mut self, view: Set, conclusion: Conclusion) {
        if conclusion == Conclusion::DecidesAlone {
            self.broken = Some(Broken::NotJoint(view));
        } else if self.decided == 0 {
            self.decided = view;
        } else if self.decided != view {
            self.broken = Some(Broken::Twice(self.decided, view));
        }
    }

    /// Forgets ballots that no vote is of any more, but for the fast one if there is one.
    pub(super) fn rank(&mut self, leaderless: bool) {
        let fast = u32::from(leaderless) << FAST_RANK;
        let used = self.votes().fold(fast, |set, vote| set | 1 << vote.rank) & !1;
        let rank = |vote: &mut Vote| {
            if vote.rank > 0 {
                vote.rank = (used & ((2 << vote.rank) - 1)).count_ones() as u8;
            }
        };
        for node in &mut self.nodes {
            match node {
                Node::Alive(vote) => rank(vote),
                Node::Dead { shown, hidden, .. } => {
                    rank(shown);
                    hidden.iter_mut().for_each(rank);
                }
                Node::Absent | Node::Outside | Node::Behind => {}
            }
        }
    }
}

#[cfg(test)]
impl State {
    pub(in super::super) fn summary(&self, leaderless: bool) -> Summary {
        let vote = |vote: Vote| (vote.rank > 0).then_some((u32::from(vote.rank), vote.view));
        let nodes = self.nodes.iter().map(|node| match *node {
            Node::Absent => Standing::Absent,
            Node::Outside => Standing::Outside,
            Node::Behind => Standing::Alive(None),
            Node::Alive(last) => Standing::Alive(vote(last)),
            Node::Dead { shown, hidden, .. } => Standing::Dead(vote(shown), hidden.and_then(vote)),
        });
        let mut summary = Summary {
            nodes: nodes.collect(),
            decided: (self.decided != 0).then_some(self.decided).into_iter().collect(),
        };
        summary.rank(leaderless);
        summary
    }
}

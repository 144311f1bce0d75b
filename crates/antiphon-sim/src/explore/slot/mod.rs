//! The view slot, explored exhaustively (R26): R1 one value, R2 certificates, R3 joint quorum.
//!
//! The acceptors and proposers are the shipping [`Slot`](antiphon_core::explore::slot::Slot)s. The smallest
//! possible surroundings make them a cluster:
//!
//! - **Messages are a set.** What was sent may arrive at any time, at some, several times or never. Loss,
//!   reordering, duplication, partitions and cut-off members are all choices of what to deliver.
//! - **A death leaves certificates.** The last vote reaches any of the others, at any time, or never. If a
//!   member is killed between writing a vote to its lifelines and answering, it leaves two last votes, one
//!   with and one without that vote. Each watcher shows one of them, and the vote went nowhere else.
//! - **Proposers choose freely** among the views of the configuration when they may choose.
//! - **In a leaderless slot each member casts** one vote for any of these views at any time, if it still may,
//!   and tells all. A value counts as decided as soon as all votes ever cast for it are a fast quorum: any
//!   learner might count so. If its own members have not acknowledged it (R3), it is not decided, and must
//!   not be contradicted either. In the sorted model all slots of such a world are leaderless, in the free
//!   one the first.
//! - With two slots, a member that learns the decision of the first goes on to the second as an acceptor of
//!   that view, or knows that it is out.
//!
//! There are two models. [`Free`] delivers message by message, in any order; its ballots are bounded.
//! [`Sorted`] goes ballot by ballot, for **any number of ballots**: it explores only runs in which all that
//! belongs to a lower ballot happens before all that belongs to a higher one. That brings four members within
//! reach. A test compares the two on worlds that both can finish: every combination of votes, deaths and
//! decisions of a free run is in the sorted model as well. The sorted model has more besides, which makes it
//! the stricter of the two.
//!
//! Both leave out only what no member can see:
//!
//! - a proposer promises its own ballot before it asks any other member;
//! - a proposer takes the promises it counts at once, in every combination that lets it go on, right before
//!   the event that lets it go on; if it waits with some of them in hand, that looks the same from outside;
//! - a decision is noted as soon as the proposer *could* conclude from what was sent to it, certificates
//!   included; the run in which those acknowledgements did arrive differs in nothing else;
//! - a member dies when the first certificate of it arrives: until then a dead member and a member that does
//!   nothing look the same;
//! - messages that can change nothing any more are forgotten.
//!
//! The invariants: a slot decides one value at most (R1, and with it R2: two primaries would be two decisions
//! of one slot); a decided view has the acknowledgement of a quorum of its own members and a member of the
//! view before (R3).

mod free;
mod sorted;

use std::collections::BTreeSet;
use std::fmt;

use antiphon_core::explore::slot::{Value, Voters};

pub use self::free::Free;
pub use self::sorted::Sorted;

/// A member: 0 is the elder. The joiner has the number after the last member.
type Id = u8;

/// All nodes there can be.
fn ids() -> impl Iterator<Item = Id> {
    0..MAX_IDS as u8
}

/// What to explore.
#[derive(Debug, Clone)]
pub struct SlotModel {
    /// Members of view n.
    pub members: u8,
    /// The weight of each, the joiner's last.
    pub weights: [u8; MAX_IDS],
    /// Members that may propose, other than the elder in round 0.
    pub proposers: u8,
    /// The highest round of a ballot.
    pub rounds: u8,
    /// How many times phase 1 is started, by all proposers together.
    pub prepares: u8,
    /// How many members may crash.
    pub crashes: u8,
    /// Whether a node outside wants to join.
    pub joiner: bool,
    /// Which views a proposer tries when it may choose.
    pub values: Values,
    /// How many slots in a row: 1 or 2.
    pub slots: u8,
    /// Whether proposers try a second value in a ballot. Shipping code refuses; only a planted mistake lets
    /// them.
    pub second_values: bool,
    /// Whether round 0 is the fast ballot, in which each member casts a vote of its own.
    pub leaderless: bool,
}

/// Which views a proposer tries when it may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Every view that keeps the proposer.
    All,
    /// Two views: the proposer alone, which any quorum of the slot may decide, and all members, which needs
    /// the most to be decided.
    Extremes,
    /// Two views, whichever member proposes: all members, and all but the most junior. Members disagree on
    /// these two after one of them was doubted.
    Two,
}

/// The most nodes in a model, the joiner included.
pub const MAX_IDS: usize = 5;

/// A set of nodes, and their weights: what a slot decides on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct View {
    members: u8,
    weights: [u8; MAX_IDS],
}

impl View {
    fn contains(self, id: Id) -> bool {
        self.members & 1 << id != 0
    }

    fn ids(self) -> impl Iterator<Item = Id> {
        (0..MAX_IDS as u8).filter(move |id| self.contains(*id))
    }

    fn elder(self) -> Id {
        self.members.trailing_zeros() as u8
    }
}

impl Value<Id> for View {
    fn voters(&self) -> Voters<Id> {
        Voters {
            members: self
                .ids()
                .map(|id| (id, u32::from(self.weights[usize::from(id)])))
                .collect(),
            senior_breaks_tie: true,
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.ids().map(|id| id.to_string()).collect();
        write!(f, "{{{}}}", ids.join(","))
    }
}

impl SlotModel {
    /// A view of weight one for all.
    pub fn plain(members: u8) -> Self {
        Self {
            members,
            weights: [1; MAX_IDS],
            proposers: members,
            rounds: 1,
            prepares: 2,
            crashes: 1,
            joiner: false,
            values: Values::All,
            slots: 1,
            second_values: false,
            leaderless: false,
        }
    }

    fn view(&self, members: u8) -> View {
        let mut weights = [0; MAX_IDS];
        for (id, weight) in weights.iter_mut().enumerate() {
            *weight = if members & 1 << id != 0 {
                self.weights[id]
            } else {
                0
            };
        }
        View { members, weights }
    }

    /// The views that a proposer may choose in the slot after `before`.
    fn choices(&self, me: Id, before: View) -> Vec<View> {
        let joiner = if self.joiner { 1 << self.members } else { 0 };
        let fresh = joiner & !before.members;
        let everyone = before.members | fresh;
        let choices: BTreeSet<u8> = match self.values {
            Values::All => (0..=u8::MAX)
                .filter(|set| set & !everyone == 0 && set & 1 << me != 0)
                .collect(),
            Values::Extremes => [1 << me, everyone].into(),
            Values::Two => [everyone, everyone & !(1 << (self.members - 1))].into(),
        };
        // A view without a voter could never be followed by another.
        choices
            .into_iter()
            .map(|members| self.view(members))
            .filter(|view| view.weights.iter().any(|w| *w > 0))
            .collect()
    }

    /// R3, computed apart from the shipping code: half the weight of the living members acknowledged, and the
    /// view has a member of the view before.
    fn is_joint(&self, value: View, before: View, acknowledged: u8, dead: u8) -> bool {
        let weight = |set: u8| -> u32 {
            value
                .ids()
                .filter(|id| set & 1 << id != 0)
                .map(|id| u32::from(self.weights[usize::from(id)]))
                .sum()
        };
        weight(acknowledged) * 2 >= weight(!dead) && value.members & before.members != 0
    }
}

fn two_views(slot: u8, first: View, second: View) -> String {
    format!("R1: slot {slot} decided both {first:?} and {second:?}: two primaries")
}

/// A state as both models can show it, to compare them.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Summary {
    nodes: Vec<Standing>,
    decided: Vec<u8>,
}

/// Acceptances are (rank of the ballot, view).
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Standing {
    Absent,
    Outside,
    Alive(Option<(u32, u8)>),
    /// What all lifelines show, and what only some do.
    Dead(Option<(u32, u8)>, Option<(u32, u8)>),
}

#[cfg(test)]
impl Summary {
    /// Ballots by their order alone; the fast one is the first.
    fn rank(&mut self, leaderless: bool) {
        let mut ballots: BTreeSet<u32> = leaderless.then_some(1).into_iter().collect();
        let mut each = |change: &mut dyn FnMut(&mut u32)| {
            for node in &mut self.nodes {
                let votes = match node {
                    Standing::Alive(vote) => [vote.as_mut(), None],
                    Standing::Dead(shown, hidden) => [shown.as_mut(), hidden.as_mut()],
                    Standing::Absent | Standing::Outside => [None, None],
                };
                votes.into_iter().flatten().for_each(|(ballot, _)| change(ballot));
            }
        };
        each(&mut |ballot| {
            ballots.insert(*ballot);
        });
        each(&mut |ballot| *ballot = ballots.range(..=*ballot).count() as u32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::super::search::visit;
    use super::*;

    /// What the sorted model says of the free one: nothing that any order of messages leads to is missing in
    /// it.
    fn sorting_loses_nothing(model: &SlotModel) -> usize {
        let mut sorted: HashMap<Vec<Standing>, HashSet<Vec<u8>>> = HashMap::new();
        let complete = visit(&Sorted::new(model.clone()), 2_000_000, |state| {
            let Summary { nodes, decided } = state.summary(model.leaderless);
            sorted.entry(nodes).or_default().insert(decided);
        });
        assert!(complete, "the sorted model is larger than expected");
        let mut compared = HashSet::new();
        let complete = visit(&Free(model.clone()), 2_000_000, |state| {
            let summary = state.summary(model.leaderless);
            if !compared.insert(summary.clone()) {
                return;
            }
            let Summary { nodes, decided } = summary;
            let known = sorted.get(&nodes);
            // A proposer that turned to another ballot concludes nothing any more; the sorted run lets it.
            let found = known.is_some_and(|all| decided.is_empty() || all.contains(&decided));
            assert!(found, "no sorted run leads to {nodes:?}, {decided:?}: {known:?}");
        });
        assert!(complete, "the free model is larger than expected");
        compared.len()
    }

    #[test]
    fn every_order_of_messages_has_a_run_sorted_by_ballots_with_the_same_votes_and_deaths() {
        assert!(sorting_loses_nothing(&SlotModel::plain(2)) > 50);
        let joining = SlotModel {
            joiner: true,
            ..SlotModel::plain(2)
        };
        assert!(sorting_loses_nothing(&joining) > 200);
        let three = SlotModel {
            prepares: 1,
            ..SlotModel::plain(3)
        };
        assert!(sorting_loses_nothing(&three) > 1000);
    }

    #[test]
    fn every_order_of_messages_after_a_fast_ballot_has_a_run_sorted_by_ballots_as_well() {
        let fast = |members| SlotModel {
            leaderless: true,
            ..SlotModel::plain(members)
        };
        assert!(sorting_loses_nothing(&fast(2)) > 100);
        let joining = SlotModel {
            joiner: true,
            values: Values::Two,
            ..fast(2)
        };
        assert!(sorting_loses_nothing(&joining) > 100);
        let three = SlotModel {
            prepares: 1,
            values: Values::Two,
            ..fast(3)
        };
        assert!(sorting_loses_nothing(&three) > 1000);
    }
}

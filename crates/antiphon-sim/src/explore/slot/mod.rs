//! The view slot, explored exhaustively (R26): R1 one value, R2 certificates, R3 joint quorum.
//!
//! The acceptors and proposers are the shipping [`Slot`]s. Around them stands the least that makes them a cluster:
//!
//! - **Messages are a set.** What was sent may arrive at any time, at some, several times or never. Loss, reordering,
//!   duplication, partitions and cut-off members are all choices of what to deliver.
//! - **A death leaves certificates.** The last vote reaches any of the others, at any time, or never. A member killed
//!   between writing a vote to its lifelines and answering leaves two last votes, one with and one without it: each watcher
//!   shows one of them, and the vote went nowhere else.
//! - **Proposers choose freely** among the views of the configuration when they may choose.
//! - With two slots, a member that learns the decision of the first goes on to the second as an acceptor of that view, or
//!   knows that it is out.
//!
//! There are two models. [`Free`] delivers message by message, in any order; its ballots are bounded. [`Sorted`]
//! explores only runs in which all that belongs to a lower ballot happens before all that belongs to a higher one, for
//! **any number of ballots**. Both leave out only what is invisible to everyone:
//!
//! - a proposer takes the promises it counts at once, in every combination that lets it go on, right before the event that
//!   lets it go on; waiting with some of them in hand looks the same from outside;
//! - a decision is noted as soon as the proposer *could* conclude from what was sent to it, certificates included; the
//!   run in which those acknowledgements did arrive differs in nothing else;
//! - a member dies when the first certificate of it arrives: until then a dead member and one that does nothing look the
//!   same;
//! - messages that can change nothing any more are forgotten.
//!
//! The invariants: a slot decides one value at most (R1, and with it R2: two primaries would be two decisions of one
//! slot); a decided view has the acknowledgement of a quorum of its own members and a member of the view before (R3).

mod free;
mod sorted;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use antiphon_core::explore::slot::{Acceptance, LastVote, Slot, Step, Value, Voters};
use antiphon_core::wire::Incarnation;
use antiphon_core::wire::membership::Ballot;

pub use self::free::Free;
pub use self::sorted::Sorted;

/// A member: 0 is the elder. The joiner has the number after the last member.
type Id = u8;

/// What to explore.
#[derive(Debug, Clone)]
pub struct SlotModel {
    /// Members of view n.
    pub members: u8,
    /// The weight of each, the joiner's last.
    pub weights: [u8; MAX_IDS],
    /// Who may propose, other than the elder in round 0.
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
    /// Whether proposers try a second value in a ballot. Shipping code refuses; only a planted mistake lets them.
    pub second_values: bool,
}

/// Which views a proposer tries when it may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Every one that keeps the proposer.
    All,
    /// Itself alone, which any quorum of the slot may decide, and everyone, which needs the most to be decided.
    Extremes,
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

/// One node.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Node {
    /// Takes part in the slot of this number.
    Alive { at: u8, slot: Slot<Id, View> },
    /// Wants to join; acknowledges every view that has it.
    Joiner,
    /// Its process is gone, and these are the last votes that its lifelines show.
    Dead {
        at: u8,
        last_votes: Vec<LastVote<View>>,
        /// In sorted runs: how it stood. The vote during which it was killed may belong to a higher ballot than the
        /// first use of the last vote before.
        stood: Option<Slot<Id, View>>,
    },
    /// A decided view does not have it.
    Out,
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
        };
        // A view without anyone who votes could never be followed by another.
        choices
            .into_iter()
            .map(|members| self.view(members))
            .filter(|view| view.weights.iter().any(|w| *w > 0))
            .collect()
    }

    /// The nodes at the start.
    fn nodes(&self) -> [Option<Arc<Node>>; MAX_IDS] {
        let view = self.view((1 << self.members) - 1);
        let mut nodes: [Option<Arc<Node>>; MAX_IDS] = Default::default();
        for id in 0..self.members {
            let slot = Slot::new(id, view.voters(), Some(Incarnation(0)));
            nodes[usize::from(id)] = Some(Arc::new(Node::Alive { at: 0, slot }));
        }
        if self.joiner {
            nodes[usize::from(self.members)] = Some(Arc::new(Node::Joiner));
        }
        nodes
    }

    /// The view whose members vote in this slot.
    fn before(&self, decided: &[Vec<View>; 2], at: u8) -> View {
        match at {
            0 => self.view((1 << self.members) - 1),
            // Whoever is in the second slot has learned the first one's decision.
            _ => decided[usize::from(at) - 1][0],
        }
    }

    /// R3, computed apart from the shipping code: half the weight of the living members acknowledged, and the view has a
    /// member of the one before.
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

/// Ways for the proposer of `ballot` to go on: each combination of promises that lets it, taken at once, and then
/// perhaps the certificate that lets it.
fn go_on(
    slot: &Slot<Id, View>,
    ballot: Ballot,
    promises: &[(Id, Option<Acceptance<View>>)],
    certificate: Option<(Id, &LastVote<View>)>,
) -> Vec<(Slot<Id, View>, Step<Id, View>)> {
    let mut ways: Vec<(Slot<Id, View>, Step<Id, View>)> = Vec::new();
    for set in 0u32..1 << promises.len() {
        let taken = || (0..promises.len()).filter(move |at| set & 1 << at != 0);
        // The event that lets it go on comes last: the certificate, or any one of the promises.
        let lasts: Vec<Option<usize>> = if certificate.is_some() {
            vec![None]
        } else {
            taken().map(Some).collect()
        };
        for last in lasts {
            let mut slot = slot.clone();
            let early = taken()
                .filter(|at| Some(*at) != last)
                .any(|at| slot.on_promise(&promises[at].0, ballot, promises[at].1.clone()) != Step::Wait);
            if early {
                continue;
            }
            let step = match (last, certificate) {
                (Some(at), _) => slot.on_promise(&promises[at].0, ballot, promises[at].1.clone()),
                (None, Some((dead, vote))) => slot.certify(dead, vote.clone()),
                (None, None) => Step::Wait,
            };
            if step != Step::Wait && !ways.iter().any(|(same, _)| *same == slot) {
                ways.push((slot, step));
            }
        }
    }
    ways
}

/// What is wrong with these decisions.
fn violation(broken: Option<&'static str>, decided: &[Vec<View>; 2]) -> Option<String> {
    if let Some(broken) = broken {
        return Some(broken.to_owned());
    }
    let twice = decided.iter().position(|views| views.len() > 1)?;
    let views = &decided[twice];
    Some(format!(
        "R1: slot {twice} decided both {:?} and {:?}: two primaries",
        views[0], views[1]
    ))
}

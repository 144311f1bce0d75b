//! The fast ballot of a leaderless slot in sorted runs: it is the lowest, and has several values.

use antiphon_core::explore::slot::{Acceptance, LastVote, Slot, Step, Value};
use antiphon_core::wire::Incarnation;
use antiphon_core::wire::membership::Ballot;

use super::super::{Id, View, ids};
use super::state::{Broken, FAST_RANK, NOTHING, Node, State, Vote};
use super::{Conclusion, Forced, Move, Set, Sorted, Way, subsets};

/// What a proposer hears in phase 1. Promises that say the same may come together.
enum Heard {
    Promises(Option<Acceptance<View>>, Vec<Id>),
    Certificate(Id, LastVote<View>),
}

impl Heard {
    fn tell(&self, slot: &mut Slot<Id, View>, ballot: Ballot) -> Step<Id, View> {
        match self {
            Self::Promises(accepted, from) => slot.on_promises(from, ballot, accepted.clone()),
            Self::Certificate(dead, last) => slot.certify(*dead, last.clone()),
        }
    }
}

impl Sorted {
    pub(super) fn is_fast(&self, vote: Vote) -> bool {
        self.model.leaderless && vote.rank == FAST_RANK
    }

    /// Every member that still may casts its vote, or was killed while it did.
    pub(super) fn casts(&self, state: &State, into: &mut Vec<(Move, State)>) {
        if !self.model.leaderless || self.highest(state) > FAST_RANK {
            return;
        }
        let before = self.model.view(state.before);
        for who in ids() {
            let killed = match state.nodes[usize::from(who)] {
                Node::Alive(NOTHING) if self.member(who, state.before, NOTHING).may_cast() => false,
                Node::Dead {
                    shown: NOTHING,
                    hidden: None,
                    open: true,
                } => true,
                _ => continue,
            };
            for value in self.model.choices(who, before) {
                let view = value.members;
                let vote = Vote {
                    rank: FAST_RANK,
                    view,
                };
                let mut next = *state;
                next.nodes[usize::from(who)] = match killed {
                    false => Node::Alive(vote),
                    true => Node::Dead {
                        shown: NOTHING,
                        hidden: Some(vote),
                        open: false,
                    },
                };
                self.count_casts(&mut next);
                into.push((Move::Cast { who, view, killed }, next));
            }
        }
    }

    /// What anyone could conclude of the votes in the fast ballot, as long as there is no other.
    ///
    /// R1 is held to more than is offered: a value with a fast quorum counts as decided, acknowledged by its
    /// own members or not.
    pub(super) fn count_casts(&self, state: &mut State) {
        if !self.model.leaderless || self.highest(state) > FAST_RANK {
            return;
        }
        // What was shown by all lifelines may have been told to anyone.
        let cast = |node: &Node| match *node {
            Node::Alive(vote) | Node::Dead { shown: vote, .. } => {
                Some(vote).filter(|vote| self.is_fast(*vote))
            }
            Node::Absent | Node::Outside | Node::Behind => None,
        };
        let mut views: Vec<Set> = state
            .nodes
            .iter()
            .filter_map(cast)
            .map(|vote| vote.view)
            .collect();
        views.sort_unstable();
        views.dedup();
        let voters = self.model.view(state.before).voters();
        let dead = state.set_of(|node| matches!(node, Node::Dead { .. }));
        for view in views {
            let voted = state.set_of(|node| cast(node).is_some_and(|vote| vote.view == view));
            if voters.is_fast_quorum(&ids().filter(|id| voted & 1 << id != 0).collect()) {
                state.decide(view, Conclusion::Decides);
            }
            let joiners = state.set_of(|node| matches!(node, Node::Outside)) & view;
            for acknowledged in subsets(joiners) {
                for certified in subsets(dead) {
                    let concluded = self.counted(state.before, view, voted | acknowledged, certified);
                    if concluded == Conclusion::DecidesAlone {
                        state.broken = Some(Broken::NotJoint(view));
                    }
                }
            }
        }
    }

    /// What a member concludes of these votes for a view, joiners' included, and certificates.
    fn counted(&self, before: Set, view: Set, voted: Set, certified: Set) -> Conclusion {
        let key = [before, view, voted, certified];
        if let Some(known) = self.counted.borrow().get(&key) {
            return *known;
        }
        let value = self.model.view(view);
        let learner = ids().find(|id| before & !certified & 1 << id != 0);
        let conclusion = learner.map_or(Conclusion::Waits, |id| {
            let mut slot = self.member(id, before, NOTHING);
            for dead in ids().filter(|dead| certified & 1 << dead != 0) {
                slot.certify(dead, LastVote::default());
            }
            let voted: Vec<Id> = ids().filter(|id| voted & 1 << id != 0).collect();
            let set = voted.iter().fold(0, |set, id| set | 1 << id);
            if !matches!(slot.on_casts(&voted, &value), Step::Decided { .. }) {
                Conclusion::Waits
            } else if self
                .model
                .is_joint(value, self.model.view(before), set, certified)
            {
                Conclusion::Decides
            } else {
                Conclusion::DecidesAlone
            }
        });
        self.counted.borrow_mut().insert(key, conclusion);
        conclusion
    }

    /// Phase 1 of a ballot that hears of none above the fast one: every set of answers that lets the proposer
    /// go on.
    pub(super) fn ask_after_fast(&self, state: &State, proposer: Id) -> Vec<Way> {
        let Some(vote) = state.vote(proposer) else {
            return Vec::new();
        };
        let mut slot = self.member(proposer, state.before, vote);
        slot.on_nack(Some(self.ballot(self.highest(state))));
        let Step::Prepare { ballot, used } = slot.prepare(Incarnation(u128::from(proposer))) else {
            return Vec::new();
        };
        let mut promises: Vec<(Id, Option<Acceptance<View>>)> = Vec::new();
        let mut certificates: Vec<(Id, Vec<LastVote<View>>)> = Vec::new();
        for id in ids() {
            let vote = match state.nodes[usize::from(id)] {
                Node::Behind => NOTHING,
                Node::Alive(vote) if vote.rank <= FAST_RANK => vote,
                Node::Dead { shown, hidden, .. } => {
                    let votes = [Some(shown), hidden].into_iter().flatten();
                    let votes = votes.filter(|vote| vote.rank <= FAST_RANK);
                    certificates.push((id, votes.map(|vote| self.last_vote(vote)).collect()));
                    continue;
                }
                _ => continue,
            };
            if let Ok(accepted) = self.member(id, state.before, vote).on_prepare(ballot, &used) {
                promises.push((id, accepted));
            }
        }
        let mut ways = Vec::new();
        for heard in all_that_may_be_heard(&promises, &certificates) {
            for last in 0..heard.len() {
                let mut slot = slot.clone();
                let mut others = (0..heard.len()).filter(|at| *at != last);
                if others.any(|at| heard[at].tell(&mut slot, ballot) != Step::Wait) {
                    continue;
                }
                let (forced, value, used) = match heard[last].tell(&mut slot, ballot) {
                    Step::Accept { value, used, .. } => (Forced::Fast(value.members), value, used),
                    // Any value shows which members would accept.
                    Step::Choose => match slot.choose(self.model.view(state.before)) {
                        Step::Accept { value, used, .. } => (Forced::Nothing, value, used),
                        _ => continue,
                    },
                    _ => continue,
                };
                let acceptors = self.acceptors(state, ballot, value, &used);
                let way = Way { forced, acceptors };
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
        }
        ways
    }
}

/// Every set of these promises, with at most one certificate of each of the dead.
fn all_that_may_be_heard(
    promises: &[(Id, Option<Acceptance<View>>)],
    certificates: &[(Id, Vec<LastVote<View>>)],
) -> Vec<Vec<Heard>> {
    let proofs = certificates.iter().fold(vec![Vec::new()], |all, (dead, votes)| {
        let mut longer = all.clone();
        for vote in votes {
            longer.extend(all.iter().map(|some| {
                let mut some = some.clone();
                some.push((*dead, vote.clone()));
                some
            }));
        }
        longer
    });
    let mut all = Vec::new();
    for set in 0u32..1 << promises.len() {
        let heard = || (0..promises.len()).filter(move |at| set & 1 << at != 0);
        for proofs in &proofs {
            let mut parts: Vec<Heard> = Vec::new();
            for (id, accepted) in heard().map(|at| &promises[at]) {
                let alike = parts.iter_mut().find_map(|part| match part {
                    Heard::Promises(known, from) if known == accepted => Some(from),
                    _ => None,
                });
                match alike {
                    Some(from) => from.push(*id),
                    None => parts.push(Heard::Promises(accepted.clone(), vec![*id])),
                }
            }
            let certificate = |(dead, vote): &(Id, LastVote<View>)| Heard::Certificate(*dead, vote.clone());
            parts.extend(proofs.iter().map(certificate));
            all.push(parts);
        }
    }
    all
}

//! Ballot by ballot: only runs in which everything that belongs to a lower ballot comes before everything
//! that belongs to a higher one, for any number of ballots.
//!
//! Every run can be sorted so, and no member notices. What happens in a ballot depends on lower ones alone:
//! an acceptor's votes only rise, a promise tells of lower acceptances, and a certificate serves no ballot
//! below its last promise (R2). So if an event in a higher ballot comes right before an event in a lower one,
//! the two can change places. A message that an acceptor would have refused for a higher promise is, in the
//! sorted run, lost. For the same reason all of slot 0 comes before all of slot 1: a member in slot 1 depends
//! on nothing of slot 0 but its decision.
//!
//! # What a state is
//! In a sorted run nothing lower than the present ballot will ever come. That leaves little to remember:
//!
//! ```text
//!   living member   what it accepted last: (rank of the ballot, view)
//!   dead member     what its lifelines show: the same; perhaps a second, later vote that only some of them show
//!   slot            which members vote in it, what it has decided
//! ```
//! - **Promises** are not remembered: what they forbid is never asked again.
//! - **Ballots** are remembered by their order alone. So there are finitely many states, however many ballots
//!   there are.
//! - **Certificates** are not remembered. Each ballot uses any choice of those that exist by then, in phase 1
//!   and again in phase 2. So a proposer may use one and later act as if it had never seen it, which the
//!   shipping code does not do: the model has all its runs and some more, and is stricter. For acceptors, a
//!   certificate could only make them refuse what is never asked.
//! - **A whole ballot is one step**: the proposer, the view, the acceptors. All orders of these messages lead
//!   to the same state.
//!
//! # What one step does, and which code does it
//! The answers come from shipping [`Slot`]s that are set up as the state says, asked, and thrown away. The
//! same question is asked once: answers are kept by all that the slot was told. In phase 1 the values
//! themselves are not part of that: slots compare the ballots of acceptances and hand the value on unseen.
//!
//! *The fast ballot* of a leaderless slot is the lowest. So all votes in it come first, one by one and in any
//! order. Once there is a vote in a higher ballot, a member without a vote in the fast one casts none any
//! more. The fast ballot has a rank even if no member cast.
//!
//! *Phase 1.* Which value is forced depends on the highest acceptance among the answers alone. For each
//! acceptance that exists, and for none, all members are heard that accepted nothing higher, the highest
//! first, until the slot goes on. More answers and more certificates never undo a quorum. So if these do not
//! suffice, no choice among them does. If nothing above the fast ballot is heard, the value depends on all
//! the votes that others cast. Then every set of answers and certificates is heard that lets the slot go on
//! with the last of them.
//!
//! *Phase 2.* Any set of the members that would accept does so. Dying members are among them: the vote of
//! such a member reached some of its lifelines and no other member. Then the slot is decided if the proposer
//! could conclude so from these acknowledgements, with any choice of certificates, also of members that die
//! only now.
//!
//! *Death.* A member dies right after its last part in any ballot: nothing later concerns it, and its
//! certificate serves from there on. That includes its own ballots, since a proposer is the first to promise.

mod fast;
mod show;
mod state;

use std::cell::RefCell;
use std::collections::HashMap;

use antiphon_core::explore::slot::{Acceptance, LastVote, Slot, Step, Used, Value, votes_ahead};
use antiphon_core::wire::Incarnation;
use antiphon_core::wire::membership::Ballot;

pub(super) use self::state::State;
use self::state::{Broken, FAST_RANK, NOTHING, Node, Vote};
use super::{Id, MAX_IDS, SlotModel, View, ids};
use crate::explore::search::Model;

/// The sorted model.
pub struct Sorted {
    model: SlotModel,
    /// What phase 1 can lead to, by proposer and by the possible answers.
    asked: RefCell<HashMap<[u32; MAX_IDS + 2], Vec<Way>>>,
    /// What a proposer concludes of acknowledgements.
    concluded: RefCell<HashMap<[u8; 4], Conclusion>>,
    /// What is concluded of votes in the fast ballot.
    counted: RefCell<HashMap<[u8; 4], Conclusion>>,
}

/// A set of nodes.
type Set = u8;

/// How phase 1 can end.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    forced: Forced,
    /// Members that would accept in its phase 2.
    acceptors: Set,
}

/// What phase 1 leaves to propose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forced {
    /// Whatever the proposer chooses.
    Nothing,
    /// The value of this ballot, by its rank.
    Ballot(u8),
    /// This value of the fast ballot.
    Fast(Set),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Conclusion {
    Waits,
    Decides,
    /// R3: it decides, without a quorum of the view's own members.
    DecidesAlone,
}

/// One step of a schedule.
pub enum Move {
    /// A member dies.
    Die(Id),
    /// The members of the decided view go on to the next slot.
    GoOn(Set),
    /// A member casts its vote in the fast ballot.
    Cast {
        /// Which.
        who: Id,
        /// For what.
        view: Set,
        /// Whether it was killed while it did, so that only some of its lifelines show it.
        killed: bool,
    },
    /// A ballot: which members could have proposed it, the view, which members accept, which die while they
    /// accept, which die right after, and whether that decides the slot.
    Ballot {
        /// Any of these.
        proposers: Set,
        /// The view.
        view: Set,
        /// Members that accept.
        accepted: Set,
        /// Members that were killed while they accepted.
        dying: Set,
        /// Members that die right after.
        dead: Set,
        /// Whether the proposer concludes that the view is decided.
        decides: bool,
    },
}

/// All subsets of a set.
fn subsets(set: Set) -> impl Iterator<Item = Set> {
    (0..=set).filter(move |subset| subset & !set == 0)
}

impl Sorted {
    /// A search of this world.
    pub fn new(model: SlotModel) -> Self {
        Self {
            model,
            asked: RefCell::default(),
            concluded: RefCell::default(),
            counted: RefCell::default(),
        }
    }

    /// The ballot of this rank. In a leaderless slot the first is the fast one.
    fn ballot(&self, rank: u8) -> Ballot {
        Ballot {
            round: u32::from(rank - u8::from(self.model.leaderless)),
            proposer: Incarnation(0),
        }
    }

    /// The rank of the highest ballot that there was.
    fn highest(&self, state: &State) -> u8 {
        state.highest().max(u8::from(self.model.leaderless) * FAST_RANK)
    }

    fn last_vote(&self, vote: Vote) -> LastVote<View> {
        let accepted = (vote.rank > 0).then(|| Acceptance {
            ballot: self.ballot(vote.rank),
            value: self.model.view(vote.view),
        });
        LastVote {
            promised: accepted.as_ref().map(|accepted| accepted.ballot),
            accepted,
        }
    }

    /// A member of this slot that has accepted this.
    fn member(&self, id: Id, before: Set, vote: Vote) -> Slot<Id, View> {
        let view = self.model.view(before);
        let mut slot = match self.model.leaderless {
            true => Slot::leaderless(id, view.voters()),
            false => Slot::new(id, view.voters(), Some(Incarnation(u128::from(view.elder())))),
        };
        if self.is_fast(vote) {
            let cast = slot.cast(self.model.view(vote.view));
            debug_assert!(cast, "nothing forbids a first vote");
        } else if vote.rank > 0 {
            let accepted = slot.on_accept(self.ballot(vote.rank), self.model.view(vote.view), &[]);
            debug_assert!(accepted.is_ok(), "nothing forbids a first vote");
        }
        slot
    }

    /// What a new ballot of this proposer, above all others, can lead to.
    fn phase_one(&self, state: &State, proposer: Id) -> Vec<Way> {
        let mut key = [0; MAX_IDS + 2];
        (key[0], key[1]) = (state.before.into(), proposer.into());
        // The fast ballot has several values, so each of its votes is told with its value.
        let fast = |vote: Vote| match self.is_fast(vote) {
            true => u32::from(vote.view),
            false => 0,
        };
        for (at, node) in key[2..].iter_mut().zip(&state.nodes) {
            *at = match *node {
                Node::Absent | Node::Outside => 0,
                Node::Behind => 0x4000,
                Node::Alive(vote) => (1 + u32::from(vote.rank)) | fast(vote) << 16,
                Node::Dead { shown, hidden, open } => {
                    let hidden = hidden.unwrap_or(NOTHING);
                    let ranks = u32::from(shown.rank) | u32::from(hidden.rank) << 6;
                    0x2000 | ranks | u32::from(open) << 12 | fast(shown) << 16 | fast(hidden) << 24
                }
            };
        }
        if let Some(known) = self.asked.borrow().get(&key) {
            return known.clone();
        }
        let lowest = if self.model.leaderless { FAST_RANK + 1 } else { 0 };
        let mut ways: Vec<Way> = (lowest..=self.highest(state))
            .filter_map(|highest| self.ask(state, proposer, highest))
            .collect();
        if self.model.leaderless {
            ways.extend(self.ask_after_fast(state, proposer));
        }
        self.asked.borrow_mut().insert(key, ways.clone());
        ways
    }

    /// Phase 1 of a ballot that hears of no acceptance above this one.
    fn ask(&self, state: &State, proposer: Id, highest: u8) -> Option<Way> {
        let present = self.ballot(self.highest(state));
        let mut slot = self.member(proposer, state.before, state.vote(proposer)?);
        slot.on_nack(Some(present));
        for dead in ids() {
            if let Some(shown) = state.shown(dead, highest) {
                slot.certify(dead, self.last_vote(shown));
            }
        }
        let Step::Prepare { ballot, used } = slot.prepare(Incarnation(u128::from(proposer))) else {
            return None;
        };
        let mut voters: Vec<(Vote, Id)> = ids()
            .filter_map(|id| match state.nodes[usize::from(id)] {
                Node::Behind => Some((NOTHING, id)),
                _ => Some((state.vote(id)?, id)),
            })
            .filter(|(vote, _)| vote.rank <= highest)
            .collect();
        voters.sort_by_key(|(vote, _)| std::cmp::Reverse(vote.rank));
        for (vote, id) in voters {
            let promise = self.member(id, state.before, vote).on_prepare(ballot, &used);
            let Ok(accepted) = promise else { continue };
            let step = slot.on_promise(&id, ballot, accepted);
            let (forced, value, used) = match step {
                Step::Accept { value, used, .. } => (true, value, used),
                // Any value shows which members would accept.
                Step::Choose => match slot.choose(self.model.view(state.before)) {
                    Step::Accept { value, used, .. } => (false, value, used),
                    _ => return None,
                },
                _ => continue,
            };
            // The highest acceptance forces a value, and one such acceptance was heard first.
            return Some(Way {
                forced: if forced {
                    Forced::Ballot(highest)
                } else {
                    Forced::Nothing
                },
                acceptors: self.acceptors(state, ballot, value, &used),
            });
        }
        None
    }

    fn acceptors(&self, state: &State, ballot: Ballot, value: View, used: &[Used<Id>]) -> Set {
        let mut acceptors = 0;
        for id in ids() {
            let vote = match (state.nodes[usize::from(id)], state.last(id)) {
                (Node::Behind, _) => NOTHING,
                (_, Some(vote)) => vote,
                (_, None) => continue,
            };
            // The proposer used no certificate of a member that it still reached.
            let used: Vec<Used<Id>> = used.iter().filter(|(dead, _)| *dead != id).copied().collect();
            let mut slot = self.member(id, state.before, vote);
            if slot.on_accept(ballot, value, &used).is_ok() {
                acceptors |= 1 << id;
            }
        }
        acceptors
    }

    /// What a proposer concludes of these acknowledgements and certificates.
    fn conclusion(&self, before: Set, view: Set, accepted: Set, certified: Set) -> Conclusion {
        let key = [before, view, accepted, certified];
        if let Some(known) = self.concluded.borrow().get(&key) {
            return *known;
        }
        let value = self.model.view(view);
        let proposer = ids().find(|id| before & !certified & 1 << id != 0);
        let conclusion = proposer.map_or(Conclusion::Waits, |id| {
            let mut slot = self.member(id, before, NOTHING);
            let Step::Prepare { ballot, .. } = slot.prepare(Incarnation(u128::from(id))) else {
                return Conclusion::Waits;
            };
            for voter in ids().filter(|voter| before & 1 << voter != 0) {
                slot.on_promise(&voter, ballot, None);
            }
            slot.choose(value);
            let mut steps = Vec::new();
            for dead in ids().filter(|dead| certified & 1 << dead != 0) {
                steps.push(slot.certify(dead, LastVote::default()));
            }
            for acceptor in ids().filter(|acceptor| accepted & 1 << acceptor != 0) {
                steps.push(slot.on_accepted(&acceptor, ballot));
            }
            if !steps.iter().any(|step| matches!(step, Step::Decided { .. })) {
                Conclusion::Waits
            } else if self
                .model
                .is_joint(value, self.model.view(before), accepted, certified)
            {
                Conclusion::Decides
            } else {
                Conclusion::DecidesAlone
            }
        });
        self.concluded.borrow_mut().insert(key, conclusion);
        conclusion
    }

    /// Every view that can be proposed: by which members, and which would accept it.
    fn offers(&self, state: &State) -> Vec<(Set, Set, Set)> {
        let mut offers: Vec<(Set, Set, Set)> = Vec::new();
        let mut offer = |view: Set, proposer: Id, acceptors: Set| match offers
            .iter_mut()
            .find(|(same, _, _)| *same == view)
        {
            Some((_, proposers, all)) => {
                *proposers |= 1 << proposer;
                *all |= acceptors;
            }
            None => offers.push((view, 1 << proposer, acceptors)),
        };
        let before = self.model.view(state.before);
        for proposer in ids() {
            let Some(vote) = state.vote(proposer) else {
                continue;
            };
            let me = Incarnation(u128::from(proposer));
            if state.highest() == 0 && self.member(proposer, state.before, vote).may_open(me) {
                for value in self.model.choices(proposer, before) {
                    let mut slot = self.member(proposer, state.before, vote);
                    if let Step::Accept { ballot, value, used } = slot.open(me, value) {
                        offer(
                            value.members,
                            proposer,
                            self.acceptors(state, ballot, value, &used),
                        );
                    }
                }
            }
            if proposer >= self.model.proposers {
                continue;
            }
            for way in self.phase_one(state, proposer) {
                match way.forced {
                    Forced::Ballot(rank) => {
                        let view = state.value_of(rank).expect("what was heard is in the state");
                        offer(view, proposer, way.acceptors);
                    }
                    Forced::Fast(view) => offer(view, proposer, way.acceptors),
                    Forced::Nothing => {
                        for value in self.model.choices(proposer, before) {
                            offer(value.members, proposer, way.acceptors);
                        }
                    }
                }
            }
        }
        offers
    }

    fn ballots(&self, state: &State, into: &mut Vec<(Move, State)>) {
        let rank = self.highest(state) + 1;
        let living = state.set_of(|node| matches!(node, Node::Alive(_)));
        let dead = state.set_of(|node| matches!(node, Node::Dead { .. }));
        for (view, proposers, acceptors) in self.offers(state) {
            // R1: a joiner in the view before votes only as a member that has installed that.
            let outside = state.set_of(|node| matches!(node, Node::Outside)) & view;
            let behind = state.set_of(|node| matches!(node, Node::Behind));
            let vote = Vote { rank, view };
            for accepted in subsets(acceptors & (living | behind) | outside) {
                for dying in subsets(acceptors & (dead | living & !accepted)) {
                    let fresh = dying & living;
                    if fresh.count_ones() > u32::from(state.crashes_left) {
                        continue;
                    }
                    let mut next = *state;
                    for id in ids().filter(|id| (accepted | dying) & 1 << id != 0) {
                        if fresh & 1 << id != 0 {
                            next.kill(id);
                        }
                        match &mut next.nodes[usize::from(id)] {
                            Node::Alive(last) => *last = vote,
                            Node::Dead { hidden, open, .. } => (*hidden, *open) = (Some(vote), false),
                            Node::Absent | Node::Outside | Node::Behind => {}
                        }
                    }
                    for (killed, decided) in self.endings(&next, view, proposers, accepted) {
                        // A ballot that leaves no trace need not have been.
                        if (accepted & living) | dying == 0 && decided.is_none() {
                            continue;
                        }
                        let mut next = next;
                        ids()
                            .filter(|id| killed & 1 << id != 0)
                            .for_each(|id| next.kill(id));
                        if let Some(conclusion) = decided {
                            next.decide(view, conclusion);
                        }
                        next.rank(self.model.leaderless);
                        let step = Move::Ballot {
                            proposers,
                            view,
                            accepted,
                            dying,
                            dead: killed,
                            decides: decided.is_some(),
                        };
                        into.push((step, next));
                    }
                }
            }
        }
    }

    /// How a ballot can end: which members die right after it, and what the proposer concludes then. Deaths
    /// that lead to no conclusion are steps of their own.
    fn endings(
        &self,
        state: &State,
        view: Set,
        proposers: Set,
        accepted: Set,
    ) -> Vec<(Set, Option<Conclusion>)> {
        let dead = state.set_of(|node| matches!(node, Node::Dead { .. }));
        let conclusion = |dead: Set| {
            let others = subsets(dead).filter(|certified| proposers & !certified != 0);
            let all = others.map(|certified| self.conclusion(state.before, view, accepted, certified));
            all.max_by_key(|conclusion| match conclusion {
                Conclusion::Waits => 0,
                Conclusion::Decides => 1,
                Conclusion::DecidesAlone => 2,
            })
            .filter(|conclusion| *conclusion != Conclusion::Waits)
        };
        let mut endings = vec![(0, conclusion(dead))];
        if endings[0].1.is_none() && state.crashes_left > 0 {
            let living = state.set_of(|node| matches!(node, Node::Alive(_)));
            for killed in subsets(living).skip(1) {
                if killed.count_ones() <= u32::from(state.crashes_left) {
                    endings.extend(conclusion(dead | killed).map(|it| (killed, Some(it))));
                }
            }
        }
        endings
    }

    fn deaths(&self, state: &State, into: &mut Vec<(Move, State)>) {
        for id in ids().filter(|id| state.crashes_left > 0 && state.vote(*id).is_some()) {
            let mut next = *state;
            next.kill(id);
            self.count_casts(&mut next);
            into.push((Move::Die(id), next));
        }
    }

    fn next_slot(&self, state: &State, into: &mut Vec<(Move, State)>) {
        if state.slot + 1 >= self.model.slots || state.decided == 0 {
            return;
        }
        let mut next = *state;
        next.slot += 1;
        (next.before, next.decided) = (state.decided, 0);
        for id in ids() {
            let node = &mut next.nodes[usize::from(id)];
            *node = match (*node, next.before & 1 << id != 0) {
                (Node::Alive(_) | Node::Outside, true) => Node::Alive(NOTHING),
                (Node::Outside, false) => Node::Outside,
                // It may have been killed at its first vote in this slot, while some of its lifelines showed
                // the last one.
                (Node::Dead { open, .. }, true) => Node::Dead {
                    shown: NOTHING,
                    hidden: None,
                    open,
                },
                (Node::Absent | Node::Behind, _) | (_, false) => Node::Absent,
            };
        }
        into.push((Move::GoOn(next.before), next));
        if votes_ahead() {
            let living = next.set_of(|node| matches!(node, Node::Alive(_)));
            for behind in subsets(living).skip(1) {
                let mut next = next;
                for id in ids().filter(|id| behind & 1 << id != 0) {
                    next.nodes[usize::from(id)] = Node::Behind;
                }
                into.push((Move::GoOn(next.before & !behind), next));
            }
        }
    }

    fn catching_up(&self, state: &State, into: &mut Vec<(Move, State)>) {
        for id in ids() {
            let mut next = *state;
            let node = &mut next.nodes[usize::from(id)];
            if *node == Node::Behind {
                *node = Node::Alive(NOTHING);
                into.push((Move::GoOn(1 << id), next));
            }
        }
    }
}

impl Model for Sorted {
    type State = State;
    type Step = Move;

    fn initial(&self) -> State {
        let mut nodes = [Node::Absent; MAX_IDS];
        let members = usize::from(self.model.members);
        nodes[..members].fill(Node::Alive(NOTHING));
        if self.model.joiner {
            nodes[members] = Node::Outside;
        }
        State {
            nodes,
            slot: 0,
            before: (1 << members) - 1,
            decided: 0,
            crashes_left: self.model.crashes,
            broken: None,
        }
    }

    fn successors(&self, state: &State, into: &mut Vec<(Move, State)>) {
        if state.broken.is_none() {
            self.casts(state, into);
            self.ballots(state, into);
            self.deaths(state, into);
            self.next_slot(state, into);
            self.catching_up(state, into);
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        let view = |members| self.model.view(members);
        Some(match state.broken? {
            Broken::Twice(first, second) => super::two_views(state.slot, view(first), view(second)),
            Broken::NotJoint(members) => {
                format!(
                    "R3: {:?} was decided without a quorum of its own members",
                    view(members)
                )
            }
        })
    }
}

//! Ballot by ballot: only runs in which everything that belongs to a lower ballot comes before everything that belongs to
//! a higher one, for any number of ballots.
//!
//! Every run can be sorted so without anyone noticing. What happens in a ballot depends on lower ones alone: an
//! acceptor's votes only rise, a promise tells of lower acceptances, and a certificate serves no ballot below its last
//! promise (R2). So two events of which the one in the higher ballot came first can change places; what an acceptor would
//! have refused for a higher promise is, in the sorted run, a message lost. One thing is left out: a proposer that uses
//! the earlier of a dead member's two last votes, then learns the later, and then goes on in a ballot between the two. The
//! free model has it.
//!
//! In a sorted run nothing lower than the present ballot will ever come. So a promise need not be remembered, phase 1 is one
//! step, and of the ballots in the acceptors' memory only the order matters: states are told apart by ranks of
//! ballots instead of ballots. That makes them finitely many however many ballots there are, and all are visited.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use antiphon_core::explore::slot::{Acceptance, LastVote, Proposal, Slot, Step, Used, Value};
use antiphon_core::wire::Incarnation;
use antiphon_core::wire::membership::Ballot;

use super::{Id, MAX_IDS, Node, SlotModel, View, go_on};
use crate::explore::search::Model;

/// The sorted model.
#[derive(Debug, Clone)]
pub struct Sorted(pub SlotModel);

/// Everything at one moment.
#[derive(Clone)]
pub struct State {
    nodes: [Option<Arc<Node>>; MAX_IDS],
    /// The slot of the present ballot, and the ballot.
    slot: u8,
    ballot: Option<Ballot>,
    /// What its proposer has asked to accept.
    offer: Option<(View, Arc<[Used<Id>]>)>,
    /// Who has accepted that.
    accepted: u8,
    decided: [Vec<View>; 2],
    crashes_left: u8,
    broken: Option<&'static str>,
}

/// One step of a schedule.
pub struct Move {
    who: Id,
    what: Did,
}

enum Did {
    Propose(Ballot, View),
    Accept(View),
    Learn(Id, LastVote<View>, Option<(Ballot, View)>),
    /// Some of its lifelines show a vote that went nowhere else.
    DieVoting(View),
    Install(View),
    Leave(View),
}

impl Sorted {
    /// Notes what the proposer of the present ballot could conclude.
    fn settle(&self, state: &mut State) {
        let Some(ballot) = state.ballot else { return };
        let Some(Node::Alive { at, slot }) = state.node(ballot.proposer.0 as u8) else {
            return;
        };
        let Proposal::Accepting {
            ballot: its, value, ..
        } = slot.proposal()
        else {
            return;
        };
        if *at != state.slot || *its != ballot {
            return;
        }
        let value = *value;
        let mut concluded = slot.clone();
        let acknowledged = (0..MAX_IDS as u8).filter(|id| state.accepted & 1 << id != 0);
        let mut steps = acknowledged.map(|id| concluded.on_accepted(&id, ballot));
        if !steps.any(|step| matches!(step, Step::Decided { .. })) {
            return;
        }
        let dead = slot.certified().iter().fold(0u8, |set, id| set | 1 << id);
        if !self
            .0
            .is_joint(value, state.before(&self.0, state.slot), state.accepted, dead)
        {
            state.broken = Some("R3: a view was decided without a quorum of its own members");
        }
        let known = &mut state.decided[usize::from(state.slot)];
        if !known.contains(&value) {
            known.push(value);
            known.sort_unstable();
        }
    }

    /// The proposer goes on into phase 2, with every value it may choose.
    fn offer(
        &self,
        state: &State,
        id: Id,
        at: u8,
        (slot, step): (Slot<Id, View>, Step<Id, View>),
        name: &dyn Fn(Ballot, View) -> Did,
        into: &mut Vec<(Move, State)>,
    ) {
        match step {
            Step::Accept { ballot, value, used } => {
                let mut next = state.clone();
                next.nodes[usize::from(id)] = Some(Arc::new(Node::Alive { at, slot }));
                next.slot = at;
                next.ballot = Some(ballot);
                next.offer = Some((value, used.into()));
                next.accepted = 0;
                self.settle(&mut next);
                into.push((
                    Move {
                        who: id,
                        what: name(ballot, value),
                    },
                    next,
                ));
            }
            Step::Choose => {
                for value in self.0.choices(id, state.before(&self.0, at)) {
                    let mut slot = slot.clone();
                    let step = slot.choose(value);
                    self.offer(state, id, at, (slot, step), name, into);
                }
            }
            Step::Wait | Step::Prepare { .. } | Step::Decided { .. } => {}
        }
    }

    /// A new ballot, above all before: phase 1 with every combination of promises, completed by a promise or by the
    /// certificate given.
    fn ballots(
        &self,
        state: &State,
        id: Id,
        at: u8,
        slot: &Slot<Id, View>,
        certificate: Option<(Id, &LastVote<View>)>,
        into: &mut Vec<(Move, State)>,
    ) {
        if id >= self.0.proposers {
            return;
        }
        let mut slot = slot.clone();
        if at == state.slot {
            slot.on_nack(state.ballot);
        }
        let Step::Prepare { ballot, used } = slot.prepare(Incarnation(u128::from(id))) else {
            return;
        };
        let mut promises = Vec::new();
        for acceptor in 0..MAX_IDS as u8 {
            let Some(Node::Alive { at: its, slot: other }) = state.node(acceptor) else {
                continue;
            };
            let mut other = if acceptor == id {
                slot.clone()
            } else {
                other.clone()
            };
            if *its == at
                && let Ok(accepted) = other.on_prepare(ballot, &used)
            {
                promises.push((acceptor, accepted));
            }
        }
        for way in go_on(&slot, ballot, &promises, certificate) {
            let learned = certificate.map(|(dead, vote)| (dead, vote.clone()));
            let name = |ballot, value| match &learned {
                None => Did::Propose(ballot, value),
                Some((dead, vote)) => Did::Learn(*dead, vote.clone(), Some((ballot, value))),
            };
            self.offer(state, id, at, way, &name, into);
        }
    }

    fn opening(&self, state: &State, id: Id, at: u8, slot: &Slot<Id, View>, into: &mut Vec<(Move, State)>) {
        let proposer = Incarnation(u128::from(id));
        let nothing_yet = at > state.slot || state.ballot.is_none();
        if nothing_yet && slot.may_open(proposer) {
            for value in self.0.choices(id, state.before(&self.0, at)) {
                let mut slot = slot.clone();
                let step = slot.open(proposer, value);
                self.offer(state, id, at, (slot, step), &Did::Propose, into);
            }
        }
        let present = at == state.slot && state.ballot.is_some_and(|ballot| ballot.proposer == proposer);
        if self.0.second_values && present && matches!(slot.proposal(), Proposal::Accepting { .. }) {
            for value in self.0.choices(id, state.before(&self.0, at)) {
                let mut slot = slot.clone();
                let step = slot.choose(value);
                // What was accepted before under this ballot counts for the proposer, who cannot tell them apart.
                let start = into.len();
                self.offer(state, id, at, (slot, step), &Did::Propose, into);
                for (_, next) in &mut into[start..] {
                    next.accepted = state.accepted;
                    self.settle(next);
                }
            }
        }
    }

    fn acceptances(&self, state: &State, into: &mut Vec<(Move, State)>) {
        let (Some(ballot), Some((value, used))) = (state.ballot, &state.offer) else {
            return;
        };
        for id in 0..MAX_IDS as u8 {
            let (node, what) = match state.node(id) {
                Some(Node::Alive { at, slot }) if *at == state.slot => {
                    let mut voted = slot.clone();
                    if voted.on_accept(ballot, *value, used).is_err()
                        || voted == *slot && state.accepted & 1 << id != 0
                    {
                        continue;
                    }
                    (Node::Alive { at: *at, slot: voted }, Did::Accept(*value))
                }
                // R1: once it is in the view before, it votes only as a member that has installed that.
                Some(Node::Joiner)
                    if value.contains(id)
                        && !state.before(&self.0, state.slot).contains(id)
                        && state.accepted & 1 << id == 0 =>
                {
                    (Node::Joiner, Did::Accept(*value))
                }
                Some(Node::Dead {
                    at,
                    last_votes,
                    stood: Some(slot),
                }) if *at == state.slot => {
                    let mut voted = slot.clone();
                    if voted.on_accept(ballot, *value, used).is_err() || voted.vote() == slot.vote() {
                        continue;
                    }
                    let last_votes = [&last_votes[..], &[voted.vote().clone()]].concat();
                    (
                        Node::Dead {
                            at: *at,
                            last_votes,
                            stood: None,
                        },
                        Did::DieVoting(*value),
                    )
                }
                _ => continue,
            };
            let mut next = state.clone();
            if matches!(what, Did::Accept(_)) {
                next.accepted |= 1 << id;
            }
            next.nodes[usize::from(id)] = Some(Arc::new(node));
            self.settle(&mut next);
            into.push((Move { who: id, what }, next));
        }
    }

    /// A member learns of a death: of this one, or of any.
    fn certificates(
        &self,
        state: &State,
        id: Id,
        at: u8,
        slot: &Slot<Id, View>,
        only: Option<Id>,
        into: &mut Vec<(Move, State)>,
    ) {
        for dead in (0..MAX_IDS as u8).filter(|dead| only.is_none_or(|only| only == *dead)) {
            let Some(Node::Dead {
                at: died_at,
                last_votes,
                ..
            }) = state.node(dead)
            else {
                continue;
            };
            let none = [LastVote::default()];
            let last_votes: &[LastVote<View>] = match died_at.cmp(&at) {
                std::cmp::Ordering::Less => &none,
                std::cmp::Ordering::Equal => last_votes,
                std::cmp::Ordering::Greater => continue,
            };
            for vote in last_votes {
                // Not before its time: a later vote belongs to the ballots from its own on.
                let present = if at == state.slot { state.ballot } else { None };
                let mut learned = slot.clone();
                learned.certify(dead, vote.clone());
                if vote.promised > present || learned == *slot {
                    continue;
                }
                self.ballots(state, id, at, slot, Some((dead, vote)), into);
                let mut next = state.clone();
                next.nodes[usize::from(id)] = Some(Arc::new(Node::Alive { at, slot: learned }));
                self.settle(&mut next);
                into.push((
                    Move {
                        who: id,
                        what: Did::Learn(dead, vote.clone(), None),
                    },
                    next,
                ));
            }
        }
    }

    /// A member is killed, and the first certificate of it arrives.
    fn deaths(
        &self,
        state: &State,
        dying: Id,
        died_at: u8,
        slot: &Slot<Id, View>,
        into: &mut Vec<(Move, State)>,
    ) {
        let mut endings = vec![(vec![slot.vote().clone()], Some(slot.clone()))];
        if let (Some(ballot), Some((value, used))) = (state.ballot, &state.offer) {
            let mut voted = slot.clone();
            if died_at == state.slot
                && voted.on_accept(ballot, *value, used).is_ok()
                && voted.vote() != slot.vote()
            {
                // R2: killed after the vote was written to some lifelines and before it went anywhere else.
                endings.push((vec![slot.vote().clone(), voted.vote().clone()], None));
            }
        }
        for (last_votes, stood) in endings {
            let mut next = state.clone();
            next.crashes_left -= 1;
            next.nodes[usize::from(dying)] = Some(Arc::new(Node::Dead {
                at: died_at,
                last_votes,
                stood,
            }));
            for id in 0..MAX_IDS as u8 {
                if let Some(Node::Alive { at, slot }) = next.node(id)
                    && *at >= next.slot
                {
                    self.certificates(&next, id, *at, slot, Some(dying), into);
                }
            }
        }
    }

    fn learn(&self, state: &State, id: Id, at: u8, into: &mut Vec<(Move, State)>) {
        for view in &state.decided[usize::from(at)] {
            let mut next = state.clone();
            let (node, what) = if view.contains(id) {
                let owner = Incarnation(u128::from(view.elder()));
                let slot = Slot::new(id, view.voters(), Some(owner));
                (Node::Alive { at: at + 1, slot }, Did::Install(*view))
            } else {
                (Node::Out, Did::Leave(*view))
            };
            next.nodes[usize::from(id)] = Some(Arc::new(node));
            into.push((Move { who: id, what }, next));
        }
    }
}

impl Model for Sorted {
    type State = State;
    type Step = Move;

    fn initial(&self) -> State {
        State {
            nodes: self.0.nodes(),
            slot: 0,
            ballot: None,
            offer: None,
            accepted: 0,
            decided: Default::default(),
            crashes_left: self.0.crashes,
            broken: None,
        }
    }

    fn successors(&self, state: &State, into: &mut Vec<(Move, State)>) {
        self.acceptances(state, into);
        for id in 0..MAX_IDS as u8 {
            match state.node(id) {
                Some(Node::Alive { at, slot }) => {
                    if *at + 1 < self.0.slots {
                        self.learn(state, id, *at, into);
                    }
                    if *at < state.slot {
                        continue;
                    }
                    self.opening(state, id, *at, slot, into);
                    self.ballots(state, id, *at, slot, None, into);
                    self.certificates(state, id, *at, slot, None, into);
                    if state.crashes_left > 0 {
                        self.deaths(state, id, *at, slot, into);
                    }
                }
                Some(Node::Joiner) if self.0.slots > 1 => self.learn(state, id, 0, into),
                _ => {}
            }
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        super::violation(state.broken, &state.decided)
    }
}

impl State {
    fn node(&self, id: Id) -> Option<&Node> {
        self.nodes[usize::from(id)].as_deref()
    }

    /// The view whose members vote in this slot.
    fn before(&self, model: &SlotModel, at: u8) -> View {
        model.before(&self.decided, at)
    }
}

impl Hash for State {
    /// All that matters, with ballots by rank.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut ballots = Vec::new();
        let mut note =
            |vote: &LastVote<View>| ballots.extend(vote.accepted.as_ref().map(|accepted| accepted.ballot));
        for node in self.nodes.iter().flatten() {
            match &**node {
                Node::Alive { slot, .. } => {
                    note(slot.vote());
                    slot.certificates().values().for_each(&mut note);
                }
                Node::Dead { last_votes, .. } => last_votes.iter().for_each(&mut note),
                Node::Joiner | Node::Out => {}
            }
        }
        ballots.sort_unstable();
        ballots.dedup();
        let rank = |vote: &LastVote<View>| {
            let accepted = vote.accepted.as_ref();
            accepted.map(|accepted| (ballots.binary_search(&accepted.ballot).ok(), accepted.value))
        };
        for node in &self.nodes {
            match node.as_deref() {
                Some(Node::Alive { at, slot }) => {
                    (1u8, at, rank(slot.vote())).hash(hasher);
                    for (dead, vote) in slot.certificates() {
                        (1u8, dead, rank(vote)).hash(hasher);
                    }
                }
                Some(Node::Dead {
                    at,
                    last_votes,
                    stood,
                }) => {
                    (2u8, at, stood.is_some()).hash(hasher);
                    last_votes.iter().for_each(|vote| (1u8, rank(vote)).hash(hasher));
                }
                Some(Node::Joiner) => 3u8.hash(hasher),
                Some(Node::Out) => 4u8.hash(hasher),
                None => 5u8.hash(hasher),
            }
            0u8.hash(hasher);
        }
        let proposer = self.ballot.map(|ballot| ballot.proposer);
        let offer = self.offer.as_ref().map(|(value, _)| value);
        (self.slot, proposer, offer, self.accepted).hash(hasher);
        (&self.decided, self.crashes_left, self.broken).hash(hasher);
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, what } = self;
        let show = |ballot: &Ballot| format!("{}.{}", ballot.round, ballot.proposer.0);
        match what {
            Did::Propose(ballot, view) => write!(f, "{who} proposes {view:?} in ballot {}", show(ballot)),
            Did::Accept(view) => write!(f, "{who} accepts {view:?}"),
            Did::Learn(dead, vote, then) => {
                match &vote.accepted {
                    Some(Acceptance { ballot, value }) => {
                        write!(
                            f,
                            "{who} learns that {dead} died, having accepted {value:?} in ballot {}",
                            show(ballot)
                        )?;
                    }
                    None => write!(f, "{who} learns that {dead} died, having accepted nothing")?,
                }
                match then {
                    Some((ballot, view)) => {
                        write!(f, ", and so proposes {view:?} in ballot {}", show(ballot))
                    }
                    None => Ok(()),
                }
            }
            Did::DieVoting(view) => write!(
                f,
                "{who} turns out to have been killed while it accepted {view:?}"
            ),
            Did::Install(view) => write!(f, "{who} installs {view:?}"),
            Did::Leave(view) => write!(f, "{who} learns of {view:?} and is out"),
        }
    }
}

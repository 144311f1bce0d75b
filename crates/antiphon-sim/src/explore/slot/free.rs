//! Message by message, in any order, with a bounded number of ballots.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use antiphon_core::explore::slot::{Acceptance, LastVote, Proposal, Slot, Step, Used, Value};
use antiphon_core::wire::Incarnation;
use antiphon_core::wire::membership::Ballot;

use super::{Id, MAX_IDS, Node, SlotModel, View, go_on};
use crate::explore::search::Model;

/// The free model.
#[derive(Debug, Clone)]
pub struct Free(pub SlotModel);

/// Something that was sent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    Prepare {
        ballot: Ballot,
        used: Arc<[Used<Id>]>,
    },
    Promise {
        ballot: Ballot,
        from: Id,
        accepted: Option<Acceptance<View>>,
    },
    Accept {
        ballot: Ballot,
        value: View,
        used: Arc<[Used<Id>]>,
    },
    Accepted {
        ballot: Ballot,
        value: View,
        from: Id,
    },
}

/// Everything at one moment.
#[derive(Clone)]
pub struct State {
    nodes: [Option<Arc<Node>>; MAX_IDS],
    /// Sent and still of use: (slot, message), sorted.
    sent: Vec<(u8, Message)>,
    /// What some proposer could conclude to be decided, in each slot.
    decided: [Vec<View>; 2],
    prepares_left: u8,
    crashes_left: u8,
    broken: Option<&'static str>,
}

/// One step of a schedule.
pub struct Move {
    who: Id,
    what: Did,
}

enum Did {
    Answer(Message),
    /// As proposer, for this reason, with this result.
    GoOn(Reason, Option<Message>),
    Install(View),
    Leave(View),
}

#[derive(Clone)]
enum Reason {
    Decides,
    ChangesItsMind,
    HasPromises,
    Learns(Id, LastVote<View>),
}

impl Free {
    /// Hands `step` to the network; a free choice branches over all choices.
    fn perform(
        &self,
        state: &State,
        id: Id,
        at: u8,
        (slot, step): (Slot<Id, View>, Step<Id, View>),
        reason: Reason,
        into: &mut Vec<(Move, State)>,
    ) {
        let message = match step {
            Step::Wait | Step::Decided { .. } => None,
            Step::Prepare { ballot, used } => Some(Message::Prepare {
                ballot,
                used: used.into(),
            }),
            Step::Accept { ballot, value, used } => Some(Message::Accept {
                ballot,
                value,
                used: used.into(),
            }),
            Step::Choose => {
                for value in self.0.choices(id, state.before(&self.0, at)) {
                    let mut slot = slot.clone();
                    let step = slot.choose(value);
                    self.perform(state, id, at, (slot, step), reason.clone(), into);
                }
                return;
            }
        };
        let mut next = state.clone();
        next.nodes[usize::from(id)] = Some(Arc::new(Node::Alive { at, slot }));
        if let Some(message) = &message {
            next.send(at, message.clone());
        }
        self.settle(&mut next);
        into.push((
            Move {
                who: id,
                what: Did::GoOn(reason, message),
            },
            next,
        ));
    }

    /// Notes decisions and forgets what is of no use any more.
    fn settle(&self, state: &mut State) {
        for id in 0..MAX_IDS as u8 {
            let Some(Node::Alive { at, slot }) = state.node(id) else {
                continue;
            };
            let Proposal::Accepting { ballot, value, .. } = slot.proposal() else {
                continue;
            };
            let (at, ballot, value) = (*at, *ballot, *value);
            let mut concluded = slot.clone();
            let mut acknowledged = 0u8;
            let mut decided = false;
            for (_, message) in state.sent.iter().filter(|(slot_number, _)| *slot_number == at) {
                if let Message::Accepted {
                    ballot: theirs, from, ..
                } = message
                    && *theirs == ballot
                {
                    acknowledged |= 1 << from;
                    decided |= matches!(concluded.on_accepted(from, ballot), Step::Decided { .. });
                }
            }
            if decided {
                let dead: u8 = slot.certified().iter().fold(0, |set, id| set | 1 << id);
                if !self
                    .0
                    .is_joint(value, state.before(&self.0, at), acknowledged, dead)
                {
                    state.broken = Some("R3: a view was decided without a quorum of its own members");
                }
                let known = &mut state.decided[usize::from(at)];
                if !known.contains(&value) {
                    known.push(value);
                    known.sort_unstable();
                }
            }
        }
        let sent = std::mem::take(&mut state.sent);
        state.sent = sent
            .into_iter()
            .filter(|(at, message)| self.is_of_use(state, *at, message))
            .collect();
    }

    fn is_of_use(&self, state: &State, at: u8, message: &Message) -> bool {
        let anyone = |test: &dyn Fn(&Slot<Id, View>) -> bool| {
            (0..MAX_IDS as u8)
                .any(|id| matches!(state.node(id), Some(Node::Alive { at: its, slot }) if *its == at && test(slot)))
        };
        let proposer = |ballot: Ballot| match state.node(ballot.proposer.0 as u8) {
            Some(Node::Alive { at: its, slot }) if *its == at => Some(slot.proposal()),
            _ => None,
        };
        match message {
            Message::Prepare { ballot, .. } => anyone(&|slot| slot.vote().promised < Some(*ballot)),
            Message::Promise { ballot, .. } => {
                matches!(proposer(*ballot), Some(Proposal::Preparing { ballot: theirs, .. }) if theirs == ballot)
            }
            Message::Accept { ballot, value, .. } => {
                anyone(&|slot| {
                    let accepted = slot
                        .vote()
                        .accepted
                        .as_ref()
                        .map(|accepted| (accepted.ballot, accepted.value));
                    slot.vote().promised <= Some(*ballot) && accepted != Some((*ballot, *value))
                }) || self.0.joiner && value.contains(self.0.members) && proposer(*ballot).is_some()
            }
            Message::Accepted { ballot, value, .. } => matches!(
                proposer(*ballot),
                Some(Proposal::Accepting { ballot: theirs, value: its, .. }) if theirs == ballot && its == value
            ),
        }
    }

    /// A member takes a message: its vote, and the answer.
    fn answer(slot: &mut Slot<Id, View>, id: Id, message: &Message) -> Option<Message> {
        match message {
            Message::Prepare { ballot, used } => {
                let accepted = slot.on_prepare(*ballot, used).ok()?;
                Some(Message::Promise {
                    ballot: *ballot,
                    from: id,
                    accepted,
                })
            }
            Message::Accept { ballot, value, used } => {
                slot.on_accept(*ballot, *value, used).ok()?;
                Some(Message::Accepted {
                    ballot: *ballot,
                    value: *value,
                    from: id,
                })
            }
            Message::Promise { .. } | Message::Accepted { .. } => None,
        }
    }

    fn deliveries(&self, state: &State, into: &mut Vec<(Move, State)>) {
        for (at, message) in &state.sent {
            if matches!(message, Message::Promise { .. } | Message::Accepted { .. }) {
                continue;
            }
            for id in 0..MAX_IDS as u8 {
                match state.node(id) {
                    Some(Node::Alive { at: its, slot }) if its == at => {
                        let mut voted = slot.clone();
                        let Some(answer) = Self::answer(&mut voted, id, message) else {
                            continue;
                        };
                        let mut next = state.clone();
                        if voted == *slot && next.sent.contains(&(*at, answer.clone())) {
                            continue;
                        }
                        next.nodes[usize::from(id)] = Some(Arc::new(Node::Alive { at: *at, slot: voted }));
                        next.send(*at, answer);
                        self.settle(&mut next);
                        into.push((
                            Move {
                                who: id,
                                what: Did::Answer(message.clone()),
                            },
                            next,
                        ));
                    }
                    Some(Node::Joiner) => {
                        let Message::Accept { ballot, value, .. } = message else {
                            continue;
                        };
                        let answer = (
                            *at,
                            Message::Accepted {
                                ballot: *ballot,
                                value: *value,
                                from: id,
                            },
                        );
                        // R1: once it is in the view before, it votes only as a member that has installed that.
                        let member = state.before(&self.0, *at).contains(id);
                        if member || !value.contains(id) || state.sent.contains(&answer) {
                            continue;
                        }
                        let mut next = state.clone();
                        next.send(*at, answer.1);
                        self.settle(&mut next);
                        into.push((
                            Move {
                                who: id,
                                what: Did::Answer(message.clone()),
                            },
                            next,
                        ));
                    }
                    _ => {}
                }
            }
        }
    }

    fn proposals(&self, state: &State, id: Id, at: u8, slot: &Slot<Id, View>, into: &mut Vec<(Move, State)>) {
        let proposer = Incarnation(u128::from(id));
        if slot.may_open(proposer) {
            for value in self.0.choices(id, state.before(&self.0, at)) {
                let mut slot = slot.clone();
                let step = slot.open(proposer, value);
                self.perform(state, id, at, (slot, step), Reason::Decides, into);
            }
        }
        if self.0.second_values
            && let Proposal::Accepting { value: first, .. } = slot.proposal()
        {
            for value in self.0.choices(id, state.before(&self.0, at)) {
                let mut slot = slot.clone();
                if value != *first {
                    let step = slot.choose(value);
                    if step != Step::Wait {
                        self.perform(state, id, at, (slot, step), Reason::ChangesItsMind, into);
                    }
                }
            }
        }
        if id < self.0.proposers && state.prepares_left > 0 {
            // A refusal tells of a higher promise: the next round may start above any that a living member promised.
            let mut from: BTreeSet<Option<Ballot>> = BTreeSet::from([None]);
            for other in 0..MAX_IDS as u8 {
                if let Some(Node::Alive { at: its, slot }) = state.node(other)
                    && *its == at
                {
                    from.insert(slot.vote().promised);
                }
            }
            let mut seen = Vec::new();
            for refusal in from {
                let mut slot = slot.clone();
                slot.on_nack(refusal);
                let step = slot.prepare(proposer);
                match &step {
                    Step::Prepare { ballot, .. }
                        if ballot.round <= u32::from(self.0.rounds) && !seen.contains(&slot) =>
                    {
                        seen.push(slot.clone());
                        let mut fewer = state.clone();
                        fewer.prepares_left -= 1;
                        self.perform(&fewer, id, at, (slot, step), Reason::Decides, into);
                    }
                    _ => {}
                }
            }
        }
        if let Proposal::Preparing { ballot, .. } = slot.proposal() {
            for (slot, step) in go_on(slot, *ballot, &state.promises(at, *ballot), None) {
                self.perform(state, id, at, (slot, step), Reason::HasPromises, into);
            }
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
            // One that died before it installed this slot's predecessor has no vote in it. One that had gone on tells of
            // a decision, which `learn` covers.
            let none = [LastVote::default()];
            let last_votes: &[LastVote<View>] = match died_at.cmp(&at) {
                std::cmp::Ordering::Less => &none,
                std::cmp::Ordering::Equal => last_votes,
                std::cmp::Ordering::Greater => continue,
            };
            for vote in last_votes {
                let reason = Reason::Learns(dead, vote.clone());
                let mut plain = slot.clone();
                plain.certify(dead, vote.clone());
                if plain == *slot {
                    continue;
                }
                if let Proposal::Preparing { ballot, .. } = slot.proposal() {
                    for (slot, step) in go_on(slot, *ballot, &state.promises(at, *ballot), Some((dead, vote)))
                    {
                        self.perform(state, id, at, (slot, step), reason.clone(), into);
                    }
                    if !matches!(plain.proposal(), Proposal::Preparing { .. }) {
                        continue;
                    }
                }
                self.perform(state, id, at, (plain, Step::Wait), reason, into);
            }
        }
    }

    fn learn(&self, state: &State, id: Id, at: u8, into: &mut Vec<(Move, State)>) {
        for view in &state.decided[usize::from(at)] {
            let mut next = state.clone();
            let (node, what) = if view.contains(id) {
                let owner = Incarnation(u128::from(view.elder()));
                (
                    Node::Alive {
                        at: at + 1,
                        slot: Slot::new(id, view.voters(), Some(owner)),
                    },
                    Did::Install(*view),
                )
            } else {
                (Node::Out, Did::Leave(*view))
            };
            next.nodes[usize::from(id)] = Some(Arc::new(node));
            self.settle(&mut next);
            into.push((Move { who: id, what }, next));
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
        let mut endings = vec![vec![slot.vote().clone()]];
        for (at, message) in &state.sent {
            let mut voted = slot.clone();
            if *at == died_at
                && Self::answer(&mut voted, dying, message).is_some()
                && voted.vote() != slot.vote()
            {
                // R2: killed after the vote was written to some lifelines and before it went anywhere else.
                endings.push(vec![slot.vote().clone(), voted.vote().clone()]);
            }
        }
        for last_votes in endings {
            let mut next = state.clone();
            next.crashes_left -= 1;
            next.nodes[usize::from(dying)] = Some(Arc::new(Node::Dead {
                at: died_at,
                last_votes,
                stood: None,
            }));
            self.settle(&mut next);
            for id in 0..MAX_IDS as u8 {
                if let Some(Node::Alive { at, slot }) = next.node(id) {
                    self.certificates(&next, id, *at, slot, Some(dying), into);
                }
            }
        }
    }
}

impl Model for Free {
    type State = State;
    type Step = Move;

    fn initial(&self) -> State {
        State {
            nodes: self.0.nodes(),
            sent: Vec::new(),
            decided: Default::default(),
            prepares_left: self.0.prepares,
            crashes_left: self.0.crashes,
            broken: None,
        }
    }

    fn successors(&self, state: &State, into: &mut Vec<(Move, State)>) {
        self.deliveries(state, into);
        for id in 0..MAX_IDS as u8 {
            match state.node(id) {
                Some(Node::Alive { at, slot }) => {
                    self.proposals(state, id, *at, slot, into);
                    self.certificates(state, id, *at, slot, None, into);
                    if at + 1 < self.0.slots {
                        self.learn(state, id, *at, into);
                    }
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

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for node in self.nodes.iter().flatten() {
            match &**node {
                // What rounds a node has heard of shows only in the ballots it will prepare.
                Node::Alive { at, slot } if self.prepares_left == 0 => {
                    let elder = if *at == 0 {
                        0
                    } else {
                        self.decided[usize::from(*at) - 1][0].elder()
                    };
                    let opens = slot.may_open(Incarnation(u128::from(elder)));
                    (1u8, at, slot.vote(), slot.certificates(), slot.proposal(), opens).hash(hasher);
                }
                node => (2u8, node).hash(hasher),
            }
        }
        (
            &self.sent,
            &self.decided,
            self.prepares_left,
            self.crashes_left,
            self.broken,
        )
            .hash(hasher);
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

    fn send(&mut self, at: u8, message: Message) {
        let item = (at, message);
        if let Err(place) = self.sent.binary_search(&item) {
            self.sent.insert(place, item);
        }
    }

    fn promises(&self, slot: u8, mine: Ballot) -> Vec<(Id, Option<Acceptance<View>>)> {
        let in_ballot = self.sent.iter().filter_map(|(at, message)| match message {
            Message::Promise {
                ballot,
                from,
                accepted,
            } if *at == slot && *ballot == mine => Some((*from, accepted.clone())),
            _ => None,
        });
        in_ballot.collect()
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, what } = self;
        match what {
            Did::Answer(message) => write!(f, "{who} answers {message}"),
            Did::GoOn(reason, message) => {
                write!(f, "{who} {reason}")?;
                message
                    .iter()
                    .try_for_each(|message| write!(f, ", sends {message}"))
            }
            Did::Install(view) => write!(f, "{who} installs {view:?}"),
            Did::Leave(view) => write!(f, "{who} learns of {view:?} and is out"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Decides => f.write_str("wants another view"),
            Reason::ChangesItsMind => f.write_str("changes its mind"),
            Reason::HasPromises => f.write_str("has the promises of a quorum"),
            Reason::Learns(dead, vote) => match (&vote.promised, &vote.accepted) {
                (_, Some(Acceptance { ballot, value })) => {
                    write!(
                        f,
                        "learns that {dead} died, having accepted {value:?} in ballot {}",
                        show(*ballot)
                    )
                }
                (Some(promised), None) => {
                    write!(
                        f,
                        "learns that {dead} died, having promised ballot {}",
                        show(*promised)
                    )
                }
                (None, None) => write!(f, "learns that {dead} died without a vote"),
            },
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Prepare { ballot, .. } => write!(f, "Prepare {}", show(*ballot)),
            Message::Promise { ballot, .. } => write!(f, "Promise {}", show(*ballot)),
            Message::Accept { ballot, value, .. } => write!(f, "Accept {} {value:?}", show(*ballot)),
            Message::Accepted { ballot, value, .. } => write!(f, "Accepted {} {value:?}", show(*ballot)),
        }
    }
}

fn show(ballot: Ballot) -> String {
    format!("{}.{}", ballot.round, ballot.proposer.0)
}

//! Message by message, in any order, with a bounded number of ballots.

mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use antiphon_core::explore::slot::{Acceptance, LastVote, Proposal, Slot, Step, Used, Value};
use antiphon_core::wire::Incarnation;
use antiphon_core::wire::membership::Ballot;

use super::{Id, MAX_IDS, SlotModel, View};
use crate::explore::search::Model;

/// The free model.
#[derive(Debug, Clone)]
pub struct Free(pub SlotModel);

/// One node.
#[derive(Clone, PartialEq, Eq, Hash)]
#[expect(
    clippy::large_enum_variant,
    reason = "nodes are shared between states; almost all are of the large kind"
)]
enum Node {
    /// Takes part in the slot of this number.
    Alive { at: u8, slot: Slot<Id, View> },
    /// Wants to join; acknowledges every view that has it.
    Joiner,
    /// Its process is gone, and these are the last votes that its lifelines show.
    Dead { at: u8, last_votes: Vec<LastVote<View>> },
    /// A decided view does not have it.
    Out,
}

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
    Cast {
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
    Cast(View),
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
        let mut slot = slot;
        let mut promised = None;
        let message = match step {
            Step::Wait | Step::Decided { .. } => None,
            Step::Prepare { ballot, used } => {
                // As the shipping proposer does: it promises first, and then asks the others.
                let message = Message::Prepare {
                    ballot,
                    used: used.into(),
                };
                promised = Self::answer(&mut slot, id, &message);
                Some(message)
            }
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
        for message in promised.iter().chain(&message) {
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
        if self.0.leaderless {
            self.settle_fast(state);
        }
        let sent = std::mem::take(&mut state.sent);
        state.sent = sent
            .into_iter()
            .filter(|(at, message)| self.is_of_use(state, *at, message))
            .collect();
    }

    /// Notes what a fast quorum has cast.
    fn settle_fast(&self, state: &mut State) {
        let mut cast: BTreeMap<View, BTreeSet<Id>> = BTreeMap::new();
        for (_, message) in &state.sent {
            if let Message::Cast { value, from } = message {
                cast.entry(*value).or_default().insert(*from);
            }
        }
        let voters = state.before(&self.0, 0).voters();
        for (value, voted) in cast {
            if voters.is_fast_quorum(&voted) && !state.decided[0].contains(&value) {
                state.decided[0].push(value);
                state.decided[0].sort_unstable();
            }
        }
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
            Message::Cast { .. } => true,
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
            Message::Promise { .. } | Message::Accepted { .. } | Message::Cast { .. } => None,
        }
    }

    fn deliveries(&self, state: &State, into: &mut Vec<(Move, State)>) {
        for (at, message) in &state.sent {
            if matches!(
                message,
                Message::Promise { .. } | Message::Accepted { .. } | Message::Cast { .. }
            ) {
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
                        // R1: once it is in the view before, it votes only as a member that has installed
                        // that.
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
        if slot.may_cast() {
            for value in self.0.choices(id, state.before(&self.0, at)) {
                let mut slot = slot.clone();
                slot.cast(value);
                let mut next = state.clone();
                next.nodes[usize::from(id)] = Some(Arc::new(Node::Alive { at, slot }));
                next.send(at, Message::Cast { value, from: id });
                self.settle(&mut next);
                let what = Did::Cast(value);
                into.push((Move { who: id, what }, next));
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
            // A refusal tells of a higher promise: the next round may start above any that a living member
            // promised.
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
            }) = state.node(dead)
            else {
                continue;
            };
            // A member that died before it installed this slot's predecessor has no vote in it. If it had
            // gone on, it tells of a decision, which `learn` covers.
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
        if slot.may_cast() {
            for value in self.0.choices(dying, state.before(&self.0, died_at)) {
                let mut voted = slot.clone();
                voted.cast(value);
                endings.push(vec![slot.vote().clone(), voted.vote().clone()]);
            }
        }
        for last_votes in endings {
            let mut next = state.clone();
            next.crashes_left -= 1;
            next.nodes[usize::from(dying)] = Some(Arc::new(Node::Dead {
                at: died_at,
                last_votes,
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

/// Ways for the proposer of `ballot` to go on: each combination of promises that lets it, taken at once, and
/// then perhaps the certificate that lets it.
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

/// The nodes at the start.
fn nodes(model: &SlotModel) -> [Option<Arc<Node>>; MAX_IDS] {
    let view = model.view((1 << model.members) - 1);
    let mut nodes: [Option<Arc<Node>>; MAX_IDS] = Default::default();
    for id in 0..model.members {
        let slot = if model.leaderless {
            Slot::leaderless(id, view.voters())
        } else {
            Slot::new(id, view.voters(), Some(Incarnation(0)))
        };
        nodes[usize::from(id)] = Some(Arc::new(Node::Alive { at: 0, slot }));
    }
    if model.joiner {
        nodes[usize::from(model.members)] = Some(Arc::new(Node::Joiner));
    }
    nodes
}

impl Model for Free {
    type State = State;
    type Step = Move;

    fn initial(&self) -> State {
        State {
            nodes: nodes(&self.0),
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
        if let Some(broken) = state.broken {
            return Some(broken.to_owned());
        }
        let twice = state.decided.iter().position(|views| views.len() > 1)?;
        let views = &state.decided[twice];
        Some(super::two_views(twice as u8, views[0], views[1]))
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
        match at {
            0 => model.view((1 << model.members) - 1),
            // A member in the second slot has learned the first slot's decision.
            _ => self.decided[usize::from(at) - 1][0],
        }
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

#[cfg(test)]
impl State {
    pub(super) fn summary(&self, leaderless: bool) -> super::Summary {
        use super::Standing;
        let vote = |vote: &LastVote<View>| {
            let accepted = vote.accepted.as_ref()?;
            let rank = accepted.ballot.round * 16 + accepted.ballot.proposer.0 as u32 + 1;
            Some((rank, accepted.value.members))
        };
        let nodes = self.nodes.iter().map(|node| match node.as_deref() {
            None | Some(Node::Out) => Standing::Absent,
            Some(Node::Joiner) => Standing::Outside,
            Some(Node::Alive { slot, .. }) => Standing::Alive(vote(slot.vote())),
            Some(Node::Dead { last_votes, .. }) => {
                let shown = vote(&last_votes[0]);
                let hidden = last_votes.get(1).and_then(vote);
                Standing::Dead(shown, hidden.filter(|hidden| Some(*hidden) != shown))
            }
        });
        let mut summary = super::Summary {
            nodes: nodes.collect(),
            decided: self.decided[0].iter().map(|view| view.members).collect(),
        };
        summary.rank(leaderless);
        summary
    }
}

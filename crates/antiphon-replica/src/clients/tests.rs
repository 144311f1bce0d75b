//! Clients of members of a virtual group: drawn schedules, planted mistakes, and the bounds.
//!
//! The group promises what a total order promises (G9 to G16), and nothing more. What each client is told is
//! checked as it is told, against all that others were.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use antiphon_core::Outcome;
use antiphon_core::wire::Incarnation;
use bytes::Bytes;

use super::*;
use crate::replica::tests::group::{Chance, view_of};

/// A mistake that the checks have to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planted {
    /// A new member does not wait until it was told who is here.
    KnowAtOnce,
    /// A new member does not count changes of those whose clients it does not know.
    CountTheKnownAlone,
    /// A change that was not delivered is not sent again.
    ForgetTheUndelivered,
    /// Which clients are here is said while a change of the sender is under way.
    ListDuringChange,
    /// The clients of a member that is gone stay in the views.
    KeepClientsOfDeparted,
    /// A change is no safe message.
    ChangeUnsafely,
    /// The first message of a bundle of another member is not told.
    LoseFirstOfBundle,
}

#[derive(Clone)]
enum Entry {
    View(GroupView),
    Message(Incarnation, Bytes),
    Suspended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Joining,
    Member,
    /// The others have gone on without it; it reads on to here.
    Removed(usize),
    Dead,
}

/// What a client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    View(ClientViewId),
    Said(ClientId, u64),
}

struct Node {
    clients: Clients,
    me: Incarnation,
    life: Life,
    next: usize,
    accepted: VecDeque<(Option<u64>, Bytes)>,
    receipts: VecDeque<u64>,
    /// Those that want to be in, or are.
    wanted: BTreeSet<u32>,
    /// What those that are in were told.
    streams: BTreeMap<u32, Vec<Seen>>,
}

struct World {
    chance: Chance,
    planted: Option<Planted>,
    log: Vec<Entry>,
    members: Vec<usize>,
    views: u32,
    nodes: Vec<Node>,
    incarnations: u128,
    said: u64,
    /// Each view, as it was told first.
    told: BTreeMap<ClientViewId, ClientView>,
    /// What was told in a view, and the view that followed, as far as anyone has seen.
    within: BTreeMap<ClientViewId, Vec<Seen>>,
    streams: u64,
}

type Checked = Result<(), String>;

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        Self {
            chance: Chance(seed),
            planted,
            log: Vec::new(),
            members: Vec::new(),
            views: 0,
            nodes: Vec::new(),
            incarnations: 0,
            said: 0,
            told: BTreeMap::new(),
            within: BTreeMap::new(),
            streams: 0,
        }
    }

    fn start(&mut self) {
        let me = self.incarnation();
        let mut clients = Clients::new(me);
        clients.planted = self.planted;
        self.nodes.push(Node {
            clients,
            me,
            life: Life::Joining,
            next: 0,
            accepted: VecDeque::new(),
            receipts: VecDeque::new(),
            wanted: BTreeSet::new(),
            streams: BTreeMap::new(),
        });
    }

    fn incarnation(&mut self) -> Incarnation {
        self.incarnations += 1;
        Incarnation(self.incarnations)
    }

    /// A view without those that are dead and this one, and with those that want to join.
    fn view(&mut self, without: Option<usize>) {
        let (mut left, mut joined) = (Vec::new(), Vec::new());
        let is_dead = |index: usize, nodes: &[Node]| nodes[index].life == Life::Dead;
        for index in self.members.clone() {
            if is_dead(index, &self.nodes) || without == Some(index) {
                left.push(self.nodes[index].me);
                self.members.retain(|other| *other != index);
                if !is_dead(index, &self.nodes) {
                    let more = self.log.len() - self.nodes[index].next;
                    let end = self.nodes[index].next + self.chance.below(more + 1);
                    self.nodes[index].life = Life::Removed(end);
                    self.lose(index, 0);
                }
            }
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].life == Life::Joining {
                self.nodes[index].life = Life::Member;
                self.nodes[index].next = self.log.len();
                self.members.push(index);
                joined.push(self.nodes[index].me);
            }
        }
        self.views += 1;
        let members: Vec<Incarnation> = self.members.iter().map(|index| self.nodes[*index].me).collect();
        let mut view = view_of(self.views, &members, &joined);
        view.crashed = left;
        self.log.push(Entry::View(view));
    }

    /// What a node has sent and nobody has ordered is lost, but for so many.
    fn lose(&mut self, index: usize, kept: usize) {
        let node = &mut self.nodes[index];
        let kept = kept.min(node.accepted.len());
        for (number, _) in node.accepted.split_off(kept) {
            node.receipts.extend(number);
        }
    }

    /// The primary is lost and comes back with the same members.
    fn suspend(&mut self) {
        self.log.push(Entry::Suspended);
        for index in self.members.clone() {
            let kept = self.chance.below(3);
            self.lose(index, kept);
        }
        self.view(None);
    }

    /// Orders something that a member has sent.
    fn order(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let index = self.members[self.chance.below(self.members.len())];
        let node = &mut self.nodes[index];
        if let Some((_, payload)) = node.accepted.pop_front() {
            self.log.push(Entry::Message(node.me, payload));
        }
    }

    /// A node reads what is next for it.
    fn read(&mut self, index: usize) -> Checked {
        let end = match self.nodes[index].life {
            Life::Member => self.log.len(),
            Life::Removed(end) => end,
            Life::Joining | Life::Dead => return Ok(()),
        };
        let receipt = self.chance.percent(50);
        let node = &mut self.nodes[index];
        if receipt && let Some(number) = node.receipts.pop_front() {
            node.clients.handle_receipt(number, Outcome::NotDelivered);
        } else if node.next < end {
            let entry = self.log[node.next].clone();
            node.next += 1;
            match entry {
                Entry::View(view) => node.clients.handle_view(&view),
                Entry::Message(from, payload) => node.clients.handle_message(from, &payload),
                Entry::Suspended => node.clients.handle_suspended(),
            }
        } else if matches!(node.life, Life::Removed(_)) {
            let fresh = self.chance.percent(50);
            let me = if fresh {
                self.incarnation()
            } else {
                self.nodes[index].me
            };
            let node = &mut self.nodes[index];
            node.me = me;
            node.life = Life::Joining;
            node.clients.handle_resync(me, "removed");
        }
        self.settle(index)
    }

    fn settle(&mut self, index: usize) -> Checked {
        let refuse = self.chance.percent(20);
        let node = &mut self.nodes[index];
        let (is_member, accepted) = (node.life == Life::Member, &mut node.accepted);
        node.clients.outputs(|output| {
            let taken = is_member && !refuse;
            if taken {
                accepted.push_back((Some(output.number), output.payload.into()));
            }
            taken
        });
        while let Some(event) = self.nodes[index].clients.poll_event() {
            self.check(index, event)?;
        }
        Ok(())
    }

    fn enter(&mut self, index: usize) -> Checked {
        let node = &mut self.nodes[index];
        if node.life == Life::Dead || node.wanted.len() > 5 {
            return Ok(());
        }
        let number = node.clients.enter("c").map_err(|refusal| refusal.to_string())?;
        node.wanted.insert(number);
        self.settle(index)
    }

    fn leave(&mut self, index: usize) -> Checked {
        let node = &mut self.nodes[index];
        if let Some(number) = node.wanted.pop_first() {
            node.clients.leave(number, Departure::Left);
        }
        self.settle(index)
    }

    fn say(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let Some((number, _)) = node.streams.first_key_value() else {
            return;
        };
        if node.life != Life::Member {
            return;
        }
        let count = match self.chance.percent(30) {
            true => 1 + self.chance.below(4) as u64,
            false => 0,
        };
        let said = match count {
            0 => node.clients.say(*number, &self.said.to_le_bytes()),
            _ => {
                let mut bundle = BundleWriter::new(*number);
                (0..count).for_each(|more| bundle.push(&(self.said + more).to_le_bytes()));
                node.clients.may_say(*number).map(|()| bundle.said().to_vec())
            }
        };
        if let Ok(payload) = said {
            node.accepted.push_back((None, payload.into()));
            self.said += count.max(1);
        }
    }

    fn check(&mut self, index: usize, event: Event) -> Checked {
        let node = &mut self.nodes[index];
        match event {
            Event::Entered { number } => {
                let known = node.streams.insert(number, Vec::new());
                ensure(known.is_none(), || format!("{number} came in twice"))?;
                self.streams += 1;
            }
            Event::Gone { number, .. } => {
                node.streams.remove(&number);
                ensure(!node.wanted.contains(&number), || {
                    format!("{number} is gone, and did not want to")
                })?;
            }
            Event::Resync { .. } => node.streams.clear(),
            Event::View(view) => self.check_view(index, &view)?,
            Event::Message { from, view, payload } => {
                self.check_said(index, &from, view, &payload)?;
            }
            Event::Bundle { from, view, messages } => {
                let expected = messages.len();
                let all: Vec<Bytes> = messages.collect();
                ensure(all.len() == expected, || {
                    format!("a bundle of {expected} has {}", all.len())
                })?;
                for payload in all {
                    self.check_said(index, &from, view, &payload)?;
                }
            }
            Event::Suspended | Event::Transitional { .. } => {}
            Event::Malformed { what, .. } => return Err(format!("expected {what}")),
        }
        Ok(())
    }

    fn check_said(
        &mut self,
        index: usize,
        from: &Arc<Client>,
        view: ClientViewId,
        payload: &[u8],
    ) -> Checked {
        let said = u64::from_le_bytes(payload.try_into().map_err(|_| "another length")?);
        let told = self.told.get(&view);
        let in_view = told.is_some_and(|view| view.members.contains(from));
        ensure(in_view, || format!("{from:?} is not in {view}"))?;
        self.note(index, view, Seen::Said(from.id, said))
    }

    fn check_view(&mut self, index: usize, view: &ClientView) -> Checked {
        let first = self.told.entry(view.id).or_insert_with(|| view.clone());
        ensure(first == view, || format!("{first:?} is told as {view:?}"))?;
        let node = &mut self.nodes[index];
        let here = view.members.iter().filter(|client| client.id.node == node.me);
        let here: Vec<u32> = here.map(|client| client.id.number).collect();
        ensure(here.iter().eq(node.streams.keys()), || {
            format!("{here:?} are in, and not {:?}", node.streams.keys())
        })?;
        for (number, stream) in &node.streams {
            let id = ClientId {
                node: node.me,
                number: *number,
            };
            let is_new = view.joined.iter().any(|client| client.id == id);
            ensure(is_new == stream.is_empty(), || {
                format!("{id:?} is new in {}: {is_new}", view.id)
            })?;
        }
        let before = self.view_of(index);
        if let Some(before) = before {
            ensure(before < view.id, || format!("{} follows {before}", view.id))?;
            self.note(index, before, Seen::View(view.id))?;
        }
        let streams = self.nodes[index].streams.values_mut();
        streams.for_each(|stream| {
            if stream.is_empty() {
                stream.push(Seen::View(view.id));
            }
        });
        Ok(())
    }

    /// The view that those of a node see that have seen one.
    fn view_of(&self, index: usize) -> Option<ClientViewId> {
        let streams = self.nodes[index].streams.values();
        let mut views = streams.filter_map(|stream| {
            stream.iter().rev().find_map(|seen| match seen {
                Seen::View(id) => Some(*id),
                Seen::Said(..) => None,
            })
        });
        views.next()
    }

    /// All that are in see the same in a view, and the same view after it.
    fn note(&mut self, index: usize, view: ClientViewId, seen: Seen) -> Checked {
        let streams = self.nodes[index].streams.values_mut();
        for stream in streams.filter(|stream| !stream.is_empty()) {
            let since = stream.iter().rposition(|seen| *seen == Seen::View(view));
            let since = since.ok_or_else(|| format!("{seen:?} is told in {view}, which was not"))?;
            let place = stream.len() - since - 1;
            let within = self.within.entry(view).or_default();
            match within.get(place) {
                None => within.push(seen.clone()),
                Some(other) => ensure(*other == seen, || {
                    format!("in {view} one is told {other:?}, another {seen:?}")
                })?,
            }
            stream.push(seen.clone());
        }
        Ok(())
    }

    fn step(&mut self) -> Checked {
        let node = self.chance.below(self.nodes.len());
        match self.chance.below(100) {
            0 => {
                let alive = self.nodes.iter().filter(|node| node.life != Life::Dead);
                if alive.count() < 5 {
                    self.start();
                }
            }
            1 if self.members.len() > 1 => self.nodes[node].life = Life::Dead,
            2 | 3 => self.view(None),
            4 if self.members.len() > 1 => {
                let one = self.members[self.chance.below(self.members.len())];
                self.view(Some(one));
            }
            5 => self.suspend(),
            6..12 => self.enter(node)?,
            12..15 => self.leave(node)?,
            15..30 => self.say(node),
            30..50 => self.order(),
            _ => self.read(node)?,
        }
        Ok(())
    }

    fn run(mut self) -> Result<Self, String> {
        (0..3).for_each(|_| self.start());
        self.view(None);
        for _ in 0..1500 {
            self.step()?;
        }
        // Then nothing goes wrong any more, and all come in.
        for round in 0..400 {
            if round == 100 || round == 200 {
                self.view(None);
            }
            for index in 0..self.nodes.len() {
                self.read(index)?;
                self.order();
            }
        }
        let alive = self.nodes.iter().filter(|node| node.life == Life::Member);
        for node in alive {
            ensure(node.wanted.iter().eq(node.streams.keys()), || {
                format!("{:?} wait for ever", node.wanted)
            })?;
        }
        Ok(self)
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(otherwise()) }
}

#[test]
fn all_clients_see_the_same_views_and_between_them_the_same_messages() {
    let (mut views, mut said, mut streams) = (0, 0, 0);
    for seed in 0..400 {
        let world = World::new(seed, None).run();
        let world = world.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        views += world.told.len();
        said += world.said;
        streams += world.streams;
    }
    assert!(
        views > 10_000 && said > 5000 && streams > 5000,
        "{views} views, {said} messages, {streams} clients: too little happens"
    );
}

#[test]
fn planted_mistakes_are_found() {
    for planted in [
        Planted::KnowAtOnce,
        Planted::CountTheKnownAlone,
        Planted::ForgetTheUndelivered,
        Planted::ListDuringChange,
        Planted::KeepClientsOfDeparted,
        Planted::LoseFirstOfBundle,
    ] {
        let found = |seed| {
            let run = std::panic::catch_unwind(|| World::new(seed, Some(planted)).run().is_err());
            run.unwrap_or(true)
        };
        assert!((0..400).any(found), "{planted:?} is not found");
    }
}

/// One member with this many clients in.
fn alone(count: usize) -> Clients {
    let me = Incarnation(1);
    let mut clients = Clients::new(me);
    for _ in 0..count {
        clients.enter("c").unwrap();
    }
    clients.handle_view(&view_of(1, &[me], &[me]));
    deliver(&mut clients);
    clients
}

fn deliver(clients: &mut Clients) -> usize {
    let mut sent = Vec::new();
    clients.outputs(|output| {
        sent.push(Bytes::from(output.payload));
        true
    });
    let me = clients.me;
    sent.iter()
        .for_each(|payload| clients.handle_message(me, payload));
    sent.len()
}

fn events(clients: &mut Clients) -> Vec<Event> {
    std::iter::from_fn(|| clients.poll_event()).collect()
}

#[test]
fn a_thousand_that_come_at_once_are_in_one_view_and_one_more_is_refused() {
    let mut clients = alone(MAX_CLIENTS);
    let told = events(&mut clients);
    assert_eq!(told.len(), MAX_CLIENTS + 1);
    assert!(matches!(told.last(), Some(Event::View(view)) if view.members.len() == MAX_CLIENTS));
    assert_eq!(clients.enter("c"), Err(Refusal::Full));
    clients.leave(7, Departure::Left);
    clients.leave(8, Departure::lost("x".repeat(1000)));
    assert_eq!(clients.say(7, b""), Err(Refusal::NotIn), "it is on its way out");
    assert_eq!(deliver(&mut clients), 1);
    let told = events(&mut clients);
    assert!(matches!(&told[..2], [
        Event::Gone { number: 7, departure: Departure::Left },
        Event::Gone { number: 8, departure: Departure::Lost { cause } },
    ] if cause.len() == MAX_CAUSE_BYTES));
    assert_eq!(clients.enter("c"), Ok(MAX_CLIENTS as u32 + 1));
}

#[test]
fn a_cause_that_no_member_could_read_is_cut() {
    let mut clients = alone(1);
    events(&mut clients);
    let cause = "x".repeat(MAX_CAUSE_BYTES + 1);
    clients.leave(1, Departure::Lost { cause });
    assert_eq!(deliver(&mut clients), 1);
    let told = events(&mut clients);
    assert!(
        matches!(&told[..], [Event::Gone { number: 1, .. }, ..]),
        "{told:?}"
    );
}

#[test]
fn names_are_bounded_here_and_at_those_that_are_told_of_them() {
    let mut clients = alone(1);
    events(&mut clients);
    for name in ["", "a\nb", &"x".repeat(MAX_NAME_BYTES + 1)] {
        assert_eq!(clients.enter(name), Err(Refusal::Name));
        let named = Named {
            number: 9,
            name: name.to_owned(),
        };
        let change = Words::Change {
            enter: vec![named],
            leave: Vec::new(),
        };
        clients.handle_message(Incarnation(1), &format::words(&change).into());
        assert!(matches!(events(&mut clients)[..], [Event::Malformed { .. }]));
    }
    let mut long = format::words(&Words::Here(Vec::new()));
    long.push(0);
    for nonsense in [&b""[..], b"\x09", &long] {
        clients.handle_message(Incarnation(1), &Bytes::copy_from_slice(nonsense));
        assert!(matches!(events(&mut clients)[..], [Event::Malformed { .. }]));
    }
}

#[test]
fn the_end_of_a_membership_is_told_to_each_client_with_its_cause() {
    let mut clients = alone(2);
    clients.enter("waits").unwrap();
    events(&mut clients);
    clients.leave(1, Departure::Left);
    clients.handle_end("the node has stopped");
    let told = events(&mut clients);
    let lost = Departure::lost("the node has stopped");
    assert_eq!(
        told,
        [(1, Departure::Left), (2, lost.clone()), (3, lost),]
            .map(|(number, departure)| Event::Gone { number, departure })
    );
}

#[test]
fn a_bundle_is_whole_or_ignored() {
    let mut clients = alone(1);
    deliver(&mut clients);
    events(&mut clients);
    let mut bundle = BundleWriter::new(1);
    let nothing = Bytes::copy_from_slice(bundle.said());
    assert!(bundle.is_empty());
    let all: [&[u8]; 5] = [b"one", b"", &[1; 127], &[2; 128], &[3; 70_000]];
    all.iter().for_each(|message| bundle.push(message));
    assert_eq!(bundle.bytes(), 3 + 127 + 128 + 70_000 + 1 + 1 + 1 + 2 + 3);
    let me = clients.me;
    let said = Bytes::copy_from_slice(bundle.said());
    clients.handle_message(me, &said);
    let told = events(&mut clients);
    let [Event::Bundle { messages, .. }] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(messages.len(), all.len());
    assert!(messages.slices().eq(all) && messages.clone().eq(all));
    // One byte less, none at all, and one message more than may be.
    let mut many = BundleWriter::new(1);
    (0..=MAX_BUNDLE).for_each(|_| many.push(b""));
    let many = Bytes::copy_from_slice(many.said());
    clients.handle_message(me, &many.slice(..many.len() - 1));
    assert!(matches!(&events(&mut clients)[..], [Event::Bundle { .. }]));
    for bad in [said.slice(..said.len() - 1), nothing, many] {
        clients.handle_message(me, &bad);
        assert!(matches!(&events(&mut clients)[..], [Event::Malformed { .. }]));
    }
    assert_eq!(clients.may_say(2), Err(Refusal::NotIn));
}

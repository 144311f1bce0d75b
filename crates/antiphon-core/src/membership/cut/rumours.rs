//! Rumours: how all members of a large view come to know the same, over a few links each.
//!
//! ```text
//!   something new here ──► a moment to gather ──► to each neighbour on the rings: what it is not known to have
//!   from a neighbour   ──► new? handled here, and handed on to the other neighbours
//! ```
//! The neighbours of a member are its observers and its subjects, about twenty, however large the view is. What is told is a state
//! that only grows: opinions with versions, proposals, proofs, and votes. Those who vote alike are one set of ranks, and sets are
//! merged on the way: a thousand votes cross a link in some hundred bytes and a few messages. So a burst costs each node
//! neighbours × rounds messages, and rounds are the diameter of the rings, about log N / log 20.
//!
//! Links between neighbours are reliable, but a neighbour may have been in another view when something came. Heartbeats carry a sum
//! over all that is known, and go to observers. An observer that is at rest, and whose subject in the same view has another sum, tells it
//! everything once more; what the observer lacks itself comes to it from its own observers, and so on around the ring. A subject whose sum
//! differs for good, which is one that is broken, costs each of its observers all of it every few heartbeats.
//!
//! Bounded: one opinion, question and proof of each member, and of proposals and their votes those about the highest
//! [`MAX_BALLOTS`] ballots known. Which these are is the same at whoever knows the same, whichever came first; whoever proposed below
//! them has been outbid. What does not fit the other bounds is dropped; it can only be of a member that is broken.
//!
//! What a rumour means is not decided here. Nothing here survives the view.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{Ayes, Ballot, Rumour};
use antiphon_wire::{Incarnation, ViewDigest, Wire};

use crate::Time;

/// Of proposals and votes, those about the highest so many ballots are kept.
const MAX_BALLOTS: usize = 16;
/// The most different votes of one ballot, and the most views that are named apart from proposals.
const MAX_DIFFERENT: usize = 256;
/// The most rumours in one message.
const MAX_PARCEL: usize = 32;
/// Nor is one begun behind so many bytes: a message stays far below what a link carries.
const MAX_PARCEL_BYTES: usize = 256 << 10;
/// What one neighbour is told at a time, about. The rest follows an interval later, so that votes do not wait behind all that is known.
const MAX_TOLD_BYTES: usize = 512 << 10;

/// What tells rumours apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Opinion(Incarnation),
    Ask(Incarnation),
    Prepare(Ballot),
    Accept(Ballot),
    Value(ViewDigest),
    Certificate(Incarnation),
    Decided(ViewDigest),
    Tally(Ayes),
}

impl Key {
    /// The ballot that it is about, above the fast one.
    fn ballot(&self) -> Option<Ballot> {
        match self {
            Key::Prepare(ballot)
            | Key::Accept(ballot)
            | Key::Tally(Ayes::Promise { ballot, .. } | Ayes::Accepted { ballot }) => Some(*ballot),
            Key::Opinion(_)
            | Key::Ask(_)
            | Key::Value(_)
            | Key::Certificate(_)
            | Key::Decided(_)
            | Key::Tally(Ayes::Cast { .. }) => None,
        }
    }
}

/// One rumour, and which neighbours have it, by their place in the list.
#[derive(Debug, Clone)]
struct Single {
    rumour: Rumour,
    bytes: usize,
    had_by: BTreeSet<usize>,
}

/// A set of votes, and which of them each neighbour has.
#[derive(Debug, Clone)]
struct Tally {
    by: Ranks,
    had_by: Vec<Ranks>,
}

/// A set of ranks as it travels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranks(Vec<u8>);

impl Ranks {
    pub(crate) fn of(rank: usize) -> Self {
        let mut ranks = Self::default();
        ranks.insert(rank);
        ranks
    }

    /// Whether all are ranks of so many members.
    fn are_within(&self, members: usize) -> bool {
        self.0.len() <= members.div_ceil(8) && (members..self.0.len() * 8).all(|rank| !self.contains(rank))
    }

    fn insert(&mut self, rank: usize) {
        if self.0.len() <= rank / 8 {
            self.0.resize(rank / 8 + 1, 0);
        }
        self.0[rank / 8] |= 1 << (rank % 8);
    }

    fn contains(&self, rank: usize) -> bool {
        self.0
            .get(rank / 8)
            .is_some_and(|byte| byte & 1 << (rank % 8) != 0)
    }

    pub(crate) fn merge(&mut self, other: &Ranks) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Those that `other` lacks.
    fn without(&self, other: &Ranks) -> Ranks {
        let theirs = other.0.iter().copied().chain(std::iter::repeat(0));
        let mut left = Ranks(
            self.0
                .iter()
                .zip(theirs)
                .map(|(mine, theirs)| mine & !theirs)
                .collect(),
        );
        while left.0.last() == Some(&0) {
            left.0.pop();
        }
        left
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 8).filter(|rank| self.contains(*rank))
    }

    pub(crate) fn into_wire(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn from_wire(ranks: Vec<u8>) -> Self {
        Self(ranks)
    }
}

/// All rumours of one view.
#[derive(Debug)]
pub(crate) struct Rumours {
    members: usize,
    /// Those on the rings, and then others that are spoken to.
    neighbours: Vec<Incarnation>,
    on_rings: usize,
    /// The places of those who are spoken to no more.
    vacant: BTreeSet<usize>,
    /// Since when each neighbour says that it knows something else.
    differs: Vec<Option<Time>>,
    singles: BTreeMap<Key, Single>,
    tallies: BTreeMap<Ayes, Tally>,
    /// The highest ballots that anything was heard of.
    ballots: BTreeSet<Ballot>,
    /// What some neighbour may lack.
    fresh: BTreeSet<Key>,
    interval: Duration,
    due: Option<Time>,
    told: Time,
    changed: Time,
    sum: u32,
}

impl Rumours {
    pub(crate) fn new(members: usize, neighbours: Vec<Incarnation>, interval: Duration, now: Time) -> Self {
        Self {
            members,
            differs: vec![None; neighbours.len()],
            on_rings: neighbours.len(),
            vacant: BTreeSet::new(),
            neighbours,
            singles: BTreeMap::new(),
            tallies: BTreeMap::new(),
            ballots: BTreeSet::new(),
            fresh: BTreeSet::new(),
            interval,
            due: None,
            told: Time::ZERO,
            changed: now,
            sum: 0,
        }
    }

    /// Members that are spoken to besides the neighbours on the rings. Each is told everything, since nobody knows what it has. Who is none of
    /// them any more is told nothing, and gives its place to one that is, so there are never more than the longest list.
    pub(crate) fn link(&mut self, now: Time, members: &[Incarnation]) {
        for at in self.on_rings..self.neighbours.len() {
            if !members.contains(&self.neighbours[at]) {
                self.vacant.insert(at);
            }
        }
        for member in members {
            let known = self.neighbours.iter().position(|neighbour| neighbour == member);
            if known.is_some_and(|at| !self.vacant.contains(&at)) {
                continue;
            }
            let at = match known.or(self.vacant.first().copied()) {
                Some(at) => at,
                None => {
                    self.neighbours.push(*member);
                    self.differs.push(None);
                    let tallies = self.tallies.values_mut();
                    tallies.for_each(|tally| tally.had_by.push(Ranks::default()));
                    self.neighbours.len() - 1
                }
            };
            self.vacant.remove(&at);
            self.neighbours[at] = *member;
            self.differs[at] = None;
            self.tell_all(now, at);
        }
    }

    /// A sum over all that is known, the same at whoever knows the same.
    pub(crate) fn sum(&self) -> u32 {
        self.sum
    }

    /// How many different votes it has.
    #[cfg(test)]
    pub(crate) fn tallies(&self) -> usize {
        self.tallies.len()
    }

    /// Takes a rumour: this node's own, or from a neighbour. Gives what is new in it.
    pub(crate) fn take(&mut self, now: Time, from: Option<Incarnation>, rumour: Rumour) -> Option<Rumour> {
        let from = from.and_then(|from| self.neighbours.iter().position(|neighbour| *neighbour == from));
        let news = match rumour {
            Rumour::Tally { what, by } => self.merge(from, what, Ranks(by)),
            rumour => self.keep(from, rumour),
        }?;
        self.changed = now;
        if self.due.is_none() {
            self.due = Some((self.told + self.interval).max(now));
        }
        Some(news)
    }

    fn merge(&mut self, from: Option<usize>, what: Ayes, by: Ranks) -> Option<Rumour> {
        if !by.are_within(self.members) || by.is_empty() || !self.has_room(&Key::Tally(what)) {
            return None;
        }
        let neighbours = self.neighbours.len();
        let tally = self.tallies.entry(what).or_insert_with(|| Tally {
            by: Ranks::default(),
            had_by: vec![Ranks::default(); neighbours],
        });
        if let Some(from) = from {
            tally.had_by[from].merge(&by);
        }
        let new = by.without(&tally.by);
        if new.is_empty() {
            return None;
        }
        tally.by.merge(&new);
        for rank in new.iter() {
            self.sum = self.sum.wrapping_add(hash(&Key::Tally(what), rank as u64));
        }
        self.fresh.insert(Key::Tally(what));
        let by = new.into_wire();
        Some(Rumour::Tally { what, by })
    }

    fn keep(&mut self, from: Option<usize>, rumour: Rumour) -> Option<Rumour> {
        let (key, version) = key_of(&rumour);
        let had_by = from.into_iter().collect();
        if let Some(known) = self.singles.get_mut(&key) {
            let known_version = key_of(&known.rumour).1;
            if version == known_version {
                known.had_by.extend(from);
            }
            if version <= known_version {
                return None;
            }
            self.sum = self.sum.wrapping_sub(hash(&key, known_version));
        } else if !self.has_room(&key) {
            return None;
        }
        let single = Single {
            rumour: rumour.clone(),
            bytes: encode_to_vec(&rumour).len(),
            had_by,
        };
        self.singles.insert(key, single);
        self.sum = self.sum.wrapping_add(hash(&key, version));
        self.fresh.insert(key);
        Some(rumour)
    }

    /// Whether this is known or there is room for it. Makes room for what is about a ballot above the lowest of those kept.
    fn has_room(&mut self, key: &Key) -> bool {
        let Some(ballot) = key.ballot() else {
            let alike = |other: &&Key| std::mem::discriminant(*other) == std::mem::discriminant(key);
            return match key {
                // One of each member.
                Key::Opinion(_) | Key::Ask(_) | Key::Certificate(_) | Key::Prepare(_) | Key::Accept(_) => {
                    true
                }
                Key::Value(_) | Key::Decided(_) => self.singles.keys().filter(alike).count() < MAX_DIFFERENT,
                Key::Tally(what) => self.has_room_for_vote(what, None),
            };
        };
        if !self.ballots.contains(&ballot) {
            if self.ballots.len() >= MAX_BALLOTS {
                if self.ballots.first().is_some_and(|lowest| ballot < *lowest) {
                    return false;
                }
                if let Some(lowest) = self.ballots.pop_first() {
                    self.forget(lowest);
                }
            }
            self.ballots.insert(ballot);
        }
        match key {
            Key::Tally(what) => self.has_room_for_vote(what, Some(ballot)),
            _ => true,
        }
    }

    fn has_room_for_vote(&self, what: &Ayes, ballot: Option<Ballot>) -> bool {
        let alike = |known: &&Ayes| Key::Tally(**known).ballot() == ballot;
        self.tallies.contains_key(what) || self.tallies.keys().filter(alike).count() < MAX_DIFFERENT
    }

    /// Everything about a ballot that has been outbid.
    fn forget(&mut self, ballot: Ballot) {
        for key in [Key::Prepare(ballot), Key::Accept(ballot)] {
            if self.singles.remove(&key).is_some() {
                self.sum = self.sum.wrapping_sub(hash(&key, 0));
            }
        }
        let sum = &mut self.sum;
        self.tallies.retain(|what, tally| {
            let key = Key::Tally(*what);
            let stays = key.ballot() != Some(ballot);
            if !stays {
                for rank in tally.by.iter() {
                    *sum = sum.wrapping_sub(hash(&key, rank as u64));
                }
            }
            stays
        });
        self.fresh.retain(|key| key.ballot() != Some(ballot));
    }

    /// A neighbour in the same view has this sum. If both have been at rest for a while, one of them lacks something; and where
    /// something changes all the time, if it has been so for long.
    pub(crate) fn compare(&mut self, now: Time, neighbour: Incarnation, sum: u32, rest: Duration) {
        let Some(at) = self.neighbours.iter().position(|known| *known == neighbour) else {
            return;
        };
        if sum == self.sum {
            self.differs[at] = None;
            return;
        }
        let since = *self.differs[at].get_or_insert(now);
        if now.since(self.changed) < rest && now.since(since) < rest * 4 {
            return;
        }
        self.differs[at] = Some(now);
        self.tell_all(now, at);
        self.changed = now;
    }

    /// This one is told everything, at once.
    fn tell_all(&mut self, now: Time, at: usize) {
        self.singles.values_mut().for_each(|single| {
            single.had_by.remove(&at);
        });
        self.tallies
            .values_mut()
            .for_each(|tally| tally.had_by[at] = Ranks::default());
        self.fresh.extend(self.singles.keys().copied());
        self.fresh
            .extend(self.tallies.keys().map(|what| Key::Tally(*what)));
        self.due.get_or_insert(now);
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due
    }

    /// What is due for each neighbour. `hurry`: whether it is due or not. Those that are `crowded` have not taken yet what they were told before: they are
    /// told what is decided, and the rest when they have.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        hurry: bool,
        crowded: &BTreeSet<Incarnation>,
    ) -> Vec<(Incarnation, Vec<Rumour>)> {
        if self.due.is_none_or(|due| due > now && !hurry) {
            return Vec::new();
        }
        self.due = None;
        self.told = now;
        let fresh = std::mem::take(&mut self.fresh);
        let mut parcels = Vec::new();
        for (at, neighbour) in self.neighbours.iter().enumerate() {
            if self.vacant.contains(&at) {
                continue;
            }
            let mut parcel = Vec::new();
            let (mut bytes, mut before) = (0, 0);
            let is_crowded = crowded.contains(neighbour);
            for key in &fresh {
                let has_enough = is_crowded || before + bytes >= MAX_TOLD_BYTES;
                if has_enough && !matches!(key, Key::Decided(_)) {
                    self.fresh.insert(*key);
                    continue;
                }
                let told = match key {
                    Key::Tally(what) => {
                        let Some(tally) = self.tallies.get_mut(what) else {
                            continue;
                        };
                        let by = tally.by.without(&tally.had_by[at]);
                        if by.is_empty() {
                            continue;
                        }
                        tally.had_by[at].merge(&by);
                        let by = by.into_wire();
                        bytes += by.len();
                        Rumour::Tally { what: *what, by }
                    }
                    key => {
                        let Some(single) = self.singles.get_mut(key) else {
                            continue;
                        };
                        if !single.had_by.insert(at) {
                            continue;
                        }
                        bytes += single.bytes;
                        single.rumour.clone()
                    }
                };
                parcel.push(told);
                if parcel.len() == MAX_PARCEL || bytes >= MAX_PARCEL_BYTES {
                    parcels.push((*neighbour, std::mem::take(&mut parcel)));
                    before += std::mem::take(&mut bytes);
                }
            }
            if !parcel.is_empty() {
                parcels.push((*neighbour, parcel));
            }
        }
        if !self.fresh.is_empty() {
            self.due = Some(now + self.interval);
        }
        parcels
    }
}

fn key_of(rumour: &Rumour) -> (Key, u64) {
    match rumour {
        Rumour::Opinion { of, version, .. } => (Key::Opinion(*of), u64::from(*version)),
        Rumour::Ask { by, .. } => (Key::Ask(*by), 0),
        Rumour::Prepare { ballot, .. } => (Key::Prepare(*ballot), 0),
        Rumour::Accept { ballot, .. } => (Key::Accept(*ballot), 0),
        Rumour::Value(change) => (Key::Value(change.digest()), 0),
        // Of two proofs of one death the one with the later vote says more. Two ballots of one round count as one: a vote is on all lifelines
        // before it is told to anyone (R2), so what only one of the proofs shows went nowhere.
        Rumour::Certificate(certificate) => {
            let promised = certificate.vote.promised;
            let version = promised.map_or(0, |ballot| u64::from(ballot.round) + 1);
            (Key::Certificate(certificate.dead), version)
        }
        Rumour::Decided { value } => (Key::Decided(*value), 0),
        Rumour::Tally { what, .. } => (Key::Tally(*what), 0),
    }
}

/// What a rumour adds to the sum: FNV-1a over its name, which is the same bytes everywhere.
fn hash(key: &Key, version: u64) -> u32 {
    let mut bytes = Vec::with_capacity(64);
    let tag: u8 = match key {
        Key::Opinion(who) => (who.encode(&mut bytes), 0).1,
        Key::Ask(who) => (who.encode(&mut bytes), 1).1,
        Key::Prepare(ballot) => (ballot.encode(&mut bytes), 2).1,
        Key::Accept(ballot) => (ballot.encode(&mut bytes), 3).1,
        Key::Value(value) => (value.encode(&mut bytes), 4).1,
        Key::Certificate(who) => (who.encode(&mut bytes), 5).1,
        Key::Decided(value) => (value.encode(&mut bytes), 6).1,
        Key::Tally(what) => (what.encode(&mut bytes), 7).1,
    };
    bytes.push(tag);
    version.encode(&mut bytes);
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let whole = bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    (whole ^ (whole >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use antiphon_wire::Evidence;
    use antiphon_wire::membership::Suspicion;

    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    fn who(id: usize) -> Incarnation {
        Incarnation(id as u128 + 1)
    }

    /// Members in a ring, each with two neighbours on both sides.
    struct World {
        now: Time,
        nodes: Vec<Rumours>,
        /// Rumours that crossed a link.
        crossed: usize,
    }

    impl World {
        fn new(count: usize) -> Self {
            let neighbours = |at: usize| {
                [1, 2, count - 2, count - 1]
                    .map(|step| who((at + step) % count))
                    .to_vec()
            };
            let now = Time::from_micros(1);
            Self {
                now,
                nodes: (0..count)
                    .map(|at| Rumours::new(count, neighbours(at), STEP, now))
                    .collect(),
                crossed: 0,
            }
        }

        fn run(&mut self, steps: usize) {
            for _ in 0..steps {
                self.now = self.now + STEP;
                for at in 0..self.nodes.len() {
                    for (to, rumours) in self.nodes[at].poll(self.now, false, &BTreeSet::new()) {
                        self.crossed += rumours.len();
                        let to = to.0 as usize - 1;
                        for rumour in rumours {
                            self.nodes[to].take(self.now, Some(who(at)), rumour);
                        }
                    }
                }
            }
        }

        fn sums(&self) -> BTreeSet<u32> {
            self.nodes.iter().map(Rumours::sum).collect()
        }
    }

    fn vote(rank: usize) -> Rumour {
        let what = Ayes::Cast { value: ViewDigest(7) };
        let by = Ranks::of(rank).into_wire();
        Rumour::Tally { what, by }
    }

    fn opinion(of: usize, version: u32) -> Rumour {
        Rumour::Opinion {
            of: who(of),
            version,
            primary: true,
            leaving: version > 1,
            wire_level: 1,
            suspicions: Vec::new(),
        }
    }

    #[test]
    fn a_hundred_votes_reach_all_in_few_messages() {
        let mut world = World::new(100);
        for rank in 0..100 {
            let now = world.now;
            world.nodes[rank].take(now, None, vote(rank));
        }
        world.run(60);
        assert_eq!(world.sums().len(), 1, "all know the same");
        // Each alone to each over four links would be forty thousand.
        assert!(world.crossed < 12_000, "{}", world.crossed);
    }

    #[test]
    fn a_later_opinion_replaces_an_earlier_one_whichever_comes_first() {
        let mut rumours = Rumours::new(5, vec![who(1)], STEP, Time::ZERO);
        assert!(rumours.take(Time::ZERO, None, opinion(3, 2)).is_some());
        assert!(rumours.take(Time::ZERO, None, opinion(3, 1)).is_none());
        assert!(rumours.take(Time::ZERO, None, opinion(3, 2)).is_none());
        let told = rumours.poll(Time::ZERO, true, &BTreeSet::new());
        assert_eq!(told, [(who(1), vec![opinion(3, 2)])]);
        assert!(rumours.take(Time::ZERO, None, opinion(3, 3)).is_some());
        assert_eq!(rumours.poll(Time::ZERO, true, &BTreeSet::new()).len(), 1);
    }

    #[test]
    fn nothing_goes_back_to_where_it_came_from() {
        let mut rumours = Rumours::new(5, vec![who(1), who(2)], STEP, Time::ZERO);
        rumours.take(Time::ZERO, Some(who(1)), opinion(3, 1));
        rumours.take(Time::ZERO, Some(who(1)), vote(3));
        let told: Vec<Incarnation> = rumours
            .poll(Time::ZERO, true, &BTreeSet::new())
            .into_iter()
            .map(|(to, _)| to)
            .collect();
        assert_eq!(told, [who(2)]);
    }

    #[test]
    fn who_is_spoken_to_besides_is_told_everything_and_gives_its_place_to_the_next() {
        let mut rumours = Rumours::new(5, vec![who(1)], STEP, Time::ZERO);
        let crowded = BTreeSet::new();
        rumours.take(Time::ZERO, None, opinion(3, 1));
        rumours.take(Time::ZERO, None, vote(3));
        assert_eq!(rumours.poll(Time::ZERO, true, &crowded).len(), 1);
        for other in [2, 4, 2] {
            rumours.link(Time::ZERO, &[who(other)]);
            let told = rumours.poll(Time::ZERO, true, &crowded);
            assert_eq!(told, [(who(other), vec![opinion(3, 1), vote(3)])]);
            rumours.link(Time::ZERO, &[who(other), who(1)]);
            assert!(rumours.poll(Time::ZERO, true, &crowded).is_empty());
        }
        assert_eq!(rumours.neighbours.len(), 2);
        rumours.take(Time::ZERO, Some(who(2)), opinion(0, 1));
        let told = rumours.poll(Time::ZERO, true, &crowded);
        assert_eq!(told, [(who(1), vec![opinion(0, 1)])], "2 has it");
        rumours.link(Time::ZERO, &[]);
        rumours.take(Time::ZERO, None, opinion(4, 1));
        // Nor does anything wait for it, whether it takes what it is told or not.
        let told = rumours.poll(Time::ZERO, true, &BTreeSet::from([who(2)]));
        assert_eq!(told, [(who(1), vec![opinion(4, 1)])]);
        assert_eq!(rumours.next_deadline(), None);
    }

    #[test]
    fn neighbours_at_rest_that_know_different_things_tell_each_other_all() {
        let mut world = World::new(5);
        let now = world.now;
        // 4 was in another view when it came.
        let mut lone = Rumours::new(5, world.nodes[4].neighbours.clone(), STEP, now);
        world.nodes[0].take(now, None, opinion(2, 1));
        world.nodes[0].take(now, None, vote(2));
        world.run(5);
        std::mem::swap(&mut world.nodes[4], &mut lone);
        assert_eq!(world.sums().len(), 2);
        let (now, sum) = (world.now + STEP * 50, world.nodes[4].sum());
        world.now = now;
        world.nodes[0].compare(now, who(4), sum, STEP * 10);
        world.run(5);
        assert_eq!(world.sums().len(), 1);
    }

    #[test]
    fn of_ballots_that_were_outbid_nothing_is_kept_whichever_is_heard_first() {
        let ballot = |round| Ballot {
            round,
            proposer: who(0),
        };
        let about = |round: u32| {
            let what = Ayes::Accepted {
                ballot: ballot(round),
            };
            let prepare = Rumour::Prepare {
                ballot: ballot(round),
                proofs: Vec::new(),
                removing: Vec::new(),
            };
            let by = Ranks::of(1).into_wire();
            [prepare, Rumour::Tally { what, by }]
        };
        let rounds = 1..=3 * MAX_BALLOTS as u32;
        let fresh = || Rumours::new(5, vec![who(1)], STEP, Time::ZERO);
        let (mut rising, mut falling) = (fresh(), fresh());
        for rumour in rounds.clone().flat_map(about) {
            assert!(
                rising.take(Time::ZERO, None, rumour).is_some(),
                "the latest is always heard"
            );
        }
        for rumour in rounds.rev().flat_map(about) {
            falling.take(Time::ZERO, None, rumour);
        }
        assert_eq!(rising.sum(), falling.sum());
        for rumours in [rising, falling] {
            assert_eq!(rumours.singles.len(), MAX_BALLOTS);
            assert_eq!(rumours.tallies.len(), MAX_BALLOTS);
        }
    }

    #[test]
    fn much_is_told_in_several_messages() {
        let mut rumours = Rumours::new(200, vec![who(1)], STEP, Time::ZERO);
        for of in 0..100 {
            rumours.take(Time::ZERO, None, opinion(of, 1));
        }
        let told = rumours.poll(Time::ZERO, true, &BTreeSet::new());
        assert!(told.iter().all(|(_, rumours)| rumours.len() <= MAX_PARCEL));
        assert_eq!(told.iter().map(|(_, rumours)| rumours.len()).sum::<usize>(), 100);
    }

    /// Opinions of so many members, of some 20 KB each.
    fn know_much(rumours: &mut Rumours, members: usize) {
        for of in 0..members {
            let suspicion = |at| Suspicion {
                member: who(of + at),
                evidence: Evidence::Lossy { lost_percent: 80 },
                for_ms: 1,
            };
            let mut large = opinion(of, 1);
            if let Rumour::Opinion { suspicions, .. } = &mut large {
                *suspicions = (0..1000).map(suspicion).collect();
            }
            rumours.take(Time::ZERO, None, large);
        }
    }

    fn bytes_of(rumours: &[Rumour]) -> usize {
        rumours.iter().map(|rumour| encode_to_vec(rumour).len()).sum()
    }

    #[test]
    fn what_is_large_is_told_in_messages_that_are_not_and_not_all_at_once() {
        let mut rumours = Rumours::new(200, vec![who(1), who(2)], STEP, Time::ZERO);
        know_much(&mut rumours, 200);
        let mut told = [0, 0];
        for turn in 0..16 {
            let now = Time::ZERO + STEP * turn;
            let mut bytes = [0, 0];
            for (to, rumours) in rumours.poll(now, false, &BTreeSet::new()) {
                let at = usize::from(to == who(2));
                told[at] += rumours.len();
                bytes[at] += bytes_of(&rumours);
                assert!(bytes_of(&rumours) < MAX_PARCEL_BYTES * 2);
            }
            assert!(
                bytes[0].max(bytes[1]) < MAX_TOLD_BYTES * 2,
                "turn {turn}: {bytes:?}"
            );
        }
        assert_eq!(told, [200, 200]);
        assert_eq!(rumours.next_deadline(), None, "there is nothing left to tell");
    }

    #[test]
    fn who_has_not_taken_what_it_was_told_is_told_what_is_decided_and_the_rest_later() {
        let mut rumours = Rumours::new(200, vec![who(1), who(2)], STEP, Time::ZERO);
        know_much(&mut rumours, 4);
        let value = ViewDigest::of(b"a view");
        rumours.take(Time::ZERO, None, Rumour::Decided { value });
        let crowded = BTreeSet::from([who(1)]);
        let told = rumours.poll(Time::ZERO, true, &crowded);
        let to = |told: &[(Incarnation, Vec<Rumour>)], whom| {
            let parcels = told.iter().filter(|(to, _)| *to == whom);
            parcels.map(|(_, rumours)| rumours.len()).sum::<usize>()
        };
        assert_eq!((to(&told, who(1)), to(&told, who(2))), (1, 5));
        let later = rumours.poll(Time::ZERO + STEP, false, &BTreeSet::new());
        assert_eq!((to(&later, who(1)), to(&later, who(2))), (4, 0));
    }

    #[test]
    fn ranks_beyond_the_view_are_not_taken() {
        // Also where the last byte of a set has room for more.
        for count in [8, 12] {
            let mut rumours = Rumours::new(count, vec![who(1)], STEP, Time::ZERO);
            for beyond in count..count + 16 {
                assert!(rumours.take(Time::ZERO, Some(who(1)), vote(beyond)).is_none());
            }
            assert!(rumours.take(Time::ZERO, Some(who(1)), vote(count - 1)).is_some());
        }
    }
}

//! Rumours: how all members of a large view come to know the same, over a few links each.
//!
//! ```text
//!   something new here ──► a moment to gather ──► to each neighbour on the tree: what it may lack
//!   from a neighbour   ──► new? handled here, and handed on to the other neighbours on the tree
//!                     └──► much later ──────────► to each neighbour on the rings: what it may lack
//! ```
//! The **tree** is that of the shortest ways to the eldest over the rings ([`Rings::branches`]). All members
//! compute the same tree. It is two or three edges deep in a view of a hundred, four in one of a thousand.
//! Over it a rumour reaches each member once. A slow member on the tree keeps a rumour from the members
//! behind it. They get it from their other neighbours, [`LATE_INTERVALS`] later, unless it is of no use any
//! more; each interval is longer by what this member's timers are late ([`Rumours::lags`]). The next view
//! they get from the member from which they hear of it. As soon as there is word of a loss, a proof of death
//! or a doubt, all neighbours are told at once, as long as the view lasts. So a change among healthy members
//! costs a few messages for each member, and any other change some for each neighbour.
//!
//! A proposal, and what was decided, is told at once, and with it all else that there is, except votes.
//! Anything else is told an interval after the last time at the latest. Where all members answer one
//! question, their votes cross each edge of the tree once in each direction, and wait for nothing else:
//! ```text
//!   to a neighbour on the tree: when this member voted and votes came from all others there ──► what is here
//! ```
//! So the leaves tell their votes at once. A member above leaves tells its votes when it has heard the
//! leaves, the eldest when all votes have come, and then the same goes on downwards. This fails if a member
//! is silent or votes otherwise. Then votes are told when no more of them have come for half an interval, or
//! for two intervals since the first.
//!
//! The neighbours of a member are its observers and its subjects, about twenty, however large the view is.
//! What is told is a state that only grows: opinions with versions, proposals, proofs, and votes. Members
//! that vote alike are one set of ranks, and sets are merged on the way: a thousand votes cross a channel in
//! some hundred bytes and a few messages. So a burst costs each node at most neighbours × rounds messages.
//! The rounds are the diameter of the rings, about log N / log 20.
//!
//! Channels between neighbours are reliable, but a neighbour may have been in another view when something
//! came. So heartbeats carry a sum over all that is known, and go to observers. If an observer is at rest,
//! and its subject in the same view has another sum, the observer tells it everything once more. What the
//! observer itself lacks comes to it from its own observers, and so on around the ring. A subject whose sum
//! differs for good is broken. It costs each of its observers all of the state every few heartbeats.
//!
//! Bounded: one opinion, question and proof of each member. Of proposals and their votes, those about the
//! highest [`MAX_BALLOTS`] ballots known. All members that know the same keep the same ballots, whichever
//! came first; a proposer below them has been outbid. What does not fit the other bounds is dropped: it can
//! only be of a broken member.
//!
//! What a rumour means is not decided here. Nothing here survives the view.
//!
//! [`Rings::branches`]: crate::membership::monitor::rings::Rings::branches

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{Ayes, Ballot, Rumour};
use antiphon_wire::{Incarnation, ViewDigest, Wire};

use crate::Time;
use crate::membership::monitor::ranks::Ranks;

/// Proposals and votes are kept for at most this many ballots: the highest.
const MAX_BALLOTS: usize = 16;
/// The most different votes of one ballot, and the most views that are named apart from proposals.
const MAX_DIFFERENT: usize = 256;
/// The most rumours in one message.
const MAX_PARCEL: usize = 32;
/// No rumour is begun behind this many bytes: a message stays far below what a channel carries.
const MAX_PARCEL_BYTES: usize = 256 << 10;
/// What came over the tree, or should have, is told to the other neighbours this many intervals later.
const LATE_INTERVALS: u32 = 20;
/// This many intervals pass before a neighbour is offered again what it could not take.
const CROWDED_INTERVALS: u32 = 10;
/// About how much one neighbour is told at a time. The rest follows an interval later, so that votes do not
/// wait behind all that is known.
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
    /// The ballot that it is about, if that is above the fast one.
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

    /// Whether others wait for it before they can do their part.
    fn is_urgent(&self) -> bool {
        matches!(
            self,
            Key::Ask(_) | Key::Prepare(_) | Key::Accept(_) | Key::Decided(_)
        )
    }
}

/// One rumour, and the neighbours that have it, by their place in the list.
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
    /// Whether this member's own vote is among them.
    own: bool,
    /// The places of the neighbours from which some of the votes came.
    heard: BTreeSet<usize>,
    /// The places of the neighbours that were told as soon as the others were heard. That happens once:
    /// otherwise each vote that comes late would be told at once.
    hastened: BTreeSet<usize>,
}

/// All rumours of one view.
#[derive(Debug, Clone)]
pub(crate) struct Rumours {
    members: usize,
    /// The neighbours on the rings, and then other members that are spoken to.
    neighbours: Vec<Incarnation>,
    on_rings: usize,
    /// The places of the neighbours on the tree.
    branches: BTreeSet<usize>,
    /// The places of the neighbours that are told at once.
    near: BTreeSet<usize>,
    /// The places of the neighbours that are to be told everything at once.
    lacking: BTreeSet<usize>,
    /// The places of the neighbours that are spoken to no more.
    vacant: BTreeSet<usize>,
    /// Since when each neighbour says that it knows something else.
    differs: Vec<Option<Time>>,
    singles: BTreeMap<Key, Single>,
    tallies: BTreeMap<Ayes, Tally>,
    /// The highest ballots that anything was heard of.
    ballots: BTreeSet<Ballot>,
    /// What a neighbour that is told at once may lack, and what another neighbour may lack.
    fresh: BTreeSet<Key>,
    late: BTreeSet<Key>,
    /// Votes that some neighbour that is told at once may lack.
    votes: BTreeSet<Key>,
    /// Votes that these have waited for long enough, and since when.
    hastened: BTreeSet<(usize, Key)>,
    hastened_since: Option<Time>,
    interval: Duration,
    /// When news is to be told, except votes.
    due: Option<Time>,
    /// When votes are to be told, and since when there are votes that were not told.
    votes_due: Option<(Time, Time)>,
    /// Since when there is something late, and when to offer again what of it a neighbour could not take.
    late_since: Option<Time>,
    late_again: Option<Time>,
    told: Time,
    /// How late this member is with what is due.
    lag: Duration,
    changed: Time,
    sum: u32,
}

impl Rumours {
    /// `branches` are the neighbours that are next to this member on the tree.
    pub(crate) fn new(
        members: usize,
        neighbours: Vec<Incarnation>,
        branches: &BTreeSet<Incarnation>,
        interval: Duration,
        now: Time,
    ) -> Self {
        let is_branch = |(at, member): (usize, &Incarnation)| branches.contains(member).then_some(at);
        let branches: BTreeSet<usize> = neighbours.iter().enumerate().filter_map(is_branch).collect();
        Self {
            members,
            near: branches.clone(),
            branches,
            lacking: BTreeSet::new(),
            differs: vec![None; neighbours.len()],
            on_rings: neighbours.len(),
            vacant: BTreeSet::new(),
            neighbours,
            singles: BTreeMap::new(),
            tallies: BTreeMap::new(),
            ballots: BTreeSet::new(),
            fresh: BTreeSet::new(),
            late: BTreeSet::new(),
            votes: BTreeSet::new(),
            hastened: BTreeSet::new(),
            hastened_since: None,
            interval,
            due: None,
            votes_due: None,
            late_since: None,
            late_again: None,
            told: Time::ZERO,
            lag: Duration::ZERO,
            changed: now,
            sum: 0,
        }
    }

    /// How late this member is with what is due. On a host that has more to do than it can, all members are
    /// late, and nobody is stuck. What others may lack for that reason is told them after a longer while.
    /// Otherwise a host with more to do would get still more to do.
    pub(crate) fn lags(&mut self, lag: Duration) {
        self.lag = lag;
    }

    /// Members that are spoken to besides the neighbours on the rings. Each is told everything, since nobody
    /// knows what it has. A member that is no longer among them is told nothing, and a new one takes its
    /// place. So there are never more places than in the longest list.
    pub(crate) fn bridge(&mut self, now: Time, members: &[Incarnation]) {
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
            self.near.insert(at);
            self.neighbours[at] = *member;
            self.differs[at] = None;
            self.tell_all(now, at);
        }
    }

    /// A sum over all that is known: the same at all members that know the same.
    pub(crate) fn sum(&self) -> u32 {
        self.sum
    }

    /// How many different votes are known.
    #[cfg(test)]
    pub(crate) fn tallies(&self) -> usize {
        self.tallies.len()
    }

    /// Takes a rumour: this node's own, or from a neighbour. Returns what is new in it.
    pub(crate) fn take(&mut self, now: Time, from: Option<Incarnation>, rumour: Rumour) -> Option<Rumour> {
        let from = from.and_then(|from| self.neighbours.iter().position(|neighbour| *neighbour == from));
        let news = match rumour {
            Rumour::Tally { what, by } => {
                let news = self.merge(from, what, Ranks::from_wire(by));
                self.hasten(now, what);
                news
            }
            rumour => self.keep(from, rumour),
        }?;
        self.changed = now;
        if is_of_a_loss(&news) {
            self.near.extend(0..self.neighbours.len());
            self.fresh.append(&mut self.late);
            (self.late_since, self.late_again) = (None, None);
        }
        let key = key_of(&news).0;
        match key {
            // The votes came to a leaf of the tree.
            Key::Tally(_) if !self.near.iter().any(|at| self.is_new_to(*at, &key)) => {}
            Key::Tally(_) => {
                self.votes.insert(key);
                let since = self.votes_due.map_or(now, |(_, since)| since);
                let at = (now + self.interval / 2).min(since + self.interval * 2);
                self.votes_due = Some((at, since));
            }
            _ => {
                self.fresh.insert(key);
                if key.is_urgent() {
                    self.due = Some(now);
                } else {
                    self.tell_by((self.told + self.interval).max(now));
                }
            }
        }
        if (0..self.on_rings).any(|at| !self.near.contains(&at)) {
            self.late.insert(key);
            self.late_since.get_or_insert(now);
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
            own: false,
            heard: BTreeSet::new(),
            hastened: BTreeSet::new(),
        });
        match from {
            Some(from) => {
                tally.had_by[from].merge(&by);
                tally.heard.insert(from);
            }
            None => tally.own = true,
        }
        let new = by.without(&tally.by);
        if new.is_empty() {
            return None;
        }
        tally.by.merge(&new);
        for rank in new.iter() {
            self.sum = self.sum.wrapping_add(hash(&Key::Tally(what), rank as u64));
        }
        let by = new.into_wire();
        Some(Rumour::Tally { what, by })
    }

    /// A neighbour on the tree is told what there is once this member waits for no other one on the tree, as
    /// long as rumours go by the tree alone.
    fn hasten(&mut self, now: Time, what: Ayes) {
        let Some(tally) = self.tallies.get_mut(&what).filter(|tally| tally.own) else {
            return;
        };
        if self.near != self.branches {
            return;
        }
        for branch in &self.branches {
            let mut others = self.branches.iter().filter(|other| *other != branch);
            if others.all(|other| tally.heard.contains(other)) && tally.hastened.insert(*branch) {
                self.hastened.insert((*branch, Key::Tally(what)));
                self.hastened_since.get_or_insert(now);
            }
        }
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
        Some(rumour)
    }

    /// Whether this is known or there is room for it. A rumour about a ballot above the lowest one kept makes
    /// room for itself.
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
            assert!(
                self.ballots.len() <= MAX_BALLOTS,
                "rumours: {} ballots are kept",
                self.ballots.len()
            );
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

    /// Forgets everything about a ballot that has been outbid.
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
        for keys in [&mut self.fresh, &mut self.late, &mut self.votes] {
            keys.retain(|key| key.ballot() != Some(ballot));
        }
        self.hastened.retain(|(_, key)| key.ballot() != Some(ballot));
    }

    /// A neighbour in the same view has this sum. If the sums differ and both have been at rest for a while,
    /// one of them lacks something. If something changes all the time, the sums must have differed for long.
    pub(crate) fn compare(&mut self, now: Time, neighbour: Incarnation, sum: u32, rest: Duration) {
        let rest = rest + self.lag * LATE_INTERVALS;
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

    /// This neighbour is told everything, at once.
    fn tell_all(&mut self, now: Time, at: usize) {
        self.singles.values_mut().for_each(|single| {
            single.had_by.remove(&at);
        });
        self.tallies
            .values_mut()
            .for_each(|tally| tally.had_by[at] = Ranks::default());
        self.lacking.insert(at);
        self.tell_by(now);
    }

    /// Neighbours that are told at once wait no longer than until then, even where something waits for a
    /// crowded one.
    fn tell_by(&mut self, at: Time) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When what is late is told. A host that is busy now was perhaps not busy when it came.
    fn late_due(&self) -> Option<Time> {
        let patience = (self.interval + self.lag) * LATE_INTERVALS;
        let since = self.late_since.map(|since| since + patience);
        since.into_iter().chain(self.late_again).min()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let votes = self.votes_due.map(|(at, _)| at);
        let votes = votes.into_iter().chain(self.hastened_since);
        self.due.into_iter().chain(votes).chain(self.late_due()).min()
    }

    /// What is to be told to each neighbour. `hurry`: the near neighbours are told now, whether it is due or
    /// not. `crowded` neighbours have not taken yet what they were told before: they are told what is
    /// decided, and the rest when they have.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        hurry: bool,
        crowded: &BTreeSet<Incarnation>,
    ) -> Vec<(Incarnation, Vec<Rumour>)> {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if !hurry && !is_due(self.next_deadline()) {
            return Vec::new();
        }
        let votes_are_due = hurry || is_due(self.votes_due.map(|(at, _)| at));
        let mut fresh = BTreeSet::new();
        if votes_are_due || is_due(self.due) || is_due(self.late_due()) {
            (self.due, self.told) = (None, now);
            fresh = std::mem::take(&mut self.fresh);
        }
        if votes_are_due {
            self.votes_due = None;
            fresh.append(&mut self.votes);
        }
        self.hastened_since = None;
        let hastened = std::mem::take(&mut self.hastened);
        let mut late = BTreeSet::new();
        if is_due(self.late_due()) {
            (self.late_since, self.late_again) = (None, None);
            late = std::mem::take(&mut self.late);
        }
        let mut everything = BTreeSet::new();
        let lacking = std::mem::take(&mut self.lacking);
        if !lacking.is_empty() {
            everything.extend(self.singles.keys().copied());
            everything.extend(self.tallies.keys().map(|what| Key::Tally(*what)));
        }
        let mut parcels = Vec::new();
        for at in 0..self.neighbours.len() {
            if self.vacant.contains(&at) {
                continue;
            }
            let keys = match (lacking.contains(&at), self.near.contains(&at)) {
                (true, _) => &everything,
                (false, true) => &fresh,
                (false, false) => &late,
            };
            let votes = hastened.iter().filter(|(who, _)| *who == at).map(|(_, key)| *key);
            let votes: BTreeSet<Key> = votes.filter(|key| !keys.contains(key)).collect();
            let is_crowded = crowded.contains(&self.neighbours[at]);
            if votes.is_empty() {
                self.tell(now, at, keys, is_crowded, &mut parcels);
            } else {
                let keys = votes.union(keys).copied().collect();
                self.tell(now, at, &keys, is_crowded, &mut parcels);
            }
        }
        if !hastened.is_empty() {
            self.forget_told_votes();
        }
        parcels
    }

    /// Votes that all neighbours told at once have by now need no time of their own.
    fn forget_told_votes(&mut self) {
        let mut votes = std::mem::take(&mut self.votes);
        votes.retain(|key| self.near.iter().any(|at| self.is_new_to(*at, key)));
        if votes.is_empty() {
            self.votes_due = None;
        }
        self.votes = votes;
    }

    /// Tells one neighbour as much as it takes now, and keeps the rest.
    fn tell(
        &mut self,
        now: Time,
        at: usize,
        keys: &BTreeSet<Key>,
        is_crowded: bool,
        parcels: &mut Vec<(Incarnation, Vec<Rumour>)>,
    ) {
        let neighbour = self.neighbours[at];
        let mut parcel = Vec::new();
        let (mut bytes, mut before) = (0, 0);
        let keys: Vec<&Key> = keys.iter().filter(|key| self.is_new_to(at, key)).collect();
        for key in keys {
            let is_full = before + bytes >= MAX_TOLD_BYTES;
            if (is_crowded || is_full) && !matches!(key, Key::Decided(_)) {
                let again = now + self.interval * if is_crowded { CROWDED_INTERVALS } else { 1 };
                let (waiting, due) = if self.near.contains(&at) {
                    (&mut self.fresh, &mut self.due)
                } else {
                    (&mut self.late, &mut self.late_again)
                };
                waiting.insert(*key);
                *due = Some(due.map_or(again, |at| at.min(again)));
                continue;
            }
            let Some((rumour, size)) = self.hand_to(at, key) else {
                continue;
            };
            bytes += size;
            parcel.push(rumour);
            if parcel.len() == MAX_PARCEL || bytes >= MAX_PARCEL_BYTES {
                parcels.push((neighbour, std::mem::take(&mut parcel)));
                before += std::mem::take(&mut bytes);
            }
        }
        if !parcel.is_empty() {
            parcels.push((neighbour, parcel));
        }
    }

    /// Whether a neighbour is not known to have all of this.
    fn is_new_to(&self, at: usize, key: &Key) -> bool {
        match key {
            Key::Tally(what) => {
                let tally = self.tallies.get(what);
                tally.is_some_and(|tally| !tally.by.without(&tally.had_by[at]).is_empty())
            }
            key => {
                let single = self.singles.get(key);
                single.is_some_and(|single| !single.had_by.contains(&at))
            }
        }
    }

    /// What a neighbour lacks of this, and about how large that is; the neighbour has it from now on.
    fn hand_to(&mut self, at: usize, key: &Key) -> Option<(Rumour, usize)> {
        match key {
            Key::Tally(what) => {
                let tally = self.tallies.get_mut(what)?;
                let by = tally.by.without(&tally.had_by[at]);
                tally.had_by[at].merge(&by);
                let by = by.into_wire();
                let size = by.len();
                Some((Rumour::Tally { what: *what, by }, size))
            }
            key => {
                let single = self.singles.get_mut(key)?;
                single.had_by.insert(at);
                Some((single.rumour.clone(), single.bytes))
            }
        }
    }
}

/// Whether a member is lost, at least to one other: then the tree may be broken.
fn is_of_a_loss(rumour: &Rumour) -> bool {
    match rumour {
        Rumour::Opinion { suspicions, .. } => !suspicions.is_empty(),
        Rumour::Certificate(_) => true,
        _ => false,
    }
}

fn key_of(rumour: &Rumour) -> (Key, u64) {
    match rumour {
        Rumour::Opinion { of, version, .. } => (Key::Opinion(*of), u64::from(*version)),
        Rumour::Ask { by, .. } => (Key::Ask(*by), 0),
        Rumour::Prepare { ballot, .. } => (Key::Prepare(*ballot), 0),
        Rumour::Accept { ballot, .. } => (Key::Accept(*ballot), 0),
        Rumour::Value(change) => (Key::Value(change.digest()), 0),
        // Of two proofs of one death the one with the later vote says more. Two ballots of one round count as
        // one: a vote is on all lifelines before it is told to anyone (R2), so what only one of the proofs
        // shows went nowhere.
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
mod tests;

//! Where to ask besides the seeds: addresses that are found while the node runs.
//!
//! ```text
//!   names, files, multicast, an application's own ──► set ─────────┐
//!   locators ── Known ──► tell ───────────────────────────────────┼─► turn: some of them with each round of Seeks
//!   other seekers ── Seek { others } ──► tell (only with `expect`) ┘
//!   locators ◄── Seek ── due                  asked for addresses; hearing the Seek they know this node
//! ```
//!
//! A hint is only an address to ask. It is no vote, no candidate and no member: it counts for nothing until
//! the node there has sent a frame that opens. So hints may be missing, late, wrong, out of date, or
//! different at each node; the worst result is that nodes find each other later.
//!
//! Hints do not decide which nodes may found. They can only delay a founding: while an address is yet to be
//! asked, or a locator has heard of a member lately, nobody founds, for a bounded time (see [`founding`]). A
//! source that has said nothing yet may be about to name a member, so it counts like a locator that is yet to
//! be asked. And as long as sources may still name nodes, there may be others, even if all nodes named so far
//! are accounted for.
//!
//! # Bounds
//! [`MAX_HINTS`] addresses from outside, as many that were told, and [`MAX_LOCATORS`] locators. A round of
//! Seeks goes to [`PER_ROUND`] of the hints, by turns. An address that was told, and is not told again, is
//! forgotten after a minute; the oldest makes room. Only as many answers of locators are read as were asked
//! for.
//!
//! # When…
//! - *no hint is there*: the node asks its seeds, and waits;
//! - *a source is silent*: nobody founds for as long as locators get to tell of members. Then the source
//!   counts as one that knows nobody;
//! - *hints are wrong*: frames go to nowhere, or to nodes that refuse them;
//! - *hints change*: the new addresses are asked at once, the old ones no more. A node that has answered
//!   stays known by its answers;
//! - *a locator dies*: the node goes on asking it, at a slower pace, while everything else goes on. What the
//!   locator told lasts a minute;
//! - *a locator gives another address than the one at which it is asked*, as behind a proxy: it counts as the
//!   one that owes an answer, if no other locator owes one that has not come;
//! - *a locator starts again*: a member that has lost a path to it, or registered with it some heartbeats
//!   ago, tells it anew that it is there. Until all members had time for that, nodes without a view take the
//!   locator's answers for incomplete.
//!
//! [`founding`]: crate::membership::seek::founding

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::membership::KnownNode;

use crate::config::is_link_local;
use crate::{Profile, Time};

/// At most so many addresses are kept of what [`Node::set_hints`](crate::Node::set_hints) gives, and as many
/// of what others tell.
pub const MAX_HINTS: usize = 256;
/// At most so many locators are asked.
pub const MAX_LOCATORS: usize = 16;
/// Hints asked in one round.
const PER_ROUND: usize = 16;
/// An address that was told is forgotten after this long.
const TOLD_FOR: Duration = Duration::from_secs(60);
/// A member tells a locator that answers of itself this many heartbeats apart, up to twice as many.
pub(crate) const REGISTER: u32 = 6;
/// A locator that does not answer is tried this many heartbeats apart.
pub(crate) const REGISTER_SILENT: u32 = 4;
/// After this many heartbeats every member that can reach a locator has told it of itself. A member that has
/// not told it for so long is gone, or cut off from it.
const REGISTERED_WITHIN: u32 = 16;
/// At most so many addresses at which nobody listens are remembered.
const MAX_ABSENT: usize = 1024;
/// An address at which nobody listened is looked at again after this many times the wait before a founding.
const NOBODY_FOR: u32 = 4;

/// Addresses found at run time. New hints replace those given before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// Where nodes of the cluster may be. The first [`MAX_HINTS`] are used.
    pub nodes: Vec<SocketAddr>,
    /// Where locators may be. The first [`MAX_LOCATORS`] are used.
    pub locators: Vec<SocketAddr>,
    /// Whether further addresses may be named later.
    pub sources: Sources,
}

/// What finds addresses, and whether it has looked yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sources {
    /// No source could name others: what is given here was written out.
    #[default]
    None,
    /// At least one source has said nothing yet, neither an address nor that it failed. It may be about to
    /// name a member.
    Silent,
    /// Each source was looked at once, and may name others at any time.
    Heard,
}

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    /// When it was asked first, and last.
    since: Option<Time>,
    at: Option<Time>,
    answered: Option<Time>,
}

/// What a locator said last.
#[derive(Debug)]
struct Word {
    at: Time,
    /// For how long the locator had run.
    up: Duration,
    /// Members, and how long ago the locator had heard them.
    members: Vec<(SocketAddr, Duration)>,
}

/// The addresses to ask, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Contacts {
    hinted: BTreeSet<SocketAddr>,
    told: BTreeMap<SocketAddr, Time>,
    locators: BTreeMap<SocketAddr, Asked>,
    sources: Sources,
    /// When all sources had been heard.
    heard_all: Option<Time>,
    /// What locators said, by the address that each gives as its own. It need not be the address where it was
    /// asked.
    words: BTreeMap<SocketAddr, Word>,
    /// How many more answers of locators may be read.
    owed: usize,
    /// Where nobody listened, and when that was seen.
    nobody: BTreeMap<SocketAddr, Time>,
    /// The last address asked by turns.
    last: Option<SocketAddr>,
}

impl Contacts {
    /// Replaces the hints given from outside. Returns whether an address or a locator is new.
    pub(crate) fn set(&mut self, now: Time, hints: Hints) -> bool {
        if hints.sources != self.sources {
            self.heard_all = (hints.sources == Sources::Heard).then_some(now);
            self.sources = hints.sources;
        }
        let hinted: BTreeSet<SocketAddr> = hints.nodes.into_iter().take(MAX_HINTS).collect();
        let locators: BTreeSet<SocketAddr> = hints.locators.into_iter().take(MAX_LOCATORS).collect();
        let news = !hinted.is_subset(&self.hinted)
            || locators
                .iter()
                .any(|locator| !self.locators.contains_key(locator));
        self.hinted = hinted;
        self.locators = locators
            .into_iter()
            .map(|locator| (locator, self.locators.get(&locator).copied().unwrap_or_default()))
            .collect();
        news
    }

    /// Another node told of a node at an address. Returns whether that is news.
    pub(crate) fn tell(&mut self, now: Time, addr: SocketAddr) -> bool {
        let leads_nowhere =
            addr.ip().is_unspecified() || addr.ip().is_multicast() || is_link_local(addr.ip());
        if addr.port() == 0 || leads_nowhere {
            return false;
        }
        let news = self.told.insert(addr, now).is_none() && !self.hinted.contains(&addr);
        if self.told.len() > MAX_HINTS {
            let oldest = self.told.iter().min_by_key(|(_, at)| **at).map(|(addr, _)| *addr);
            oldest.map(|oldest| self.told.remove(&oldest));
        }
        assert!(
            self.told.len() <= MAX_HINTS && self.hinted.len() <= MAX_HINTS,
            "hints: {} were told, and {} given",
            self.told.len(),
            self.hinted.len()
        );
        news
    }

    /// Whether sources may name further addresses at any time.
    pub(crate) fn may_grow(&self) -> bool {
        self.sources != Sources::None
    }

    /// When all sources had been looked at once, if they have been.
    pub(crate) fn heard_all(&self) -> Option<Time> {
        self.heard_all
    }

    /// The addresses to ask in this round.
    pub(crate) fn turn(&mut self, now: Time) -> Vec<SocketAddr> {
        self.told.retain(|_, at| now.since(*at) < TOLD_FOR);
        self.nobody.retain(|_, at| now.since(*at) < TOLD_FOR);
        let all = self.asked();
        let after = |addr: &&SocketAddr| self.last.is_none_or(|last| **addr > last);
        let turn: Vec<SocketAddr> = all
            .iter()
            .filter(after)
            .chain(all.iter().filter(|addr| !after(addr)))
            .take(PER_ROUND)
            .copied()
            .collect();
        self.last = turn.last().copied();
        turn
    }

    /// How many rounds it takes to ask all addresses; at least 1.
    pub(crate) fn rounds(&self) -> u32 {
        let rounds = self.asked().len().div_ceil(PER_ROUND).max(1);
        u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    /// How many addresses are known.
    pub(crate) fn known(&self) -> usize {
        self.asked().len()
    }

    /// All addresses where nodes may be.
    pub(crate) fn asked(&self) -> BTreeSet<SocketAddr> {
        self.hinted.iter().chain(self.told.keys()).copied().collect()
    }

    /// The locators to ask now: those that answered lately after a pause of `known`, the others after
    /// `silent`.
    pub(crate) fn due(&mut self, now: Time, known: Duration, silent: Duration) -> Vec<SocketAddr> {
        let mut due = Vec::new();
        for (addr, asked) in &mut self.locators {
            let heard = asked.answered.is_some_and(|at| now.since(at) < known * 3);
            let pace = if heard { known } else { silent };
            if asked.at.is_none_or(|at| now.since(at) >= pace) {
                asked.since.get_or_insert(now);
                asked.at = Some(now);
                self.owed = (self.owed + 1).min(2 * MAX_LOCATORS);
                due.push(*addr);
            }
        }
        due
    }

    /// This node has become a member: it tells its locators at once.
    pub(crate) fn register_anew(&mut self) {
        for asked in self.locators.values_mut() {
            asked.at = None;
        }
    }

    /// A locator answered. Returns whether the answer counts: nobody may tell more than this node asked for.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        addr: SocketAddr,
        up: Duration,
        nodes: &[KnownNode],
    ) -> bool {
        if self.owed == 0 {
            return false;
        }
        self.owed -= 1;
        self.nobody.remove(&addr);
        if let Some(asked) = self.locators.get_mut(&addr) {
            asked.answered = Some(now);
        }
        let members = nodes.iter().filter(|node| node.member);
        let members = members.map(|node| (node.addr, Duration::from_secs(u64::from(node.age_s))));
        let members = members.collect();
        self.words.insert(addr, Word { at: now, up, members });
        if self.words.len() > MAX_LOCATORS {
            let oldest = self.words.iter().min_by_key(|(_, word)| word.at);
            oldest
                .map(|(addr, _)| *addr)
                .map(|oldest| self.words.remove(&oldest));
        }
        self.answered_elsewhere(now);
        assert!(
            self.words.len() <= MAX_LOCATORS && self.owed <= 2 * MAX_LOCATORS,
            "hints: {} locators have spoken, and {} answers are owed",
            self.words.len(),
            self.owed
        );
        true
    }

    /// Locators that give other addresses than those at which they are asked: if as many have spoken as
    /// answers are missing, each missing one is theirs.
    fn answered_elsewhere(&mut self, now: Time) {
        let nobody = &self.nobody;
        let owes = |(addr, asked): &(&SocketAddr, &mut Asked)| {
            asked.at > asked.answered && nobody.get(*addr).copied() < asked.at
        };
        let is_elsewhere = |addr: &SocketAddr| !self.locators.contains_key(addr);
        let words = self.words.iter().filter(|(addr, _)| is_elsewhere(addr));
        let spoken: Vec<Time> = words.map(|(_, word)| word.at).collect();
        let owing = self.locators.iter_mut().filter(owes);
        let owing: Vec<&mut Asked> = owing.map(|(_, asked)| asked).collect();
        let asked_last = owing.iter().filter_map(|asked| asked.at).max();
        if spoken.iter().filter(|at| Some(**at) >= asked_last).count() >= owing.len() {
            for asked in owing {
                asked.answered = Some(now);
            }
        }
    }

    /// The path to an address does not work. If a locator answered there, it may have forgotten this node.
    pub(crate) fn trouble(&mut self, addr: SocketAddr) {
        if let Some(asked) = self.locators.get_mut(&addr)
            && asked.answered.take().is_some()
            && !planted!(RegisterSeldom)
        {
            asked.at = None;
        }
    }

    /// Nobody listens at an address.
    pub(crate) fn nobody(&mut self, now: Time, addr: SocketAddr) {
        if self.nobody.len() < MAX_ABSENT {
            self.nobody.insert(addr, now);
        }
    }

    /// A node is there.
    pub(crate) fn somebody(&mut self, addr: SocketAddr) {
        self.nobody.remove(&addr);
    }

    /// Whether each node that is asked has answered, which `heard` says, or is not there; and each locator as
    /// well.
    pub(crate) fn all_accounted(
        &self,
        now: Time,
        profile: &Profile,
        asked: BTreeSet<SocketAddr>,
        heard: impl Fn(&SocketAddr) -> bool,
    ) -> bool {
        let for_long = profile.founding_wait * NOBODY_FOR;
        let absent = |addr: &SocketAddr| self.nobody.get(addr).is_some_and(|at| now.since(*at) < for_long);
        let answers = |asked: &Asked| asked.answered.is_some_and(|at| now.since(at) < for_long);
        asked.iter().all(|addr| heard(addr) || absent(addr))
            && self
                .locators
                .iter()
                .all(|(addr, asked)| answers(asked) || absent(addr))
    }

    /// Whether this node may yet hear of a member:
    /// - a locator was started so lately that members need not have found it;
    /// - a locator has lately heard a member for which `heard` is not true;
    /// - there are locators, and none has ever answered: a locator that refuses may be a process of the same
    ///   boot that comes up a moment later;
    /// - a source has not been looked at yet: it may name a member, or a locator.
    pub(crate) fn may_be_members(
        &self,
        now: Time,
        profile: &Profile,
        heard: impl Fn(&SocketAddr) -> bool,
    ) -> bool {
        let within = profile.heartbeat * REGISTERED_WITHIN;
        // Ages are told in full seconds.
        let lately = within + Duration::from_secs(1);
        let new = |asked: &Asked| asked.since.is_none_or(|since| now.since(since) < within);
        let unheard = self.words.is_empty() && self.locators.values().any(new);
        let told = self.words.values().any(|word| {
            let since = now.since(word.at);
            let young = word.up + since < within && !planted!(BelieveAFreshLocator);
            let member = |(addr, age): &(SocketAddr, Duration)| *age + since < lately && !heard(addr);
            since < within && (young || word.members.iter().any(member))
        });
        self.sources == Sources::Silent || told || unheard && !planted!(BelieveAFreshLocator)
    }

    pub(crate) fn is_locator(&self, addr: SocketAddr) -> bool {
        self.locators.contains_key(&addr)
    }

    /// The locators that have not answered for this long.
    pub(crate) fn silent_locators(&self, now: Time, within: Duration) -> impl Iterator<Item = SocketAddr> {
        self.locators
            .iter()
            .filter(move |(_, asked)| asked.answered.is_none_or(|at| now.since(at) > within))
            .map(|(addr, _)| *addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn hints(ports: std::ops::Range<u16>) -> Hints {
        Hints {
            nodes: ports.map(addr).collect(),
            ..Hints::default()
        }
    }

    #[test]
    fn all_hints_have_their_turn_and_none_twice_in_a_round() {
        let mut whom = Contacts::default();
        assert!(whom.set(Time::ZERO, hints(1..41)));
        assert!(!whom.set(Time::ZERO, hints(1..41)), "nothing new");
        assert_eq!(whom.rounds(), 3);
        let mut asked = BTreeSet::new();
        for _ in 0..3 {
            let turn = whom.turn(Time::ZERO);
            let different: BTreeSet<_> = turn.iter().collect();
            assert_eq!(different.len(), turn.len());
            asked.extend(turn);
        }
        assert_eq!(asked.len(), 40);
    }

    #[test]
    fn hints_are_bounded_and_what_is_not_told_again_is_forgotten() {
        let mut whom = Contacts::default();
        whom.set(Time::ZERO, hints(1..1000));
        assert_eq!(whom.asked().len(), MAX_HINTS);
        whom.set(Time::ZERO, Hints::default());
        let later = |seconds| Time::ZERO + Duration::from_secs(seconds);
        for port in 1..1000 {
            assert!(whom.tell(later(u64::from(port) / 100), addr(port)));
        }
        assert_eq!(whom.asked().len(), MAX_HINTS);
        assert!(whom.asked().contains(&addr(999)), "the latest are kept");
        assert!(!whom.tell(later(40), addr(999)));
        whom.turn(later(75));
        assert_eq!(whom.asked(), BTreeSet::from([addr(999)]));
        assert!(!whom.tell(later(75), SocketAddr::from(([0, 0, 0, 0], 7400))));
        assert!(!whom.tell(later(75), addr(0)));
        assert!(!whom.tell(later(75), "[fe80::1]:7400".parse().unwrap()));
    }

    fn with_two_locators() -> (Contacts, Vec<SocketAddr>) {
        let (mut whom, locators) = (Contacts::default(), vec![addr(1), addr(2)]);
        let hints = Hints {
            locators: locators.clone(),
            ..Hints::default()
        };
        whom.set(Time::ZERO, hints);
        (whom, locators)
    }

    #[test]
    fn a_locator_that_answers_is_asked_less_often() {
        let (mut whom, locators) = with_two_locators();
        let (known, silent) = (Duration::from_secs(10), Duration::from_secs(1));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        assert_eq!(whom.due(at(0), known, silent), locators);
        assert!(whom.answered(at(0), addr(1), known, &[]));
        assert_eq!(whom.due(at(1), known, silent), [addr(2)]);
        assert_eq!(whom.silent_locators(at(1), known).collect::<Vec<_>>(), [addr(2)]);
        assert_eq!(whom.due(at(10), known, silent), locators);
        assert_eq!(whom.due(at(31), known, silent), locators);
        assert_eq!(whom.due(at(32), known, silent), locators, "it has fallen silent");
    }

    #[test]
    fn locators_that_give_other_addresses_than_those_where_they_are_asked_have_answered() {
        let (mut whom, locators) = with_two_locators();
        let pause = Duration::from_secs(10);
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let silent = |whom: &Contacts, seconds| whom.silent_locators(at(seconds), pause).collect::<Vec<_>>();
        whom.due(at(0), pause, pause);
        whom.answered(at(1), addr(8), pause, &[]);
        assert_eq!(silent(&whom, 1), locators, "it may be either of the two");
        whom.answered(at(1), addr(9), pause, &[]);
        assert!(silent(&whom, 1).is_empty());
        // One of them gives its own address now.
        whom.due(at(20), pause, pause);
        whom.answered(at(21), addr(9), pause, &[]);
        assert_eq!(silent(&whom, 21), locators);
        whom.answered(at(21), addr(1), pause, &[]);
        assert!(silent(&whom, 21).is_empty());
        // Nobody listens at the other, so the answer is that of the first.
        whom.due(at(40), pause, pause);
        whom.nobody(at(41), addr(2));
        whom.answered(at(41), addr(9), pause, &[]);
        assert_eq!(silent(&whom, 41), [addr(2)]);
    }
}

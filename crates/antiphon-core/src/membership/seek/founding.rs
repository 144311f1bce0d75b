//! Founding: slot 0, whose acceptors are named by their addresses (R4).
//!
//! ```text
//!   Seek ──► all seeds, again and again          candidates answer with their own Seek, members with Here
//!   all seeds present: at once ─┐
//!   a majority, after a while ──┼─► lowest address prepares ──► promises ──► accepts ──► Decide
//!   `expect` nodes present ─────┘
//! ```
//!
//! That `expect` nodes are there is not enough by itself. A cluster may live beside them, which has the
//! state, and they may be about to hear of it. So a founding waits for a moment, unless each node that is
//! asked is there without a view, or is not there at all. Where sources may name others at any time (names,
//! files, multicast), a node cannot know that these are all, so it waits for that moment in any case. And a
//! node has no part in a founding at all if it knows of a cluster, or has a locator that may yet tell of one,
//! or a source that was not looked at yet ([`seek`]).
//!
//! A view whose members have no votes at all could decide nothing, so no node proposes or accepts one.
//! However many nodes of weight 0 have come, they wait for one that has a vote.
//!
//! The configuration names the acceptors, in one of two ways. Candidates that differ in it do not count each
//! other:
//! - **seeds**: the addresses in the list, which is the same at each node; a quorum is their majority;
//! - **`expect` N**: the nodes that are there; a quorum is N of them. Two such quorums have a node in common
//!   as long as fewer than 2N nodes take part, whatever each node has heard of the others. A majority of N
//!   would be enough only if never more than N nodes were started; and with it, two of three nodes that were
//!   not told of the third would found at once.
//!
//! What is found out at run time (names, files, multicast, locators) says where to ask, and nothing more:
//! lists that differ between nodes must not decide which nodes may vote. So with such [`hints`] alone,
//! without `expect` or `found`, a node waits for a cluster for ever, and says so.
//!
//! A node that has just been started may have voted before, and forgotten it. So it votes once all nodes that
//! it asks have answered, or have had the time to. The proposer has heard its voters, but may have heard a
//! member before that node was one. Without this wait, a seed that is started again votes twice in a row, for
//! two clusters.
//!
//! An acceptor's present incarnation speaks for its address, and its promises are those of that incarnation.
//! A proposal is dropped as soon as its proposer meets an acceptor that was started again, since that one's
//! former promises are forgotten. Round 0 belongs to no node here: after a restart the same address would own
//! it twice. A node that hears of a primary view joins it instead of founding. A node that was ever a member
//! of a cluster in this process does not found, and neither does a node that its own seed list does not name.
//!
//! When a candidate dies before phase 2, the next in order of address takes over after a while. If it dies
//! with its value accepted somewhere, phase 1 finds the value. If it dies after a decision, any candidate
//! that retries the slot arrives at the same view; a candidate that finds the former incarnation of its own
//! address in it joins it instead. If each member of that view was started again before it heard of the
//! decision, there is nobody to join, and the view is void: a candidate that has waited for its members as
//! long as for any silent node, and hears another incarnation at each of their addresses, founds as if nobody
//! had voted for it.
//!
//! If the candidate that died was one of two founders, the other one is half of the view, without its elder
//! and without a proof of the elder's death: it waits for a person ([`recovery`]). The founder that was
//! started again, one of two, says so. With `expect`, a node that started at another address takes part from
//! the next ballot on. If all die at once, their votes die too, and the nodes that start next found anew by
//! the same rule.
//!
//! [`recovery`]: crate::membership::recovery
//! [`seek`]: crate::membership::seek
//! [`hints`]: crate::membership::contacts::hints

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::membership::{AcceptedValue, MembershipMessage, NodeRecord, SlotMessage, Voted};
use antiphon_wire::{Incarnation, Lineage, NodeView, NodeViewId, ViewId};

use crate::membership::agree::proposer::to_wire;
use crate::membership::agree::slot::{Acceptance, Proposal, Slot, Step, Value, Voters};
use crate::membership::context::{Context, Fate, Past, member_of};
use crate::membership::view::check;
use crate::text::printable;
use crate::{Alone, Awaits, Config, Event, Profile, Time};

/// A member that lost a node dials it again after half a second at the latest. So it may take this long until
/// it is heard.
const DIALLED_BACK: Duration = Duration::from_millis(600);

/// Another node that has no view either.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) incarnation: Incarnation,
    pub(crate) record: NodeRecord,
    pub(crate) heard: Time,
}

/// A founding view: its voters are addresses.
#[derive(Debug, Clone, PartialEq)]
struct FoundingView(NodeView);

impl Value<SocketAddr> for FoundingView {
    fn voters(&self) -> Voters<SocketAddr> {
        Voters {
            members: self
                .0
                .members
                .iter()
                .map(|member| (member.addr, u32::from(member.weight)))
                .collect(),
            senior_breaks_tie: true,
        }
    }
}

/// This node's part in the founding slot.
#[derive(Debug)]
pub(crate) struct Founding {
    seeds: BTreeSet<SocketAddr>,
    digest: u64,
    slot: Slot<SocketAddr, FoundingView>,
    /// Since when enough candidates are there.
    ready: Option<Time>,
    /// Since when this node waits for no other.
    complete: Option<Time>,
    retry: Option<Time>,
    /// Since when this node knows of a decision, and is no member of what was decided.
    decided: Option<Time>,
    /// The lineage that was decided and has no living member.
    void: Option<Lineage>,
    /// What keeps the nodes that are there from founding.
    clash: Option<String>,
}

/// The configured seeds, each once, in order.
pub(crate) fn seeds_of(config: &Config) -> BTreeSet<SocketAddr> {
    config.seeds.iter().copied().collect()
}

/// What candidates compare: the number expected, or else the seeds.
pub(crate) fn digest_of(config: &Config) -> u64 {
    // FNV-1a: the hash only has to tell configurations apart; it need not resist an attacker.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut feed = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    if config.expect.is_none() {
        for seed in seeds_of(config) {
            feed(&seed.to_string());
        }
    }
    feed(&config.expect.unwrap_or(0).to_string());
    hash
}

/// For how long a founding waits for nodes that have not answered.
pub(crate) fn wait(profile: &Profile) -> Duration {
    profile.founding_wait.max(DIALLED_BACK)
}

/// Whether this node founds without asking anyone, and why.
pub(crate) fn founds_at_once(config: &Config) -> Option<Alone> {
    if config.is_told_to_found() {
        return Some(Alone::Told);
    }
    config.has_nobody_to_ask().then_some(Alone::NobodyElse)
}

/// Whether this node is an acceptor of the founding slot.
pub(crate) fn is_founder(config: &Config) -> bool {
    config.expect.is_some() || (config.seeds.contains(&config.addr) && config.names_others())
}

/// The founding view of these nodes, by address.
fn compose(cx: &mut Context, now: Time, nodes: &BTreeMap<SocketAddr, (Incarnation, NodeRecord)>) -> NodeView {
    let mut names = BTreeSet::new();
    let members: Vec<_> = nodes
        .values()
        .filter(|(_, record)| names.insert(record.name.clone()))
        .map(|(incarnation, record)| member_of(*incarnation, record))
        .collect();
    NodeView {
        lineage: new_lineage(cx, now, None),
        id: NodeViewId::Primary {
            id: ViewId { epoch: 1, counter: 1 },
        },
        number: founding_number(cx, now),
        joined: members.iter().map(|member| member.incarnation).collect(),
        members,
        departed: Vec::new(),
        merged: Vec::new(),
        wire_level: nodes
            .values()
            .map(|(_, record)| record.wire_level)
            .min()
            .unwrap_or(1),
    }
}

/// R5: seconds since 2025-01-01, so that numbers rise across foundings without a disk.
pub(crate) fn founding_number(cx: &Context, now: Time) -> u32 {
    const YEAR_2025_S: u64 = 1_735_689_600;
    if planted!(NumberWithoutClock) {
        return 1;
    }
    u32::try_from((unix_ms(cx, now) / 1_000).saturating_sub(YEAR_2025_S))
        .unwrap_or(1)
        .clamp(1, i32::MAX as u32)
}

fn unix_ms(cx: &Context, now: Time) -> u64 {
    cx.config.unix_time_ms.saturating_add(now.as_micros() / 1_000)
}

/// R5: a lineage founded now, and later than all lineages that this process has been in, `known` among them.
pub(crate) fn new_lineage(cx: &mut Context, now: Time, known: Option<Lineage>) -> Lineage {
    let random = cx.random.next_u128();
    if planted!(LineageWithoutTime) {
        return Lineage(random);
    }
    let seen = cx.past.iter().map(|past| past.founded_ms);
    let seen = seen.chain(known.map(Lineage::founded_ms));
    let later = seen.max().map_or(0, |seen_ms| seen_ms.saturating_add(1));
    Lineage::founded_at(unix_ms(cx, now).max(later), random)
}

/// A cluster of this node alone.
pub(crate) fn found_alone(cx: &mut Context, now: Time, reason: Alone) -> NodeView {
    cx.event(Event::Alone { reason });
    alone(cx, now)
}

fn alone(cx: &mut Context, now: Time) -> NodeView {
    let nodes = BTreeMap::from([(cx.config.addr, (cx.me, cx.record()))]);
    compose(cx, now, &nodes)
}

/// Policy `any`: a cluster of this node alone, which was a member before and has lost all others. The epoch
/// shows that.
pub(crate) fn found_anew(cx: &mut Context, now: Time, past: &Past) -> NodeView {
    cx.event(Event::Alone {
        reason: Alone::NobodyLeft,
    });
    go_on_from(cx, now, past)
}

/// The first view of a lineage of this node alone, after the views of which it was a member.
pub(crate) fn go_on_from(cx: &mut Context, now: Time, past: &Past) -> NodeView {
    let mut view = alone(cx, now);
    let epoch = past.origin.view.epoch.saturating_add(1);
    view.id = NodeViewId::Primary {
        id: ViewId { epoch, counter: 1 },
    };
    view.number = number_after(cx, now, past.number);
    view
}

/// R5: a number above all that this process has seen, `number` among them, and by the clock above what others
/// may have seen.
pub(crate) fn number_after(cx: &Context, now: Time, number: u32) -> u32 {
    let seen = cx.past.as_ref().map_or(0, |past| past.number).max(number);
    let next = seen.saturating_add(1).min(check::MAX_NUMBER);
    next.max(founding_number(cx, now))
}

impl Founding {
    pub(crate) fn new(config: &Config) -> Self {
        let seeds = seeds_of(config);
        let slot = Slot::new(config.addr, voters(&seeds), None);
        Self {
            seeds,
            digest: digest_of(config),
            slot,
            ready: None,
            complete: None,
            retry: None,
            decided: None,
            void: None,
            clash: None,
        }
    }

    /// This node has no part in a founding now. When it has one again, it waits anew.
    pub(crate) fn rest(&mut self) {
        (self.ready, self.complete) = (None, None);
        self.slot.give_up();
    }

    /// A candidate was started again, and has forgotten what it promised.
    pub(crate) fn forgotten(&mut self) {
        self.slot.give_up();
    }

    /// Whether this node has voted for a view with this member.
    pub(crate) fn names(&self, member: Incarnation) -> bool {
        let accepted = self.slot.vote().accepted.as_ref();
        accepted.is_some_and(|accepted| accepted.value.0.contains(member))
    }

    /// What keeps the nodes that are there from founding, if that was found since the last call.
    pub(crate) fn take_clash(&mut self) -> Option<String> {
        self.clash.take()
    }

    /// Proposes if it is time to found. `accounted`: whether each node that is asked is a candidate, or is
    /// not there.
    pub(crate) fn tick(
        &mut self,
        cx: &mut Context,
        now: Time,
        candidates: &BTreeMap<SocketAddr, Candidate>,
        fresh: Duration,
        accounted: bool,
    ) {
        let mut present = present(now, candidates, fresh);
        present.insert(cx.config.addr);
        let (there, needed) = self.count(cx, &present);
        let all = match cx.config.expect {
            Some(_) => there >= needed && accounted,
            None => there == self.seeds.len() && accounted,
        };
        let wait = wait(&cx.config.profile);
        let enough = there >= needed;
        if !enough && !planted!(FoundAlone) {
            (self.ready, self.complete) = (None, None);
            return;
        }
        let last = *self.ready.get_or_insert(now) + wait;
        self.complete = all.then(|| self.complete.unwrap_or(now));
        // The turns are counted from the moment at which the first node may propose. Otherwise the turns of
        // several nodes that waited before would be over at once.
        let base = self.complete.map_or(last, |complete| complete.min(last));
        if now < base {
            return;
        }
        if planted!(FoundAlone) && !enough {
            let view = found_alone(cx, now, Alone::Told);
            cx.fate = Some(Fate::Seated(Box::new(view)));
            return;
        }
        // One proposer at a time: the next in order of address takes over only if nothing came of it.
        let rank = u32::try_from(present.range(..cx.config.addr).count())
            .unwrap_or(u32::MAX)
            .min(64);
        let turn = base + (cx.config.profile.founding_wait / 2) * rank;
        let due = self.retry.is_none_or(|retry| retry <= now);
        match self.slot.proposal() {
            Proposal::Decided { value } => {
                let patience = cx.config.profile.unreachable_after;
                let long = self.decided.is_some_and(|since| now.since(since) >= patience);
                if long && nobody_lives_in(&value.0, cx, now, candidates, fresh) {
                    self.void = Some(value.0.lineage);
                    self.slot.annul();
                }
            }
            _ if now >= turn && due => {
                if let Some(expected) = cx.config.expect {
                    self.slot.set_voters(electorate(&present, expected));
                }
                let step = self.slot.prepare(cx.me);
                self.perform(cx, now, candidates, fresh, step);
            }
            _ => {}
        }
    }

    /// How many nodes that may found are there, and how many are needed.
    fn count(&self, cx: &Context, present: &BTreeSet<SocketAddr>) -> (usize, usize) {
        match cx.config.expect {
            Some(_) if planted!(FoundByHints) => (present.len(), cx.contacts.known() / 2 + 1),
            Some(expected) => (present.len(), usize::from(expected)),
            None => (
                present.intersection(&self.seeds).count(),
                self.seeds.len() / 2 + 1,
            ),
        }
    }

    /// What ends the waiting.
    pub(crate) fn awaits(
        &self,
        cx: &Context,
        now: Time,
        candidates: &BTreeMap<SocketAddr, Candidate>,
        fresh: Duration,
    ) -> Awaits {
        let mut present = present(now, candidates, fresh);
        present.insert(cx.config.addr);
        let (present, needed) = self.count(cx, &present);
        Awaits::Founders { present, needed }
    }

    /// A message of the founding slot, from a candidate.
    pub(crate) fn handle(
        &mut self,
        cx: &mut Context,
        now: Time,
        candidates: &BTreeMap<SocketAddr, Candidate>,
        fresh: Duration,
        from: (Incarnation, SocketAddr),
        message: SlotMessage,
    ) {
        let (sender, addr) = from;
        let answer = match message {
            SlotMessage::Prepare { ballot, .. } => match self.slot.on_prepare(ballot, &[]) {
                Ok(accepted) => {
                    let accepted = accepted.map(|accepted| to_wire(&plain(accepted)));
                    SlotMessage::Promise { ballot, accepted }
                }
                Err(promised) => SlotMessage::Nack {
                    ballot,
                    promised,
                    hears: Vec::new(),
                },
            },
            SlotMessage::Accept { ballot, value, .. } => {
                if !check::primary_is_sound(&value) || self.is_void(&value) {
                    return;
                }
                match self.slot.on_accept(ballot, FoundingView(*value), &[]) {
                    Ok(()) => SlotMessage::Accepted { ballot },
                    Err(promised) => SlotMessage::Nack {
                        ballot,
                        promised,
                        hears: Vec::new(),
                    },
                }
            }
            SlotMessage::Promise { ballot, accepted } => {
                let told = accepted.map(founding);
                if told.as_ref().is_none_or(Option::is_some) {
                    let told = told.flatten().filter(|told| !self.is_void(&told.value.0));
                    let step = self.slot.on_promise(&addr, ballot, told);
                    self.perform(cx, now, candidates, fresh, step);
                }
                return;
            }
            SlotMessage::Accepted { ballot } => {
                let step = self.slot.on_accepted(&addr, ballot);
                self.perform(cx, now, candidates, fresh, step);
                return;
            }
            // No seed casts votes of its own here: a founding has a leader.
            SlotMessage::Fast { .. } | SlotMessage::Cast { .. } => return,
            SlotMessage::Nack { promised, .. } => {
                self.slot.on_nack(promised);
                let pause = cx.jitter(cx.config.profile.retransmit);
                self.retry = Some(now + pause);
                return;
            }
        };
        cx.send(
            sender,
            MembershipMessage::Founding {
                seeds: self.digest,
                message: answer,
            },
        );
    }

    fn perform(
        &mut self,
        cx: &mut Context,
        now: Time,
        candidates: &BTreeMap<SocketAddr, Candidate>,
        fresh: Duration,
        step: Step<SocketAddr, FoundingView>,
    ) {
        let me = cx.config.addr;
        match step {
            Step::Wait => {}
            Step::Prepare { ballot, used } => {
                let patience = cx.jitter(cx.config.profile.retransmit * 4);
                self.retry = Some(now + patience);
                if let Ok(accepted) = self.slot.on_prepare(ballot, &used) {
                    let message = SlotMessage::Prepare {
                        ballot,
                        proofs: Vec::new(),
                        removing: Vec::new(),
                    };
                    self.broadcast(cx, candidates, &message);
                    let step = self.slot.on_promise(&me, ballot, accepted);
                    self.perform(cx, now, candidates, fresh, step);
                }
            }
            Step::Choose => {
                let mut nodes: BTreeMap<SocketAddr, (Incarnation, NodeRecord)> = candidates
                    .iter()
                    .filter(|(_, candidate)| now.since(candidate.heard) <= fresh)
                    .map(|(addr, candidate)| (*addr, (candidate.incarnation, candidate.record.clone())))
                    .collect();
                nodes.insert(me, (cx.me, cx.record()));
                let value = compose(cx, now, &nodes);
                if !check::has_votes(&value.members) {
                    self.clash = Some(format!(
                        "none of the {} nodes that are here has a vote, and without one nothing is decided: start one with a weight above 0",
                        value.members.len()
                    ));
                    return;
                }
                let members = value.members.iter().map(|member| member.addr).collect();
                let (founders, needed) = self.count(cx, &members);
                let too_few = founders < needed && !planted!(FoundByHints);
                if too_few {
                    // Two nodes have one name, or a node was not heard since. Phase 1 is tried again.
                    self.clash = clash(&nodes);
                    return;
                }
                let step = self.slot.choose(FoundingView(value));
                self.perform(cx, now, candidates, fresh, step);
            }
            Step::Accept { ballot, value, used } => {
                // What another node proposed was checked when it was accepted, or told.
                assert!(
                    check::has_votes(&value.0.members) || planted!(),
                    "R3: {} of {} members without a vote is proposed",
                    value.0.id,
                    value.0.members.len()
                );
                let patience = cx.jitter(cx.config.profile.retransmit * 4);
                self.retry = Some(now + patience);
                if self.slot.on_accept(ballot, value.clone(), &used).is_ok() {
                    let message = SlotMessage::Accept {
                        ballot,
                        value: Box::new(value.0),
                        proofs: Vec::new(),
                    };
                    self.broadcast(cx, candidates, &message);
                    let step = self.slot.on_accepted(&me, ballot);
                    self.perform(cx, now, candidates, fresh, step);
                }
            }
            Step::Decided { value } => {
                let own = cx.me;
                for member in value.0.members.iter().filter(|member| member.incarnation != own) {
                    cx.know_peer(member.incarnation, member.addr);
                    cx.send(
                        member.incarnation,
                        MembershipMessage::Decide(Box::new(value.0.clone())),
                    );
                }
                // A value that another proposer left may hold a former incarnation of this node. Then this
                // node joins.
                if value.0.contains(cx.me) {
                    cx.fate = Some(Fate::Seated(Box::new(value.0)));
                } else {
                    self.decided = Some(now);
                }
            }
        }
    }

    fn is_void(&self, value: &NodeView) -> bool {
        self.void == Some(value.lineage)
    }

    fn broadcast(
        &self,
        cx: &mut Context,
        candidates: &BTreeMap<SocketAddr, Candidate>,
        message: &SlotMessage,
    ) {
        for candidate in candidates.values() {
            let message = MembershipMessage::Founding {
                seeds: self.digest,
                message: message.clone(),
            };
            cx.send(candidate.incarnation, message);
        }
    }
}

/// Whether another incarnation was heard lately at the address of each member.
fn nobody_lives_in(
    view: &NodeView,
    cx: &Context,
    now: Time,
    candidates: &BTreeMap<SocketAddr, Candidate>,
    fresh: Duration,
) -> bool {
    view.members.iter().all(|member| {
        let other = candidates.get(&member.addr);
        let heard = other.filter(|other| now.since(other.heard) <= fresh);
        let there = heard.map(|other| other.incarnation);
        let there = there.or((member.addr == cx.config.addr).then_some(cx.me));
        there.is_some_and(|there| there != member.incarnation)
    })
}

/// Two nodes of one name.
fn clash(nodes: &BTreeMap<SocketAddr, (Incarnation, NodeRecord)>) -> Option<String> {
    let mut names: BTreeMap<&str, SocketAddr> = BTreeMap::new();
    nodes.iter().find_map(|(addr, (_, record))| {
        let other = names.insert(&record.name, *addr)?;
        Some(format!(
            "the nodes at {other} and {addr} are both called {}: give one of them another name; until then they count as one",
            printable(&record.name)
        ))
    })
}

/// Whether a candidate is at an address; this node itself is one.
pub(crate) fn is_candidate(
    cx: &Context,
    now: Time,
    candidates: &BTreeMap<SocketAddr, Candidate>,
    fresh: Duration,
    addr: &SocketAddr,
) -> bool {
    let other = candidates.get(addr);
    *addr == cx.config.addr || other.is_some_and(|other| now.since(other.heard) <= fresh)
}

/// The candidates heard lately.
fn present(now: Time, candidates: &BTreeMap<SocketAddr, Candidate>, fresh: Duration) -> BTreeSet<SocketAddr> {
    let heard =
        |(addr, candidate): (&SocketAddr, &Candidate)| (now.since(candidate.heard) <= fresh).then_some(*addr);
    candidates.iter().filter_map(heard).collect()
}

/// The nodes present, and so much weight for others that may exist that `expected` votes are the least
/// majority.
fn electorate(present: &BTreeSet<SocketAddr>, expected: u16) -> Voters<SocketAddr> {
    let mut electorate = voters(present);
    let (all, here) = (
        u32::from(expected) * 2 - 1,
        u32::try_from(present.len()).unwrap_or(u32::MAX),
    );
    if planted!(FoundByHints) {
        return electorate;
    }
    let absent = SocketAddr::from(([0, 0, 0, 0], 0));
    electorate.members.push((absent, all.saturating_sub(here)));
    electorate
}

fn voters(addrs: &BTreeSet<SocketAddr>) -> Voters<SocketAddr> {
    // R4: a majority of the seeds, never half of them.
    Voters {
        members: addrs.iter().map(|addr| (*addr, 1)).collect(),
        senior_breaks_tie: false,
    }
}

fn plain(accepted: Acceptance<FoundingView>) -> Acceptance<NodeView> {
    Acceptance {
        ballot: accepted.ballot,
        value: accepted.value.0,
    }
}

fn founding(accepted: AcceptedValue) -> Option<Acceptance<FoundingView>> {
    match accepted.value {
        Voted::Whole(value) if check::primary_is_sound(&value) => Some(Acceptance {
            ballot: accepted.ballot,
            value: FoundingView(*value),
        }),
        // There is no view before the first one that a change could refer to.
        Voted::Whole(_) | Voted::Change(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ports: std::ops::Range<u16>) -> BTreeSet<SocketAddr> {
        ports
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect()
    }

    #[test]
    fn as_many_votes_as_are_expected_decide_and_never_fewer_whoever_is_there() {
        let none = BTreeSet::new();
        for expected in 1..8 {
            for there in expected..2 * expected {
                let electorate = electorate(&nodes(1..1 + there), expected);
                let enough = |votes: u16| electorate.is_quorum(&nodes(1..1 + votes), &none);
                assert!(!enough(expected - 1) && enough(expected), "{expected} of {there}");
            }
            // More nodes were started than should have been: at least two quorums of one electorate always
            // meet.
            let crowd = electorate(&nodes(1..101), expected);
            assert!(!crowd.is_quorum(&nodes(1..51), &none) && crowd.is_quorum(&nodes(1..52), &none));
        }
    }
}

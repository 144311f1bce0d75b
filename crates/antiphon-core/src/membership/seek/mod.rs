//! A node without a view looks for a cluster to join, or for other nodes to found one with.
//!
//! ```text
//!   Seek ──► seeds ──► Here (member: whom to ask) ──► Join ──► JoinProbe ──► JoinReady ──► Accept ──► Decide
//!        └─► Seek    (a candidate) ──► founding
//! ```
//!
//! Besides the seeds it asks locators, and by turns some of the addresses it was told of ([`hints`]).
//!
//! A node that knows of a cluster, or may well hear of one in a moment, neither founds nor votes
//! ([`Seeking::abstains`], [`voting`]).
//!
//! A timer repeats everything here, and everything is idempotent. If the coordinator dies at any step, the
//! Seeks that go on find out which member coordinates now. If the decision that admits this node is lost with
//! its author, any member that installed the view sends it when this node seeks again.
//!
//! [`hints`]: crate::membership::contacts::hints

mod admission;
pub(crate) mod founding;
pub(crate) mod recovering;
mod voting;
mod withdrawing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::enquiry::{Ask, Objection};
use antiphon_wire::membership::{Discovery, MembershipMessage, NodeRecord, SlotMessage, Standing};
use antiphon_wire::{Incarnation, Lineage, NodeView, ViewId};

use self::founding::{Candidate, Founding, is_candidate};
use crate::inspection::Looking;
use crate::membership::agree::slot::FAST;
use crate::membership::contacts::withdrawn::Withdrawal;
use crate::membership::context::{Context, Fate};
use crate::membership::view::check;
use crate::sound::record_is_sound;
use crate::text::printable;
use crate::{Awaits, BallotStep, EngineKind, Event, PathTrouble, Policy, Time};

/// A node listens to at most so many candidates.
const MAX_CANDIDATES: usize = crate::config::MAX_FOUNDERS;
/// A Seek names at most so many candidates, by turns.
const OTHERS: usize = 64;
/// At most so many nodes of a locator's answer are read.
const MAX_KNOWN: usize = 128;
/// After this many tries the pace slows down.
const EAGER_SEEKS: u32 = 200;
/// The node reports again after this long what is still missing.
const FORMING_REPEATS: Duration = Duration::from_secs(5);
/// And after this long if that has changed.
const FORMING_CHANGES: Duration = Duration::from_millis(200);
/// A seed that ended so many connections in a row, and never spoke, rejects this node.
const REJECTED_AFTER: u32 = 3;
/// What locators say holds up a founding for at most so many times the patience of members at a stretch. A
/// stretch is over only when nothing has held up a founding for that patience. Otherwise a locator that
/// starts again and again would hold it up for ever, a little each time.
const RUMOUR: u32 = 2;
/// A node that hears of one coordinator after another asks sooner than usual at most once in so many such
/// pauses: about the usual pace of a node that has asked.
const HASTE_SELDOM: u32 = 16;
/// The application is told the same refusal again after this long, and at most so many different ones within
/// that time: many nodes may refuse this node by turns.
const REFUSALS_TOLD: usize = 16;
const REFUSAL_REPEATS: Duration = Duration::from_secs(5);

/// Since when locators may have to tell of members.
#[derive(Debug)]
struct Rumour {
    since: Time,
    /// When that was so last.
    last: Time,
}

#[derive(Debug)]
struct Target {
    coordinator: Incarnation,
    addr: SocketAddr,
    heard: Time,
}

/// Seeds and locators that have not answered, those of them that reject this node's frames, and what this
/// node waits for.
type Missing = (Vec<SocketAddr>, Vec<SocketAddr>, Awaits);

/// The state of a node without a view.
#[derive(Debug)]
pub(crate) struct Seeking {
    /// Since when it asks.
    since: Option<Time>,
    pub(crate) next_seek: Time,
    pub(crate) last_seek: Time,
    pub(crate) seeks: u32,
    pub(crate) candidates: BTreeMap<SocketAddr, Candidate>,
    target: Option<Target>,
    /// When a member of a primary view last answered, whether this node may join it or not.
    answered: Option<Time>,
    /// When it last asked to be admitted.
    asked: Option<Time>,
    /// When it last asked again sooner than usual, because another node was said to be the coordinator.
    hastened: Option<Time>,
    pub(crate) founding: Option<Founding>,
    /// The last messages of other founders that came before this node could vote: a new node has yet to hear
    /// the others.
    unanswered: BTreeMap<Incarnation, SlotMessage>,
    /// The last views of a cluster that may be about to admit this node, without a gap.
    earlier: Vec<Arc<NodeView>>,
    /// This node was admitted, and has missed the view that admitted it.
    missed: Option<Missed>,
    /// When this node first met members without a primary. They get time to find theirs before a new
    /// founding.
    remnant: Option<Time>,
    rumour: Option<Rumour>,
    /// The last report of missing seeds and of those that reject this node's frames, and when that was.
    missing: Option<(Time, Missing)>,
    /// How many connections each seed ended since this node last heard it, or found nobody there.
    lost: BTreeMap<SocketAddr, u32>,
    /// Why this node was refused, the latest last.
    refused: VecDeque<(Time, String)>,
    /// When the members that this node asked last refused it.
    turned_away: Option<Time>,
    /// The nodes that may admit this node, since it has answered them that it is there, and when it last did.
    pub(crate) promised: BTreeMap<Incarnation, Time>,
    pub(crate) withdrawal: Option<Withdrawal>,
    /// Policy `any`: since when this node hears of no node in a primary view, and how long that may last.
    alone: Option<(Time, Duration)>,
}

impl Seeking {
    /// Starts to seek at `start`.
    pub(crate) fn new(cx: &Context, start: Time) -> Self {
        // R4. And a node that has been a member knows of a primary that may live on without it.
        let founder = founding::is_founder(&cx.config) && cx.past.is_none();
        Self {
            since: None,
            next_seek: start,
            last_seek: start,
            seeks: 0,
            candidates: BTreeMap::new(),
            target: None,
            answered: None,
            asked: None,
            hastened: None,
            founding: founder.then(|| Founding::new(&cx.config)),
            unanswered: BTreeMap::new(),
            earlier: Vec::new(),
            missed: None,
            remnant: None,
            rumour: None,
            missing: None,
            lost: BTreeMap::new(),
            refused: VecDeque::new(),
            turned_away: None,
            promised: BTreeMap::new(),
            withdrawal: None,
            alone: None,
        }
    }

    pub(crate) fn tick(&mut self, cx: &mut Context, now: Time) {
        let leaves = self.tend_withdrawal(cx, now);
        if now < self.next_seek || cx.fate.is_some() {
            return;
        }
        if leaves {
            self.last_seek = now;
            self.next_seek = now + cx.jitter(cx.config.profile.retransmit);
            if self.is_at_a_loss() {
                self.seek(cx, now);
            }
            return;
        }
        let alone = founding::founds_at_once(&cx.config).filter(|_| self.seeks == 0 && cx.past.is_none());
        if let Some(reason) = alone {
            let view = founding::found_alone(cx, now, reason);
            cx.fate = Some(Fate::Seated(Box::new(view)));
            return;
        }
        self.since.get_or_insert(now);
        self.seeks = self.seeks.saturating_add(1);
        // A node that has asked to be admitted is in a queue. Asking again shows whether that is still so.
        let asked = self.target.is_some();
        let slow = if asked || self.is_slow() { 4 } else { 1 };
        self.last_seek = now;
        let pause = if planted!(SeekWithoutPause) {
            cx.config.profile.retransmit / 200
        } else {
            cx.config.profile.retransmit * slow
        };
        self.next_seek = now + cx.jitter(pause);
        self.seek(cx, now);
        self.found(cx, now);
        self.answer_late(cx, now);
        if self.goes_on_alone(cx, now) {
            return;
        }
        self.report_missing(cx, now);
    }

    pub(crate) fn next_deadline(&self) -> Time {
        match &self.withdrawal {
            Some(withdrawal) => withdrawal.next_deadline(self.next_seek),
            None => self.next_seek,
        }
    }

    fn is_slow(&self) -> bool {
        self.seeks > EAGER_SEEKS
    }

    /// There is a new address to ask: the node asks soon, and no sooner if many tell of new addresses at the
    /// same time. A node that pauses after a removal does not cut that pause short.
    pub(crate) fn hurry(&mut self, cx: &Context, now: Time) {
        if self.seeks > 0 {
            let soon = now.max(self.last_seek + cx.config.profile.retransmit / 4);
            self.next_seek = self.next_seek.min(soon);
        }
    }

    fn seek(&mut self, cx: &mut Context, now: Time) {
        let gone = now - self.fresh(cx) * 4;
        let silent: Vec<SocketAddr> = self
            .candidates
            .iter()
            .filter(|(_, candidate)| candidate.heard < gone)
            .map(|(addr, _)| *addr)
            .collect();
        for addr in silent {
            if let Some(candidate) = self.candidates.remove(&addr) {
                cx.forget_peer(candidate.incarnation);
            }
        }
        if cx.peers.len() > MAX_CANDIDATES * 4 {
            let candidates: BTreeSet<Incarnation> = self
                .candidates
                .values()
                .map(|candidate| candidate.incarnation)
                .collect();
            cx.keep_peers(|peer| candidates.contains(&peer));
        }
        let mut to = founding::seeds_of(&cx.config);
        to.extend(cx.past.iter().flat_map(|past| past.contacts.iter()).copied());
        to.extend(cx.contacts.turn(now));
        to.extend(cx.left_behind.turn(now));
        let pace = cx.config.profile.retransmit;
        to.extend(cx.contacts.due(now, pace * 8, pace * 2));
        // A node that knows its coordinator only wants to hear if that changes. If there are many addresses,
        // it asks one at a time.
        if self.target.is_some() && to.len() > 8 {
            let one = self.seeks as usize % to.len();
            to = to.into_iter().skip(one).take(1).collect();
        }
        let message = self.seek_message(cx, false);
        for addr in to {
            cx.discover(addr, message.clone());
        }
        if self
            .target
            .as_ref()
            .is_some_and(|target| now.since(target.heard) > cx.config.profile.suspect_after)
        {
            self.target = None;
        }
        self.ask(cx, now);
        self.pull_missed(cx);
    }

    fn ask(&mut self, cx: &mut Context, now: Time) {
        if self.withdrawal.is_some() && !self.is_at_a_loss() {
            return;
        }
        if let Some(target) = &self.target {
            self.asked = Some(now);
            let message = Discovery::Join {
                node: cx.record(),
                number: cx.past.as_ref().map_or(0, |past| past.number),
                from: cx.past.as_ref().map(|past| past.origin).filter(|_| cx.any()),
            };
            cx.discover(target.addr, message);
        }
    }

    fn seek_message(&self, cx: &Context, reply: bool) -> Discovery {
        Discovery::Seek {
            node: cx.record(),
            seeds: founding::digest_of(&cx.config),
            expect: cx.config.expect.unwrap_or(0),
            founder: self.founding.is_some() && self.withdrawal.is_none(),
            standing: None,
            others: self.others(),
            reply,
        }
    }

    /// Other candidates: all of them if they fit, otherwise some by turns.
    fn others(&self) -> Vec<SocketAddr> {
        let count = self.candidates.len();
        let first = if count > OTHERS {
            self.seeks as usize * OTHERS % count
        } else {
            0
        };
        self.candidates
            .keys()
            .copied()
            .cycle()
            .skip(first)
            .take(count.min(OTHERS))
            .collect()
    }

    /// A candidate heard within this long counts as present: as long as it takes to ask all addresses ten
    /// times, or a few times where the node asks them by turns.
    fn fresh(&self, cx: &Context) -> Duration {
        let slow = if self.is_slow() { 2 } else { 1 };
        cx.config.profile.retransmit * (6 + 4 * cx.contacts.rounds() * slow)
    }

    fn found(&mut self, cx: &mut Context, now: Time) {
        let (fresh, abstains) = (self.fresh(cx), self.abstains(cx, now));
        let accounted = self.accounted(cx, now);
        let Some(founding) = &mut self.founding else {
            return;
        };
        if abstains {
            return founding.rest();
        }
        founding.tick(cx, now, &self.candidates, fresh, accounted);
        self.tell_clash(cx, now);
    }

    /// Policy `any`: a node that was a member, and for long hears of no cluster or only of one that does not
    /// take it, is a component like any other. It waits for a random time. So of several nodes that seek
    /// together one founds, and the others find it.
    fn goes_on_alone(&mut self, cx: &mut Context, now: Time) -> bool {
        let Some(past) = cx.past.clone().filter(|_| cx.any() && cx.config.weight > 0) else {
            return false;
        };
        let lately = cx.config.profile.suspect_after;
        let turned_away = self.turned_away.is_some_and(|last| now.since(last) < lately);
        if self.abstains(cx, now) && !turned_away {
            self.alone = None;
            return false;
        }
        let patience = cx.config.profile.unreachable_after;
        let (since, lasts) = *self.alone.get_or_insert_with(|| (now, cx.jitter(patience)));
        if now.since(since) < lasts {
            return false;
        }
        let view = founding::found_anew(cx, now, &past);
        cx.fate = Some(Fate::Seated(Box::new(view)));
        true
    }

    fn tell_clash(&mut self, cx: &mut Context, now: Time) {
        if let Some(reason) = self.founding.as_mut().and_then(Founding::take_clash) {
            self.refused(cx, now, reason, false);
        }
    }

    /// Whether this node has no part in a founding now. A primary view wins over a founding: a node that
    /// knows of one votes for no other, nor does it for a while after a member's last answer. Members that
    /// lost their primary get time to find it again. So do members that a locator has heard lately, or has
    /// had no time to hear: they get time to be asked.
    /// Otherwise two nodes that are started again would found beside the others, whatever these hold.
    fn abstains(&mut self, cx: &Context, now: Time) -> bool {
        if planted!(VoteBesideAPrimary) {
            return false;
        }
        // A node that a primary answered, and hears no more, gets the whole time again: its members are
        // there.
        if self.target.is_some() {
            self.rumour = None;
            return true;
        }
        let profile = &cx.config.profile;
        let fresh = self.fresh(cx);
        let heard = |addr: &SocketAddr| is_candidate(cx, now, &self.candidates, fresh, addr);
        let may_be_members = cx.contacts.may_be_members(now, profile, heard);
        let gives_time = self.gives_time(now, profile.unreachable_after, may_be_members);
        let lately = |since: Time| now.since(since) < profile.unreachable_after;
        gives_time || self.remnant.is_some_and(lately) || self.answered.is_some_and(lately)
    }

    /// Whether locators still get time to tell of members.
    fn gives_time(&mut self, now: Time, patience: Duration, may_be_members: bool) -> bool {
        if !may_be_members {
            self.rumour.take_if(|rumour| now.since(rumour.last) >= patience);
            return false;
        }
        let rumour = self.rumour.get_or_insert(Rumour {
            since: now,
            last: now,
        });
        rumour.last = now;
        now.since(rumour.since) < patience * RUMOUR
    }

    /// For how long it has asked without an answer of a member of a primary view.
    pub(crate) fn unanswered_for(&self, now: Time) -> Duration {
        let since = self.answered.or(self.since).unwrap_or(now);
        now.since(since)
    }

    /// What this node looks for, for people.
    pub(crate) fn inspect(&self, cx: &Context, now: Time) -> Looking {
        let (missing, rejecting, _) = self.missing_now(cx, now);
        let candidates = self.candidates.values();
        Looking {
            missing,
            rejecting,
            candidates: candidates
                .map(|other| {
                    (
                        other.record.name.clone(),
                        other.record.addr,
                        now.since(other.heard),
                    )
                })
                .collect(),
            founder: self.founding.is_some(),
            asks: self.target.as_ref().map(|target| target.addr),
            remnant: self.remnant.map(|since| now.since(since)),
            refused: self
                .refused
                .back()
                .map(|(told, reason)| (reason.clone(), now.since(*told))),
        }
    }

    /// Why this node could not found a cluster with the node in the question.
    pub(crate) fn objection(&self, cx: &Context, ask: &Ask) -> Option<Objection> {
        let objection = |reason| Objection { reason, fatal: false };
        if let Some(reason) = check::differ(&cx.config, &ask.node) {
            return Some(objection(reason));
        }
        let differ = ask.founder && self.founding.is_some() && ask.seeds != founding::digest_of(&cx.config);
        differ.then(|| objection(seed_lists_differ(&ask.node, 0)))
    }

    fn missing_now(&self, cx: &Context, now: Time) -> Missing {
        let missing: Vec<SocketAddr> = founding::seeds_of(&cx.config)
            .into_iter()
            .filter(|seed| *seed != cx.config.addr && !self.candidates.contains_key(seed))
            .chain(cx.contacts.silent_locators(now, self.locators_answer_within(cx)))
            .collect();
        let rejects = |seed: &&SocketAddr| self.lost.get(*seed).is_some_and(|lost| *lost >= REJECTED_AFTER);
        let rejecting: Vec<SocketAddr> = missing.iter().filter(rejects).copied().collect();
        let fresh = self.fresh(cx);
        let awaits = match &self.founding {
            Some(founding) => founding.awaits(cx, now, &self.candidates, fresh),
            None => Awaits::Cluster,
        };
        (missing, rejecting, awaits)
    }

    /// A locator that answers is heard within this long: it is asked at least each eighth time.
    fn locators_answer_within(&self, cx: &Context) -> Duration {
        let slow = if self.is_slow() { 4 } else { 1 };
        FORMING_REPEATS.max(cx.config.profile.retransmit * 8 * slow * 3)
    }

    fn report_missing(&mut self, cx: &mut Context, now: Time) {
        let told = self.missing_now(cx, now);
        let news = match &self.missing {
            None => true,
            Some((at, known)) if *known != told => now.since(*at) >= FORMING_CHANGES,
            Some((at, _)) => now.since(*at) >= FORMING_REPEATS,
        };
        if news && self.target.is_none() {
            self.missing = Some((now, told.clone()));
            let (missing, rejecting, awaits) = told;
            cx.event(Event::Forming {
                missing,
                rejecting,
                awaits,
            });
        }
    }

    /// A seed that again and again accepts a connection and ends it without a word rejects what it reads
    /// there. A seed that refuses connections is not running, and one that is killed ends one connection.
    pub(crate) fn handle_path_trouble(
        &mut self,
        cx: &mut Context,
        now: Time,
        addr: SocketAddr,
        trouble: PathTrouble,
    ) {
        cx.contacts.trouble(addr);
        if trouble == PathTrouble::Refused {
            cx.contacts.nobody(now, addr);
            self.withdrawal_refused(cx, |member| cx.peers.get(&member) == Some(&addr));
        }
        if trouble != PathTrouble::Lost {
            self.lost.remove(&addr);
        } else if founding::seeds_of(&cx.config).contains(&addr) || cx.contacts.is_locator(addr) {
            let lost = self.lost.entry(addr).or_default();
            *lost = lost.saturating_add(1);
        }
    }

    pub(crate) fn handle_discovery(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: Discovery,
    ) {
        match message {
            Discovery::Seek {
                node,
                seeds,
                expect,
                founder,
                standing,
                others,
                reply,
            } => {
                if !record_is_sound(&node) || node.addr == cx.config.addr || sender == cx.me {
                    return;
                }
                self.lost.remove(&node.addr);
                cx.contacts.somebody(node.addr);
                if !reply && cx.may_answer(now, node.addr) {
                    let answer = self.seek_message(cx, true);
                    cx.discover(node.addr, answer);
                }
                if standing.is_some() {
                    return;
                }
                // With `expect`, all nodes must hear of all others; with seeds, the seeds are enough.
                if cx.config.expect.is_some() {
                    let others = others.into_iter().take(OTHERS).chain([node.addr]);
                    self.told(cx, now, others);
                }
                if founder && self.founding.is_some() && self.withdrawal.is_some() {
                    // The other founder may have counted this node, or be about to.
                    cx.know_peer(sender, node.addr);
                    self.tells_leaving(cx, sender);
                } else if founder && self.founding.is_some() {
                    if let Some(reason) = check::differ(&cx.config, &node) {
                        self.refused(cx, now, reason, false);
                    } else if seeds == founding::digest_of(&cx.config) {
                        self.candidate(cx, now, sender, node);
                    } else {
                        let reason = seed_lists_differ(&node, expect);
                        self.refused(cx, now, reason, false);
                    }
                }
            }
            Discovery::Here {
                addr,
                standing,
                coordinator,
                coordinator_addr,
            } => {
                self.here(cx, now, sender, addr, standing, (coordinator, coordinator_addr));
            }
            Discovery::Refused { to, reason, fatal } if to == cx.me => {
                self.turned_away = Some(now);
                self.refused(cx, now, printable(&reason), fatal);
            }
            Discovery::Known { addr, up_ms, nodes } => {
                self.lost.remove(&addr);
                let nodes = &nodes[..nodes.len().min(MAX_KNOWN)];
                let up = Duration::from_millis(u64::from(up_ms));
                if cx.contacts.answered(now, addr, up, nodes) {
                    self.told(cx, now, nodes.iter().map(|node| node.addr));
                }
            }
            // Heard by multicast, not here.
            Discovery::Announce { .. } => {}
            // A joining node has nothing to admit or to be removed from.
            Discovery::Join { .. }
            | Discovery::Refused { .. }
            | Discovery::Removed { .. }
            | Discovery::Yield { .. }
            | Discovery::Stay { .. } => {}
        }
    }

    fn told(&mut self, cx: &mut Context, now: Time, addrs: impl Iterator<Item = SocketAddr>) {
        let mut news = false;
        for addr in addrs {
            news |= addr != cx.config.addr && cx.contacts.tell(now, addr);
        }
        if news {
            self.hurry(cx, now);
        }
    }

    fn candidate(&mut self, cx: &mut Context, now: Time, sender: Incarnation, node: NodeRecord) {
        let addr = node.addr;
        if let Some(known) = self.candidates.get(&addr) {
            if known.incarnation != sender {
                cx.forget_peer(known.incarnation);
            }
        } else if self.candidates.len() >= MAX_CANDIDATES {
            return;
        }
        cx.know_peer(sender, addr);
        let known = self.candidates.insert(
            addr,
            Candidate {
                incarnation: sender,
                record: node,
                heard: now,
            },
        );
        if let (Some(known), Some(founding)) = (&known, &mut self.founding)
            && known.incarnation != sender
        {
            founding.forgotten();
        }
        if known.is_none() {
            self.found(cx, now);
            self.answer_late(cx, now);
        }
    }

    fn here(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        addr: SocketAddr,
        standing: Standing,
        coordinator: (Incarnation, SocketAddr),
    ) {
        self.lost.remove(&addr);
        cx.contacts.somebody(addr);
        cx.know_peer(sender, addr);
        if cx.past.is_some() && check::standings_differ(&cx.config, &standing) {
            let reason = format!(
                "{addr} is of a cluster with the membership engine `{}` and the partition policy `{}`; {} has `{}` and `{}`, and looks for its own cluster",
                EngineKind::named(standing.engine),
                Policy::named(standing.policy),
                cx.config.name,
                cx.config.engine.name(),
                cx.config.policy.name()
            );
            return self.refused(cx, now, reason, false);
        }
        if !standing.primary {
            let since = *self.remnant.get_or_insert(now);
            self.tell_remnant(cx, now, addr, since);
            return;
        }
        self.answered = Some(now);
        let gave_way = cx.past.as_ref().and_then(|past| past.gave_way);
        if gave_way.is_some_and(|(lineage, until)| lineage == standing.lineage && now < until) {
            return;
        }
        // A coordinator at this node's own address is the process that ran here before. The member that
        // answered must notice that, so it is asked.
        let (coordinator, addr) = if coordinator.1 == cx.config.addr {
            (sender, addr)
        } else {
            coordinator
        };
        let news = self
            .target
            .as_ref()
            .is_none_or(|target| target.coordinator != coordinator);
        self.target = Some(Target {
            coordinator,
            addr,
            heard: now,
        });
        cx.know_peer(coordinator, addr);
        if !news {
            return;
        }
        // Two members may each name the other as the coordinator. If this node at once asked the one that the
        // other named, it would go back and forth between them as fast as the network does, once more with
        // each answer to each of its questions. And if it asked all again after a pause this short, for as
        // long as they disagree, that would be a flood too where there are many seeds of several addresses.
        let pause = cx.config.profile.retransmit / 4;
        let lately = self.asked.is_some_and(|asked| now.since(asked) < pause);
        if !lately {
            self.ask(cx, now);
        } else if self
            .hastened
            .is_none_or(|last| now.since(last) >= pause * HASTE_SELDOM)
        {
            self.hastened = Some(now);
            self.next_seek = self.next_seek.min(now + pause);
        }
    }

    /// A member without a primary answers, and has had the time to find one: a person may have to act.
    fn tell_remnant(&mut self, cx: &mut Context, now: Time, addr: SocketAddr, since: Time) {
        let lately = self
            .refused
            .back()
            .is_some_and(|(told, _)| now.since(*told) < REFUSAL_REPEATS);
        if lately || self.target.is_some() || now.since(since) < cx.config.profile.unreachable_after {
            return;
        }
        let reason = format!(
            "the node at {addr} is in a view that has lost its majority, and admits nobody until that is back; if the others of that view are gone for good, `antiphon recover` on its host has it go on alone, and this node joins it"
        );
        self.refused(cx, now, reason, false);
    }

    /// A node that was a member goes on looking, whatever it is told: a cluster took it as it is before.
    fn refused(&mut self, cx: &mut Context, now: Time, reason: String, fatal: bool) {
        let fatal = fatal && cx.past.is_none();
        let is_recent = |told: Time| now.since(told) < REFUSAL_REPEATS;
        self.refused.retain(|(told, _)| is_recent(*told));
        let known = self.refused.iter().any(|(_, known)| *known == reason);
        if fatal || !known && self.refused.len() < REFUSALS_TOLD {
            self.refused.push_back((now, reason.clone()));
            cx.event(Event::Refused { reason, fatal });
        }
        if fatal {
            let leaves = self.withdrawal.is_some();
            cx.fate = Some(if leaves { Fate::Left } else { Fate::GiveUp });
        }
    }

    pub(crate) fn handle_message(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: MembershipMessage,
    ) {
        match message {
            MembershipMessage::Founding { seeds, message } if seeds == founding::digest_of(&cx.config) => {
                self.hear_founder(cx, now, sender, message);
            }
            MembershipMessage::JoinProbe { nonce } => self.answer_probe(cx, now, sender, nonce),
            MembershipMessage::Leave => self.hear_leaver(cx, now, sender),
            MembershipMessage::Confirm { .. } => self.withdrawal_confirmed(cx, now, sender),
            MembershipMessage::Slot {
                slot,
                message: SlotMessage::Accept { ballot, value, .. },
            }
                // R3: a joiner acknowledges exactly this proposal; it counts in the quorum of the view that
                // admits it.
                if check::primary_is_sound(&value) && value.joined.contains(&cx.me) => {
                    cx.trail(slot, Some(ballot), || Arc::new(*value), BallotStep::Accepted);
                    let message = SlotMessage::Accepted { ballot };
                    cx.send(sender, MembershipMessage::Slot { slot, message });
                    if !self.tells_leaving(cx, sender) {
                        self.note_promise(now, sender);
                    }
                }
            // R3, in the fast ballot.
            MembershipMessage::Slot {
                slot,
                message: SlotMessage::Fast { value },
            } if check::primary_is_sound(&value) && value.joined.contains(&cx.me) => {
                let message = SlotMessage::Cast { value: value.digest() };
                cx.trail(slot, Some(FAST), || Arc::new(*value), BallotStep::Accepted);
                cx.send(sender, MembershipMessage::Slot { slot, message });
                if !self.tells_leaving(cx, sender) {
                    self.note_promise(now, sender);
                }
            }
            MembershipMessage::Decide(view) => self.decided(cx, now, sender, view),
            _ => {}
        }
    }

    /// The coordinator asks whether this node is there. The node promises to be, unless it leaves.
    fn answer_probe(&mut self, cx: &mut Context, now: Time, sender: Incarnation, nonce: u64) {
        if !self.tells_leaving(cx, sender) {
            self.note_promise(now, sender);
            cx.send(sender, MembershipMessage::JoinReady { nonce });
        }
    }
}

fn seed_lists_differ(node: &NodeRecord, expect: u16) -> String {
    let expect = if expect > 0 {
        format!(", or expects another number of nodes ({expect}),")
    } else {
        String::new()
    };
    format!(
        "{} at {} has another seed list{expect} than this node; give all founding nodes the same list, or the same number",
        node.name, node.addr
    )
}

/// A view with this node came, but not the one that admitted it.
#[derive(Debug)]
pub(crate) struct Missed {
    lineage: Lineage,
    /// All views that came are later than the one after this id.
    after: ViewId,
    at: Incarnation,
    pulls: u32,
}

//! Membership: which nodes there are.
//!
//! ```text
//!            Seeking ──────── founded, or admitted ───────► Seat ──── left ────► Stopped
//!   (seek)                                                   │ view n ─► view n+1 ─► …
//!               ▲                                            │ (agree: a slot each; non-primary views on top)
//!               └── removed, merged: a fresh incarnation ────┘
//! ```
//!
//! # Rooms
//!
//! A room is a folder. It imports only rooms above it in this table. A test of the repository checks that no
//! rooms and no files import each other in a circle.
//!
//! | room | what it knows | who calls it |
//! |---|---|---|
//! | [`view`] | which views are believed, how one follows another, the last ones | all |
//! | [`contacts`] | addresses where nodes may be; nodes that were refused, left before a view, or are asked for views | `context`, `seek`, `seat`, this file |
//! | [`monitor`] | who hears whom in a view: in a mesh all, on rings a few; what they say and doubt; gossip | `agree`, `lease`, `change`, `partition`, `seat` |
//! | [`agree`] | how the next primary view is decided: the slot, its proposer, the fast ballot, lifelines, proofs | `lease`, `context`, `seek`, `change`, `seat`, this file |
//! | [`lease`] | for how long a member believes in its view | `seat` |
//! | [`seek`] | a node without a view: founding, joining | `partition`, `seat`, this file |
//! | [`change`] | what should change in the view: joiners, leaving, removals | `seat` |
//! | [`partition`] | components without a quorum: non-primary views, splits, merges | `seat` |
//! | [`seat`] | a member: it asks all the others, and decides which member proposes | this file |
//!
//! Between `lease` and `seek` stand two files: [`context`], which all parts of one incarnation share, and
//! [`effect`], what these parts want done. [`recovery`] and [`inspect`] are inputs and questions of people:
//! they may import all rooms, and no room imports them.
//!
//! The parts meet in `seat`, so it is the largest room. A part that needs neither the rest of the seat nor
//! the context belongs into a room above, as a type of its own.
//!
//! # Messages
//!
//! Discovery is unreliable and goes to addresses. Heartbeats are unreliable; each carries its sender's view
//! and doubts. So are the ticks and echoes of leases on rings. Lifelines are connections of their own.
//! Everything else travels on the reliable control channel. A message that depends on the present view names
//! that view.
//!
//! # Invariants
//!
//! Each primary view is one Paxos slot among the members of the view before it (R1). A vote is on every
//! lifeline before any frame carries it (R2). Views are installed in order, and none is skipped. An
//! incarnation that was removed never returns: a merge is a join (R6). No timeout and no message ever
//! promotes a minority. Only an operator's word does, or the policy `any`, each in a lineage of its own. What
//! concerns the votes of several members is for the simulator to judge (`check/inside/chain` and `votes`).
//! The rules (R) are listed in `docs/decisions/README.md`.
//!
//! # When participants die
//!
//! - the elder, before it proposed: the next senior member proposes its removal. After some members accepted:
//!   if their value may have been decided, the next senior member finds it and proposes it again, unchanged.
//!   After the decision: the members that installed the view tell the others (heartbeats carry view ids);
//! - a voter: with a proof of death it leaves the denominator, but for the fast ballot, which counts all;
//!   without one its vote is missing for good;
//! - a joiner: before the proposal it is left out; after it, the next view removes it;
//! - half of a cluster that cannot be heard: the other half goes on only with a quorum; otherwise it installs
//!   non-primary views.
//!
//! # Boundary
//!
//! Inputs are the methods of [`Membership`]. Everything that it wants done is an [`Effect`]; the caller
//! drains the effects in order at the end of each batch of inputs. `node.rs` and `node/` are the only
//! callers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::{Certificate, Discovery, Heartbeat, MembershipMessage, Pulse};
use antiphon_wire::{Evidence, Incarnation, NodeView, ViewId};

use crate::detector::{Came, Detector};
use crate::membership::agree::lifelines::Lifelines;
use crate::membership::contacts::hints::{Contacts, Hints};
use crate::membership::contacts::left_behind::LeftBehind;
use crate::membership::contacts::refusals::Refusals;
use crate::membership::contacts::withdrawn::Withdrawn;
use crate::membership::context::{Context, Fate};
use crate::membership::seat::Seat;
use crate::membership::seek::Seeking;
use crate::membership::view::history::History;
use crate::random::Random;
use crate::replies::Replies;
use crate::{BallotNote, Config, DialId, Event, LifelineEvent, PathTrouble, Time, WhyReport};

pub(crate) mod agree;
mod change;
pub(crate) mod contacts;
mod context;
mod effect;
mod inspect;
mod lease;
mod monitor;
mod partition;
mod recovery;
mod seat;
mod seek;
#[cfg(test)]
pub(crate) mod testing;
mod view;

pub(crate) use effect::Effect;
pub(crate) use inspect::ask_of;
pub(crate) use view::check::vote_is_sound;

/// The phase of this node's life.
#[derive(Debug)]
enum Phase {
    /// Without a view.
    Seeking(Box<Seeking>),
    /// A member.
    Seated(Box<Seat>),
    /// Nothing more is done.
    Stopped,
}

/// Everything that this node knows and decides about the members.
#[derive(Debug)]
pub(crate) struct Membership {
    cx: Context,
    phase: Phase,
    /// How often this process was removed in a row, and when it last became a member: both set the back-off
    /// of rejoining.
    removals: u32,
    seated: Time,
}

impl Membership {
    /// A fresh node. It begins to look for its seeds at once.
    pub(crate) fn new(config: Arc<Config>, mut random: Random, now: Time) -> Self {
        let me = Incarnation(random.next_u128());
        let mut cx = Context {
            detector: Detector::new(me, &config.profile, config.engine),
            config,
            random,
            me,
            effects: VecDeque::new(),
            peers: BTreeMap::new(),
            lifelines: Lifelines::default(),
            history: History::default(),
            refusals: Refusals::default(),
            past: None,
            overrides: None,
            contacts: Contacts::default(),
            left_behind: LeftBehind::default(),
            withdrawn: Withdrawn::default(),
            replies: Replies::new(now),
            fate: None,
            crowded: BTreeSet::new(),
            beats: 0,
            trail: None,
        };
        cx.effects.push_back(Effect::NewIncarnation { me, cause: None });
        let phase = Phase::Seeking(Box::new(Seeking::new(&cx, now)));
        let mut membership = Self {
            cx,
            phase,
            removals: 0,
            seated: now,
        };
        membership.handle_timeout(now);
        membership
    }

    /// A discovery message came from an address; the sender need not be known.
    pub(crate) fn handle_discovery(
        &mut self,
        now: Time,
        from: SocketAddr,
        sender: Incarnation,
        message: Discovery,
    ) {
        // Answers go to the advertised address: the sender may not listen on the address of its connection.
        let _ = from;
        self.cx.detector.awake(now);
        match &mut self.phase {
            Phase::Seeking(seeking) => seeking.handle_discovery(&mut self.cx, now, sender, message),
            Phase::Seated(seat) => seat.handle_discovery(&mut self.cx, now, sender, message),
            Phase::Stopped => {}
        }
        self.settle(now);
    }

    /// A heartbeat; also to be called when the sender is no known peer.
    pub(crate) fn handle_heartbeat(
        &mut self,
        now: Time,
        sender: Incarnation,
        heartbeat: Heartbeat,
        came: Came,
    ) {
        self.cx.detector.awake(now);
        if let Phase::Seated(seat) = &mut self.phase {
            seat.handle_heartbeat(&mut self.cx, now, sender, heartbeat, came);
        }
        self.settle(now);
    }

    /// A tick or an echo of a large view; also to be called when the sender is no known peer.
    pub(crate) fn handle_pulse(&mut self, now: Time, sender: Incarnation, pulse: Pulse) {
        self.cx.detector.awake(now);
        if let Phase::Seated(seat) = &mut self.phase {
            seat.handle_pulse(&mut self.cx, now, sender, pulse);
        }
        self.settle(now);
    }

    /// A message of the control channel.
    pub(crate) fn handle_message(&mut self, now: Time, sender: Incarnation, message: MembershipMessage) {
        self.cx.detector.awake(now);
        match &mut self.phase {
            Phase::Seeking(seeking) => seeking.handle_message(&mut self.cx, now, sender, message),
            Phase::Seated(seat) => {
                seat.reach(&mut self.cx, sender);
                seat.handle_message(&mut self.cx, now, sender, message);
            }
            Phase::Stopped => {}
        }
        self.settle(now);
    }

    /// The peers whose channels hold much that was not acknowledged.
    pub(crate) fn set_crowded(&mut self, crowded: BTreeSet<Incarnation>) {
        self.cx.crowded = crowded;
    }

    /// An authentic frame of this incarnation came, whatever its kind.
    pub(crate) fn heard(&mut self, now: Time, sender: Incarnation, came: Came) {
        self.cx.detector.awake(now);
        let withdrawn = self.cx.detector.heard_as(now, sender, came);
        if let (Phase::Seated(seat), true) = (&mut self.phase, withdrawn) {
            seat.beat(&mut self.cx, now);
            seat.evaluate(&mut self.cx, now);
            self.settle(now);
        }
    }

    /// A member hears little of this node, and asks it for probes.
    pub(crate) fn asked_for_probes(&mut self, now: Time, sender: Incarnation) {
        self.cx.detector.asked_for_probes(now, sender);
        if let Phase::Seated(seat) = &mut self.phase {
            seat.probe(&mut self.cx, now);
        }
    }

    /// Whether `peer` is another member of the last primary view.
    pub(crate) fn is_member(&self, peer: Incarnation) -> bool {
        matches!(&self.phase, Phase::Seated(seat) if peer != self.cx.me && seat.installed.rings.contains(peer))
    }

    /// Whether `peer` is such a member, or one of the next view, as far as this node has voted for it.
    pub(crate) fn may_be_of_next_view(&self, peer: Incarnation) -> bool {
        self.is_member(peer)
            || matches!(&self.phase, Phase::Seated(seat) if seat.installed.engine.names(peer))
    }

    /// The transport noticed something about the path to an address.
    pub(crate) fn handle_path_trouble(&mut self, now: Time, addr: SocketAddr, trouble: PathTrouble) {
        self.cx.detector.awake(now);
        match &mut self.phase {
            Phase::Seeking(seeking) => seeking.handle_path_trouble(&mut self.cx, now, addr, trouble),
            // Lost, refused or timed out: the path does not work. Only hearing the peer again cures that.
            Phase::Seated(seat) => {
                self.cx.contacts.trouble(addr);
                let members = seat.installed.view.members.iter();
                let there = members.filter(|member| member.addr == addr);
                let there: Vec<Incarnation> = there.map(|member| member.incarnation).collect();
                for member in there {
                    self.cx.detector.trouble(now, member);
                    if trouble != PathTrouble::TimedOut && seat.leaving.cannot_tell(member) {
                        seat.evaluate(&mut self.cx, now);
                    }
                }
            }
            Phase::Stopped => {}
        }
        self.settle(now);
    }

    /// Whether a lifeline of this member is held, over a way that works.
    pub(crate) fn holds_lifeline(&self, member: Incarnation, works: impl Fn(SocketAddr) -> bool) -> bool {
        self.cx.lifelines.holds(member, works)
    }

    /// The link of an outbound lifeline has failed, and another one works.
    pub(crate) fn move_lifeline(&mut self, now: Time, dial: DialId) {
        self.cx.lifelines.moved(now, dial);
        self.settle(now);
    }

    /// A lifeline event; a record is already opened, and `sender` is the incarnation that sealed it.
    pub(crate) fn handle_lifeline(&mut self, now: Time, event: LifelineEvent, sender: Option<Incarnation>) {
        self.cx.detector.awake(now);
        if let Phase::Seated(seat) = &mut self.phase {
            seat.handle_lifeline(&mut self.cx, now, event, sender);
        } else if let LifelineEvent::Record {
            connection,
            local,
            remote,
            record,
        } = event
        {
            // A watcher may be admitted a moment later than the member that it watches.
            if let Some(sender) = sender {
                self.cx
                    .lifelines
                    .record(connection, local, remote, sender, record);
            }
        } else if let LifelineEvent::Ended { connection, end } = event {
            self.cx.lifelines.ended_early(connection, end);
        }
        self.settle(now);
    }

    /// A witness reports a death, with the last vote of the dead member. The caller has made sure that the
    /// witness holds the cluster key. True if this node need not hear the report again. A node that is in no
    /// view with the dead member may be in one later, so it does need it again.
    pub(crate) fn handle_witnessed(&mut self, now: Time, certificate: Certificate) -> bool {
        self.cx.detector.awake(now);
        let used = match &mut self.phase {
            Phase::Seated(seat) => seat.handle_witnessed(&mut self.cx, now, certificate),
            Phase::Seeking(_) | Phase::Stopped => false,
        };
        self.settle(now);
        used
    }

    /// The group layer or a channel doubts a peer.
    pub(crate) fn accuse(&mut self, now: Time, peer: Incarnation, evidence: Evidence) {
        self.cx.detector.awake(now);
        // Only a lifeline or a witness proves a death.
        if evidence == Evidence::ProofOfDeath {
            return;
        }
        let news = self.cx.detector.accuse(now, peer, evidence);
        self.act_on_doubt(now, news);
    }

    /// The channel to a peer broke: nothing of what it says can be relied on any more.
    pub(crate) fn sever(&mut self, now: Time, peer: Incarnation) {
        self.cx.detector.awake(now);
        let news = self.cx.detector.sever(now, peer);
        self.act_on_doubt(now, news);
    }

    fn act_on_doubt(&mut self, now: Time, news: bool) {
        if let Phase::Seated(seat) = &mut self.phase
            && news
        {
            seat.beat(&mut self.cx, now);
            seat.evaluate(&mut self.cx, now);
        }
        self.settle(now);
    }

    /// A peer named a primary view that is not installed here: pull it.
    pub(crate) fn behind(&mut self, now: Time, view: ViewId, peer: Incarnation) {
        if let Phase::Seated(seat) = &mut self.phase
            && view > seat.installed.view.primary_id()
            && seat.installed.rings.contains(peer)
        {
            seat.pull(&mut self.cx, now, peer);
        }
    }

    /// Addresses found at run time replace those given before.
    pub(crate) fn set_hints(&mut self, now: Time, hints: Hints) {
        self.cx.detector.awake(now);
        let news = self.cx.contacts.set(now, hints);
        if let (Phase::Seeking(seeking), true) = (&mut self.phase, news) {
            seeking.hurry(&self.cx, now);
        }
        self.handle_timeout(now);
    }

    /// The neighbours of this node in the installed view.
    pub(crate) fn neighbours(&self) -> Vec<Incarnation> {
        match &self.phase {
            Phase::Seated(seat) => seat.installed.topology.neighbours().collect(),
            Phase::Seeking(_) | Phase::Stopped => Vec::new(),
        }
    }

    /// Whether this node hears all members of the installed view itself.
    pub(crate) fn hears_all(&self) -> bool {
        !matches!(&self.phase, Phase::Seated(seat) if !seat.installed.topology.hears_all())
    }

    /// This node is about to speak to a member, which may be no neighbour. Returns the member's address if it
    /// is a member of a large view. The caller connects to it.
    pub(crate) fn reach(&mut self, member: Incarnation) -> Option<SocketAddr> {
        let Phase::Seated(seat) = &self.phase else {
            return None;
        };
        if seat.installed.topology.tells_all() || member == self.cx.me {
            return None;
        }
        let addr = seat
            .installed
            .view
            .members
            .get(seat.installed.rings.rank(member)?)?
            .addr;
        self.cx.adopt_peer(member, addr).then_some(addr)
    }

    /// Leave the cluster in order.
    pub(crate) fn leave(&mut self, now: Time) {
        match &mut self.phase {
            Phase::Seeking(seeking) => seeking.leave(&mut self.cx, now),
            Phase::Seated(seat) => {
                let by = now + self.cx.config.profile.leave_within;
                seat.leave(&mut self.cx, now, by);
            }
            Phase::Stopped => {}
        }
        self.settle(now);
    }

    /// Another input came, so this node runs.
    pub(crate) fn awake(&mut self, now: Time) {
        match &self.phase {
            // After a pause an input may come before the timer that shows how late the node is.
            Phase::Seated(seat) => self.cx.detector.served(now, seat.next_heartbeat),
            Phase::Seeking(seeking) => self.cx.detector.served(now, seeking.next_deadline()),
            Phase::Stopped => self.cx.detector.awake(now),
        }
    }

    /// For how long this node did not run, by its own fault, since the last call.
    pub(crate) fn take_missed(&mut self) -> Duration {
        let missed = self.cx.detector.take_missed();
        if let (Phase::Seated(seat), false) = (&mut self.phase, missed.is_zero()) {
            seat.lease.missed(missed);
            seat.merging.missed(missed);
            seat.installed.standstill.missed(missed);
        }
        missed
    }

    /// A deadline passed, or may have.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.awake(now);
        if let Some((missed, within)) = self.cx.detector.take_starvation(now) {
            self.cx.event(Event::Starved { missed, within });
        }
        match &mut self.phase {
            Phase::Seeking(seeking) => seeking.tick(&mut self.cx, now),
            Phase::Seated(seat) => seat.tick(&mut self.cx, now),
            Phase::Stopped => {}
        }
        self.settle(now);
        if planted!(OverrideUnasked) {
            self.recover_unasked(now);
        }
    }

    /// When [`Membership::handle_timeout`] wants to be called.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Seeking(seeking) => Some(seeking.next_deadline()),
            Phase::Seated(seat) => Some(seat.next_deadline(&self.cx)),
            Phase::Stopped => None,
        }
    }

    /// The next thing to do.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.cx.effects.pop_front()
    }

    /// Keeps from here on what [`Membership::poll_trail`] gives.
    pub(crate) fn keep_trail(&mut self) {
        self.cx.trail.get_or_insert_default();
    }

    /// The next step of a ballot.
    pub(crate) fn poll_trail(&mut self) -> Option<BallotNote> {
        self.cx.trail.as_mut()?.pop_front()
    }

    /// The installed view, primary or not.
    pub(crate) fn view(&self) -> Option<&Arc<NodeView>> {
        match &self.phase {
            Phase::Seated(seat) => Some(seat.installed.nonprimary.view().unwrap_or(&seat.installed.view)),
            Phase::Seeking(_) | Phase::Stopped => None,
        }
    }

    /// What is known about why a named node is or is not a member.
    pub(crate) fn why(&self, now: Time, name: &str) -> WhyReport {
        let mut entries = self.cx.history.why(now, name);
        self.extend_why(now, name, &mut entries);
        WhyReport {
            name: name.to_owned(),
            entries,
        }
    }

    /// Carries out what became of this incarnation.
    fn settle(&mut self, now: Time) {
        while let Some(fate) = self.cx.fate.take() {
            match fate {
                Fate::Seated(view) => {
                    let leaves_by = match &self.phase {
                        Phase::Seeking(seeking) => seeking.leaves_by(),
                        Phase::Seated(_) | Phase::Stopped => None,
                    };
                    self.seated = now;
                    self.cx.contacts.register_anew();
                    let mut seat = Seat::new(&mut self.cx, now, *view);
                    for (dead, vote) in self.cx.lifelines.take_early() {
                        seat.certify(&mut self.cx, now, dead, vote, true);
                    }
                    if let Some(by) = leaves_by {
                        seat.leave(&mut self.cx, now, by);
                    }
                    seat.tick(&mut self.cx, now);
                    self.phase = Phase::Seated(Box::new(seat));
                }
                Fate::Over { cause } if self.cx.config.rejoin => self.start_over(now, cause),
                Fate::Left => {
                    self.cx.event(Event::Left);
                    self.stop();
                }
                Fate::Over { .. } | Fate::GiveUp => self.stop(),
            }
        }
    }

    fn stop(&mut self) {
        self.cx.effects.push_back(Effect::Stopped);
        self.phase = Phase::Stopped;
    }

    /// R6, R8: a fresh incarnation of the same process looks for the cluster again.
    fn start_over(&mut self, now: Time, cause: String) {
        self.cx.leave_last_vote(None);
        let resets = self.cx.lifelines.reset_all();
        self.cx.lifeline_commands(resets);
        let me = Incarnation(self.cx.random.next_u128());
        self.cx.me = me;
        self.cx.peers.clear();
        self.cx.detector = Detector::new(me, &self.cx.config.profile, self.cx.config.engine);
        self.cx.effects.push_back(Effect::NewIncarnation {
            me,
            cause: Some(cause),
        });
        // A node that is removed again and again slows down.
        let quick = now.since(self.seated) < self.cx.config.profile.suspect_after * 8;
        self.removals = if quick { (self.removals + 1).min(5) } else { 0 };
        let pause = match self.removals {
            0 => Duration::ZERO,
            removals => self.cx.config.profile.heartbeat * (1 << removals),
        };
        if let Some((_, until)) = self.cx.past.as_mut().and_then(|past| past.gave_way.as_mut()) {
            *until = *until + pause;
        }
        self.phase = Phase::Seeking(Box::new(Seeking::new(&self.cx, now + pause)));
    }
}

impl Membership {
    /// Whether what happens now may be delivered: always, except at a member whose lease is over. The caller
    /// asks before and after each input.
    pub(crate) fn may_deliver(&mut self, now: Time) -> bool {
        match &mut self.phase {
            Phase::Seated(seat) => {
                seat.tell_lease(&mut self.cx, now);
                seat.lease.until().is_none() || seat.believes(now)
            }
            Phase::Seeking(_) | Phase::Stopped => true,
        }
    }

    /// Until when this node believes in its view, if that has an end.
    pub(crate) fn believes_until(&self) -> Option<Time> {
        match &self.phase {
            Phase::Seated(seat) => seat.lease.until(),
            Phase::Seeking(_) | Phase::Stopped => None,
        }
    }
}

#[cfg(test)]
mod tests;

//! Meeting others: nodes that seek, members that were removed, and other lineages of the same cluster.
//!
//! What follows when two lineages meet is in [`merge`].
//!
//! A member ignores a lineage of another engine or policy: nobody could join it, so a member that gave way to
//! it would find no place there. Every standing says what its lineage runs.
//!
//! Nodes of different lineages send each other no heartbeats, so each member seeks at a slow pace. It seeks
//! at the seeds and hints that are no members; without a primary also at members, in a wide view by turns
//! ([`reconnect`]). From the same Seeks locators know which nodes are members.
//!
//! [`merge`]: crate::membership::partition::merge
//! [`reconnect`]: crate::membership::monitor::reconnect

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::membership::{Discovery, KnownNode, MembershipMessage, Standing};
use antiphon_wire::{Evidence, Incarnation};

use crate::Time;
use crate::membership::change::joiners;
use crate::membership::contacts::hints::{REGISTER, REGISTER_SILENT};
use crate::membership::context::Context;
use crate::membership::partition::merge::Says;
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;
use crate::membership::seek::founding;
use crate::membership::view::check;
use crate::sound::record_is_sound;

/// Members seek this many heartbeats apart while they are primary.
const SLOW_SEEK: u32 = 8;
/// A member asks at once at most so many of the strangers that a locator names.
const MAX_KNOWN: usize = 16;

/// Where the sender of this stands, if it says so.
fn standing_of(message: &Discovery) -> Option<&Standing> {
    match message {
        Discovery::Seek { standing, .. } => standing.as_ref(),
        Discovery::Here { standing, .. }
        | Discovery::Removed { standing, .. }
        | Discovery::Yield { standing, .. }
        | Discovery::Stay { standing, .. } => Some(standing),
        Discovery::Join { .. }
        | Discovery::Refused { .. }
        | Discovery::Known { .. }
        | Discovery::Announce { .. } => None,
    }
}

impl Seat {
    /// Whether this standing is of a lineage that nodes of this one cannot join.
    pub(crate) fn is_foreign(&self, cx: &Context, other: &Standing) -> bool {
        other.lineage != self.installed.view.lineage && check::standings_differ(&cx.config, other)
    }

    pub(crate) fn standing(&self, cx: &Context) -> Standing {
        Standing {
            lineage: self.installed.view.lineage,
            view: self.installed.view.primary_id(),
            number: self.installed.view.number,
            weight: self.weight(),
            primary: !self.is_bereft(cx),
            engine: cx.config.engine.code(),
            policy: cx.config.policy.code(),
            overrides: cx.overrides.and_then(|(lineage, overridden)| {
                (lineage == self.installed.view.lineage).then_some(overridden)
            }),
        }
    }

    /// Whether this node is in no primary view. Under `any` each component goes on, so there are no views
    /// that would show it; there a member that can decide nothing has nothing to offer to another component.
    fn is_bereft(&self, cx: &Context) -> bool {
        !self.is_primary() || cx.any() && !self.installed.quorum
    }

    pub(crate) fn seek_others(&mut self, cx: &mut Context, now: Time) {
        if now < self.next_seek {
            return;
        }
        let (profile, bereft) = (&cx.config.profile, self.is_bereft(cx));
        let looks = self.installed.reconnect.looks(profile, now, bereft);
        let pace = if looks { 1 } else { SLOW_SEEK };
        self.next_seek = now + cx.jitter(cx.config.profile.heartbeat * pace);
        let mut to: BTreeSet<SocketAddr> = founding::seeds_of(&cx.config);
        to.extend(cx.contacts.turn(now));
        to.extend(cx.left_behind.turn(now));
        if self.is_primary() {
            for member in &self.installed.view.members {
                to.remove(&member.addr);
            }
        }
        if looks {
            to.extend(self.installed.reconnect.take_turn(&self.installed.view));
        }
        for addr in to {
            self.seek_at(cx, addr, false);
        }
    }

    /// Tells the locators that this node is a member: soon after it became one, and as soon as one of them
    /// may have forgotten it.
    pub(crate) fn register(&mut self, cx: &mut Context, now: Time) {
        // Members must not all do so at the same instant, however they were started: each waits for a random
        // time.
        let heartbeat = cx.config.profile.heartbeat;
        let seldom = if planted!(RegisterSeldom) { 16 } else { 1 };
        let known = cx.jitter(heartbeat * REGISTER * seldom);
        for addr in cx.contacts.due(now, known, heartbeat * REGISTER_SILENT * seldom) {
            self.seek_at(cx, addr, false);
        }
    }

    /// A locator named nodes that are no members: others that wait, or that founded a cluster of their own.
    fn known(&self, cx: &mut Context, now: Time, locator: SocketAddr, up_ms: u32, nodes: &[KnownNode]) {
        let up = Duration::from_millis(u64::from(up_ms));
        if !cx.contacts.answered(now, locator, up, &[]) {
            return;
        }
        let strangers = nodes
            .iter()
            .map(|node| node.addr)
            .filter(|addr| {
                self.installed
                    .view
                    .members
                    .iter()
                    .all(|member| member.addr != *addr)
            })
            .take(MAX_KNOWN);
        for addr in strangers {
            self.seek_at(cx, addr, false);
        }
    }

    pub(crate) fn seek_at(&self, cx: &mut Context, addr: SocketAddr, reply: bool) {
        let message = Discovery::Seek {
            node: cx.record(),
            seeds: founding::digest_of(&cx.config),
            expect: cx.config.expect.unwrap_or(0),
            founder: false,
            standing: Some(self.standing(cx)),
            others: Vec::new(),
            reply,
        };
        cx.discover(addr, message);
    }

    pub(crate) fn handle_discovery(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: Discovery,
    ) {
        // Nodes that could not be members of one cluster ignore each other, until one of them asks.
        if standing_of(&message).is_some_and(|other| self.is_foreign(cx, other)) {
            return;
        }
        match message {
            Discovery::Seek {
                node,
                standing,
                reply,
                ..
            } => {
                if !record_is_sound(&node) || node.addr == cx.config.addr || sender == cx.me {
                    return;
                }
                if !self.installed.view.contains(sender) && !cx.may_answer(now, node.addr) {
                    return;
                }
                match standing {
                    Some(standing) if standing.lineage == self.installed.view.lineage => {
                        self.met(cx, now, sender, &standing, reply);
                        let stranger = !self.installed.view.contains(sender);
                        if stranger && standing.view <= self.installed.view.primary_id() {
                            self.removed_notice(cx, sender, node.addr);
                        } else if stranger {
                            // R8: the cluster went on without this node, with members that it has never met,
                            // and so does not speak to by itself. If it speaks to them, they tell it.
                            self.seek_at(cx, node.addr, false);
                        }
                    }
                    Some(standing) => {
                        self.went_apart(cx, sender);
                        self.meet(cx, now, standing, node.addr, Says::Here);
                    }
                    None => self.sought(cx, now, sender, &node.name, node.addr),
                }
            }
            Discovery::Join { node, number, from } => {
                if !record_is_sound(&node) || node.addr == cx.config.addr || sender == cx.me {
                    return;
                }
                // A node that asks to be admitted was mostly answered a moment ago.
                if self.installed.view.contains(sender) || cx.may_answer(now, node.addr) {
                    self.sought(cx, now, sender, &node.name, node.addr);
                }
                let coordinates = self.led_by(cx) == cx.me && self.is_primary();
                if coordinates && !self.installed.view.contains(sender) && !self.leaving.is_departing() {
                    let view = self.installed.view.clone();
                    // In a wide view a node hears some members, and of the others it hears that they are
                    // lost.
                    let kept = (!self.installed.topology.hears_all()).then(|| self.reachable(cx));
                    let alive = |cx: &Context, member: Incarnation| match &kept {
                        Some(kept) => kept.contains(&member),
                        None => member == cx.me || cx.detector.hears_well(now, member),
                    };
                    self.joiners
                        .ask(cx, now, &view, sender, (node, number, from), alive);
                }
            }
            Discovery::Here { addr, standing, .. } => {
                if standing.lineage != self.installed.view.lineage {
                    self.went_apart(cx, sender);
                    self.meet(cx, now, standing, addr, Says::Here);
                } else if standing.view > self.installed.view.primary_id() {
                    self.hear_of_later(cx, now, sender, addr);
                }
            }
            Discovery::Removed { who, standing, cause } => {
                let later = standing.lineage == self.installed.view.lineage
                    && standing.view > self.installed.view.primary_id();
                if who == cx.me && later && !self.leaving.is_departing() {
                    self.expelled(cx, cause);
                    return;
                }
            }
            Discovery::Known { addr, up_ms, nodes } => self.known(cx, now, addr, up_ms, &nodes),
            Discovery::Yield {
                node,
                standing,
                nonce,
            } => {
                if !record_is_sound(&node) {
                    return;
                }
                self.went_apart(cx, sender);
                if node.addr != cx.config.addr {
                    let alive = |member| member == cx.me || cx.detector.hears_well(now, member);
                    let refusal = joiners::refusal(&cx.config, &self.installed.view, &node, alive);
                    let has_room = refusal.is_none();
                    self.meet(cx, now, standing, node.addr, Says::Yield { nonce, has_room });
                }
            }
            Discovery::Stay {
                addr,
                standing,
                nonce,
            } => self.meet(cx, now, standing, addr, Says::Stay { nonce }),
            Discovery::Refused { .. } | Discovery::Announce { .. } => {}
        }
        self.evaluate(cx, now);
    }

    /// Another node has a later view of the same lineage: a member that has been there since, or a node that
    /// joined later, of which this node cannot have heard. A node that joined later answers so only if this
    /// node is a member there as well.
    fn hear_of_later(&mut self, cx: &mut Context, now: Time, sender: Incarnation, addr: SocketAddr) {
        if self.installed.view.contains(sender) {
            self.reach(cx, sender);
            self.pull(cx, now, sender);
        } else if !planted!(PullFromNoStranger)
            && self
                .installed
                .told
                .may_tell(now, sender, cx.config.profile.heartbeat)
        {
            // This node asks whatever it has asked of others: this one may be the only one that has the
            // missing views, and always answer last.
            cx.know_peer(sender, addr);
            let (lineage, after) = (self.installed.view.lineage, self.installed.view.primary_id());
            cx.send(sender, MembershipMessage::Pull { lineage, after });
        }
    }

    /// A node without a view looks for members.
    fn sought(&mut self, cx: &mut Context, now: Time, sender: Incarnation, name: &str, addr: SocketAddr) {
        if self.installed.view.contains(sender) {
            // Its admission was decided, but the news got lost.
            if self
                .installed
                .told
                .may_tell(now, sender, cx.config.profile.heartbeat)
            {
                let view = self.installed.view.clone();
                let admitted = view.joined.contains(&sender);
                self.here(cx, addr);
                self.reach(cx, sender);
                if admitted {
                    self.tell_admission(cx, sender, &view);
                } else if let Some(first) = cx.history.admission(view.lineage, sender).cloned() {
                    self.tell_admission(cx, sender, &first);
                }
            }
            return;
        }
        let former = self
            .installed
            .view
            .members
            .iter()
            .find(|member| member.addr == addr && member.name == name);
        if let Some(former) = former.map(|member| member.incarnation)
            && !cx.detector.suspects(former)
            // The process was started again, so the former one has lost its connections at least. But a
            // question of an earlier one may have been on its way for long.
            && !cx.detector.hears_well(now, former)
            && cx.detector.accuse(now, former, Evidence::ConnectionLost)
        {
            self.next_heartbeat = now;
        }
        self.here(cx, addr);
    }

    /// The member that proposes. In a wide view it is the last known one, since to weigh a thousand members
    /// for each question takes too long.
    fn led_by(&self, cx: &Context) -> Incarnation {
        match self
            .installed
            .leader
            .filter(|_| !self.installed.topology.hears_all())
        {
            Some(leader) => leader,
            None => self.coordinator(cx, &self.reachable(cx)),
        }
    }

    pub(crate) fn here(&self, cx: &mut Context, addr: SocketAddr) {
        let coordinator = self.led_by(cx);
        let coordinator_addr = self
            .installed
            .view
            .member(coordinator)
            .map_or(cx.config.addr, |coordinator| coordinator.addr);
        let standing = self.standing(cx);
        cx.discover(
            addr,
            Discovery::Here {
                addr: cx.config.addr,
                standing,
                coordinator,
                coordinator_addr,
            },
        );
    }

    /// A member of this lineage asks, or answers.
    fn met(&mut self, cx: &mut Context, now: Time, sender: Incarnation, standing: &Standing, reply: bool) {
        let Some(addr) = self.installed.view.member(sender).map(|member| member.addr) else {
            return;
        };
        let mine = self.installed.view.primary_id();
        if standing.view > mine {
            self.reach(cx, sender);
            return self.pull(cx, now, sender);
        }
        if standing.view < mine {
            if self
                .installed
                .told
                .may_tell(now, sender, cx.config.profile.heartbeat)
            {
                self.here(cx, addr);
            }
            return;
        }
        if self.installed.topology.hears_all() || planted!(NothingBeyondTheRings) {
            return;
        }
        if !standing.primary {
            self.installed.reconnect.disagree(now);
        }
        let pause = cx.config.profile.heartbeat / 2;
        if self.installed.reconnect.hear(now, sender, reply, pause) {
            self.seek_at(cx, addr, true);
        }
        self.reach(cx, sender);
    }

    /// Finds which members to look for where no ring leads, and to which of them this node speaks.
    pub(crate) fn look_beyond(&mut self, cx: &mut Context, now: Time) {
        let bereft = self.is_bereft(cx);
        let Installed {
            reconnect,
            topology,
            engine,
            view,
            rings,
            ..
        } = &mut self.installed;
        let (profile, misses_some) = (&cx.config.profile, topology.misses_some());
        if reconnect.look(profile, now, (view, rings), bereft, misses_some) {
            let soon = now + cx.jitter(cx.config.profile.heartbeat / 2);
            self.next_seek = self.next_seek.min(soon);
        }
        let Some(gossip) = topology.gossip_mut() else {
            return;
        };
        let bridges = reconnect.bridge(now, view, gossip, |member| engine.is_certified(member));
        let bridges = bridges.to_vec();
        bridges.into_iter().for_each(|member| self.reach(cx, member));
    }

    /// R8: when a member speaks that was removed while alive, it is told so.
    pub(crate) fn tell_removed(&mut self, cx: &mut Context, now: Time, who: Incarnation) {
        let pause = cx.config.profile.heartbeat / 2;
        let addr = cx.history.departure(who).map(|departure| departure.member.addr);
        let addr = addr.or_else(|| cx.peers.get(&who).copied());
        if let Some(addr) = addr
            && self.installed.told.may_tell(now, who, pause)
        {
            self.removed_notice(cx, who, addr);
        }
    }

    fn removed_notice(&self, cx: &mut Context, who: Incarnation, addr: SocketAddr) {
        let cause = match cx.history.departure(who) {
            Some(departure) => check::departure_text(&self.installed.view, departure),
            None => "the cluster went on without it long ago".to_owned(),
        };
        cx.discover(
            addr,
            Discovery::Removed {
                who,
                standing: self.standing(cx),
                cause,
            },
        );
    }
}

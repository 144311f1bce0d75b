//! Relay: if the direct path of two members is dead, they go on through a member that both hear (R20, G36).
//!
//! ```text
//!   a ──x──► p        Paths{p does not hear a}:  p ──► m ──► a  (or directly, if only one direction is dead)
//!   │        ▲
//!   │        │        a ──► m   Relay{to: [p], frame}       sealed by a, around a frame that a sealed for p
//!   └──► m ──┘        m ──► p   Relayed{frame}              sealed by m, around the same bytes
//! ```
//! A frame travels one hop more, as it was sealed: the relay reads no word of it and keeps nothing of it. So
//! any frame, be it control, messages of any dissemination, or repairs, means at its end what it means on a
//! direct path. It counts as a sign of life of the member that sealed it: the detector does not doubt a
//! member that is heard through another.
//!
//! # What each member knows
//! Only the far end of a path knows that it is dead. So with each heartbeat every member tells all others
//! which of them it does not hear directly (`Paths`), and which of them said so of it. With a member that it
//! does not name, all is well. From these reports each member draws its own conclusions for each other one,
//! and for one direction only, that of what it sends:
//!
//! ```text
//!                reported deaf, or nothing reported for 3 heartbeats, or the network reports trouble
//!     Direct ──────────────────────────────────────────────────────────────────────────────► Through { via }
//!       ◄─────────────────────────────────────────────────────────────────────────────────────
//!                reported to hear steadily
//! ```
//! What goes through a relay depends on how sure the sender is that the path is dead. *Known deaf*:
//! everything. *Guessed* (the member may just be dead, or slow): control goes both ways, bulk stays on the
//! direct path. Heartbeats and reports always go directly too: they show when a path works again.
//!
//! A relay for frames from a to p is a member m. As far as a knows, m hears a and p, and a and p hear m, all
//! directly. A member whose connection broke lately is the last resort: mostly another connection is made at
//! once, but it takes a while until the member's reports show that. Steady paths are preferred, then a choice
//! by hash spreads the pairs over the members. Both directions choose for themselves; mostly they choose
//! alike.
//!
//! # What happens when…
//! - *the relay dies*: a hears nothing of it for 3 heartbeats, or its connection breaks, and a chooses
//!   another one. That is well before p doubts a (`suspect_after` is at least 4 heartbeats, and a waits for
//!   half of it at most). What was on its way is lost, as on a connection that broke, and repaired as then:
//!   by channels and logs;
//! - *it loses its path to p, or to a, in one direction or both*: its next report says so;
//! - *it says that it hears all and passes on nothing*, or too slowly: p reports that it hears a through
//!   nobody, or through another member. After 3 heartbeats, 6 if the relay worked before and p says nothing,
//!   a avoids this relay for 20 and tries the next;
//! - *there is none*: frames go to p directly, and p doubts a in time. A pair that stays so for
//!   `unreachable_after` loses its junior, with the cause `unreachable from a` (membership does that);
//! - *a path works and fails by turns*: once it failed, it must be heard on without a gap for 10 heartbeats
//!   before it is used again, and twice as long if it fails again soon (80 at most). Meanwhile the relay goes
//!   on, and nothing is lost at the turns;
//! - *p dies, or is stopped*: nobody can tell this from a dead path, so control is passed on for a while. m
//!   doubts p as a does;
//! - *a was stopped itself*, or gets too little processor: what it missed is given to every member, as in the
//!   detector and by its measure, so a reports nobody deaf for it. All others report for a while that they
//!   hear a since lately only, and then none of them is a better way than the direct one;
//! - *a view removes one of them*: relays pass on nothing for or from a member that is in no view of theirs;
//! - *a host loses most of what it sends*: paths through others lose as much. What is passed on counts as
//!   life only, not as a good path. Observers of the cut engine judge paths by what comes on them, and such a
//!   host goes;
//! - *p has several addresses*: a path is dead when none of them works. What p says of them (`Beat`) goes
//!   through the relay too, so that a finds the address that works;
//! - *a proof of death is due*: lifelines are never relayed. A proof that the relay, or any member, has is
//!   shared by certificate.
//!
//! # Why load does not keep relays up
//! A frame that waits for a processor looks like one that a path lost, and a frame passed on is two more to
//! handle. Relays that load begins must therefore end by themselves, although they are load. Four rules
//! bring that about:
//! 1. *Heartbeats tell which member was late.* They are numbered. If a member is heard again after a
//!    silence and a heartbeat later has made less than half of the heartbeats that were due since, it was
//!    late and its path lost nothing. The path is used at once and not after ten to eighty heartbeats.
//! 2. *If many are silent at once, this node is the late one*, or the whole machine: it waits twice as long
//!    before it calls their paths dead. That is still less than `suspect_after`.
//! 3. *Lateness makes no heartbeats.* A node makes at most 8 in the time of 7, however those of the others
//!    come in (`membership/seat/heartbeats.rs`).
//! 4. *Lateness makes no answers.* A member that always asks, because each answer is too old when it is read,
//!    is answered at once ever more seldom (`membership/lease/answers.rs`).
//!
//! By 3 and 4 the heartbeats are bounded, by 8/7 of those of a cluster at rest and a few answers, so a node
//! that can handle these works off what has gathered. Relays add to them as follows. A late member a makes no
//! heartbeats meanwhile. Those that call its path dead have what it sends passed on until two of its
//! heartbeats have come, and pass on what they send to it only while it is silent and a relay hears it. Of
//! a's own heartbeats, two are passed on to each member: at most four frames, where three or more are missing
//! that a did not make. So a relay begun by lateness lasts for as long as that silence, and two heartbeats
//! and a report longer. Nothing counts up from one silence to the next: after the last one no relay is left.
//! A path that does lose frames shows it by the numbers; rule 1 leaves it dead, and rule 2 only delays that.
//!
//! Probes come on top ([`crate::detector::probing`]), two each heartbeat to each member that is late by more
//! than one and a half. Where processors cannot take these either, nodes stay late; relays end all the same.
//!
//! # Invariants
//! - One hop: a relay sends what it passes on to its target's address, never to another relay. A frame inside
//!   of a passed-on frame is not passed on. So no frame can circle, and nobody passes one on twice.
//! - What a member may ask: that a relay passes on to other members what the asking member sealed itself, or
//!   what members hand on from each other in any case. One frame makes at most 32, each target once, and a
//!   frame that asks says nothing else.
//! - A relay keeps nothing. Its queue to the target is its transport's, which is bounded and drops. A member
//!   that sends too much is held back by credit, end to end, as on a direct path.
//! - What came through another member is no sign that the direct path works: only that its sender lives. Nor
//!   is what came as a probe ([`crate::detector::probing`]). Only what the sender reports in it counts, since
//!   that is about what the sender hears otherwise.
//! - State is bounded by the members of the view: a report is read as far as it speaks of them.
//!
//! The way of each frame is for the simulator to judge (`check/inside/paths`).
//!
//! # Wide views
//!
//! Where not all members are neighbours, a dead path is one edge of ten and removes nobody, and what all must
//! hear goes around by rumours. But the members of a group speak to each other directly, and stand still when
//! one path between two of them is dead. So there a member watches its *companions*, the members that are in
//! some group with it. Companions tell each other with each heartbeat what they hear, as all members do in a
//! narrow view, and are heard at least as often.
//! - A relay for a companion is another group member of both: in some group all three are together, so that
//!   each has the others' reports.
//! - If there is none, as in a group of two, the relay is a *bystander*: one of this node's neighbours on the
//!   rings, chosen by hash. No report says what it hears. If the companion does not report that it hears this
//!   node through the bystander, the bystander is avoided like a relay that passes on nothing.
//! - Any member passes on for any other one of its view.
//!
//! The cost grows with the groups, not with the view: a small frame to each companion in each heartbeat, and
//! a connection that carries it.
//!
//! Not done here: nothing is relayed to nodes that are in no view. A joiner needs direct paths to the
//! coordinator and to a member.

mod path;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::record::{Directly, Path, Paths};
use antiphon_wire::{Incarnation, Member};

use crate::{Class, GroupHandle, PeerPath, Profile, Time};
use path::Inbound;

/// A path of which nothing was heard for this many heartbeats is dead.
const SILENT_BEATS: u32 = 3;
/// A relay that has not shown in this many heartbeats that it works is given up.
const NEW_BEATS: u32 = 3;
/// A relay that did work is given up when it has shown nothing since for this many heartbeats. One report may
/// be late or overtaken.
const PATIENCE_BEATS: u32 = 6;
/// For this many heartbeats such a relay is not chosen again for the same target.
const AVOID_BEATS: u32 = 20;
/// If one in `MANY_OF` of all paths is silent at the same time, and at least `MANY_AT_LEAST` are, it is
/// rather this node that is late.
const MANY_OF: usize = 8;
const MANY_AT_LEAST: usize = 3;
/// Which paths are bad is said anew in `SAID_AGAIN` reports after it changed, and then in one report of
/// `SAID_EVERY`. What is the same goes without saying.
const SAID_AGAIN: u64 = 3;
const SAID_EVERY: u64 = 5;

/// The paths to all members of the primary view.
#[derive(Debug)]
pub(crate) struct Relay {
    me: Incarnation,
    heartbeat: Duration,
    /// After this long without a frame a direct path is dead.
    silence: Duration,
    peers: BTreeMap<Incarnation, Peer>,
    /// Members that may be asked to pass on although they report nothing.
    bystanders: Vec<Incarnation>,
    /// The last report, with all that is bad, and when it was made.
    told: Paths,
    told_at: Option<Time>,
    /// Something changed that all members should hear of now.
    news: bool,
    /// Members that should hear from this one now, through another.
    whispers: BTreeSet<Incarnation>,
    changes: VecDeque<PeerPath>,
}

#[derive(Debug)]
struct Peer {
    addr: SocketAddr,
    /// The groups in which it is with this node, if not all watch all.
    together: Option<BTreeSet<GroupHandle>>,
    inbound: Inbound,
    /// The member that passed on the last frame that came so, and when.
    through: Option<(Incarnation, Time)>,
    /// The network reported trouble with what is sent there, and nothing has shown since that it arrives.
    trouble: Option<Time>,
    report: Report,
    outbound: Outbound,
    /// The relay that the application was told of.
    told: Option<Incarnation>,
    /// Relays that did not work, until then.
    avoided: BTreeMap<Incarnation, Time>,
}

/// What a member said last.
#[derive(Debug)]
struct Report {
    round: u64,
    /// Since which round it says the same.
    since: u64,
    at: Time,
    paths: BTreeMap<Incarnation, Path>,
}

impl Report {
    fn path(&self, member: Incarnation) -> Path {
        self.paths.get(&member).copied().unwrap_or(Path {
            member,
            hears: Directly::Steadily,
            heard: Directly::Steadily,
            through: None,
        })
    }
}

/// Where frames to a member go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    Direct,
    Through {
        /// `None`: there is no relay.
        via: Option<Incarnation>,
        /// When it was chosen, or last shown to work.
        since: Time,
        /// Whether the member has shown that the relay works.
        works: bool,
    },
}

/// How a frame is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Through(Incarnation),
    Both(Incarnation),
}

impl Relay {
    pub(crate) fn new(me: Incarnation, profile: &Profile) -> Self {
        Self {
            me,
            heartbeat: profile.heartbeat,
            silence: (profile.heartbeat * SILENT_BEATS).min(profile.suspect_after / 2),
            peers: BTreeMap::new(),
            bystanders: Vec::new(),
            told: Paths {
                round: 0,
                since: 0,
                paths: Some(Vec::new()),
            },
            told_at: None,
            news: false,
            whispers: BTreeSet::new(),
            changes: VecDeque::new(),
        }
    }

    /// The members of a new primary view, in which all watch all. What is known of members that stay is kept.
    pub(crate) fn watch(&mut self, now: Time, members: &[Member]) {
        let all = members.iter();
        let all = all.map(|member| (member.incarnation, (member.addr, None)));
        self.watch_these(now, all.collect(), Vec::new());
    }

    /// In a wide view: the members of this node's groups, with their addresses and the groups in which they
    /// are; and other members that may be asked to pass on.
    pub(crate) fn watch_companions(
        &mut self,
        now: Time,
        companions: BTreeMap<Incarnation, (SocketAddr, BTreeSet<GroupHandle>)>,
        bystanders: Vec<Incarnation>,
    ) {
        let companions = companions.into_iter();
        let companions = companions.map(|(peer, (addr, together))| (peer, (addr, Some(together))));
        self.watch_these(now, companions.collect(), bystanders);
    }

    fn watch_these(
        &mut self,
        now: Time,
        members: BTreeMap<Incarnation, (SocketAddr, Option<BTreeSet<GroupHandle>>)>,
        bystanders: Vec<Incarnation>,
    ) {
        self.peers.retain(|peer, _| members.contains_key(peer));
        self.bystanders = bystanders;
        for peer in self.peers.values_mut() {
            peer.avoided
                .retain(|relay, _| members.contains_key(relay) || self.bystanders.contains(relay));
        }
        self.whispers.retain(|peer| members.contains_key(peer));
        for (member, (addr, together)) in members.into_iter().filter(|(member, _)| *member != self.me) {
            if !self.peers.contains_key(&member) {
                // This member was told nothing yet.
                self.told.since = self.told.round + 1;
            }
            let peer = self.peers.entry(member).or_insert_with(|| Peer {
                addr,
                together: None,
                inbound: Inbound::new(now),
                through: None,
                trouble: None,
                report: Report {
                    round: 0,
                    since: 0,
                    at: now,
                    paths: BTreeMap::new(),
                },
                outbound: Outbound::Direct,
                told: None,
                avoided: BTreeMap::new(),
            });
            peer.together = together;
        }
    }

    /// The members that are watched.
    pub(crate) fn watched(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.peers.keys().copied()
    }

    /// Whether this is a member of the primary view.
    pub(crate) fn knows(&self, peer: Incarnation) -> bool {
        self.peers.contains_key(&peer)
    }

    /// A frame came directly from its sender.
    pub(crate) fn heard(&mut self, now: Time, peer: Incarnation) {
        let silence = self.silence;
        if let Some(known) = self.peers.get_mut(&peer)
            && known.inbound.heard(now, silence)
        {
            self.news = true;
        }
    }

    /// A member's heartbeat with this number came directly.
    pub(crate) fn beat_came(&mut self, peer: Incarnation, number: u64) {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.inbound.beat_came(number);
        }
    }

    /// The member `via` passed on a frame of the member `peer`.
    pub(crate) fn heard_through(&mut self, now: Time, peer: Incarnation, via: Incarnation) {
        let silence = self.silence;
        if let Some(known) = self.peers.get_mut(&peer) {
            let before = known.through_lately(now, silence);
            known.through = Some((via, now));
            // The sender waits to hear that a relay works. Where many go through others, the relay in use
            // changes often, and would be news to all each time.
            self.news |= before.is_none() && known.inbound.directly() != Directly::Steadily;
        }
    }

    /// The network reports trouble on the way to an address, and no link to that node is known to work.
    pub(crate) fn trouble(&mut self, now: Time, addr: SocketAddr) {
        let mut fresh = Vec::new();
        for (id, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.addr == addr) {
            // What is sent for the first trouble may be the cause of the next.
            if peer.trouble.replace(now).is_none() {
                fresh.push(*id);
            }
        }
        for id in fresh {
            // It was perhaps the relay of others.
            self.judge_after(now, id);
            self.whispers.insert(id);
        }
    }

    /// A member's report.
    pub(crate) fn handle_paths(&mut self, now: Time, peer: Incarnation, paths: &Paths) {
        let known = paths.paths.as_ref().map(|paths| {
            let known = |path: &&Path| path.member == self.me || self.peers.contains_key(&path.member);
            let of_members = paths.iter().filter(known).map(|path| (path.member, *path));
            of_members.collect::<BTreeMap<Incarnation, Path>>()
        });
        let (said, members) = (known.as_ref().map_or(0, BTreeMap::len), self.peers.len() + 1);
        // What the member says of other nodes was left out.
        assert!(
            said <= members,
            "R20: {said} paths are known of {peer:?}, of {members} members"
        );
        let silence = self.silence;
        let Some(reporter) = self.peers.get_mut(&peer) else {
            return;
        };
        // What is only said again may have been lost the first time: then it is not known what the member
        // says.
        let unknown = known.is_none() && paths.since != reporter.report.since;
        if paths.round < reporter.report.round || unknown {
            return;
        }
        let before = std::mem::take(&mut reporter.report.paths);
        let same = known.as_ref().is_none_or(|known| *known == before);
        reporter.report = Report {
            round: paths.round,
            since: paths.since,
            at: now,
            paths: known.unwrap_or(before),
        };
        // What the member heard of this node before the trouble says nothing of the path since.
        if reporter
            .trouble
            .is_some_and(|trouble| now.since(trouble) >= silence)
        {
            reporter.trouble = None;
        }
        if !same || reporter.outbound != Outbound::Direct {
            self.judge_after(now, peer);
        }
    }

    /// What a member said concerns the path to it, and the members to which frames go through it. A member
    /// that has no relay yet is looked at with this node's own next report: in a large view, all members'
    /// reports change at once when one is lost.
    fn judge_after(&mut self, now: Time, reporter: Incarnation) {
        let concerned = |(id, peer): (&Incarnation, &Peer)| {
            let through =
                matches!(peer.outbound, Outbound::Through { via: Some(via), .. } if via == reporter);
            (*id == reporter || through).then_some(*id)
        };
        let concerned: Vec<Incarnation> = self.peers.iter().filter_map(concerned).collect();
        for id in concerned {
            self.judge_one(now, id);
        }
    }

    /// The report that goes with this heartbeat; all reports that go at one time are one.
    pub(crate) fn report(&mut self, now: Time) -> Paths {
        if self.told_at != Some(now) {
            self.told_at = Some(now);
            let silence = self.silence_of_many(now);
            for peer in self.peers.values_mut() {
                peer.inbound.judge(now, silence, self.heartbeat);
            }
            self.judge(now);
            // The report that follows tells it.
            self.news = false;
            self.told.round += 1;
            let paths = Some(self.bad_paths(now));
            if self.told.paths != paths {
                self.told.since = self.told.round;
                self.told.paths = paths;
            }
        }
        let Paths { round, since, paths } = &self.told;
        let said = round.saturating_sub(*since) >= SAID_AGAIN && !round.is_multiple_of(SAID_EVERY);
        Paths {
            round: *round,
            since: *since,
            // That all is well is as short as that all is as it was.
            paths: paths.clone().filter(|paths| !said || paths.is_empty()),
        }
    }

    /// What was reported last, in full: for those that may have missed it.
    pub(crate) fn last_report(&self) -> Option<Paths> {
        self.told_at.map(|_| self.told.clone())
    }

    /// After how long a silence a path is dead. If many are silent at the same time, what they sent may be
    /// waiting here.
    fn silence_of_many(&self, now: Time) -> Duration {
        let silent = |peer: &&Peer| peer.inbound.fell_silent(now, self.silence);
        let many = (self.peers.len() / MANY_OF).max(MANY_AT_LEAST);
        match self.peers.values().filter(silent).count() >= many && !planted!(RelayWhenStarved) {
            true => self.silence * 2,
            false => self.silence,
        }
    }

    fn bad_paths(&self, now: Time) -> Vec<Path> {
        let paths = self.peers.iter().map(|(member, peer)| Path {
            member: *member,
            hears: peer.inbound.directly(),
            heard: peer.report.path(self.me).hears,
            through: peer.through_lately(now, self.silence),
        });
        let well = |path: &Path| path.hears == Directly::Steadily && path.heard == Directly::Steadily;
        paths.filter(|path| !well(path)).collect()
    }

    /// The members that should be sent a report now, and not only with the next heartbeat. However much
    /// changes, it is said a few times per heartbeat at most.
    pub(crate) fn take_news(&mut self, now: Time) -> Vec<Incarnation> {
        let told_lately = self.told_at.is_some_and(|at| now.since(at) < self.heartbeat / 8);
        if told_lately || !self.news && self.whispers.is_empty() {
            return Vec::new();
        }
        let whispers = std::mem::take(&mut self.whispers);
        if std::mem::take(&mut self.news) {
            return self.peers.keys().copied().collect();
        }
        whispers.into_iter().collect()
    }

    /// How a frame of this class goes to a member.
    pub(crate) fn way(&self, peer: Incarnation, class: Class) -> Way {
        let Some(Peer {
            outbound: Outbound::Through { via: Some(via), .. },
            report,
            ..
        }) = self.peers.get(&peer)
        else {
            return Way::Direct;
        };
        let known = report.path(self.me).hears != Directly::Steadily;
        match class {
            Class::Bulk if planted!(RelayControlOnly) => Way::Direct,
            _ if known => Way::Through(*via),
            Class::Control => Way::Both(*via),
            Class::Bulk => Way::Direct,
        }
    }

    /// What changed for the application since the last call.
    pub(crate) fn poll_change(&mut self) -> Option<PeerPath> {
        self.changes.pop_front()
    }

    /// Every member with which not all is well.
    pub(crate) fn status(&self, now: Time) -> Vec<PeerPath> {
        self.peers
            .iter()
            .map(|(id, peer)| self.path_of(now, *id, peer))
            .filter(|path| path.sends_through.is_some() || !path.hears_directly || !path.heard_directly)
            .collect()
    }

    fn path_of(&self, now: Time, id: Incarnation, peer: &Peer) -> PeerPath {
        let sends_through = match peer.outbound {
            Outbound::Through { via, works: true, .. } => via,
            _ => None,
        };
        PeerPath {
            peer: id,
            sends_through,
            heard_through: peer.through_lately(now, self.silence),
            hears_directly: peer.inbound.directly() != Directly::Never,
            heard_directly: peer.report.path(self.me).hears != Directly::Never,
        }
    }

    /// While this node was not running, or served its timers late, nobody could make it hear anything.
    pub(crate) fn forgive(&mut self, now: Time, missed: Duration) {
        let later = |time: Time| (time + missed).min(now);
        for peer in self.peers.values_mut() {
            peer.inbound.forgive(now, missed);
            peer.report.at = later(peer.report.at);
            peer.through = peer.through.map(|(via, at)| (via, later(at)));
            if let Outbound::Through { since, .. } = &mut peer.outbound {
                *since = later(*since);
            }
        }
    }

    /// Decides for every member where frames to it go.
    fn judge(&mut self, now: Time) {
        let ids: Vec<Incarnation> = self.peers.keys().copied().collect();
        for id in ids {
            self.judge_one(now, id);
        }
    }

    fn judge_one(&mut self, now: Time, id: Incarnation) {
        let next = self.decide(now, id);
        let via = match next {
            Outbound::Through { via, .. } => via,
            Outbound::Direct => None,
        };
        assert!(
            via.is_none_or(|via| via != id && via != self.me) || planted!(),
            "R20: what is sent to {id:?} goes through {via:?}"
        );
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.outbound = next;
        // A relay that is tried is no news.
        let told = match next {
            Outbound::Direct => None,
            Outbound::Through { via, works: true, .. } => via,
            Outbound::Through { .. } => return,
        };
        if std::mem::replace(&mut peer.told, told) != told {
            let path = self.path_of(now, id, &self.peers[&id]);
            self.changes.push_back(path);
        }
    }

    fn decide(&mut self, now: Time, id: Incarnation) -> Outbound {
        let (me, silence, heartbeat) = (self.me, self.silence, self.heartbeat);
        let Some(peer) = self.peers.get_mut(&id) else {
            return Outbound::Direct;
        };
        let path = peer.report.path(me);
        let fresh = now.since(peer.report.at) <= silence;
        if fresh && path.hears == Directly::Steadily && peer.trouble.is_none() {
            peer.avoided.clear();
            return Outbound::Direct;
        }
        peer.avoided.retain(|_, until| *until > now);
        // The member hears this node directly again, but not yet for long: a relay is better only if it is
        // heard steadily. If this node was stopped itself, all others say that they hear it since lately, and
        // it is heard no better through any of them.
        let lately = fresh && path.hears == Directly::Lately && peer.trouble.is_none();
        let worst = if lately {
            Directly::Steadily
        } else {
            Directly::Lately
        };
        let mut current = None;
        if let Outbound::Through {
            via: Some(via),
            since,
            works,
        } = peer.outbound
        {
            let shows = fresh && path.through == Some(via);
            let (since, works) = if shows { (now, true) } else { (since, works) };
            let patience = match works && !(fresh && path.through.is_some()) {
                true => PATIENCE_BEATS,
                false => NEW_BEATS,
            };
            if now.since(since) >= heartbeat * patience && !planted!(KeepDeadRelay) {
                peer.avoided.insert(via, now + heartbeat * AVOID_BEATS);
            } else {
                current = Some((via, since, works));
            }
        }
        let is_good = |(troubled, quality): (bool, Directly)| !troubled && quality <= worst;
        let is_fit = |via| self.bystanders.contains(&via) || self.quality(now, via, id).is_some_and(is_good);
        if let Some((via, since, works)) = current
            && (is_fit(via) || planted!(KeepDeadRelay))
        {
            return Outbound::Through {
                via: Some(via),
                since,
                works,
            };
        }
        match (self.choose(now, id, worst), current) {
            (None, _) if lately => Outbound::Direct,
            // There is no better one.
            (Some(via), Some((same, since, works))) if via == same => Outbound::Through {
                via: Some(via),
                since,
                works,
            },
            (via, _) => Outbound::Through {
                via,
                since: now,
                works: false,
            },
        }
    }

    /// The best relay to a member, if there is any whose paths are no worse than that.
    fn choose(&self, now: Time, target: Incarnation, worst: Directly) -> Option<Incarnation> {
        let avoided = |relay: &Incarnation| self.peers[&target].avoided.contains_key(relay);
        let best = self
            .peers
            .keys()
            .filter(|relay| **relay != target && self.are_together(**relay, target))
            .filter_map(|relay| Some((avoided(relay), self.quality(now, *relay, target)?, *relay)))
            .filter(|(_, (_, quality), _)| *quality <= worst)
            .min_by_key(|(avoided, quality, relay)| (*avoided, *quality, spread(self.me, target, *relay)));
        match best {
            Some((false, _, relay)) => Some(relay),
            avoided => self
                .bystander(target)
                .filter(|_| worst != Directly::Steadily)
                .or(avoided.map(|(.., relay)| relay)),
        }
    }

    /// Whether these two and this node are all three in some group.
    fn are_together(&self, one: Incarnation, other: Incarnation) -> bool {
        let together = |peer| self.peers.get(peer).and_then(|peer| peer.together.as_ref());
        match together(&one).zip(together(&other)) {
            Some((one, other)) => !one.is_disjoint(other),
            None => true,
        }
    }

    /// A member that may be asked to pass on to that member although nothing is known of what it hears.
    fn bystander(&self, target: Incarnation) -> Option<Incarnation> {
        let avoided = &self.peers.get(&target)?.avoided;
        let bystanders = self.bystanders.iter().copied();
        bystanders
            .filter(|relay| *relay != target && !avoided.contains_key(relay))
            .min_by_key(|relay| spread(self.me, target, *relay))
    }

    /// How good the paths over this relay to that member are: whether there was trouble on the way to the
    /// relay that may not be over, and the worst of the paths; `None` if one is dead.
    fn quality(&self, now: Time, relay: Incarnation, target: Incarnation) -> Option<(bool, Directly)> {
        let peer = self.peers.get(&relay)?;
        let direct = now.since(peer.report.at) <= self.silence;
        let (here, there) = (peer.report.path(self.me), peer.report.path(target));
        let legs = [peer.inbound.directly(), here.hears, there.hears, there.heard];
        let worst = legs.into_iter().max()?;
        (direct && worst != Directly::Never).then_some((peer.trouble.is_some(), worst))
    }
}

impl Peer {
    fn through_lately(&self, now: Time, silence: Duration) -> Option<Incarnation> {
        let (via, at) = self.through?;
        (now.since(at) <= silence).then_some(via)
    }
}

/// A number by which the pairs spread over the relays, the same for both directions.
fn spread(one: Incarnation, other: Incarnation, relay: Incarnation) -> u128 {
    let pair = one.0.min(other.0) ^ one.0.max(other.0).rotate_left(64);
    (pair ^ relay.0).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

//! Looking beyond the rings: members of a wide view that lost the primary meet members to which no ring
//! leads.
//!
//! A member of a wide view hears its subjects, tells its neighbours, and knows the rest from them. When many
//! members are gone, some or all of these neighbours are. Then the members that are left are islands: each
//! has word of itself only, and their votes do not reach each other, although all paths between them work and
//! they are a quorum together. Or the members that are gone stand for each other: nobody doubts a member that
//! only dead members observe, and the others wait for it. No member can be removed without a quorum, so it
//! would stay so for ever.
//!
//! ```text
//!   looks: in no primary view; or asked     any member of the same view
//!          by one that is in none, and no
//!          next view for suspect_after; or
//!          no member of which it has word
//!          hears some other one, for
//!          unreachable_after
//!   Seek ──► some members, by turns ──────► has heard it: speaks to it as to a neighbour
//!   has heard it both ways           ◄───── Seek, a reply
//!   all were asked and had the time to answer: the members that answered are reachable, and no others
//! ```
//! A member that looks asks all others, 2 × K in each turn. So a turn costs as much as the neighbours do, and
//! in a view of so many members one turn asks all. A member *speaks to* others that it has heard: its rumours
//! and heartbeats go to the next K of them, in the order of seniority and around. All members hear all that
//! look. So each member that looks has such a bridge from the member before it, and one to the member after
//! it. The islands and all between them are a ring at least, and votes go around.
//!
//! More rings instead would make islands rarer, but cost every member heartbeats all the time.
//!
//! Answers count all together or not at all. A leader that went on with the first answers could decide
//! nothing but that the view stays as it is; in the next view it would be on the same island, and so on.
//!
//! The member that leads by the answers asks to remove the members that gave none. A leader of a narrow view
//! does the same with members that it doubts. A member that hears one of them well objects (R20). Their
//! observers alone could not object: these may be the dead.
//!
//! # Invariants
//!
//! - Only three things change: which members are heard, which are told, and which a leader asks to remove.
//!   Three things do not: what counts as a quorum, which member votes for what, and which members are in the
//!   multi-node cut.
//! - A member of a primary view goes by the rings under two conditions. First, no member without a primary
//!   asks it, or would gather without a quorum. Second, each other member is heard by a member of which it
//!   has word. In a view in which all are well every member goes by the rings, whatever paths do not work. A
//!   doubt alone is one path. If it made all members look, each of them would ask all others for as long as
//!   that path does not work.
//! - A member that is counted has answered a question of this node in a view of these members: both
//!   directions work. Without a new answer it lapses after the time that asking all members takes, and then
//!   the time that makes a silent member suspected. Subjects of this node count while it hears them.
//! - Only a view of the same members goes on with what was found in the view before. The leader may decide
//!   one as soon as the rings give a quorum, again and again, and each time the same members are on their
//!   islands at once.
//! - There are at most one contact for each member, K bridges, 2 × K questions in a turn, and one answer to
//!   each question. Two answers to one member are at least half a heartbeat apart.
//!
//! # When participants die
//!
//! - *A member that looks*: it is not heard any more, and lapses; another one takes its place among the
//!   bridges.
//! - *A member that answered*: it lapses. Until then members may believe in a quorum that is none: nothing is
//!   decided by that, and a component without it is gathered later.
//! - *A question or an answer on the way*: the next turn asks again.
//! - *All members that look, but one*: that one asks all, and nobody answers. It rightly stays alone.
//! - *The leader*: it lapses, and the next member among those that answered leads.
//! - *A member installed the next view in between*: it answers with that view. The member that asked pulls
//!   it, or was removed by it and is told so ([`meeting`]).
//!
//! [`meeting`]: crate::membership::seat::meeting

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::{Incarnation, NodeView};

use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::topology::Gossip;
use crate::{Config, Profile, Time};

/// In one turn a member asks this many times as many members as there are rings.
const ASKED: usize = 2;

/// Members that were heard although no ring leads to them, or that would be heard if one did.
#[derive(Debug)]
pub(crate) struct Reconnect {
    /// Whether there are members to which no ring leads.
    wide: bool,
    /// The rank of this node among all members.
    rank: Option<usize>,
    /// How many other members there are, and how many of them are asked in a turn. In a narrow view all are:
    /// they are no more than those of a turn in a wide one.
    others: usize,
    turn: usize,
    /// This node speaks to so many members at most to which no ring leads.
    most_links: usize,
    /// A contact lapses after so long without a word. Within this time two rounds of questions, which are two
    /// heartbeats apart at most, would have had an answer, or a member that is always asked would be
    /// suspected.
    lapses_after: Duration,
    /// How many of the members after this node were asked in this round.
    asked: usize,
    contacts: BTreeMap<Incarnation, Contact>,
    /// When a member in no primary view asked first, and last.
    disagreed: Option<(Time, Time)>,
    /// Since when there has been, all the time, a member that no member hears of which this node has word.
    missing_since: Option<Time>,
    /// Since when this node has looked, and when it looked last.
    since: Option<(Time, Time)>,
    /// The members that answered, or that are heard by the rings, when everything was weighed last.
    counted: BTreeSet<Incarnation>,
    /// Whether every member had been asked then, and had had the time to answer.
    complete: bool,
    /// The members to which rumours and heartbeats go.
    bridges: Vec<Incarnation>,
}

#[derive(Debug, Clone, Copy)]
struct Contact {
    heard: Time,
    /// When the member answered a question of this node last.
    answered: Option<Time>,
    /// When this node answered a question of the member last.
    told: Option<Time>,
}

impl Reconnect {
    /// What a member begins a view with. `wide`: whether there are members to which no ring leads.
    pub(crate) fn of(config: &Config, me: Incarnation, view: &NodeView, wide: bool) -> Self {
        let others = view.members.len().saturating_sub(1);
        let most_links = config.rings.max(1);
        let most = if wide {
            most_links.saturating_mul(ASKED)
        } else {
            others
        };
        let turn = most.min(others);
        let turns = u32::try_from(others.div_ceil(turn.max(1))).unwrap_or(u32::MAX);
        let round = (config.profile.heartbeat * 2).saturating_mul(turns.saturating_add(1));
        Self {
            wide,
            rank: view.rank(me),
            others,
            turn,
            most_links,
            lapses_after: config.profile.suspect_after + round,
            asked: 0,
            contacts: BTreeMap::new(),
            disagreed: None,
            missing_since: None,
            since: None,
            counted: BTreeSet::new(),
            complete: false,
            bridges: Vec::new(),
        }
    }

    /// What is left in a view of the same members.
    pub(crate) fn renewed(self) -> Self {
        Self {
            counted: BTreeSet::new(),
            complete: false,
            bridges: Vec::new(),
            ..self
        }
    }

    pub(crate) fn lapses_after(&self) -> Duration {
        self.lapses_after
    }

    /// Whether this node asks other members. `bereft`: whether it has no primary that others could join.
    pub(crate) fn looks(&self, profile: &Profile, now: Time, bereft: bool) -> bool {
        let lasts =
            |(first, last)| now.since(first) >= profile.suspect_after && now.since(last) < self.lapses_after;
        // A member whose votes never come, or that should lead, may be one that only the dead observe. A
        // member is not removed if its observers are mostly cut off with it, and a member that observes only
        // members on its own side misses nobody. Either way the rings do not lead there.
        let is_old = |since| now.since(since) >= profile.unreachable_after;
        let in_vain = self.missing_since.is_some_and(is_old);
        bereft || self.wide && (in_vain || self.disagreed.is_some_and(lasts))
    }

    /// The members to ask now. All are asked by turns, beginning with those after this node.
    pub(crate) fn take_turn(&mut self, view: &NodeView) -> Vec<SocketAddr> {
        let Some(rank) = self.rank else { return Vec::new() };
        let (members, others) = (&view.members, self.others.max(1));
        let turn = self.asked..self.asked + self.turn;
        let asked = turn.map(|at| members[(rank + 1 + at % others) % members.len()].addr);
        let asked = asked.collect();
        self.asked = (self.asked + self.turn) % others;
        asked
    }

    /// Another member finds no quorum: it settles for less, or asks, where this node would not. One of the
    /// two is wrong.
    pub(crate) fn disagree(&mut self, now: Time) {
        let disagreed = self
            .disagreed
            .filter(|(_, last)| now.since(*last) < self.lapses_after);
        self.disagreed = Some((disagreed.map_or(now, |(first, _)| first), now));
    }

    /// A member of this view asks, or it replies. Returns whether this node replies to it: not again within
    /// `pause`.
    pub(crate) fn hear(&mut self, now: Time, member: Incarnation, reply: bool, pause: Duration) -> bool {
        let contact = self.contacts.entry(member).or_insert(Contact {
            heard: now,
            answered: None,
            told: None,
        });
        contact.heard = now;
        if reply {
            contact.answered = Some(now);
            return false;
        }
        let due = contact.told.is_none_or(|told| now.since(told) >= pause);
        if due {
            contact.told = Some(now);
        }
        due
    }

    /// Finds which members count. `misses_some`: whether some member is heard by no member of which there is
    /// word. Returns whether this node begins to look.
    pub(crate) fn look(
        &mut self,
        profile: &Profile,
        now: Time,
        (view, rings): (&NodeView, &Rings),
        bereft: bool,
        misses_some: bool,
    ) -> bool {
        self.counted.clear();
        self.complete = false;
        match misses_some {
            false => self.missing_since = None,
            true => _ = self.missing_since.get_or_insert(now),
        }
        let lapses_after = self.lapses_after;
        let is_fresh = |at: Time| now.since(at) < lapses_after;
        self.contacts.retain(|_, contact| is_fresh(contact.heard));
        let stranger = self.contacts.keys().find(|member| !rings.contains(**member));
        assert!(
            stranger.is_none() || planted!(),
            "reconnecting: of {} contacts {stranger:?} is in another view",
            self.contacts.len()
        );
        self.since = self.since.filter(|(_, last)| is_fresh(*last));
        // This is nearly always so.
        if !self.looks(profile, now, bereft) || planted!(NothingBeyondTheRings) {
            return false;
        }
        let begins = self.since.is_none();
        let (first, _) = *self
            .since
            .insert((self.since.map_or(now, |(first, _)| first), now));
        self.complete = !is_fresh(first);
        let contacts = self.contacts.iter();
        let answered = contacts.filter(|(_, contact)| contact.answered.is_some_and(is_fresh));
        let answered = answered.map(|(member, _)| *member);
        let subjects = rings.subjects(self.rank.unwrap_or(usize::MAX));
        let subjects = subjects.filter_map(|of| Some(view.members.get(of)?.incarnation));
        self.counted = answered.chain(subjects).collect();
        begins
    }

    /// Finds to which members this node speaks besides its neighbours, and has rumours go there.
    pub(crate) fn bridge(
        &mut self,
        now: Time,
        view: &NodeView,
        gossip: &mut Gossip,
        is_proven: impl Fn(Incarnation) -> bool,
    ) -> &[Incarnation] {
        let bridges = self.rank.filter(|_| !self.contacts.is_empty()).map(|rank| {
            let (senior, junior) = view.members.split_at(rank);
            let after = junior.iter().chain(senior).map(|member| member.incarnation);
            let is_contact = |member: &Incarnation| {
                self.contacts.contains_key(member) && !gossip.is_neighbour(*member) && !is_proven(*member)
            };
            after.filter(is_contact).take(self.most_links).collect()
        });
        let bridges: Vec<Incarnation> = bridges.unwrap_or_default();
        if !bridges.is_empty() || !self.bridges.is_empty() {
            gossip.rumours.bridge(now, &bridges);
        }
        self.bridges = bridges;
        &self.bridges
    }

    /// Whether a member answers; `None` if that does not count yet.
    pub(crate) fn answers(&self, member: Incarnation) -> Option<bool> {
        self.complete.then(|| self.counted.contains(&member))
    }

    /// Whether the answers count. If so, a member that is not among them is silent.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn is_linked(&self, member: Incarnation) -> bool {
        self.bridges.contains(&member)
    }
}

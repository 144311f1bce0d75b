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
//! look. So each member that looks has such a link from the member before it, and one to the member after it.
//! The islands and all between them are a ring at least, and votes go around.
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
//! - There are at most one contact for each member, K links, 2 × K questions in a turn, and one answer to
//!   each question. Two answers to one member are at least half a heartbeat apart.
//!
//! # When participants die
//!
//! - *A member that looks*: it is not heard any more, and lapses; another one takes its place among the
//!   links.
//! - *A member that answered*: it lapses. Until then members may believe in a quorum that is none: nothing is
//!   decided by that, and a component without it is gathered later.
//! - *A question or an answer on the way*: the next turn asks again.
//! - *All members that look, but one*: that one asks all, and nobody answers. It rightly stays alone.
//! - *The leader*: it lapses, and the next member among those that answered leads.
//! - *A member installed the next view in between*: it answers with that view. The member that asked pulls
//!   it, or was removed by it and is told so ([`meeting`]).
//!
//! [`meeting`]: crate::membership::seat::meeting

use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::Incarnation;
use antiphon_wire::membership::Standing;

use crate::Time;
use crate::membership::context::Context;
use crate::membership::monitor::reconnect::Contact;
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;

/// In one turn a member asks this many times as many members as there are rings.
const ASKED: usize = 2;

impl Seat {
    /// How many members are asked in a turn. In a narrow view all are: they are no more than those of a turn
    /// in a wide one.
    fn turn(&self, cx: &Context) -> usize {
        let others = self.installed.view.members.len().saturating_sub(1);
        let most = if self.installed.topology.hears_all() {
            others
        } else {
            cx.config.rings.max(1).saturating_mul(ASKED)
        };
        most.min(others)
    }

    /// Whether this node asks other members.
    pub(crate) fn looks(&self, cx: &Context, now: Time) -> bool {
        let patience = cx.config.profile.suspect_after;
        let called = self
            .installed
            .reconnect
            .called
            .filter(|_| !self.installed.topology.hears_all());
        let is_called =
            |(first, last)| now.since(first) >= patience && now.since(last) < self.lapses_after(cx);
        // Under `any` each component goes on, so there are no views without a primary that would show it.
        let bereft = cx.any() && !self.installed.quorum;
        // A member whose votes never come, or that should lead, may be one that only the dead observe. A
        // member is not removed if its observers are mostly cut off with it, and a member that observes only
        // members on its own side misses nobody. Either way the rings do not lead there.
        let missing_since = self
            .installed
            .reconnect
            .missing_since
            .filter(|_| !self.installed.topology.hears_all());
        let is_old = |since| now.since(since) >= cx.config.profile.unreachable_after;
        let in_vain = missing_since.is_some_and(is_old);
        !self.is_primary() || bereft || in_vain || called.is_some_and(is_called)
    }

    /// A member would settle for less than a quorum, and this node would not: one of the two is wrong.
    pub(crate) fn called_by_gathering(&mut self, cx: &Context, now: Time) {
        let lapses_after = self.lapses_after(cx);
        self.installed.reconnect.call(now, lapses_after);
    }

    /// The members to ask now. All are asked by turns, beginning with those after this node.
    pub(crate) fn whom_to_ask(&mut self, cx: &Context) -> Vec<SocketAddr> {
        let turn = self.turn(cx);
        let members = &self.installed.view.members;
        let (Some(rank), Some(others)) = (self.installed.view.rank(cx.me), members.len().checked_sub(1))
        else {
            return Vec::new();
        };
        let first = self.installed.reconnect.asked;
        let asked =
            (first..first + turn).map(|at| members[(rank + 1 + at % others.max(1)) % members.len()].addr);
        let asked = asked.collect();
        self.installed.reconnect.asked = (first + turn) % others.max(1);
        asked
    }

    /// A member of this lineage asks, or answers.
    pub(crate) fn met(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        standing: &Standing,
        reply: bool,
    ) {
        let Some(addr) = self.installed.view.member(sender).map(|member| member.addr) else {
            return;
        };
        let mine = self.installed.view.primary_id();
        if standing.view > mine {
            self.reach(cx, sender);
            return self.pull(cx, now, sender);
        }
        if standing.view < mine {
            if self.may_tell(cx, now, sender) {
                self.here(cx, addr);
            }
            return;
        }
        if self.installed.topology.hears_all() || planted!(NothingBeyondTheRings) {
            return;
        }
        let lapses_after = self.lapses_after(cx);
        if !standing.primary {
            self.installed.reconnect.call(now, lapses_after);
        }
        let contact = self
            .installed
            .reconnect
            .contacts
            .entry(sender)
            .or_insert(Contact {
                heard: now,
                answered: None,
                told: None,
            });
        contact.heard = now;
        let pause = cx.config.profile.heartbeat / 2;
        if reply {
            contact.answered = Some(now);
        } else if contact.told.is_none_or(|told| now.since(told) >= pause) {
            contact.told = Some(now);
            self.seek_at(cx, addr, true);
        }
        self.reach(cx, sender);
    }

    /// A contact lapses after so long without a word. Within this time two rounds of questions, which are two
    /// heartbeats apart at most, would have had an answer, or a member that is always asked would be
    /// suspected.
    pub(crate) fn lapses_after(&self, cx: &Context) -> Duration {
        let others = self.installed.view.members.len().saturating_sub(1);
        let turns = others.div_ceil(self.turn(cx).max(1));
        let turns = u32::try_from(turns).unwrap_or(u32::MAX);
        cx.config.profile.suspect_after
            + (cx.config.profile.heartbeat * 2).saturating_mul(turns.saturating_add(1))
    }

    /// Finds which members count, and to which this node speaks.
    pub(crate) fn look_beyond(&mut self, cx: &mut Context, now: Time) {
        self.installed.reconnect.counted.clear();
        self.installed.reconnect.complete = false;
        match self.installed.topology.misses_some() {
            false => self.installed.reconnect.missing_since = None,
            true => _ = self.installed.reconnect.missing_since.get_or_insert(now),
        }
        let looks = self.looks(cx, now) && !planted!(NothingBeyondTheRings);
        // This is nearly always so.
        if !looks && self.installed.reconnect.contacts.is_empty() && self.installed.reconnect.links.is_empty()
        {
            return;
        }
        let lapses_after = self.lapses_after(cx);
        let is_fresh = |at: Time| now.since(at) < lapses_after;
        self.installed.reconnect.since = self.installed.reconnect.since.filter(|(_, last)| is_fresh(*last));
        if looks {
            if self.installed.reconnect.since.is_none() {
                self.next_seek = self
                    .next_seek
                    .min(now + cx.jitter(cx.config.profile.heartbeat / 2));
            }
            self.installed.reconnect.since = Some((
                self.installed.reconnect.since.map_or(now, |(first, _)| first),
                now,
            ));
        }
        self.installed
            .reconnect
            .contacts
            .retain(|_, contact| is_fresh(contact.heard));
        if let Some((first, _)) = self.installed.reconnect.since.filter(|_| looks) {
            self.installed.reconnect.complete = !is_fresh(first);
            let contacts = self.installed.reconnect.contacts.iter();
            let answered = contacts.filter(|(_, contact)| contact.answered.is_some_and(is_fresh));
            let answered = answered.map(|(member, _)| *member);
            self.installed.reconnect.counted = {
                let Installed { view, rings, .. } = &self.installed;
                answered.chain(rings.subjects_in(view, cx.me)).collect()
            };
        }
        let Installed { reconnect, rings, .. } = &self.installed;
        let stranger = reconnect.contacts.keys().find(|member| !rings.contains(**member));
        assert!(
            stranger.is_none() || planted!(),
            "reconnecting: of {} contacts {stranger:?} is in another view",
            reconnect.contacts.len()
        );
        let (Some(gossip), Some(rank)) = (
            self.installed.topology.gossip_mut(),
            self.installed.view.rank(cx.me),
        ) else {
            return;
        };
        let (senior, junior) = self.installed.view.members.split_at(rank);
        let after = junior.iter().chain(senior).map(|member| member.incarnation);
        let is_contact = |member: &Incarnation| {
            self.installed.reconnect.contacts.contains_key(member)
                && !gossip.is_neighbour(*member)
                && !self.installed.engine.is_certified(*member)
        };
        let links: Vec<Incarnation> = after.filter(is_contact).take(cx.config.rings.max(1)).collect();
        gossip.rumours.link(now, &links);
        links.iter().for_each(|member| self.reach(cx, *member));
        self.installed.reconnect.links = links;
    }
}

//! Looking beyond the rings: members of a wide view that lost the primary meet those to whom no ring leads.
//!
//! A member of a wide view hears its subjects, tells its neighbours, and knows the rest from them. When many
//! are gone, some or all of these neighbours are, and the members that are left are islands: each has word of
//! itself only, and their votes do not reach each other, although all paths between them work and they are a
//! quorum together. Or those gone stand for each other: whom only the dead observe nobody doubts, and the
//! others wait for it. Nobody can be removed without a quorum, so it would stay so for ever.
//!
//! ```text
//!   looks: in no primary view; or asked     any member of the same view
//!          by one that is in none, and no
//!          next view for suspect_after; or
//!          somebody is heard by nobody of
//!          whom it has word, for
//!          unreachable_after
//!   Seek ──► some members, by turns ──────► has heard it: speaks to it as to a neighbour
//!   has heard it both ways           ◄───── Seek, a reply
//!   everybody was asked and had the time to answer: whoever answered is reachable, and nobody else
//! ```
//! Everyone who looks asks all others, 2 × K in each turn, so a turn costs as much as the neighbours do, and
//! in a view of so many one turn is all of it. Whoever has heard another one *speaks to it*: rumours and
//! heartbeats go to the next K of those heard, in the order of seniority and around. All who look are heard
//! by all, so each has such a link from the member before it, and to the one after it: the islands and all
//! between them are a ring at least, and votes go around.
//!
//! More rings instead would make islands rarer, and cost everybody heartbeats all the time.
//!
//! Answers count all together or not at all: a leader that went on with the first of them could decide
//! nothing but that the view stays as it is, in the next it would be on the same island, and so on.
//!
//! Who leads by the answers asks to remove those that gave none, as a leader of a narrow view does with whom
//! it doubts: whoever hears one of them well objects (R20). Their observers alone could not: these may be the
//! dead.
//!
//! # Invariants
//!
//! - Only who is heard changes, who is told, and whom a leader asks to remove. What counts as a quorum, who
//!   votes for what, and who is in the cut do not.
//! - A member of a primary view goes by the rings as long as nobody in none asks it, nor would gather without
//!   a quorum, and all others are heard by somebody of whom it has word. A view in which all are well has no
//!   such member, whatever paths in it do not work: a doubt alone is one path, and if it made all members
//!   look, each of them would ask all others for as long as it does not work.
//! - Who is counted has answered a question of this node in a view of these members: both directions work. It
//!   lapses without an answer for as long as asking everybody takes, and then what makes a silent member
//!   suspected. Subjects of this node count while it hears them.
//! - Only a view of the same members goes on with what was found in the one before: whoever leads may decide
//!   one as soon as the rings give a quorum, again and again, and each time the same members are on their
//!   islands at once.
//! - At most one contact for each member, K links, 2 × K questions in a turn, and an answer to each question
//!   but half a heartbeat apart.
//!
//! # When participants die
//!
//! - *Who looks*: it is not heard any more, and lapses; another one takes its place among the links.
//! - *Who answered*: it lapses. Until then a quorum may be believed in that is none: nothing is decided by
//!   that, and a component without it is gathered later.
//! - *A question or an answer on the way*: the next turn asks again.
//! - *Everyone who looks, but one*: it asks all, and nobody answers: it stays alone, rightly.
//! - *The leader*: it lapses, and the next one among those that answered leads.
//! - *Somebody installed the next view in between*: it answers with that, and who asked pulls it; or was
//!   removed by it, and is told so ([`meeting`]).
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

/// In one turn this many times as many members are asked as there are rings.
const ASKED: usize = 2;

impl Seat {
    /// How many members are asked in a turn: in a narrow view all, which are no more than those of a turn in
    /// a wide one.
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
        // Where each component goes on there are no views without a primary that would show it.
        let bereft = cx.any() && !self.installed.quorum;
        // Whose votes never come, or who should lead, may be one that only the dead observe. Nobody is
        // removed whose observers are mostly cut off with it, nor missed by one that observes only members on
        // its own side. Either way the rings do not lead there.
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

    /// Which members to ask now. All are asked by turns, those after this node first.
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

    /// Without a word for so long, a contact has lapsed: two rounds of questions, which are two heartbeats
    /// apart at most, would have had an answer, or a member that is always asked would be suspected.
    pub(crate) fn lapses_after(&self, cx: &Context) -> Duration {
        let others = self.installed.view.members.len().saturating_sub(1);
        let turns = others.div_ceil(self.turn(cx).max(1));
        let turns = u32::try_from(turns).unwrap_or(u32::MAX);
        cx.config.profile.suspect_after
            + (cx.config.profile.heartbeat * 2).saturating_mul(turns.saturating_add(1))
    }

    /// Looks who is to be counted, and spoken to.
    pub(crate) fn look_beyond(&mut self, cx: &mut Context, now: Time) {
        self.installed.reconnect.counted.clear();
        self.installed.reconnect.complete = false;
        match self.installed.topology.misses_some() {
            false => self.installed.reconnect.missing_since = None,
            true => _ = self.installed.reconnect.missing_since.get_or_insert(now),
        }
        let looks = self.looks(cx, now) && !planted!(NothingBeyondTheRings);
        // Nearly always.
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
            self.installed.reconnect.counted = answered.chain(self.subjects(cx.me)).collect();
        }
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

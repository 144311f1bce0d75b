//! Leaving in order.
//!
//! ```text
//!   leave() ──► Wanted: told to all by heartbeat, to the coordinator by Leave
//!     another node proposes the view without me ──► Decide ──► Goodbye, Left
//!     the same in a wide view ──► Decided ──► Goodbye, Departing: until the neighbours confirmed, or a short bound ──► Left
//!     I propose it myself ──► Departing: until the others confirmed, or a short bound ──► Left
//!   deadline, no primary, or alone ──► Left at once
//! ```
//!
//! In a wide view the members tell each other. If all left at once, and each went as soon as it knew, a
//! member that should have heard of it from one that did not get through would find nobody left to ask. So a
//! member that departs answers members that ask for the view without it. And a member asks a neighbour for a
//! later view if that neighbour says that it knows of one.
//!
//! A neighbour knows if it confirmed that, or said goodbye on its lifeline. The leaver does not wait for a
//! neighbour whose connections broke: of the members that leave together most end a moment after they
//! confirmed.
//!
//! A death meanwhile does not matter: the next coordinator hears of the wish by heartbeat, and the deadline
//! bounds it all. Without a decision the member says no Goodbye, so that the end of its process still proves
//! itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, NodeView};

use crate::Time;
use crate::membership::change::leaving::Leaving;
use crate::membership::context::{Context, Fate};
use crate::membership::seat::Seat;
use crate::membership::view::check;

impl Seat {
    /// Begins to leave; the node is gone by this deadline at the latest.
    pub(crate) fn leave(&mut self, cx: &mut Context, now: Time, deadline: Time) {
        if self.leaving.is_wanted() {
            return;
        }
        self.leaving = Leaving::Wanted {
            deadline,
            asked: None,
            knows: BTreeMap::new(),
        };
        self.beat(cx, now);
        self.evaluate(cx, now);
    }

    /// Whether this node is on its way out and has nothing else to do.
    pub(crate) fn tend_departure(&mut self, cx: &mut Context, now: Time) -> bool {
        let done = match &self.leaving {
            Leaving::No => return false,
            Leaving::Wanted { deadline, .. } => {
                let done = now >= *deadline || !self.is_primary() || self.installed.view.members.len() == 1;
                if !done {
                    return false;
                }
                done
            }
            Leaving::Departing { waiting, until, .. } => waiting.is_empty() || now >= *until,
        };
        if done {
            cx.fate = Some(Fate::Left);
        }
        true
    }

    /// The connection to a member broke: this node can no longer tell it of its departure.
    pub(crate) fn cannot_tell(&mut self, cx: &mut Context, now: Time, member: Incarnation) {
        if self.leaving.is_departing() {
            self.leaving.cannot_tell(member);
            self.evaluate(cx, now);
        }
    }

    pub(crate) fn ask_to_leave(&mut self, cx: &mut Context, coordinator: Incarnation) {
        // In a wide view this node's opinion says it to all.
        if self.installed.topology.tells_all()
            && let Leaving::Wanted { asked, .. } = &mut self.leaving
            && coordinator != cx.me
            && *asked != Some(coordinator)
        {
            *asked = Some(coordinator);
            cx.send(coordinator, MembershipMessage::Leave);
        }
    }

    /// This node's own proposal is decided. If the node is out, or alone now, it stays only until the others
    /// know.
    pub(crate) fn depart_after(
        &mut self,
        cx: &mut Context,
        now: Time,
        next: &Arc<NodeView>,
        told: &BTreeSet<Incarnation>,
    ) {
        let alone = next.members.iter().all(|member| member.incarnation == cx.me);
        if self.leaving.is_wanted() && (alone || !next.contains(cx.me)) {
            self.depart(cx, now, next, told.clone());
        }
    }

    /// This node has left, and stays until these members know. It shows the view to members that ask for it.
    fn depart(
        &mut self,
        cx: &mut Context,
        now: Time,
        next: &Arc<NodeView>,
        mut waiting: BTreeSet<Incarnation>,
    ) {
        let view = next.primary_id();
        if !next.contains(cx.me) {
            cx.history.push(now, next.clone());
        }
        if let Leaving::Wanted { knows, .. } = &self.leaving {
            waiting.retain(|member| knows.get(member).is_none_or(|installed| *installed < view));
        }
        cx.say_goodbye();
        self.leaving = Leaving::Departing {
            view,
            waiting,
            until: now + cx.config.profile.heartbeat * 5,
        };
    }

    /// The view that follows is without this node, as it wanted. In a wide view its neighbours may hear of
    /// that view from no other member.
    pub(crate) fn gone_from(&mut self, cx: &mut Context, now: Time, next: &Arc<NodeView>) {
        if self.leaving.is_departing() {
            return;
        }
        let follows = next.primary_id() == check::next_id(self.installed.view.primary_id());
        match self.installed.topology.gossip().filter(|_| follows) {
            Some(gossip) => {
                let neighbours = gossip.neighbours();
                let waiting = neighbours
                    .filter(|member| !self.installed.engine.is_certified(*member))
                    .collect();
                self.depart(cx, now, next, waiting);
            }
            None => {
                cx.say_goodbye();
                cx.fate = Some(Fate::Left);
            }
        }
    }
}

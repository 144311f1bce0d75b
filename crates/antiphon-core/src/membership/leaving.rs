//! Leaving in order.
//!
//! ```text
//!   leave() ──► Wanted: told to all by heartbeat, to the coordinator by Leave
//!     another node proposes the view without me ──► Decide ──► Goodbye, Left
//!     I propose it myself ──► Departing: until the others confirmed, or a short bound ──► Left
//!   deadline, no primary, or alone ──► Left at once
//! ```
//!
//! Who dies meanwhile does not matter: the next coordinator hears of the wish by heartbeat, and the deadline bounds it
//! all. Without a decision no Goodbye is said, so that the end of the process still proves itself.

use std::collections::BTreeSet;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, NodeView, ViewId};

use super::context::{Context, Fate};
use super::seat::Seat;
use crate::Time;

/// How far this node is with leaving.
#[derive(Debug)]
pub(crate) enum Leaving {
    /// It does not want to.
    No,
    /// It waits for a view without it.
    Wanted {
        deadline: Time,
        asked: Option<Incarnation>,
    },
    /// It decided that view itself and waits until the others know it.
    Departing {
        view: ViewId,
        waiting: BTreeSet<Incarnation>,
        until: Time,
    },
}

impl Leaving {
    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(self, Leaving::No)
    }

    pub(crate) fn is_departing(&self) -> bool {
        matches!(self, Leaving::Departing { .. })
    }

    /// The member has installed this view, or knows that it is out of it.
    pub(crate) fn confirmed(&mut self, member: Incarnation, installed: ViewId) {
        if let Leaving::Departing { view, waiting, .. } = self
            && installed >= *view
        {
            waiting.remove(&member);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Leaving::No => None,
            Leaving::Wanted { deadline, .. } => Some(*deadline),
            Leaving::Departing { until, .. } => Some(*until),
        }
    }
}

impl Seat {
    pub(crate) fn leave(&mut self, cx: &mut Context, now: Time) {
        if self.leaving.is_wanted() {
            return;
        }
        self.leaving = Leaving::Wanted {
            deadline: now + cx.config.profile.leave_within,
            asked: None,
        };
        self.beat(cx, now);
        self.evaluate(cx, now);
    }

    /// Whether this node is on its way out and has nothing else to do.
    pub(crate) fn tend_departure(&mut self, cx: &mut Context, now: Time) -> bool {
        let done = match &self.leaving {
            Leaving::No => return false,
            Leaving::Wanted { deadline, .. } => {
                let done = now >= *deadline || !self.is_primary() || self.view.members.len() == 1;
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

    pub(crate) fn ask_to_leave(&mut self, cx: &mut Context, coordinator: Incarnation) {
        // In a wide view its opinion says it to all.
        if self.wide.is_none()
            && let Leaving::Wanted { asked, .. } = &mut self.leaving
            && coordinator != cx.me
            && *asked != Some(coordinator)
        {
            *asked = Some(coordinator);
            cx.send(coordinator, MembershipMessage::Leave);
        }
    }

    /// This node's own proposal is decided. If it is out, or alone now, it stays only until the others know.
    pub(crate) fn depart_after(
        &mut self,
        cx: &mut Context,
        now: Time,
        next: &NodeView,
        told: &BTreeSet<Incarnation>,
    ) {
        let alone = next.members.iter().all(|member| member.incarnation == cx.me);
        if self.leaving.is_wanted() && (alone || !next.contains(cx.me)) {
            cx.say_goodbye();
            let until = now + cx.config.profile.heartbeat * 5;
            self.leaving = Leaving::Departing {
                view: next.primary_id(),
                waiting: told.clone(),
                until,
            };
        }
    }
}

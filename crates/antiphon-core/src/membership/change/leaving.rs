//! Leaving in order.
//!
//! ```text
//!   leave() ──► Wanted: told to all by heartbeat, to the coordinator by Leave
//!     another node proposes the view without me ──► Decide ──► Goodbye, Left
//!     the same in a wide view ──► Decided ──► Goodbye, Departing: until the neighbours confirmed, or a short bound ──► Left
//!     I propose it myself ──► Departing: until the others confirmed, or a short bound once one has ──► Left
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
//! A member that decided it may be the only one that knows. Until another one confirmed, it stays as long as
//! it was given to leave: of two, the other one would have no primary any more.
//!
//! A death meanwhile does not matter: the next coordinator hears of it by heartbeat, and the deadline
//! bounds it all. Without a decision the member says no Goodbye, so that the end of its process still proves
//! itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, NodeView, ViewId};

use crate::Time;
use crate::membership::context::{Context, Fate};

/// How far this node is with leaving.
#[derive(Debug)]
pub(crate) enum Leaving {
    /// The node does not want to leave.
    No,
    /// The node waits for a view without it.
    Wanted {
        deadline: Time,
        asked: Option<Incarnation>,
        /// Members, and the view that each has installed or is out of: some know sooner than this node.
        knows: BTreeMap<Incarnation, ViewId>,
    },
    /// The node decided the view without it, or in a wide view knows of it, and waits until the others know
    /// it.
    Departing {
        view: ViewId,
        waiting: BTreeSet<Incarnation>,
        /// Until then it stays for those that have not confirmed, once another member knows the view.
        until: Time,
        /// Until then it stays in any case.
        deadline: Time,
        /// Whether another member knows it.
        known: bool,
    },
}

impl Leaving {
    /// This node wants to leave, and is gone by this deadline at the latest. Returns whether that is new.
    pub(crate) fn begin(&mut self, deadline: Time) -> bool {
        let is_new = !self.is_wanted();
        if is_new {
            *self = Leaving::Wanted {
                deadline,
                asked: None,
                knows: BTreeMap::new(),
            };
        }
        is_new
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(self, Leaving::No)
    }

    pub(crate) fn is_departing(&self) -> bool {
        matches!(self, Leaving::Departing { .. })
    }

    /// Whether this node has nothing to wait for any more. `can_be_removed`: whether other members could
    /// decide a view without it.
    pub(crate) fn is_over(&self, now: Time, can_be_removed: bool) -> bool {
        match self {
            Leaving::No => false,
            Leaving::Wanted { deadline, .. } => now >= *deadline || !can_be_removed,
            Leaving::Departing { waiting, .. } => {
                waiting.is_empty() || self.next_deadline().is_some_and(|until| now >= until)
            }
        }
    }

    /// Tells the coordinator that this node wants to leave, if it was not told.
    pub(crate) fn ask(&mut self, cx: &mut Context, coordinator: Incarnation) {
        if let Leaving::Wanted { asked, .. } = self
            && coordinator != cx.me
            && *asked != Some(coordinator)
        {
            *asked = Some(coordinator);
            cx.send(coordinator, MembershipMessage::Leave);
        }
    }

    /// This node's own proposal is decided, and these members are told. If the node is out, or alone now, it
    /// stays only until they know.
    pub(crate) fn announced(
        &mut self,
        cx: &mut Context,
        now: Time,
        next: &Arc<NodeView>,
        told: BTreeSet<Incarnation>,
    ) {
        let alone = next.members.iter().all(|member| member.incarnation == cx.me);
        // It may have heard of the decision from others, and have parted, before it knows by itself.
        if self.is_wanted() && !self.is_departing() && (alone || !next.contains(cx.me)) {
            self.depart(cx, now, next, told, false);
        }
    }

    /// The view that follows is without this node, as it wanted. `neighbours`: those that may hear of that
    /// view from no other member.
    pub(crate) fn removed(
        &mut self,
        cx: &mut Context,
        now: Time,
        next: &Arc<NodeView>,
        neighbours: Option<BTreeSet<Incarnation>>,
    ) {
        match neighbours {
            _ if self.is_departing() => {}
            Some(neighbours) => self.depart(cx, now, next, neighbours, true),
            None => {
                cx.say_goodbye();
                cx.fate = Some(Fate::Left);
            }
        }
    }

    /// This node has left, and stays until these members know. It shows the view to members that ask for it.
    /// `known`: whether another member knows it.
    fn depart(
        &mut self,
        cx: &mut Context,
        now: Time,
        next: &Arc<NodeView>,
        mut waiting: BTreeSet<Incarnation>,
        mut known: bool,
    ) {
        let view = next.primary_id();
        let until = now + cx.config.profile.heartbeat * 5;
        let mut deadline = until;
        if !next.contains(cx.me) {
            cx.history.push(now, next.clone());
        }
        if let Leaving::Wanted {
            knows, deadline: by, ..
        } = self
        {
            let told = waiting.len();
            waiting.retain(|member| knows.get(member).is_none_or(|installed| *installed < view));
            known |= waiting.len() < told;
            deadline = deadline.max(*by);
        }
        cx.say_goodbye();
        *self = Leaving::Departing {
            view,
            waiting,
            until,
            deadline,
            known,
        };
    }

    /// Whether this node stays until that member confirms that it knows.
    pub(crate) fn waits_for(&self, member: Incarnation) -> bool {
        matches!(self, Leaving::Departing { waiting, .. } if waiting.contains(&member))
    }

    /// The member has installed this view, or knows that it is not in it.
    pub(crate) fn confirmed(&mut self, member: Incarnation, installed: ViewId) {
        match self {
            Leaving::No => {}
            Leaving::Wanted { knows, .. } => {
                let known = knows.entry(member).or_insert(installed);
                *known = installed.max(*known);
            }
            Leaving::Departing {
                view, waiting, known, ..
            } => {
                if installed >= *view {
                    *known |= waiting.remove(&member);
                }
            }
        }
    }

    /// The connection to the member broke: it cannot be told any more, or is gone. Returns whether this node
    /// is departing.
    pub(crate) fn cannot_tell(&mut self, member: Incarnation) -> bool {
        if let Leaving::Departing { waiting, .. } = self {
            waiting.remove(&member);
        }
        self.is_departing()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Leaving::No => None,
            Leaving::Wanted { deadline, .. } => Some(*deadline),
            Leaving::Departing {
                until, known: true, ..
            } => Some(*until),
            Leaving::Departing { deadline, .. } => Some(*deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A heartbeat that was sent before a confirmation may come after it.
    #[test]
    fn what_a_member_confirmed_is_not_taken_back_by_what_it_said_before() {
        let member = Incarnation(2);
        let view = |counter| ViewId { epoch: 1, counter };
        let mut leaving = Leaving::Wanted {
            deadline: Time::ZERO,
            asked: None,
            knows: BTreeMap::new(),
        };
        leaving.confirmed(member, view(8));
        leaving.confirmed(member, view(7));
        let Leaving::Wanted { knows, .. } = leaving else {
            panic!("it waits for a view without it");
        };
        assert_eq!(knows, BTreeMap::from([(member, view(8))]));
    }
}

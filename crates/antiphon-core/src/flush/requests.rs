//! What members and joiners ask of a group's leader between flushes: to be let in, to leave, to go on,
//! whether they still belong.

use std::collections::BTreeSet;

use antiphon_wire::group::{Decision, GroupMessage, Joiner};
use antiphon_wire::{GroupViewId, Incarnation};

use super::{Around, Flow, Flush, FlushEffect, Lead};
use crate::group::MAX_GROUP_MEMBERS;

impl Flush {
    /// A joiner with the right options.
    pub(crate) fn admit(&mut self, around: &Around<'_>, joiner: Joiner) {
        if !around.leads() {
            return self.redirect(around, &joiner);
        }
        let from = joiner.incarnation;
        // R12: joins are idempotent: a joiner that is on its way into the group is not admitted twice.
        self.requests.joins.retain(|other| other.incarnation != from);
        let decided = self
            .retained
            .iter()
            .flat_map(|retained| &retained.decision.joined);
        let unconfirmed = decided.into_iter().any(|other| *other == joiner);
        let deciding: &[Incarnation] = match (&self.lead, &self.flow) {
            (Lead::Deciding { .. }, Flow::Catching(catch_up)) => &catch_up.decision.members,
            _ => &[],
        };
        if unconfirmed || deciding.contains(&from) {
            return;
        }
        // All others that are members or on their way; a member that joins again is one of them once.
        let members = around.stream.members.iter().chain(deciding).copied();
        let joining = self.requests.joins.iter().map(|other| other.incarnation);
        let others: BTreeSet<_> = members.chain(joining).filter(|other| *other != from).collect();
        if others.len() >= MAX_GROUP_MEMBERS {
            let name = around.name.to_owned();
            let reason = format!(
                "the group {name:?} has {MAX_GROUP_MEMBERS} members already, the most it can have: start the node in another group, or in none"
            );
            return self.effects.send(from, GroupMessage::Refused { name, reason });
        }
        self.requests.joins.push(joiner);
        if around.stream.rank(from).is_some() {
            // A leader that this one has not heard of removed it. It says so by joining again.
            let cause = "it joins again".to_owned();
            self.requests.dropped.insert(from, cause);
        }
        self.gather(around);
    }

    /// A node asks to be let in, and this member does not lead.
    fn redirect(&mut self, around: &Around<'_>, joiner: &Joiner) {
        let to = joiner.incarnation;
        let leader = around.leader();
        if leader != Some(to) {
            let name = around.name.to_owned();
            return self.effects.send(to, GroupMessage::Moved { name, leader });
        }
        // The joiner is to lead itself.
        let came = |decision: &Decision| {
            let joined = &decision.joined;
            joined.contains(joiner) && joined.iter().any(|other| other.incarnation == around.me)
        };
        match &self.retained {
            // No member is left that was there before the joiner came. So it came with the present view, like
            // this member, and has not heard of that. All members that were there before had heard (R12).
            Some(retained) if came(&retained.decision) => {
                let decision = Box::new(retained.decision.clone());
                self.effects.push(FlushEffect::Welcome { joiner: to, decision });
            }
            // The joiner's question may be late. If it is no member, it says so.
            _ => {
                let (group, view) = (around.group, around.stream.id);
                self.effects.send(to, GroupMessage::Check { group, view });
            }
        }
    }

    /// A member wants to leave.
    pub(super) fn handle_leave(&mut self, around: &Around<'_>, from: Incarnation) {
        if !around.leads() {
            return self.tell_removed(around, from);
        }
        self.requests.joins.retain(|joiner| joiner.incarnation != from);
        if let Lead::Confirming(confirm) = &mut self.lead {
            confirm.joiners.remove(&from);
        }
        if around.stream.rank(from).is_none() {
            return self.tell_removed(around, from);
        }
        self.requests.leaves.insert(from);
        self.confirmed(around);
        self.gather(around);
    }

    /// A member waits for a flush.
    pub(super) fn handle_resume(&mut self, around: &Around<'_>, from: Incarnation, view: GroupViewId) {
        let is_member = around.stream.rank(from).is_some() && !self.requests.dropped.contains_key(&from);
        if !around.leads() || !is_member {
            return self.tell_removed(around, from);
        }
        match self.lead {
            Lead::Idle | Lead::Batching { .. } => {
                if view != around.stream.id {
                    let cause = "it is in another view than the group".to_owned();
                    self.requests.dropped.insert(from, cause);
                }
                self.requests.resume = true;
                self.collect(around);
            }
            Lead::Confirming(_) => self.requests.resume |= view == around.stream.id,
            Lead::Collecting(_) | Lead::Deciding { .. } => {}
        }
    }

    /// A member asks whether it still is one: a message that told it otherwise may have been void under a new
    /// node view.
    pub(super) fn handle_check(&mut self, around: &Around<'_>, from: Incarnation, view: GroupViewId) {
        let idle = matches!(self.lead, Lead::Idle | Lead::Batching { .. });
        let is_elsewhere = around.stream.rank(from).is_some() && view != around.stream.id;
        if around.leads() && idle && is_elsewhere {
            return self.handle_resume(around, from, view);
        }
        self.tell_removed(around, from);
    }

    /// Tells a node that speaks of this group that it is no member; silent if it may well be one.
    pub(super) fn tell_removed(&mut self, around: &Around<'_>, to: Incarnation) {
        let cause = self.requests.dropped.get(&to);
        let known = around.stream.rank(to).is_some() && cause.is_none();
        // A member that leaves with the present view may not have heard of the view yet; it belongs to the
        // group.
        let mut retained = self.retained.iter();
        if known || retained.any(|retained| retained.decision.left.contains(&to)) {
            return;
        }
        let cause = cause.map_or("the group's members have removed it", String::as_str);
        let removed = GroupMessage::Removed {
            group: around.group,
            view: around.stream.id,
            cause: cause.to_owned(),
        };
        self.effects.send(to, removed);
    }
}

//! Objects on their way to and from one member.

use std::collections::BTreeMap;

use antiphon_wire::group::Decision;
use antiphon_wire::object::ObjectRecord;
use antiphon_wire::{GroupViewId, Incarnation};
use bytes::Bytes;

use crate::Time;
use crate::group::object::incoming::Incoming;
use crate::group::object::outgoing::Issue;
use crate::group::object::outgoing::Outgoing;
use crate::group::queue::Tickets;

/// All objects of a member in one group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Objects {
    pub(super) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// With which view each member joined, as far as this member knows. For members that were here before
    /// this member, the view is this member's first.
    pub(crate) since: BTreeMap<Incarnation, GroupViewId>,
}

impl Objects {
    /// A view was installed: some members are gone, so nothing is expected of them any more, and some are
    /// new.
    pub(crate) fn install(&mut self, me: Incarnation, decision: &Decision) {
        let joined = |member: &Incarnation| decision.joined.iter().any(|j| j.incarnation == *member);
        self.since
            .retain(|member, _| decision.members.contains(member) && !joined(member));
        for member in &decision.members {
            self.since.entry(*member).or_insert(decision.id);
        }
        let stays = |member: Incarnation| decision.members.contains(&member) && !joined(&member);
        if !planted!(KeepObjectsOfTheDead) {
            self.incoming.keep(stays);
        }
        if planted!(LoseObjectsAtView) {
            self.outgoing = Outgoing::default();
        }
        self.outgoing.set_receivers(me, &decision.members, stays);
    }

    /// Whether what a member said under this view belongs to its present membership.
    pub(crate) fn counts(&self, from: Incarnation, view: GroupViewId) -> bool {
        self.since.get(&from).is_some_and(|since| *since <= view)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let (incoming, outgoing) = (self.incoming.next_timeout(), self.outgoing.next_timeout());
        [incoming, outgoing].into_iter().flatten().min()
    }

    /// What this member keeps of the objects of others.
    pub(crate) fn bytes_of_others(&self) -> usize {
        self.incoming.bytes()
    }

    /// What it keeps of its own.
    pub(crate) fn own_bytes(&self) -> usize {
        self.outgoing.bytes()
    }

    /// Whether everything that was accepted has gone into the log.
    pub(crate) fn all_sent(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// What is to be sent next, if all members of the view hold it.
    pub(crate) fn front(&mut self) -> Option<Issue> {
        self.outgoing.front()
    }

    /// The record of the front goes into the log of a view with these other members.
    pub(crate) fn issue(&mut self, others: &[Incarnation]) {
        self.outgoing.issue(others);
    }

    /// Members that have not said that they have room for an object of this member.
    pub(crate) fn without_room(&self) -> impl Iterator<Item = Incarnation> {
        self.outgoing.without_room()
    }

    /// The object that a record names, at its delivery.
    pub(crate) fn take(
        &mut self,
        me: Incarnation,
        sender: Incarnation,
        record: &ObjectRecord,
    ) -> Option<Bytes> {
        if sender == me {
            return self.outgoing.take(record.object);
        }
        self.incoming.take(sender, record)
    }

    /// Empties the queue of what was not sent; gives its tickets.
    pub(crate) fn clear_unsent(&mut self) -> Vec<Tickets> {
        self.outgoing.clear()
    }
}

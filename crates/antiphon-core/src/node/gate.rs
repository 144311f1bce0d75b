//! The gate before the application: what a node without a lease must not deliver (R7).
//!
//! Messages, views and what became of messages wait here, in their order, while the node may not deliver.
//! They are let through when it may again: the node was a member all the time, and delivers what all deliver.
//! If the node was no member any more, they are dropped: nobody knows what became of what it sent. What tells
//! the application to stop is never held back.
//!
//! As much can wait as windows and the credit of direct messages allow: nothing of it is consumed. What
//! became of direct messages takes no place of its own for each while nothing else comes between. If
//! something was told as delivered while it waited here, and is then dropped, its outcome is unknown: its
//! receiver may have dropped it as well.

use std::collections::{BTreeSet, VecDeque};

use antiphon_wire::Incarnation;

use crate::{Event, GroupEvent, GroupHandle, Outcome, Parting, TellOutcome};

/// Open unless told otherwise.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: bool,
    held: VecDeque<(GroupHandle, GroupEvent)>,
    /// Messages that were dropped since the last call: nobody will consume them.
    dropped: Vec<(GroupHandle, u64)>,
    /// The same of direct messages, and their sender.
    dropped_tells: Vec<(GroupHandle, Incarnation, u64)>,
    /// Groups in which something could not be sent because a view of theirs waits here.
    full: BTreeSet<GroupHandle>,
    /// The same of direct messages.
    full_tells: BTreeSet<(GroupHandle, Incarnation)>,
}

impl Gate {
    /// Opens or closes.
    pub(super) fn set(&mut self, open: bool, events: &mut VecDeque<Event>) {
        self.closed = !open && !planted!(DeliverWithoutLease);
        if !self.closed {
            let full = std::mem::take(&mut self.full).into_iter();
            let writable = full.map(|handle| Event::Group(handle, GroupEvent::Writable));
            let full = std::mem::take(&mut self.full_tells).into_iter();
            let tellable = full.map(|(handle, to)| Event::Group(handle, GroupEvent::TellWritable { to }));
            let held = self.held.drain(..);
            events.extend(
                held.map(|(handle, event)| Event::Group(handle, event))
                    .chain(writable)
                    .chain(tellable),
            );
        }
    }

    /// Whether the application may send to a group: not in a view that it has not seen. If it may not, it is
    /// told when it may.
    pub(super) fn may_send(&mut self, group: GroupHandle) -> bool {
        let waits = self.holds_view(group);
        if waits {
            self.full.insert(group);
        }
        !waits
    }

    /// The same of a direct message.
    pub(super) fn may_tell(&mut self, group: GroupHandle, to: Incarnation) -> bool {
        let waits = self.holds_view(group);
        if waits {
            self.full_tells.insert((group, to));
        }
        !waits
    }

    fn holds_view(&self, group: GroupHandle) -> bool {
        let is_view = |(handle, event): &(GroupHandle, GroupEvent)| {
            *handle == group && matches!(event, GroupEvent::View(_))
        };
        self.held.iter().any(is_view)
    }

    /// Something happened in a group.
    pub(super) fn pass(&mut self, handle: GroupHandle, event: GroupEvent, events: &mut VecDeque<Event>) {
        match &event {
            GroupEvent::Told(_) if planted!(TellWithoutLease) => {
                return events.push_back(Event::Group(handle, event));
            }
            GroupEvent::Messages(_)
            | GroupEvent::View(_)
            | GroupEvent::Transitional { .. }
            | GroupEvent::Receipts { .. }
            | GroupEvent::Told(_)
            | GroupEvent::TellReceipts { .. }
                if self.closed =>
            {
                if !self.extends_held(handle, &event) {
                    self.held.push_back((handle, event));
                }
                return;
            }
            GroupEvent::Resync { .. } | GroupEvent::Refused { .. } | GroupEvent::Left => {
                self.drop_held(handle, events);
            }
            _ => {}
        }
        assert!(
            self.closed || self.held.is_empty(),
            "R7: {event:?} overtakes {} events that wait for the lease",
            self.held.len()
        );
        events.push_back(Event::Group(handle, event));
    }

    /// Whether this event continues the last receipt for the same member, and was added to that receipt. A
    /// member without a lease goes on telling, and receivers go on taking.
    fn extends_held(&mut self, handle: GroupHandle, event: &GroupEvent) -> bool {
        let GroupEvent::TellReceipts {
            to,
            first,
            count,
            outcome,
        } = event
        else {
            return false;
        };
        for (of, held) in self.held.iter_mut().rev() {
            let GroupEvent::TellReceipts {
                to: before,
                first: from,
                count: so_far,
                outcome: same,
            } = held
            else {
                return false;
            };
            if (*of, *before) == (handle, *to) {
                let extends = from.0 + *so_far == first.0 && same == outcome;
                *so_far += if extends { *count } else { 0 };
                return extends;
            }
        }
        false
    }

    /// This incarnation is over: what was held back belongs to no group any more.
    pub(super) fn end(&mut self, events: &mut VecDeque<Event>) {
        while let Some((handle, _)) = self.held.front() {
            self.drop_held(*handle, events);
        }
    }

    /// How many messages of which groups were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> Vec<(GroupHandle, u64)> {
        std::mem::take(&mut self.dropped)
    }

    /// The same of direct messages, and their sender.
    pub(super) fn take_dropped_tells(&mut self) -> Vec<(GroupHandle, Incarnation, u64)> {
        std::mem::take(&mut self.dropped_tells)
    }

    /// The group goes on without what was held back.
    fn drop_held(&mut self, group: GroupHandle, events: &mut VecDeque<Event>) {
        let (dropped, kept) = self.held.drain(..).partition(|(handle, _)| *handle == group);
        self.held = kept;
        let dropped: VecDeque<(GroupHandle, GroupEvent)> = dropped;
        for (handle, event) in dropped {
            let receipts = match event {
                GroupEvent::Receipts { .. } => Some(event),
                GroupEvent::TellReceipts {
                    to,
                    first,
                    count,
                    outcome: TellOutcome::Delivered,
                } => Some(GroupEvent::TellReceipts {
                    to,
                    first,
                    count,
                    outcome: TellOutcome::Unknown(Parting::Ended),
                }),
                GroupEvent::TellReceipts { .. } => Some(event),
                GroupEvent::Told(messages) => {
                    self.dropped_tells.push((handle, messages.sender, messages.len()));
                    None
                }
                GroupEvent::Messages(messages) => {
                    self.dropped.push((handle, messages.len()));
                    messages.ticket.map(|first| GroupEvent::Receipts {
                        first,
                        count: messages.len(),
                        outcome: Outcome::Unknown,
                    })
                }
                _ => None,
            };
            events.extend(receipts.map(|event| Event::Group(handle, event)));
        }
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::{Block, GroupViewId, Incarnation, ViewId};

    use super::*;
    use crate::{Messages, Ticket};

    const GROUP: GroupHandle = GroupHandle(1);

    fn messages(ticket: u64) -> GroupEvent {
        GroupEvent::Messages(Messages {
            view: GroupViewId {
                node: ViewId { epoch: 1, counter: 1 },
                number: 1,
                k: 1,
            },
            sender: Incarnation(1),
            first: ticket,
            block: Block::of(b"said"),
            ticket: Some(Ticket(ticket)),
        })
    }

    #[test]
    fn what_waits_comes_in_its_order_and_what_stops_the_application_at_once() {
        let (mut gate, mut events) = (Gate::default(), VecDeque::new());
        gate.set(false, &mut events);
        gate.pass(GROUP, messages(1), &mut events);
        gate.pass(GROUP, GroupEvent::Suspended, &mut events);
        gate.pass(GROUP, messages(2), &mut events);
        assert_eq!(events, [Event::Group(GROUP, GroupEvent::Suspended)]);
        gate.set(true, &mut events);
        let rest: Vec<Event> = events.drain(1..).collect();
        assert_eq!(
            rest,
            [Event::Group(GROUP, messages(1)), Event::Group(GROUP, messages(2))]
        );
        assert!(gate.take_dropped().is_empty());
    }

    #[test]
    fn what_a_removed_member_held_back_is_dropped_and_nobody_waits_for_it() {
        let (mut gate, mut events) = (Gate::default(), VecDeque::new());
        gate.set(false, &mut events);
        gate.pass(GROUP, messages(1), &mut events);
        gate.pass(GroupHandle(2), messages(7), &mut events);
        let resync = GroupEvent::Resync {
            cause: "removed".to_owned(),
        };
        gate.pass(GROUP, resync.clone(), &mut events);
        let unknown = GroupEvent::Receipts {
            first: Ticket(1),
            count: 1,
            outcome: Outcome::Unknown,
        };
        assert_eq!(
            events,
            [Event::Group(GROUP, unknown), Event::Group(GROUP, resync)]
        );
        assert_eq!(gate.take_dropped(), [(GROUP, 1)]);
        events.clear();
        gate.set(true, &mut events);
        assert_eq!(events, [Event::Group(GroupHandle(2), messages(7))]);
    }

    #[test]
    fn receipts_for_direct_messages_to_several_members_take_one_place_each_while_they_wait() {
        let (mut gate, mut events) = (Gate::default(), VecDeque::new());
        let receipt = |to, first, count, outcome| GroupEvent::TellReceipts {
            to: Incarnation(to),
            first: Ticket(first),
            count,
            outcome,
        };
        gate.set(false, &mut events);
        for first in 1..100 {
            for to in 2..5 {
                gate.pass(GROUP, receipt(to, first, 1, TellOutcome::Delivered), &mut events);
            }
        }
        let unknown = TellOutcome::Unknown(Parting::Crashed);
        gate.pass(GROUP, receipt(3, 100, 7, unknown.clone()), &mut events);
        gate.pass(GROUP, receipt(4, 200, 1, TellOutcome::Delivered), &mut events);
        gate.pass(GROUP, messages(1), &mut events);
        gate.pass(GROUP, receipt(2, 100, 1, TellOutcome::Delivered), &mut events);
        gate.set(true, &mut events);
        let expected = [
            receipt(2, 1, 99, TellOutcome::Delivered),
            receipt(3, 1, 99, TellOutcome::Delivered),
            receipt(4, 1, 99, TellOutcome::Delivered),
            receipt(3, 100, 7, unknown),
            receipt(4, 200, 1, TellOutcome::Delivered),
            messages(1),
            receipt(2, 100, 1, TellOutcome::Delivered),
        ];
        assert_eq!(events, expected.map(|event| Event::Group(GROUP, event)));
    }

    #[test]
    fn of_direct_messages_that_are_dropped_nobody_says_that_they_were_delivered() {
        let (mut gate, mut events) = (Gate::default(), VecDeque::new());
        let to = Incarnation(2);
        let receipt = |outcome| GroupEvent::TellReceipts {
            to,
            first: Ticket(1),
            count: 3,
            outcome,
        };
        let GroupEvent::Messages(told) = messages(1) else {
            unreachable!("they are messages")
        };
        gate.set(false, &mut events);
        gate.pass(GROUP, receipt(TellOutcome::Delivered), &mut events);
        gate.pass(
            GROUP,
            receipt(TellOutcome::NotDelivered(Parting::Left)),
            &mut events,
        );
        gate.pass(GROUP, GroupEvent::Told(told), &mut events);
        assert!(events.is_empty());
        gate.pass(GROUP, GroupEvent::Left, &mut events);
        let expected = [
            receipt(TellOutcome::Unknown(Parting::Ended)),
            receipt(TellOutcome::NotDelivered(Parting::Left)),
            GroupEvent::Left,
        ];
        assert_eq!(events, expected.map(|event| Event::Group(GROUP, event)));
        assert_eq!(gate.take_dropped_tells(), [(GROUP, Incarnation(1), 1)]);
    }
}

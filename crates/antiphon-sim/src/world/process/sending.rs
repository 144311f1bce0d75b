//! How an application sends, and what follows from what it hears: the same as the library's handles and its
//! driver do.
//!
//! ```text
//!  offer ─► outbox ─► hand_over ─► node       at once, or as an input of its own, when the driver comes round
//!             ▲           │ Full
//!             └───────────┘        and again when the group is writable, or has a view
//! ```
//! If the outbox itself refuses a message, the application is told by a receipt, as when the node refuses it.

use antiphon_core::SendError;
use antiphon_core::outbox::{Payload, Settled, Standing, hand_over};
use antiphon_core::wire::Level;

use super::*;
use crate::agenda::SECONDS;

/// How long a leaving node waits for its groups to take what the application had sent.
const FLUSH_OUTBOXES: Micros = SECONDS;

/// What an event of a group means for its outbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Follows {
    standing: Option<Standing>,
    /// More may be taken.
    room: bool,
}

impl Follows {
    pub(super) fn of(event: &GroupEvent) -> Self {
        let standing = match event {
            GroupEvent::View(_) => Some(Standing::Member),
            GroupEvent::Suspended => Some(Standing::Suspended),
            GroupEvent::Resync { .. } => Some(Standing::Joining),
            GroupEvent::Refused { .. } | GroupEvent::Left => Some(Standing::Gone),
            _ => None,
        };
        let room = matches!(event, GroupEvent::View(_) | GroupEvent::Writable);
        Self { standing, room }
    }
}

impl World {
    /// Sends a message of the application at a slot.
    pub fn send(&mut self, slot: Slot, group: GroupIndex, payload: Bytes) -> Result<u64, SendError> {
        let id = self.process_at(slot).ok_or(SendError::NoSuchGroup)?;
        let scope = self.a_scope(group);
        let result = self.offer(id, group, Level::Agreed, scope, payload);
        self.hand_over(id, group);
        self.drive(id);
        result
    }

    /// The application sends a message: it waits for the driver.
    pub(super) fn offer(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        level: Level,
        scope: Option<u32>,
        payload: Bytes,
    ) -> Result<u64, SendError> {
        let process = &mut self.processes[id];
        let usage = process.uses.get_mut(&group).ok_or(SendError::NoSuchGroup)?;
        let hashed = hash(&payload, 0);
        let object = usage.outbox.is_object(payload.len()) == Ok(true);
        match usage.outbox.accept(Payload::Shared(&payload), level, scope) {
            Ok(ticket) => {
                self.note(
                    id,
                    Seen::Sent {
                        group,
                        ticket: ticket.0,
                        payload: hashed,
                        safe: level == Level::Safe,
                        scope,
                        object,
                    },
                );
                Ok(ticket.0)
            }
            Err(error) => {
                usage.full = error == SendError::Full;
                self.note(id, Seen::NotSent { group, error });
                Err(error)
            }
        }
    }

    /// The driver hands the node what waits, and has it leave the group if that was the last.
    pub(super) fn hand_over(&mut self, id: ProcessId, group: GroupIndex) {
        let process = &mut self.processes[id];
        let Some(usage) = process.uses.get_mut(&group).filter(|_| process.ended.is_none()) else {
            return;
        };
        let now = process.clock.local(self.now);
        let (node, handle) = (&mut process.node, usage.handle);
        let handed = hand_over(&mut usage.outbox, |first, block| {
            node.send_block(now, handle, first, block)
        });
        usage.full &= !handed.any;
        let waits = !usage.outbox.is_empty();
        if !waits && usage.left && !usage.core_left {
            usage.core_left = true;
            node.leave_group(now, handle);
        }
        if waits {
            self.count("outbox_waits");
        }
        self.note_settled(id, group, handed.refused);
        self.leave_when_flushed(id, false);
    }

    /// What comes of an event of a group.
    pub(super) fn follow(&mut self, id: ProcessId, group: GroupIndex, follows: Follows) {
        let Some(usage) = self.processes[id].uses.get_mut(&group) else {
            return;
        };
        let leaving = usage.outbox.standing() == Standing::Leaving;
        let standing = follows
            .standing
            .filter(|standing| *standing != Standing::Member || !leaving);
        let settled = standing.map(|standing| usage.outbox.set_standing(standing));
        let left = usage.left && !usage.core_left;
        self.note_settled(id, group, settled.unwrap_or_default());
        if follows.room || left {
            self.hand_over(id, group);
        }
    }

    /// Tells the application what became of messages without the node's word.
    fn note_settled(&mut self, id: ProcessId, group: GroupIndex, settled: Vec<Settled>) {
        for Settled {
            first,
            count,
            outcome,
        } in settled
        {
            let first = first.0;
            self.give_receipts_of_all(id, group, first, count, outcome);
            self.give_receipts_of_clients(id, group, first, count, outcome);
            self.note(
                id,
                Seen::Group(
                    group,
                    Heard::Receipts {
                        first,
                        count,
                        outcome,
                    },
                ),
            );
        }
    }

    pub(in crate::world) fn leave_group(&mut self, id: ProcessId, group: GroupIndex) {
        if !self.leave_as_replica(id, group) {
            self.let_go(id, group);
            self.drive(id);
        }
    }

    /// The application leaves a group at once.
    pub(super) fn let_go(&mut self, id: ProcessId, group: GroupIndex) {
        let process = &mut self.processes[id];
        let Some(usage) = process.uses.get_mut(&group).filter(|usage| !usage.left) else {
            return;
        };
        usage.left = true;
        usage.send_no_more();
        self.note(id, Seen::AskedToLeaveGroup(group));
        self.hand_over(id, group);
    }

    pub(in crate::world) fn leave(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        if process.leaving || process.ended.is_some() {
            return;
        }
        process.leaving = true;
        process.uses.values_mut().for_each(Usage::send_no_more);
        let groups: Vec<GroupIndex> = process.uses.keys().copied().collect();
        self.note(id, Seen::AskedToLeave);
        for group in groups {
            self.hand_over(id, group);
        }
        self.leave_when_flushed(id, false);
        if !self.processes[id].core_leaves {
            let latest = self.now + FLUSH_OUTBOXES;
            self.agenda.add(latest, Happening::Input(id, Input::Leaves));
        }
        self.drive(id);
    }

    /// Has the node leave when it has all that was sent, or has had the time to take it.
    pub(super) fn leave_when_flushed(&mut self, id: ProcessId, overdue: bool) {
        let process = &mut self.processes[id];
        let flushed = process.uses.values().all(|usage| usage.outbox.is_empty());
        if process.leaving && !process.core_leaves && (flushed || overdue) {
            process.core_leaves = true;
            process.node.leave(process.clock.local(self.now));
        }
    }
}

impl Usage {
    /// What was accepted still goes; nothing more is accepted.
    fn send_no_more(&mut self) {
        if self.outbox.standing() == Standing::Member {
            // Nothing is settled by that.
            let _nothing = self.outbox.set_standing(Standing::Leaving);
        }
    }
}

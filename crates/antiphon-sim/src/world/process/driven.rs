//! What applications share that drive a machine without I/O over a group, as the library does it. The machine
//! is a replica (`replicating`), the calls of a member (`calling`), or its clients (`hosting`).
//!
//! ```text
//!  node ── events of the group ──► given ──► machine
//!   ▲                                           │
//!   └── outbox ◄── send_driven ─────────────────┤
//!   └── tell   ◄── tell_driven ─────────────────┘
//! ```
//! What it sends carries a number behind its own bytes, so that no two messages are alike: the checkers of
//! the group below need that.

use antiphon_core::wire::Level;
use antiphon_core::{Order, TellError};

use super::*;
use crate::agenda::MILLIS;

/// Two calls of a machine's timer are at least so long apart: what is due at once is due after this.
pub(super) const BETWEEN_WAKES: Micros = 50;
/// Bytes of the number behind a message.
const NUMBER_BYTES: usize = 8;

/// What the node tells a machine.
#[derive(Debug)]
pub(super) enum Given {
    View(Arc<GroupView>),
    Message(Incarnation, Bytes),
    Told(Incarnation, Bytes),
    /// Only to a member with clients.
    Transitional(Vec<Incarnation>),
    Suspended,
    Resumed,
    Lease(bool),
    /// The membership is over, and the node has this incarnation from here on.
    Void(Incarnation, String),
}

/// What the group told the application, which has not taken it yet.
#[derive(Debug, Default)]
pub(super) struct Unread(VecDeque<Given>);

impl Unread {
    pub(super) fn add(&mut self, given: Given) {
        self.0.push_back(given);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has not taken the end of a membership.
    pub(super) fn has_void(&self) -> bool {
        self.0.iter().any(|given| matches!(given, Given::Void(..)))
    }

    /// What the application takes next. Without the lease it gets nothing that only a member may have, as
    /// with the library's handles: what waits is dropped when the node turns out to be removed.
    pub(super) fn next(&mut self, leased: bool) -> Option<Given> {
        if leased {
            return self.0.pop_front();
        }
        let for_members = |given: &Given| {
            !matches!(
                given,
                Given::Suspended | Given::Resumed | Given::Lease(_) | Given::Void(..)
            )
        };
        let next = self.0.iter().position(|given| !for_members(given))?;
        if let Given::Void(..) = self.0[next] {
            self.0.drain(..next);
            return self.0.pop_front();
        }
        self.0.remove(next)
    }
}

/// A message without its number.
pub(super) fn bare(bytes: &Bytes) -> Bytes {
    bytes.slice(..bytes.len().saturating_sub(NUMBER_BYTES))
}

/// The number of a message.
pub(super) fn number_of(bytes: &[u8]) -> Option<u64> {
    let (_, number) = bytes.split_last_chunk::<NUMBER_BYTES>()?;
    Some(u64::from_le_bytes(*number))
}

impl World {
    /// Whether a machine sends what is sent to this group, and would make nothing of anything else.
    pub(crate) fn is_driven(&self, group: GroupIndex) -> bool {
        self.replicates(group) || self.has_calls(group) || self.hosts_clients(group)
    }

    /// The node tells the machine of this group something: it waits until the application takes it.
    pub(super) fn give(&mut self, id: ProcessId, group: GroupIndex, given: Given) {
        if self.has_calls(group) {
            self.give_calls(id, given);
        } else if self.hosts_clients(group) {
            self.give_clients(id, given);
        } else if self.replicates(group)
            && let Some(it) = &mut self.processes[id].replica
        {
            it.unread.add(given);
        }
    }

    /// The same, to the machines of whatever groups.
    pub(super) fn give_all(&mut self, id: ProcessId, given: impl Fn() -> Given) {
        let replicated = self.plan.replicated.as_ref().map(|it| it.group);
        let calling = self.plan.calling.as_ref().map(|it| it.group);
        let hosting = self.plan.hosting.as_ref().map(|it| it.group);
        for group in replicated.into_iter().chain(calling).chain(hosting) {
            self.give(id, group, given());
        }
    }

    /// Sends what a machine wants sent to all. Gives the number behind it and the ticket, if it was taken.
    pub(super) fn send_driven(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        level: Level,
        payload: &[u8],
    ) -> Option<(u64, u64)> {
        let usage = self.processes[id].uses.get(&group);
        // What made the outbox full may have been refused with the loss of the primary.
        let full = |usage: &Usage| usage.full && !usage.outbox.is_empty();
        if usage.is_none_or(|usage| full(usage) || usage.left) {
            return None;
        }
        let (number, payload) = self.numbered(payload);
        let scoped = self.plan.groups[group].options.order == Order::Scoped;
        let sent = self.offer(id, group, level, scoped.then_some(0), payload);
        Some((number, sent.ok()?))
    }

    /// Tells a member what a machine wants it told. Gives the ticket, if the node took it.
    pub(super) fn tell_driven(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        to: Incarnation,
        payload: &[u8],
    ) -> Option<u64> {
        let (_, payload) = self.numbered(payload);
        let usage = self.processes[id].uses.get(&group);
        if usage.is_none_or(|usage| usage.untellable.contains(&to)) {
            return None;
        }
        match self.tell_member(id, group, to, &payload) {
            Ok(ticket) => Some(ticket),
            Err(TellError::TooLarge { limit }) => {
                let what = format!("a machine tells {} bytes, the limit is {limit}", payload.len());
                self.note(id, Seen::Contract(what));
                None
            }
            Err(_) => None,
        }
    }

    /// What was sent to all is handed over: at once, or when the driver comes to it.
    pub(super) fn hand_over_driven(&mut self, id: ProcessId, group: GroupIndex) {
        if self.random.percent(20) {
            let later = self.now + 1 + self.random.below(2 * MILLIS);
            self.agenda.add(later, Happening::Input(id, Input::Sends(group)));
        } else {
            self.hand_over(id, group);
        }
    }

    /// A machine's timer.
    pub(in crate::world) fn wake(&mut self, id: ProcessId) {
        let now = self.now;
        let process = &mut self.processes[id];
        // What waits is looked at again when the process runs.
        let asleep = process.ended.is_some() || process.gate == Gate::Paused || process.stalled;
        let local = process.clock.local(now);
        let mut due = false;
        if let Some(it) = process.replica.as_mut().filter(|it| it.wakes_at == now) {
            it.wakes_at = Micros::MAX;
            if !asleep {
                it.replica.handle_timeout(local);
            }
            due = true;
        }
        if let Some(it) = process.calling.as_mut().filter(|it| it.wakes_at == now) {
            it.wakes_at = Micros::MAX;
            due = true;
        }
        if let Some(it) = process.hosting.as_mut().filter(|it| it.wakes_at == now) {
            it.wakes_at = Micros::MAX;
            due = true;
        }
        if due && !asleep {
            self.drive(id);
        }
    }

    /// These bytes, and a number that no other message has.
    fn numbered(&mut self, payload: &[u8]) -> (u64, Bytes) {
        self.numbers += 1;
        let bytes = [payload, &self.numbers.to_le_bytes()].concat();
        (self.numbers, bytes.into())
    }
}

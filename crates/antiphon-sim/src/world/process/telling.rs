//! The direct messages of applications, member to member.

use antiphon_core::{TELL_CREDIT_BYTES, TELL_OVERHEAD, TellError};

use super::application::delivery;
use super::*;

/// In a hundred: times when an application that was told something takes it at once.
const TAKES_PERCENT: u32 = 30;

impl World {
    /// The application tells a member something: mostly one thing, now and then until its credit is used up.
    pub(super) fn tell_somebody(&mut self, id: ProcessId, group: GroupIndex) {
        let process = &self.processes[id];
        let Some(usage) = process.uses.get(&group) else {
            return;
        };
        let me = process.node.incarnation();
        let others: Vec<Incarnation> = match &usage.view {
            Some(view) => view
                .members
                .iter()
                .copied()
                .filter(|other| *other != me)
                .collect(),
            None => Vec::new(),
        };
        if others.is_empty() {
            return;
        }
        let to = *self.random.pick(&others);
        let burst = match self.random.below(100) {
            0..5 => 200,
            5..30 => 1 + self.random.below(8),
            _ => 1,
        };
        for _ in 0..burst {
            let bytes = 8 + self.random.index(self.plan.load.tell_bytes.max(1));
            let payload = self.payload(bytes);
            match self.tell_member(id, group, to, &payload) {
                Ok(_) => {}
                Err(TellError::TooLarge { limit }) => {
                    let what = format!("{} bytes were refused, the limit is {limit}", payload.len());
                    return self.note(id, Seen::Contract(what));
                }
                Err(_) => return,
            }
        }
    }

    /// The application tells a member this, if the node takes it. Gives the ticket.
    pub(super) fn tell_member(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        to: Incarnation,
        payload: &Bytes,
    ) -> Result<u64, TellError> {
        let process = &mut self.processes[id];
        let now = process.clock.local(self.now);
        let usage = process.uses.get_mut(&group).ok_or(TellError::NoSuchGroup)?;
        let told = process.node.tell(now, usage.handle, to, payload);
        match &told {
            Ok(ticket) => self.note(
                id,
                Seen::Tells {
                    group,
                    to,
                    ticket: ticket.0,
                    payload: hash(payload, 0),
                },
            ),
            Err(TellError::TooLarge { .. }) => {}
            Err(TellError::Full) => {
                usage.untellable.insert(to);
                self.count("tell_full");
            }
            Err(_) => self.count("tell_refused"),
        }
        told.map(|ticket| ticket.0)
    }

    /// A node that waits to tell another one more.
    pub(crate) fn waits_to_tell(&self) -> Option<(Slot, GroupIndex)> {
        let live = self.processes.iter().filter(|process| process.ended.is_none());
        let mut waits = live.flat_map(|process| {
            let uses = process.uses.iter().filter(|(_, usage)| !usage.left);
            let waiting = uses.filter(|(_, usage)| !usage.untellable.is_empty());
            waiting.map(|(group, _)| (process.slot, *group))
        });
        waits.next()
    }

    pub(super) fn hear_told(&mut self, id: ProcessId, group: GroupIndex, messages: Messages) {
        let mut beyond = None;
        if let Some(usage) = self.processes[id].uses.get_mut(&group) {
            let (count, bytes) = usage.untaken.entry(messages.sender).or_default();
            *count += messages.len();
            *bytes += messages.block.bytes().len() + messages.len() as usize * TELL_OVERHEAD;
            beyond = (*bytes > TELL_CREDIT_BYTES).then_some(*bytes);
        }
        if let Some(bytes) = beyond {
            let what = format!(
                "{bytes} bytes were told by {} and not taken",
                messages.sender.short()
            );
            self.note(id, Seen::Contract(what));
        }
        for message in messages {
            let told = delivery(&message, usize::MAX);
            self.note(id, Seen::Group(group, Heard::Told(told)));
            self.give(id, group, Given::Told(told.sender, message.payload));
        }
    }

    /// A slow application takes what it was told when it comes to it.
    pub(super) fn take_told(&mut self, id: ProcessId) -> bool {
        let mut any = false;
        let groups: Vec<GroupIndex> = self.processes[id].uses.keys().copied().collect();
        for group in groups {
            let usage = self.processes[id].uses.get(&group);
            let senders = usage.into_iter().flat_map(|usage| usage.untaken.keys());
            for from in senders.copied().collect::<Vec<_>>() {
                if !self.random.percent(TAKES_PERCENT) {
                    continue;
                }
                let process = &mut self.processes[id];
                let now = process.clock.local(self.now);
                if let Some(usage) = process.uses.get_mut(&group)
                    && let Some((count, _)) = usage.untaken.remove(&from)
                {
                    any = true;
                    process.node.told_consumed(now, usage.handle, from, count);
                }
            }
        }
        any
    }
}

//! What the application on top of a process does: joins and leaves groups, sends, and takes messages.

use antiphon_core::wire::{GroupViewId, Level};
use antiphon_core::{GroupOptions, MAX_PAYLOAD_BYTES, Order, SendError};
use bytes::Bytes;

use super::*;

impl World {
    pub(in crate::world) fn join_group(&mut self, id: ProcessId, group: GroupIndex) {
        let plan = &self.plan.groups[group];
        let (name, options) = (plan.name.clone(), plan.options);
        self.join_named(id, group, &name, options);
    }

    pub(super) fn join_named(&mut self, id: ProcessId, group: GroupIndex, name: &str, options: GroupOptions) {
        let process = &mut self.processes[id];
        if process.ended.is_some() || process.leaving {
            return;
        }
        if let Some(usage) = process.uses.get_mut(&group).filter(|usage| !usage.gone) {
            usage.rejoin = usage.left;
            return;
        }
        let now = process.clock.local(self.now);
        match process.node.join_group(now, name, options) {
            Ok(handle) => {
                process.handles.insert(handle, group);
                process.uses.insert(group, Usage::new(handle));
                self.note(
                    id,
                    Seen::AskedToJoin {
                        group,
                        name: name.to_owned(),
                        options,
                    },
                );
            }
            // It still serves others what they need of its last membership: later.
            Err(_) if process.uses.contains_key(&group) => {
                self.count("join_refused");
                self.agenda.add(self.now + 100_000, Happening::Rejoin(id, group));
            }
            Err(error) => self.note(id, Seen::Contract(format!("joining {name} was refused: {error}"))),
        }
        self.drive(id);
    }

    pub(in crate::world) fn leave_group(&mut self, id: ProcessId, group: GroupIndex) {
        let process = &mut self.processes[id];
        let now = process.clock.local(self.now);
        let Some(usage) = process.uses.get_mut(&group).filter(|usage| !usage.left) else {
            return;
        };
        usage.left = true;
        process.node.leave_group(now, usage.handle);
        self.note(id, Seen::AskedToLeaveGroup(group));
        self.drive(id);
    }

    pub(in crate::world) fn leave(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        if process.leaving || process.ended.is_some() {
            return;
        }
        process.leaving = true;
        let now = process.clock.local(self.now);
        process.node.leave(now);
        self.note(id, Seen::AskedToLeave);
        self.drive(id);
    }

    /// Sends a message of the application at a slot.
    pub fn send(&mut self, slot: Slot, group: GroupIndex, payload: Bytes) -> Result<u64, SendError> {
        let id = self.process_at(slot).ok_or(SendError::NoSuchGroup)?;
        let scope = self.a_scope(group);
        let result = self.offer(id, group, Level::Agreed, scope, payload);
        self.drive(id);
        result
    }

    /// Gives the node a message; what it wants done for it waits for the next time it is driven.
    fn offer(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        level: Level,
        scope: Option<u32>,
        payload: Bytes,
    ) -> Result<u64, SendError> {
        let process = &mut self.processes[id];
        let usage = process.uses.get_mut(&group).ok_or(SendError::NoSuchGroup)?;
        let now = process.clock.local(self.now);
        let hashed = hash(&payload, 0);
        let result = process.node.send_at(now, usage.handle, level, scope, &payload);
        match result {
            Ok(ticket) => self.note(
                id,
                Seen::Sent {
                    group,
                    ticket: ticket.0,
                    payload: hashed,
                    safe: level == Level::Safe,
                    scope,
                },
            ),
            Err(error) => {
                usage.full = error == SendError::Full;
                self.note(id, Seen::NotSent { group, error });
            }
        }
        result.map(|ticket| ticket.0)
    }

    /// The application's next message, if it can send one.
    pub(in crate::world) fn tick(&mut self, id: ProcessId) {
        let every = self.plan.load.every;
        if self.processes[id].ended.is_some() || every == 0 {
            return;
        }
        let again = self.now + every / 2 + self.random.below(every) + 1;
        self.agenda.add(again, Happening::Tick(id));
        let process = &self.processes[id];
        if process.gate == Gate::Paused || process.leaving || !self.loaded {
            return;
        }
        // A tenth of the tries go to groups that should refuse: that they do is a guarantee too.
        let eager = self.random.percent(10);
        let able = |usage: &&Usage| !usage.left && (eager || (usage.view.is_some() && !usage.full));
        let groups: Vec<GroupIndex> = process
            .uses
            .iter()
            .filter(|(_, usage)| able(usage))
            .map(|(group, _)| *group)
            .collect();
        if groups.is_empty() {
            return;
        }
        let group = *self.random.pick(&groups);
        // Some at a time: they share a block, and what is lost or repaired is part of one.
        let burst = if self.random.percent(20) {
            2 + self.random.below(7)
        } else {
            1
        };
        for _ in 0..burst {
            let scope = self.a_scope(group);
            let load = &self.plan.load;
            let objects = load.object_percent > 0 && scope.is_none();
            let bytes = if objects && self.random.percent(load.object_percent) {
                load.object_bytes
            } else if self.random.percent(load.large_percent) {
                load.large_bytes
            } else {
                load.bytes
            };
            let safe = load.safe_percent;
            let payload = self.payload(bytes);
            let level = if safe > 0 && self.random.percent(safe) {
                Level::Safe
            } else {
                Level::Agreed
            };
            // A refusal is on the record; the application gives this message up.
            let _refused = self.offer(id, group, level, scope, payload).is_err();
        }
        self.drive(id);
    }

    /// The scope of the next message: one of a few, so that each has some messages on their way.
    fn a_scope(&mut self, group: GroupIndex) -> Option<u32> {
        let scoped = self.plan.groups[group].options.order == Order::Scoped;
        scoped.then(|| self.random.below(5) as u32)
    }

    /// Random bytes: no two messages are alike.
    pub(crate) fn payload(&mut self, bytes: usize) -> Bytes {
        let mut payload = Vec::with_capacity(bytes + 8);
        while payload.len() < bytes {
            payload.extend_from_slice(&self.random.next_u64().to_le_bytes());
        }
        payload.truncate(bytes.max(8));
        payload.into()
    }

    /// Whether it is how far an object is, as it must be: not beyond its end.
    pub(super) fn hear_progress(&mut self, event: &GroupEvent) -> bool {
        let GroupEvent::Progress { bytes, length, .. } = event else {
            return false;
        };
        self.count("object_progress");
        bytes <= length
    }

    pub(super) fn hear_messages(&mut self, id: ProcessId, group: GroupIndex, messages: Messages) {
        let last = messages.first + messages.len().saturating_sub(1);
        let mut in_flush = false;
        let largest = MAX_PAYLOAD_BYTES.min(self.plan.groups[group].options.window_bytes as usize);
        if let Some(usage) = self.processes[id].uses.get_mut(&group) {
            in_flush = usage.in_flush;
            usage.unconsumed += messages.len();
            let bytes: usize = messages.block.iter().map(<[u8]>::len).sum();
            let unread = if messages.len() == 1 && bytes > largest {
                &mut usage.unread_objects
            } else {
                &mut usage.unread
            };
            *unread.entry(messages.sender).or_default() += bytes;
        }
        let level = messages.block.level();
        let (view, sender) = (messages.view, messages.sender);
        for message in messages {
            self.note(
                id,
                Seen::Group(group, Heard::Message(delivery(&message, largest))),
            );
        }
        if level == Level::Safe && !in_flush {
            self.look_who_holds(id, group, view, sender, last);
        }
    }

    /// G24: of what was just delivered as safe, each member of the view must hold the last, or have held it when it died. Of
    /// one that has another incarnation or view by now, nothing can be told from what it holds.
    fn look_who_holds(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        view: GroupViewId,
        sender: Incarnation,
        seq: u64,
    ) {
        let usage = self.processes[id].uses.get(&group);
        let members = usage.and_then(|usage| usage.view.as_ref().map(|view| view.members.clone()));
        for member in members.unwrap_or_default() {
            let process = self
                .processes
                .iter()
                .find(|process| process.node.incarnation() == member);
            let held = process.and_then(|process| {
                let usage = process.uses.get(&group)?;
                process.node.holds(usage.handle, view, sender, seq)
            });
            if held == Some(false) {
                self.note(
                    id,
                    Seen::Unheld {
                        group,
                        sender,
                        seq,
                        lacks: member,
                    },
                );
            }
        }
    }
}

/// `largest` is what goes through a sender's log: of anything larger, that has only a record.
fn delivery(message: &Message, largest: usize) -> Delivery {
    let numbers = if message.payload.len() > largest {
        1
    } else {
        Block::large(message.payload.clone()).places()
    };
    Delivery {
        view: message.view,
        sender: message.sender,
        seq: message.seq,
        numbers,
        payload: hash(&message.payload, 0),
        safe: message.level == Level::Safe,
        scope: message.scope,
        ticket: message.ticket.map(|ticket| ticket.0),
    }
}

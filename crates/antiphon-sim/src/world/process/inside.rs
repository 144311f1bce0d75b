//! Notes what no application sees: what a node holds, keeps, and knows of its groups' views.

use antiphon_core::wire::{GroupViewId, Incarnation};

use super::*;

impl World {
    /// G33: between two inputs, an unordered group keeps nothing that it could deliver.
    pub(super) fn note_withheld(&mut self, id: ProcessId) {
        let process = &self.processes[id];
        let groups = process.uses.iter().filter_map(|(group, usage)| {
            let (sender, seq) = process.node.withheld(usage.handle)?;
            let group = *group;
            Some(Inside::Withheld { group, sender, seq })
        });
        for note in groups.collect::<Vec<_>>() {
            self.note(id, Seen::Inside(note));
        }
    }

    /// Notes which view each group has, and which members the next view will not have, whenever either is
    /// new.
    pub(super) fn note_rolls(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        let mut notes = Vec::new();
        for (group, usage) in &mut process.uses {
            let Some((view, members, removed)) = process.node.roll(usage.handle) else {
                continue;
            };
            let known = usage.roll.as_ref();
            if known.is_some_and(|(last, gone)| *last == view && *gone == removed) {
                continue;
            }
            usage.roll = Some((view, removed.clone()));
            notes.push(Inside::Roll {
                group: *group,
                view,
                members: members.to_vec(),
                removed,
            });
        }
        for note in notes {
            self.note(id, Seen::Inside(note));
        }
    }

    /// Notes how much the groups hold, whenever it is more than ever before by a part.
    pub(super) fn note_memory(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        let mut notes = Vec::new();
        for (group, usage) in &mut process.uses {
            let group = *group;
            let window = self.plan.groups[group].options.window_bytes as usize;
            if let Some(Memory { held, bound, .. }) = process.node.memory(usage.handle)
                && (held > usage.noted.0 + usage.noted.0 / 8 || held > bound)
            {
                usage.noted.0 = held;
                let sender = None;
                notes.push(Inside::Memory {
                    group,
                    sender,
                    held,
                    bound,
                });
            }
            let largest = self.plan.groups[group].options.max_object_bytes as usize;
            for (sender, held) in usage.unread_objects.iter().filter(|(_, held)| **held > largest) {
                notes.push(Inside::Memory {
                    group,
                    sender: Some(*sender),
                    held: *held,
                    bound: largest,
                });
            }
            let most = usage.unread.iter().max_by_key(|(_, bytes)| **bytes);
            if let Some((sender, held)) = most
                && (*held > usage.noted.1 + usage.noted.1 / 8 || *held > window)
            {
                usage.noted.1 = *held;
                notes.push(Inside::Memory {
                    group,
                    sender: Some(*sender),
                    held: *held,
                    bound: window,
                });
            }
        }
        for note in notes {
            self.note(id, Seen::Inside(note));
        }
    }

    /// G24: each member of the view must hold the last message that was just delivered as safe, or have held
    /// it when it died. If a member has another incarnation or view by now, what it holds says nothing.
    pub(super) fn look_who_holds(
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
                let lacks = member;
                self.note(
                    id,
                    Seen::Inside(Inside::Unheld {
                        group,
                        sender,
                        seq,
                        lacks,
                    }),
                );
            }
        }
    }
}

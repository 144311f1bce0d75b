//! Control messages: where each one goes at this node.
//!
//! It goes to the elder's directory, to a group by its name (messages to joiners, and joins), or to a group
//! by its id.

use antiphon_wire::Incarnation;
use antiphon_wire::group::GroupMessage;

use super::entry::Past;
use super::member::{Group, Phase};
use super::{Context, Groups};
use crate::GroupEvent;
use crate::text::printable;

impl Groups {
    pub(super) fn dispatch(&mut self, from: Incarnation, message: GroupMessage) {
        match message {
            GroupMessage::Report { .. }
            | GroupMessage::Announce(_)
            | GroupMessage::Dissolved { .. }
            | GroupMessage::Lookup { .. }
            | GroupMessage::Declined { .. } => self.handle_directory(from, message),
            GroupMessage::Located { .. }
            | GroupMessage::Grant { .. }
            | GroupMessage::Join { .. }
            | GroupMessage::Moved { .. }
            | GroupMessage::Refused { .. }
            | GroupMessage::FirstView { .. } => self.handle_joining(from, message),
            GroupMessage::FlushStart { .. } => self.handle_start(from, message),
            GroupMessage::ReportWanted if self.nodes.members.first() == Some(&from) => self.report_groups(),
            GroupMessage::ReportWanted => {}
            other => self.handle_by_id(from, other),
        }
    }

    /// As the elder.
    fn handle_directory(&mut self, from: Incarnation, message: GroupMessage) {
        if self.nodes.members.first() != Some(&self.me) {
            return;
        }
        let directory = &mut self.directory;
        let answers = match message {
            GroupMessage::Report { groups } => directory.report(from, groups),
            GroupMessage::Lookup { name } => directory.lookup(from, name),
            GroupMessage::Announce(report) => {
                directory.announce(report);
                Vec::new()
            }
            GroupMessage::Dissolved { group, name, k } => {
                directory.dissolved(group, &name, k);
                Vec::new()
            }
            GroupMessage::Declined { name } => {
                directory.declined(from, &name);
                Vec::new()
            }
            _ => Vec::new(),
        };
        let mut ctx = context!(self);
        for (to, answer) in answers {
            ctx.send(to, answer);
        }
    }

    /// Messages that name a group: to joiners, and joins.
    fn handle_joining(&mut self, from: Incarnation, message: GroupMessage) {
        let name = match &message {
            GroupMessage::Located { name, .. }
            | GroupMessage::Grant { name, .. }
            | GroupMessage::Join { name, .. }
            | GroupMessage::Moved { name, .. }
            | GroupMessage::Refused { name, .. }
            | GroupMessage::FirstView { name, .. } => name.clone(),
            _ => return,
        };
        let handle = self.named(&name);
        let mut ctx = context!(self);
        let group = handle.and_then(|handle| self.groups.get_mut(&handle));
        let Some(group) = group else {
            match message {
                GroupMessage::Grant { name, .. } => ctx.send(from, GroupMessage::Declined { name }),
                GroupMessage::Join { name, .. } => ctx.not_here(from, name),
                // The sender counts on this node, and learns that it does not take part.
                GroupMessage::FirstView { group, .. } => ctx.send(from, GroupMessage::Leave { group }),
                _ => {}
            }
            return;
        };
        match message {
            GroupMessage::Located { leader, .. } => group.located(&mut ctx, leader),
            GroupMessage::Moved {
                leader: Some(leader), ..
            } => group.located(&mut ctx, leader),
            GroupMessage::Moved { leader: None, .. } => group.not_there(&mut ctx, from),
            GroupMessage::Grant { k, .. } => {
                // A node that left and joins again may be granted twice. If it has the group already, that is
                // no reason to decline.
                if group.found(&mut ctx, k) || matches!(group.phase, Phase::Member(_)) {
                    return;
                }
                ctx.send(from, GroupMessage::Declined { name });
                // No member has the group: a node that wanted to leave it has nothing to wait for.
                let waits = matches!(group.phase, Phase::Locating { .. } | Phase::Joining { .. });
                if waits && group.leaving.is_some() {
                    group.end(&mut ctx, GroupEvent::Left);
                    ctx.over.push(group.handle);
                }
            }
            GroupMessage::Join {
                terms, nonce, first, ..
            } => group.handle_join(&mut ctx, from, terms, nonce, first),
            GroupMessage::Refused { reason, .. } => {
                if matches!(group.phase, Phase::Joining { .. }) {
                    let reason = printable(&reason);
                    group.end(&mut ctx, GroupEvent::Refused { reason });
                    group.phase = Phase::Refused;
                    // It may ask again, and otherwise.
                    ctx.over.push(group.handle);
                }
            }
            GroupMessage::FirstView {
                group: id,
                terms,
                decision,
                departed,
                gone,
                ..
            } => {
                group.handle_first_view(&mut ctx, from, id, terms, *decision, Past { departed, gone });
                self.replay_strays();
            }
            _ => {}
        }
    }

    fn replay_strays(&mut self) {
        for (from, record) in std::mem::take(&mut self.strays) {
            self.handle_data(self.now, from, record);
        }
    }

    fn handle_start(&mut self, from: Incarnation, message: GroupMessage) {
        let GroupMessage::FlushStart {
            group,
            name,
            view,
            target,
        } = message
        else {
            return;
        };
        // The ballot of a flush is the node view that the flush is led under.
        if target.node != self.nodes.id {
            self.nonsense += 1;
            return;
        }
        let joining = self
            .named(&name)
            .filter(|handle| self.groups[handle].id().is_none());
        let left_from = |local: &Group| matches!(&local.phase, Phase::Ghost { group: id, retained, .. } if *id == group && retained.decision.from == view);
        let ghost = self
            .groups
            .values()
            .find(|local| left_from(local))
            .map(|local| local.handle);
        let handle = ghost.or(joining).or_else(|| self.find(group));
        let mut ctx = context!(self);
        match handle.and_then(|handle| self.groups.get_mut(&handle)) {
            Some(local) if local.id().is_none_or(|id| id == group) => {
                local.handle_flush_start(&mut ctx, from, group, view, target);
            }
            _ => {
                let standing = ctx.gone(group);
                ctx.send(
                    from,
                    GroupMessage::FlushReport {
                        group,
                        target,
                        standing,
                    },
                );
            }
        }
    }

    /// Messages between members.
    fn handle_by_id(&mut self, from: Incarnation, message: GroupMessage) {
        let id = match &message {
            GroupMessage::Leave { group }
            | GroupMessage::Resume { group, .. }
            | GroupMessage::Check { group, .. }
            | GroupMessage::FlushReport { group, .. }
            | GroupMessage::FlushRefused { group, .. }
            | GroupMessage::FlushCut { group, .. }
            | GroupMessage::Complete { group, .. }
            | GroupMessage::Installed { group, .. }
            | GroupMessage::Settled { group, .. }
            | GroupMessage::Overdue { group, .. }
            | GroupMessage::Slow { group, .. }
            | GroupMessage::CutHeld { group, .. }
            | GroupMessage::CutSafe { group, .. }
            | GroupMessage::Removed { group, .. } => *group,
            _ => return,
        };
        let Some(handle) = self.find(id) else {
            if let GroupMessage::Resume { group, view } | GroupMessage::Check { group, view } = message {
                // This node may wait for several groups, and only the sender knows which of them has this id.
                let was_there = self.floors.contains_key(&group);
                let mut waiting = false;
                let checks = matches!(message, GroupMessage::Check { .. });
                for local in self.groups.values_mut().filter(|_| !was_there) {
                    let mut ctx = context!(self);
                    waiting |= local.is_counted_on(&mut ctx, from, checks);
                }
                if waiting {
                    return;
                }
                let mut ctx = context!(self);
                let cause = "its leader is no member of the group any more".to_owned();
                ctx.send(from, GroupMessage::Removed { group, view, cause });
            }
            return;
        };
        let mut ctx = context!(self);
        let Some(group) = self.groups.get_mut(&handle) else {
            return;
        };
        match message {
            GroupMessage::Overdue { view, .. } => group.handle_overdue(&mut ctx, from, view),
            message => {
                group.answer_as_ghost(&mut ctx, from, &message);
                group.flush(&mut ctx, |flush, around| {
                    flush.handle_message(around, from, message)
                });
            }
        }
    }
}

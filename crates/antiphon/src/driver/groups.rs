//! A group's two directions inside the driver: accepted messages into the core, its events to the
//! application.

use std::sync::Arc;

use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupEvent, GroupHandle, GroupOptions, GroupView, Outcome};

use super::{Bound, Driver, Life, People};
use crate::group::{GroupShared, Membership, Run};
use crate::{Event, GroupStatus, Messages, Progress, View};

/// What the driver knows of a group.
pub(super) struct GroupDriver {
    pub(super) shared: Arc<GroupShared>,
    view: Option<Arc<View>>,
    /// The application has given it up.
    leaving: bool,
    /// The core has been told so.
    left: bool,
}

impl GroupDriver {
    pub(super) fn new(name: &str, handle: GroupHandle, options: &GroupOptions, bound: Arc<Bound>) -> Self {
        let shared = Arc::new(GroupShared::new(name.to_owned(), handle, options, bound));
        Self {
            shared,
            view: None,
            leaving: false,
            left: false,
        }
    }

    pub(super) fn status(&self) -> GroupStatus {
        GroupStatus {
            name: self.shared.name.clone(),
            view: self.view.clone(),
            unread_events: self.shared.unread(),
            pending_sends: self.shared.pending() as usize,
        }
    }

    /// The application has given it up, and the group has not let it go yet.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving || self.shared.is_abandoned()
    }

    /// The node stops: senders and readers learn it; receipts without an answer say `Unknown`.
    pub(super) fn close(self) {
        self.shared.set_membership(Membership::Gone);
    }
}

impl Driver {
    /// A group's handle asked for attention: messages to send, credit to return, or its end.
    pub(super) fn serve_application(&mut self, handle: GroupHandle) {
        let Some(group) = self.groups.get_mut(&handle) else {
            return;
        };
        group.shared.clear_wake();
        if group.shared.is_abandoned() {
            self.give_up(handle);
        }
        self.return_credit(handle);
        self.send_waiting(handle);
    }

    /// Leaves a group once the core has all accepted messages. What arrives meanwhile is discarded.
    pub(super) fn give_up(&mut self, handle: GroupHandle) {
        let Some(group) = self.groups.get_mut(&handle) else {
            return;
        };
        if !group.leaving {
            group.leaving = true;
            if group.shared.membership() == Membership::Member {
                group.shared.set_membership(Membership::Leaving);
            }
            group.shared.discard();
        }
    }

    pub(super) fn group_event(&mut self, handle: GroupHandle, event: GroupEvent) {
        let Some(group) = self.groups.get_mut(&handle) else {
            return;
        };
        let me = self.node.incarnation();
        let mut over = false;
        let event = match event {
            GroupEvent::Messages(messages) => {
                if let Some(first) = messages.ticket {
                    group.shared.settle(first, messages.len(), Outcome::Delivered);
                }
                let sender = self.people.member(messages.sender);
                if !group.leaving {
                    group
                        .shared
                        .deliver(Run::Messages(Messages::new(messages, sender)));
                } else {
                    self.node.consumed(self.clock.now(), handle, messages.len());
                }
                return;
            }
            GroupEvent::Told(messages) => {
                if !group.leaving {
                    let sender = self.people.member(messages.sender);
                    group.shared.deliver(Run::Told(Messages::new(messages, sender)));
                } else {
                    let now = self.clock.now();
                    self.node
                        .told_consumed(now, handle, messages.sender, messages.len());
                }
                return;
            }
            GroupEvent::TellReceipts {
                to,
                first,
                count,
                outcome,
            } => {
                group.shared.settle_tells(to, first, count, &outcome);
                return;
            }
            GroupEvent::TellWritable { to } => {
                group.shared.set_tellable(to);
                self.send_waiting(handle);
                return;
            }
            GroupEvent::View(view) => {
                group.shared.set_view(&view, me);
                view.gone.iter().for_each(|member| self.people.meet(member));
                let view = Arc::new(named(&self.people, &view, me));
                tracing::info!(target: "antiphon::group", node = %self.shared.settings.name, %view, "group view");
                group.view = Some(view.clone());
                // Also if it was suspended meanwhile, it takes nothing more.
                let leaves = group.leaving || !matches!(self.life, Life::Running);
                group.shared.set_membership(if leaves {
                    Membership::Leaving
                } else {
                    Membership::Member
                });
                Event::View(view)
            }
            GroupEvent::Transitional { members } => Event::Transitional {
                members: members.iter().map(|member| self.people.member(*member)).collect(),
            },
            GroupEvent::Suspended => {
                tracing::warn!(target: "antiphon::group", node = %self.shared.settings.name, group = %group.shared.name, "suspended: no primary");
                group.shared.set_membership(Membership::Suspended);
                Event::Suspended
            }
            GroupEvent::Resync { cause } => {
                tracing::warn!(target: "antiphon::group", node = %self.shared.settings.name, group = %group.shared.name, %cause, "resync");
                group.shared.set_membership(Membership::Joining);
                if self.bound.is_over() {
                    // The member was removed before the application could take these, and they are part of a
                    // state that is void.
                    group.shared.discard_late();
                }
                Event::Resync { cause }
            }
            GroupEvent::Refused { reason } => {
                tracing::warn!(target: "antiphon::group", node = %self.shared.settings.name, group = %group.shared.name, %reason, "refused");
                over = true;
                Event::Refused { reason }
            }
            GroupEvent::Left => {
                over = true;
                Event::Left
            }
            GroupEvent::Receipts {
                first,
                count,
                outcome,
            } => {
                group.shared.settle(first, count, outcome);
                return;
            }
            GroupEvent::Progress {
                ticket,
                bytes,
                length,
            } => {
                group.shared.set_progress(ticket, Progress { bytes, length });
                return;
            }
            GroupEvent::Writable => {
                self.send_waiting(handle);
                return;
            }
            _ => return,
        };
        let refused = match &event {
            Event::Refused { reason } => Some(reason.clone()),
            _ => None,
        };
        let resumes = matches!(event, Event::View(_));
        if over && self.bound.is_over() {
            // The application may take these no more, and nothing comes after the end.
            group.shared.discard_late();
        }
        // While the group is being left, the reader is told only the end, and no view behind the views that
        // it never got.
        let healthy = (group.leaving && !over) || group.shared.deliver(Run::Event(event));
        if over {
            let membership = refused.map_or(Membership::Gone, Membership::Refused);
            group.shared.set_membership(membership);
            self.groups.remove(&handle);
        } else if group.leaving {
            group.shared.discard();
            self.return_credit(handle);
            self.send_waiting(handle);
        } else if !healthy {
            tracing::error!(
                target: "antiphon::group", node = %self.shared.settings.name, group = %group.shared.name,
                "the application does not read the group's events; leaving the group"
            );
            self.give_up(handle);
            self.send_waiting(handle);
        } else if resumes {
            self.send_waiting(handle);
        }
    }

    fn return_credit(&mut self, handle: GroupHandle) {
        let Some(group) = self.groups.get(&handle) else {
            return;
        };
        let (consumed, told) = group.shared.take_consumed();
        let now = self.clock.now();
        if consumed > 0 {
            self.node.consumed(now, handle, consumed);
        }
        for (sender, consumed) in told {
            self.node.told_consumed(now, handle, sender, consumed);
        }
    }

    /// Hands accepted messages to the core until it has enough.
    fn send_waiting(&mut self, handle: GroupHandle) {
        let Some(group) = self.groups.get_mut(&handle) else {
            return;
        };
        let now = self.clock.now();
        let node = &mut self.node;
        group
            .shared
            .tell_with(|to, payload| node.tell(now, handle, to, payload));
        if group.leaving {
            // It waits for no receiver's credit.
            group.shared.give_up_tells();
        }
        let all = group
            .shared
            .send_with(|first, block| node.send_block(now, handle, first, block));
        if all && group.leaving && !group.left {
            group.left = true;
            self.node.leave_group(now, handle);
        }
    }
}

fn named(people: &People, view: &GroupView, me: Incarnation) -> View {
    let members = |list: &[Incarnation]| list.iter().map(|member| people.member(*member)).collect();
    View {
        id: view.id,
        group: view.name.as_str().into(),
        order: view.order,
        members: members(&view.members),
        joined: members(&view.joined),
        left: members(&view.left),
        crashed: members(&view.crashed),
        causes: view
            .causes
            .iter()
            .map(|(member, cause)| (people.member(*member), cause.clone()))
            .collect(),
        transitional: members(&view.transitional),
        me,
        synced: None,
    }
}

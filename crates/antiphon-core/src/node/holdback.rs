//! Group messages from views this node has not installed yet.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::group::GroupMessage;
use antiphon_wire::{Incarnation, ViewId};

/// What is held for one peer at most: as much as its channel may have under way. The leader of many groups is
/// told of each of them at each view.
const MAX_HELD_BYTES: usize = 8 << 20;
/// What a message counts beyond its bytes.
const MESSAGE_COST: usize = 128;

/// The messages held back, per peer in the order they came.
#[derive(Debug, Clone, Default)]
pub(super) struct Holdback {
    held: BTreeMap<Incarnation, Held>,
}

#[derive(Debug, Clone, Default)]
struct Held {
    messages: VecDeque<(ViewId, GroupMessage, usize)>,
    bytes: usize,
}

pub(super) enum Verdict {
    /// The view is installed: handle it now.
    Handle(GroupMessage),
    /// Held until its view is installed.
    Held,
    /// Too many are held already; the message is lost, and with it the order of the channel.
    Full,
}

impl Holdback {
    /// A message of this many bytes.
    pub(super) fn admit(
        &mut self,
        installed: Option<ViewId>,
        sender: Incarnation,
        view: ViewId,
        (body, bytes): (GroupMessage, usize),
    ) -> Verdict {
        // A peer's later messages name no earlier view; still, none of them may pass one that is held.
        let waiting = self.held.contains_key(&sender);
        if !waiting && installed.is_some_and(|installed| view <= installed) {
            return Verdict::Handle(body);
        }
        let held = self.held.entry(sender).or_default();
        let cost = bytes + MESSAGE_COST;
        if held.bytes + cost > MAX_HELD_BYTES {
            return Verdict::Full;
        }
        held.bytes += cost;
        held.messages.push_back((view, body, cost));
        Verdict::Held
    }

    /// What may be handled now that this view is installed.
    pub(super) fn release(&mut self, installed: ViewId) -> Vec<(Incarnation, ViewId, GroupMessage)> {
        let mut released = Vec::new();
        self.held.retain(|sender, held| {
            let is_due = |(view, ..): &(ViewId, GroupMessage, usize)| *view <= installed;
            while held.messages.front().is_some_and(is_due) {
                released.extend(held.messages.pop_front().map(|(view, body, cost)| {
                    held.bytes -= cost;
                    (*sender, view, body)
                }));
            }
            !held.messages.is_empty()
        });
        released
    }

    /// The peer is gone: what it said of views that were not installed here no longer matters.
    pub(super) fn forget(&mut self, peer: Incarnation) {
        self.held.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::{GroupId, GroupViewId};

    use super::*;
    use crate::group::MAX_GROUPS;

    #[test]
    fn what_is_said_of_all_groups_at_several_views_is_held() {
        let view = |counter| ViewId { epoch: 1, counter };
        let mut holdback = Holdback::default();
        let mut said = 0;
        for counter in 2..=4 {
            for group in 0..MAX_GROUPS as u64 {
                let body = GroupMessage::Settled {
                    group: GroupId(group),
                    view: GroupViewId {
                        node: view(counter),
                        number: 1,
                        k: 1,
                    },
                };
                let verdict = holdback.admit(Some(view(1)), Incarnation(7), view(counter), (body, 60));
                assert!(matches!(verdict, Verdict::Held), "{counter}: {group}");
                said += 1;
            }
        }
        assert_eq!(holdback.release(view(3)).len(), said / 3 * 2);
        assert_eq!(holdback.release(view(4)).len(), said / 3);
        assert!(holdback.held.is_empty());
    }
}

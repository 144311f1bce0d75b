//! Group messages from views this node has not installed yet.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::group::GroupMessage;
use antiphon_wire::{Incarnation, ViewId};

/// What is held for one peer at most: as much as its channel may have under way. The leader of many groups is
/// told of each of them at each view.
const MAX_HELD_BYTES: usize = 8 << 20;
/// What is held for all together: without a key, a stranger may speak as any number of peers.
const MAX_HELD_IN_ALL: usize = 64 << 20;
/// What a message counts beyond its bytes.
const MESSAGE_COST: usize = 128;

/// The messages held back, per peer in the order they came.
#[derive(Debug, Clone, Default)]
pub(super) struct Holdback {
    held: BTreeMap<Incarnation, Held>,
    bytes: usize,
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
        // In memory a list of numbers takes up to eight times its bytes.
        let cost = bytes * 8 + MESSAGE_COST;
        let of_peer = self.held.get(&sender).map_or(0, |held| held.bytes);
        if of_peer + cost > MAX_HELD_BYTES || self.bytes + cost > MAX_HELD_IN_ALL {
            return Verdict::Full;
        }
        self.bytes += cost;
        let held = self.held.entry(sender).or_default();
        held.bytes += cost;
        held.messages.push_back((view, body, cost));
        Verdict::Held
    }

    /// What may be handled now that this view is installed.
    pub(super) fn release(&mut self, installed: ViewId) -> Vec<(Incarnation, ViewId, GroupMessage)> {
        let mut released = Vec::new();
        let all = &mut self.bytes;
        self.held.retain(|sender, held| {
            let is_due = |(view, ..): &(ViewId, GroupMessage, usize)| *view <= installed;
            while held.messages.front().is_some_and(is_due) {
                released.extend(held.messages.pop_front().map(|(view, body, cost)| {
                    held.bytes -= cost;
                    *all -= cost;
                    (*sender, view, body)
                }));
            }
            !held.messages.is_empty()
        });
        released
    }

    /// The peer is gone: what it said of views that were not installed here no longer matters.
    pub(super) fn forget(&mut self, peer: Incarnation) {
        self.bytes -= self.held.remove(&peer).map_or(0, |held| held.bytes);
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::{GroupId, GroupViewId};

    use super::*;
    use crate::group::MAX_GROUPS;

    fn view(counter: u32) -> ViewId {
        ViewId { epoch: 1, counter }
    }

    fn settled(group: u64, counter: u32) -> GroupMessage {
        GroupMessage::Settled {
            group: GroupId(group),
            view: GroupViewId {
                node: view(counter),
                number: 1,
                k: 1,
            },
        }
    }

    #[test]
    fn what_is_said_of_all_groups_at_several_views_is_held() {
        let mut holdback = Holdback::default();
        let said = 3 * MAX_GROUPS;
        for counter in 2..=4 {
            for group in 0..MAX_GROUPS as u64 {
                let message = (settled(group, counter), 60);
                let verdict = holdback.admit(Some(view(1)), Incarnation(7), view(counter), message);
                assert!(matches!(verdict, Verdict::Held), "{counter}: {group}");
            }
        }
        assert_eq!(holdback.release(view(3)).len(), said / 3 * 2);
        assert_eq!(holdback.release(view(4)).len(), said / 3);
        assert_eq!((holdback.held.len(), holdback.bytes), (0, 0));
    }

    #[test]
    fn no_peer_and_not_all_together_have_more_held_than_the_bound() {
        let mut holdback = Holdback::default();
        let fill = |holdback: &mut Holdback, peer| {
            let message = || (settled(1, 2), 100_000);
            let admit = |_: &_| {
                let verdict = holdback.admit(Some(view(1)), Incarnation(peer), view(2), message());
                matches!(verdict, Verdict::Held)
            };
            (0..100).take_while(admit).count()
        };
        assert_eq!(fill(&mut holdback, 1), 10);
        assert_eq!((2..20).map(|peer| fill(&mut holdback, peer)).sum::<usize>(), 73);
        holdback.forget(Incarnation(1));
        assert_eq!(fill(&mut holdback, 30), 10, "there is room again");
        assert_eq!(holdback.release(view(2)).len(), 83);
        assert_eq!(fill(&mut holdback, 1), 10);
    }
}

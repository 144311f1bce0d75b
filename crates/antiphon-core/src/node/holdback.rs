//! Group messages from views this node has not installed yet.
//!
//! They are held as they came, so that what they count is what they take.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::{Incarnation, ViewId};
use bytes::Bytes;

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
    messages: VecDeque<(ViewId, Bytes)>,
    bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The view is installed: handle it now.
    Handle,
    /// Held until its view is installed.
    Held,
    /// Too much is held already for this peer, which is the sender, or that for which most is held: what was
    /// held of it, or this message, is lost, and with it the order of its channel. If it is another peer, the
    /// message may be admitted now.
    Full(Incarnation),
}

impl Holdback {
    pub(super) fn admit(
        &mut self,
        installed: Option<ViewId>,
        sender: Incarnation,
        view: ViewId,
        message: &Bytes,
    ) -> Verdict {
        // A peer's later messages name no earlier view; still, none of them may pass one that is held.
        let waiting = self.held.contains_key(&sender);
        if !waiting && installed.is_some_and(|installed| view <= installed) {
            return Verdict::Handle;
        }
        let cost = message.len() + MESSAGE_COST;
        let of_peer = self.held.get(&sender).map_or(0, |held| held.bytes);
        if of_peer + cost > MAX_HELD_BYTES {
            return Verdict::Full(sender);
        }
        if self.bytes + cost > MAX_HELD_IN_ALL {
            let most = self.held.iter().max_by_key(|(_, held)| held.bytes);
            let most = most.map_or(sender, |(peer, _)| *peer);
            self.forget(most);
            return Verdict::Full(most);
        }
        self.bytes += cost;
        let held = self.held.entry(sender).or_default();
        held.bytes += cost;
        // A copy: the message may be a small part of a large frame.
        held.messages.push_back((view, Bytes::copy_from_slice(message)));
        Verdict::Held
    }

    /// What may be handled now that this view is installed.
    pub(super) fn release(&mut self, installed: ViewId) -> Vec<(Incarnation, ViewId, Bytes)> {
        let mut released = Vec::new();
        let all = &mut self.bytes;
        self.held.retain(|sender, held| {
            let is_due = |(view, _): &(ViewId, Bytes)| *view <= installed;
            while held.messages.front().is_some_and(is_due) {
                released.extend(held.messages.pop_front().map(|(view, message)| {
                    let cost = message.len() + MESSAGE_COST;
                    held.bytes -= cost;
                    *all -= cost;
                    (*sender, view, message)
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
    use super::*;
    use crate::group::MAX_GROUPS;

    fn view(counter: u32) -> ViewId {
        ViewId { epoch: 1, counter }
    }

    fn said(bytes: usize) -> Bytes {
        Bytes::from(vec![0; bytes])
    }

    #[test]
    fn what_is_said_of_all_groups_at_several_views_is_held() {
        let mut holdback = Holdback::default();
        for counter in 2..=4 {
            // The reports of a member of all groups, which are one message in some engines.
            let reports = [said(60 * MAX_GROUPS), said(260 * MAX_GROUPS)];
            for message in reports.into_iter().chain((0..MAX_GROUPS).map(|_| said(60))) {
                let verdict = holdback.admit(Some(view(1)), Incarnation(7), view(counter), &message);
                assert_eq!(verdict, Verdict::Held, "{counter}: {}", message.len());
            }
        }
        assert_eq!(holdback.release(view(3)).len(), 2 * (MAX_GROUPS + 2));
        assert_eq!(holdback.release(view(4)).len(), MAX_GROUPS + 2);
        assert_eq!((holdback.held.len(), holdback.bytes), (0, 0));
    }

    #[test]
    fn no_peer_and_not_all_together_have_more_held_than_the_bound() {
        let mut holdback = Holdback::default();
        let mut admit = |peer, bytes| holdback.admit(Some(view(1)), Incarnation(peer), view(2), &said(bytes));
        // Strangers have so much held that there is room for nobody else: 64 MiB in all.
        for peer in 1..=8 {
            assert_eq!(admit(peer, MAX_HELD_BYTES - MESSAGE_COST), Verdict::Held);
            assert_eq!(admit(peer, 1), Verdict::Full(Incarnation(peer)), "its own bound");
        }
        // A member says something small: a stranger pays for it.
        let Verdict::Full(pays) = admit(9, 1000) else {
            panic!("it is admitted")
        };
        assert!((1..=8).contains(&pays.0), "{pays}");
        assert_eq!(admit(9, 1000), Verdict::Held);
        assert!(holdback.bytes <= MAX_HELD_IN_ALL);
        assert_eq!(holdback.release(view(2)).len(), 8);
        assert_eq!((holdback.held.len(), holdback.bytes), (0, 0));
    }
}

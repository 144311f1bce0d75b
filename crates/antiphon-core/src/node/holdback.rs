//! Group messages from views this node has not installed yet.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::group::GroupMessage;
use antiphon_wire::{Incarnation, ViewId};

/// The most messages held for one peer.
const MAX_HELD_PER_PEER: usize = 4096;

/// The messages held back, per peer in the order they came.
#[derive(Debug, Clone, Default)]
pub(super) struct Holdback {
    held: BTreeMap<Incarnation, VecDeque<(ViewId, GroupMessage)>>,
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
    pub(super) fn admit(
        &mut self,
        installed: Option<ViewId>,
        sender: Incarnation,
        view: ViewId,
        body: GroupMessage,
    ) -> Verdict {
        // A peer's later messages name no earlier view; still, none of them may pass one that is held.
        let waiting = self.held.contains_key(&sender);
        if !waiting && installed.is_some_and(|installed| view <= installed) {
            return Verdict::Handle(body);
        }
        let queue = self.held.entry(sender).or_default();
        if queue.len() >= MAX_HELD_PER_PEER {
            return Verdict::Full;
        }
        queue.push_back((view, body));
        assert!(
            queue.len() <= MAX_HELD_PER_PEER,
            "R13: {} messages of {sender:?} are held back",
            queue.len()
        );
        Verdict::Held
    }

    /// What may be handled now that this view is installed.
    pub(super) fn release(&mut self, installed: ViewId) -> Vec<(Incarnation, ViewId, GroupMessage)> {
        let mut released = Vec::new();
        self.held.retain(|sender, queue| {
            while queue.front().is_some_and(|(view, _)| *view <= installed) {
                released.extend(queue.pop_front().map(|(view, body)| (*sender, view, body)));
            }
            !queue.is_empty()
        });
        released
    }

    /// The peer is gone: what it said of views that were not installed here no longer matters.
    pub(super) fn forget(&mut self, peer: Incarnation) {
        self.held.remove(&peer);
    }
}

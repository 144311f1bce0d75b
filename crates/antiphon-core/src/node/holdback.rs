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
/// What a peer counts beyond its messages, of what is held for all together: the peer that pays is looked for
/// among all, so there must not be too many of them. There is room for all members of the largest view.
const PEER_COST: usize = 8 << 10;

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
    /// Whether it was a member, or about to be one, when it spoke last.
    is_member: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The view is installed: handle it now.
    Handle,
    /// Held until its view is installed.
    Held,
    /// Too much is held already for this peer: what was held of it, or this message, is lost, and with it the
    /// order of its channel. It is the sender, or the peer for which most is held. Without a key strangers
    /// may say as much as they like, so a member pays only where no stranger can. If it is not the sender,
    /// the message may be admitted now.
    Full(Incarnation),
}

impl Holdback {
    /// A peer said something of a view. `is_member`: it is a member of the present view, or of the next.
    pub(super) fn admit(
        &mut self,
        installed: Option<ViewId>,
        (sender, is_member): (Incarnation, bool),
        view: ViewId,
        message: &Bytes,
    ) -> Verdict {
        // A peer's later messages name no earlier view; still, none of them may pass one that is held.
        let waiting = self.held.contains_key(&sender);
        if !waiting && installed.is_some_and(|installed| view <= installed) {
            return Verdict::Handle;
        }
        let cost = message.len() + MESSAGE_COST;
        let of_peer = self.held.get_mut(&sender).map_or(0, |held| {
            held.is_member = is_member;
            held.bytes
        });
        if of_peer + cost > MAX_HELD_BYTES {
            return Verdict::Full(sender);
        }
        if self.bytes + cost + self.held.len() * PEER_COST > MAX_HELD_IN_ALL {
            let most = self
                .held
                .iter()
                .max_by_key(|(_, held)| (!held.is_member, held.bytes));
            let pays = match most {
                Some((peer, held)) if is_member || !held.is_member => *peer,
                // A stranger's message takes nothing from members.
                _ => sender,
            };
            self.forget(pays);
            return Verdict::Full(pays);
        }
        self.bytes += cost;
        let held = self.held.entry(sender).or_default();
        held.is_member = is_member;
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
                let verdict = holdback.admit(Some(view(1)), (Incarnation(7), true), view(counter), &message);
                assert_eq!(verdict, Verdict::Held, "{counter}: {}", message.len());
            }
        }
        assert_eq!(holdback.release(view(3)).len(), 2 * (MAX_GROUPS + 2));
        assert_eq!(holdback.release(view(4)).len(), MAX_GROUPS + 2);
        assert_eq!((holdback.held.len(), holdback.bytes), (0, 0));
    }

    /// The peer says something of the view after the first.
    fn admit(holdback: &mut Holdback, peer: u128, is_member: bool, bytes: usize) -> Verdict {
        let sender = (Incarnation(peer), is_member);
        holdback.admit(Some(view(1)), sender, view(2), &said(bytes))
    }

    #[test]
    fn no_peer_and_not_all_together_have_more_held_than_the_bound() {
        let mut holdback = Holdback::default();
        // Strangers have so much held that there is room for nobody else: 64 MiB in all.
        for peer in 1..=7 {
            let most = MAX_HELD_BYTES - MESSAGE_COST;
            assert_eq!(admit(&mut holdback, peer, false, most), Verdict::Held);
            let verdict = admit(&mut holdback, peer, false, 1);
            assert_eq!(verdict, Verdict::Full(Incarnation(peer)), "its own bound");
        }
        let rest = MAX_HELD_BYTES - 8 * PEER_COST - MESSAGE_COST;
        assert_eq!(admit(&mut holdback, 8, false, rest), Verdict::Held);
        // A member says something small: a stranger pays for it.
        let Verdict::Full(pays) = admit(&mut holdback, 9, true, 1000) else {
            panic!("it is admitted")
        };
        assert!((1..=7).contains(&pays.0), "{pays}");
        assert_eq!(admit(&mut holdback, 9, true, 1000), Verdict::Held);
        assert!(holdback.bytes <= MAX_HELD_IN_ALL);
        assert_eq!(holdback.release(view(2)).len(), 8);
        assert_eq!((holdback.held.len(), holdback.bytes), (0, 0));
    }

    #[test]
    fn what_members_said_is_not_lost_to_strangers() {
        let mut holdback = Holdback::default();
        let most = MAX_HELD_BYTES - MESSAGE_COST;
        // The leader of many groups has more held than any stranger.
        assert_eq!(admit(&mut holdback, 1, true, most), Verdict::Held);
        let less = most - (128 << 10);
        for peer in 2..=8 {
            assert_eq!(admit(&mut holdback, peer, false, less), Verdict::Held);
        }
        for (peer, is_member) in [(9, false), (10, true)] {
            let Verdict::Full(pays) = admit(&mut holdback, peer, is_member, less) else {
                panic!("it is admitted")
            };
            assert!((2..=9).contains(&pays.0), "{pays}");
            assert_eq!(admit(&mut holdback, peer, is_member, less), Verdict::Held);
        }
        // Members alone have so much held that there is room for nobody else.
        let mut holdback = Holdback::default();
        for peer in 1..=7 {
            assert_eq!(admit(&mut holdback, peer, true, most), Verdict::Held);
        }
        let rest = most - 8 * PEER_COST;
        assert_eq!(admit(&mut holdback, 8, true, rest), Verdict::Held);
        let of_stranger = admit(&mut holdback, 9, false, 1000);
        assert_eq!(of_stranger, Verdict::Full(Incarnation(9)), "it pays for itself");
        let Verdict::Full(pays) = admit(&mut holdback, 9, true, 1000) else {
            panic!("it is admitted")
        };
        assert!((1..=7).contains(&pays.0), "{pays}");
    }

    #[test]
    fn only_so_many_peers_have_something_held() {
        let mut holdback = Holdback::default();
        let most = MAX_HELD_IN_ALL / PEER_COST;
        for peer in (1..).take(most + 100) {
            while let Verdict::Full(pays) = admit(&mut holdback, peer, false, 1) {
                assert_ne!(pays, Incarnation(peer));
            }
        }
        assert!(holdback.held.len() <= most, "{}", holdback.held.len());
    }
}

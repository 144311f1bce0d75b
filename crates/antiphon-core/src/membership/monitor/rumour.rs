//! Which rumours a member believes, and those that came before the view that they are about.

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{Ayes, Rumour, Suspicion};
use antiphon_wire::{Evidence, Incarnation, NodeView, ViewId};

use crate::membership::monitor::rings::Rings;
use crate::membership::view::check;

/// Rumours of the next view that are kept until it is installed, in bytes.
const MAX_EARLY_BYTES: usize = 4 << 20;
/// About what a message takes besides its rumours: a message without rumours is not free.
const EARLY_MESSAGE_BYTES: usize = 64;
/// No member has more edges than this.
const MAX_EDGES: usize = 256;

/// Rumours of a view that is not installed yet, and which member told them.
#[derive(Debug, Default)]
pub(crate) struct Early {
    view: Option<ViewId>,
    heard: Vec<(Incarnation, Vec<Rumour>)>,
    bytes: usize,
}

impl Early {
    /// Keeps rumours of the next view, as far as there is room for them. Those of another view make room.
    pub(crate) fn keep(&mut self, view: ViewId, sender: Incarnation, rumours: Vec<Rumour>) {
        if self.view != Some(view) {
            *self = Self {
                view: Some(view),
                ..Self::default()
            };
        }
        let bytes = rumours.iter().map(|rumour| encode_to_vec(rumour).len());
        let bytes = bytes.sum::<usize>() + EARLY_MESSAGE_BYTES;
        if self.bytes + bytes <= MAX_EARLY_BYTES {
            self.bytes += bytes;
            self.heard.push((sender, rumours));
        }
    }

    /// The rumours of a view that is installed now. Those of an earlier view are forgotten.
    pub(crate) fn take(&mut self, installed: ViewId) -> Vec<(Incarnation, Vec<Rumour>)> {
        if self.view > Some(installed) {
            return Vec::new();
        }
        let early = std::mem::take(self);
        if early.view == Some(installed) {
            early.heard
        } else {
            Vec::new()
        }
    }
}

/// Whether a rumour is about members of this view, makes sense, and is no larger than any that a member would
/// tell. A rumour that is taken is passed on, and one larger than a channel carries would break the channel.
pub(crate) fn is_sound(rumour: &Rumour, view: &NodeView, rings: &Rings) -> bool {
    let most = view.members.len();
    match rumour {
        Rumour::Opinion { of, suspicions, .. } => rings.contains(*of) && suspicions.len() <= MAX_EDGES,
        Rumour::Ask { by, change } => rings.contains(*by) && check::change_fits(change),
        Rumour::Prepare {
            ballot,
            proofs,
            removing,
        } => {
            ballot.round > 0
                && rings.contains(ballot.proposer)
                && proofs.len() <= most
                && removing.len() <= most
        }
        Rumour::Accept {
            ballot,
            change,
            proofs,
        } => {
            ballot.round > 0
                && rings.contains(ballot.proposer)
                && proofs.len() <= most
                && check::change_fits(change)
        }
        Rumour::Certificate(certificate) => {
            rings.contains(certificate.dead)
                && check::vote_is_sound(&certificate.vote)
                && check::certificate_fits(certificate)
        }
        Rumour::Tally { what, .. } => match what {
            Ayes::Cast { .. } => true,
            Ayes::Accepted { ballot } => ballot.round > 0 && rings.contains(ballot.proposer),
            Ayes::Promise {
                ballot,
                accepted_in,
                accepted,
            } => {
                ballot.round > 0
                    && rings.contains(ballot.proposer)
                    && accepted_in.is_some() == accepted.is_some()
                    && *accepted_in < Some(*ballot)
            }
        },
        Rumour::Value(change) => check::change_fits(change),
        Rumour::Decided { .. } => true,
    }
}

/// Of the suspicions that a rumour tells of a member, those that the member can have by itself: it knows only
/// of the members that it observes, and of what its groups find.
pub(crate) fn own_suspicions(rings: &Rings, of: Incarnation, suspicions: &[Suspicion]) -> Vec<Suspicion> {
    let can_have = |suspicion: &&Suspicion| {
        suspicion.evidence == Evidence::FlushStalled || rings.observes(of, suspicion.member)
    };
    suspicions.iter().filter(can_have).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(counter: u32) -> ViewId {
        ViewId { epoch: 1, counter }
    }

    fn kept(early: &mut Early, installed: u32) -> usize {
        early.take(id(installed)).len()
    }

    #[test]
    fn rumours_of_the_next_view_are_heard_once_it_is_installed() {
        let mut early = Early::default();
        early.keep(id(2), Incarnation(1), Vec::new());
        early.keep(id(2), Incarnation(2), Vec::new());
        assert_eq!(kept(&mut early, 1), 0);
        assert_eq!(kept(&mut early, 2), 2);
        assert_eq!(kept(&mut early, 2), 0);
        early.keep(id(3), Incarnation(1), Vec::new());
        assert_eq!(kept(&mut early, 4), 0, "the view that they were about is over");
        assert_eq!(kept(&mut early, 3), 0);
    }

    #[test]
    fn rumours_that_come_early_are_bounded_also_where_messages_are_empty() {
        let mut early = Early::default();
        let most = MAX_EARLY_BYTES / EARLY_MESSAGE_BYTES;
        (0..most + 10).for_each(|_| early.keep(id(2), Incarnation(1), Vec::new()));
        assert_eq!(kept(&mut early, 2), most);
    }
}

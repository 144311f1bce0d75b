//! Dissemination (`Disseminator`): the way of a group's messages from their sender to the other members.
//!
//! ```text
//!  direct                          chain, in the order of the view's ranks
//!      ┌──► b                          a ──► b ──► c ──► d        (a sends)
//!  a ──┼──► c                          b ──► c ──► d ──► a        (b sends)
//!      └──► d                          acknowledgements, credit, marks, order records of their own: direct
//! ```
//! **Direct** is the shortest way, and the sender's link carries every message N−1 times. In a **chain**
//! every link carries it once: X messages take the time of X + (N−2) on the slowest link instead of X·(N−1).
//! A chain costs a hop more per member, so it is for links that are slower than the hosts on them. By
//! **multicast** ([`air`]) the sender's link carries a message once, and the network copies it. All members
//! of a group use the same dissemination.
//!
//! # The chain
//! A sender seals a frame of kind [`Chain`](antiphon_wire::frame::Kind::Chain) and sends it to the member
//! after it in the view. Each member that opens the frame takes the messages as if they had come directly. It
//! passes **the same sealed bytes** on to the member after itself, unless that is the sender. There is no hop
//! list and no hop counter: the seal says whose frame it is, the record says which view it is of, and in a
//! view all members agree on their order. In keyed mode the ciphertext travels on: nobody seals for another,
//! and what a member receives was made by the sender it names.
//!
//! A member passes a frame on only
//! - in the view that the frame names, and only while it takes messages of that view itself (R13). What is in
//!   flight at a view change is lost in the chain and repaired by the flush. If the sender is in no view any
//!   more, no member passes its frame on, so no frame can go round in circles;
//! - once: a copy has the same nonce, and the replay window refuses it.
//!
//! What came through others says nothing about the path from its sender to here: such a frame is no sign of
//! life. Chain frames are a kind of their own for that reason, and because their nonces must not push those
//! of direct frames out of the replay window, nor be pushed. Acknowledgements, marks and order records of
//! their own stay direct because they are small, and each hop would add its delay to every total order.
//!
//! # Repairs
//! A member first asks the member before it in the chain for a gap. That member holds what it passed on, and
//! its link is not the one that all share. If it has the same gap, it remembers that it
//! [owes](Disseminator::owe) the messages. It supplies them when it has them, unless they come by the chain
//! and are passed on anyway. What a sender sends again to the member after it goes down the chain like the
//! first time: what that member missed, nobody behind it has. A member that got no answer asks the sender, at
//! the retransmit interval: that needs nobody in between.
//!
//! Supplied messages are taken from any member, in the open view only. After its report to a flush a member
//! takes repairs of that flush and nothing else (R13): otherwise it might deliver what the cut does not know
//! of. Supplied messages are what their sender sent, in the numbers that it gave them: a log has one content,
//! whichever member passes it on.
//!
//! # When participants die
//! - **The sender, after its first hop has the frame**: the frame runs to the end of the chain, or as far as
//!   members have not reported to the flush. What any survivor holds is in the cut (R15), and the others get
//!   it from that survivor.
//! - **The member after the sender, or one in the middle**: what it had and did not pass on is lost for all
//!   behind it. They notice by the sender's marks, which are direct. They ask the dead member in vain, and
//!   then the sender, which answers a part at a time. The view that removes the dead member closes the chain,
//!   and its flush brings what is still missing.
//! - **A member that hangs without dying**: the same, until the detector has removed it. Credit holds the
//!   sender back meanwhile, as it would for the hanging member itself.
//! - **The last member**: nobody is behind it.
//! - **A member installs the next view before the member after it does**: the frames wait at the later member
//!   as early ones. That member does not pass them on, since their seal is gone by then: the members behind
//!   it see the gap and ask.
//!
//! # Invariants
//! - A frame is never sent to the member that sealed it, and never twice by the same member. It goes from a
//!   member to the next of its view only: N−1 transmissions at most. The simulator checks each one.
//! - The chain decides nothing. Guarantees rest on logs, acknowledgements and the flush, which are those of
//!   `direct`; a chain that loses everything is a slow group, not a wrong one.
//! - A member owes at most [`MAX_OWED`] runs of numbers per sender. What is more, the next member asks the
//!   sender for.

pub(crate) mod air;

use crate::Dissemination;

/// How this member passes on messages in one view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disseminator {
    Direct,
    Chain(Chain),
    Multicast,
}

/// This member's place in the chain, by ranks of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    me: usize,
    members: usize,
    /// Per sender, the messages that the next member asked for and that were not here.
    owed: Vec<Vec<Gap>>,
}

/// How many runs of a sender's messages are owed at once: as many as a member asks for at once.
const MAX_OWED: usize = 64;

/// Messages `first..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    first: u64,
    end: u64,
}

impl Disseminator {
    pub(crate) fn new(dissemination: Dissemination, me: usize, members: usize) -> Self {
        match dissemination {
            Dissemination::Direct => Disseminator::Direct,
            Dissemination::Multicast => Disseminator::Multicast,
            Dissemination::Chain => Disseminator::Chain(Chain {
                me,
                members,
                owed: vec![Vec::new(); members],
            }),
        }
    }

    /// Whether members answer for one another.
    pub(crate) fn supplies(&self) -> bool {
        matches!(self, Disseminator::Chain(_))
    }

    /// The member to which this member's own messages go first; `None`: they go to all.
    pub(crate) fn first_hop(&self) -> Option<usize> {
        match self {
            Disseminator::Direct | Disseminator::Multicast => None,
            Disseminator::Chain(chain) => Some(chain.next()),
        }
    }

    /// The member to which a frame with messages `first..end` of `origin` goes from here.
    pub(crate) fn hand_on(&mut self, origin: usize, first: u64, end: u64) -> Option<usize> {
        let Disseminator::Chain(chain) = self else {
            return None;
        };
        let next = if planted!(ChainSkipsMember) {
            (chain.me + 2) % chain.members
        } else {
            chain.next()
        };
        if chain.me == origin || next == origin && !planted!(ChainToOrigin) {
            return None;
        }
        chain.passes(origin, first, end);
        assert!(
            next != origin && next != chain.me || planted!(),
            "chain: {} hands a frame of {origin} on to {next}",
            chain.me
        );
        Some(next)
    }

    /// The member to ask for missing messages of this sender.
    pub(crate) fn whom_to_ask(&self, sender: usize, again: bool) -> usize {
        match self {
            Disseminator::Chain(chain) if !again => chain.before(),
            _ => sender,
        }
    }

    /// The next member misses these messages of `sender`, and so does this one.
    pub(crate) fn owe(&mut self, to: usize, sender: usize, first: u64, end: u64) {
        let Disseminator::Chain(chain) = self else { return };
        if to != chain.next() || first >= end {
            return;
        }
        if let Some(owed) = chain.owed.get_mut(sender) {
            let mut all = Gap { first, end };
            owed.retain(|gap| {
                let apart = gap.end < all.first || all.end < gap.first;
                if !apart {
                    all.first = all.first.min(gap.first);
                    all.end = all.end.max(gap.end);
                }
                apart
            });
            if owed.len() < MAX_OWED {
                owed.push(all);
            }
            assert!(owed.len() <= MAX_OWED, "chain: {} runs are owed", owed.len());
        }
    }

    /// What is owed and is here now, and to which member. `missing` gives the first run of a range that is
    /// not here.
    pub(crate) fn due(
        &mut self,
        sender: usize,
        missing: impl Fn(u64, u64) -> Option<(u64, u64)>,
    ) -> Vec<(usize, u64, u64)> {
        let mut due = Vec::new();
        let Disseminator::Chain(chain) = self else {
            return due;
        };
        let next = chain.next();
        let Some(owed) = chain.owed.get_mut(sender) else {
            return due;
        };
        let mut left = Vec::new();
        for gap in owed.drain(..) {
            let mut at = gap.first;
            while at < gap.end {
                let (first, end) = missing(at, gap.end).unwrap_or((gap.end, gap.end));
                if at < first {
                    due.push((next, at, first));
                }
                if first < end {
                    left.push(Gap { first, end });
                }
                at = end;
            }
        }
        left.truncate(MAX_OWED);
        *owed = left;
        due
    }
}

impl Chain {
    pub(crate) fn next(&self) -> usize {
        (self.me + 1) % self.members
    }

    fn before(&self) -> usize {
        (self.me + self.members - 1) % self.members
    }

    /// These messages go to the next member: they are not owed to it any more.
    fn passes(&mut self, sender: usize, first: u64, end: u64) {
        let Some(owed) = self.owed.get_mut(sender) else {
            return;
        };
        let rest = owed.iter().flat_map(|gap| {
            let before = Gap {
                first: gap.first,
                end: gap.end.min(first),
            };
            let behind = Gap {
                first: gap.first.max(end),
                end: gap.end,
            };
            [before, behind]
        });
        *owed = rest.filter(|gap| gap.first < gap.end).take(MAX_OWED).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(me: usize, members: usize) -> Disseminator {
        Disseminator::new(Dissemination::Chain, me, members)
    }

    #[test]
    fn a_frame_visits_every_member_once_and_ends_before_its_sender() {
        for members in 2..9 {
            for origin in 0..members {
                let mut at = chain(origin, members).first_hop().unwrap();
                let mut visited = vec![origin, at];
                while let Some(next) = chain(at, members).hand_on(origin, 1, 2) {
                    assert!(!visited.contains(&next), "{next} twice");
                    visited.push(next);
                    at = next;
                }
                assert_eq!(visited.len(), members);
            }
        }
        assert_eq!(
            Disseminator::new(Dissemination::Direct, 1, 4).hand_on(0, 1, 2),
            None
        );
    }

    #[test]
    fn what_is_owed_is_supplied_once_and_not_at_all_if_the_chain_brings_it() {
        let mut sender = chain(1, 4);
        let held = |held: u64| move |first: u64, end: u64| (held < end).then_some((first.max(held), end));
        sender.owe(3, 0, 5, 9);
        assert_eq!(
            sender.due(0, held(9)),
            [],
            "only the next member is owed anything"
        );
        sender.owe(2, 0, 5, 9);
        assert_eq!(sender.due(0, held(5)), []);
        assert_eq!(sender.due(0, held(7)), [(2, 5, 7)]);
        assert_eq!(sender.due(0, held(20)), [(2, 7, 9)]);
        assert_eq!(sender.due(0, held(20)), []);
        sender.owe(2, 0, 5, 9);
        assert_eq!(sender.hand_on(0, 5, 8), Some(2));
        assert_eq!(sender.due(0, held(20)), [(2, 8, 9)]);
        sender.owe(2, 7, 5, 9);
        assert_eq!(sender.due(7, held(20)), [], "a rank that the view does not have");
    }

    #[test]
    fn separate_gaps_are_owed_separately() {
        let mut sender = chain(1, 4);
        for (first, end) in [(5, 7), (20, 24), (7, 9), (22, 26)] {
            sender.owe(2, 0, first, end);
        }
        let only = |held: u64| move |first: u64, end: u64| (first < held).then_some((first, end.min(held)));
        assert_eq!(
            sender.due(0, only(22)),
            [(2, 22, 26)],
            "what is in between is not owed"
        );
        assert_eq!(sender.hand_on(0, 6, 8), Some(2));
        assert_eq!(sender.due(0, |_, _| None), [(2, 5, 6), (2, 8, 9), (2, 20, 22)]);
        for first in 0..1000 {
            sender.owe(2, 0, first * 2, first * 2 + 1);
        }
        assert_eq!(sender.due(0, |_, _| None).len(), MAX_OWED);
    }
}

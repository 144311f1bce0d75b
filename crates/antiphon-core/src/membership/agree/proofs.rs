//! Proofs of death: which of them are known, which members lack them, and what a view of rings is told of
//! them.
//!
//! A proof is kept for as long as the dead node is a member, and used in each slot until then. Of two proofs
//! of one death, the one that shows the later vote is kept. If its holder dies before it tells it, other
//! watchers of the dead node have their own.
//!
//! The holder tells it to the members that it hears when the proof comes. A member that was cut off or did
//! not run then needs it as well: that member may be the one to propose, and find no quorum where the others
//! count one and wait for it. In a wide view rumours are compared with every heartbeat. In a narrow one a
//! heartbeat that does not name the proof of a death shows that its sender lacks it ([`Proofs::lacking`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::{
    AcceptedValue, Ballot, Certificate, MembershipMessage, Rumour, SlotId, Suspicion, VoteState, Voted,
    VotedIn,
};
use antiphon_wire::{Evidence, Incarnation, NodeView};

use crate::Time;
use crate::membership::monitor::topology::Topology;
use crate::membership::view::check;

/// A member that lacks a proof is told it again after so many heartbeats, and never sooner.
const PROVES_AGAIN_AFTER: u32 = 4;
/// At most so many proofs are sent at a time: each may have two whole views.
const PROVES_AT_ONCE: usize = 16;

/// The proofs of death of members of the installed view.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    /// The last vote of each dead member.
    last_votes: BTreeMap<Incarnation, VoteState>,
    /// Members that were told again of deaths of which they had no proof, and when that was last.
    told_again: BTreeMap<Incarnation, Time>,
}

impl Proofs {
    /// Takes the proof of a member's death. False if a proof is known that shows as late a vote.
    pub(crate) fn take(&mut self, dead: Incarnation, vote: &VoteState) -> bool {
        let rank = |vote: &VoteState| (vote.view.id(), vote.promised);
        let known = self.last_votes.get(&dead);
        let news = known.is_none_or(|known| rank(known) < rank(vote));
        if news {
            self.last_votes.insert(dead, vote.clone());
        }
        news
    }

    /// A view is taken up, and only the proofs of its members are kept. Returns the others whose vote was
    /// given in another lineage: such a proof is of no use to the other members, so this node must not count
    /// on it.
    pub(crate) fn install(&mut self, view: &NodeView) -> Vec<Incarnation> {
        self.told_again.clear();
        let mut left = Vec::new();
        self.last_votes.retain(|dead, vote| {
            let is_of_this = vote.view.lineage() == view.lineage;
            if !is_of_this {
                left.push(*dead);
            }
            is_of_this && view.contains(*dead)
        });
        left
    }

    /// All proofs: each dead member, and its last vote.
    pub(crate) fn all(&self) -> &BTreeMap<Incarnation, VoteState> {
        &self.last_votes
    }

    /// The proofs to tell a member again, by what its heartbeat says of others, in a narrow view. The
    /// heartbeat may have been sent before the proof came to that member, so it is not told at once, and
    /// seldom again. `proven_since`: since when this node doubts a dead member.
    pub(crate) fn lacking(
        &mut self,
        now: Time,
        member: Incarnation,
        suspicions: &[Suspicion],
        heartbeat: Duration,
        proven_since: impl Fn(Incarnation) -> Option<Time>,
    ) -> Vec<MembershipMessage> {
        let pause = heartbeat * PROVES_AGAIN_AFTER;
        let is_old = |since: Time| now.since(since) >= pause;
        let told = self.told_again.get(&member);
        if told.is_some_and(|at| !is_old(*at)) || planted!(ProveOnce) {
            return Vec::new();
        }
        let knows = |dead: Incarnation| {
            let known = |said: &Suspicion| said.member == dead && said.evidence == Evidence::ProofOfDeath;
            dead == member || suspicions.iter().any(known)
        };
        let lacks: Vec<MembershipMessage> = self
            .last_votes
            .iter()
            .filter(|(dead, _)| !knows(**dead) && proven_since(**dead).is_some_and(is_old))
            .map(|(dead, vote)| certificate(*dead, vote))
            .take(PROVES_AT_ONCE)
            .collect();
        if !lacks.is_empty() {
            self.told_again.insert(member, now);
        }
        lacks
    }
}

/// The message that tells a proof.
pub(crate) fn certificate(dead: Incarnation, vote: &VoteState) -> MembershipMessage {
    let vote = vote.clone();
    MembershipMessage::Certificate(Box::new(Certificate { dead, vote }))
}

/// The slot in which a dead member voted last, the ballot in which it accepted there, and the view before
/// that slot, as far as a proof shows that here. It need not show what the member voted in an earlier slot
/// than the present one.
pub(crate) fn last_slot<'a>(
    view: &'a Arc<NodeView>,
    vote: &'a VoteState,
) -> (SlotId, Option<Ballot>, impl FnOnce() -> Arc<NodeView> + 'a) {
    let (voted_in, accepted) = match &vote.view {
        VotedIn::Named { id, .. } if *id < view.primary_id() => (view.primary_id(), None),
        of => (of.id(), vote.accepted.as_ref().map(|accepted| accepted.ballot)),
    };
    let slot = SlotId {
        lineage: view.lineage,
        next: check::next_id(voted_in),
    };
    let of = || match &vote.view {
        VotedIn::Whole(of) => Arc::new((**of).clone()),
        VotedIn::Named { .. } => view.clone(),
    };
    (slot, accepted, of)
}

/// Spreads a proof of death to all members of a wide view. Of a vote in an earlier view they need to know
/// only that there was one. A vote in a later view is told to nobody before that view is installed: the vote
/// without what was voted would be taken for none.
pub(crate) fn spread(
    now: Time,
    topology: &mut Topology,
    view: &NodeView,
    dead: Incarnation,
    vote: &VoteState,
) {
    let Some(gossip) = topology.gossip_mut() else {
        return;
    };
    let id = vote.view.id();
    let present = id == view.primary_id();
    if id > view.primary_id() {
        return;
    }
    let brief = |accepted: &AcceptedValue| {
        let value = check::voted(view, &accepted.value)?;
        let change = check::change_of(view, &value);
        Some(AcceptedValue {
            ballot: accepted.ballot,
            value: Voted::Change(Box::new(change)),
        })
    };
    let accepted = vote.accepted.as_ref().filter(|_| present).map(brief);
    // An accepted value that cannot be read must not pass for none.
    if accepted.as_ref().is_some_and(Option::is_none) {
        return;
    }
    let vote = VoteState {
        view: VotedIn::Named {
            lineage: view.lineage,
            id,
            change: None,
        },
        promised: vote.promised.filter(|_| present),
        accepted: accepted.flatten(),
    };
    let certificate = Box::new(Certificate { dead, vote });
    gossip.rumours.take(now, None, Rumour::Certificate(certificate));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::testing::view_of;

    const HEARTBEAT: Duration = Duration::from_millis(100);

    fn vote(view: &NodeView, promised: Option<u32>) -> VoteState {
        let proposer = view.members[0].incarnation;
        VoteState {
            view: VotedIn::Whole(Box::new(view.clone())),
            promised: promised.map(|round| Ballot { round, proposer }),
            accepted: None,
        }
    }

    #[test]
    fn of_two_proofs_the_one_that_shows_the_later_vote_is_kept() {
        let (view, mut proofs) = (view_of(3), Proofs::default());
        let dead = view.members[2].incarnation;
        assert!(proofs.take(dead, &vote(&view, Some(2))));
        assert!(!proofs.take(dead, &vote(&view, Some(2))));
        assert!(!proofs.take(dead, &vote(&view, None)));
        assert!(proofs.take(dead, &vote(&view, Some(3))));
        assert_eq!(proofs.all()[&dead], vote(&view, Some(3)));
    }

    #[test]
    fn a_view_keeps_the_proofs_of_its_members_in_its_lineage() {
        let (mut view, mut proofs) = (view_of(4), Proofs::default());
        let members: Vec<Incarnation> = view.members.iter().map(|member| member.incarnation).collect();
        let mut elsewhere = view.clone();
        elsewhere.lineage.0 += 1;
        proofs.take(members[1], &vote(&view, None));
        proofs.take(members[2], &vote(&elsewhere, None));
        proofs.take(members[3], &vote(&view, None));
        view.members.pop();
        assert_eq!(proofs.install(&view), [members[2]]);
        assert_eq!(proofs.all().keys().collect::<Vec<_>>(), [&members[1]]);
    }

    #[test]
    fn a_member_that_does_not_name_a_proof_for_long_is_told_it_again_and_seldom() {
        let (view, mut proofs) = (view_of(3), Proofs::default());
        let [_, member, dead] = [0, 1, 2].map(|rank: usize| view.members[rank].incarnation);
        proofs.take(dead, &vote(&view, None));
        let (start, long) = (Time::ZERO + HEARTBEAT, HEARTBEAT * PROVES_AGAIN_AFTER);
        let proven = |_| Some(start);
        let mut told = |now, said: &[Suspicion]| proofs.lacking(now, member, said, HEARTBEAT, proven).len();
        assert_eq!(told(start + long / 2, &[]), 0);
        let knows = Suspicion {
            member: dead,
            evidence: Evidence::ProofOfDeath,
            for_ms: 0,
        };
        assert_eq!(told(start + long, &[knows]), 0);
        assert_eq!(told(start + long, &[]), 1);
        assert_eq!(told(start + long * 3 / 2, &[]), 0);
        assert_eq!(told(start + long * 2, &[]), 1);
    }
}

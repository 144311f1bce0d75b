//! One leader of the coordinator engine, and what others answer to its ballots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::{Ballot, SlotMessage};
use antiphon_wire::{Cause, Departure, Incarnation, NodeView};

use super::super::testing::view_of;
use crate::membership::agree::interface::{EngineEffect, ProposedChange, Surroundings};
use crate::membership::agree::proposer::Proposer;
use crate::random::Random;
use crate::{Profile, Time};

struct Leader {
    now: Time,
    random: Random,
    view: NodeView,
    engine: Proposer,
    /// The one that watches a member, where not all do.
    observers: BTreeMap<usize, usize>,
    /// Until when each member may believe in the view.
    held_until: Option<Time>,
    /// The members that it does not answer.
    withheld: BTreeSet<Incarnation>,
}

impl Leader {
    /// The most senior of so many.
    fn of(count: usize) -> Self {
        let view = view_of(count);
        let me = view.members[0].incarnation;
        Self {
            now: Time::ZERO,
            random: Random::new([1, 2, 3, 4]),
            engine: Proposer::new(me, Arc::new(view.clone()), &Profile::lan()),
            view,
            observers: BTreeMap::new(),
            held_until: None,
            withheld: BTreeSet::new(),
        }
    }

    fn member(&self, rank: usize) -> Incarnation {
        self.view.members[rank].incarnation
    }

    fn with(&mut self, action: impl FnOnce(&mut Proposer, &mut Surroundings<'_>)) -> Vec<SlotMessage> {
        let all = self
            .view
            .members
            .iter()
            .map(|member| member.incarnation)
            .collect();
        let (view, observers, held) = (&self.view, &self.observers, self.held_until);
        let mut around = Surroundings {
            now: self.now,
            random: &mut self.random,
            objects: &|_| false,
            reachable: &all,
            suspects: &BTreeSet::new(),
            edge_down_since: &|_, _| None,
            observers: &|member| {
                let by = view.rank(member).and_then(|rank| observers.get(&rank));
                by.map(|by| view.members[*by].incarnation).into_iter().collect()
            },
            held: &|_| held,
            counts_dead_from: None,
            primary: true,
        };
        action(&mut self.engine, &mut around);
        let effects = std::iter::from_fn(|| self.engine.poll_effect());
        let said = effects.filter_map(|effect| match effect {
            EngineEffect::Broadcast { message, .. } | EngineEffect::Send { message, .. } => Some(message),
            EngineEffect::Withhold { from } => {
                self.withheld.extend(from);
                None
            }
            EngineEffect::Release { members } => {
                self.withheld.retain(|member| !members.contains(member));
                None
            }
            _ => None,
        });
        said.collect()
    }

    /// It wants for this long that these were removed, if anybody.
    fn wants(&mut self, ms: u64, ranks: &[usize]) -> Vec<SlotMessage> {
        let ranks: Vec<_> = ranks.iter().map(|rank| (*rank, Cause::Crashed)).collect();
        self.wants_for(ms, &ranks)
    }

    /// The same, for these causes.
    fn wants_for(&mut self, ms: u64, ranks: &[(usize, Cause)]) -> Vec<SlotMessage> {
        let asked_first: BTreeSet<_> = ranks.iter().map(|(rank, _)| self.member(*rank)).collect();
        self.pursues(ms, ranks, &asked_first)
    }

    /// It wants for this long that these were removed, and nobody may object.
    fn removes(&mut self, ms: u64, ranks: &[usize]) -> Vec<SlotMessage> {
        let ranks: Vec<_> = ranks.iter().map(|rank| (*rank, Cause::Crashed)).collect();
        self.pursues(ms, &ranks, &BTreeSet::new())
    }

    fn pursues(
        &mut self,
        ms: u64,
        ranks: &[(usize, Cause)],
        asked_first: &BTreeSet<Incarnation>,
    ) -> Vec<SlotMessage> {
        let remove = ranks.iter().map(|(rank, cause)| Departure {
            member: self.view.members[*rank].clone(),
            cause: cause.clone(),
            accusers: Vec::new(),
        });
        let wanted = (!ranks.is_empty()).then(|| ProposedChange {
            remove: remove.collect(),
            asked_first: asked_first.clone(),
            join: Vec::new(),
            renew: false,
            unfinished: false,
            wire_level: 1,
            number: 0,
            origins: BTreeMap::new(),
        });
        let mut said = Vec::new();
        for _ in 0..ms.div_ceil(10) {
            self.now = self.now + Duration::from_millis(10);
            let wanted = wanted.clone();
            said.extend(self.with(|engine, around| engine.pursue(around, wanted, |_| false)));
        }
        said
    }

    fn hears(&mut self, rank: usize, message: SlotMessage) -> Vec<SlotMessage> {
        let from = self.member(rank);
        self.with(|engine, around| engine.handle(around, from, message))
    }
}

fn prepared(said: &[SlotMessage]) -> Option<(Ballot, &[Incarnation])> {
    said.iter().find_map(|message| match message {
        SlotMessage::Prepare { ballot, removing, .. } => Some((*ballot, removing.as_slice())),
        _ => None,
    })
}

/// All who were asked about a partition have objected, or had nothing to say. Long after, somebody else is
/// not heard.
#[test]
fn that_nobody_objected_a_while_ago_does_not_count() {
    let mut leader = Leader::of(6);
    let said = leader.wants(100, &[1, 2, 3]);
    let (ballot, removing) = prepared(&said).expect("it asks");
    assert_eq!(removing.len(), 3);
    let promise = SlotMessage::Promise {
        ballot,
        accepted: None,
    };
    let objects = SlotMessage::Nack {
        ballot,
        promised: None,
        hears: vec![leader.member(1), leader.member(2), leader.member(3)],
    };
    leader.hears(1, objects);
    leader.hears(4, promise.clone());
    // With itself, the most senior, they are a quorum: the ballot is free, and nothing is left to propose.
    assert_eq!(leader.hears(5, promise), []);
    leader.wants(5_000, &[]);
    let said = leader.wants(100, &[3]);
    let (higher, removing) = prepared(&said).expect("it asks anew");
    assert!(higher > ballot);
    assert_eq!(removing, [leader.member(3)]);
}

#[test]
fn who_was_announced_a_moment_ago_is_removed_when_a_quorum_has_promised() {
    let mut leader = Leader::of(6);
    let said = leader.wants(100, &[3]);
    let (ballot, _) = prepared(&said).expect("it asks");
    let promise = SlotMessage::Promise {
        ballot,
        accepted: None,
    };
    leader.hears(4, promise.clone());
    let said = leader.hears(5, promise);
    let removes = |message: &SlotMessage| matches!(message, SlotMessage::Accept { value, .. } if value.departed.len() == 1);
    assert!(said.iter().any(removes), "{said:?}");
}

/// A quorum has promised, and the leader waits for the observer of one of the two that it does not hear.
#[test]
fn an_objection_after_a_quorum_has_promised_counts() {
    let mut leader = Leader::of(6);
    leader.observers.insert(3, 1);
    let said = leader.wants(100, &[2, 3]);
    let (ballot, _) = prepared(&said).expect("it asks");
    let promise = SlotMessage::Promise {
        ballot,
        accepted: None,
    };
    leader.hears(4, promise.clone());
    assert_eq!(leader.hears(5, promise), [], "the observer has not answered");
    let objects = SlotMessage::Nack {
        ballot,
        promised: None,
        hears: vec![leader.member(3)],
    };
    leader.hears(1, objects);
    let said = leader.wants(10, &[2, 3]);
    let removed = said.iter().find_map(|message| match message {
        SlotMessage::Accept { value, .. } => Some(value.departed.as_slice()),
        _ => None,
    });
    let removed = removed.expect("it need not wait any more");
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].member, leader.view.members[2]);
}

/// Of two that do not hear each other one goes when the other has answered: it may have stopped since, and
/// this leader be behind.
#[test]
fn one_of_a_pair_goes_when_the_other_one_has_answered() {
    let mut leader = Leader::of(6);
    let from = leader.member(1);
    let pair = [(2, Cause::Unreachable { from })];
    let said = leader.wants_for(100, &pair);
    let (ballot, removing) = prepared(&said).expect("it asks");
    assert_eq!(removing, [], "all may hear both: nobody is to object");
    let promise = SlotMessage::Promise {
        ballot,
        accepted: None,
    };
    for rank in 2..6 {
        assert_eq!(
            leader.hears(rank, promise.clone()),
            [],
            "the other one has not answered"
        );
    }
    leader.hears(1, promise);
    let said = leader.wants_for(10, &pair);
    let removes = |message: &SlotMessage| matches!(message, SlotMessage::Accept { value, .. } if value.departed.len() == 1);
    assert!(said.iter().any(removes), "{said:?}");
}

/// It is asked whether the other one of a pair lives. Then the leader does not hear it itself: others may
/// object to that.
#[test]
fn who_was_asked_about_as_one_of_a_pair_is_asked_about_anew_when_it_falls_silent() {
    let mut leader = Leader::of(6);
    let from = leader.member(1);
    let said = leader.wants_for(100, &[(2, Cause::Unreachable { from })]);
    let (ballot, _) = prepared(&said).expect("it asks");
    let promise = SlotMessage::Promise {
        ballot,
        accepted: None,
    };
    for rank in 3..6 {
        leader.hears(rank, promise.clone());
    }
    let said = leader.wants(2_000, &[2]);
    assert!(
        !said
            .iter()
            .any(|message| matches!(message, SlotMessage::Accept { .. })),
        "{said:?}"
    );
    let (_, removing) = prepared(&said).expect("it asks anew");
    assert_eq!(removing, [leader.member(2)]);
}

/// All members may believe in the view for a while yet, so no removal can be proposed.
#[test]
fn a_member_that_the_leader_wants_removed_no_more_gets_answers_again() {
    let mut leader = Leader::of(6);
    leader.held_until = Some(leader.now + Duration::from_secs(60));
    assert_eq!(leader.removes(100, &[2, 3]), []);
    assert_eq!(
        leader.withheld,
        BTreeSet::from([2, 3].map(|rank| leader.member(rank)))
    );
    leader.removes(100, &[3]);
    assert_eq!(leader.withheld, BTreeSet::from([leader.member(3)]));
    leader.removes(10, &[]);
    assert_eq!(leader.withheld, BTreeSet::new());
}

//! The slot's steps, one by one.

use super::*;

/// A view in these tests: the voters it makes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct View(Vec<u8>);

impl Value<u8> for View {
    fn voters(&self) -> Voters<u8> {
        Voters {
            members: self.0.iter().map(|id| (*id, 1)).collect(),
            senior_breaks_tie: true,
        }
    }
}

fn view(ids: &[u8]) -> View {
    View(ids.to_vec())
}

fn inc(id: u8) -> Incarnation {
    Incarnation(id.into())
}

fn slot(me: u8, members: &[u8]) -> Slot<u8, View> {
    Slot::new(me, view(members).voters(), Some(inc(members[0])))
}

fn ballot(round: u32, proposer: u8) -> Ballot {
    Ballot {
        round,
        proposer: inc(proposer),
    }
}

#[test]
fn half_of_the_weight_decides_only_with_its_most_senior_member() {
    let voters = view(&[1, 2, 3, 4]).voters();
    let none = BTreeSet::new();
    assert!(voters.is_quorum(&BTreeSet::from([1, 4]), &none));
    assert!(!voters.is_quorum(&BTreeSet::from([2, 3]), &none));
    assert!(voters.is_quorum(&BTreeSet::from([2, 3]), &BTreeSet::from([1])));
    assert!(voters.is_quorum(&BTreeSet::from([2]), &BTreeSet::from([1, 4])));
    assert!(!voters.is_quorum(&BTreeSet::from([3]), &BTreeSet::from([1, 4])));
    let weighted = Voters {
        members: vec![(1, 0), (2, 2), (3, 1), (4, 1)],
        senior_breaks_tie: true,
    };
    assert!(
        weighted.is_quorum(&BTreeSet::from([2]), &none),
        "a senior without weight breaks no tie"
    );
    assert!(!weighted.is_quorum(&BTreeSet::from([1, 3, 4]), &none));
}

#[test]
fn a_second_value_under_the_same_ballot_is_refused() {
    // R1: E prepares X (A, B accept), proposes X' under the same ballot, A would accept, E commits X' and
    // dies.
    let mut a = slot(2, &[1, 2, 3]);
    assert_eq!(a.on_accept(ballot(0, 1), view(&[1, 2]), &[]), Ok(()));
    assert!(a.on_accept(ballot(0, 1), view(&[1, 3]), &[]).is_err());
    let mut elder = slot(1, &[1, 2, 3]);
    assert!(matches!(elder.open(inc(1), view(&[1, 2])), Step::Accept { .. }));
    assert_eq!(elder.open(inc(1), view(&[1, 3])), Step::Wait);
    assert_eq!(elder.choose(view(&[1, 3])), Step::Wait);
}

/// R1: above the last round there is no other, so a proposer would use the last one for two values.
#[test]
fn a_member_that_names_the_last_round_there_is_leaves_the_others_a_higher_one() {
    let last = ballot(u32::MAX, 3);
    let mut b = slot(2, &[1, 2, 3]);
    assert_eq!(b.on_prepare(last, &[]), Err(None));
    assert_eq!(b.on_accept(last, view(&[1, 2]), &[]), Err(None));
    b.on_nack(Some(last));
    let dead = LastVote {
        promised: Some(last),
        accepted: None,
    };
    assert_eq!(b.certify(1, dead), Step::Wait);
    assert!(matches!(b.prepare(inc(2)), Step::Prepare { ballot, .. } if ballot == self::ballot(1, 2)));
}

#[test]
fn the_value_a_dead_elder_left_with_one_acceptor_is_proposed_unchanged() {
    let (mut b, mut c) = (slot(2, &[1, 2, 3]), slot(3, &[1, 2, 3]));
    c.on_accept(ballot(0, 1), view(&[1, 2, 3, 4]), &[]).unwrap();
    let Step::Prepare { ballot, used } = b.prepare(inc(2)) else {
        panic!()
    };
    let own = b.on_prepare(ballot, &used).unwrap();
    assert_eq!(b.on_promise(&2, ballot, own), Step::Wait);
    let theirs = c.on_prepare(ballot, &used).unwrap();
    let step = b.on_promise(&3, ballot, theirs);
    assert!(matches!(step, Step::Accept { value, .. } if value == view(&[1, 2, 3, 4])));
}

#[test]
fn an_acceptance_left_on_a_lifeline_is_an_answer_to_phase_one() {
    let mut b = slot(2, &[1, 2, 3]);
    let left = Acceptance {
        ballot: ballot(0, 1),
        value: view(&[1, 2, 3, 4]),
    };
    b.certify(
        1,
        LastVote {
            promised: Some(ballot(0, 1)),
            accepted: Some(left),
        },
    );
    let Step::Prepare { ballot, used } = b.prepare(inc(2)) else {
        panic!()
    };
    assert_eq!(used.len(), 1);
    let own = b.on_prepare(ballot, &used).unwrap();
    let step = b.on_promise(&2, ballot, own);
    assert!(
        matches!(step, Step::Accept { value, .. } if value == view(&[1, 2, 3, 4])),
        "half with the senior"
    );
}

#[test]
fn a_certificate_with_a_higher_promise_cannot_be_used() {
    // R2: the dead voter may have helped a higher ballot to a decision.
    let mut one = slot(1, &[1, 2, 3]);
    one.certify(
        2,
        LastVote {
            promised: Some(ballot(7, 3)),
            accepted: None,
        },
    );
    assert!(
        matches!(one.open(inc(1), view(&[1, 3])), Step::Wait),
        "round 0 is gone"
    );
    let Step::Prepare { ballot, .. } = one.prepare(inc(1)) else {
        panic!()
    };
    assert_eq!(ballot.round, 8);
    let mut acceptor = slot(3, &[1, 2, 3]);
    assert!(
        acceptor
            .on_prepare(
                Ballot {
                    round: 6,
                    proposer: inc(1)
                },
                &[(2, Some(ballot))]
            )
            .is_err()
    );
}

fn leaderless(me: u8, members: &[u8]) -> Slot<u8, View> {
    Slot::leaderless(me, view(members).voters())
}

#[test]
fn three_quarters_of_the_weight_decide_fast_and_the_senior_breaks_the_tie() {
    let fast = |members: &[u8], voted: &[u8]| {
        view(members)
            .voters()
            .is_fast_quorum(&voted.iter().copied().collect())
    };
    assert!(fast(&[1], &[1]) && !fast(&[1, 2], &[1]) && fast(&[1, 2], &[1, 2]));
    assert!(!fast(&[1, 2, 3], &[1, 2]) && fast(&[1, 2, 3], &[1, 2, 3]));
    assert!(fast(&[1, 2, 3, 4], &[1, 2, 3]), "with the senior");
    assert!(!fast(&[1, 2, 3, 4], &[2, 3, 4]), "without it");
    assert!(fast(&[1, 2, 3, 4, 5], &[2, 3, 4, 5]));
    assert!(!fast(&[1, 2, 3, 4, 5], &[1, 2, 3]));
    assert!(!fast(&[], &[]), "nobody decides nothing");
}

#[test]
fn a_promise_ends_the_fast_ballot_for_whoever_gave_it() {
    // The fast vote goes through the acceptor. Of five, one cast x and three cast y. A leader that has read
    // {x, nothing, y} may choose x; the late y of the second voter would be the fourth.
    let mut late = leaderless(2, &[1, 2, 3, 4, 5]);
    assert!(late.may_cast());
    assert_eq!(late.on_prepare(ballot(1, 1), &[]), Ok(None));
    assert!(!late.may_cast() && !late.cast(view(&[1, 2, 3, 4])));
    assert_eq!(late.vote().accepted, None);
}

#[test]
fn a_vote_that_is_told_twice_counts_once_and_a_second_one_not_at_all() {
    let mut slot = leaderless(1, &[1, 2, 3, 4, 5]);
    let (x, y) = (view(&[1, 2, 3, 4]), view(&[1, 2, 3]));
    for _ in 0..5 {
        assert_eq!(slot.on_cast(&2, &x), Step::Wait);
    }
    assert_eq!(slot.on_cast(&2, &y), Step::Wait);
    assert!(
        !slot.may_decide_fast(&y, &BTreeSet::from([1, 2, 3, 4])),
        "2 cast x"
    );
    for voter in [1, 3] {
        assert_eq!(slot.on_cast(&voter, &x), Step::Wait);
    }
    assert_eq!(slot.on_cast(&4, &x), Step::Decided { value: x });
}

#[test]
fn a_promise_that_is_told_twice_is_one_answer() {
    let mut slot = leaderless(1, &[1, 2, 3, 4, 5]);
    let Step::Prepare { ballot, used } = slot.prepare(inc(1)) else {
        panic!()
    };
    let own = slot.on_prepare(ballot, &used).unwrap();
    assert_eq!(slot.on_promise(&1, ballot, own), Step::Wait);
    for _ in 0..5 {
        assert_eq!(slot.on_promise(&2, ballot, None), Step::Wait);
    }
    assert_eq!(slot.on_promise(&3, ballot, None), Step::Choose);
}

#[test]
fn what_may_have_been_decided_fast_is_proposed_unchanged_and_nothing_else_binds() {
    let (x, y) = (view(&[1, 2, 3, 4]), view(&[1, 2, 3]));
    let cast = |value: &View| {
        Some(Acceptance {
            ballot: FAST,
            value: value.clone(),
        })
    };
    let conclude = |answers: [Option<Acceptance<View>>; 3]| {
        let mut slot = leaderless(1, &[1, 2, 3, 4, 5]);
        let Step::Prepare { ballot, .. } = slot.prepare(inc(1)) else {
            panic!()
        };
        let mut step = Step::Wait;
        for (voter, answer) in (1..=3).zip(answers) {
            step = slot.on_promise(&voter, ballot, answer);
        }
        step
    };
    // 4 and 5 are silent. Together with two of the answers they would be four of five, with one they are not.
    let forced = conclude([cast(&y), cast(&x), cast(&x)]);
    assert!(matches!(forced, Step::Accept { value, .. } if value == x));
    let forced = conclude([cast(&y), cast(&y), cast(&x)]);
    assert!(matches!(forced, Step::Accept { value, .. } if value == y));
    assert_eq!(conclude([cast(&x), None, None]), Step::Choose);
    assert_eq!(conclude([cast(&x), cast(&y), None]), Step::Choose);
}

#[test]
fn the_fast_vote_of_the_dead_is_an_answer() {
    let x = view(&[1, 2]);
    let mut slot = leaderless(1, &[1, 2, 3]);
    assert!(slot.cast(x.clone()));
    for dead in [2, 3] {
        let last = LastVote {
            promised: Some(FAST),
            accepted: Some(Acceptance {
                ballot: FAST,
                value: x.clone(),
            }),
        };
        slot.certify(dead, last);
    }
    let Step::Prepare { ballot, used } = slot.prepare(inc(1)) else {
        panic!()
    };
    let own = slot.on_prepare(ballot, &used).unwrap();
    let step = slot.on_promise(&1, ballot, own);
    assert!(
        matches!(step, Step::Accept { value, .. } if value == x),
        "all three cast it"
    );
}

#[test]
fn ten_joiners_that_vanish_cannot_be_admitted() {
    // R3: 3 members would become 3 of 13 and be stuck for ever.
    let mut elder = slot(1, &[1, 2, 3]);
    let Step::Accept { ballot, .. } = elder.open(inc(1), View((1..=13).collect())) else {
        panic!()
    };
    assert_eq!(elder.on_accepted(&1, ballot), Step::Wait);
    assert_eq!(elder.on_accepted(&2, ballot), Step::Wait);
    assert_eq!(elder.on_accepted(&3, ballot), Step::Wait);
    for joiner in 4..7 {
        assert_eq!(elder.on_accepted(&joiner, ballot), Step::Wait);
    }
    assert!(matches!(elder.on_accepted(&7, ballot), Step::Decided { .. }));
}

#[test]
fn who_is_bound_to_a_view_of_the_dead_can_decide_nothing() {
    // R1 and R3: 1 accepts a view without 3, and 1 and 2 die before anybody decides it.
    let mut last = slot(3, &[1, 2, 3]);
    let bound = Acceptance {
        ballot: ballot(0, 1),
        value: view(&[1, 2]),
    };
    let vote = LastVote {
        promised: Some(ballot(0, 1)),
        accepted: Some(bound),
    };
    last.certify(1, vote);
    assert!(!last.could_decide(&BTreeSet::from([3])), "2 is missing");
    last.certify(2, LastVote::default());
    assert!(last.could_decide(&BTreeSet::from([3])), "it has not looked");
    let Step::Prepare { ballot, used } = last.prepare(inc(3)) else {
        panic!("it prepares");
    };
    let promised = last.on_prepare(ballot, &used).unwrap();
    let Step::Accept { ballot, value, used } = last.on_promise(&3, ballot, promised) else {
        panic!("the last vote of 1 binds it");
    };
    assert_eq!(value, view(&[1, 2]));
    last.on_accept(ballot, value, &used).unwrap();
    assert_eq!(last.on_accepted(&3, ballot), Step::Wait);
    assert!(!last.could_decide(&BTreeSet::from([3])));
}

/// A view that counts how often it is copied and compared.
#[derive(Debug)]
struct Large(u16);

thread_local! {
    static HANDLED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

fn handled() {
    HANDLED.set(HANDLED.get() + 1);
}

impl Clone for Large {
    fn clone(&self) -> Self {
        handled();
        Large(self.0)
    }
}

impl PartialEq for Large {
    fn eq(&self, other: &Self) -> bool {
        handled();
        self.0 == other.0
    }
}

impl Value<u16> for Large {
    fn voters(&self) -> Voters<u16> {
        handled();
        Voters {
            members: (0..2000).map(|id| (id, 1)).collect(),
            senior_breaks_tie: true,
        }
    }
}

#[test]
fn two_thousand_promises_and_acceptances_are_weighed_as_few() {
    // Copied or compared for each voter, values of two thousand members each would keep the leader busy for
    // seconds.
    let mut slot: Slot<u16, Large> = Slot::leaderless(0, Large(0).voters());
    let Step::Prepare { ballot, .. } = slot.prepare(inc(1)) else {
        panic!()
    };
    let cast = |value| {
        let value = Large(value);
        Some(Acceptance { ballot: FAST, value })
    };
    HANDLED.set(0);
    let part = |from: u16, to: u16| (from..to).collect::<Vec<u16>>();
    assert_eq!(slot.on_promises(&part(0, 300), ballot, cast(1)), Step::Wait);
    assert_eq!(slot.on_promises(&part(300, 600), ballot, cast(2)), Step::Wait);
    assert_eq!(slot.on_promises(&part(600, 900), ballot, cast(3)), Step::Wait);
    for dead in 900..1000 {
        let last = LastVote {
            promised: Some(FAST),
            accepted: cast(2),
        };
        assert_eq!(slot.certify(dead, last), Step::Wait);
    }
    let step = slot.on_promises(&part(1000, 2000), ballot, cast(3));
    assert!(matches!(step, Step::Choose), "{step:?}");
    // One copy and at most three comparisons for each proof, and a few for each of the four answers.
    assert!(HANDLED.get() < 500, "{}", HANDLED.get());
    HANDLED.set(0);
    assert!(matches!(slot.choose(Large(3)), Step::Accept { .. }));
    let step = slot.on_accepteds(&part(0, 2000), ballot);
    assert!(matches!(step, Step::Decided { .. }), "{step:?}");
    assert!(HANDLED.get() < 10, "{}", HANDLED.get());
}

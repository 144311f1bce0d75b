use super::*;

const ME: Incarnation = Incarnation(1);
const PEER: Incarnation = Incarnation(2);

fn at(ms: u64) -> Time {
    Time::from_micros(ms * 1000)
}

fn detector() -> Detector {
    let mut detector = Detector::new(ME, &Profile::lan(), EngineKind::Coordinator);
    detector.watch(at(0), [ME, PEER].into_iter(), None);
    detector.awake(at(0));
    detector
}

fn run(detector: &mut Detector, from: u64, to: u64) {
    for ms in (from..=to).step_by(50) {
        detector.awake(at(ms));
        detector.tick(at(ms));
    }
}

#[test]
fn a_silent_member_is_suspected_and_forgiven_when_heard_again() {
    let mut detector = detector();
    run(&mut detector, 0, 1450);
    assert!(!detector.suspects(PEER));
    run(&mut detector, 1500, 1500);
    assert!(detector.suspects(PEER));
    assert!(detector.heard(at(1550), PEER));
    assert!(!detector.suspects(PEER));
}

#[test]
fn the_doubt_of_a_member_whose_channel_broke_outlives_its_heartbeats_and_other_doubts() {
    let mut detector = detector();
    assert!(detector.sever(at(50), PEER));
    assert!(!detector.sever(at(60), PEER), "no news");
    assert!(!detector.heard(at(100), PEER));
    assert!(detector.suspects(PEER));
    detector.accuse(at(100), PEER, Evidence::FlushStalled);
    let lapsed = at(100) + detector.stall_lapses;
    detector.heard(lapsed, PEER);
    detector.tick(lapsed);
    let doubt = detector.doubt(ME, PEER).map(|doubt| doubt.evidence.clone());
    assert_eq!(doubt, Some(Evidence::ConnectionLost));
    assert!(!detector.hears_well(lapsed, PEER));
}

#[test]
fn an_observer_that_was_paused_accuses_nobody() {
    let mut detector = detector();
    run(&mut detector, 0, 200);
    detector.awake(at(60_000));
    detector.tick(at(60_000));
    assert!(!detector.suspects(PEER));
    run(&mut detector, 60_050, 62_000);
    assert!(detector.suspects(PEER), "silence while awake still counts");
}

#[test]
fn whoever_paused_is_given_twice_that_and_not_for_ever() {
    let mut detector = detector();
    run(&mut detector, 0, 1_200);
    detector.heard(at(1_200), PEER);
    run(&mut detector, 1_250, 1_200 + 2_350);
    assert!(!detector.suspects(PEER));
    run(&mut detector, 3_600, 3_650);
    assert!(detector.suspects(PEER), "after 2.4 s");
    detector.heard(at(3_700), PEER);
    run(&mut detector, 3_750, 3_700 + 4_450);
    assert!(!detector.suspects(PEER), "4.5 s are the most");
    run(&mut detector, 8_200, 8_250);
    assert!(detector.suspects(PEER));
    for ms in (8_300..50_000).step_by(200) {
        detector.awake(at(ms));
        detector.heard(at(ms), PEER);
    }
    run(&mut detector, 49_900, 49_900 + 1_650);
    assert!(detector.suspects(PEER), "it was steady for half a minute");
}

#[test]
fn a_short_pause_does_not_renew_the_memory_of_a_long_one() {
    let mut detector = detector();
    run(&mut detector, 0, 4_000);
    detector.heard(at(4_000), PEER);
    // From then on 0.8 s now and then.
    for ms in (4_200..44_000).step_by(200) {
        detector.awake(at(ms));
        if ms % 5_000 >= 800 {
            detector.heard(at(ms), PEER);
        }
        detector.tick(at(ms));
    }
    run(&mut detector, 44_000, 43_800 + 2_050);
    assert!(detector.suspects(PEER), "twice what it did lately, not 4.5 s");
}

#[test]
fn whoever_is_silent_most_of_the_time_is_given_no_more_of_it() {
    let mut detector = detector();
    let (mut now, mut suspected) = (0, 0);
    for silence in [1_400, 2_700, 4_400, 4_400, 4_400, 4_400] {
        run(&mut detector, now + 50, now + silence - 50);
        suspected += u32::from(detector.suspects(PEER));
        now += silence;
        detector.heard(at(now), PEER);
    }
    assert_eq!(suspected, 1, "after half of thirty seconds");
}

#[test]
fn a_limit_that_is_waited_for_does_not_grow() {
    let mut detector = detector();
    let mut now = 0;
    for silence in [1_400, 2_700, 4_400, 4_400, 4_400] {
        run(&mut detector, now + 50, now + silence - 50);
        now += silence;
        detector.heard(at(now), PEER);
    }
    // It was silent for more than half of the time, and dies. While that is forgotten, what it paused for
    // would count again.
    let due = detector.next_deadline().unwrap();
    assert_eq!(due, at(now + 1_500));
    run(&mut detector, now + 50, now + 1_450);
    assert!(!detector.suspects(PEER));
    run(&mut detector, now + 1_500, now + 1_500);
    assert!(detector.suspects(PEER), "when it said that it would look");
}

#[test]
fn others_do_not_hurry_whoever_is_known_to_pause() {
    let mut detector = detector();
    run(&mut detector, 0, 1_400);
    detector.heard(at(1_400), PEER);
    detector.awake(at(1_400));
    assert!(
        !detector.reinforce(at(2_700), PEER),
        "it pauses that long at times"
    );
    assert!(detector.reinforce(at(2_800), PEER));
}

#[test]
fn a_coordinator_short_of_processor_still_sees_that_a_pair_is_broken_for_long() {
    let mut detector = detector();
    detector.watch(at(0), [ME, PEER, Incarnation(3)].into_iter(), None);
    let doubt = Suspicion {
        member: Incarnation(3),
        evidence: Evidence::Silent { for_ms: 1_500 },
        for_ms: 0,
    };
    detector.told(at(0), PEER, std::slice::from_ref(&doubt));
    // Once a second a timer is served 250 ms late.
    for ms in (100..=6_000).step_by(100) {
        if ms % 1_000 == 0 {
            detector.served(at(ms), at(ms - 250));
        } else if ms % 1_000 > 200 || ms % 1_000 == 100 {
            detector.awake(at(ms));
        }
        detector.told(at(ms), PEER, std::slice::from_ref(&doubt));
    }
    let (.., age) = detector.deaf_pairs()[0];
    assert!(at(6_000).since(age) >= Duration::from_secs(4), "{age:?}");
}

#[test]
fn a_cut_teaches_nothing() {
    let mut detector = detector();
    run(&mut detector, 0, 10_000);
    detector.heard(at(10_000), PEER);
    run(&mut detector, 10_050, 11_550);
    assert!(detector.suspects(PEER));
}

#[test]
fn an_observer_whose_timers_are_late_accuses_nobody_for_it() {
    let mut detector = detector();
    // It wakes every 350 ms for beats that were due 250 ms ago: most of its silence is its own.
    for beat in 1..=8 {
        let now = at(beat * 350);
        detector.served(now, at(beat * 350 - 250));
        detector.tick(now);
    }
    assert!(!detector.suspects(PEER));
    assert!(detector.take_starvation(at(2_800)).is_some());
    assert!(detector.take_starvation(at(2_800)).is_none());
}

#[test]
fn what_others_pass_on_is_life_and_makes_no_path_good() {
    let mut detector = Detector::new(ME, &Profile::lan(), EngineKind::Cut);
    detector.watch(at(0), [ME, PEER].into_iter(), None);
    // One heartbeat of five comes by itself, all of them through another member.
    for beat in 1..=40 {
        let now = at(beat * 200 + 50);
        detector.awake(now);
        detector.heard_through(now, PEER);
        if beat % 5 == 0 {
            detector.heard(now, PEER);
            detector.beat_came(PEER, beat, now);
        }
        detector.tick(now);
    }
    assert!(!detector.suspects(PEER));
    assert!(detector.edge_is_down(ME, PEER));
}

#[test]
fn a_lost_connection_shortens_the_wait() {
    let mut detector = detector();
    detector.trouble(at(100), PEER);
    run(&mut detector, 100, 550);
    assert!(!detector.suspects(PEER));
    run(&mut detector, 600, 600);
    assert_eq!(
        detector.doubt(ME, PEER).unwrap().evidence,
        Evidence::ConnectionLost
    );
}

#[test]
fn whoever_is_heard_through_another_is_not_hurried_by_a_path_that_refuses() {
    let mut detector = detector();
    for ms in (0..=1000).step_by(50) {
        if ms % 200 == 0 {
            detector.heard_through(at(ms), PEER);
        }
        detector.trouble(at(ms), PEER);
        detector.tick(at(ms));
        assert!(
            detector.hears_well(at(ms), PEER),
            "an acceptor objects to its removal"
        );
    }
    run(&mut detector, 1000, 2350);
    assert!(!detector.suspects(PEER));
    // Directly heard once more, its path is one that may break again.
    detector.heard(at(2400), PEER);
    detector.trouble(at(2400), PEER);
    run(&mut detector, 2400, 3000);
    assert!(detector.suspects(PEER));
}

#[test]
fn a_proven_death_is_never_withdrawn() {
    let mut detector = detector();
    assert!(detector.accuse(at(1), PEER, Evidence::ProofOfDeath));
    assert!(!detector.heard(at(2), PEER));
    assert!(detector.suspects(PEER));
}

#[test]
fn a_proof_that_counts_no_more_leaves_a_doubt_that_may_be_withdrawn() {
    let mut detector = detector();
    assert!(detector.accuse(at(10), PEER, Evidence::ProofOfDeath));
    detector.unprove(at(20), PEER);
    assert!(
        detector.suspects(PEER),
        "its connection ended, whoever may use its vote"
    );
    assert!(detector.heard(at(30), PEER));
    assert!(!detector.suspects(PEER));
    // Nothing was proven now.
    detector.unprove(at(40), PEER);
    assert!(!detector.suspects(PEER));
}

#[test]
fn an_opinion_formed_during_a_partition_makes_no_broken_pair_when_it_is_heard_after_the_heal() {
    let mut detector = detector();
    run(&mut detector, 0, 9_950);
    assert!(detector.suspects(PEER));
    detector.heard(at(10_000), PEER);
    let suspicion = Suspicion {
        member: ME,
        evidence: Evidence::Silent { for_ms: 9_900 },
        for_ms: 8_400,
    };
    detector.told(at(10_000), PEER, &[suspicion]);
    assert_eq!(detector.deaf_pairs(), [(PEER, ME, at(10_000))]);
}

#[test]
fn what_a_member_doubted_before_it_fell_silent_it_doubts_anew() {
    let third = Incarnation(3);
    let mut detector = detector();
    detector.watch(at(0), [ME, PEER, third].into_iter(), None);
    let doubt = Suspicion {
        member: third,
        evidence: Evidence::Silent { for_ms: 1_500 },
        for_ms: 0,
    };
    for ms in [0, 500, 1_000] {
        detector.heard(at(ms), PEER);
        detector.told(at(ms), PEER, std::slice::from_ref(&doubt));
    }
    assert_eq!(detector.deaf_pairs(), [(PEER, third, at(0))]);
    assert!(detector.hears(at(2_400), PEER) && !detector.hears(at(2_500), PEER));
    detector.heard(at(6_000), PEER);
    detector.told(at(6_000), PEER, &[doubt]);
    assert!(detector.hears(at(6_000), PEER));
    assert_eq!(detector.deaf_pairs(), [(PEER, third, at(6_000))]);
}

/// In a wide view others go on by what a member said last, even if it dies before it says anything again.
#[test]
fn what_a_member_said_before_a_silence_counts_where_others_know_it_too() {
    let third = Incarnation(3);
    let doubt = Suspicion {
        member: third,
        evidence: Evidence::ConnectionLost,
        for_ms: 0,
    };
    let wide = |subjects: &[Incarnation]| Some(subjects.iter().copied().collect());
    for (subjects, remembers) in [(None, false), (wide(&[PEER]), true), (wide(&[PEER, third]), true)] {
        let mut detector = detector();
        detector.watch(at(0), [ME, PEER, third].into_iter(), subjects.as_ref());
        detector.told(at(0), PEER, std::slice::from_ref(&doubt));
        run(&mut detector, 0, 1_500);
        assert!(detector.suspects(PEER));
        assert!(detector.heard(at(1_550), PEER));
        assert_eq!(detector.doubted_by(PEER).contains(&third), remembers);
    }
}

/// The same holds for a member that observes all others in it. A member that thinks nothing in the next view
/// says nothing there.
#[test]
fn what_a_member_thought_in_the_last_view_is_nothing_in_a_wide_one() {
    let third = Incarnation(3);
    let doubt = Suspicion {
        member: third,
        evidence: Evidence::ConnectionLost,
        for_ms: 0,
    };
    let subjects = [PEER, third].into();
    let mut detector = detector();
    for view in 0..3 {
        detector.watch(at(view), [ME, PEER, third].into_iter(), Some(&subjects));
        assert_eq!(detector.doubted_by(PEER), []);
        detector.told(at(view), PEER, std::slice::from_ref(&doubt));
        assert_eq!(detector.doubted_by(PEER), [third]);
    }
}

#[test]
fn an_accusation_not_repeated_is_withdrawn() {
    let mut detector = detector();
    detector.watch(at(0), [ME, PEER, Incarnation(3)].into_iter(), None);
    let suspicion = Suspicion {
        member: Incarnation(3),
        evidence: Evidence::ConnectionLost,
        for_ms: 10,
    };
    assert!(detector.told(at(100), PEER, &[suspicion]));
    assert_eq!(detector.accusers(at(100), Incarnation(3)).len(), 1);
    assert!(detector.told(at(200), PEER, &[]));
    assert!(detector.accusers(at(200), Incarnation(3)).is_empty());
}

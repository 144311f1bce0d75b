use antiphon_wire::record::{Directly, Path, Paths};
use antiphon_wire::{Incarnation, Member};

use super::*;

const ME: Incarnation = Incarnation(1);
const FAR: Incarnation = Incarnation(2);
const NEAR: Incarnation = Incarnation(3);
const OTHER: Incarnation = Incarnation(4);

fn at(ms: u64) -> Time {
    Time::from_micros(ms * 1000)
}

fn addr(member: Incarnation) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, member.0 as u8], 7400))
}

/// Node 1 of a cluster, whose heartbeats are 200 ms apart; the others say what they are made to.
struct Story {
    relay: Relay,
    now: u64,
    rounds: u64,
    /// The members that this node hears directly, and how many heartbeats these have not made.
    heard: Vec<Incarnation>,
    unmade: u64,
    /// Reports that reach it, by whatever way.
    says: BTreeMap<Incarnation, Vec<Path>>,
}

impl Story {
    fn of(others: &[Incarnation]) -> Self {
        let all: Vec<Member> = [ME].iter().chain(others).map(|id| member(*id)).collect();
        let mut relay = Relay::new(ME, &Profile::lan());
        relay.watch(at(0), &all);
        Self {
            relay,
            now: 0,
            rounds: 0,
            heard: others.to_vec(),
            unmade: 0,
            says: others.iter().map(|other| (*other, Vec::new())).collect(),
        }
    }

    fn run_ms(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            self.now += 50;
            if !self.now.is_multiple_of(200) {
                continue;
            }
            self.rounds += 1;
            for peer in &self.heard {
                self.relay.heard(at(self.now), *peer);
                self.relay.beat_came(*peer, self.rounds - self.unmade);
            }
            for (peer, paths) in &self.says {
                let paths = Paths {
                    round: self.rounds,
                    since: self.rounds,
                    paths: Some(paths.clone()),
                };
                self.relay.handle_paths(at(self.now), *peer, &paths);
            }
            self.relay.report(at(self.now));
        }
    }

    fn ways(&self, to: Incarnation) -> (Way, Way) {
        (
            self.relay.way(to, Class::Control),
            self.relay.way(to, Class::Bulk),
        )
    }

    fn events(&mut self) -> Vec<Option<Incarnation>> {
        std::iter::from_fn(|| self.relay.poll_change())
            .map(|path| path.sends_through)
            .collect()
    }
}

/// A member of a wide view and two others of its group, or of two of its groups, and a neighbour that is in
/// none of these.
fn in_groups(far: &[u32], near: &[u32]) -> Story {
    let mut story = Story::of(&[FAR, NEAR]);
    let groups = |of: &[u32]| of.iter().map(|group| GroupHandle(*group)).collect();
    let companions = [(FAR, far), (NEAR, near)].map(|(peer, of)| (peer, (addr(peer), groups(of))));
    story
        .relay
        .watch_companions(at(0), companions.into(), vec![OTHER]);
    story
}

#[test]
fn in_a_wide_view_members_of_the_same_group_pass_on_and_else_neighbours() {
    for (near, via) in [(1, NEAR), (2, OTHER)] {
        let mut story = in_groups(&[1], &[near]);
        story.run_ms(1000);
        assert_eq!(story.ways(FAR).1, Way::Direct);
        story.says.insert(FAR, vec![deaf_to(ME, None)]);
        story.run_ms(200);
        assert_eq!(story.ways(FAR), (Way::Through(via), Way::Through(via)));
        // It works.
        story.says.insert(FAR, vec![deaf_to(ME, Some(via))]);
        story.run_ms(3000);
        assert_eq!(story.ways(FAR).1, Way::Through(via));
        assert_eq!(story.events(), [Some(via)]);
        story.says.insert(FAR, Vec::new());
        story.run_ms(200);
        assert_eq!(story.ways(FAR).1, Way::Direct);
    }
}

#[test]
fn a_bystander_that_passes_on_nothing_is_left_for_the_next() {
    let mut story = Story::of(&[]);
    let far = [(FAR, (addr(FAR), BTreeSet::from([GroupHandle(1)])))];
    story.relay.watch_companions(at(0), far.into(), vec![NEAR, OTHER]);
    story.heard.push(FAR);
    story.says.insert(FAR, vec![deaf_to(ME, None)]);
    let mut asked = BTreeSet::new();
    for _ in 0..10 {
        story.run_ms(200);
        if let Way::Through(via) = story.ways(FAR).1 {
            asked.insert(via);
        }
    }
    assert_eq!(asked, [NEAR, OTHER].into());
}

fn member(incarnation: Incarnation) -> Member {
    Member {
        incarnation,
        name: format!("n{}", incarnation.0),
        addr: addr(incarnation),
        further: Vec::new(),
        metadata: BTreeMap::new(),
        weight: 1,
    }
}

fn deaf_to(member: Incarnation, through: Option<Incarnation>) -> Path {
    Path {
        member,
        hears: Directly::Never,
        heard: Directly::Steadily,
        through,
    }
}

#[test]
fn who_says_that_it_does_not_hear_this_node_is_sent_everything_through_one_that_hears_both() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    assert_eq!(story.ways(FAR), (Way::Direct, Way::Direct));
    story.says.insert(FAR, vec![deaf_to(ME, None)]);
    story.run_ms(200);
    assert_eq!(story.ways(FAR), (Way::Through(NEAR), Way::Through(NEAR)));
    assert_eq!(story.events(), [], "it may not work");
    story.says.insert(FAR, vec![deaf_to(ME, Some(NEAR))]);
    story.run_ms(200);
    assert_eq!(story.events(), [Some(NEAR)]);
    assert_eq!(story.relay.status(at(story.now)).len(), 1);
    // Heard again is not enough: it may be gone in a moment.
    let mut lately = deaf_to(ME, Some(NEAR));
    lately.hears = Directly::Lately;
    story.says.insert(FAR, vec![lately]);
    story.run_ms(200);
    assert_eq!(story.ways(FAR).1, Way::Through(NEAR));
    story.says.insert(FAR, Vec::new());
    story.run_ms(200);
    assert_eq!(story.ways(FAR), (Way::Direct, Way::Direct));
    assert_eq!(story.events(), [None]);
    assert_eq!(story.relay.status(at(story.now)), []);
}

#[test]
fn of_a_silent_member_nothing_is_known_so_control_goes_both_ways_and_messages_directly() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    story.heard = vec![NEAR];
    let said = story.says.remove(&FAR).unwrap();
    story.run_ms(1_000);
    assert_eq!(story.ways(FAR), (Way::Both(NEAR), Way::Direct));
    story.relay.report(at(story.now));
    let bad = story.relay.told.paths.as_ref().unwrap();
    assert_eq!((bad[0].member, bad[0].hears), (FAR, Directly::Never));
    // Through others it says that it hears this node well: only the other direction is cut.
    story.says.insert(FAR, said);
    story.run_ms(200);
    assert_eq!(story.ways(FAR), (Way::Direct, Way::Direct));
}

#[test]
fn a_relay_must_hear_both_and_be_heard_by_both() {
    let cases = [
        (deaf_to(FAR, None), "it does not hear the target"),
        (deaf_to(ME, None), "it does not hear this node"),
        (
            Path {
                hears: Directly::Steadily,
                heard: Directly::Never,
                ..deaf_to(FAR, None)
            },
            "the target does not hear it",
        ),
    ];
    for (path, why) in cases {
        let mut story = Story::of(&[FAR, NEAR]);
        story.says.insert(FAR, vec![deaf_to(ME, None)]);
        story.says.insert(NEAR, vec![path]);
        story.run_ms(400);
        assert_eq!(story.ways(FAR), (Way::Direct, Way::Direct), "{why}");
        story.says.insert(NEAR, Vec::new());
        story.run_ms(400);
        assert_eq!(story.ways(FAR).0, Way::Through(NEAR), "{why} no more");
        story.heard = vec![FAR];
        story.says.remove(&NEAR);
        story.run_ms(1_000);
        assert_eq!(story.ways(FAR).0, Way::Direct, "it is dead");
    }
}

#[test]
fn a_relay_that_passes_on_nothing_is_given_up_for_the_next() {
    let mut story = Story::of(&[FAR, NEAR, OTHER]);
    story.says.insert(FAR, vec![deaf_to(ME, None)]);
    story.run_ms(400);
    let Way::Through(first) = story.ways(FAR).1 else {
        panic!("no relay: {:?}", story.ways(FAR));
    };
    story.run_ms(200);
    assert_eq!(story.ways(FAR).1, Way::Through(first), "it is given time");
    story.run_ms(200);
    let second = if first == NEAR { OTHER } else { NEAR };
    assert_eq!(story.ways(FAR).1, Way::Through(second));
    story.says.insert(FAR, vec![deaf_to(ME, Some(second))]);
    story.run_ms(10_000);
    assert_eq!(story.ways(FAR).1, Way::Through(second), "what works is kept");
}

#[test]
fn a_path_that_failed_is_used_again_after_ten_heartbeats_and_later_if_it_fails_again() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    for beats in [10, 20, 40, 80, 80] {
        story.heard = vec![NEAR];
        story.run_ms(1_000);
        assert_eq!(story.relay.peers[&FAR].inbound.directly(), Directly::Never);
        story.heard = vec![NEAR, FAR];
        story.run_ms(200 * beats);
        assert_eq!(
            story.relay.peers[&FAR].inbound.directly(),
            Directly::Lately,
            "{beats}"
        );
        story.run_ms(200);
        assert_eq!(
            story.relay.peers[&FAR].inbound.directly(),
            Directly::Steadily,
            "{beats}"
        );
    }
}

#[test]
fn a_node_that_was_stopped_calls_nobody_silent_for_that() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    story.now += 60_000;
    story.relay.forgive(at(story.now), Duration::from_millis(59_800));
    let report = story.relay.report(at(story.now));
    assert_eq!(report.paths, Some(Vec::new()));
    assert_eq!(story.ways(FAR), (Way::Direct, Way::Direct));
}

#[test]
fn a_report_that_was_overtaken_is_void() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    let late = Paths {
        round: 2,
        since: 2,
        paths: Some(vec![deaf_to(ME, None)]),
    };
    story.relay.handle_paths(at(story.now), FAR, &late);
    assert_eq!(story.ways(FAR), (Way::Direct, Way::Direct));
}

#[test]
fn trouble_is_answered_at_once_by_word_through_another_and_however_often_it_comes_once() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    let now = at(story.now + 50);
    story.relay.trouble(now, addr(FAR));
    assert_eq!(story.ways(FAR), (Way::Both(NEAR), Way::Direct));
    assert_eq!(story.relay.take_news(now), [FAR]);
    for later in 1..40 {
        let now = now + Duration::from_millis(later);
        story.relay.trouble(now, addr(FAR));
        assert_eq!(story.relay.take_news(now), []);
    }
    story.run_ms(600);
    assert_eq!(
        story.ways(FAR).0,
        Way::Both(NEAR),
        "what it says may be of before"
    );
    story.run_ms(400);
    assert_eq!(story.ways(FAR), (Way::Direct, Way::Direct));
}

/// A connection that broke is made again at once, mostly; only the relay's later reports show it.
#[test]
fn a_relay_whose_connection_broke_is_left_for_another_but_is_better_than_none() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.says.insert(FAR, vec![deaf_to(ME, None)]);
    story.run_ms(400);
    assert_eq!(story.ways(FAR).0, Way::Through(NEAR));
    story.relay.trouble(at(story.now), addr(NEAR));
    assert_eq!(story.ways(FAR).0, Way::Through(NEAR), "there is nobody else");

    let mut story = Story::of(&[FAR, NEAR, OTHER]);
    story.says.insert(FAR, vec![deaf_to(ME, None)]);
    story.run_ms(400);
    let Way::Through(first) = story.ways(FAR).0 else {
        panic!("{:?}", story.ways(FAR));
    };
    let second = if first == NEAR { OTHER } else { NEAR };
    story.relay.trouble(at(story.now), addr(first));
    assert_eq!(story.ways(FAR).0, Way::Through(second));
}

#[test]
fn whoever_all_hear_since_lately_only_sends_to_all_directly() {
    let mut story = Story::of(&[FAR, NEAR, OTHER]);
    story.run_ms(1_000);
    let mut lately = deaf_to(ME, None);
    lately.hears = Directly::Lately;
    let all_say = |story: &mut Story, of_me: Path| {
        for said in story.says.values_mut() {
            *said = vec![of_me];
        }
        story.run_ms(200);
    };
    // It was stopped itself for a moment: no path is bad.
    all_say(&mut story, lately);
    for peer in [FAR, NEAR, OTHER] {
        assert_eq!(story.ways(peer), (Way::Direct, Way::Direct));
    }
    // One path comes and goes, the others are good.
    all_say(&mut story, lately);
    story.says.insert(NEAR, Vec::new());
    story.says.insert(FAR, vec![deaf_to(ME, None)]);
    story.run_ms(200);
    assert_eq!(story.ways(FAR).1, Way::Through(NEAR));
    lately.through = Some(NEAR);
    story.says.insert(FAR, vec![lately]);
    story.run_ms(200);
    assert_eq!(
        story.ways(FAR).1,
        Way::Through(NEAR),
        "it may be gone in a moment"
    );
    assert_eq!(story.events(), [Some(NEAR)]);
}

#[test]
fn a_relay_that_works_is_kept_over_a_pause_of_the_target_and_a_word_of_another() {
    let mut story = Story::of(&[FAR, NEAR, OTHER]);
    story.says.insert(FAR, vec![deaf_to(ME, None)]);
    story.run_ms(400);
    let Way::Through(relay) = story.ways(FAR).1 else {
        panic!("no relay: {:?}", story.ways(FAR));
    };
    let other = if relay == NEAR { OTHER } else { NEAR };
    story.says.insert(FAR, vec![deaf_to(ME, Some(relay))]);
    story.run_ms(2_000);
    story.says.remove(&FAR);
    story.run_ms(800);
    assert_eq!(story.ways(FAR).0, Way::Through(relay));
    // What another passed on comes last.
    story.says.insert(FAR, vec![deaf_to(ME, Some(other))]);
    story.run_ms(200);
    story.says.insert(FAR, vec![deaf_to(ME, Some(relay))]);
    story.run_ms(2_000);
    assert_eq!(story.ways(FAR).1, Way::Through(relay));
    assert_eq!(story.events(), [Some(relay)]);
}

#[test]
fn what_stays_bad_is_said_in_one_report_of_five_and_believed_in_all() {
    let mut teller = Story::of(&[FAR, NEAR, OTHER]);
    teller.run_ms(1_000);
    teller.heard = vec![NEAR, OTHER];
    let mut listener = Relay::new(NEAR, &Profile::lan());
    listener.watch(at(0), &[ME, FAR, NEAR, OTHER].map(member));
    let (mut full, mut bytes) = (0, 0);
    for beat in 0..60 {
        teller.run_ms(200);
        let report = teller.relay.report(at(teller.now));
        full += u32::from(report.paths.as_ref().is_some_and(|paths| !paths.is_empty()));
        bytes += antiphon_wire::codec::encode_to_vec(&report).len();
        // One report of seven is lost, also one that says all.
        if beat % 7 != 3 {
            listener.handle_paths(at(teller.now), ME, &report);
        }
        if beat > 20 {
            let said = listener.peers[&ME].report.path(FAR);
            assert_eq!(said.hears, Directly::Never);
            assert!(at(teller.now).since(listener.peers[&ME].report.at) <= Duration::from_millis(200));
        }
    }
    assert!((8..=16).contains(&full), "{full}");
    assert!(bytes < 60 * 12, "{bytes}");
    // A member that was told nothing yet is told at once.
    let more = [ME, FAR, NEAR, OTHER, Incarnation(5)].map(member);
    teller.relay.watch(at(teller.now), &more);
    teller.run_ms(200);
    assert!(teller.relay.report(at(teller.now)).paths.is_some());
}

#[test]
fn a_report_that_repeats_one_that_was_lost_says_nothing() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    let repeats = Paths {
        round: 100,
        since: 99,
        paths: None,
    };
    let before = story.relay.peers[&FAR].report.at;
    story.relay.handle_paths(at(story.now + 100), FAR, &repeats);
    assert_eq!(story.relay.peers[&FAR].report.at, before);
}

#[test]
fn pairs_spread_over_the_relays() {
    let relays: Vec<Incarnation> = (10..20).map(|id| Incarnation((id << 64) | (id * 7))).collect();
    let targets: Vec<Incarnation> = (100..200u128).map(|id| Incarnation(id << 70)).collect();
    let all: Vec<Incarnation> = relays.iter().chain(&targets).copied().collect();
    let mut story = Story::of(&all);
    for target in &targets {
        let others = targets.iter().filter(|other| *other != target);
        let deaf: Vec<Path> = others.map(|other| deaf_to(*other, None)).collect();
        let to_me = deaf.into_iter().chain([deaf_to(ME, None)]).collect();
        story.says.insert(*target, to_me);
    }
    story.run_ms(400);
    let mut used: BTreeMap<Incarnation, u32> = BTreeMap::new();
    for target in &targets {
        let Way::Through(via) = story.ways(*target).1 else {
            panic!("no relay to {target:?}");
        };
        *used.entry(via).or_default() += 1;
    }
    assert!(
        used.len() > 5 && used.values().all(|pairs| *pairs < 40),
        "{used:?}"
    );
    assert_eq!(spread(ME, FAR, NEAR), spread(FAR, ME, NEAR));
}

#[test]
fn the_path_of_a_member_that_was_late_is_used_at_once_and_one_that_lost_heartbeats_is_not() {
    let steady_after = |silent_ms: u64, unmade: u64| {
        let mut story = Story::of(&[FAR, NEAR]);
        story.run_ms(1_000);
        story.heard = vec![NEAR];
        story.run_ms(silent_ms);
        assert_eq!(story.relay.peers[&FAR].inbound.directly(), Directly::Never);
        story.heard = vec![NEAR, FAR];
        story.unmade = unmade;
        let since = story.now;
        while story.relay.peers[&FAR].inbound.directly() != Directly::Steadily {
            story.run_ms(200);
        }
        story.now - since
    };
    assert_eq!(steady_after(2_000, 10), 400, "it made none");
    assert_eq!(steady_after(2_000, 6), 400, "it made four of ten");
    assert_eq!(steady_after(2_000, 4), 2_200, "it made six");
    assert_eq!(steady_after(2_000, 0), 2_200, "all were lost");
}

#[test]
fn a_member_that_is_late_again_and_again_is_heard_steadily_as_soon_each_time() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    for _ in 0..10 {
        story.heard = vec![NEAR];
        story.run_ms(1_000);
        story.unmade += 5;
        story.heard = vec![NEAR, FAR];
        story.run_ms(400);
        assert_eq!(story.relay.peers[&FAR].inbound.directly(), Directly::Steadily);
    }
}

#[test]
fn of_many_that_are_silent_at_once_paths_are_dead_after_twice_the_time() {
    let dead_after = |many: usize| {
        let others: Vec<Incarnation> = (2..10).map(Incarnation).collect();
        let mut story = Story::of(&others);
        story.run_ms(1_000);
        story.heard = others[many..].to_vec();
        let since = story.now;
        while story.relay.peers[&FAR].inbound.directly() == Directly::Steadily {
            story.run_ms(200);
        }
        story.now - since
    };
    assert_eq!(dead_after(1), 800);
    assert_eq!(dead_after(2), 800);
    assert_eq!(dead_after(3), 1_400);
    assert_eq!(dead_after(8), 1_400);
    // What is dead already makes nothing slower.
    let others: Vec<Incarnation> = (2..10).map(Incarnation).collect();
    let mut story = Story::of(&others);
    story.run_ms(1_000);
    story.heard = others[4..].to_vec();
    story.run_ms(1_600);
    story.heard = others[5..].to_vec();
    story.run_ms(800);
    assert_eq!(story.relay.peers[&others[4]].inbound.directly(), Directly::Never);
}

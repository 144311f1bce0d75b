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
    /// Whom this node hears directly.
    heard: Vec<Incarnation>,
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
            says: others.iter().map(|other| (*other, Vec::new())).collect(),
        }
    }

    fn run_ms(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            self.now += 50;
            if !self.now.is_multiple_of(200) {
                self.relay.awake(at(self.now));
                continue;
            }
            self.rounds += 1;
            for peer in &self.heard {
                self.relay.heard(at(self.now), *peer);
            }
            for (peer, paths) in &self.says {
                let paths = Paths {
                    round: self.rounds,
                    paths: paths.clone(),
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
    let report = story.relay.report(at(story.now));
    assert_eq!(report.paths[0].member, FAR);
    assert_eq!(report.paths[0].hears, Directly::Never);
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
    story.run_ms(800);
    assert_eq!(story.ways(FAR).1, Way::Through(first), "it is given time");
    story.run_ms(400);
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
    let report = story.relay.report(at(story.now));
    assert_eq!(report.paths, []);
    assert_eq!(story.ways(FAR), (Way::Direct, Way::Direct));
}

#[test]
fn a_report_that_was_overtaken_is_void() {
    let mut story = Story::of(&[FAR, NEAR]);
    story.run_ms(1_000);
    let late = Paths {
        round: 2,
        paths: vec![deaf_to(ME, None)],
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

#[test]
fn pairs_spread_over_the_relays() {
    let relays: Vec<Incarnation> = (10..20).map(|id| Incarnation((id << 64) | (id * 7))).collect();
    let mut used: BTreeSet<Incarnation> = BTreeSet::new();
    for target in 100..200u128 {
        let best = relays
            .iter()
            .min_by_key(|relay| spread(ME, Incarnation(target << 70), **relay));
        used.extend(best);
    }
    assert!(used.len() > 5, "{used:?}");
    assert_eq!(spread(ME, FAR, NEAR), spread(FAR, ME, NEAR));
}

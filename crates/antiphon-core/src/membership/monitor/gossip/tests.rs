use antiphon_wire::Evidence;
use antiphon_wire::membership::Suspicion;

use super::*;

const STEP: Duration = Duration::from_millis(10);

fn who(id: usize) -> Incarnation {
    Incarnation(id as u128 + 1)
}

/// With these neighbours, all of them on the tree.
fn knowing(members: usize, neighbours: Vec<Incarnation>, now: Time) -> Rumours {
    let branches = neighbours.iter().copied().collect();
    Rumours::new(members, neighbours, &branches, STEP, now)
}

/// Members in a ring, each with two neighbours on both sides.
struct World {
    now: Time,
    nodes: Vec<Rumours>,
    /// Rumours that went from one neighbour to another.
    crossed: usize,
}

impl World {
    fn new(count: usize) -> Self {
        let neighbours = |at: usize| {
            [1, 2, count - 2, count - 1]
                .map(|step| who((at + step) % count))
                .to_vec()
        };
        let now = Time::from_micros(1);
        Self {
            now,
            nodes: (0..count).map(|at| knowing(count, neighbours(at), now)).collect(),
            crossed: 0,
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now = self.now + STEP;
            for at in 0..self.nodes.len() {
                for (to, rumours) in self.nodes[at].poll(self.now, false, &BTreeSet::new()) {
                    self.crossed += rumours.len();
                    let to = to.0 as usize - 1;
                    for rumour in rumours {
                        self.nodes[to].take(self.now, Some(who(at)), rumour);
                    }
                }
            }
        }
    }

    fn sums(&self) -> BTreeSet<u32> {
        self.nodes.iter().map(Rumours::sum).collect()
    }
}

fn vote(rank: usize) -> Rumour {
    let what = Ayes::Cast { value: ViewDigest(7) };
    let by = Ranks::of(rank).into_wire();
    Rumour::Tally { what, by }
}

fn opinion(of: usize, version: u32) -> Rumour {
    Rumour::Opinion {
        of: who(of),
        version,
        primary: true,
        leaving: version > 1,
        wire_level: 1,
        suspicions: Vec::new(),
    }
}

#[test]
fn a_hundred_votes_reach_all_in_few_messages() {
    let mut world = World::new(100);
    for rank in 0..100 {
        let now = world.now;
        world.nodes[rank].take(now, None, vote(rank));
    }
    world.run(60);
    assert_eq!(world.sums().len(), 1, "all know the same");
    // Each alone to each over four neighbours would be forty thousand.
    assert!(world.crossed < 12_000, "{}", world.crossed);
}

/// Members on a tree: above each but the first is the member of half its number.
fn on_a_tree(count: usize) -> World {
    let now = Time::from_micros(1_000_000);
    let near = |at: usize| {
        let above = at.checked_sub(1).map(|at| at / 2);
        let below = [2 * at + 1, 2 * at + 2];
        let below = below.into_iter().filter(|other| *other < count);
        above.into_iter().chain(below).map(who).collect()
    };
    World {
        now,
        nodes: (0..count).map(|at| knowing(count, near(at), now)).collect(),
        crossed: 0,
    }
}

impl World {
    /// All that is told without any time going by.
    fn at_once(&mut self) {
        for _ in 0..50 {
            self.now = self.now - STEP;
            self.run(1);
        }
    }
}

#[test]
fn where_all_vote_alike_votes_cross_each_edge_of_the_tree_once_and_wait_for_nothing() {
    let mut world = on_a_tree(60);
    // The eldest last: what came from below waits for it.
    for rank in (0..60).rev() {
        let now = world.now;
        world.nodes[rank].take(now, None, vote(rank));
        world.at_once();
    }
    assert_eq!(world.sums().len(), 1, "all know the same");
    assert_eq!(world.crossed, 2 * 59);
    let due: Vec<Time> = world.nodes.iter().filter_map(Rumours::next_deadline).collect();
    assert_eq!(due, [], "nothing is left to be told");
}

#[test]
fn votes_do_not_wait_for_whoever_votes_otherwise_or_not_at_all() {
    let mut world = on_a_tree(60);
    for rank in (0..60).filter(|rank| ![4, 40, 59].contains(rank)) {
        let now = world.now;
        world.nodes[rank].take(now, None, vote(rank));
    }
    let now = world.now;
    let what = Ayes::Cast { value: ViewDigest(8) };
    let by = Ranks::of(4).into_wire();
    world.nodes[4].take(now, None, Rumour::Tally { what, by });
    world.at_once();
    assert!(world.sums().len() > 1);
    world.run(30);
    assert_eq!(world.sums().len(), 1, "all know the same");
}

/// On a busy host, what comes over the tree comes late as well.
#[test]
fn a_member_of_a_busy_host_gives_the_tree_more_time() {
    let branches = BTreeSet::from([who(1)]);
    let mut rumours = Rumours::new(5, vec![who(1), who(2), who(3)], &branches, STEP, Time::ZERO);
    let none = BTreeSet::new();
    let begun = Time::ZERO + STEP * 100;
    rumours.take(begun, None, opinion(4, 1));
    rumours.poll(begun, false, &none);
    assert_eq!(rumours.next_deadline(), Some(begun + STEP * LATE_INTERVALS));
    rumours.lags(STEP * 3);
    let late = begun + STEP * 4 * LATE_INTERVALS;
    assert_eq!(rumours.next_deadline(), Some(late));
    assert_eq!(rumours.poll(late - STEP, false, &none), []);
    // Sums that differ are also told late.
    rumours.compare(late, who(2), 1, STEP);
    assert_eq!(rumours.poll(late, false, &none).len(), 2);
    rumours.take(late, None, opinion(3, 1));
    rumours.poll(late + STEP, false, &none);
    let rest = STEP * (1 + 3 * LATE_INTERVALS);
    rumours.compare(late + rest - STEP, who(2), 1, STEP);
    assert_eq!(rumours.poll(late + rest - STEP, false, &none), []);
    rumours.compare(late + rest, who(2), 1, STEP);
    assert_eq!(rumours.poll(late + rest, false, &none).len(), 1);
}

#[test]
fn neighbours_that_are_not_on_the_tree_are_told_late_what_they_do_not_have_then() {
    let branches = BTreeSet::from([who(1)]);
    let mut rumours = Rumours::new(5, vec![who(1), who(2), who(3)], &branches, STEP, Time::ZERO);
    let none = BTreeSet::new();
    let begun = Time::ZERO + STEP * 100;
    rumours.take(begun, None, opinion(4, 1));
    assert_eq!(rumours.poll(begun, false, &none), [(who(1), vec![opinion(4, 1)])]);
    let late = begun + STEP * LATE_INTERVALS;
    assert_eq!(rumours.next_deadline(), Some(late));
    rumours.take(begun + STEP, Some(who(2)), opinion(4, 1));
    assert_eq!(rumours.poll(late, false, &none), [(who(3), vec![opinion(4, 1)])]);
    assert_eq!(rumours.next_deadline(), None);
    // The lost member may be on the tree.
    rumours.take(late, None, opinion(2, 1));
    let mut suspects = opinion(3, 1);
    if let Rumour::Opinion { suspicions, .. } = &mut suspects {
        suspicions.push(Suspicion {
            member: who(0),
            evidence: Evidence::Lossy { lost_percent: 80 },
            for_ms: 1,
        });
    }
    rumours.take(late, None, suspects);
    let told = rumours.poll(late + STEP, false, &none);
    assert_eq!(
        told.iter().map(|(_, told)| told.len()).collect::<Vec<_>>(),
        [2, 2, 2]
    );
}

#[test]
fn votes_wait_for_more_of_them_and_a_proposal_for_nothing() {
    let mut rumours = knowing(100, vec![who(1), who(2)], Time::ZERO);
    let none = BTreeSet::new();
    let mut now = Time::ZERO + STEP * 100;
    let begun = now;
    let mut rank = 0;
    // They come in a stream that does not end, and none from the neighbours.
    while rumours.poll(now, false, &none).is_empty() {
        rumours.take(now, None, vote(rank));
        rank += 1;
        now = now + STEP / 4;
    }
    assert_eq!(now, begun + STEP * 2);
    rumours.take(now, None, vote(90));
    assert_eq!(rumours.next_deadline(), Some(now + STEP / 2));
    let ballot = Ballot {
        round: 1,
        proposer: who(0),
    };
    let (proofs, removing) = (Vec::new(), Vec::new());
    rumours.take(
        now,
        None,
        Rumour::Prepare {
            ballot,
            proofs,
            removing,
        },
    );
    let told = rumours.poll(now, false, &none);
    let told: Vec<usize> = told.iter().map(|(_, told)| told.len()).collect();
    assert_eq!(told, [1, 1], "and the vote goes on waiting");
    assert_eq!(rumours.next_deadline(), Some(now + STEP / 2));
}

#[test]
fn a_later_opinion_replaces_an_earlier_one_whichever_comes_first() {
    let mut rumours = knowing(5, vec![who(1)], Time::ZERO);
    assert!(rumours.take(Time::ZERO, None, opinion(3, 2)).is_some());
    assert!(rumours.take(Time::ZERO, None, opinion(3, 1)).is_none());
    assert!(rumours.take(Time::ZERO, None, opinion(3, 2)).is_none());
    let told = rumours.poll(Time::ZERO, true, &BTreeSet::new());
    assert_eq!(told, [(who(1), vec![opinion(3, 2)])]);
    assert!(rumours.take(Time::ZERO, None, opinion(3, 3)).is_some());
    assert_eq!(rumours.poll(Time::ZERO, true, &BTreeSet::new()).len(), 1);
}

#[test]
fn nothing_goes_back_to_where_it_came_from() {
    let mut rumours = knowing(5, vec![who(1), who(2)], Time::ZERO);
    rumours.take(Time::ZERO, Some(who(1)), opinion(3, 1));
    rumours.take(Time::ZERO, Some(who(1)), vote(3));
    let told: Vec<Incarnation> = rumours
        .poll(Time::ZERO, true, &BTreeSet::new())
        .into_iter()
        .map(|(to, _)| to)
        .collect();
    assert_eq!(told, [who(2)]);
}

#[test]
fn who_is_spoken_to_besides_is_told_everything_and_gives_its_place_to_the_next() {
    let mut rumours = knowing(5, vec![who(1)], Time::ZERO);
    let crowded = BTreeSet::new();
    rumours.take(Time::ZERO, None, opinion(3, 1));
    rumours.take(Time::ZERO, None, vote(3));
    assert_eq!(rumours.poll(Time::ZERO, true, &crowded).len(), 1);
    for other in [2, 4, 2] {
        rumours.bridge(Time::ZERO, &[who(other)]);
        let told = rumours.poll(Time::ZERO, true, &crowded);
        assert_eq!(told, [(who(other), vec![opinion(3, 1), vote(3)])]);
        rumours.bridge(Time::ZERO, &[who(other), who(1)]);
        assert!(rumours.poll(Time::ZERO, true, &crowded).is_empty());
    }
    assert_eq!(rumours.neighbours.len(), 2);
    rumours.take(Time::ZERO, Some(who(2)), opinion(0, 1));
    let told = rumours.poll(Time::ZERO, true, &crowded);
    assert_eq!(told, [(who(1), vec![opinion(0, 1)])], "2 has it");
    rumours.bridge(Time::ZERO, &[]);
    rumours.take(Time::ZERO, None, opinion(4, 1));
    // Nor does anything wait for it, whether it takes what it is told or not.
    let told = rumours.poll(Time::ZERO, true, &BTreeSet::from([who(2)]));
    assert_eq!(told, [(who(1), vec![opinion(4, 1)])]);
    assert_eq!(rumours.next_deadline(), None);
}

#[test]
fn neighbours_at_rest_that_know_different_things_tell_each_other_all() {
    let mut world = World::new(5);
    let now = world.now;
    // Member 4 was in another view when the rumour came.
    let mut lone = knowing(5, world.nodes[4].neighbours.clone(), now);
    world.nodes[0].take(now, None, opinion(2, 1));
    world.nodes[0].take(now, None, vote(2));
    world.run(5);
    std::mem::swap(&mut world.nodes[4], &mut lone);
    assert_eq!(world.sums().len(), 2);
    let (now, sum) = (world.now + STEP * 50, world.nodes[4].sum());
    world.now = now;
    world.nodes[0].compare(now, who(4), sum, STEP * 10);
    world.run(5);
    assert_eq!(world.sums().len(), 1);
}

#[test]
fn of_ballots_that_were_outbid_nothing_is_kept_whichever_is_heard_first() {
    let ballot = |round| Ballot {
        round,
        proposer: who(0),
    };
    let about = |round: u32| {
        let what = Ayes::Accepted {
            ballot: ballot(round),
        };
        let prepare = Rumour::Prepare {
            ballot: ballot(round),
            proofs: Vec::new(),
            removing: Vec::new(),
        };
        let by = Ranks::of(1).into_wire();
        [prepare, Rumour::Tally { what, by }]
    };
    let rounds = 1..=3 * MAX_BALLOTS as u32;
    let fresh = || knowing(5, vec![who(1)], Time::ZERO);
    let (mut rising, mut falling) = (fresh(), fresh());
    for rumour in rounds.clone().flat_map(about) {
        assert!(
            rising.take(Time::ZERO, None, rumour).is_some(),
            "the latest is always heard"
        );
    }
    for rumour in rounds.rev().flat_map(about) {
        falling.take(Time::ZERO, None, rumour);
    }
    assert_eq!(rising.sum(), falling.sum());
    for rumours in [rising, falling] {
        assert_eq!(rumours.singles.len(), MAX_BALLOTS);
        assert_eq!(rumours.tallies.len(), MAX_BALLOTS);
    }
}

#[test]
fn much_is_told_in_several_messages() {
    let mut rumours = knowing(200, vec![who(1)], Time::ZERO);
    for of in 0..100 {
        rumours.take(Time::ZERO, None, opinion(of, 1));
    }
    let told = rumours.poll(Time::ZERO, true, &BTreeSet::new());
    assert!(told.iter().all(|(_, rumours)| rumours.len() <= MAX_PARCEL));
    assert_eq!(told.iter().map(|(_, rumours)| rumours.len()).sum::<usize>(), 100);
}

/// Opinions of so many members, about 20 KB each.
fn know_much(rumours: &mut Rumours, members: usize) {
    for of in 0..members {
        let suspicion = |at| Suspicion {
            member: who(of + at),
            evidence: Evidence::Lossy { lost_percent: 80 },
            for_ms: 1,
        };
        let mut large = opinion(of, 1);
        if let Rumour::Opinion { suspicions, .. } = &mut large {
            *suspicions = (0..1000).map(suspicion).collect();
        }
        rumours.take(Time::ZERO, None, large);
    }
}

fn bytes_of(rumours: &[Rumour]) -> usize {
    rumours.iter().map(|rumour| encode_to_vec(rumour).len()).sum()
}

#[test]
fn what_is_large_is_told_in_messages_that_are_not_and_not_all_at_once() {
    let mut rumours = knowing(200, vec![who(1), who(2)], Time::ZERO);
    know_much(&mut rumours, 200);
    let mut told = [0, 0];
    for turn in 0..16 {
        let now = Time::ZERO + STEP * turn;
        let mut bytes = [0, 0];
        for (to, rumours) in rumours.poll(now, false, &BTreeSet::new()) {
            let at = usize::from(to == who(2));
            told[at] += rumours.len();
            bytes[at] += bytes_of(&rumours);
            assert!(bytes_of(&rumours) < MAX_PARCEL_BYTES * 2);
        }
        assert!(
            bytes[0].max(bytes[1]) < MAX_TOLD_BYTES * 2,
            "turn {turn}: {bytes:?}"
        );
    }
    assert_eq!(told, [200, 200]);
    assert_eq!(rumours.next_deadline(), None, "there is nothing left to tell");
}

#[test]
fn who_has_not_taken_what_it_was_told_is_told_what_is_decided_and_the_rest_later() {
    let mut rumours = knowing(200, vec![who(1), who(2)], Time::ZERO);
    know_much(&mut rumours, 4);
    let value = ViewDigest::of(b"a view");
    rumours.take(Time::ZERO, None, Rumour::Decided { value });
    let crowded = BTreeSet::from([who(1)]);
    let told = rumours.poll(Time::ZERO, true, &crowded);
    let to = |told: &[(Incarnation, Vec<Rumour>)], whom| {
        let parcels = told.iter().filter(|(to, _)| *to == whom);
        parcels.map(|(_, rumours)| rumours.len()).sum::<usize>()
    };
    assert_eq!((to(&told, who(1)), to(&told, who(2))), (1, 5));
    // Nor do the others wait for what comes now.
    let mut busy = rumours.clone();
    busy.take(Time::ZERO + STEP, None, opinion(9, 1));
    let told = busy.poll(Time::ZERO + STEP, false, &crowded);
    assert_eq!((to(&told, who(1)), to(&told, who(2))), (0, 1));
    let none = BTreeSet::new();
    assert!(rumours.poll(Time::ZERO + STEP, false, &none).is_empty());
    let later = rumours.poll(Time::ZERO + STEP * CROWDED_INTERVALS, false, &none);
    assert_eq!((to(&later, who(1)), to(&later, who(2))), (4, 0));
    assert_eq!(rumours.next_deadline(), None, "nobody lacks anything");
}

#[test]
fn ranks_beyond_the_view_are_not_taken() {
    // Also where the last byte of a set has room for more.
    for count in [8, 12] {
        let mut rumours = knowing(count, vec![who(1)], Time::ZERO);
        for beyond in count..count + 16 {
            assert!(rumours.take(Time::ZERO, Some(who(1)), vote(beyond)).is_none());
        }
        assert!(rumours.take(Time::ZERO, Some(who(1)), vote(count - 1)).is_some());
    }
}

use std::collections::BTreeMap;

use super::*;
use crate::membership::testing::view_of;

/// A lease, in intervals.
const LEASE: f64 = 4.5;
const HOP: Duration = Duration::from_millis(2);

/// Members of one view that have nothing but the pulse.
struct World {
    now: Time,
    members: Vec<Option<Rounds>>,
    /// On the way: when it comes, from which member, to which member.
    sent: BTreeMap<(Time, usize), (usize, usize, Pulse)>,
    count: usize,
    /// What members answer by, when they last gained anything.
    since: Vec<Option<Time>>,
    /// Members whose frames are all lost; edges on which all are lost; and how many of a hundred are lost
    /// that are for these members.
    silent: BTreeSet<usize>,
    cut: BTreeSet<(usize, usize)>,
    deaf: BTreeMap<usize, u64>,
    /// Members of a site far away: what goes to them or comes from them takes so much longer, but not among
    /// them.
    far: BTreeMap<usize, Duration>,
    random: crate::random::Random,
    /// Members whose answers do not count, since they have no lease of their own.
    unleased: BTreeSet<usize>,
    ticks: usize,
}

impl World {
    fn new(members: usize, rings: usize) -> Self {
        let view = view_of(members);
        let rings = Rings::new(&view, rings);
        let config = Config::new("test", "n", std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        let interval = config.profile.usual_lease().as_secs_f64() / LEASE;
        let now = Time::ZERO + Duration::from_secs(1);
        let of = |member: &antiphon_wire::Member| {
            let before = Inherited::default();
            Rounds::of(&config, member.incarnation, now, &view, (&rings, true), &before)
        };
        let rounds: Vec<Option<Rounds>> = view.members.iter().map(of).collect();
        let is_of_the_lease = |rounds: &Rounds| (rounds.interval.as_secs_f64() - interval).abs() < 1e-6;
        assert!(
            rounds
                .iter()
                .all(|rounds| rounds.as_ref().is_some_and(is_of_the_lease))
        );
        Self {
            now,
            members: rounds,
            sent: BTreeMap::new(),
            count: 0,
            since: vec![None; members],
            silent: BTreeSet::new(),
            cut: BTreeSet::new(),
            deaf: BTreeMap::new(),
            far: BTreeMap::new(),
            random: crate::random::Random::new([members as u64, rings.observers(0).len() as u64, 3, 4]),
            unleased: BTreeSet::new(),
            ticks: 0,
        }
    }

    fn interval(&self) -> Duration {
        self.members
            .iter()
            .flatten()
            .next()
            .map_or(Duration::ZERO, |rounds| rounds.interval)
    }

    fn hear(&mut self, at: usize, from: Option<usize>, tick: Tick) {
        let answers = !self.unleased.contains(&at);
        let Some(rounds) = &mut self.members[at] else {
            return;
        };
        if let Heard::New(Some(since)) = rounds.take(self.now, from, tick, answers) {
            self.since[at] = self.since[at].max(Some(since));
        }
    }

    /// How old the answer is by which the member may believe, in intervals.
    fn age(&self, at: usize) -> Option<f64> {
        let since = self.since[at]?;
        Some(self.now.since(since).as_secs_f64() / self.interval().as_secs_f64())
    }

    fn step(&mut self) {
        while let Some((&key, _)) = self.sent.first_key_value()
            && key.0 <= self.now
            && let Some((from, to, pulse)) = self.sent.remove(&key)
        {
            let lost = self
                .deaf
                .get(&to)
                .is_some_and(|percent| self.random.below(100) < *percent);
            if lost
                || self.silent.contains(&from)
                || self.silent.contains(&to)
                || self.cut.contains(&(from, to))
            {
                continue;
            }
            let members = self.members.len();
            match pulse {
                Pulse::Tick { .. } => {
                    let tick = Tick::from_wire(pulse, members).unwrap();
                    self.ticks += 1;
                    self.hear(to, Some(from), tick);
                }
                Pulse::Echo {
                    maker,
                    number,
                    who,
                    edge,
                    ..
                } => {
                    let who = Ranks::unpack(who, members).unwrap();
                    if let Some(rounds) = &mut self.members[to] {
                        rounds.echo(self.now, from, (usize::from(maker), number), &who, edge);
                    }
                }
            }
        }
        let quorum = self.members.len() / 2 + 1;
        for at in 0..self.members.len() {
            let makes = !self.silent.contains(&at) && !self.unleased.contains(&at);
            let Some(rounds) = &mut self.members[at] else {
                continue;
            };
            rounds.pass_on(self.now);
            if makes && rounds.makes_at(at) <= self.now {
                let length = Duration::from_secs(1);
                let tick = rounds.make(self.now, length, &Ranks::default(), |who| who.len() >= quorum);
                self.hear(at, None, tick);
            }
            let Some(rounds) = &mut self.members[at] else {
                continue;
            };
            rounds.graft(self.now);
            for (to, pulse) in std::mem::take(&mut rounds.outbox) {
                self.count += 1;
                let (one, other) = (self.far.get(&at), self.far.get(&to));
                let further = [one, other]
                    .into_iter()
                    .flatten()
                    .max()
                    .filter(|_| one.is_none() || other.is_none());
                let way = HOP + further.copied().unwrap_or_default();
                self.sent.insert((self.now + way, self.count), (at, to, pulse));
            }
        }
    }

    fn run(&mut self, intervals: f64) {
        let end = self.now + self.interval().mul_f64(intervals);
        while self.now < end {
            self.step();
            self.now = self.now + Duration::from_millis(1);
        }
    }

    /// Runs, and returns how old the oldest answer was that any of these still believed by, in intervals.
    fn oldest(&mut self, intervals: u32, of: impl Fn(usize) -> bool) -> f64 {
        let mut oldest: f64 = 0.0;
        for _ in 0..intervals * 10 {
            self.run(0.1);
            let ages = (0..self.members.len()).filter(|at| of(*at));
            for at in ages {
                oldest = oldest.max(self.age(at).unwrap_or(f64::INFINITY));
            }
        }
        oldest
    }
}

#[test]
fn at_rest_all_are_renewed_and_each_hears_one_tick_an_interval() {
    for (members, rings) in [(6, 3), (13, 10), (60, 3), (200, 10)] {
        let mut world = World::new(members, rings);
        world.run(1.0);
        assert!(
            world.since.iter().all(Option::is_some),
            "at once, all of {members}"
        );
        world.run(3.0);
        let (ticks, frames) = (world.ticks, world.count);
        let oldest = world.oldest(10, |_| true);
        assert!(oldest < 3.5, "{oldest} intervals, of {members}");
        let per_member = (world.ticks - ticks) as f64 / members as f64 / 10.0;
        assert!(per_member < 1.11, "{per_member} ticks, of {members}");
        let frames = (world.count - frames) as f64 / members as f64 / 10.0;
        assert!(frames < 2.2, "{frames} frames, of {members}");
    }
}

#[test]
fn whoever_passes_ticks_on_and_falls_silent_is_gone_around() {
    for (members, rings) in [(9, 3), (40, 3), (120, 10)] {
        for gone in 1..6 {
            let mut world = World::new(members, rings);
            world.run(5.0);
            world.silent.insert(gone);
            let oldest = world.oldest(20, |at| at != gone);
            assert!(oldest < LEASE, "{oldest} intervals, of {members} without {gone}");
            assert!(
                world.age(gone).is_none_or(|age| age > 15.0),
                "nobody hears {gone}"
            );
            world.silent.clear();
            world.run(12.0);
            let oldest = world.oldest(6, |_| true);
            assert!(oldest < 3.5, "{oldest} intervals, of {members} with {gone} again");
        }
    }
}

#[test]
fn another_one_makes_ticks_where_the_first_does_not() {
    for (members, rings) in [(9, 3), (40, 3), (120, 10)] {
        for gone in [1, 2, 3] {
            let mut world = World::new(members, rings);
            world.run(5.0);
            world.silent.extend(0..gone);
            let oldest = world.oldest(20, |at| at >= gone);
            // If the next maker is silent as well, the members do without for a moment.
            let bound = if gone == 1 { LEASE } else { LEASE * 1.5 };
            assert!(oldest < bound, "{oldest} intervals, of {members} without {gone}");
            let makers = world
                .members
                .iter()
                .flatten()
                .filter(|rounds| rounds.making.is_some());
            let makers = makers.count();
            assert!(makers <= gone + 3, "{makers} makers, of {members} without {gone}");
        }
    }
}

#[test]
fn a_first_member_without_a_lease_leaves_it_to_the_next() {
    let mut world = World::new(30, 3);
    world.unleased.extend([0, 7]);
    world.run(8.0);
    let oldest = world.oldest(10, |at| at != 0 && at != 7);
    assert!(oldest < 3.5, "{oldest} intervals");
    assert_eq!((world.since[0], world.since[7]), (None, None));
}

#[test]
fn a_minority_is_not_renewed_and_makes_few_ticks() {
    let mut world = World::new(60, 3);
    world.run(5.0);
    world.silent.extend(0..31);
    world.run(8.0);
    let before: Vec<Option<Time>> = world.since[31..].to_vec();
    let ticks = world.ticks;
    world.run(40.0);
    assert_eq!(world.since[31..], before);
    let per_member = (world.ticks - ticks) as f64 / 29.0 / 40.0;
    assert!(per_member < 8.0, "{per_member} ticks an interval");
}

#[test]
fn who_was_stopped_believes_by_nothing_that_it_answers_late() {
    let mut world = World::new(13, 10);
    world.run(5.0);
    // All that comes waits, as it does for a process that is stopped.
    let stopped = 9;
    let kept = world.members[stopped].take();
    let mut late = Vec::new();
    for _ in 0..4 {
        world.run(1.0);
        let known = &world.members[0].as_ref().unwrap().makers[&0];
        late.push(known.tick.clone());
    }
    world.members[stopped] = kept;
    world.members[stopped].as_mut().unwrap().missed();
    let before = world.since[stopped];
    let went_on = world.now;
    for tick in late {
        world.hear(stopped, Some(0), tick);
    }
    assert_eq!(world.since[stopped], before);
    world.run(8.0);
    assert!(world.since[stopped] >= Some(went_on));
}

#[test]
fn a_tick_is_answered_by_each_once_and_counts_for_its_own_maker() {
    let mut world = World::new(13, 10);
    let tick = |maker, number, renewed: bool| Tick {
        maker,
        number,
        length: Duration::from_secs(1),
        fresh: Ranks::all(13),
        renewed: renewed.then(|| Ranks::all(13)),
    };
    let start = world.now;
    let rounds = world.members[12].as_mut().unwrap();
    assert_eq!(
        rounds.take(start, Some(1), tick(0, 1, false), true),
        Heard::New(None)
    );
    assert_eq!(
        rounds.take(start + HOP, Some(2), tick(0, 1, false), true),
        Heard::Known
    );
    // A tick of another maker: its third, and this member answered nothing to its first.
    let other = rounds.take(start + HOP * 2, Some(2), tick(1, 3, true), true);
    assert_eq!(other, Heard::New(None));
    // One is missed, and the next says all that matters.
    let third = rounds.take(start + HOP * 3, Some(1), tick(0, 3, true), true);
    assert_eq!(third, Heard::New(Some(start)));
    // A tick is about the answer but one before. It renews nothing if that answer was not given.
    let fifth = rounds.take(start + HOP * 4, Some(1), tick(0, 4, true), true);
    assert_eq!(fifth, Heard::New(None));
    for maker in 2..12 {
        rounds.take(start, Some(2), tick(maker, u32::MAX, true), true);
    }
    assert!(rounds.makers.len() <= MAX_MAKERS);
}

#[test]
fn an_edge_that_works_one_way_takes_nobodys_lease() {
    for (members, rings) in [(13, 3), (60, 3), (100, 10)] {
        let tree: Vec<(usize, usize)> = {
            let world = World::new(members, rings);
            let edges = |at: usize| {
                world.members[at]
                    .iter()
                    .flat_map(move |rounds| rounds.tree.iter().map(move |to| (at, *to)))
            };
            (0..members).flat_map(edges).step_by(members / 6).collect()
        };
        for edge in tree {
            let mut world = World::new(members, rings);
            world.run(5.0);
            world.cut.insert(edge);
            world.run(10.0);
            let oldest = world.oldest(10, |_| true);
            assert!(
                oldest < LEASE,
                "{oldest} intervals, of {members} without {edge:?}"
            );
        }
    }
}

#[test]
fn first_members_that_hear_little_are_replaced_in_the_end() {
    for (deaf, percent) in [(1, 80), (2, 95), (3, 80), (3, 95)] {
        let mut world = World::new(60, 10);
        world.run(5.0);
        world.deaf.extend((0..deaf).map(|at| (at, percent)));
        world.run(10.0);
        let oldest = world.oldest(20, |at| at >= deaf);
        assert!(
            oldest < 20.0,
            "{oldest} intervals, {deaf} of which {percent} % are lost"
        );
    }
}

/// A member that is too far from the others to count for them makes ticks that renew nobody, and is heard all
/// the same.
#[test]
fn first_members_that_are_far_away_take_nobodys_lease() {
    for (members, far, percent) in [
        (13, 1, 55),
        (30, 1, 55),
        (100, 1, 70),
        (13, 3, 55),
        (30, 3, 55),
        (30, 6, 60),
        (100, 10, 60),
    ] {
        let mut world = World::new(members, 10);
        let further = world.interval() * percent / 100;
        world.far.extend((0..far).map(|at| (at, further)));
        world.run(30.0);
        let frames = world.count;
        let oldest = world.oldest(40, |at| at >= far);
        let frames = (world.count - frames) as f64 / members as f64 / 40.0;
        assert!(
            oldest < LEASE,
            "{oldest} intervals, of {members} without {far}, {percent} % of one away"
        );
        assert!(
            frames < 6.0 + 4.0 * far as f64,
            "{frames} frames an interval, of {members} without {far}"
        );
    }
}

#[test]
fn a_first_member_whose_answers_take_most_of_an_interval_renews_all() {
    for percent in [20, 35, 45] {
        let mut world = World::new(30, 10);
        let further = world.interval() * percent / 100;
        world.far.insert(0, further);
        world.run(20.0);
        let oldest = world.oldest(20, |_| true);
        assert!(oldest < LEASE, "{oldest} intervals, {percent} % of one away");
    }
}

#[test]
fn a_site_of_all_first_members_that_falls_silent_leaves_no_storm() {
    for (members, gone) in [(100, 16), (200, 32)] {
        let mut world = World::new(members, 10);
        world.run(5.0);
        let frames = world.count;
        world.silent.extend(0..gone);
        world.run(20.0);
        let oldest = world.oldest(2, |at| at >= gone);
        assert!(oldest < 3.5, "{oldest} intervals, of {members}");
        let frames = (world.count - frames) as f64 / members as f64 / 20.0;
        assert!(frames < 30.0, "{frames} frames an interval, of {members}");
    }
}

//! Two nodes, their links, and nothing else.

use super::*;

const ROUND: Duration = Duration::from_millis(200);

fn addr(node: u8, link: u8) -> SocketAddr {
    SocketAddr::from(([10, link, 0, node], 7400))
}

/// Two nodes that speak to each other, with links that may be cut one way.
struct Pair {
    now: Time,
    nodes: [Routes; 2],
    links: [u8; 2],
    /// Towards node 0 and towards node 1: the links that are cut.
    cut: [Vec<u8>; 2],
    /// What node 0 told: when, which link is used, and the cause.
    told: Vec<(Time, usize, LinkCause)>,
    moved: Vec<DialId>,
}

impl Pair {
    fn new(links: [u8; 2]) -> Self {
        let now = Time::ZERO;
        let nodes = [0, 1].map(|node: usize| {
            let mut routes = Routes::new(links[node].into(), ROUND, now);
            let other = 1 - node as u8;
            let further: Vec<SocketAddr> = (1..links[other as usize]).map(|link| addr(other, link)).collect();
            routes.note(now, addr(other, 0), &further);
            routes.connect(now, Incarnation(other.into()), addr(other, 0));
            routes
        });
        Self {
            now,
            nodes,
            links,
            cut: [Vec::new(), Vec::new()],
            told: Vec::new(),
            moved: Vec::new(),
        }
    }

    fn run(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.now = self.now + ROUND;
            for node in [0, 1] {
                self.nodes[node].handle_timeout(self.now);
            }
            for from in [0, 1] {
                let to = 1 - from;
                while let Some((at, beat)) = self.nodes[from].poll_beat() {
                    assert_eq!(at, addr(to as u8, beat.link), "the number names the address");
                    assert!(beat.link < self.links[to]);
                    if !self.cut[to].contains(&beat.link) {
                        self.nodes[to].handle_beat(Incarnation(from as u128), &beat);
                    }
                }
            }
            self.listen();
            while self.nodes[1].poll_change().is_some() {}
        }
    }

    fn listen(&mut self) {
        while let Some(change) = self.nodes[0].poll_change() {
            self.told.push((self.now, change.links.in_use, change.cause));
            self.moved.extend(change.lifelines);
        }
    }

    fn used(&self, node: usize) -> SocketAddr {
        self.nodes[node].to(addr(1 - node as u8, 0))
    }
}

#[test]
fn a_link_that_goes_silent_is_left_within_a_second_and_used_again_two_seconds_after_it_returns() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    assert_eq!(pair.used(0), addr(1, 0));
    pair.cut = [vec![0], vec![0]];
    pair.run(5);
    assert_eq!(pair.used(0), addr(1, 1));
    assert_eq!(pair.used(1), addr(0, 1));
    pair.cut = [Vec::new(), Vec::new()];
    pair.run(9);
    assert_eq!(pair.used(0), addr(1, 1), "not at once");
    pair.run(3);
    assert_eq!(pair.used(0), addr(1, 0));
    let causes: Vec<LinkCause> = pair.told.iter().map(|(_, _, cause)| *cause).collect();
    assert_eq!(causes, [LinkCause::Works, LinkCause::Silent, LinkCause::Works]);
}

#[test]
fn a_link_that_is_cut_one_way_is_left_that_way_alone() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    pair.cut[1] = vec![0];
    pair.run(5);
    assert_eq!(pair.used(0), addr(1, 1));
    assert_eq!(pair.used(1), addr(0, 0));
}

#[test]
fn nodes_with_different_numbers_of_addresses_use_what_there_is() {
    let mut pair = Pair::new([1, 3]);
    pair.run(20);
    pair.cut[1] = vec![0, 1];
    pair.run(6);
    assert_eq!(pair.used(0), addr(1, 2));
    assert_eq!(pair.used(1), addr(0, 0));
    assert_eq!(pair.nodes[0].status()[0].in_use, 2);
    assert!(
        pair.nodes[1].status().is_empty(),
        "a peer with one link has no choice"
    );
}

#[test]
fn a_link_that_flaps_is_used_again_later_each_time() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    let mut waits = Vec::new();
    for _ in 0..4 {
        pair.cut[1] = vec![0];
        while pair.used(0) == addr(1, 0) {
            pair.run(1);
        }
        pair.cut[1].clear();
        let healed = pair.now;
        while pair.used(0) != addr(1, 0) {
            pair.run(1);
        }
        waits.push(pair.now.since(healed));
    }
    assert!(waits.windows(2).all(|two| two[0] < two[1]), "{waits:?}");
    assert!(waits[3] <= ROUND * 85, "{waits:?}");
}

#[test]
fn silence_of_the_peer_on_all_links_changes_nothing() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    pair.told.clear();
    pair.cut = [vec![0, 1], vec![0, 1]];
    pair.run(100);
    assert_eq!(pair.told, []);
    pair.cut = [Vec::new(), Vec::new()];
    pair.run(20);
    assert_eq!(pair.told, []);
}

#[test]
fn one_round_that_shows_one_link_before_the_other_is_no_failure() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    pair.told.clear();
    // After a pause of the peer, what it reads first is what its other link brought.
    pair.cut[0] = vec![0, 1];
    pair.run(50);
    pair.cut[0].clear();
    pair.nodes[0].handle_beat(
        Incarnation(1),
        &Beat {
            to: Incarnation(0),
            link: 1,
            round: 1000,
            heard: vec![20, 70],
        },
    );
    pair.run(10);
    assert_eq!(pair.told, []);
}

#[test]
fn trouble_moves_traffic_at_once_and_reaches_the_detector_only_from_the_last_link() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    pair.told.clear();
    let now = pair.now;
    let routes = &mut pair.nodes[0];
    assert_eq!(routes.dial(DialId(1), addr(1, 0)), addr(1, 0));
    assert_eq!(routes.trouble(now, addr(1, 0), PathTrouble::Lost), None);
    assert_eq!(routes.to(addr(1, 0)), addr(1, 1));
    let first = routes.trouble(now, addr(1, 1), PathTrouble::Refused);
    assert_eq!(first, Some(addr(1, 0)), "by its first address");
    let stranger = addr(9, 9);
    assert_eq!(routes.trouble(now, stranger, PathTrouble::Lost), Some(stranger));
    pair.listen();
    assert_eq!(pair.moved, [DialId(1)], "a lifeline leaves the link that failed");
    // The cable is fine; a process that died is another story.
    pair.run(12);
    assert_eq!(pair.used(0), addr(1, 0));
}

#[test]
fn a_new_process_begins_with_its_first_link() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    pair.cut[1] = vec![0];
    pair.run(5);
    assert_eq!(pair.used(0), addr(1, 1));
    pair.nodes[0].disconnect(pair.now, Incarnation(1));
    pair.nodes[0].connect(pair.now, Incarnation(7), addr(1, 0));
    assert_eq!(pair.used(0), addr(1, 0));
    // Beats of the one before say nothing any more.
    let late = Beat {
        to: Incarnation(0),
        link: 0,
        round: 5000,
        heard: vec![1, 1],
    };
    pair.nodes[0].handle_beat(Incarnation(1), &late);
    assert_eq!(pair.nodes[0].nodes[&addr(1, 0)].heard, Vec::<u64>::new());
}

#[test]
fn of_two_processes_at_an_address_the_one_that_stays_keeps_the_route() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    // A process that was removed is heard of after the one that took its place.
    pair.nodes[0].connect(pair.now, Incarnation(7), addr(1, 0));
    pair.run(20);
    pair.nodes[0].disconnect(pair.now, Incarnation(7));
    pair.run(20);
    pair.cut[1] = vec![0];
    pair.run(5);
    assert_eq!(pair.used(0), addr(1, 1));
    pair.cut[1].clear();
    pair.run(100);
    assert_eq!(pair.used(0), addr(1, 0));
}

#[test]
fn a_process_started_at_a_members_address_by_mistake_does_not_take_away_the_members_links() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    pair.cut[1] = vec![0];
    pair.run(5);
    let (now, first) = (pair.now, addr(1, 0));
    pair.nodes[0].told(now, Incarnation(9), first, &[]);
    assert_eq!(pair.used(0), addr(1, 1));
    pair.run(20);
    assert_eq!(pair.used(0), addr(1, 1));
    // It takes the member's place after all: what a view says of it holds, and so does its own word.
    let routes = &mut pair.nodes[0];
    routes.note(now, first, &[addr(1, 3)]);
    routes.connect(now, Incarnation(9), first);
    routes.disconnect(now, Incarnation(1));
    assert_eq!(routes.everywhere(first), [first, addr(1, 3)]);
    routes.told(now, Incarnation(9), first, &[addr(1, 2)]);
    assert_eq!(routes.everywhere(first), [first, addr(1, 2)]);
    // And anybody's word, while nobody is spoken to there.
    routes.disconnect(now, Incarnation(9));
    routes.told(now, Incarnation(10), first, &[]);
    assert_eq!(routes.everywhere(first), [first]);
}

#[test]
fn what_was_not_sent_cannot_be_acknowledged() {
    let mut pair = Pair::new([2, 2]);
    pair.cut = [vec![0, 1], vec![0, 1]];
    pair.run(3);
    let lie = Beat {
        to: Incarnation(0),
        link: 200,
        round: 1,
        heard: vec![0, 9999],
    };
    pair.nodes[0].handle_beat(Incarnation(1), &lie);
    let lie = Beat { link: 0, ..lie };
    pair.nodes[0].handle_beat(Incarnation(1), &lie);
    pair.run(3);
    assert_eq!(pair.used(0), addr(1, 0));
    assert_eq!(pair.nodes[0].nodes[&addr(1, 0)].links[1].acked, 0);
}

#[test]
fn no_more_nodes_are_remembered_than_can_be_spoken_to_and_none_with_impossible_addresses() {
    let mut routes = Routes::new(1, ROUND, Time::ZERO);
    let one = |number: u32| SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 1));
    for number in 0..10_000 {
        routes.note(Time::ZERO, one(number), &[addr(0, 9)]);
    }
    assert_eq!(routes.nodes.len(), MAX_NODES);
    let mut routes = Routes::new(1, ROUND, Time::ZERO);
    let many: Vec<SocketAddr> = (1..9).map(|link| addr(0, link)).collect();
    routes.note(Time::ZERO, addr(0, 0), &many);
    routes.note(Time::ZERO, addr(0, 0), &[addr(0, 0)]);
    routes.note(Time::ZERO, addr(0, 0), &[]);
    assert_eq!(routes.nodes.len(), 0);
    assert_eq!(
        routes.next_timeout(),
        None,
        "neither has a second address: no cost"
    );
}

#[test]
fn what_failed_is_not_forgotten_while_another_process_at_that_address_is_spoken_to() {
    let mut pair = Pair::new([2, 2]);
    pair.run(20);
    let (old, new) = (Incarnation(1), Incarnation(9));
    pair.nodes[0].trouble(pair.now, addr(1, 1), PathTrouble::Lost);
    assert!(!pair.nodes[0].status()[0].links[1].up);
    // It joins, say, while the one before it is not removed yet, and this node speaks to both in turns.
    for _ in 0..3 {
        pair.nodes[0].connect(pair.now, new, addr(1, 0));
        assert!(pair.nodes[0].status()[0].links[0].up);
        pair.nodes[0].disconnect(pair.now, new);
        assert_eq!(pair.nodes[0].status()[0].peer, old);
    }
    pair.listen();
    pair.told.clear();
    pair.run(9);
    assert_eq!(pair.told, [], "ten rounds before it is used again");
    pair.run(2);
    assert!(pair.nodes[0].status()[0].links[1].up);
    assert_eq!(pair.used(0), addr(1, 0));
}

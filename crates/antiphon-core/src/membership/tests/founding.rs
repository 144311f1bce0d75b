//! One node that would found a cluster, and what others say to it, word by word.

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_wire::membership::{
    AcceptedValue, Ballot, Discovery, KnownNode, MembershipMessage, NodeRecord, SlotMessage, Standing, Voted,
};
use antiphon_wire::{Incarnation, Lineage, ViewId};

use super::net::{addr, config};
use crate::membership::context::member_of;
use crate::membership::seek::founding::digest_of;
use crate::membership::testing::view;
use crate::membership::{Effect, Membership};
use crate::random::Random;
use crate::{Config, Event, Hints, PathTrouble, Profile, Sources, Time};

/// Where the locator is.
const LOCATOR: usize = 20;

struct One {
    now: Time,
    config: Arc<Config>,
    membership: Membership,
    said: Vec<Effect>,
}

/// The first of some nodes of which so many are expected, told of the next ones and of a locator.
fn expecting(expect: u16, hints: &[usize], locator: bool) -> One {
    let mut config = config(0, 0);
    config.discovers = true;
    config.expect = Some(expect);
    let mut one = One::of(config);
    let nodes = hints.iter().map(|node| addr(*node)).collect();
    let locators = locator.then(|| addr(LOCATOR)).into_iter().collect();
    one.hint(nodes, locators, Sources::None);
    one
}

fn record(node: usize) -> NodeRecord {
    let config = config(node, 0);
    NodeRecord {
        name: config.name,
        addr: config.addr,
        further: Vec::new(),
        metadata: Default::default(),
        weight: 1,
        wire_level: 1,
        engine: 0,
        policy: 0,
    }
}

impl One {
    fn of(config: Config) -> Self {
        let (config, now) = (Arc::new(config), Time::ZERO);
        Self {
            now,
            membership: Membership::new(config.clone(), Random::new([1, 2, 3, 4]), now),
            config,
            said: Vec::new(),
        }
    }

    fn hint(&mut self, nodes: Vec<SocketAddr>, locators: Vec<SocketAddr>, sources: Sources) {
        let hints = Hints {
            nodes,
            locators,
            sources,
        };
        self.membership.set_hints(self.now, hints);
        self.drain();
    }

    /// Another node without a view speaks.
    fn seek(&mut self, node: NodeRecord, incarnation: u128) {
        let seek = Discovery::Seek {
            node,
            seeds: digest_of(&self.config),
            expect: self.config.expect.unwrap_or(0),
            founder: true,
            standing: None,
            others: Vec::new(),
            reply: true,
        };
        self.discover(incarnation, seek);
    }

    fn discover(&mut self, sender: u128, message: Discovery) {
        let from = addr(99);
        self.membership
            .handle_discovery(self.now, from, Incarnation(sender), message);
        self.drain();
    }

    fn known(&mut self, up_ms: u32, nodes: Vec<KnownNode>) {
        let known = Discovery::Known {
            addr: addr(LOCATOR),
            up_ms,
            nodes,
        };
        self.discover(7, known);
    }

    fn say(&mut self, sender: u128, message: SlotMessage) {
        let seeds = digest_of(&self.config);
        let message = MembershipMessage::Founding { seeds, message };
        self.membership
            .handle_message(self.now, Incarnation(sender), message);
        self.drain();
    }

    /// Lets time pass, in which others go on seeking.
    fn run_ms(&mut self, ms: u64, others: &[(usize, u128)]) {
        for _ in 0..ms.div_ceil(20) {
            self.now = self.now + std::time::Duration::from_millis(20);
            for (node, incarnation) in others {
                self.seek(record(*node), *incarnation);
            }
            self.membership.handle_timeout(self.now);
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(effect) = self.membership.poll_effect() {
            self.said.push(effect);
        }
    }

    /// What it said of a founding since the last call.
    fn of_founding(&mut self) -> Vec<(u128, SlotMessage)> {
        let said = std::mem::take(&mut self.said).into_iter();
        said.filter_map(|effect| match effect {
            Effect::Send {
                to,
                message: MembershipMessage::Founding { message, .. },
            } => Some((to.0, message)),
            _ => None,
        })
        .collect()
    }

    /// The ballot of its next question to others that go on seeking.
    fn asks_for_promises(&mut self, others: &[(usize, u128)]) -> Ballot {
        let ballot = (0..500).find_map(|_| {
            self.run_ms(20, others);
            self.prepares()
        });
        ballot.expect("enough are there")
    }

    fn prepares(&mut self) -> Option<Ballot> {
        self.of_founding()
            .into_iter()
            .find_map(|(_, message)| match message {
                SlotMessage::Prepare { ballot, .. } => Some(ballot),
                _ => None,
            })
    }
}

fn prepare() -> SlotMessage {
    SlotMessage::Prepare {
        ballot: Ballot {
            round: 1,
            proposer: Incarnation(10),
        },
        proofs: Vec::new(),
        removing: Vec::new(),
    }
}

fn promise(ballot: Ballot) -> SlotMessage {
    SlotMessage::Promise {
        ballot,
        accepted: None,
    }
}

fn standing() -> Standing {
    Standing {
        lineage: Lineage(5),
        view: ViewId { epoch: 1, counter: 2 },
        number: 7,
        weight: 1,
        primary: true,
        engine: 0,
        policy: 0,
        overrides: None,
    }
}

fn member(node: usize, age_s: u32) -> KnownNode {
    KnownNode {
        addr: addr(node),
        member: true,
        age_s,
    }
}

#[test]
fn a_promise_does_not_outlive_the_restart_of_who_gave_it() {
    let mut one = expecting(3, &[1, 2], false);
    one.run_ms(100, &[(1, 10), (2, 12)]);
    let ballot = one.prepares().expect("all are there");
    one.say(10, promise(ballot));
    // The first of the two is started again, and has forgotten.
    one.seek(record(1), 11);
    one.say(12, promise(ballot));
    let said = one.of_founding();
    assert!(
        !said
            .iter()
            .any(|(_, message)| matches!(message, SlotMessage::Accept { .. })),
        "{said:?}"
    );
    one.run_ms(1_000, &[(1, 11), (2, 12)]);
    assert!(one.prepares().expect("it tries anew") > ballot);
}

#[test]
fn a_promise_is_not_kept_for_whoever_comes_later() {
    let mut one = expecting(2, &[1], false);
    one.run_ms(100, &[(1, 10)]);
    let ballot = one.prepares().expect("both are there");
    // On a slow path, when the other was not heard for long.
    one.run_ms(1_500, &[]);
    one.of_founding();
    one.say(10, promise(ballot));
    one.seek(record(1), 11);
    one.run_ms(100, &[(1, 11)]);
    let said = one.of_founding();
    assert!(
        said.iter()
            .all(|(_, message)| matches!(message, SlotMessage::Prepare { .. })),
        "{said:?}"
    );
}

#[test]
fn seeds_that_were_not_heard_for_a_moment_are_not_left_out_of_a_founding() {
    let mut one = One::of(config(0, 3));
    let ballot = one.asks_for_promises(&[(1, 10), (2, 11)]);
    // It is stopped, and then reads the promise before anything else.
    one.now = one.now + std::time::Duration::from_secs(1);
    one.membership.handle_timeout(one.now);
    one.drain();
    one.of_founding();
    one.say(10, promise(ballot));
    one.run_ms(100, &[]);
    let asks = |one: &mut One| {
        let mut said = one.of_founding().into_iter();
        said.find_map(|(_, message)| match message {
            SlotMessage::Accept { value, .. } => Some(value.members.len()),
            _ => None,
        })
    };
    assert_eq!(asks(&mut one), None);
    let ballot = one.asks_for_promises(&[(1, 10), (2, 11)]);
    one.say(10, promise(ballot));
    assert_eq!(asks(&mut one), Some(3));
}

/// The one that proposed it died, and the other one was started again before it heard of the decision.
#[test]
fn a_founding_view_in_which_nobody_lives_is_void() {
    let mut one = One::of(config(0, 2));
    let ballot = one.asks_for_promises(&[(1, 10)]);
    let before = [0, 1].map(|node| member_of(Incarnation(98 + node as u128), &record(node)));
    let accepted = AcceptedValue {
        ballot: Ballot {
            round: 1,
            proposer: Incarnation(1),
        },
        value: Voted::Whole(Box::new(view(before.to_vec()))),
    };
    let proposed = |one: &mut One, ballot| {
        one.say(
            10,
            SlotMessage::Promise {
                ballot,
                accepted: Some(accepted.clone()),
            },
        );
        let mut said = one.of_founding().into_iter();
        let value = said.find_map(|(_, message)| match message {
            SlotMessage::Accept { value, .. } => Some(value),
            _ => None,
        });
        value.expect("a quorum has promised").members
    };
    assert_eq!(proposed(&mut one, ballot), before, "R1");
    one.say(10, SlotMessage::Accepted { ballot });
    one.run_ms(3_500, &[(1, 10)]);
    assert_eq!(one.prepares(), None, "they may be about to answer");
    let next = one.asks_for_promises(&[(1, 10)]);
    assert!(next > ballot);
    let members = proposed(&mut one, next);
    let there: Vec<Incarnation> = members.iter().map(|member| member.incarnation).collect();
    assert!(
        there.contains(&Incarnation(10)) && !there.contains(&Incarnation(99)),
        "{there:?}"
    );
}

#[test]
fn who_was_answered_by_a_member_founds_nothing_beside_it_for_a_while() {
    let mut one = One::of(config(0, 3));
    let here = Discovery::Here {
        addr: addr(2),
        standing: standing(),
        coordinator: Incarnation(30),
        coordinator_addr: addr(2),
    };
    one.run_ms(100, &[(1, 10)]);
    one.discover(30, here);
    // It falls silent, and is a member still.
    one.run_ms(3_500, &[(1, 10)]);
    assert_eq!(one.prepares(), None);
    one.asks_for_promises(&[(1, 10)]);
}

#[test]
fn who_knows_of_a_cluster_votes_for_no_other() {
    let mut one = expecting(2, &[1, 3], false);
    one.run_ms(1_000, &[(1, 10)]);
    one.of_founding();
    one.say(10, prepare());
    assert_eq!(one.of_founding().len(), 1, "it promises");
    let here = Discovery::Here {
        addr: addr(3),
        standing: standing(),
        coordinator: Incarnation(30),
        coordinator_addr: addr(3),
    };
    one.discover(30, here);
    let mut higher = prepare();
    if let SlotMessage::Prepare { ballot, .. } = &mut higher {
        ballot.round = 9;
    }
    one.say(10, higher);
    one.run_ms(300, &[(1, 10)]);
    assert_eq!(one.of_founding(), []);
}

#[test]
fn nobody_is_left_out_of_a_founding_who_has_had_no_time_to_answer() {
    let mut one = expecting(2, &[1, 2, 3], false);
    one.run_ms(300, &[(1, 10)]);
    assert_eq!(one.prepares(), None, "a member may be at one of the others");
    one.say(10, prepare());
    assert_eq!(one.of_founding(), [], "and a vote would be as good");
    one.run_ms(800, &[(1, 10)]);
    assert!(one.prepares().is_some());
    // Where nobody listens nobody is waited for.
    let mut one = expecting(2, &[1, 2], false);
    one.membership
        .handle_path_trouble(one.now, addr(2), PathTrouble::Refused);
    one.run_ms(100, &[(1, 10)]);
    assert!(one.prepares().is_some());
}

#[test]
fn where_sources_may_name_others_nobody_founds_or_votes_at_once_with_those_it_knows() {
    let named = |nodes: &[usize]| nodes.iter().copied().map(addr).collect::<Vec<_>>();
    let mut one = expecting(2, &[], false);
    one.hint(named(&[1]), Vec::new(), Sources::Heard);
    one.run_ms(300, &[(1, 10)]);
    assert_eq!(one.prepares(), None, "a member may be about to be named");
    one.say(10, prepare());
    assert_eq!(one.of_founding(), [], "and a vote would be as good");
    // It is named, and answers.
    one.hint(named(&[1, 3]), Vec::new(), Sources::Heard);
    let here = Discovery::Here {
        addr: addr(3),
        standing: standing(),
        coordinator: Incarnation(30),
        coordinator_addr: addr(3),
    };
    one.discover(30, here);
    one.run_ms(1_000, &[(1, 10)]);
    assert_eq!(one.of_founding(), []);
    // Or nobody is, and nothing is waited for longer than that.
    let mut one = expecting(2, &[], false);
    one.hint(named(&[1]), Vec::new(), Sources::Heard);
    one.run_ms(660, &[(1, 10)]);
    assert!(one.prepares().is_some());
}

#[test]
fn a_source_that_has_said_nothing_yet_is_waited_for_and_not_for_ever() {
    let mut one = expecting(2, &[1], false);
    one.hint(vec![addr(1)], Vec::new(), Sources::Silent);
    one.run_ms(3_000, &[(1, 10)]);
    assert_eq!(one.prepares(), None);
    one.say(10, prepare());
    assert_eq!(one.of_founding(), [], "nor a vote");
    // Whom it names in the end has as long to answer as if the node had just started.
    one.hint(vec![addr(1), addr(3)], Vec::new(), Sources::Heard);
    one.run_ms(500, &[(1, 10)]);
    assert_eq!(one.prepares(), None);
    one.say(10, prepare());
    assert_eq!(one.of_founding(), []);
    one.run_ms(200, &[(1, 10)]);
    assert!(one.prepares().is_some());
    // Or a locator, which has as long as any other.
    let mut one = expecting(2, &[1], false);
    one.hint(vec![addr(1)], Vec::new(), Sources::Silent);
    one.run_ms(1_000, &[(1, 10)]);
    one.hint(vec![addr(1)], vec![addr(LOCATOR)], Sources::Heard);
    one.run_ms(3_000, &[(1, 10)]);
    assert_eq!(one.prepares(), None);
    // Or it never speaks.
    let mut one = expecting(2, &[1], false);
    one.hint(vec![addr(1)], Vec::new(), Sources::Silent);
    let at_most = (Profile::lan().unreachable_after * 2).as_millis() as u64 + 1_000;
    one.run_ms(at_most, &[(1, 10)]);
    assert!(one.prepares().is_some());
}

#[test]
fn a_locator_that_was_just_started_tells_nobody_that_there_is_no_cluster() {
    let mut one = expecting(2, &[], true);
    one.run_ms(100, &[(1, 10)]);
    one.known(100, Vec::new());
    one.run_ms(1_000, &[(1, 10)]);
    one.known(1_100, Vec::new());
    one.run_ms(1_000, &[(1, 10)]);
    assert_eq!(one.prepares(), None);
    one.say(10, prepare());
    assert_eq!(one.of_founding(), []);
    one.known(2_100, Vec::new());
    one.run_ms(1_200, &[(1, 10)]);
    assert!(one.prepares().is_some(), "every member has had time to register");
}

#[test]
fn a_member_that_a_locator_heard_lately_is_looked_for_before_a_cluster_is_founded() {
    let mut one = expecting(2, &[], true);
    for _ in 0..4 {
        one.known(60_000, vec![member(3, 0)]);
        one.run_ms(500, &[(1, 10)]);
    }
    assert_eq!(one.prepares(), None);
    // It is not there: it was started again, and is a candidate itself.
    one.run_ms(1_500, &[(1, 10), (3, 33)]);
    assert!(one.prepares().is_some());
    // Or it is not heard any more, by the locator either.
    let mut one = expecting(2, &[], true);
    for age in 0..8 {
        one.known(60_000, vec![member(3, age)]);
        one.run_ms(1_000, &[(1, 10)]);
    }
    assert!(one.prepares().is_some());
    // And nobody waits for ever for what a locator says.
    let mut one = expecting(2, &[], true);
    for _ in 0..10 {
        one.known(60_000, vec![member(3, 0)]);
        one.run_ms(1_000, &[(1, 10)]);
    }
    assert!(one.prepares().is_some());
}

#[test]
fn a_locator_that_starts_again_and_again_holds_up_nobody_for_long() {
    let at_most = (Profile::lan().unreachable_after * 2).as_millis() as u64 + 1_000;
    // Its answers count for 3.2 s each time, and just before the next one nobody has had time to found.
    for period in [500, 3_300, 3_500, 3_800, 6_000] {
        // Three of five are expected, and one host is off: those who are there wait a moment for it.
        let mut one = expecting(3, &[1, 2, 3], true);
        one.run_ms(60, &[(1, 10), (2, 12)]);
        let mut ms = 0;
        while one.prepares().is_none() {
            assert!(ms < at_most, "started every {period} ms");
            if ms % period == 0 {
                one.known(0, Vec::new());
            }
            one.run_ms(20, &[(1, 10), (2, 12)]);
            ms += 20;
        }
    }
}

#[test]
fn who_waited_for_a_member_that_falls_silent_gives_locators_their_time_anew() {
    let mut one = expecting(2, &[1], true);
    let here = Discovery::Here {
        addr: addr(3),
        standing: standing(),
        coordinator: Incarnation(30),
        coordinator_addr: addr(3),
    };
    one.run_ms(60, &[(1, 10)]);
    // It cannot be admitted: the slot waits for others. And then nothing is heard of the member but by the
    // locator.
    for _ in 0..25 {
        one.known(60_000, vec![member(3, 0)]);
        one.discover(30, here.clone());
        one.run_ms(400, &[(1, 10)]);
    }
    one.of_founding();
    for _ in 0..20 {
        one.known(60_000, vec![member(3, 0)]);
        one.run_ms(400, &[(1, 10)]);
        one.say(10, prepare());
        assert_eq!(one.of_founding(), [], "a member is there");
    }
}

#[test]
fn a_locator_that_is_not_there_yet_is_given_time_to_come() {
    // It refuses: the host is up, and the locator's process starts with the nodes, or a moment later.
    let refused = |one: &mut One| {
        one.membership
            .handle_path_trouble(one.now, addr(LOCATOR), PathTrouble::Refused);
    };
    let mut one = expecting(2, &[1], true);
    one.run_ms(20, &[(1, 10)]);
    refused(&mut one);
    one.run_ms(1_000, &[(1, 10)]);
    assert_eq!(one.prepares(), None);
    one.say(10, prepare());
    assert_eq!(one.of_founding(), [], "nor a vote");
    // It is there, and a member has told it.
    one.known(300, vec![member(3, 0)]);
    one.run_ms(3_000, &[(1, 10)]);
    assert_eq!(one.prepares(), None);
    // Or it never comes.
    let mut one = expecting(2, &[1], true);
    one.run_ms(20, &[(1, 10)]);
    refused(&mut one);
    one.run_ms(3_180, &[(1, 10)]);
    assert_eq!(one.prepares(), None);
    refused(&mut one);
    one.run_ms(100, &[(1, 10)]);
    assert!(one.prepares().is_some());
    // Of two, one that has been there for long is enough.
    let mut one = expecting(2, &[1], true);
    let locators = vec![addr(LOCATOR), addr(LOCATOR + 1)];
    let nodes = vec![addr(1)];
    one.hint(nodes, locators, Sources::None);
    one.run_ms(20, &[(1, 10)]);
    one.known(60_000, Vec::new());
    one.run_ms(1_000, &[(1, 10)]);
    assert!(one.prepares().is_some());
}

#[test]
fn locators_that_were_not_asked_are_not_listened_to() {
    let mut one = expecting(2, &[1], false);
    one.known(10, vec![member(3, 0)]);
    one.run_ms(200, &[(1, 10)]);
    assert!(one.prepares().is_some());
    let asked = one
        .said
        .iter()
        .any(|effect| matches!(effect, Effect::Discovery { to, .. } if *to == addr(3)));
    assert!(!asked);
}

/// The second node has the name of the first one.
fn twins(mut one: One) {
    let mut twin = record(1);
    twin.name = record(0).name;
    let asked = (0..500).find_map(|_| {
        one.now = one.now + std::time::Duration::from_millis(20);
        one.seek(twin.clone(), 10);
        one.membership.handle_timeout(one.now);
        one.drain();
        one.prepares()
    });
    let ballot = asked.expect("both vote");
    one.seek(twin, 10);
    one.say(10, promise(ballot));
    let refused = one.said.iter().find_map(|effect| match effect {
        Effect::Event(Event::Refused { reason, fatal: false }) => Some(reason.clone()),
        _ => None,
    });
    let refused = refused.expect("it is said");
    assert!(
        refused.contains("both called n0") && refused.contains("another name"),
        "{refused}"
    );
    let accepted = one.of_founding();
    assert!(
        !accepted
            .iter()
            .any(|(_, message)| matches!(message, SlotMessage::Accept { .. }))
    );
}

#[test]
fn two_nodes_of_one_name_are_one() {
    twins(expecting(2, &[1], false));
}

#[test]
fn two_seeds_of_one_name_are_one() {
    for seeds in [2, 3] {
        twins(One::of(config(0, seeds)));
    }
}

/// Each takes the other for the coordinator, and answers whatever it is asked.
#[test]
fn two_members_that_name_each_other_are_not_asked_by_turns_without_end() {
    for round_trip_ms in [20, 5] {
        let joins = asked_by_turns(round_trip_ms);
        // At the usual pace, and once more in between.
        assert!(
            (30..250).contains(&joins),
            "{joins} in ten seconds, {round_trip_ms} ms there and back"
        );
    }
}

fn asked_by_turns(round_trip_ms: u64) -> usize {
    let mut one = expecting(2, &[1], false);
    let here = |member: usize, leader: usize| Discovery::Here {
        addr: addr(member),
        standing: standing(),
        coordinator: Incarnation(leader as u128 * 10),
        coordinator_addr: addr(leader),
    };
    one.discover(30, here(3, 4));
    let mut joins = 0;
    for _ in 0..10_000 / round_trip_ms {
        let said = std::mem::take(&mut one.said);
        let asked = said.into_iter().filter_map(|effect| match effect {
            Effect::Discovery {
                to,
                message: Discovery::Join { .. },
            } => Some(to),
            _ => None,
        });
        let asked: Vec<_> = asked.collect();
        joins += asked.len();
        for to in asked {
            let (member, leader) = if to == addr(4) { (4, 3) } else { (3, 4) };
            one.discover(member as u128 * 10, here(member, leader));
        }
        one.run_ms(round_trip_ms, &[]);
    }
    joins
}

//! Stories of an operator's way out (R11), told with each engine: this file is two modules.

use antiphon_wire::Cause;
use antiphon_wire::membership::{Discovery, Standing};

use super::net::{Net, addr, config};
use crate::{EngineKind, Event, Policy, Recovery, RecoveryError};

fn engine() -> EngineKind {
    if module_path!().ends_with("cut") {
        EngineKind::Cut
    } else {
        EngineKind::Coordinator
    }
}

/// Nodes of one cluster, all but these without power for good, and the rest aware of it.
fn bereft(count: usize, survivors: &[usize]) -> Net {
    let mut net = Net::formed(count, engine());
    for lost in (0..count).filter(|node| !survivors.contains(node)) {
        net.power_off(lost);
    }
    net.run_ms(20_000);
    assert!(
        survivors.iter().all(|node| !net.is_primary(*node)),
        "{:?}",
        net.summary()
    );
    net
}

fn look(net: &Net, node: usize) -> Result<Recovery, RecoveryError> {
    net.host(node).membership.recovery(net.now)
}

#[test]
fn a_survivor_goes_on_alone_by_an_operators_word_and_new_nodes_join_it() {
    let mut net = bereft(3, &[2]);
    net.run_ms(600_000);
    assert!(!net.is_primary(2), "no time does it");
    let shown = look(&net, 2).unwrap();
    let old = net.view(2).unwrap();
    assert_eq!((shown.lineage, shown.view), (old.lineage, old.primary_id()));
    let others: Vec<(&str, bool, bool)> = shown
        .others
        .iter()
        .map(|other| (other.member.name.as_str(), other.here, other.dead))
        .collect();
    assert_eq!(others, [("n0", false, false), ("n1", false, false)]);
    assert!(shown.may_fork() && !shown.quorum && shown.lost.as_secs() >= 600);

    net.recover(2, &shown).unwrap();
    let view = net.view(2).unwrap();
    assert!(view.is_primary() && view.members.len() == 1);
    assert_eq!(view.members[0], old.members[0], "the same incarnation goes on");
    assert_ne!(view.lineage, old.lineage);
    assert_eq!((view.primary_id().epoch, view.primary_id().counter), (2, 1));
    assert!(view.number > old.number);
    assert_eq!(view.overrides(), Some((old.lineage, old.primary_id())));
    let left: Vec<&str> = view
        .departed
        .iter()
        .map(|gone| gone.member.name.as_str())
        .collect();
    assert_eq!(left, ["n0", "n1"]);
    assert!(
        view.departed
            .iter()
            .all(|gone| matches!(gone.cause, Cause::Overridden { .. }))
    );

    net.start(0, config(0, 3));
    net.start(1, config(1, 3));
    net.run_ms(5_000);
    net.assert_one_view(&[0, 1, 2]);
    assert_eq!(
        net.view(0).unwrap().primary_id().epoch,
        2,
        "whoever joins sees it in the ids"
    );
    assert_eq!(net.lineages(), 2);
}

#[test]
fn other_survivors_give_way_to_the_one_that_was_chosen() {
    let mut net = bereft(5, &[3, 4]);
    let shown = look(&net, 4).unwrap();
    let here: Vec<bool> = shown.others.iter().map(|other| other.here).collect();
    assert_eq!(here, [false, false, false, true]);
    let before = net.host(3).me;
    net.recover(4, &shown).unwrap();
    net.run_ms(3_000);
    net.assert_one_view(&[3, 4]);
    assert_ne!(net.host(3).me, before, "as a fresh incarnation");
    assert_eq!(net.view(3).unwrap().elder().name, "n4");
    // It had lost the primary and knew it: it was not expelled from anything.
    assert!(
        !net.host(3)
            .events
            .iter()
            .any(|event| matches!(event, Event::Expelled { .. }))
    );
    // The word is good once.
    let again = net.recover(3, &shown);
    assert!(matches!(again, Err(RecoveryError::Primary { .. })), "{again:?}");
}

#[test]
fn a_member_of_a_primary_view_is_not_recovered_and_neither_is_who_is_in_no_view() {
    let mut net = Net::formed(3, engine());
    let number = net.view(0).unwrap().number;
    assert_eq!(look(&net, 0), Err(RecoveryError::Primary { number }));
    net.start(3, config(3, 3));
    assert_eq!(look(&net, 3), Err(RecoveryError::NoView));
    // The others are gone, and it is not noticed yet.
    net.power_off(0);
    net.power_off(1);
    net.run_ms(10);
    assert!(matches!(look(&net, 2), Err(RecoveryError::Primary { .. })));
}

#[test]
fn what_was_shown_must_still_be_so() {
    let mut net = Net::formed(5, engine());
    net.partition(&[0, 1, 2], &[3, 4]);
    net.run_ms(20_000);
    let shown = look(&net, 4).unwrap();
    assert!(shown.may_fork(), "the three others may well go on");
    // They do, and take the two back; then these are cut off once more.
    net.heal();
    net.run_ms(10_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
    net.partition(&[0, 1, 2], &[3, 4]);
    net.run_ms(20_000);
    let before = net.view(4).unwrap();
    assert_eq!(net.recover(4, &shown), Err(RecoveryError::Changed));
    assert_eq!(net.view(4).unwrap(), before, "nothing has changed");
    let anew = look(&net, 4).unwrap();
    net.recover(4, &anew).unwrap();
    assert!(net.is_primary(4));
}

#[test]
fn a_word_does_not_count_for_what_the_operator_was_not_warned_of() {
    let mut net = Net::formed(5, engine());
    for node in 0..4 {
        let others: Vec<usize> = (node + 1..5).collect();
        net.partition(&[node], &others);
    }
    net.run_ms(20_000);
    let shown = look(&net, 4).unwrap();
    assert!(shown.may_fork() && !shown.quorum);
    // As if all others had been heard then.
    let mut heard = shown.clone();
    heard.others.iter_mut().for_each(|other| other.here = true);
    assert!(!heard.may_fork());
    assert_eq!(net.recover(4, &heard), Err(RecoveryError::Changed));
    // The others come back, and no view is installed yet.
    net.heal();
    net.run_while_ms(20_000, |net| !look(net, 4).is_ok_and(|now| now.quorum));
    assert_eq!(net.recover(4, &shown), Err(RecoveryError::Changed));
    net.run_ms(20_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
    assert_eq!(net.view(4).unwrap().lineage, shown.lineage, "nothing is given up");
}

#[test]
fn a_recovery_beside_a_majority_that_lives_gives_way_when_they_meet() {
    let mut net = Net::formed(5, engine());
    net.partition(&[0, 1, 2], &[3, 4]);
    net.run_ms(20_000);
    let shown = look(&net, 4).unwrap();
    net.recover(4, &shown).unwrap();
    net.run_ms(5_000);
    net.assert_one_view(&[3, 4]);
    net.assert_one_view(&[0, 1, 2]);
    net.heal();
    net.run_ms(20_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
    let view = net.view(4).unwrap();
    assert_eq!(
        (view.lineage, view.primary_id().epoch),
        (shown.lineage, 1),
        "the three had more weight"
    );
    assert!(
        net.host(4)
            .events
            .iter()
            .any(|event| matches!(event, Event::Expelled { .. }))
    );
}

/// It accepted a view of both, and the one that proposed it is gone and has forgotten.
#[test]
fn who_waits_beside_half_of_a_cluster_is_told_what_a_person_can_do() {
    let mut net = Net::formed(2, engine());
    net.power_off(0);
    net.run_ms(5_000);
    assert!(!net.is_primary(1), "{:?}", net.summary());
    net.start(0, config(0, 2));
    net.run_ms(60_000);
    let told = |event: &&Event| matches!(event, Event::Refused { reason, fatal: false } if reason.contains("antiphon recover"));
    let count = net.host(0).events.iter().filter(told).count();
    assert!((2..=12).contains(&count), "{count} times in a minute");
    let shown = net.host(1).membership.recovery(net.now).unwrap();
    net.recover(1, &shown).unwrap();
    net.run_ms(5_000);
    net.assert_one_view(&[0, 1]);
}

/// Only one survivor was chosen, and it ends before the other one is its member.
#[test]
fn a_survivor_that_gave_way_to_one_that_is_gone_can_be_recovered_itself() {
    let mut net = bereft(5, &[3, 4]);
    let old = look(&net, 3).unwrap();
    let shown = look(&net, 4).unwrap();
    net.recover(4, &shown).unwrap();
    let before = net.host(3).me;
    net.run_while_ms(5_000, |net| net.host(3).me == before);
    net.kill(4);
    let now = look(&net, 3);
    assert!(matches!(now, Err(RecoveryError::Looking { .. })), "{now:?}");
    net.run_ms(600_000);
    assert!(net.view(3).is_none(), "no time does it");
    let shown = look(&net, 3).unwrap();
    assert_eq!((shown.lineage, shown.view), (old.lineage, old.view));
    let others: Vec<&str> = shown
        .others
        .iter()
        .map(|other| other.member.name.as_str())
        .collect();
    assert_eq!(others, ["n0", "n1", "n2", "n4"]);
    assert!(shown.may_fork());
    net.recover(3, &shown).unwrap();
    let view = net.view(3).unwrap();
    assert!(view.is_primary() && view.members.len() == 1);
    assert_eq!(view.overrides(), Some((old.lineage, old.view)));
    // With its own former incarnation.
    assert_eq!((view.primary_id().epoch, view.departed.len()), (2, 5));
    net.start(0, config(0, 5));
    net.start(4, config(4, 5));
    net.run_ms(10_000);
    net.assert_one_view(&[0, 3, 4]);
}

/// It was recovered, and alone. It met the majority, which is lost before it takes that one in.
#[test]
fn a_survivor_that_was_alone_and_gave_way_is_told_that_others_may_go_on() {
    let mut net = bereft(3, &[2]);
    let shown = look(&net, 2).unwrap();
    net.recover(2, &shown).unwrap();
    // A cluster of two, which is heavier.
    for node in [0, 1] {
        net.partition(&[node], &[2]);
        net.start(node, config(node, 2));
    }
    net.run_ms(5_000);
    net.assert_one_view(&[0, 1]);
    let before = (net.host(2).me, net.view(2).unwrap());
    net.heal();
    net.run_while_ms(20_000, |net| net.host(2).me == before.0);
    net.partition(&[0, 1], &[2]);
    net.run_ms(20_000);
    let shown = look(&net, 2).unwrap();
    assert_eq!((shown.lineage, shown.others.len()), (before.1.lineage, 0));
    assert!(shown.may_fork());
    net.recover(2, &shown).unwrap();
    let view = net.view(2).unwrap();
    assert_eq!(view.overrides(), Some((before.1.lineage, before.1.primary_id())));
    assert_eq!(view.departed[0].member.incarnation, before.0);
}

/// Three of five go on, and an operator had one of the others go on as well, by mistake. Then the three fall
/// apart.
fn beside_a_majority() -> Net {
    let mut net = Net::formed(5, engine());
    net.partition(&[0, 1, 2], &[3, 4]);
    net.partition(&[3], &[4]);
    net.run_ms(20_000);
    let shown = look(&net, 4).unwrap();
    net.recover(4, &shown).unwrap();
    net.assert_one_view(&[4]);
    net.assert_one_view(&[0, 1, 2]);
    net.partition(&[0], &[1, 2]);
    net.partition(&[1], &[2]);
    net.run_ms(60_000);
    assert!((0..3).all(|node| !net.is_primary(node)), "{:?}", net.summary());
    net
}

#[test]
fn a_majority_that_fell_apart_is_not_swallowed_by_a_lighter_lineage_that_its_members_hear_first() {
    let mut net = beside_a_majority();
    let (before, old) = ([0, 1, 2].map(|node| net.host(node).me), net.view(0).unwrap());
    for node in 0..3 {
        net.join_up(node, 4);
        net.run_ms(1_000);
    }
    assert_eq!([0, 1, 2].map(|node| net.host(node).me), before, "they wait");
    net.heal();
    net.run_ms(20_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
    assert_eq!(net.view(4).unwrap().lineage, old.lineage);
    assert_eq!([0, 1, 2].map(|node| net.host(node).me), before);
}

#[test]
fn who_hears_no_majority_for_long_goes_where_a_primary_is_also_a_lighter_one() {
    let mut net = beside_a_majority();
    net.join_up(0, 4);
    net.run_ms(20_000);
    net.assert_one_view(&[0, 4]);
    net.heal();
    net.run_ms(30_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
}

/// What one of them said of its weight was on its way for long.
#[test]
fn of_two_lineages_that_find_each_other_heavier_one_stays() {
    let mut net = Net::formed(4, engine());
    net.partition(&[0, 1, 2], &[3]);
    net.run_ms(20_000);
    let shown = look(&net, 3).unwrap();
    net.recover(3, &shown).unwrap();
    for node in 4..7 {
        net.partition(&[node], &[0, 1, 2]);
        let mut config = config(node, 3);
        config.seeds = vec![addr(3)];
        net.start(node, config);
    }
    net.run_ms(10_000);
    net.assert_one_view(&[3, 4, 5, 6]);
    let hears = |net: &mut Net, by: usize, of: usize, weight: u32| {
        let view = net.view(of).unwrap();
        let standing = Standing {
            lineage: view.lineage,
            view: view.primary_id(),
            number: view.number,
            weight,
            primary: true,
            engine: engine().code(),
            policy: Policy::Majority.code(),
            overrides: None,
        };
        let sender = net.host(of).me;
        let here = Discovery::Here {
            addr: addr(of),
            standing,
            coordinator: sender,
            coordinator_addr: addr(of),
        };
        net.discover(by, sender, here);
    };
    net.kill(5);
    net.run_ms(3_000);
    net.kill(6);
    net.run_ms(3_000);
    net.assert_one_view(&[3, 4]);
    net.heal();
    for one in 0..3 {
        for other in [3, 4] {
            hears(&mut net, one, other, 4);
            hears(&mut net, other, one, 3);
        }
    }
    net.run_ms(20_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
    assert_eq!(net.view(0).unwrap().lineage, shown.lineage, "the heavier one");
}

#[test]
fn who_has_no_vote_cannot_be_a_cluster_alone() {
    let mut net = Net::new(3, engine());
    for node in 0..3 {
        let mut config = config(node, 3);
        config.weight = u16::from(node != 2);
        net.start(node, config);
    }
    net.run_ms(3_000);
    net.assert_one_view(&[0, 1, 2]);
    net.power_off(0);
    net.power_off(1);
    net.run_ms(20_000);
    assert_eq!(look(&net, 2), Err(RecoveryError::NoVote));
}

#[test]
fn a_recovered_cluster_can_lose_its_majority_and_be_recovered_again() {
    let mut net = bereft(3, &[2]);
    let first = look(&net, 2).unwrap();
    net.recover(2, &first).unwrap();
    net.start(0, config(0, 3));
    net.start(1, config(1, 3));
    net.run_ms(5_000);
    net.assert_one_view(&[0, 1, 2]);
    net.power_off(1);
    net.power_off(2);
    net.run_ms(20_000);
    let second = look(&net, 0).unwrap();
    net.recover(0, &second).unwrap();
    let view = net.view(0).unwrap();
    assert_eq!(view.primary_id().epoch, 3);
    assert_eq!(view.overrides(), Some((second.lineage, second.view)));
    assert_ne!(second.lineage, first.lineage);
}

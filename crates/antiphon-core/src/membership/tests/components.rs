//! Stories of the policy `any`, told with each engine: this file is two modules.

use antiphon_wire::membership::{Ballot, Discovery, MembershipMessage, SlotMessage, Standing};
use antiphon_wire::{Cause, Lineage, NodeView, NodeViewId};

use super::net::{Net, addr, config};
use crate::inspection::State;
use crate::membership::context::record_of;
use crate::membership::view::check;
use crate::{Alone, EngineKind, Event, Policy};

fn engine() -> EngineKind {
    if module_path!().ends_with("cut") {
        EngineKind::Cut
    } else {
        EngineKind::Coordinator
    }
}

/// `count` nodes of one view, each of which has the first `seeds` as seeds.
fn formed(count: usize, seeds: usize) -> Net {
    let mut net = Net::new(7, engine());
    for node in 0..count {
        let mut config = config(node, seeds);
        config.policy = Policy::Any;
        net.start(node, config);
    }
    net.run_ms(3500);
    net.assert_one_view(&(0..count).collect::<Vec<_>>());
    net
}

#[test]
fn each_side_of_a_cut_goes_on_and_they_are_one_again_when_it_heals() {
    let mut net = formed(5, 5);
    let old = net.view(0).unwrap();
    net.partition(&[0, 1, 2], &[3, 4]);
    net.run_ms(10_000);
    net.assert_one_view(&[0, 1, 2]);
    net.assert_one_view(&[3, 4]);
    let (major, minor) = (net.view(0).unwrap(), net.view(3).unwrap());
    assert_eq!(major.lineage, old.lineage, "a majority goes on as ever");
    assert_ne!(minor.lineage, old.lineage);
    assert_eq!(minor.separates(), Some((old.lineage, old.primary_id())));
    assert_eq!(
        (
            minor.primary_id().epoch,
            minor.primary_id().counter,
            minor.departed.len()
        ),
        (2, 1, 3)
    );
    assert!(minor.number > old.number && minor.members.iter().all(|member| old.members.contains(member)));

    let before = net.host(3).me;
    net.heal();
    net.run_ms(10_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
    let view = net.view(4).unwrap();
    assert_eq!(view.lineage, old.lineage, "the lighter one gave way");
    assert_ne!(net.host(3).me, before, "its members are fresh incarnations");
    assert!(view.number > minor.number && view.number > major.number);
    let expelled = |node: usize| {
        net.host(node)
            .events
            .iter()
            .any(|event| matches!(event, Event::Expelled { .. }))
    };
    assert!(expelled(3) && expelled(4) && !expelled(0));
}

#[test]
fn the_view_in_which_components_meet_says_who_comes_from_where() {
    let mut net = formed(5, 5);
    net.partition(&[0, 1, 2], &[3, 4]);
    net.run_ms(10_000);
    let minor = net.view(3).unwrap();
    net.heal();
    let merged = |net: &Net| {
        net.primaries
            .values()
            .filter(|view| !view.merged.is_empty())
            .count()
    };
    net.run_while_ms(20_000, |net| merged(net) == 0);
    net.run_ms(5_000);
    let merges: Vec<_> = net
        .primaries
        .values()
        .filter(|view| !view.merged.is_empty())
        .collect();
    let mut came: Vec<_> = merges.iter().flat_map(|view| &view.merged).collect();
    assert!(
        came.iter()
            .all(|part| (part.lineage, part.view) == (minor.lineage, minor.primary_id()))
    );
    came.sort();
    let members: usize = came.iter().map(|part| part.members.len()).sum();
    assert_eq!(members, 2);
    for view in merges {
        let parts = view.subviews();
        let told: usize = parts.iter().map(|part| part.members.len()).sum();
        assert_eq!(
            told,
            view.members.len(),
            "all of them, those who were there first"
        );
        assert_eq!(parts[0].lineage, view.lineage);
        assert_eq!(parts[0].view.counter + 1, view.primary_id().counter);
    }
}

#[test]
fn four_islands_are_four_clusters_and_one_again_afterwards() {
    let mut net = formed(4, 4);
    for one in 0..4 {
        let others: Vec<usize> = (0..4).filter(|other| *other != one).collect();
        net.partition(&[one], &others);
    }
    net.run_ms(12_000);
    for node in 0..4 {
        net.assert_one_view(&[node]);
    }
    assert_eq!(net.lineages(), 5, "the old one has no majority anywhere");
    net.heal();
    net.run_ms(25_000);
    net.assert_one_view(&[0, 1, 2, 3]);
}

#[test]
fn components_find_each_other_although_no_seed_is_left() {
    let mut net = formed(6, 2);
    net.kill(0);
    net.run_ms(3_000);
    net.kill(1);
    net.run_ms(3_000);
    net.assert_one_view(&[2, 3, 4, 5]);
    net.partition(&[2, 3], &[4, 5]);
    net.run_ms(60_000);
    net.assert_one_view(&[2, 3]);
    net.assert_one_view(&[4, 5]);
    net.heal();
    net.run_ms(20_000);
    net.assert_one_view(&[2, 3, 4, 5]);
}

/// Lifelines outlast a separation, and what they showed before it is of another lineage.
#[test]
fn who_is_killed_right_after_a_separation_is_proven_dead_in_the_new_lineage() {
    let mut net = formed(5, 5);
    net.partition(&[0, 1, 2], &[3, 4]);
    let separated = |net: &Net, node: usize| net.names(node) == ["n3", "n4"] && net.is_primary(node);
    net.run_while_ms(20_000, |net| !(separated(net, 3) && separated(net, 4)));
    let lineage = net.view(4).unwrap().lineage;
    net.run_ms(200);
    net.kill(3);
    net.run_ms(15_000);
    net.assert_one_view(&[4]);
    assert_eq!(
        net.view(4).unwrap().lineage,
        lineage,
        "half of it goes on by a proof of death"
    );
}

#[test]
fn a_component_without_any_weight_waits() {
    let mut net = Net::new(7, engine());
    for node in 0..4 {
        let mut config = config(node, 4);
        config.policy = Policy::Any;
        config.weight = u16::from(node < 2);
        net.start(node, config);
    }
    net.run_ms(3_500);
    net.assert_one_view(&[0, 1, 2, 3]);
    net.partition(&[0, 1], &[2, 3]);
    net.run_ms(10_000);
    net.assert_one_view(&[0, 1]);
    assert!(!net.is_primary(2) && !net.is_primary(3));
    net.heal();
    net.run_ms(10_000);
    net.assert_one_view(&[0, 1, 2, 3]);
}

#[test]
fn nodes_of_another_policy_are_refused_with_both_sides_shown() {
    let mut net = formed(3, 3);
    net.start(3, config(3, 3));
    net.run_ms(3_000);
    net.assert_one_view(&[0, 1, 2]);
    let refused = net.host(3).events.iter().find_map(|event| match event {
        Event::Refused { reason, fatal } => Some((reason.clone(), *fatal)),
        _ => None,
    });
    let (reason, fatal) = refused.expect("it is told");
    assert!(
        fatal && reason.contains("`any`") && reason.contains("`majority`"),
        "{reason}"
    );
}

#[test]
fn founders_of_different_policies_do_not_found() {
    let mut net = Net::new(7, engine());
    for node in 0..2 {
        let mut config = config(node, 2);
        config.policy = Policy::ALL[node];
        net.start(node, config);
    }
    net.run_ms(10_000);
    assert!(net.view(0).is_none() && net.view(1).is_none());
}

/// The two halves of a separation that another member of a component would propose.
fn part(old: &NodeView, members: &[usize]) -> NodeView {
    let mut view = NodeView::clone(old);
    view.lineage = Lineage(99 << 100);
    let mut id = old.primary_id();
    (id.epoch, id.counter) = (id.epoch + 1, 1);
    view.id = NodeViewId::Primary { id };
    view.number += 1;
    view.joined.clear();
    view.members = members.iter().map(|rank| old.members[*rank].clone()).collect();
    let gone = old
        .members
        .iter()
        .filter(|member| !view.contains(member.incarnation));
    view.departed = gone
        .map(|member| antiphon_wire::Departure {
            member: member.clone(),
            cause: Cause::Separated {
                lineage: old.lineage,
                view: old.primary_id(),
            },
            accusers: Vec::new(),
        })
        .collect();
    view
}

#[test]
fn nobody_says_yes_to_a_part_of_a_view_while_it_hears_a_majority_of_it() {
    let mut net = formed(5, 5);
    let old = net.view(0).unwrap();
    let message = |view: NodeView| MembershipMessage::Separate {
        attempt: 1,
        view: Box::new(view),
    };
    net.lie(0, 1, message(part(&old, &[0, 1])));
    let base = old.primary_id();
    net.lie(0, 1, MembershipMessage::Assemble { base, attempt: 1 });
    assert_eq!(net.view(1).unwrap(), old);
}

#[test]
fn what_is_no_part_of_the_view_is_not_installed() {
    let wrong: [fn(&mut NodeView); 7] = [
        // The first is what it should be.
        |_| {},
        |view| view.number = u32::MAX,
        |view| view.number = 1,
        |view| view.members.reverse(),
        |view| view.departed.truncate(1),
        |view| view.departed.iter_mut().for_each(|gone| gone.cause = Cause::Left),
        |view| view.members[1].weight = 7,
    ];
    for (index, spoil) in wrong.into_iter().enumerate() {
        let mut net = formed(5, 5);
        let old = net.view(0).unwrap();
        // The other is alone with it, and has not gathered yet.
        net.partition(&[3, 4], &[0, 1, 2]);
        net.run_while_ms(20_000, |net| {
            let state = net.host(4).membership.inspect(net.now).state;
            matches!(state, State::Seated(seated) if seated.quorum)
        });
        let mut view = part(&old, &[3, 4]);
        spoil(&mut view);
        let message = MembershipMessage::Separate {
            attempt: 1_000,
            view: Box::new(view),
        };
        net.lie(3, 4, message);
        let base = old.primary_id();
        net.lie(3, 4, MembershipMessage::Assemble { base, attempt: 1_000 });
        let installed = net.view(4).unwrap().lineage == Lineage(99 << 100);
        assert_eq!(installed, index == 0, "{index}");
    }
}

/// Above the last attempt there is no other: the views of this node would all have one id (R5).
#[test]
fn a_member_that_names_the_last_attempt_there_is_leaves_the_others_a_higher_one() {
    let mut net = Net::new(7, engine());
    for node in 0..5 {
        let mut config = config(node, 5);
        config.policy = Policy::Majority;
        net.start(node, config);
    }
    net.run_ms(3_500);
    let (base, attempt) = (net.view(0).unwrap().primary_id(), u32::MAX);
    let mut view = (*net.view(4).unwrap()).clone();
    view.id = NodeViewId::NonPrimary {
        base,
        attempt,
        proposer: net.host(3).me,
    };
    net.partition(&[3, 4], &[0, 1, 2]);
    net.lie(3, 4, MembershipMessage::Gather(Box::new(view)));
    net.run_ms(20_000);
    for node in [3, 4] {
        let installed = net.view(node).unwrap();
        let NodeViewId::NonPrimary { attempt, .. } = installed.id else {
            panic!("{installed:?}");
        };
        assert!(attempt < u32::MAX / 2, "{attempt}");
    }
}

#[test]
fn a_stay_that_was_not_asked_for_moves_nobody() {
    let mut net = formed(3, 3);
    let old = net.view(0).unwrap();
    let standing = Standing {
        lineage: Lineage(99 << 100),
        view: old.primary_id(),
        number: old.number,
        weight: 1_000,
        primary: true,
        engine: engine().code(),
        policy: Policy::Any.code(),
        overrides: None,
    };
    let sender = antiphon_wire::Incarnation(5);
    let (from, nonce) = (addr(9), 77);
    let message = Discovery::Stay {
        addr: from,
        standing,
        nonce,
    };
    net.discover(0, sender, message);
    assert_eq!(net.view(0).unwrap(), old);
}

/// Until what it has accepted is decided, it may be one that no quorum can decide: whoever gave way to it
/// then would have lost its own for nothing.
#[test]
fn who_has_accepted_a_view_promises_nobody_to_stay() {
    for bound in [false, true] {
        let mut net = formed(3, 3);
        if bound {
            leave_a_vote(&mut net);
        }
        let (mine, mut guest) = (net.view(0).unwrap(), config(9, 3));
        guest.policy = Policy::Any;
        guest.engine = engine();
        let standing = Standing {
            lineage: Lineage(99 << 100),
            view: mine.primary_id(),
            number: 1,
            weight: 1,
            primary: true,
            engine: engine().code(),
            policy: Policy::Any.code(),
            overrides: None,
        };
        let message = Discovery::Yield {
            node: record_of(&guest),
            standing,
            nonce: 77,
        };
        net.discover(0, antiphon_wire::Incarnation(5), message);
        assert_eq!(net.spoken.contains(&(0, 9, true)), !bound);
    }
}

#[test]
fn a_node_that_gave_way_and_is_cut_off_before_it_is_admitted_goes_on_alone() {
    let mut net = formed(3, 3);
    net.partition(&[0, 1], &[2]);
    net.run_ms(10_000);
    net.assert_one_view(&[2]);
    let before = net.host(2).me;
    net.heal();
    net.run_while_ms(20_000, |net| net.host(2).me == before);
    assert!(net.view(2).is_none(), "it seeks");
    net.partition(&[0, 1], &[2]);
    net.run_ms(15_000);
    net.assert_one_view(&[2]);
    let alone = |event: &Event| {
        matches!(
            event,
            Event::Alone {
                reason: Alone::NobodyLeft
            }
        )
    };
    assert!(net.host(2).events.iter().any(alone));
    net.heal();
    net.run_ms(15_000);
    net.assert_one_view(&[0, 1, 2]);
}

/// A heavier cluster of the same name and key, with another policy: whoever gave way to it would be refused
/// there.
#[test]
fn a_cluster_of_another_policy_is_nothing_to_give_way_to() {
    for (mine, other) in [(Policy::Any, Policy::Majority), (Policy::Majority, Policy::Any)] {
        let mut net = Net::new(7, engine());
        for node in 0..3 {
            let mut config = config(node, 3);
            config.policy = mine;
            net.start(node, config);
        }
        net.run_ms(3500);
        let old = net.view(0).unwrap();
        let standing = Standing {
            lineage: Lineage(99 << 100),
            view: old.primary_id(),
            number: 1,
            weight: 1_000,
            primary: true,
            engine: engine().code(),
            policy: other.code(),
            overrides: None,
        };
        let (sender, from) = (antiphon_wire::Incarnation(5), addr(9));
        let here = Discovery::Here {
            addr: from,
            standing,
            coordinator: sender,
            coordinator_addr: from,
        };
        let question = Discovery::Yield {
            node: record_of(&config(9, 3)),
            standing,
            nonce: 7,
        };
        net.discover(0, sender, here);
        net.discover(1, sender, question);
        let dissolve = MembershipMessage::Dissolve {
            into: standing,
            addr: from,
        };
        net.lie(0, 2, dissolve);
        net.run_ms(2_000);
        assert_eq!(net.view(0).unwrap(), old, "{mine:?}");
        net.assert_one_view(&[0, 1, 2]);
    }
}

/// Who was a member looks for its own cluster: the first one of another policy that it meets does not end it.
#[test]
fn who_was_a_member_is_not_ended_by_a_cluster_of_another_policy() {
    let mut net = formed(3, 3);
    for node in 3..6 {
        let mut config = config(node, 6);
        config.seeds.drain(..3);
        config.policy = Policy::Majority;
        net.start(node, config);
    }
    net.run_ms(3_500);
    net.assert_one_view(&[3, 4, 5]);
    net.partition(&[0], &[1, 2]);
    net.run_ms(10_000);
    net.hint(0, &[3, 4, 5]);
    net.heal();
    net.run_ms(10_000);
    net.assert_one_view(&[0, 1, 2]);
    net.assert_one_view(&[3, 4, 5]);
}

#[test]
fn a_component_whose_answers_take_longer_than_heartbeats_agrees_all_the_same() {
    for policy in [Policy::Any, Policy::Majority] {
        let mut net = Net::new(7, engine());
        for node in 0..5 {
            let mut config = config(node, 5);
            config.policy = policy;
            net.start(node, config);
        }
        net.run_ms(3500);
        net.partition(&[0, 1], &[2, 3, 4]);
        net.partition(&[2, 3], &[4]);
        net.latency = std::time::Duration::from_secs(1);
        net.run_ms(20_000);
        for component in [&[0, 1][..], &[2, 3]] {
            for node in component {
                assert_eq!(net.names(*node).len(), 2, "{policy:?}: {:?}", net.summary());
                let last = net.host(*node).views.last().unwrap();
                let few = match last.id {
                    NodeViewId::NonPrimary { attempt, .. } => attempt <= 3,
                    NodeViewId::Primary { .. } => policy == Policy::Any,
                };
                assert!(few, "{:?}", last.id);
            }
        }
    }
}

/// Somebody's vote that nobody needs any more must not keep out those who come, nor part those who hear each
/// other.
#[test]
fn a_vote_that_was_left_over_stops_nothing() {
    // With three rings not all of six are neighbours of each other.
    for rings in [10, 3] {
        let mut net = Net::new(7, engine());
        net.rings = rings;
        let any = |node: usize| {
            let mut config = config(node, 6);
            config.policy = Policy::Any;
            config
        };
        for node in 0..6 {
            net.start(node, any(node));
        }
        net.run_ms(3500);
        leave_a_vote(&mut net);
        let lineage = net.view(0).unwrap().lineage;
        net.run_ms(10_000);
        net.start(6, any(6));
        net.run_ms(3_000);
        net.assert_one_view(&[0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(net.view(0).unwrap().lineage, lineage);
    }
}

/// The leader accepts a view that is the same as the present one, and nobody proposes it any more.
fn leave_a_vote(net: &mut Net) {
    let old = net.view(0).unwrap();
    let id = check::next_id(old.primary_id());
    let value = NodeView {
        id: NodeViewId::Primary { id },
        number: old.number + 1,
        joined: Vec::new(),
        departed: Vec::new(),
        ..NodeView::clone(&old)
    };
    let proposer = net.host(1).me;
    let message = SlotMessage::Accept {
        ballot: Ballot { round: 5, proposer },
        value: Box::new(value),
        proofs: Vec::new(),
    };
    let slot = check::slot_after(&old);
    net.lie(1, 0, MembershipMessage::Slot { slot, message });
}

/// Its name was taken by another node while it was gone: it is whole where it is.
#[test]
fn who_would_be_refused_gives_way_to_nobody() {
    let mut net = formed(5, 5);
    net.partition(&[0, 1, 2], &[3, 4]);
    net.run_ms(10_000);
    let mut namesake = config(5, 3);
    namesake.name = "n4".to_owned();
    namesake.policy = Policy::Any;
    net.start(5, namesake);
    net.partition(&[5], &[3, 4]);
    net.run_ms(3_000);
    net.assert_one_view(&[0, 1, 2, 5]);
    let alone = net.host(4).me;
    net.heal();
    net.run_ms(20_000);
    net.assert_one_view(&[0, 1, 2, 3, 5]);
    assert_eq!(net.names(4), ["n4"]);
    assert!(net.is_primary(4) && net.host(4).me == alone);
}

/// Who is told to come, and is then refused, is a component again after a while.
#[test]
fn who_gave_way_and_is_refused_goes_on_alone() {
    let mut net = formed(3, 3);
    net.partition(&[0, 1], &[2]);
    net.run_ms(10_000);
    let before = net.host(2).me;
    net.heal();
    net.run_while_ms(10_000, |net| net.host(2).me == before);
    for _ in 0..200 {
        if net.is_primary(2) {
            break;
        }
        // What it asks is lost, and what it hears is this.
        net.partition(&[2], &[0, 1]);
        let to = net.host(2).me;
        let reason = "the cluster is full".to_owned();
        let refused = Discovery::Refused {
            to,
            reason,
            fatal: false,
        };
        let view = net.view(0).unwrap();
        let standing = Standing {
            lineage: view.lineage,
            view: view.primary_id(),
            number: view.number,
            weight: 2,
            primary: true,
            engine: engine().code(),
            policy: Policy::Any.code(),
            overrides: None,
        };
        let sender = net.host(0).me;
        let here = Discovery::Here {
            addr: addr(0),
            standing,
            coordinator: sender,
            coordinator_addr: addr(0),
        };
        net.discover(2, sender, here);
        net.discover(2, sender, refused);
        net.run_ms(100);
    }
    assert_eq!(net.names(2), ["n2"], "{:?}", net.summary());
}

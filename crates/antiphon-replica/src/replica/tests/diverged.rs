//! Members whose state differs from the others'.

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;

use super::super::{Ack, Config, Refusal, Standing};
use super::group::Group;
use super::stories::{group_of, join, small};
use crate::Change;

#[test]
fn a_member_whose_state_differs_is_named_by_all_and_serves_no_more() {
    for broken in 0..3 {
        let mut group = group_of(3, small());
        group.break_at_next_command(broken);
        for _ in 0..12 {
            group.write((broken + 1) % 3, Ack::Here, None).unwrap();
            group.settle();
        }
        for node in 0..3 {
            let name = format!("Diverged {{ member: {:?}", group.nodes[broken].me);
            assert!(
                group.nodes[node].said.iter().any(|said| said.starts_with(&name)),
                "{node}"
            );
        }
        assert_eq!(group.standing(broken), Standing::Diverged);
        let others: Vec<usize> = (0..3).filter(|node| *node != broken).collect();
        let incarnations = |nodes: &[usize]| nodes.iter().map(|node| group.nodes[*node].me).collect();
        let parted = Change {
            members: incarnations(&others),
            gone: incarnations(&[broken]),
            diverged: incarnations(&[broken]),
            ..Change::default()
        };
        for node in &others {
            let machine = &group.nodes[*node].replica.machine;
            assert_eq!(machine.last_change, parted, "what it held goes to others");
        }
        assert!(group.write(broken, Ack::Here, None).is_none());
        let joiner = join(&mut group);
        group.settle();
        assert_eq!(group.standing(joiner), Standing::Serving);
        assert!(
            !group.nodes[joiner].tainted,
            "its source is not the one that diverged"
        );
        let able: Vec<_> = [&others[..], &[joiner]].concat();
        let able: Vec<_> = able.iter().map(|node| group.nodes[*node].me).collect();
        group.crash(broken);
        group.next_view(false);
        group.settle();
        for node in others {
            let change = &group.nodes[node].replica.machine.last_change;
            assert_eq!(
                (&change.members, change.gone.len()),
                (&able, 0),
                "it was gone before"
            );
        }
    }
}

#[test]
fn a_member_that_has_diverged_is_no_member_to_the_machine_in_a_later_view_or_at_a_merge() {
    // What is agreed may be undone, so any member that comes back lifts the state.
    let config = Config {
        agreed: true,
        ..small()
    };
    let mut group = Group::new(1, config);
    for _ in 0..4 {
        group.start("with numbers");
    }
    group.next_view(false);
    group.next_view(false);
    group.settle();
    group.break_at_next_command(1);
    for _ in 0..8 {
        group.write(0, Ack::Here, None).unwrap();
        group.settle();
    }
    assert_eq!(group.standing(1), Standing::Diverged);
    let told = |group: &Group, node: usize| group.nodes[node].replica.machine.last_change.clone();
    let names = |group: &Group, nodes: &[usize]| nodes.iter().map(|node| group.nodes[*node].me).collect();
    group.suspend(3);
    group.next_view(true);
    group.settle();
    let parted = Change {
        members: names(&group, &[0, 2]),
        gone: names(&group, &[3]),
        ..Change::default()
    };
    let again = group.nodes.len() - 1;
    for node in [0, 2] {
        assert_eq!(told(&group, node), parted, "{node}");
    }
    group.next_view(false);
    let met = Change {
        members: names(&group, &[0, 2, again]),
        joined: names(&group, &[again]),
        ..Change::default()
    };
    for node in [0, 2] {
        while group.deliver(node) {}
        assert_eq!(told(&group, node), met, "{node}");
    }
    group.settle();
    assert_eq!(group.serving(), [0, 2, again]);
    let risen = Change {
        members: names(&group, &[0, 2, again]),
        ..Change::default()
    };
    for node in [0, 2, again] {
        assert_eq!(told(&group, node), risen, "{node}");
    }
    assert!(group.members().contains(&1), "all the while it is in the group");
}

#[test]
fn a_member_that_diverged_and_is_removed_comes_back_to_serve_and_what_it_gave_before_counts_for_nobody() {
    let mut group = group_of(3, small());
    let joiner = join(&mut group);
    while group.standing(joiner) != Standing::CatchingUp {
        for node in 0..4 {
            while group.deliver(node) {}
            group.outputs(node);
        }
        group
            .tell_pairs()
            .into_iter()
            .for_each(|pair| group.deliver_tell(pair));
    }
    // The joiner has said that it has the state, and the group has not ordered it yet.
    group.outputs(joiner);
    group.break_at_next_command(1);
    while group.standing(1) != Standing::Diverged {
        group.write(0, Ack::Here, None).unwrap();
        for node in 0..3 {
            group.outputs(node);
            while group.order(node) {}
        }
        for node in 0..4 {
            while group.deliver(node) {}
        }
    }
    assert_eq!(
        group.standing(joiner),
        Standing::Gone,
        "its source was that member"
    );
    // It has not said yet that it serves no more.
    group.suspend(1);
    group.next_view(true);
    for node in [0, 2] {
        while group.deliver(node) {}
    }
    let (before, again) = (group.nodes[1].me, group.nodes.len() - 1);
    let said = &group.nodes[1].said;
    assert_eq!(said.last().map(String::as_str), Some("Void: removed"));
    let replica = &mut group.nodes[again].replica;
    assert_eq!(replica.standing(), Standing::Outside);
    assert_eq!(replica.read(|_| ()), Err(Refusal::NotSynced));
    let mut says = Vec::new();
    replica.outputs(Time::ZERO, |output| {
        says.push(output);
        true
    });
    assert_eq!(says, [], "nothing of what it was is said of what it is now");
    assert!(group.order(joiner));
    for node in [0, 2] {
        while group.deliver(node) {}
        let replica = &group.nodes[node].replica;
        assert_eq!(replica.machine.last_change.gone, [], "it was gone before");
        let serving: Vec<Incarnation> = replica
            .agreed
            .serving
            .iter()
            .map(|member| (*member).into())
            .collect();
        assert_eq!(
            serving,
            [0, 2].map(|node| group.nodes[node].me),
            "the state of a source that diverged does not count, also if it is gone"
        );
    }
    group.settle();
    group.next_view(false);
    group.settle();
    assert_eq!(group.serving(), [0, 2, again]);
    for _ in 0..8 {
        group.write(again, Ack::All, None).unwrap();
        group.settle();
    }
    assert_eq!(
        group.serving(),
        [0, 2, again],
        "it has the same state as the others"
    );
    assert_eq!(group.unanswered(again), 0);
    for node in [0, 2, again] {
        let agreed = &group.nodes[node].replica.agreed;
        assert_eq!(agreed.diverged, [before.into()], "{node}");
    }
}

#[test]
fn a_source_that_diverged_and_died_is_replaced_from_where_it_was_seen_to_differ() {
    let mut group = group_of(3, small());
    let joiner = join(&mut group);
    while group.standing(joiner) != Standing::Receiving {
        for node in 0..4 {
            while group.deliver(node) {}
            group.outputs(node);
        }
        group
            .tell_pairs()
            .into_iter()
            .for_each(|pair| group.deliver_tell(pair));
    }
    group.deaf.insert(joiner);
    group.break_at_next_command(1);
    for _ in 0..12 {
        group.write(0, Ack::Here, None).unwrap();
        for node in (0..3).chain(0..3) {
            group.outputs(node);
            while group.order(node) {}
            while group.deliver(node) {}
        }
    }
    assert_eq!(group.standing(1), Standing::Diverged);
    // The joiner learns both at once, and the next source begins before the view that it learns it by.
    group.crash(1);
    group.next_view(false);
    while group.deliver(joiner) {}
    assert_eq!(group.standing(joiner), Standing::Waiting);
    group.deaf.clear();
    group.settle();
    assert_eq!(group.serving(), [0, 2, joiner]);
}

#[test]
fn an_offer_that_comes_after_its_source_was_found_to_differ_counts_for_nothing() {
    let mut group = group_of(2, small());
    let joiner = join(&mut group);
    let turn = |group: &mut Group| {
        for node in 0..3 {
            group.outputs(node);
            while group.order(node) {}
        }
        for node in 0..3 {
            while group.deliver(node) {}
        }
    };
    turn(&mut group);
    turn(&mut group);
    assert_eq!(group.tell_pairs(), [(1, joiner)], "the junior one is the source");
    group.break_at_next_command(1);
    for _ in 0..8 {
        group.write(0, Ack::Here, None).unwrap();
        turn(&mut group);
    }
    assert_eq!(group.standing(1), Standing::Diverged);
    assert_eq!(group.standing(joiner), Standing::Waiting);
    group.deliver_tell((1, joiner));
    assert_eq!(group.standing(joiner), Standing::Waiting, "that state differs");
    // Nobody else gives it.
    group.crash(0);
    group.next_view(false);
    group.settle();
    assert_eq!(group.standing(joiner), Standing::Lost);
}

//! Faults with names, of total orders by token.

use std::sync::{Arc, Mutex};

use antiphon_wire::group::{GroupData, Run};

use super::world::World;
use crate::TotalEngine;

const BY_TOKEN: TotalEngine = TotalEngine::Token;

fn is_token(record: &GroupData) -> bool {
    matches!(record, GroupData::Token { .. })
}

#[test]
fn the_token_rests_where_it_was_used_last_and_nothing_moves_while_nobody_sends() {
    let mut world = World::with_group(BY_TOKEN, 1, &[1, 2, 3, 4]);
    world.send(3, "first").unwrap();
    world.run(1000);
    let before = world.data_records;
    world.run(60_000);
    assert_eq!(world.data_records, before, "an idle group is silent");
    // The token is at member 3 now: one delay, and no member is asked for anything.
    world.send(3, "at once").unwrap();
    assert_eq!(world.texts(3), ["first", "at once"]);
    world.run_micros(350);
    for id in 1..=4 {
        assert_eq!(world.texts(id), ["first", "at once"]);
    }
    world.run(1000);
    world.check().unwrap();
}

#[test]
fn order_records_that_are_lost_come_with_the_token() {
    let mut world = World::with_group(BY_TOKEN, 1, &[1, 2, 3]);
    world.drop_data = Some(Box::new(|_, _, record| {
        matches!(record, GroupData::Orders { .. } | GroupData::OrderNak { .. })
    }));
    for round in 0..5 {
        for id in 1..=3 {
            world.send(id, &format!("{id}-{round}")).unwrap();
        }
        world.run(10);
    }
    for id in 1..=3 {
        assert_eq!(world.texts(id).len(), 15);
        assert_eq!(world.texts(id), world.texts(1));
    }
    world.check().unwrap();
}

#[test]
fn a_token_that_is_lost_is_sent_again_by_whoever_passed_it_on() {
    for lost in 1..=6 {
        let mut world = World::with_group(BY_TOKEN, 1, &[1, 2, 3]);
        let mut seen = 0;
        world.drop_data = Some(Box::new(move |_, _, record| {
            seen += usize::from(is_token(record));
            is_token(record) && seen == lost
        }));
        world.send(3, "one").unwrap();
        world.send(2, "two").unwrap();
        world.run(1000);
        for id in 1..=3 {
            assert_eq!(world.texts(id).len(), 2, "token {lost} was lost");
            assert_eq!(world.texts(id), world.texts(1));
        }
        let before = world.data_records;
        world.run(10_000);
        assert_eq!(world.data_records, before, "nobody sends a token for ever");
        world.check().unwrap();
    }
}

#[test]
fn a_token_that_comes_twice_or_late_makes_no_second_order() {
    let mut world = World::with_group(BY_TOKEN, 1, &[1, 2, 3]);
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let seen = tokens.clone();
    world.drop_data = Some(Box::new(move |from, to, record| {
        if is_token(record) {
            seen.lock().unwrap().push((from, to, record.clone()));
        }
        false
    }));
    for round in 0..20 {
        let id = 1 + round % 3;
        world.send(id, &format!("{round}")).unwrap();
        world.run(2);
        let old: Vec<_> = tokens.lock().unwrap().iter().rev().take(7).cloned().collect();
        for (from, to, record) in old {
            world.inject(world.inc(from), to, record);
        }
        world.run(1);
    }
    world.run(1000);
    for id in 1..=3 {
        assert_eq!(world.texts(id).len(), 20);
        assert_eq!(world.texts(id), world.texts(1));
    }
    world.check().unwrap();
}

#[test]
fn the_token_dies_with_its_holder_and_the_next_view_has_one_of_its_own() {
    for holder in 1..=3 {
        let mut world = World::with_group(BY_TOKEN, 1, &[1, 2, 3]);
        world.send(holder, "holds it").unwrap();
        world.run(1000);
        world.crash(holder);
        let rest: Vec<u8> = (1..=3).filter(|id| *id != holder).collect();
        for id in &rest {
            world.send(*id, &format!("{id}")).unwrap();
        }
        world.run(200);
        for id in &rest {
            assert_eq!(world.texts(*id), ["holds it"]);
        }
        world.primary_within(&rest, 5);
        world.run(500);
        world.send(rest[1], "after").unwrap();
        world.run(500);
        for id in &rest {
            assert_eq!(world.texts(*id).len(), 4);
            assert_eq!(world.texts(*id), world.texts(rest[0]));
        }
        world.check().unwrap();
    }
}

#[test]
fn an_order_that_one_survivor_knows_is_kept_by_all() {
    let mut world = World::with_group(BY_TOKEN, 1, &[1, 2, 3, 4]);
    // What member 1 numbers is told to member 3 alone, and the token goes no further.
    world.drop_data = Some(Box::new(|from, to, record| {
        is_token(record) && from == 1 || from == 1 && to != 3 && matches!(record, GroupData::Orders { .. })
    }));
    world.send(2, "unnumbered").unwrap();
    world.send(1, "numbered").unwrap();
    world.run(2);
    assert_eq!(world.texts(3), ["numbered"]);
    assert_eq!(world.texts(2), Vec::<String>::new());
    world.crash(1);
    world.drop_data = None;
    world.primary_within(&[2, 3, 4], 5);
    world.run(500);
    for id in 2..=4 {
        assert_eq!(world.texts(id), ["numbered", "unnumbered"]);
    }
    world.check().unwrap();
}

#[test]
fn a_token_of_an_earlier_view_is_void() {
    let mut world = World::with_group(BY_TOKEN, 1, &[1, 2, 3]);
    let old = world.views(1).pop().unwrap();
    world.start(4);
    world.primary(&[1, 2, 3, 4]);
    world.run(100);
    world.join(4);
    world.run(500);
    let token = GroupData::Token {
        group: old.group,
        view: old.id,
        hop: 1000,
        first: 0,
        runs: vec![Run { sender: 1, count: 1 }],
    };
    world.inject(world.inc(1), 2, token);
    world.send(3, "three").unwrap();
    world.send(2, "two").unwrap();
    world.run(500);
    for id in 1..=4 {
        assert_eq!(world.texts(id).len(), 2);
        assert_eq!(world.texts(id), world.texts(1));
    }
    world.check().unwrap();
}

#[test]
fn a_token_from_anyone_but_the_member_before_is_not_taken() {
    let mut world = World::with_group(BY_TOKEN, 1, &[1, 2, 3]);
    let view = world.views(1).pop().unwrap();
    for (from, to) in [(3, 2), (1, 3), (2, 1)] {
        let token = GroupData::Token {
            group: view.group,
            view: view.id,
            hop: 1 << 40,
            first: 0,
            runs: Vec::new(),
        };
        world.inject(world.inc(from), to, token);
    }
    world.send(3, "three").unwrap();
    world.run(100);
    for id in 1..=3 {
        assert_eq!(world.texts(id), ["three"]);
    }
    world.check().unwrap();
}

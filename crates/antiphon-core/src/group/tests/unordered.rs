//! Messages that do not wait for those before them, and what is left of them when their sender dies.

use antiphon_wire::Level;
use antiphon_wire::block::Form;
use antiphon_wire::group::GroupData;

use super::world::{Id, Kind, World};
use crate::{GroupEvent, Outcome};

/// A message's text, if the record brings one.
fn text(record: &GroupData) -> Option<String> {
    match record {
        GroupData::Batch { messages, .. } | GroupData::Repair { messages, .. } => {
            let first = messages.iter().next()?;
            Some(String::from_utf8_lossy(first).into_owned())
        }
        _ => None,
    }
}

/// Loses these texts of a sender on their way to these members, and all questions that these members ask it.
fn lose(world: &mut World, sender: Id, lost: &'static [(Id, &'static str)]) {
    world.drop_data = Some(Box::new(move |from, to, record| {
        let named = |(who, what): &(Id, &str)| *who == to && text(record).as_deref() == Some(*what);
        from == sender && lost.iter().any(named) || to == sender && matches!(record, GroupData::Nak { .. })
    }));
}

fn send_each(world: &mut World, sender: Id, texts: &[&str]) {
    for text in texts {
        world.send(sender, text).unwrap();
        world.run(2);
    }
}

#[test]
fn what_is_lost_delays_only_itself() {
    let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3]);
    lose(&mut world, 1, &[(2, "b"), (2, "d")]);
    send_each(&mut world, 1, &["a", "b", "c", "d", "e"]);
    assert_eq!(world.texts(2), ["a", "c", "e"]);
    assert_eq!(world.texts(3), ["a", "b", "c", "d", "e"]);
    world.drop_data = None;
    world.run(500);
    let mut texts = world.texts(2);
    assert_eq!(texts[..3], ["a", "c", "e"]);
    texts.sort();
    assert_eq!(texts, ["a", "b", "c", "d", "e"]);
    world.check().unwrap();
}

#[test]
fn a_fifo_group_waits_where_an_unordered_one_does_not() {
    let mut world = World::with_group(Kind::Fifo, 1, &[1, 2, 3]);
    lose(&mut world, 1, &[(2, "b")]);
    send_each(&mut world, 1, &["a", "b", "c"]);
    assert_eq!(world.texts(2), ["a"]);
}

#[test]
fn survivors_deliver_all_that_any_of_them_has_of_a_dead_sender_and_no_gap_of_it_holds_them_up() {
    let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3, 4]);
    // `b` is with nobody, `c` with one, `d` with another, `e` with both.
    let lost = &[
        (2, "b"),
        (3, "b"),
        (4, "b"),
        (3, "c"),
        (4, "c"),
        (2, "d"),
        (4, "d"),
        (4, "e"),
    ];
    lose(&mut world, 1, lost);
    send_each(&mut world, 1, &["a", "b", "c", "d", "e"]);
    assert_eq!(world.texts(2), ["a", "c", "e"]);
    assert_eq!(world.texts(3), ["a", "d", "e"]);
    assert_eq!(world.texts(4), ["a"]);
    world.crash(1);
    world.drop_data = None;
    world.primary(&[2, 3, 4]);
    world.run(200);
    for id in [2, 3, 4] {
        let mut texts = world.texts(id);
        texts.sort();
        assert_eq!(texts, ["a", "c", "d", "e"], "{id}");
        assert_eq!(world.members(id).len(), 3);
    }
    world.check().unwrap();
}

#[test]
fn a_removed_sender_learns_of_each_message_whether_it_was_delivered() {
    let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3]);
    lose(&mut world, 1, &[(2, "b"), (3, "b"), (3, "c")]);
    // It delivers nothing itself before it is removed, as if all were safe.
    for text in ["a", "b", "c"] {
        world.send_at(1, Level::Safe, text).unwrap();
        world.run(2);
    }
    world.primary(&[2, 3]);
    world.run(200);
    for id in [2, 3] {
        let mut texts = world.texts(id);
        texts.sort();
        assert_eq!(texts, ["a", "c"], "{id}");
    }
    world.drop_data = None;
    world.reincarnate(1, "removed");
    world.primary(&[2, 3, 1]);
    world.run(2000);
    let receipts: Vec<_> = world
        .events(1)
        .into_iter()
        .filter_map(|event| match event {
            GroupEvent::Receipts {
                first,
                count,
                outcome,
            } => Some((first.0, count, outcome)),
            _ => None,
        })
        .collect();
    let delivered: Vec<u64> = world
        .messages(1)
        .iter()
        .filter_map(|m| Some(m.ticket?.0))
        .collect();
    let told: u64 = receipts.iter().map(|(_, count, _)| count).sum();
    assert_eq!(told + delivered.len() as u64, 3, "{receipts:?} {delivered:?}");
    let not_delivered: Vec<_> = receipts
        .iter()
        .filter(|(_, _, outcome)| *outcome == Outcome::NotDelivered)
        .collect();
    assert_eq!(not_delivered, [&(2, 1, Outcome::NotDelivered)]);
    world.check().unwrap();
}

#[test]
fn a_safe_message_lets_those_behind_it_pass() {
    let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3]);
    world.drop_data = Some(Box::new(|from, _, record| {
        from == 3 && matches!(record, GroupData::Rows { .. } | GroupData::Ack { .. })
    }));
    world.send_safe(1, "safe").unwrap();
    world.run(2);
    world.send(1, "agreed").unwrap();
    world.run(2);
    assert_eq!(world.texts(1), ["agreed"]);
    assert_eq!(world.texts(2), ["agreed"]);
    world.drop_data = None;
    world.run(500);
    for id in [1, 2, 3] {
        assert_eq!(world.texts(id).len(), 2);
    }
    let tickets: Vec<_> = world
        .messages(1)
        .iter()
        .map(|message| message.ticket.unwrap().0)
        .collect();
    assert_eq!(tickets, [2, 1]);
    world.check().unwrap();
}

#[test]
fn a_message_in_pieces_waits_for_its_own_pieces_only_and_survives_its_sender_if_all_are_somewhere() {
    for lost_everywhere in [false, true] {
        let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3]);
        let large = format!("large {}", "x".repeat(150_000));
        // The first piece reaches the second member alone, the last the third alone.
        world.drop_data = Some(Box::new(move |from, to, record| {
            let form = match record {
                GroupData::Batch { messages, .. } => messages.form(),
                _ => Form::Messages,
            };
            let first = text(record).is_some_and(|text| text.starts_with("large"));
            let keeps_last = to == 3 && !lost_everywhere;
            from == 1
                && (text(record).as_deref() == Some("before")
                    || first && to == 3
                    || form == Form::LastPiece && !keeps_last)
                || to == 1 && matches!(record, GroupData::Nak { .. })
        }));
        world.send(1, "before").unwrap();
        world.run(2);
        world.send(1, &large).unwrap();
        world.run(2);
        world.send(1, "after").unwrap();
        world.run(2);
        assert_eq!(world.texts(2), ["after"]);
        assert_eq!(world.texts(3), ["after"]);
        world.crash(1);
        world.drop_data = None;
        world.primary(&[2, 3]);
        world.run(200);
        let expected = if lost_everywhere {
            vec!["after".to_owned()]
        } else {
            vec!["after".to_owned(), large]
        };
        for id in [2, 3] {
            assert_eq!(world.texts(id), expected, "{id}");
        }
        world.check().unwrap();
    }
}

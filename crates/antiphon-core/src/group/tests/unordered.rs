//! Messages that do not wait for messages before them, and what is left of them when their sender dies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use antiphon_wire::block::Form;
use antiphon_wire::group::GroupData;
use antiphon_wire::{Block, GroupId, GroupViewId, Incarnation, Level, ViewId};

use super::loss::text;
use super::world::{Kind, World};
use crate::group::Effect;
use crate::group::reached::Reached;
use crate::group::stream::{BatchHeader, Beginning, Stream};
use crate::{GroupEvent, Outcome, Profile, Time};

#[test]
fn what_is_lost_delays_only_itself() {
    let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3]);
    world.lose(1, &[(2, "b"), (2, "d")]);
    world.send_each(1, &["a", "b", "c", "d", "e"]);
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
    world.lose(1, &[(2, "b")]);
    world.send_each(1, &["a", "b", "c"]);
    assert_eq!(world.texts(2), ["a"]);
}

#[test]
fn survivors_deliver_all_that_any_of_them_has_of_a_dead_sender_and_no_gap_of_it_holds_them_up() {
    let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3, 4]);
    // No receiver has `b`, one has `c`, another `d`, both have `e`.
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
    world.lose(1, lost);
    world.send_each(1, &["a", "b", "c", "d", "e"]);
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
    world.lose(1, &[(2, "b"), (3, "b"), (3, "c")]);
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

#[test]
fn each_run_that_a_dead_sender_left_is_asked_for_and_supplied_once() {
    const MESSAGES: u64 = 200;
    let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3, 4]);
    // Two members have every other message, one has none.
    world.drop_data = Some(Box::new(|from, to, record| {
        let number = text(record).and_then(|text| text.parse::<u64>().ok());
        let loses = number.is_some_and(|number| to == 4 || number % 2 == u64::from(to) % 2);
        from == 1 && loses || to == 1 && matches!(record, GroupData::Nak { .. })
    }));
    for number in 0..MESSAGES {
        world.send(1, &number.to_string()).unwrap();
        world.run(1);
    }
    world.crash(1);
    let counts = Arc::new(Mutex::new((0, 0)));
    let seen = counts.clone();
    world.drop_data = Some(Box::new(move |_, _, record| {
        let (pulls, repairs) = &mut *seen.lock().unwrap();
        *pulls += u64::from(matches!(record, GroupData::Pull { .. }));
        *repairs += u64::from(matches!(record, GroupData::Repair { .. }));
        false
    }));
    world.primary(&[2, 3, 4]);
    world.run(500);
    for id in [2, 3, 4] {
        assert_eq!(world.texts(id).len() as u64, MESSAGES, "{id}");
    }
    world.check().unwrap();
    let (pulls, repairs) = *counts.lock().unwrap();
    let missed = 2 * MESSAGES;
    assert!(pulls <= missed && repairs <= missed, "{pulls} {repairs}");
}

#[test]
fn what_finds_no_room_is_not_asked_for_until_its_gap_is_asked_for_again() {
    const MEMBERS: usize = 64;
    let profile = Profile::lan();
    let node = ViewId { epoch: 1, counter: 1 };
    let (group, id) = (
        GroupId(1),
        GroupViewId {
            node,
            number: 1,
            k: 1,
        },
    );
    let members: Vec<_> = (1..=MEMBERS as u128).map(Incarnation).collect();
    let options = Kind::Unordered.options();
    let consumed = vec![Reached::new(1); MEMBERS];
    let (start, credit) = (&[1; MEMBERS], &[1; MEMBERS]);
    let beginning = Beginning { me: 0, start, credit };
    let mut stream = Stream::new(group, id, members, beginning, consumed, options);
    let mut out = VecDeque::new();
    let mut now = Time::from_micros(1);
    let asked = |out: &mut VecDeque<Effect>| {
        let records = out.drain(..).flat_map(|effect| match effect {
            Effect::Data { records, .. } => records,
            _ => Vec::new(),
        });
        let asked = records.filter_map(|record| match record {
            GroupData::Nak { first, end, .. } => Some((first, end)),
            _ => None,
        });
        asked.collect::<Vec<_>>()
    };
    // Every other message is lost: each that comes is a run.
    let last = 1001;
    for first in (3..=last).step_by(2) {
        let block = Block::of(b"run");
        let header = BatchHeader {
            sender: 1,
            first,
            stable: 1,
            ask: false,
        };
        stream.batch(now, &profile, header, block, &mut out);
    }
    assert!(stream.dropped > 400, "{}", stream.dropped);
    let at_once = asked(&mut out);
    assert!((1..100).contains(&at_once.len()), "{}", at_once.len());
    assert!(at_once.windows(2).all(|two| two[0].1 <= two[1].0), "{at_once:?}");
    now = now + profile.retransmit;
    stream.timeout(now, &profile, &mut out);
    let again = asked(&mut out);
    assert_eq!(again.first().unwrap().0, 1);
    assert_eq!(again.last().unwrap().1, last, "all of it");
}

#[test]
fn a_report_with_numbers_that_nobody_can_have_sent_removes_its_sender() {
    let absurd = [
        (u64::MAX, 0, 1),
        (1 << 63, 1 << 63, 1),
        (u64::MAX, u64::MAX, 1),
        (0, 0, u64::MAX),
    ];
    for (held, nulls, ordered) in absurd {
        let mut world = World::with_group(Kind::Unordered, 1, &[1, 2, 3]);
        let view = world.report_without_3([held; 3], None, (nulls, ordered));
        let hostile = world.inc(2);
        world.run(500);
        let next = world.views(1).into_iter().find(|next| next.id > view).unwrap();
        assert!(!next.members.contains(&hostile), "{held} {nulls} {ordered}");
    }
}

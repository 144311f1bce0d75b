//! Stories of an outbox.

use super::fates::MAX_RANGES;
use super::*;

fn fate(outbox: &Outbox, ticket: u64) -> Option<Outcome> {
    outbox.fate(Ticket(ticket))
}

fn open() -> Outbox {
    let mut outbox = Outbox::with_limits(
        Limits {
            message: 1 << 20,
            object: 2 << 20,
        },
        false,
    );
    outbox.set_standing(Standing::Member);
    outbox
}

#[test]
fn a_message_is_pending_until_its_fate_is_known_in_whatever_order() {
    let mut outbox = open();
    for ticket in 1..=10 {
        assert_eq!(
            outbox.accept(Payload::Borrowed(b"m"), Level::Agreed, None),
            Ok(Ticket(ticket))
        );
    }
    drop(outbox.pop(Row::Messages));
    outbox.settle(Ticket(1), 3, Outcome::Delivered);
    outbox.settle(Ticket(6), 2, Outcome::NotDelivered);
    let fates: Vec<_> = (1..=10).map(|ticket| fate(&outbox, ticket)).collect();
    let (yes, no) = (Some(Outcome::Delivered), Some(Outcome::NotDelivered));
    assert_eq!(fates, [yes, yes, yes, None, None, no, no, None, None, None]);
    assert_eq!(outbox.pending(), 5);
    outbox.settle(Ticket(4), 2, Outcome::Delivered);
    outbox.settle(Ticket(8), 1, Outcome::Delivered);
    outbox.set_standing(Standing::Gone);
    let fates: Vec<_> = (4..=10).map(|ticket| fate(&outbox, ticket)).collect();
    let unknown = Some(Outcome::Unknown);
    assert_eq!(fates, [yes, yes, no, no, yes, unknown, unknown]);
    assert_eq!(outbox.pending(), 0);
}

#[test]
fn blocks_carry_the_ticket_of_their_first_message_and_room_comes_back() {
    let mut outbox = open();
    let large = vec![0; 30_000];
    let mut accepted = 0;
    while outbox
        .accept(Payload::Borrowed(&large), Level::Agreed, None)
        .is_ok()
    {
        accepted += 1;
    }
    assert_eq!(accepted, OUTBOX_BYTES as u64 / Block::cost(30_000) as u64);
    assert_eq!(
        outbox.accept(Payload::Borrowed(&large), Level::Agreed, None),
        Err(SendError::Full)
    );
    let (first, block) = outbox.pop(Row::Messages).unwrap();
    assert_eq!((first, block.count()), (Ticket(1), 2));
    outbox.put_back(Row::Messages, first, block);
    assert_eq!(
        outbox.accept(Payload::Borrowed(&large), Level::Agreed, None),
        Err(SendError::Full)
    );
    assert_eq!(outbox.pop(Row::Messages).map(|(first, _)| first), Some(Ticket(1)));
    assert_eq!(
        outbox.accept(Payload::Borrowed(b"small"), Level::Agreed, None),
        Ok(Ticket(accepted + 1))
    );
    let firsts: Vec<_> = std::iter::from_fn(|| outbox.pop(Row::Messages))
        .map(|(first, _)| first.0)
        .collect();
    assert_eq!(firsts, [3, 5, 7]);
    assert!(outbox.is_empty());
}

#[test]
fn a_block_has_messages_of_one_level() {
    let mut outbox = open();
    for level in [
        Level::Agreed,
        Level::Agreed,
        Level::Safe,
        Level::Agreed,
        Level::Safe,
        Level::Safe,
    ] {
        outbox.accept(Payload::Borrowed(b"m"), level, None).unwrap();
    }
    let blocks: Vec<_> = std::iter::from_fn(|| outbox.pop(Row::Messages))
        .map(|(first, block)| (first.0, block.count(), block.level()))
        .collect();
    let (agreed, safe) = (Level::Agreed, Level::Safe);
    assert_eq!(
        blocks,
        [(1, 2, agreed), (3, 1, safe), (4, 1, agreed), (5, 2, safe)]
    );
}

#[test]
fn a_fate_that_is_not_remembered_is_unknown_never_a_delivery() {
    let mut outbox = open();
    let mut ticket = Ticket(0);
    for round in 0..=MAX_RANGES as u64 {
        ticket = outbox
            .accept(Payload::Borrowed(b"lost"), Level::Agreed, None)
            .unwrap();
        drop(outbox.pop(Row::Messages));
        outbox.settle(ticket, 1, Outcome::NotDelivered);
        let between = outbox
            .accept(Payload::Borrowed(b"kept"), Level::Agreed, None)
            .unwrap();
        drop(outbox.pop(Row::Messages));
        outbox.settle(between, 1, Outcome::Delivered);
        assert_eq!(between.0, round * 2 + 2);
    }
    assert_eq!(fate(&outbox, 1), Some(Outcome::Unknown));
    assert_eq!(fate(&outbox, ticket.0), Some(Outcome::NotDelivered));
    assert_eq!(fate(&outbox, ticket.0 + 1), Some(Outcome::Delivered));
}

#[test]
fn messages_pass_an_object_that_waits_and_the_next_object_does_not() {
    let mut outbox = open();
    let small = |outbox: &mut Outbox| outbox.accept(Payload::Borrowed(b"small"), Level::Agreed, None);
    let payload = Bytes::from(vec![7; (1 << 20) + 1]);
    assert_eq!(small(&mut outbox), Ok(Ticket(1)));
    assert_eq!(
        outbox.accept(Payload::Shared(&payload), Level::Safe, None),
        Ok(Ticket(2))
    );
    assert_eq!(small(&mut outbox), Ok(Ticket(3)));
    assert_eq!(
        outbox.accept(Payload::Shared(&payload), Level::Safe, None),
        Err(SendError::Full)
    );
    assert_eq!(
        outbox.accept(Payload::Borrowed(&[0; (2 << 20) + 1]), Level::Agreed, None),
        Err(SendError::TooLarge { limit: 2 << 20 })
    );
    let blocks: Vec<_> = std::iter::from_fn(|| outbox.pop(Row::Messages))
        .map(|(first, _)| first.0)
        .collect();
    assert_eq!(blocks, [1, 3], "tickets of a block are consecutive");
    assert!(!outbox.is_empty());
    let (ticket, block) = outbox.pop(Row::Objects).expect("it waits");
    assert_eq!((ticket, block.level()), (Ticket(2), Level::Safe));
    assert_eq!(block.bytes().as_ptr(), payload.as_ptr(), "it was not copied");
    outbox.put_back(Row::Objects, ticket, block);
    assert!(
        outbox
            .accept(Payload::Shared(&payload), Level::Safe, None)
            .is_err()
    );
    assert!(outbox.pop(Row::Objects).is_some() && outbox.is_empty());
}

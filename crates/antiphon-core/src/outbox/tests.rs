//! Stories of an outbox.

use std::cell::RefCell;

use antiphon_wire::block::After;

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

/// Hands over so many blocks; notes their first tickets and counts.
fn take(outbox: &mut Outbox, most: usize, taken: &mut Vec<(u64, u64)>) {
    let until = taken.len().saturating_add(most);
    hand_over(outbox, |first, block| {
        if taken.len() >= until {
            return Err(SendError::Full);
        }
        taken.push((first.0, block.count()));
        Ok(())
    });
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
    let mut taken = Vec::new();
    let full = hand_over(&mut outbox, |_, _| Err(SendError::Full));
    assert!(!full.any, "what the core has no room for stays");
    assert_eq!(
        outbox.accept(Payload::Borrowed(&large), Level::Agreed, None),
        Err(SendError::Full)
    );
    take(&mut outbox, 1, &mut taken);
    assert_eq!(taken, [(1, 2)]);
    assert_eq!(
        outbox.accept(Payload::Borrowed(b"small"), Level::Agreed, None),
        Ok(Ticket(accepted + 1))
    );
    take(&mut outbox, usize::MAX, &mut taken);
    assert_eq!(taken, [(1, 2), (3, 2), (5, 2), (7, 3)]);
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
    let (ticket, block) = outbox.front(Row::Objects).expect("it waits");
    assert_eq!((ticket, block.level()), (Ticket(2), Level::Safe));
    assert_eq!(block.bytes().as_ptr(), payload.as_ptr(), "it was not copied");
    take(&mut outbox, 1, &mut Vec::new());
    assert!(outbox.is_empty());
}

/// Shared with senders, which come while the core works.
struct Shared<'a>(&'a RefCell<Outbox>);

impl Keeper for Shared<'_> {
    fn with<T>(&mut self, step: impl FnOnce(&mut Outbox) -> T) -> T {
        step(&mut self.0.borrow_mut())
    }
}

#[test]
fn an_object_that_is_sent_while_another_is_offered_is_refused_and_never_lost() {
    let outbox = RefCell::new(open());
    let payload = Bytes::from(vec![7; (1 << 20) + 1]);
    let send = || {
        outbox
            .borrow_mut()
            .accept(Payload::Shared(&payload), Level::Agreed, None)
    };
    assert_eq!(send(), Ok(Ticket(1)));
    hand_over(&mut Shared(&outbox), |first, _| {
        assert_eq!(first, Ticket(1));
        assert_eq!(send(), Err(SendError::Full), "the first one may have to stay");
        Err(SendError::Full)
    });
    let mut offered = Vec::new();
    let handed = hand_over(&mut Shared(&outbox), |first, _| {
        offered.push(first.0);
        Ok(())
    });
    assert!(handed.any);
    assert_eq!((offered, outbox.borrow().pending()), (vec![1], 1));
    assert_eq!(send(), Ok(Ticket(2)));
}

#[test]
fn messages_that_are_sent_while_a_block_is_offered_go_behind_it() {
    let outbox = RefCell::new(open());
    let send = || {
        outbox
            .borrow_mut()
            .accept(Payload::Borrowed(b"m"), Level::Agreed, None)
    };
    assert_eq!(send(), Ok(Ticket(1)));
    hand_over(&mut Shared(&outbox), |_, _| {
        assert_eq!(send(), Ok(Ticket(2)));
        Err(SendError::Full)
    });
    let mut taken = Vec::new();
    take(&mut outbox.borrow_mut(), usize::MAX, &mut taken);
    assert_eq!(taken, [(1, 1), (2, 1)]);
}

#[test]
fn what_the_core_refuses_takes_what_is_behind_it_along_and_names_it() {
    let mut outbox = open();
    for level in [Level::Agreed, Level::Agreed, Level::Safe] {
        outbox.accept(Payload::Borrowed(b"m"), level, None).unwrap();
    }
    let mut asked = 0;
    let handed = hand_over(&mut outbox, |_, _| {
        asked += 1;
        Err(SendError::NotMember)
    });
    let refused = |first, count| Settled {
        first: Ticket(first),
        count,
        outcome: Outcome::NotDelivered,
    };
    assert_eq!((asked, handed.refused), (1, vec![refused(1, 2), refused(3, 1)]));
    assert_eq!(
        (outbox.pending(), outbox.fate(Ticket(3))),
        (0, Some(Outcome::NotDelivered))
    );
}

#[test]
fn what_waits_is_refused_when_the_group_suspends_and_its_scopes_are_named_no_more() {
    let mut outbox = Outbox::new(&GroupOptions::default().order(Order::Scoped));
    let send = |outbox: &mut Outbox| outbox.accept(Payload::Borrowed(b"m"), Level::Agreed, Some(7));
    assert_eq!(send(&mut outbox), Err(SendError::NotMember));
    assert!(outbox.set_standing(Standing::Member).is_empty());
    send(&mut outbox).unwrap();
    take(&mut outbox, 1, &mut Vec::new());
    send(&mut outbox).unwrap();
    let refused = outbox.set_standing(Standing::Suspended);
    assert_eq!(
        refused.iter().map(|refused| refused.first.0).collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(send(&mut outbox), Err(SendError::NotPrimary));
    outbox.set_standing(Standing::Member);
    send(&mut outbox).unwrap();
    let (_, block) = outbox.front(Row::Messages).expect("it waits");
    let tag = block.tags().next().expect("it has one");
    assert_eq!(tag.after, After::All(1), "it names nothing that was never sent");
}

#[test]
fn once_the_group_is_over_nothing_is_pending() {
    let mut outbox = open();
    for _ in 0..2 {
        outbox
            .accept(Payload::Borrowed(b"m"), Level::Agreed, None)
            .unwrap();
    }
    take(&mut outbox, 1, &mut Vec::new());
    outbox
        .accept(Payload::Borrowed(b"m"), Level::Agreed, None)
        .unwrap();
    let settled = outbox.set_standing(Standing::Gone);
    let told: Vec<_> = settled
        .iter()
        .map(|settled| (settled.first.0, settled.count, settled.outcome))
        .collect();
    assert_eq!(told, [(3, 1, Outcome::NotDelivered), (1, 2, Outcome::Unknown)]);
    assert_eq!(outbox.pending(), 0);
}

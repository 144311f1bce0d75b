//! Faults around messages that travel in pieces.

use std::cell::Cell;
use std::rc::Rc;

use antiphon_wire::Block;
use antiphon_wire::block::{Form, PIECE_BYTES};
use antiphon_wire::codec::{decode_all, put_varint};
use antiphon_wire::group::GroupData;

use super::world::{Kind, World};
use crate::{GroupEvent, GroupOptions, MAX_PAYLOAD_BYTES, SendError};

/// A text of this length that no other begins with.
pub(super) fn long(name: &str, length: usize) -> String {
    let mut text = name.to_owned();
    text.extend((text.len()..length).map(|at| char::from(b'a' + (at % 23) as u8)));
    text
}

#[test]
fn large_messages_arrive_whole_and_in_their_senders_order_among_small_ones() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 1, &[1, 2, 3]);
        (world.loss, world.duplicates, world.jitter_ms) = (10, 10, 3);
        let mut sent = Vec::new();
        for (at, length) in [5, 60_000, 60_001, 9, 120_000, 300_000, 7]
            .into_iter()
            .enumerate()
        {
            let text = long(&format!("{at}:"), length);
            world.send(1, &text).unwrap();
            world.send(2, &format!("between {at}")).unwrap();
            world.run(40);
            sent.push(text);
        }
        world.run(5000);
        for id in [1, 2, 3] {
            let texts = world.texts(id);
            let mut of_one: Vec<_> = texts.iter().filter(|text| !text.starts_with("between")).collect();
            if matches!(order, Kind::Unordered | Kind::Scoped) {
                of_one.sort();
            }
            assert!(
                of_one.iter().copied().eq(&sent),
                "{order:?} {id}: {} of {}",
                of_one.len(),
                sent.len()
            );
            assert_eq!(texts.len(), 2 * sent.len());
        }
        world.check().unwrap();
    }
}

#[test]
fn nobody_delivers_what_a_sender_that_died_had_not_sent_to_the_end() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 2, &[1, 2, 3]);
        world.send(2, "before").unwrap();
        world.run(100);
        // The last piece reaches no member.
        world.drop_data = Some(Box::new(|from, _, record| {
            let last = |record: &GroupData| matches!(record, GroupData::Batch { messages, .. } if messages.form() == Form::LastPiece);
            from == 2 && last(record)
        }));
        world.send(2, &long("torn", 200_000)).unwrap();
        world.run(100);
        world.crash(2);
        world.primary(&[1, 3]);
        world.run(1000);
        world.drop_data = None;
        world.send(3, &long("whole", 200_000)).unwrap();
        world.run(1000);
        for id in [1, 3] {
            assert_eq!(
                world.texts(id),
                ["before".to_owned(), long("whole", 200_000)],
                "{order:?} {id}"
            );
        }
        world.check().unwrap();
    }
}

#[test]
fn one_that_joins_while_a_large_message_is_under_way_delivers_all_of_it_or_nothing() {
    for order in Kind::ALL {
        for wait in 0..12 {
            let mut world = World::with_group(order, 3, &[1, 2]);
            world.start(3);
            world.primary(&[1, 2, 3]);
            world.join(3);
            world.run_micros(wait * 150);
            for at in 0..4 {
                world.send(1, &long(&format!("{at}:"), 150_000)).unwrap();
            }
            world.run(3000);
            assert_eq!(world.texts(1).len(), 4, "{order:?} {wait}");
            world.check().unwrap();
        }
    }
}

#[test]
fn a_message_of_a_window_goes_through_the_log() {
    let mut world = World::with_options(GroupOptions::default().window_bytes(1 << 17), 4).gather(&[1, 2]);
    for at in 0..3 {
        world.send(1, &long(&format!("{at}:"), 1 << 17)).unwrap();
        world.run(200);
    }
    assert_eq!(world.texts(2).len(), 3);
    let mut world = World::with_group(Kind::ALL[1], 4, &[1, 2]);
    for at in 0..3 {
        world
            .send(2, &long(&format!("{at}:"), MAX_PAYLOAD_BYTES))
            .unwrap();
        world.run(200);
    }
    assert_eq!(world.texts(1).len(), 3);
    world.check().unwrap();
}

#[test]
fn a_sender_is_told_of_room_only_when_there_is_room_for_what_was_refused() {
    let mut world = World::with_group(Kind::Fifo, 6, &[1, 2]);
    world.peers.get_mut(&2).unwrap().consumes = false;
    let large = |at: u64| long(&format!("{at}:"), MAX_PAYLOAD_BYTES);
    world.send(1, &large(0)).unwrap();
    world.run(100);
    // Little waits for credit, and the next message needs all of the room behind it.
    world.send(1, "small").unwrap();
    assert_eq!(world.send(1, &large(1)), Err(SendError::Full));
    world.run(1000);
    assert!(!world.events(1).contains(&GroupEvent::Writable));
    world.peers.get_mut(&2).unwrap().consumes = true;
    world.consume(2);
    world.run(1000);
    assert!(world.events(1).contains(&GroupEvent::Writable));
    world.send(1, &large(1)).unwrap();
    world.run(1000);
    assert_eq!(world.texts(2), [large(0), "small".to_owned(), large(1)]);
    world.check().unwrap();
}

/// A piece as it comes from the network, of whatever length.
fn piece(form: Form, length: usize) -> Block {
    let mut bytes = Vec::new();
    put_varint(
        &mut bytes,
        16 | u64::from(form == Form::Piece) | u64::from(form == Form::LastPiece) << 1,
    );
    put_varint(&mut bytes, length as u64);
    bytes.resize(bytes.len() + length, b'x');
    decode_all(bytes.into()).expect("a piece")
}

#[test]
fn a_message_of_more_pieces_or_bytes_than_any_has_is_dropped_and_its_credit_comes_back() {
    let window = 1 << 17;
    let floods = [
        vec![PIECE_BYTES; window / PIECE_BYTES + 1],
        vec![1; 500],
        vec![PIECE_BYTES; 40],
    ];
    for flood in floods {
        let options = Kind::Fifo.options().window_bytes(window as u32);
        let mut world = World::with_options(options, 7).gather(&[1, 2]);
        world.peers.get_mut(&2).unwrap().consumes = false;
        let consumed = Rc::new(Cell::new(0));
        let seen = consumed.clone();
        world.drop_data = Some(Box::new(move |from, _, record| {
            if let (2, GroupData::Ack { consumed, .. }) = (from, record) {
                seen.set(*consumed);
            }
            // Its real node knows nothing of what is sent in its name here.
            true
        }));
        let (hostile, view) = (world.inc(1), world.views(2).last().unwrap().clone());
        let mut next = 1;
        let mut inject = |world: &mut World, messages: Block| {
            let record = GroupData::Batch {
                group: view.group,
                view: view.id,
                sender: 0,
                first: next,
                stable: next,
                ask: true,
                messages,
            };
            next += 1;
            world.inject(hostile, 2, record);
            let peer = &world.peers[&2];
            let memory = peer.groups.memory(peer.handle.unwrap()).unwrap();
            assert!(memory.held <= window + (1 << 16), "{memory:?} after {next}");
            next
        };
        inject(&mut world, Block::of(b"before"));
        for length in &flood {
            inject(&mut world, piece(Form::Piece, *length));
        }
        let dropped = inject(&mut world, piece(Form::LastPiece, 1));
        world.run(100);
        assert_eq!(world.texts(2), ["before"]);
        assert_eq!(consumed.get(), 1, "what comes before it was not read yet");
        world.consume(2);
        world.run(100);
        assert_eq!(consumed.get(), dropped, "{flood:?}");
        // Nothing waits: a place that is skipped is free at once.
        inject(&mut world, piece(Form::Piece, PIECE_BYTES));
        inject(&mut world, piece(Form::Piece, PIECE_BYTES));
        inject(&mut world, piece(Form::Piece, PIECE_BYTES));
        let dropped = inject(&mut world, piece(Form::LastPiece, 1));
        world.run(100);
        assert_eq!(consumed.get(), dropped);
        inject(&mut world, piece(Form::Piece, PIECE_BYTES));
        let end = inject(&mut world, piece(Form::LastPiece, 7));
        world.run(100);
        world.consume(2);
        world.run(100);
        assert_eq!(world.texts(2)[1].len(), PIECE_BYTES + 7, "the next one is whole");
        assert_eq!(consumed.get(), end);
    }
}

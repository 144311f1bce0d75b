//! Faults around objects: payloads beside the log (R22).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use antiphon_wire::Block;
use antiphon_wire::Incarnation;
use antiphon_wire::block::Form;
use antiphon_wire::group::GroupData;
use antiphon_wire::object::{CHUNK_BYTES, ChunkSpan, Digest, Hasher, MAX_SPANS, ObjectRecord};
use bytes::Bytes;

use super::large::long;
use super::world::{Id, Kind, World};
use crate::group::object::limits::window;
use crate::{GroupEvent, GroupOptions, Memory, Outcome, Profile, SendError};

const WINDOW: u32 = 64 << 10;
const LARGEST: u32 = 400_000;

/// Objects begin at a size that takes little time.
fn options(kind: Kind) -> GroupOptions {
    let options = kind.options().window_bytes(WINDOW);
    options.max_object_bytes(LARGEST).object_memory_bytes(LARGEST)
}

fn memory(world: &World, id: Id) -> Memory {
    let peer = &world.peers[&id];
    let memory = peer
        .groups
        .memory(peer.handle.expect("in the group"))
        .expect("known");
    assert!(memory.held <= memory.bound, "{id}: {memory:?}");
    memory
}

fn is_chunk(record: &GroupData) -> bool {
    matches!(record, GroupData::Chunk { .. })
}

fn is_record(record: &GroupData) -> bool {
    matches!(record, GroupData::Batch { messages, .. } if messages.form() == Form::Object)
}

#[test]
fn objects_arrive_whole_at_one_place_of_the_order_among_small_messages() {
    for kind in Kind::WITH_OBJECTS {
        let mut world = World::with_options(options(kind), 1).gather(&[1, 2, 3]);
        (world.loss, world.duplicates, world.jitter_ms) = (10, 10, 3);
        let mut sent = Vec::new();
        for (at, length) in [65_537, 60_000 * 3, 399_999, 120_001].into_iter().enumerate() {
            let text = long(&format!("{at}:"), length);
            world.send(1, &text).unwrap();
            world.send(1, &format!("small {at}")).unwrap();
            world.send(2, &format!("between {at}")).unwrap();
            world.run(2000);
            sent.push(text);
        }
        world.run(5000);
        for id in [1, 2, 3] {
            let texts = world.texts(id);
            let objects: Vec<_> = texts.iter().filter(|text| text.len() > 100).collect();
            assert!(
                objects.iter().copied().eq(&sent),
                "{kind:?} {id}: {} of 4",
                objects.len()
            );
            assert_eq!(texts.len(), 3 * sent.len());
            // What waits and what was taken are given back.
            assert!(
                memory(&world, id).held < WINDOW as usize * 4,
                "{:?}",
                memory(&world, id)
            );
        }
        world.check().unwrap();
    }
}

#[test]
fn a_small_message_does_not_wait_for_the_object_before_it() {
    for kind in Kind::WITH_OBJECTS {
        let mut world = World::with_options(options(kind), 2).gather(&[1, 2, 3]);
        world.drop_data = Some(Box::new(|_, to, record| to == 3 && is_chunk(record)));
        let object = long("object", 300_000);
        world.send(1, &object).unwrap();
        world.send(1, "small").unwrap();
        world.run(1000);
        for id in [1, 2, 3] {
            assert_eq!(
                world.texts(id),
                ["small"],
                "{kind:?}: no record before all hold it"
            );
        }
        world.drop_data = None;
        world.run(3000);
        for id in [1, 2, 3] {
            let got = world.texts(id) == ["small", &object];
            assert!(got, "{kind:?}: {id} has {}", world.texts(id).len());
        }
        world.check().unwrap();
    }
}

#[test]
fn nobody_delivers_what_a_sender_that_died_had_not_recorded_and_all_give_the_memory_back() {
    for kind in Kind::WITH_OBJECTS {
        let mut world = World::with_options(options(kind), 3).gather(&[1, 2, 3]);
        world.drop_data = Some(Box::new(|from, to, record| {
            from == 2 && to == 3 && matches!(record, GroupData::Chunk { index: 4, .. })
        }));
        world.send(2, &long("torn", 390_000)).unwrap();
        world.run(1000);
        assert!(memory(&world, 1).held >= 390_000, "it is whole at one");
        assert!(
            memory(&world, 3).held >= 390_000,
            "and has its buffer at the other"
        );
        world.crash(2);
        world.primary(&[1, 3]);
        world.run(1000);
        world.drop_data = None;
        for id in [1, 3] {
            assert!(memory(&world, id).held < 1 << 16, "{:?}", memory(&world, id));
        }
        let whole = long("whole", 390_000);
        world.send(3, &whole).unwrap();
        world.run(2000);
        for id in [1, 3] {
            assert_eq!(world.texts(id), [&*whole], "{kind:?} {id}");
        }
        world.check().unwrap();
    }
}

#[test]
fn all_survivors_deliver_an_object_whose_record_one_of_them_has_of_a_dead_sender() {
    for kind in Kind::WITH_OBJECTS {
        let mut world = World::with_options(options(kind), 4).gather(&[1, 2, 3, 4]);
        world.drop_data = Some(Box::new(|from, to, record| {
            from == 2 && to != 3 && is_record(record)
        }));
        let object = long("object", 200_000);
        world.send(2, &object).unwrap();
        world.run(300);
        world.crash(2);
        world.primary(&[1, 3, 4]);
        world.run(2000);
        // In total order a record without a position is dropped by all.
        let texts = world.texts(1);
        assert!(kind != Kind::Fifo || texts == [object], "{kind:?}");
        for id in [3, 4] {
            assert_eq!(world.texts(id), texts, "{kind:?} {id}");
            assert!(memory(&world, id).held < 1 << 16, "{:?}", memory(&world, id));
        }
        world.check().unwrap();
    }
}

/// Counts the chunks on their way to each member.
fn count_chunks(world: &mut World) -> Rc<RefCell<BTreeMap<(Id, u32), u32>>> {
    let counts: Rc<RefCell<BTreeMap<(Id, u32), u32>>> = Rc::default();
    let seen = counts.clone();
    world.drop_data = Some(Box::new(move |_, to, record| {
        if let GroupData::Chunk { index, .. } = record {
            *seen.borrow_mut().entry((to, *index)).or_default() += 1;
        }
        false
    }));
    counts
}

#[test]
fn a_transfer_goes_on_where_it_was_when_views_change_and_a_joiner_gets_all_of_it() {
    for kind in Kind::WITH_OBJECTS {
        for wait in 1..8 {
            let mut world = World::with_options(
                options(kind)
                    .max_object_bytes(1 << 24)
                    .object_memory_bytes(1 << 24),
                5,
            )
            .gather(&[1, 2, 3, 4]);
            let counts = count_chunks(&mut world);
            let object = long("object", 150 * CHUNK_BYTES);
            world.start(5);
            world.send(2, &object).unwrap();
            world.run_micros(wait * 1500);
            world.crash(4);
            world.primary(&[1, 2, 3, 5]);
            world.run_micros(wait * 300);
            world.join(5);
            world.run(3000);
            for id in [1, 2, 3, 5] {
                let got = world.texts(id) == [object.clone()];
                assert!(got, "{kind:?} {wait}: {id} has {}", world.texts(id).len());
            }
            for ((to, index), count) in counts.borrow().iter().filter(|((to, _), _)| *to != 4) {
                assert_eq!(*count, 1, "{kind:?} {wait}: chunk {index} to {to}");
            }
            assert_eq!(counts.borrow().keys().filter(|(to, _)| *to == 5).count(), 150);
            world.check().unwrap();
        }
    }
}

#[test]
fn one_that_left_and_came_back_gets_the_object_anew() {
    for kind in Kind::WITH_OBJECTS {
        let mut world = World::with_options(options(kind), 6).gather(&[1, 2, 3]);
        // 2 has all of it, 3 the most of it; the record waits for 3.
        world.drop_data = Some(Box::new(|_, to, record| {
            to == 3 && matches!(record, GroupData::Chunk { index: 3, .. })
        }));
        let object = long("object", 300_000);
        world.send(1, &object).unwrap();
        world.run(500);
        world.leave(2);
        world.run(500);
        world.join(2);
        world.run(500);
        assert!(world.texts(1).is_empty(), "{kind:?}: the record waits for 3");
        world.drop_data = None;
        world.run(3000);
        for id in [1, 2, 3] {
            let got = world.texts(id) == [&*object];
            assert!(got, "{kind:?} {id}");
        }
        world.check().unwrap();
    }
}

#[test]
fn a_sender_that_leaves_sends_its_object_first_and_after_a_while_leaves_without_it() {
    for kind in Kind::WITH_OBJECTS {
        for lost in [false, true] {
            let mut world = World::with_options(options(kind), 7).gather(&[1, 2, 3]);
            world.drop_data = Some(Box::new(move |_, to, record| lost && to == 3 && is_chunk(record)));
            let object = long("object", 300_000);
            let ticket = world.send(1, &object).unwrap();
            world.leave(1);
            world.run(6000);
            assert!(world.events(1).contains(&GroupEvent::Left), "{kind:?} {lost}");
            let receipt = GroupEvent::Receipts {
                first: ticket,
                count: 1,
                outcome: Outcome::NotDelivered,
            };
            assert_eq!(world.events(1).contains(&receipt), lost, "{kind:?}");
            for id in [2, 3] {
                assert_eq!(world.texts(id).len(), usize::from(!lost), "{kind:?} {id}");
                assert!(memory(&world, id).held < 1 << 16, "{:?}", memory(&world, id));
            }
            world.check().unwrap();
        }
    }
}

#[test]
fn objects_of_all_members_at_once_get_through_where_there_is_room_for_one() {
    for kind in Kind::WITH_OBJECTS {
        let mut world = World::with_options(options(kind), 8).gather(&[1, 2, 3, 4]);
        (world.loss, world.jitter_ms) = (5, 5);
        let mut sent = Vec::new();
        for round in 0..3 {
            for id in [1, 2, 3, 4] {
                let text = long(&format!("{round} of {id}:"), 390_000);
                let accepted = world.send(id, &text);
                assert_eq!(
                    accepted.is_err(),
                    round > 0,
                    "{kind:?}: the first one has to go first"
                );
                sent.extend(accepted.map(|_| text));
            }
        }
        for _ in 0..400 {
            world.run(50);
            (1..=4).for_each(|id| assert!(memory(&world, id).objects <= 2 * LARGEST as usize));
        }
        for id in [1, 2, 3, 4] {
            let mut texts = world.texts(id);
            texts.sort();
            assert!(texts == sent, "{kind:?} {id}: {} of {}", texts.len(), sent.len());
            assert!(world.events(id).contains(&GroupEvent::Writable));
        }
        world.check().unwrap();
    }
}

#[test]
fn what_an_application_does_not_take_is_all_that_a_member_holds() {
    let mut world = World::with_options(options(Kind::Fifo), 9).gather(&[1, 2, 3]);
    world.peers.get_mut(&3).unwrap().consumes = false;
    let text = |at: usize| long(&format!("{at}:"), 300_000);
    let mut accepted = 0;
    for _ in 0..100 {
        accepted += usize::from(world.send(1, &text(accepted)).is_ok());
        world.run(50);
        memory(&world, 3);
    }
    // One object that was delivered, and one that its sender keeps.
    assert_eq!(accepted, 2);
    assert_eq!(world.texts(3).len(), 1);
    world.send(1, "small").unwrap();
    world.run(100);
    assert_eq!(world.texts(3), [text(0), "small".to_owned()], "small ones pass");
    world.peers.get_mut(&3).unwrap().consumes = true;
    world.consume(3);
    world.run(2000);
    assert_eq!(world.texts(3), [text(0), "small".to_owned(), text(1)]);
    world.check().unwrap();
}

#[test]
fn a_sender_is_told_how_far_an_object_is_and_at_most_a_window_of_it_is_on_its_way() {
    let largest = 32 << 20;
    let options = options(Kind::Fifo)
        .max_object_bytes(largest)
        .object_memory_bytes(largest);
    let mut world = World::with_options(options, 10).gather(&[1, 2, 3]);
    let on_their_way = Rc::new(Cell::new(0));
    let (bytes, most) = (on_their_way.clone(), window(&Profile::lan()));
    let mut asked = BTreeMap::new();
    world.drop_data = Some(Box::new(move |from, _, record| {
        match record {
            GroupData::Chunk { .. } => bytes.set(bytes.get() + CHUNK_BYTES),
            GroupData::Want { until, .. } => {
                let before = asked.insert(from, *until).unwrap_or(0);
                bytes.set(
                    bytes
                        .get()
                        .saturating_sub((until - before) as usize * CHUNK_BYTES),
                );
            }
            _ => {}
        }
        assert!(bytes.get() <= most + CHUNK_BYTES, "{}", bytes.get());
        false
    }));
    let object = long("object", 300 * CHUNK_BYTES);
    let ticket = world.send(1, &object).unwrap();
    world.run(3000);
    assert_eq!(world.texts(2).len(), 1);
    let progress = |event: &GroupEvent| match event {
        GroupEvent::Progress {
            ticket: of,
            bytes,
            length,
        } => {
            assert_eq!((*of, *length), (ticket, object.len() as u64));
            Some(*bytes)
        }
        _ => None,
    };
    let told: Vec<u64> = world.events(1).iter().filter_map(progress).collect();
    assert!(
        told.is_sorted() && told.len() >= 10 && told.len() <= 16,
        "{told:?}"
    );
    assert_eq!(told.last(), Some(&(object.len() as u64)));
    assert!(world.events(2).iter().all(|event| progress(event).is_none()));
}

#[test]
fn a_payload_beyond_the_limit_is_refused_with_the_limit() {
    let mut world = World::with_options(options(Kind::Fifo), 11).gather(&[1, 2]);
    let limit = LARGEST as usize;
    let refused = world.send(1, &long("x", limit + 1));
    assert_eq!(refused, Err(SendError::TooLarge { limit }));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("400000 bytes") && text.contains("max_object_bytes"),
        "{text}"
    );
    world.send(1, &long("x", limit)).unwrap();
    world.run(1000);
    assert_eq!(world.texts(2)[0].len(), limit);
}

#[test]
fn a_copy_that_is_not_what_was_sent_is_fetched_again_and_a_late_complaint_changes_nothing() {
    let mut world = World::with_options(options(Kind::Fifo), 12).gather(&[1, 2, 3]);
    // 3 is slow, so that 2's word counts while the record waits.
    world.drop_data = Some(Box::new(|_, to, record| to == 3 && is_chunk(record)));
    let object = long("object", 200_000);
    world.send(1, &object).unwrap();
    world.run(200);
    let view = world.views(2).last().unwrap().clone();
    let (one, two) = (world.inc(1), world.inc(2));
    let held = |digest| GroupData::Held {
        group: view.group,
        view: view.id,
        object: 1,
        digest: Digest(digest),
    };
    world.inject(two, 1, held(7));
    world.run(200);
    let complaint = GroupData::Offer {
        group: view.group,
        view: view.id,
        object: 1,
        length: 200_000,
        wrong: Some(Digest(7)),
    };
    world.inject(one, 2, complaint);
    world.drop_data = None;
    world.run(2000);
    for id in [1, 2, 3] {
        assert!(world.texts(id) == [object.clone()], "{id}");
    }
}

/// What a member gets from another that is no node of ours.
struct Hostile {
    who: Incarnation,
    view: std::sync::Arc<crate::GroupView>,
}

impl Hostile {
    fn of(world: &World) -> Self {
        Self {
            who: world.inc(1),
            view: world.views(2).last().unwrap().clone(),
        }
    }

    fn offers(&self, world: &mut World, object: u64, length: u32) {
        let (group, view) = (self.view.group, self.view.id);
        let offer = GroupData::Offer {
            group,
            view,
            object,
            length,
            wrong: None,
        };
        world.inject(self.who, 2, offer);
    }

    fn chunk(&self, world: &mut World, object: u64, index: u32, bytes: Vec<u8>) {
        let chunk = GroupData::Chunk {
            group: self.view.group,
            object,
            index,
            bytes: bytes.into(),
        };
        world.inject(self.who, 2, chunk);
    }

    fn records(&self, world: &mut World, first: u64, object: u64, payload: &[u8]) {
        let mut hasher = Hasher::default();
        hasher.update(payload);
        let record = ObjectRecord {
            object,
            length: payload.len() as u32,
            digest: hasher.digest(),
        };
        let batch = GroupData::Batch {
            group: self.view.group,
            view: self.view.id,
            sender: 0,
            first,
            stable: first,
            ask: true,
            messages: Block::object(&record),
        };
        world.inject(self.who, 2, batch);
    }
}

#[test]
fn whatever_a_hostile_member_announces_takes_no_more_than_was_agreed() {
    let mut world = World::with_options(options(Kind::Fifo), 13).gather(&[1, 2]);
    world.drop_data = Some(Box::new(|_, to, _| to == 1));
    let hostile = Hostile::of(&world);
    let free = memory(&world, 2).held;
    for length in [0, LARGEST + 1, 1 << 30, u32::MAX] {
        hostile.offers(&mut world, 1, length);
        assert_eq!(memory(&world, 2).held, free, "{length}");
    }
    // Many of the largest: room for one.
    for object in 1..1000 {
        hostile.offers(&mut world, object, LARGEST);
    }
    assert_eq!(memory(&world, 2).held, free + LARGEST as usize);
    hostile.offers(&mut world, 1, 5);
    // Chunks of a wrong length, of no place, of objects that no member offered, and the right one twice.
    let size = LARGEST as usize - 6 * CHUNK_BYTES;
    for (object, index, length) in [
        (1, 0, 0),
        (1, 0, 1),
        (1, 0, CHUNK_BYTES - 1),
        (1, 0, CHUNK_BYTES + 1),
        (1, 7, 1),
        (1, u32::MAX, CHUNK_BYTES),
        (1, 6, CHUNK_BYTES),
        (2, 0, CHUNK_BYTES),
        (u64::MAX, 0, CHUNK_BYTES),
    ] {
        hostile.chunk(&mut world, object, index, vec![1; length]);
    }
    for index in (0..7).rev().chain(0..7) {
        let length = if index == 6 { size } else { CHUNK_BYTES };
        hostile.chunk(&mut world, 1, index, vec![index as u8; length]);
        assert_eq!(memory(&world, 2).held, free + LARGEST as usize);
    }
    world.run(1000);
    let whole: Vec<u8> = (0..LARGEST as usize).map(|at| (at / CHUNK_BYTES) as u8).collect();
    // Records of what is not here, of another length, of other bytes: nothing is delivered, and the next one
    // is.
    hostile.records(&mut world, 1, 77, b"nothing");
    hostile.records(&mut world, 2, 1, &whole[1..]);
    assert_eq!(world.texts(2), [""; 0]);
    let left = memory(&world, 2).held - free;
    assert!(left < 1024, "what its record does not name is over: {left}");
    hostile.offers(&mut world, 1, LARGEST);
    hostile.offers(&mut world, 78, LARGEST);
    for index in 0..7 {
        let range = antiphon_wire::object::chunk_range(LARGEST, index);
        hostile.chunk(&mut world, 78, index, whole[range].to_vec());
    }
    hostile.records(&mut world, 3, 78, &whole);
    assert_eq!(world.messages(2).len(), 1);
    assert_eq!(world.messages(2)[0].payload, Bytes::from(whole));
    world.run(1000);
    assert!(memory(&world, 2).held < free + 4096);
}

#[test]
fn many_tiny_objects_of_a_hostile_member_are_few() {
    let mut world = World::with_options(options(Kind::Fifo), 14).gather(&[1, 2]);
    world.drop_data = Some(Box::new(|_, to, _| to == 1));
    let hostile = Hostile::of(&world);
    let free = memory(&world, 2).held;
    for object in 1..10_000 {
        hostile.offers(&mut world, object, 1);
    }
    assert!(memory(&world, 2).held <= free + 64, "{:?}", memory(&world, 2));
}

#[test]
fn whatever_a_hostile_member_wants_it_gets_chunks_of_what_there_is() {
    let mut world = World::with_options(options(Kind::Fifo), 15).gather(&[1, 2]);
    world.drop_data = Some(Box::new(|from, _, record| {
        from == 2 && !matches!(record, GroupData::Ack { .. })
    }));
    let counts: Rc<Cell<usize>> = Rc::default();
    world.send(1, &long("object", 200_000)).unwrap();
    world.run(10);
    let (two, view) = (world.inc(2), world.views(2).last().unwrap().clone());
    let seen = counts.clone();
    world.drop_data = Some(Box::new(move |_, _, record| {
        if let GroupData::Chunk { index, bytes, .. } = record {
            assert_eq!(
                bytes.len(),
                antiphon_wire::object::chunk_range(200_000, *index).len()
            );
            seen.set(seen.get() + 1);
        }
        true
    }));
    let want = |object, next, until, again| GroupData::Want {
        group: view.group,
        view: view.id,
        object,
        next,
        until,
        again,
    };
    let span = |first, end| ChunkSpan { first, end };
    for record in [
        want(1, 5, 5, vec![]),
        want(1, 0, u32::MAX, vec![]),
        want(1, u32::MAX, 4, vec![]),
        want(1, 0, 4, vec![span(3, 3)]),
        want(1, 0, 4, vec![span(0, u32::MAX)]),
        want(1, 0, 4, vec![span(0, 1); MAX_SPANS + 1]),
        want(9, 0, 4, vec![]),
    ] {
        world.inject(two, 1, record);
        assert_eq!(counts.get(), 0);
    }
    world.inject(two, 1, want(1, 0, 4, vec![]));
    assert_eq!(counts.get(), 4, "what it asked for");
    world.inject(two, 1, want(1, 0, 4, vec![span(0, 4); MAX_SPANS]));
    assert_eq!(counts.get(), 4, "nothing is lost more than once");
    world.inject(two, 1, want(1, 1, 4, vec![span(0, 2), span(3, 4)]));
    assert_eq!(counts.get(), 6, "what was lost");
}

//! Stories of what one member tells one other.

use antiphon_wire::group::GroupData;
use antiphon_wire::{Block, BlockBuilder, GroupViewId, Incarnation};

use super::world::{Id, Kind, World};
use crate::group::direct::{MAX_TELL_BYTES, TELL_CREDIT_BYTES};
use crate::{GroupEvent, Order, Parting, TellError, TellOutcome, Ticket};

impl World {
    pub(super) fn tell(&mut self, from: Id, to: Id, payload: &[u8]) -> Result<Ticket, TellError> {
        let (now, to) = (self.now, self.inc(to));
        let peer = self.peers.get_mut(&from).unwrap();
        let handle = peer.handle.ok_or(TellError::NoSuchGroup)?;
        let told = peer.groups.tell(now, handle, to, payload);
        // Performs what follows.
        self.consume(from);
        told
    }

    /// What a member was told by another one: in which view, from which number on, what.
    fn told(&self, to: Id, from: Id) -> Vec<(GroupViewId, u64, String)> {
        let from = self.inc(from);
        let events = self.events(to).into_iter();
        let told = events.filter_map(|event| match event {
            GroupEvent::Told(messages) if messages.sender == from => Some(messages),
            _ => None,
        });
        let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
        told.flatten()
            .map(|message| (message.view, message.seq, text(&message.payload)))
            .collect()
    }

    fn told_texts(&self, to: Id, from: Id) -> Vec<String> {
        self.told(to, from).into_iter().map(|(_, _, text)| text).collect()
    }

    /// What a member was told of each of its messages for another one, by ticket.
    fn fates(&self, from: Id, receiver: Incarnation) -> Vec<(u64, TellOutcome)> {
        let events = self.events(from).into_iter();
        let receipts = events.filter_map(|event| match event {
            GroupEvent::TellReceipts {
                to,
                first,
                count,
                outcome,
            } if to == receiver => Some((first.0..first.0 + count).map(move |at| (at, outcome.clone()))),
            _ => None,
        });
        receipts.flatten().collect()
    }

    /// From here on, what one member says about direct messages to another one is lost.
    fn lose_tells(&mut self, from: Id, to: Id) {
        self.drop_data = Some(Box::new(move |sender, receiver, record| {
            let direct = matches!(record, GroupData::Tell { .. } | GroupData::TellAck { .. });
            (sender, receiver) == (from, to) && direct
        }));
    }

    pub(super) fn take_told(&mut self, to: Id, from: Id, messages: u64) {
        let (now, from) = (self.now, self.inc(from));
        let peer = self.peers.get_mut(&to).unwrap();
        let Some(handle) = peer.handle else { return };
        peer.groups.told_consumed(now, handle, from, messages);
        self.consume(to);
    }
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("word {number}")).collect()
}

#[test]
fn what_is_told_comes_once_and_in_order_whatever_the_network_does() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 5, &[1, 2, 3]);
        (world.loss, world.duplicates, world.jitter_ms) = (20, 20, 10);
        for (number, text) in texts(100).iter().enumerate() {
            world.tell(1, 2, text.as_bytes()).unwrap();
            world.tell(2, 1, text.as_bytes()).unwrap();
            world.run(number as u64 % 3);
        }
        world.run(3000);
        for (from, to) in [(1, 2), (2, 1)] {
            assert_eq!(world.told_texts(to, from), texts(100), "{order:?}");
            let fates = world.fates(from, world.inc(to));
            let all = (1..=100).map(|ticket| (ticket, TellOutcome::Delivered));
            assert_eq!(fates, all.collect::<Vec<_>>());
        }
        assert!(world.told_texts(3, 1).is_empty());
    }
}

#[test]
fn a_receiver_that_does_not_read_stops_what_is_told_to_it_and_nothing_else() {
    let mut world = World::with_group(Order::Total, 5, &[1, 2, 3]);
    let payload = vec![7; 10_000];
    let mut accepted = 0;
    while world.tell(1, 2, &payload).is_ok() {
        accepted += 1;
        world.run(5);
    }
    assert_eq!(accepted, TELL_CREDIT_BYTES / 10_066);
    assert_eq!(world.tell(1, 2, &payload), Err(TellError::Full));
    world.run(2000);
    world.tell(1, 3, b"you").unwrap();
    world.send(2, "to all").unwrap();
    world.run(100);
    assert_eq!(world.told_texts(3, 1), ["you"]);
    assert_eq!(world.texts(1), ["to all"]);
    let writable = GroupEvent::TellWritable { to: world.inc(2) };
    assert!(!world.events(1).contains(&writable));
    // What says that it reads again is lost, and asked for.
    world.lose_tells(2, 1);
    world.take_told(2, 1, accepted as u64);
    world.run(200);
    assert!(!world.events(1).contains(&writable));
    world.drop_data = None;
    world.run(3000);
    assert!(world.events(1).contains(&writable));
    world.tell(1, 2, &payload).unwrap();
    world.run(100);
    assert_eq!(world.told(2, 1).len(), accepted + 1);
}

#[test]
fn what_was_not_taken_in_a_view_is_sent_again_in_the_next_and_is_a_message_of_that() {
    let mut world = World::with_group(Order::Fifo, 5, &[1, 2, 3]);
    let before = world.views(2).last().unwrap().id;
    world.tell(1, 2, b"early").unwrap();
    world.run(20);
    world.lose_tells(1, 2);
    world.tell(1, 2, b"late").unwrap();
    world.run(20);
    world.crash(3);
    world.primary(&[1, 2]);
    // In the flush it waits.
    world.tell(1, 2, b"later").unwrap();
    world.run(50);
    world.drop_data = None;
    world.run(1000);
    let after = world.views(2).last().unwrap().id;
    assert!(after > before);
    let told = [(before, 1, "early"), (after, 2, "late"), (after, 3, "later")];
    let told = told.map(|(view, number, text)| (view, number, text.to_owned()));
    assert_eq!(world.told(2, 1), told);
    let fates = world.fates(1, world.inc(2));
    assert_eq!(fates, [1, 2, 3].map(|ticket| (ticket, TellOutcome::Delivered)));
}

#[test]
fn of_a_receiver_that_leaves_its_sender_learns_what_it_took_and_what_not() {
    for (lost, outcome) in [
        // What is told does not come; or the answer does not.
        ((1, 3), TellOutcome::NotDelivered(Parting::Left)),
        ((3, 1), TellOutcome::Delivered),
    ] {
        let mut world = World::with_group(Order::Total, 5, &[1, 2, 3]);
        let leaver = world.inc(3);
        world.lose_tells(lost.0, lost.1);
        world.tell(1, 3, b"goodbye").unwrap();
        world.run(10);
        world.leave(3);
        world.run(1000);
        assert!(world.events(3).contains(&GroupEvent::Left));
        assert_eq!(world.fates(1, leaver), [(1, outcome.clone())]);
        let heard = world.told_texts(3, 1).len();
        assert_eq!(heard == 1, outcome == TellOutcome::Delivered);
        // It comes back, and both begin anew: no ticket is given twice.
        world.drop_data = None;
        world.join(3);
        world.run(1000);
        assert_eq!(world.tell(1, 3, b"hello again"), Ok(Ticket(2)));
        world.run(100);
        assert_eq!(world.told(3, 1).last().unwrap().1, 1);
    }
}

#[test]
fn of_a_receiver_that_dies_its_sender_learns_what_is_known() {
    let mut world = World::with_group(Order::Total, 5, &[1, 2, 3]);
    let dead = world.inc(3);
    world.tell(1, 3, b"acknowledged").unwrap();
    world.run(100);
    world.lose_tells(3, 1);
    world.tell(1, 3, b"taken").unwrap();
    world.run(10);
    world.crash(3);
    world.primary(&[1, 2]);
    world.tell(1, 3, b"never sent").unwrap();
    world.run(1000);
    let crashed = Parting::Crashed;
    assert_eq!(
        world.fates(1, dead),
        [
            (1, TellOutcome::Delivered),
            (2, TellOutcome::Unknown(crashed.clone())),
            (3, TellOutcome::NotDelivered(crashed)),
        ]
    );
    let now = world.now;
    let peer = world.peers.get_mut(&1).unwrap();
    let told = peer
        .groups
        .tell(now, peer.handle.unwrap(), dead, b"anybody there?");
    assert_eq!(told, Err(TellError::NoSuchMember));
}

#[test]
fn a_member_that_loses_its_membership_learns_what_became_of_what_it_told() {
    let mut world = World::with_group(Order::Total, 5, &[1, 2, 3]);
    let to = world.inc(2);
    world.lose_tells(1, 2);
    world.tell(1, 2, b"lost").unwrap();
    world.run(10);
    world.non_primary(&[1]);
    assert_eq!(world.tell(1, 2, b"refused"), Err(TellError::NotPrimary));
    world.reincarnate(1, "it was expelled");
    assert_eq!(world.fates(1, to), [(1, TellOutcome::Unknown(Parting::Ended))]);
}

#[test]
fn records_that_are_for_others_or_of_another_view_or_make_no_sense_change_nothing() {
    let mut world = World::with_group(Order::Total, 5, &[1, 2, 3]);
    let view = world.views(2).last().unwrap().clone();
    let (group, id, from) = (view.group, view.id, world.inc(1));
    let tell = |to: Incarnation, view: GroupViewId, first: u64, messages: Block| GroupData::Tell {
        group,
        view,
        to,
        first,
        messages,
    };
    let (me, other) = (world.inc(2), world.inc(3));
    let earlier = GroupViewId { k: id.k - 1, ..id };
    let mut three = BlockBuilder::default();
    (0..3).for_each(|_| three.push(b"no number"));
    let three = three.finish();
    for record in [
        tell(other, id, 1, Block::of(b"astray")),
        tell(me, earlier, 1, Block::of(b"old")),
        tell(me, id, 0, three),
        tell(me, id, u64::MAX, Block::of(b"no number either")),
        tell(me, id, 1, Block::nulls(9)),
        tell(me, id, 1 << 40, Block::of(b"far ahead")),
    ] {
        world.inject(from, 2, record);
    }
    for (heard, consumed) in [(u64::MAX, 1), (5, 1), (1, 5), (1, 0)] {
        let ack = GroupData::TellAck {
            group,
            view: id,
            to: me,
            heard,
            until: u64::MAX,
            consumed,
        };
        world.tell(2, 1, b"word").unwrap();
        world.inject(from, 2, ack);
    }
    // Numbers that no message has, nulls, and each of the acknowledgements.
    assert_eq!(world.peers[&2].groups.nonsense(), 3 + 4);
    world.run(2000);
    assert!(world.told(2, 1).is_empty());
    assert_eq!(world.told_texts(1, 2), ["word"; 4]);
    assert_eq!(world.fates(2, from).len(), 4);
    let limit = MAX_TELL_BYTES;
    let large = vec![0; limit + 1];
    assert_eq!(world.tell(1, 2, &large), Err(TellError::TooLarge { limit }));
    world.tell(1, 2, &large[1..]).unwrap();
    world.run(100);
    assert_eq!(world.told(2, 1).len(), 1);
}

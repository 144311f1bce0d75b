//! What two members ask of each other for repair, by a link that takes its time.

use std::collections::VecDeque;
use std::time::Duration;

use antiphon_wire::group::GroupData;
use antiphon_wire::{Block, GroupId, GroupViewId, Incarnation, ViewId};

use super::world::Kind;
use crate::group::Effect;
use crate::group::reached::Reached;
use crate::group::stream::{BatchHeader, Beginning, Stream};
use crate::{Order, Profile, Time};

const STEP: Duration = Duration::from_millis(10);

/// A sender, and the receiver beside it.
fn two() -> [Stream; 2] {
    streams(2)
}

/// The first so many members of a view of as many.
fn streams<const N: usize>(count: usize) -> [Stream; N] {
    std::array::from_fn(|me| {
        let node = ViewId { epoch: 1, counter: 1 };
        let id = GroupViewId {
            node,
            number: 1,
            k: 1,
        };
        let members = (1..=count as u128).map(Incarnation).collect();
        let (start, credit) = (&vec![1; count][..], &vec![1; count][..]);
        let beginning = Beginning { me, start, credit };
        let consumed = vec![Reached::new(1); count];
        let options = Kind::from(Order::Fifo).options();
        Stream::new(GroupId(1), id, members, beginning, consumed, options)
    })
}

fn records(out: &mut VecDeque<Effect>) -> Vec<GroupData> {
    let records = out.drain(..).flat_map(|effect| match effect {
        Effect::Data { records, .. } => records,
        _ => Vec::new(),
    });
    records.collect()
}

/// All that was sent was lost, and the link carries so much in each step. Returns how much was answered, and
/// how long it took.
fn repaired(sent: usize, a_step: usize) -> (usize, Duration) {
    let profile = Profile::lan();
    let [mut sender, mut receiver] = two();
    let (mut out, mut now) = (VecDeque::new(), Time::from_micros(1));
    let block = Block::of(&[b'x'; 30_000]);
    for _ in 0..sent {
        sender.append(block.clone());
    }
    sender.pack(now, &profile, 0, &mut out);
    out.clear();
    let end = 1 + sent as u64;
    let header = |first| BatchHeader {
        sender: 0,
        first,
        stable: 1,
        ask: false,
    };
    receiver.batch(now, &profile, header(end), Block::default(), &mut out);
    let mut link: VecDeque<(u64, Block)> = VecDeque::new();
    let (mut answered, mut carried, began) = (0, 0, now);
    while receiver.logs[0].next() < end {
        for asked in records(&mut out) {
            let GroupData::Nak { first, end, .. } = asked else {
                continue;
            };
            let mut answer = VecDeque::new();
            sender.nak(1, 0, first, end, &mut answer);
            for record in records(&mut answer) {
                if let GroupData::Batch { first, messages, .. } = record {
                    answered += messages.bytes().len();
                    link.push_back((first, messages));
                }
            }
        }
        now = now + STEP;
        carried += a_step;
        while let Some((_, messages)) = link.front()
            && messages.bytes().len() <= carried
            && let Some((first, messages)) = link.pop_front()
        {
            carried -= messages.bytes().len();
            receiver.batch(now, &profile, header(first), messages, &mut out);
        }
        if link.is_empty() {
            carried = 0;
        }
        receiver.timeout(now, &profile, &mut out);
        assert!(
            now.since(began) < Duration::from_secs(120),
            "it makes no progress"
        );
    }
    (answered, now.since(began))
}

#[test]
fn a_slow_link_carries_hardly_more_than_was_lost() {
    // 10, 1 and 0.25 Mbit/s. On the last one a record takes longer than the longest silence.
    for (a_step, times) in [(12_500, 2), (1_250, 2), (312, 3)] {
        let (answered, took) = repaired(30, a_step);
        let lost = 30 * 30_000;
        assert!(answered < lost * times, "{answered} bytes for {lost}");
        let needed = STEP * (lost / a_step) as u32;
        assert!(
            took < needed * times as u32,
            "{took:?}, of which the link needs {needed:?}"
        );
    }
}

#[test]
fn a_fast_link_does_not_wait_between_the_parts_of_a_long_answer() {
    let (answered, took) = repaired(30, 10 << 20);
    assert!(answered < 31 * 30_000, "{answered}: nothing twice");
    assert!(took <= STEP * 8, "{took:?}");
}

#[test]
fn a_mark_says_nothing_of_what_may_be_under_way() {
    let profile = Profile::lan();
    let [mut sender, _] = two();
    let (mut out, mut now) = (VecDeque::new(), Time::from_micros(1));
    for _ in 0..4 {
        sender.append(Block::of(b"one"));
    }
    sender.pack(now, &profile, 0, &mut out);
    out.clear();
    for held in [2, 3] {
        sender.ack(now, &profile, 1, held, held, 0);
        now = now + profile.retransmit + STEP;
    }
    sender.timeout(now, &profile, &mut out);
    let marks: Vec<u64> = records(&mut out)
        .into_iter()
        .filter_map(|record| match record {
            GroupData::Batch { first, .. } => Some(first),
            _ => None,
        })
        .collect();
    assert_eq!(marks, [3]);
}

#[test]
fn a_member_that_lost_the_end_is_shown_it_although_another_one_reads_on() {
    let profile = Profile::lan();
    let (mut out, mut now) = (VecDeque::new(), Time::from_micros(1));
    let [mut sender] = streams(3);
    for _ in 0..100 {
        sender.append(Block::of(b"one"));
    }
    sender.pack(now, &profile, 0, &mut out);
    out.clear();
    // The third one lacks the last.
    sender.ack(now, &profile, 2, 100, 1, 0);
    let mut shown = 0;
    for consumed in 2..52 {
        now = now + STEP;
        sender.ack(now, &profile, 1, 101, consumed, 0);
        // It reads what it has.
        sender.ack(now, &profile, 2, 100, consumed, 0);
        sender.timeout(now, &profile, &mut out);
        let records = records(&mut out);
        let is_end = |record: &&GroupData| {
            matches!(
                record,
                GroupData::Batch {
                    first: 101,
                    ask: true,
                    ..
                }
            )
        };
        shown += records.iter().filter(is_end).count();
    }
    // Each time after what it would have taken to ask for it.
    assert!((1..=5).contains(&shown), "{shown}");
}

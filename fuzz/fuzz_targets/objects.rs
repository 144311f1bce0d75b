//! A member of a group that says anything about objects to another: offers, chunks, wishes and records of any
//! size and place. It does not panic, and holds no more than was agreed.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::explore::{Effect, Groups};
use antiphon_core::wire::block::Block;
use antiphon_core::wire::group::GroupData;
use antiphon_core::wire::object::{CHUNK_BYTES, Digest, ObjectRecord, ChunkSpan};
use antiphon_core::wire::{GroupId, GroupViewId, Incarnation, Lineage, Member, NodeView, NodeViewId, ViewId};
use antiphon_core::{GroupEvent, GroupHandle, GroupOptions, Order, Profile, Ticket, Time};
use libfuzzer_sys::fuzz_target;

const VIEW: ViewId = ViewId { epoch: 1, counter: 1 };
const LARGEST: u32 = 200_000;

struct Peer {
    me: Incarnation,
    groups: Groups,
    handle: GroupHandle,
    view: Option<(GroupId, GroupViewId, usize)>,
}

fn node_view() -> Arc<NodeView> {
    let members = (1..=2u16).map(|number| Member {
        incarnation: Incarnation(number.into()),
        name: format!("n{number}"),
        addr: ([127, 0, 0, number as u8], 7400).into(),
        metadata: BTreeMap::new(),
        weight: 1,
        further: Vec::new(),
    });
    Arc::new(NodeView {
        lineage: Lineage(1),
        id: NodeViewId::Primary { id: VIEW },
        number: 100,
        members: members.collect(),
        joined: Vec::new(),
        departed: Vec::new(),
        merged: Vec::new(),
        wire_level: 1,
    })
}

/// Performs what both want done until nothing is; what the hostile one says to the other is not heard when
/// `mute`.
fn settle(peers: &mut [Peer; 2], now: Time, mute: bool) {
    loop {
        let mut any = false;
        for from in 0..2 {
            while let Some(effect) = peers[from].groups.poll_effect() {
                any = true;
                let sender = peers[from].me;
                let deaf = mute && from == 1;
                let to = 1 - from;
                match effect {
                    Effect::Send { message, .. } if !deaf => peers[to].groups.handle_message(now, sender, VIEW, message),
                    Effect::Data { records, .. } if !deaf => {
                        records.into_iter().for_each(|record| peers[to].groups.handle_data(now, sender, record));
                    }
                    Effect::Event(_, GroupEvent::View(view)) => {
                        peers[from].view = Some((view.group, view.id, view.members.len()));
                    }
                    Effect::Event(handle, GroupEvent::Messages(messages)) => {
                        peers[from].groups.consumed(now, handle, messages.len());
                    }
                    _ => {}
                }
            }
        }
        if !any {
            return;
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut now = Time::from_micros(1_000_000);
    let options = GroupOptions::default()
        .order(Order::Fifo)
        .window_bytes(64 << 10)
        .max_object_bytes(LARGEST)
        .object_memory_bytes(LARGEST);
    let mut peers = [1u128, 2].map(|number| {
        let mut groups = Groups::seeded(Profile::lan(), [number as u64, 2, 3, 4]);
        groups.handle_new_incarnation(now, Incarnation(number), None);
        groups.handle_node_view(now, &node_view());
        let handle = groups.join(now, "g", options).expect("good options");
        Peer { me: Incarnation(number), groups, handle, view: None }
    });
    for _ in 0..100 {
        settle(&mut peers, now, false);
        if peers.iter().all(|peer| peer.view.is_some_and(|(.., members)| members == 2)) {
            break;
        }
        now = now + Duration::from_millis(50);
        peers.iter_mut().for_each(|peer| peer.groups.handle_timeout(now));
    }
    let (group, view, members) = peers[0].view.expect("it is in the group");
    assert_eq!(members, 2, "both are");
    let (hostile, handle) = (peers[1].me, peers[0].handle);
    // What the hostile one may speak of, too.
    let _ = peers[0].groups.send_block(now, handle, Ticket(1), Block::large(vec![7; 150_000].into()));
    settle(&mut peers, now, true);
    let mut next = 1;
    for op in data.chunks_exact(5) {
        let [what, object, a, b, c] = *op else { continue };
        let (object, number) = (u64::from(object % 8), |byte: u8| match byte {
            255 => u32::MAX,
            byte => u32::from(byte % 8),
        });
        let record = match what % 6 {
            0 => GroupData::Offer {
                group,
                view,
                object,
                length: u32::from_le_bytes([a, b, c % 5, 0]),
                wrong: (what > 200).then_some(Digest(u128::from(a))),
            },
            1 => GroupData::Chunk {
                group,
                object,
                index: number(a),
                bytes: vec![b; if c > 100 { CHUNK_BYTES } else { usize::from(b) * 200 + usize::from(c) }].into(),
            },
            2 => GroupData::Want {
                group,
                view,
                object,
                next: number(a),
                until: number(b),
                again: vec![ChunkSpan { first: number(c), end: number(c).wrapping_add(2) }; usize::from(c % 40)],
            },
            3 => GroupData::Held { group, view, object, digest: Digest(u128::from(a)) },
            4 => {
                let record = ObjectRecord { object, length: u32::from_le_bytes([a, b, c % 5, 0]).max(1), digest: Digest(u128::from(a)) };
                next += 1;
                let (first, sender) = (next - 1, 1);
                GroupData::Batch { group, view, sender, first, stable: first, ask: false, messages: Block::object(&record) }
            }
            _ => {
                now = now + Duration::from_millis(u64::from(a));
                peers[0].groups.handle_timeout(now);
                settle(&mut peers, now, true);
                continue;
            }
        };
        peers[0].groups.handle_data(now, hostile, record);
        settle(&mut peers, now, true);
        let memory = peers[0].groups.memory(handle).expect("it is in the group");
        assert!(memory.held <= memory.bound, "{memory:?}");
        assert!(memory.objects <= 150_000 + LARGEST as usize, "{memory:?}");
    }
});

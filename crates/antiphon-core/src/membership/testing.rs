//! Views for tests, and messages of a member that lies.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use antiphon_wire::codec::{decode_all, encode_to_vec};
use antiphon_wire::{Incarnation, Lineage, Member, NodeView, NodeViewId, ViewId, Wire};

use crate::random::Random;

/// A member at this port.
pub(crate) fn member(incarnation: Incarnation, port: u16) -> Member {
    Member {
        incarnation,
        name: format!("n{port}"),
        addr: SocketAddr::from(([127, 0, 0, 1], port)),
        further: Vec::new(),
        metadata: BTreeMap::new(),
        weight: 1,
    }
}

/// A first primary view of these members.
pub(crate) fn view(members: Vec<Member>) -> NodeView {
    let id = ViewId { epoch: 1, counter: 1 };
    NodeView {
        lineage: Lineage(1),
        id: NodeViewId::Primary { id },
        number: 1,
        members,
        joined: Vec::new(),
        departed: Vec::new(),
        merged: Vec::new(),
        wire_level: 1,
    }
}

/// A view of `count` members, whose incarnations look random.
pub(crate) fn view_of(count: usize) -> NodeView {
    let mut random = Random::new([count as u64, 2, 3, 4]);
    let members = (0..count).map(|rank| member(Incarnation(random.next_u128()), 1 + rank as u16));
    view(members.collect())
}

/// This message with some of its numbers and lists changed: what a member sends that has the key and runs
/// other code.
pub(crate) fn twisted<T: Wire>(random: &mut Random, message: T) -> T {
    let bytes = encode_to_vec(&message);
    for _ in 0..10 {
        let mut twisted = bytes.clone();
        for _ in 0..1 + random.below(2) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => twisted[at] = twisted[at].wrapping_add(1),
                1 => twisted[at] = random.below(256) as u8,
                2 => twisted[at] = 0,
                _ => twisted[at..].iter_mut().take(4).for_each(|byte| *byte = u8::MAX),
            }
        }
        if let Ok(twisted) = decode_all(twisted.into()) {
            return twisted;
        }
    }
    message
}

//! Views for tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use antiphon_wire::{Incarnation, Lineage, Member, NodeView, NodeViewId, ViewId};

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

/// A first primary view of these.
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

/// A view of so many members, whose incarnations look random.
pub(crate) fn view_of(count: usize) -> NodeView {
    let mut random = crate::random::Random::new([count as u64, 2, 3, 4]);
    let members = (0..count).map(|rank| member(Incarnation(random.next_u128()), 1 + rank as u16));
    view(members.collect())
}

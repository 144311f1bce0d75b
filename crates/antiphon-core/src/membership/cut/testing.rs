//! Views for tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use antiphon_wire::{Incarnation, Lineage, Member, NodeView, NodeViewId, ViewId};

/// A view of so many members, whose incarnations look random.
pub(crate) fn view_of(count: usize) -> NodeView {
    let mut random = crate::random::Random::new([count as u64, 2, 3, 4]);
    let member = |rank: usize| Member {
        incarnation: Incarnation(random.next_u128()),
        name: format!("n{rank}"),
        addr: SocketAddr::from(([10, 0, 0, 1], 1 + rank as u16)),
        further: Vec::new(),
        metadata: BTreeMap::new(),
        weight: 1,
    };
    let id = ViewId { epoch: 1, counter: 1 };
    NodeView {
        lineage: Lineage(1),
        id: NodeViewId::Primary { id },
        number: 1,
        members: (0..count).map(member).collect(),
        joined: Vec::new(),
        departed: Vec::new(),
        wire_level: 1,
    }
}

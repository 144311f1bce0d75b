//! Names for incarnations and addresses for names, from the views seen.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_core::wire::{Incarnation, Member, NodeView, Subview};

use crate::Part;

/// Incarnations remembered beyond the members of the last view; the oldest to arrive go first.
const MAX_FORMER: usize = 512;
/// For how many names the last address is remembered.
const MAX_NAMES: usize = 4096;

/// The members of the views seen, by incarnation and by name.
#[derive(Debug, Default)]
pub(super) struct People {
    members: BTreeMap<Incarnation, (u64, Arc<Member>)>,
    addresses: BTreeMap<String, Vec<SocketAddr>>,
    views: u64,
}

impl People {
    pub(super) fn learn(&mut self, view: &NodeView) {
        self.views += 1;
        let departed = view.departed.iter().map(|departure| &departure.member);
        for member in departed.chain(&view.members) {
            self.meet(member);
            if self.addresses.len() < MAX_NAMES || self.addresses.contains_key(&member.name) {
                let addrs = std::iter::once(member.addr).chain(member.further.iter().copied());
                self.addresses.insert(member.name.clone(), addrs.collect());
            }
        }
        while self.members.len() > view.members.len() + MAX_FORMER {
            let oldest = self
                .members
                .iter()
                .min_by_key(|(_, (seen, _))| *seen)
                .map(|(id, _)| *id);
            let Some(oldest) = oldest else { return };
            self.members.remove(&oldest);
        }
    }

    /// Another member names this one.
    pub(super) fn meet(&mut self, member: &Member) {
        let known = self.members.entry(member.incarnation);
        known.or_insert_with(|| (0, Arc::new(member.clone()))).0 = self.views;
    }

    /// The member with this incarnation. A stranger gets its digits
    /// as name.
    pub(super) fn member(&self, incarnation: Incarnation) -> Arc<Member> {
        match self.members.get(&incarnation) {
            Some((_, member)) => member.clone(),
            None => Arc::new(Member {
                incarnation,
                name: incarnation.short(),
                addr: SocketAddr::from(([0, 0, 0, 0], 0)),
                further: Vec::new(),
                metadata: BTreeMap::new(),
                weight: 0,
            }),
        }
    }

    /// The members that come from one component.
    pub(super) fn part(&self, subview: &Subview) -> Part {
        Part {
            lineage: subview.lineage,
            view: subview.view,
            members: subview
                .members
                .iter()
                .map(|member| self.member(*member))
                .collect(),
        }
    }

    pub(super) fn addresses(&self, name: &str) -> Option<&[SocketAddr]> {
        self.addresses.get(name).map(Vec::as_slice)
    }
}

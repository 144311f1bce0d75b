//! What one member saw, cut into its times in each view, what must hold of that alone, and of all together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_wire::{Block, GroupViewId, Incarnation};
use bytes::Bytes;

use super::world::{Id, World};
use crate::{GroupEvent, GroupView, MAX_PAYLOAD_BYTES, Message, Order};

/// One member's time in one view.
pub(super) struct Stay {
    pub(super) who: Incarnation,
    pub(super) view: Arc<GroupView>,
    pub(super) previous: Option<GroupViewId>,
    pub(super) next: Option<GroupViewId>,
    pub(super) messages: Vec<Message>,
}

impl Stay {
    pub(super) fn keys(&self) -> Vec<(Incarnation, u64)> {
        self.messages
            .iter()
            .map(|message| (message.sender, message.seq))
            .collect()
    }
}

/// What goes through a sender's log has at most `largest` bytes.
pub(super) fn stays_of(
    id: Id,
    trace: &[(Incarnation, GroupEvent)],
    largest: usize,
) -> Result<Vec<Stay>, String> {
    let mut stays: Vec<Stay> = Vec::new();
    let mut current: Option<usize> = None;
    let mut last_view: BTreeMap<Incarnation, GroupViewId> = BTreeMap::new();
    let mut last: BTreeMap<Incarnation, u64> = BTreeMap::new();
    let mut seen: BTreeSet<(GroupViewId, Incarnation, u64)> = BTreeSet::new();
    let mut suspended = false;
    let mut transitional: Option<BTreeSet<Incarnation>> = None;
    for (who, event) in trace {
        match event {
            GroupEvent::View(view) => {
                if !view.members.contains(who) {
                    return Err(format!("G1: {id} got a view without itself"));
                }
                if last_view
                    .insert(*who, view.id)
                    .is_some_and(|before| before >= view.id)
                {
                    return Err(format!("G2: view ids of {id} do not rise: {:?}", view.id));
                }
                let previous = current.map(|index| stays[index].view.id);
                if let Some(index) = current {
                    stays[index].next = Some(view.id);
                    let before: BTreeSet<_> = stays[index].view.members.iter().collect();
                    let after: BTreeSet<_> = view.members.iter().collect();
                    let joined: BTreeSet<_> = view.joined.iter().collect();
                    let gone: BTreeSet<_> = view.left.iter().chain(&view.crashed).collect();
                    if after.difference(&before).copied().collect::<BTreeSet<_>>() != joined
                        || before.difference(&after).copied().collect::<BTreeSet<_>>() != gone
                    {
                        return Err(format!("G7: {id}: joined and left do not fit: {view:?}"));
                    }
                }
                suspended = false;
                transitional = None;
                current = Some(stays.len());
                stays.push(Stay {
                    who: *who,
                    view: view.clone(),
                    previous,
                    next: None,
                    messages: Vec::new(),
                });
            }
            GroupEvent::Messages(messages) => {
                let Some(message) = messages.clone().next() else {
                    return Err(format!("{id}: an event without a message"));
                };
                let Some(index) = current else {
                    return Err(format!("G3: {id}: {message:?} outside of any view"));
                };
                if suspended {
                    return Err(format!("R17: {id} delivered {message:?} while suspended"));
                }
                if message.view != stays[index].view.id
                    || !stays[index].view.members.contains(&message.sender)
                {
                    return Err(format!("G12: {id}: {message:?} in {:?}", stays[index].view));
                }
                if !seen.insert((message.view, message.sender, message.seq)) {
                    return Err(format!("G9: {id}: {message:?} twice"));
                }
                let ordered = !matches!(stays[index].view.order, Order::Unordered | Order::Scoped);
                match last.insert(message.sender, message.seq).filter(|_| ordered) {
                    Some(before) if before >= message.seq => {
                        return Err(format!("G9: {id}: {message:?} after {before}"));
                    }
                    Some(before) if before + numbers(message.payload.clone(), largest) != message.seq => {
                        let seq = message.seq;
                        return Err(format!(
                            "G19: {id}: #{seq} of {} after {before}: a gap",
                            message.sender
                        ));
                    }
                    _ => {}
                }
                stays[index].messages.push(message.clone());
            }
            GroupEvent::Transitional { members } => {
                suspended = false;
                if transitional.replace(members.iter().copied().collect()).is_some() {
                    return Err(format!("G17: {id}: two transitional events in one view"));
                }
            }
            GroupEvent::Resync { .. } => {
                current = None;
                last.clear();
                suspended = false;
            }
            GroupEvent::Suspended => {
                if suspended {
                    return Err(format!("R17: {id} was told twice that it is suspended"));
                }
                suspended = true;
            }
            GroupEvent::Left => {
                if let Some(index) = current.take() {
                    stays[index].next = None;
                }
                last.clear();
            }
            GroupEvent::Receipts { .. }
            | GroupEvent::Progress { .. }
            | GroupEvent::Told(_)
            | GroupEvent::TellReceipts { .. }
            | GroupEvent::TellWritable { .. }
            | GroupEvent::Writable
            | GroupEvent::Refused { .. } => {}
        }
    }
    Ok(stays)
}

/// How many numbers a payload takes: an object takes one, for its record.
fn numbers(payload: Bytes, largest: usize) -> u64 {
    if payload.len() > largest {
        1
    } else {
        Block::large(payload).places()
    }
}

impl World {
    /// Checks every guarantee that traces can show; the message names the broken one.
    pub(crate) fn check(&self) -> Result<(), String> {
        let largest = MAX_PAYLOAD_BYTES.min(self.options.window_bytes as usize);
        let mut stays: Vec<Stay> = Vec::new();
        for (id, peer) in &self.peers {
            stays.extend(stays_of(*id, &peer.trace, largest)?);
        }
        let mut lists: BTreeMap<GroupViewId, &GroupView> = BTreeMap::new();
        for stay in &stays {
            let other = lists.entry(stay.view.id).or_insert(&stay.view);
            if other.members != stay.view.members {
                return Err(format!("G4: view {:?} has two member lists", stay.view.id));
            }
        }
        for (a, b) in stays.iter().flat_map(|a| stays.iter().map(move |b| (a, b))) {
            if a.view.id == b.view.id && a.who != b.who {
                let same_origin = a.previous.is_some() && a.previous == b.previous;
                if same_origin != a.view.transitional.contains(&b.who) {
                    return Err(format!(
                        "G15: {:?} in the transitional set of {:?}: {:?}",
                        b.who, a.who, a.view
                    ));
                }
            }
            let together = a.next.is_some() && a.next == b.next && a.view.id == b.view.id;
            if together {
                let (mut x, mut y) = (a.keys(), b.keys());
                if self.options.order != Order::Total {
                    x.sort();
                    y.sort();
                }
                if x != y {
                    return Err(format!(
                        "G14/G21: {:?} and {:?} delivered differently in {:?}: {x:?} {y:?}",
                        a.who, b.who, a.view.id
                    ));
                }
            }
        }
        // G33: a message that could be delivered is.
        for (id, peer) in &self.peers {
            let withheld = peer.handle.and_then(|handle| peer.groups.withheld(handle));
            if let Some(message) = withheld.filter(|_| peer.alive && !peer.asleep) {
                return Err(format!("G33: {id} holds {message:?} and does not deliver it"));
            }
        }
        // G8, G12: what is delivered was sent, by that sender, with those bytes.
        for stay in &stays {
            for message in &stay.messages {
                let sent = self.peers.values().flat_map(|peer| &peer.sent);
                let payload = &message.payload;
                if !sent
                    .clone()
                    .any(|(who, _, sent)| *who == message.sender && sent == payload)
                {
                    return Err(format!("G8: {message:?} was never sent"));
                }
            }
        }
        Ok(())
    }
}

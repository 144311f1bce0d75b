//! Admitting nodes: the coordinator's queue of joiners.
//!
//! The coordinator proposes a joiner only right after the joiner answered a probe. A proposal that a member
//! accepted cannot be changed any more, so a joiner that is gone must not be in it. Joiners that do not
//! answer wait for a later view.
//!
//! A view that would only admit joiners waits a moment for others that were just probed, while it has room
//! ([`Joiners::wait`]). A joiner that comes alone waits for nobody.
//!
//! A node with the name and address of a member is that member started again: the same view removes the old
//! incarnation as superseded. Any other node with a name of a member is refused while the member lives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{Discovery, MembershipMessage, NodeRecord, Origin};
use antiphon_wire::{Incarnation, Member, NodeView, ViewId};

use crate::inspection::Joining;
use crate::membership::agree::interface::ProposedChange;
use crate::membership::context::{Context, member_of};
use crate::membership::view::check;
use crate::sound::record_is_sound;
use crate::{Config, EngineKind, Time};

/// What may join, by membership engine.
struct Limits {
    /// At most so many joiners are queued; the others ask again.
    joiners: usize,
    /// The most members that a view may have.
    members: usize,
    /// The records of all members together are at most this large.
    members_bytes: usize,
}

/// A vote carries whole views, and two of them must fit one record of a lifeline.
const OF_COORDINATOR: Limits = Limits {
    joiners: 64,
    members: EngineKind::Coordinator.max_members(),
    members_bytes: check::MAX_RECORDS_BYTES,
};

/// In large views a vote carries what changes; whole views travel on channels only.
const OF_CUT: Limits = Limits {
    joiners: 2048,
    members: EngineKind::Cut.max_members(),
    members_bytes: 1_000_000,
};

/// One view admits joiners with at most so many bytes of records; the second bound holds where votes name
/// what changes.
const MAX_JOINED_BYTES: usize = 6_000;
const MAX_JOINED_BYTES_NAMED: usize = 27_000;
/// A view spends at most so many bytes on the origin of one joiner.
const ORIGIN_BYTES: usize = 48;

fn limits(config: &Config) -> &'static Limits {
    match config.engine {
        EngineKind::Coordinator => &OF_COORDINATOR,
        EngineKind::Cut => &OF_CUT,
    }
}

#[derive(Debug)]
struct Joiner {
    incarnation: Incarnation,
    record: NodeRecord,
    /// The highest view number its process has seen.
    number: u32,
    /// Where it was last a member, if it ever was.
    origin: Option<Origin>,
    heard: Time,
    /// Under which view, and when, the coordinator found that nothing speaks against it.
    checked: (ViewId, Time),
    probe: Option<(u64, Time)>,
    ready: Option<Time>,
}

impl Joiner {
    /// Whether it answered lately: within twice the time until it is asked again.
    fn is_ready(&self, config: &Config, now: Time) -> bool {
        let lately = config.profile.heartbeat * 2;
        self.ready.is_some_and(|ready| now.since(ready) <= lately)
    }

    /// Probes it if it has not answered lately. A probe that is not answered yet is sent again and not
    /// replaced by a new one: where all are busy, answers take longer than a heartbeat, and each would come
    /// too late.
    fn probe(&mut self, cx: &mut Context, now: Time) {
        let interval = cx.config.profile.heartbeat;
        let (due, nonce) = match (self.probe, self.ready) {
            (None, _) => (true, None),
            (Some((_, sent)), Some(ready)) if ready >= sent => (now.since(ready) >= interval / 2, None),
            (Some((nonce, sent)), _) => (now.since(sent) >= interval * 2, Some(nonce)),
        };
        if due {
            let nonce = nonce.unwrap_or_else(|| cx.random.next_u64());
            self.probe = Some((nonce, now));
            cx.send(self.incarnation, MembershipMessage::JoinProbe { nonce });
        }
    }
}

/// The nodes that wait to be admitted.
#[derive(Debug, Default)]
pub(crate) struct Joiners {
    by_addr: BTreeMap<SocketAddr, Joiner>,
    /// Since when joiners that are ready have waited for others, in this view.
    waiting_since: Option<Time>,
}

/// Why this build cannot work with the node; `None` if it can. The answer names the side at fault.
fn incompatible(config: &Config, node: &NodeRecord) -> Option<String> {
    let name = &config.name;
    if !record_is_sound(node) {
        Some(format!(
            "{name} refuses a name or metadata over the limits: shorten them"
        ))
    } else if let Some(reason) = check::differ(config, node) {
        Some(reason)
    } else if node.wire_level == 0 {
        Some(format!(
            "{} speaks no wire level that this cluster speaks: upgrade it",
            node.name
        ))
    } else {
        None
    }
}

/// Why the node cannot be a member beside those of the view, and whether that is for good.
pub(crate) fn refusal(
    config: &Config,
    view: &NodeView,
    node: &NodeRecord,
    alive: impl Fn(Incarnation) -> bool,
) -> Option<(String, bool)> {
    if let Some(reason) = incompatible(config, node) {
        return Some((reason, true));
    }
    // A vote, with the view it was given in, must fit one record (R2).
    let bytes = check::records_bytes(view);
    let limits = limits(config);
    if view.members.len() >= limits.members || bytes + encode_to_vec(node).len() > limits.members_bytes {
        let count = view.members.len();
        return Some((
            format!("the cluster is full with {count} members and {bytes} bytes of their records"),
            false,
        ));
    }
    let same_name = view
        .members
        .iter()
        .find(|member| member.name == node.name && member.addr != node.addr);
    if let Some(member) = same_name.filter(|member| alive(member.incarnation)) {
        let reason = format!(
            "the name {} is taken by a live member at {}: give this node another name",
            member.name, member.addr
        );
        return Some((reason, false));
    }
    let same_addr = view
        .members
        .iter()
        .find(|member| member.addr == node.addr && member.name != node.name);
    if let Some(member) = same_addr.filter(|member| alive(member.incarnation)) {
        let reason = format!(
            "the address {} is taken by the live member {}: give this node another address",
            member.addr, member.name
        );
        return Some((reason, false));
    }
    None
}

/// Tells a node that it cannot be admitted, and remembers that for people who ask.
fn refuse(cx: &mut Context, now: Time, to: Incarnation, node: &NodeRecord, (reason, fatal): (String, bool)) {
    if record_is_sound(node) {
        cx.refusals
            .note(now, to, (&node.name, node.addr), (&reason, fatal));
    }
    cx.discover(node.addr, Discovery::Refused { to, reason, fatal });
}

impl Joiners {
    /// A node asks to be admitted.
    pub(crate) fn ask(
        &mut self,
        cx: &mut Context,
        now: Time,
        view: &NodeView,
        sender: Incarnation,
        (node, number, origin): (NodeRecord, u32, Option<Origin>),
        alive: impl Fn(&Context, Incarnation) -> bool,
    ) {
        let addr = node.addr;
        // All joiners ask again and again. The larger the view, the longer one check takes.
        if let Some(known) = self.by_addr.get_mut(&addr).filter(|known| {
            let (view_then, then) = known.checked;
            known.incarnation == sender
                && known.record == node
                && view_then == view.primary_id()
                && now.since(then) < cx.config.profile.suspect_after
        }) {
            known.heard = now;
            known.probe(cx, now);
            return;
        }
        if let Some(refusal) = refusal(&cx.config, view, &node, |member| alive(cx, member)) {
            self.withdraw(sender);
            return refuse(cx, now, sender, &node, refusal);
        }
        let twin = self
            .by_addr
            .values()
            .any(|other| other.record.name == node.name && other.record.addr != addr);
        let known = self.by_addr.contains_key(&addr);
        if twin || (!known && self.by_addr.len() >= limits(&cx.config).joiners) {
            let reason = if twin {
                format!(
                    "another node called {} is joining from another address",
                    node.name
                )
            } else {
                "too many nodes are joining at the same time".to_owned()
            };
            return refuse(cx, now, sender, &node, (reason, false));
        }
        match self.by_addr.get_mut(&addr) {
            Some(joiner) if joiner.incarnation == sender => {
                joiner.heard = now;
                joiner.checked = (view.primary_id(), now);
                joiner.record = node;
            }
            other => {
                if let Some(stale) = other {
                    cx.forget_peer(stale.incarnation);
                }
                let joiner = Joiner {
                    incarnation: sender,
                    record: node,
                    number: number.min(check::MAX_CLAIMED_NUMBER),
                    origin,
                    heard: now,
                    checked: (view.primary_id(), now),
                    probe: None,
                    ready: None,
                };
                self.by_addr.insert(addr, joiner);
            }
        }
        cx.know_peer(sender, addr);
        if let Some(joiner) = self.by_addr.get_mut(&addr) {
            joiner.probe(cx, now);
        }
    }

    /// Probes all joiners that have not answered lately. Called while this node coordinates.
    pub(crate) fn probe(&mut self, cx: &mut Context, now: Time) {
        for joiner in self.by_addr.values_mut() {
            joiner.probe(cx, now);
        }
    }

    /// A joiner answered a probe.
    pub(crate) fn ready(&mut self, now: Time, sender: Incarnation, nonce: u64) {
        let joiner = self
            .by_addr
            .values_mut()
            .find(|joiner| joiner.incarnation == sender);
        if let Some(joiner) = joiner.filter(|joiner| joiner.probe.is_some_and(|(sent, _)| sent == nonce)) {
            joiner.ready = Some(now);
        }
    }

    /// The node does not want to join any more. It stays a peer: the caller still answers it.
    pub(crate) fn withdraw(&mut self, incarnation: Incarnation) {
        self.by_addr.retain(|_, joiner| joiner.incarnation != incarnation);
    }

    /// A view was installed. Where all hear all (`in_mesh`), the answers so far are forgotten: each joiner
    /// has to show again that it is there. So in a small cluster joiners that vanish together are in one view
    /// at most. If they were admitted view by view, by old answers, they would soon outweigh the rest.
    pub(crate) fn install(&mut self, cx: &mut Context, now: Time, view: &NodeView, in_mesh: bool) {
        self.waiting_since = None;
        self.expire(cx, now, view);
        for joiner in self.by_addr.values_mut().filter(|_| in_mesh) {
            (joiner.probe, joiner.ready) = (None, None);
        }
    }

    /// The joiners that answered lately and find room beside the members of this view, as members; with the
    /// lowest wire level and the highest view number among them. `named`: whether votes name what changes.
    pub(crate) fn admissible(
        &self,
        config: &Config,
        now: Time,
        view: &NodeView,
        named: bool,
    ) -> (Vec<Member>, u8, u32) {
        let limits = limits(config);
        let most = if named {
            MAX_JOINED_BYTES_NAMED
        } else {
            MAX_JOINED_BYTES
        };
        let room = limits.members_bytes.saturating_sub(check::records_bytes(view));
        let mut bytes = 0;
        let admitted: Vec<&Joiner> = self
            .by_addr
            .values()
            .filter(|joiner| joiner.is_ready(config, now))
            .take_while(|joiner| {
                bytes += encode_to_vec(&member_of(joiner.incarnation, &joiner.record)).len();
                bytes += joiner.origin.map_or(0, |_| ORIGIN_BYTES);
                bytes <= most.min(room)
            })
            .take(limits.members.saturating_sub(view.members.len()))
            .collect();
        let level = admitted
            .iter()
            .map(|joiner| joiner.record.wire_level)
            .min()
            .unwrap_or(u8::MAX);
        let members = admitted
            .iter()
            .map(|joiner| member_of(joiner.incarnation, &joiner.record))
            .collect();
        let number = admitted.iter().map(|joiner| joiner.number).max().unwrap_or(0);
        (members, level, number)
    }

    /// Where many nodes come at once, views should be few: each is one more that all must install, and one
    /// more size that an application sees. So a view that would only admit joiners waits for others that were
    /// asked just now whether they are there, while it has room for them. It does not wait long, whoever they
    /// are: half a heartbeat, and as much as this node is late itself. Returns until when it waits.
    pub(crate) fn wait(&mut self, cx: &Context, now: Time, change: Option<&ProposedChange>) -> Option<Time> {
        let Some(change) = change else {
            self.waiting_since = None;
            return None;
        };
        if !change.remove.is_empty() || change.renew || change.unfinished {
            return None;
        }
        let patience = cx.config.profile.heartbeat / 2 + cx.detector.lag();
        let until = *self.waiting_since.get_or_insert(now) + patience;
        let is_full = self.ready_count(&cx.config, now) > change.join.len();
        let waits = !is_full && now < until && self.are_awaited(now, patience);
        waits.then_some(until)
    }

    /// How many joiners are ready, in the sense of [`Self::admissible`].
    fn ready_count(&self, config: &Config, now: Time) -> usize {
        let joiners = self.by_addr.values();
        joiners.filter(|joiner| joiner.is_ready(config, now)).count()
    }

    /// Whether a joiner was probed so lately that its answer may be on its way.
    fn are_awaited(&self, now: Time, patience: Duration) -> bool {
        self.by_addr.values().any(|joiner| {
            let asked = joiner
                .probe
                .filter(|(_, sent)| joiner.ready.is_none_or(|ready| ready < *sent));
            asked.is_some_and(|(_, sent)| now.since(sent) < patience)
        })
    }

    /// Where these joiners come from. Under `majority` a joiner comes as itself only, without an origin: a
    /// cluster goes on in one place.
    pub(crate) fn origins(&self, cx: &Context, join: &[Member]) -> BTreeMap<Incarnation, Origin> {
        let joiners = self.by_addr.values().filter(|_| cx.any());
        joiners
            .filter(|joiner| join.iter().any(|member| member.incarnation == joiner.incarnation))
            .filter_map(|joiner| Some((joiner.incarnation, joiner.origin?)))
            .collect()
    }

    /// Forgets the joiners that gave up, and those that were admitted.
    pub(crate) fn expire(&mut self, cx: &mut Context, now: Time, view: &NodeView) {
        let patience = cx.config.profile.suspect_after * 2;
        let done: Vec<SocketAddr> = self
            .by_addr
            .iter()
            .filter(|(_, joiner)| view.contains(joiner.incarnation) || now.since(joiner.heard) > patience)
            .map(|(addr, _)| *addr)
            .collect();
        for addr in done {
            if let Some(joiner) = self
                .by_addr
                .remove(&addr)
                .filter(|joiner| !view.contains(joiner.incarnation))
            {
                cx.forget_peer(joiner.incarnation);
            }
        }
    }

    pub(crate) fn contains(&self, incarnation: Incarnation) -> bool {
        self.by_addr
            .values()
            .any(|joiner| joiner.incarnation == incarnation)
    }

    /// The joiners that wait, for people.
    pub(crate) fn inspect(&self, now: Time) -> Vec<Joining> {
        let waiting = self.by_addr.values().map(|joiner| Joining {
            incarnation: joiner.incarnation,
            name: joiner.record.name.clone(),
            addr: joiner.record.addr,
            asked: now.since(joiner.heard),
            ready: joiner.ready.map(|ready| now.since(ready)),
        });
        waiting.collect()
    }
}

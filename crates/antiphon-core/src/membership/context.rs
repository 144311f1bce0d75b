//! What every part of membership shares: the identity, the effects, the peers, and the fate of the
//! incarnation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{
    Ballot, Discovery, LifelineRecord, MembershipMessage, NodeRecord, Origin, Pulse, SlotId, WIRE_LEVEL,
};
use antiphon_wire::{Incarnation, Lineage, Member, NodeView};
use bytes::Bytes;

use crate::detector::Detector;
use crate::membership::agree::lifelines::Lifelines;
use crate::membership::contacts::hints::Contacts;
use crate::membership::contacts::left_behind::LeftBehind;
use crate::membership::contacts::refusals::Refusals;
use crate::membership::contacts::withdrawn::Withdrawn;
use crate::membership::effect::Effect;
use crate::membership::view::history::History;
use crate::random::Random;
use crate::replies::Replies;
use crate::{BallotNote, BallotStep, Config, Event, LifelineCommand, Policy, Time};

/// What an incarnation that was a member leaves to the next incarnation of the same process.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    /// The highest view number seen, in this lineage or an earlier one.
    pub(crate) number: u32,
    /// When the latest of these lineages was founded, in milliseconds since 1970.
    pub(crate) founded_ms: u64,
    /// Where members were reached.
    pub(crate) contacts: BTreeSet<SocketAddr>,
    /// The last primary view installed.
    pub(crate) origin: Origin,
    /// The lineage that this node left to give way, and until when the node does not join it: its other
    /// members are about to leave it too.
    pub(crate) gave_way: Option<(Lineage, Time)>,
}

impl Past {
    /// What a member of this view leaves, after what this process had left before.
    pub(crate) fn of(view: &NodeView, before: Option<&Self>) -> Self {
        let (seen, founded_ms) = before.map_or((0, 0), |past| (past.number, past.founded_ms));
        Self {
            number: view.number.max(seen),
            founded_ms: view.lineage.founded_ms().max(founded_ms),
            contacts: view.members.iter().map(|member| member.addr).collect(),
            origin: Origin {
                lineage: view.lineage,
                view: view.primary_id(),
            },
            gave_way: None,
        }
    }
}

/// A change that ends the present phase of the node. It is carried out after the input was handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The node's first view.
    Seated(Box<NodeView>),
    /// This incarnation is over; the process goes on with a fresh one.
    Over { cause: String },
    /// The node left.
    Left,
    /// Nothing more can be done.
    GiveUp,
}

/// Shared by all phases.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Arc<Config>,
    pub(crate) random: Random,
    pub(crate) me: Incarnation,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) peers: BTreeMap<Incarnation, SocketAddr>,
    pub(crate) detector: Detector,
    pub(crate) lifelines: Lifelines,
    pub(crate) history: History,
    pub(crate) refusals: Refusals,
    pub(crate) past: Option<Past>,
    /// The lineage that an operator's word founded here, and what that overrode.
    pub(crate) overrides: Option<(Lineage, Origin)>,
    pub(crate) contacts: Contacts,
    /// Addresses of members that may live on in components of their own (policy `any`).
    pub(crate) left_behind: LeftBehind,
    pub(crate) withdrawn: Withdrawn,
    /// The nodes that are no members and were answered lately.
    pub(crate) replies: Replies,
    pub(crate) fate: Option<Fate>,
    /// Peers whose channel holds much that was not acknowledged. What can wait is not added to such a
    /// channel.
    pub(crate) crowded: BTreeSet<Incarnation>,
    /// Heartbeats so far, of all incarnations.
    pub(crate) beats: u64,
    /// Every step of every ballot, if the caller wants them.
    pub(crate) trail: Option<VecDeque<BallotNote>>,
}

/// The node speaks to at most this many peers at a time: members, joiners and candidates together.
const MAX_PEERS: usize = 2 * antiphon_wire::MAX_MEMBERS;

impl Context {
    pub(crate) fn send(&mut self, to: Incarnation, message: MembershipMessage) {
        if to != self.me && self.peers.contains_key(&to) {
            self.effects.push_back(Effect::Send { to, message });
        }
    }

    pub(crate) fn discover(&mut self, to: SocketAddr, message: Discovery) {
        if to != self.config.addr {
            self.effects.push_back(Effect::Discovery { to, message });
        }
    }

    /// Notes a step towards a view. The view is made or copied only if the caller keeps the trail.
    pub(crate) fn trail(
        &mut self,
        slot: SlotId,
        ballot: Option<Ballot>,
        view: impl FnOnce() -> Arc<NodeView>,
        step: BallotStep,
    ) {
        let by = self.me;
        if let Some(trail) = &mut self.trail {
            trail.push_back(BallotNote {
                by,
                slot,
                ballot,
                view: view(),
                step,
            });
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.effects.push_back(Effect::Event(event));
    }

    /// Makes an incarnation reachable by messages.
    pub(crate) fn know_peer(&mut self, peer: Incarnation, addr: SocketAddr) {
        let known = self.peers.get(&peer) == Some(&addr);
        if peer != self.me && !known && self.peers.len() < MAX_PEERS {
            self.peers.insert(peer, addr);
            self.effects.push_back(Effect::Peer { peer, addr });
        }
    }

    /// Notes a peer that the caller itself makes reachable. False if there are too many.
    pub(crate) fn adopt_peer(&mut self, peer: Incarnation, addr: SocketAddr) -> bool {
        let room = self.peers.len() < MAX_PEERS || self.peers.contains_key(&peer);
        if room {
            self.peers.insert(peer, addr);
        }
        assert!(
            self.peers.len() <= MAX_PEERS,
            "membership: {} peers are spoken to",
            self.peers.len()
        );
        room
    }

    pub(crate) fn forget_peer(&mut self, peer: Incarnation) {
        if self.peers.remove(&peer).is_some() {
            self.effects.push_back(Effect::ForgetPeer { peer });
        }
    }

    /// Forgets all peers but those to keep.
    pub(crate) fn keep_peers(&mut self, keep: impl Fn(Incarnation) -> bool) {
        let gone: Vec<Incarnation> = self.peers.keys().filter(|peer| !keep(**peer)).copied().collect();
        for peer in gone {
            self.forget_peer(peer);
        }
    }

    pub(crate) fn pulses(&mut self, pulses: Vec<(Incarnation, Pulse)>) {
        let pulses = pulses.into_iter();
        self.effects
            .extend(pulses.map(|(to, pulse)| Effect::Pulse { to, pulse }));
    }

    pub(crate) fn lifeline_commands(&mut self, commands: impl IntoIterator<Item = LifelineCommand>) {
        self.effects.extend(commands.into_iter().map(Effect::Lifeline));
    }

    pub(crate) fn write_lifelines(&mut self, record: &LifelineRecord) {
        let commands = self.lifelines.write_all(record);
        self.lifeline_commands(commands);
    }

    /// R10: replaces what was left to the witness before.
    pub(crate) fn leave_last_vote(&mut self, record: Option<&LifelineRecord>) {
        if self.config.witness {
            let record = record.map(|record| Bytes::from(encode_to_vec(record)));
            self.effects.push_back(Effect::LastVoteRecord(record));
        }
    }

    /// This incarnation leaves in order. From here on its end proves nothing.
    pub(crate) fn say_goodbye(&mut self) {
        self.write_lifelines(&LifelineRecord::Goodbye);
        self.leave_last_vote(None);
    }

    /// Remembers what an operator's word overrode, if this view begins a lineage by one. All later views of
    /// that lineage name the same overridden view.
    pub(crate) fn remember_override(&mut self, view: &NodeView) {
        if let Some((lineage, overridden)) = view.overrides() {
            let view_left = Origin {
                lineage,
                view: overridden,
            };
            self.overrides = Some((view.lineage, view_left));
        }
    }

    /// The record by which this node presents itself.
    pub(crate) fn record(&self) -> NodeRecord {
        record_of(&self.config)
    }

    /// Whether every component goes on.
    pub(crate) fn any(&self) -> bool {
        self.config.policy == Policy::Any
    }

    /// Whether a node at this address that is no member is answered now.
    pub(crate) fn may_answer(&mut self, now: Time, addr: SocketAddr) -> bool {
        self.replies.allow(now, addr, self.config.profile.retransmit / 8)
    }

    /// A duration between `base` and twice that.
    pub(crate) fn jitter(&mut self, base: Duration) -> Duration {
        let micros = u64::try_from(base.as_micros()).unwrap_or(u64::MAX).max(1);
        base + Duration::from_micros(self.random.below(micros))
    }
}

/// The record by which a node with these settings presents itself.
pub(crate) fn record_of(config: &Config) -> NodeRecord {
    NodeRecord {
        name: config.name.clone(),
        addr: config.addr,
        further: config.further.clone(),
        metadata: config.metadata.clone(),
        weight: config.weight,
        wire_level: WIRE_LEVEL,
        engine: config.engine.code(),
        policy: config.policy.code(),
    }
}

/// The record of a node as a member.
pub(crate) fn member_of(incarnation: Incarnation, record: &NodeRecord) -> Member {
    Member {
        incarnation,
        name: record.name.clone(),
        addr: record.addr,
        further: record.further.clone(),
        metadata: record.metadata.clone(),
        weight: record.weight,
    }
}

//! What a node knows of its cluster at one moment, for people who ask. Nothing here decides anything.

use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::{Evidence, Incarnation, ViewId};

/// What a node knows of its cluster. From [`Node::inspect`](crate::Node::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The node's present incarnation.
    pub incarnation: Incarnation,
    /// Where it stands: what it looks for, or what it sees of the others.
    pub state: State,
    /// Nodes that it was asked to admit, and refused; the latest last. Only the member that admits others has
    /// any.
    pub refused: Vec<Refused>,
}

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Without a view.
    Seeking(Box<Looking>),
    /// A member.
    Seated(Box<Seated>),
    /// It has left, or ended.
    Stopped,
}

/// What a node without a view looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Looking {
    /// The seeds that have not answered.
    pub missing: Vec<SocketAddr>,
    /// Of those, the ones that take its connections and end them as soon as it has spoken.
    pub rejecting: Vec<SocketAddr>,
    /// The other nodes without a view that answered: name, address, and how long ago.
    pub candidates: Vec<(String, SocketAddr, Duration)>,
    /// Whether it is one of those that may found the cluster.
    pub founder: bool,
    /// The address of the member that it asks to be admitted by.
    pub asks: Option<SocketAddr>,
    /// Members that have lost their majority answered this long ago for the first time: they get time to find
    /// it again.
    pub remnant: Option<Duration>,
    /// What it was refused for last, and how long ago.
    pub refused: Option<(String, Duration)>,
}

/// What a member sees of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seated {
    /// Who proposes the next view and admits others, as far as this node can tell.
    pub coordinator: Incarnation,
    /// Whether the members that this node does not doubt could decide the next view.
    pub quorum: bool,
    /// Whether it acts as a member of its primary view: it has the lease, or does without.
    pub leased: bool,
    /// The members of the last primary view by seniority, this node included.
    pub members: Vec<MemberSeen>,
    /// How many members the engine is meant for, if the view has more.
    pub outgrows: Option<usize>,
    /// Who doubts whom now.
    pub doubts: Vec<Doubt>,
    /// Ways between two members that are bad, though nobody is doubted for it.
    pub edges: Vec<Edge>,
    /// Nodes that wait to be admitted here.
    pub joining: Vec<Joining>,
}

/// A member as another sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberSeen {
    /// Which.
    pub incarnation: Incarnation,
    /// How long ago it was last heard; none of this node itself, and of members that it does not observe.
    pub last_heard: Option<Duration>,
    /// Whether probes alone show that it lives: nothing else of it came for three heartbeats.
    pub by_probes: bool,
    /// Since when the network reports trouble on the way to it, with nothing heard since.
    pub trouble: Option<Duration>,
    /// Whether its process is proven to have ended.
    pub dead: bool,
    /// Whether its death would be proven here.
    pub lifeline: Lifeline,
    /// What it said of itself last.
    pub said: Option<Said>,
}

/// Whether a node holds a lifeline of a member (R9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifeline {
    /// Its end would prove the death of that process.
    Held,
    /// There should be one: the member has not dialled it yet, its network link has failed, or it goes
    /// through something
    /// that could end it by itself. If the process ends now, this node cannot prove it.
    Missing,
    /// Other members watch it; or it is the node itself.
    Elsewhere,
}

/// What a member said of itself last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Said {
    /// The last primary view that it had installed.
    pub view: ViewId,
    /// Whether it believed to be in the primary view.
    pub primary: bool,
    /// Whether it wanted to leave.
    pub leaving: bool,
    /// The highest wire level it speaks.
    pub wire_level: u8,
}

/// One member doubts another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// Who doubts.
    pub accuser: Incarnation,
    /// Whom.
    pub accused: Incarnation,
    /// Why.
    pub evidence: Evidence,
    /// For how long.
    pub since: Duration,
}

/// The way between two members is bad, as one of them sees it. That alone makes nobody doubted, but enough of
/// it may remove a member with the engine `cut`, which alone looks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Edge {
    /// Who sees it.
    pub observer: Incarnation,
    /// To or from whom.
    pub subject: Incarnation,
    /// What it sees: [`Evidence::Lossy`], too little of what the subject sends arrives; or
    /// [`Evidence::Deaf`], the subject says that it does not hear the observer.
    pub evidence: Evidence,
    /// For how long.
    pub since: Duration,
}

/// A node that waits to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Joining {
    /// Which.
    pub incarnation: Incarnation,
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: SocketAddr,
    /// How long ago it asked last.
    pub asked: Duration,
    /// How long ago it last answered a probe; a node that does not is not admitted.
    pub ready: Option<Duration>,
}

/// A node that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Which.
    pub incarnation: Incarnation,
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: SocketAddr,
    /// Which side must change what.
    pub reason: String,
    /// Whether it was told that trying again is pointless.
    pub fatal: bool,
    /// How often in a row.
    pub times: u32,
    /// How long ago for the last time.
    pub ago: Duration,
}

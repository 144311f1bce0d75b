//! What a node knows of its cluster at one moment, for people who ask. Nothing here decides anything.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::{Evidence, Incarnation, ViewId};

/// What a node knows of its cluster. From [`Node::inspect`](crate::Node::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Inspection {
    /// The node's present incarnation.
    pub incarnation: Incarnation,
    /// Where it stands: what it looks for, or what it sees of the others.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub state: State,
    /// Nodes that it was asked to admit, and refused; the latest last. Only the member that admits others has
    /// any.
    pub refused: Vec<Refused>,
}

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "state", rename_all = "snake_case")
)]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Looking {
    /// The seeds that have not answered.
    pub missing: Vec<SocketAddr>,
    /// Of those, the ones that take its connections and end them as soon as it has spoken.
    pub rejecting: Vec<SocketAddr>,
    /// The other nodes without a view that answered: name, address, and how long ago.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::candidates"))]
    pub candidates: Vec<(String, SocketAddr, Duration)>,
    /// Whether it is one of those that may found the cluster.
    pub founder: bool,
    /// The address of the member that it asks to be admitted by.
    pub asks: Option<SocketAddr>,
    /// Members that have lost their majority answered this long ago for the first time: they get time to find
    /// it again.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "remnant_ms", with = "antiphon_wire::json::millis_if_any")
    )]
    pub remnant: Option<Duration>,
    /// What it was refused for last, and how long ago.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::refusal"))]
    pub refused: Option<(String, Duration)>,
}

/// What a member sees of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemberSeen {
    /// Which.
    pub incarnation: Incarnation,
    /// How long ago it was last heard; none of this node itself, and of members that it does not observe.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "last_heard_ms", with = "antiphon_wire::json::millis_if_any")
    )]
    pub last_heard: Option<Duration>,
    /// Whether probes alone show that it lives: nothing else of it came for three heartbeats.
    #[cfg_attr(feature = "serde", serde(rename = "heard_by_probes"))]
    pub by_probes: bool,
    /// Since when the network reports trouble on the way to it, with nothing heard since.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "trouble_ms", with = "antiphon_wire::json::millis_if_any")
    )]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Doubt {
    /// Who doubts.
    pub accuser: Incarnation,
    /// Whom.
    pub accused: Incarnation,
    /// Why.
    pub evidence: Evidence,
    /// For how long.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "for_ms", with = "antiphon_wire::json::millis")
    )]
    pub since: Duration,
}

/// The way between two members is bad, as one of them sees it. That alone makes nobody doubted, but enough of
/// it may remove a member with the engine `cut`, which alone looks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Edge {
    /// Who sees it.
    pub observer: Incarnation,
    /// To or from whom.
    pub subject: Incarnation,
    /// What it sees: [`Evidence::Lossy`], too little of what the subject sends arrives; or
    /// [`Evidence::Deaf`], the subject says that it does not hear the observer.
    pub evidence: Evidence,
    /// For how long.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "for_ms", with = "antiphon_wire::json::millis")
    )]
    pub since: Duration,
}

/// A node that waits to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Joining {
    /// Which.
    pub incarnation: Incarnation,
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: SocketAddr,
    /// How long ago it asked last.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "asked_ms", with = "antiphon_wire::json::millis")
    )]
    pub asked: Duration,
    /// How long ago it last answered a probe; a node that does not is not admitted.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "ready_ms", with = "antiphon_wire::json::millis_if_any")
    )]
    pub ready: Option<Duration>,
}

/// A node that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
    #[cfg_attr(
        feature = "serde",
        serde(rename = "ago_ms", with = "antiphon_wire::json::millis")
    )]
    pub ago: Duration,
}

/// A line, and one more for whatever is not as it should be.
impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.incarnation.short(), self.state)?;
        self.refused
            .iter()
            .try_for_each(|refused| write!(f, "\n- {refused}"))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Seeking(looking) => looking.fmt(f),
            State::Seated(seated) => seated.fmt(f),
            State::Stopped => f.write_str("stopped"),
        }
    }
}

impl fmt::Display for Looking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("looks for a cluster")?;
        if self.founder {
            f.write_str(", and may found one")?;
        }
        if let Some(asks) = self.asks {
            write!(f, "; asks {asks} to be admitted")?;
        }
        for (name, addr, ago) in &self.candidates {
            write!(
                f,
                "\n- {name} at {addr} looks for one, too, and answered {ago:?} ago"
            )?;
        }
        for missing in &self.missing {
            let how = match self.rejecting.contains(missing) {
                true => "ends each connection as soon as this node has spoken",
                false => "has not answered",
            };
            write!(f, "\n- {missing} {how}")?;
        }
        if let Some(since) = self.remnant {
            write!(
                f,
                "\n- members without a majority answered {since:?} ago for the first time"
            )?;
        }
        match &self.refused {
            Some((reason, ago)) => write!(f, "\n- refused {ago:?} ago: {reason}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Seated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |is: bool| if is { "" } else { "no " };
        let (quorum, lease) = (not(self.quorum), not(self.leased));
        let (count, coordinator) = (self.members.len(), self.coordinator.short());
        write!(
            f,
            "one of {count} members, {coordinator} coordinates; {quorum}quorum, {lease}lease"
        )?;
        if let Some(most) = self.outgrows {
            write!(f, "\n- the membership engine is meant for {most} members")?;
        }
        self.doubts
            .iter()
            .try_for_each(|doubt| write!(f, "\n- {doubt}"))?;
        self.edges.iter().try_for_each(|edge| write!(f, "\n- {edge}"))?;
        self.joining
            .iter()
            .try_for_each(|joining| write!(f, "\n- {joining}"))
    }
}

/// `1f3a9c20 doubts 5b6c7d8e: silent for 1500 ms, for 3s`.
impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (accuser, accused) = (self.accuser.short(), self.accused.short());
        write!(
            f,
            "{accuser} doubts {accused}: {}, for {:?}",
            self.evidence, self.since
        )
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (observer, subject) = (self.observer.short(), self.subject.short());
        write!(
            f,
            "the way from {subject} to {observer} is bad: {}, for {:?}",
            self.evidence, self.since
        )
    }
}

impl fmt::Display for Joining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = if self.ready.is_some() {
            "and is ready"
        } else {
            "and does not answer"
        };
        write!(f, "{} at {} waits to be admitted, {ready}", self.name, self.addr)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, addr, times) = (&self.name, self.addr, self.times);
        write!(
            f,
            "{name} at {addr} was refused {times} times, {:?} ago: {}",
            self.ago, self.reason
        )
    }
}

impl fmt::Display for MemberSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.incarnation.short())?;
        match self.last_heard {
            Some(ago) => write!(f, ", heard {ago:?} ago")?,
            None => f.write_str(", not observed")?,
        }
        if self.by_probes {
            f.write_str(" by probes alone")?;
        }
        if let Some(since) = self.trouble {
            write!(f, ", trouble on the way for {since:?}")?;
        }
        if self.dead {
            f.write_str(", its process has ended")?;
        }
        match &self.said {
            Some(said) => write!(f, "; {said}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let majority = if self.primary {
            "in the majority"
        } else {
            "without a majority"
        };
        let leaving = if self.leaving { ", wants to leave" } else { "" };
        write!(f, "has view {}, {majority}{leaving}", self.view)
    }
}

impl fmt::Display for Lifeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lifeline::Held => "held",
            Lifeline::Missing => "missing",
            Lifeline::Elsewhere => "elsewhere",
        })
    }
}

/// What `antiphon-api` has other forms for than the fields.
#[cfg(feature = "serde")]
mod json {
    use std::net::SocketAddr;
    use std::time::Duration;

    use serde::{Serialize, Serializer};

    use super::Lifeline;

    #[derive(Serialize)]
    struct Refusal<'a> {
        reason: &'a str,
        #[serde(with = "antiphon_wire::json::millis")]
        ago_ms: Duration,
    }

    pub(super) fn refusal<S: Serializer>(
        refused: &Option<(String, Duration)>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let refusal = refused
            .as_ref()
            .map(|(reason, ago)| Refusal { reason, ago_ms: *ago });
        refusal.serialize(serializer)
    }

    /// Name and address: an answer that is long past is no candidate.
    pub(super) fn candidates<S: Serializer>(
        candidates: &[(String, SocketAddr, Duration)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(candidates.iter().map(|(name, addr, _)| (name, addr)))
    }

    /// Whether it is held; none if others do, or it is the node itself.
    impl Serialize for Lifeline {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let held = match self {
                Lifeline::Held => Some(true),
                Lifeline::Missing => Some(false),
                Lifeline::Elsewhere => None,
            };
            held.serialize(serializer)
        }
    }
}

//! What this node knows of one member: when it was heard, how patient this node is with it, and the doubt of
//! it.

use std::collections::VecDeque;
use std::time::Duration;

use antiphon_wire::Evidence;

use super::asking::Asking;
use super::edge::Edge;
use crate::Time;

/// What this node knows of one member's life.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) last_heard: Time,
    /// The same, probes not counted.
    pub(super) heard_otherwise: Time,
    /// Whether probes of it are asked for.
    pub(super) asking: Asking,
    /// A connection was lost or refused then, and nothing was heard since.
    pub(super) trouble: Option<Time>,
    /// What was heard last came through another member, or was a probe.
    pub(super) through: bool,
    pub(super) suspected: Option<Doubt>,
    /// The channel to it broke, so it is suspected from then on: its heartbeats withdraw nothing.
    pub(super) severed: bool,
    /// Since when it says that it does not hear this node, if the engine asks for that.
    pub(super) deaf: Option<Time>,
    /// How much of what it sends arrives.
    pub(super) edge: Edge,
    /// Since when that is too little.
    pub(super) lossy: Option<Time>,
    /// The silences of late that ended and were longer than half of the usual limit, and when they did: 40 at
    /// most.
    pub(super) pauses: VecDeque<(Duration, Time)>,
}

/// A silence of up to this many times the usual limit may be learned from; so nobody waits for longer.
pub(crate) const MOST_PATIENCE: u32 = 3;
/// What was learned holds for this many times the usual limit.
const REMEMBERED: u32 = 20;

impl Watch {
    pub(super) fn new(now: Time) -> Self {
        Self {
            last_heard: now,
            heard_otherwise: now,
            asking: Asking::new(now),
            trouble: None,
            through: false,
            suspected: None,
            severed: false,
            deaf: None,
            edge: Edge::default(),
            lossy: None,
            pauses: VecDeque::new(),
        }
    }

    /// How long the peer may be silent after it was last heard. Its pauses up to then decide. If the clock
    /// decided, a limit could grow while this node waits for it.
    pub(super) fn patience(&self, usual: Duration) -> Duration {
        let remembered = usual * REMEMBERED;
        let heard = self.last_heard;
        let lately = self.pauses.iter().filter(|(_, at)| heard.since(*at) < remembered);
        let (longest, all) = lately.fold((Duration::ZERO, Duration::ZERO), |(longest, all), (pause, _)| {
            (longest.max(*pause), all + *pause)
        });
        // A peer that is silent for more than half of the time is not given more of it.
        if all * 2 > remembered {
            return usual;
        }
        (longest * 2).clamp(usual, usual * MOST_PATIENCE)
    }

    /// When its silence is too long.
    pub(super) fn silent_at(&self, usual: Duration) -> Time {
        self.last_heard + self.patience(usual)
    }

    /// The peer is heard after a silence.
    pub(super) fn learn(&mut self, now: Time, usual: Duration) {
        let pause = now.since(self.last_heard);
        // A silence longer than anybody would wait was a cut, and says nothing of the next silence.
        if pause * 2 <= usual || pause > usual * MOST_PATIENCE {
            return;
        }
        let remembered = usual * REMEMBERED;
        self.pauses.retain(|(_, at)| now.since(*at) < remembered);
        self.pauses.push_back((pause, now));
    }

    /// Since when the edge to it is down.
    pub(super) fn down_since(&self) -> Option<Time> {
        let doubted = self.suspected.as_ref().map(|doubt| doubt.since);
        doubted.or(self.lossy).or(self.deaf)
    }

    /// What there is to say against it, and since when: a doubt of the member, or else only of the edge to
    /// it.
    pub(super) fn opinion(&self) -> Option<(Evidence, Time)> {
        match (&self.suspected, self.lossy, self.deaf) {
            (Some(doubt), ..) => Some((doubt.evidence.clone(), doubt.since)),
            (None, Some(since), _) => {
                let lost_percent = self.edge.lost_percent();
                Some((Evidence::Lossy { lost_percent }, since))
            }
            (None, None, Some(since)) => Some((Evidence::Deaf, since)),
            (None, None, None) => None,
        }
    }
}

/// An opinion and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) evidence: Evidence,
    pub(crate) since: Time,
    /// When this node first knew of it, if it is another's opinion, and when it was told so last.
    pub(super) told: Time,
    pub(super) repeated: Time,
}

impl Doubt {
    pub(super) fn own(evidence: Evidence, now: Time) -> Self {
        Self {
            evidence,
            since: now,
            told: now,
            repeated: now,
        }
    }
}

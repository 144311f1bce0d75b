//! Large views of the cut engine: what is sent to all elsewhere goes from neighbour to neighbour here.
//!
//! ```text
//!   narrow views (all observe all)            wide views
//!   heartbeats ──► all members                heartbeats ──► one's observers
//!   doubts in every heartbeat                 opinions: rumours, when they change
//!   slot messages to all, answers to one      proposals and tallies: rumours
//!   Decide to all                             everyone counts the votes itself; Decided: a rumour
//! ```
//! Above this file both are the same: the engine gets the same messages in the same order of events, and the
//! detector is told what each accuser says. Below it, [`Rumours`] knows who has what. Here a member speaks;
//! [`gossip`] is what it does with what it is told.
//!
//! # Invariants
//!
//! - A vote becomes a rumour after it is on the lifelines, as it becomes a message elsewhere (R2).
//! - Rumours are about one view, and mean nothing in another. Proofs of death are told again in each.
//! - A promise shows what was accepted, or is none. What stands for a view is its digest; whoever counts a
//!   vote knows the view.
//! - Who is not heard here is lost if its observers say so. Who is not lost is reachable if there is word of
//!   it, and of this node there: from each to its subjects, to theirs, and so on, over edges that are not
//!   down ([`Seat::hear_of_others`]). That it is not known to be lost is not enough, or whoever is cut off,
//!   alone or with some, would go on believing in a view that has long been another.
//!
//! # When participants die
//!
//! - *An observer*: its edges count as down once it is lost itself. What it had told is with its neighbours.
//! - *A neighbour through which a rumour was to come*: there are some twenty; what all ways lost is found by
//!   the sums in heartbeats.
//! - *The leader, with its question or ballot on the way*: it reaches all, or some. Their votes are with
//!   those who count, and the next leader's phase 1 asks all; it is the next once its observers have lost the
//!   old one.
//! - *The observer from which a joiner was to learn of its admission*: the joiner goes on asking, and whoever
//!   has installed the view tells it.
//! - *Joiners*: they acknowledge nothing, unless a ballot must be tried again.
//! - *Whoever installed a view first*: `Decided` is on its way to its neighbours on the tree before it
//!   installs. Who does not know what was decided pulls it from whoever said so, and passes the word on when
//!   it has it too; who was told nothing hears of a later view by heartbeats and pulls it.
//! - *Whoever does not hear, and is heard*: it says so of all it observes, and is removed by its own word,
//!   while it is in the same view. If others went first, with whom it does not go, its observers see it stay
//!   behind ([`Wide::should_be_known`]).
//! - *A partition*: who has a majority goes on, its observers' words being enough; a part without one has
//!   word of itself only, and gathers a non-primary view.
//!
//! What stays between two members: probes of joiners, the decision to those who join (from one of their
//! observers each), views that someone pulls, and all of a component that has lost the primary.
//!
//! [`gossip`]: crate::membership::seat::gossip

use antiphon_wire::membership::{Ayes, Rumour, WIRE_LEVEL};
use antiphon_wire::{Evidence, Incarnation, NodeView, ViewDigest, ViewId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use crate::membership::context::Context;
use crate::membership::monitor::gossip::Rumours;
use crate::membership::monitor::ranks::Ranks;
use crate::membership::monitor::rings::Rings;
use crate::membership::view::check;
use crate::{EngineKind, Time};

/// A member that is in an earlier view after so many times the silence after which it would be suspected does
/// not hear enough.
const PATIENCE_WITH_LATE: u32 = 3;
/// Views that votes may be about; of more, the latest are kept.
const MAX_VALUES: usize = 256;

/// What a member of a wide view keeps for it.
#[derive(Debug)]
pub(crate) struct Wide {
    /// When this node installed the view.
    began: Time,
    pub(crate) rumours: Rumours,
    pub(crate) neighbours: BTreeSet<Incarnation>,
    /// What this node has said of itself last.
    said: (u32, Said),
    pub(crate) values: BTreeMap<ViewDigest, Arc<NodeView>>,
    /// These, in the order in which they became known.
    known: VecDeque<ViewDigest>,
    /// Votes about views that are not known here yet.
    pub(crate) waiting: BTreeMap<Ayes, Ranks>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    primary: bool,
    leaving: bool,
    wire_level: u8,
    /// And why: who says that a path loses much must say so again when nothing comes any more.
    down: Vec<(Incarnation, Discriminant<Evidence>)>,
}

impl Said {
    /// What goes without saying in a view.
    fn nothing(view: &NodeView) -> Self {
        Self {
            primary: true,
            leaving: false,
            wire_level: view.wire_level,
            down: Vec::new(),
        }
    }
}

/// Rumours of a view that is not installed yet.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) view: Option<ViewId>,
    pub(crate) heard: Vec<(Incarnation, Vec<Rumour>)>,
    pub(crate) bytes: usize,
}

impl Wide {
    /// What a member of this view needs; `None` if all are neighbours.
    pub(crate) fn of(cx: &Context, now: Time, view: &NodeView, rings: &Rings) -> Option<Self> {
        let rank = view.rank(cx.me)?;
        if !rings.are_wide(view.members.len()) {
            return None;
        }
        let neighbours = rings.neighbours(rank).into_iter();
        let neighbours: Vec<Incarnation> = neighbours.map(|rank| view.members[rank].incarnation).collect();
        let branches = rings.branches(rank).into_iter();
        let branches: BTreeSet<Incarnation> = branches.map(|rank| view.members[rank].incarnation).collect();
        let interval = cx.config.profile.batch * 2;
        let mut rumours = Rumours::new(view.members.len(), neighbours.clone(), &branches, interval, now);
        rumours.lags(cx.detector.lag());
        Some(Self {
            began: now,
            neighbours: neighbours.into_iter().collect(),
            rumours,
            said: (0, Said::nothing(view)),
            values: BTreeMap::new(),
            known: VecDeque::new(),
            waiting: BTreeMap::new(),
        })
    }

    /// Says by a rumour what this node thinks of itself and of its edges, if that has changed.
    pub(crate) fn opine(&mut self, cx: &Context, now: Time, primary: bool, leaving: bool) {
        let suspicions = cx.detector.opinion(now);
        let down = suspicions
            .iter()
            .map(|suspicion| {
                let why = match planted!(CutOffSaidLossy) {
                    true => &Evidence::Deaf,
                    false => &suspicion.evidence,
                };
                (suspicion.member, discriminant(why))
            })
            .collect();
        let says = Said {
            primary,
            leaving,
            wire_level: WIRE_LEVEL,
            down,
        };
        if self.said.1 == says {
            return;
        }
        let version = self.said.0 + 1;
        self.said = (version, says);
        let opinion = Rumour::Opinion {
            of: cx.me,
            version,
            primary,
            leaving,
            wire_level: WIRE_LEVEL,
            suspicions,
        };
        self.rumours.take(now, None, opinion);
    }

    /// Whether whoever is in an earlier view has had the time to follow: it is told of this one again and
    /// again, and does not hear that. Its opinions, which are about a view that is over, do not say so.
    pub(crate) fn should_be_known(&self, now: Time, suspect_after: Duration) -> bool {
        now.since(self.began) >= suspect_after * PATIENCE_WITH_LATE && !planted!(WaitForWhoIsBehind)
    }

    pub(crate) fn neighbours(&self) -> impl Iterator<Item = Incarnation> {
        self.neighbours.iter().copied()
    }

    pub(crate) fn is_neighbour(&self, member: Incarnation) -> bool {
        self.neighbours.contains(&member)
    }

    pub(crate) fn learn_value(&mut self, value: Arc<NodeView>) -> ViewDigest {
        let digest = value.digest();
        if self.values.insert(digest, value).is_none() {
            self.known.push_back(digest);
        }
        if self.known.len() > MAX_VALUES
            && let Some(oldest) = self.known.pop_front()
        {
            self.values.remove(&oldest);
        }
        digest
    }
}

/// Who observes whom; nobody in particular with the coordinator.
pub(crate) fn rings_of(cx: &Context, view: &NodeView) -> Arc<Rings> {
    Arc::new(match cx.config.engine {
        EngineKind::Cut => Rings::new(view, cx.config.rings.max(1)),
        EngineKind::Coordinator => Rings::new(view, 0),
    })
}

/// Whether votes in this view name what changes instead of carrying whole views: where two of these do not
/// fit one record of a lifeline, or not all members are neighbours.
pub(crate) fn are_named(cx: &Context, view: &NodeView, rings: &Rings) -> bool {
    let is_large = || check::records_bytes(view) > check::MAX_RECORDS_BYTES;
    cx.config.engine == EngineKind::Cut && (rings.are_wide(view.members.len()) || is_large())
}

//! Members that hear nobody and are heard themselves, where all hear all.
//!
//! No other member misses such a member, so none doubts it; but it can do nothing with what the others do.
//! Its heartbeats name the members that it does not hear. (Where its kernel waits for acknowledgements that
//! do not come, its probes name them.)
//!
//! ```text
//!   d   goes deaf ── 1.5 s of silence ──► "I hear none of you" in each heartbeat
//!   a b c             d is noted (R7)     not noted any more │ two heartbeats    │ what was noted is over
//!       ├─────────────────────────────────┼──────────────────┼───────────────────┼──► a view without d
//!       0                                1.5 s              1.9 s               2.84 s      (`lan`)
//! ```
//! - **A member that says that it hears nobody is deaf.** It need not name members that are proven dead,
//!   members that are deaf with it, and members that joined since and of which it was not told. A member that
//!   hears a single other one is not deaf: that one may pass on what the rest say (R20, G36), whether this
//!   node hears it or not.
//! - **After two heartbeats.** What a member says first after a path was cut is older than what it hears at
//!   that moment.
//! - **Only if the others could decide without the deaf**, and in a primary view: of two halves that hear
//!   nothing of each other, neither removes the other for this.
//! - **A deaf member leads nothing.** The most senior of the others proposes the view without it, and nobody
//!   objects.
//! - **For the lease, a node does not note the heartbeats of a member that says that it does not hear the
//!   node** ([`lease`]): that member would not hear the answer. So the time for which votes against the
//!   member are held back begins with what it says, and not when the others have agreed that it goes.
//!
//! Without this rule, a deaf junior would go only as one of a broken pair: 1.5 s until it says that it hears
//! nobody, 4 s as a pair, and then the lease. A deaf elder would lead on in the eyes of the others, which
//! hear it well, and nobody would remove it. It would stay for ever; where only its probes pass, it would
//! stay until these no longer count as a sign of life, after 10.5 s.
//!
//! # What it does not remove
//! A member behind a link that comes and goes: if it hears any member again before what was noted of it is
//! over, the wish to remove it is gone, and nobody was asked for a vote. A member that loses most of what it
//! is sent, but hears another one now and then. One side of a cut that goes one way, if the other side could
//! not decide without it.
//!
//! # When others join, or die
//! Once a member is known to be deaf, nobody is admitted before it is gone. But each view that comes
//! meanwhile lets its members believe for a lease from then on (R7). So the last such view puts the removal
//! off: by 0.4 s at most where nodes join.
//!
//! The cut engine does the same by the word of the observers ([`detection`]). An observer that joined since
//! goes by what the member says of the other members ([`hears_few`]).
//!
//! [`detection`]: crate::membership::monitor::detection
//! [`lease`]: crate::membership::lease

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_wire::membership::Suspicion;
use antiphon_wire::{Accusation, Evidence, Incarnation, NodeView};

use crate::Time;
use crate::detector::Detector;
use crate::membership::monitor::rings::Rings;

/// A member that says for so many heartbeats that it hears nobody is deaf.
const SAYS_BEATS: u32 = 2;

/// The members that are deaf, as of the last time that this node weighed everything.
#[derive(Debug, Default)]
pub(crate) struct Deaf {
    members: BTreeSet<Incarnation>,
}

impl Deaf {
    /// Finds the members that are deaf by what they say. `is_heard`: whether this node hears another member.
    /// `may_ignore`: whether the first member need not name the second.
    pub(crate) fn look(
        &mut self,
        (now, heartbeat): (Time, Duration),
        detector: &Detector,
        view: &NodeView,
        is_heard: impl Fn(Incarnation) -> bool,
        may_ignore: impl Fn(Incarnation, Incarnation) -> bool,
    ) {
        self.members.clear();
        if !detector.has_doubts() || planted!(KeepTheDeaf) {
            return;
        }
        let said_for = heartbeat * SAYS_BEATS;
        let mut lost: BTreeMap<Incarnation, BTreeSet<Incarnation>> = BTreeMap::new();
        for (by, of, since) in detector.deaf_pairs() {
            if now.since(since) >= said_for && is_heard(by) {
                lost.entry(by).or_default().insert(of);
            }
        }
        let weight = |is_counted: &dyn Fn(Incarnation) -> bool| {
            let members = view.members.iter();
            let counted = members.filter(|member| is_counted(member.incarnation));
            counted.map(|member| u64::from(member.weight)).sum::<u64>()
        };
        let total = weight(&|_| true);
        lost.retain(|_, of| weight(&|member| of.contains(&member)) * 2 > total);
        // Some may hear only each other. Once one of them hears another member, those that hear it do so as
        // well.
        loop {
            let hears = |by: &Incarnation| {
                let mut others = view.members.iter().map(|member| member.incarnation);
                others.any(|other| {
                    let says_so = lost[by].contains(&other) || lost.contains_key(&other);
                    !says_so && !may_ignore(*by, other)
                })
            };
            let hearing: Vec<Incarnation> = lost.keys().copied().filter(hears).collect();
            if hearing.is_empty() {
                self.members = lost.into_keys().collect();
                return;
            }
            lost.retain(|by, _| !hearing.contains(by));
        }
    }

    pub(crate) fn members(&self) -> &BTreeSet<Incarnation> {
        &self.members
    }

    /// The members that a deaf member says it does not hear.
    pub(crate) fn unheard_by(&self, now: Time, detector: &Detector, deaf: Incarnation) -> Vec<Accusation> {
        let pairs = detector.deaf_pairs().into_iter();
        let unheard = pairs.filter(|(by, ..)| *by == deaf && self.members.contains(by));
        unheard
            .map(|(_, accuser, since)| Accusation {
                accuser,
                evidence: Evidence::Deaf,
                before_ms: u32::try_from(now.since(since).as_millis()).unwrap_or(u32::MAX),
            })
            .collect()
    }
}

/// Whether a member says that it does not hear more than half of the members that it observes.
pub(crate) fn hears_few(view: &NodeView, rings: &Rings, member: Incarnation, said: &[Suspicion]) -> bool {
    let subjects: Vec<Incarnation> = rings.subjects_in(view, member).collect();
    let unheard = subjects.iter().filter(|of| does_not_hear(**of, said, is_silence));
    unheard.count() * 2 > subjects.len()
}

/// Whether a member says that it does not hear another one, in one of these ways.
pub(crate) fn does_not_hear(other: Incarnation, said: &[Suspicion], how: impl Fn(&Evidence) -> bool) -> bool {
    said.iter()
        .any(|suspicion| suspicion.member == other && how(&suspicion.evidence))
}

pub(crate) fn is_silence(evidence: &Evidence) -> bool {
    matches!(evidence, Evidence::Silent { .. } | Evidence::ConnectionLost)
}

pub(crate) fn is_no_path(evidence: &Evidence) -> bool {
    is_silence(evidence) || matches!(evidence, Evidence::Lossy { .. })
}

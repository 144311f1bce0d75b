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
//! The cut engine does the same by the word of the observers ([`fast`]). An observer that joined since goes
//! by what the member says of the other members ([`heartbeats`]).
//!
//! [`fast`]: crate::membership::agree::fast
//! [`heartbeats`]: crate::membership::seat::heartbeats
//! [`lease`]: crate::membership::lease

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::{Accusation, Evidence, Incarnation};

use crate::membership::context::Context;
use crate::membership::seat::Seat;
use crate::{EngineKind, Time};

/// A member that says for so many heartbeats that it hears nobody is deaf.
const SAYS_BEATS: u32 = 2;

impl Seat {
    /// Members that are deaf by what they say, as far as this node hears them.
    pub(crate) fn deaf_by_their_word(
        &self,
        cx: &Context,
        now: Time,
        reachable: &BTreeSet<Incarnation>,
    ) -> BTreeSet<Incarnation> {
        if cx.config.engine != EngineKind::Coordinator || !cx.detector.has_doubts() || planted!(KeepTheDeaf) {
            return BTreeSet::new();
        }
        let said_for = cx.config.profile.heartbeat * SAYS_BEATS;
        let mut lost: BTreeMap<Incarnation, BTreeSet<Incarnation>> = BTreeMap::new();
        for (by, of, since) in cx.detector.deaf_pairs() {
            if now.since(since) >= said_for && reachable.contains(&by) && by != cx.me {
                lost.entry(by).or_default().insert(of);
            }
        }
        let weight = |of: &BTreeSet<Incarnation>| {
            let members = self.installed.view.members.iter();
            let weights = members.filter(|member| of.contains(&member.incarnation));
            weights.map(|member| u64::from(member.weight)).sum::<u64>()
        };
        lost.retain(|_, of| weight(of) * 2 > u64::from(self.weight()));
        // Some may hear only each other. Once one of them hears another member, those that hear it do so as
        // well.
        loop {
            let hears = |by: &Incarnation| {
                let mut others = self
                    .installed
                    .view
                    .members
                    .iter()
                    .map(|member| member.incarnation);
                others.any(|other| {
                    let says_so = lost[by].contains(&other) || lost.contains_key(&other);
                    !says_so && !self.installed.engine.is_certified(other) && self.knows(cx, *by, other)
                })
            };
            let hearing: Vec<Incarnation> = lost.keys().copied().filter(hears).collect();
            if hearing.is_empty() {
                return lost.into_keys().collect();
            }
            lost.retain(|by, _| !hearing.contains(by));
        }
    }

    /// Whether a member knows another. It does not if it is behind, and the other one joined since.
    pub(crate) fn knows(&self, cx: &Context, member: Incarnation, other: Incarnation) -> bool {
        let Some(report) = self.reports.get(member) else {
            return true;
        };
        let view = cx.history.get(self.installed.view.lineage, report.view);
        // Of a view before its own first one this node knows that it is not in it itself.
        view.map_or(other != cx.me, |view| view.contains(other))
    }

    /// The members that a deaf member says it does not hear.
    pub(crate) fn unheard_by(&self, cx: &Context, now: Time, deaf: Incarnation) -> Vec<Accusation> {
        let pairs = cx.detector.deaf_pairs().into_iter();
        let unheard = pairs.filter(|(by, ..)| *by == deaf && self.deaf.contains(by));
        unheard
            .map(|(_, accuser, since)| Accusation {
                accuser,
                evidence: Evidence::Deaf,
                before_ms: u32::try_from(now.since(since).as_millis()).unwrap_or(u32::MAX),
            })
            .collect()
    }
}

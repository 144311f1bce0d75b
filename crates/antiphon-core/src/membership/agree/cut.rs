//! The multi-node cut: the members that their observers have lost, and when it has them all.
//!
//! After *Stable and Consistent Membership at Scale with Rapid* (Suresh et al., USENIX ATC 2018), with its
//! known faults mended.
//!
//! ```text
//!   observers ([`rings`]) ──doubts──► all ──► [`detection`]: in the cut, about to be in it, or noise
//!                                                  │
//!                         is nobody about to be in it, and has nothing changed for a quiet?
//!                                                  │ all members compose the same view without the lost
//!                                                  ▼
//!                                             the fast ballot ([`fast`])
//! ```
//! This file knows no votes. It says which members are lost, which view is left without them, and until when
//! to wait for more losses.
//!
//! # What a leader knows of it
//!
//! If the fast ballot does not decide, a leader goes on. It must know what the observers know. A member whose
//! paths lose most of everything, or that hears nobody, is still heard by all, so nobody doubts it. A leader
//! that looked at doubts alone would want nothing, or would be that very member. So for every leader:
//!
//! ```text
//!   lost   = a member in the cut that is proven dead, or is in the cut by its own word, or that is reported
//!            by more than half of those of its observers that are not in the cut themselves;
//!            but nobody is lost, unless this node is primary and the others that it hears could decide
//!            without the lost
//!   leader = the most senior member that is heard, that is not lost, and that no majority doubts; where not
//!            all hear all: that is not about to be in the cut
//!   wanted = removes the lost members just as members that a majority doubts: nobody objects
//! ```
//! Fewer votes are behind a leader's round than behind a fast ballot, and a leader may take them at once. So
//! it must not take a member for lost that is in the cut only because its observers are. If three members
//! hear nobody and so report everybody, their reports come first; what others report of the three comes a
//! moment later. And half of a cluster does not throw out the other half because paths between them are bad.
//! After a partition, edges are down that were down in it. The leader leaves the cut to the observers first:
//! until the cut was quiet, while the observers could decide it, and until their votes had time.
//!
//! **R20, objections.** A member that casts unprompted asks nobody, and a leader does not ask about members
//! that it removes as lost. So nobody objects, not even a member that hears the lost one well. Ten observers
//! stand for all. In a view of fifty, a member that nine of them have lost goes although the other forty hear
//! it. Paths that fail so are taken for the member's own; if they are not, this costs a healthy member. A
//! leader that alone doubts a member has to ask as in the other engine, and then all members that hear it
//! object.
//!
//! # Invariants
//!
//! - The view without the lost members removes members, as many as one change can name, and does nothing
//!   else. It is a function of the view and the ranks lost, so that all members that see the same cut cast
//!   the same bytes. Its accusers are the observers by the rings, with [`Evidence::Observed`].
//! - Nobody casts without being asked while any member is unstable. Nor does anybody cast before nothing has
//!   changed for a quiet, or three quiets have passed since the first of the cut came into it: losses come in
//!   bursts.
//! - As long as a member is unstable, a leader removes nobody, but for three quiets at most, counted over all
//!   views. Joins and leaves do not wait for that; they wait as long as a member is in the cut.
//!
//! That all members cast the same, and only those are removed that should be, is for the simulator to judge
//! (`check/inside/cuts`, G35).
//!
//! If an observer dies, its edges count as down once it is being lost itself; the other observers report
//! without it.
//!
//! [`detection`]: crate::membership::monitor::detection
//! [`fast`]: crate::membership::agree::fast
//! [`rings`]: crate::membership::monitor::rings

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::{Accusation, Cause, Departure, Evidence, Incarnation, NodeView};

use crate::detector::MOST_PATIENCE;
use crate::membership::agree::compose::compose;
use crate::membership::agree::interface::{ProposedChange, Surroundings};
use crate::membership::agree::slot::Slot;
use crate::membership::monitor::detection::{self, Edge, Found};
use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::topology::Topology;
use crate::membership::view::check;
use crate::{Profile, Time};

/// The cut is waited for at most this many quiets.
const MOST_QUIETS: u32 = 3;
/// A departure names this many of its observers.
const MAX_ACCUSERS: usize = 8;

/// What this node knows of the members that are being lost in one view.
#[derive(Debug)]
pub(crate) struct Cut {
    view: Arc<NodeView>,
    rings: Arc<Rings>,
    /// Whether votes name what changes.
    named: bool,
    /// Whether this node hears all members itself.
    hears_all: bool,
    found: Found,
    /// The view without the lost members, and which members these were when it was made; `None` for a view
    /// that may not follow this one.
    composed: Option<(BTreeSet<usize>, Option<Arc<NodeView>>)>,
    /// Since when anyone is being lost, and since when the cut is what it is; `None` while all is calm.
    trouble: Option<Trouble>,
    /// Members that are in the cut or about to be, or were a moment ago: since when, and when last. This goes
    /// from view to view.
    restless: BTreeMap<Incarnation, (Time, Time)>,
    quiet_proven: Duration,
    quiet: Duration,
    /// However much patience an observer has learned, it has lost a silent subject after this long.
    most_patient: Duration,
}

#[derive(Debug, Clone)]
struct Trouble {
    since: Time,
    changed: Time,
    /// Since when each member of the cut is in it. A member that wavers keeps its time: otherwise it could
    /// hold up everything.
    lost: BTreeMap<usize, Time>,
}

/// Until when to wait for more losses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// The cut is quiet then, if nothing changes and nobody is unstable.
    pub(crate) quiet: Time,
    /// Nothing is waited for any longer, whatever changes.
    pub(crate) at_most: Time,
}

impl Cut {
    pub(crate) fn new(
        view: Arc<NodeView>,
        (rings, topology): (Arc<Rings>, &Topology),
        named: bool,
        profile: &Profile,
    ) -> Self {
        Self {
            named,
            found: Found::default(),
            composed: None,
            trouble: None,
            restless: BTreeMap::new(),
            // Ends of connections come within milliseconds of each other, silences within a heartbeat.
            quiet_proven: topology.proofs_come_within(profile),
            quiet: profile.heartbeat * 5 / 4,
            most_patient: profile.suspect_after * MOST_PATIENCE,
            hears_all: topology.hears_all(),
            view,
            rings,
        }
    }

    /// Goes on from the view before. Edges that are down are told again in each view. But bad paths may keep
    /// a member between noise and the cut for long: it would hold up every view anew if it were not known
    /// from the view before.
    pub(crate) fn follow(&mut self, before: Self) {
        self.restless = before.restless;
        self.restless.retain(|member, _| self.rings.contains(*member));
    }

    /// Members that are in the cut.
    pub(crate) fn in_cut(&self) -> impl Iterator<Item = Incarnation> {
        self.members(&self.found.stable)
    }

    /// Members in the cut that are beyond doubt.
    pub(crate) fn certain(&self) -> impl Iterator<Item = Incarnation> {
        self.members(&self.found.certain)
    }

    /// Members about to be lost that some of their observers have not given up: these should look again.
    pub(crate) fn unstable(&self) -> impl Iterator<Item = Incarnation> {
        self.members(&self.found.unstable)
    }

    fn members<'a>(&'a self, ranks: &'a BTreeSet<usize>) -> impl Iterator<Item = Incarnation> + 'a {
        let member = |rank: &usize| self.view.members.get(*rank).map(|member| member.incarnation);
        ranks.iter().filter_map(member)
    }

    pub(crate) fn is_stable(&self) -> bool {
        self.found.unstable.is_empty()
    }

    /// Whether a member is in the cut.
    pub(crate) fn contains(&self, member: Incarnation) -> bool {
        let rank = self.rings.rank(member);
        rank.is_some_and(|rank| self.found.stable.contains(&rank))
    }

    /// Whether a member is in the cut or about to be, or was a moment ago.
    pub(crate) fn is_restless(&self, member: Incarnation) -> bool {
        self.restless.contains_key(&member)
    }

    /// The observers that accuse a member in the cut.
    pub(crate) fn accusations(&self, member: Incarnation) -> Vec<Accusation> {
        let rank = self.rings.rank(member);
        let lost = rank.filter(|rank| self.found.stable.contains(rank));
        lost.map_or_else(Vec::new, |rank| self.accusers(rank))
    }

    /// Whether a wanted change need not wait for members that may be about to be lost: it only lets joiners
    /// in and lets leaving members go. If a member is lost, the wanted change waits: each view begins the cut
    /// anew, and joins that come all the time would keep the lost members in.
    pub(crate) fn lets_pass(&self, wanted: &ProposedChange) -> bool {
        let of_itself = |cause: &Cause| matches!(cause, Cause::Left | Cause::Superseded { .. });
        self.found.stable.is_empty()
            && !wanted.renew
            && !wanted.unfinished
            && wanted.remove.iter().all(|departure| of_itself(&departure.cause))
    }

    /// Until when to wait for more losses; `None` while all is calm. If all of the cut are proven dead, a
    /// quiet is shorter.
    pub(crate) fn wait(&self, slot: &Slot<Incarnation, Arc<NodeView>>) -> Option<Wait> {
        let trouble = self.trouble.as_ref()?;
        let lost = self.found.stable.iter().filter_map(|rank| trouble.lost.get(rank));
        let since = lost
            .min()
            .copied()
            .unwrap_or_else(|| self.restless_since(trouble));
        let all_proven = self
            .in_cut()
            .all(|member| slot.certificates().contains_key(&member));
        let quiet = if all_proven { self.quiet_proven } else { self.quiet };
        let at_most = since + quiet * MOST_QUIETS;
        Some(Wait {
            quiet: at_most.min(trouble.changed + quiet),
            at_most,
        })
    }

    /// Since when there have been members that are about to be lost, perhaps; earlier views count as well.
    fn restless_since(&self, trouble: &Trouble) -> Time {
        let known = self.unstable().filter_map(|member| self.restless.get(&member));
        let known = known.map(|(since, _)| *since).min();
        known.map_or(trouble.since, |since| since.min(trouble.since))
    }

    /// Looks at the edges, and at how long they have shown what they show.
    pub(crate) fn look(&mut self, around: &Surroundings<'_>, slot: &Slot<Incarnation, Arc<NodeView>>) {
        let (found, now) = (self.find(around, slot), around.now);
        if found.is_calm() {
            self.trouble = None;
        } else {
            let trouble = self.trouble.get_or_insert_with(|| Trouble {
                since: now,
                changed: now,
                lost: BTreeMap::new(),
            });
            if found.stable != self.found.stable || found.unstable != self.found.unstable {
                trouble.changed = now;
            }
            trouble
                .lost
                .retain(|rank, _| found.stable.contains(rank) || found.unstable.contains(rank));
            for rank in &found.stable {
                trouble.lost.entry(*rank).or_insert(now);
            }
        }
        for rank in found.stable.union(&found.unstable) {
            let member = self.view.members[*rank].incarnation;
            self.restless.entry(member).or_insert((now, now)).1 = now;
        }
        let lately = self.quiet * MOST_QUIETS;
        self.restless.retain(|_, (_, last)| now.since(*last) < lately);
        self.found = found;
    }

    fn find(&self, around: &Surroundings<'_>, slot: &Slot<Incarnation, Arc<NodeView>>) -> Found {
        let rank = |member: Incarnation| self.rings.rank(member);
        let certified = slot.certificates().keys();
        let proven: BTreeSet<usize> = certified.filter_map(|dead| rank(*dead)).collect();
        let suspects: BTreeSet<usize> = around.suspects.iter().copied().filter_map(rank).collect();
        if suspects.is_empty() && proven.is_empty() {
            return Found::default();
        }
        let at = |rank: usize| self.view.members[rank].incarnation;
        let (now, most_patient) = (around.now, self.most_patient);
        detection::find(
            &self.rings,
            &suspects,
            &proven,
            !self.hears_all,
            |observer, subject| match (around.edge_down_since)(at(observer), at(subject)) {
                None => Edge::Up,
                Some(since) if now.since(since) < most_patient => Edge::Down,
                Some(_) => Edge::DownForLong,
            },
        )
    }

    /// The view without the lost members, if it may follow this one. It is asked for at each input, and to
    /// make and check it takes long in a large view; so the last one is kept.
    pub(crate) fn without_the_lost(&mut self) -> Option<Arc<NodeView>> {
        if let Some((lost, value)) = &self.composed
            && *lost == self.found.stable
        {
            return value.clone();
        }
        let value = Arc::new(self.compose());
        // There may be more than one change can name. The rest is in the cut of the view after it.
        assert!(
            value.joined.is_empty() && value.departed.len() <= self.found.stable.len() || planted!(),
            "cut: without {:?}, {} leave and {} join",
            self.found.stable,
            value.departed.len(),
            value.joined.len()
        );
        let value = check::is_successor(&self.view, &value).then_some(value);
        self.composed = Some((self.found.stable.clone(), value.clone()));
        value
    }

    /// The view without the lost members: the same bytes wherever the same members are lost.
    fn compose(&self) -> NodeView {
        let remove = self.found.stable.iter().map(|rank| Departure {
            member: self.view.members[*rank].clone(),
            cause: Cause::Crashed,
            accusers: self.accusers(*rank),
        });
        let wanted = ProposedChange {
            remove: Vec::new(),
            asked_first: BTreeSet::new(),
            join: Vec::new(),
            renew: false,
            unfinished: false,
            wire_level: self.view.wire_level,
            number: 0,
            origins: BTreeMap::new(),
        };
        compose(&self.view, remove.collect(), &wanted, self.named)
    }

    fn accusers(&self, rank: usize) -> Vec<Accusation> {
        let mut observers: Vec<usize> = self
            .rings
            .observers(rank)
            .iter()
            .map(|by| usize::from(*by))
            .collect();
        observers.sort_unstable();
        if observers.iter().any(|by| !self.found.stable.contains(by)) {
            observers.retain(|by| !self.found.stable.contains(by));
        }
        let accusation = |by: &usize| Accusation {
            accuser: self.view.members[*by].incarnation,
            evidence: Evidence::Observed,
            before_ms: 0,
        };
        observers.iter().take(MAX_ACCUSERS).map(accusation).collect()
    }
}

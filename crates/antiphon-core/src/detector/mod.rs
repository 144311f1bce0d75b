//! Failure detection: when each member was heard, which member doubts which, and on what evidence.
//!
//! ```text
//!   heard ───────────────► last heard ──┐  silent for suspect_after
//!   connection lost ─────► trouble ─────┤  silent for suspect_after_loss since
//!   lifeline FIN ────────► proven ──────┼─► suspicion ──► heartbeats to all members ──► their accusations
//!   flush stalled ───────► accused ─────┤
//!   channel broken ──────► severed ─────┘  withdrawn when heard again (but never if proven or severed)
//! ```
//!
//! A suspicion removes nobody. It is an opinion that the members exchange. Membership turns opinions into
//! proposals, and acceptors that hear the accused well refuse them.
//!
//! This node learns of each peer how long its silence may be. A peer may have been silent for a while and
//! then gone on, since its host or the network between is slow at times. This node gives it twice that
//! silence for the next 20 × `suspect_after`, at most 3 × `suspect_after`. So a link or a host that comes and
//! goes is suspected once, and not at each turn. A peer that never paused is suspected as soon as the profile
//! says. So is a peer that was silent for more than half of that time: one frame now and then does not keep a
//! host in the cluster that holds it up.
//!
//! A member may also be heard by [`probing`] alone, since TCP is silent for seconds where a third of all
//! packets is lost. A probe shows that the member lives, and nothing of the ways to it. So probes count only
//! for as long as such a silence lasts.
//!
//! Invariants:
//! - a node that was itself not running, or served its timers late, accuses nobody for it: the time it missed
//!   is given to every peer, see [`attention`];
//! - a proven death is never withdrawn;
//! - neither is the doubt of a member whose channel to this node broke: it lives, but never again can the two
//!   tell each other anything that membership must know;
//! - what a peer's heartbeat does not list any more is withdrawn.
//!
//! This module does not decide which member is removed, and does not send anything.

mod asking;
pub(crate) mod attention;
mod edge;
pub(crate) mod probing;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_wire::membership::Suspicion;
use antiphon_wire::{Accusation, Evidence, Incarnation};

use self::asking::Answering;
use self::attention::Attention;
use self::watch::Watch;
pub(crate) use self::watch::{Doubt, MOST_PATIENCE};
use crate::{EngineKind, Profile, Time, inspection};

/// How something of a member came here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    Directly,
    /// Another member passed it on.
    Through,
    /// As a probe.
    Probe,
}

/// The failure detector of one incarnation, over the members of its primary view.
#[derive(Debug)]
pub(crate) struct Detector {
    me: Incarnation,
    heartbeat: Duration,
    suspect_after: Duration,
    suspect_after_loss: Duration,
    /// An accusation by the group layer lapses after this, unless it is repeated.
    stall_lapses: Duration,
    watches: BTreeMap<Incarnation, Watch>,
    members: BTreeSet<Incarnation>,
    /// Members that this node does not hear by itself, and that hold up a flush, as their groups find: since
    /// when, and when that was found last.
    stalled: BTreeMap<Incarnation, Doubt>,
    /// What the others think: accuser, accused.
    told: BTreeMap<Incarnation, BTreeMap<Incarnation, Doubt>>,
    /// Whether each member's heartbeats come here and repeat what it thinks. In a wide view each member says
    /// it once, to all. What it said last counts until it says something else or the view ends: all members
    /// must go by the same.
    repeated: bool,
    attention: Attention,
    /// Members that speak as members of another lineage: that is no sign of life in this one.
    apart: BTreeSet<Incarnation>,
    /// What this node missed by itself and others were not told of yet.
    missed: Duration,
    /// Whether lossy edges are looked for: only the engine whose observers decide together can use them.
    judges_edges: bool,
    /// Members that asked for probes.
    answering: BTreeMap<Incarnation, Answering>,
}

impl Detector {
    pub(crate) fn new(me: Incarnation, profile: &Profile, engine: EngineKind) -> Self {
        Self {
            me,
            heartbeat: profile.heartbeat,
            suspect_after: profile.suspect_after,
            suspect_after_loss: profile.suspect_after_loss,
            stall_lapses: profile.flush_stall * 2,
            watches: BTreeMap::new(),
            members: BTreeSet::new(),
            stalled: BTreeMap::new(),
            told: BTreeMap::new(),
            repeated: true,
            apart: BTreeSet::new(),
            attention: Attention::new(profile.heartbeat),
            missed: Duration::ZERO,
            judges_edges: engine == EngineKind::Cut,
            answering: BTreeMap::new(),
        }
    }

    /// The members of a new primary view, and in a wide view those of them that this node observes. A member
    /// that is watched already keeps its record.
    pub(crate) fn watch(
        &mut self,
        now: Time,
        members: impl Iterator<Item = Incarnation>,
        subjects: Option<&BTreeSet<Incarnation>>,
    ) {
        self.members = members.collect();
        let members = &self.members;
        let heard = subjects.unwrap_or(members).clone();
        self.watches.retain(|member, _| heard.contains(member));
        self.stalled
            .retain(|member, _| members.contains(member) && !heard.contains(member));
        self.told.retain(|accuser, _| members.contains(accuser));
        self.apart.retain(|member| members.contains(member));
        self.answering.retain(|member, _| members.contains(member));
        for doubts in self.told.values_mut() {
            doubts.retain(|accused, _| members.contains(accused));
        }
        self.repeated = subjects.is_none();
        // In this view each member says once what it thinks, and a member that thinks nothing says nothing.
        // That holds even for a node that observes all others. So what they said before is dropped.
        if !self.repeated {
            self.told.clear();
        }
        for member in heard {
            if member != self.me {
                self.watches.entry(member).or_insert_with(|| Watch::new(now));
            }
        }
    }

    /// Call this with every input: it notices that this node itself was not running. A driver wakes the node
    /// at least once per heartbeat. What the node missed beyond that, it could not have heard, and no doubt
    /// grew older by it.
    pub(crate) fn awake(&mut self, now: Time) {
        let missed = self.attention.awake(now, None);
        self.forgive(now, missed);
    }

    /// The same when the timer that was due then is served.
    pub(crate) fn served(&mut self, now: Time, due: Time) {
        let missed = self.attention.awake(now, Some(due));
        self.forgive(now, missed);
    }

    /// How late this node serves its timers these days.
    pub(crate) fn lag(&self) -> Duration {
        self.attention.lag()
    }

    /// How much this node missed by itself, in which time, if that is worth telling.
    pub(crate) fn take_starvation(&mut self, now: Time) -> Option<(Duration, Duration)> {
        self.attention.take_news(now)
    }

    /// What this node missed by itself since this was asked last: other parts that judge by the clock must
    /// not count it either.
    pub(crate) fn take_missed(&mut self) -> Duration {
        std::mem::take(&mut self.missed)
    }

    fn forgive(&mut self, now: Time, missed: Option<Duration>) {
        let Some(missed) = missed else { return };
        self.missed += missed;
        if planted!(AccuseWhenStarved) {
            return;
        }
        for watch in self.watches.values_mut() {
            watch.last_heard = (watch.last_heard + missed).min(now);
            watch.heard_otherwise = (watch.heard_otherwise + missed).min(now);
            watch.asking.forgive(now, missed);
            watch.trouble = watch.trouble.map(|at| (at + missed).min(now));
            if let Some(doubt) = &mut watch.suspected {
                doubt.since = (doubt.since + missed).min(now);
            }
        }
        for doubt in self.told.values_mut().flat_map(BTreeMap::values_mut) {
            doubt.told = (doubt.told + missed).min(now);
            doubt.repeated = (doubt.repeated + missed).min(now);
        }
    }

    /// Any authentic frame arrived directly. True if a suspicion was withdrawn by it.
    pub(crate) fn heard(&mut self, now: Time, peer: Incarnation) -> bool {
        let withdrawn = self.heard_through(now, peer);
        if let Some(watch) = self.watches.get_mut(&peer) {
            watch.through = false;
        }
        withdrawn
    }

    /// Something of that member came. True if a suspicion was withdrawn by it.
    pub(crate) fn heard_as(&mut self, now: Time, peer: Incarnation, came: Came) -> bool {
        match came {
            Came::Directly => self.heard(now, peer),
            Came::Through => self.heard_through(now, peer),
            Came::Probe => self.heard_by_probe(now, peer),
        }
    }

    /// A heartbeat came by the direct path; its number shows how many were lost before it. True if the path
    /// is judged otherwise now.
    pub(crate) fn beat_came(&mut self, peer: Incarnation, round: u64, now: Time) -> bool {
        let watch = self.watches.get_mut(&peer).filter(|_| self.judges_edges);
        let Some(watch) = watch else { return false };
        let news = watch.edge.heard(round);
        if news {
            watch.lossy = watch.edge.is_lossy().then_some(now);
        }
        news
    }

    /// Another member passed on a frame of that member (R20). The member lives, but a host that loses most of
    /// what it sends must not look well because others repeat it. True if a suspicion was withdrawn by it.
    pub(crate) fn heard_through(&mut self, now: Time, peer: Incarnation) -> bool {
        let withdrawn = self.lives(now, peer);
        let apart = self.apart.contains(&peer);
        if let Some(watch) = self.watches.get_mut(&peer).filter(|_| !apart) {
            watch.heard_otherwise = now;
        }
        withdrawn
    }

    /// The member showed that it lives, and nothing of the ways to it. True if a suspicion was withdrawn by
    /// it.
    fn lives(&mut self, now: Time, peer: Incarnation) -> bool {
        let usual = self.suspect_after;
        let Some(watch) = self
            .watches
            .get_mut(&peer)
            .filter(|_| !self.apart.contains(&peer))
        else {
            return false;
        };
        watch.learn(now, usual);
        watch.last_heard = now;
        watch.through = true;
        watch.trouble = None;
        let proven = |doubt: &Doubt| doubt.evidence == Evidence::ProofOfDeath;
        let proven = watch.suspected.as_ref().is_some_and(proven);
        let withdrawn = !watch.severed
            && watch.suspected.as_ref().is_some_and(|doubt| {
                matches!(doubt.evidence, Evidence::Silent { .. } | Evidence::ConnectionLost)
            });
        assert!(
            !(proven && withdrawn),
            "R9: the proven death of {peer:?} is withdrawn"
        );
        if withdrawn {
            watch.suspected = None;
            // What it thought before the silence says nothing about which members it hears now. Its
            // heartbeats come again, and have all that it thinks.
            if self.repeated {
                self.told.remove(&peer);
            }
        }
        withdrawn
    }

    /// A member spoke as a member of another lineage, or of this one. What it says in another one is no sign
    /// of life here: if others wait for it, it must come, or they must do without it.
    pub(crate) fn set_apart(&mut self, peer: Incarnation, apart: bool) {
        if !apart {
            self.apart.remove(&peer);
        } else if self.members.contains(&peer) {
            self.apart.insert(peer);
        }
    }

    /// Whether that is so.
    pub(crate) fn is_apart(&self, peer: Incarnation) -> bool {
        self.apart.contains(&peer)
    }

    /// A member says whether it hears this node. If it does not, it is of no use, although this node hears
    /// it. But that is an observer's finding ([`Detector::edge_is_down`]) and no doubt of this node's own.
    /// True if it is news.
    pub(crate) fn says_deaf(&mut self, now: Time, peer: Incarnation, deaf: bool) -> bool {
        let Some(watch) = self.watches.get_mut(&peer) else {
            return false;
        };
        let news = watch.deaf.is_some() != deaf;
        if news {
            watch.deaf = deaf.then_some(now);
        }
        news
    }

    /// Others have lost this member, though not all of its observers have. This node then gives it only half
    /// the patience. True if it is suspected now and was not before.
    pub(crate) fn reinforce(&mut self, now: Time, peer: Incarnation) -> bool {
        let usual = self.suspect_after;
        let lost = |watch: &Watch| {
            let silent = now.since(watch.last_heard);
            (silent >= watch.patience(usual) / 2).then_some(silent)
        };
        match self.watches.get(&peer).and_then(lost) {
            Some(silent) if !self.suspects(peer) => {
                let for_ms = millis(silent);
                self.accuse(now, peer, Evidence::Silent { for_ms })
            }
            _ => false,
        }
    }

    /// The path to a member broke, or its lifeline did. This is no news if the member is heard through
    /// another one: that its own path fails is known, and each try of it says so again.
    pub(crate) fn trouble(&mut self, now: Time, peer: Incarnation) {
        if let Some(watch) = self.watches.get_mut(&peer).filter(|watch| !watch.through) {
            watch.trouble.get_or_insert(now);
        }
    }

    /// Suspects a member at once. True if that is news.
    pub(crate) fn accuse(&mut self, now: Time, peer: Incarnation, evidence: Evidence) -> bool {
        let Some(watch) = self.watches.get_mut(&peer) else {
            let stalls =
                evidence == Evidence::FlushStalled && peer != self.me && self.members.contains(&peer);
            if !stalls {
                return false;
            }
            let news = !self.stalled.contains_key(&peer);
            let doubt = self.stalled.entry(peer);
            doubt.or_insert_with(|| Doubt::own(evidence, now)).told = now;
            return news;
        };
        match &mut watch.suspected {
            Some(doubt) if doubt.evidence == Evidence::ProofOfDeath => false,
            Some(doubt) if doubt.evidence == evidence => {
                doubt.since = now;
                false
            }
            suspected => {
                *suspected = Some(Doubt::own(evidence, now));
                true
            }
        }
    }

    /// The channel to a member broke. True if it was not suspected before.
    pub(crate) fn sever(&mut self, now: Time, peer: Incarnation) -> bool {
        let Some(watch) = self.watches.get_mut(&peer) else {
            return false;
        };
        watch.severed = true;
        let news = watch.suspected.is_none();
        watch
            .suspected
            .get_or_insert_with(|| Doubt::own(Evidence::ConnectionLost, now));
        news
    }

    /// The proof of this member's death counts no more: it belongs to another lineage.
    pub(crate) fn unprove(&mut self, now: Time, member: Incarnation) {
        let watch = self.watches.get_mut(&member);
        let doubt = watch.and_then(|watch| watch.suspected.as_mut());
        if let Some(doubt) = doubt.filter(|doubt| doubt.evidence == Evidence::ProofOfDeath) {
            *doubt = Doubt::own(Evidence::ConnectionLost, now);
        }
    }

    /// Looks at the clock. True if a member is suspected now that was not before, or is not any longer.
    pub(crate) fn tick(&mut self, now: Time) -> bool {
        let (lapses, stalled) = (self.stall_lapses, self.stalled.len());
        self.stalled.retain(|_, doubt| now.since(doubt.told) < lapses);
        let mut news = self.stalled.len() < stalled;
        for watch in self.watches.values_mut() {
            match &watch.suspected {
                Some(doubt) => {
                    if doubt.evidence == Evidence::FlushStalled && now.since(doubt.since) >= self.stall_lapses
                    {
                        let lost = || Doubt::own(Evidence::ConnectionLost, now);
                        watch.suspected = watch.severed.then(lost);
                        news = true;
                    }
                }
                None => {
                    let silent = now.since(watch.last_heard);
                    let lost = watch
                        .trouble
                        .is_some_and(|trouble| now.since(trouble) >= self.suspect_after_loss);
                    let evidence = if lost {
                        Evidence::ConnectionLost
                    } else if now >= watch.silent_at(self.suspect_after) {
                        Evidence::Silent {
                            for_ms: millis(silent),
                        }
                    } else {
                        continue;
                    };
                    watch.suspected = Some(Doubt::own(evidence, now));
                    news = true;
                }
            }
        }
        news
    }

    /// When [`Detector::tick`] may find something.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let stalled = self.stalled.values().map(|doubt| doubt.told + self.stall_lapses);
        let watched = self.watches.values().map(|watch| match &watch.suspected {
            Some(doubt) if doubt.evidence == Evidence::FlushStalled => doubt.since + self.stall_lapses,
            Some(_) => Time::from_micros(u64::MAX),
            None => {
                let silent = watch.silent_at(self.suspect_after);
                watch
                    .trouble
                    .map_or(silent, |at| silent.min(at + self.suspect_after_loss))
            }
        });
        watched.chain(stalled).min()
    }

    /// A peer's whole opinion, which replaces what it said before. True if it accuses other members now.
    pub(crate) fn told(&mut self, now: Time, accuser: Incarnation, suspicions: &[Suspicion]) -> bool {
        if accuser == self.me || !self.members.contains(&accuser) {
            return false;
        }
        let old = self.told.remove(&accuser).unwrap_or_default();
        let mut new = BTreeMap::new();
        for suspicion in suspicions {
            let known = self.members.contains(&suspicion.member);
            if known && suspicion.member != accuser {
                let since = now - Duration::from_millis(suspicion.for_ms.into());
                let known = old.get(&suspicion.member);
                let since = known.map_or(since, |doubt| doubt.since.min(since));
                // After a silence it says anew what it said before.
                let fresh = known.filter(|doubt| now.since(doubt.repeated) < self.suspect_after);
                let told = fresh.map_or(now, |doubt| doubt.told);
                let evidence = suspicion.evidence.clone();
                new.insert(
                    suspicion.member,
                    Doubt {
                        evidence,
                        since,
                        told,
                        repeated: now,
                    },
                );
            }
        }
        let changed = !new.keys().eq(old.keys());
        self.told.insert(accuser, new);
        changed
    }

    /// Whether this node suspects the member.
    pub(crate) fn suspects(&self, member: Incarnation) -> bool {
        self.watches
            .get(&member)
            .is_some_and(|watch| watch.suspected.is_some())
    }

    /// Whether this node hears the member so well that it would object to its removal.
    pub(crate) fn hears_well(&self, now: Time, member: Incarnation) -> bool {
        self.watches.get(&member).is_some_and(|watch| {
            watch.suspected.is_none()
                && watch.trouble.is_none()
                && !self.apart.contains(&member)
                && now.since(watch.last_heard) <= self.heartbeat * 3
        })
    }

    /// Whether this node hears the member, and does not only wait for it with the patience it has learned.
    pub(crate) fn hears(&self, now: Time, member: Incarnation) -> bool {
        let heard = self.last_heard(member);
        member == self.me || heard.is_some_and(|heard| now.since(heard) < self.suspect_after)
    }

    /// Since when `accuser` doubts `accused`, as far as this node knows.
    pub(crate) fn doubt(&self, accuser: Incarnation, accused: Incarnation) -> Option<&Doubt> {
        if accuser == self.me {
            let watched = self.watches.get(&accused);
            let watched = watched.and_then(|watch| watch.suspected.as_ref());
            watched.or_else(|| self.stalled.get(&accused))
        } else {
            let doubt = self.told.get(&accuser)?.get(&accused)?;
            is_doubt(&doubt.evidence).then_some(doubt)
        }
    }

    /// Whether `observer` has lost `subject`, as far as this node knows: it doubts the subject or finds the
    /// edge lossy, or the subject says that it does not hear the observer.
    pub(crate) fn edge_is_down(&self, observer: Incarnation, subject: Incarnation) -> bool {
        self.edge_down_since(observer, subject).is_some()
    }

    /// Since when that is so.
    pub(crate) fn edge_down_since(&self, observer: Incarnation, subject: Incarnation) -> Option<Time> {
        if observer == self.me {
            self.watches.get(&subject)?.down_since()
        } else {
            let doubt = self.told.get(&observer)?.get(&subject)?;
            Some(doubt.since)
        }
    }

    /// All members to which any edge is down.
    pub(crate) fn lost_to_anyone(&self) -> BTreeSet<Incarnation> {
        let mine = self.watches.iter();
        let mine = mine.filter(|(_, watch)| watch.down_since().is_some());
        let theirs = self.told.values().flat_map(BTreeMap::keys);
        mine.map(|(subject, _)| subject).chain(theirs).copied().collect()
    }

    /// Whether any member doubts another, as far as this node knows.
    pub(crate) fn has_doubts(&self) -> bool {
        self.watches.values().any(|watch| watch.suspected.is_some())
            || !self.stalled.is_empty()
            || self.told.values().any(|doubts| !doubts.is_empty())
    }

    /// All members that `accuser` doubts, as far as this node knows.
    pub(crate) fn doubted_by(&self, accuser: Incarnation) -> Vec<Incarnation> {
        if accuser == self.me {
            let mine = self.watches.iter().filter(|(_, watch)| watch.suspected.is_some());
            mine.map(|(accused, _)| *accused).collect()
        } else {
            let told = self.told.get(&accuser);
            told.map_or_else(Vec::new, |doubts| {
                let doubts = doubts.iter().filter(|(_, doubt)| is_doubt(&doubt.evidence));
                doubts.map(|(accused, _)| *accused).collect()
            })
        }
    }

    /// Each member that doubts another, and the member it doubts, as far as this node knows.
    pub(crate) fn doubting(&self) -> impl Iterator<Item = (Incarnation, Incarnation)> + '_ {
        let accusers = std::iter::once(self.me).chain(self.told.keys().copied());
        accusers.flat_map(|accuser| {
            let doubted = self.doubted_by(accuser).into_iter();
            doubted.map(move |accused| (accuser, accused))
        })
    }

    /// All that accuse this member.
    pub(crate) fn accusers(&self, now: Time, accused: Incarnation) -> Vec<Accusation> {
        let others = self.told.keys().copied();
        std::iter::once(self.me)
            .chain(others)
            .filter_map(|accuser| {
                let doubt = self.doubt(accuser, accused)?;
                let before_ms = millis(now.since(doubt.since));
                Some(Accusation {
                    accuser,
                    evidence: doubt.evidence.clone(),
                    before_ms,
                })
            })
            .collect()
    }

    /// Each pair of which one member doubts the other because it does not hear it: accuser, accused, and
    /// since when that is known here. After a partition the others' doubts are old, but they are news here:
    /// no pair counts as broken only because they are old.
    pub(crate) fn deaf_pairs(&self) -> Vec<(Incarnation, Incarnation, Time)> {
        let mine = self
            .watches
            .iter()
            .filter_map(|(accused, watch)| watch.suspected.as_ref().map(|doubt| (self.me, *accused, doubt)));
        let theirs = self
            .told
            .iter()
            .flat_map(|(accuser, doubts)| doubts.iter().map(|(accused, doubt)| (*accuser, *accused, doubt)));
        mine.chain(theirs)
            .filter(|(_, _, doubt)| {
                matches!(doubt.evidence, Evidence::Silent { .. } | Evidence::ConnectionLost)
            })
            .map(|(accuser, accused, doubt)| (accuser, accused, doubt.since.max(doubt.told)))
            .collect()
    }

    /// The same, for members that hold up a flush.
    pub(crate) fn stalled_pairs(&self) -> Vec<(Incarnation, Incarnation, Time)> {
        let stalls = |doubt: &&Doubt| doubt.evidence == Evidence::FlushStalled;
        let watched = self.watches.iter().filter_map(|(accused, watch)| {
            let doubt = watch.suspected.as_ref().filter(stalls)?;
            Some((self.me, *accused, doubt.since))
        });
        let mine = self.stalled.iter();
        let mine = mine.map(|(accused, doubt)| (self.me, *accused, doubt.since));
        let theirs = self.told.iter().flat_map(|(accuser, doubts)| {
            let doubts = doubts.iter().filter(|(_, doubt)| stalls(doubt));
            doubts.map(|(accused, doubt)| (*accuser, *accused, doubt.since.max(doubt.told)))
        });
        watched.chain(mine).chain(theirs).collect()
    }

    /// This node's whole opinion, for its heartbeats.
    pub(crate) fn opinion(&self, now: Time) -> Vec<Suspicion> {
        let stalled = self.stalled.iter().map(|(member, doubt)| Suspicion {
            member: *member,
            evidence: doubt.evidence.clone(),
            for_ms: millis(now.since(doubt.since)),
        });
        self.watches
            .iter()
            .filter_map(|(member, watch)| {
                let (evidence, since) = watch.opinion()?;
                Some(Suspicion {
                    member: *member,
                    evidence,
                    for_ms: millis(now.since(since)),
                })
            })
            .chain(stalled)
            .collect()
    }

    /// Since when the path to the member is in trouble, with nothing heard since.
    pub(crate) fn trouble_since(&self, member: Incarnation) -> Option<Time> {
        self.watches.get(&member)?.trouble
    }

    /// Which member doubts which, as far as this node knows.
    pub(crate) fn doubts(&self, now: Time) -> Vec<inspection::Doubt> {
        self.opinions()
            .filter(|(.., (evidence, _))| is_doubt(evidence))
            .map(|(accuser, accused, (evidence, since))| inspection::Doubt {
                accuser,
                accused,
                evidence,
                since: now.since(since),
            })
            .collect()
    }

    /// The edges that are down although nobody doubts their subject for it, as far as this node knows.
    pub(crate) fn edges_down(&self, now: Time) -> Vec<inspection::Edge> {
        self.opinions()
            .filter(|(.., (evidence, _))| !is_doubt(evidence))
            .map(|(observer, subject, (evidence, since))| inspection::Edge {
                observer,
                subject,
                evidence,
                since: now.since(since),
            })
            .collect()
    }

    /// What the members have to say against each other, this node's word first: observer, subject, what, and
    /// since when.
    fn opinions(&self) -> impl Iterator<Item = (Incarnation, Incarnation, (Evidence, Time))> + '_ {
        let mine = self
            .watches
            .iter()
            .filter_map(|(subject, watch)| Some((self.me, *subject, watch.opinion()?)));
        let theirs = self.told.iter().flat_map(|(observer, doubts)| {
            let told = |(subject, doubt): (&Incarnation, &Doubt)| {
                (*observer, *subject, (doubt.evidence.clone(), doubt.since))
            };
            doubts.iter().map(told)
        });
        mine.chain(theirs)
    }

    /// When the member was last heard.
    pub(crate) fn last_heard(&self, member: Incarnation) -> Option<Time> {
        self.watches.get(&member).map(|watch| watch.last_heard)
    }
}

/// Whether this is a doubt of the member, and not only of an edge.
fn is_doubt(evidence: &Evidence) -> bool {
    !matches!(evidence, Evidence::Deaf | Evidence::Lossy { .. })
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

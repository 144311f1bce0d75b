//! How the members of a view hear of each other: in a mesh each hears all, on rings each hears a few.
//!
//! ```text
//!                       mesh (all observe all)            rings (large views of the cut engine)
//!   heartbeats          to all members                    to one's observers
//!   doubts              in every heartbeat                rumours, when they change
//!   slot messages       to all, answers to one            proposals and tallies are rumours
//!   votes               to the member that asked; those   tallies, which reach all
//!                       that nobody asked for to all
//!   the decision        Decide to all                     Decided, a rumour
//!   leases              each answers each                 rounds (`lease::rounds`)
//! ```
//! In small views of the cut engine all hear all, too; its observers are still those on the rings.
//!
//! [`Topology`] answers all that depends on it, and only this file asks whether a view is wide. To add a
//! third way: add a variant, say in [`Topology::of`] which views have it, and answer the questions, which the
//! compiler lists. What is asked about rumours alone goes by `gossip`: there the third way is a mesh if it
//! keeps none. The observers of a lifeline are said in `agree/lifelines.rs`. A way with other messages needs
//! rooms for these: those of the rings are rumours (`seat/gossip.rs`, `seat/dissemination.rs`,
//! `agree/proofs.rs`), behind [`Topology::gossip_mut`], and rounds of leases (`lease/rounds.rs`).
//!
//! The engine learns of votes either way, in a mesh by messages and on rings from tallies, and the detector
//! is told what each accuser says. Below this file, [`Rumours`] knows which neighbour has which rumour.
//!
//! # Invariants
//!
//! - A vote becomes a rumour after it is on the lifelines, as it becomes a message in a mesh (R2).
//! - Rumours are about one view, and mean nothing in another. Proofs of death are told again in each.
//! - A promise shows what was accepted, or is none. A digest stands for a view; a member counts a vote only
//!   if it knows the view.
//! - A member that this node does not hear is lost if its observers say so. A member that is not lost is
//!   reachable only if there is word of it and of this node: from each member to its subjects, to theirs, and
//!   so on, over edges that are not down ([`Word`]). That a member is not known to be lost is not enough: a
//!   node that is cut off would go on believing in a view that has long been another.
//!
//! # When participants die
//!
//! - *An observer*: its edges count as down once it is lost itself. What it had told is with its neighbours.
//! - *A neighbour through which a rumour was to come*: there are some twenty; what all ways lost is found by
//!   the sums in heartbeats.
//! - *The leader, with its question or ballot on the way*: it reaches all, or some. The votes are with the
//!   members that count them, and the next leader's phase 1 asks all; it is the next once its observers have
//!   lost the old one.
//! - *The observer from which a joiner was to learn of its admission*: the joiner goes on asking, and a
//!   member that has installed the view tells it.
//! - *Joiners*: they acknowledge nothing, unless a ballot must be tried again.
//! - *The first member to install a view*: `Decided` is on its way to its neighbours on the tree before it
//!   installs. A neighbour that does not know what was decided pulls it from the member that said so, and
//!   passes the word on when it has it. A member that was told nothing hears of a later view by heartbeats,
//!   and pulls it.
//! - *A member that does not hear, and is heard*: it says so of all it observes, and is removed by its own
//!   word, while it is in the same view. If others went first, without it, its observers see it stay behind
//!   ([`Gossip::should_be_known`]).
//! - *A partition*: the part that has a majority goes on, its observers' words being enough; a part without
//!   one has word of itself only, and gathers a non-primary view.
//!
//! What stays between two members: probes of joiners, the decision to joiners (from one of the observers of
//! each), views that a member pulls, and all messages of a component that has lost the primary.

use std::collections::BTreeSet;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::{Ayes, Rumour, SlotMessage, Suspicion, WIRE_LEVEL};
use antiphon_wire::{Evidence, Incarnation, Member, NodeView, ViewDigest};

use crate::membership::monitor::gossip::Rumours;
use crate::membership::monitor::ranks::Ranks;
use crate::membership::monitor::reachability::{Basis, Word};
use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::values::Values;
use crate::membership::view::check;
use crate::{Config, EngineKind, Profile, Time};

/// A member does not hear enough if it is still in an earlier view after this many times the silence for
/// which it would be suspected.
const PATIENCE_WITH_LATE: u32 = 3;

/// How the members of one view hear of each other.
#[derive(Debug)]
pub(crate) enum Topology {
    /// Each member hears each other one, and speaks to it.
    Mesh,
    /// Each member hears those that it observes on rings, and speaks to those that observe it; all else goes
    /// from neighbour to neighbour.
    Rings(Box<Gossip>),
}

impl Topology {
    /// The topology of this view, for a member of it.
    pub(crate) fn of(
        me: Incarnation,
        now: Time,
        view: &NodeView,
        rings: &Rings,
        batch: Duration,
        lag: Duration,
    ) -> Self {
        match view.rank(me).filter(|_| rings.are_wide(view.members.len())) {
            Some(rank) => Self::Rings(Box::new(Gossip::of(rank, now, view, rings, batch, lag))),
            None => Self::Mesh,
        }
    }

    fn gossip(&self) -> Option<&Gossip> {
        match self {
            Self::Mesh => None,
            Self::Rings(gossip) => Some(gossip),
        }
    }

    pub(crate) fn gossip_mut(&mut self) -> Option<&mut Gossip> {
        match self {
            Self::Mesh => None,
            Self::Rings(gossip) => Some(gossip),
        }
    }

    /// Whether this node hears all members itself. If not, it goes by what the observers of a member say.
    pub(crate) fn hears_all(&self) -> bool {
        match self {
            Self::Mesh => true,
            Self::Rings(_) => false,
        }
    }

    /// Whether this node tells all members itself. If not, it tells its neighbours, which pass it on.
    pub(crate) fn tells_all(&self) -> bool {
        match self {
            Self::Mesh => true,
            Self::Rings(_) => false,
        }
    }

    /// Whether leases are renewed in rounds. If not, each member answers each other one's heartbeats.
    pub(crate) fn leases_by_rounds(&self) -> bool {
        match self {
            Self::Mesh => false,
            Self::Rings(_) => true,
        }
    }

    /// Whether this node speaks to a member all the time.
    pub(crate) fn is_neighbour(&self, member: Incarnation) -> bool {
        self.gossip().is_none_or(|gossip| gossip.is_neighbour(member))
    }

    /// The members that this node speaks to all the time, where these are not all.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = Incarnation> {
        self.gossip()
            .into_iter()
            .flat_map(|gossip| gossip.neighbours.iter().copied())
    }

    /// Whether there is word of the member of this rank. Where all are heard, the detector alone tells.
    pub(crate) fn has_word_of(&self, rank: usize) -> bool {
        let word = self.gossip().and_then(|gossip| gossip.heard_of.as_ref());
        word.is_none_or(|word| word.of[rank])
    }

    /// Whether some member is heard by none of the members of which there is word.
    pub(crate) fn misses_some(&self) -> bool {
        let word = self.gossip().and_then(|gossip| gossip.heard_of.as_ref());
        word.is_some_and(|word| word.misses)
    }

    /// The time between two times that everything is weighed, if to weigh all members takes a while.
    pub(crate) fn weighs_every(&self, batch: Duration) -> Option<Duration> {
        match self {
            Self::Mesh => None,
            Self::Rings(_) => Some(batch),
        }
    }

    /// Whether a member in an earlier view has had the time to follow: it is told of this one again and
    /// again, and does not hear that. Its opinions, which are about a view that is over, do not say so.
    pub(crate) fn should_be_known(&self, now: Time, suspect_after: Duration) -> bool {
        let had_time =
            |began| now.since(began) >= suspect_after * PATIENCE_WITH_LATE && !planted!(WaitForWhoIsBehind);
        self.gossip().is_some_and(|gossip| had_time(gossip.began))
    }

    /// The view with this digest, if a member has shown it to all.
    pub(crate) fn shown(&self, digest: ViewDigest) -> Option<&Arc<NodeView>> {
        self.gossip()?.values.get(digest)
    }

    /// The sum of the rumours that this node has, by which two neighbours find that one lacks some.
    pub(crate) fn sum_of_rumours(&self) -> u32 {
        self.gossip().map_or(0, |gossip| gossip.rumours.sum())
    }

    /// How many different votes this node keeps.
    #[cfg(test)]
    pub(crate) fn tallies(&self) -> usize {
        self.gossip().map_or(0, |gossip| gossip.rumours.tallies())
    }

    /// When rumours are due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.gossip()?.rumours.next_deadline()
    }

    /// How long a proposer waits for votes before it tries a higher ballot: on rings a vote needs a few hops.
    pub(crate) fn ballot_patience(&self, profile: &Profile) -> Duration {
        match self {
            Self::Mesh => profile.heartbeat,
            Self::Rings(_) => profile.heartbeat.max(profile.retransmit * 8),
        }
    }

    /// How long the fast ballot is waited for before a classic one begins.
    pub(crate) fn fast_patience(&self, profile: &Profile) -> Duration {
        match self {
            Self::Mesh => profile.retransmit * 2,
            Self::Rings(_) => self.ballot_patience(profile),
        }
    }

    /// How long a vote may take to lead to a view.
    pub(crate) fn vote_patience(&self, profile: &Profile) -> Duration {
        match self {
            Self::Mesh => self.ballot_patience(profile),
            Self::Rings(_) => self.ballot_patience(profile) * 2,
        }
    }

    /// How long after the first proof of death the proofs of members that died with it may come.
    pub(crate) fn proofs_come_within(&self, profile: &Profile) -> Duration {
        match self {
            Self::Mesh => profile.batch * 2,
            Self::Rings(_) => profile.batch * 8,
        }
    }

    /// R3: joiners may vanish after their proposal was accepted, and cannot be left out any more. So the
    /// members that stay, of these weights, must be a quorum of the next view by themselves. The other
    /// joiners join a view later.
    pub(crate) fn limit(&self, staying: impl Iterator<Item = u16>, has_doubts: bool, join: &mut Vec<Member>) {
        let (mut stay, mut heaviest) = (0, 0);
        for weight in staying.map(u64::from) {
            stay += weight;
            heaviest = weight.max(heaviest);
        }
        let most = match self {
            // If a member that stays is killed while they vote, its proof takes it out of the count, and its
            // weight is missing.
            Self::Mesh => stay - heaviest,
            // Joiners acknowledge nothing before they are in, and not all votes are waited for: seven eighths
            // of the members that stay must be enough.
            Self::Rings(_) if has_doubts => stay * 3 / 4,
            // Where all are well, fifteen sixteenths: the larger the steps, the fewer sizes a cluster has
            // while it forms.
            Self::Rings(_) => stay * 7 / 8,
        };
        let mut admitted = 0;
        let mut weight = 0;
        for joiner in join.iter() {
            weight += u64::from(joiner.weight);
            // One joiner is always admitted, or a node heavier than the cluster could never join it. Half of
            // the weight is enough: the most senior member stays.
            if admitted > 0 && weight > most {
                break;
            }
            admitted += 1;
        }
        join.truncate(admitted);
    }
}

/// What a member keeps in a view in which it does not hear all.
#[derive(Debug)]
pub(crate) struct Gossip {
    me: Incarnation,
    rank: usize,
    /// When this node installed the view.
    began: Time,
    pub(crate) rumours: Rumours,
    neighbours: BTreeSet<Incarnation>,
    /// What this node has said of itself last.
    said: (u32, Said),
    pub(crate) values: Values,
    /// Of which members there was word when everything was weighed last; `None` if nobody doubted anybody.
    heard_of: Option<Word>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    primary: bool,
    leaving: bool,
    wire_level: u8,
    /// And why: a member that says that a path loses much must say so again when nothing comes any more.
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

impl Gossip {
    fn of(rank: usize, now: Time, view: &NodeView, rings: &Rings, batch: Duration, lag: Duration) -> Self {
        let neighbours = rings.neighbours(rank).into_iter();
        let neighbours: Vec<Incarnation> = neighbours.map(|rank| view.members[rank].incarnation).collect();
        let branches = rings.branches(rank).into_iter();
        let branches: BTreeSet<Incarnation> = branches.map(|rank| view.members[rank].incarnation).collect();
        let interval = batch * 2;
        let mut rumours = Rumours::new(view.members.len(), neighbours.clone(), &branches, interval, now);
        rumours.lags(lag);
        Self {
            me: view.members[rank].incarnation,
            rank,
            began: now,
            neighbours: neighbours.into_iter().collect(),
            rumours,
            said: (0, Said::nothing(view)),
            values: Values::default(),
            heard_of: None,
        }
    }

    /// Says by a rumour what this node thinks of itself and of its edges, if that has changed.
    pub(crate) fn opine(&mut self, now: Time, (primary, leaving): (bool, bool), suspicions: Vec<Suspicion>) {
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
            of: self.me,
            version,
            primary,
            leaving,
            wire_level: WIRE_LEVEL,
            suspicions,
        };
        self.rumours.take(now, None, opinion);
    }

    pub(crate) fn is_neighbour(&self, member: Incarnation) -> bool {
        self.neighbours.contains(&member)
    }

    /// Tells all voters a slot message of this node. Answers go to one, so they are not told.
    pub(crate) fn spread(&mut self, now: Time, view: &NodeView, message: SlotMessage) {
        let rumour = match message {
            SlotMessage::Fast { value } => {
                let change = Box::new(check::change_of(view, &value));
                let value = self.values.learn(Arc::new(*value));
                self.rumours.take(now, None, Rumour::Ask { by: self.me, change });
                return self.vote(now, Ayes::Cast { value });
            }
            SlotMessage::Accept {
                ballot,
                value,
                proofs,
            } => {
                let change = Box::new(check::change_of(view, &value));
                self.values.learn(Arc::new(*value));
                Rumour::Accept {
                    ballot,
                    change,
                    proofs,
                }
            }
            SlotMessage::Prepare {
                ballot,
                proofs,
                removing,
            } => Rumour::Prepare {
                ballot,
                proofs,
                removing,
            },
            SlotMessage::Cast { value } => return self.vote(now, Ayes::Cast { value }),
            SlotMessage::Promise { .. } | SlotMessage::Accepted { .. } | SlotMessage::Nack { .. } => return,
        };
        self.rumours.take(now, None, rumour);
    }

    /// Tells all a vote that answers a member. Returns any other message, which is for that member alone.
    pub(crate) fn answer(&mut self, now: Time, view: &NodeView, message: SlotMessage) -> Option<SlotMessage> {
        let what = match message {
            SlotMessage::Cast { value } => Ayes::Cast { value },
            SlotMessage::Accepted { ballot } => Ayes::Accepted { ballot },
            SlotMessage::Promise { ballot, accepted } => {
                let accepted_in = accepted.as_ref().map(|accepted| accepted.ballot);
                let mut shown = None;
                if let Some(accepted) = accepted {
                    // A promise that does not show what was accepted would count as that of a member that has
                    // accepted nothing.
                    let value = check::voted(view, &accepted.value)?;
                    let change = check::change_of(view, &value);
                    self.rumours.take(now, None, Rumour::Value(Box::new(change)));
                    shown = Some(self.values.learn(Arc::new(value)));
                }
                Ayes::Promise {
                    ballot,
                    accepted_in,
                    accepted: shown,
                }
            }
            SlotMessage::Prepare { .. }
            | SlotMessage::Accept { .. }
            | SlotMessage::Fast { .. }
            | SlotMessage::Nack { .. } => return Some(message),
        };
        self.vote(now, what);
        None
    }

    fn vote(&mut self, now: Time, what: Ayes) {
        let by = Ranks::of(self.rank).into_wire();
        self.rumours.take(now, None, Rumour::Tally { what, by });
    }

    /// Finds of which members this node has word; `None` while nobody doubts anybody. The node hears its
    /// subjects, or doubts them. From the subjects that it hears it knows which members these hear, and so
    /// on. A node that is cut off, alone or with a part of the view, hears nothing of what the others have
    /// found. Without this check it would believe for ever that the view goes on as it was.
    ///
    /// If these members are too few to decide anything, only those count that have word of this node as well:
    /// some hear it, others hear these, and so on. All members that are connected in this way find the same
    /// set, and gather with no member that does not hear them.
    ///
    /// There are two exceptions. No member has word of a member whose observers are all lost, and that is not
    /// its fault. And a node is not cut off if its own losses are losses that the others have found as well:
    /// cut off, it would not know of that. Such a node needs no word of members of which nobody has said
    /// anything. But the exceptions do not make these members heard ([`Word::misses`]).
    pub(crate) fn hear_of_others(
        &mut self,
        rings: &Rings,
        basis: Option<Basis>,
        is_proven: impl Fn(usize) -> bool,
        could_decide: impl Fn(&[bool]) -> bool,
    ) {
        let Some(basis) = basis.filter(|_| !planted!(CutOffBelieves)) else {
            self.heard_of = None;
            return;
        };
        // This is asked all the time while any member doubts another, and what they say of each other changes
        // seldom.
        let same = |word: &Word| word.basis.as_ref() == Some(&basis);
        if !self.heard_of.as_ref().is_some_and(same) {
            self.heard_of = Some(Word::by(rings, self.rank, basis, is_proven, could_decide));
        }
    }
}

/// Which member observes which; none in particular with the coordinator.
pub(crate) fn rings_of(config: &Config, view: &NodeView) -> Arc<Rings> {
    Arc::new(match config.engine {
        EngineKind::Cut => Rings::new(view, config.rings.max(1)),
        EngineKind::Coordinator => Rings::new(view, 0),
    })
}

/// Whether votes in this view name what changes instead of carrying whole views: where two of these do not
/// fit one record of a lifeline, or not all members are neighbours.
pub(crate) fn are_named(config: &Config, view: &NodeView, rings: &Rings) -> bool {
    let is_large = || check::records_bytes(view) > check::MAX_RECORDS_BYTES;
    config.engine == EngineKind::Cut && (rings.are_wide(view.members.len()) || is_large())
}

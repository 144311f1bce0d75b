//! The lease of the primary in views whose members are not all neighbours: a pulse in place of answers from
//! each to each (R7, G42).
//!
//! In a view of a thousand nobody can count for itself who answered it. So one member counts for all. Its
//! ticks go down a tree, and the answers come back up it as sets:
//!
//! ```text
//!   maker             tick k: fresh, renewed        others
//!     │ ──────────────────────────────────────────►   a answers k: notes `fresh`, of whom it votes none out for L'; remembers when
//!     │ ◄──────────────────────────────────────────   echo k: those who answered
//!     │ tick k+1: fresh = who answered k, as far as known by now
//!     │ ──────────────────────────────────────────►   m ∈ fresh(k+1): its answer to k, at s, came before tick k+1 was made
//!     │ ◄──────────────────────────────────────────   echo k+1: if a quorum, all of it noted m, after s
//!     │ tick k+2: renewed = fresh(k+1), if a quorum answered k+1
//!     │ ──────────────────────────────────────────►   m ∈ renewed: believes until s + L
//! ```
//! That is [`lease`] with another way for the answers: whoever let m believe noted it later than s,
//! the moment from which m counts. All that is said there of votes holds here: who has a vote in the slot
//! answers no tick; who answered votes for no removal without a proof until L' later; whom somebody is about
//! to remove the maker leaves out of `fresh`, and a tick that has it is not answered by whoever withholds it.
//! (Nobody tells whom it withholds: that the leader and the maker are one member, nearly always, is enough.
//! Otherwise it takes until the proposal comes.)
//!
//! **How often.** Nine ticks while two leases last. A member goes on believing from tick to tick if L is
//! longer than three intervals and the way of a tick, and may miss one if it is longer than four. The way
//! down the tree and back up must take less than an interval, or what those at its end answer comes too late
//! to count; a maker that far from the others renews nobody. One that falls silent is let believe by the tick
//! after its last answer, so what others hold back for it is over when its observers agree on its loss, or
//! hardly later. The first ticks of a view, or of another maker, follow each other as fast as answers come.
//!
//! **Who makes them.** The most senior member. Another one if no tick of a more senior one renewed its own
//! lease for an interval and a half, and up to half of one more for each doubling of its rank; unless
//! somebody senior to it has made its first few a moment ago, or three of them try. Ticks of different makers
//! do not mix: each counts its own. A maker tries four ticks at a time, of which three are enough where it
//! may hear a quorum. After those that were in vain it pauses, for longer each time, and whoever comes next
//! has its turn: however many senior members are too far away, somebody is found who is not. Whoever renews
//! leases goes on until somebody more senior renews its own, whoever else tries; and in the next view it
//! begins at once, and those who were in vain do not.
//!
//! **Which way.** Ticks go along the tree of rumours ([`Rings::branches`]) at first, and from
//! then on along the edges on which they came first, as in *Epidemic Broadcast Trees* (Leitão, Pereira,
//! Rodrigues, SRDS 2007; Plumtree): whoever is not renewed, or hears no tick, grafts the edges from some of
//! its neighbours on the rings, then from more; who is told one twice prunes the later edge, unless it is one
//! of the tree. That is for the ticks of this maker: each has edges of its own, or one that renews nobody
//! would have those edges pruned that others need. Answers go back the way their tick came. Each member waits
//! for those whom it passed the tick on to, an eighth of an interval at most, not again for who was too late,
//! and stops telling whoever goes on giving no answer: what does not come back that way may come back another
//! one, and who hears nothing asks.
//!
//! Two small frames a member for each tick, whatever the size of the view. Nothing here is reliable, and of a
//! view nothing goes into the next one but these edges; the next tick says more.
//!
//! # Invariants
//!
//! - A member believes by its answer to tick k of a maker only if k's maker had that answer when it made k+1,
//!   and a quorum answered k+1 after that.
//! - A tick is answered once, when it first comes; a later tick of the same maker voids it. What was the
//!   latest of each maker is known as long as the view lasts.
//! - Whoever answers has noted `fresh` before its answer leaves.
//! - A member without a lease of its own makes no ticks. It answers those of others and holds votes back like
//!   everybody: what others believe counts on it.
//! - Ranks, numbers and makers mean something in one view only, and each message says in which: an
//!   incarnation is in one view of an id at most.
//!
//! # When participants die
//!
//! - *m*: it answers no tick; those who noted it hold votes back for L' from the tick after its last answer,
//!   or not at all with a proof.
//! - *One on the way down or up*: those behind it miss one tick and graft. What they answer goes another way
//!   from then on.
//! - *The maker*: all miss its ticks. The next one begins after an interval and a half, and has renewed the
//!   leases two round trips later. With a proof of death it is not waited for: the view without the maker has
//!   another most senior member.
//! - *The maker, but not for all (its paths lose most)*: its ticks renew too few. Others are not renewed, and
//!   make their own.
//! - *An edge, in one direction*: whose answers get lost is told no more by that one, hears nothing, and
//!   grafts another edge.
//! - *A quorum*: nobody is renewed any more, by anybody.
//! - *A member was stopped*: what it hears when it goes on are ticks that it answers now, too late for those
//!   who made them to count; and it forgets its own answers ([`Rounds::missed`]).
//!
//! [`Rings::branches`]: crate::membership::monitor::rings::Rings::branches
//! [`lease`]: crate::membership::lease

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use antiphon_wire::membership::{Edge, Pulse};
use antiphon_wire::{Incarnation, NodeView, ViewId};

use crate::config::LONGEST_LEASE;
use crate::membership::monitor::ranks::Ranks;
use crate::membership::monitor::rings::Rings;
use crate::{Config, Policy, Time};

/// So many makers are listened to: of more, the most senior.
const MAX_MAKERS: usize = 8;
/// A maker that was not heard for so many intervals makes room for another one.
const SILENT_MAKER: u32 = 4;
/// So many members more senior than this one that make ticks are enough, whatever becomes of these.
const ENOUGH_MAKERS: usize = 3;
/// A maker whose ticks renew nobody by then is not waited for; so many it makes before it pauses, and those
/// of its first try follow each other at once.
const PROMISING_TICKS: u32 = 4;
/// The pause after tries in vain is doubled so often at most; who did not get beyond so many was no bad
/// maker, or not for long.
const MOST_PAUSES: u32 = 6;
const FEW_IN_VAIN: u32 = 1;
/// So many of its own answers to one maker a member remembers: a tick is about the last but two.
const REMEMBERED: usize = 4;
/// So many neighbours are asked for ticks first, then twice as many, then four times.
const FIRST_GRAFTS: usize = 4;
/// After so many the next graft follows half an interval later, then twice as long after the last one each
/// time: four intervals at most, or far more where there never was a tick, since nobody may have a lease.
const PROMPT_GRAFTS: u32 = 2;
const MOST_DOUBLINGS: u32 = 3;
const MOST_IN_VAIN: u32 = 10;

/// A tick, as it is understood here.
#[derive(Debug, Clone)]
pub(crate) struct Tick {
    maker: usize,
    number: u32,
    pub(crate) length: Duration,
    pub(crate) fresh: Ranks,
    renewed: Option<Ranks>,
}

/// What is known of the ticks of one member.
#[derive(Debug)]
struct Maker {
    tick: Tick,
    came: Time,
    /// When one that renewed this member should have come, by the answer that it was about.
    renewed: Option<Time>,
    /// What this member answered, and when.
    answers: VecDeque<(u32, Time)>,
    /// From whom the last one came; `None` if it is this member's own.
    from: Option<usize>,
    /// Whom it was passed on to and who has not answered yet.
    waiting: BTreeSet<usize>,
    /// Who answered the last one, as far as not passed on.
    who: Ranks,
    due: Option<Time>,
    passed_on: bool,
    /// Whether somebody did not answer in time.
    short: bool,
    /// Whom its ticks are passed on to.
    eager: BTreeSet<usize>,
}

/// What this member does as a maker.
#[derive(Debug)]
struct Making {
    made: Time,
    /// `fresh` of the last tick.
    fresh: Ranks,
    /// Whether it renewed a quorum.
    renews: bool,
    /// The number of the first tick of this try.
    first: u32,
}

/// The pulse of one view.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) view: ViewId,
    pub(crate) me: usize,
    pub(crate) members: usize,
    pub(crate) neighbours: BTreeSet<usize>,
    tree: BTreeSet<usize>,
    /// Whom ticks of a maker are passed on to at first; and who did not answer the last one in time, and
    /// since when.
    eager: BTreeSet<usize>,
    mute: BTreeMap<usize, Time>,
    interval: Duration,
    /// When the first tick may be made: who joins must have the view by then.
    begins: Time,
    /// When this member grafts unless a new tick comes before, and how often it did since the last one came.
    grafts_at: Time,
    grafts: u32,
    /// When a tick renewed this member last.
    renewed: Time,
    /// The latest tick of each member.
    numbers: Vec<u32>,
    makers: BTreeMap<usize, Maker>,
    making: Option<Making>,
    /// Tries of this member that were in vain, one after the other.
    vain: u32,
    /// Whether its ticks renewed leases in the view before.
    renewed_before: bool,
    pub(crate) outbox: Vec<(usize, Pulse)>,
}

/// Along which edges of this member ticks go, who of those behind them does not answer, and what came of its
/// own.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    eager: Vec<Incarnation>,
    mute: Vec<(Incarnation, Time)>,
    vain: u32,
    renews: bool,
}

/// What a tick means to whoever hears it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing new.
    Known,
    /// It is; and when this member gave the answer by which it believes from now on, if it does.
    New(Option<Time>),
}

impl Rounds {
    /// `None` where all are neighbours, or nobody has a lease. Goes on along the edges that ticks came by in
    /// the view before.
    pub(crate) fn of(
        config: &Config,
        me: Incarnation,
        now: Time,
        view: &NodeView,
        rings: &Rings,
        before: &Inherited,
    ) -> Option<Self> {
        let rank = rings.rank(me)?;
        if !rings.are_wide(view.members.len()) || config.policy != Policy::Majority {
            return None;
        }
        let tree = rings.branches(rank);
        let interval = config.profile.usual_lease() * 2 / 9;
        let neighbours = rings.neighbours(rank);
        let is_near = |member: &Incarnation| rings.rank(*member).filter(|rank| neighbours.contains(rank));
        let mute = before
            .mute
            .iter()
            .filter_map(|(member, since)| Some((is_near(member)?, *since)));
        let mute = mute.collect();
        let eager = before
            .eager
            .iter()
            .filter_map(is_near)
            .chain(tree.clone())
            .collect();
        Some(Self {
            view: view.primary_id(),
            me: rank,
            members: view.members.len(),
            neighbours,
            eager,
            tree,
            mute,
            interval,
            begins: now + config.profile.retransmit / 2 + pause_after(interval, before.vain),
            grafts_at: now + interval * 5 / 4,
            grafts: 0,
            renewed: now,
            numbers: vec![0; view.members.len()],
            makers: BTreeMap::new(),
            making: None,
            vain: before.vain,
            renewed_before: before.renews,
            outbox: Vec::new(),
        })
    }

    /// What the next view begins with, if this is the pulse of that one.
    pub(crate) fn leaves_behind(&self, view: &NodeView) -> Inherited {
        let member = |rank: &usize| view.members.get(*rank).map(|member| member.incarnation);
        let best = self
            .makers
            .values()
            .max_by_key(|known| (known.renewed, known.came));
        Inherited {
            eager: best
                .map_or(&self.eager, |known| &known.eager)
                .iter()
                .filter_map(member)
                .collect(),
            mute: self
                .mute
                .iter()
                .filter_map(|(rank, since)| Some((member(rank)?, *since)))
                .collect(),
            vain: if self.vain > FEW_IN_VAIN { self.vain } else { 0 },
            renews: self.renews(),
        }
    }

    /// Whether the ticks of this member renew leases, or did in the view before, and it has not tried in this
    /// one.
    fn renews(&self) -> bool {
        self.making
            .as_ref()
            .map_or(self.renewed_before, |making| making.renews)
    }

    /// What this member answered before counts no more.
    pub(crate) fn missed(&mut self) {
        self.makers.values_mut().for_each(|maker| maker.answers.clear());
    }

    /// A tick came from a neighbour, or is this member's own; it answers or does not.
    pub(crate) fn take(&mut self, now: Time, from: Option<usize>, tick: Tick, answers: bool) -> Heard {
        let (at, number) = (tick.maker, tick.number);
        let is_own = from.is_some() && at == self.me;
        if is_own || number <= self.numbers[at] {
            let first = self.makers.get(&at).and_then(|known| known.from);
            if number == self.numbers[at] && (is_own || first != from) {
                self.answer(from, at, number, Ranks::default(), Edge::Prune);
            }
            return Heard::Known;
        }
        self.numbers[at] = number;
        if !self.make_room(now, at) {
            self.answer(from, at, number, Ranks::default(), Edge::Prune);
            return Heard::Known;
        }
        let before = self.makers.remove(&at);
        let (mut answered, mut renewed, eager) = before.map_or((VecDeque::new(), None, None), |maker| {
            (maker.answers, maker.renewed, Some(maker.eager))
        });
        let counted = number.saturating_sub(2);
        let since = answered
            .iter()
            .find(|(to, _)| *to == counted)
            .map(|(_, when)| *when);
        let since = since.filter(|_| {
            tick.renewed
                .as_ref()
                .is_some_and(|renewed| renewed.contains(self.me))
        });
        if let Some(since) = since {
            renewed = Some(since + self.interval * 2);
            self.renewed = now;
        }
        let is_renewing = tick.renewed.is_some();
        let mut who = Ranks::default();
        if answers {
            if answered.len() >= REMEMBERED {
                answered.pop_front();
            }
            assert!(
                answered.back().is_none_or(|(last, _)| *last < number) && answered.len() < REMEMBERED,
                "R7: tick {number} of {at} is answered after {answered:?}"
            );
            answered.push_back((number, now));
            who = Ranks::of(self.me);
        }
        let (mute, given_up) = (&self.mute, self.interval * 2);
        let is_given_up = |to: &usize| mute.get(to).is_some_and(|since| now.since(*since) >= given_up);
        self.eager.retain(|to| !is_given_up(to));
        // Whoever begins to try knows nothing of who hears it best.
        let begins = from.is_none() && self.making.as_ref().is_some_and(|making| making.first == number);
        let mut eager = match eager {
            _ if begins => self.neighbours.clone(),
            Some(eager) => eager,
            None => self.eager.clone(),
        };
        eager.retain(|to| !is_given_up(to));
        let to: Vec<usize> = eager.iter().copied().filter(|to| Some(*to) != from).collect();
        let waiting: BTreeSet<usize> = to.iter().copied().filter(|to| !mute.contains_key(to)).collect();
        let patience = if waiting.is_empty() {
            Duration::ZERO
        } else {
            self.interval / 8
        };
        let pulse = tick.to_wire(self.view, self.members);
        self.outbox.extend(to.into_iter().map(|to| (to, pulse.clone())));
        let maker = Maker {
            tick,
            came: now,
            renewed,
            answers: answered,
            from,
            waiting,
            who,
            due: Some(now + patience),
            passed_on: false,
            short: false,
            eager,
        };
        self.makers.insert(at, maker);
        assert!(
            self.makers.len() <= MAX_MAKERS + 1,
            "R7: {} members make ticks",
            self.makers.len()
        );
        // Ticks that do not renew it are none to this member: it looks for others.
        if now.since(self.renewed) < self.interval * 3 {
            self.grafts_at = now + self.interval * 5 / 4;
            self.grafts = 0;
        }
        self.pass_on(now);
        let hears = is_renewing && planted!(PulseRenewsWhoHears);
        Heard::New(since.or(Some(now).filter(|_| hears)))
    }

    /// Whether there is room for a maker. Of too many one is forgotten that is not heard any more, or the
    /// most junior one of those that do not renew this member, be it the newcomer.
    fn make_room(&mut self, now: Time, maker: usize) -> bool {
        if self.makers.len() < MAX_MAKERS || self.makers.contains_key(&maker) || maker == self.me {
            return true;
        }
        let long = self.interval * SILENT_MAKER;
        let others = || self.makers.iter().filter(|(at, _)| **at != self.me);
        let oldest = others().min_by_key(|(_, known)| known.came);
        let oldest = oldest.filter(|(_, known)| now.since(known.came) >= long);
        let is_barren = |known: &Maker| known.renewed.is_none_or(|renewed| now.since(renewed) >= long);
        let barren = || others().filter(|(_, known)| is_barren(known)).map(|(at, _)| *at);
        let junior = || barren().max().filter(|at| *at > maker);
        let forgotten = oldest.map(|(at, _)| *at).or_else(junior);
        if let Some(forgotten) = forgotten {
            self.makers.remove(&forgotten);
        }
        forgotten.is_some()
    }

    /// Answers came from a neighbour.
    pub(crate) fn echo(
        &mut self,
        now: Time,
        from: usize,
        (maker, number): (usize, u32),
        who: &Ranks,
        edge: Edge,
    ) {
        self.mute.remove(&from);
        let eager = self.makers.get_mut(&maker).map(|known| &mut known.eager);
        match (edge, eager) {
            (Edge::Keep, Some(eager)) => drop(eager.insert(from)),
            (Edge::Prune, Some(eager)) if !self.tree.contains(&from) => drop(eager.remove(&from)),
            (Edge::Keep | Edge::Prune, _) => {}
            (Edge::Graft, _) if planted!(NobodyGrafts) => {}
            (Edge::Graft, _) => {
                self.eager.insert(from);
                for known in self.makers.values_mut() {
                    known.eager.insert(from);
                }
                let latest = self.makers.iter().max_by_key(|(_, known)| known.came);
                let lacks = |(at, known): &(&usize, &Maker)| (**at, known.tick.number) != (maker, number);
                if let Some((_, known)) = latest.filter(lacks).filter(|(_, known)| known.from != Some(from)) {
                    let tick = known.tick.to_wire(self.view, self.members);
                    self.outbox.push((from, tick));
                }
                return;
            }
        }
        let Some(known) = self
            .makers
            .get_mut(&maker)
            .filter(|known| known.tick.number == number)
        else {
            return;
        };
        known.waiting.remove(&from);
        known.who.merge(who);
        if known.waiting.is_empty() {
            let pause = if known.passed_on {
                self.interval / 16
            } else {
                Duration::ZERO
            };
            let at = now + pause;
            known.due = Some(known.due.map_or(at, |due| due.min(at)));
        }
        self.pass_on(now);
    }

    /// Passes answers on that are complete, or have waited for long enough.
    pub(crate) fn pass_on(&mut self, now: Time) {
        let is_due = |(at, known): (&usize, &Maker)| known.due.filter(|due| *due <= now).map(|_| *at);
        let due: Vec<usize> = self.makers.iter().filter_map(is_due).collect();
        for at in due {
            let Some(known) = self.makers.get_mut(&at) else {
                continue;
            };
            known.due = None;
            known.short |= !known.waiting.is_empty();
            for late in std::mem::take(&mut known.waiting) {
                self.mute.entry(late).or_insert(now);
            }
            known.passed_on = true;
            // The maker counts them.
            if let Some(from) = known.from {
                let (number, who) = (known.tick.number, std::mem::take(&mut known.who));
                self.answer(Some(from), at, number, who, Edge::Keep);
            }
        }
    }

    fn answer(&mut self, to: Option<usize>, maker: usize, number: u32, who: Ranks, edge: Edge) {
        if let Some(to) = to {
            let echo = Pulse::Echo {
                view: self.view,
                maker: maker as u16,
                number,
                who: who.pack(self.members),
                edge,
            };
            self.outbox.push((to, echo));
        }
    }

    /// Asks neighbours for ticks, if none come or none of them renews this member: others each time.
    pub(crate) fn graft(&mut self, now: Time) {
        if now < self.grafts_at {
            return;
        }
        let asked = FIRST_GRAFTS << self.grafts.min(8);
        let skipped = self.me + asked - FIRST_GRAFTS;
        self.grafts = self.grafts.saturating_add(1);
        let most = if self.makers.is_empty() {
            MOST_IN_VAIN
        } else {
            MOST_DOUBLINGS
        };
        let doublings = self.grafts.saturating_sub(PROMPT_GRAFTS).min(most);
        self.grafts_at = now + self.interval / 2 * (1 << doublings);
        let latest = self.makers.iter().max_by_key(|(_, known)| known.came);
        let (maker, number) = latest.map_or((self.me, 0), |(at, known)| (*at, known.tick.number));
        // The maker is a neighbour, and silent: the ticks of the next one do not wait for its answers.
        if latest.is_some_and(|(at, known)| known.from == Some(*at)) {
            self.mute.entry(maker).or_insert(now);
        }
        let neighbours: Vec<usize> = self.neighbours.iter().copied().collect();
        let some = neighbours.iter().cycle().skip(skipped % neighbours.len().max(1));
        for to in some.take(asked.min(neighbours.len())) {
            self.answer(Some(*to), maker, number, Ranks::default(), Edge::Graft);
        }
    }

    /// The next graft is due.
    pub(crate) fn ask(&mut self, now: Time) {
        self.grafts_at = self.grafts_at.min(now);
    }

    /// From when a member makes ticks before whom there are so many more senior ones that live, as far as
    /// this one knows.
    fn makes_from(&self, before: usize) -> Time {
        let Some(doublings) = before.checked_ilog2() else {
            return self.begins;
        };
        let seniors = || self.makers.iter().filter(|(at, _)| **at < self.me);
        let renewed = seniors().filter_map(|(_, known)| known.renewed).max();
        // Not all of one doubling begin at once.
        let part = before - (1 << doublings);
        let part = self.interval * u32::try_from(part).unwrap_or(0) / (1 << doublings);
        let patience = (self.interval * (3 + doublings) + part) / 2;
        if renewed.is_none() && self.renews() {
            return self.begins;
        }
        let mut from = renewed.map_or(self.begins, |renewed| renewed.max(self.begins)) + patience;
        if (self.renews() || self.tries()) && !planted!(SeniorsSilenceAll) {
            return from;
        }
        let promising = seniors().filter(|(_, known)| known.tick.number <= PROMISING_TICKS);
        if let Some(last) = promising.map(|(_, known)| known.came).max() {
            from = from.max(last + patience);
        }
        let mut lately: Vec<Time> = seniors().map(|(_, known)| known.came).collect();
        lately.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(third) = lately.get(ENOUGH_MAKERS - 1) {
            from = from.max(*third + self.interval / 2 + patience);
        }
        from
    }

    /// Whether this member has begun a try that is not over.
    fn tries(&self) -> bool {
        let own = self.makers.get(&self.me);
        own.zip(self.making.as_ref()).is_some_and(|(own, making)| {
            !making.renews && own.tick.number - making.first + 1 < PROMISING_TICKS
        })
    }

    /// When this member makes its next tick.
    pub(crate) fn makes_at(&self, before: usize) -> Time {
        let from = self.makes_from(before);
        let Some(making) = &self.making else { return from };
        let own = self.makers.get(&self.me);
        let pause = match own.filter(|_| self.tries() && self.vain == 0) {
            // Others wait as well for who does not answer, and pass on then what they have.
            Some(own) if !own.waiting.is_empty() => self.interval,
            Some(own) if own.short => self.interval / 2,
            Some(_) => Duration::ZERO,
            None if making.renews || self.tries() => self.interval,
            None if planted!(SeniorsSilenceAll) => self.interval,
            None => pause_after(self.interval, self.vain + 1),
        };
        from.max(making.made + pause)
    }

    /// The next tick of this member. `is_quorum` of those who answered the last one; `withheld` are let
    /// believe no more.
    pub(crate) fn make(
        &mut self,
        now: Time,
        length: Duration,
        withheld: &Ranks,
        is_quorum: impl Fn(&Ranks) -> bool,
    ) -> Tick {
        let own = self.makers.get(&self.me);
        let number = own.map_or(0, |own| own.tick.number).saturating_add(1);
        let answered = own.map_or_else(Ranks::default, |own| own.who.clone());
        let tries = self.tries();
        let before = self.making.take();
        let enough = is_quorum(&answered) || planted!(PulseWithoutQuorum);
        let first = match &before {
            Some(making) if tries && now.since(making.made) < self.interval * 2 => making.first,
            Some(making) => {
                let seniors = self.makers.iter().filter(|(at, _)| **at < self.me);
                let renewed = seniors.filter_map(|(_, known)| known.renewed).max();
                if renewed.is_some_and(|renewed| renewed > making.made) {
                    self.vain = 0;
                } else if !tries && !making.renews {
                    self.vain = self.vain.saturating_add(1);
                }
                number
            }
            None => number,
        };
        let fresh_before = before.map(|making| making.fresh);
        let renewed = fresh_before.filter(|fresh| enough && !fresh.is_empty());
        // Some may be near it that are no quorum.
        let renews = renewed.as_ref().is_some_and(&is_quorum);
        if renews {
            self.vain = 0;
        }
        let fresh = answered.without(withheld);
        self.making = Some(Making {
            made: now,
            fresh: fresh.clone(),
            renews,
            first,
        });
        Tick {
            maker: self.me,
            number,
            length,
            fresh,
            renewed,
        }
    }

    pub(crate) fn next_deadline(&self, makes: Option<usize>) -> Time {
        let due = self.makers.values().filter_map(|known| known.due).min();
        let makes = makes.map(|before| self.makes_at(before));
        let deadlines = due.into_iter().chain(makes);
        deadlines.fold(self.grafts_at, Time::min)
    }
}

/// How long a maker waits after so many tries in vain.
fn pause_after(interval: Duration, vain: u32) -> Duration {
    match vain {
        0 => Duration::ZERO,
        _ => interval * (1 << (2 * (vain - 1)).min(MOST_PAUSES)),
    }
}

impl Tick {
    fn to_wire(&self, view: ViewId, members: usize) -> Pulse {
        Pulse::Tick {
            view,
            maker: self.maker as u16,
            number: self.number,
            length_ms: u32::try_from(self.length.as_millis()).unwrap_or(u32::MAX),
            fresh: self.fresh.pack(members),
            renewed: self.renewed.as_ref().map(|renewed| renewed.pack(members)),
        }
    }

    /// `None` if it is none of a view of so many members.
    pub(crate) fn from_wire(pulse: Pulse, members: usize) -> Option<Self> {
        let Pulse::Tick {
            maker,
            number,
            length_ms,
            fresh,
            renewed,
            ..
        } = pulse
        else {
            return None;
        };
        let renewed = match renewed {
            Some(renewed) => Some(Ranks::unpack(renewed, members)?),
            None => None,
        };
        Some(Self {
            maker: Some(usize::from(maker)).filter(|maker| *maker < members)?,
            number,
            length: Duration::from_millis(u64::from(length_ms)).min(LONGEST_LEASE),
            fresh: Ranks::unpack(fresh, members)?,
            renewed,
        })
    }
}

#[cfg(test)]
mod tests;

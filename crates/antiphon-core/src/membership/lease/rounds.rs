//! The lease of the primary in views whose members are not all neighbours: rounds of ticks in place of
//! answers from each to each (R7, G42).
//!
//! In a view of a thousand, no member can count for itself which members answered it. So one member, the
//! maker, counts for all. Its ticks go down a tree, and the answers come back up the tree as sets:
//!
//! ```text
//!   maker             tick k: fresh, renewed        others
//!     │ ──────────────────────────────────────────►   a answers k: notes `fresh`, votes none of it out
//!     │                                               for L'; remembers when
//!     │ ◄──────────────────────────────────────────   echo k: the members that answered
//!     │ tick k+1: fresh = the members that answered k, as far as known by now
//!     │ ──────────────────────────────────────────►   m ∈ fresh(k+1): its answer to k, at s,
//!     │                                               came before tick k+1 was made
//!     │ ◄──────────────────────────────────────────   echo k+1: if a quorum, all of it noted m, after s
//!     │ tick k+2: renewed = fresh(k+1), if a quorum answered k+1
//!     │ ──────────────────────────────────────────►   m ∈ renewed: believes until s + L
//! ```
//! This is [`lease`] with another way for the answers: each member that let m believe noted it later than s,
//! the moment from which m counts. All that is said there of votes holds here. A member that has a vote in
//! the slot answers no tick. After its answer, a member votes for no removal without a proof of death until
//! L' later. A member that is about to be removed is withheld: the maker leaves it out of `fresh`, and a
//! member answers no tick whose `fresh` has a member that it withholds. (No tick tells which members
//! others than its maker withhold. The leader and the maker are one member, nearly always, and that is
//! enough. Otherwise it takes until the proposal comes.)
//!
//! **How often.** Nine ticks while two leases last. A member goes on believing from tick to tick if L is
//! longer than three intervals and the way of a tick. It may miss one tick if L is longer than four. The way
//! down the tree and back up must take less than an interval. Otherwise the answers of the members at its end
//! come too late to count; a maker that far from the others renews nobody. If a member falls silent, the tick
//! after its last answer still lets it believe. So what others hold back for it is over when its observers
//! agree on its loss, or hardly later. The first ticks of a view, or of another maker, follow each other as
//! fast as answers come.
//!
//! **Who makes them.** The most senior member. Another member makes ticks if no tick of a more senior one
//! renewed its own lease for an interval and a half, and up to half of one more for each doubling of its
//! rank. But it waits if a member senior to it has made its first few ticks a moment ago, or if three of them
//! try. Ticks of different makers do not mix: each maker counts its own. A maker tries four ticks at a time,
//! of which three are enough where it may hear a quorum. After four ticks in vain it pauses, for longer each
//! time, and the next member has its turn. So however many senior members are too far away, a member is found
//! that is not too far. A maker that renews leases goes on until a more senior one renews the maker's own,
//! even if others try. In the next view it begins at once, and makers that were in vain do not.
//!
//! **Which way.** Ticks go along the tree of rumours ([`Rings::branches`]) at first. From then on they go
//! along the edges on which they came first, as in *Epidemic Broadcast Trees* (Leitão, Pereira, Rodrigues,
//! SRDS 2007; Plumtree). A member that is not renewed, or hears no tick, grafts the edges from some of its
//! neighbours on the rings, then from more. A member that is told a tick twice prunes the later edge, unless
//! that is an edge of the tree. This is for the ticks of one maker: each maker has edges of its own.
//! Otherwise a maker that renews nobody would have edges pruned that others need. Answers go back the way
//! their tick came. Each member waits for the members that it passed the tick on to, an eighth of an interval
//! at most. It does not wait again for a member that was too late, and stops telling a member that goes on
//! giving no answer. What does not come back that way may come back another one, and a member that hears
//! nothing asks.
//!
//! Each tick costs a member two small frames, whatever the size of the view. Nothing here is reliable. Of a
//! view, these edges go into the next one, and what is known of makers ([`Inherited`]); the next tick says
//! the rest.
//!
//! # Invariants
//!
//! - A member believes by its answer to tick k of a maker only if that maker had the answer when it made k+1,
//!   and a quorum answered k+1 after that.
//! - A tick is answered once, when it first comes; a later tick of the same maker voids it. The latest tick
//!   of each maker is known as long as the view lasts.
//! - A member that answers has noted `fresh` before its answer leaves.
//! - A member without a lease of its own makes no ticks. It answers the ticks of others and holds votes back
//!   like every other member: what others believe counts on it.
//! - Ranks, numbers and makers mean something in one view only, and each message says in which: an
//!   incarnation is in one view of an id at most.
//!
//! # When participants die
//!
//! - *m*: it answers no tick. Members that noted it hold votes back for L' from the tick after its last
//!   answer, or not at all with a proof of death.
//! - *A member on the way down or up*: the members behind it miss one tick and graft. Their answers go
//!   another way from then on.
//! - *The maker*: all members miss its ticks. The next maker begins after an interval and a half, and has
//!   renewed the leases two round trips later. With a proof of death nobody waits for the dead maker: the
//!   view without it has another most senior member.
//! - *The maker, but not for all (its paths lose most)*: its ticks renew too few. Members that are not
//!   renewed make ticks of their own.
//! - *An edge, in one direction*: if a member's answers get lost on the edge, the neighbour tells it no more.
//!   The member hears nothing, and grafts another edge.
//! - *A quorum*: nobody is renewed any more, by any maker.
//! - *A member was stopped*: when it goes on, it hears old ticks and answers them now, too late for their
//!   makers to count. And it forgets its own answers ([`Rounds::missed`]).
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

/// At most this many makers are listened to: of more, the most senior.
const MAX_MAKERS: usize = 8;
/// A maker that was not heard for this many intervals makes room for another one.
const SILENT_MAKER: u32 = 4;
/// This many makers that are more senior than this member are enough, whatever becomes of them.
const ENOUGH_MAKERS: usize = 3;
/// A maker makes this many ticks before it pauses; those of its first try follow each other at once. If none
/// of them renewed anybody, the others do not wait for this maker.
const PROMISING_TICKS: u32 = 4;
/// The pause after tries in vain is doubled at most this often. A maker with no more than `FEW_IN_VAIN` such
/// tries was no bad maker, or not for long.
const MOST_PAUSES: u32 = 6;
const FEW_IN_VAIN: u32 = 1;
/// A member remembers this many of its own answers to one maker: tick k is about the answers to tick k − 2.
const REMEMBERED: usize = 4;
/// This many neighbours are asked for ticks first, then twice as many, then four times.
const FIRST_GRAFTS: usize = 4;
/// After this many grafts the next one follows half an interval later, and each further pause is twice the
/// one before: four intervals at most, or far more where there never was a tick, since nobody may have a
/// lease.
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
    /// When the tick that renewed this member last should have come, by the answer that it was about.
    renewed: Option<Time>,
    /// What this member answered, and when.
    answers: VecDeque<(u32, Time)>,
    /// The member from which the last tick came; `None` if it is this member's own.
    from: Option<usize>,
    /// The members that the tick was passed on to and that have not answered yet.
    waiting: BTreeSet<usize>,
    /// The members that answered the last tick, as far as their answers were not passed on.
    who: Ranks,
    due: Option<Time>,
    passed_on: bool,
    /// Whether a member did not answer in time.
    short: bool,
    /// The members that this maker's ticks are passed on to.
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

/// The rounds of one view.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) view: ViewId,
    pub(crate) me: usize,
    pub(crate) members: usize,
    pub(crate) neighbours: BTreeSet<usize>,
    tree: BTreeSet<usize>,
    /// The members that ticks of a maker are passed on to at first; and the members that did not answer the
    /// last tick in time, and since when.
    eager: BTreeSet<usize>,
    mute: BTreeMap<usize, Time>,
    interval: Duration,
    /// When the first tick may be made: joiners must have the view by then.
    begins: Time,
    /// When this member grafts unless a new tick comes before, and how often it grafted since the last one
    /// came.
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

/// The edges of this member along which ticks go, the members behind them that do not answer, and what came
/// of this member's own ticks.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    eager: Vec<Incarnation>,
    mute: Vec<(Incarnation, Time)>,
    vain: u32,
    renews: bool,
}

/// What a tick means to the member that hears it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing new.
    Known,
    /// The tick is new. If it renews this member: when this member gave the answer by which it believes from
    /// now on.
    New(Option<Time>),
}

impl Rounds {
    /// `None` where leases are not renewed in rounds, or nobody has one. Goes on along the edges that ticks
    /// came by in the view before.
    pub(crate) fn of(
        config: &Config,
        me: Incarnation,
        now: Time,
        view: &NodeView,
        (rings, by_rounds): (&Rings, bool),
        before: &Inherited,
    ) -> Option<Self> {
        let rank = rings.rank(me)?;
        if !by_rounds || config.policy != Policy::Majority {
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

    /// What the next view begins with; `view` is the view of these rounds.
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

    /// Whether the ticks of this member renew leases. If it has not tried in this view: whether they did in
    /// the view before.
    fn renews(&self) -> bool {
        self.making
            .as_ref()
            .map_or(self.renewed_before, |making| making.renews)
    }

    /// The answers that this member gave before count no more.
    pub(crate) fn missed(&mut self) {
        self.makers.values_mut().for_each(|maker| maker.answers.clear());
    }

    /// A tick came from a neighbour, or is this member's own. This member answers it or does not.
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
        // A maker that begins to try does not know yet which neighbours hear it best.
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
        // To this member, ticks that do not renew it are none: it looks for others.
        if now.since(self.renewed) < self.interval * 3 {
            self.grafts_at = now + self.interval * 5 / 4;
            self.grafts = 0;
        }
        self.pass_on(now);
        let hears = is_renewing && planted!(PulseRenewsWhoHears);
        Heard::New(since.or(Some(now).filter(|_| hears)))
    }

    /// Whether there is room for a maker. If there are too many, one is forgotten: one that is not heard any
    /// more, or the most junior of those that do not renew this member, be it the newcomer.
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

    /// Asks neighbours for ticks, if none come or none of them renews this member: other neighbours each
    /// time.
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
        // The maker is a neighbour, and silent: the ticks of the next maker do not wait for its answers.
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

    /// From when this member makes ticks. `before` more senior members live, as far as this member knows.
    fn makes_from(&self, before: usize) -> Time {
        let Some(doublings) = before.checked_ilog2() else {
            return self.begins;
        };
        let seniors = || self.makers.iter().filter(|(at, _)| **at < self.me);
        let renewed = seniors().filter_map(|(_, known)| known.renewed).max();
        // The members of one doubling do not all begin at once.
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
            // Other members also wait for a member that does not answer, and then pass on what they have.
            Some(own) if !own.waiting.is_empty() => self.interval,
            Some(own) if own.short => self.interval / 2,
            Some(_) => Duration::ZERO,
            None if making.renews || self.tries() => self.interval,
            None if planted!(SeniorsSilenceAll) => self.interval,
            None => pause_after(self.interval, self.vain + 1),
        };
        from.max(making.made + pause)
    }

    /// The next tick of this member. `is_quorum` is asked of the members that answered the last tick. The
    /// tick lets the `withheld` members believe no more.
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
        // The members it renews may be a few near it that are no quorum.
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

/// How long a maker pauses after this many tries in vain.
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

    /// `None` if it is no tick of a view of so many members.
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

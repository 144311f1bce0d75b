//! How ticks and echoes renew leases, in views whose members are not all neighbours: what they let this node
//! and others believe, and how this node's votes restrict its answers.

use std::time::Duration;

use antiphon_wire::Incarnation;
use antiphon_wire::membership::Pulse;

use crate::Time;
use crate::membership::agree::engine::Engine;
use crate::membership::agree::slot::Value;
use crate::membership::lease::rounds::{Heard, Rounds, Tick};
use crate::membership::lease::{Around, Lease, TickNoted};
use crate::membership::monitor::ranks::Ranks;
use crate::membership::view::check;

/// Ticks that come closer to each other than this part of a lease are remembered as one, which came with the
/// last of them.
const TICKS_A_LEASE: u32 = 16;

/// What to send to which member.
type Pulses = Vec<(Incarnation, Pulse)>;

impl Lease {
    /// A tick or an echo came. Returns what to send.
    pub(crate) fn hear_pulse(
        &mut self,
        now: Time,
        sender: Incarnation,
        pulse: Pulse,
        around: Around<'_>,
    ) -> Pulses {
        let (Pulse::Tick { view, .. } | Pulse::Echo { view, .. }) = &pulse;
        if *view == check::next_id(self.view.primary_id()) && matches!(pulse, Pulse::Tick { .. }) {
            self.early_tick = Some((sender, pulse));
            return Pulses::new();
        }
        let rounds = self.rounds.as_mut().filter(|rounds| rounds.view == *view);
        let sender = self.rings.rank(sender);
        let Some((rounds, from)) = rounds
            .zip(sender)
            .filter(|(rounds, from)| rounds.neighbours.contains(from))
        else {
            return Pulses::new();
        };
        let members = rounds.members;
        match pulse {
            Pulse::Tick { .. } => {
                if let Some(tick) = Tick::from_wire(pulse, members) {
                    self.take_tick(now, Some(from), tick);
                }
            }
            Pulse::Echo {
                maker,
                number,
                who,
                edge,
                ..
            } if usize::from(maker) < members => {
                if let Some(who) = Ranks::unpack(who, members) {
                    rounds.echo(now, from, (usize::from(maker), number), &who, edge);
                }
            }
            Pulse::Echo { .. } => {}
        }
        self.tend(now, around)
    }

    /// A view was taken up, of which a tick may have come before. Returns what to send.
    pub(crate) fn hear_early(&mut self, now: Time, around: Around<'_>) -> Pulses {
        match self.early_tick.take() {
            Some((sender, tick)) => self.hear_pulse(now, sender, tick, around),
            None => Pulses::new(),
        }
    }

    /// Does what is due: ticks, answers, grafts. Returns what to send.
    pub(crate) fn tend(&mut self, now: Time, around: Around<'_>) -> Pulses {
        self.rounds.iter_mut().for_each(|rounds| rounds.pass_on(now));
        let Some(rounds) = &self.rounds else {
            return Pulses::new();
        };
        let makes = self.makes_ticks(rounds, around);
        if makes.is_some_and(|before| rounds.makes_at(before) <= now) {
            self.make_tick(now, around.engine);
        }
        let Some(rounds) = &mut self.rounds else {
            return Pulses::new();
        };
        rounds.graft(now);
        let pulses = std::mem::take(&mut rounds.outbox).into_iter();
        let pulses = pulses.map(|(to, pulse)| (self.view.members[to].incarnation, pulse));
        pulses
            .filter(|(to, _)| !around.engine.is_certified(*to))
            .collect()
    }

    fn make_tick(&mut self, now: Time, engine: &Engine) {
        let (length, withheld) = (self.length(), self.withheld_ranks(now));
        let (view, dead) = (&self.view, engine.dead_without_vote());
        let is_quorum = |who: &Ranks| {
            let who = who.iter().filter_map(|rank| view.members.get(rank));
            let who = who.map(|member| member.incarnation).collect();
            view.voters().is_quorum(&who, &dead)
        };
        if let Some(rounds) = &mut self.rounds {
            let tick = rounds.make(now, length, &withheld, is_quorum);
            self.take_tick(now, None, tick);
        }
    }

    /// A tick came from a neighbour, or is this node's own.
    fn take_tick(&mut self, now: Time, from: Option<usize>, tick: Tick) {
        let withheld = self.withheld_ranks(now);
        let answers = self.answers_ticks() && tick.fresh.without(&withheld).len() == tick.fresh.len();
        let (length, fresh) = (tick.length, tick.fresh.clone());
        let Some(rounds) = &mut self.rounds else { return };
        if let Heard::New(since) = rounds.take(now, from, tick, answers) {
            self.tick_length = self.tick_length.max(length);
            if answers {
                self.note_tick(now, fresh);
            }
            if let Some(since) = since {
                self.renewed_by_tick(since, length);
            }
        }
    }

    /// This node answers a tick that lets these members believe.
    fn note_tick(&mut self, now: Time, fresh: Ranks) {
        assert!(
            self.answers_ticks() || planted!(),
            "R7: a tick is answered after a vote, {:?}",
            self.voted
        );
        let longest = self.tick_length().max(self.usual);
        self.ticks.retain(|tick| now.since(tick.last) < longest * 2);
        match self.ticks.back_mut() {
            Some(tick) if now.since(tick.first) < longest / TICKS_A_LEASE => {
                tick.fresh.merge(&fresh);
                tick.last = now;
            }
            _ => self.ticks.push_back(TickNoted {
                fresh,
                first: now,
                last: now,
            }),
        }
    }

    /// This node gave an answer at this time, and a quorum answered a tick that was made after that. So this
    /// node believes for so long.
    fn renewed_by_tick(&mut self, at: Time, good_for: Duration) {
        let removed = self.voted.is_some_and(|(_, keeps)| !keeps);
        if removed || !self.by_rounds {
            return;
        }
        // `since` is a time from which this node's own length counts.
        let less = self.length().saturating_sub(good_for);
        if at >= Time::ZERO + less {
            self.since = self.since.max(Some(at - less));
        }
    }

    /// How long ticks are good for.
    pub(super) fn tick_length(&self) -> Duration {
        self.tick_length.max(self.tick_length_before)
    }

    /// How many living members are more senior than this one; `None` if it makes no ticks. It makes them if
    /// it answers them, has a lease itself, and stays.
    pub(super) fn makes_ticks(&self, rounds: &Rounds, around: Around<'_>) -> Option<usize> {
        let stays = around.primary && !around.departing;
        let makes = stays && self.answers_ticks() && self.length.is_some();
        let dead = around.engine.slot().certificates().keys();
        let dead = dead.filter(|dead| self.rings.rank(**dead) < Some(rounds.me));
        makes.then(|| rounds.me.saturating_sub(dead.count()))
    }

    /// Whether this node answers ticks: it has no vote in the slot.
    fn answers_ticks(&self) -> bool {
        self.by_rounds && (self.voted.is_none() || planted!(AnswerAfterVote))
    }

    /// The ranks of the members whose leases are not to be renewed any more.
    fn withheld_ranks(&self, now: Time) -> Ranks {
        let members = self.withheld(now);
        members.filter_map(|member| self.rings.rank(member)).collect()
    }
}

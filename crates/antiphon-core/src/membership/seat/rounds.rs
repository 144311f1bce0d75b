//! What a member of a large view does with ticks and echoes: how they renew its lease, and how its votes
//! restrict its answers.

use antiphon_wire::Incarnation;
use antiphon_wire::membership::Pulse;

use crate::Time;
use crate::membership::agree::slot::Value;
use crate::membership::context::Context;
use crate::membership::effect::Effect;
use crate::membership::lease::Lease;
use crate::membership::lease::rounds::{Heard, Tick};
use crate::membership::monitor::ranks::Ranks;
use crate::membership::monitor::rings::Rings;
use crate::membership::seat::Seat;
use crate::membership::view::check;

impl Seat {
    /// A tick or an echo came.
    pub(crate) fn handle_pulse(&mut self, cx: &mut Context, now: Time, sender: Incarnation, pulse: Pulse) {
        let (Pulse::Tick { view, .. } | Pulse::Echo { view, .. }) = &pulse;
        if *view == check::next_id(self.installed.view.primary_id()) && matches!(pulse, Pulse::Tick { .. }) {
            self.early_tick = Some((sender, pulse));
            return;
        }
        let sender = self.installed.rings.rank(sender);
        let Some(rounds) = self
            .installed
            .rounds
            .as_mut()
            .filter(|rounds| rounds.view == *view)
        else {
            return;
        };
        let Some(from) = sender.filter(|rank| rounds.neighbours.contains(rank)) else {
            return;
        };
        let members = rounds.members;
        let is_member = |rank: u16| usize::from(rank) < members;
        match pulse {
            Pulse::Tick { .. } => {
                if let Some(tick) = Tick::from_wire(pulse, members) {
                    self.hear_tick(now, Some(from), tick);
                }
            }
            Pulse::Echo {
                maker,
                number,
                who,
                edge,
                ..
            } if is_member(maker) => {
                if let Some(who) = Ranks::unpack(who, members) {
                    rounds.echo(now, from, (usize::from(maker), number), &who, edge);
                }
            }
            Pulse::Echo { .. } => {}
        }
        self.tend_rounds(cx, now);
    }

    fn hear_tick(&mut self, now: Time, from: Option<usize>, tick: Tick) {
        let Some(rounds) = &mut self.installed.rounds else {
            return;
        };
        let withheld = withheld(&self.lease, &self.installed.rings, now);
        let answers = self.lease.answers_ticks() && tick.fresh.without(&withheld).len() == tick.fresh.len();
        let (length, fresh) = (tick.length, tick.fresh.clone());
        if let Heard::New(since) = rounds.take(now, from, tick, answers) {
            self.lease.hear_tick(length);
            if answers {
                self.lease.note_tick(now, fresh);
            }
            if let Some(since) = since {
                self.lease.renewed_by_tick(since, length);
            }
        }
    }

    /// A tick of this view that came before the view did.
    pub(crate) fn hear_early_tick(&mut self, cx: &mut Context, now: Time) {
        if let Some((sender, pulse)) = self.early_tick.take() {
            self.handle_pulse(cx, now, sender, pulse);
        }
    }

    /// Does what is due: ticks, answers, grafts.
    pub(crate) fn tend_rounds(&mut self, cx: &mut Context, now: Time) {
        let makes = self.makes_ticks();
        let Some(rounds) = &mut self.installed.rounds else {
            return;
        };
        rounds.pass_on(now);
        if makes.is_some_and(|before| rounds.makes_at(before) <= now) {
            let view = &self.installed.view;
            let dead = self.installed.engine.dead_without_vote();
            let is_quorum = |who: &Ranks| {
                let who = who.iter().filter_map(|rank| view.members.get(rank));
                let who = who.map(|member| member.incarnation).collect();
                view.voters().is_quorum(&who, &dead)
            };
            let withheld = withheld(&self.lease, &self.installed.rings, now);
            let tick = rounds.make(now, self.lease.length(), &withheld, is_quorum);
            self.hear_tick(now, None, tick);
        }
        let Some(rounds) = &mut self.installed.rounds else {
            return;
        };
        rounds.graft(now);
        for (to, pulse) in std::mem::take(&mut rounds.outbox) {
            let to = self.installed.view.members[to].incarnation;
            if !self.installed.engine.is_certified(to) {
                cx.effects.push_back(Effect::Pulse { to, pulse });
            }
        }
    }

    /// How many living members are more senior than this one; `None` if it makes no ticks.
    fn makes_ticks(&self) -> Option<usize> {
        let rounds = self.installed.rounds.as_ref()?;
        let makes = self.is_primary() && self.lease.makes_ticks() && !self.leaving.is_departing();
        let dead = self.installed.engine.slot().certificates().keys();
        let dead = dead
            .filter(|dead| self.installed.rings.rank(**dead) < Some(rounds.me))
            .count();
        makes.then(|| rounds.me.saturating_sub(dead))
    }

    pub(crate) fn rounds_deadline(&self) -> Option<Time> {
        let rounds = self.installed.rounds.as_ref()?;
        Some(rounds.next_deadline(self.makes_ticks()))
    }
}

/// The ranks of the members whose leases are not to be renewed any more.
fn withheld(lease: &Lease, rings: &Rings, now: Time) -> Ranks {
    let members = lease.withheld(now);
    members.filter_map(|member| rings.rank(member)).collect()
}

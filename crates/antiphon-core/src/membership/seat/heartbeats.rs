//! Heartbeats: what each member says of itself all the time, to all others or, in a wide view, to its
//! observers.

use antiphon_wire::Incarnation;
use antiphon_wire::membership::{Heartbeat, Pulse, WIRE_LEVEL};

use crate::detector::Came;
use crate::membership::context::Context;
use crate::membership::effect::Effect;
use crate::membership::lease::answers::Beat;
use crate::membership::monitor::deaf::{does_not_hear, hears_few, is_no_path, is_silence};
use crate::membership::monitor::report::Report;
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;
use crate::{EngineKind, Event, Time};

impl Seat {
    pub(crate) fn handle_heartbeat(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        heartbeat: Heartbeat,
        came: Came,
    ) {
        if heartbeat.lineage != self.installed.view.lineage.mark() {
            self.hear_elsewhere(cx, now, sender, heartbeat.lineage);
            return;
        }
        if cx.detector.is_apart(sender) {
            cx.detector.set_apart(sender, false);
            cx.detector.heard_as(now, sender, came);
        }
        if !self.installed.rings.contains(sender) {
            if heartbeat.view <= self.installed.view.primary_id() {
                self.tell_removed(cx, now, sender);
            }
            return;
        }
        // The heartbeat's number alone tells what was lost, even if the heartbeat was overtaken.
        let mut news = came == Came::Directly && cx.detector.beat_came(sender, heartbeat.round, now);
        if came != Came::Probe {
            cx.detector.beat_heard(now, sender);
        }
        if news {
            self.next_heartbeat = now;
        }
        let Heartbeat {
            view,
            primary,
            leaving,
            wire_level,
            suspicions,
            rumours,
            round,
            lease,
            ..
        } = heartbeat;
        let said = Report {
            round,
            view,
            primary,
            leaving,
            wire_level,
        };
        let Some(changed) = self.reports.hear(sender, said) else {
            return;
        };
        // In a wide view what a heartbeat says of others counts for nothing: few members hear it, and all
        // must go by the same. A member says its opinion by a rumour, which reaches all members, or is told
        // again to a member that lacks it. A heartbeat may have been sent before that rumour, and be held up.
        // If no other heartbeat came, nothing would take back what it says.
        let hears_all = self.installed.topology.hears_all();
        news |= changed;
        news |= hears_all && cx.detector.told(now, sender, &suspicions);
        if view == self.installed.view.primary_id() {
            self.prove_again(cx, now, sender, &suspicions);
        }
        if cx.config.engine == EngineKind::Cut {
            let Installed {
                view: installed,
                rings,
                topology,
                ..
            } = &self.installed;
            let knows_this = || {
                self.reports
                    .knows(&cx.history, installed.lineage, cx.me, (sender, cx.me))
            };
            let deaf = if hears_all {
                does_not_hear(cx.me, &suspicions, is_no_path)
                    || !knows_this() && hears_few(installed, rings, sender, &suspicions)
            } else {
                // A member that does not hear enough shows it by its own opinion, as long as it is in this
                // view and the opinion comes through.
                let late = view < installed.primary_id();
                late && topology.should_be_known(now, cx.config.profile.suspect_after)
                    || cx.detector.lives_by_probes(now, sender)
                        && hears_few(installed, rings, sender, &suspicions)
            };
            if cx.detector.says_deaf(now, sender, deaf) {
                self.next_heartbeat = now;
                news = true;
            }
        }
        self.leaving.confirmed(sender, view);
        if let Some(lease) = lease {
            let hears_this = !does_not_hear(cx.me, &suspicions, is_silence);
            let beat = Beat {
                from: sender,
                round,
                view,
                said: &lease,
                hears_this,
                leads: self.installed.leader == Some(sender),
            };
            if self.lease.hear(now, beat) {
                self.beat_to(cx, now, sender);
            }
        }
        if view > self.installed.view.primary_id() {
            self.pull_soon(cx, now, sender);
        } else if view == self.installed.view.primary_id()
            && let Some(gossip) = self.installed.topology.gossip_mut()
        {
            gossip
                .rumours
                .compare(now, sender, rumours, cx.config.profile.heartbeat * 2);
        }
        // One wake-up for both: idle members come to beat at the same time. But later heartbeats keep only a
        // quarter of the time by which this one comes too early. If they kept all of it, busy members, which
        // read the heartbeats of one moment at different times, would send twice as many heartbeats and be
        // busy with them.
        let early = self.next_heartbeat.since(now);
        if self.installed.topology.hears_all() && early <= cx.config.profile.heartbeat / 2 {
            self.beat(cx, now);
            if !planted!(BeatsMakeBeats) {
                self.next_heartbeat = self.next_heartbeat + early * 3 / 4;
            }
            news = true;
        }
        // Nearly all heartbeats say what the last one said. To draw the consequences again costs more than
        // all else about them: in a cluster of a hundred, as much as a core has. What time alone changes is
        // looked at with this node's own heartbeat.
        if news || self.leaving.is_wanted() {
            self.evaluate(cx, now);
        }
    }

    /// Sends heartbeats to all members, or in a wide view to this node's observers, and to members that it
    /// met although no ring leads to them.
    pub(crate) fn beat(&mut self, cx: &mut Context, now: Time) {
        self.opine(cx, now);
        self.next_heartbeat = now + cx.config.profile.heartbeat;
        cx.beats += 1;
        self.lease.send(now, cx.beats);
        let heartbeat = self.heartbeat(cx, now);
        let observers: Option<Vec<Incarnation>> = (!self.installed.topology.tells_all()).then(|| {
            let Installed { view, rings, .. } = &self.installed;
            rings.observers_in(view, cx.me).collect()
        });
        let hears = |member: Incarnation| {
            observers.as_ref().is_none_or(|observers| {
                observers.contains(&member) || self.installed.reconnect.is_linked(member)
            })
        };
        for member in self
            .installed
            .view
            .members
            .iter()
            .filter(|member| member.incarnation != cx.me && hears(member.incarnation))
        {
            if !self.installed.engine.is_certified(member.incarnation) {
                let mut heartbeat = heartbeat.clone();
                self.lease.answer_in(&mut heartbeat, member.incarnation);
                let effect = Effect::Heartbeat {
                    to: member.incarnation,
                    heartbeat,
                };
                cx.effects.push_back(effect);
            }
        }
    }

    /// Sends the last heartbeat once more, with what holds now, to a member that wants to hear at once. It
    /// has the same number, or other members would miss one.
    pub(crate) fn beat_to(&mut self, cx: &mut Context, now: Time, member: Incarnation) {
        let mut heartbeat = self.heartbeat(cx, now);
        self.lease.answer_in(&mut heartbeat, member);
        let effect = Effect::Heartbeat {
            to: member,
            heartbeat,
        };
        cx.effects.push_back(effect);
    }

    /// Sends heartbeats as probes to members that hear little, or are heard little
    /// ([`crate::detector::probing`]).
    pub(crate) fn probe(&mut self, cx: &mut Context, now: Time) {
        if !cx.config.udp_probes {
            return;
        }
        for (to, asks) in cx.detector.take_probes(now) {
            if !self.installed.engine.is_certified(to) {
                let mut heartbeat = self.heartbeat(cx, now);
                self.lease.answer_in(&mut heartbeat, to);
                cx.effects.push_back(Effect::Probe { to, asks, heartbeat });
            }
        }
    }

    /// Whether this node may act as a member of the primary view.
    pub(crate) fn believes(&self, now: Time) -> bool {
        self.is_primary() && !self.lease.is_over(now)
    }

    /// Tells the application when this node begins or ceases to believe in its view.
    pub(crate) fn tell_lease(&mut self, cx: &mut Context, now: Time) {
        let around = self.installed.around_lease(&self.leaving);
        let Some(held) = self.lease.look(now, around) else {
            return;
        };
        cx.event(Event::Lease { held });
        // The sooner it asks, the sooner it knows.
        if !held && !self.installed.topology.leases_by_rounds() {
            self.next_heartbeat = self.next_heartbeat.min(now);
        }
    }

    /// A tick or an echo came.
    pub(crate) fn handle_pulse(&mut self, cx: &mut Context, now: Time, sender: Incarnation, pulse: Pulse) {
        let around = self.installed.around_lease(&self.leaving);
        cx.pulses(self.lease.hear_pulse(now, sender, pulse, around));
    }

    /// What this node says of itself to all members.
    fn heartbeat(&self, cx: &Context, now: Time) -> Heartbeat {
        Heartbeat {
            round: cx.beats,
            lineage: self.installed.view.lineage.mark(),
            view: self.installed.view.primary_id(),
            primary: self.is_primary(),
            leaving: self.leaving.is_wanted(),
            wire_level: WIRE_LEVEL,
            suspicions: cx.detector.opinion(now),
            rumours: self.installed.topology.sum_of_rumours(),
            lease: self.lease.says(now, self.is_primary()),
        }
    }
}

//! What a member does when a deadline has passed, and when the next one is.

use crate::Time;
use crate::membership::context::Context;
use crate::membership::seat::Seat;

impl Seat {
    pub(crate) fn tick(&mut self, cx: &mut Context, now: Time) {
        let news = cx.detector.tick(now);
        let mut commands = Vec::new();
        cx.lifelines.tick(now, &mut commands);
        cx.lifeline_commands(commands);
        if news || now >= self.next_heartbeat {
            // The node tells an accusation at once: others need it to agree.
            self.beat(cx, now);
        }
        self.probe(cx, now);
        self.pull_late(cx, now);
        self.seek_others(cx, now);
        self.register(cx, now);
        let view = self.installed.view.clone();
        self.joiners.expire(cx, now, &view);
        self.evaluate(cx, now);
        let around = self.installed.around_lease(&self.leaving);
        cx.pulses(self.lease.tend(now, around));
        self.tell_lease(cx, now);
        self.tell_rumours(cx, now, false);
    }

    pub(crate) fn next_deadline(&self, cx: &Context) -> Time {
        let departing = self.leaving.is_departing();
        let weighed_again = self.installed.weighing.not_before();
        [
            cx.detector.next_deadline(),
            cx.config.udp_probes.then(|| cx.detector.next_probe()).flatten(),
            cx.lifelines.next_deadline(),
            self.installed
                .engine
                .next_deadline()
                .map(|at| at.max(weighed_again))
                .filter(|_| !departing),
            self.installed
                .nonprimary
                .next_deadline(cx)
                .map(|at| at.max(weighed_again))
                .filter(|_| !departing),
            self.leaving.next_deadline(),
            self.lease
                .next_deadline(self.installed.around_lease(&self.leaving)),
            Some(self.next_seek),
            self.installed.weighing.due().filter(|_| !departing),
            self.pulls.next_deadline(),
            self.installed.topology.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .fold(self.next_heartbeat, Time::min)
    }
}

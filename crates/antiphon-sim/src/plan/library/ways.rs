//! The ways of messages: what is drawn of them for all plans, and plans about multicast.

use antiphon_core::{Dissemination, Order};

use super::super::{Action, Plan, Who};
use super::Story;
use crate::agenda::{MILLIS, SECONDS};
use crate::random::Random;

/// The way of the groups' messages, apart from all else.
pub(super) fn draw_ways(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"ways", 0));
    for group in &mut plan.groups {
        let way = match random.below(20) {
            0..=3 => Dissemination::Chain,
            4..=9 => Dissemination::Multicast,
            _ => Dissemination::Direct,
        };
        group.options = group.options.dissemination(way);
    }
    imperfect(&mut random, plan);
}

/// Multicast as networks have it: some pass none, some from some hosts only, and most lose more of it than of
/// all else.
fn imperfect(random: &mut Random, plan: &mut Plan) {
    if random.percent(60) {
        plan.network.cast_loss_ppm = random.range(1_000, 200_000) as u32;
    }
    let percent = *random.pick(&[0, 0, 10, 40, 100]);
    for from in 0..plan.slots {
        if random.percent(10) {
            plan.silent.push(from);
        }
        plan.deaf.extend(
            (0..plan.slots)
                .filter(|_| random.percent(percent))
                .map(|to| (from, to)),
        );
    }
}

impl Story<'_> {
    fn all_by_multicast(&mut self) {
        for group in &mut self.plan.groups {
            group.options = group.options.dissemination(Dissemination::Multicast);
        }
    }

    /// Members go deaf and hear again, much is lost, and a member dies.
    pub(super) fn multicast_fails(&mut self) {
        self.all_by_multicast();
        imperfect(self.random, &mut self.plan);
        self.plan.load.every = *self.random.pick(&[5, 20, 50]) * MILLIS;
        self.begin();
        for _ in 0..self.random.range(2, 10) {
            let (from, to) = (self.slot(), self.slot());
            let at = self.ms(3_000, 17_000);
            let deaf = self.random.percent(70);
            self.at(at, Action::Deafen(from, to, deaf));
        }
        if self.random.percent(60) {
            let (at, victim) = (self.ms(4_000, 15_000), self.slot());
            self.at(at, Action::Crash(Who::Slot(victim)));
            let back = at + self.ms(100, 3_000);
            self.at(back, Action::Start(victim));
        }
    }

    /// Some never hear some: they are sent to directly, and need not ask.
    pub(super) fn multicast_is_not_heard(&mut self) {
        self.one_group(Order::Fifo);
        self.all_by_multicast();
        let percent = *self.random.pick(&[20, 50, 100]);
        let slots = self.plan.slots;
        let pairs = (0..slots).flat_map(|from| (0..slots).map(move |to| (from, to)));
        self.plan.deaf = pairs.filter(|_| self.random.percent(percent)).collect();
        self.plan.load.safe_percent = 0;
        self.plan.prompt = Some(40 * MILLIS);
        self.begin();
        self.plan.duration = 10 * SECONDS;
    }
}

//! Plans about nodes with several addresses.

use antiphon_core::Profile;

use super::super::swarm::pair;
use super::super::{Action, Liveness, Plan, Step, Who};
use super::Story;
use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::random::Random;
use crate::trace::Slot;

/// Some seeds of a plan about all kinds of faults have nodes with two links, and faults of these too. Drawn
/// apart from all else, so that a seed's other faults stay what they are.
pub(super) fn draw_links(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"links", 0));
    if !random.percent(30) {
        return;
    }
    plan.links = random.range(2, 3) as usize;
    plan.single = (0..plan.slots).filter(|_| random.percent(15)).collect();
    for _ in 0..random.range(1, 4) {
        let at = random.range(2 * SECONDS, plan.duration - 2 * SECONDS);
        let lasts = random.range(100 * MILLIS, 6 * SECONDS);
        let link = random.index(plan.links);
        let actions = of_one_link(&mut random, plan.slots, link, lasts);
        plan.steps
            .extend(actions.into_iter().map(|action| Step { at, action }));
        let heal = Step {
            at: at + lasts,
            action: Action::Heal,
        };
        plan.steps.push(heal);
    }
    plan.steps.sort_by_key(|step| step.at);
}

/// What may happen to one link.
fn of_one_link(random: &mut Random, slots: usize, link: usize, lasts: Micros) -> Vec<Action> {
    let all: Vec<Slot> = (0..slots).collect();
    let (a, b) = pair(random, slots);
    match random.below(6) {
        // Its switch dies.
        0 | 1 => vec![Action::CutLink(all.clone(), all, link)],
        // The cable of one host, on which it hears or sends, or neither.
        2 => vec![
            Action::CutLink(vec![a], all.clone(), link),
            Action::CutLink(all, vec![a], link),
        ],
        3 => vec![Action::CutLink(vec![a], all, link)],
        4 => vec![Action::RejectLink(a, b, link)],
        _ => {
            let period = random.range(50 * MILLIS, 2 * SECONDS);
            vec![Action::FlapLink(a, b, link, period, lasts)]
        }
    }
}

impl Story<'_> {
    /// One link fails, and another one later; between any two hosts some link works at any time.
    pub(super) fn links_fail(&mut self) {
        self.plan.never_apart = true;
        self.plan.links = self.random.range(2, 3) as usize;
        self.plan.seeds = self.nodes;
        self.plan.network.user_timeout = *self.random.pick(&[2 * SECONDS, 6 * SECONDS]);
        self.plan.network.keepalive = *self.random.pick(&[4 * SECONDS, 30 * SECONDS]);
        self.begin();
        let mut at = self.ms(5_000, 7_000);
        while at < 20 * SECONDS {
            let lasts = self.ms(100, 8_000);
            let link = self.random.index(self.plan.links);
            // A node with one link keeps it.
            if link > 0 && self.random.percent(30) {
                self.plan.single = vec![self.slot()];
            }
            for action in of_one_link(self.random, self.nodes, link, lasts) {
                self.at(at, action);
            }
            self.at(at + lasts + MILLIS, Action::Heal);
            at += lasts + self.ms(2, 6_000);
        }
        if self.plan.steps.iter().any(|step| hits_first(&step.action)) {
            self.plan.single.clear();
        }
        self.plan.duration = at + SECONDS;
    }

    /// The first link is down for all while nodes are killed until one node is left: lifelines must have gone
    /// to another link.
    pub(super) fn killed_on_the_second_link(&mut self) {
        self.plan.profile = Profile::lan();
        self.plan.links = 2;
        self.plan.network.keepalive = 60 * SECONDS;
        self.begin();
        let cut = self.ms(5_000, 6_000);
        let all: Vec<Slot> = (0..self.nodes).collect();
        self.at(cut, Action::CutLink(all.clone(), all.clone(), 0));
        let mut at = cut + self.ms(3_000, 4_000);
        let mut victims = all;
        self.random.shuffle(&mut victims);
        for victim in victims.into_iter().skip(1) {
            self.at(at, Action::Crash(Who::Slot(victim)));
            at += self.ms(1_000, 2_500);
        }
        self.plan.duration = at + 2 * SECONDS;
        self.plan.liveness = Liveness::SurvivorsWithin(20 * SECONDS);
    }
}

fn hits_first(action: &Action) -> bool {
    matches!(
        action,
        Action::CutLink(.., 0) | Action::RejectLink(.., 0) | Action::FlapLink(_, _, 0, ..)
    )
}

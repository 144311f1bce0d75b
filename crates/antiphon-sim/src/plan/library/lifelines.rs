//! Plans about lifelines and the votes on them: R2 and R9.

use super::super::swarm::pair;
use super::super::{Action, Liveness, Who};
use super::Story;
use crate::agenda::SECONDS;
use crate::trace::Slot;

impl Story<'_> {
    /// R2: {1,2,3} cut 1|23; {2,3} decide; 1–2 heals; kill 2. Its FIN reaches 1 and 3.
    pub(super) fn cut_heal_kill(&mut self) {
        self.begin();
        self.plan.profile = antiphon_core::Profile::lan();
        let lone = self.slot();
        let others: Vec<Slot> = (0..self.nodes).filter(|slot| *slot != lone).collect();
        let victim = *self.random.pick(&others);
        let cut = self.ms(3_500, 5_000);
        self.at(cut, Action::Partition(vec![vec![lone], others.clone()]));
        let mut healed = cut + self.ms(1_400, 4_000);
        if self.random.percent(50) {
            // Only the pair heals; the others stay cut from the lone one.
            self.at(healed, Action::Heal);
            for other in others.iter().filter(|other| **other != victim) {
                self.at(healed, Action::CutPair(lone, *other));
            }
        } else {
            self.at(healed, Action::Heal);
        }
        healed += self.ms(0, 400);
        self.at(healed, Action::Crash(Who::Slot(victim)));
        let again = healed + self.ms(3_000, 6_000);
        self.at(again, Action::Heal);
        self.plan.duration = 16 * SECONDS;
    }

    /// R2: the elder of three is cut off. The other two remove it, and the junior of them is killed while its
    /// acceptance is on the way. The elder gets its FIN after the heal, and with it the vote.
    pub(super) fn killed_while_voting(&mut self) {
        self.plan.profile = antiphon_core::Profile::lan();
        // One founds, the others join: ranks are as slots.
        self.plan.seeds = 1;
        for slot in 0..self.nodes {
            self.at(slot as u64 * SECONDS, Action::Start(slot));
        }
        // A round of votes takes long enough to be interrupted.
        self.plan.network.latency = self.random.range(30_000, 60_000);
        let (elder, junior) = (0, 2);
        let others = (1..self.nodes).collect();
        let cut = self.ms(5_000, 6_000);
        self.at(cut, Action::Partition(vec![vec![elder], others]));
        // Silence is noticed after 1.5 s.
        let killed = cut + self.ms(1_450, 1_900);
        self.at(killed, Action::Crash(Who::Slot(junior)));
        let healed = killed + self.ms(100, 400);
        self.at(healed, Action::Heal);
        self.at(healed, Action::CutPair(elder, 1));
        self.plan.duration = 12 * SECONDS;
    }

    /// R2: six are cut into parts of which none is a quorum. In one part the elder is killed, and only the
    /// other member there can prove it; two more lose power. After the heal three are left. They are a quorum
    /// by that proof if they are told of it: keepalive has ended all other lifelines.
    pub(super) fn proven_while_apart(&mut self) {
        self.plan.profile = antiphon_core::Profile::lan();
        self.plan.network.proxy_percent = 0;
        self.plan.network.keepalive = 3 * SECONDS;
        // One founds, the others join: ranks are as slots.
        self.plan.seeds = 1;
        for slot in 0..self.nodes {
            self.at(slot as u64 * SECONDS, Action::Start(slot));
        }
        let (elder, mut others) = (0, (1..self.nodes).collect::<Vec<Slot>>());
        self.random.shuffle(&mut others);
        // One member that can prove it, one alone, and the rest: half of all survive.
        let rest = others.split_off(others.len().min(2));
        let powerless: Vec<Slot> = rest.iter().copied().take(self.nodes / 2 - 1).collect();
        let cut = self.ms(8_000, 9_000);
        let near = std::iter::once(elder).chain(others.first().copied()).collect();
        let alone = others.iter().skip(1).copied().collect();
        self.at(cut, Action::Partition(vec![near, alone, rest]));
        // At a time when silence was noticed: what is told to a member that is still heard arrives after the
        // heal.
        let killed = cut + self.ms(2_000, 3_000);
        self.at(killed, Action::Crash(Who::Slot(elder)));
        for slot in powerless {
            self.at(killed, Action::PowerOff(Who::Slot(slot)));
        }
        let healed = killed + self.ms(5_000, 9_000);
        self.at(healed, Action::Heal);
        self.plan.duration = healed + SECONDS;
        // Of another number than six, the living may be no quorum.
        self.plan.liveness = match self.nodes {
            6 => Liveness::SurvivorsWithin(20 * SECONDS),
            _ => Liveness::None,
        };
    }

    /// R9: everything about lifelines that is not a proof.
    pub(super) fn resets_and_proxies(&mut self) {
        self.plan.network.proxy_percent = *self.random.pick(&[0, 30, 100]);
        self.plan.network.keepalive = 4 * SECONDS;
        if self.random.percent(50) {
            self.plan.network.lifeline_bytes = 700;
        }
        self.begin();
        for _ in 0..self.random.range(3, 10) {
            let at = self.ms(2_500, 17_000);
            let (a, b) = pair(self.random, self.nodes);
            let action = match self.random.below(5) {
                0 => Action::ResetLifelines(a, b),
                1 | 2 => Action::ProxyEnds(a, b),
                3 => Action::Reject(a, b),
                _ => Action::Isolate(Who::Slot(a)),
            };
            self.at(at, action);
            let healed = at + self.ms(500, 5_000);
            self.at(healed, Action::Heal);
        }
        if self.random.percent(60) {
            // A cut, a false proof, and the question which part is the primary now.
            let at = self.ms(4_000, 12_000);
            let halves = self.halves();
            let (a, b) = (halves[0][0], halves[1][0]);
            self.at(at, Action::Partition(halves.clone()));
            self.at(at + 100, Action::ProxyEnds(a, b));
            for one in &halves[0] {
                for other in &halves[1] {
                    self.at(at + 200, Action::ProxyEnds(*one, *other));
                    self.at(at + 200, Action::ProxyEnds(*other, *one));
                }
            }
            self.at(at + 5 * SECONDS, Action::Heal);
        }
    }
}

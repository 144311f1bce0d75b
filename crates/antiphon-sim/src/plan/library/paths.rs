//! Plans about pairs whose paths are dead while others hear both.

use antiphon_core::Profile;

use super::super::swarm::pair;
use super::super::{Action, Faulty, Liveness, Probes, Transport, Who};
use super::Story;
use super::cuts::FORMED;
use crate::agenda::{MILLIS, SECONDS};
use crate::trace::Slot;

impl Story<'_> {
    /// R20: black holes, one-way cuts, firewalls and flip-flop links, of one pair or of all that do not
    /// include the hub of the day.
    pub(super) fn black_holes(&mut self) {
        self.plan.bridged = true;
        self.plan.seeds = self.nodes;
        self.plan.load.every = 25 * MILLIS;
        self.begin();
        self.draw_dissemination();
        let mut at = self.ms(5_000, 7_000);
        while at < 22 * SECONDS {
            let hub = self.slot();
            let lasts = self.ms(200, 9_000);
            for action in self.black_hole(hub, lasts) {
                self.at(at, action);
            }
            self.at(at + lasts + MILLIS, Action::Heal);
            // A member that was cut off from the last hub must have found that it is not cut off any more.
            at += lasts + self.ms(1_000, 8_000);
        }
        self.plan.duration = at + SECONDS;
    }

    pub(super) fn draw_dissemination(&mut self) {
        let ways = [
            antiphon_core::Dissemination::Direct,
            antiphon_core::Dissemination::Chain,
            antiphon_core::Dissemination::Multicast,
        ];
        for group in &mut self.plan.groups {
            group.options = group.options.dissemination(*self.random.pick(&ways));
        }
    }

    /// A cut after which all hear the hub and the hub hears all.
    fn black_hole(&mut self, hub: Slot, lasts: u64) -> Vec<Action> {
        let others: Vec<Slot> = (0..self.nodes).filter(|slot| *slot != hub).collect();
        let (a, b) = pair(self.random, others.len());
        let (a, b) = (others[a], others[b]);
        match self.random.below(8) {
            how @ 0..=4 => vec![self.dead_pair(how, a, b, lasts)],
            // Only the hub hears it.
            5 => vec![Action::OneWay(
                vec![a],
                others.iter().copied().filter(|other| *other != a).collect(),
            )],
            6 => {
                let side = self.random.range(1, others.len() as u64 - 1) as usize;
                let (one, other) = others.split_at(side);
                vec![Action::Partition(vec![one.to_vec(), other.to_vec()])]
            }
            _ => vec![Action::Partition(
                others.into_iter().map(|slot| vec![slot]).collect(),
            )],
        }
    }

    /// The path between two is dead, in one of five ways: one way or both, silently or not, or by turns.
    pub(super) fn dead_pair(&mut self, how: u64, a: Slot, b: Slot, lasts: u64) -> Action {
        match how {
            0 | 1 => Action::CutPair(a, b),
            2 => Action::OneWay(vec![a], vec![b]),
            3 => Action::Reject(a, b),
            _ => {
                let period = self.ms(100, 2_500);
                Action::Flap(a, b, period, lasts)
            }
        }
    }

    /// R20: a pair is cut that all others hear; of these one after the other dies, stops, or loses a path
    /// itself.
    pub(super) fn relays_die(&mut self) {
        self.plan.seeds = self.nodes;
        self.plan.load.every = 25 * MILLIS;
        self.plan.profile = Profile::lan();
        self.begin();
        self.draw_dissemination();
        for round in 0..2 {
            let at = (5 + 14 * round) * SECONDS + self.ms(0, 1_000);
            let mut slots: Vec<Slot> = (0..self.nodes).collect();
            self.random.shuffle(&mut slots);
            let (a, b) = (slots[0], slots[1]);
            let cut = match self.random.below(3) {
                0 => Action::OneWay(vec![a], vec![b]),
                _ => Action::CutPair(a, b),
            };
            self.at(at, cut);
            // One of the others is spared.
            let mut when = at + self.ms(200, 3_000);
            for relay in slots.iter().skip(2).take(self.nodes.saturating_sub(3)) {
                let relay = *relay;
                let length = self.ms(500, 4_000);
                let action = match self.random.below(6) {
                    0 => Action::Crash(Who::Slot(relay)),
                    1 => Action::PowerOff(Who::Slot(relay)),
                    2 => Action::Pause(Who::Slot(relay), length),
                    3 => Action::OneWay(vec![relay], vec![b]),
                    4 => Action::OneWay(vec![a], vec![relay]),
                    _ => Action::CutPair(relay, if self.random.percent(50) { a } else { b }),
                };
                self.at(when, action);
                when += self.ms(100, 2_500);
            }
            self.at(at + 12 * SECONDS, Action::Heal);
            for slot in 0..self.nodes {
                self.at(at + 12 * SECONDS, Action::Start(slot));
            }
        }
        self.plan.duration = 34 * SECONDS;
    }

    /// R21: TCP of one host loses three of ten packets, both ways, and is silent for seconds. It lives, and
    /// stays.
    pub(super) fn lossy_host(&mut self) {
        self.plan.transport = Transport::Stream;
        self.plan.profile = Profile::lan();
        self.plan.seeds = self.nodes;
        self.plan.load.every = 200 * MILLIS;
        self.plan.network.user_timeout = 20 * SECONDS;
        self.begin();
        let lossy = self.slot();
        let others: Vec<Slot> = (0..self.nodes).filter(|slot| *slot != lossy).collect();
        let at = self.ms(6_000, 8_000);
        let mut ways = vec![(vec![lossy], others.clone()), (others, vec![lossy])];
        // What is acknowledged on a way that loses is late too.
        if self.random.percent(30) {
            ways.swap_remove(self.random.index(2));
        }
        for (from, to) in ways {
            self.at(at, Action::Lossy(from, to, 300_000));
        }
        self.plan.faulty = Some(Faulty {
            slots: vec![lossy],
            removed: false,
            views: 0,
            cut_off: false,
            leased_from: None,
        });
        self.plan.duration = at + 20 * SECONDS;
    }

    /// R20: a firewall drops TCP and passes UDP. Between two, others pass their frames on; around one host,
    /// it must go although all hear its probes.
    pub(super) fn only_udp_passes(&mut self) {
        self.plan.transport = Transport::Stream;
        self.plan.profile = Profile::lan();
        self.plan.seeds = self.nodes;
        self.begin();
        let all: Vec<Slot> = (0..self.nodes).collect();
        self.at(0, Action::Probes(all.clone(), all.clone(), Probes::Pass));
        let at = self.ms(6_000, 8_000);
        let alone = self.slot();
        self.plan.duration = at + 25 * SECONDS;
        if self.random.percent(40) {
            let other = (alone + 1) % self.nodes;
            self.plan.bridged = true;
            self.at(at, Action::CutPair(alone, other));
            return;
        }
        let others = all.into_iter().filter(|slot| *slot != alone).collect();
        self.at(at, Action::Partition(vec![vec![alone], others]));
        self.plan.rejoin = false;
        self.plan.liveness = Liveness::None;
        self.plan.faulty = Some(Faulty {
            slots: vec![alone],
            removed: true,
            views: 1,
            cut_off: true,
            leased_from: None,
        });
    }

    /// One host of at least five, or two of at least eight, hear no other or only each other, and are heard:
    /// by all that they send, or by their probes alone, since their kernels wait for acknowledgements. They
    /// are gone three seconds later.
    pub(super) fn deaf_hosts(&mut self) {
        self.plan.profile = Profile::lan();
        let most = if self.nodes < 8 { 1 } else { 2 };
        let count = self.random.range(1, most) as usize;
        let (deaf, mut others) = self.bare(count);
        let at = FORMED + self.ms(0, 1_000);
        if self.random.percent(50) {
            others.extend(&deaf);
        }
        if self.random.percent(60) {
            self.plan.transport = Transport::Stream;
            self.at(at, Action::Lossy(others, deaf, 1_000_000));
        } else {
            self.at(at, Action::OneWay(others, deaf));
        }
        self.plan.duration = at + 3 * SECONDS;
    }

    /// A host that gives a process little of its time: so that its timers are late, or also so that it hears
    /// nothing for several heartbeats.
    fn duty_cycle(&mut self, at: u64, length: u64, slot: Slot) {
        let heartbeat = self.plan.profile.heartbeat.as_micros() as u64;
        let most = if self.random.percent(50) { 19 } else { 40 };
        let stop = self.random.range(heartbeat * 8 / 10, heartbeat * most / 10);
        let run = self.ms(20, 100);
        let mut next = at + self.random.below(stop);
        while next < at + length {
            self.at(next, Action::Pause(Who::Slot(slot), stop));
            next += stop + run;
        }
    }

    /// Many are stopped at the same time, a majority at times, and go on at the same time, or run for a
    /// little of the time only. A member that ran all the while is not to blame. And a member that lost power
    /// meanwhile is missed, but not for longer than any other ran.
    pub(super) fn starved_observers(&mut self) {
        self.plan.seeds = self.nodes;
        self.plan.load.every = 100 * MILLIS;
        self.begin();
        let mut at = self.ms(4_000, 5_000);
        while at < 26 * SECONDS {
            let count = self.random.range(1, self.nodes as u64) as usize;
            let mut slots: Vec<Slot> = (0..self.nodes).collect();
            self.random.shuffle(&mut slots);
            let length = self.ms(300, 9_000);
            let gone = self.random.percent(60).then(|| slots.pop()).flatten();
            slots.truncate(count);
            if self.random.percent(50) {
                for slot in slots {
                    let apart = self.random.below(40 * MILLIS);
                    self.at(at + apart, Action::Pause(Who::Slot(slot), length));
                }
            } else {
                slots
                    .into_iter()
                    .for_each(|slot| self.duty_cycle(at, length, slot));
            }
            if let Some(gone) = gone {
                self.at(at + length / 2, Action::PowerOff(Who::Slot(gone)));
            }
            at += length + self.ms(2_000, 9_000);
            if let Some(gone) = gone {
                self.at(at, Action::Start(gone));
                at += SECONDS;
            }
        }
        self.plan.duration = at + SECONDS;
    }

    /// R20: heartbeats alone keep all processors busy for most of the time, and some hosts get less of theirs
    /// for a moment. All paths work.
    pub(super) fn too_many_for_their_processors(&mut self) {
        self.plan.groups.clear();
        self.plan.load.every = 0;
        self.plan.seeds = self.nodes;
        self.plan.liveness = Liveness::None;
        self.plan.profile = Profile::lan();
        self.plan.transport = Transport::Datagram;
        // On both engines all watch all.
        self.plan.rings = self.nodes;
        for slot in 0..self.nodes {
            self.at(0, Action::Start(slot));
        }
        let heartbeat = self.plan.profile.heartbeat.as_micros() as u64;
        let frames = (self.nodes as u64 - 1) * SECONDS / heartbeat;
        let cost = SECONDS * self.random.range(60, 78) / 100 / frames;
        let (busy, moment) = (6 * SECONDS, 10 * SECONDS);
        let calm = moment + 16 * SECONDS;
        self.plan.duration = calm + 6 * SECONDS;
        for slot in 0..self.nodes {
            self.at(busy, Action::Slow(Who::Slot(slot), cost, self.plan.duration));
        }
        let mut slots: Vec<Slot> = (0..self.nodes).collect();
        self.random.shuffle(&mut slots);
        slots.truncate(self.nodes / 4);
        for slot in slots {
            let (at, length) = (moment + self.ms(0, 500), self.ms(700, 1_500));
            self.at(at, Action::Slow(Who::Slot(slot), 3 * cost, length));
            self.at(
                at + length + 1,
                Action::Slow(Who::Slot(slot), cost, self.plan.duration),
            );
        }
        self.plan.nothing_passes_from = Some(calm);
    }
}

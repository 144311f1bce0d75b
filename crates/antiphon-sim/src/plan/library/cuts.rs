//! Plans about the cut engine: faults of some hosts that must remove only these hosts, and once.

use antiphon_core::EngineKind;

use super::super::swarm::pair;
use super::super::{Action, Faulty, Liveness, Plan, Transport, Who};
use super::Story;
use crate::agenda::{MILLIS, SECONDS};
use crate::random::Random;
use crate::trace::Slot;

/// When a cluster of some size has formed.
pub(super) const FORMED: u64 = 6 * SECONDS;

/// Whether a plan is run on this engine. What plans called `cut-` demand, such as one view for all that fail
/// at once, only that engine gives.
pub fn runs_on(plan: &str, engine: EngineKind) -> bool {
    engine == EngineKind::Cut || !plan.starts_with("cut-")
}

/// How node views are decided, in all plans that are not about one way; drawn apart from all else.
pub(super) fn draw_membership(seed: u64, plan: &mut Plan) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"membership", 0));
    plan.membership = if !runs_on(plan.name, EngineKind::Coordinator) || random.percent(50) {
        EngineKind::Cut
    } else {
        EngineKind::Coordinator
    };
    // With three, five members are not all neighbours: there are rumours, and not all members are observers.
    // Nothing is passed on there.
    let narrow = ["cut-", "r7-", "deaf-"]
        .iter()
        .any(|word| plan.name.starts_with(word))
        || plan.bridged;
    if !narrow && random.percent(40) {
        plan.rings = 3;
    }
}

impl Story<'_> {
    /// Nodes and nothing else: no groups, started together, seeds that are not faulty.
    pub(super) fn bare(&mut self, faulty: usize) -> (Vec<Slot>, Vec<Slot>) {
        self.plan.groups.clear();
        self.plan.seeds = 5;
        self.plan.liveness = Liveness::None;
        self.plan.rejoin = false;
        for slot in 0..self.plan.slots {
            self.at(0, Action::Start(slot));
        }
        let mut others: Vec<Slot> = (0..self.plan.slots).collect();
        self.random.shuffle(&mut others);
        let faulty = others.split_off(others.len() - faulty);
        self.plan.faulty = Some(Faulty {
            slots: faulty.clone(),
            removed: true,
            views: usize::MAX,
            cut_off: false,
            leased_from: None,
        });
        (faulty, others)
    }

    fn in_one_view(&mut self) {
        if let Some(faulty) = &mut self.plan.faulty {
            faulty.views = 1;
        }
    }

    /// A tenth of all crash at one instant: one view change.
    pub(super) fn a_tenth_crashes(&mut self) {
        let (faulty, _) = self.bare(self.nodes / 10);
        let proven = self.random.percent(50);
        for slot in faulty {
            let apart = self.random.below(2 * MILLIS);
            let who = Who::Slot(slot);
            let end = if proven {
                Action::Crash(who)
            } else {
                Action::PowerOff(who)
            };
            self.at(FORMED + apart, end);
        }
        self.in_one_view();
        self.plan.duration = FORMED + 5 * SECONDS;
    }

    /// Some hosts are cut off from all others, together or each alone: they are to find out by themselves.
    /// Before that, some paths to one of them may lose most of what they carry. What it said of these paths
    /// must not count for what it hears when it is cut off.
    pub(super) fn cut_off(&mut self) {
        let count = self.random.range(1, self.nodes as u64 / 4) as usize;
        let (faulty, others) = self.bare(count);
        let mut cut = FORMED;
        if self.random.percent(60) {
            self.plan.transport = Transport::Datagram;
            let from = others[..5].to_vec();
            self.at(FORMED, Action::Lossy(from, vec![faulty[0]], 700_000));
            cut += 8 * SECONDS;
        }
        let mut parts: Vec<Vec<Slot>> = if self.random.percent(50) {
            vec![faulty]
        } else {
            faulty.into_iter().map(|slot| vec![slot]).collect()
        };
        parts.push(others);
        self.at(cut, Action::Partition(parts));
        if let Some(faulty) = &mut self.plan.faulty {
            faulty.cut_off = true;
        }
        self.plan.duration = cut + 10 * SECONDS;
    }

    /// R20: not all are neighbours, and the path between two members of a group is dead for a while. Others
    /// of the group pass on between them, or, where it has these two alone, neighbours that are in no group
    /// of theirs.
    pub(super) fn dead_path(&mut self) {
        self.plan.rings = 3;
        self.plan.bridged = true;
        self.plan.seeds = 5;
        self.plan.load.every = 25 * MILLIS;
        self.one_group(antiphon_core::Order::Fifo);
        let (a, b) = pair(self.random, self.nodes);
        let mut of_two = self.plan.groups[0].clone();
        of_two.name = "g1".to_owned();
        of_two.members = vec![a, b];
        self.plan.groups.push(of_two);
        if self.random.percent(50) {
            self.plan.groups[0].members.retain(|slot| *slot != b);
        }
        self.begin();
        self.draw_dissemination();
        let mut at = self.ms(5_000, 7_000);
        while at < 22 * SECONDS {
            let lasts = self.ms(200, 9_000);
            let (one, other) = match self.random.percent(50) {
                true => (a, b),
                false => pair(self.random, self.nodes),
            };
            let how = self.random.below(5);
            let dead = self.dead_pair(how, one, other, lasts);
            self.at(at, dead);
            self.at(at + lasts + MILLIS, Action::Heal);
            at += lasts + self.ms(1_000, 8_000);
        }
        self.plan.duration = at + SECONDS;
    }

    /// Each is alone for a while, and meanwhile nearly half of them lose their power. On so few rings some of
    /// the others have no neighbour that is left: together again, they are a quorum that no ring holds
    /// together.
    pub(super) fn islands(&mut self) {
        self.plan.rings = 3;
        self.begin();
        let mut left: Vec<Slot> = (0..self.plan.slots).collect();
        self.random.shuffle(&mut left);
        let gone = left.split_off(left.len() / 2 + 1);
        let apart = FORMED + self.ms(0, 500);
        let alone = (0..self.plan.slots).map(|slot| vec![slot]).collect();
        self.at(apart, Action::Partition(alone));
        let mut at = apart;
        for slot in gone {
            at += self.ms(0, 800);
            self.at(at, Action::PowerOff(Who::Slot(slot)));
        }
        at += self.ms(0, 4_000);
        self.at(at, Action::Heal);
        self.plan.duration = at + self.ms(0, 2_000);
    }

    /// Some hosts get nothing for a while, and then everything, by turns.
    pub(super) fn flip_flop(&mut self) {
        let count = self.random.range(1, 3) as usize;
        let (faulty, others) = self.bare(count);
        if self.random.percent(50) {
            self.plan.transport = Transport::Datagram;
        }
        // Where one of them goes first, the others are seen to stay behind after three times the time for
        // silence.
        let turn = self.ms(10_000, 20_000);
        for round in 0..2 {
            let at = FORMED + 2 * turn * round;
            for slot in &faulty {
                let apart = self.ms(0, 2_000);
                self.at(at + apart, Action::OneWay(others.clone(), vec![*slot]));
            }
            self.at(at + turn, Action::Heal);
        }
        self.plan.duration = FORMED + 4 * turn;
    }

    /// Some hosts hear each other and no other host, for twice as long as silence is waited for: some of them
    /// observe two or three of the others.
    pub(super) fn deaf_together(&mut self) {
        let count = self.random.range(4, 6) as usize;
        let (faulty, others) = self.bare(count.min(self.nodes / 5).max(1));
        if self.random.percent(50) {
            self.plan.transport = Transport::Datagram;
        }
        let deaf = 2 * self.plan.profile.suspect_after.as_micros() as u64;
        self.at(FORMED, Action::OneWay(others, faulty));
        self.at(FORMED + deaf, Action::Heal);
        self.in_one_view();
        self.plan.duration = FORMED + deaf + 5 * SECONDS;
    }

    /// Some hosts lose most of what they send, or most of what is sent to them; others lose a little.
    pub(super) fn lossy_hosts(&mut self) {
        let count = self.random.range(1, 3) as usize;
        let (faulty, others) = self.bare(count);
        self.plan.transport = Transport::Datagram;
        self.plan.network.loss_ppm = self.random.below(20_000) as u32;
        let (from, to) = if self.random.percent(50) {
            (faulty, others)
        } else {
            (others, faulty)
        };
        self.at(FORMED, Action::Lossy(from, to, 800_000));
        self.plan.duration = FORMED + 40 * SECONDS;
    }

    /// Three hosts lose about half of what is sent to them, sometimes more and sometimes less. So each
    /// reports some of the members that it observes, which are nearly all, and never most of them at once.
    /// The others stay, whether these hosts go or not.
    pub(super) fn half_lost(&mut self) {
        let (faulty, others) = self.bare(3);
        if let Some(faulty) = &mut self.plan.faulty {
            faulty.removed = false;
        }
        self.plan.transport = Transport::Datagram;
        let loss = self.random.range(420_000, 560_000) as u32;
        self.at(FORMED, Action::Lossy(others, faulty, loss));
        self.plan.duration = FORMED + 40 * SECONDS;
    }
}

//! Plans about members that believe in their view while the others may have gone on (R7).

use super::*;

impl Story<'_> {
    /// Clocks that go as differently as they may, and messages for all.
    fn drifting(&mut self) {
        self.begin();
        self.plan.drift_ppm = 14_000;
        self.plan.load.every = self.ms(5, 40);
        if self.random.percent(50) {
            self.ragged();
        }
    }

    fn all_back(&mut self, at: Micros) {
        self.at(at, Action::Heal);
        for slot in 0..self.nodes {
            self.at(at + MILLIS, Action::Start(slot));
        }
    }

    /// A member is cut off, in one direction or both, from all or from some, or is stopped, or its paths hold
    /// back what it sends; or two members are.
    pub(super) fn cut_off_from_the_primary(&mut self) {
        self.drifting();
        for round in 0..4 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 500);
            for _ in 0..self.random.range(1, 2) {
                let (one, other) = pair(self.random, self.nodes);
                let others: Vec<Slot> = (0..self.nodes).filter(|slot| *slot != one).collect();
                let length = self.ms(500, 4_000);
                let at = at + self.ms(0, 1_500);
                let action = match self.random.below(7) {
                    0 => Action::Pause(Who::Slot(one), length),
                    1 => Action::OneWay(vec![one], others),
                    2 => Action::OneWay(others, vec![one]),
                    3 => Action::CutPair(one, other),
                    4 => Action::Clog(one, other, length),
                    5 => Action::Slow(Who::Slot(one), self.random.range(1_000, 60_000), length),
                    _ => Action::Isolate(Who::Slot(one)),
                };
                self.at(at, action);
                if self.random.percent(30) {
                    let death = at + self.random.below(2 * SECONDS);
                    self.at(death, Action::Crash(Who::Slot(other)));
                }
            }
            self.all_back(at + 4 * SECONDS);
        }
    }

    /// The only member that answered a member that is cut off dies a moment later, and proves it to the
    /// others.
    pub(super) fn counted_on_die(&mut self) {
        self.drifting();
        for round in 0..4 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 500);
            let mut slots: Vec<Slot> = (0..self.nodes).collect();
            self.random.shuffle(&mut slots);
            let (cut, link) = (slots[0], slots[1]);
            for other in &slots[2..] {
                self.at(at, Action::CutPair(cut, *other));
            }
            // The link may be dead by the time that the others suspect, or long before.
            let death = at + self.ms(200, 2_500);
            self.at(death, Action::Crash(Who::Slot(link)));
            if self.random.percent(40) {
                let (early, count) = (self.ms(0, 50), self.random.below(30) as u32);
                self.at(death - early, Action::CrashAtOutput(Who::Slot(link), count));
            }
            self.all_back(at + 4 * SECONDS);
        }
    }

    /// Two of five leave. One of them has just voted for the view without them when the paths to the other
    /// side break: no member on this side learns that it was decided, and all three go on answering each
    /// other. Or the third is cut off from the other side, and had its answers from these two until they were
    /// gone.
    fn voters_are_cut_off(&mut self) {
        self.plan.network.latency = 5 * MILLIS;
        self.plan.network.jitter = 500;
        let early = self.random.percent(50);
        // Flushes of groups would make them wait for a member that is cut off.
        self.plan.groups.clear();
        for round in 0..4 {
            let at = (3 + 6 * round) * SECONDS + self.ms(0, 500);
            let mut slots: Vec<Slot> = (0..self.nodes).collect();
            self.random.shuffle(&mut slots);
            let (kept, cut) = slots.split_at(2);
            let leave = if early { at + self.ms(0, 550) } else { at };
            for leaver in &cut[1..] {
                self.at(leave, Action::Leave(Who::Slot(*leaver)));
            }
            if early {
                for other in kept {
                    self.at(at, Action::CutPair(cut[0], *other));
                }
                self.all_back(at + 5 * SECONDS);
                continue;
            }
            let broken = at + self.ms(10, 30);
            self.at(broken, Action::Partition(vec![kept.to_vec(), cut.to_vec()]));
            self.all_back(at + 5 * SECONDS);
        }
        self.plan.duration = 28 * SECONDS;
    }

    /// A member does not hear of the next view while some still answer it, and the view after that removes
    /// it.
    pub(super) fn behind(&mut self) {
        self.drifting();
        if self.nodes == 5 {
            return self.voters_are_cut_off();
        }
        for round in 0..4 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 500);
            let mut slots: Vec<Slot> = (0..self.nodes).collect();
            self.random.shuffle(&mut slots);
            let (late, others) = (slots[0], &slots[1..]);
            let lost = self.random.range(1, (self.nodes as u64 - 1) / 2) as usize;
            let (lost, kept) = others.split_at(lost);
            let (lost, kept) = (lost.to_vec(), kept.to_vec());
            // Those kept do not reach those lost, nor the late one; these hear each other.
            self.at(at, Action::OneWay(kept.clone(), lost.clone()));
            if self.random.percent(60) {
                self.at(at, Action::OneWay(lost, kept.clone()));
            }
            let later = at + self.ms(0, 1_600);
            self.at(later, Action::OneWay(kept.clone(), vec![late]));
            let silent = later + self.ms(0, 1_500);
            self.at(silent, Action::OneWay(vec![late], kept));
            self.all_back(at + 4 * SECONDS);
        }
    }

    /// The senior of three, started first, and no messages: so the leader is known, and when it finds what.
    fn led_by_the_first(&mut self) {
        self.plan.groups.clear();
        self.plan.drift_ppm = 14_000;
        self.plan.network.latency = self.ms(5, 60);
        for slot in 0..self.plan.slots {
            self.at(u64::from(slot > 0) * 500 * MILLIS, Action::Start(slot));
        }
    }

    /// One of three is silent. Another votes for its removal and does not hear that it was decided, but now
    /// hears the silent one again.
    pub(super) fn a_voter_is_asked(&mut self) {
        self.led_by_the_first();
        let patience = self.plan.profile.suspect_after.as_micros() as u64;
        let mut at = 3 * SECONDS;
        for _ in 0..4 {
            self.at(at, Action::CutPair(0, 2));
            self.at(at, Action::CutPair(1, 2));
            let voted = at + patience + self.ms(0, 200);
            self.at(voted, Action::OneWay(vec![0], vec![1]));
            let asked = voted + self.ms(0, 300);
            self.at(asked, Action::Heal);
            self.at(asked, Action::CutPair(0, 2));
            self.at(asked, Action::OneWay(vec![0], vec![1]));
            at += 6 * SECONDS;
            self.all_back(at - SECONDS);
        }
        self.plan.duration = at;
    }

    /// The senior of three hears no other, and one of the two that answer each other dies. All that the
    /// senior gets is the proof of that, and it could decide without the other.
    pub(super) fn an_answer_outlives_its_giver(&mut self) {
        self.led_by_the_first();
        let patience = self.plan.profile.suspect_after.as_micros() as u64;
        let mut at = 3 * SECONDS;
        for _ in 0..4 {
            self.at(at, Action::OneWay(vec![1, 2], vec![0]));
            let open = at + patience + self.ms(0, 600);
            self.at(open, Action::Heal);
            self.at(open, Action::OneWay(vec![2], vec![0]));
            let death = open + self.ms(0, 50);
            self.at(death, Action::Crash(Who::Slot(1)));
            at += 6 * SECONDS;
            self.all_back(at - SECONDS);
        }
        self.plan.duration = at;
    }

    /// The same as in small views where not all members are neighbours; or some of them are apart, or
    /// stopped, for a while.
    pub(super) fn cut_off_from_a_large_primary(&mut self) {
        self.plan.rings = 3;
        match self.random.below(4) {
            0 => return self.counted_on_die(),
            1 => return self.behind(),
            2 => return self.cut_off_from_the_primary(),
            _ => self.drifting(),
        }
        for round in 0..4 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 500);
            let mut slots: Vec<Slot> = (0..self.nodes).collect();
            self.random.shuffle(&mut slots);
            let most = (self.nodes as u64 - 1) / 2;
            let (some, others) = slots.split_at(self.random.range(2, most.max(2)) as usize);
            let length = self.ms(800, 4_000);
            match self.random.below(3) {
                0 => self.at(at, Action::Partition(vec![some.to_vec(), others.to_vec()])),
                1 => self.at(at, Action::OneWay(others.to_vec(), some.to_vec())),
                _ => {
                    for slot in some {
                        let apart = self.ms(0, 300);
                        self.at(at + apart, Action::Pause(Who::Slot(*slot), length));
                    }
                }
            }
            self.all_back(at + 4 * SECONDS);
        }
    }

    /// Not all are neighbours. A member that makes ticks or passes them on falls silent or dies, and no other
    /// member stops believing for that.
    pub(super) fn the_pulse_goes_on(&mut self) {
        let (mut faulty, _) = self.bare(1);
        self.plan.rings = 3;
        let at = cuts::FORMED;
        // Most likely the most senior member makes them.
        if self.random.percent(40) {
            faulty = vec![0];
        }
        for slot in &faulty {
            let when = at + self.ms(0, 1_000);
            let who = Who::Slot(*slot);
            let end = match self.random.below(3) {
                0 => Action::PowerOff(who),
                1 => Action::Isolate(who),
                _ => Action::Crash(who),
            };
            self.at(when, end);
        }
        if let Some(of) = &mut self.plan.faulty {
            of.slots = faulty;
            of.leased_from = Some(at);
        }
        self.plan.duration = at + 8 * SECONDS;
    }

    /// Not all are neighbours, and the most senior ones are so far from the others that no answer of these
    /// comes in time to count for them. Another member renews the leases of the members that are near each
    /// other, all the time.
    pub(super) fn far_seniors(&mut self) {
        self.bare(1);
        self.plan.rings = 3;
        let far = self.random.range(1, 3) as Slot;
        self.plan.network.far = (far, self.ms(160, 200));
        let begins = cuts::FORMED + 12 * SECONDS;
        if let Some(of) = &mut self.plan.faulty {
            of.slots = (0..far).collect();
            of.removed = false;
            of.views = 0;
            of.leased_from = Some(begins);
        }
        self.plan.duration = begins + 8 * SECONDS;
    }

    /// A member is cut off. It gets all that the others answer each other, like a host that caught their
    /// frames: none of that is for it.
    pub(super) fn answers_go_astray(&mut self) {
        // With three rings five members are not all neighbours.
        self.plan.rings = if self.random.percent(40) { 3 } else { 10 };
        for round in 0..3 {
            let at = (3 + 6 * round) * SECONDS + self.ms(0, 500);
            let (one, _) = pair(self.random, self.nodes);
            let (who, length) = (Who::Slot(one), self.ms(2_500, 4_500));
            self.at(at, Action::Isolate(who));
            let astray = at + self.ms(0, 1_500);
            self.at(astray, Action::Astray(who, length));
            self.all_back(at + length);
        }
    }
}

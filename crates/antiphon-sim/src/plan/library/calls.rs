//! Plans about calls: servers and callers that die, partitions that heal, members that come and go while all
//! are asked.

use super::super::Calling;
use super::*;

/// For the seeds that draw one: a group whose members call each other, behind all other groups; drawn apart
/// from all else. Some members leave it and come back.
pub(super) fn draw_calls(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"calls", 0));
    if !random.percent(40) {
        return;
    }
    converse(plan, &mut random);
    let group = plan.groups.len() - 1;
    for _ in 0..random.below(5) {
        let who = Who::Slot(random.index(plan.slots));
        let at = random.range(3 * SECONDS, 16 * SECONDS);
        let back = at + random.range(MILLIS, 2 * SECONDS);
        let leave = Action::LeaveGroup(who, group);
        plan.steps.push(Step { at, action: leave });
        let join = Action::JoinGroup(who, group);
        plan.steps.push(Step {
            at: back,
            action: join,
        });
    }
    plan.steps.sort_by_key(|step| step.at);
}

/// Adds the group, for all or most slots.
fn converse(plan: &mut Plan, random: &mut Random) {
    let window = *random.pick(&[64 << 10, 256 << 10]);
    let order = *random.pick(&[Order::Total, Order::Fifo, Order::Unordered]);
    let all = random.percent(70);
    let group = plan.groups.len();
    plan.groups.push(GroupPlan {
        name: "calls".to_owned(),
        options: GroupOptions::default().order(order).window_bytes(window),
        members: (0..plan.slots).filter(|_| all || random.percent(70)).collect(),
    });
    plan.calling = Some(Calling {
        group,
        every: *random.pick(&[30, 80, 200]) * MILLIS,
        verbs: random.range(2, 4),
        bytes: *random.pick(&[30, 30, 2_000, 20_000]),
        deadline: *random.pick(&[500, 2_000, 6_000]) * MILLIS,
        takes: *random.pick(&[2, 50, 1_000]) * MILLIS,
        error_percent: 10,
        silent_percent: *random.pick(&[0, 5, 15]),
        nested_percent: *random.pick(&[0, 15, 40]),
        cancel_percent: *random.pick(&[5, 20]),
        max_running: random.range(1, 4) as usize,
        max_queued: *random.pick(&[1, 4, 16]),
        lag: *random.pick(&[1, 20, 300]) * MILLIS,
    });
}

impl Story<'_> {
    /// Nothing but calls, and enough of them.
    fn calls(&mut self) {
        self.plan.groups.clear();
        converse(&mut self.plan, self.random);
        self.plan.groups[0].members = (0..self.plan.slots).collect();
        if let Some(it) = &mut self.plan.calling {
            it.every = self.random.range(8, 40) * MILLIS;
        }
        self.begin();
        if self.random.percent(50) {
            self.ragged();
        }
    }

    /// G29, G44, G49 under `any`: members call each other, and tell each other something, while components
    /// part, go on and merge.
    pub(super) fn any_calls(&mut self) {
        match self.random.below(3) {
            0 => self.any_partition(),
            1 => self.any_three_ways(),
            _ => self.any_flap(),
        }
        self.plan.load.tell_percent = 30;
        converse(&mut self.plan, self.random);
        if let Some(it) = &mut self.plan.calling {
            it.every = self.random.range(30, 200) * MILLIS;
        }
    }

    fn leave_calls(&mut self, at: Micros, slot: Slot, away: Micros) {
        self.at(at, Action::LeaveGroup(Who::Slot(slot), 0));
        self.at(at + away, Action::JoinGroup(Who::Slot(slot), 0));
    }

    /// G49: members that call and serve die at any time, are stopped, or leave.
    pub(super) fn servers_die(&mut self) {
        self.calls();
        let mut at = 2 * SECONDS;
        while at < 16 * SECONDS {
            let slot = self.slot();
            let away = self.ms(20, 1_500);
            match self.random.below(7) {
                0 => self.at(at, Action::PowerOff(Who::Slot(slot))),
                1 => {
                    let count = self.random.below(60) as u32;
                    self.at(at, Action::CrashAtOutput(Who::Slot(slot), count));
                }
                2 => self.at(at, Action::Pause(Who::Slot(slot), away * 2)),
                3 => self.at(at, Action::Stall(Who::Slot(slot), away * 2)),
                4 => self.leave_calls(at, slot, away),
                5 => self.at(at, Action::Leave(Who::Slot(slot))),
                _ => self.at(at, Action::Crash(Who::Slot(slot))),
            }
            self.at(at + away, Action::Start(slot));
            if self.random.percent(40) {
                self.clog_some(at, 3, 1_200);
            }
            at += self.ms(300, 2_000);
        }
    }

    /// G49: members call across a cut, which heals before or after they are removed, or has them removed and
    /// come back.
    pub(super) fn apart_and_together(&mut self) {
        self.calls();
        let mut at = 3 * SECONDS;
        while at < 16 * SECONDS {
            let length = self.ms(100, 4_000);
            let slot = self.slot();
            let others: Vec<Slot> = (0..self.nodes).filter(|other| *other != slot).collect();
            let action = match self.random.below(6) {
                0 => Action::Isolate(Who::Slot(slot)),
                1 => Action::OneWay(vec![slot], others),
                2 => Action::OneWay(others, vec![slot]),
                3 => Action::Pause(Who::Slot(slot), length),
                _ => Action::Partition(self.halves()),
            };
            self.at(at, action);
            at += length;
            self.at(at, Action::Heal);
            at += self.ms(500, 3_000);
        }
    }

    /// G49: two members leave again and again, and are back before the others know it.
    fn back_at_once(&mut self) {
        if let Some(it) = &mut self.plan.calling {
            it.lag = 300 * MILLIS;
        }
        for slot in 0..2 {
            let mut at = 2 * SECONDS;
            while at < 15 * SECONDS {
                let away = self.ms(1, 30);
                self.leave_calls(at, slot, away);
                at += away + self.ms(100, 900);
            }
        }
    }

    /// G29: all are asked while members join, leave and die.
    pub(super) fn all_while_members_change(&mut self) {
        self.calls();
        if let Some(it) = &mut self.plan.calling {
            it.takes = self.random.range(1, 200) * MILLIS;
            it.max_running = 4;
            it.max_queued = 16;
        }
        if self.random.percent(50) {
            return self.back_at_once();
        }
        let mut at = 2 * SECONDS;
        while at < 15 * SECONDS {
            let slot = self.slot();
            let away = self.ms(1, 800);
            if self.random.percent(70) {
                self.leave_calls(at, slot, away);
            } else {
                self.at(at, Action::Crash(Who::Slot(slot)));
                self.at(at + away, Action::Start(slot));
            }
            if self.random.percent(30) {
                let (other, count) = (self.slot(), self.random.below(40) as u32);
                self.at(at, Action::CrashAfterView(Who::Slot(other), count));
                self.at(at + SECONDS, Action::Start(other));
            }
            if self.random.percent(30) {
                self.clog_some(at, 3, 800);
            }
            at += self.ms(100, 1_200);
        }
    }
}

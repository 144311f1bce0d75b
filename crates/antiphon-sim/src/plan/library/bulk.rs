//! The plans about payloads beside the log, and about payloads that fit no block of it.

use super::*;

impl Story<'_> {
    /// Senders and receivers of objects die, stop, join, leave and are cut off in the middle of transfers.
    pub(super) fn bulk(&mut self) {
        self.begin();
        if self.random.percent(50) {
            self.lossy();
        }
        if self.random.percent(40) {
            // Transfers take their time: most of what happens, happens in the middle of one.
            self.plan.network.bytes_per_s = self.random.range(500_000, 4_000_000);
            self.plan.network.buffer_bytes = 256 << 10;
        }
        self.plan.load.every = 40 * MILLIS;
        self.plan.load.object_percent = self.random.range(4, 15) as u32;
        let bytes = self.random.range(70_000, 400_000);
        self.plan.load.object_bytes = bytes as usize;
        for group in &mut self.plan.groups {
            group.options = objects_of(group.options.window_bytes(64 << 10), bytes, self.random);
        }
        let mut at = 2 * SECONDS;
        while at < 15 * SECONDS {
            let slot = self.slot();
            let length = self.ms(20, 1_500);
            match self.random.below(7) {
                0 => {
                    // Offers wait for room while the view changes.
                    self.at(at, Action::Stall(Who::Slot(slot), length * 2));
                    let other = self.slot();
                    self.at(at + length, Action::Crash(Who::Slot(other)));
                    self.at(at + length * 3, Action::Start(other));
                }
                1 => self.at(at, Action::Pause(Who::Slot(slot), length)),
                2 => {
                    self.at(at, Action::LeaveGroup(Who::Slot(slot), 0));
                    self.at(at + length, Action::JoinGroup(Who::Slot(slot), 0));
                }
                3 => {
                    let halves = self.halves();
                    self.at(at, Action::Partition(halves));
                    self.at(at + length * 3, Action::Heal);
                }
                4 => {
                    let count = self.random.below(200) as u32;
                    self.at(at, Action::CrashAtOutput(Who::Slot(slot), count));
                    self.at(at + SECONDS + length, Action::Start(slot));
                }
                _ => {
                    self.at(at, Action::Crash(Who::Slot(slot)));
                    self.at(at + length, Action::Start(slot));
                }
            }
            at += self.ms(400, 2_500);
        }
    }

    /// Messages that fit no block, under windows of a few of them, while members come, go, die and stop
    /// reading.
    pub(super) fn large_messages(&mut self) {
        self.begin();
        self.lossy();
        self.plan.load.every = 60 * MILLIS;
        self.plan.load.large_percent = 30;
        self.plan.load.large_bytes = self.random.range(60_001, 250_000) as usize;
        for group in &mut self.plan.groups {
            group.options = group.options.window_bytes(256 << 10);
        }
        let mut at = 2 * SECONDS;
        while at < 15 * SECONDS {
            let slot = self.slot();
            let length = self.ms(50, 1_500);
            match self.random.below(5) {
                0 => {
                    // Messages wait for credit while the view changes.
                    self.at(at, Action::Stall(Who::Slot(slot), length * 2));
                    let other = self.slot();
                    self.at(at + length, Action::Crash(Who::Slot(other)));
                    self.at(at + length * 3, Action::Start(other));
                }
                4 => self.at(at, Action::Pause(Who::Slot(slot), length)),
                1 => self.at(at, Action::Slow(Who::Slot(slot), MILLIS, length)),
                2 => {
                    self.at(at, Action::LeaveGroup(Who::Slot(slot), 0));
                    self.at(at + length, Action::JoinGroup(Who::Slot(slot), 0));
                }
                _ => {
                    self.at(at, Action::Crash(Who::Slot(slot)));
                    let back = at + self.ms(500, 4_000);
                    self.at(back, Action::Start(slot));
                }
            }
            at += self.ms(200, 2_000);
        }
    }
}

/// Whether there are objects, and of what size; drawn apart from all else. They begin where a window ends:
/// small ones do.
pub(super) fn draw_objects(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"objects", 0));
    let bytes = random.range(70_000, 300_000);
    let objects = random.percent(15);
    for group in &mut plan.groups {
        group.options = objects_of(group.options, bytes, &mut random);
    }
    if objects {
        plan.load.object_percent = 1;
        plan.load.object_bytes = bytes as usize;
    }
}

/// Room for one object of a sender or two, and of all others for little more.
fn objects_of(options: GroupOptions, bytes: u64, random: &mut Random) -> GroupOptions {
    let most = bytes * random.range(1, 2);
    let all = most + bytes * random.below(3);
    options
        .max_object_bytes(most as u32)
        .object_memory_bytes(all as u32)
}

//! The one timer that a driver has.

use super::*;

impl World {
    pub(in crate::world) fn timer_fired(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        // Another deadline has replaced this one.
        if process.ended.is_some() || process.timer_at != self.now {
            return;
        }
        process.timer_at = Micros::MAX;
        // A driver has one timer: what comes before it in the inbox does not make it another.
        if process.gate == Gate::Paused || process.timer_waits {
            return;
        }
        process.timer_waits = true;
        let (at, calls) = process.timer_calls;
        process.timer_calls = if at == self.now {
            (at, calls + 1)
        } else {
            (self.now, 1)
        };
        if process.timer_calls.1 == RUNAWAY / 100 {
            let (wanted, now) = (process.node.poll_timeout(), process.clock.local(self.now));
            self.note(
                id,
                Seen::Contract(format!(
                    "at {now:?} the timer is wanted at {wanted:?}, again and again"
                )),
            );
            return self.end(id, Ending::Killed);
        }
        self.accept(id, Input::Timer);
    }
}

//! A node without a view asks, and goes on asking, but not as fast as the network carries it.

use antiphon_core::Class;

use super::*;
use crate::agenda::SECONDS;

/// A process without a view may send so many control frames in a second, and so many more for each place
/// where a node may run. It may ask all of them, and found with them, at the pace of repeats.
const MOST: usize = 500;
const MOST_FOR_EACH: usize = 100;

/// What a process without a view has sent lately.
#[derive(Debug, Default)]
pub(super) struct Chatter {
    since: Micros,
    frames: usize,
    told: bool,
}

impl World {
    /// A frame leaves a process.
    pub(super) fn count_chatter(&mut self, id: ProcessId, class: Class) {
        let most = MOST + MOST_FOR_EACH * self.plan.slots;
        let now = self.now;
        let process = &mut self.processes[id];
        if process.view.is_some() || class != Class::Control {
            process.chatter = Chatter::default();
            return;
        }
        let chatter = &mut process.chatter;
        if now >= chatter.since + SECONDS {
            (chatter.since, chatter.frames) = (now, 0);
        }
        chatter.frames += 1;
        if chatter.frames > most && !chatter.told {
            chatter.told = true;
            let what = format!("without a view it sends more than {most} frames a second");
            self.note(id, Seen::Contract(what));
        }
    }
}

//! G37, its other half. A node that did not run for a good part of its time says so: the operator of the host
//! should know.
//!
//! A node must have noticed all but one heartbeat of a stop. It sums that up over 50 heartbeats and tells
//! five at once. Two such sums touch any 50 heartbeats, so a node that missed ten of those has told.

use std::collections::BTreeMap;

use crate::agenda::Micros;
use crate::check::Report;
use crate::trace::{ProcessId, Seen, Slot, Trace};

/// Over how many heartbeats what was missed is summed up.
const WINDOW_BEATS: u64 = 50;
/// A node that missed so many heartbeats must have said so.
const TOLD_BEATS: u64 = 10;

/// One process, since it is in a view under its present incarnation.
#[derive(Default)]
struct Watch {
    /// When it was stopped, and went on.
    stops: Vec<(Micros, Micros)>,
    /// When it said so.
    told: Vec<Micros>,
    /// When it must have come to it.
    judged_at: Option<Micros>,
}

impl Watch {
    fn stop(&mut self, at: Micros, until: Micros, heartbeat: Micros) {
        match self.stops.last_mut() {
            // The last word says when it goes on.
            Some((_, end)) if *end >= at => *end = until,
            _ => self.stops.push((at, until)),
        }
        self.judged_at = Some(until + heartbeat);
    }

    /// What it missed of the time before its last stop ended, if it is so much that the node must have told
    /// it, and whether the node did.
    fn judge(&self, heartbeat: Micros) -> Option<(Micros, bool)> {
        let window = heartbeat * WINDOW_BEATS;
        let (_, last) = *self.stops.last()?;
        let lately = self.stops.iter().filter(|(begin, _)| *begin + window >= last);
        let missed: Micros = lately
            .map(|(begin, end)| end.saturating_sub(*begin).saturating_sub(heartbeat))
            // Less than that is not summed up.
            .filter(|missed| *missed > heartbeat / 5)
            .sum();
        let since = last.saturating_sub(2 * window + missed);
        let told = self.told.iter().any(|told| *told >= since);
        (missed >= heartbeat * TOLD_BEATS).then_some((missed, told))
    }
}

pub(super) fn check(trace: &Trace, report: &mut Report) {
    let heartbeat = trace.heartbeat;
    let mut places: BTreeMap<Slot, ProcessId> = BTreeMap::new();
    let mut watches: BTreeMap<ProcessId, Watch> = BTreeMap::new();
    for line in &trace.lines {
        for (process, watch) in &mut watches {
            let Some(at) = watch.judged_at.take_if(|at| *at < line.at) else {
                continue;
            };
            if let Some((missed, told)) = watch.judge(heartbeat) {
                report.check("G37", at, told, || {
                    format!(
                        "process {process} did not run for {} ms, and does not say so",
                        missed / 1000
                    )
                });
            }
        }
        match &line.what {
            Seen::Started { slot, .. } => {
                places.insert(*slot, line.process);
            }
            // A fresh incarnation begins to count anew.
            Seen::Incarnation(_) | Seen::Ended(_) | Seen::AskedToLeave => {
                watches.remove(&line.process);
            }
            Seen::NodeView(_) => {
                watches.entry(line.process).or_default();
            }
            Seen::Starved(_) => {
                if let Some(watch) = watches.get_mut(&line.process) {
                    watch.told.push(line.at);
                }
            }
            Seen::Disturbed { slot, until, stopped } => {
                let Some(watch) = places.get(slot).and_then(|process| watches.get_mut(process)) else {
                    continue;
                };
                if *stopped {
                    watch.stop(line.at, *until, heartbeat);
                } else {
                    // What a slow process notices of its stops is not known, but it may have said so of them,
                    // and says it once in so long.
                    watch.stops.clear();
                    watch.judged_at = None;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::Order;

    use super::*;
    use crate::agenda::MILLIS;
    use crate::check::testing::Story;

    /// A node of three is stopped, or slow, for so long.
    fn disturb(story: &mut Story, length: Micros, stopped: bool) {
        let until = story.now + length;
        let slot = 1;
        story.add(ProcessId::MAX, Seen::Disturbed { slot, until, stopped });
        story.now += length + 10 * MILLIS;
    }

    fn is_rejected(mut story: Story) -> bool {
        story.now += 300 * MILLIS;
        story.add(ProcessId::MAX, Seen::Fault("later".to_owned()));
        let report = crate::check::check(&story.trace);
        report
            .violations
            .iter()
            .any(|violation| violation.guarantee == "G37")
    }

    /// Whether a run is rejected in which the process was stopped for so long, so many times, and said so or
    /// not.
    fn rejected(stop: Micros, times: u32, says_so: bool) -> bool {
        let mut story = Story::of(3, Order::Fifo);
        for _ in 0..times {
            disturb(&mut story, stop, true);
        }
        if says_so {
            story.add(1, Seen::Starved(stop));
        }
        is_rejected(story)
    }

    #[test]
    fn a_node_that_said_so_and_was_slow_since_need_not_say_it_again_at_once() {
        for says_so in [true, false] {
            let mut story = Story::of(3, Order::Fifo);
            disturb(&mut story, 3_000 * MILLIS, true);
            if says_so {
                story.add(1, Seen::Starved(3_000 * MILLIS));
            }
            disturb(&mut story, 1_000 * MILLIS, false);
            disturb(&mut story, 3_000 * MILLIS, true);
            assert_eq!(is_rejected(story), !says_so);
        }
    }

    #[test]
    fn a_node_that_does_not_say_that_it_was_stopped_is_rejected() {
        assert!(rejected(3_000 * MILLIS, 1, false));
        assert!(!rejected(3_000 * MILLIS, 1, true));
        assert!(rejected(380 * MILLIS, 20, false), "little by little");
        assert!(!rejected(380 * MILLIS, 20, true));
        assert!(!rejected(1_000 * MILLIS, 1, false), "not worth it");
        assert!(!rejected(220 * MILLIS, 20, false));
    }
}

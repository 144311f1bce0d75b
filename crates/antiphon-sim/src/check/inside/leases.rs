//! G42 no member believes for longer than it may: while a member believes in its view, or delivers, no later
//! view without it exists, unless it leaves. And R7: while a member is told that it does not believe, it
//! delivers nothing, whether it was removed or not.
//!
//! This is judged at these moments: when the first process installs a view that removes a member, when a
//! member is told that it has the lease, and when its application gets something that only a member may have:
//! messages, and views of groups. A process that was stopped, or serves its inputs late, reports when it runs
//! again; what it says and delivers then is judged.

use std::collections::BTreeMap;

use antiphon_core::TellOutcome;
use antiphon_core::wire::{Cause, Incarnation, Lineage, ViewId};

use crate::agenda::Micros;
use crate::check::Report;
use crate::trace::{Heard, Line, ProcessId, Seen, Slot, Trace};

/// One process of the cluster.
#[derive(Debug, Default)]
struct Believer {
    slot: Slot,
    incarnation: Option<Incarnation>,
    /// The lineage of its view, if that is primary and it has a lease there.
    lineage: Option<Lineage>,
    held: bool,
    /// It was told that it has the lease no more.
    lost: bool,
    /// Since it was asked to leave it delivers nothing anyway.
    leaving: bool,
    ended: bool,
    disturbed_until: Micros,
}

type Removed = BTreeMap<(Lineage, Incarnation), (Micros, ViewId)>;

impl Believer {
    /// It does what only a member of the primary may.
    fn judge(&self, removed: &Removed, line: &Line, report: &mut Report, does: &str) {
        let Some(who) = self.lineage.zip(self.incarnation).filter(|_| !self.leaving) else {
            return;
        };
        let gone = removed.get(&who);
        report.check("G42", line.at, gone.is_none(), || {
            let gone = gone.map(|(at, id)| format!("by view {id} {} ms ago", (line.at - at) / 1000));
            let gone = gone.unwrap_or_default();
            format!("process {} {does}, and was removed {gone}", line.process)
        });
    }
}

pub(super) fn check(trace: &Trace, report: &mut Report) {
    if trace.any {
        return;
    }
    let mut believers: BTreeMap<ProcessId, Believer> = BTreeMap::new();
    let mut removed = Removed::new();
    for line in &trace.lines {
        if let Seen::Disturbed { slot, until, .. } = &line.what {
            let there = believers.values_mut().filter(|believer| believer.slot == *slot);
            for believer in there {
                believer.disturbed_until = believer.disturbed_until.max(*until + trace.heartbeat);
            }
            continue;
        }
        if let Seen::Started {
            slot, foreign: false, ..
        } = &line.what
        {
            let believer = Believer {
                slot: *slot,
                ..Believer::default()
            };
            believers.insert(line.process, believer);
        }
        let Some(believer) = believers.get_mut(&line.process) else {
            continue;
        };
        if let Seen::Group(_, heard) = &line.what {
            let lost = believer.lost && is_held_back(heard);
            report.check("R7", line.at, !lost, || {
                format!(
                    "process {} has lost its lease, and delivers {heard:?}",
                    line.process
                )
            });
        }
        match &line.what {
            Seen::Incarnation(incarnation) => {
                believer.incarnation = Some(*incarnation);
                believer.lineage = None;
                believer.held = false;
                believer.lost = false;
            }
            Seen::Ended(_) => believer.ended = true,
            Seen::AskedToLeave => believer.leaving = true,
            Seen::Lease(held) => {
                believer.held = *held;
                believer.lost = !held;
                if *held {
                    believer.judge(&removed, line, report, "is told that it has the lease");
                }
            }
            Seen::NodeView(view) => {
                let leased = !trace.unleased.contains(&believer.slot);
                believer.lineage = (leased && view.is_primary()).then_some(view.lineage);
                if !view.is_primary() {
                    continue;
                }
                // A joiner that was admitted, and did not hear of it, may ask again.
                for joiner in &view.joined {
                    removed.remove(&(view.lineage, *joiner));
                }
                for departure in &view.departed {
                    let who = departure.member.incarnation;
                    let consents = matches!(departure.cause, Cause::Left | Cause::Overridden { .. });
                    if consents || removed.contains_key(&(view.lineage, who)) {
                        continue;
                    }
                    removed.insert((view.lineage, who), (line.at, view.primary_id()));
                    let (id, at) = (view.primary_id(), line.at);
                    let other = believers.iter().find(|(_, other)| other.incarnation == Some(who));
                    let Some((process, other)) = other else { continue };
                    let judged = !other.ended && !other.leaving && at >= other.disturbed_until;
                    if judged {
                        report.check(
                            "G42",
                            at,
                            !(other.lineage == Some(view.lineage) && other.held),
                            || {
                                format!(
                                    "process {process} believes in its view, and was removed by view {id}"
                                )
                            },
                        );
                    }
                }
            }
            Seen::Group(_, Heard::Message(_)) => {
                believer.judge(&removed, line, report, "delivers a message");
            }
            Seen::Group(_, Heard::View(_) | Heard::Transitional(_)) => {
                believer.judge(&removed, line, report, "installs a view of a group");
            }
            _ => {}
        }
    }
}

/// Whether this waits for the lease. Receipts that wait come at the end of a stay at the latest; those of
/// direct messages do not say then that something was delivered.
fn is_held_back(heard: &Heard) -> bool {
    match heard {
        Heard::View(_) | Heard::Transitional(_) | Heard::Message(_) | Heard::Told(_) => true,
        Heard::TellReceipts { outcome, .. } => *outcome == TellOutcome::Delivered,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::Order;

    use super::*;
    use crate::check::testing::Story;

    /// Three, all with the lease; then process 2 has it no more if `over`, and the others remove it.
    fn removed(over: bool) -> Story {
        let mut story = Story::of(3, Order::Total);
        (0..3).for_each(|process| story.add(process, Seen::Lease(true)));
        story.send(0, 1);
        if over {
            story.add(2, Seen::Lease(false));
        }
        story.node_view(&[0, 1], &[0, 1, 2], 2, &[0, 1]);
        story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0, 1]);
        story
    }

    #[test]
    fn whoever_is_removed_must_not_believe_any_more() {
        removed(true).is_accepted();
        removed(false).is_rejected_for("G42");
        let mut story = removed(false);
        story.trace.unleased = vec![2];
        story.is_accepted();
    }

    #[test]
    fn nobody_gets_the_lease_of_a_view_that_is_over() {
        let mut story = removed(true);
        story.add(2, Seen::Lease(true));
        story.is_rejected_for("G42");
    }

    #[test]
    fn whoever_is_removed_is_handed_nothing_of_its_view() {
        let mut story = removed(true);
        story.deliver(2, 0, 1, 1);
        story.is_rejected_for("G42");
        let mut story = removed(true);
        story.group_view(&[0, 1, 2], &[0, 1, 2], &[], &[], &[], 2, &[2]);
        story.is_rejected_for("G42");
    }
}

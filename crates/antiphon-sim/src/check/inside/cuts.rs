//! G35. If something is wrong with some hosts alone, these are removed, in as few views as possible, and no
//! other host is. And G5: hosts that are cut off find out, whichever member tells the others.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::wire::{Cause, Incarnation, Lineage, ViewId};

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::{End, History};
use crate::trace::{ProcessId, Seen, Slot};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let Some(faulty) = &history.trace.faulty else {
        return;
    };
    let slot_of = |who: Incarnation| -> Option<Slot> {
        let life = history.life(who)?;
        history.processes.get(&life.process).map(|facts| facts.slot)
    };
    // Each departure once, with the view that it was in.
    let mut departures: BTreeMap<(Lineage, ViewId), (Micros, BTreeSet<Slot>)> = BTreeMap::new();
    let mut last: Option<(ViewId, Micros, BTreeSet<Slot>)> = None;
    for (at, view) in history.lives.iter().flat_map(|life| life.primaries()) {
        let lost = view.departed.iter().filter(|gone| gone.cause != Cause::Left);
        let slots: BTreeSet<Slot> = lost.filter_map(|gone| slot_of(gone.member.incarnation)).collect();
        if !slots.is_empty() {
            departures.insert((view.lineage, view.primary_id()), (*at, slots));
        }
        if last.as_ref().is_none_or(|(id, ..)| *id < view.primary_id()) {
            let members = view
                .members
                .iter()
                .filter_map(|member| slot_of(member.incarnation));
            last = Some((view.primary_id(), *at, members.collect()));
        }
    }
    for ((_, id), (at, slots)) in &departures {
        let well: Vec<&Slot> = slots.iter().filter(|slot| !faulty.slots.contains(slot)).collect();
        report.check("G35", *at, well.is_empty(), || {
            format!("view {id} lost n{well:?}, and nothing was wrong with them")
        });
    }
    let cut_off = |slot: &Slot| faulty.cut_off && faulty.slots.contains(slot);
    for life in history.lives.iter().filter(|life| life.end == End::Open) {
        let slot = slot_of(life.incarnation).filter(cut_off);
        if let (Some(slot), Some((at, view))) = (slot, life.views.last()) {
            report.check("G5", *at, !view.is_primary(), || {
                format!(
                    "n{slot} is cut off, and believes to be in view {} with all others",
                    view.id
                )
            });
        }
    }
    if let Some(from) = faulty.leased_from {
        leases_are_kept(history, from, &faulty.slots, report);
    }
    let views = departures.len();
    let at = departures.values().map(|(at, _)| *at).max().unwrap_or(0);
    // G43: if no host may be removed, a host was only late.
    let guarantee = if faulty.views == 0 { "G43" } else { "G35" };
    report.check(guarantee, at, views <= faulty.views, || {
        format!("{:?} went in {views} views: {departures:?}", faulty.slots)
    });
    if let Some((id, at, members)) = last.filter(|_| faulty.removed) {
        let kept: Vec<&Slot> = faulty
            .slots
            .iter()
            .filter(|slot| members.contains(slot))
            .collect();
        report.check("G35", at, kept.is_empty(), || {
            format!("view {id}, the last one, still has n{kept:?}")
        });
    }
}

/// R7: all others believe in their view by then. A member that falls silent takes no other member's lease
/// away, whatever it did for them.
fn leases_are_kept(history: &History<'_>, from: Micros, faulty: &[Slot], report: &mut Report) {
    let is_well = |process: &ProcessId| {
        let facts = history.processes.get(process);
        facts.is_some_and(|facts| !faulty.contains(&facts.slot))
    };
    let mut without: BTreeSet<ProcessId> = history.processes.keys().copied().filter(is_well).collect();
    let lines = history.trace.lines.iter().filter(|line| is_well(&line.process));
    for line in lines {
        let Seen::Lease(held) = line.what else { continue };
        if line.at >= from {
            report.check("R7", line.at, held, || {
                format!(
                    "process {} stops believing in its view, and is heard by all but n{faulty:?}",
                    line.process
                )
            });
        } else if held {
            without.remove(&line.process);
        } else {
            without.insert(line.process);
        }
    }
    report.check("R7", from, without.is_empty(), || {
        format!("processes {without:?} have no lease, and nothing is wrong with them")
    });
}

#[cfg(test)]
mod tests {
    use antiphon_core::Order;

    use crate::check::testing::Story;
    use crate::plan::Faulty;
    use crate::trace::{ProcessId, Seen};

    /// Three, of which the last falls silent, and all that have the lease before that.
    fn silent(leased: &[ProcessId]) -> Story {
        let mut story = Story::of(3, Order::Total);
        leased
            .iter()
            .for_each(|process| story.add(*process, Seen::Lease(true)));
        let at = story.trace.lines.last().map_or(0, |line| line.at);
        story.trace.faulty = Some(Faulty {
            slots: vec![2],
            removed: false,
            views: 1,
            cut_off: false,
            leased_from: Some(at + 1),
        });
        story
    }

    #[test]
    fn who_is_well_has_a_lease_and_keeps_it() {
        silent(&[0, 1, 2]).is_accepted();
        silent(&[0, 1]).is_accepted();
        silent(&[0]).is_rejected_for("R7");
        let mut story = silent(&[0, 1, 2]);
        story.add(2, Seen::Lease(false));
        story.is_accepted();
        story.add(1, Seen::Lease(false));
        story.is_rejected_for("R7");
    }
}

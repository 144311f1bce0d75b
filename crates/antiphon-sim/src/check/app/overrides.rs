//! G38 only an operator overrides: a node goes from one lineage to another in one incarnation by an
//! operator's word alone, never beside a primary view that it is in, and its view says what was overridden. A
//! member that has lost its majority may have done something in views after the overridden one. It does not
//! give that up for a lighter lineage at once.

use std::collections::BTreeMap;

use antiphon_core::wire::{Cause, Incarnation, Lineage, NodeView, ViewId};

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::{End, History, Life, begins_anew, names};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let mut words: BTreeMap<Lineage, Incarnation> = BTreeMap::new();
    for life in &history.lives {
        crossings(history, life, report);
        honoured(history, life, report);
        waits(history, life, report);
        let recovered = life.primaries().filter(|(_, view)| view.overrides().is_some());
        words.extend(recovered.map(|(_, view)| (view.lineage, life.incarnation)));
        // G41 checks what components are, and which nodes found anew.
        let apart = life.primaries().filter(|(_, view)| is_apart(history, view));
        words.extend(apart.map(|(_, view)| (view.lineage, life.incarnation)));
    }
    for life in &history.lives {
        for (at, view) in life.primaries() {
            let epoch = view.primary_id().epoch;
            report.check(
                "G38",
                *at,
                epoch == 1 || words.contains_key(&view.lineage),
                || {
                    format!(
                        "{} saw node view {} of a lineage that nobody recovered",
                        history.name(life),
                        view.id
                    )
                },
            );
        }
    }
}

/// Whether this is the first view of a component that goes on by itself, where each does.
fn is_apart(history: &History<'_>, view: &NodeView) -> bool {
    history.trace.any && view.primary_id().counter == 1 && view.overrides().is_none()
}

/// Within one incarnation, the lineage changes by an operator's word only, or by that of all members of a
/// component.
fn crossings(history: &History<'_>, life: &Life, report: &mut Report) {
    let primaries: Vec<_> = life.primaries().collect();
    for pair in primaries.windows(2) {
        let ((_, old), (at, new)) = (pair[0], pair[1]);
        if is_apart(history, new) && old.lineage != new.lineage {
            continue;
        }
        if old.lineage == new.lineage && new.overrides().is_none() {
            report.check(
                "G38",
                *at,
                old.primary_id().epoch == new.primary_id().epoch,
                || format!("node view {} follows {} in one lineage", new.id, old.id),
            );
            continue;
        }
        let asked = life.recovered.iter().any(|(asked, lineage, view)| {
            asked <= at && (*lineage, *view) == (old.lineage, old.primary_id())
        });
        report.check("G38", *at, asked && tells(old, new), || {
            format!(
                "{} went from node view {} {} of {} to {} {} of {}: {}",
                history.name(life),
                old.id,
                names(old),
                old.lineage,
                new.id,
                names(new),
                new.lineage,
                if asked {
                    "it does not say what it overrides"
                } else {
                    "nobody asked for it"
                }
            )
        });
    }
}

/// Whether a view says that it overrides another, and leaves out no member.
fn tells(old: &NodeView, new: &NodeView) -> bool {
    let overridden = Cause::Overridden {
        lineage: old.lineage,
        view: old.primary_id(),
    };
    begins_anew(old, new, &overridden)
        && new.members.len() == 1
        && new.members.iter().all(|member| old.contains(member.incarnation))
}

/// An operator's word is taken where no primary view is, and then at once.
fn honoured(history: &History<'_>, life: &Life, report: &mut Report) {
    for (at, lineage, view) in &life.recovered {
        let before = life
            .views
            .iter()
            .rev()
            .find(|(seen, other)| seen <= at && other.lineage == *lineage);
        let bereft = match before {
            Some((_, seen)) => !seen.is_primary() && seen.primary_id() == *view,
            // It looks for the cluster as a fresh incarnation of what was a member.
            None => last_of_process(history, life, *at) == Some((*lineage, *view)),
        };
        report.check("G38", *at, bereft, || {
            format!(
                "{} was recovered from {view} of {lineage} while it was in {}",
                history.name(life),
                before.map_or("no view of it".to_owned(), |(_, seen)| format!(
                    "node view {}",
                    seen.id
                ))
            )
        });
        report.check("G38", *at, follows(life, *at, (*lineage, *view)), || {
            format!(
                "{} was recovered, and went on with no view of its own",
                history.name(life)
            )
        });
    }
}

/// A node without a primary hopes for that many heartbeats before it gives way to a lighter lineage, but for
/// what an operator's word gave up.
const HOPES: u64 = 19;
/// A view that weighed enough so many heartbeats ago may have been heard of.
const HEARD_OF: u64 = 15;

/// A member that has lost its majority gives way to a lighter lineage only without hope, or because an
/// operator gave up what it had.
fn waits(history: &History<'_>, life: &Life, report: &mut Report) {
    let (End::Succeeded(at), false) = (life.end, history.trace.any) else {
        return;
    };
    let (Some((_, last)), Some((_, seen))) = (life.primaries().last(), life.views.last()) else {
        return;
    };
    let mut later = history.lives.iter().filter(|other| other.from >= at);
    let next = later.find(|other| other.process == life.process);
    let Some(into) = next.and_then(Life::lineage).filter(|into| *into != last.lineage) else {
        return;
    };
    if seen.is_primary() || is_removed(history, life, last) {
        return;
    }
    let given_up = history.lives.iter().flat_map(Life::primaries).any(|(_, view)| {
        let overrides = view.overrides().filter(|_| view.lineage == into);
        overrides.is_some_and(|(lineage, view)| lineage == last.lineage && view >= last.primary_id())
    });
    let recent = at.saturating_sub(HEARD_OF * history.trace.heartbeat);
    if given_up || heaviest(history, into, recent, at) >= weight(last) {
        return;
    }
    let bereft = life.views.iter().rev().take_while(|(_, view)| !view.is_primary());
    let since = bereft.last().map_or(at, |(since, _)| *since);
    let hoped = at - since >= HOPES * history.trace.heartbeat;
    report.check("G38", at, hoped, || {
        format!(
            "{} gave up node view {} of {} for the lighter lineage {into} at once",
            history.name(life),
            last.id,
            last.lineage
        )
    });
}

fn weight(view: &NodeView) -> u64 {
    view.members.iter().map(|member| u64::from(member.weight)).sum()
}

/// Whether its lineage went on without it.
fn is_removed(history: &History<'_>, life: &Life, last: &NodeView) -> bool {
    let mut views = history.lives.iter().flat_map(Life::primaries);
    views.any(|(_, view)| {
        let later = view.lineage == last.lineage && view.primary_id() > last.primary_id();
        later && !view.contains(life.incarnation)
    })
}

/// The greatest weight of any view of a lineage in which some process was at that time.
fn heaviest(history: &History<'_>, lineage: Lineage, from: Micros, until: Micros) -> u64 {
    let weighs = |life: &Life| {
        let begins: Vec<Micros> = life.views.iter().map(|(at, _)| *at).collect();
        let views = life.views.iter().enumerate();
        let current = views.filter(|(index, (at, view))| {
            let ends = begins.get(index + 1).copied().unwrap_or(Micros::MAX);
            view.lineage == lineage && view.is_primary() && *at <= until && ends >= from
        });
        current.map(|(_, (_, view))| weight(view)).max()
    };
    history.lives.iter().filter_map(weighs).max().unwrap_or(0)
}

/// The last primary view of a process that is in no view now.
fn last_of_process(history: &History<'_>, life: &Life, at: Micros) -> Option<(Lineage, ViewId)> {
    if life.views.iter().any(|(seen, _)| *seen < at) {
        return None;
    }
    let lives = history.lives.iter();
    let earlier = lives.filter(|other| other.process == life.process && other.from < life.from);
    let (_, last) = earlier.flat_map(Life::primaries).last()?;
    Some((last.lineage, last.primary_id()))
}

fn follows(life: &Life, at: Micros, overridden: (Lineage, ViewId)) -> bool {
    let mut after = life.primaries().filter(|(seen, _)| *seen >= at);
    // It may have been killed before it said so.
    after.any(|(_, view)| view.members.len() == 1 && view.overrides() == Some(overridden)) || !life.is_open()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use antiphon_core::Order;
    use antiphon_core::wire::{Lineage, NodeView, NodeViewId, ViewId};

    use super::*;
    use crate::check::testing::{Story, incarnation};
    use crate::trace::{Ending, Seen};

    /// Two of three lose power, the third is without a majority.
    fn bereft() -> (Story, NodeView) {
        let mut story = Story::of(3, Order::Total);
        story.add(1, Seen::Ended(Ending::PowerLost));
        story.add(2, Seen::Ended(Ending::PowerLost));
        let old = Story::view(&[0, 1, 2], &[], 1);
        let mut alone = Story::view(&[0], &[0, 1, 2], 1);
        alone.number = old.number;
        alone.id = NodeViewId::NonPrimary {
            base: old.primary_id(),
            attempt: 1,
            proposer: incarnation(0),
        };
        story.seen(&Arc::new(alone), &[0]);
        (story, old)
    }

    /// What an operator's word leads to.
    fn new_lineage(old: &NodeView) -> NodeView {
        let mut view = Story::view(&[0], &[0, 1, 2], 1);
        view.lineage = Lineage(8);
        view.id = NodeViewId::Primary {
            id: ViewId { epoch: 2, counter: 1 },
        };
        view.number = old.number + 50;
        for departure in &mut view.departed {
            departure.accusers.clear();
            departure.cause = Cause::Overridden {
                lineage: old.lineage,
                view: old.primary_id(),
            };
        }
        view
    }

    fn word(story: &mut Story, old: &NodeView) {
        story.add(0, Seen::Recovered(old.lineage, old.primary_id()));
    }

    #[test]
    fn an_operators_word_is_accepted() {
        let (mut story, old) = bereft();
        word(&mut story, &old);
        story.seen(&Arc::new(new_lineage(&old)), &[0]);
        let report = story.judge();
        assert!(report.counts["G38"] >= 3);
        assert_eq!(report.violations, []);
    }

    #[test]
    fn a_new_lineage_without_anybodys_word_is_rejected() {
        let (mut story, old) = bereft();
        story.seen(&Arc::new(new_lineage(&old)), &[0]);
        story.is_rejected_for("G38");
    }

    #[test]
    fn a_recovery_that_hides_whom_it_left_behind_is_rejected() {
        let (mut story, old) = bereft();
        word(&mut story, &old);
        let mut hidden = new_lineage(&old);
        hidden.departed.pop();
        story.seen(&Arc::new(hidden), &[0]);
        story.is_rejected_for("G38");
    }

    #[test]
    fn a_recovery_beside_a_primary_view_is_rejected() {
        let mut story = Story::of(3, Order::Total);
        let old = Story::view(&[0, 1, 2], &[], 1);
        word(&mut story, &old);
        story.seen(&Arc::new(new_lineage(&old)), &[0]);
        story.is_rejected_for("G38");
    }

    #[test]
    fn a_recovery_within_the_lineage_is_rejected() {
        let (mut story, old) = bereft();
        word(&mut story, &old);
        let mut same = new_lineage(&old);
        same.lineage = old.lineage;
        same.id = NodeViewId::Primary {
            id: ViewId { epoch: 1, counter: 2 },
        };
        story.seen(&Arc::new(same), &[0]);
        story.is_rejected_for("G38");
    }

    #[test]
    fn a_word_that_nothing_follows_is_rejected() {
        let (mut story, old) = bereft();
        word(&mut story, &old);
        story.is_rejected_for("G38");
    }

    /// A member that has lost its majority starts over, and is admitted by a member that is alone in another
    /// lineage.
    fn gives_up_after(heartbeats: u64) -> Story {
        let (mut story, _) = bereft();
        story.start(3);
        let mut other = Story::view(&[3], &[], 1);
        other.lineage = Lineage(9);
        story.seen(&Arc::new(other), &[3]);
        story.now += heartbeats * story.trace.heartbeat;
        story.add(0, Seen::Incarnation(incarnation(4)));
        let mut both = Story::view(&[3, 4], &[3], 2);
        both.lineage = Lineage(9);
        story.seen(&Arc::new(both), &[0]);
        story
    }

    #[test]
    fn who_gives_up_a_view_for_a_lighter_lineage_at_once_is_rejected() {
        gives_up_after(5).is_rejected_for("G38");
        let report = gives_up_after(25).judge();
        assert!(
            report
                .violations
                .iter()
                .all(|violation| violation.guarantee != "G38")
        );
    }

    /// It looks for the cluster as a fresh incarnation when the word comes.
    #[test]
    fn who_started_over_is_recovered_from_what_its_process_was_last() {
        for (right, number) in [(true, 1), (false, 2)] {
            let (mut story, old) = bereft();
            story.add(0, Seen::Incarnation(incarnation(4)));
            let overridden = ViewId {
                epoch: 1,
                counter: number,
            };
            story.add(0, Seen::Recovered(old.lineage, overridden));
            let mut view = new_lineage(&old);
            view.members = Story::view(&[4], &[], 1).members;
            view.joined = vec![incarnation(4)];
            for departure in &mut view.departed {
                departure.cause = Cause::Overridden {
                    lineage: old.lineage,
                    view: overridden,
                };
            }
            story.seen(&Arc::new(view), &[0]);
            let violations = story.judge().violations;
            let broken = violations.iter().any(|violation| violation.guarantee == "G38");
            assert_eq!(broken, !right, "{violations:?}");
        }
    }
}

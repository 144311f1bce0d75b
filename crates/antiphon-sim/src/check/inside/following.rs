//! R18 a flush ends: where processes start and end and nothing else happens, groups follow node views
//! promptly.
//!
//! A group's members stand still while a flush runs. Each node view and each death begins the flush anew, so
//! the time counts from the last of these on. The group must then have a view without the members that a node
//! view removed, and the first view of the nodes that asked to be let in.

use std::collections::BTreeMap;

use antiphon_core::wire::Incarnation;

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::{End, Epoch, History, Life, StayEnd};
use crate::trace::{GroupIndex, ProcessId, Seen};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let Some(bound) = history.trace.follows_within else {
        return;
    };
    let disturbances = disturbances(history);
    let mut wait = |life: &Life, name: &str, from: Micros, until: Micros| {
        let (longest, at) = longest_rest(&disturbances, from, until);
        report.check("R18", at, longest <= bound, || {
            let waited = longest / 1000;
            let who = history.name(life);
            format!("{who} waited {waited} ms for the view of {name} that follows a node view, and nothing happened meanwhile")
        });
    };
    for (life, stay) in history.stays() {
        for (index, epoch) in stay.epochs.iter().enumerate() {
            let next = stay.epochs.get(index + 1);
            let last = next.map_or(ended(history, life), |next| next.at);
            if let Some(from) = outdated(life, epoch).filter(|from| *from < last && stay.end == StayEnd::Open)
            {
                wait(life, &epoch.view.name, from, last);
            }
        }
    }
    for (process, group, name) in asked_to_join(history) {
        for life in history.lives.iter().filter(|life| life.process == process) {
            let first = life.primaries().next().map(|(at, _)| *at);
            let stay = life.stays.iter().find(|stay| stay.group == group);
            let until = stay.map_or(ended(history, life), |stay| stay.epochs[0].at);
            if let Some(from) = first.filter(|from| *from < until) {
                wait(life, &name, from, until);
            }
        }
    }
}

/// Since when a member knows that the group's view cannot stay.
fn outdated(life: &Life, epoch: &Epoch) -> Option<Micros> {
    let gone = |at: &Incarnation, view: &antiphon_core::wire::NodeView| !view.contains(*at);
    let lacks_one =
        |view: &antiphon_core::wire::NodeView| epoch.view.members.iter().any(|who| gone(who, view));
    let mut later = life.primaries().filter(|(at, _)| *at >= epoch.at);
    later.find(|(_, view)| lacks_one(view)).map(|(at, _)| *at)
}

/// When a life was over, or the run.
fn ended(history: &History<'_>, life: &Life) -> Micros {
    match life.end {
        End::Process(at, _) | End::Succeeded(at) => at,
        End::Open => history.trace.lines.last().map_or(0, |line| line.at),
    }
}

/// When any process installed a node view, or died: then a flush begins anew. In order.
fn disturbances(history: &History<'_>) -> Vec<Micros> {
    let disturbs = |what: &Seen| matches!(what, Seen::NodeView(_) | Seen::Ended(_));
    let lines = history.trace.lines.iter();
    lines
        .filter(|line| disturbs(&line.what))
        .map(|line| line.at)
        .collect()
}

/// The longest time between these without a disturbance, and when it was over.
fn longest_rest(disturbances: &[Micros], from: Micros, until: Micros) -> (Micros, Micros) {
    let first = disturbances.partition_point(|at| *at <= from);
    let within = disturbances[first..].iter().copied().take_while(|at| *at < until);
    let mut longest = (0, until);
    let mut since = from;
    for at in within.chain([until]) {
        longest = longest.max((at - since, at));
        since = at;
    }
    longest
}

/// Which groups a process asked to join, and their names.
fn asked_to_join(history: &History<'_>) -> Vec<(ProcessId, GroupIndex, String)> {
    let mut asked = BTreeMap::new();
    for line in &history.trace.lines {
        if let Seen::AskedToJoin { group, name, .. } = &line.what {
            asked
                .entry((line.process, *group))
                .or_insert_with(|| name.clone());
        }
    }
    let asked = asked.into_iter();
    asked
        .map(|((process, group), name)| (process, group, name))
        .collect()
}

#[cfg(test)]
mod tests {
    use antiphon_core::Order;

    use super::*;
    use crate::agenda::MILLIS;
    use crate::check::testing::Story;

    /// One of three is killed, and the others have a view of the group without it so long after their node
    /// view.
    fn follows_after(rest: Micros, disturbed: bool) -> Story {
        let mut story = Story::of(3, Order::Fifo);
        story.trace.follows_within = Some(500 * MILLIS);
        story.kill(2);
        story.node_view(&[0, 1], &[0, 1, 2], 2, &[0, 1]);
        story.now += rest / 2;
        if disturbed {
            story.node_view(&[0, 1, 3], &[0, 1], 3, &[0, 1]);
        }
        story.now += rest / 2;
        story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0, 1]);
        story
    }

    fn is_late(story: &Story) -> bool {
        let violations = story.judge().violations;
        violations.iter().any(|violation| violation.guarantee == "R18")
    }

    #[test]
    fn a_group_that_stands_still_after_a_node_view_is_rejected() {
        assert!(is_late(&follows_after(800 * MILLIS, false)));
        assert!(!is_late(&follows_after(400 * MILLIS, false)));
        assert!(
            !is_late(&follows_after(800 * MILLIS, true)),
            "another view came meanwhile"
        );
    }

    #[test]
    fn a_group_that_never_follows_is_rejected() {
        let mut story = Story::of(3, Order::Fifo);
        story.trace.follows_within = Some(500 * MILLIS);
        story.kill(2);
        story.node_view(&[0, 1], &[0, 1, 2], 2, &[0, 1]);
        story.now += 800 * MILLIS;
        story.send(0, 1);
        story.is_rejected_for("R18");
    }

    #[test]
    fn who_asks_to_be_let_in_and_is_not_is_rejected() {
        let joins_after = |wait: Micros| {
            let mut story = Story::of(2, Order::Fifo);
            story.trace.follows_within = Some(500 * MILLIS);
            story.start(2);
            story.node_view(&[0, 1, 2], &[0, 1], 2, &[0, 1, 2]);
            story.now += wait;
            story.group_view(&[0, 1, 2], &[0, 1], &[2], &[], &[], 2, &[0, 1, 2]);
            is_late(&story)
        };
        assert!(joins_after(600 * MILLIS));
        assert!(!joins_after(400 * MILLIS));
    }
}

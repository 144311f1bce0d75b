//! G2 over foundings: an observer that orders views by their stamps, or by their numbers as far as that
//! holds, never sees them go back when a cluster of which no process is left is founded again.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::wire::Lineage;

use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::check::Report;
use crate::check::history::{End, History};

/// Hosts whose clocks drift apart by so much while they look for each other still found in order.
const CLOCKS_DIFFER: Micros = 20 * MILLIS;

/// What is known of a lineage.
struct Chain {
    /// When its first view was seen, and whether it was made by a founding.
    first_seen: Micros,
    founded: bool,
    first_number: u32,
    last_number: u32,
    /// When the first process started that was in its first view, and when the last one ended that was in
    /// any, if all did.
    started: Micros,
    ended: Option<Micros>,
}

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let chains = chains(history);
    for (old, before) in &chains {
        for (new, after) in chains.iter().filter(|(new, after)| *new != old && after.founded) {
            let over = before.ended.is_some_and(|ended| ended <= after.first_seen);
            if !over || after.started < before.first_seen + CLOCKS_DIFFER {
                continue;
            }
            let at = after.first_seen;
            report.check("G2", at, new > old, || {
                format!("lineage {new} was founded after {old}, and its stamps are lower")
            });
            // It was not ahead of the clock.
            let views = before.last_number - before.first_number + 1;
            let passed = (after.first_seen - before.first_seen).saturating_sub(CLOCKS_DIFFER) / SECONDS;
            let holds = u64::from(views) > passed || after.first_number > before.last_number;
            report.check("G2", at, holds, || {
                format!(
                    "number {} begins lineage {new}, after {} in {old}, which had {views} views in {passed} s",
                    after.first_number, before.last_number
                )
            });
        }
    }
}

fn chains(history: &History<'_>) -> BTreeMap<Lineage, Chain> {
    let mut chains: BTreeMap<Lineage, Chain> = BTreeMap::new();
    for life in &history.lives {
        let starts = history.lives.iter().filter(|other| other.process == life.process);
        let started = starts.map(|other| other.from).min().unwrap_or(life.from);
        let ended = match life.end {
            End::Process(at, _) => Some(at),
            End::Open | End::Succeeded(_) => history
                .processes
                .get(&life.process)
                .and_then(|facts| facts.ended.map(|(at, _)| at)),
        };
        let mut seen: BTreeSet<Lineage> = BTreeSet::new();
        for (at, view) in life.primaries() {
            let id = view.primary_id();
            let founded = id.epoch == 1 && id.counter == 1;
            let chain = chains.entry(view.lineage).or_insert(Chain {
                first_seen: *at,
                founded: false,
                first_number: view.number,
                last_number: view.number,
                started: Micros::MAX,
                ended: Some(0),
            });
            chain.first_seen = chain.first_seen.min(*at);
            chain.founded |= founded;
            chain.first_number = chain.first_number.min(view.number);
            chain.last_number = chain.last_number.max(view.number);
            if founded {
                chain.started = chain.started.min(started);
            }
            if seen.insert(view.lineage) {
                chain.ended = chain.ended.zip(ended).map(|(known, ended)| known.max(ended));
            }
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use antiphon_core::Order;

    use super::*;
    use crate::check::testing::Story;
    use crate::trace::Seen;

    /// Two that found a cluster and die after some seconds; two others found it again, with this lineage and
    /// number.
    fn founded_again(lineage: u128, number: u32) -> Story {
        let mut story = Story::of(2, Order::Total);
        story.now += 5 * SECONDS;
        story.kill(0);
        story.kill(1);
        story.start(2);
        story.start(3);
        let mut view = Story::view(&[2, 3], &[], 1);
        view.lineage = Lineage(lineage);
        view.number = number;
        let view = Arc::new(view);
        for process in [2, 3] {
            story.add(process, Seen::NodeView(view.clone()));
        }
        story
    }

    #[test]
    fn a_cluster_that_is_founded_again_goes_on_above_the_former_one() {
        let rejected = |story: &Story, what: &str| {
            let report = story.judge();
            report
                .violations
                .iter()
                .any(|violation| violation.what.contains(what))
        };
        assert!(!rejected(&founded_again(8, 106), "lineage"));
        assert!(rejected(&founded_again(6, 106), "stamps are lower"));
        assert!(rejected(&founded_again(8, 101), "begins lineage"));
        // It had more views than seconds.
        let mut story = founded_again(8, 101);
        story.now = 0;
        let mut busy = Story::view(&[0, 1], &[0, 1], 2);
        busy.number = 120;
        story.trace.lines.insert(
            8,
            crate::trace::Line {
                at: 1_000,
                process: 0,
                what: Seen::NodeView(Arc::new(busy)),
            },
        );
        assert!(!rejected(&story, "begins lineage"));
    }
}

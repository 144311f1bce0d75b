//! The one standstill that the rules themselves demand, recognized exactly.
//!
//! ```text
//!   view n: 0 1 2 3 4      4, 3 and 2 accept the view 0 1 2 3 4 5 6 7, and none learns that it is decided
//!   1, 3 and 4 lose power, 5, 6 and 7 are not started again
//!   0 and 2 must propose that view unchanged (R1), and it needs a quorum of its own members (R3)
//! ```
//! Whether the view was decided died with the members that lost power, and power losses leave no proof.
//! Neither does a kill behind a proxy, or on a connection that was broken or never came about. A survivor
//! must see the end of a lifeline that nothing in between can have ended (R9), and the simulated kernels know
//! which survivors did. So nothing may be demanded of the survivors, until enough of those hosts are heard
//! again as the incarnations that they were, which never happens. Nothing else is excused. A standstill
//! without such a view is not excused. Neither is a standstill that killed processes suffice to cause, if a
//! survivor was given their proofs. And the members that stay must outvote the joiners.

use std::collections::BTreeSet;

use antiphon_core::BallotStep;
use antiphon_core::wire::{Incarnation, NodeView, ViewId};

use crate::check::{End, History, decides};
use crate::trace::Ending;
use crate::world::World;

/// Whether the slot after the latest primary view can never be decided, by R1 and R3, because voters died
/// without proof.
pub(crate) fn is_blocked(world: &World) -> bool {
    let Some(view) = world.latest_primary() else {
        return false;
    };
    let history = History::new(world.trace());
    let lives = |ended: &dyn Fn(End) -> bool| -> BTreeSet<Incarnation> {
        history
            .lives
            .iter()
            .filter(|life| ended(life.end))
            .map(|life| life.incarnation)
            .collect()
    };
    let alive = lives(&|end| end == End::Open);
    let Some(bound) = bound_to(&history, &view, &alive) else {
        return false;
    };
    let voters: BTreeSet<Incarnation> = view.members.iter().map(|member| member.incarnation).collect();
    let is_told = |dead: Incarnation| {
        let mut survivors = voters.intersection(&alive);
        survivors.any(|watcher| world.was_told_of_death(dead, *watcher))
    };
    let powerless = lives(&|end| matches!(end, End::Process(_, Ending::PowerLost)));
    let ended = lives(&|end| matches!(end, End::Process(_, Ending::Killed | Ending::Exited)));
    let (proven, unproven): (BTreeSet<_>, BTreeSet<_>) = ended
        .intersection(&voters)
        .copied()
        .partition(|dead| is_told(*dead));
    let mut all = alive.clone();
    all.extend(powerless.intersection(&voters).copied());
    all.extend(unproven);
    !decides(bound, &alive, &proven) && decides(bound, &all, &proven)
}

/// R1: the view that the living voters must propose unchanged: one of them accepted it in the highest ballot.
fn bound_to<'a>(
    history: &'a History<'_>,
    view: &NodeView,
    alive: &BTreeSet<Incarnation>,
) -> Option<&'a NodeView> {
    let last = view.primary_id();
    let next = ViewId {
        epoch: last.epoch,
        counter: last.counter + 1,
    };
    let ballots = history.ballots.get(&(view.lineage, next))?;
    ballots
        .iter()
        .map(|(_, note)| note)
        .filter(|note| note.step == BallotStep::Accepted)
        .filter(|note| view.contains(note.by) && alive.contains(&note.by))
        .max_by_key(|note| note.ballot)
        .map(|note| &*note.view)
}

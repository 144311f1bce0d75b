//! G6 one primary: each view of a lineage was decided by members that had the right to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::BallotStep;
use antiphon_core::wire::{Incarnation, Lineage, Member, NodeView, ViewId};

use super::founding;
use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::{End, History, names};
use crate::trace::Ending;

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let chains = chains(history);
    for chain in chains.values() {
        for ((id, (_, view)), (next_id, (at, next))) in chain.iter().zip(chain.iter().skip(1)) {
            if next_id.epoch != id.epoch || next_id.counter != id.counter + 1 {
                continue;
            }
            quorum(history, *at, view, next, report);
        }
    }
    founding::check(history, &chains, report);
}

/// The views of a lineage by id, with the time when each was first seen.
pub(super) type Chain = BTreeMap<ViewId, (Micros, Arc<NodeView>)>;

/// The primary views of each lineage, with the time each was first seen.
fn chains(history: &History<'_>) -> BTreeMap<Lineage, Chain> {
    let mut chains: BTreeMap<Lineage, Chain> = BTreeMap::new();
    for life in &history.lives {
        for (at, view) in life.primaries() {
            let chain = chains.entry(view.lineage).or_default();
            let entry = chain
                .entry(view.primary_id())
                .or_insert_with(|| (*at, view.clone()));
            entry.0 = entry.0.min(*at);
        }
    }
    chains
}

/// R2, R3: of the members of the last view that are not proven dead, a majority really voted for this view in
/// one ballot, or half of them with the most senior. The same share of the view's own members did, too.
/// Proven dead are the members that the decider counted as such, as far as it is true: a proof that it did
/// not hold cannot have helped it.
fn quorum(history: &History<'_>, at: Micros, view: &NodeView, next: &NodeView, report: &mut Report) {
    let ballots = history.ballots.get(&(next.lineage, next.primary_id()));
    let ballots = ballots.map_or(&[][..], Vec::as_slice);
    let rightful = ballots.iter().any(|(decided_at, decided)| {
        let BallotStep::Decided { dead } = &decided.step else {
            return false;
        };
        let voted: BTreeSet<Incarnation> = ballots
            .iter()
            .filter(|(voted_at, vote)| {
                vote.step == BallotStep::Accepted
                    && voted_at <= decided_at
                    && vote.ballot == decided.ballot
                    && *vote.view == *next
            })
            .map(|(_, vote)| vote.by)
            .collect();
        let dead: BTreeSet<Incarnation> = dead
            .iter()
            .copied()
            .filter(|who| is_provably_dead(history, *who, *decided_at))
            .collect();
        *decided_at <= at
            && *decided.view == *next
            && decides(view, &voted, &dead)
            && decides(next, &voted, &dead)
    });
    report.check("quorum", at, rightful, || {
        let votes: Vec<String> = ballots
            .iter()
            .map(|(_, note)| {
                let round = note.ballot.map(|ballot| ballot.round);
                format!("{} {:?} in round {round:?}", note.by.short(), note.step)
            })
            .collect();
        format!(
            "node view {} {} was decided by too few of {} {}: {}",
            next.id,
            names(next),
            view.id,
            names(view),
            votes.join(", ")
        )
    });
}

/// R9: whether its process had ended, and its kernel lived on to say so.
fn is_provably_dead(history: &History<'_>, who: Incarnation, at: Micros) -> bool {
    history.life(who).is_some_and(
        |life| matches!(life.end, End::Process(ended, Ending::Killed | Ending::Exited) if ended <= at),
    )
}

/// Whether these votes are enough. A proof of death may be used and need not be. A dead member whose vote
/// counts is in the count, since its vote came before the proof. The other dead are out of it, because this
/// needs the fewest votes.
pub(crate) fn decides(view: &NodeView, voted: &BTreeSet<Incarnation>, dead: &BTreeSet<Incarnation>) -> bool {
    let is_counted =
        |member: &&Member| voted.contains(&member.incarnation) || !dead.contains(&member.incarnation);
    let base = || {
        let voters = view.members.iter().filter(|member| member.weight > 0);
        voters.filter(is_counted)
    };
    let weight = |member: &Member| u32::from(member.weight);
    let total: u32 = base().map(weight).sum();
    let votes: u32 = base()
        .filter(|member| voted.contains(&member.incarnation))
        .map(weight)
        .sum();
    let senior = base()
        .next()
        .is_some_and(|member| voted.contains(&member.incarnation));
    2 * votes > total || (total > 0 && 2 * votes == total && senior)
}

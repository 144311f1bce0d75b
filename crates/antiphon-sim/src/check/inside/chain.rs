//! G6 one primary: the views of a lineage form one chain, and each link had the right to decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::BallotStep;
use antiphon_core::wire::{Incarnation, Lineage, Member, NodeView, ViewId};

use super::founding;
use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::names;
use crate::check::history::{End, History};
use crate::trace::Ending;

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let chains = chains(history);
    for chain in chains.values() {
        for ((id, (_, view)), (next_id, (at, next))) in chain.iter().zip(chain.iter().skip(1)) {
            if next_id.epoch != id.epoch || next_id.counter != id.counter + 1 {
                continue;
            }
            shares_a_member(history, *at, view, next, report);
            quorum(history, *at, view, next, report);
            seniority(*at, view, next, report);
            differences(*at, view, next, report);
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

/// R3: every view keeps a member of its predecessor, one that had installed it.
fn shares_a_member(history: &History<'_>, at: Micros, view: &NodeView, next: &NodeView, report: &mut Report) {
    let shared = next.members.iter().any(|member| {
        view.contains(member.incarnation)
            && history
                .life(member.incarnation)
                .is_some_and(|life| life.primaries().any(|(_, seen)| seen.id == view.id))
    });
    report.check("G6", at, shared, || {
        format!(
            "no member of node view {} {} had installed {} {}",
            next.id,
            names(next),
            view.id,
            names(view)
        )
    });
}

/// R2, R3: of those who were in the last view and not proven dead, a majority really voted for this view in
/// one ballot, or half of them with the most senior; and so did the same share of the view's own members. Who
/// is proven dead is what the decider counted as such, as far as it is true: a proof that it did not hold
/// cannot have helped it.
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

/// Whether these votes are enough. A proof of death may be used and need not be: of the dead, whose vote
/// counts is in the count, since it came before the proof, and the others are out of it, which leaves the
/// fewest votes to be had.
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

/// Survivors keep their order, and joiners come after them.
fn seniority(at: Micros, view: &NodeView, next: &NodeView, report: &mut Report) {
    let kept: Vec<Incarnation> = view
        .members
        .iter()
        .map(|member| member.incarnation)
        .filter(|who| next.contains(*who))
        .collect();
    let first: Vec<Incarnation> = next
        .members
        .iter()
        .take(kept.len())
        .map(|member| member.incarnation)
        .collect();
    report.check("seniority", at, kept == first, || {
        format!(
            "node view {} {} does not keep the seniority of {}",
            next.id,
            names(next),
            names(view)
        )
    });
}

/// G7 what changed is what is said; the departed come with their whole records.
fn differences(at: Micros, view: &NodeView, next: &NodeView, report: &mut Report) {
    let joined: BTreeSet<Incarnation> = next
        .members
        .iter()
        .map(|member| member.incarnation)
        .filter(|who| !view.contains(*who))
        .collect();
    let said: BTreeSet<Incarnation> = next.joined.iter().copied().collect();
    report.check(
        "G7",
        at,
        joined == said && said.len() == next.joined.len(),
        || format!("node view {} says joined {said:?}, it was {joined:?}", next.id),
    );
    let departed: Vec<_> = view
        .members
        .iter()
        .filter(|member| !next.contains(member.incarnation))
        .collect();
    let mut told: Vec<_> = next.departed.iter().map(|departure| &departure.member).collect();
    told.sort_by_key(|member| view.rank(member.incarnation));
    report.check("G7", at, departed == told, || {
        format!(
            "node view {} says departed {told:?}, it was {departed:?}",
            next.id
        )
    });
}

//! R2 a proof of death carries the last vote: the proof shows what the dead member accepted last, or
//! something later.

use antiphon_core::BallotStep;
use antiphon_core::wire::membership::Ballot;
use antiphon_core::wire::{Incarnation, Lineage, ViewId};

use crate::check::Report;
use crate::check::history::{End, History};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    for ((lineage, slot), notes) in &history.ballots {
        for (at, proof) in notes {
            let BallotStep::Certified { dead } = proof.step else {
                continue;
            };
            let forgotten = accepted(history, dead).find(|(voted_in, ballot)| {
                voted_in.0 == *lineage && (voted_in.1, *ballot) > (*slot, proof.ballot)
            });
            report.check("R2", *at, forgotten.is_none(), || {
                format!(
                    "the proof of {}'s death that {} got shows {:?} in the slot of {slot} as its last vote, and it had \
                     accepted {forgotten:?}",
                    dead.short(),
                    proof.by.short(),
                    proof.ballot,
                )
            });
        }
    }
}

/// What a voter accepted, but for the very instant of its end: a process killed between two outputs may have
/// written a vote to none of its lifelines yet, and then has not sent it either.
fn accepted<'a>(
    history: &'a History<'_>,
    who: Incarnation,
) -> impl Iterator<Item = ((Lineage, ViewId), Option<Ballot>)> + 'a {
    let ended = history.life(who).and_then(|life| match life.end {
        End::Process(at, _) => Some(at),
        End::Open | End::Succeeded(_) => None,
    });
    history.ballots.iter().flat_map(move |(slot, notes)| {
        notes
            .iter()
            .filter(move |(at, note)| {
                note.by == who
                    && note.step == BallotStep::Accepted
                    // A joiner is no voter: it has no lifelines yet.
                    && !note.view.joined.contains(&who)
                    && ended.is_none_or(|ended| *at < ended)
            })
            .map(move |(_, note)| (*slot, note.ballot))
    })
}

//! What the cut of a flush has of each sender.

use antiphon_wire::group::Decision;

use crate::group::reached::Reached;

/// What the cut has of the sender of this rank.
pub(crate) fn cut_of(decision: &Decision, rank: usize) -> Reached {
    let prefix = decision.cut.get(rank).map_or(0, |last| last.saturating_add(1));
    let mut cut = Reached::new(prefix);
    let spans = decision.beyond.iter().map(|part| part.span);
    for span in spans.filter(|span| usize::from(span.sender) == rank) {
        cut.add(span.first, span.first.saturating_add(span.count));
    }
    cut
}

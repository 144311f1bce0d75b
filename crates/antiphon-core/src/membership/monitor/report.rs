//! What members said of themselves.

use std::collections::BTreeMap;

use antiphon_wire::membership::WIRE_LEVEL;
use antiphon_wire::{Incarnation, Lineage, Member, NodeView, ViewId};

use crate::membership::view::history::History;

/// What a member said of itself last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// The number of its last heartbeat; 0 if none came.
    pub(crate) round: u64,
    pub(crate) view: ViewId,
    pub(crate) primary: bool,
    pub(crate) leaving: bool,
    pub(crate) wire_level: u8,
}

impl Report {
    /// What goes without saying of a member of this view.
    fn unsaid(view: &NodeView) -> Self {
        Self {
            round: 0,
            view: view.primary_id(),
            primary: true,
            leaving: false,
            wire_level: view.wire_level,
        }
    }
}

/// What each member said of itself last, as far as it said anything. A member does not take back its wish to
/// leave.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    of: BTreeMap<Incarnation, Report>,
}

impl Reports {
    /// A view was installed.
    pub(crate) fn install(&mut self, view: &NodeView) {
        self.of.retain(|member, _| view.contains(*member));
    }

    /// Takes what a heartbeat says. Returns whether it says anything new; `None` if a later heartbeat came
    /// before. A heartbeat may be older than one that came before it. It comes on two ways of different speed
    /// where one goes through another member, and a path that was cut delivers late what it held. An opinion
    /// that was withdrawn since must not be taken for a fresh one.
    pub(crate) fn hear(&mut self, member: Incarnation, said: Report) -> Option<bool> {
        let known = self.of.get(&member);
        if known.is_some_and(|known| said.round < known.round) {
            return None;
        }
        let round = said.round;
        let known = known.map(|known| Report { round, ..*known });
        Some(known != Some(self.note(member, said)))
    }

    /// Takes what a rumour says, which has no number: the one of the last heartbeat stays.
    pub(crate) fn hear_rumour(&mut self, member: Incarnation, said: Report) {
        let round = self.of.get(&member).map_or(0, |known| known.round);
        self.note(member, Report { round, ..said });
    }

    /// A member wants to leave, and said so otherwise than by a heartbeat.
    pub(crate) fn note_leaving(&mut self, member: Incarnation, view: &NodeView) {
        let report = self.of.entry(member).or_insert(Report::unsaid(view));
        report.leaving = true;
    }

    pub(crate) fn get(&self, member: Incarnation) -> Option<&Report> {
        self.of.get(&member)
    }

    pub(crate) fn is_leaving(&self, member: Incarnation) -> bool {
        self.get(member).is_some_and(|report| report.leaving)
    }

    /// The members that are in a non-primary view on top of this one.
    pub(crate) fn lacking_primary(&self, view: ViewId) -> impl Iterator<Item = Incarnation> {
        let lacking = self
            .of
            .iter()
            .filter(move |(_, said)| !said.primary && said.view == view);
        lacking.map(|(member, _)| *member)
    }

    /// Whether a member knows another. It does not if it is behind, and the other one joined since.
    pub(crate) fn knows(
        &self,
        history: &History,
        lineage: Lineage,
        me: Incarnation,
        (member, other): (Incarnation, Incarnation),
    ) -> bool {
        let Some(report) = self.get(member) else {
            return true;
        };
        let view = history.get(lineage, report.view);
        // Of a view before its own first one this node knows that it is not in it itself.
        view.map_or(other != me, |view| view.contains(other))
    }

    /// The wire level that these members of a view speak together.
    pub(crate) fn wire_level<'a>(
        &self,
        me: Incarnation,
        view: &NodeView,
        members: impl Iterator<Item = &'a Member>,
    ) -> u8 {
        let speaks = |member: &Member| match self.get(member.incarnation) {
            Some(report) => report.wire_level.min(WIRE_LEVEL),
            None if member.incarnation == me => WIRE_LEVEL,
            None => view.wire_level,
        };
        members.map(speaks).min().unwrap_or(view.wire_level)
    }

    fn note(&mut self, member: Incarnation, said: Report) -> Report {
        let leaving = said.leaving || self.is_leaving(member);
        let report = Report { leaving, ..said };
        self.of.insert(member, report);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: Incarnation = Incarnation(1);

    fn said(round: u64, leaving: bool) -> Report {
        Report {
            round,
            view: ViewId { epoch: 1, counter: 1 },
            primary: true,
            leaving,
            wire_level: 1,
        }
    }

    #[test]
    fn an_older_heartbeat_says_nothing_and_a_later_one_only_what_is_new() {
        let mut reports = Reports::default();
        assert_eq!(reports.hear(MEMBER, said(2, false)), Some(true));
        assert_eq!(reports.hear(MEMBER, said(3, false)), Some(false));
        assert_eq!(reports.hear(MEMBER, said(2, true)), None);
        assert!(!reports.is_leaving(MEMBER));
        reports.hear_rumour(MEMBER, said(0, false));
        assert_eq!(reports.hear(MEMBER, said(2, true)), None, "the number stays");
    }

    #[test]
    fn a_member_does_not_take_back_its_wish_to_leave() {
        let mut reports = Reports::default();
        assert_eq!(reports.hear(MEMBER, said(1, true)), Some(true));
        assert_eq!(reports.hear(MEMBER, said(2, false)), Some(false));
        reports.hear_rumour(MEMBER, said(0, false));
        assert!(reports.is_leaving(MEMBER));
    }
}

//! Every member that a group view names is in a node view that its reader had seen, or the view itself
//! introduces it: a reader never has to print the digits of an incarnation.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::wire::Incarnation;

use super::{History, Report};
use crate::agenda::Micros;
use crate::trace::ProcessId;

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    // When each process first saw each member in a node view.
    let mut known: BTreeMap<(ProcessId, Incarnation), Micros> = BTreeMap::new();
    for life in &history.lives {
        for (at, view) in &life.views {
            let departed = view.departed.iter().map(|departure| &departure.member);
            for member in view.members.iter().chain(departed) {
                let first = known.entry((life.process, member.incarnation)).or_insert(*at);
                *first = (*first).min(*at);
            }
        }
    }
    for (life, stay) in history.stays() {
        for epoch in &stay.epochs {
            let view = &epoch.view;
            let told = view.gone.iter().filter(|member| {
                let whose = history.life(member.incarnation);
                let facts = whose.and_then(|whose| history.processes.get(&whose.process));
                facts.is_some_and(|facts| facts.member.name == member.name)
            });
            let told: BTreeSet<Incarnation> = told.map(|member| member.incarnation).collect();
            let named = view.members.iter().chain(&view.left).chain(&view.crashed);
            for member in named {
                let seen = known.get(&(life.process, *member));
                let is_known = told.contains(member) || seen.is_some_and(|seen| *seen <= epoch.at);
                report.check("names", epoch.at, is_known, || {
                    format!(
                        "group view {} at {} names {member}, and nobody told it who that is",
                        view.id,
                        history.name(life)
                    )
                });
            }
        }
    }
}

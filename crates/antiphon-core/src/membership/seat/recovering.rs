//! What an operator is shown at a member, and what the operator's word does.

use std::sync::Arc;

use crate::Time;
use crate::membership::context::Context;
use crate::membership::partition::split::overriding;
use crate::membership::seat::Seat;
use crate::recovery::{Abandoned, Recovery, RecoveryError};

impl Seat {
    pub(crate) fn recovery(&self, cx: &Context, now: Time) -> Result<Recovery, RecoveryError> {
        if self.leaving.is_wanted() {
            return Err(RecoveryError::Leaving);
        }
        if self.is_primary() && !planted!(OverridePrimary) {
            let number = self.installed.view.number;
            return Err(RecoveryError::Primary { number });
        }
        let weight = self
            .installed
            .view
            .member(cx.me)
            .map_or(0, |member| member.weight);
        if weight == 0 {
            return Err(RecoveryError::NoVote);
        }
        let reachable = self.reachable(cx);
        let others = self
            .installed
            .view
            .members
            .iter()
            .filter(|member| member.incarnation != cx.me);
        let others = others.map(|member| Abandoned {
            member: member.clone(),
            heard: now.since(cx.detector.last_heard(member.incarnation).unwrap_or(now)),
            here: reachable.contains(&member.incarnation),
            dead: self.installed.engine.is_certified(member.incarnation),
        });
        Ok(Recovery {
            lineage: self.installed.view.lineage,
            view: self.installed.view.primary_id(),
            number: self.installed.view.number,
            lost: now.since(self.installed.nonprimary.since().unwrap_or(now)),
            quorum: self.installed.quorum && self.installed.engine.could_decide(&reachable),
            undecided: self.installed.engine.is_bound(),
            replaced: false,
            weight,
            others: others.collect(),
        })
    }

    pub(crate) fn recover(&mut self, cx: &mut Context, now: Time) {
        let view = Arc::new(overriding(cx, now, &self.installed.view));
        let left = (self.installed.view.lineage, self.installed.view.primary_id());
        let overridden = view.overrides();
        let is_seen = view.departed.is_empty() || overridden == Some(left);
        assert!(
            is_seen && view.departed.len() + 1 == self.installed.view.members.len() || planted!(),
            "G38: {} overrides {overridden:?} for {left:?}, and leaves {} of {} members behind",
            view.id,
            view.departed.len(),
            self.installed.view.members.len()
        );
        let left_behind: Vec<_> = view
            .departed
            .iter()
            .map(|departure| departure.member.addr)
            .collect();
        self.install(cx, now, view, None);
        // A member that is there looks for a primary anyway. It need not wait for its turn to ask.
        for addr in left_behind {
            self.here(cx, addr);
        }
        self.evaluate(cx, now);
    }
}

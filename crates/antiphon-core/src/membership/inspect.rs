//! What membership knows, for people who ask, and what it would answer to a node that has not joined yet.
//! Nothing here changes any state.

use std::net::SocketAddr;

use antiphon_wire::enquiry::{Answer, Ask};

use crate::inspection::{Inspection, Refused, State};
use crate::membership::seat::inspection::millis;
use crate::membership::seek::founding;
use crate::membership::{Membership, Phase, context};
use crate::sound::record_is_sound;
use crate::{Config, Time, WhyEntry};

impl Membership {
    pub(crate) fn inspect(&self, now: Time) -> Inspection {
        let refused = self.cx.refusals.iter().map(|refusal| Refused {
            incarnation: refusal.incarnation,
            name: refusal.name.clone(),
            addr: refusal.addr,
            reason: refusal.reason.clone(),
            fatal: refusal.fatal,
            times: refusal.times,
            ago: now.since(refusal.last),
        });
        Inspection {
            incarnation: self.cx.me,
            refused: refused.collect(),
            state: match &self.phase {
                Phase::Seeking(seeking) => State::Seeking(Box::new(seeking.inspect(&self.cx, now))),
                Phase::Seated(seat) => State::Seated(Box::new(seat.inspect(&self.cx, now))),
                Phase::Stopped => State::Stopped,
            },
        }
    }

    /// What is known of a name beyond the views: whether it was refused, waits, or is a member now.
    pub(crate) fn extend_why(&self, now: Time, name: &str, entries: &mut Vec<WhyEntry>) {
        let refused = self.cx.refusals.iter().filter(|refusal| refusal.name == name);
        entries.extend(refused.map(|refusal| WhyEntry::Refused {
            incarnation: refusal.incarnation,
            addr: refusal.addr,
            reason: refusal.reason.clone(),
            fatal: refusal.fatal,
            times: refusal.times,
            ago_ms: millis(now.since(refusal.last)),
        }));
        let Phase::Seated(seat) = &self.phase else { return };
        let joining = seat.joiners.inspect(now);
        let joining = joining.iter().filter(|joiner| joiner.name == name);
        entries.extend(joining.map(|joiner| WhyEntry::Joining {
            incarnation: joiner.incarnation,
            addr: joiner.addr,
            asked_ms: millis(joiner.asked),
            ready_ms: joiner.ready.map(millis),
        }));
        let Some(member) = seat
            .installed
            .view
            .members
            .iter()
            .find(|member| member.name == name)
        else {
            return;
        };
        entries.push(WhyEntry::Member {
            incarnation: member.incarnation,
            heard: seat.heard(&self.cx, now, member.incarnation),
            accusers: self.cx.detector.accusers(now, member.incarnation),
        });
        if let Some(report) = seat.reports.get(member.incarnation) {
            entries.push(WhyEntry::Said {
                incarnation: member.incarnation,
                view: report.view,
                primary: report.primary,
                leaving: report.leaving,
                doubts: self.cx.detector.doubted_by(member.incarnation),
            });
        }
    }

    /// What this node would answer to the node in the question, group options aside. `None` if the question
    /// makes no sense.
    pub(crate) fn answer(&self, now: Time, ask: &Ask) -> Option<Answer> {
        if !record_is_sound(&ask.node) {
            return None;
        }
        let mut answer = Answer {
            nonce: ask.nonce,
            to: self.cx.config.addr,
            node: context::record_of(&self.cx.config),
            seeds: founding::digest_of(&self.cx.config),
            standing: None,
            members: 0,
            coordinator: None,
            present: false,
            missing: Vec::new(),
            objection: None,
            groups: Vec::new(),
        };
        match &self.phase {
            Phase::Stopped => return None,
            Phase::Seeking(seeking) => {
                answer.missing = seeking.inspect(&self.cx, now).missing;
                answer.objection = seeking.objection(&self.cx, ask);
            }
            Phase::Seated(seat) => seat.answer(&self.cx, now, ask, &mut answer),
        }
        Some(answer)
    }
}

/// The question that a node with these settings asks another node, which answers to these addresses.
pub(crate) fn ask_of(config: &Config, nonce: u64, answer_to: Vec<SocketAddr>) -> Ask {
    Ask {
        nonce,
        node: context::record_of(config),
        seeds: founding::digest_of(config),
        founder: founding::is_founder(config),
        groups: Vec::new(),
        answer_to,
    }
}

//! What membership knows, for people who ask, and what it would say to a node that has not come. Nothing here
//! changes anything.

use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::enquiry::{Answer, Ask, Objection};
use antiphon_wire::{Incarnation, NodeView};

use super::context::{self, Context};
use super::founding;
use super::seat::Seat;
use super::{Membership, Phase, check, joining, lifeline};
use crate::inspection::{Inspection, Lifeline, MemberSeen, Refused, Said, Seated, State};
use crate::{Config, Heard, Time, WhyEntry};

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

    /// What is known of a name beyond the views: refused, waiting, a member now.
    pub(super) fn extend_why(&self, now: Time, name: &str, entries: &mut Vec<WhyEntry>) {
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
        let Some(member) = seat.view.members.iter().find(|member| member.name == name) else {
            return;
        };
        entries.push(WhyEntry::Member {
            incarnation: member.incarnation,
            heard: seat.heard(&self.cx, now, member.incarnation),
            accusers: self.cx.detector.accusers(now, member.incarnation),
        });
        if let Some(report) = seat.reports.get(&member.incarnation) {
            entries.push(WhyEntry::Said {
                incarnation: member.incarnation,
                view: report.view,
                primary: report.primary,
                leaving: report.leaving,
                doubts: self.cx.detector.doubted_by(member.incarnation),
            });
        }
    }

    /// What this node would say to the one that is asked about, group options aside; `None` if the question
    /// makes no sense.
    pub(crate) fn answer(&self, now: Time, ask: &Ask) -> Option<Answer> {
        if !check::record_is_sound(&ask.node) {
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

impl Seat {
    fn heard(&self, cx: &Context, now: Time, member: Incarnation) -> Heard {
        match cx.detector.last_heard(member) {
            _ if member == cx.me => Heard::Itself,
            Some(at) => Heard::Here {
                ago_ms: millis(now.since(at)),
            },
            None => Heard::By(self.observers(member)),
        }
    }

    fn inspect(&self, cx: &Context, now: Time) -> Seated {
        let reachable = self.reachable(cx);
        let (count, own) = (self.view.members.len(), self.view.rank(cx.me));
        let watched = |rank: usize| {
            let observers = self.rings.observers(rank);
            own.is_some_and(|own| own != rank && lifeline::watches(count, rank, observers, own))
        };
        let members = self.view.members.iter().enumerate().map(|(rank, member)| {
            let incarnation = member.incarnation;
            MemberSeen {
                incarnation,
                last_heard: cx.detector.last_heard(incarnation).map(|at| now.since(at)),
                by_probes: cx.detector.lives_by_probes(now, incarnation),
                trouble: cx.detector.trouble_since(incarnation).map(|at| now.since(at)),
                dead: self.engine.is_certified(incarnation),
                lifeline: match watched(rank) {
                    false => Lifeline::Elsewhere,
                    true if cx.lifelines.holds(incarnation, |_| true) => Lifeline::Held,
                    true => Lifeline::Missing,
                },
                said: self.reports.get(&incarnation).map(|report| Said {
                    view: report.view,
                    primary: report.primary,
                    leaving: report.leaving,
                    wire_level: report.wire_level,
                }),
            }
        });
        let meant_for = cx.config.engine.meant_for();
        Seated {
            outgrows: (self.view.members.len() > meant_for).then_some(meant_for),
            coordinator: self.coordinator(cx, &reachable),
            quorum: self.quorum && self.engine.could_decide(&reachable),
            leased: self.believes(now),
            members: members.collect(),
            doubts: cx.detector.doubts(now),
            edges: cx.detector.edges_down(now),
            joining: self.joiners.inspect(now),
        }
    }

    fn answer(&self, cx: &Context, now: Time, ask: &Ask, answer: &mut Answer) {
        let view: &NodeView = self.nonprimary.view().unwrap_or(&self.view);
        let coordinator = self.coordinator(cx, &self.reachable(cx));
        let alive = |member| member == cx.me || cx.detector.hears_well(now, member);
        answer.standing = Some(self.standing(cx));
        answer.members = u16::try_from(view.members.len()).unwrap_or(u16::MAX);
        answer.coordinator = self
            .view
            .member(coordinator)
            .map(|member| (member.name.clone(), member.addr));
        answer.present = view.members.iter().any(|member| {
            member.name == ask.node.name && member.addr == ask.node.addr && alive(member.incarnation)
        });
        let refusal = joining::refusal(&cx.config, &self.view, &ask.node, alive);
        answer.objection = refusal.map(|(reason, fatal)| Objection { reason, fatal });
    }
}

/// What a node with these settings asks another, to be answered at these addresses.
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

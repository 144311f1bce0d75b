//! What a member shows of itself.

use std::time::Duration;

use antiphon_wire::enquiry::{Answer, Ask, Objection};
use antiphon_wire::{Incarnation, NodeView};

use crate::inspection::{Lifeline, MemberSeen, Said, Seated};
use crate::membership::agree::lifelines;
use crate::membership::change::joiners;
use crate::membership::context::Context;
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;
use crate::{Heard, Time};

impl Seat {
    pub(crate) fn heard(&self, cx: &Context, now: Time, member: Incarnation) -> Heard {
        match cx.detector.last_heard(member) {
            _ if member == cx.me => Heard::Itself,
            Some(at) => Heard::Here {
                ago_ms: millis(now.since(at)),
            },
            None => {
                let Installed { view, rings, .. } = &self.installed;
                Heard::By(rings.observers_in(view, member).collect())
            }
        }
    }

    pub(crate) fn inspect(&self, cx: &Context, now: Time) -> Seated {
        let reachable = self.reachable(cx);
        let (count, own) = (self.installed.view.members.len(), self.installed.view.rank(cx.me));
        let watched = |rank: usize| {
            let observers = self.installed.rings.observers(rank);
            own.is_some_and(|own| own != rank && lifelines::watches(count, rank, observers, own))
        };
        let members = self
            .installed
            .view
            .members
            .iter()
            .enumerate()
            .map(|(rank, member)| {
                let incarnation = member.incarnation;
                MemberSeen {
                    incarnation,
                    last_heard: cx.detector.last_heard(incarnation).map(|at| now.since(at)),
                    by_probes: cx.detector.lives_by_probes(now, incarnation),
                    trouble: cx.detector.trouble_since(incarnation).map(|at| now.since(at)),
                    dead: self.installed.engine.is_certified(incarnation),
                    lifeline: match watched(rank) {
                        false => Lifeline::Elsewhere,
                        true if cx.lifelines.holds(incarnation, |_| true) => Lifeline::Held,
                        true => Lifeline::Missing,
                    },
                    said: self.reports.get(incarnation).map(|report| Said {
                        view: report.view,
                        primary: report.primary,
                        leaving: report.leaving,
                        wire_level: report.wire_level,
                    }),
                }
            });
        let meant_for = cx.config.engine.meant_for();
        Seated {
            outgrows: (self.installed.view.members.len() > meant_for).then_some(meant_for),
            coordinator: self.coordinator(cx, &reachable),
            quorum: self.installed.quorum && self.installed.engine.could_decide(&reachable),
            leased: self.believes(now),
            members: members.collect(),
            doubts: cx.detector.doubts(now),
            edges: cx.detector.edges_down(now),
            joining: self.joiners.inspect(now),
        }
    }

    pub(crate) fn answer(&self, cx: &Context, now: Time, ask: &Ask, answer: &mut Answer) {
        let view: &NodeView = self.installed.nonprimary.view().unwrap_or(&self.installed.view);
        let coordinator = self.coordinator(cx, &self.reachable(cx));
        let alive = |member| member == cx.me || cx.detector.hears_well(now, member);
        answer.standing = Some(self.standing(cx));
        answer.members = u16::try_from(view.members.len()).unwrap_or(u16::MAX);
        answer.coordinator = self
            .installed
            .view
            .member(coordinator)
            .map(|member| (member.name.clone(), member.addr));
        answer.present = view.members.iter().any(|member| {
            member.name == ask.node.name && member.addr == ask.node.addr && alive(member.incarnation)
        });
        let refusal = joiners::refusal(&cx.config, &self.installed.view, &ask.node, alive);
        answer.objection = refusal.map(|(reason, fatal)| Objection { reason, fatal });
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

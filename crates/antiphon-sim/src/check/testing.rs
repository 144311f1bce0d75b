//! Handcrafted traces: a story with one broken promise, for each checker to reject.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_core::wire::membership::{Ballot, SlotId};
use antiphon_core::wire::{
    Accusation, Cause, Departure, Evidence, GroupId, GroupViewId, Incarnation, Lineage, Member, NodeView,
    NodeViewId, ViewId,
};
use antiphon_core::{BallotNote, BallotStep, GroupOptions, GroupView, Order};

use super::{Report, check};
use crate::trace::{Delivery, Ending, Heard, Inside, ProcessId, Seen, Settled, Trace};
use crate::world::addr_of;

/// A trace in the making. Process `p` runs at slot `p` as incarnation `p + 1`.
pub(super) struct Story {
    pub(super) trace: Trace,
    pub(super) now: u64,
    order: Order,
    /// Whether messages are sent and delivered as safe.
    pub(super) safe: bool,
    /// The scope of messages that are sent and delivered.
    pub(super) scope: Option<u32>,
}

pub(super) fn incarnation(process: ProcessId) -> Incarnation {
    Incarnation((process as u128 + 1) << 96)
}

pub(super) fn member(process: ProcessId) -> Member {
    Member {
        incarnation: incarnation(process),
        name: format!("n{process}"),
        addr: addr_of(process),
        further: Vec::new(),
        metadata: BTreeMap::new(),
        weight: 1,
    }
}

impl Story {
    /// Processes that start, found a cluster in view 1, and have group view 1.
    pub(super) fn of(processes: usize, order: Order) -> Self {
        let mut story = Self {
            trace: Trace::default(),
            now: 0,
            order,
            safe: false,
            scope: None,
        };
        // Stories are short: no path has been good for long enough to judge removals by.
        story.trace.pair_patience = 5_000_000;
        story.trace.heartbeat = 200_000;
        story.trace.leave_patience = 5_000_000;
        story.trace.longest_silence = 5_000_000;
        story.trace.seeds = (0..processes).map(addr_of).collect();
        let all: Vec<ProcessId> = (0..processes).collect();
        for process in &all {
            story.start(*process);
        }
        story.node_view(&all, &[], 1, &all);
        story.group_view(&all, &[], &all, &[], &[], 1, &all);
        story
    }

    pub(super) fn add(&mut self, process: ProcessId, what: Seen) {
        self.now += 10;
        self.trace.add(self.now, process, what);
    }

    pub(super) fn start(&mut self, process: ProcessId) {
        self.add(
            process,
            Seen::Started {
                slot: process,
                member: member(process),
                foreign: false,
            },
        );
        self.add(process, Seen::Incarnation(incarnation(process)));
        self.ask_to_join(process);
    }

    pub(super) fn ask_to_join(&mut self, process: ProcessId) {
        let join = Seen::AskedToJoin {
            group: 0,
            name: "g".to_owned(),
            options: GroupOptions::default(),
        };
        self.add(process, join);
    }

    pub(super) fn kill(&mut self, process: ProcessId) {
        self.add(process, Seen::Ended(Ending::Killed));
    }

    pub(super) fn view(members: &[ProcessId], before: &[ProcessId], counter: u32) -> NodeView {
        Self::view_by(&Evidence::Silent { for_ms: 1500 }, members, before, counter)
    }

    pub(super) fn view_by(
        evidence: &Evidence,
        members: &[ProcessId],
        before: &[ProcessId],
        counter: u32,
    ) -> NodeView {
        let departed = before
            .iter()
            .filter(|old| !members.contains(old))
            .map(|old| Departure {
                member: member(*old),
                cause: Cause::Crashed,
                accusers: vec![Accusation {
                    accuser: incarnation(members[0]),
                    evidence: evidence.clone(),
                    before_ms: 3,
                }],
            });
        NodeView {
            lineage: Lineage(7),
            id: NodeViewId::Primary {
                id: ViewId { epoch: 1, counter },
            },
            number: 100 + counter,
            members: members.iter().map(|process| member(*process)).collect(),
            joined: members
                .iter()
                .filter(|new| !before.contains(new))
                .map(|new| incarnation(*new))
                .collect(),
            departed: departed.collect(),
            merged: Vec::new(),
            wire_level: 1,
        }
    }

    /// The primary view with this counter, voted for by its members and seen by these.
    pub(super) fn node_view(
        &mut self,
        members: &[ProcessId],
        before: &[ProcessId],
        counter: u32,
        by: &[ProcessId],
    ) {
        let silent = Evidence::Silent { for_ms: 1500 };
        self.node_view_by(&silent, members, before, counter, by);
    }

    /// The same; members that are not in it any more were accused so.
    pub(super) fn node_view_by(
        &mut self,
        evidence: &Evidence,
        members: &[ProcessId],
        before: &[ProcessId],
        counter: u32,
        by: &[ProcessId],
    ) {
        let view = Arc::new(Self::view_by(evidence, members, before, counter));
        for process in members {
            self.ballot(*process, &view, 0, BallotStep::Accepted);
        }
        self.ballot(members[0], &view, 0, BallotStep::Decided { dead: Vec::new() });
        self.seen(&view, by);
    }

    pub(super) fn ballot(&mut self, by: ProcessId, view: &Arc<NodeView>, round: u32, step: BallotStep) {
        let note = BallotNote {
            by: incarnation(by),
            slot: SlotId {
                lineage: view.lineage,
                next: view.primary_id(),
            },
            ballot: Some(Ballot {
                round,
                proposer: incarnation(0),
            }),
            view: view.clone(),
            step,
        };
        self.add(by, Seen::Inside(Inside::Ballot(note)));
    }

    /// `by` gets a proof of the death of `dead`, which voted last in the slot after `view`.
    pub(super) fn certificate(
        &mut self,
        by: ProcessId,
        dead: ProcessId,
        view: &Arc<NodeView>,
        accepted: Option<u32>,
    ) {
        let last = view.primary_id();
        let next = ViewId {
            epoch: last.epoch,
            counter: last.counter + 1,
        };
        let note = BallotNote {
            by: incarnation(by),
            slot: SlotId {
                lineage: view.lineage,
                next,
            },
            ballot: accepted.map(|round| Ballot {
                round,
                proposer: incarnation(0),
            }),
            view: view.clone(),
            step: BallotStep::Certified {
                dead: incarnation(dead),
            },
        };
        self.add(by, Seen::Inside(Inside::Ballot(note)));
    }

    pub(super) fn seen(&mut self, view: &Arc<NodeView>, by: &[ProcessId]) {
        for process in by {
            self.add(*process, Seen::NodeView(view.clone()));
        }
    }

    pub(super) fn group_view_id(k: u32) -> GroupViewId {
        GroupViewId {
            node: ViewId { epoch: 1, counter: k },
            number: 100 + k,
            k,
        }
    }

    /// The group view of this number, seen by these: members in `came` came along from the view before.
    #[allow(clippy::too_many_arguments, reason = "each list is one of the view's")]
    pub(super) fn group_view(
        &mut self,
        members: &[ProcessId],
        came: &[ProcessId],
        joined: &[ProcessId],
        left: &[ProcessId],
        crashed: &[ProcessId],
        k: u32,
        by: &[ProcessId],
    ) {
        let list = |processes: &[ProcessId]| {
            processes
                .iter()
                .map(|process| incarnation(*process))
                .collect::<Vec<_>>()
        };
        for process in by {
            let transitional = if came.contains(process) {
                list(came)
            } else {
                list(&[*process])
            };
            let view = GroupView {
                id: Self::group_view_id(k),
                group: GroupId(3),
                name: "g".to_owned(),
                order: self.order,
                members: list(members),
                joined: list(joined),
                left: list(left),
                crashed: list(crashed),
                causes: Vec::new(),
                transitional,
                gone: Vec::new(),
            };
            self.add(*process, Seen::Group(0, Heard::View(Arc::new(view))));
        }
    }

    /// The nodes of these have the group view of this number, and have removed these.
    pub(super) fn roll(&mut self, members: &[ProcessId], k: u32, removed: &[ProcessId], by: &[ProcessId]) {
        let list = |processes: &[ProcessId]| processes.iter().map(|process| incarnation(*process)).collect();
        for process in by {
            let roll = Inside::Roll {
                group: 0,
                view: Self::group_view_id(k),
                members: list(members),
                removed: list(removed),
            };
            self.add(*process, Seen::Inside(roll));
        }
    }

    /// Process `by` is told to start over.
    pub(super) fn resync(&mut self, by: ProcessId, cause: &str) {
        self.add(by, Seen::Group(0, Heard::Resync(cause.to_owned())));
    }

    /// Process `by` sends its message number `seq`.
    pub(super) fn send(&mut self, by: ProcessId, seq: u64) {
        self.add(
            by,
            Seen::Sent {
                group: 0,
                ticket: seq,
                payload: payload(by, seq),
                safe: self.safe,
                scope: self.scope,
                object: false,
            },
        );
    }

    /// Process `to` delivers message `seq` of `from` in view `k`.
    pub(super) fn deliver(&mut self, to: ProcessId, from: ProcessId, seq: u64, k: u32) {
        self.deliver_as(to, from, seq, seq, k);
    }

    /// The same under another number.
    pub(super) fn deliver_as(&mut self, to: ProcessId, from: ProcessId, message: u64, seq: u64, k: u32) {
        let delivery = Delivery {
            view: Self::group_view_id(k),
            sender: incarnation(from),
            seq,
            numbers: 1,
            payload: payload(from, message),
            safe: self.safe,
            scope: self.scope,
            ticket: (to == from).then_some(message),
        };
        self.add(to, Seen::Group(0, Heard::Message(delivery)));
    }

    pub(super) fn deliver_to_all(&mut self, processes: usize, from: ProcessId, seq: u64, k: u32) {
        (0..processes).for_each(|to| self.deliver(to, from, seq, k));
    }

    pub(super) fn at_rest(mut self) -> Self {
        self.trace.settled = Settled::AtRest;
        self
    }

    pub(super) fn judge(&self) -> Report {
        check(&self.trace)
    }

    /// The story must be rejected, and for this reason.
    #[track_caller]
    pub(super) fn is_rejected_for(&self, guarantee: &str) {
        let violations = self.judge().violations;
        let is_broken = violations.iter().any(|one| one.guarantee == guarantee);
        assert!(is_broken, "{guarantee} should be broken, but: {violations:?}");
    }

    /// Also of a story that is too short for the other checks.
    #[track_caller]
    pub(super) fn is_not_rejected_for(&self, guarantee: &str) {
        let violations = self.judge().violations;
        let is_broken = violations.iter().any(|one| one.guarantee == guarantee);
        assert!(!is_broken, "{guarantee} should hold, but: {violations:?}");
    }

    #[track_caller]
    pub(super) fn is_accepted(&self) {
        let report = self.judge();
        assert!(
            report.is_ok(),
            "nothing should be broken, but: {:?}",
            report.violations
        );
    }
}

fn payload(by: ProcessId, seq: u64) -> u64 {
    1_000 * by as u64 + seq
}

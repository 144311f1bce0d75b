//! A simulated cluster in a few words, for tests about faults.
//!
//! ```no_run
//! use antiphon_sim::Sim;
//! let mut sim = Sim::new(3, 1);
//! sim.start_all();
//! sim.settle();
//! sim.send(0, "hello");
//! sim.run_ms(200);
//! assert_eq!(sim.delivered(2), ["hello"]);
//! sim.crash(0);
//! sim.settle();
//! assert_eq!(sim.members(1), [1, 2]);
//! sim.finish();
//! ```

use std::sync::Arc;

use antiphon_core::wire::NodeView;
use antiphon_core::{GroupOptions, GroupView, Order, SendError};
use bytes::Bytes;

use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::check::{Report, check};
use crate::plan::{Action, GroupPlan, Plan, Who};
use crate::run::{at_rest, describe};
use crate::trace::{Heard, Seen, Settled, Slot, hash};
use crate::world::World;

/// A cluster of nodes `0..n` on virtual time, all of which join one group, `"test"`.
pub struct Sim {
    world: World,
    /// Payloads sent by [`Sim::send`], by hash, so that deliveries can be shown as text.
    texts: Vec<(u64, String)>,
}

impl Sim {
    /// A cluster of this many nodes in total order on the `lan` profile. Nothing runs yet.
    pub fn new(nodes: usize, seed: u64) -> Self {
        Self::with_order(nodes, seed, Order::Total)
    }

    /// A cluster whose group has this order.
    pub fn with_order(nodes: usize, seed: u64, order: Order) -> Self {
        Self::with_plan(Self::plan(nodes, order), seed)
    }

    /// The plan of [`Sim::new`], to be changed and given to [`Sim::with_plan`].
    pub fn plan(nodes: usize, order: Order) -> Plan {
        Plan {
            slots: nodes,
            seeds: nodes,
            groups: vec![GroupPlan {
                name: "test".to_owned(),
                options: GroupOptions::default().order(order),
                members: (0..nodes).collect(),
            }],
            ..Plan::default()
        }
    }

    /// A cluster as a plan describes it.
    pub fn with_plan(plan: Plan, seed: u64) -> Self {
        Self {
            world: World::new(Arc::new(plan), seed),
            texts: Vec::new(),
        }
    }

    /// Starts a node, or starts it again.
    pub fn start(&mut self, slot: Slot) {
        self.act(Action::Start(slot));
    }

    /// Starts all nodes at the same instant.
    pub fn start_all(&mut self) {
        (0..self.world.plan().slots).for_each(|slot| self.start(slot));
    }

    /// Any fault of [`Action`].
    pub fn act(&mut self, action: Action) {
        self.world.act(&action);
    }

    /// kill −9.
    pub fn crash(&mut self, slot: Slot) {
        self.act(Action::Crash(Who::Slot(slot)));
    }

    /// The host loses power: nothing more comes from it.
    pub fn power_off(&mut self, slot: Slot) {
        self.act(Action::PowerOff(Who::Slot(slot)));
    }

    /// Asks a node to leave in order.
    pub fn leave(&mut self, slot: Slot) {
        self.act(Action::Leave(Who::Slot(slot)));
    }

    /// SIGSTOP, and SIGCONT after so many milliseconds.
    pub fn pause_ms(&mut self, slot: Slot, length_ms: u64) {
        self.act(Action::Pause(Who::Slot(slot), length_ms * MILLIS));
    }

    /// Cuts the nodes of one side from the nodes of the other.
    pub fn partition<const A: usize, const B: usize>(&mut self, one: [Slot; A], other: [Slot; B]) {
        self.act(Action::Partition(vec![one.to_vec(), other.to_vec()]));
    }

    /// All paths work again.
    pub fn heal(&mut self) {
        self.act(Action::Heal);
    }

    /// Lets virtual time pass.
    pub fn run_ms(&mut self, length_ms: u64) {
        let until = self.world.now() + length_ms * MILLIS;
        self.world.run_until(until);
    }

    /// Lets time pass until a condition holds; returns whether it did within the time.
    pub fn run_until(&mut self, within_ms: u64, mut condition: impl FnMut(&Sim) -> bool) -> bool {
        let deadline = self.world.now() + within_ms * MILLIS;
        while !condition(self) {
            if self.world.now() >= deadline {
                return false;
            }
            let until = self.world.now() + 10 * MILLIS;
            self.world.run_until(until);
        }
        true
    }

    /// Lets time pass until all live nodes are in one primary view and one view of each group.
    ///
    /// # Panics
    /// If that takes more than 30 s of virtual time: the message says which node sees what.
    pub fn settle(&mut self) {
        let within: Micros = 30 * SECONDS;
        let settled = self.run_until(within / MILLIS, |sim| at_rest(&sim.world));
        assert!(
            settled,
            "the cluster did not settle within 30 s: {}",
            describe(&self.world)
        );
    }

    /// Sends a text to the first group; returns the ticket.
    pub fn try_send(&mut self, slot: Slot, text: &str) -> Result<u64, SendError> {
        let payload = Bytes::copy_from_slice(text.as_bytes());
        self.texts.push((hash(&payload, 0), text.to_owned()));
        self.world.send(slot, 0, payload)
    }

    /// Sends a text to the first group.
    ///
    /// # Panics
    /// If the node refuses it.
    pub fn send(&mut self, slot: Slot, text: &str) {
        if let Err(error) = self.try_send(slot, text) {
            panic!("node {slot} refused to send {text:?}: {error}");
        }
    }

    /// What the process that runs at a slot has delivered of the first group, in order.
    pub fn delivered(&self, slot: Slot) -> Vec<String> {
        let Some(process) = self.world.process_at(slot) else {
            return Vec::new();
        };
        let of = |payload: u64| {
            let known = self.texts.iter().find(|(hash, _)| *hash == payload);
            known.map_or_else(|| format!("{payload:016x}"), |(_, text)| text.clone())
        };
        self.heard(process)
            .filter_map(|heard| match heard {
                Heard::Message(m) => Some(of(m.payload)),
                _ => None,
            })
            .collect()
    }

    /// Whether the first group of the process at a slot was told to start over.
    pub fn had_resync(&self, slot: Slot) -> bool {
        self.world
            .process_at(slot)
            .is_some_and(|process| self.heard(process).any(|heard| matches!(heard, Heard::Resync(_))))
    }

    fn heard(&self, process: usize) -> impl Iterator<Item = &Heard> {
        self.world
            .trace()
            .lines
            .iter()
            .filter(move |line| line.process == process)
            .filter_map(|line| match &line.what {
                Seen::Group(0, heard) => Some(heard),
                _ => None,
            })
    }

    /// The node view at a slot.
    pub fn node_view(&self, slot: Slot) -> Option<Arc<NodeView>> {
        self.world.node_view(slot)
    }

    /// The view of the first group at a slot.
    pub fn group_view(&self, slot: Slot) -> Option<Arc<GroupView>> {
        self.world.group_view(slot, 0)
    }

    /// The slots of the members of the node view at a slot, by seniority; empty without a view.
    pub fn members(&self, slot: Slot) -> Vec<Slot> {
        let place = |name: &str| name.trim_start_matches('n').parse().unwrap_or(Slot::MAX);
        self.world
            .node_view(slot)
            .map(|view| view.members.iter().map(|m| place(&m.name)).collect())
            .unwrap_or_default()
    }

    /// Whether the node at a slot is in a primary view.
    pub fn is_primary(&self, slot: Slot) -> bool {
        self.world.node_view(slot).is_some_and(|view| view.is_primary())
    }

    /// Virtual time since the start, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.world.now() / MILLIS
    }

    /// The world itself.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What the checkers say so far.
    pub fn check(&self) -> Report {
        check(self.world.trace())
    }

    /// Ends the test: everything that GUARANTEES.md promises must have held.
    ///
    /// # Panics
    /// If a guarantee was broken; the message says which.
    pub fn finish(self) {
        let rest = at_rest(&self.world);
        let mut trace = self.world.into_trace();
        if rest {
            trace.settled = Settled::AtRest;
        }
        let report = check(&trace);
        let broken: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        assert!(
            broken.is_empty(),
            "guarantees were broken:\n{}",
            broken.join("\n")
        );
    }
}

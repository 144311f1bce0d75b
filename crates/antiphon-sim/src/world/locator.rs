//! Locators: the core's state machine on a host of its own. Nodes reach it over connections that a path or
//! the process may end.
//!
//! ```text
//!   node ── Seek ──► connection ──► Locator ── Known ──► the node's address
//!                      │ refused: no process; lost: it ended, or is another one by now; nothing: the path is cut, the host has no power
//! ```
//! The locators' hosts come behind the nodes' hosts: a cut between slots concerns them, too. Frames are not
//! lost on a path that works. What a locator kept in its file is there after a restart if the plan says so.

use std::net::SocketAddr;

use antiphon_core::{Located, Locator, Output, PathTrouble, Time};
use bytes::Bytes;

use super::process::Input;
use super::{Door, Happening, UNUSED_FOR, World, addr_of, door_of};
use crate::agenda::Micros;
use crate::trace::{ProcessId, Seen, Slot};

/// Where locators listen.
const PORT: u16 = 7410;

/// A place where a locator may run.
#[derive(Debug, Default)]
pub(super) struct Place {
    running: Option<Running>,
    /// How often one was started here.
    starts: u32,
    /// What it knew when it ended, and when that was.
    kept: Vec<Located>,
    ended: Micros,
    /// The processes that have a connection to it: to which start, and when it was used last.
    connections: Vec<(ProcessId, u32, Micros)>,
}

#[derive(Debug)]
struct Running {
    core: Locator,
    since: Micros,
}

impl Running {
    fn local(&self, now: Micros) -> Time {
        Time::from_micros(now - self.since)
    }
}

impl World {
    pub(super) fn locator_slot(&self, index: usize) -> Slot {
        self.plan.slots + index
    }

    pub(super) fn locator_addr(&self, index: usize) -> SocketAddr {
        SocketAddr::new(addr_of(self.locator_slot(index)).ip(), PORT)
    }

    /// The locator that is reached at an address.
    pub(super) fn locator_at(&self, addr: SocketAddr) -> Option<usize> {
        (0..self.locators.len()).find(|index| self.locator_addr(*index) == addr)
    }

    pub(super) fn start_locator(&mut self, index: usize, with_state: bool) -> bool {
        let (slot, addr, now) = (self.locator_slot(index), self.locator_addr(index), self.now);
        let seed = self.random.seed();
        let Some(place) = self
            .locators
            .get_mut(index)
            .filter(|place| place.running.is_none())
        else {
            return false;
        };
        let Ok(mut core) = Locator::new("simulated", addr, None, seed, Time::ZERO) else {
            return false;
        };
        if with_state {
            let gone = Time::from_micros(now - place.ended).since(Time::ZERO);
            let kept = place.kept.iter().cloned().map(|mut node| {
                node.age += gone;
                node
            });
            core.restore(Time::ZERO, kept);
        }
        place.starts += 1;
        place.running = Some(Running { core, since: now });
        self.hosts[slot].powered = true;
        self.note(ProcessId::MAX, Seen::Locator { slot, up: true });
        true
    }

    /// Ends a locator's process, or its whole host.
    pub(super) fn end_locator(&mut self, index: usize, power: bool) -> bool {
        let (slot, now) = (self.locator_slot(index), self.now);
        let Some(place) = self.locators.get_mut(index) else {
            return false;
        };
        let Some(running) = place.running.take() else {
            return false;
        };
        place.kept = running.core.located(running.local(now));
        place.ended = now;
        self.note(ProcessId::MAX, Seen::Locator { slot, up: false });
        if power {
            self.hosts[slot].powered = false;
            return true;
        }
        // Its kernel closes its connections.
        for (process, ..) in std::mem::take(&mut self.locators[index].connections) {
            let home = self.processes[process].slot;
            if !self.cut_from_locator(home, slot) {
                self.trouble_with_locator(process, index, PathTrouble::Lost, self.network.latency);
            }
        }
        true
    }

    fn cut_from_locator(&self, home: Slot, slot: Slot) -> bool {
        let (there, back) = (Door { slot, link: 0 }, Door { slot: home, link: 0 });
        self.is_blocked(home, there) || self.is_blocked(slot, back)
    }

    fn trouble_with_locator(
        &mut self,
        process: ProcessId,
        index: usize,
        trouble: PathTrouble,
        later: Micros,
    ) {
        let to = self.locator_addr(index);
        let trouble = Input::Trouble { to, trouble };
        self.agenda
            .add(self.now + later, Happening::Input(process, trouble));
    }

    pub(super) fn send_to_locator(&mut self, from: ProcessId, index: usize, bytes: Bytes) {
        let (home, slot, now) = (self.processes[from].slot, self.locator_slot(index), self.now);
        let latency = self.latency(home, slot);
        if self.cut_from_locator(home, slot) {
            return;
        }
        let place = &mut self.locators[index];
        let known = place.connections.iter().position(|(who, ..)| *who == from);
        let old = known.map(|at| place.connections.swap_remove(at));
        let old = old.filter(|(_, _, used)| now - used < UNUSED_FOR);
        if place.running.is_none() {
            return self.trouble_with_locator(from, index, PathTrouble::Refused, 2 * latency);
        }
        if old.is_some_and(|(_, start, _)| start != place.starts) {
            // The locator that is there now knows nothing of this connection.
            return self.trouble_with_locator(from, index, PathTrouble::Lost, 2 * latency);
        }
        place.connections.push((from, place.starts, now));
        let start = place.starts;
        let takes = if old.is_some() { latency } else { 3 * latency };
        let arrives = Happening::AtLocator { index, start, bytes };
        self.agenda.add(now + takes, arrives);
    }

    pub(super) fn at_locator(&mut self, index: usize, start: u32, bytes: Bytes) {
        let now = self.now;
        let place = &mut self.locators[index];
        let Some(running) = place.running.as_mut().filter(|_| place.starts == start) else {
            return;
        };
        let local = running.local(now);
        if running.core.handle_frame(local, bytes).is_err() {
            self.count("refused_frame");
        }
        while let Some(output) = self.next_of_locator(index) {
            if let Output::Frame { to, frame, .. } = output
                && let Some(to) = door_of(to, &self.plan)
            {
                let slot = self.locator_slot(index);
                if self.cut_from_locator(to.slot, slot) {
                    continue;
                }
                let at = now + 3 * self.latency(slot, to.slot);
                let (from, bytes) = (self.locator_addr(index), frame.to_bytes());
                self.agenda.add(at, Happening::Datagram { to, from, bytes });
            }
        }
    }

    fn next_of_locator(&mut self, index: usize) -> Option<Output> {
        self.locators[index].running.as_mut()?.core.poll_output()
    }
}

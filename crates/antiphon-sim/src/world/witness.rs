//! Witnesses: on each host the supervisor that has started the node's process and waits for its end (R10).
//!
//! ```text
//!   process ── last-vote record ──► kept by the host; a write that fails leaves nothing
//!   process ends ─► the supervisor comes to it, at once or late ─► Death ─► told to each, over the host's paths, until taken
//! ```
//! The supervisor lives as long as its host has power, and goes on telling when another process runs there
//! already.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use antiphon_core::ClusterKey;
use antiphon_core::wire::Incarnation;
use antiphon_core::witness::Death;
use bytes::Bytes;

use super::process::Input;
use super::{Happening, World, addr_of, door_of};
use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::trace::{Ending, ProcessId, Slot};

/// How late a supervisor may come to the end of its child.
const LATE: Micros = 2 * SECONDS;
/// It tells the members that have not taken it this often, for that long.
const EVERY: Micros = 300 * MILLIS;
const FOR: Micros = 60 * SECONDS;

/// The key of clusters with witnesses.
pub(super) fn key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

#[derive(Debug, Default)]
pub(super) struct Witnesses {
    left: BTreeMap<ProcessId, Bytes>,
    tellers: BTreeMap<ProcessId, Teller>,
}

/// A supervisor whose child is gone.
#[derive(Debug)]
struct Teller {
    slot: Slot,
    death: Death,
    /// The members that it has yet to tell.
    waiting: Vec<Vec<SocketAddr>>,
    until: Micros,
}

impl World {
    pub(super) fn leave_last_vote(&mut self, process: ProcessId, sealed: Option<Bytes>) {
        let fails = self
            .plan
            .witness
            .as_ref()
            .map_or(0, |witness| witness.fails_percent);
        self.witnesses.left.remove(&process);
        let Some(sealed) = sealed else { return };
        if self.random.percent(fails) {
            self.count("last_vote_not_written");
        } else {
            self.witnesses.left.insert(process, sealed);
        }
    }

    /// A process has ended, in whatever way.
    pub(super) fn witness_end(&mut self, process: ProcessId, ending: Ending) {
        if self.plan.witness.is_none() {
            return;
        }
        if ending == Ending::PowerLost {
            let slot = self.processes[process].slot;
            self.witnesses.left.remove(&process);
            self.witnesses.tellers.retain(|_, teller| teller.slot != slot);
            return;
        }
        let late = if self.random.percent(50) {
            0
        } else {
            self.random.below(LATE)
        };
        self.agenda
            .add(self.now + late, Happening::SupervisorWakes(process));
    }

    /// A supervisor sees that its child is gone.
    pub(super) fn supervisor_wakes(&mut self, process: ProcessId) {
        let slot = self.processes[process].slot;
        // It died with its host.
        let Some(left) = self
            .witnesses
            .left
            .remove(&process)
            .filter(|_| self.hosts[slot].powered)
        else {
            return;
        };
        let [low, high, ..] = self.random.seed();
        let me = Incarnation((u128::from(high) << 64) | u128::from(low));
        match Death::of("simulated", &key(), left, me) {
            Ok(death) => {
                let teller = Teller {
                    slot,
                    waiting: death.tell().to_vec(),
                    death,
                    until: self.now + FOR,
                };
                self.witnesses.tellers.insert(process, teller);
                self.witness_tells(process);
            }
            Err(_) => self.count("last_vote_unproven"),
        }
    }

    pub(super) fn witness_tells(&mut self, process: ProcessId) {
        let Some(mut teller) = self.witnesses.tellers.remove(&process) else {
            return;
        };
        let slot = teller.slot;
        let waiting = std::mem::take(&mut teller.waiting);
        for addresses in waiting {
            if !addresses
                .iter()
                .any(|addr| self.witness_reaches(slot, *addr, &mut teller.death))
            {
                teller.waiting.push(addresses);
            }
        }
        if !teller.waiting.is_empty() && self.now < teller.until {
            self.witnesses.tellers.insert(process, teller);
            self.agenda
                .add(self.now + EVERY, Happening::WitnessTells(process));
        }
    }

    /// Brings it to the process at an address, if the paths let a connection come about and a process is
    /// there.
    fn witness_reaches(&mut self, slot: Slot, addr: SocketAddr, death: &mut Death) -> bool {
        let Some(door) = door_of(addr, &self.plan) else {
            return false;
        };
        if self.is_blocked(slot, door) || self.is_blocked(door.slot, door.facing(slot)) {
            return false;
        }
        let Some(member) = self.hosts[door.slot].process else {
            return false;
        };
        self.count("witness_told");
        let process = &self.processes[member];
        let receiver = process.node.incarnation();
        // Only a member that has the dead one in its view can use it.
        if process
            .primary
            .as_ref()
            .is_some_and(|view| view.contains(death.dead()))
        {
            self.tell_of_death(death.dead(), receiver);
        }
        let at = self.now + 3 * self.latency(slot, door.slot);
        let frame = Input::Frame {
            from: addr_of(slot),
            bytes: death.frame(),
        };
        self.agenda.add(at, Happening::Input(member, frame));
        true
    }
}

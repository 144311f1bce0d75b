//! Frames that travel alone: each may be lost, doubled, late, damaged, or come again much later. The same
//! holds for probes, whatever carries the other frames.

use std::net::SocketAddr;

use antiphon_core::wire::frame::{HEADER_BYTES, Kind, OpenError, peek};
use antiphon_core::{Node, PathTrouble, Time};
use bytes::Bytes;

use super::process::Input;
use super::{Door, Happening, World, addr_of};
use crate::plan::Probes;
use crate::trace::{ProcessId, Slot};

impl World {
    /// A probe goes its own way: it may pass where nothing else does, and the other way round. The network's
    /// errors about it reach no node.
    pub(super) fn send_probe(&mut self, from: ProcessId, to: Door, bytes: Bytes) {
        let sender = self.processes[from].slot;
        self.traffic.note(sender, to.slot, bytes.len());
        if self.passes_probes(sender, to) {
            self.put_on_the_way(from, to, bytes);
        } else {
            self.count("probe_blocked");
        }
    }

    fn passes_probes(&self, from: Slot, to: Door) -> bool {
        match self.path(from, to).probes {
            Probes::AsFrames => !self.is_blocked(from, to),
            Probes::Pass => self.hosts[to.slot].powered,
            Probes::Blocked => false,
        }
    }

    pub(super) fn send_datagram(&mut self, from: ProcessId, to: Door, bytes: Bytes) {
        let sender = self.processes[from].slot;
        if self.is_blocked(sender, to) {
            if self.path(sender, to).rejecting {
                let at = self.now + self.network.latency;
                self.trouble(from, to, PathTrouble::Refused, at);
            }
            return;
        }
        self.put_on_the_way(from, to, bytes);
    }

    fn put_on_the_way(&mut self, from: ProcessId, to: Door, bytes: Bytes) {
        let sender = self.processes[from].slot;
        let network = self.network.clone();
        let sent = self.line_done(sender, to, bytes.len());
        if network.bytes_per_s > 0
            && (sent - self.now) * network.bytes_per_s / 1_000_000 > network.buffer_bytes as u64
        {
            self.count("overflow");
            return;
        }
        self.take_line(sender, to, sent);
        let loss_ppm = network.loss_ppm.max(self.path(sender, to).loss_ppm);
        if self.random.ppm(loss_ppm) {
            self.count("drop");
            return;
        }
        let mut bytes = bytes;
        if self.random.ppm(network.corrupt_ppm) {
            self.count("corrupt");
            let mut damaged = bytes.to_vec();
            for _ in 0..self.random.range(1, 4) {
                let at = self.random.index(damaged.len());
                damaged[at] ^= 1 << self.random.below(8);
            }
            bytes = damaged.into();
        }
        if self.random.ppm(network.truncate_ppm) {
            self.count("truncate");
            bytes = bytes.slice(..self.random.index(bytes.len()));
        }
        let from_addr = addr_of(sender);
        let mut at = sent + self.latency(sender, to.slot);
        at = at.max(self.path(sender, to).clogged_until);
        if self.random.ppm(network.reorder_ppm) {
            self.count("reorder");
            at += self.random.below(network.reorder_within + 1);
        }
        if self.random.ppm(network.duplicate_ppm) {
            self.count("duplicate");
            let again = at + self.random.below(network.reorder_within + 1);
            self.agenda.add(
                again,
                Happening::Datagram {
                    to,
                    from: from_addr,
                    bytes: bytes.clone(),
                },
            );
        }
        if self.random.ppm(network.replay_ppm) {
            self.count("late_replay");
            let again = at + self.random.below(network.replay_within + 1);
            self.agenda.add(
                again,
                Happening::Outside {
                    to: to.slot,
                    from: from_addr,
                    bytes: bytes.clone(),
                },
            );
        }
        self.agenda.add(
            at,
            Happening::Datagram {
                to,
                from: from_addr,
                bytes,
            },
        );
    }

    /// Sends once to all, whatever else carries frames; each may miss it.
    pub(super) fn multicast(&mut self, from: ProcessId, bytes: &Bytes) {
        let sender = self.processes[from].slot;
        for slot in (0..self.hosts.len()).filter(|slot| *slot != sender) {
            let door = Door { slot, link: 0 };
            let lost = self.random.ppm(self.network.cast_loss_ppm);
            if lost || self.deaf.contains(&(sender, slot)) || self.hosts[slot].process.is_none() {
                self.count("cast_lost");
                continue;
            }
            self.send_datagram(from, door, bytes.clone());
        }
    }

    pub(super) fn datagram_arrived(&mut self, to: Door, from: SocketAddr, bytes: Bytes) {
        let sender = super::door_of(from, &self.plan).map(|door| door.slot);
        let is_probe = matches!(peek(&bytes), Ok((Kind::Probe, _)));
        let passes = |sender| match is_probe {
            true => self.passes_probes(sender, to),
            false => !self.is_blocked(sender, to),
        };
        if !sender.is_none_or(passes) {
            return;
        }
        match self.hosts[to.slot].process {
            Some(process) => self.accept(process, Input::Frame { from, bytes }),
            // The dead process's kernel may say so; the sender takes it as a hint only.
            None => {
                if !is_probe
                    && let Some(sender) = sender.and_then(|slot| self.hosts[slot].process)
                    && self.random.percent(self.network.icmp_percent)
                {
                    let at = self.now + self.network.latency;
                    self.trouble(sender, to, PathTrouble::Refused, at);
                }
            }
        }
    }
}

/// Hands a frame to a node. A datagram does not show whether it went to one node or to all: every second one
/// that may have gone to all is taken so.
pub(super) fn receive(node: &mut Node, now: Time, from: SocketAddr, bytes: Bytes) -> Result<(), OpenError> {
    if matches!(peek(&bytes), Ok((Kind::Probe, _))) {
        return node.handle_probe(now, bytes);
    }
    let may_be_multicast = matches!(peek(&bytes), Ok((Kind::Multicast, _)));
    if may_be_multicast && bytes[HEADER_BYTES - 8].is_multiple_of(2) {
        return node.handle_multicast(now, from, bytes);
    }
    node.handle_frame(now, from, bytes)
}

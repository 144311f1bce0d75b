//! Paths that lose: one way, most packets, or all but probes.

use antiphon_wire::Incarnation;
use antiphon_wire::membership::Heartbeat;

use super::{Host, Net, Parcel, index};
use crate::Time;
use crate::detector::Came;

impl Net {
    pub(in crate::membership::tests) fn cut_one_way(&mut self, from: usize, to: usize) {
        self.cut.insert((from, to));
    }

    /// Of what one sends to another besides messages, one of so many arrives: at three, it is never silent
    /// for long.
    pub(in crate::membership::tests) fn thin(&mut self, from: usize, to: usize, one_of: u32) {
        self.thinned.insert((from, to), (one_of, 0));
    }

    /// From now on a host hears none of the others. Where its kernel waits for acknowledgements, only its
    /// probes get through.
    pub(in crate::membership::tests) fn deafen(&mut self, node: usize, waits: bool) {
        for other in (0..self.hosts.len()).filter(|other| *other != node) {
            self.cut.insert((other, node));
            if waits {
                self.cut.insert((node, other));
                self.probing.insert(node);
            }
        }
    }

    /// A probe leaves. Those of other hosts pass nowhere: all is as without.
    pub(super) fn probe(&mut self, node: usize, to: Incarnation, asks: bool, heartbeat: Heartbeat) {
        let host = self.host(node);
        if self.probing.contains(&node) {
            let (me, to) = (host.me, index(host.peers[&to]));
            self.post(self.latency, node, me, to, None, Parcel::Probe(asks, heartbeat));
        }
    }
}

/// As a node takes it.
pub(super) fn come(host: &mut Host, now: Time, sender: Incarnation, asks: bool, heartbeat: Heartbeat) {
    let membership = &mut host.membership;
    membership.heard(now, sender, Came::Probe);
    if asks {
        membership.asked_for_probes(now, sender);
    }
    membership.handle_heartbeat(now, sender, heartbeat, Came::Probe);
}

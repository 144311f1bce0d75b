//! Multicast: the network copies what a member sends once.
//!
//! ```text
//!            ┌──► b        a frame of kind Multicast, sealed once, to the cluster's multicast address
//!  a ──► net ┼──► c
//!            └─x  d  ◄──── the same frame once more, directly: d does not hear a there
//!
//!  every heartbeat:   a ──► net   Probe{round}      b ──► a   Heard{round}        d says nothing
//! ```
//! Only two hosts themselves can say whether a network passes multicast between them: switches filter,
//! wireless drops, clouds have none. So every node that may send by multicast also probes by it, and a node
//! that hears the probe says so directly. A probe fills a packet: where only small ones pass, nobody hears
//! it. A member that has not said so lately gets the frames directly, from this sender alone. If no member
//! has, nothing is sent by multicast at all.
//!
//! If a frame is lost on its way to some members, only these miss it. They see the gap, ask the sender, and
//! get the frame from it directly. Credit, acknowledgements, marks and order records that do not ride on
//! messages go directly, as in `direct`.
//!
//! All that must be configured alike is the address. A network without multicast costs a probe per heartbeat.
//! Multicast frames are a kind of their own: their nonces, many of them lost, must not push those of direct
//! frames out of the replay window.
//!
//! # What comes by multicast
//! Anybody can send it. A node drops what does not come from a node that it speaks to, or is not of its
//! cluster's tag, before it spends a hash on it. Then the seal is checked as that of any frame. Of an
//! authentic frame only messages, order records and probes are read. The frame is no sign of life: it says
//! nothing about the path that repairs and votes take.
//!
//! # When participants die
//! - **The sender, after some have heard**: the cut has what any survivor holds (R15), as in `direct`.
//! - **A member goes deaf**: three probes later frames go to it directly; it asked for what it missed
//!   meanwhile.
//! - **A member is removed, or installs its next view late**: frames name their view; those of other views
//!   are early or void (R13).
//!
//! # Invariants
//! - Multicast decides nothing: on a network that loses everything, all frames of a group go directly.
//! - State is bounded by the number of peers that this node speaks to: three numbers and what was said of
//!   each.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_wire::Incarnation;

use crate::Time;

/// Probes that a peer may leave unanswered.
const MISSED: u64 = 3;
/// Probes after which a peer that never answered is said not to hear.
const PATIENCE: u64 = 8;

/// The peers that hear this node's multicast, and those that it hears.
#[derive(Debug, Default)]
pub(crate) struct Air {
    round: u64,
    next_round: Option<Time>,
    peers: BTreeMap<Incarnation, Peer>,
    /// The peers to tell that their probe was heard, and which probe.
    answers: BTreeMap<Incarnation, u64>,
    news: Vec<(Incarnation, bool)>,
}

#[derive(Debug)]
struct Peer {
    /// The last probe before this node spoke to it.
    since: u64,
    /// The latest probe that it said to have heard.
    answered: u64,
    /// What was said of it to the application.
    told: Option<bool>,
}

impl Air {
    /// This node speaks to the peer from here on.
    pub(crate) fn connect(&mut self, peer: Incarnation) {
        let since = self.round;
        self.peers.entry(peer).or_insert(Peer {
            since,
            answered: 0,
            told: None,
        });
    }

    pub(crate) fn disconnect(&mut self, peer: Incarnation) {
        self.peers.remove(&peer);
        self.answers.remove(&peer);
    }

    /// Whether what comes by multicast may be of a peer at all.
    pub(crate) fn knows(&self, sender: Incarnation) -> bool {
        self.peers.contains_key(&sender)
    }

    /// Whether a peer gets what is sent by multicast.
    pub(crate) fn hears(&self, peer: Incarnation) -> bool {
        if planted!(EverybodyHears) {
            return true;
        }
        self.peers.get(&peer).is_some_and(|peer| peer.hears(self.round))
    }

    /// A peer's probe was heard.
    pub(crate) fn probed(&mut self, by: Incarnation, round: u64) {
        if self.peers.contains_key(&by) {
            self.answers.insert(by, round);
        }
    }

    /// A peer has heard a probe.
    pub(crate) fn answered(&mut self, by: Incarnation, round: u64) {
        if let Some(peer) = self.peers.get_mut(&by)
            && round <= self.round
        {
            peer.answered = peer.answered.max(round);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.next_round
    }

    /// The number of the probe that is due, if one is. `multicasts`: whether any group may be sent to in this
    /// way.
    pub(crate) fn probe(&mut self, now: Time, heartbeat: Duration, multicasts: bool) -> Option<u64> {
        if !multicasts || self.peers.is_empty() {
            self.next_round = None;
            return None;
        }
        if self.next_round.is_some_and(|at| at > now) {
            return None;
        }
        let (answers, peers) = (self.answers.len(), self.peers.len());
        assert!(
            answers <= peers,
            "multicast: {answers} answers are owed to {peers} peers"
        );
        self.next_round = Some(now + heartbeat);
        self.round += 1;
        for (id, peer) in &mut self.peers {
            let hears = peer.hears(self.round);
            // A new peer is given time to answer.
            let settled = hears || self.round - peer.since > PATIENCE;
            if settled && peer.told != Some(hears) {
                peer.told = Some(hears);
                self.news.push((*id, hears));
            }
        }
        Some(self.round)
    }

    /// Probes that were heard and not answered yet.
    pub(crate) fn take_answers(&mut self) -> BTreeMap<Incarnation, u64> {
        std::mem::take(&mut self.answers)
    }

    /// Peers that hear this node now, or do not any more.
    pub(crate) fn take_news(&mut self) -> Vec<(Incarnation, bool)> {
        std::mem::take(&mut self.news)
    }
}

impl Peer {
    fn hears(&self, round: u64) -> bool {
        self.answered > 0 && self.answered + MISSED >= round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(200);
    const NEAR: Incarnation = Incarnation(1);
    const DEAF: Incarnation = Incarnation(2);

    #[test]
    fn a_peer_is_sent_to_by_multicast_as_long_as_it_answers_and_what_changes_is_told_once() {
        let mut air = Air::default();
        let mut now = Time::ZERO;
        assert_eq!(air.probe(now, BEAT, true), None, "nobody is there to hear");
        air.connect(NEAR);
        air.connect(DEAF);
        assert_eq!(air.probe(now, BEAT, false), None, "no group needs it");
        for round in 1..=20 {
            assert!(!air.hears(DEAF));
            assert_eq!(air.hears(NEAR), (2..=14).contains(&round), "{round}");
            assert_eq!(air.probe(now, BEAT, true), Some(round));
            assert_eq!(air.probe(now, BEAT, true), None, "not twice");
            if round <= 10 {
                air.answered(NEAR, round);
            }
            now = now + BEAT;
        }
        assert_eq!(air.take_news(), [(NEAR, true), (DEAF, false), (NEAR, false)]);
    }

    #[test]
    fn an_answer_to_no_call_is_none_and_strangers_are_not_known() {
        let mut air = Air::default();
        air.connect(NEAR);
        air.probe(Time::ZERO, BEAT, true);
        air.answered(NEAR, 2);
        air.answered(DEAF, 1);
        assert!(!air.hears(NEAR) && !air.hears(DEAF));
        air.probed(DEAF, 1);
        air.probed(NEAR, 7);
        assert_eq!(air.take_answers(), BTreeMap::from([(NEAR, 7)]));
        air.disconnect(NEAR);
        assert!(!air.knows(NEAR));
    }
}

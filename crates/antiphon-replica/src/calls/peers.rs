//! What is known about the other members: what they serve, how loaded and how near they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_core::wire::Incarnation;

#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<Incarnation, Peer>);

#[derive(Debug, Default)]
struct Peer {
    /// None: it has not said. A member that serves nothing says nothing.
    verbs: Option<BTreeSet<String>>,
    /// As it last told.
    load: u32,
    /// The lowest round trip seen, without the time that its handlers took.
    nearest: Option<Duration>,
}

impl Peers {
    pub(super) fn serves(&mut self, member: Incarnation, load: u32, verbs: &BTreeSet<&str>) {
        let peer = self.0.entry(member).or_default();
        peer.verbs = Some(verbs.iter().map(|verb| (*verb).to_owned()).collect());
        peer.load = load;
    }

    pub(super) fn answered(&mut self, member: Incarnation, load: u32, round_trip: Option<Duration>) {
        let peer = self.0.entry(member).or_default();
        peer.load = load;
        peer.nearest = round_trip.into_iter().chain(peer.nearest).min();
    }

    pub(super) fn gone(&mut self, member: Incarnation) {
        self.0.remove(&member);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether it said that it serves this verb.
    pub(super) fn does_serve(&self, member: Incarnation, verb: &str) -> bool {
        let verbs = self.0.get(&member).and_then(|peer| peer.verbs.as_ref());
        verbs.is_some_and(|verbs| verbs.contains(verb))
    }

    /// Its load and its distance; a member whose distance is not known yet is far.
    pub(super) fn cost(&self, member: Incarnation) -> (u32, Duration) {
        let peer = self.0.get(&member);
        let distance = peer.and_then(|peer| peer.nearest);
        (
            peer.map_or(0, |peer| peer.load),
            distance.unwrap_or(Duration::MAX),
        )
    }
}

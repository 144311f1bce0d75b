//! Frames that go through another member, because the direct path is dead (R20, [`crate::relay`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use antiphon_wire::frame::{self, Frame, Kind, MAX_RELAYED_BYTES, MAX_RELAYED_TO, OpenError};
use antiphon_wire::record::Record;
use antiphon_wire::{Incarnation, Wire};
use bytes::Bytes;

use super::Node;
use super::incoming::Origin;
use crate::{Class, Output, Time};

impl Node {
    /// Watches the paths to the members of this node's groups, in a wide view in which not all watch all.
    pub(super) fn watch_companions(&mut self, now: Time) {
        let mut companions = BTreeMap::new();
        for (peer, groups) in self.groups.companions() {
            self.reach(now, &[peer]);
            if let Some(addr) = self
                .channels
                .addr(peer)
                .filter(|_| self.membership.is_member(peer))
            {
                companions.insert(peer, (addr, groups));
            }
        }
        if planted!(NobodyWatchesInWideViews) {
            companions.clear();
        }
        let bystanders = match planted!(BystandersPassOnNothing) {
            true => Vec::new(),
            false => self.membership.neighbours(),
        };
        self.relay.watch_companions(now, companions, bystanders);
    }

    /// In a wide view, companions that are no neighbours get no heartbeat of this node. They are told what it
    /// hears when the neighbours get theirs.
    pub(super) fn beat_companions(&mut self, now: Time) {
        let beaten = std::mem::take(&mut self.beaten);
        if beaten.is_empty() || self.membership.hears_all() {
            return;
        }
        let others: Vec<Incarnation> = self
            .relay
            .watched()
            .filter(|peer| !beaten.contains(peer))
            .collect();
        for to in others {
            if let Some(addr) = self.channels.addr(to) {
                let report = self.relay.report(now);
                self.queue_life(to, addr, Record::Paths(report));
            }
        }
    }

    /// Whether this member may ask, or be asked, to have frames passed on.
    fn is_fellow(&self, peer: Incarnation) -> bool {
        self.relay.knows(peer) || !self.membership.hears_all() && self.membership.is_member(peer)
    }

    /// Sends a sealed frame to a member that passes it on to these.
    pub(super) fn ask_to_pass_on(
        &mut self,
        via: Incarnation,
        to: &[Incarnation],
        class: Class,
        frame: &Frame,
    ) {
        let Some(addr) = self
            .channels
            .addr(via)
            .filter(|_| frame.len() <= MAX_RELAYED_BYTES)
        else {
            self.counters.messages_dropped += 1;
            return;
        };
        let record = Record::Relay {
            to: to.to_vec(),
            frame: frame.to_bytes(),
        };
        self.put_around(addr, class, &record);
    }

    /// Seals a record with a frame in it, and sends it to this address and no further.
    fn put_around(&mut self, addr: SocketAddr, class: Class, record: &Record) {
        let kind = match class {
            Class::Control => Kind::Control,
            Class::Bulk => Kind::Bulk,
        };
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        let frame = self.codec.seal(kind, &encoded).into();
        let to = self.routes.to(addr);
        self.outputs.push_back(Output::Frame { to, class, frame });
    }

    /// A member asks this node to pass a frame on.
    pub(super) fn pass_on(&mut self, now: Time, origin: &Origin, to: &[Incarnation], frame: &Bytes) {
        let Some(sealer) = self.sealer_to_pass_on(origin, to, frame) else {
            self.counters.frames_not_passed_on += 1;
            return;
        };
        if planted!(PassOnNothing) {
            return;
        }
        // Each target once: a list that names one target often would multiply what its sender sends.
        for target in to.iter().copied().collect::<BTreeSet<Incarnation>>() {
            let apart = target != sealer && target != origin.sender && self.is_fellow(target);
            if apart {
                self.reach(now, &[target]);
            }
            let Some(addr) = self.channels.addr(target).filter(|_| apart) else {
                self.counters.frames_not_passed_on += 1;
                continue;
            };
            self.counters.frames_passed_on += 1;
            if planted!(PassOnThroughAnother) {
                self.transmit(&[target], origin.class(), &frame.clone().into());
                continue;
            }
            let record = Record::Relayed { frame: frame.clone() };
            self.put_around(addr, origin.class(), &record);
        }
    }

    /// The node that sealed a frame which this node is asked to pass on; `None` if that may not be asked. A
    /// member may ask, directly, for a bounded number of targets, and only for what it sealed itself or
    /// members hand on anyway. Otherwise one member could have another's old frames sent again.
    fn sealer_to_pass_on(&self, origin: &Origin, to: &[Incarnation], frame: &Bytes) -> Option<Incarnation> {
        // One hop: what came through another member goes nowhere from here.
        let may_ask = origin.shows_path() && self.is_fellow(origin.sender);
        if !may_ask || to.len() > MAX_RELAYED_TO || frame.len() > MAX_RELAYED_BYTES {
            return None;
        }
        let (kind, sealer) = frame::peek(frame).ok()?;
        let may_be_asked_for = match kind {
            Kind::Control | Kind::Bulk | Kind::Multicast => sealer == origin.sender,
            Kind::Chain => sealer == self.me || self.is_fellow(sealer),
            Kind::Lifeline | Kind::Probe => false,
        };
        may_be_asked_for.then_some(sealer)
    }

    /// A frame that the sender of this one was asked to pass on to here.
    pub(super) fn handle_passed_on(&mut self, now: Time, origin: &Origin, frame: Bytes) {
        let goes_alone = matches!(frame::peek(&frame), Ok((Kind::Lifeline | Kind::Probe, _)));
        if !origin.shows_path() || goes_alone || !self.is_fellow(origin.sender) {
            self.counters.frames_refused += 1;
            return;
        }
        // If its bytes are of no use, the member that sealed what is around it is not to blame: who damaged
        // them is not known. And the second copy of what goes both ways is nobody's fault.
        match self.handle_sealed(now, origin.from, frame, Some(origin.sender)) {
            Ok(()) | Err(OpenError::Replayed) => {}
            Err(_) => self.counters.frames_refused += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use antiphon_wire::Member;
    use antiphon_wire::frame::FrameCodec;

    use super::*;
    use crate::Config;

    const NEAR: Incarnation = Incarnation(1);
    const FAR: Incarnation = Incarnation(2);
    const OTHER: Incarnation = Incarnation(3);
    const STRANGER: Incarnation = Incarnation(9);

    fn addr(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 7400))
    }

    /// A node that hears three others.
    fn between() -> Node {
        let config = Config::new("c", "between", addr(7));
        let mut node = Node::new(config, [1, 2, 3, 4], Time::ZERO).unwrap();
        let members: Vec<Member> = [NEAR, FAR, OTHER]
            .into_iter()
            .map(|incarnation| Member {
                incarnation,
                name: format!("n{}", incarnation.0),
                addr: addr(incarnation.0 as u8),
                further: Vec::new(),
                metadata: BTreeMap::new(),
                weight: 1,
            })
            .collect();
        node.relay.watch(Time::ZERO, &members);
        for member in &members {
            node.channels.connect(Time::ZERO, member.incarnation, member.addr);
        }
        node
    }

    fn sealed(kind: Kind, by: Incarnation) -> Bytes {
        FrameCodec::new("c", None, by).seal(kind, b"whatever")
    }

    fn asked(sender: Incarnation, via: Option<Incarnation>, kind: Kind) -> Origin {
        let from = addr(1);
        Origin {
            from,
            sender,
            kind,
            via,
        }
    }

    /// How many frames come of it.
    fn comes_of(origin: &Origin, to: &[Incarnation], frame: &Bytes) -> u64 {
        let mut node = between();
        node.pass_on(Time::ZERO, origin, to, frame);
        node.counters.frames_passed_on
    }

    #[test]
    fn a_member_has_its_own_frames_passed_on_to_each_target_once() {
        let asks = asked(NEAR, None, Kind::Control);
        let own = sealed(Kind::Control, NEAR);
        assert_eq!(comes_of(&asks, &[FAR, OTHER], &own), 2);
        assert_eq!(comes_of(&asks, &[FAR; 32], &own), 1);
        assert_eq!(comes_of(&asks, &[FAR; 33], &own), 0, "more than may be asked for");
        assert_eq!(comes_of(&asks, &[NEAR, STRANGER], &own), 0, "back, and to nobody");
    }

    #[test]
    fn nobody_else_may_ask_and_for_nothing_else() {
        let own = sealed(Kind::Control, NEAR);
        let passed_on = asked(NEAR, Some(OTHER), Kind::Control);
        assert_eq!(comes_of(&passed_on, &[FAR], &own), 0, "two hops");
        let handed_on = asked(NEAR, None, Kind::Chain);
        assert_eq!(
            comes_of(&handed_on, &[FAR], &own),
            0,
            "it may have come by anybody"
        );
        let stranger = asked(STRANGER, None, Kind::Control);
        assert_eq!(comes_of(&stranger, &[FAR], &sealed(Kind::Control, STRANGER)), 0);
        let asks = asked(NEAR, None, Kind::Control);
        assert_eq!(
            comes_of(&asks, &[FAR], &sealed(Kind::Control, OTHER)),
            0,
            "another's words"
        );
        assert_eq!(comes_of(&asks, &[FAR], &sealed(Kind::Lifeline, NEAR)), 0);
        assert_eq!(comes_of(&asks, &[FAR], &sealed(Kind::Probe, NEAR)), 0);
        assert_eq!(comes_of(&asks, &[FAR], &Bytes::from_static(b"no frame")), 0);
        // A chain hands on what others sealed, as far as they are members.
        assert_eq!(comes_of(&asks, &[FAR], &sealed(Kind::Chain, OTHER)), 1);
        assert_eq!(comes_of(&asks, &[FAR], &sealed(Kind::Chain, STRANGER)), 0);
    }

    #[test]
    fn messages_alone_do_not_show_that_votes_arrive() {
        let mut node = between();
        let mut codec = FrameCodec::new("c", None, FAR);
        for beat in 1..=10u64 {
            let now = Time::from_micros(beat * 200_000);
            let bulk = codec.seal(Kind::Bulk, &[]);
            node.handle_sealed(now, addr(2), bulk, None).unwrap();
            node.relay.report(now);
        }
        let now = Time::from_micros(2_000_000);
        let deaf = |node: &Node| {
            let mut paths = node.paths(now).into_iter();
            paths.any(|path| path.peer == FAR && !path.hears_directly)
        };
        assert!(deaf(&node));
        let control = codec.seal(Kind::Control, &[]);
        node.handle_sealed(now, addr(2), control, None).unwrap();
        assert!(!deaf(&node));
    }

    #[test]
    fn its_own_frame_sent_back_shows_no_member() {
        let mut node = between();
        let own = FrameCodec::new("c", None, node.me).seal(Kind::Control, &[]);
        let came = node.handle_frame(Time::from_micros(1), addr(2), own);
        assert_eq!(came, Err(OpenError::Replayed));
    }
}

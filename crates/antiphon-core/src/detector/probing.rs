//! Probes: signs of life in datagrams of their own, where the usual way is slow (R21, G43).
//!
//! Where a third of all packets is lost, TCP is silent for seconds: it waits twice as long after each loss,
//! and what is lost holds up all that follows. A host behind such a path lives, but its heartbeats are later
//! than anybody waits. So a heartbeat that may be late also goes as a *probe*: alone in a datagram, which is
//! lost or arrives at once.
//!
//! ```text
//!   a                                                  b
//!   │ ◄───────────── heartbeat (TCP) ───────────────── │
//!   │ ◄─ ─ ─ ─ x                                       │   TCP waits for what was lost
//!   │ 1.5 heartbeats without one: a *asks*             │
//!   │ ──────── probe{asks}, each half heartbeat ─────► │   each has a's heartbeat in it
//!   │ ◄─────── probe, each half heartbeat ──────────── │   *answers*: as long as a asked within 3 heartbeats
//!   │ ◄───────────── heartbeat (TCP) ───────────────── │
//!   │ 5 heartbeats without a gap: a asks no more       │
//! ```
//! An idle cluster whose paths work well sends no probes. Half a heartbeat passes between two probes, so that
//! chance losses do not add up. Within the `suspect_after` of the profile `lan`, ten are sent after the first
//! gap, and to lose all ten at 30 % happens six times in a million.
//!
//! Heartbeats by UDP alone would be lost one by one, and would prove nothing of the connections that
//! everything else needs. Heartbeats by both, always, would double what a cluster at rest costs. Control as a
//! whole by UDP would need a second reliable protocol under the channels, with a pace of its own for each
//! path.
//!
//! # What a probe says
//! A probe says what a heartbeat says, and to the same members: suspicions, answers for the lease, the view.
//! It has the number of the last heartbeat, so that nobody counts it as a heartbeat that others missed. It
//! also says that its sender lives, exactly as a frame does that another member passed on (R20): *it says
//! nothing of the path*. Relays, channels, routes and edges know nothing of probes. If a member is heard by
//! nothing else, frames to it go through others, and its connections are made anew, as if it were silent.
//!
//! # Why a life by probes alone ends
//! A firewall may drop TCP for ever and pass UDP. Then nothing but heartbeats comes through, and a flush or a
//! view that needs the member waits for as long as nobody doubts it. Where others can pass frames on, the
//! member is heard through them. Where nobody can, probes count for [`ALONE`] × `suspect_after` after the
//! member was heard otherwise. That is longer than TCP is silent at 30 % loss in all but one of a thousand
//! times, since on control connections TCP tries six times before it waits twice as long. From then on the
//! member is silent for the detector, whatever it probes. All follows that follows from silence: a pair loses
//! its junior, with the cause `unreachable from`, and a wide view cuts the member.
//!
//! # When…
//! - *only one direction loses*: the member that hears little asks, and the other answers; a member that
//!   hears well asks for nothing;
//! - *the peer dies*: it is asked until it was silent for [`ALONE`] × `suspect_after`, or is removed before.
//!   It is doubted as soon as ever;
//! - *UDP does not pass, or the driver has no socket for it*: the probes are lost, and all is as without
//!   them;
//! - *both ask*: each probe asks and answers;
//! - *this node was stopped itself*: what it missed is given to every peer, as in the rest of the detector,
//!   and it asks nobody because of it;
//! - *this node serves its timers late*: it takes a heartbeat as missed so much later;
//! - *many are silent at once*: eight are asked, and another one when one of these is heard again. If all
//!   nodes share a machine that is too small for a moment, probes from all to all would keep it so.
//!
//! # Invariants
//! - A probe is taken from members of the installed view only. It is answered at the address by which the
//!   view knows the member, never where the probe came from.
//! - An answer does not ask: two members that hear each other fall silent, whichever asked first.
//! - At most one probe goes to each member each half heartbeat, and one at once to a member that begins to
//!   ask.

use std::time::Duration;

use antiphon_wire::Incarnation;

use super::Detector;
use super::asking::{Answering, State};
use crate::Time;

/// A member whose heartbeats are missed for this many halves of a heartbeat is asked for probes. One is due
/// within two halves.
const ASK_HALVES: u32 = 3;
/// At most this many members are asked at the same time. If more are silent, this node itself is late, or the
/// whole machine: the questions to many, and their answers, would make it later still.
const MOST_ASKED: usize = 8;
/// A member that asked is answered for this many heartbeats: twice this many of its probes may be lost.
const ANSWER_BEATS: u32 = 3;
/// Its probes show that a member lives for this many times `suspect_after` since it was heard otherwise.
pub(crate) const ALONE: u32 = 6;

impl Detector {
    /// A probe of that member came: it lives. True if a suspicion was withdrawn by it.
    pub(crate) fn heard_by_probe(&mut self, now: Time, peer: Incarnation) -> bool {
        let alone = self.suspect_after * ALONE;
        let counts =
            |watch: &super::Watch| now.since(watch.heard_otherwise) < alone || planted!(ProbesCountForEver);
        self.watches.get(&peer).is_some_and(counts) && self.lives(now, peer)
    }

    /// A heartbeat of that member came, and not as a probe.
    pub(crate) fn beat_heard(&mut self, now: Time, peer: Incarnation) {
        let (heartbeat, pause) = (self.heartbeat, self.pause());
        if let Some(watch) = self.watches.get_mut(&peer) {
            watch.asking.heard(now, heartbeat, pause);
        }
    }

    /// A member asks for probes.
    pub(crate) fn asked_for_probes(&mut self, now: Time, peer: Incarnation) {
        if self.members.contains(&peer) {
            let until = now + self.heartbeat * ANSWER_BEATS;
            let answering = self.answering.entry(peer);
            answering.or_insert(Answering { until, next: now }).until = until;
        }
    }

    /// After this pause a heartbeat is missed. What this node serves late it also hears late. The more a busy
    /// host asks, the less time it would have for the answers.
    fn pause(&self) -> Duration {
        self.heartbeat * ASK_HALVES / 2 + self.lag()
    }

    /// The members to which probes are to go now, and whether the probes ask for any.
    pub(crate) fn take_probes(&mut self, now: Time) -> Vec<(Incarnation, bool)> {
        let (heartbeat, pause, alone) = (self.heartbeat, self.pause(), self.suspect_after * ALONE);
        let mut due: Vec<(Incarnation, bool)> = Vec::new();
        let mut room = self.room_to_ask();
        for (peer, watch) in &mut self.watches {
            if !watch.asking.is_asked() && room == 0 {
                continue;
            }
            let useless = now.since(watch.heard_otherwise) >= alone && !planted!(ProbesCountForEver);
            let was_asked = watch.asking.is_asked();
            if watch.asking.is_due(now, heartbeat, pause, useless) {
                due.push((*peer, true));
                room -= usize::from(!was_asked);
            }
        }
        self.answering.retain(|_, answering| now < answering.until);
        for (peer, answering) in &mut self.answering {
            if answering.next <= now {
                answering.next = now + heartbeat / 2;
                // A member that is asked is answered by that.
                let asked = self.watches.get(peer).map(|watch| &watch.asking.state);
                if !matches!(asked, Some(State::Asked { .. })) {
                    due.push((*peer, false));
                }
            }
        }
        let asked = self.watches.values().filter(|watch| watch.asking.is_asked());
        let (asked, stranger) = (
            asked.count(),
            due.iter().find(|(peer, _)| !self.members.contains(peer)),
        );
        assert!(
            asked <= MOST_ASKED && stranger.is_none() && due.len() <= self.members.len() || planted!(),
            "detector: {asked} members are asked for probes, {} get one, and {stranger:?} is none",
            due.len()
        );
        if planted!(NeverProbe) {
            due.clear();
        }
        due
    }

    /// How many more members may be asked.
    fn room_to_ask(&self) -> usize {
        let asked = self.watches.values().filter(|watch| watch.asking.is_asked());
        MOST_ASKED.saturating_sub(asked.count())
    }

    /// When [`Detector::take_probes`] may find a member.
    pub(crate) fn next_probe(&self) -> Option<Time> {
        let pause = self.pause();
        let is_full = self.room_to_ask() == 0;
        let asking = self
            .watches
            .values()
            .filter(|watch| !is_full || watch.asking.is_asked());
        let asking = asking.filter_map(|watch| watch.asking.deadline(pause));
        let answering = self.answering.values().map(|answering| answering.next);
        asking.chain(answering).min()
    }

    /// Whether probes alone show that this member lives: nothing else of it came for three heartbeats.
    pub(crate) fn lives_by_probes(&self, now: Time, member: Incarnation) -> bool {
        self.watches.get(&member).is_some_and(|watch| {
            let otherwise = now.since(watch.heard_otherwise);
            otherwise > self.heartbeat * 3 && now.since(watch.last_heard) < otherwise
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{EngineKind, Profile};
    use antiphon_wire::Evidence;

    const ME: Incarnation = Incarnation(1);
    const PEER: Incarnation = Incarnation(2);

    fn at(ms: u64) -> Time {
        Time::from_micros(1_000_000 + ms * 1000)
    }

    /// Heartbeats of 200 ms, doubts after 1500.
    fn detector() -> Detector {
        let mut detector = Detector::new(ME, &Profile::lan(), EngineKind::Coordinator);
        detector.watch(at(0), [ME, PEER].into_iter(), None);
        detector
    }

    /// Asks the detector each 10 ms for so long, and returns when it wanted to send.
    fn sent(detector: &mut Detector, ms: std::ops::Range<u64>) -> Vec<(u64, bool)> {
        let mut sent = Vec::new();
        for ms in ms.step_by(10) {
            detector.awake(at(ms));
            sent.extend(
                detector
                    .take_probes(at(ms))
                    .into_iter()
                    .map(|(_, asks)| (ms, asks)),
            );
        }
        sent
    }

    #[test]
    fn whoever_is_heard_is_not_asked() {
        let mut detector = detector();
        for beat in 0..50 {
            detector.beat_heard(at(beat * 200), PEER);
            assert_eq!(sent(&mut detector, beat * 200..beat * 200 + 200), []);
        }
    }

    #[test]
    fn a_late_heartbeat_is_asked_for_twice_a_heartbeat_until_they_come_steadily() {
        let mut detector = detector();
        let asked = sent(&mut detector, 0..1000);
        assert_eq!(asked, [300, 400, 500, 600, 700, 800, 900].map(|ms| (ms, true)));
        detector.heard(at(1000), PEER);
        let mut last = 0;
        for beat in 0..20 {
            let ms = 1000 + beat * 200;
            detector.beat_heard(at(ms), PEER);
            for (at, _) in sent(&mut detector, ms..ms + 200) {
                last = at;
            }
        }
        assert!((1900..2100).contains(&last), "asked last at {last}");
    }

    #[test]
    fn of_many_that_are_silent_eight_are_asked_and_another_one_when_one_is_heard_again() {
        let members = 2..=30;
        let mut detector = Detector::new(ME, &Profile::lan(), EngineKind::Coordinator);
        detector.watch(at(0), members.clone().map(Incarnation).chain([ME]), None);
        let mut asked = BTreeSet::new();
        for ms in (0..1000).step_by(10) {
            asked.extend(detector.take_probes(at(ms)).into_iter().map(|(member, _)| member));
            assert!(detector.next_probe().is_some_and(|next| next > at(ms)), "at {ms}");
        }
        assert_eq!(asked.len(), MOST_ASKED);
        // It comes steadily again: that takes as long as ever.
        let back = *asked.first().unwrap();
        for ms in (1000..3000).step_by(10) {
            if ms % 200 == 0 {
                detector.heard(at(ms), back);
                detector.beat_heard(at(ms), back);
            }
            asked.extend(detector.take_probes(at(ms)).into_iter().map(|(member, _)| member));
        }
        assert_eq!(asked.len(), MOST_ASKED + 1);
    }

    #[test]
    fn who_serves_its_timers_late_asks_so_much_later() {
        let mut detector = detector();
        detector.served(at(0), at(0));
        detector.served(at(150), at(40));
        assert_eq!(detector.next_probe(), Some(at(410)));
        let asked = sent(&mut detector, 150..600);
        assert_eq!(asked, [410, 510].map(|ms| (ms, true)));
    }

    #[test]
    fn whoever_asks_is_answered_for_a_while_and_not_asked() {
        let mut detector = detector();
        detector.asked_for_probes(at(0), PEER);
        detector.asked_for_probes(at(50), PEER);
        for beat in 0..10 {
            detector.beat_heard(at(beat * 200), PEER);
            let answers = sent(&mut detector, beat * 200..beat * 200 + 200);
            let expected = match beat {
                0 => vec![(0, false), (100, false)],
                1 | 2 => vec![(beat * 200, false), (beat * 200 + 100, false)],
                3 => vec![(600, false)],
                _ => Vec::new(),
            };
            assert_eq!(answers, expected, "in heartbeat {beat}");
        }
        detector.asked_for_probes(at(2000), Incarnation(9));
        assert_eq!(sent(&mut detector, 2000..2050), [], "no member");
    }

    #[test]
    fn probes_alone_show_life_for_a_while_and_then_nothing() {
        let mut detector = detector();
        let mut suspected = None;
        for ms in (0..20_000).step_by(100) {
            detector.awake(at(ms));
            let withdrawn = detector.heard_by_probe(at(ms), PEER);
            assert!(
                !withdrawn || suspected.is_none(),
                "a probe withdrew a doubt at {ms}"
            );
            detector.tick(at(ms));
            if detector.suspects(PEER) {
                suspected.get_or_insert(ms);
            }
        }
        // 6 × 1500 ms, and then 1500 ms of what is silence now.
        assert_eq!(suspected, Some(10_400));
        let doubt = detector.doubt(ME, PEER).expect("it is doubted");
        assert!(matches!(doubt.evidence, Evidence::Silent { .. }));
        assert!(detector.heard(at(20_000), PEER), "a frame withdraws it");
        assert!(!detector.suspects(PEER));
    }

    #[test]
    fn a_probe_withdraws_a_doubt_that_silence_made() {
        let mut detector = detector();
        detector.tick(at(1600));
        assert!(detector.suspects(PEER));
        assert!(detector.heard_by_probe(at(1700), PEER));
        assert!(!detector.suspects(PEER));
        assert!(detector.lives_by_probes(at(1700), PEER));
        detector.heard(at(1800), PEER);
        assert!(!detector.lives_by_probes(at(1900), PEER));
    }

    #[test]
    fn who_is_silent_for_good_is_not_asked_for_ever() {
        let mut detector = detector();
        let asked = sent(&mut detector, 0..30_000);
        assert_eq!(asked.len(), 87);
        assert!(asked.iter().all(|(ms, asks)| *asks && *ms < 9_000));
        // What was missed for so long is no reason to ask once it is over.
        detector.heard(at(30_000), PEER);
        detector.beat_heard(at(30_000), PEER);
        assert_eq!(sent(&mut detector, 30_000..30_200), []);
    }

    #[test]
    fn what_this_node_missed_by_itself_makes_it_ask_nobody() {
        let mut detector = detector();
        detector.beat_heard(at(200), PEER);
        sent(&mut detector, 200..300);
        detector.awake(at(5_000));
        assert_eq!(detector.take_probes(at(5_000)), []);
    }
}

//! How heartbeats renew leases, where all members are neighbours: which of them are answered, and how the
//! answers are counted.

use std::collections::BTreeSet;
use std::time::Duration;

use antiphon_wire::membership::{Heartbeat, LeaseNote};
use antiphon_wire::{Incarnation, ViewId};

use crate::Time;
use crate::config::LONGEST_LEASE;
use crate::membership::agree::engine::Engine;
use crate::membership::agree::slot::Value;
use crate::membership::lease::{Lease, Noted, RENEWS_BEFORE};

/// This many of this node's own heartbeats are remembered: those of a lease, and many more.
const REMEMBERED: usize = 128;
/// The answers are counted again at most this often in a lease.
const COUNTS: u32 = 16;
/// A member that asks is answered at once, but no more often than so many times in a heartbeat. If it goes on
/// asking, each pause before an answer is twice as long, and never longer than so many heartbeats. A member
/// that is so late that all answers are too old when it reads them asks with each heartbeat; to read more
/// answers makes it later still.
const ANSWERS_PER_BEAT: u32 = 4;
const LONGEST_PAUSE_BEATS: u32 = 16;
/// A heartbeat names at most so many members that are about to be removed.
const MOST_NAMED: usize = 64;

/// What a member's heartbeat says of leases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beat<'a> {
    pub(crate) from: Incarnation,
    pub(crate) round: u64,
    pub(crate) view: ViewId,
    pub(crate) said: &'a LeaseNote,
    /// Whether the member hears this node. If it does not, it could not hear an answer either, so nothing is
    /// held back for it.
    pub(crate) hears_this: bool,
    /// Whether this node takes the member for the leader.
    pub(crate) leads: bool,
}

impl Lease {
    /// A heartbeat leaves with this number.
    pub(crate) fn send(&mut self, now: Time, round: u64) {
        if self.sent.len() >= REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((round, now));
        assert!(
            self.sent.len() <= REMEMBERED,
            "R7: {} heartbeats are remembered",
            self.sent.len()
        );
    }

    /// What this node's heartbeat says of leases to all members; `None` where ticks renew leases.
    pub(crate) fn says(&self, now: Time, primary: bool) -> Option<LeaseNote> {
        (!self.by_rounds).then(|| LeaseNote {
            to: self.me,
            length_ms: u32::try_from(self.length().as_millis()).unwrap_or(u32::MAX),
            answers: 0,
            asks: primary && self.is_over(now),
            voted: self.voted.is_some(),
            withheld: self.withheld(now).take(MOST_NAMED).collect(),
        })
    }

    /// Fills in which heartbeat of the receiver this one answers. It answers only the receiver's: all members
    /// number theirs alike.
    pub(crate) fn answer_in(&self, heartbeat: &mut Heartbeat, to: Incarnation) {
        if let Some(lease) = &mut heartbeat.lease {
            lease.to = to;
            lease.answers = self.answer_to(to);
        }
    }

    /// The number of the heartbeat of a member that this node has noted in this view; 0 if none.
    fn answer_to(&self, member: Incarnation) -> u64 {
        let noted = self.noted.get(&member);
        let noted = noted.filter(|noted| noted.view == self.view.primary_id());
        noted.map_or(0, |noted| noted.round)
    }

    /// Takes what a member's heartbeat says of leases. Returns whether the member is to be answered at once.
    pub(crate) fn hear(&mut self, now: Time, beat: Beat<'_>) -> bool {
        let Beat { from, said, .. } = beat;
        // A member must not count what another member was answered, however it came there.
        if self.by_rounds || said.to != self.me && !planted!(AnswersAreAnybodys) {
            return false;
        }
        if beat.hears_this {
            self.note(now, &beat);
        }
        if beat.view != self.view.primary_id() {
            return false;
        }
        self.hear_answer(from, said.answers);
        if said.voted {
            self.voters.entry(from).or_insert(now);
        } else {
            self.voters.remove(&from);
        }
        // The leader is about to remove these members, and will ask others to vote them out.
        if beat.leads {
            self.withhold_for(now, from, &said.withheld);
        }
        self.answers_at_once(now, &beat)
    }

    /// Notes a member's heartbeat, unless nothing of it may be answered now.
    fn note(&mut self, now: Time, beat: &Beat<'_>) {
        let Beat {
            from, round, view, ..
        } = *beat;
        let length = Duration::from_millis(u64::from(beat.said.length_ms)).min(LONGEST_LEASE);
        self.lengths.insert(from, length);
        let voted = self.voted.is_some() && !planted!(AnswerAfterVote);
        let withheld = self.is_withheld(now, from);
        let noted_later = self.noted.get(&from).is_some_and(|noted| view < noted.view);
        if voted || withheld || noted_later {
            return;
        }
        assert!(
            self.voted.is_none() || planted!(),
            "R7: heartbeat {round} of {from:?} is noted after a vote, {:?}",
            self.voted
        );
        let came = now;
        self.noted.insert(from, Noted { round, view, came });
    }

    /// A member of the same view answered this heartbeat.
    fn hear_answer(&mut self, from: Incarnation, round: u64) {
        let sent = self.sent.iter().rev().find(|(sent, _)| *sent == round);
        if let Some((_, at)) = sent {
            let latest = self.answered.entry(from).or_insert(Time::ZERO);
            self.fresh |= *at > *latest;
            *latest = (*latest).max(*at);
        }
    }

    /// Whether a member whose heartbeat was noted asks for an answer, and was not given one just now.
    fn answers_at_once(&mut self, now: Time, beat: &Beat<'_>) -> bool {
        if !beat.said.asks {
            self.answered_at_once.remove(&beat.from);
            return false;
        }
        let before = self.answered_at_once.get(&beat.from);
        let is_due = before.is_none_or(|(last, pause)| now.since(*last) >= *pause);
        if self.answer_to(beat.from) != beat.round || !is_due {
            return false;
        }
        let first = self.heartbeat / ANSWERS_PER_BEAT;
        let pause = before.map_or(first, |(_, pause)| *pause * 2);
        let pause = pause.min(self.heartbeat * LONGEST_PAUSE_BEATS);
        self.answered_at_once.insert(beat.from, (now, pause));
        true
    }

    /// Counts the answers again, well before the last count is over: a caller in between must not find that
    /// the lease is over.
    pub(super) fn renew(&mut self, now: Time, engine: &Engine) {
        let Some(until) = self.until().filter(|_| !self.by_rounds) else {
            return;
        };
        let length = self.length();
        let soon = until <= now + length / 2;
        let due = until <= now + length / RENEWS_BEFORE && now >= self.count_again;
        if soon && (self.fresh || due) {
            self.count(now, &engine.dead_without_vote());
        }
    }

    fn count(&mut self, now: Time, dead: &BTreeSet<Incarnation>) {
        let own = match self.voted {
            None => Some(now),
            Some((_, true)) if planted!(AnswerAfterVote) => Some(now),
            Some((since, keeps)) => keeps.then_some(since),
        };
        let own = own.map(|at| (at, self.me));
        let mut answers: Vec<(Time, Incarnation)> = self
            .answered
            .iter()
            .filter(|(member, _)| self.rings.contains(**member) && !dead.contains(member))
            .map(|(member, at)| (*at, *member))
            .chain(own)
            .collect();
        self.fresh = false;
        self.count_again = now + self.length() / COUNTS;
        answers.sort_unstable_by(|one, other| other.cmp(one));
        let voters = self.view.voters();
        let mut who = BTreeSet::new();
        for (at, member) in answers {
            who.insert(member);
            if voters.is_quorum(&who, dead) {
                assert!(
                    self.voted.is_none_or(|(_, keeps)| keeps) || !who.contains(&self.me) || planted!(),
                    "R7: {:?} counts itself after a vote for a view without it",
                    self.me
                );
                self.since = self.since.max(Some(at));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;
    use crate::Config;
    use crate::membership::monitor::rings::{RINGS, Rings};
    use crate::membership::testing::view_of;

    /// The lease of one of three members: the first one leads, and the last one may have to go.
    struct Between {
        now: Time,
        leader: Incarnation,
        last: Incarnation,
        lease: Lease,
    }

    impl Between {
        fn new() -> Self {
            let view = Arc::new(view_of(3));
            let rings = Arc::new(Rings::new(&view, RINGS));
            let [leader, me, last] = [0, 1, 2].map(|rank: usize| view.members[rank].incarnation);
            let config = Config::new("test", "n", SocketAddr::from(([127, 0, 0, 1], 1)));
            let now = Time::ZERO + Duration::from_secs(1);
            let lease = Lease::new(&config, me, now, (&view, &rings), false);
            Self {
                now,
                leader,
                last,
                lease,
            }
        }

        /// A heartbeat comes, 200 ms after what came before.
        fn hear(&mut self, from: Incarnation, round: u64, withheld: &[Incarnation]) {
            self.now = self.now + Duration::from_millis(200);
            let said = LeaseNote {
                to: self.lease.me,
                length_ms: 1300,
                answers: 0,
                asks: false,
                voted: false,
                withheld: withheld.to_vec(),
            };
            let beat = Beat {
                from,
                round,
                view: self.lease.view.primary_id(),
                said: &said,
                hears_this: true,
                leads: from == self.leader,
            };
            self.lease.hear(self.now, beat);
        }

        /// The last member sends a heartbeat with this number. Which one of its heartbeats is answered?
        fn answers(&mut self, round: u64) -> u64 {
            self.hear(self.last, round, &[]);
            self.lease.answer_to(self.last)
        }
    }

    #[test]
    fn a_member_that_its_leader_removes_no_more_is_answered_again() {
        let mut between = Between::new();
        let (leader, last) = (between.leader, between.last);
        between.hear(leader, 1, &[last]);
        assert_eq!(between.answers(6), 0);
        between.hear(leader, 2, &[]);
        assert_eq!(between.answers(7), 7);
    }

    #[test]
    fn a_member_that_this_node_removes_no_more_is_answered_again_unless_its_leader_removes_it() {
        let mut between = Between::new();
        let (leader, last) = (between.leader, between.last);
        between.lease.withhold(between.now, &[last]);
        between.hear(leader, 1, &[last]);
        between.hear(leader, 2, &[]);
        assert_eq!(between.answers(6), 0, "this node still removes it");
        between.lease.release(&[last]);
        assert_eq!(between.answers(7), 7);
        between.hear(leader, 3, &[last]);
        between.lease.release(&[last]);
        assert_eq!(between.answers(8), 7, "the leader removes it");
    }
}

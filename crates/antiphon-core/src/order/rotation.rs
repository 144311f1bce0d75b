//! The rotation: the places of the order are dealt out in advance, so no member has to number anything.
//!
//! Each sender's log is cut into **slots** of [`SLOT`] numbers, counted from the view's start. Slot r of the
//! member with rank s has the place (r, s), and every member walks the places one after the other:
//!
//! ```text
//!            round 0         round 1         round 2
//!  rank 0   │ a b c ∅∅∅∅∅ │ d e f g ∅∅∅ │ ∅∅∅∅∅∅∅∅ │        the walk:  (0,0) (0,1) (0,2)  (1,0) (1,1) …
//!  rank 1   │ ∅∅∅∅∅∅∅∅∅∅∅ │ p ∅∅∅∅∅∅∅∅ │             delivers:   a b c   x y      d e f g   p   z
//!  rank 2   │ x y ∅∅∅∅∅∅∅ │ z ∅∅∅∅∅∅∅∅ │
//! ```
//! Messages carry nothing for the order, and no order travels. A message is delivered when its slot is
//! reached. That is one delay after it was sent if all others have something in the rounds before. It is two
//! delays if one of them first has to hear of the message and send nulls.
//!
//! # Nulls (∅)
//! The walk waits for every slot. So a member with nothing to send fills its own slots with **nulls**:
//! numbers that it gives up. At the end of a receive batch a member
//! - ends the slot that it has begun: a member packs whole slots into a frame, so no other member waits for
//!   it in the middle of one;
//! - fills its slots up to the last **message** that it holds of any other, as far as that message waits for
//!   them.
//!
//! Nulls follow messages, never other nulls: if no member sends messages, nothing is sent. A run of nulls is
//! a record of a few bytes, whatever its length. It rides on the member's own messages where there are any.
//!
//! **Nulls are in the log**, as entries with a count and no bytes (`group/log.rs`), and have numbers like
//! messages. So the code for messages also acknowledges them, asks for them, supplies them from any survivor,
//! hands them on in chains and puts them into the cut. Three parts know them: the sender that makes them,
//! this walk that passes over them, and the log, which leaves them out of the numbers that applications see.
//! They cost no credit. There are never two runs between two blocks of messages, so their memory is bounded
//! with the messages, and a silent member's nulls take one entry.
//!
//! A member that lies can give up any count of numbers in a few bytes. So the walk passes rounds without any
//! message at once, and numbers that no message can have led to are refused.
//!
//! # Why slots, and not single messages
//! With one message per place, delivery would change the sender at each message, and a frame of a thousand
//! would be taken apart a thousand times. A slot has room for what a member usually packs at once, and
//! filling up a slot costs nothing. A slot is only numbers: whatever pieces a log comes in, all members cut
//! it at the same places.
//!
//! # At the cut (R16)
//! The cut is a prefix per sender, in numbers, nulls included; the order needs no part of its own. The walk
//! goes on to the first slot that is not whole in the cut. Behind that slot, survivors' messages are
//! delivered by (rank, number). Messages of the dead are void, also where they are held
//! ([`Engine::tail`](super::Engine::tail)).
//! - *Every survivor has delivered a beginning of that walk*: it delivered what it held, and the cut has all
//!   that.
//! - *No survivor has delivered what is void*: it lies behind a slot that no survivor holds, and no walk
//!   passes that slot.
//! - *A cause is never behind its effect* (G20): a member's next message goes into its first slot that is not
//!   filled, and its own walk has not passed that one. So what it had delivered is at earlier places. A
//!   survivor's message behind the cut's walk has all its causes in the walk or among its own messages. A
//!   message of a dead member may have causes that died with it, so it is dropped.
//! - *Nulls behind the walk* are passed over. Survivors' numbers stay without gaps, and the next view begins
//!   with numbers of messages alone. For that reason reports say how many of the numbers held are nulls.
//! # Which member dies when
//! | which | when | then |
//! |---|---|---|
//! | a silent member | before its nulls are sent | all wait at its slot, until the node view without it; the flush delivers the rest |
//! | a silent member | when one survivor has its nulls | that survivor may have delivered behind them; they are in the cut, and all do the same |
//! | a sender | in the middle of a slot | the cut ends there: what is held of the slot is delivered, what others have behind it is the tail |
//! | the leader, or any other | | like every member: no member is special here |
//! | a joiner | | it begins with a view, at round 0 like all |
//!
//! # What it costs
//! The walk waits for all members: the slowest member's receive batch decides when it goes on, and a member
//! that hangs stops all delivery until it is removed. (Any total order waits for its maker; here all members
//! are makers.) With n members and one sender, each of its batches is answered with n−1 runs of nulls to n−1
//! members each.
//!
//! # Invariants
//! - Places depend on numbers alone: not on pieces, on times, or on what was delivered.
//! - A member makes nulls only for slots that a message waits for, and for the rest of a slot with messages.
//! - Nothing is delivered at a place before everything at earlier places was delivered or passed over (G21).

use antiphon_wire::Block;

use crate::group::log::{BLOCK_OVERHEAD, Log};
use crate::order::interface::TotalOrder;
use crate::order::walk::Walk;

/// How many numbers a slot has.
const SLOT: u64 = 256;
/// The longest run of nulls.
const MAX_NULLS: u64 = 1 << 30;

/// How far the walk has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rotation {
    me: usize,
    /// Per rank, the first number of this view.
    start: Vec<u64>,
    /// The rank whose slot is next, and how much of the slot is left.
    turn: usize,
    left: u64,
    /// How many numbers of all logs the walk has passed.
    passed: u64,
    /// The most numbers that messages of a sender reach beyond what is delivered here.
    ///
    /// A member fills its slots up to the last message that it holds, so a message comes into a round only if
    /// each round before it has one. Those that this member has not delivered are in their senders' windows,
    /// where each takes 129 bytes or more. So the last one is at most members x window / 129 rounds ahead.
    /// This is twice that.
    most: u64,
}

impl Rotation {
    /// `start` is the first number per rank.
    pub(super) fn new(start: &[u64], me: usize, window: usize) -> Self {
        let rounds = start.len() * (2 * window / BLOCK_OVERHEAD + 4);
        Self {
            me,
            start: start.to_vec(),
            turn: 0,
            left: SLOT,
            passed: 0,
            most: rounds as u64 * SLOT,
        }
    }

    /// The number that this member's log must reach so that no other member waits for it.
    fn wanted(&self, me: usize, logs: &[Log]) -> u64 {
        let slots = |rank: usize, end: u64| (end - self.start[rank]).div_ceil(SLOT);
        let own = slots(me, logs[me].next());
        let others = (0..logs.len()).filter(|rank| *rank != me).map(|rank| {
            let reached = slots(rank, logs[rank].messages_end());
            // In the round of the last message, the walk waits only for members before its sender.
            if me < rank {
                reached
            } else {
                reached.saturating_sub(1)
            }
        });
        self.start[me] + others.max().unwrap_or(0).max(own) * SLOT
    }

    /// The rest of the walk inside a cut; `delivered` is moved along. Rounds without any message are one.
    fn inside(&self, logs: &[Log], cut: &[u64], delivered: &mut [u64]) -> Vec<(usize, u64)> {
        let mut walk = Vec::new();
        let (mut turn, mut left) = (self.turn, self.left);
        loop {
            if (turn, left) == (0, SLOT) {
                let whole = cut.iter().zip(&*delivered);
                let whole = whole.map(|(cut, at)| (cut + 1).saturating_sub(*at) / SLOT).min();
                let silent = silent_rounds(logs, delivered.iter().copied()).min(whole.unwrap_or(0)) * SLOT;
                if silent > 0 {
                    walk.extend((0..cut.len()).map(|rank| (rank, silent)));
                    delivered.iter_mut().for_each(|at| *at += silent);
                }
            }
            let in_cut = (cut[turn] + 1).saturating_sub(delivered[turn]).min(left);
            if in_cut > 0 {
                walk.push((turn, in_cut));
                delivered[turn] += in_cut;
            }
            if in_cut < left {
                return walk;
            }
            (turn, left) = ((turn + 1) % cut.len(), SLOT);
        }
    }
}

/// How many rounds from these numbers on have no message of any member.
fn silent_rounds(logs: &[Log], from: impl Iterator<Item = u64>) -> u64 {
    let nulls = |(log, from): (&Log, u64)| {
        let front = log.slice(from, u64::MAX, 0);
        front
            .filter(|(_, block)| block.is_nulls())
            .map_or(0, |(_, block)| block.count())
    };
    logs.iter().zip(from).map(nulls).min().unwrap_or(0) / SLOT
}

impl Walk for Rotation {
    fn next(&self, logs: &[Log], safe_until: u64) -> Option<(usize, u64)> {
        let mut turn = self.turn;
        if planted!(SkipSilentSlot) && logs[turn].undelivered() == 0 {
            turn = logs.iter().position(|log| log.undelivered() > 0)?;
        }
        let mut count = logs[turn].undelivered().min(self.left);
        if logs[turn].front_is_safe() {
            count = count.min(safe_until.saturating_sub(self.passed));
        }
        (count > 0).then_some((turn, count))
    }

    fn took(&mut self, count: u64) {
        assert!(
            count <= self.left || planted!(),
            "G21: {count} delivered in the slot of {}, which has {} left",
            self.turn,
            self.left
        );
        self.passed += count;
        self.left = self.left.saturating_sub(count);
        if self.left == 0 {
            self.left = SLOT;
            self.turn = (self.turn + 1) % self.start.len();
        }
    }

    fn pass_silence(&mut self, logs: &mut [Log]) {
        if (self.turn, self.left) != (0, SLOT) || planted!(SkipSilentSlot) {
            return;
        }
        let silent = silent_rounds(logs, logs.iter().map(Log::delivered)) * SLOT;
        for log in logs {
            let passed = log.deliver(silent);
            self.passed += passed.map_or(0, |(_, nulls)| nulls.count());
        }
    }

    fn waits_for_rows(&self, logs: &[Log], safe_until: u64) -> Option<u64> {
        (logs[self.turn].front_is_safe() && safe_until <= self.passed).then_some(self.passed)
    }

    fn placed(&self, logs: &[Log]) -> (u64, Vec<u64>) {
        let held: Vec<u64> = logs.iter().map(|log| log.next() - 1).collect();
        let mut covered: Vec<u64> = logs.iter().map(Log::delivered).collect();
        let walk = self.inside(logs, &held, &mut covered);
        let ahead: u64 = walk.iter().map(|(_, count)| count).sum();
        (self.passed + ahead, covered)
    }

    fn rest(&self, logs: &[Log], cut: &[u64], _ordered: u64, delivered: &mut [u64]) -> Vec<(usize, u64)> {
        self.inside(logs, cut, delivered)
    }
}

impl TotalOrder for Rotation {
    type Walk = Self;

    fn walk(&self) -> &Self {
        self
    }

    fn walk_mut(&mut self) -> &mut Self {
        self
    }

    fn takes_nulls(&self) -> bool {
        true
    }

    /// Nulls may reach further than messages. Another member may have more from one that lies than this one,
    /// and it answers with nulls of its own. Without these the walk here would not come to where it is.
    fn may_reach(&self, log: &Log, end: u64, nulls: bool) -> bool {
        let most = if nulls { 3 * self.most } else { self.most };
        end.saturating_sub(log.delivered()) <= most
    }

    /// Gives up the numbers that others wait for.
    fn end_batch(&mut self, logs: &mut [Log]) -> bool {
        if logs.len() == 1 {
            return false;
        }
        let wanted = self.wanted(self.me, logs);
        let log = &mut logs[self.me];
        let before = log.next();
        while log.next() < wanted {
            log.append(Block::nulls((wanted - log.next()).min(MAX_NULLS) as u32));
        }
        log.next() > before
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::{Block, BlockBuilder, Level};

    use super::*;

    fn messages(count: u64) -> Block {
        let mut builder = BlockBuilder::default();
        (0..count).for_each(|_| builder.push(b""));
        builder.finish()
    }

    fn logs(members: usize) -> (Rotation, Vec<Log>) {
        let start: Vec<u64> = (0..members as u64).map(|rank| 1 + rank * 10).collect();
        let logs = start.iter().map(|start| Log::new(*start)).collect();
        (Rotation::new(&start, 0, 1 << 16), logs)
    }

    fn fill(rotation: &Rotation, rank: usize, logs: &mut [Log]) -> u64 {
        let missing = rotation.wanted(rank, logs) - logs[rank].next();
        if missing > 0 {
            logs[rank].append(Block::nulls(missing as u32));
        }
        missing
    }

    /// What the walk delivers, as (rank, messages), and what it passes over left out.
    fn deliver(rotation: &mut Rotation, logs: &mut [Log]) -> Vec<(usize, u64)> {
        let mut seen = Vec::new();
        while let Some((rank, count)) = rotation.next(logs, 0) {
            let (_, block) = logs[rank].deliver(count).unwrap();
            rotation.took(block.count());
            if block.is_nulls() {
                rotation.pass_silence(logs);
            } else {
                seen.push((rank, block.count()));
            }
        }
        seen
    }

    #[test]
    fn nulls_are_made_for_messages_and_never_for_nulls() {
        let (mut rotation, mut logs) = logs(3);
        for rank in 0..3 {
            assert_eq!(fill(&rotation, rank, &mut logs), 0, "nobody has sent anything");
        }
        logs[1].append(messages(1));
        assert_eq!(
            fill(&rotation, 1, &mut logs),
            SLOT - 1,
            "the rest of its own slot"
        );
        assert_eq!(fill(&rotation, 0, &mut logs), SLOT, "it comes first in the round");
        assert_eq!(fill(&rotation, 2, &mut logs), 0, "it comes behind the message");
        assert_eq!(deliver(&mut rotation, &mut logs), [(1, 1)]);
        for rank in 0..3 {
            assert_eq!(fill(&rotation, rank, &mut logs), 0, "all were heard");
        }
    }

    #[test]
    fn a_long_burst_costs_the_silent_one_run_and_is_delivered_in_slots() {
        let (mut rotation, mut logs) = logs(2);
        logs[0].append(messages(600));
        fill(&rotation, 0, &mut logs);
        assert_eq!(deliver(&mut rotation, &mut logs), [(0, 256)]);
        assert_eq!(fill(&rotation, 1, &mut logs), 2 * SLOT);
        assert_eq!(deliver(&mut rotation, &mut logs), [(0, 256), (0, 88)]);
        logs[1].append(messages(300));
        fill(&rotation, 1, &mut logs);
        assert_eq!(
            fill(&rotation, 0, &mut logs),
            SLOT,
            "three rounds are filled, the last message is in the fourth"
        );
        assert_eq!(deliver(&mut rotation, &mut logs), [(1, 256), (1, 44)]);
    }

    #[test]
    fn the_walk_inside_a_cut_ends_at_the_first_slot_that_is_not_whole() {
        let (mut rotation, mut logs) = logs(3);
        logs[0].append(messages(256));
        logs[1].append(messages(256));
        assert_eq!(deliver(&mut rotation, &mut logs), [(0, 256), (1, 256)]);
        let mut delivered = [257, 267, 21];
        // The last one left 10 numbers of its slot; the others have more behind it.
        let walk = rotation.inside(&logs, &[400, 600, 30], &mut delivered);
        assert_eq!(walk, [(2, 10)]);
        assert_eq!(delivered, [257, 267, 31]);
        // It left all of it: the walk ends in the first one's next.
        let walk = rotation.inside(&logs, &[400, 600, 276], &mut [257, 267, 21]);
        assert_eq!(walk, [(2, 256), (0, 144)]);
        assert_eq!(rotation.inside(&logs, &[256, 266, 20], &mut [257, 267, 21]), []);
    }

    #[test]
    fn however_many_rounds_have_no_message_they_are_passed_at_once() {
        let (mut rotation, mut logs) = logs(3);
        logs[1].append(messages(1).with_level(Level::Safe));
        let rounds = 1 << 22;
        for (rank, more) in [(0, 0), (1, SLOT - 1), (2, 0)] {
            logs[rank].append(Block::nulls((rounds * SLOT + more) as u32));
        }
        logs[1].append(messages(2));
        for rank in 0..3 {
            fill(&rotation, rank, &mut logs);
        }
        let cut: Vec<u64> = logs.iter().map(|log| log.next() - 1).collect();
        let mut delivered: Vec<u64> = logs.iter().map(Log::delivered).collect();
        let walk = rotation.inside(&logs, &cut, &mut delivered);
        assert!(walk.len() < 20, "{} steps", walk.len());

        // The walk is the same, a step at a time.
        let mut steps = 0;
        while let Some((rank, count)) = rotation.next(&logs, u64::MAX) {
            let (_, block) = logs[rank].deliver(count).unwrap();
            rotation.took(block.count());
            rotation.pass_silence(&mut logs);
            steps += 1;
        }
        assert!(steps < 20, "{steps} steps");
        assert_eq!(logs.iter().map(Log::delivered).collect::<Vec<_>>(), delivered);
        assert_eq!(logs[1].delivered_messages(), 11 + 3);
        assert_eq!(rotation.passed, walk.iter().map(|(_, count)| count).sum::<u64>());
    }
}

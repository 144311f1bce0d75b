//! Order: which held message is delivered next.
//!
//! Every member holds every sender's log in that sender's order; an engine decides how the logs are
//! interleaved. It is told what is held and what the others say about the order, and answers with the rank
//! whose next message may be delivered. It belongs to one group view: the next view begins with a fresh
//! engine.
//!
//! - [`Engine::Unordered`]: any message that is here, whatever is missing before it.
//! - [`Engine::Scoped`]: any message that is here, if the message before it in its scope was delivered; see
//!   `group/log/scopes.rs`.
//! - [`Engine::Fifo`]: any message, if all messages of its sender before it are held. There is nothing to
//!   agree on.
//! - [`Engine::Sequencer`]: the view's first member numbers the messages; see [`sequencer`].
//! - [`Engine::Rotation`]: places are dealt out in advance, round robin, and silent members fill theirs with
//!   nulls; see [`rotation`].
//! - [`Engine::Token`]: each member numbers its own messages when it has the token; see [`token`].
//!
//! A safe message waits at its turn until all members are known to hold it. All messages behind it in its
//! order wait with it; see `group/stream/safe.rs`.
//!
//! # The interface
//! The stream of a group view (`group/stream.rs`) has one [`Engine`] and asks it by methods. Nothing outside
//! this folder looks at which engine it is. The engine of a total order implements [`TotalOrder`], which
//! makes its order known to all. It names its [`Walk`], which says where in the order this member is.
//!
//! | when | the stream asks | the engine answers |
//! |---|---|---|
//! | messages arrived | [`may_reach`](TotalOrder::may_reach) | whether an honest sender has such numbers |
//! | messages entered a log | [`held`](TotalOrder::held) | nothing; it may give them positions |
//! | messages may be due | [`next`](Walk::next), [`took`](Walk::took) | which rank's come now, and how many |
//! | nulls were passed | [`pass_silence`](Walk::pass_silence) | nothing; it may pass more at once |
//! | a receive batch ends | [`end_batch`](TotalOrder::end_batch) | whether it numbered or gave up numbers |
//! | frames are packed | [`tell_all`](TotalOrder::tell_all) | words for all others, until there are none |
//! | all frames are packed | [`tell_one`](TotalOrder::tell_one) | at most one word for one member |
//! | no other is in the view | [`keep_alone`](TotalOrder::keep_alone) | nothing; it stays silent |
//! | a member's word arrived | [`hear`](TotalOrder::hear) | what comes of it: [`Heard`] |
//! | its timer may be due | [`timeout`](TotalOrder::timeout) | at most one word for one member |
//! | a safe message is held | [`placed`](Walk::placed), [`waits_for_rows`](Walk::waits_for_rows) | how far |
//! | a flush needs the order | [`records`](TotalOrder::records) | what is held of it, if it travels |
//! | a cut is delivered | [`rest`](Walk::rest) | the walk up to the first message that is not in the cut |
//!
//! One member may make the order for all ([`maker`](TotalOrder::maker)). The stream then looks after its
//! words as it looks after messages. The others acknowledge them ([`all_hold`](TotalOrder::all_hold)) and ask
//! for words that they miss ([`missing`](TotalOrder::missing)). The maker shows members that lag how far the
//! order goes ([`mark`](TotalOrder::mark)). An engine without a maker looks after its words itself: by a
//! timer, or by what the next word carries.
//!
//! **What an engine may rely on.** All members of a view have the same engine and the same ranks. A log has
//! the same content at every member, has no gap before [`Log::next`], and never shrinks. A word comes from
//! another member of this view, in this view, and before this member has reported to a flush; only
//! [`Word::Missing`] and [`Word::TokenHeld`] may come later. Words may be lost, doubled, late, in any order,
//! or nonsense.
//!
//! **What an engine must keep.** All members walk the same order, and no member takes back what was walked
//! (G21). A message comes behind everything that its sender had delivered when it sent it (G20). A cut names
//! a prefix of each log and of the records; [`rest`](Walk::rest) walks these in the same order at every
//! survivor (R16). No word makes an engine panic or grow without bound. It allocates nothing per message.
//!
//! **A fourth engine** is a file here that implements [`TotalOrder`] and names its [`Walk`], a variant of
//! [`Engine`] with its arm in `total!` and in [`Engine::new`], and the option: [`TotalEngine`] with its name
//! and its number. If it says something new, it has a [`Word`] with its record in `antiphon_wire::group` and
//! an arm in `group/data.rs`. If its order travels as runs, it keeps them in [`Records`], which have a walk
//! and all that a flush needs. The simulator draws it from [`TotalEngine::ALL`]; in the lists of
//! `group/tests/world.rs`, every story runs with it.
//!
//! # At the cut
//! A flush ends the view with a cut: a prefix per sender and, where the order travels, a prefix of the order.
//! The rest is delivered by one rule on that same data, so it has one order everywhere.
//!
//! In fifo order the rest is all of the cut, by (rank, number).
//!
//! In an unordered group members hold and have delivered sets of numbers, not prefixes
//! (`group/log/loose.rs`). So the cut is the **union** of what the survivors hold (R15). A sender that takes
//! part in the flush holds all that it sent: its cut is a prefix, and a member that lacks something inside
//! asks for it as in every order. For a sender that departed, reports name the runs beyond the prefix. The
//! cut has the runs that any survivor holds, and names a survivor that does. All members fetch and deliver
//! them. Messages that no survivor has are lost, and later messages do not wait for them. If the cut lacks a
//! piece of a message, no member delivers the message: no survivor had it whole, or all its pieces would be
//! in reports.
//!
//! In a scoped group it is the same. In addition, a message that names a missing message is left out, so the
//! cut is a prefix per sender and scope.
//!
//! In total order a member walks the agreed order up to the first message that is not in the cut. Then it
//! delivers what is left of the *surviving* senders' prefixes by (rank, number). All members drop what is
//! left of dead senders. Why: a dead member may have delivered a message, by a record that died with it, and
//! then sent its own. This rule would put the delivered message behind that one.

pub(crate) mod interface;
mod records;
mod rotation;
mod sequencer;
mod token;
mod walk;
mod word;

use std::time::Duration;

use antiphon_wire::group::Run;

use self::interface::TotalOrder;
use self::records::Records;
use self::rotation::Rotation;
use self::sequencer::Sequencer;
use self::token::Token;
use self::walk::Walk;
use crate::group::log::Log;
use crate::{GroupOptions, Order, Time, TotalEngine};

pub(crate) use self::records::MAX_RUNS;
pub(crate) use self::word::{Heard, Word};

/// The interleaving of the logs of one group view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Engine {
    Unordered,
    Scoped,
    Fifo,
    Sequencer(Sequencer),
    Rotation(Rotation),
    Token(Token),
}

/// Asks the engine of a total order, whichever it is. The other orders have none and answer `$none`.
macro_rules! total {
    ($engine:expr, $total:ident => $call:expr, else $none:expr) => {
        match $engine {
            Engine::Unordered | Engine::Scoped | Engine::Fifo => $none,
            Engine::Sequencer($total) => $call,
            Engine::Rotation($total) => $call,
            Engine::Token($total) => $call,
        }
    };
}

impl Engine {
    /// `start` is the first number of each rank.
    pub(crate) fn new(options: &GroupOptions, start: &[u64], me: usize) -> Self {
        let window = options.window_bytes as usize;
        match (options.order, options.engine) {
            (Order::Unordered, _) => Engine::Unordered,
            (Order::Scoped, _) => Engine::Scoped,
            (Order::Fifo, _) => Engine::Fifo,
            (Order::Total, TotalEngine::Sequencer) => Engine::Sequencer(Sequencer::new(start, me, window)),
            (Order::Total, TotalEngine::Rotation) => Engine::Rotation(Rotation::new(start, me, window)),
            (Order::Total, TotalEngine::Token) => Engine::Token(Token::new(start, me, window)),
        }
    }

    /// An empty log as this order needs it.
    pub(crate) fn log(&self, start: u64) -> Log {
        match self {
            Engine::Unordered => Log::loose(start),
            Engine::Scoped => Log::scoped(start),
            _ => Log::new(start),
        }
    }

    /// Whether messages are delivered past gaps. Then the logs themselves say what comes next.
    pub(crate) fn passes_gaps(&self) -> bool {
        matches!(self, Engine::Unordered | Engine::Scoped)
    }

    /// Whether messages name a scope.
    pub(crate) fn takes_tags(&self) -> bool {
        matches!(self, Engine::Scoped)
    }

    /// Whether logs may have nulls.
    pub(crate) fn takes_nulls(&self) -> bool {
        total!(self, engine => engine.takes_nulls(), else false)
    }

    /// Whether there is one order of all messages.
    pub(crate) fn is_total(&self) -> bool {
        total!(self, _engine => true, else false)
    }

    /// The member that makes the order for all, if there is one.
    pub(crate) fn maker(&self) -> Option<usize> {
        total!(self, engine => engine.maker(), else None)
    }

    /// Messages may have been added to the log of this rank.
    pub(crate) fn held(&mut self, rank: usize, log: &Log) {
        total!(self, engine => engine.held(rank, log), else ());
    }

    /// The rank whose next messages may be delivered now, and how many of them. The caller says how many it
    /// took. `safe_until` says up to where safe messages may be delivered: per rank, or for all at 0 in a
    /// total order.
    pub(crate) fn next(&self, logs: &[Log], safe_until: impl Fn(usize) -> u64) -> Option<(usize, u64)> {
        let any = || {
            let ready = logs.iter().enumerate();
            let mut ready = ready.map(|(rank, log)| (rank, log.ready(safe_until(rank))));
            ready.find(|(_, count)| *count > 0)
        };
        // G22 no holes in the order: next is the next message of a log, or in total order the next place.
        // G26 safe prefix: a safe message waits at its place, and all behind it wait with it.
        // G21 agreed order: nothing is delivered before its position is known.
        if planted!(DeliverBeforeOrder) {
            return any();
        }
        total!(self, engine => engine.walk().next(logs, safe_until(0)), else any())
    }

    /// The caller has delivered this many of what [`Engine::next`] said.
    pub(crate) fn took(&mut self, count: u64) {
        if planted!(DeliverBeforeOrder) {
            return;
        }
        total!(self, engine => engine.walk_mut().took(count), else ());
    }

    /// Nulls were passed: passes at once what no application sees and would take many steps.
    pub(crate) fn pass_silence(&mut self, logs: &mut [Log]) {
        total!(self, engine => engine.walk_mut().pass_silence(logs), else ());
    }

    /// Whether a sender that keeps to its window can have numbers up to here, of messages or of nulls.
    pub(crate) fn may_reach(&self, log: &Log, end: u64, nulls: bool) -> bool {
        total!(self, engine => engine.may_reach(log, end, nulls), else true)
    }

    /// Does this member's part of the order at the end of a receive batch: gives up the numbers that others
    /// wait for, or numbers its own messages. True if there were any.
    pub(crate) fn end_batch(&mut self, logs: &mut [Log]) -> bool {
        total!(self, engine => engine.end_batch(logs), else false)
    }

    /// The next record about the order for all others.
    pub(crate) fn tell_all(&mut self) -> Option<Word> {
        total!(self, engine => engine.tell_all(), else None)
    }

    /// A record about the order for one other member, once all were told.
    pub(crate) fn tell_one(
        &mut self,
        logs: &[Log],
        now: Time,
        retransmit: Duration,
    ) -> Option<(usize, Word)> {
        total!(self, engine => engine.tell_one(logs, now, retransmit), else None)
    }

    /// There is no other member to tell anything.
    pub(crate) fn keep_alone(&mut self) {
        total!(self, engine => engine.keep_alone(), else ());
    }

    /// A member said something about the order.
    pub(crate) fn hear(&mut self, from: usize, word: Word) -> Heard {
        total!(self, engine => engine.hear(from, word), else Heard::Refused)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        total!(self, engine => engine.next_timeout(), else None)
    }

    /// A record to send again to one other member, if the timer is due.
    pub(crate) fn timeout(&mut self, now: Time, retransmit: Duration) -> Option<(usize, Word)> {
        total!(self, engine => engine.timeout(now, retransmit), else None)
    }

    /// At the maker: all members hold the order before this position.
    pub(crate) fn all_hold(&mut self, position: u64) {
        total!(self, engine => engine.all_hold(position), else ());
    }

    /// At the maker: how far the order goes.
    pub(crate) fn mark(&self, ask: bool) -> Option<Word> {
        total!(self, engine => engine.mark(ask), else None)
    }

    /// The member to ask for the order that is missing here, and the question.
    pub(crate) fn missing(&mut self, again: bool) -> Option<(usize, Word)> {
        total!(self, engine => engine.missing(again), else None)
    }

    fn records(&self) -> Option<&Records> {
        total!(self, engine => engine.records(), else None)
    }

    /// The first order position not held; 0 where no order travels.
    pub(crate) fn ordered(&self) -> u64 {
        self.records().map_or(0, Records::next_position)
    }

    /// Runs from position `first` on, as they are held, with the position of the first of them.
    pub(crate) fn slice(&self, first: u64) -> Option<(u64, Vec<Run>)> {
        self.records()?.slice(first)
    }

    /// A flush supplied these runs. False if they cannot be right.
    pub(crate) fn repair(&mut self, first: u64, runs: &[Run]) -> bool {
        let records = total!(self, engine => engine.records_mut(), else None);
        records.is_none_or(|records| records.repair(first, runs))
    }

    /// This member's row for safe delivery: a number per column up to which it holds everything. Also, per
    /// sender, the first message that the row does not cover.
    pub(crate) fn reach(&self, logs: &[Log]) -> (Vec<u64>, Vec<u64>) {
        let per_sender = || {
            let row: Vec<u64> = logs.iter().map(Log::next).collect();
            (row.clone(), row)
        };
        let (position, covered) =
            total!(self, engine => engine.walk().placed(logs), else return per_sender());
        (vec![position], covered)
    }

    /// The columns of a row in which the next message is safe and waits for rows, and its number there.
    pub(crate) fn waits_for_rows(
        &self,
        logs: &[Log],
        safe_until: impl Fn(usize) -> u64,
    ) -> Vec<(usize, u64)> {
        let per_sender = || {
            let logs = logs.iter().enumerate();
            let waits = |(rank, log): (usize, &Log)| Some((rank, log.waits_for_rows(safe_until(rank))?));
            logs.filter_map(waits).collect()
        };
        let until = safe_until(0);
        let waiting =
            total!(self, engine => engine.walk().waits_for_rows(logs, until), else return per_sender());
        waiting.map(|position| (0, position)).into_iter().collect()
    }

    /// Whether a message is held, and all that comes before it in the order.
    pub(crate) fn holds(&self, logs: &[Log], sender: usize, seq: u64) -> bool {
        let Some(log) = logs.get(sender) else { return false };
        if self.passes_gaps() {
            // Nothing comes before a message.
            return log.holds(seq);
        }
        if self.takes_nulls() {
            // Positions count nulls, and numbers of messages do not: what comes before is not looked at here.
            return seq < log.next_message();
        }
        seq < self.reach(logs).1[sender]
    }

    /// The ranks to deliver, one entry per run, for everything that the cut still brings. `survives` says per
    /// rank whether the sender takes part in the flush.
    pub(crate) fn tail(
        &self,
        logs: &[Log],
        cut: &[u64],
        ordered: u64,
        me: usize,
        survives: &[bool],
    ) -> Vec<(usize, u64)> {
        let mut delivered: Vec<u64> = logs.iter().map(Log::delivered).collect();
        let mut tail =
            total!(self, engine => engine.walk().rest(logs, cut, ordered, &mut delivered), else Vec::new());
        let ranks = 0..logs.len();
        let first = if planted!(TailOrderByArrival) { me } else { 0 };
        for rank in ranks.clone().map(|rank| (rank + first) % ranks.len()) {
            // G20 causal order: only a survivor's messages are known not to depend on a message that is
            // missing here.
            if survives[rank] || !self.is_total() || planted!(TailOfTheDead) {
                tail.push((rank, (cut[rank] + 1).saturating_sub(delivered[rank])));
            }
        }
        tail
    }
}

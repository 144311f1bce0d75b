//! Order: which held message is delivered next.
//!
//! Every member holds every sender's log in that sender's order; an engine decides how the logs are interleaved.
//! It is told what is held and what the others say about the order, and answers with the rank whose next message
//! may be delivered. It belongs to one group view: the next view begins with a fresh engine.
//!
//! - [`Engine::Unordered`]: any message that is here, whatever is missing before it.
//! - [`Engine::Scoped`]: any message that is here, if the one of its scope before it was delivered; see `group/log/scopes.rs`.
//! - [`Engine::Fifo`]: any message before which its sender's are held. Nothing to agree on.
//! - [`Engine::Sequencer`]: the view's first member numbers the messages; see [`sequencer`].
//! - [`Engine::Rotation`]: places are dealt out in advance, round robin, and the silent fill theirs with nulls; see
//!   [`rotation`].
//! - [`Engine::Token`]: each member numbers its own messages when it has the token; see [`token`].
//!
//! A safe message whose turn it is waits until all members are known to hold it, and all behind it in its order with it;
//! see `group/stream/safe.rs`.
//!
//! # At the cut
//! A flush ends the view with a cut: a prefix per sender and, where the order is something that travels, a prefix of that. The rest is delivered by one
//! rule on that same data, so it has one order everywhere. In fifo order that is all of the cut, by (rank, number).
//! In an unordered group members hold and have delivered sets of numbers, not beginnings (`group/log/loose.rs`), and so the cut is the
//! **union** of what the survivors hold (R15). A sender that takes part in the flush holds all that it sent: its cut is a prefix, and
//! who lacks something inside asks for it as in every order. Of a sender that departed, reports name the runs beyond the prefix, the
//! cut has those that any survivor holds, with a survivor that does, and all members fetch and deliver them; what nobody has left is
//! nobody's, and later messages do not wait for it. A message in pieces of which the cut lacks one is delivered by nobody: no survivor
//! had it whole, or all its pieces would be in reports.
//!
//!
//! In a scoped group the same, and what names a message that is not there is left out, so that the cut is a prefix per sender and scope.
//!
//! In total order: walk the agreed order up to the first message that is not in the cut, then what is left of the
//! *surviving* senders' prefixes by (rank, number). What is left of dead senders is dropped by all: a dead member may
//! have sent it after delivering, by a record that died with it, a message that this rule would put behind it.

mod rotation;
mod sequencer;
mod token;

pub(crate) use rotation::Rotation;
pub(crate) use sequencer::{MAX_RUNS, Sequencer};
pub(crate) use token::{Passed, Taken, Token};

use crate::group::log::Log;
use crate::group::stream::safe::Safe;
use crate::{GroupOptions, Order, TotalEngine};

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

impl Engine {
    /// `start` is the first number of each rank.
    pub(crate) fn new(options: &GroupOptions, start: &[u64], me: usize) -> Self {
        match (options.order, options.engine) {
            (Order::Unordered, _) => Engine::Unordered,
            (Order::Scoped, _) => Engine::Scoped,
            (Order::Fifo, _) => Engine::Fifo,
            (Order::Total, TotalEngine::Sequencer) => Engine::Sequencer(Sequencer::new(start, me == 0)),
            (Order::Total, TotalEngine::Rotation) => Engine::Rotation(Rotation::new(start)),
            (Order::Total, TotalEngine::Token) => Engine::Token(Token::new(start, me)),
        }
    }

    /// The order as it is held, where the order is something that travels.
    pub(crate) fn records(&self) -> Option<&Sequencer> {
        match self {
            Engine::Unordered | Engine::Scoped | Engine::Fifo | Engine::Rotation(_) => None,
            Engine::Sequencer(records) => Some(records),
            Engine::Token(token) => Some(token.records()),
        }
    }

    pub(crate) fn records_mut(&mut self) -> Option<&mut Sequencer> {
        match self {
            Engine::Unordered | Engine::Scoped | Engine::Fifo | Engine::Rotation(_) => None,
            Engine::Sequencer(records) => Some(records),
            Engine::Token(token) => Some(token.records_mut()),
        }
    }

    /// Whether messages are delivered past gaps.
    pub(crate) fn passes_gaps(&self) -> bool {
        matches!(self, Engine::Unordered | Engine::Scoped)
    }

    /// Whether logs may have nulls.
    pub(crate) fn takes_nulls(&self) -> bool {
        matches!(self, Engine::Rotation(_))
    }

    /// Messages may have been added to the log of this rank.
    pub(crate) fn held(&mut self, rank: usize, log: &Log) {
        match self {
            Engine::Unordered | Engine::Scoped | Engine::Fifo | Engine::Rotation(_) | Engine::Token(_) => {}
            Engine::Sequencer(sequencer) => sequencer.held(rank, log.next()),
        }
    }

    /// The rank whose next messages may be delivered now, and how many of them. The caller says how many it took.
    pub(crate) fn next(&self, logs: &[Log], safe: &Safe) -> Option<(usize, u64)> {
        let any = || {
            let ready = logs.iter().enumerate();
            let mut ready = ready.map(|(rank, log)| (rank, log.ready(safe.until(rank))));
            ready.find(|(_, count)| *count > 0)
        };
        match self {
            // Its logs say themselves what comes next.
            Engine::Unordered | Engine::Scoped => None,
            Engine::Fifo => any(),
            // G21 agreed order: nothing is delivered before its position is known.
            _ if planted!(DeliverBeforeOrder) => any(),
            Engine::Sequencer(sequencer) => sequencer.next(logs, safe.until(0)),
            Engine::Rotation(rotation) => rotation.next(logs, safe.until(0)),
            Engine::Token(token) => token.records().next(logs, safe.until(0)),
        }
    }

    /// The caller has delivered this many of what [`Engine::next`] said.
    pub(crate) fn took(&mut self, count: u64) {
        match self {
            Engine::Unordered | Engine::Scoped | Engine::Fifo => {}
            _ if planted!(DeliverBeforeOrder) => {}
            Engine::Sequencer(sequencer) => sequencer.took(count),
            Engine::Rotation(rotation) => rotation.took(count),
            Engine::Token(token) => token.records_mut().took(count),
        }
    }

    /// The first order position not held; 0 without an order log.
    pub(crate) fn ordered(&self) -> u64 {
        match self {
            Engine::Unordered | Engine::Scoped | Engine::Fifo | Engine::Rotation(_) => 0,
            Engine::Sequencer(sequencer) => sequencer.next_position(),
            Engine::Token(token) => token.records().next_position(),
        }
    }

    /// The ranks to deliver, one entry per run, for everything that the cut still brings. `survives` says per rank
    /// whether the sender takes part in the flush.
    pub(crate) fn tail(
        &self,
        logs: &[Log],
        cut: &[u64],
        ordered: u64,
        me: usize,
        survives: &[bool],
    ) -> Vec<(usize, u64)> {
        let mut delivered: Vec<u64> = logs.iter().map(Log::delivered).collect();
        let mut tail = Vec::new();
        if let Engine::Rotation(rotation) = self {
            tail = rotation.walk(cut, &mut delivered);
        }
        for (rank, count) in self
            .records()
            .into_iter()
            .flat_map(|records| records.undelivered(ordered))
        {
            let in_cut = (cut[rank] + 1).saturating_sub(delivered[rank]).min(count);
            tail.push((rank, in_cut));
            delivered[rank] += in_cut;
            if in_cut < count {
                break;
            }
        }
        let ranks = 0..logs.len();
        let first = if planted!(TailOrderByArrival) { me } else { 0 };
        for rank in ranks.clone().map(|rank| (rank + first) % ranks.len()) {
            // G20 causal order: only a survivor's messages are known to come after nothing that is missing here.
            if survives[rank] || *self == Engine::Fifo || planted!(TailOfTheDead) {
                tail.push((rank, (cut[rank] + 1).saturating_sub(delivered[rank])));
            }
        }
        tail
    }
}

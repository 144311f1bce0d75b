//! A log that may have gaps: what is held and delivered of it, and which scope waits for what.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::block::{After, Tag};
use antiphon_wire::{Block, Level};

use crate::group::reached::Reached;

/// The most runs of released numbers behind a number that is not released.
pub(crate) const MAX_RUNS: usize = 1 << 14;

/// What a scoped log knows of releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scopes {
    /// The view's first number.
    pub(crate) start: u64,
    /// Whether a cut is delivered.
    pub(crate) cut: bool,
    /// Released, or safe and waiting for rows.
    pub(crate) queued: Reached,
    pub(crate) released: Reached,
}

impl Scopes {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start,
            cut: false,
            queued: Reached::new(start),
            released: Reached::new(start),
        }
    }

    /// A copy for the delivery of a cut: what was delivered is released, and the rest is looked at again.
    pub(crate) fn at_cut(&self, delivered: &Reached) -> Self {
        Self {
            start: self.start,
            cut: true,
            queued: delivered.clone(),
            released: delivered.clone(),
        }
    }

    /// Whether the message with this number and tag may be queued, if those from `run` on are queued before
    /// it.
    pub(crate) fn may(&self, number: u64, tag: Tag, run: u64, level: Level) -> bool {
        if planted!(ForgetScopeOrder) {
            return true;
        }
        // A safe one may wait for rows behind one that waits for rows: they are released in this order.
        let before_it = match level {
            Level::Safe => &self.queued,
            Level::Agreed => &self.released,
        };
        match tag.after {
            After::Nothing => true,
            After::One(back) => number
                .checked_sub(u64::from(back))
                .is_none_or(|before| before < self.start || before >= run || before_it.contains(before)),
            After::All(back) => number.checked_sub(u64::from(back)).is_none_or(|before| {
                before < self.start || before_it.covers(self.start, (before + 1).min(run))
            }),
        }
    }

    fn queue(&mut self, first: u64, end: u64, level: Level) {
        self.queued.add(first, end);
        // Safe ones are released when rows allow it. A cut needs no rows.
        if level == Level::Agreed || self.cut {
            self.released.add(first, end);
        }
    }

    /// The parts of a block that may be queued, one after the other; they count as queued.
    pub(crate) fn of_block(&mut self, first: u64, mut block: Block) -> Vec<(u64, Block)> {
        let (mut parts, level) = (Vec::new(), block.level());
        let mut run = first;
        let mut take = |scopes: &mut Self, block: &mut Block, run: u64, end: u64| {
            if run < end {
                parts.push((run, block.split_front(end - run)));
                scopes.queue(run, end, level);
            }
        };
        let tags: Vec<Tag> = block.tags().collect();
        for (number, tag) in (first..).zip(tags) {
            let may = self.may(number, tag, run, level) || self.cut && planted!(PassScopeGapAtCut);
            if !may {
                take(self, &mut block, run, number);
                drop(block.split_front(1));
                run = number + 1;
            }
        }
        let end = run + block.count();
        take(self, &mut block, run, end);
        parts
    }

    /// Whether the message in these pieces, of which this is the first, may be queued. If so, it counts as
    /// queued.
    pub(crate) fn of_pieces(&mut self, first: u64, end: u64, piece: &Block, level: Level) -> bool {
        let tag = Tag::read(piece.bytes()).map(|(tag, _)| tag).unwrap_or_default();
        let may = self.may(first, tag, first, level);
        if may {
            self.queue(first, end, level);
        }
        may
    }
}

/// What is known besides of a log whose delivery passes gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loose {
    pub(crate) held: Reached,
    pub(crate) delivered: Reached,
    /// To be delivered, as they came.
    pub(crate) ready: VecDeque<(u64, Block)>,
    /// Safe messages that are here and wait for rows: first number and end.
    pub(crate) waiting: BTreeMap<u64, u64>,
    /// The number after the last safe message that is here, whole or not.
    pub(crate) safe_end: u64,
    /// What is known besides in a scoped group.
    pub(crate) scopes: Option<Scopes>,
}

impl Loose {
    /// Whether there may be a safe message that is not delivered.
    pub(crate) fn may_hold_safe(&self) -> bool {
        self.safe_end > self.delivered.next()
    }
}

impl Loose {
    /// The number of the first safe message that waits for rows, if they allow it.
    pub(crate) fn first_allowed(&self, safe_until: u64) -> Option<u64> {
        let (first, end) = self.waiting.first_key_value()?;
        (*end <= safe_until).then_some(*first)
    }

    pub(crate) fn take_waiting(&mut self, safe_until: u64) -> Option<(u64, u64)> {
        self.first_allowed(safe_until)?;
        self.waiting.pop_first()
    }
}

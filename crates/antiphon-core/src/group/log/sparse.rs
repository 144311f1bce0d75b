//! A log that may have gaps: what is held and delivered of it, and which scope waits for what.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::Block;
use antiphon_wire::block::{After, Tag};

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

    /// Whether the message with this number and tag may be released, if those from `run` on are released
    /// before it.
    pub(crate) fn may(&self, number: u64, tag: Tag, run: u64) -> bool {
        if planted!(ForgetScopeOrder) {
            return true;
        }
        match tag.after {
            After::Nothing => true,
            After::One(back) => number
                .checked_sub(u64::from(back))
                .is_none_or(|before| before < self.start || before >= run || self.released.contains(before)),
            After::All(back) => number.checked_sub(u64::from(back)).is_none_or(|before| {
                before < self.start || self.released.covers(self.start, (before + 1).min(run))
            }),
        }
    }

    /// The parts of a block that may be released, one after the other; they count as released.
    pub(crate) fn of_block(&mut self, first: u64, mut block: Block) -> Vec<(u64, Block)> {
        let mut parts = Vec::new();
        let mut run = first;
        let mut take = |scopes: &mut Self, block: &mut Block, run: u64, end: u64| {
            if run < end {
                parts.push((run, block.split_front(end - run)));
                scopes.released.add(run, end);
            }
        };
        let tags: Vec<Tag> = block.tags().collect();
        for (number, tag) in (first..).zip(tags) {
            let may = self.may(number, tag, run) || self.cut && planted!(PassScopeGapAtCut);
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

    /// Whether the message in these pieces may be released. If so, it counts as released.
    pub(crate) fn of_pieces(&mut self, first: u64, end: u64, piece: &Block) -> bool {
        let tag = Tag::read(piece.bytes()).map(|(tag, _)| tag).unwrap_or_default();
        let may = self.may(first, tag, first);
        if may {
            self.released.add(first, end);
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
    pub(crate) fn take_waiting(&mut self, safe_until: u64) -> Option<(u64, u64)> {
        let first = self.waiting.first_entry()?;
        let end = *first.get();
        (end <= safe_until).then(|| first.remove_entry())
    }
}

//! What members have delivered and hold, as far as this member knows: the state of safe delivery.

use crate::Time;
use crate::order::Engine;

/// In views of at most so many members, rows go to all.
pub(crate) const MAX_ROWS_TO_ALL: usize = 4;

/// What the members of a view are known to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Safe {
    pub(crate) me: usize,
    /// Whether the one column is that of the total order.
    pub(crate) total: bool,
    /// The member that makes that order, if one does.
    pub(crate) order_maker: Option<usize>,
    /// The member that collects the rows of all and tells its mark.
    pub(crate) collector: Option<usize>,
    /// Whether there was a safe message in this view, or a member waits for one.
    pub(crate) used: bool,
    /// Per member and column, how far it has come, as it said.
    pub(crate) known: Vec<Vec<u64>>,
    /// Per column, how far all members are that have to say it.
    pub(crate) until: Vec<u64>,
    /// This member's row as it was last told to all.
    pub(crate) told: Vec<u64>,
    /// Per sender, the first message that the row last told does not cover.
    pub(crate) covered: Vec<u64>,
    /// Members that have asked for this member's row.
    pub(crate) askers: Vec<usize>,
    pub(crate) ask_at: Option<Time>,
    pub(crate) backoff: u32,
}

impl Safe {
    pub(crate) fn new(me: usize, engine: &Engine, start: &[u64]) -> Self {
        let total = engine.is_total();
        let columns = if total { 1 } else { start.len() };
        let mut safe = Self {
            me,
            total,
            order_maker: engine.maker(),
            collector: engine.maker().filter(|_| start.len() > MAX_ROWS_TO_ALL),
            used: false,
            known: vec![Vec::new(); start.len()],
            until: vec![0; columns],
            told: if total { vec![0] } else { start.to_vec() },
            covered: start.to_vec(),
            askers: Vec::new(),
            ask_at: None,
            backoff: 0,
        };
        for column in 0..columns {
            safe.recompute(column);
        }
        safe
    }

    /// Safe messages of this sender may be delivered up to here; in total order, those up to this position.
    pub(crate) fn until(&self, sender: usize) -> u64 {
        if planted!(SafeOnOwnReceipt) {
            return u64::MAX;
        }
        self.until[if self.total { 0 } else { sender }]
    }

    /// Whether this member waits for that member's row, or for its mark.
    pub(crate) fn waits_for(&self, member: usize, column: usize) -> bool {
        match self.collector {
            Some(collector) if collector != self.me => member == collector,
            _ => member != self.me && self.maker(column) != Some(member),
        }
    }

    /// The member whose row says nothing in this column: it made the column.
    pub(crate) fn maker(&self, column: usize) -> Option<usize> {
        if self.total {
            self.order_maker
        } else {
            Some(column)
        }
    }

    pub(crate) fn known(&self, member: usize, column: usize) -> u64 {
        self.known[member].get(column).copied().unwrap_or(0)
    }

    /// A member has come so far in a column. True if that is news.
    pub(crate) fn learn(&mut self, member: usize, column: usize, until: u64) -> bool {
        let columns = self.until.len();
        let row = &mut self.known[member];
        row.resize(columns, 0);
        let news = row[column] < until;
        row[column] = row[column].max(until);
        news
    }

    /// G24: all members of the view, not only the senders, and not a majority.
    pub(crate) fn recompute(&mut self, column: usize) {
        let mut rows: Vec<u64> = (0..self.known.len())
            .filter(|member| self.waits_for(*member, column))
            .map(|member| self.known(member, column))
            .collect();
        rows.sort_unstable();
        let last = if planted!(SafeOfMajority) {
            rows.len() / 2
        } else {
            0
        };
        self.until[column] = rows.get(last).copied().unwrap_or(u64::MAX);
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.ask_at
    }
}

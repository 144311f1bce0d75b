//! Where a total order is at a member.

use crate::group::log::Log;

/// Where a total order is at this member: what it has delivered, and what comes next.
pub(crate) trait Walk {
    /// The rank whose next messages may be delivered now, and how many of them. Safe messages may be
    /// delivered at the positions before `safe_until`.
    fn next(&self, logs: &[Log], safe_until: u64) -> Option<(usize, u64)>;

    /// The caller has delivered this many of what [`Walk::next`] said.
    fn took(&mut self, count: u64);

    /// Passes at once what no application sees and would take many steps.
    fn pass_silence(&mut self, _logs: &mut [Log]) {}

    /// The next position, if its message is held and safe and has to wait.
    fn waits_for_rows(&self, logs: &[Log], safe_until: u64) -> Option<u64>;

    /// The first position whose record or message is not held, and per rank the first message that comes at
    /// none of the positions before it.
    fn placed(&self, logs: &[Log]) -> (u64, Vec<u64>);

    /// The ranks to deliver, one entry per run, up to the first message that is not in the cut. The cut is a
    /// prefix per log, and the positions before `ordered`. Moves `delivered` along.
    fn rest(&self, logs: &[Log], cut: &[u64], ordered: u64, delivered: &mut [u64]) -> Vec<(usize, u64)>;
}

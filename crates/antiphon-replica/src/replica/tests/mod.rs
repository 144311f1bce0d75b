//! Whole groups of replicas on a virtual group: stories, drawn schedules, planted mistakes.

mod diverged;
mod formats;
pub(crate) mod group;
mod ledger;
mod merges;
mod schedules;
mod shown;
mod spills;
mod stories;

/// A mistake that the checks have to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A joiner holds whatever comes.
    HoldWithoutBound,
    /// Members take stamps as they are.
    TimeGoesBack,
    /// A write is answered before the others have applied it.
    AnswerBeforeAll,
    /// The last member with the state leaves at once.
    LeaveWithTheState,
    /// A joiner applies again what a later state has already.
    KeepOldHeld,
    /// A joiner forgets the first of what it held.
    DropHeld,
    /// A joiner reads from its file what was written last.
    ReadLatestPart,
    /// A joiner loses the first of what it has read from its file.
    LoseReadBack,
    /// What was answered as not sent is sent.
    KeepFailedCommands,
    /// A member that was leaving and is removed does not leave.
    ForgetToLeave,
    /// A read is answered without a place in the order.
    ReadAtOnce,
    /// Nobody takes notice of what a joiner has seen of another state.
    ForgetWhatWasSeen,
    /// A state that rises above another one keeps its time.
    KeepTheTime,
    /// What is applied before this member serves is shown.
    ShowCatchingUp,
    /// What was undone is taken for an earlier point of the state.
    TakeUndoneForEarlier,
    /// A joiner shows all members that may have the state as those that have it.
    ShowAllThatMayServe,
}

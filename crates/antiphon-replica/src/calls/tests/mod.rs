//! Members that call each other on a virtual group: stories, drawn schedules, planted mistakes.

mod formats;
mod group;
mod schedules;
mod stories;

use super::{Event, Failure, Ran};

/// A mistake that the checks have to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planted {
    /// Calls of handlers take the places of calls from outside.
    NoDepths,
    /// A call has no deadline at its caller.
    WaitPastItsTime,
    /// A view without a member does not end what waits for it.
    WaitForTheDeparted,
    /// The members that may run a cancelled call are not told.
    CancelInSilence,
    /// What was sent and not answered is said not to have run.
    DenyWhatWasSent,
}

pub(super) fn planted_event(planted: Option<Planted>, mut event: Event) -> Event {
    if planted == Some(Planted::DenyWhatWasSent)
        && let Event::Ended {
            result: Err(error), ..
        } = &mut event
    {
        for (_, failure) in &mut error.failures {
            if failure.ran() == Ran::Maybe {
                *failure = Failure::NotSent;
            }
        }
    }
    event
}

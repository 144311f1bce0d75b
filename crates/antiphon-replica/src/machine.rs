//! What can be replicated: a deterministic state machine.

use std::fmt;
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Snapshot;

/// A time that all members of a group agree on: how long the group's state has existed, as the members with
/// the state count it. It never goes back, goes on with their messages, and says nothing about the time of
/// day.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, serde::Deserialize,
)]
pub struct AgreedTime {
    /// Milliseconds since the state was founded.
    pub millis: u64,
}

impl AgreedTime {
    /// So much later; the last moment there is if that is beyond it.
    pub fn after(self, wait: Duration) -> Self {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Self {
            millis: self.millis.saturating_add(wait),
        }
    }
}

/// The place of the group's order at which a machine does something: the same at every member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
pub struct At {
    /// The number of what is applied: commands, changes of members and timeouts count on from 1, over views
    /// and leaders. Greater than any before it.
    pub index: u64,
    /// The agreed time.
    pub time: AgreedTime,
    /// When the state was founded: milliseconds since 2025 by its founder's clock, and not less than a
    /// thousand times the number of the node view (G2). A state of the same name that is founded later has
    /// more, unless clocks of founders went back or are apart by more than the time between. It grows when
    /// a member joins that has seen higher numbers of another state of the name: see [`Machine::serial`].
    pub founded: u64,
}

impl fmt::Display for AgreedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} s", self.millis / 1000, self.millis % 1000)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.index, self.time)
    }
}

/// How the members of the group changed. A member whose state was found to differ from the others' counts as
/// gone from there on, and as new when it joins again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// All members from here on, by seniority in the group.
    pub members: Vec<Incarnation>,
    /// The members that are new.
    pub joined: Vec<Incarnation>,
    /// The members that are gone.
    pub gone: Vec<Incarnation>,
    /// Those of `gone` that left in order.
    pub left: Vec<Incarnation>,
    /// Those of `gone` whose state differs. They are members of the group yet.
    pub diverged: Vec<Incarnation>,
}

/// A deterministic state machine: the same calls in the same order make the same state, replies and events at
/// every member. It reads no clock, no random numbers and nothing else that members could see differently,
/// and iterates over no hash table.
pub trait Machine: Sized {
    /// What changes the state. It travels in an ordered message.
    type Command: Serialize + DeserializeOwned;
    /// What a command gives back to its caller.
    type Reply;
    /// What happens beside replies, told at every member: `()` if nothing does.
    type Event;
    /// The state at one point, read for a joiner while the machine goes on.
    type Snapshot: Snapshot;

    /// Applies a command that the member `from` gave.
    fn apply(
        &mut self,
        at: At,
        from: Incarnation,
        command: Self::Command,
        events: &mut Vec<Self::Event>,
    ) -> Self::Reply;

    /// The members changed.
    fn members(&mut self, _at: At, _change: &Change, _events: &mut Vec<Self::Event>) {}

    /// The agreed time at which [`Machine::timeout`] is to be called, if any.
    fn deadline(&self) -> Option<AgreedTime> {
        None
    }

    /// The agreed time has reached the deadline.
    fn timeout(&mut self, _at: At, _events: &mut Vec<Self::Event>) {}

    /// About how many bytes an event keeps in memory, beside itself: what waits for a slow reader is bounded
    /// by them.
    fn event_bytes(_event: &Self::Event) -> usize {
        0
    }

    /// The state as it is now. It is taken between two commands, so it has to be cheap: a clone of a
    /// persistent structure, or of a reference. What takes time belongs to [`Snapshot::read`].
    fn snapshot(&self) -> Self::Snapshot;

    /// Takes of a state what is here of it: `state` is what came and was not taken yet, in order, and
    /// `complete` says that nothing follows. Gives how many bytes it took; what is left comes again, before
    /// what follows it. So a machine that takes entry by entry never keeps more than one that is cut, and one
    /// that wants the whole says 0 until it is complete. In the first call `self` is as it was made, with
    /// this member's definitions. After an error it is made anew.
    ///
    /// # Errors
    /// The bytes are no state of this machine, or of one that is defined differently.
    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError>;

    /// The highest number (version, token, id) that this machine has given, if it gives numbers that never go
    /// back. Numbers are made of [`At::founded`]: when members come back that have seen higher ones,
    /// `founded` grows beyond those, at a call of [`Machine::members`] without a change. Then a machine gives
    /// all that it keeps with a number another one.
    fn serial(&self) -> Option<u64> {
        None
    }

    /// A digest of the whole state, or `None` if members are not to compare theirs. It is taken often: keep
    /// it up to date with each change where the state is large.
    fn digest(&self) -> Option<u64> {
        None
    }

    /// What this machine's commands and state mean: name, types, options, version of the encoding. A member
    /// that joins with another one is refused, and both are named.
    fn definition(&self) -> String;
}

/// Why a state was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreError {
    /// What was expected, what came.
    pub reason: String,
}

impl std::fmt::Display for RestoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for RestoreError {}

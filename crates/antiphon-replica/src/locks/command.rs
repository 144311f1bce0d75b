//! What a table of locks is told, what it answers, and what it tells of.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use serde::{Deserialize, Serialize};

/// The longest name of a lock, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// The name of a lock.
pub type Name = Arc<str>;

/// A fencing token: greater than any token that the table has given before, for any of its locks, also before
/// the cluster was founded anew (see [`At::founded`](crate::At)). Give it to what the lock protects, and let
/// that refuse a token lower than the highest it has seen: then a holder that has lost the lock and does not
/// know it yet can do no harm. JSON numbers of some languages hold 53 bits only: carry a token as text there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What can hold a lock: a client of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u128, u64)", into = "(u128, u64)")]
pub struct Owner {
    /// The member.
    pub member: Incarnation,
    /// What the member calls its client: a task, a session.
    pub client: u64,
}

impl From<(u128, u64)> for Owner {
    fn from((member, client): (u128, u64)) -> Self {
        let member = Incarnation(member);
        Self { member, client }
    }
}

impl From<Owner> for (u128, u64) {
    fn from(owner: Owner) -> Self {
        (owner.member.0, owner.client)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} of {}", self.client, self.member.short())
    }
}

/// How much of a lock is wanted. A name is a lock or a semaphore of one size for as long as it is held or
/// waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// No other holder.
    Exclusive,
    /// No exclusive holder.
    Shared,
    /// Some permits of a semaphore.
    Permits {
        /// So many: from 1 to `of`.
        take: u32,
        /// All permits that there are: at most 2³² − 2.
        of: u32,
    },
}

impl Mode {
    /// A lock is a semaphore with more permits than there can be shared holders; the exclusive holder has
    /// all.
    pub(super) const LOCK: u32 = u32::MAX;

    /// The permits wanted, and of how many.
    pub(super) fn permits(self) -> Result<(u32, u32), Refused> {
        match self {
            Self::Exclusive => Ok((Self::LOCK, Self::LOCK)),
            Self::Shared => Ok((1, Self::LOCK)),
            Self::Permits { take, of } if (1..=of).contains(&take) && of < Self::LOCK => Ok((take, of)),
            Self::Permits { take, of } => Err(Refused::Permits { take, of }),
        }
    }
}

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Not at all.
    Try,
    /// So many milliseconds of agreed time. Agreed time stands still while the group has no leader.
    WithinMs(u64),
    /// For ever.
    Forever,
}

/// What members ask of the table. The owner is always a client of the member that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Acquires a lock, or waits for it.
    Acquire {
        /// The lock: 1 to [`MAX_NAME_BYTES`] bytes.
        name: Name,
        /// The owner's number at this member.
        client: u64,
        /// How much of it.
        mode: Mode,
        /// How long to wait.
        wait: Wait,
    },
    /// Waits no longer for a lock. Refused if the lock was granted already: release it then.
    Abandon {
        /// The lock.
        name: Name,
        /// The owner's number at this member.
        client: u64,
    },
    /// Gives a lock back.
    Release {
        /// The token with which it was granted.
        token: Token,
    },
    /// Gives a lock to an owner that waits for it, past all that wait before it. It gets a new token.
    HandOver {
        /// The token with which the lock was granted.
        token: Token,
        /// The member of the new holder.
        #[serde(with = "as_number")]
        to: Incarnation,
        /// The client that is to hold it; if none is named, the one of that member that has waited longest.
        client: Option<u64>,
    },
    /// A client of this member is gone: releases all that it holds and ends all its waiting.
    Forget {
        /// The owner's number at this member.
        client: u64,
    },
}

impl Command {
    /// Acquires a lock for one owner alone and waits for ever.
    pub fn acquire(name: &str, client: u64) -> Self {
        Self::Acquire {
            name: name.into(),
            client,
            mode: Mode::Exclusive,
            wait: Wait::Forever,
        }
    }

    /// Of an acquire: how much of the lock.
    pub fn mode(mut self, wanted: Mode) -> Self {
        if let Self::Acquire { mode, .. } = &mut self {
            *mode = wanted;
        }
        self
    }

    /// Of an acquire: only if it can be granted at once.
    pub fn at_once(self) -> Self {
        self.waiting(Wait::Try)
    }

    /// Of an acquire: the longest wait, in milliseconds, rounded up.
    pub fn within(self, wait: Duration) -> Self {
        self.waiting(Wait::WithinMs(
            u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX),
        ))
    }

    fn waiting(mut self, so: Wait) -> Self {
        if let Self::Acquire { wait, .. } = &mut self {
            *wait = so;
        }
        self
    }

    /// Gives a lock back.
    pub fn release(token: Token) -> Self {
        Self::Release { token }
    }

    /// Hands a lock over to this owner.
    pub fn hand_over(token: Token, to: Owner) -> Self {
        Self::HandOver {
            token,
            to: to.member,
            client: Some(to.client),
        }
    }

    /// Hands a lock, mostly a leadership, over to this member.
    pub fn transfer(token: Token, to: Incarnation) -> Self {
        Self::HandOver {
            token,
            to,
            client: None,
        }
    }
}

/// What a command did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// The lock is held with this token: by the owner that asked, or, of a hand-over, by the new one.
    Granted(Token),
    /// The owner waits: [`What::Granted`] or [`What::TimedOut`] follows.
    Waiting,
    /// The lock is given back, the waiting is over, the client is forgotten.
    Ended,
}

/// Why a command was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refused {
    /// The lock cannot be granted at once, and the owner did not want to wait.
    Busy,
    /// The owner holds this lock already. A lock is held once: let a second task be a second client.
    Holds {
        /// Its token.
        token: Token,
    },
    /// The owner waits for this lock already.
    Waits,
    /// The owner does not wait for this lock.
    WaitsNot,
    /// No client of the member that asks holds anything with this token: it was released, lost, handed over,
    /// or never given.
    NotHeld {
        /// The token.
        token: Token,
    },
    /// No such owner waits for the lock. The holder keeps it.
    NoSuccessor,
    /// The successor wants more permits than are handed over and free. The holder keeps the lock.
    TooMuch {
        /// What the successor wants.
        wanted: u32,
        /// What there would be.
        free: u32,
    },
    /// A semaphore has at least 1 and at most 2³² − 2 permits, and an owner takes at least one and at most
    /// all.
    Permits {
        /// What was to be taken.
        take: u32,
        /// Of how many.
        of: u32,
    },
    /// The name is in use for a semaphore of another size, or for a lock.
    OtherSize {
        /// The size in use; none if it is a lock.
        used: Option<u32>,
    },
    /// A name is empty or longer than [`MAX_NAME_BYTES`].
    Name {
        /// Its bytes.
        bytes: u64,
    },
    /// There are [`Options::max_locks`](super::Options::max_locks) names in use.
    TooManyLocks {
        /// The bound.
        max_locks: u32,
    },
    /// There are [`Options::max_claims`](super::Options::max_claims) holders and waiters.
    TooManyClaims {
        /// The bound.
        max_claims: u32,
    },
    /// The member that asks is not in the group.
    NoMember,
    /// All tokens have been given (2⁶⁴ − 1).
    Exhausted,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the lock is held or waited for, and the caller does not wait"),
            Self::Holds { token } => write!(f, "this client holds the lock already, with token {token}"),
            Self::Waits => f.write_str("this client waits for the lock already"),
            Self::WaitsNot => f.write_str("this client does not wait for the lock"),
            Self::NotHeld { token } => write!(
                f,
                "no client of this member holds a lock with token {token}: released, lost or handed over before"
            ),
            Self::NoSuccessor => f.write_str("the successor does not wait for the lock; the holder keeps it"),
            Self::TooMuch { wanted, free } => {
                write!(
                    f,
                    "the successor wants {wanted} permits, there would be {free}; the holder keeps it"
                )
            }
            Self::Permits { take, of } => write!(
                f,
                "{take} of {of} permits are not possible: at least 1 and at most all, and less than {}",
                Mode::LOCK
            ),
            Self::OtherSize { used: Some(used) } => {
                write!(f, "the name is in use for a semaphore of {used} permits")
            }
            Self::OtherSize { used: None } => f.write_str("the name is in use for a lock, not a semaphore"),
            Self::Name { bytes } => {
                write!(f, "a name has 1 to {MAX_NAME_BYTES} bytes, this one has {bytes}")
            }
            Self::TooManyLocks { max_locks } => {
                write!(f, "{max_locks} locks are in use, which is the bound max_locks")
            }
            Self::TooManyClaims { max_claims } => {
                write!(
                    f,
                    "there are {max_claims} holders and waiters, which is the bound max_claims"
                )
            }
            Self::NoMember => f.write_str("the member that asks is not in the group"),
            Self::Exhausted => f.write_str("all tokens have been given: found the table anew"),
        }
    }
}

impl std::error::Error for Refused {}

/// What happened to a lock. Of one lock, the loss or the release comes before the next grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The lock.
    pub name: Name,
    /// The owner that it happened to.
    pub owner: Owner,
    /// What happened.
    pub what: What,
}

/// What happened to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The owner holds it, at once or after waiting.
    Granted(Token),
    /// The owner gave it back.
    Released(Token),
    /// The owner holds it no longer.
    Lost(Token, Cause),
    /// The owner waited as long as it wanted to.
    TimedOut,
}

/// Why an owner holds a lock no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Its member left the group, or its node left the cluster.
    Left,
    /// Its member's node died or could not be reached, or the group removed the member.
    Crashed,
    /// Its member's state differs from the others'.
    Diverged,
    /// Its member said that the client is gone.
    Forgotten,
    /// It handed the lock over.
    HandedOver(Owner),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.name, self.owner, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(token) => write!(f, "holds it with token {token}"),
            Self::Released(token) => write!(f, "gave it back with token {token}"),
            Self::Lost(token, cause) => write!(f, "lost it with token {token}: {cause}"),
            Self::TimedOut => f.write_str("waited as long as it wanted to"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("its member has left the group"),
            Self::Crashed => {
                f.write_str("its node died, could not be reached, or the group removed its member")
            }
            Self::Diverged => f.write_str("its member's state differs from the others'"),
            Self::Forgotten => f.write_str("the client is gone"),
            Self::HandedOver(to) => write!(f, "it was handed over to {to}"),
        }
    }
}

/// An incarnation as its number.
mod as_number {
    use antiphon_core::wire::Incarnation;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(of: &Incarnation, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u128(of.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Incarnation, D::Error> {
        u128::deserialize(deserializer).map(Incarnation)
    }
}

//! What is asked for, what becomes of it, and why calls are refused.

use std::fmt;
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use antiphon_core::{Parting, Time};
use bytes::Bytes;

use super::{MAX_CALL_BYTES, MAX_VERB_BYTES};

/// The number of a call of this member. It is never used again by the same incarnation, also not after a
/// `Resync`, nor by other [`Calls`](super::Calls) of that group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A request at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The caller.
    pub from: Incarnation,
    /// The caller's number for the call.
    pub number: u64,
}

/// Which members are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// This member of the view; it may be the caller itself.
    Member(Incarnation),
    /// These members of the view; each once.
    Members(Vec<Incarnation>),
    /// One member that serves the verb: the least loaded one as far as this member was told, then the
    /// nearest, then the most senior. The caller may be chosen itself.
    Any,
    /// All members of the view in which the request is delivered, the caller too.
    All,
}

/// When a call has its answer. An application's error is not an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// With the first answer.
    First,
    /// With so many answers; not 0.
    Count(usize),
    /// With answers of more than half of the members asked. Members that leave meanwhile still count.
    Majority,
    /// With answers of all members asked. In a call to [`Target::All`] members that are gone are not
    /// waited for.
    All,
    /// When each member asked has answered, failed or gone, whatever it says: also without any answer.
    Each,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The members that are asked.
    pub target: Target,
    /// What for; at most [`MAX_VERB_BYTES`].
    pub verb: String,
    /// With what; at most [`MAX_CALL_BYTES`].
    pub payload: Bytes,
    /// When it has its answer.
    pub rule: Rule,
    /// After so much time it ends; at most [`MAX_DEADLINE`](super::MAX_DEADLINE).
    pub deadline: Duration,
    /// The request whose handler makes the call. The call ends with it at the latest.
    pub within: Option<RequestId>,
}

/// For the layer below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this to the group. If the group says what became of it other than by its delivery, hand that to
    /// [`Calls::handle_receipt`](super::Calls::handle_receipt).
    Send {
        /// The call.
        call: CallId,
        /// What.
        payload: Bytes,
    },
    /// Tell this to one member.
    Tell {
        /// To which.
        to: Incarnation,
        /// What.
        payload: Bytes,
        /// The call whose request this is: hand its receipt to
        /// [`Calls::handle_tell_receipt`](super::Calls::handle_tell_receipt).
        receipt: Option<CallId>,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call has ended. Each has this once.
    Ended {
        /// Which.
        call: CallId,
        /// Its answer.
        result: Result<Replies, CallError>,
    },
    /// A handler is to run. Answer it with [`Calls::answer`](super::Calls::answer), unless `Cancelled` comes
    /// first.
    Request {
        /// Which, and its caller.
        id: RequestId,
        /// What for.
        verb: String,
        /// With what.
        payload: Bytes,
        /// When it will be cancelled.
        deadline: Time,
    },
    /// The answer is not wanted any more: stop the handler. It has ended for this member; its place is given
    /// to the next request.
    Cancelled {
        /// Which.
        request: RequestId,
    },
    /// A message of a member made no sense and was ignored.
    Malformed {
        /// Whose.
        from: Incarnation,
        /// What was expected.
        what: &'static str,
    },
}

/// The answers of a call whose rule holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replies {
    /// In the order in which they came.
    pub replies: Vec<(Incarnation, Bytes)>,
    /// Members that failed before the rule held.
    pub failures: Vec<(Incarnation, Failure)>,
}

/// A call that ended without what its rule wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// Why it ended.
    pub why: Why,
    /// Whether a handler ran anywhere.
    pub ran: Ran,
    /// The answers that came, in their order.
    pub replies: Vec<(Incarnation, Bytes)>,
    /// Each other member that was asked. Empty if a call to all was not delivered here: which members were
    /// asked is not known then.
    pub failures: Vec<(Incarnation, Failure)>,
}

/// Why a call ended without its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// So many members failed that the rule cannot hold any more.
    Failed,
    /// Its time is over.
    Deadline,
    /// The caller cancelled it, or the request that it was made within was cancelled.
    Cancelled,
    /// This member's own membership has ended.
    MembershipEnded,
    /// The primary was lost, and the group did not deliver the call to all, or cannot say whether it did. A
    /// member that was cut off with the caller may have run it.
    NotDelivered,
}

/// Why a member that was asked gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Its handler answered with this error.
    Error(Bytes),
    /// It has as many requests as it takes.
    Busy,
    /// It does not serve the verb.
    NoSuchVerb,
    /// Handlers have called handlers more often than [`Config::max_depth`](super::Config::max_depth) there.
    TooDeep,
    /// The call ended before the request was sent.
    NotSent,
    /// The member was gone before the request was delivered to it.
    NotDelivered(Parting),
    /// The member was gone before it answered.
    Departed(Parting),
    /// It had not answered when the call ended.
    NoAnswer,
    /// It had no room to keep its reply.
    ReplyLost,
    /// What was to run it there has gone without an answer.
    GivenUp {
        /// False: it had not begun.
        may_have_run: bool,
    },
}

/// Whether a handler ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ran {
    /// It did not, and will not: asking again is safe.
    No,
    /// Nobody can say; it may also run yet.
    Maybe,
    /// It did.
    Yes,
}

impl Failure {
    /// Whether the handler ran.
    pub fn ran(&self) -> Ran {
        match self {
            Failure::Busy
            | Failure::NoSuchVerb
            | Failure::TooDeep
            | Failure::NotSent
            | Failure::NotDelivered(_)
            | Failure::GivenUp { may_have_run: false } => Ran::No,
            Failure::Departed(_) | Failure::NoAnswer | Failure::GivenUp { may_have_run: true } => Ran::Maybe,
            Failure::Error(_) | Failure::ReplyLost => Ran::Yes,
        }
    }

    /// The member is gone.
    pub(super) fn is_departure(&self) -> bool {
        matches!(self, Failure::NotDelivered(_) | Failure::Departed(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Error(bytes) => write!(f, "its handler gave an error of {} bytes", bytes.len()),
            Failure::Busy => f.write_str("it has as many requests as it takes, and did not run this one"),
            Failure::NoSuchVerb => f.write_str("it does not serve this verb"),
            Failure::TooDeep => {
                f.write_str("handlers called handlers too often, and it did not run this one")
            }
            Failure::NotSent => f.write_str("the request was not sent to it"),
            Failure::NotDelivered(parting) => {
                write!(f, "it was gone ({}), and did not run the request", cause(parting))
            }
            Failure::Departed(parting) => {
                write!(
                    f,
                    "it was gone ({}), and may have run the request",
                    cause(parting)
                )
            }
            Failure::NoAnswer => f.write_str("it has not answered, and may have run the request"),
            Failure::ReplyLost => f.write_str("it ran the request, and had no room to keep its reply"),
            Failure::GivenUp { may_have_run: true } => f.write_str(
                "what serves the verb there went before it answered, and may have run the request",
            ),
            Failure::GivenUp { may_have_run: false } => {
                f.write_str("what serves the verb there went before the request was handed to it")
            }
        }
    }
}

fn cause(parting: &Parting) -> &str {
    match parting {
        Parting::Left => "left",
        Parting::Crashed => "crashed or cut off",
        Parting::Removed(cause) => cause,
        Parting::Ended => "this node's own membership ended",
        _ => "gone",
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.why {
            Why::Failed => "too many members failed",
            Why::Deadline => "no answer within the deadline",
            Why::Cancelled => "the call was cancelled",
            Why::MembershipEnded => "this node's own membership ended",
            Why::NotDelivered => "the primary was lost, and has not delivered the request",
        })?;
        f.write_str(match self.ran {
            Ran::No => "; no handler ran",
            Ran::Maybe => "; handlers may have run",
            Ran::Yes => "; handlers ran",
        })?;
        for (member, failure) in &self.failures {
            write!(f, "; {member:?}: {failure}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CallError {}

/// Why a call was refused. Nothing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// This node is not a member of the group yet, or not any more.
    NotMember,
    /// The present view has no such member.
    NoSuchMember(Incarnation),
    /// No member serves this verb.
    NotServed,
    /// No member was named, or the rule wants no answer or more answers than members are asked.
    Impossible,
    /// Too many calls or bytes are under way; try again when a call has ended.
    Full,
    /// The payload is larger than this.
    TooLarge {
        /// The most bytes: [`MAX_CALL_BYTES`].
        limit: usize,
    },
    /// The verb is longer than this.
    VerbTooLong {
        /// The most bytes: [`MAX_VERB_BYTES`].
        limit: usize,
    },
    /// The deadline is further away than [`MAX_DEADLINE`](super::MAX_DEADLINE).
    DeadlineTooLong,
    /// Handlers have called handlers more often than [`Config::max_depth`](super::Config::max_depth).
    TooDeep,
    /// The request that the call is made within was answered or cancelled.
    RequestOver,
    /// This member serves [`MAX_VERBS`](super::MAX_VERBS) already.
    TooManyVerbs,
}

impl Refusal {
    pub(super) const TOO_LARGE: Refusal = Refusal::TooLarge {
        limit: MAX_CALL_BYTES,
    };
    pub(super) const VERB_TOO_LONG: Refusal = Refusal::VerbTooLong {
        limit: MAX_VERB_BYTES,
    };
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotMember => f.write_str("this node is not a member of the group; wait for its view"),
            Refusal::NoSuchMember(member) => write!(f, "the group's present view has no member {member:?}"),
            Refusal::NotServed => f.write_str("no member of the group serves this verb"),
            Refusal::Impossible => f.write_str("the reply rule cannot hold for the members that are named"),
            Refusal::Full => f.write_str("too many calls are under way; try again when one has ended"),
            Refusal::TooLarge { limit } => {
                write!(f, "the payload is larger than {limit} bytes; send it in parts")
            }
            Refusal::VerbTooLong { limit } => write!(f, "the verb is longer than {limit} bytes"),
            Refusal::DeadlineTooLong => f.write_str("the deadline is more than a day away"),
            Refusal::TooDeep => f.write_str("handlers have called handlers too often, maybe in a circle"),
            Refusal::RequestOver => {
                f.write_str("the request that this call is made within was answered or cancelled")
            }
            Refusal::TooManyVerbs => f.write_str("this member serves as many verbs as it may"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Why an answer was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnswerError {
    /// It is larger than this, and the request still waits for its answer.
    TooLarge {
        /// The most bytes: [`MAX_CALL_BYTES`].
        limit: usize,
    },
    /// The request was answered or cancelled.
    RequestOver,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerError::TooLarge { limit } => {
                write!(f, "the reply is larger than {limit} bytes; send it in parts")
            }
            AnswerError::RequestOver => f.write_str("the request was answered or cancelled"),
        }
    }
}

impl std::error::Error for AnswerError {}

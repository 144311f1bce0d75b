//! The library's errors, as those of lines.

use std::collections::BTreeMap;

use antiphon::calls::{self, CallError, CallsError, Why};
use antiphon::replicated::{CountingError, LockError, ReadError, Refusal, ReplicaError, WriteError, locks};
use antiphon_api::Payload;
use antiphon_api::blocks::{Code, Failure, Ran, Reply};

/// A reply that says only why.
pub(crate) fn not_done(failure: Failure) -> Reply {
    Reply {
        error: Some(failure),
        ..Reply::default()
    }
}

/// All that were asked failed. Whether it happened: what is worst of what they say.
pub(crate) fn of_all(failures: &BTreeMap<String, Failure>, reason: &str) -> Failure {
    let ran = failures.values().map(|failure| failure.ran);
    Failure {
        ran: ran.max_by_key(|ran| *ran as u8).unwrap_or(Ran::Maybe),
        ..Failure::nothing_done(Code::Failed, reason)
    }
}

/// This node is on its way out.
pub(super) fn leaving() -> Failure {
    Failure::nothing_done(
        Code::Unavailable,
        "this node is leaving: ask another one, or this one when it is started again",
    )
}

pub(super) fn of_replica(error: &ReplicaError) -> Failure {
    let code = match error {
        ReplicaError::Refused { .. } | ReplicaError::Cluster(antiphon::Error::GroupRefused { .. }) => {
            Code::Refused
        }
        _ => Code::Unavailable,
    };
    Failure::nothing_done(code, error.to_string())
}

pub(super) fn of_write(error: &WriteError) -> Failure {
    let (code, ran) = match error {
        WriteError::Refused(refusal) => (of_refusal(refusal), Ran::No),
        WriteError::NotSent => (Code::Unavailable, Ran::No),
        WriteError::Unknown => (Code::Unknown, Ran::Maybe),
        _ => (Code::Refused, Ran::No),
    };
    Failure {
        code,
        reason: error.to_string(),
        ran,
        payload: None,
    }
}

pub(super) fn of_read(error: &ReadError) -> Failure {
    let code = match error {
        ReadError::Refused(refusal) => of_refusal(refusal),
        _ => Code::Unavailable,
    };
    Failure::nothing_done(code, error.to_string())
}

fn of_refusal(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::TooLarge | Refusal::Unencodable => Code::Refused,
        _ => Code::Unavailable,
    }
}

pub(super) fn of_counting(error: &CountingError) -> Failure {
    match error {
        CountingError::Write(error) => of_write(error),
        other => Failure::nothing_done(Code::Refused, other.to_string()),
    }
}

/// Of a wait for a lock: where it may have been granted, it is given back by itself. So nobody needs to look
/// whether it was, and it may be asked for again.
pub(super) fn of_wait(error: &LockError) -> Failure {
    let code = match error {
        LockError::Write(WriteError::Unknown) => Code::Unavailable,
        LockError::Write(error) => of_write(error).code,
        LockError::Refused(_) => Code::Refused,
        LockError::Lost(_) => Code::Lost,
        _ => Code::Unavailable,
    };
    let reason = match error {
        LockError::Write(WriteError::Refused(refusal)) => format!("it was not granted: {refusal}"),
        LockError::Write(WriteError::NotSent) => {
            "it was not granted: the primary or this membership was lost first; ask again when it is back"
                .to_owned()
        }
        LockError::Write(WriteError::Unknown) => {
            "it was not granted: the primary or this membership was lost first. If the others grant it all the same, it is given back by itself; ask again when it is back"
                .to_owned()
        }
        LockError::Lost(loss) => format!("the place in its queue was lost: {loss}; ask again"),
        other => other.to_string(),
    };
    Failure::nothing_done(code, reason)
}

/// Of giving a lock back. This node does not hold it any more in any case.
pub(super) fn of_release(error: &LockError) -> Failure {
    let (code, ran) = match error {
        LockError::Write(error) => (of_write(error).code, Ran::Maybe),
        LockError::Lost(_) => (Code::Lost, Ran::No),
        _ => (Code::Refused, Ran::No),
    };
    let reason = match error {
        LockError::Write(WriteError::Refused(refusal)) => {
            format!("it could not be given back now: {refusal}; it is given back by itself when that can be")
        }
        LockError::Write(WriteError::Unknown) => {
            "it was given back, or is by itself when that can be: the primary or this membership was lost before that was known"
                .to_owned()
        }
        LockError::Write(_) => {
            "it could not be given back now: the primary or this membership was lost first; it is given back by itself when that can be"
                .to_owned()
        }
        LockError::Lost(loss) => format!("it was lost before: {loss}"),
        other => other.to_string(),
    };
    Failure {
        code,
        reason,
        ran,
        payload: None,
    }
}

/// Of handing a leadership over. Where nothing happened this node leads on.
pub(super) fn of_hand_over(error: &LockError) -> Failure {
    match error {
        LockError::Write(error) => of_write(error),
        LockError::Refused(locks::Refused::NotHeld { .. }) => {
            Failure::nothing_done(Code::NotHeld, error.to_string())
        }
        LockError::Refused(locks::Refused::NoSuccessor) => {
            Failure::nothing_done(Code::Unavailable, error.to_string())
        }
        other => Failure::nothing_done(Code::Refused, other.to_string()),
    }
}

pub(super) fn of_call(error: &CallsError) -> Failure {
    match error {
        CallsError::Refused(refusal) => Failure::nothing_done(of_calls_refusal(refusal), refusal.to_string()),
        CallsError::Failed(error) => {
            let (code, reason) = ended(error);
            Failure {
                code,
                reason: reason.to_owned(),
                ran: ran(error.ran),
                payload: None,
            }
        }
    }
}

fn of_calls_refusal(refusal: &calls::Refusal) -> Code {
    match refusal {
        calls::Refusal::NotMember
        | calls::Refusal::NoSuchMember(_)
        | calls::Refusal::NotServed
        | calls::Refusal::Full => Code::Unavailable,
        calls::Refusal::RequestOver => Code::NotHeld,
        _ => Code::Refused,
    }
}

fn ended(error: &CallError) -> (Code, &'static str) {
    match error.why {
        Why::Failed => (
            Code::Failed,
            "no member that was called answered: `failures` says why each",
        ),
        Why::Deadline => (
            Code::Timeout,
            "not all that were called answered in the time: give more of it, or see `failures`",
        ),
        Why::Cancelled => (
            Code::Cancelled,
            "the call was cancelled, or the request that it was made in was",
        ),
        Why::MembershipEnded => (
            Code::Unknown,
            "this node's own membership ended: call again when it is back, if that does no harm",
        ),
        Why::NotDelivered => (
            Code::Unknown,
            "the majority was lost, and has not delivered the request: call again when it is back, if that does no harm",
        ),
    }
}

/// Why one member gave no answer.
pub(super) fn of_member(failure: &calls::Failure) -> Failure {
    let (code, payload) = match failure {
        calls::Failure::Error(bytes) => (Code::Failed, Some(Payload::from_bytes(bytes))),
        calls::Failure::Busy | calls::Failure::NotSent => (Code::Unavailable, None),
        calls::Failure::NoSuchVerb | calls::Failure::TooDeep => (Code::Refused, None),
        calls::Failure::NotDelivered(_) | calls::Failure::Departed(_) => (Code::Lost, None),
        calls::Failure::NoAnswer => (Code::Timeout, None),
        calls::Failure::ReplyLost | calls::Failure::GivenUp { may_have_run: true } => (Code::Failed, None),
        calls::Failure::GivenUp { may_have_run: false } => (Code::Unavailable, None),
    };
    let reason = match failure {
        calls::Failure::Error(_) => "its handler answered with an error".to_owned(),
        other => other.to_string(),
    };
    Failure {
        code,
        reason,
        ran: ran(failure.ran()),
        payload,
    }
}

fn ran(ran: calls::Ran) -> Ran {
    match ran {
        calls::Ran::No => Ran::No,
        calls::Ran::Maybe => Ran::Maybe,
        calls::Ran::Yes => Ran::Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map's words would tell a program to read before it tries again, and there is nothing to read.
    #[test]
    fn what_is_said_of_a_lock_agrees_with_whether_it_happened() {
        for error in [
            WriteError::Refused(Refusal::TooLarge),
            WriteError::NotSent,
            WriteError::Unknown,
        ] {
            let waited = of_wait(&LockError::Write(error));
            assert!(waited.reason.starts_with("it was not granted"), "{waited:?}");
            assert!(
                waited.ran == Ran::No && waited.code != Code::Unknown,
                "{waited:?}"
            );
            let given = of_release(&LockError::Write(error));
            assert!(given.reason.contains("by itself when that can be"), "{given:?}");
            assert_eq!(given.ran, Ran::Maybe);
            for failure in [waited, given] {
                assert!(!failure.reason.contains("written"), "{failure:?}");
            }
        }
    }
}

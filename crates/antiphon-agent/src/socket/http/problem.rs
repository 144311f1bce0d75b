//! What a request is answered with when it was not done: a status, and one JSON object that says why.

use antiphon_api::blocks::{Code, Failure, Ran, Reply};
use hyper::StatusCode;
use hyper::header::{ALLOW, ETAG, HeaderName, HeaderValue, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE};
use serde_json::{Map, Value, json};

use super::answer::{self, Answer};
use crate::access::Denied;

/// After how many seconds a client that was answered with 503 may try again.
const RETRY_AFTER_SECONDS: u16 = 1;

/// Why a request was not done.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// What a program decides by: that of a reply, or a word of HTTP's own.
    code: Value,
    reason: String,
    ran: Ran,
    /// What stands beside `error`.
    beside: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// One of HTTP's own: nothing was done.
    pub(super) fn new(status: StatusCode, code: &str, reason: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            reason: reason.into(),
            ran: Ran::No,
            beside: Map::new(),
            headers: Vec::new(),
        }
    }

    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "refused", reason)
    }

    pub(super) fn unavailable(reason: impl Into<String>) -> Self {
        Failure::nothing_done(Code::Unavailable, reason).into()
    }

    pub(super) fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    pub(super) fn not_held(reason: impl Into<String>) -> Self {
        Failure::nothing_done(Code::NotHeld, reason).into()
    }

    pub(super) fn method(allow: &str) -> Self {
        let reason = format!("this path takes {allow}");
        let mut problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason);
        problem.headers.push((ALLOW, answer::methods(allow)));
        problem
    }

    pub(super) fn denied(denied: Denied) -> Self {
        let (reason, challenge) = match denied {
            Denied::Missing => (
                "a token is asked for: Authorization: Bearer TOKEN",
                "Bearer realm=\"antiphon\"",
            ),
            Denied::Wrong => (
                "this token is none of the agent's",
                "Bearer realm=\"antiphon\", error=\"invalid_token\"",
            ),
        };
        let mut problem = Self::new(StatusCode::UNAUTHORIZED, "unauthorized", reason);
        problem
            .headers
            .push((WWW_AUTHENTICATE, HeaderValue::from_static(challenge)));
        problem
    }

    pub(super) fn no_upgrade(reason: impl Into<String>) -> Self {
        let mut problem = Self::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", reason);
        problem
            .headers
            .push((UPGRADE, HeaderValue::from_static("websocket")));
        problem
    }

    /// What an operation's reply says beside its error: the version that is there, what members said.
    pub(super) fn of_reply(failure: Failure, reply: &Reply) -> Self {
        let mut problem = Self::from(failure);
        if let Some(version) = reply.version {
            problem.beside.insert("version".to_owned(), json!(version));
            problem.headers.push((ETAG, answer::tag(version)));
        }
        if let Some(replies) = &reply.replies {
            problem.beside.insert("replies".to_owned(), json!(replies));
        }
        // A command that is only handed over has no replies, and may fail at each node.
        if reply.replies.is_some() || !reply.failures.is_empty() {
            let failures = json!(reply.failures);
            problem.beside.insert("failures".to_owned(), failures);
        }
        problem
    }

    pub(super) fn answer(self) -> Answer {
        let error = json!({"code": self.code, "reason": self.reason, "ran": self.ran});
        let mut object = self.beside;
        object.insert("error".to_owned(), error);
        let mut answer = answer::json(self.status, &Value::Object(object));
        answer.headers_mut().extend(self.headers);
        answer
    }
}

/// The status that fits what is wrong.
fn status(code: Code) -> StatusCode {
    match code {
        Code::Conflict => StatusCode::PRECONDITION_FAILED,
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Code::NotHeld => StatusCode::CONFLICT,
        Code::Lost => StatusCode::GONE,
        Code::Cancelled | Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Refused => StatusCode::BAD_REQUEST,
        Code::Failed => StatusCode::BAD_GATEWAY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = status(failure.code);
        let mut problem = Self {
            code: json!(failure.code),
            ran: failure.ran,
            ..Self::new(status, "", failure.reason)
        };
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem.headers.push((RETRY_AFTER, RETRY_AFTER_SECONDS.into()));
        }
        problem
    }
}

impl From<crate::hub::Full> for Problem {
    fn from(crate::hub::Full(most): crate::hub::Full) -> Self {
        Self::unavailable(format!(
            "this node serves {most} clients, no more at a time: try again, or end one of them"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_status_and_what_may_be_tried_again_says_when() {
        for (code, expected) in [
            (Code::Conflict, 412),
            (Code::Timeout, 504),
            (Code::Cancelled, 503),
            (Code::NotHeld, 409),
            (Code::Lost, 410),
            (Code::Unavailable, 503),
            (Code::Refused, 400),
            (Code::Unknown, 500),
            (Code::Failed, 502),
            (Code::Other, 500),
        ] {
            let answer = Problem::from(Failure::nothing_done(code, "why")).answer();
            assert_eq!(answer.status().as_u16(), expected, "{code:?}");
            assert_eq!(
                answer.headers().contains_key(RETRY_AFTER),
                expected == 503,
                "{code:?}"
            );
        }
    }
}

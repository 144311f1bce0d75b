//! What a program is replied to, by what came of its command.

use antiphon::replicated::counters::BEYOND_64_BITS;
use antiphon_api::Payload;
use antiphon_api::blocks::{Code, Failure, Ran, Reply, Value};

use super::encode::Encoder;

/// How the reply to a command looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// `OK`.
    Done,
    /// The same: from now on requests are pushed.
    Serving,
    /// `OK`, or nil if there was a value already.
    DoneIfNone,
    /// 1, or 0 if there was a value already.
    OneIfNone,
    /// The value, or nil.
    Value,
    /// The value and its version, or nil.
    Entry,
    /// The number of a counter.
    Number,
    /// How many of several had a value: a part of the sum.
    HadOne,
    /// The version that was written.
    Version,
    /// The token of what was granted.
    Token,
    /// To how many it went: known when it is delivered.
    Published(String),
    /// The client is on its way into this group.
    Joined(String),
    /// What each member that was called answered.
    Answers,
    /// `OK`, or of each node to which it was not handed over, why.
    Handed,
    /// What commands to peers did, as JSON.
    Commands,
    /// The members of the cluster.
    Members,
    /// What client and node are called.
    Welcome,
    /// What is known of a node.
    Facts,
}

/// How an error ends if what was asked for may have been done.
pub(super) const MAY_HAVE_HAPPENED: &str = " (it may have happened)";

pub(super) fn may_have_happened(failure: &Failure) -> bool {
    failure.code == Code::Unknown || failure.ran == Ran::Maybe
}

/// An error as it is told, with its code in front.
pub(super) fn told(failure: &Failure) -> String {
    let may = if may_have_happened(failure) {
        MAY_HAVE_HAPPENED
    } else {
        ""
    };
    format!("{} {}{may}", code(failure.code), failure.reason)
}

fn code(code: Code) -> &'static str {
    match code {
        Code::Conflict => "CONFLICT",
        Code::Timeout => "TIMEOUT",
        Code::Cancelled => "CANCELLED",
        Code::NotHeld => "NOTHELD",
        Code::Lost => "LOST",
        Code::Unavailable => "UNAVAILABLE",
        Code::Refused => "REFUSED",
        Code::Unknown => "UNKNOWN",
        Code::Failed => "FAILED",
        _ => "ERR",
    }
}

/// The bytes of a payload, which came from a node and so is base64 that can be read.
pub(super) fn bytes(payload: Payload) -> bytes::Bytes {
    payload.into_bytes().unwrap_or_default()
}

impl Shape {
    /// Writes the reply. For a part of a sum it is 0 or 1. For a published message it is not known here to
    /// how many it went.
    pub(super) fn write(&self, reply: Reply, to: &mut Encoder<'_>) {
        if let Some(failure) = &reply.error {
            match (self, failure.code) {
                (Shape::DoneIfNone, Code::Conflict) => return to.nil(),
                (Shape::OneIfNone, Code::Conflict) => return to.number(0),
                // An error has no code of its own for a sum that does not fit.
                (Shape::Number, Code::Refused) if failure.reason.ends_with(BEYOND_64_BITS) => {
                    return to.error("ERR increment or decrement would overflow");
                }
                // It was removed from the group while it published, and the next PUBLISH makes it join again.
                (Shape::Published(group), Code::NotHeld) => {
                    let reason = format!("UNAVAILABLE this client was removed from {group}: try again");
                    return to.error(&reason);
                }
                // Some answered.
                (Shape::Answers | Shape::Handed, _) if has_answers(&reply) => {}
                _ => return to.error(&told(failure)),
            }
        }
        match self {
            Shape::Done | Shape::Serving | Shape::DoneIfNone | Shape::Joined(_) | Shape::Facts => {
                to.simple("OK")
            }
            Shape::OneIfNone | Shape::Published(_) => to.number(1),
            Shape::Value => match reply.value {
                Some(Value::Bytes(payload)) => to.bulk(&bytes(payload)),
                _ => to.nil(),
            },
            Shape::Entry => match (reply.value, reply.version) {
                (Some(Value::Bytes(payload)), Some(version)) => entry(&bytes(payload), version.0, to),
                _ => to.nil_array(),
            },
            Shape::Number => match reply.value {
                Some(Value::Number(number)) => to.number(number),
                _ => to.nil(),
            },
            Shape::HadOne => to.number(had_one(&reply)),
            Shape::Version => serial(reply.version.map(|version| version.0), to),
            Shape::Token => serial(reply.token.map(|token| token.0), to),
            Shape::Handed if reply.failures.is_empty() => to.simple("OK"),
            Shape::Answers | Shape::Handed => answers(reply, to),
            Shape::Commands => match reply.commands {
                Some(commands) => to.bulk(commands.to_string().as_bytes()),
                None => to.nil(),
            },
            Shape::Members => {
                let members = reply.view.map(|view| view.members).unwrap_or_default();
                to.array(members.len());
                for member in members {
                    to.bulks(&[member.name, member.addr]);
                }
            }
            Shape::Welcome => {
                let Some(welcome) = reply.welcome else {
                    return to.nil();
                };
                let fields = [
                    ("client", welcome.client),
                    ("node", welcome.node),
                    ("cluster", welcome.cluster),
                    ("build", welcome.build),
                ];
                to.map(fields.len());
                for (name, value) in fields {
                    to.bulk(name.as_bytes());
                    to.bulk(value.as_bytes());
                }
            }
        }
    }
}

/// Whether there was a value.
pub(super) fn had_one(reply: &Reply) -> i64 {
    matches!(reply.value, Some(Value::Bytes(_))).into()
}

/// A value and its version.
pub(super) fn entry(value: &[u8], version: u64, to: &mut Encoder<'_>) {
    to.array(2);
    to.bulk(value);
    serial(Some(version), to);
}

/// A token or a version: a string, since it has up to 64 bits and RESP's numbers have a sign.
fn serial(serial: Option<u64>, to: &mut Encoder<'_>) {
    match serial {
        Some(serial) => to.bulk(serial.to_string().as_bytes()),
        None => to.nil(),
    }
}

fn has_answers(reply: &Reply) -> bool {
    let replies = reply.replies.as_ref().map_or(0, std::collections::BTreeMap::len);
    replies + reply.failures.len() > 0
}

/// `[member, OK, answer]` or `[member, code, why]` of each member.
fn answers(reply: Reply, to: &mut Encoder<'_>) {
    let replies = reply.replies.unwrap_or_default();
    to.array(replies.len() + reply.failures.len());
    for (member, answer) in replies {
        to.array(3);
        to.bulk(member.as_bytes());
        to.bulk(b"OK");
        to.bulk(&bytes(answer));
    }
    for (member, failure) in reply.failures {
        to.array(3);
        to.bulk(member.as_bytes());
        to.bulk(code(failure.code).as_bytes());
        match failure.payload.clone() {
            Some(payload) => to.bulk(&bytes(payload)),
            None => {
                let told = told(&failure);
                let why = told.split_once(' ').map_or(&*told, |(_, why)| why);
                to.bulk(why.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use antiphon_api::blocks::Serial;

    use super::super::encode::Version;
    use super::*;

    fn written(shape: Shape, reply: Reply, version: Version) -> String {
        let mut bytes = Vec::new();
        shape.write(
            reply,
            &mut Encoder {
                bytes: &mut bytes,
                version,
            },
        );
        String::from_utf8(bytes).unwrap()
    }

    fn failed(code: Code, ran: Ran) -> Reply {
        Reply {
            error: Some(Failure {
                ran,
                ..Failure::nothing_done(code, "why")
            }),
            ..Reply::default()
        }
    }

    #[test]
    fn each_reply_is_what_its_command_promises() {
        let value = Reply {
            value: Some(Value::Bytes(Payload::from_bytes(b"v"))),
            version: Some(Serial(u64::MAX)),
            ..Reply::default()
        };
        let nothing = Reply {
            value: Some(Value::Nothing),
            ..Reply::default()
        };
        let number = Reply {
            value: Some(Value::Number(-5)),
            ..Reply::default()
        };
        let token = Reply {
            token: Some(Serial(7)),
            ..Reply::default()
        };
        for (shape, reply, two, three) in [
            (Shape::Done, Reply::default(), "+OK\r\n", "+OK\r\n"),
            (Shape::Value, value.clone(), "$1\r\nv\r\n", "$1\r\nv\r\n"),
            (Shape::Value, nothing.clone(), "$-1\r\n", "_\r\n"),
            (
                Shape::Entry,
                value.clone(),
                "*2\r\n$1\r\nv\r\n$20\r\n18446744073709551615\r\n",
                "*2\r\n$1\r\nv\r\n$20\r\n18446744073709551615\r\n",
            ),
            (Shape::Entry, nothing.clone(), "*-1\r\n", "_\r\n"),
            (Shape::HadOne, value.clone(), ":1\r\n", ":1\r\n"),
            (Shape::HadOne, nothing, ":0\r\n", ":0\r\n"),
            (Shape::Number, number, ":-5\r\n", ":-5\r\n"),
            (Shape::Token, token, "$1\r\n7\r\n", "$1\r\n7\r\n"),
            (
                Shape::DoneIfNone,
                failed(Code::Conflict, Ran::No),
                "$-1\r\n",
                "_\r\n",
            ),
            (
                Shape::OneIfNone,
                failed(Code::Conflict, Ran::No),
                ":0\r\n",
                ":0\r\n",
            ),
        ] {
            assert_eq!(written(shape.clone(), reply.clone(), Version::Two), two);
            assert_eq!(written(shape, reply, Version::Three), three);
        }
    }

    #[test]
    fn an_error_has_its_code_and_says_whether_it_may_have_happened() {
        for (code, ran, expected) in [
            (Code::Conflict, Ran::No, "-CONFLICT why\r\n"),
            (Code::Timeout, Ran::No, "-TIMEOUT why\r\n"),
            (
                Code::Timeout,
                Ran::Maybe,
                "-TIMEOUT why (it may have happened)\r\n",
            ),
            (Code::NotHeld, Ran::No, "-NOTHELD why\r\n"),
            (Code::Lost, Ran::No, "-LOST why\r\n"),
            (Code::Unavailable, Ran::No, "-UNAVAILABLE why\r\n"),
            (Code::Refused, Ran::No, "-REFUSED why\r\n"),
            (
                Code::Unknown,
                Ran::Maybe,
                "-UNKNOWN why (it may have happened)\r\n",
            ),
        ] {
            assert_eq!(written(Shape::Version, failed(code, ran), Version::Two), expected);
        }
    }

    #[test]
    fn a_call_says_of_each_member_what_came_of_it() {
        let mut reply = failed(Code::Timeout, Ran::Maybe);
        let nobody = reply.clone();
        reply.replies = Some([("a".to_owned(), Payload::from_bytes(b"yes"))].into());
        let no = Failure {
            payload: Some(Payload::from_bytes(b"no")),
            ..Failure::nothing_done(Code::Failed, "its handler")
        };
        let gone = Failure::nothing_done(Code::Lost, "it crashed");
        reply.failures = [("b".to_owned(), no), ("c".to_owned(), gone)].into();
        let text = written(Shape::Answers, reply, Version::Two).replace("\r\n", " ");
        assert_eq!(
            text,
            "*3 *3 $1 a $2 OK $3 yes *3 $1 b $6 FAILED $2 no *3 $1 c $4 LOST $10 it crashed "
        );
        let text = written(Shape::Answers, nobody, Version::Two);
        assert!(text.starts_with("-TIMEOUT why"));
    }

    #[test]
    fn a_message_to_a_group_that_was_lost_may_be_published_again() {
        let failed = failed(Code::NotHeld, Ran::No);
        let text = written(Shape::Published("g".to_owned()), failed, Version::Two);
        assert_eq!(text, "-UNAVAILABLE this client was removed from g: try again\r\n");
    }

    #[test]
    fn what_is_handed_over_is_ok_only_if_each_node_has_it() {
        assert_eq!(written(Shape::Handed, Reply::default(), Version::Two), "+OK\r\n");
        let full = Failure::nothing_done(Code::Unavailable, "its queue is full");
        let failures = Reply {
            failures: [("b".to_owned(), full)].into(),
            ..Reply::default()
        };
        let nobody = Reply {
            failures: failures.failures.clone(),
            ..failed(Code::Failed, Ran::No)
        };
        for reply in [failures, nobody] {
            let text = written(Shape::Handed, reply, Version::Two).replace("\r\n", " ");
            assert_eq!(text, "*1 *3 $1 b $11 UNAVAILABLE $17 its queue is full ");
        }
        let refused = written(Shape::Handed, failed(Code::Refused, Ran::No), Version::Two);
        assert_eq!(refused, "-REFUSED why\r\n");
    }
}

//! Operations on blocks — locks, leadership, maps, counters, requests — and what is replied.
//!
//! Each operation is one command, and is answered by one [`Reply`] with the operation's `id`. What comes
//! unasked is an event of its own: a lock that was lost, a change of a watched map, a request of a member.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{NodeView, Payload, View};

/// What a program calls an operation, to know its reply: a whole number or a string.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "id must be a whole number below 2^64 or a string")]
pub enum Id {
    /// A number.
    Number(u64),
    /// A string.
    Text(String),
}

/// A fencing token or a version: a whole number of up to 64 bits. It is written as a number, and read from a
/// number or from a string of digits, for languages with numbers of 53 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(pub u64);

/// A time with its unit: `250ms`, `5s`, `10m`, `2h`; up to 8760 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// `{"lock":{"name":"x","within":"5s","id":1}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The lock.
    pub name: String,
    /// How long to wait for it; without end if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Span>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"unlock":{"name":"x","token":T}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unlock {
    /// The lock.
    pub name: String,
    /// With which it was granted.
    pub token: Serial,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"lead":{"name":"job","id":5}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lead {
    /// The job.
    pub name: String,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"resign":{"name":"job","token":T,"to":"b"}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resign {
    /// The job.
    pub name: String,
    /// With which this node leads it.
    pub token: Serial,
    /// The name of a node that waits for the job and is to lead it next; if left out, the node that has
    /// waited longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"put":{"map":"m","key":"k","value":"v","if_version":V,"ttl":"10s","id":2}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The map.
    pub map: String,
    /// The key.
    pub key: String,
    /// What it is to have.
    pub value: Payload,
    /// Only if the key has the value of this version; 0: only if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<Serial>,
    /// How long the value is there; for ever if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"get":{"map":"m","key":"k","latest":true,"id":3}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Get {
    /// The map.
    pub map: String,
    /// The key.
    pub key: String,
    /// With all that was replied to any node before; otherwise of this node's copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub latest: bool,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"remove":{"map":"m","key":"k","if_version":V,"id":4}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// The map.
    pub map: String,
    /// The key.
    pub key: String,
    /// Only if the key has the value of this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<Serial>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"watch":{"map":"m","prefix":"user/","id":9}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The map.
    pub map: String,
    /// This key alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Keys that begin so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// For the reply, and for each line of this watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"add":{"counter":"c","by":1,"id":4}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// The counter.
    pub counter: String,
    /// How much; less than 0 to subtract.
    pub by: i64,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"take_ids":{"count":100,"id":7}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeIds {
    /// How many: 1 to 4096.
    pub count: u32,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"serve":{"group":"g","verb":"v"}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// The group of nodes that call each other.
    pub group: String,
    /// Which of their requests this node answers from now on.
    pub verb: String,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"answer":{"request":R,"payload":"yes"}}`, or `"error"` in place of `"payload"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// That of the `request` event.
    pub request: u64,
    /// The answer; empty if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// That it failed, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Payload>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"call":{"group":"g","verb":"v","to":"all","payload":"?","within":"2s","in":R,"id":6}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The group of nodes that call each other.
    pub group: String,
    /// What for.
    pub verb: String,
    /// Which of them.
    pub to: To,
    /// With what; empty if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// After so much time it ends; 10 s if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Span>,
    /// The number of the `request` event that this program makes the call for, and has not answered yet.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"cancel":{"of":9,"id":10}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The id of an operation that waits, or of a watch.
    pub of: Id,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// Which members are called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "to must be \"all\", \"any\" or a list of names")]
pub enum To {
    /// By a word.
    Word(Word),
    /// By their names.
    Names(Vec<String>),
}

/// Members without their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// All members of the view in which the request is delivered, the caller too.
    All,
    /// One that serves the verb, the least loaded one.
    Any,
}

/// The answer to one operation: what it gave, or an error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Which operation: the command's word.
    pub op: String,
    /// As it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// Of a lock or leadership: the fencing token of this grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Serial>,
    /// Of a map: what the key has, or had; null if nothing. Of a counter: its number.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "Value::present"
    )]
    pub value: Option<Value>,
    /// Of what is in the map now; of what was removed; with an error, of what is there instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Serial>,
    /// The first of the ids; the others follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Serial>,
    /// The answers to a call, by the members' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<BTreeMap<String, Payload>>,
    /// The members that were called and gave no answer, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, Failure>,
    /// Of `hello`: what client and node are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub welcome: Option<Box<Welcome>>,
    /// Of `commands`: what commands to peers did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Box<serde_json::Value>>,
    /// Of `members`: the cluster's present view; none while there is no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<Box<NodeView>>,
    /// Of `members` with a block's group: the group's present view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_view: Option<Box<View>>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// The answer to `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// What this client is called.
    pub client: String,
    /// What its node is called: in groups it is NODE/CLIENT.
    pub node: String,
    /// The cluster.
    pub cluster: String,
    /// The node's build.
    pub build: String,
    /// For a client that may come back: the key with which it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// For a client that came back and is the same: how many of its lines were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<u64>,
}

/// What a key or a counter has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Nothing.
    Nothing,
    /// Of a counter.
    Number(i64),
    /// Of a map.
    Bytes(Payload),
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What a program decides by.
    pub code: Code,
    /// For people: what is wrong, and what to do.
    pub reason: String,
    /// Whether it happened all the same.
    pub ran: Ran,
    /// Of a member that answered so: its own error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// `if_version` does not hold: read again.
    Conflict,
    /// It did not happen in its time.
    Timeout,
    /// It was cancelled.
    Cancelled,
    /// Nothing is held with this token, or the request is answered already.
    NotHeld,
    /// The lock or leadership was lost.
    Lost,
    /// Not now: no majority, no state yet, no such member, too much at once. Try again later.
    Unavailable,
    /// Not so: the operation is beyond a bound, or makes no sense. Change it.
    Refused,
    /// The majority or this membership was lost after it was sent. Read before trying again.
    Unknown,
    /// Members that were called failed.
    Failed,
    /// Of a newer build.
    #[serde(other)]
    Other,
}

/// Whether something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    /// It did not, and will not.
    No,
    /// That is not known; it may happen yet.
    Maybe,
    /// It did.
    Yes,
}

/// What this node had, and has no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// What kind of thing it was.
    pub what: Kind,
    /// The lock, the job, the watched map, or the group.
    pub name: String,
    /// With which it was held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Serial>,
    /// That of the operation that got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// Why.
    pub cause: String,
}

/// What can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A lock.
    Lock,
    /// The leadership of a job.
    Lead,
    /// A watch of a map.
    Watch,
    /// The membership of a group of clients.
    Group,
}

/// The beginning of a watch, or its new beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watching {
    /// The map.
    pub map: String,
    /// That of the watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// So many `changed` lines follow that say what is there; they take the place of all that was told.
    pub entries: usize,
}

/// What a key of a watched map has now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The map.
    pub map: String,
    /// That of the watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// The key.
    pub key: String,
    /// What it has; null if nothing.
    pub value: Option<Payload>,
    /// Of the change: greater than that of each change before it.
    pub version: Serial,
    /// Why it has nothing: `removed`, `expired` or `evicted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<String>,
}

/// A member calls, and this node serves the verb.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The group of nodes that call each other.
    pub group: String,
    /// For the answer.
    pub request: u64,
    /// What for.
    pub verb: String,
    /// The name of the member that calls.
    pub from: String,
    /// With what.
    pub payload: Payload,
    /// The caller waits so many milliseconds more.
    pub within_ms: u64,
}

impl Failure {
    /// One that did nothing.
    pub fn nothing_done(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            ran: Ran::No,
            payload: None,
        }
    }
}

impl Value {
    /// That there is nothing is a value too.
    fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Self::deserialize(deserializer).map(Some)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(f),
            Id::Text(text) => text.fmt(f),
        }
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Serial {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Serial {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        #[serde(
            expecting = "a token or version must be a whole number below 2^64, or a string of its digits"
        )]
        enum Given {
            Number(u64),
            Text(String),
        }
        match Given::deserialize(deserializer)? {
            Given::Number(number) => Ok(Self(number)),
            Given::Text(text) => text.parse().map(Self).map_err(|_| {
                let reason =
                    "a token or version must be a whole number below 2^64, or a string of its digits";
                serde::de::Error::custom(reason)
            }),
        }
    }
}

/// Longest first: `5m` is what people write, not `300s`.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
const LONGEST_MS: u64 = 8760 * 3_600_000;

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let ms = unit.and_then(|(_, ms)| number.parse::<u64>().ok()?.checked_mul(*ms));
        match ms {
            Some(ms) if ms <= LONGEST_MS => Ok(Self(Duration::from_millis(ms))),
            _ => {
                Err("expected a time with its unit, such as 250ms, 5s, 10m or 2h, of up to 8760h".to_owned())
            }
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis() as u64;
        let whole = UNITS
            .iter()
            .find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit));
        let (name, unit) = whole.unwrap_or(&("ms", 1));
        write!(f, "{}{name}", ms / unit)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time with its unit, such as \"5s\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_a_bound() {
        for (text, ms) in [
            ("0ms", 0),
            ("250ms", 250),
            ("5s", 5000),
            ("90s", 90_000),
            ("2h", 7_200_000),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(ms));
            assert_eq!(span.to_string(), text);
        }
        for wrong in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "5 s",
            "8761h",
            "99999999999999999999s",
            "never",
        ] {
            assert!(wrong.parse::<Span>().unwrap_err().contains("250ms"), "{wrong}");
        }
    }

    #[test]
    fn numbers_of_64_bits_are_read_from_text_too() {
        let greatest = Serial(u64::MAX);
        for text in ["18446744073709551615", r#""18446744073709551615""#] {
            assert_eq!(serde_json::from_str::<Serial>(text).unwrap(), greatest);
        }
        assert_eq!(serde_json::to_string(&greatest).unwrap(), "18446744073709551615");
        for wrong in ["-1", "1.5", r#""x""#, "18446744073709551616", "null"] {
            let error = serde_json::from_str::<Serial>(wrong).unwrap_err().to_string();
            assert!(error.contains("whole number"), "{error}");
        }
    }
}

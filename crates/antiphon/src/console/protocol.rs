//! Questions and answers, one JSON object a line.
//!
//! A question: `{"v":1,"ask":"members"}`, `{"v":1,"ask":"why","node":"b"}`, `{"v":1,"ask":"views","watch":true}`, `{"v":1,"ask":"status"}`,
//! `{"v":1,"ask":"recovery"}`, `{"v":1,"ask":"recover","lineage":"…","view":"1:3"}`.
//! Answers have an `answer` field: `hello` once at the beginning, then for each question its answers; those of `views` are many lines, ended
//! by `end`, and with `watch` there is a `now` between what happened before and what happens from then on. Incarnations are 32 hex digits; times `at_ms` are milliseconds since 1970 by the host's clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of questions and answers that this build speaks.
pub const VERSION: u32 = 1;
/// The longest question, in bytes, without the end of its line.
pub const MAX_QUESTION_BYTES: usize = 4096;
/// The longest line of an answer.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Clients served at a time; one more is told so and sent away.
pub const MAX_CLIENTS: usize = 16;
/// A refusal lasts as long as it is told again, which happens every few seconds; one that is older than this is of the past.
pub const REFUSAL_LASTS_MS: u64 = 15_000;
/// Questions of one connection.
pub const MAX_QUESTIONS: u32 = 10_000;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Question {
    /// What the node is doing, with what settings, and what it waits for.
    Status {},
    /// The present view, and what the node knows of each member.
    Members {},
    /// Why a node is, or is not, a member.
    Why {
        /// Its name.
        node: String,
    },
    /// The last views and other events, oldest first.
    Views {
        /// Whether to go on with what happens from then on.
        #[serde(default)]
        watch: bool,
    },
    /// What would be given up if this node went on alone.
    Recovery {},
    /// An operator's word to do that (R11): the only question that changes anything. What is named must be what the answer to
    /// [`Question::Recovery`] said, and still be so.
    Recover {
        /// The lineage to be left.
        lineage: String,
        /// The last primary view in it.
        view: String,
    },
}

impl Question {
    /// Reads a question.
    ///
    /// # Errors
    /// What is wrong with it, to be answered.
    pub fn parse(line: &[u8]) -> Result<Self, Problem> {
        let malformed = |reason: String| Problem {
            code: "malformed".to_owned(),
            reason,
        };
        let mut value: Value =
            serde_json::from_slice(line).map_err(|error| malformed(format!("no JSON: {error}")))?;
        let Some(object) = value.as_object_mut() else {
            return Err(malformed("a question is a JSON object".to_owned()));
        };
        match object.remove("v").as_ref().and_then(Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => {
                return Err(Problem {
                    code: "version".to_owned(),
                    reason: format!(
                        "the question is of version {version}; this node ({}) speaks {VERSION}: use the `antiphon` that it was started with",
                        env!("CARGO_PKG_VERSION")
                    ),
                });
            }
            None => {
                return Err(malformed(format!(
                    "a question needs its version: {{\"v\":{VERSION},\"ask\":…}}"
                )));
            }
        }
        serde_json::from_value(value).map_err(|error| malformed(error.to_string()))
    }

    /// The question as a line, without its end.
    pub fn to_line(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["v"] = VERSION.into();
        value.to_string()
    }
}

/// What a node answers: one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// Whose console this is. The first line of each connection.
    Hello(Hello),
    /// To [`Question::Status`].
    Status(Box<Status>),
    /// To [`Question::Members`].
    Members(Box<Members>),
    /// To [`Question::Why`].
    Why(Box<Why>),
    /// To [`Question::Views`]: a view or another event, and more to come.
    Happened(Box<Happened>),
    /// To [`Question::Views`] with `watch`: all that happened before has been told, and what follows happens from now on.
    Now {},
    /// To [`Question::Recovery`].
    Recovery(Box<Recovery>),
    /// To [`Question::Recover`]: it is done.
    Recovered(Recovered),
    /// Nothing more comes to this question.
    End {},
    /// The question was not answered.
    Error(Problem),
    /// Of a newer build, and to be passed over by this one.
    #[serde(other)]
    Unknown,
}

/// Why a question was not answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `malformed`, `version`, `too-long`, `busy`, `too-slow`, `forbidden`, `stopped` or `not-recovered`.
    pub code: String,
    /// Cause and remedy.
    pub reason: String,
}

/// Whose console this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of questions and answers.
    pub v: u32,
    /// The cluster's name.
    pub cluster: String,
    /// The node's name.
    pub node: String,
    /// Its addresses, the first of which it is known by.
    pub addrs: Vec<String>,
    /// Its process.
    pub pid: u32,
    /// The version of Antiphon that it runs.
    pub build: String,
}

/// What a node is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub node: String,
    /// The cluster's.
    pub cluster: String,
    /// `forming`, `primary`, `non-primary` or `leaving`.
    pub state: String,
    /// Its present incarnation.
    pub incarnation: String,
    /// Since its start.
    pub uptime_ms: u64,
    /// The seeds it was given, after their names were resolved.
    pub seeds: Vec<String>,
    /// Whether it has a cluster key.
    pub keyed: bool,
    /// Its timing preset.
    pub profile: String,
    /// The number of its view, if it has one.
    pub view: Option<u32>,
    /// How many members that has.
    pub members: usize,
    /// Its groups and how many members each has; none: not a member yet.
    pub groups: BTreeMap<String, Option<usize>>,
    /// While it has no view: what it looks for.
    pub forming: Option<Forming>,
    /// In a view: whether the members that it hears could decide the next one.
    pub quorum: Option<bool>,
    /// In a view: the members that it does not hear.
    pub silent: Vec<String>,
    /// What it was refused for last: the cluster's words, and how long ago.
    pub refused: Option<Refusal>,
    /// Inbound connections that it refused, for whatever reason.
    pub connections_refused: u64,
}

/// What a node without a view looks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forming {
    /// Seeds that have not answered.
    pub missing: Vec<String>,
    /// Those of them that end each connection as soon as this node has spoken.
    pub rejecting: Vec<String>,
    /// Others without a view that have answered: name and address.
    pub candidates: Vec<(String, String)>,
    /// Whether it may found the cluster with them.
    pub founder: bool,
    /// The member that it asks to be admitted by.
    pub asks: Option<String>,
    /// Whether members without a majority have answered, which get time to find it again.
    pub remnant: bool,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which side must change what.
    pub reason: String,
    /// How long ago.
    pub ago_ms: u64,
}

/// The present view, and what the node knows of each member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Members {
    /// The node that answers.
    pub node: String,
    /// The cluster's name.
    pub cluster: String,
    /// As in [`Status::state`].
    pub state: String,
    /// The view's number; none while the cluster forms.
    pub view: Option<u32>,
    /// The view's identity.
    pub id: Option<String>,
    /// How often an operator had this cluster go on from one survivor (`antiphon recover`); with the policy `any` there is no need to.
    #[serde(default)]
    pub recoveries: u32,
    /// The wire level that all speak.
    pub wire_level: Option<u8>,
    /// Who proposes the next view and admits others, as far as this node can tell.
    pub coordinator: Option<String>,
    /// Whether the members that this node hears could decide the next view.
    pub quorum: Option<bool>,
    /// In a view: whether the node acts as a member of the primary. Without the lease it delivers nothing.
    #[serde(default)]
    pub lease: Option<bool>,
    /// By seniority.
    pub members: Vec<Member>,
    /// Members of the last primary view that this component lacks.
    pub absent: Vec<String>,
    /// Nodes that wait to be admitted by this node.
    pub joining: Vec<Waiting>,
    /// Nodes that this node refused lately.
    pub refused: Vec<RefusedNode>,
    /// Who suspects whom now: the edges of a graph.
    pub suspicions: Vec<Suspicion>,
    /// Ways between two members that are bad, though nobody is suspected for it.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// While the node has no view: what it looks for.
    pub forming: Option<Forming>,
}

/// A member, as the node that answers sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its place by seniority, from 0.
    pub rank: usize,
    /// Its name.
    pub name: String,
    /// Whether it is the most senior.
    pub elder: bool,
    /// Whether it is the node that answers.
    pub me: bool,
    /// 32 hex digits.
    pub incarnation: String,
    /// Its addresses, best first, and which of them work as far as is known.
    pub links: Vec<Link>,
    /// As configured at that node.
    pub metadata: BTreeMap<String, String>,
    /// Its votes.
    pub weight: u16,
    /// How long ago it was heard; none of the node itself, and of members that it does not observe.
    pub last_heard_ms: Option<u64>,
    /// Whether probes alone show that it lives: nothing else of it came for three heartbeats.
    #[serde(default)]
    pub heard_by_probes: bool,
    /// Who passes on what the node that answers sends to it; none if it goes directly.
    #[serde(default)]
    pub through: Option<String>,
    /// Who passed on what was heard of it last, if anybody did lately.
    #[serde(default)]
    pub heard_through: Option<String>,
    /// The round trip to it, as the system measures it on the control connection; none if not known.
    pub rtt_us: Option<u64>,
    /// For how long the network has reported trouble on the way to it, with nothing heard since.
    pub trouble_ms: Option<u64>,
    /// Whether its process is proven to have ended.
    pub dead: bool,
    /// Who suspects it.
    pub suspected_by: Vec<String>,
    /// The groups that it shares with the node that answers.
    pub groups: Vec<String>,
    /// What it said of itself last: the view it has, whether it is primary there, whether it wants to leave.
    pub said: Option<Said>,
}

/// An address of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The address.
    pub addr: String,
    /// Whether what is sent there arrives; none if the member has no other, so that nobody looks.
    pub up: Option<bool>,
    /// Whether this one is used.
    pub in_use: bool,
}

/// What a member said of itself in its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The last primary view that it had installed.
    pub view: String,
    /// Whether it believed to be in the primary view.
    pub primary: bool,
    /// Whether it wanted to leave.
    pub leaving: bool,
    /// The highest wire level it speaks.
    pub wire_level: u8,
}

/// A node that waits to be admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// How long ago it asked last.
    pub asked_ms: u64,
    /// How long ago it answered last whether it is ready; it is admitted only if it does.
    pub ready_ms: Option<u64>,
}

/// A node that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedNode {
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// Which side must change what.
    pub reason: String,
    /// Whether it was told that trying again is pointless.
    pub fatal: bool,
    /// How often in a row.
    pub times: u32,
    /// How long ago for the last time.
    pub ago_ms: u64,
}

/// Members that come from one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedPart {
    /// The lineage of its views.
    pub lineage: String,
    /// The last primary view of it that they had installed.
    pub view: String,
    /// Their names, by seniority.
    pub members: Vec<String>,
}

/// One member suspects another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// Who.
    pub accuser: String,
    /// Whom.
    pub accused: String,
    /// Why.
    pub evidence: String,
    /// For how long.
    pub for_ms: u64,
}

/// The way between two members is bad. That alone makes nobody suspected; with the engine `cut`, which alone looks for it, enough of it removes a
/// member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Who sees it.
    pub observer: String,
    /// Of whom too little arrives, or who does not hear the observer.
    pub subject: String,
    /// Which of both.
    pub evidence: String,
    /// For how long.
    pub for_ms: u64,
}

/// Why a node is, or is not, a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The node that answers.
    pub asked: String,
    /// The name asked for.
    pub node: String,
    /// `member`, `suspected`, `waiting`, `refused`, `left`, `removed` or `unknown`.
    pub verdict: String,
    /// The verdict in a sentence.
    pub text: String,
    /// What is known, oldest first.
    pub facts: Vec<Fact>,
}

/// One thing that is known of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// `joined`, `departed`, `absent`, `refused`, `joining`, `member`, `said` or `suspected`.
    pub kind: String,
    /// How long ago; none if it is so now.
    pub ago_ms: Option<u64>,
    /// Which incarnation, 32 hex digits.
    pub incarnation: Option<String>,
    /// The number of the view that it came or went with.
    pub view: Option<u32>,
    /// Why it departed.
    pub cause: Option<String>,
    /// Who said so, or suspects it.
    pub accusers: Vec<Accuser>,
    /// All of it in a sentence.
    pub text: String,
}

/// Who accused a member, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accuser {
    /// Who.
    pub name: String,
    /// What it saw.
    pub evidence: String,
    /// How long before the view was proposed, or before now.
    pub before_ms: u32,
}

/// What a recovery from one node would mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The node that would go on alone.
    pub node: String,
    /// The cluster's name.
    pub cluster: String,
    /// The lineage that would be left, 32 hex digits.
    pub lineage: String,
    /// The last primary view that the node installed: what it has is as of this one.
    pub view: String,
    /// That view's number.
    pub number: u32,
    /// For how long the node has known that it has no majority.
    pub lost_ms: u64,
    /// Whether the members that it hears are enough to go on by themselves.
    pub quorum: bool,
    /// Whether those that it does not hear, and that are not proven dead, could have gone on as a majority.
    pub may_fork: bool,
    /// The other members of that view by seniority: all are left behind.
    pub others: Vec<LeftBehind>,
    /// What is given up, and what must be made sure of before, each in a sentence or two.
    pub warnings: Vec<String>,
}

/// A member that a recovery leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftBehind {
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// How long ago it was last heard.
    pub heard_ms: u64,
    /// Whether it is heard now: then it joins as a new member, and gives up what it has.
    pub here: bool,
    /// Whether its process is proven to have ended.
    pub dead: bool,
}

/// A node goes on alone, by an operator's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The node.
    pub node: String,
    /// The cluster's name.
    pub cluster: String,
    /// The new lineage, 32 hex digits.
    pub lineage: String,
    /// The first view of it.
    pub view: String,
    /// That view's number.
    pub number: u32,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Happened {
    /// When, by the clock of the node's host.
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Happening {
    /// A view was installed.
    View {
        /// Its number; one without a majority repeats that of the view it is based on.
        number: u32,
        /// Its identity.
        id: String,
        /// Whether it is primary.
        primary: bool,
        /// How many members it has.
        #[serde(default)]
        size: Option<usize>,
        /// Names by seniority; none of old views of a large cluster.
        members: Option<Vec<String>>,
        /// Those that the primary view before did not have.
        joined: Vec<String>,
        /// Those of the primary view before that this one does not have.
        departed: Vec<Departed>,
    },
    /// The node goes by a fresh incarnation.
    Incarnation {
        /// 32 hex digits.
        incarnation: String,
    },
    /// No cluster yet.
    Forming {
        /// Seeds that have not answered.
        missing: Vec<String>,
        /// Those of them that end each connection as soon as this node has spoken.
        rejecting: Vec<String>,
    },
    /// The node has founded a cluster of itself alone.
    FoundedAlone {
        /// `told` (`--found`, `--expect 1`), `nobody-else` (no other seeds, no sources, no `--expect`) or `nobody-left` (policy `any`:
        /// it was a member and hears of nobody who is).
        reason: String,
    },
    /// A source of addresses, or a locator's name, found others than before, or cannot find any, or can again.
    Discovery {
        /// The source as it is written.
        source: String,
        /// What is in use of it now.
        found: Vec<String>,
        /// What is wrong, if something is.
        problem: Option<String>,
    },
    /// The cluster refused this node.
    Refused {
        /// Which side must change what.
        reason: String,
        /// Whether trying again is pointless.
        fatal: bool,
    },
    /// This node was removed while it was alive.
    Expelled {
        /// Why, and who said so.
        cause: String,
    },
    /// A link to a member with several addresses went up or down.
    Link {
        /// The member.
        peer: String,
        /// The address.
        addr: String,
        /// Whether it works now.
        up: bool,
        /// The address that is used now.
        in_use: String,
    },
    /// This node itself did not run for much of the last time.
    Starved {
        /// For so many milliseconds it did not run although something was to be done.
        missed_ms: u64,
        /// In so many.
        within_ms: u64,
    },
    /// This node believes in its view, or does not for now since no majority answers it.
    Lease {
        /// Whether it believes.
        held: bool,
    },
    /// What is sent to a member goes through another one, or directly again.
    Path {
        /// Its name.
        peer: String,
        /// The name of the one in between; nobody if it goes directly.
        through: Option<String>,
    },
    /// Policy `any`: components that went on apart meet in the view that follows.
    Merge {
        /// First those who were here already, then those of each component that gave way.
        parts: Vec<MergedPart>,
    },
    /// A member hears this node's multicast now, or does not.
    Multicast {
        /// The member.
        peer: String,
        /// Whether it hears.
        hears: bool,
    },
    /// Somebody began to suspect somebody; only while it is watched.
    Suspected(Suspicion),
    /// A suspicion was withdrawn, or its accused is gone; only while it is watched.
    Cleared {
        /// Who suspected.
        accuser: String,
        /// Whom.
        accused: String,
    },
    /// The node has left in order.
    Left {},
    /// Of a newer build: something that this one has no words for.
    #[serde(other)]
    Unknown,
}

/// A member that a view lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    /// Its name.
    pub name: String,
    /// `left`, `crashed`, `unreachable from NAME` or `superseded by a new start`.
    pub cause: String,
    /// Who said so.
    pub accusers: Vec<Accuser>,
}

/// Cuts bytes into lines, and holds no more than one line that is not whole.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes at the front in which no line ends.
    searched: usize,
    longest: usize,
}

/// A line is longer than it may be. Nothing more can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl LineBuffer {
    /// For lines of so many bytes without their ends.
    pub fn new(longest: usize) -> Self {
        Self {
            bytes: Vec::new(),
            searched: 0,
            longest,
        }
    }

    /// Appends what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next whole line without its end; none if more bytes are needed.
    ///
    /// # Errors
    /// [`TooLong`], and from then on at each call.
    pub fn pop(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        match end.map(|end| self.searched + end) {
            Some(end) if end > self.longest => Err(TooLong),
            Some(end) => {
                let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
                line.pop();
                self.searched = 0;
                Ok(Some(line))
            }
            None if self.bytes.len() > self.longest => Err(TooLong),
            None => {
                self.searched = self.bytes.len();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        for question in [
            Question::Status {},
            Question::Members {},
            Question::Why {
                node: "ö \"\n".into(),
            },
            Question::Views { watch: true },
            Question::Recovery {},
            Question::Recover {
                lineage: "00ff".into(),
                view: "1:3".into(),
            },
        ] {
            let line = question.to_line();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(Question::parse(line.as_bytes()), Ok(question));
        }
        let short = br#"{"v":1,"ask":"views"}"#;
        assert_eq!(Question::parse(short), Ok(Question::Views { watch: false }));
    }

    #[test]
    fn what_is_no_question_of_this_version_is_answered_with_what_is_wrong() {
        for (line, code, said) in [
            (&b"members"[..], "malformed", "JSON"),
            (b"[1]", "malformed", "object"),
            (b"\xff\xfe", "malformed", "JSON"),
            (br#"{"ask":"members"}"#, "malformed", "version"),
            (br#"{"v":"1","ask":"members"}"#, "malformed", "version"),
            (br#"{"v":2,"ask":"members"}"#, "version", "speaks 1"),
            (br#"{"v":1,"ask":"leave"}"#, "malformed", "leave"),
            (br#"{"v":1,"ask":"why"}"#, "malformed", "node"),
            (br#"{"v":1,"ask":"recover"}"#, "malformed", "lineage"),
            (br#"{"v":1,"ask":"members","force":1}"#, "malformed", "force"),
        ] {
            let problem = Question::parse(line).unwrap_err();
            let shown = String::from_utf8_lossy(line);
            assert_eq!(problem.code, code, "{shown}");
            assert!(problem.reason.contains(said), "{shown}: {}", problem.reason);
        }
    }
}

//! What a client of a console asks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Problem;

/// The version of questions and answers that this build speaks.
pub const VERSION: u32 = 1;
/// The longest question, in bytes, without the end of its line.
pub const MAX_QUESTION_BYTES: usize = 4096;
/// The longest line of an answer.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Clients served at a time; one more is told so and sent away.
pub const MAX_CLIENTS: usize = 16;
/// How long a refusal counts as present. A refusal that lasts is told again every few seconds; an older one
/// is past.
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
    /// An operator's word to do that (R11): the only question that changes anything. What is named must be
    /// what the answer to [`Question::Recovery`] said, and still be so.
    Recover {
        /// The lineage to be left.
        lineage: String,
        /// The last primary view in it.
        view: String,
        /// Whether a quorum was said to be heard. If it was not, and is, nothing is done.
        #[serde(default)]
        quorum: bool,
        /// Whether a second cluster was said to be possible. If it was not, and is, nothing is done.
        #[serde(default)]
        may_fork: bool,
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
                quorum: false,
                may_fork: true,
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

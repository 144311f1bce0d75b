//! What a client asks at a node's console, and what the node answers: one JSON object a line.
//!
//! A question: `{"v":1,"ask":"members"}`, `{"v":1,"ask":"why","node":"b"}`,
//! `{"v":1,"ask":"views","watch":true}`, `{"v":1,"ask":"status"}`, `{"v":1,"ask":"recovery"}`,
//! `{"v":1,"ask":"recover","lineage":"…","view":"1:3","may_fork":true}`. Answers have an `answer` field:
//! `hello` once at the beginning, then for each question its answers. The answers to `views` are many lines,
//! ended by `end`. With `watch` there is a `now` between what happened before and what happens from then on.
//! Incarnations are 32 hex digits.
//!
//! # Versions
//! The `hello` of a node has the highest version that it speaks. A question names its version. If the node
//! does not speak that version, it answers with an `error` with the code `version`. Within a version fields,
//! answers and events may be added; a client passes over what it does not know.

mod answer;
mod question;

pub use answer::{
    Accuser, Answer, Edge, Fact, Forming, Hello, LeftBehind, Link, Member, Members, Problem, Recovered,
    Recovery, Refusal, RefusedNode, Said, Status, Suspicion, Waiting, Why,
};
pub use question::{
    MAX_ANSWER_BYTES, MAX_CLIENTS, MAX_QUESTION_BYTES, MAX_QUESTIONS, Question, REFUSAL_LASTS_MS, VERSION,
};

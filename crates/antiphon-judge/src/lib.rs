//! Internal to Antiphon: the rules of GUARANTEES.md that see only what applications saw, and the plain data
//! that they look at.
//!
//! ```text
//!  lines of `node --json` ── antiphon-lab ──┐    ┌──────────────────────────────────────┐
//!                                           ├──► │ Membership: each node and its views  │──► Report
//!  trace of a simulation ─── antiphon-sim ──┘    │ Account:    a group, what was sent   │
//!                                                │             to it and delivered      │
//!                                                │ Calls:      of a group, and requests │
//!                                                └──────────────────────────────────────┘
//! ```
//! A reader of what nodes told writes a [`Membership`] of it, an [`Account`] for each group and [`Calls`] for
//! each group in which members call each other, and has them judged. So a rule stands here once, for real
//! processes and for simulated ones. (Of calls the simulator knows more, and has rules of its own.) What only
//! one of the two can know is optional in the data; the rule that needs it then looks at nothing.
//!
//! - [`nodes`]: between node views;
//! - [`group`]: between the views of a group, and what was sent and delivered in them;
//! - [`calls`]: between what was called, what members were handed of it, and what callers were told.
//!
//! The crate stands below both of its users and depends on nothing. In the lab the rules would bring
//! processes and sockets into the simulator, in the simulator they would bring the core into the lab, which
//! judges what a program printed and nothing else. How members and payloads are called is the reader's:
//! incarnations and hashes in the simulator, names and texts in the lab ([`Name`]).
//!
//! A check that was never evaluated proves nothing: each counts how often it compared something.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;

pub mod calls;
pub mod group;
pub mod nodes;

pub use calls::Calls;
pub use group::{Account, Order};
pub use nodes::Membership;

/// Microseconds since the story began, by whichever clock: rules compare times of one story only.
pub type Micros = u64;

/// What members or payloads are called: told apart, and shown in findings.
pub trait Name: Copy + Ord + fmt::Display {}

impl<T: Copy + Ord + fmt::Display> Name for T {}

/// The parts of a view's id, the most significant one first. Leading zeros are parts that the reader does not
/// know: in lines, a group's view is 57301.2, here `[0, 57301, 2]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Id(pub [u64; 3]);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        let unknown = self.0.iter().take_while(|part| **part == 0).count().min(2);
        f.write_str(&parts[unknown..].join("."))
    }
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// How often each check compared something.
    pub counts: BTreeMap<&'static str, u64>,
    /// How often something did not hold that a documented exception explains.
    pub excused: u64,
}

/// A guarantee that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which: `G14`, or a rule's or property's name.
    pub guarantee: &'static str,
    /// When, as far as it has a time.
    pub at: Micros,
    /// How many messages are not there that must be; 0 if it is about something else.
    pub missing: usize,
    /// Which member saw what.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at / 1_000_000, self.at % 1_000_000);
        write!(f, "{} at {seconds}.{micros:06}s: {}", self.guarantee, self.what)
    }
}

/// More than this many violations of one story are not written down.
const MOST_VIOLATIONS: usize = 100;

impl Report {
    /// Whether everything held.
    pub fn is_ok(&self) -> bool {
        self.violations.is_empty()
    }

    /// One comparison: counts it, and notes a violation if it does not hold.
    pub fn check(&mut self, guarantee: &'static str, at: Micros, holds: bool, what: impl FnOnce() -> String) {
        *self.counts.entry(guarantee).or_default() += 1;
        if !holds {
            self.note(guarantee, at, 0, what());
        }
    }

    /// The same of messages that must be there: so many are not.
    pub fn check_all(
        &mut self,
        guarantee: &'static str,
        at: Micros,
        missing: usize,
        what: impl FnOnce() -> String,
    ) {
        *self.counts.entry(guarantee).or_default() += 1;
        if missing > 0 {
            self.note(guarantee, at, missing, what());
        }
    }

    /// Notes a violation.
    pub fn fail(&mut self, guarantee: &'static str, at: Micros, what: String) {
        self.note(guarantee, at, 0, what);
    }

    fn note(&mut self, guarantee: &'static str, at: Micros, missing: usize, what: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(Violation {
                guarantee,
                at,
                missing,
                what,
            });
        }
    }
}

/// Names for a message.
fn list<M: Name>(members: impl IntoIterator<Item = M>) -> String {
    let names: Vec<String> = members.into_iter().map(|member| member.to_string()).collect();
    format!("[{}]", names.join(" "))
}

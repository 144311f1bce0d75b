//! The table of catches, `planted.txt`: which plan and seed is known to show each planted mistake on each
//! membership engine.
//!
//! ```text
//!   SkipFlush       coordinator  r14-leaders-die-in-the-flush  3   G14
//!   CutOnOneReport  coordinator  -  the coordinator has no observers
//! ```
//! If one engine cannot make a mistake, there is a dash, and a reason that people write. `antiphon-sim
//! planted --write` writes all else, and keeps those lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use antiphon_core::EngineKind;
use antiphon_core::planted::Bug;

use super::{Catch, EXPLORED};
use crate::plan::{NAMES, runs_on};

/// What is known of a mistake on an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// It is caught there.
    Caught {
        /// The plan, or [`EXPLORED`].
        plan: &'static str,
        /// The seed.
        seed: u64,
        /// What that broke.
        guarantee: String,
    },
    /// That engine cannot make it, or no checker would notice.
    NotDue {
        /// Why.
        reason: String,
    },
}

/// All that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    entries: BTreeMap<(Bug, EngineKind), Entry>,
}

impl Table {
    /// The file, seen from the repository's root.
    pub const FILE: &str = "crates/antiphon-sim/planted.txt";
    /// The command that writes it anew.
    pub const REFRESH: &str = "cargo run --release -p antiphon-sim -- planted --write";

    /// The table as it was when this was built.
    pub fn built_in() -> Result<Self, String> {
        Self::parse(include_str!("../../planted.txt"))
    }

    /// The table as it is in the checkout that this was built in: a run before this one may have noted
    /// something.
    pub fn in_checkout() -> Result<Self, String> {
        let text =
            std::fs::read_to_string(Self::path()).map_err(|error| format!("{}: {error}", Self::FILE))?;
        Self::parse(&text)
    }

    /// Where that is.
    pub fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("planted.txt")
    }

    /// Reads it; an error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, entry) =
                entry(line).map_err(|why| format!("{} line {}: {why}", Self::FILE, number + 1))?;
            if table.entries.insert(key, entry).is_some() {
                return Err(format!(
                    "{} line {}: {:?} on {} is there twice",
                    Self::FILE,
                    number + 1,
                    key.0,
                    key.1.name()
                ));
            }
        }
        Ok(table)
    }

    /// What is known of this one.
    pub fn entry(&self, bug: Bug, engine: EngineKind) -> Option<&Entry> {
        self.entries.get(&(bug, engine))
    }

    /// Whether this mistake must be caught on this engine.
    pub fn is_due(&self, bug: Bug, engine: EngineKind) -> bool {
        !matches!(self.entry(bug, engine), Some(Entry::NotDue { .. }))
    }

    /// By which plan and seed it is known to be caught.
    pub fn caught(&self, bug: Bug, engine: EngineKind) -> Option<(&'static str, u64)> {
        match self.entry(bug, engine)? {
            Entry::Caught { plan, seed, .. } => Some((plan, *seed)),
            Entry::NotDue { .. } => None,
        }
    }

    /// Notes how a mistake was caught. What was missed is not known any more.
    pub fn note(&mut self, catch: &Catch) {
        let key = (catch.bug, catch.engine);
        match &catch.by {
            Some(found) => {
                let entry = Entry::Caught {
                    plan: found.plan,
                    seed: found.seed,
                    guarantee: found.violation.guarantee.to_owned(),
                };
                self.entries.insert(key, entry);
            }
            None => {
                self.entries.remove(&key);
            }
        }
    }

    /// The table without catches; what is not due stays so.
    pub fn forgotten(mut self) -> Self {
        self.entries
            .retain(|_, entry| matches!(entry, Entry::NotDue { .. }));
        self
    }

    /// The file's text.
    pub fn show(&self) -> String {
        let mut text = format!(
            "# Where each planted mistake is caught: mistake, membership engine, plan, seed, what was broken.\n\
             # Written by `{}`, except for the lines with a dash: there the engine cannot make the\n\
             # mistake, or nobody would notice, and why.\n",
            Self::REFRESH
        );
        for ((bug, engine), entry) in &self.entries {
            let (bug, engine) = (format!("{bug:?}"), engine.name());
            // Writing to a string never fails.
            let _ = match entry {
                Entry::Caught {
                    plan,
                    seed,
                    guarantee,
                } => {
                    writeln!(text, "{bug:<26} {engine:<12} {plan:<32} {seed:<5} {guarantee}")
                }
                Entry::NotDue { reason } => writeln!(text, "{bug:<26} {engine:<12} - {reason}"),
            };
        }
        text
    }
}

fn entry(line: &str) -> Result<((Bug, EngineKind), Entry), String> {
    let mut words = line.split_whitespace();
    let mut word = |what: &str| words.next().ok_or_else(|| format!("no {what}"));
    let name = word("mistake")?;
    let bug = Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name);
    let bug = bug.ok_or_else(|| format!("there is no planted mistake {name:?}"))?;
    let name = word("membership engine")?;
    let engine = EngineKind::ALL.into_iter().find(|engine| engine.name() == name);
    let engine = engine.ok_or_else(|| format!("there is no membership engine {name:?}"))?;
    let name = word("plan, and no dash")?;
    if name == "-" {
        let reason = words.collect::<Vec<_>>().join(" ");
        return match reason.is_empty() {
            true => Err("a dash needs a reason".to_owned()),
            false => Ok(((bug, engine), Entry::NotDue { reason })),
        };
    }
    let mut plans = NAMES
        .iter()
        .copied()
        .filter(|plan| runs_on(plan, engine))
        .chain([EXPLORED]);
    let plan = plans.find(|plan| *plan == name);
    let plan = plan.ok_or_else(|| format!("there is no plan {name:?} on {}", engine.name()))?;
    let seed = word("seed")?;
    let seed = seed.parse().map_err(|_| format!("{seed:?} is no seed"))?;
    let guarantee = word("guarantee")?.to_owned();
    Ok((
        (bug, engine),
        Entry::Caught {
            plan,
            seed,
            guarantee,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read_and_every_mistake_is_due_on_some_engine() {
        let table = Table::built_in().expect("the file can be read");
        for bug in Bug::ALL {
            let due = EngineKind::ALL
                .into_iter()
                .any(|engine| table.is_due(*bug, engine));
            assert!(due, "{bug:?} is due nowhere");
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let table = Table::built_in().expect("the file can be read");
        assert_eq!(Table::parse(&table.show()), Ok(table));
    }

    #[test]
    fn a_line_that_says_nothing_true_is_refused_by_its_number() {
        for (line, why) in [
            ("SkipFlushing cut default 1 G14", "no planted mistake"),
            ("SkipFlush paxos default 1 G14", "no membership engine"),
            ("SkipFlush cut no-such-plan 1 G14", "no plan"),
            ("SkipFlush coordinator cut-lossy 1 G14", "no plan"),
            ("SkipFlush cut default x G14", "is no seed"),
            ("SkipFlush cut default 1", "no guarantee"),
            ("SkipFlush cut -", "needs a reason"),
            (
                "SkipFlush cut default 1 G14\nSkipFlush cut default 2 G14",
                "twice",
            ),
        ] {
            let text = format!("# a table\n{line}\n");
            let error = Table::parse(&text).expect_err(line);
            assert!(error.contains(why) && error.contains("line "), "{line}: {error}");
        }
    }
}

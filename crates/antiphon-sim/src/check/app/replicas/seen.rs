//! G50: what a member has seen does not go back, whichever state it has, and over merges.
//!
//! A process that leaves the group and joins it again is another member, which does not say what it has seen
//! before. So times may go back for the process, and numbers too, where components go on by themselves.
//! Otherwise founders' clocks make sure that they rise (the page of `serials.rs`).

use std::collections::BTreeMap;

use antiphon_replica::locks::{self, Token, What as Lock};
use antiphon_replica::map::{Entry, Stamp};
use antiphon_replica::{Version, counters};
use bytes::Bytes;

use crate::machine::{Reply, Step, Stepped};
use crate::trace::Saw;

/// What a process has seen.
#[derive(Default)]
pub(super) struct SeenHere {
    entries: BTreeMap<Bytes, (Version, Stamp)>,
    counters: BTreeMap<counters::Name, Version>,
    tokens: BTreeMap<locks::Name, Token>,
    /// The last number that was given of each: versions of the map, of counters, ids.
    given: (Version, Version, u64),
}

/// What goes back, if anything does.
type Verdict = Result<(), String>;

impl SeenHere {
    /// The process joins the group. `parts`: some component went on by itself.
    pub(super) fn joins(&mut self, parts: bool) {
        if parts {
            *self = Self::default();
        }
        for (_, stamp) in self.entries.values_mut() {
            *stamp = Stamp::default();
        }
    }

    /// A client reads.
    pub(super) fn reads(&mut self, saw: &Saw) -> Verdict {
        if let (key, Some(entry)) = &saw.entry {
            self.entry(key, entry)?;
        }
        if let (name, Some(counter)) = &saw.counter {
            let seen = self.counters.entry(name.clone()).or_default();
            rises(&format!("the version of {name}"), seen, counter.version, false)?;
        }
        for (token, _) in &saw.lock.1 {
            let seen = self.tokens.entry(saw.lock.0.clone()).or_default();
            *seen = (*seen).max(*token);
        }
        Ok(())
    }

    /// The machine makes a step.
    pub(super) fn step(&mut self, step: &Step) -> Verdict {
        if let Stepped::Command(_, command, reply) = &step.what {
            self.reply(&command.what, reply)?;
        }
        for (key, entry) in step.renewed() {
            rises("versions of the map", &mut self.given.0, entry.version, true)?;
            self.entry(key, entry)?;
        }
        for (name, counter) in step.recounted() {
            self.counter(name, counter.version)?;
        }
        for event in &step.locks {
            if let Lock::Granted(token) = event.what {
                let seen = self.tokens.entry(event.name.clone()).or_default();
                rises(&format!("tokens of {}", event.name), seen, token, true)?;
            }
        }
        Ok(())
    }

    fn reply(&mut self, command: &crate::machine::What, reply: &Reply) -> Verdict {
        match (command, reply) {
            (crate::machine::What::Map(command), Reply::Map(Ok(written))) => {
                for (write, written) in command.writes.iter().zip(written) {
                    if let Some(entry) = written.new.as_ref().filter(|_| written.new != written.old) {
                        rises("versions of the map", &mut self.given.0, entry.version, true)?;
                        self.entry(&write.key, entry)?;
                    }
                }
                Ok(())
            }
            (crate::machine::What::Counters(command), Reply::Counters(Ok(done))) => match (command, done) {
                (counters::Command::TakeBlock { count }, counters::Done::Block(first)) => {
                    rises("ids", &mut self.given.2, *first, true)?;
                    self.given.2 = first + u64::from(*count) - 1;
                    Ok(())
                }
                (
                    counters::Command::Add { name, .. } | counters::Command::Set { name, .. },
                    counters::Done::Counter(Some(counter)),
                ) => self.counter(name, counter.version),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn entry(&mut self, key: &Bytes, entry: &Entry) -> Verdict {
        let seen = self.entries.entry(key.clone()).or_default();
        rises(
            &format!("the version of {key:?}"),
            &mut seen.0,
            entry.version,
            false,
        )?;
        // Whatever its flags.
        let time = Stamp::new(entry.modified.time(), 0);
        rises(&format!("the stamp of {key:?}"), &mut seen.1, time, false)
    }

    fn counter(&mut self, name: &counters::Name, version: Version) -> Verdict {
        rises("versions of counters", &mut self.given.1, version, true)?;
        let seen = self.counters.entry(name.clone()).or_default();
        *seen = version;
        Ok(())
    }
}

/// It does not go back, and comes not twice if it is new.
fn rises<T: Ord + Copy + std::fmt::Display>(what: &str, seen: &mut T, now: T, new: bool) -> Verdict {
    if now < *seen || new && now == *seen {
        return Err(format!("{what} went to {seen}, and now to {now}"));
    }
    *seen = now;
    Ok(())
}

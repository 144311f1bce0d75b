//! Slow members: a member that stops reading does not hold up the others for ever, and a member that reads is
//! not called slow.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_core::{Profile, SendError};

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::History;
use crate::trace::{GroupIndex, Heard, ProcessId, Seen};

/// What a view change may take on top of what the protocol waits for.
const SLACK: Duration = Duration::from_secs(3);

/// From a node's word that its application has stopped to the view without it, if no process crashes then.
const VERDICT: Micros = 1_000_000;

/// Two members that stop one after the other, each with its last call; a crash in the flush.
fn patience(slow_after: Duration) -> Micros {
    let profile = Profile::wan();
    let lan = Profile::lan();
    // Only plans of the profiles up to `lan` have limits so short that this ends before the run.
    let detection = if slow_after < profile.suspect_after {
        lan.suspect_after
    } else {
        profile.suspect_after
    };
    let each = slow_after + slow_after / 4 + detection;
    (each * 2 + lan.flush_stall + SLACK).as_micros() as Micros
}

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    // Per process, since when its application does not read; per use of a group, its limit and since when it
    // waits.
    let mut stopped: BTreeMap<ProcessId, Micros> = BTreeMap::new();
    // When it last did not, until when.
    let mut stood: BTreeMap<ProcessId, (Micros, Micros)> = BTreeMap::new();
    let mut limits: BTreeMap<GroupIndex, Duration> = BTreeMap::new();
    let mut waiting: BTreeMap<(ProcessId, GroupIndex), Micros> = BTreeMap::new();
    for line in &history.trace.lines {
        let (process, at) = (line.process, line.at);
        match &line.what {
            Seen::AskedToJoin { group, options, .. } => {
                if let Some(slow_after) = options.slow_after {
                    limits.insert(*group, slow_after);
                }
            }
            Seen::Reads(reads) => {
                if *reads {
                    stood.extend(stopped.remove(&process).map(|since| (process, (since, at))));
                } else {
                    stopped.entry(process).or_insert(at);
                }
                // A member that does not read does not make room for itself either.
                waiting.retain(|(who, _), _| *who != process);
            }
            Seen::NotSent {
                group,
                error: SendError::Full,
            } if !stopped.contains_key(&process) => {
                let since = *waiting.entry((process, *group)).or_insert(at);
                if let Some(slow_after) = limits.get(group) {
                    let held_up = at - since;
                    report.check("slow", at, held_up <= patience(*slow_after), || {
                        format!("p{process} waits for room in g{group} for {held_up} us, with a limit of {slow_after:?} for slow members")
                    });
                }
            }
            Seen::Sent { group, .. } => drop(waiting.remove(&(process, *group))),
            Seen::Group(group, heard) => {
                match heard {
                    Heard::Resync(cause) => {
                        waiting.remove(&(process, *group));
                        if cause.starts_with("slow: ") {
                            // It may have begun to read when its removal was under way.
                            let earlier = stood.get(&process).filter(|(_, until)| at - until <= VERDICT);
                            let stood = stopped.get(&process).map(|since| at - since);
                            let stood = stood
                                .max(earlier.map(|(since, until)| until - since))
                                .unwrap_or(0);
                            let limit = limits.get(group).copied().unwrap_or_default().as_micros() as Micros;
                            // Clocks differ by a little.
                            report.check("slow", at, stood >= limit - limit / 100, || {
                                format!("p{process} was removed from g{group} although its application reads: {cause}")
                            });
                        }
                    }
                    Heard::Writable | Heard::Suspended | Heard::Left | Heard::Refused(_) => {
                        waiting.remove(&(process, *group));
                    }
                    Heard::View(_)
                    | Heard::Transitional(_)
                    | Heard::Message(_)
                    | Heard::Receipts { .. }
                    | Heard::Told(_)
                    | Heard::TellReceipts { .. }
                    | Heard::TellWritable(_) => {}
                }
            }
            Seen::Incarnation(_) | Seen::Ended(_) | Seen::AskedToLeave | Seen::Left => {
                waiting.retain(|(who, _), _| *who != process);
                if matches!(line.what, Seen::Ended(_)) {
                    stopped.remove(&process);
                }
            }
            _ => {}
        }
    }
}

//! What a node holds: G24 before its safe delivery, G33 what it keeps back, and memory (R21); and the core's
//! promises to its driver.

use crate::check::Report;
use crate::check::history::History;
use crate::trace::{Inside, Seen};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    for line in &history.trace.lines {
        let process = line.process;
        let inside = match &line.what {
            Seen::Inside(inside) => inside,
            Seen::Contract(what) => {
                report.fail("contract", line.at, format!("p{process}: {what}"));
                continue;
            }
            _ => continue,
        };
        match inside {
            // R21: every byte has its place before it is sent.
            Inside::Memory {
                group,
                sender,
                held,
                bound,
            } => report.check("memory", line.at, held <= bound, || {
                format!(
                    "p{process} holds {held} bytes for g{group}, of {sender:?}; at most {bound} are allowed"
                )
            }),
            Inside::Unheld {
                group,
                sender,
                seq,
                lacks,
            } => {
                let what = format!(
                    "p{process} delivered {}#{seq} of group {group} as safe, and {} did not hold it",
                    sender.short(),
                    lacks.short()
                );
                report.fail("G24", line.at, what);
            }
            Inside::Withheld { group, sender, seq } => {
                let what = format!(
                    "p{process} holds {}#{seq} of group {group}, which waits for nothing, and does not deliver it",
                    sender.short()
                );
                report.fail("G33", line.at, what);
            }
            // Other checkers'.
            Inside::Ballot(_) | Inside::Roll { .. } => {}
        }
    }
}

//! From the library's events to those of the API, with what a session knows beside: names and files.

use std::time::{Duration, UNIX_EPOCH};

use antiphon::{ClusterEvent, Noted, WhyReport};
use antiphon_api::{Event, Told};

use crate::Names;
use crate::stdio::Spool;

/// A noted event as it is told.
pub(crate) fn noted(noted: &Noted, names: &Names) -> Told {
    Told {
        at_ms: millis(noted.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        event: cluster_event(&noted.event, names),
    }
}

/// A node event, with the names of the members that it speaks of.
pub(crate) fn cluster_event(event: &ClusterEvent, names: &Names) -> Event {
    event.told(&|node| names.name(node))
}

/// What is known about a name, one sentence each.
pub(crate) fn why(report: &WhyReport, names: &Names) -> Event {
    let facts = match report.entries.as_slice() {
        [] => vec![report.to_string()],
        entries => entries.iter().map(|entry| names.why(entry)).collect(),
    };
    Event::Why {
        node: report.name.clone(),
        facts,
    }
}

/// An event of a group. One that is a large payload takes as long as the disk does.
pub(crate) fn group_event(group: &str, event: &antiphon::Event, spool: &Spool) -> Event {
    match event {
        antiphon::Event::Message(message) => {
            Event::Message(message.told(group, spool.payload(group, message)))
        }
        _ => event.told(group),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_answers_also_about_a_name_nobody_knows() {
        let report = WhyReport {
            name: "x".into(),
            entries: vec![],
        };
        match why(&report, &Names::default()) {
            Event::Why { facts, .. } => assert!(facts[0].contains("no node called x")),
            other => panic!("{other:?}"),
        }
    }
}

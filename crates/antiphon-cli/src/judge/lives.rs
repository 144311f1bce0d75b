//! From lines to lives: what each membership of each node saw, view by view.

use std::collections::BTreeSet;

use super::{Record, Sheet};
use antiphon_api::{Event, Payload};

/// What one process was asked to send and what it said about it.
pub(super) struct Ledger<'a> {
    /// In order; ticket n is entry n − 1.
    pub(super) accepted: Vec<&'a str>,
    pub(super) refused: u64,
    /// Tickets whose fate the node told.
    pub(super) resolved: BTreeSet<u64>,
}

impl<'a> Ledger<'a> {
    pub(super) fn of(record: &'a Record, group: &str) -> Self {
        let mut refused = BTreeSet::new();
        let mut resolved = BTreeSet::new();
        for line in &record.lines {
            match line {
                Event::Error { request, .. }
                | Event::Refused {
                    request: Some(request),
                    ..
                } => {
                    if let Some(payload) = request
                        .pointer("/send/payload")
                        .and_then(|payload| payload.as_str())
                    {
                        refused.insert(payload.to_owned());
                    }
                }
                Event::Receipt {
                    group: of, ticket, ..
                } if of == group => {
                    resolved.insert(*ticket);
                }
                _ => {}
            }
        }
        let accepted: Vec<&str> = record
            .asked
            .iter()
            .map(String::as_str)
            .filter(|payload| !refused.contains(*payload))
            .collect();
        Self {
            refused: (record.asked.len() - accepted.len()) as u64,
            accepted,
            resolved,
        }
    }
}

/// One membership of one node in the group.
pub(super) struct Life<'a> {
    pub(super) name: &'a str,
    pub(super) views: Vec<InView<'a>>,
    /// The last view was still in force when all had come to rest.
    pub(super) stayed: bool,
}

/// A view and what was delivered in it.
pub(super) struct InView<'a> {
    pub(super) id: &'a str,
    pub(super) members: &'a [String],
    pub(super) joined: &'a [String],
    pub(super) departed: BTreeSet<&'a str>,
    pub(super) transitional: BTreeSet<&'a str>,
    pub(super) messages: Vec<Delivered<'a>>,
}

pub(super) struct Delivered<'a> {
    pub(super) key: Key<'a>,
    pub(super) seq: u64,
}

/// A message's identity: payloads of one sender are never the same twice.
pub(super) type Key<'a> = (&'a str, &'a str);

pub(super) fn split<'a>(record: &'a Record, group: &str, sheet: &mut Sheet) -> Vec<Life<'a>> {
    let name = record.name.as_str();
    let begin = || Life {
        name,
        views: Vec::new(),
        stayed: false,
    };
    let mut lives = vec![begin()];
    let mut suspended = false;
    for line in &record.lines {
        // `lives` starts with one and only grows.
        let life = lives.last_mut().expect("a life is begun");
        match line {
            Event::Resync { group: of, .. } if of == group => {
                suspended = false;
                lives.push(begin());
            }
            Event::Suspended { group: of } if of == group => suspended = true,
            Event::View {
                group: of,
                id,
                members,
                joined,
                left,
                crashed,
                transitional,
                ..
            } if of == group => {
                suspended = false;
                life.views.push(InView {
                    id,
                    members,
                    joined,
                    departed: left.iter().chain(crashed).map(String::as_str).collect(),
                    transitional: transitional.iter().map(String::as_str).collect(),
                    messages: Vec::new(),
                });
            }
            Event::Transitional { group: of, .. } if of == group => suspended = false,
            Event::Message {
                group: of,
                view,
                sender,
                seq,
                payload,
                ..
            } if of == group => {
                let (Payload::Text(payload)
                | Payload::Binary { base64: payload }
                | Payload::File { file: payload, .. }) = payload;
                if suspended {
                    sheet.find(
                        |sheet| &mut sheet.view_violations,
                        1,
                        || format!("{name} delivered {payload} while it was suspended"),
                    );
                }
                match life.views.last_mut().filter(|current| current.id == view) {
                    Some(current) => current.messages.push(Delivered {
                        key: (sender, payload),
                        seq: *seq,
                    }),
                    None => sheet.find(
                        |sheet| &mut sheet.view_violations,
                        1,
                        || format!("{name} delivered {payload} of view {view} outside that view"),
                    ),
                }
            }
            _ => {}
        }
    }
    if let Some(last) = lives.last_mut() {
        last.stayed = record.stayed && !suspended;
    }
    lives.retain(|life| !life.views.is_empty());
    lives
}

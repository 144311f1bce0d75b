//! The judge: what a set of nodes printed, held against what was promised.
//!
//! It knows nothing of the protocol. It reads only what an application saw – the lines of each node, from its start to its
//! end – and what was handed to each node to send.
//!
//! ```text
//!  node a  ── view 1.1 ─ m1 m2 m3 ── view 2.1 ─ m4 ── end          a *life*: the views and messages of one membership
//!  node b  ── view 1.1 ─ m1 m2 m3 ── view 2.1 ─ m4 ── end          of one node in a group; a `resync` begins a new one
//!  node c  ── view 1.1 ─ m1 m2 ─ (killed)
//! ```
//! Those that go from the same view to the same next one (or are both in the same last view at the end) *move together*:
//! a and b above. The rules, with the numbers of GUARANTEES.md:
//!
//! - **lost**: G14, of those that move together one delivered a message in the view and another did not; G10, a message was
//!   taken from a node that stayed, and that node neither delivered it nor said what became of it; G19, a sender's numbers
//!   have a gap.
//! - **duplicated**: G9, one life delivered a message twice.
//! - **order violations**: G21, two that move together delivered two messages in different orders; G19, a sender's numbers
//!   run backwards; G11, a message was delivered in different views.
//! - **view violations**: G1, G2, G4, G6, G7, G15: a view without its reader, ids that do not rise, one id for two lists, two
//!   lists of the primary, differences that do not add up, a wrong transitional set; and a message outside its view.
//! - **invented**: G8, a message that nobody sent.
//!
//! A node that was killed or cut off promised nothing for its last view: agreed delivery is not uniform (G27).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use antiphon_api::Event;

mod chain;
mod lives;
#[cfg(test)]
mod tests;

use lives::{Delivered, InView, Key, Ledger, Life, split};

/// No more findings than this are kept as text; all are counted.
const MAX_FINDINGS: usize = 20;

/// One process, from start to end.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// The node's name.
    pub(crate) name: String,
    /// What it was asked to send, in order. Payloads of one name are never the same twice.
    pub(crate) asked: Vec<String>,
    /// What it printed.
    pub(crate) lines: Vec<Event>,
    /// Whether it stayed: at the end it ran, and nothing was under way any more.
    pub(crate) stayed: bool,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sheet {
    /// Messages taken for sending.
    pub(crate) sent: u64,
    /// Sends refused with a reason.
    pub(crate) refused: u64,
    /// Per name: sent, refused, delivered.
    pub(crate) nodes: BTreeMap<String, NodeCount>,
    /// See the page.
    pub(crate) lost: u64,
    /// See the page.
    pub(crate) duplicated: u64,
    /// See the page.
    pub(crate) order_violations: u64,
    /// See the page.
    pub(crate) view_violations: u64,
    /// See the page.
    pub(crate) invented: u64,
    /// The first of them, in words.
    pub(crate) findings: Vec<String>,
    /// The primary views, by number.
    pub(crate) view_changes: Vec<ViewChange>,
}

/// Of one name, all its processes together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct NodeCount {
    /// Messages taken for sending.
    pub(crate) sent: u64,
    /// Sends refused with a reason.
    pub(crate) refused: u64,
    /// Messages delivered.
    pub(crate) delivered: u64,
}

/// One primary view of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ViewChange {
    /// Its number.
    pub(crate) number: u32,
    /// By seniority.
    pub(crate) members: Vec<String>,
    /// Since the primary view before.
    pub(crate) joined: Vec<String>,
    /// In order.
    pub(crate) left: Vec<String>,
    /// "name: cause (who saw what)".
    pub(crate) crashed: Vec<String>,
}

impl Sheet {
    /// Whether every promise was kept.
    pub(crate) fn holds(&self) -> bool {
        self.lost + self.duplicated + self.order_violations + self.view_violations + self.invented == 0
    }

    /// The higher count of each: two audits of the same story, one of them at an earlier moment.
    pub(crate) fn worst(mut self, earlier: Self) -> Self {
        for (count, other) in [
            (&mut self.lost, earlier.lost),
            (&mut self.duplicated, earlier.duplicated),
            (&mut self.order_violations, earlier.order_violations),
            (&mut self.view_violations, earlier.view_violations),
            (&mut self.invented, earlier.invented),
        ] {
            *count = other.max(*count);
        }
        for finding in earlier.findings {
            if self.findings.len() < MAX_FINDINGS && !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
        self
    }

    fn find(&mut self, kind: impl Fn(&mut Self) -> &mut u64, many: u64, text: impl FnOnce() -> String) {
        *kind(self) += many;
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(text());
        }
    }
}

/// Judges one group. `total`: whether its order is one sequence for all.
pub(crate) fn judge(records: &[Record], group: &str, total: bool) -> Sheet {
    let mut sheet = Sheet::default();
    let mut lives = Vec::new();
    for record in records {
        let ledger = Ledger::of(record, group);
        let first = lives.len();
        lives.extend(split(record, group, &mut sheet));
        count(record, &ledger, &lives[first..], &mut sheet);
        check_own_sends(record, &ledger, &lives[first..], &mut sheet);
    }
    let asked: BTreeSet<(&str, &str)> = records
        .iter()
        .flat_map(|record| {
            record
                .asked
                .iter()
                .map(|payload| (record.name.as_str(), payload.as_str()))
        })
        .collect();
    for life in &lives {
        check_life(life, &asked, &mut sheet);
    }
    check_agreement_on_views(&lives, &mut sheet);
    check_same_view(&lives, &mut sheet);
    check_moves(&lives, total, &mut sheet);
    chain::check(records, &mut sheet);
    sheet
}

fn count(record: &Record, ledger: &Ledger<'_>, lives: &[Life<'_>], sheet: &mut Sheet) {
    let delivered: usize = lives
        .iter()
        .flat_map(|life| &life.views)
        .map(|view| view.messages.len())
        .sum();
    sheet.sent += ledger.accepted.len() as u64;
    sheet.refused += ledger.refused;
    let node = sheet.nodes.entry(record.name.clone()).or_default();
    node.sent += ledger.accepted.len() as u64;
    node.refused += ledger.refused;
    node.delivered += delivered as u64;
}

/// G10 self-delivery: what was taken from a node that stayed is delivered there, or its fate was told.
fn check_own_sends(record: &Record, ledger: &Ledger<'_>, lives: &[Life<'_>], sheet: &mut Sheet) {
    if !record.stayed {
        return;
    }
    let delivered: BTreeSet<Key<'_>> = lives
        .iter()
        .flat_map(|life| &life.views)
        .flat_map(|view| &view.messages)
        .map(|m| m.key)
        .collect();
    for (ticket, payload) in (1..).zip(&ledger.accepted) {
        if !delivered.contains(&(record.name.as_str(), *payload)) && !ledger.resolved.contains(&ticket) {
            sheet.find(
                |sheet| &mut sheet.lost,
                1,
                || {
                    format!(
                        "{} took {payload} for sending and never delivered it, nor said why",
                        record.name
                    )
                },
            );
        }
    }
}

/// What one life shows alone: G1, G2, G7, G8, G9, G19.
fn check_life(life: &Life<'_>, asked: &BTreeSet<Key<'_>>, sheet: &mut Sheet) {
    let name = life.name;
    let mut before: Option<&InView<'_>> = None;
    let mut seen = BTreeSet::new();
    let mut last_seq: BTreeMap<&str, u64> = BTreeMap::new();
    for view in &life.views {
        if !view.members.iter().any(|member| member == name) {
            sheet.find(
                |sheet| &mut sheet.view_violations,
                1,
                || format!("{name} installed view {} without itself", view.id),
            );
        }
        if let Some(before) = before {
            check_step(name, before, view, sheet);
        }
        before = Some(view);
        for sender in view.joined {
            last_seq.remove(sender.as_str());
        }
        for Delivered {
            key: (sender, payload),
            seq,
        } in &view.messages
        {
            if !asked.contains(&(*sender, *payload)) {
                sheet.find(
                    |sheet| &mut sheet.invented,
                    1,
                    || {
                        format!(
                            "{name} delivered {payload} of {sender}, which {sender} was never asked to send"
                        )
                    },
                );
            }
            if !view.members.iter().any(|member| member == sender) {
                sheet.find(|sheet| &mut sheet.view_violations, 1, || {
                    format!("{name} delivered {payload} in view {}, of which its sender {sender} is no member", view.id)
                });
            }
            if !seen.insert((*sender, *payload)) {
                sheet.find(
                    |sheet| &mut sheet.duplicated,
                    1,
                    || format!("{name} delivered {payload} twice"),
                );
                continue;
            }
            match last_seq.insert(sender, *seq) {
                Some(last) if *seq <= last => sheet.find(
                    |sheet| &mut sheet.order_violations,
                    1,
                    || format!("{name} delivered number {seq} of {sender} after {last}"),
                ),
                Some(last) if *seq > last + 1 => {
                    let missing = seq - last - 1;
                    sheet.find(|sheet| &mut sheet.lost, missing, || {
                        format!("{name} delivered number {seq} of {sender} right after {last}: {missing} missing")
                    });
                }
                _ => {}
            }
        }
    }
}

/// G2 and G7: ids rise, and the differences add up. A name may be in both lists: it crashed and joined anew.
fn check_step(name: &str, before: &InView<'_>, view: &InView<'_>, sheet: &mut Sheet) {
    if id_order(view.id) <= id_order(before.id) {
        sheet.find(
            |sheet| &mut sheet.view_violations,
            1,
            || format!("{name} installed view {} after {}", view.id, before.id),
        );
    }
    let had = |member: &String| before.members.contains(member);
    let has = |member: &String| view.members.contains(member);
    let consistent = view
        .members
        .iter()
        .all(|member| had(member) || view.joined.contains(member))
        && view.joined.iter().all(has)
        && before
            .members
            .iter()
            .all(|member| has(member) || view.departed.contains(member.as_str()))
        && view
            .departed
            .iter()
            .all(|member| before.members.iter().any(|had| had == member));
    if !consistent {
        sheet.find(
            |sheet| &mut sheet.view_violations,
            1,
            || {
                format!(
                    "{name}: the differences told with view {} do not lead there from view {}",
                    view.id, before.id
                )
            },
        );
    }
}

/// "57301.2" in numeric order.
fn id_order(id: &str) -> Vec<u64> {
    id.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// G4 one id, one list; G15 the transitional set is exactly those that came from the same view.
fn check_agreement_on_views(lives: &[Life<'_>], sheet: &mut Sheet) {
    type Install<'a> = (&'a Life<'a>, Option<&'a str>, &'a InView<'a>);
    let mut installed: BTreeMap<&str, Vec<Install<'_>>> = BTreeMap::new();
    for life in lives {
        for (index, view) in life.views.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| life.views[before].id);
            installed.entry(view.id).or_default().push((life, before, view));
        }
    }
    for (id, installs) in &installed {
        for (index, (p, p_before, p_view)) in installs.iter().enumerate() {
            for (q, q_before, q_view) in &installs[..index] {
                if p_view.members != q_view.members {
                    sheet.find(
                        |sheet| &mut sheet.view_violations,
                        1,
                        || {
                            format!(
                                "view {id} is {} at {} and {} at {}",
                                p_view.members.join(" "),
                                p.name,
                                q_view.members.join(" "),
                                q.name
                            )
                        },
                    );
                }
                let together = p_before.is_some() && p_before == q_before;
                if p_view.transitional.contains(q.name) != together
                    || q_view.transitional.contains(p.name) != together
                {
                    sheet.find(|sheet| &mut sheet.view_violations, 1, || {
                        format!(
                            "view {id}: {} and {} disagree on whether they came from the same view ({} and {})",
                            p.name,
                            q.name,
                            p_before.unwrap_or("none"),
                            q_before.unwrap_or("none")
                        )
                    });
                }
            }
        }
    }
}

/// G11: whoever delivers a message delivers it in the same view.
fn check_same_view(lives: &[Life<'_>], sheet: &mut Sheet) {
    let mut delivered_in: BTreeMap<Key<'_>, &str> = BTreeMap::new();
    for life in lives {
        for view in &life.views {
            for message in &view.messages {
                let first = *delivered_in.entry(message.key).or_insert(view.id);
                if first != view.id {
                    sheet.find(
                        |sheet| &mut sheet.order_violations,
                        1,
                        || {
                            format!(
                                "{} was delivered in view {first} and, by {}, in view {}",
                                message.key.1, life.name, view.id
                            )
                        },
                    );
                }
            }
        }
    }
}

/// G14 and G21 among those that move together.
fn check_moves(lives: &[Life<'_>], total: bool, sheet: &mut Sheet) {
    /// From a view to the next one; `None`: in force at the end.
    type Move<'a> = (&'a str, Option<&'a str>);
    let mut moves: BTreeMap<Move<'_>, Vec<(&str, &[Delivered<'_>])>> = BTreeMap::new();
    for life in lives {
        for (index, view) in life.views.iter().enumerate() {
            let next = life.views.get(index + 1).map(|next| next.id);
            if next.is_some() || life.stayed {
                moves
                    .entry((view.id, next))
                    .or_default()
                    .push((life.name, &view.messages));
            }
        }
    }
    for ((view, _), together) in &moves {
        let union: BTreeSet<Key<'_>> = together
            .iter()
            .flat_map(|(_, messages)| messages.iter().map(|m| m.key))
            .collect();
        for (name, messages) in together {
            let own: BTreeSet<Key<'_>> = messages.iter().map(|message| message.key).collect();
            let missing: Vec<_> = union.difference(&own).collect();
            if let Some((sender, payload)) = missing.first() {
                sheet.find(|sheet| &mut sheet.lost, missing.len() as u64, || {
                    format!(
                        "{name} did not deliver {} message(s) of view {view} that others who moved on with it did, first {payload} of {sender}",
                        missing.len()
                    )
                });
            }
        }
        if total {
            for (index, (p, p_messages)) in together.iter().enumerate() {
                for (q, q_messages) in &together[..index] {
                    check_order(view, (p, p_messages), (q, q_messages), sheet);
                }
            }
        }
    }
}

fn check_order(view: &str, p: (&str, &[Delivered<'_>]), q: (&str, &[Delivered<'_>]), sheet: &mut Sheet) {
    let place: BTreeMap<Key<'_>, usize> = p.1.iter().enumerate().map(|(place, m)| (m.key, place)).collect();
    let mut highest: Option<(usize, Key<'_>)> = None;
    for message in q.1 {
        let Some(&here) = place.get(&message.key) else {
            continue;
        };
        match highest {
            Some((there, before)) if here < there => {
                sheet.find(
                    |sheet| &mut sheet.order_violations,
                    1,
                    || {
                        format!(
                            "in view {view} {} delivered {} before {}, {} after it",
                            q.0, before.1, message.key.1, p.0
                        )
                    },
                );
            }
            _ => highest = Some((here, message.key)),
        }
    }
}

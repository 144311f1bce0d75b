//! The final sheet: what the judge found, counted by kind, and what each node did.
//!
//! - **lost**: a message that must be there is not; **duplicated**: a message came twice; **invented**: a
//!   message that no node sent.
//! - **order violations**: messages came in an order, or in a view, that is not theirs.
//! - **call violations**: a call was handed out although its caller was told that it did not run, or twice,
//!   or nobody made it.
//! - **view violations**: all else, from views to lines that no node should print.

use std::collections::BTreeMap;

use antiphon_api::Event;
use antiphon_api::blocks::Ran;
use antiphon_lab::{Finding, Trace, Wrong};
use serde::Serialize;
use serde_json::{Value, json};

use super::screen::Screen;
use super::story::Figures;

/// No more findings than this are kept as text; all are counted.
const MAX_FINDINGS: usize = 20;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sheet {
    /// Messages taken for sending.
    pub(crate) sent: u64,
    /// Sends refused with a reason.
    refused: u64,
    /// Per name: sent, refused, delivered.
    nodes: BTreeMap<String, NodeCount>,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) order_violations: u64,
    view_violations: u64,
    invented: u64,
    /// Calls that were made.
    calls: u64,
    /// Those of which the reply says that they ran nowhere.
    calls_not_run: u64,
    call_violations: u64,
    /// The first of them, in words.
    findings: Vec<String>,
    /// The primary views, by number.
    view_changes: Vec<ViewChange>,
}

/// Of one name, all its processes together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct NodeCount {
    sent: u64,
    refused: u64,
    delivered: u64,
}

/// One primary view of the cluster, and what changed since the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ViewChange {
    number: u32,
    /// By seniority.
    members: Vec<String>,
    joined: Vec<String>,
    left: Vec<String>,
    /// "name: cause (who saw what)".
    crashed: Vec<String>,
}

impl Sheet {
    /// Of a story in one group.
    pub(crate) fn of(trace: &Trace, group: &str, found: &[Finding]) -> Self {
        let mut sheet = Self::default();
        for run in &trace.runs {
            let (refused, fates) = (run.refused(), run.fates());
            let not_sent = |what: &str| {
                let failure = fates.get(what).copied().flatten();
                refused.contains(what) || failure.is_some_and(|failure| failure.ran == Ran::No)
            };
            let refused = run.sent.iter().filter(|said| not_sent(&said.what)).count() as u64;
            let node = sheet.nodes.entry(run.name.clone()).or_default();
            node.sent += run.sent.len() as u64 - refused;
            node.refused += refused;
            node.delivered += run.delivered(group).len() as u64;
            let not_run = run.replies_to_calls().filter(|(_, reply)| {
                let error = reply.error.as_ref();
                error.is_some_and(|failure| failure.ran == Ran::No)
            });
            sheet.calls += run.called.len() as u64;
            sheet.calls_not_run += not_run.count() as u64;
        }
        sheet.sent = sheet.nodes.values().map(|node| node.sent).sum();
        sheet.refused = sheet.nodes.values().map(|node| node.refused).sum();
        for finding in found {
            *match finding.wrong {
                Wrong::Lost => &mut sheet.lost,
                Wrong::Duplicated => &mut sheet.duplicated,
                Wrong::Order => &mut sheet.order_violations,
                Wrong::View | Wrong::Process => &mut sheet.view_violations,
                Wrong::Invented => &mut sheet.invented,
                Wrong::Call => &mut sheet.call_violations,
            } += finding.count;
        }
        sheet.findings = found.iter().take(MAX_FINDINGS).map(ToString::to_string).collect();
        let mut chain = BTreeMap::new();
        for (_, event) in trace.runs.iter().flat_map(|run| &run.events) {
            if let Event::NodeView(view) = event
                && view.primary
            {
                chain.entry(view.number).or_insert_with(|| ViewChange {
                    number: view.number,
                    members: view.members.iter().map(|member| member.name.clone()).collect(),
                    joined: view.joined.clone(),
                    left: view.left.iter().map(|member| member.name.clone()).collect(),
                    crashed: view.crashed.iter().map(ToString::to_string).collect(),
                });
            }
        }
        sheet.view_changes = chain.into_values().collect();
        sheet
    }

    /// Whether every promise was kept.
    pub(crate) fn holds(&self) -> bool {
        let wrong = [
            self.lost,
            self.duplicated,
            self.order_violations,
            self.view_violations,
            self.invented,
            self.call_violations,
        ];
        wrong.iter().all(|count| *count == 0)
    }

    /// The higher count of each: two audits of the same story, one of them at an earlier moment.
    pub(crate) fn worst(mut self, earlier: Self) -> Self {
        for (count, other) in [
            (&mut self.lost, earlier.lost),
            (&mut self.duplicated, earlier.duplicated),
            (&mut self.order_violations, earlier.order_violations),
            (&mut self.view_violations, earlier.view_violations),
            (&mut self.invented, earlier.invented),
            (&mut self.call_violations, earlier.call_violations),
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
}

/// Shows the verdict; for programs, as the last line.
pub(crate) fn show(screen: &Screen, sheet: &Sheet, figures: &Figures, holds: bool) {
    for line in text(screen, sheet, figures, holds) {
        screen.people(&line);
    }
    screen.program(&summary(sheet, figures, holds));
}

fn text(screen: &Screen, sheet: &Sheet, figures: &Figures, holds: bool) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        screen.paint("1", "The sheet, from what every node told"),
    ];
    lines.push(String::new());
    lines.push(format!(
        "  {:<8}{:>8}{:>10}{:>12}",
        "", "sent", "refused", "delivered"
    ));
    for (name, count) in &sheet.nodes {
        lines.push(format!(
            "  {name:<8}{:>8}{:>10}{:>12}",
            count.sent, count.refused, count.delivered
        ));
    }
    let delivered: u64 = sheet.nodes.values().map(|count| count.delivered).sum();
    lines.push(format!(
        "  {:<8}{:>8}{:>10}{delivered:>12}",
        "all", sheet.sent, sheet.refused
    ));
    lines.push(String::new());
    let calls = format!(
        "   of {} calls, {} of which were not run",
        sheet.calls, sheet.calls_not_run
    );
    for (what, many, more) in [
        ("lost", sheet.lost, ""),
        ("duplicated", sheet.duplicated, ""),
        ("order violations", sheet.order_violations, ""),
        ("view violations", sheet.view_violations, ""),
        ("invented", sheet.invented, ""),
        ("call violations", sheet.call_violations, calls.as_str()),
        ("map entries lost", figures.map_entries_lost, ""),
        ("stale lock tokens", figures.stale_tokens, ""),
        ("left badly", figures.left_badly, ""),
    ] {
        let colour = if many == 0 { "32" } else { "1;31" };
        lines.push(format!(
            "  {what:<19}{}{more}",
            screen.paint(colour, &format!("{many:>6}"))
        ));
    }
    lines.extend(sheet.findings.iter().map(|finding| format!("    {finding}")));
    lines.push(String::new());
    lines.push(screen.paint("1", "Views of the cluster, and why they changed"));
    lines.push(String::new());
    for change in &sheet.view_changes {
        lines.push(format!("  {}  {}", change.number, change.members.join(" ")));
        let why = [("joined", &change.joined), ("left", &change.left)];
        for (what, names) in why.into_iter().filter(|(_, names)| !names.is_empty()) {
            lines.push(screen.paint("2", &format!("           {what}: {}", names.join(" "))));
        }
        lines.extend(
            change
                .crashed
                .iter()
                .map(|crash| screen.paint("2", &format!("           {crash}"))),
        );
    }
    lines.push(String::new());
    lines.push(if holds {
        screen.paint("1;32", "Every promise was kept.")
    } else {
        screen.paint("1;31", "NOT as promised: see above.")
    });
    lines
}

fn summary(sheet: &Sheet, figures: &Figures, holds: bool) -> Value {
    let mut summary = json!({
        "event": "summary",
        "ok": holds,
        "nodes": figures.nodes,
        "formed_ms": figures.formed_ms,
        "elder_crash_detected_ms": figures.elder_crash_detected_ms,
        "delivery_gap_ms": figures.delivery_gap_ms,
        "rejoined_ms": figures.rejoined_ms,
        "partition_ms": figures.partition_ms,
        "healed_ms": figures.healed_ms,
        "pause_view_changes": figures.pause_view_changes,
        "lock_moved_ms": figures.lock_moved_ms,
        "lock_grants": figures.lock_grants,
        "stale_tokens": figures.stale_tokens,
        "map_entries": figures.map_entries,
        "map_entries_lost": figures.map_entries_lost,
        "left_badly": figures.left_badly,
    });
    // A sheet is a struct of numbers, strings and lists of them.
    let counts = serde_json::to_value(sheet).expect("a sheet has only string keys");
    if let (Some(summary), Value::Object(mut counts)) = (summary.as_object_mut(), counts) {
        counts.insert("members".into(), counts.get("nodes").cloned().unwrap_or_default());
        counts.remove("nodes");
        summary.extend(counts);
    }
    summary
}

//! The final sheet.

use serde_json::{Value, json};

use super::screen::Screen;
use super::story::Figures;
use crate::judge::Sheet;

/// Shows the verdict; for programs, as the last line.
pub(crate) fn show(screen: &Screen, sheet: &Sheet, figures: &Figures, holds: bool) {
    for line in text(screen, sheet, holds) {
        screen.people(&line);
    }
    screen.program(&summary(sheet, figures, holds));
}

fn text(screen: &Screen, sheet: &Sheet, holds: bool) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        screen.paint("1", "The sheet, from what every node printed"),
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
    for (what, many) in [
        ("lost", sheet.lost),
        ("duplicated", sheet.duplicated),
        ("order violations", sheet.order_violations),
        ("view violations", sheet.view_violations),
        ("invented", sheet.invented),
    ] {
        let colour = if many == 0 { "32" } else { "1;31" };
        lines.push(format!(
            "  {what:<18}{}",
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

//! What a line says of itself: panics, lines that are no event, words after the end, causes without grounds.

use antiphon_api::{Event, NodeView};
use antiphon_judge::Report;

use super::{Life, Rules};
use crate::trace::Trace;

/// Stands for the guarantee where none needs to say it.
pub(super) const PROCESS: &str = "";

pub(super) fn check(trace: &Trace, lives: &[Life<'_>], rules: &Rules, report: &mut Report) {
    for run in &trace.runs {
        let label = format!("{}#{}", run.name, run.start);
        for line in &run.garbage {
            let text = format!("{label}: standard output is not an event: {line}");
            report.fail(PROCESS, 0, text);
        }
        for line in run.log.iter().filter(|line| line.contains("panicked at")) {
            report.fail(PROCESS, 0, format!("{label}: panicked: {line}"));
        }
    }
    for life in lives {
        let label = life.label();
        let mut left = false;
        for (at, event) in life.events() {
            if left {
                report.fail("G7", at, format!("{label}: said something after it left"));
                break;
            }
            match event {
                Event::Left => left = true,
                Event::NodeView(view) => causes(&label, at, view, rules, report),
                // G13: a node that runs and is heard takes part in a flush, or is removed by a node view; it
                // does not stall one.
                Event::Resync { cause, .. } if cause.contains("stalled") && life.run.frozen.is_empty() => {
                    let text = format!("{label}: {cause}, although it was running all the time");
                    report.fail("G13", at, text);
                }
                _ => {}
            }
        }
    }
}

/// G7: a departure says which members said so, and why; or that the same node is here as another incarnation,
/// which joins by this view; G38: or that an operator did it; G41: or that the member is not in this
/// component.
fn causes(label: &str, at: u64, view: &NodeView, rules: &Rules, report: &mut Report) {
    for crash in &view.crashed {
        let name = &crash.member.name;
        let needs_none = crash.cause.starts_with("overridden")
            || rules.any && crash.cause.starts_with("separated")
            || crash.cause.starts_with("superseded") && view.joined.contains(name);
        let told = !crash.accusers.is_empty() && !crash.evidence.is_empty();
        report.check("G7", at, needs_none || told, || {
            let id = &view.id;
            format!(
                "{label}: node view {id:?} says that {name} crashed, but not who says so on what evidence"
            )
        });
    }
}

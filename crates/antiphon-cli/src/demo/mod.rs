//! `antiphon demo`: a cluster of real processes is formed, broken in every way, healed, and audited.
//!
//! ```text
//!  story ── kill, pause, fault, restart ──► fleet (child processes)
//!    │ load: every node sends all the time ──►  │ lines
//!    ▼                                          ▼
//!  screen ◄──────── figures, sheet ◄──────── judge
//! ```
//! Nothing is staged: nodes are `antiphon node --json`, faults are signals and `{"fault":…}`, and the sheet
//! at the end is computed by [`antiphon_lab::judge()`] from what the nodes printed.

mod cast;
mod keep;
mod screen;
mod sheet;
mod story;

use super::args::DemoArgs;
use super::exit::{Exit, Failed};
use screen::{Screen, Tone};
use story::Story;

/// Runs the demo. Success only if the sheet holds.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Failed> {
    let screen = Screen::new(args.json);
    let mut story = Story::new(usize::from(args.nodes), args.logs.clone(), &screen)?;
    let outcome = story.play();
    if let Err(failed) = &outcome {
        screen.tell(Tone::Bad, "failed", &failed.message, serde_json::json!({}));
        story.autopsy();
    }
    let (sheet, figures) = story.verdict();
    story.leave_logs()?;
    let holds = sheet.holds() && figures.hold() && outcome.is_ok();
    sheet::show(&screen, &sheet, &figures, holds);
    Ok(if holds { Exit::Success } else { Exit::Failure })
}

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
//!
//! With `--agents` each node is `antiphon agent`. A program, as a client at the agent's socket, is the member
//! of the group, takes the lock and uses the map. There is one more act: the program that holds the lock ends
//! its connection and comes again. And the network does not break: instead one side is stopped, then the
//! other.

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
    let mut story = Story::new(args, &screen)?;
    let outcome = story.play();
    if let Err(failed) = &outcome {
        screen.tell(Tone::Bad, "failed", &failed.message, serde_json::json!({}));
        story.autopsy();
    }
    let (sheet, figures) = story.verdict(outcome.is_err());
    story.leave_logs()?;
    let holds = sheet.holds() && figures.hold() && outcome.is_ok();
    sheet::show(&screen, &sheet, &figures, holds);
    Ok(if holds { Exit::Success } else { Exit::Failure })
}

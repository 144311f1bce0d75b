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

use std::io;

use antiphon_agent::console::place;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::args::DemoArgs;
use super::exit::{Exit, Failed};
use screen::{Screen, Tone};
use story::Story;

/// Runs the demo. Success only if the sheet holds.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Failed> {
    let screen = Screen::new(args.json);
    if args.agents {
        end_when_hung_up().map_err(|error| Failed::cannot("handle signals", &error))?;
    }
    let mut story = Story::new(args, &screen)?;
    let outcome = story.play();
    if let Err(failed) = &outcome {
        screen.tell(Tone::Bad, "failed", &failed.message, serde_json::json!({}));
        story.autopsy();
    }
    let (sheet, figures) = story.verdict(outcome.is_err());
    // Nodes that were killed have left the sockets of their consoles: this look removes them.
    drop(place::running());
    story.leave_logs()?;
    let holds = sheet.holds() && figures.hold() && outcome.is_ok();
    sheet::show(&screen, &sheet, &figures, holds);
    Ok(if holds { Exit::Success } else { Exit::Failure })
}

/// A terminal that goes away ends a demo as SIGTERM does, which leaves no folder of sockets behind.
fn end_when_hung_up() -> io::Result<()> {
    if ignores_hangup() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut hangup = runtime.block_on(async { signal(SignalKind::hangup()) })?;
    std::thread::Builder::new()
        .name("hangup".to_owned())
        .spawn(move || {
            if runtime.block_on(hangup.recv()).is_some() {
                // It cannot fail: this process is there, and may send itself what it likes.
                let _ = kill_process(getpid(), Signal::TERM);
            }
        })?;
    Ok(())
}

/// Whether the parent meant this process to outlive its terminal, as nohup does. To catch the signal would
/// undo that. Only Linux tells.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (SignalKind::hangup().as_raw_value() - 1) != 0)
}

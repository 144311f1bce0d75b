//! The `antiphon` program.
//!
//! ```text
//!  args ──► settings ──► node ──► antiphon_agent       one node: events to stdout, commands from stdin, a console,
//!                                                      or, as an agent, from each program that connects
//!           demo, bench: fleet ──► antiphon_lab        many nodes as child processes, and what they promised
//!           bench, swarm: hands                        children that are told what to do, not what nodes print
//! ```
//! - [`args`]: the command line; [`settings`]: flags, environment and file put together and checked.
//! - [`console`]: questions to a running node, and an operator's word; [`doctor`]: why a node cannot form or
//!   join a cluster.
//! - [`locator`]: the server that tells newcomers where the nodes are.
//! - [`files`]: how many files a process may have open, and whether that is enough.
//! - `antiphon_lab`, a crate: processes, and a judge that counts broken promises from what nodes printed.
//!
//! Nothing here knows a protocol: all that the program can do, an application of the library can do, too.

mod args;
mod bench;
mod console;
mod demo;
mod doctor;
mod exit;
mod figures;
mod files;
mod fleet;
mod hands;
mod key;
mod locator;
mod node;
mod progress;
mod say;
mod settings;
mod signals;
mod swarm;
mod usage;

use std::borrow::Cow;

use antiphon_core::text::{in_lines, shortened};
use clap::Parser as _;

use args::{Cli, Command};
use exit::{Exit, Failed, complain};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Characters of an error or a warning: what was given may be as long as a file.
const MOST: usize = 3000;

fn main() {
    std::process::exit(run());
}

/// Runs the program and gives its exit code.
fn run() -> i32 {
    files::raise();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Node(args) => node::run(*args),
        Command::Agent(args) => node::run_agent(*args),
        Command::Locator(args) => locator::run(args),
        Command::Key(args) => key::generate(&args.file).map(|()| {
            complain!(
                "wrote a new key to {}; keep it secret. That of a cluster is copied to every node",
                args.file.display()
            );
            Exit::Success
        }),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(*args),
        Command::Swarm(args) => swarm::run(&args),
        Command::Doctor(args) => doctor::run(*args),
        Command::Members(args) => console::members(&args),
        Command::Why(args) => console::why(&args),
        Command::View(args) => console::view(&args),
        Command::Recover(args) => console::recover(&args),
    };
    match result {
        Ok(exit) => exit.code(),
        Err(Failed { exit, message }) => {
            complain!("antiphon: {}", in_lines(&shortened(&message, MOST)));
            exit.code()
        }
    }
}

/// Says what is wrong with the command line, which may be long; or prints the help that was asked for.
fn refuse(error: &clap::Error) -> i32 {
    let text = error.to_string();
    match shortened(&text, MOST) {
        Cow::Owned(text) if error.use_stderr() => complain!("{text}"),
        _ => error.exit(),
    }
    Exit::Usage.code()
}

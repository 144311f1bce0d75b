//! `antiphon doctor`: why a node with these settings cannot form or join a cluster, step by step.
//!
//! ```text
//!   names ─► settings ─► key ─► files ─► running node? ─► port ─► sources ─┬─► each seed and each node found: reach, version, cluster,
//!     │         │ wrong: the end                                     │     │     key, answer, wire level, engine, seed list, verdict, groups, udp
//!     └ resolved one by one                         each looked at ──┘     ├─► each locator: reach, version, cluster, key
//!                                                   once                   └─► all together: founders, or the cluster to join
//! ```
//! The doctor gets the settings of `antiphon node` and starts no node. It listens where the node would, so
//! that answers show whether that address is reached, and sends each seed one enquiry
//! (`antiphon_core::Enquirer`). An enquirer is no candidate and no joiner, so nothing of the cluster changes.
//! If the node already runs, the node has its port: then answers come to another port, and the doctor asks
//! the node's console what it waits for.
//!
//! Before it listens it compares the profile with that of the cluster's nodes on this host ([`profiles`]),
//! and tries what else a node opens at its start ([`start`]).
//!
//! # Steps
//! Each step is `ok`, `failed`, `warning` or `skipped`, with a word that programs can rely on, the cause and
//! the remedy. A step that a failed one makes pointless is skipped, and says so. All names are looked up at
//! the same time, then all sources, and all seeds are asked at the same time. No step waits longer than
//! `--within` at a time, except for sources: they have the six seconds that a node gives them.

pub(crate) mod args;
mod datagrams;
mod files;
mod names;
mod port;
mod profiles;
mod report;
mod running;
mod seeds;
mod sources;
mod start;
mod steps;
mod verdict;

use std::path::Path;
use std::time::Duration;

use super::args::NodeArgs;
use super::console::block_on;
use super::exit::{Exit, Failed};
use super::settings::Settings;
use args::DoctorArgs;
use report::{Report, Step};
use seeds::Enquiries;
use verdict::Obstacles;

/// Runs `antiphon doctor`.
pub(crate) fn run(args: DoctorArgs) -> Result<Exit, Failed> {
    if args.node.print_config {
        return super::node::run(args.node);
    }
    super::node::start_log();
    block_on(examine(args))
}

async fn examine(args: DoctorArgs) -> Result<Exit, Failed> {
    let mut report = Report::new(args.node.json.unwrap_or(false));
    let within = args.within;
    if !Settings::are_given(&args.node) {
        return without_settings(report, &args.node).await;
    }
    let (mut settings, unresolved) = match settings(&mut report, args.node, within).await {
        Ok(settings) => settings,
        Err(exit) => return report.finish(exit),
    };
    let (own, silent) = running::own(&mut report, &settings).await;
    let is_silent = own.is_none() && port::is_taken_by(&settings.bind, &silent);
    profiles::compare(&mut report, &settings, own.as_ref()).await;
    start::take_environment(&mut report, &mut settings);
    let mut cannot = start::look(&mut report, &settings, own.is_some() || is_silent).await;
    let port = port::take(&mut report, &settings, own.as_ref(), &silent);
    if port.as_ref().is_none_or(|port| !port.is_free) {
        cannot.push("listen at its address");
    }
    let obstacles = Obstacles {
        is_silent,
        unresolved,
        cannot,
    };
    if let Some(port) = port {
        let confined = settings.key.is_none() && !settings.insecure;
        let found = sources::look(&mut report, &settings, confined).await;
        match Enquiries::new(&settings, &found, port, within) {
            Ok(mut enquiries) => {
                enquiries.run(&mut report).await;
                verdict::draw(&mut report, &settings, &enquiries, own.as_ref(), &obstacles);
            }
            // Of what is left of the list not even a question can be made.
            Err(_) if !obstacles.unresolved.is_empty() => {
                report.add(Step::skipped("seeds", "", "no seed is left to ask"));
                obstacles.tell(&mut report);
            }
            Err(failed) => {
                report.add(Step::failed(
                    "seeds",
                    "seeds",
                    "",
                    failed.message,
                    "nobody could be asked: mend that, then start again",
                ));
                return report.finish(failed.exit);
            }
        }
    } else {
        report.add(Step::skipped(
            "seeds",
            "",
            "no address of this host could be listened at, so no answer would arrive",
        ));
        obstacles.tell(&mut report);
    }
    report.finish(Exit::Failure)
}

/// Resolves names, each by itself, then checks the settings as `antiphon node` does. With them come the seeds
/// that do not resolve. The error is how a node with these settings ends.
async fn settings(
    report: &mut Report,
    mut args: NodeArgs,
    within: Duration,
) -> Result<(Settings, Vec<String>), Exit> {
    let written = match Settings::written(&args) {
        Ok(written) => written,
        Err(failed) => {
            report.add(Step::failed(
                "settings",
                "settings",
                "",
                failed.message,
                "mend that, then start again",
            ));
            return Err(failed.exit);
        }
    };
    report.speak_json(written.json);
    let usable = names::resolve(report, &written, within).await;
    // A seed that does not resolve must not hide what is wrong with the others.
    args.seeds = Some(usable.seeds);
    args.bind = Some(usable.bind).filter(|bind| !bind.is_empty());
    args.advertise = Some(usable.advertise).filter(|advertise| !advertise.is_empty());
    let resolved = match usable.unresolved.as_slice() {
        [] => Settings::resolve(args),
        _ => Settings::resolve_in_part(args),
    };
    match resolved {
        Ok(settings) => {
            let groups = match settings.groups.as_slice() {
                [] => "no group".to_owned(),
                groups => format!("groups {}", groups.join(", ")),
            };
            report.add(Step::ok(
                "settings",
                "",
                format!(
                    "node {} of cluster {}, {} seeds, {groups}, profile {}",
                    settings.name,
                    settings.cluster,
                    settings.seeds.len(),
                    settings.profile.name
                ),
            ));
            for warning in &settings.warnings {
                report.add(Step::warning("settings", "", warning.clone()));
            }
            key(report, &settings);
            files::limit(report, &settings);
            Ok((settings, usable.unresolved))
        }
        Err(failed) => {
            report.add(Step::failed(
                "settings",
                "settings",
                "",
                failed.message,
                "change that setting: `antiphon node --help` lists all, `--print-config` shows what is in force",
            ));
            Err(failed.exit)
        }
    }
}

fn key(report: &mut Report, settings: &Settings) {
    let step = match (&settings.key, &settings.key_file) {
        (Some(key), Some(path)) => Step::ok(
            "key",
            "",
            format!(
                "{}, key id {}: it must be the same on every node",
                path.display(),
                key.id()
            ),
        ),
        _ => Step::ok(
            "key",
            "",
            "none: every node of the cluster must be without one, too".to_owned(),
        ),
    };
    report.add(step);
}

/// Nothing is given: there may still be nodes to ask.
async fn without_settings(mut report: Report, args: &NodeArgs) -> Result<Exit, Failed> {
    // In the environment of a node without a console that word is no path.
    let socket = args.console.as_deref().filter(|path| *path != Path::new("none"));
    let asked = running::all(&mut report, socket).await;
    if asked == 0 {
        running::without_consoles(&mut report);
        report.add(Step::failed(
            "settings",
            "settings",
            "",
            "no settings are given and no node runs here",
            "give the settings of the node that does not come up, as flags, in the environment or with --config, as for `antiphon node`",
        ));
        return report.finish(Exit::Usage);
    }
    report.add(Step::skipped(
        "settings",
        "",
        "none given: only running nodes were asked; with the settings of a node, each step of its way into the cluster is looked at",
    ));
    report.finish(Exit::Failure)
}

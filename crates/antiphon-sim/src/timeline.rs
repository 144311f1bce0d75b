//! A run as text: faults, views, and deliveries summed up between them.

use std::collections::BTreeMap;

use antiphon_core::{BallotStep, TellOutcome};

use crate::machine::{Step, Stepped};
use crate::trace::{CallDeed, Deed, Heard, Inside, ProcessId, Seen, Trace};

/// The lines of a trace, readable.
pub fn timeline(trace: &Trace) -> Vec<String> {
    let mut lines = Vec::new();
    let mut slots: BTreeMap<ProcessId, usize> = BTreeMap::new();
    let mut deliveries: BTreeMap<(ProcessId, usize), u64> = BTreeMap::new();
    let mut sends: BTreeMap<(ProcessId, usize), u64> = BTreeMap::new();
    for line in &trace.lines {
        if let Seen::Started { slot, .. } = &line.what {
            slots.insert(line.process, *slot);
        }
        let who = match slots.get(&line.process) {
            Some(slot) => format!("n{slot}/p{}", line.process),
            None => "world".to_owned(),
        };
        let at = format!("{:>4}.{:06}", line.at / 1_000_000, line.at % 1_000_000);
        match &line.what {
            Seen::Sent { group, .. } => *sends.entry((line.process, *group)).or_default() += 1,
            Seen::NotSent { .. } => {}
            Seen::Group(group, Heard::Message(_)) => {
                *deliveries.entry((line.process, *group)).or_default() += 1;
            }
            what => {
                if let Seen::Group(group, _) = what {
                    let delivered = deliveries.remove(&(line.process, *group)).unwrap_or(0);
                    let sent = sends.remove(&(line.process, *group)).unwrap_or(0);
                    if delivered + sent > 0 {
                        lines.push(format!(
                            "{at} {who:<9} g{group}: delivered {delivered}, sent {sent}"
                        ));
                    }
                }
                let shown = show(what);
                if !shown.is_empty() {
                    lines.push(format!("{at} {who:<9} {shown}"));
                }
            }
        }
    }
    lines
}

fn show(what: &Seen) -> String {
    match what {
        Seen::Started { slot, foreign, .. } => {
            format!(
                "started at {}{}",
                crate::world::addr_of(*slot),
                if *foreign { " for another cluster" } else { "" }
            )
        }
        Seen::Ended(ending) => format!("ENDED {ending:?}"),
        Seen::Fault(text) => format!("FAULT {text}"),
        Seen::AskedToLeave => "asked to leave".to_owned(),
        Seen::AskedToJoin { group, name, options } => format!("joins g{group} {name} {:?}", options.order),
        Seen::AskedToLeaveGroup(group) => format!("leaves g{group}"),
        Seen::Incarnation(incarnation) => format!("is {}", incarnation.short()),
        Seen::Forming(missing) => format!("forming, misses {missing:?}"),
        Seen::NodeView(view) => {
            let members: Vec<String> = view
                .members
                .iter()
                .map(|m| format!("{}/{}", m.name, m.incarnation.short()))
                .collect();
            let gone: Vec<String> = view
                .departed
                .iter()
                .map(|d| {
                    let evidence: Vec<String> = d
                        .accusers
                        .iter()
                        .map(|a| format!("{:?} by {}", a.evidence, a.accuser.short()))
                        .collect();
                    format!("{} {:?} ({})", d.member.name, d.cause, evidence.join(", "))
                })
                .collect();
            let kind = if view.is_primary() {
                "VIEW"
            } else {
                "non-primary view"
            };
            format!(
                "{kind} {} #{} of {:.8} [{}] gone [{}]",
                view.id,
                view.number,
                view.lineage.to_string(),
                members.join(" "),
                gone.join("; ")
            )
        }
        Seen::Merge(subviews) => {
            let parts = subviews.iter().map(|part| {
                let members: Vec<String> = part.members.iter().map(|member| member.short()).collect();
                format!(
                    "[{}] of {} {:.8}",
                    members.join(" "),
                    part.view,
                    part.lineage.to_string()
                )
            });
            format!("MERGE {}", parts.collect::<Vec<_>>().join(" + "))
        }
        Seen::Refused { reason, fatal } => format!("refused (fatal: {fatal}): {reason}"),
        Seen::Expelled(cause) => format!("EXPELLED {cause}"),
        Seen::Link { links, number, cause } => {
            let up = links.links.iter().map(|link| if link.up { "up" } else { "down" });
            let up: Vec<&str> = up.collect();
            let (peer, in_use) = (links.peer.short(), links.in_use);
            format!("link {number} to {peer}: {cause:?}; now {up:?}, uses {in_use}")
        }
        Seen::Starved(missed) => format!("says that it did not run for {} ms", missed / 1000),
        Seen::Lease(true) => "believes in its view".to_owned(),
        Seen::Lease(false) => "DOES NOT BELIEVE in its view".to_owned(),
        Seen::Path(path) => {
            let (peer, via) = (path.peer.short(), path.sends_through.map(|via| via.short()));
            format!("sends to {peer} through {via:?}: {path:?}")
        }
        Seen::Cut { from, to, cut: true } => format!("n{from} does not reach n{to}"),
        Seen::Cut { from, to, cut: false } => format!("n{from} reaches n{to}"),
        Seen::Told { slot, whom } => format!("n{slot} is told of {whom:?}"),
        Seen::Locator { slot, up } => {
            format!("locator at {slot} {}", if *up { "listens" } else { "is gone" })
        }
        Seen::Disturbed { .. } | Seen::Rough(_) => String::new(),
        Seen::Multicast { peer, hears } => format!("multicast heard by {}: {hears}", peer.short()),
        Seen::Recovered(lineage, view) => format!("RECOVERED from {view} of {lineage}"),
        Seen::Left => "left".to_owned(),
        Seen::Reads(reads) => format!(
            "its application {}",
            if *reads { "reads" } else { "stops reading" }
        ),
        Seen::Inside(inside) => show_inside(inside),
        Seen::Contract(text) => format!("CONTRACT {text}"),
        Seen::Sent { .. } | Seen::NotSent { .. } | Seen::Tells { .. } => String::new(),
        Seen::Replica(group, deed) => match deed {
            Deed::Reads { op: None, .. } | Deed::Uses { .. } => String::new(),
            Deed::Steps(at, _, step) => {
                let (index, time) = (at.index, at.time.millis);
                format!("g{group} applies {index} at {time} ms: {}", show_step(step))
            }
            Deed::Written {
                outcome: Ok((at, _)),
                op,
            } => format!("g{group} {op} is written at {}", at.index),
            Deed::Reads { op, index, .. } => format!("g{group} {op:?} reads at {index}"),
            other => format!("g{group} {other:?}"),
        },
        Seen::Call(_, CallDeed::Takes(_)) => String::new(),
        Seen::Call(group, deed) => format!("g{group} {deed:?}"),
        Seen::Client(group, deed) => format!("g{group} {deed:?}"),
        Seen::Group(group, heard) => match heard {
            Heard::View(view) => {
                let short = |list: &[antiphon_core::wire::Incarnation]| {
                    list.iter().map(|i| i.short()).collect::<Vec<_>>().join(" ")
                };
                format!(
                    "g{group} view {} (made in {}) [{}] joined [{}] left [{}] crashed [{}] with [{}]",
                    view.id,
                    view.id.node,
                    short(&view.members),
                    short(&view.joined),
                    short(&view.left),
                    short(&view.crashed),
                    short(&view.transitional)
                )
            }
            Heard::Transitional(members) => format!(
                "g{group} transitional [{}]",
                members.iter().map(|i| i.short()).collect::<Vec<_>>().join(" ")
            ),
            Heard::Message(_) | Heard::Told(_) | Heard::TellWritable(_) => String::new(),
            Heard::TellReceipts {
                outcome: TellOutcome::Delivered,
                ..
            } => String::new(),
            Heard::TellReceipts {
                to,
                first,
                count,
                outcome,
            } => format!(
                "of g{group}: {count} for {} from {first}: {outcome:?}",
                to.short()
            ),
            other => format!("g{group} {other:?}"),
        },
    }
}

fn show_step(step: &Step) -> String {
    let what = match &step.what {
        Stepped::Command(from, command, _) => format!("{} of {}", command.op, from.short()),
        Stepped::Members(change) => format!("{} members", change.members.len()),
        Stepped::Timeout => "a deadline".to_owned(),
    };
    let locks = step
        .locks
        .iter()
        .map(|event| format!(", {} {:?} {}", event.name, event.what, event.owner));
    what + &locks.collect::<String>()
}

/// What no application saw.
fn show_inside(inside: &Inside) -> String {
    match inside {
        Inside::Ballot(note) => {
            let round = note.ballot.map_or_else(
                || "no round".to_owned(),
                |ballot| format!("round {} of {}", ballot.round, ballot.proposer.short()),
            );
            let step = match &note.step {
                BallotStep::Accepted => "accepted".to_owned(),
                BallotStep::Decided { dead } if dead.is_empty() => "decided".to_owned(),
                BallotStep::Decided { dead } => format!("decided, {} proven dead,", dead.len()),
                BallotStep::Certified { dead } => format!("got the proof of {}'s death, under", dead.short()),
            };
            let names: Vec<&str> = note.view.members.iter().map(|m| m.name.as_str()).collect();
            format!("{step} {} in {round}: [{}]", note.view.id, names.join(" "))
        }
        Inside::Memory { .. } => String::new(),
        Inside::Withheld { group, sender, seq } => {
            format!("g{group}: holds {}#{seq} and does not deliver it", sender.short())
        }
        Inside::Unheld {
            group,
            sender,
            seq,
            lacks,
        } => format!(
            "g{group} delivers {}#{seq} as safe, which {} LACKS",
            sender.short(),
            lacks.short()
        ),
        Inside::Roll { group, removed, .. } if !removed.is_empty() => {
            let removed: Vec<String> = removed.iter().map(|who| who.short()).collect();
            format!("g{group}: has removed {}", removed.join(" "))
        }
        Inside::Roll { .. } => String::new(),
    }
}

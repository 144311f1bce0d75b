//! Events for people: a line each, or a few of which all but the first begin with `- `.

use std::fmt::{self, Display, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::blocks::{Changed, Failure, Kind, Lost, Reply, Request, Value, Watching, Welcome};
use crate::commands::Asked;
use crate::{Event, Message, NodeView, Part, Payload, Removed, Told, View, ViewName};

impl Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe(self))
    }
}

/// With date and time (UTC); further lines stand under the text, not under the time.
impl Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        under(f, &utc(self.at_ms), &self.event)
    }
}

/// "ann: crashed (ben: its process ended)".
impl Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, cause) = (&self.member.name, &self.cause);
        match self.evidence.as_str() {
            "" => write!(f, "{name}: {cause}"),
            evidence => write!(f, "{name}: {cause} ({evidence})"),
        }
    }
}

/// What was told, with the time of day (UTC) alone.
#[derive(Debug)]
pub struct Today<'a>(pub &'a Told);

impl Display for Today<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        under(f, &time_of_day(self.0.at_ms), &self.0.event)
    }
}

fn under(f: &mut fmt::Formatter<'_>, time: &str, event: &Event) -> fmt::Result {
    let indent = format!("\n{:width$}", "", width = time.len() + 2);
    write!(f, "{time}  {}", event.to_string().replace('\n', &indent))
}

fn describe(event: &Event) -> String {
    match event {
        Event::Ready {
            name,
            addr,
            further,
            incarnation,
        } => {
            let addrs: Vec<&str> = [addr].into_iter().chain(further).map(String::as_str).collect();
            let addrs = addrs.join(", ");
            format!("{name} listens at {addrs} (incarnation {})", short(incarnation))
        }
        Event::Serving {
            addrs,
            socket,
            commands,
        } => {
            let at: Vec<&str> = addrs.iter().chain(socket).map(String::as_str).collect();
            let peers = commands.as_ref().map(|at| format!("; commands of peers at {at}"));
            format!(
                "programs are served at {}{}",
                at.join(", "),
                peers.unwrap_or_default()
            )
        }
        Event::Took { lines } => format!("{lines} lines were taken"),
        Event::Multicast { peer, hears: true } => format!("{peer} hears this node's multicast"),
        Event::Multicast { peer, hears: false } => {
            format!("{peer} does NOT hear this node's multicast: it is sent to directly")
        }
        Event::Merge { parts } => {
            let part = |part: &Part| format!("{} of view {}", part.members.join(", "), part.view);
            let parts: Vec<String> = parts.iter().map(part).collect();
            format!("MERGE: {}", parts.join(" | "))
        }
        Event::Starved { missed_ms, within_ms } => format!(
            "THIS NODE did not run for {missed_ms} ms of the last {within_ms}: it was stopped, or its host is too busy; others may remove it for that"
        ),
        Event::Lease { held: true } => "a majority answers this node: groups deliver".to_owned(),
        Event::Lease { held: false } => {
            "NO MAJORITY ANSWERS this node: the others may go on without it, and groups deliver nothing until one does".to_owned()
        }
        Event::Path {
            peer,
            through: Some(via),
            hears,
            heard,
        } => {
            let how = match (hears, heard) {
                (true, _) => "this node hears it, and is not heard",
                (_, true) => "it hears this node, and is not heard",
                _ => "neither hears the other",
            };
            format!("NO DIRECT PATH to {peer} ({how}): what is sent to it goes through {via}")
        }
        Event::Path {
            peer, through: None, ..
        } => format!("{peer} is sent to directly again"),
        Event::Link {
            peer,
            number,
            cause,
            links,
            in_use,
        } => {
            let addr = |number: usize| links.get(number).map_or("?", |link| link.addr.as_str());
            let (link, used) = (addr(*number), addr(*in_use));
            match cause.as_str() {
                "works" => format!("link {number} to {peer}, {link}, works; in use: {used}"),
                "last heard" => format!("no link to {peer} works; in use: {used}, which did last"),
                cause => format!("LINK {number} to {peer}, {link}, has failed ({cause}); in use: {used}"),
            }
        }
        Event::Incarnation { incarnation } => {
            format!("goes by incarnation {}", short(incarnation))
        }
        Event::FoundedAlone { reason } => {
            format!(
                "founds a new cluster, ALONE, since {reason}; a cluster that runs elsewhere is another one"
            )
        }
        Event::Discovery {
            source,
            found,
            problem,
        } => finds(source, found, problem.as_deref()),
        Event::Forming {
            missing,
            present,
            needed,
            reason,
        } => {
            let mut text = match (present, needed) {
                (Some(present), Some(needed)) if present < needed => {
                    format!("forming: {present} of {needed} nodes are here that it takes to found a cluster")
                }
                (Some(_), _) => "forming: enough nodes are here to found a cluster".to_owned(),
                (None, _) => "forming: looking for a cluster to join; this node founds none".to_owned(),
            };
            if !missing.is_empty() {
                let _ = write!(text, "; no answer yet from {}", missing.join(", "));
            }
            if let Some(reason) = reason {
                let _ = write!(text, "\n- {reason}");
            }
            text
        }
        Event::NodeView(NodeView {
            id,
            number: _,
            primary: _,
            members,
            size,
            joined,
            left,
            crashed,
        }) => {
            let members = match size {
                Some(size) => format!("{size} members"),
                None => seniority(&members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>()),
            };
            let mut text = match id {
                ViewName::Primary(number) => format!("cluster view {number}: {members}"),
                ViewName::NonPrimary(id) => format!(
                    "NO MAJORITY here: view {id}: {members}; sending is refused until the majority is reachable again"
                ),
            };
            let left: Vec<String> = left.iter().map(|member| member.name.clone()).collect();
            differences(&mut text, joined, &left, &[]);
            for removed in crashed {
                // Writing to a string cannot fail.
                let _ = write!(text, "\n- {removed}");
            }
            text
        }
        Event::View(View {
            group,
            id,
            members,
            joined,
            left,
            crashed,
            causes,
            synced,
            ..
        }) => {
            let names: Vec<&str> = members.iter().map(String::as_str).collect();
            let mut text = format!("group {group} view {id}: {}", names.join(", "));
            differences(&mut text, joined, left, crashed);
            if let Some(synced) = synced {
                // Writing to a string cannot fail.
                let _ = write!(text, "; synced: {}", synced.join(", "));
            }
            for (name, cause) in causes {
                // Writing to a string cannot fail.
                let _ = write!(text, "\n- {name}: {cause}");
            }
            text
        }
        Event::Transitional { group, members } => {
            format!(
                "group {group}: what follows until its next view is completed among {}",
                members.join(", ")
            )
        }
        Event::Message(message) => said(message, ""),
        Event::Bundle(bundle) => format!(
            "group {}: {} says {} messages at once, {} bytes",
            bundle.group,
            bundle.sender,
            bundle.payloads.len(),
            bundle.payloads.bytes()
        ),
        Event::Told(message) => said(message, " to this node alone"),
        Event::Progress {
            group,
            ticket,
            bytes,
            length,
        } => format!(
            "group {group}: send {ticket} is at {} of 100 % with all others",
            bytes * 100 / length.max(&1)
        ),
        Event::Suspended { group } => {
            format!(
                "group {group}: suspended, nothing is delivered and nothing can be sent until there is a majority"
            )
        }
        Event::Resync { group, cause } => {
            format!("group {group}: starts over, what this node held of it is void ({cause})")
        }
        Event::Receipt {
            group,
            ticket,
            outcome,
        } => {
            format!(
                "group {group}: message {ticket} of this node, sent before the break: {}",
                outcome.replace('_', " ")
            )
        }
        Event::TellReceipt {
            group,
            to,
            ticket,
            outcome,
            cause,
        } => {
            format!(
                "group {group}: what this node told {to} (tell {ticket}): {} ({cause})",
                outcome.replace('_', " ")
            )
        }
        Event::Reply(reply) => replied(reply),
        Event::Lost(Lost {
            what, name, cause, ..
        }) => {
            let what = match what {
                Kind::Lock => "the lock",
                Kind::Lead => "the leadership of",
                Kind::Watch => "the watch of map",
                Kind::Group => "the membership of group",
            };
            format!("LOST {what} {name}: {cause}")
        }
        Event::Watching(Watching { map, entries, .. }) => {
            format!("map {map} is watched, with {entries} entries that follow")
        }
        Event::Changed(Changed {
            map,
            key,
            value,
            gone,
            ..
        }) => match (value, gone) {
            (Some(value), _) => format!("map {map}: {key} is {}", shown(value)),
            (None, gone) => format!("map {map}: {key} is {}", gone.as_deref().unwrap_or("gone")),
        },
        Event::Request(Request {
            group,
            request,
            verb,
            from,
            payload,
            within_ms,
        }) => format!(
            "request {request} of {from} in {group}: {verb} {} (waits {})",
            shown(payload),
            ago(*within_ms)
        ),
        Event::Command(Asked {
            request,
            verb,
            from,
            args,
            within_ms,
        }) => {
            let args: Vec<String> = args.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            format!(
                "command {request} of {from}: {verb}{} (waits {})",
                args.concat(),
                ago(*within_ms)
            )
        }
        Event::Cancelled { request } => format!("request {request} is cancelled: nobody waits for its answer"),
        Event::Expelled { cause } => {
            format!("EXPELLED, though alive: {cause}; joining again as a fresh incarnation")
        }
        Event::Refused {
            group: None,
            reason,
            fatal: true,
            ..
        } => format!("REFUSED by the cluster: {reason}"),
        Event::Refused {
            group: None,
            reason,
            fatal: false,
            ..
        } => {
            format!("refused by the cluster: {reason}; trying again")
        }
        Event::Refused {
            reason,
            request: Some(_),
            ..
        } => format!("not sent: {reason}"),
        Event::Refused {
            group: Some(group),
            reason,
            ..
        } => format!("REFUSED by group {group}: {reason}"),
        Event::GroupLeft { group } => format!("left group {group}"),
        Event::Suspected(suspicion) => format!(
            "{} suspects {}: {}",
            suspicion.accuser, suspicion.accused, suspicion.evidence
        ),
        Event::Cleared { accuser, accused } => format!("{accuser} no longer suspects {accused}"),
        Event::Overrun => "the reader was too slow: the stream of events ends here".to_owned(),
        Event::Left => "left in order".to_owned(),
        Event::Why { node, facts } => format!("why {node}:\n{}", facts.join("\n")),
        Event::Error { reason, .. } => format!("not done: {reason}"),
        Event::Unknown => "something that this build has no words for".to_owned(),
    }
}

/// "reply to lock (1): token 5".
fn replied(reply: &Reply) -> String {
    let Reply {
        op,
        id,
        token,
        value,
        version,
        first,
        replies,
        failures,
        welcome,
        commands,
        view,
        group_view,
        error,
    } = reply;
    let id = id.as_ref().map_or(String::new(), |id| format!(" ({id})"));
    let mut said: Vec<String> = Vec::new();
    said.extend(error.as_ref().map(|error| format!("NOT DONE, {}", failed(error))));
    said.extend(token.map(|token| format!("token {token}")));
    said.extend(value.as_ref().map(|value| match value {
        Value::Nothing => "nothing".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Bytes(payload) => shown(payload),
    }));
    said.extend(version.map(|version| format!("version {version}")));
    said.extend(first.map(|first| format!("ids from {first}")));
    said.extend(welcome.as_ref().map(|welcome| {
        let Welcome {
            client,
            node,
            cluster,
            ..
        } = &**welcome;
        format!("this is {node}/{client} in cluster {cluster}")
    }));
    said.extend(commands.as_ref().map(ToString::to_string));
    said.extend(
        view.as_ref()
            .map(|view| format!("members {}", view.names().join(", "))),
    );
    said.extend(group_view.as_ref().map(|view| {
        let synced = view.synced.as_ref().map(|synced| synced.join(", "));
        let synced = synced.map_or(String::new(), |synced| format!(", synced {synced}"));
        format!("members {}{synced}", view.members.join(", "))
    }));
    if said.is_empty() && replies.is_none() {
        said.push("done".to_owned());
    }
    if replies.is_some() {
        said.push(format!("{} answers", replies.iter().flatten().count()));
    }
    let mut text = format!("reply to {op}{id}: {}", said.join(", "));
    for (name, payload) in replies.iter().flatten() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- {name}: {}", shown(payload));
    }
    for (name, failure) in failures {
        let _ = write!(text, "\n- {name}: NO ANSWER, {}", failed(failure));
    }
    text
}

fn failed(failure: &Failure) -> String {
    match &failure.payload {
        Some(payload) => format!("{}: {}", failure.reason, shown(payload)),
        None => failure.reason.clone(),
    }
}

/// A payload within a line.
fn shown(payload: &Payload) -> String {
    match payload {
        Payload::Text(text) => text.clone(),
        Payload::Binary { base64 } => format!("(bytes in base64) {base64}"),
        Payload::File { file, bytes } => format!("{} bytes in {file}", bytes.unwrap_or(0)),
        Payload::Behind { bytes, .. } => format!("{bytes} bytes"),
    }
}

/// "ann (elder), ben, cleo".
fn said(message: &Message, to: &str) -> String {
    let Message { group, sender, .. } = message;
    format!("[{group}] {sender}{to}: {}", shown(&message.payload))
}

fn seniority(names: &[&str]) -> String {
    match names {
        [] => "nobody".to_owned(),
        [elder] => format!("{elder} (elder), alone"),
        [elder, others @ ..] => format!("{elder} (elder), {}", others.join(", ")),
    }
}

fn differences(text: &mut String, joined: &[String], left: &[String], crashed: &[String]) {
    for (what, names) in [("joined", joined), ("left", left), ("crashed", crashed)] {
        if !names.is_empty() {
            let _ = write!(text, "; {what}: {}", names.join(", "));
        }
    }
}

fn short(incarnation: &str) -> &str {
    incarnation.get(..8).unwrap_or(incarnation)
}

/// What a source of addresses has found.
fn finds(source: &str, found: &[String], problem: Option<&str>) -> String {
    // One that is written out leads to itself, whether it is there or not.
    if let ([found], None) = (found, problem)
        && source.strip_prefix("locator ") == Some(found)
    {
        return format!("asks the locator at {found}");
    }
    let found = match found {
        [] => "nobody".to_owned(),
        found => found.join(", "),
    };
    match problem {
        None => format!("{source} finds {found}"),
        Some(problem) => format!("{source}: {problem}\n- in use: {found}"),
    }
}

/// Milliseconds since 1970 by the host's clock.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// "20:15:07.123", UTC.
pub fn time_of_day(at_ms: u64) -> String {
    let ms = at_ms % 86_400_000;
    format!(
        "{:02}:{:02}:{:02}.{:03}",
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1000 % 60,
        ms % 1000
    )
}

/// "2026-03-01 20:15:07.123".
pub fn utc(at_ms: u64) -> String {
    let (year, month, day) = date(at_ms / 86_400_000);
    format!("{year:04}-{month:02}-{day:02} {}", time_of_day(at_ms))
}

/// The Gregorian date so many days after 1970-01-01: counted in eras of 400 years that begin on March 1.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

/// How long ago something was, or for how long it has been so: `996 ms`, `20 s`, `15 min`, `72 h`.
pub fn ago(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..600_000 => format!("{} s", ms / 1000),
        600_000..36_000_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_399_999, "2000-02-28 23:59:59.999"),
            (951_782_400_000, "2000-02-29 00:00:00.000"),
            (1_709_251_199_000, "2024-02-29 23:59:59.000"),
            (1_709_251_200_001, "2024-03-01 00:00:00.001"),
            (4_107_542_400_000, "2100-03-01 00:00:00.000"),
        ] {
            assert_eq!(utc(ms), expected);
        }
    }
}

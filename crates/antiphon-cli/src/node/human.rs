//! Lines for people: the same events as the JSON lines, one readable line each, with the time of day (UTC).

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use antiphon::NodeView;

use crate::judge;
use crate::lines::{Line, PartLine, Payload, ViewName};

/// As wide as the time and what follows it.
const INDENT: &str = "              ";

/// A line for people, with the time.
pub(crate) fn render(line: &Line, now: SystemTime) -> String {
    let time = time_of_day(now);
    let text = describe(line);
    // Continuation lines stand under the text, not under the time.
    format!("{time}  {}", text.replace('\n', &format!("\n{INDENT}")))
}

/// A view with everything it says of its members, by seniority.
pub(crate) fn members(view: &NodeView) -> String {
    let kind = if view.is_primary() {
        ""
    } else {
        ", without a majority"
    };
    let mut text = format!("{INDENT}cluster view {}{kind}:", view.number);
    for (rank, member) in view.members.iter().enumerate() {
        let metadata: String = member
            .metadata
            .iter()
            .map(|(key, value)| format!("  {key}={value}"))
            .collect();
        let weight = if member.weight == 1 {
            String::new()
        } else {
            format!("  weight {}", member.weight)
        };
        let elder = if rank == 0 { "  elder" } else { "" };
        let incarnation = member.incarnation.short();
        let addrs = std::iter::once(&member.addr)
            .chain(&member.further)
            .map(ToString::to_string);
        let addrs: Vec<String> = addrs.collect();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{INDENT}  {:<12}  {}  {incarnation}{elder}{weight}{metadata}",
            member.name,
            addrs.join(", ")
        );
    }
    text
}

/// What a source of addresses has found.
pub(crate) fn finds(source: &str, found: &[String], problem: Option<&str>) -> String {
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

fn describe(line: &Line) -> String {
    match line {
        Line::Ready {
            name,
            addr,
            further,
            incarnation,
        } => {
            let addrs: Vec<&str> = [addr].into_iter().chain(further).map(String::as_str).collect();
            let addrs = addrs.join(", ");
            format!("{name} listens at {addrs} (incarnation {})", short(incarnation))
        }
        Line::Multicast { peer, hears: true } => format!("{peer} hears this node's multicast"),
        Line::Multicast { peer, hears: false } => {
            format!("{peer} does NOT hear this node's multicast: it is sent to directly")
        }
        Line::Merge { parts } => {
            let part = |part: &PartLine| format!("{} of view {}", part.members.join(", "), part.view);
            let parts: Vec<String> = parts.iter().map(part).collect();
            format!("MERGE: {}", parts.join(" | "))
        }
        Line::Starved { missed_ms, within_ms } => format!(
            "THIS NODE did not run for {missed_ms} ms of the last {within_ms}: it was stopped, or its host is too busy; others may remove it for that"
        ),
        Line::Lease { held: true } => "a majority answers this node: groups deliver".to_owned(),
        Line::Lease { held: false } => {
            "NO MAJORITY ANSWERS this node: the others may go on without it, and groups deliver nothing until one does".to_owned()
        }
        Line::Path {
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
        Line::Path {
            peer, through: None, ..
        } => format!("{peer} is sent to directly again"),
        Line::Link {
            peer,
            number,
            cause,
            links,
            in_use,
        } => {
            let (link, used) = (&links[*number].addr, &links[*in_use].addr);
            match cause.as_str() {
                "works" => format!("link {number} to {peer}, {link}, works; in use: {used}"),
                "last heard" => format!("no link to {peer} works; in use: {used}, which did last"),
                cause => format!("LINK {number} to {peer}, {link}, has failed ({cause}); in use: {used}"),
            }
        }
        Line::Incarnation { incarnation } => {
            format!("going on as a fresh incarnation, {}", short(incarnation))
        }
        Line::FoundedAlone { reason } => {
            format!(
                "founds a new cluster, ALONE, since {reason}; a cluster that runs elsewhere is another one"
            )
        }
        Line::Discovery {
            source,
            found,
            problem,
        } => finds(source, found, problem.as_deref()),
        Line::Forming {
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
        Line::NodeView {
            id,
            number: _,
            primary,
            members,
            joined,
            left,
            crashed,
        } => {
            let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            let mut text = match (id, primary) {
                (ViewName::Primary(number), _) => format!("cluster view {number}: {}", seniority(&names)),
                (ViewName::NonPrimary(id), _) => format!(
                    "NO MAJORITY here: view {id}: {}; sending is refused until the majority is reachable again",
                    seniority(&names)
                ),
            };
            differences(&mut text, joined, left, &[]);
            for crash in crashed {
                // Writing to a string cannot fail.
                let _ = write!(text, "\n- {}", judge::shown(crash));
            }
            text
        }
        Line::View {
            group,
            id,
            members,
            joined,
            left,
            crashed,
            causes,
            ..
        } => {
            let names: Vec<&str> = members.iter().map(String::as_str).collect();
            let mut text = format!("group {group} view {id}: {}", names.join(", "));
            differences(&mut text, joined, left, crashed);
            for (name, cause) in causes {
                // Writing to a string cannot fail.
                let _ = write!(text, "\n- {name}: {cause}");
            }
            text
        }
        Line::Transitional { group, members } => {
            format!(
                "group {group}: what follows until its next view is completed among {}",
                members.join(", ")
            )
        }
        Line::Message {
            group,
            sender,
            payload,
            ..
        } => match payload {
            Payload::Text(text) => format!("[{group}] {sender}: {text}"),
            Payload::Binary { base64 } => format!("[{group}] {sender}: (bytes in base64) {base64}"),
            Payload::File { file, bytes } => {
                format!("[{group}] {sender}: {} bytes in {file}", bytes.unwrap_or(0))
            }
        },
        Line::Progress {
            group,
            ticket,
            bytes,
            length,
        } => format!(
            "group {group}: send {ticket} is at {} of 100 % with all others",
            bytes * 100 / length.max(&1)
        ),
        Line::Suspended { group } => {
            format!(
                "group {group}: suspended, nothing is delivered and nothing can be sent until there is a majority"
            )
        }
        Line::Resync { group, cause } => {
            format!("group {group}: starts over, what this node held of it is void ({cause})")
        }
        Line::Receipt {
            group,
            ticket,
            outcome,
        } => {
            format!(
                "group {group}: message {ticket} of this node, sent before the break: {}",
                outcome.replace('_', " ")
            )
        }
        Line::Expelled { cause } => {
            format!("EXPELLED, though alive: {cause}; joining again as a fresh incarnation")
        }
        Line::Refused {
            group: None,
            reason,
            fatal: true,
            ..
        } => format!("REFUSED by the cluster: {reason}"),
        Line::Refused {
            group: None,
            reason,
            fatal: false,
            ..
        } => {
            format!("refused by the cluster: {reason}; trying again")
        }
        Line::Refused {
            reason,
            request: Some(_),
            ..
        } => format!("not sent: {reason}"),
        Line::Refused {
            group: Some(group),
            reason,
            ..
        } => format!("REFUSED by group {group}: {reason}"),
        Line::GroupLeft { group } => format!("left group {group}"),
        Line::Left => "left in order".to_owned(),
        Line::Why { node, facts } => format!("why {node}:\n{}", facts.join("\n")),
        Line::Error { reason, .. } => format!("not done: {reason}"),
    }
}

/// "ann (elder), ben, cleo".
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

/// "20:15:07.123", UTC.
pub(super) fn time_of_day(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs() % 86_400;
    format!(
        "{:02}:{:02}:{:02}.{:03}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lines::{CrashLine, MemberLine};

    #[test]
    fn a_crash_is_told_with_time_members_and_evidence() {
        let member = |name: &str| MemberLine {
            name: name.to_owned(),
            incarnation: "0".repeat(32),
            addr: String::new(),
            further: Vec::new(),
            metadata: Default::default(),
        };
        let line = Line::NodeView {
            id: ViewName::Primary(7),
            number: 7,
            primary: true,
            members: vec![member("b"), member("c")],
            joined: vec![],
            left: vec![],
            crashed: vec![CrashLine {
                name: "a".into(),
                cause: "crashed".into(),
                accusers: vec!["b".into()],
                evidence: "b: silent for 1500 ms".into(),
                before_ms: 1,
            }],
        };
        let now = UNIX_EPOCH + Duration::from_millis(86_400_000 * 3 + 3_723_004);
        assert_eq!(
            render(&line, now),
            "01:02:03.004  cluster view 7: b (elder), c\n              - a: crashed (b: silent for 1500 ms)"
        );
    }

    #[test]
    fn a_node_that_is_turned_away_is_told_what_to_check() {
        let line = Line::Forming {
            missing: vec!["127.0.0.1:7".into()],
            present: Some(1),
            needed: Some(2),
            reason: Some("check the key".into()),
        };
        assert_eq!(
            describe(&line),
            "forming: 1 of 2 nodes are here that it takes to found a cluster; no answer yet from 127.0.0.1:7\n- check the key"
        );
    }

    #[test]
    fn how_others_are_found_and_who_founds_alone_is_said_to_people_and_programs() {
        let line = Line::Discovery {
            source: "dns:db:7400".into(),
            found: vec!["10.0.0.1:7400".into()],
            problem: Some("no DNS server answers".into()),
        };
        assert_eq!(
            describe(&line),
            "dns:db:7400: no DNS server answers\n- in use: 10.0.0.1:7400"
        );
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"event":"discovery","source":"dns:db:7400","found":["10.0.0.1:7400"],"problem":"no DNS server answers"}"#
        );
        let one = ["10.0.0.9:7410".to_owned()];
        assert_eq!(
            finds("locator 10.0.0.9:7410", &one, None),
            "asks the locator at 10.0.0.9:7410"
        );
        assert_eq!(
            finds("locator loc:7410", &one, None),
            "locator loc:7410 finds 10.0.0.9:7410"
        );
        let line = Line::FoundedAlone {
            reason: "--found is given".into(),
        };
        assert!(describe(&line).contains("ALONE, since --found is given"));
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"event":"founded_alone","reason":"--found is given"}"#
        );
    }

    #[test]
    fn a_minority_is_told_so_in_plain_words() {
        let line = Line::NodeView {
            id: ViewName::NonPrimary("7-1@00000000".into()),
            number: 7,
            primary: false,
            members: vec![],
            joined: vec![],
            left: vec![],
            crashed: vec![],
        };
        assert!(describe(&line).starts_with("NO MAJORITY here"));
    }
}

//! Answers for people.

use std::fmt::Write as _;

use antiphon_api::ago;
use antiphon_api::console::{
    Forming, Member, Members, REFUSAL_LASTS_MS, Recovered, Recovery, RefusedNode, Suspicion, Why,
};
use antiphon_net::tcp::{GIVE_THE_NODES_PORT, IS_AN_AGENTS_PORT};

/// The members of a cluster, as one of them sees them.
pub(super) fn members(members: &Members) -> String {
    let mut text = headline(members);
    for lack in &members.lacks {
        line(&mut text, format!("LACKS what it needs: {lack}"));
    }
    if let Some(looks_for) = &members.forming {
        forming(&mut text, looks_for);
    }
    if !members.members.is_empty() {
        let mut rows =
            vec![["rank", "name", "address", "heard", "round trip", "groups", ""].map(str::to_owned)];
        rows.extend(members.members.iter().map(row));
        table(&mut text, &rows);
    }
    if !members.absent.is_empty() {
        line(
            &mut text,
            format!("not in this component: {}", members.absent.join(", ")),
        );
    }
    for waiting in &members.joining {
        let ready = match waiting.ready_ms {
            Some(_) => "is ready",
            None => "does NOT answer: it has gone, or what is sent to its address does not arrive",
        };
        line(
            &mut text,
            format!(
                "waits to be admitted: {} at {}, {ready}",
                waiting.name, waiting.addr
            ),
        );
    }
    for refused in &members.refused {
        line(&mut text, refusal(refused));
    }
    if !members.members.is_empty() {
        suspicions(&mut text, &members.suspicions);
    }
    for edge in &members.edges {
        line(
            &mut text,
            format!(
                "edge {} - {} is bad for {}, as {} sees it: {}; that alone makes nobody suspected",
                edge.observer,
                edge.subject,
                ago(edge.for_ms),
                edge.observer,
                edge.evidence
            ),
        );
    }
    text
}

fn headline(members: &Members) -> String {
    let Members {
        node, cluster, state, ..
    } = members;
    let Some(view) = members.view else {
        return format!("cluster {cluster}: {node} is {state}, without a view");
    };
    let mut text = format!("cluster {cluster}, view {view}, as {node} sees it ({state})");
    if let Some(coordinator) = &members.coordinator {
        let _ = write!(text, "; {coordinator} admits and removes");
    }
    match (members.quorum, state.as_str()) {
        (Some(false), _) => {
            text.push_str("; those that are heard are NO majority that could change the view")
        }
        (_, "non-primary") => text.push_str("; NO majority here: sending is refused"),
        _ if members.lease == Some(false) => {
            text.push_str("; its lease is over: nothing is delivered here until a majority answers again");
        }
        _ => {}
    }
    if members.recoveries > 0 {
        let _ = write!(
            text,
            "; recovered by hand from one survivor ({}x): what others had was given up",
            members.recoveries
        );
    }
    text
}

/// What a recovery would mean, before the operator says yes.
pub(super) fn recovery(recovery: &Recovery) -> String {
    let Recovery {
        node, cluster, view, ..
    } = recovery;
    let mut text = format!(
        "UNSAFE: {node} would go on alone, without the majority of cluster {cluster}\n\nwhat {node} has is as of view {} ({view}); it has had no majority for {}",
        recovery.number,
        ago(recovery.lost_ms)
    );
    for other in &recovery.others {
        let state = match (other.here, other.dead) {
            (true, _) => "is heard, and will join as a new member".to_owned(),
            (_, true) => "its process has ended (proven)".to_owned(),
            _ => format!("last heard {} ago, NOT proven dead", ago(other.heard_ms)),
        };
        line(
            &mut text,
            format!("left behind: {} at {}: {state}", other.name, other.addr),
        );
    }
    text.push('\n');
    for warning in &recovery.warnings {
        line(&mut text, format!("! {warning}"));
    }
    text
}

/// It is done.
pub(super) fn recovered(recovered: &Recovered) -> String {
    format!(
        "{} goes on alone, as view {} ({}) of a new lineage; nodes that are started, and survivors that hear of it, join it",
        recovered.node, recovered.number, recovered.view
    )
}

fn forming(text: &mut String, forming: &Forming) {
    if let Some(refused) = &forming.refused {
        let told = match refused.ago_ms {
            ..=REFUSAL_LASTS_MS => format!("is refused: {}", refused.reason),
            past => format!("was refused {} ago, and not since: {}", ago(past), refused.reason),
        };
        line(text, told);
    }
    if !forming.missing.is_empty() {
        line(text, format!("no answer from {}", forming.missing.join(", ")));
    }
    if !forming.agents.is_empty() {
        let agents = forming.agents.join(", ");
        line(
            text,
            format!("{agents} {IS_AN_AGENTS_PORT}: {GIVE_THE_NODES_PORT}"),
        );
    }
    let is_node = |addr: &&String| !forming.agents.contains(addr);
    let rejecting: Vec<String> = forming.rejecting.iter().filter(is_node).cloned().collect();
    if !rejecting.is_empty() {
        line(text, rejected_by(&rejecting));
    }
    for (name, addr) in &forming.candidates {
        line(
            text,
            format!("{name} at {addr} has answered and has no view either"),
        );
    }
    if let Some(asks) = &forming.asks {
        line(text, format!("asks {asks} to be admitted"));
    }
    if forming.remnant {
        line(
            text,
            "members without a majority have answered, and get time to find it again".to_owned(),
        );
    }
    if !forming.founder {
        line(
            text,
            "is not among the seeds, so it founds nothing and only joins".to_owned(),
        );
    }
    line(
        text,
        "`antiphon doctor` with this node's settings looks at each step".to_owned(),
    );
}

fn rejected_by(rejecting: &[String]) -> String {
    format!(
        "{} closed each connection after this node's first frame: check key and cluster name, here and there",
        rejecting.join(", ")
    )
}

fn row(member: &Member) -> [String; 7] {
    let mut remarks = Vec::new();
    if member.elder {
        remarks.push("elder".to_owned());
    }
    if member.me {
        remarks.push("asked".to_owned());
    }
    if member.weight != 1 {
        remarks.push(format!("weight {}", member.weight));
    }
    let down = member.links.iter().filter(|link| link.up == Some(false));
    remarks.extend(down.map(|link| format!("link {} DOWN", link.addr)));
    if member.heard_by_probes {
        remarks.push("heard by probes alone".to_owned());
    }
    remarks.extend(relayed(member));
    if let Some(ms) = member.trouble_ms {
        remarks.push(format!("connection trouble for {ms} ms"));
    }
    if member.lifeline == Some(false) && !member.dead {
        remarks.push("NO lifeline: its death could not be proven here".to_owned());
    }
    if member.dead {
        remarks.push("its process has ENDED".to_owned());
    }
    if !member.suspected_by.is_empty() {
        remarks.push(format!("SUSPECTED by {}", member.suspected_by.join(", ")));
    }
    if let Some(said) = &member.said {
        if said.leaving {
            remarks.push("leaving".to_owned());
        }
        if !said.primary {
            remarks.push("says it has NO majority".to_owned());
        }
    }
    remarks.extend(
        member
            .metadata
            .iter()
            .map(|(key, value)| format!("{key}={value}")),
    );
    let used = member
        .links
        .iter()
        .find(|link| link.in_use)
        .or(member.links.first());
    let further = member.links.len().saturating_sub(1);
    let more = match further {
        0 => String::new(),
        more => format!(" (+{more})"),
    };
    [
        member.rank.to_string(),
        member.name.clone(),
        format!("{}{more}", used.map_or("?", |link| &link.addr)),
        member
            .last_heard_ms
            .map_or("-".to_owned(), |ms| format!("{ms} ms")),
        member.rtt_us.map_or("-".to_owned(), |us| {
            format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
        }),
        member.groups.join(","),
        remarks.join(", "),
    ]
}

/// The member that passes on frames that find no direct way.
fn relayed(member: &Member) -> Option<String> {
    Some(match (&member.through, &member.heard_through) {
        (Some(to), Some(from)) if to == from => format!("NO DIRECT PATH: through {to}"),
        (Some(to), Some(from)) => format!("NO DIRECT PATH: sent to through {to}, heard through {from}"),
        (Some(to), None) => format!("NO DIRECT PATH to it: sent to through {to}"),
        (None, Some(from)) => format!("heard through {from}"),
        (None, None) => return None,
    })
}

fn refusal(refused: &RefusedNode) -> String {
    let often = match refused.times {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    format!(
        "refused {} ago{often}: {} at {}: {}",
        ago(refused.ago_ms),
        refused.name,
        refused.addr,
        refused.reason
    )
}

/// The suspicions: which member suspects which.
fn suspicions(text: &mut String, suspicions: &[Suspicion]) {
    if suspicions.is_empty() {
        return line(text, "nobody suspects anybody".to_owned());
    }
    for suspicion in suspicions {
        line(
            text,
            format!(
                "{} suspects {} for {}: {}",
                suspicion.accuser,
                suspicion.accused,
                ago(suspicion.for_ms),
                suspicion.evidence
            ),
        );
    }
}

/// Why a node is, or is not, a member.
pub(super) fn why(why: &Why) -> String {
    let mut text = why.text.clone();
    for fact in &why.facts {
        line(&mut text, fact.text.clone());
    }
    if !why.facts.is_empty() {
        line(&mut text, format!("(as {} knows it)", why.asked));
    }
    text
}

fn line(text: &mut String, line: String) {
    let _ = write!(text, "\n  {line}");
}

/// Columns as wide as their widest cell; numbers as they are, without a trailing blank.
fn table(text: &mut String, rows: &[[String; 7]]) {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..7).map(width).collect();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        line(text, cells.join("  ").trim_end().to_owned());
    }
}

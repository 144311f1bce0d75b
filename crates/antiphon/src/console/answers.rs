//! From what a node knows to what people are told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use antiphon_core::inspection::{Inspection, Looking, MemberSeen, Seated, State};
use antiphon_core::{Alone, LinkCause, WhyEntry, WhyReport};

use super::Facts;
use super::names::{Names, evidence};
use super::protocol::{
    Accuser, Departed, Fact, Forming, Happened, Happening, Link, Member, Members, Refusal, RefusedNode, Said,
    Status, Suspicion, Waiting, Why,
};
use crate::cluster::{Examined, Noted};
use crate::{Accusation, ClusterEvent, Departure, Incarnation, NodeView, NodeViewId, Phase};

/// What the nodes of the last views are called.
pub(super) fn names(history: &[Noted]) -> Names {
    let mut names = Names::default();
    for noted in history {
        if let ClusterEvent::View(view) = &noted.event {
            names.learn(view);
        }
    }
    names
}

pub(super) fn status(examined: &Examined, facts: &Facts) -> Status {
    let Examined {
        status, inspection, ..
    } = examined;
    let view = status.view.as_deref();
    let groups = status.groups.iter().map(|group| {
        let members = group.view.as_ref().map(|view| view.members.len());
        (group.name.clone(), members)
    });
    let seated = seated(inspection);
    let silent = seated.map_or_else(Vec::new, |seated| {
        let doubted = seated
            .doubts
            .iter()
            .filter(|doubt| doubt.accuser == inspection.incarnation);
        let mut names = Names::default();
        view.into_iter().for_each(|view| names.learn(view));
        doubted.map(|doubt| names.name(doubt.accused)).collect()
    });
    Status {
        node: status.name.clone(),
        cluster: status.cluster.clone(),
        state: state(status.phase).to_owned(),
        incarnation: status.incarnation.to_string(),
        uptime_ms: millis(status.uptime),
        seeds: facts.seeds.clone(),
        keyed: facts.keyed,
        profile: facts.profile.clone(),
        view: view.map(|view| view.number),
        members: view.map_or(0, |view| view.members.len()),
        groups: groups.collect(),
        forming: looking(inspection).map(forming),
        quorum: seated.map(|seated| seated.quorum),
        silent,
        refused: looking(inspection)
            .and_then(|looking| looking.refused.as_ref())
            .map(|(reason, ago)| Refusal {
                reason: reason.clone(),
                ago_ms: millis(*ago),
            }),
        connections_refused: status.transport.connections_refused,
    }
}

pub(super) fn members(examined: &Examined, names: &Names) -> Members {
    let Examined {
        status, inspection, ..
    } = examined;
    let view = status.view.as_deref();
    let seated = seated(inspection);
    let seen = |incarnation: Incarnation| {
        let mut members = seated.into_iter().flat_map(|seated| &seated.members);
        members.find(|member| member.incarnation == incarnation)
    };
    let present = |incarnation: Incarnation| view.is_some_and(|view| view.contains(incarnation));
    let told = view.into_iter().flat_map(|view| view.members.iter().enumerate());
    let absent = seated.into_iter().flat_map(|seated| &seated.members);
    Members {
        node: status.name.clone(),
        cluster: status.cluster.clone(),
        state: state(status.phase).to_owned(),
        view: view.map(|view| view.number),
        id: view.map(|view| view.id.to_string()),
        wire_level: view.map(|view| view.wire_level),
        coordinator: seated.map(|seated| names.name(seated.coordinator)),
        quorum: seated.map(|seated| seated.quorum),
        members: told
            .map(|(rank, known)| member(examined, names, rank, known, seen(known.incarnation)))
            .collect(),
        absent: absent
            .filter(|member| !present(member.incarnation))
            .map(|member| names.name(member.incarnation))
            .collect(),
        joining: seated
            .into_iter()
            .flat_map(|seated| &seated.joining)
            .map(|joining| Waiting {
                name: joining.name.clone(),
                addr: joining.addr.to_string(),
                asked_ms: millis(joining.asked),
                ready_ms: joining.ready.map(millis),
            })
            .collect(),
        refused: refused(inspection),
        suspicions: suspicions(inspection, names),
        forming: looking(inspection).map(forming),
    }
}

fn member(
    examined: &Examined,
    names: &Names,
    rank: usize,
    known: &crate::Member,
    seen: Option<&MemberSeen>,
) -> Member {
    let Examined {
        status,
        inspection,
        paths,
    } = examined;
    let links = status.links.iter().find(|links| links.peer == known.incarnation);
    let links: Vec<Link> = match links {
        Some(several) => {
            let link = |(number, link): (usize, &crate::LinkStatus)| Link {
                addr: link.addr.to_string(),
                up: Some(link.up),
                in_use: number == several.in_use,
            };
            several.links.iter().enumerate().map(link).collect()
        }
        None => {
            let addrs = std::iter::once(&known.addr).chain(&known.further).enumerate();
            addrs
                .map(|(number, addr)| Link {
                    addr: addr.to_string(),
                    up: None,
                    in_use: number == 0,
                })
                .collect()
        }
    };
    let used = links
        .iter()
        .find(|link| link.in_use)
        .map(|link| link.addr.clone());
    let path = paths
        .iter()
        .find(|path| used.as_deref() == Some(&*path.to.to_string()));
    let suspected_by = seated(inspection).map_or_else(Vec::new, |seated| {
        let against = seated
            .doubts
            .iter()
            .filter(|doubt| doubt.accused == known.incarnation);
        against.map(|doubt| names.name(doubt.accuser)).collect()
    });
    let shares = |group: &&crate::GroupStatus| {
        let mut members = group.view.iter().flat_map(|view| &view.members);
        members.any(|member| member.incarnation == known.incarnation)
    };
    Member {
        rank,
        name: known.name.clone(),
        elder: rank == 0,
        me: known.incarnation == inspection.incarnation,
        incarnation: known.incarnation.to_string(),
        links,
        metadata: known.metadata.clone(),
        weight: known.weight,
        last_heard_ms: seen.and_then(|seen| seen.last_heard).map(millis),
        rtt_us: path
            .and_then(|path| path.rtt)
            .map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
        trouble_ms: seen.and_then(|seen| seen.trouble).map(millis),
        dead: seen.is_some_and(|seen| seen.dead),
        suspected_by,
        groups: status
            .groups
            .iter()
            .filter(shares)
            .map(|group| group.name.clone())
            .collect(),
        said: seen.and_then(|seen| seen.said.as_ref()).map(|said| Said {
            view: said.view.to_string(),
            primary: said.primary,
            leaving: said.leaving,
            wire_level: said.wire_level,
        }),
    }
}

pub(super) fn why(report: &WhyReport, examined: &Examined, history: &[Noted]) -> Why {
    let names = names(history);
    let mut facts: Vec<Fact> = report
        .entries
        .iter()
        .filter_map(|entry| fact(&names, entry))
        .collect();
    facts.extend(left_behind(report, examined));
    let node = &report.name;
    let (verdict, text) = verdict(report, examined, &names);
    if verdict == "unknown" {
        facts.extend(whom_it_misses(examined));
    }
    Why {
        asked: examined.status.name.clone(),
        node: node.clone(),
        verdict: verdict.to_owned(),
        text,
        facts,
    }
}

/// What it comes to, by the latest that is known.
fn verdict(report: &WhyReport, examined: &Examined, names: &Names) -> (&'static str, String) {
    let node = &report.name;
    let entries = || report.entries.iter().rev();
    if let Some(WhyEntry::Member { accusers, .. }) =
        entries().find(|entry| matches!(entry, WhyEntry::Member { .. }))
    {
        let has_majority = examined.status.phase == Phase::Primary;
        let here = examined.status.view.as_deref();
        let component = here.is_some_and(|view| view.members.iter().any(|member| member.name == *node));
        return match (accusers.as_slice(), has_majority) {
            (_, false) if !component => (
                "suspected",
                format!(
                    "{node} was a member of the last view with a majority, and this component, without one, does not hear it"
                ),
            ),
            ([], true) => ("member", format!("{node} is a member, and nobody suspects it")),
            ([], false) => (
                "member",
                format!(
                    "{node} is a member of this component, which has no majority of the last primary view"
                ),
            ),
            (accusers, _) => (
                "suspected",
                format!(
                    "{node} is a member, and is suspected ({})",
                    names.accusations(accusers)
                ),
            ),
        };
    }
    if let Some(WhyEntry::Joining { ready_ms, .. }) =
        entries().find(|entry| matches!(entry, WhyEntry::Joining { .. }))
    {
        let why = match ready_ms {
            Some(_) => "it is admitted with the next view",
            None => {
                "it asks to be admitted but does not answer: what this node sends to its address does not arrive"
            }
        };
        return ("waiting", format!("{node} is no member yet; {why}"));
    }
    let departed = entries().find_map(|entry| match entry {
        WhyEntry::Departed {
            cause,
            accusers,
            ago_ms,
            ..
        } => Some((cause, accusers, *ago_ms)),
        _ => None,
    });
    let refused = entries().find_map(|entry| match entry {
        WhyEntry::Refused { reason, ago_ms, .. } => Some((reason, *ago_ms)),
        _ => None,
    });
    match (departed, refused) {
        (Some((.., gone)), Some((reason, ago))) if ago <= gone => (
            "refused",
            format!("{node} is no member; it asks to be admitted and is refused: {reason}"),
        ),
        (None, Some((reason, _))) => (
            "refused",
            format!("{node} is no member; it asks to be admitted and is refused: {reason}"),
        ),
        (Some((cause, accusers, ago)), _) => {
            let said = match accusers.as_slice() {
                [] => String::new(),
                accusers => format!(" ({})", names.accusations(accusers)),
            };
            let verdict = if cause == "it left" { "left" } else { "removed" };
            (
                verdict,
                format!("{node} is no member since {} ago: {cause}{said}", ago_text(ago)),
            )
        }
        (None, None) => {
            let text = match seated(&examined.inspection).map(|seated| seated.coordinator) {
                Some(coordinator) if coordinator != examined.inspection.incarnation => format!(
                    "no node called {node} was in a view since this node has been in the cluster; whether one asks to be admitted, {} knows, who admits nodes: ask there",
                    names.name(coordinator)
                ),
                Some(_) => format!(
                    "no node called {node} was in a view since this node has been in the cluster, and none has asked to be admitted: it is not started, has another --cluster name or key, or cannot reach this cluster; run `antiphon doctor` with its settings on its host"
                ),
                None => format!("this node is in no cluster yet, so it knows nothing of {node}"),
            };
            ("unknown", text)
        }
    }
}

/// A component without a majority lacks members that no view has removed.
fn left_behind(report: &WhyReport, examined: &Examined) -> Option<Fact> {
    let view = examined.status.view.as_deref()?;
    let seated = seated(&examined.inspection)?;
    let name = &report.name;
    let entry = report.entries.iter().find_map(|entry| match entry {
        WhyEntry::Member { incarnation, .. } => Some(*incarnation),
        _ => None,
    })?;
    let lacks = !view.is_primary() && !view.contains(entry);
    lacks.then(|| Fact {
        kind: "absent".to_owned(),
        ago_ms: None,
        incarnation: Some(entry.to_string()),
        view: Some(view.number),
        cause: None,
        accusers: Vec::new(),
        text: format!(
            "now: not in this component, view {}, which has {} of {} members and no majority; {name} was in the last view that had one",
            view.id,
            view.members.len(),
            seated.members.len()
        ),
    })
}

/// A node that has no cluster says at least whom it waits for.
fn whom_it_misses(examined: &Examined) -> Option<Fact> {
    let looking = looking(&examined.inspection)?;
    let missing: Vec<String> = looking.missing.iter().map(ToString::to_string).collect();
    Some(Fact {
        kind: "unknown".to_owned(),
        ago_ms: None,
        incarnation: None,
        view: None,
        cause: None,
        accusers: Vec::new(),
        text: match missing.as_slice() {
            [] => "now: no cluster yet; all seeds have answered".to_owned(),
            missing => format!("now: no cluster yet; no answer from {}", missing.join(", ")),
        },
    })
}

fn fact(names: &Names, entry: &WhyEntry) -> Option<Fact> {
    let text = sentence(names, entry);
    let mut fact = Fact {
        kind: String::new(),
        ago_ms: None,
        incarnation: None,
        view: None,
        cause: None,
        accusers: Vec::new(),
        text,
    };
    let (kind, incarnation) = match entry {
        WhyEntry::Joined {
            incarnation,
            view,
            ago_ms,
        } => {
            fact.ago_ms = Some(*ago_ms);
            fact.view = number(view);
            ("joined", incarnation)
        }
        WhyEntry::Departed {
            incarnation,
            view,
            cause,
            accusers,
            ago_ms,
        } => {
            fact.ago_ms = Some(*ago_ms);
            fact.view = number(view);
            fact.cause = Some(cause.clone());
            fact.accusers = accused_by(names, accusers);
            ("departed", incarnation)
        }
        WhyEntry::Refused {
            incarnation,
            reason,
            ago_ms,
            ..
        } => {
            fact.ago_ms = Some(*ago_ms);
            fact.cause = Some(reason.clone());
            ("refused", incarnation)
        }
        WhyEntry::Joining {
            incarnation,
            asked_ms,
            ..
        } => {
            fact.ago_ms = Some(*asked_ms);
            ("joining", incarnation)
        }
        WhyEntry::Said { incarnation, .. } => ("said", incarnation),
        WhyEntry::Member {
            incarnation,
            accusers,
            ..
        } => {
            fact.accusers = accused_by(names, accusers);
            let kind = if accusers.is_empty() {
                "member"
            } else {
                "suspected"
            };
            (kind, incarnation)
        }
        _ => return None,
    };
    fact.kind = kind.to_owned();
    fact.incarnation = Some(incarnation.to_string());
    Some(fact)
}

/// An entry of a report in a sentence.
pub(super) fn sentence(names: &Names, entry: &WhyEntry) -> String {
    match entry {
        WhyEntry::Joined {
            incarnation,
            view,
            ago_ms,
        } => {
            format!(
                "{} ago: joined with view {view}, as incarnation {}",
                ago_text(*ago_ms),
                incarnation.short()
            )
        }
        WhyEntry::Departed {
            incarnation,
            view,
            cause,
            accusers,
            ago_ms,
        } => {
            let said = match accusers.as_slice() {
                [] => String::new(),
                accusers => format!(" ({})", names.accusations(accusers)),
            };
            format!(
                "{} ago: gone with view {view}, incarnation {}: {cause}{said}",
                ago_text(*ago_ms),
                incarnation.short()
            )
        }
        WhyEntry::Refused {
            incarnation,
            addr,
            reason,
            fatal,
            times,
            ago_ms,
        } => {
            let often = match times {
                1 => String::new(),
                times => format!(" ({times} times)"),
            };
            let goes_on = if *fatal { "" } else { "; it goes on trying" };
            format!(
                "{} ago: incarnation {} at {addr} asked to be admitted and was refused{often}: {reason}{goes_on}",
                ago_text(*ago_ms),
                incarnation.short()
            )
        }
        WhyEntry::Joining {
            incarnation,
            addr,
            asked_ms,
            ready_ms,
        } => {
            let ready = match ready_ms {
                Some(ready) => format!("said {} ago that it is ready", ago_text(*ready)),
                None => "has not answered whether it is ready: what is sent to that address does not arrive"
                    .to_owned(),
            };
            format!(
                "now: incarnation {} at {addr} waits to be admitted, asked {} ago, {ready}",
                incarnation.short(),
                ago_text(*asked_ms)
            )
        }
        WhyEntry::Said {
            view,
            primary,
            leaving,
            doubts,
            ..
        } => {
            let doubts: Vec<String> = doubts.iter().map(|doubted| names.name(*doubted)).collect();
            let doubts = match doubts.as_slice() {
                [] => "it suspects nobody".to_owned(),
                doubts => format!("it suspects {}", doubts.join(", ")),
            };
            format!(
                "it said last: it has view {view}, {}{}; {doubts}",
                if *primary {
                    "in the majority"
                } else {
                    "WITHOUT a majority"
                },
                if *leaving { ", and wants to leave" } else { "" },
            )
        }
        WhyEntry::Member {
            incarnation,
            last_heard_ms,
            accusers,
        } => {
            let suspected = match accusers.as_slice() {
                [] => "nobody suspects it".to_owned(),
                accusers => format!("suspected now ({})", names.accusations(accusers)),
            };
            format!(
                "now: member, incarnation {}, last heard {last_heard_ms} ms ago; {suspected}",
                incarnation.short()
            )
        }
        _ => "something that this build has no words for".to_owned(),
    }
}

impl Names {
    /// An entry of a report in a sentence.
    pub fn why(&self, entry: &WhyEntry) -> String {
        sentence(self, entry)
    }
}

/// The number of a view as reports show it: `57301 (1.4)`.
fn number(view: &str) -> Option<u32> {
    view.split(' ').next()?.parse().ok()
}

fn accused_by(names: &Names, accusations: &[Accusation]) -> Vec<Accuser> {
    let accuser = |accusation: &Accusation| Accuser {
        name: names.name(accusation.accuser),
        evidence: evidence(&accusation.evidence),
        before_ms: accusation.before_ms,
    };
    accusations.iter().map(accuser).collect()
}

/// An event as it is told; `None` for one that has no words.
pub(super) fn happened(noted: &Noted, names: &Names) -> Option<Happened> {
    let what = match &noted.event {
        ClusterEvent::View(view) => view_told(view, names),
        ClusterEvent::Incarnation(incarnation) => Happening::Incarnation {
            incarnation: incarnation.to_string(),
        },
        ClusterEvent::Forming {
            missing, rejecting, ..
        } => Happening::Forming {
            missing: missing.iter().map(ToString::to_string).collect(),
            rejecting: rejecting.iter().map(ToString::to_string).collect(),
        },
        ClusterEvent::Refused { reason, fatal } => Happening::Refused {
            reason: reason.clone(),
            fatal: *fatal,
        },
        ClusterEvent::Expelled { cause } => Happening::Expelled { cause: cause.clone() },
        ClusterEvent::Link {
            peer,
            links,
            number,
            cause,
        } => Happening::Link {
            peer: peer.name.clone(),
            addr: links.links.get(*number)?.addr.to_string(),
            up: *cause == LinkCause::Works,
            in_use: links.links.get(links.in_use)?.addr.to_string(),
        },
        ClusterEvent::Path { peer, through, .. } => Happening::Path {
            peer: peer.name.clone(),
            through: through.as_ref().map(|via| via.name.clone()),
        },
        ClusterEvent::Multicast { peer, hears } => Happening::Multicast {
            peer: peer.name.clone(),
            hears: *hears,
        },
        ClusterEvent::Left => Happening::Left {},
        ClusterEvent::Alone { reason } => Happening::FoundedAlone {
            reason: match reason {
                Alone::Told => "told",
                _ => "nobody-else",
            }
            .to_owned(),
        },
        ClusterEvent::Discovery {
            source,
            found,
            problem,
        } => Happening::Discovery {
            source: source.clone(),
            found: found.iter().map(ToString::to_string).collect(),
            problem: problem.clone(),
        },
        ClusterEvent::Overrun => return None,
    };
    let since = noted.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Happened {
        at_ms: millis(since),
        what,
    })
}

/// An event of this moment.
pub(super) fn now(event: ClusterEvent) -> Noted {
    Noted {
        at: SystemTime::now(),
        event,
    }
}

fn view_told(view: &NodeView, names: &Names) -> Happening {
    let departed = |departure: &Departure| Departed {
        name: departure.member.name.clone(),
        cause: names.cause(&departure.cause),
        accusers: accused_by(names, &departure.accusers),
    };
    Happening::View {
        number: view.number,
        id: match view.id {
            NodeViewId::Primary { id } => id.to_string(),
            other => other.to_string(),
        },
        primary: view.is_primary(),
        members: view.members.iter().map(|member| member.name.clone()).collect(),
        joined: view.joined.iter().map(|joined| names.name(*joined)).collect(),
        departed: view.departed.iter().map(departed).collect(),
    }
}

/// The suspicions that a client was told of last.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    known: BTreeSet<(Incarnation, Incarnation)>,
}

impl Doubts {
    /// What has changed about who suspects whom.
    pub(super) fn follow(&mut self, examined: &Examined, names: &Names) -> Vec<Happened> {
        let doubts = seated(&examined.inspection).map_or(&[][..], |seated| &seated.doubts);
        let present: BTreeMap<_, _> = doubts
            .iter()
            .map(|doubt| ((doubt.accuser, doubt.accused), doubt))
            .collect();
        let cleared = self.known.iter().filter(|pair| !present.contains_key(pair));
        let cleared = cleared.map(|(accuser, accused)| Happening::Cleared {
            accuser: names.name(*accuser),
            accused: names.name(*accused),
        });
        let new = present.iter().filter(|(pair, _)| !self.known.contains(pair));
        let new = new.map(|(_, doubt)| Happening::Suspected(suspicion(doubt, names)));
        let at_ms = millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let told = cleared.chain(new).map(|what| Happened { at_ms, what }).collect();
        self.known = present.into_keys().collect();
        told
    }
}

fn suspicions(inspection: &Inspection, names: &Names) -> Vec<Suspicion> {
    let doubts = seated(inspection).map_or(&[][..], |seated| &seated.doubts);
    doubts.iter().map(|doubt| suspicion(doubt, names)).collect()
}

fn suspicion(doubt: &antiphon_core::inspection::Doubt, names: &Names) -> Suspicion {
    Suspicion {
        accuser: names.name(doubt.accuser),
        accused: names.name(doubt.accused),
        evidence: evidence(&doubt.evidence),
        for_ms: millis(doubt.since),
    }
}

fn refused(inspection: &Inspection) -> Vec<RefusedNode> {
    let refused = inspection.refused.iter().map(|refused| RefusedNode {
        name: refused.name.clone(),
        addr: refused.addr.to_string(),
        reason: refused.reason.clone(),
        fatal: refused.fatal,
        times: refused.times,
        ago_ms: millis(refused.ago),
    });
    refused.collect()
}

fn forming(looking: &Looking) -> Forming {
    let text = |addrs: &[std::net::SocketAddr]| addrs.iter().map(ToString::to_string).collect();
    let candidates = looking.candidates.iter();
    Forming {
        missing: text(&looking.missing),
        rejecting: text(&looking.rejecting),
        candidates: candidates
            .map(|(name, addr, _)| (name.clone(), addr.to_string()))
            .collect(),
        founder: looking.founder,
        asks: looking.asks.map(|addr| addr.to_string()),
        remnant: looking.remnant.is_some(),
    }
}

fn seated(inspection: &Inspection) -> Option<&Seated> {
    match &inspection.state {
        State::Seated(seated) => Some(seated),
        _ => None,
    }
}

fn looking(inspection: &Inspection) -> Option<&Looking> {
    match &inspection.state {
        State::Seeking(looking) => Some(looking),
        _ => None,
    }
}

fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::Forming => "forming",
        Phase::Primary => "primary",
        Phase::NonPrimary => "non-primary",
        Phase::Leaving => "leaving",
    }
}

fn ago_text(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..600_000 => format!("{} s", ms / 1000),
        600_000..36_000_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

//! What a node is doing, and what it knows of each member.

use std::net::SocketAddr;

use antiphon_core::inspection::{Inspection, Lifeline, Looking, MemberSeen};

use antiphon::{Examined, Incarnation, NodeView, Policy, Settings};
use antiphon_api::console::{
    Edge, Forming, Link, Member, Members, Refusal, RefusedNode, Said, Status, Suspicion, Waiting,
};

use super::{Names, looking, millis, seated, suspicion};

pub(crate) fn status(examined: &Examined, settings: &Settings) -> Status {
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
        state: status.phase.to_string(),
        incarnation: status.incarnation.to_string(),
        uptime_ms: millis(status.uptime),
        seeds: settings.seeds.iter().map(ToString::to_string).collect(),
        keyed: settings.keyed,
        profile: settings.profile.clone(),
        view: view.map(|view| view.number),
        members: view.map_or(0, |view| view.members.len()),
        groups: groups.collect(),
        forming: looking(inspection).map(|looking| forming(looking, &examined.agents)),
        quorum: seated.map(|seated| seated.quorum),
        silent,
        refused: looking(inspection).and_then(refusal),
        connections_refused: status.transport.connections_refused,
        lacks: lacks(examined),
    }
}

pub(crate) fn members(examined: &Examined, settings: &Settings, names: &Names) -> Members {
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
        state: status.phase.to_string(),
        view: view.map(|view| view.number),
        id: view.map(|view| view.id.to_string()),
        recoveries: recoveries(view, settings.policy),
        wire_level: view.map(|view| view.wire_level),
        coordinator: seated.map(|seated| names.name(seated.coordinator)),
        quorum: seated.map(|seated| seated.quorum),
        lease: seated.map(|seated| seated.leased),
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
        edges: edges(inspection, names),
        forming: looking(inspection).map(|looking| forming(looking, &examined.agents)),
        lacks: lacks(examined),
    }
}

fn lacks(examined: &Examined) -> Vec<String> {
    let lacks = examined.lacks.iter();
    lacks.map(|lack| format!("{lack}: {}", lack.remedy())).collect()
}

/// Each recovery begins an epoch. So does each component that goes on apart by the policy `any`; there no
/// node can recover, since it has a primary view already.
fn recoveries(view: Option<&NodeView>, policy: Policy) -> u32 {
    match (view, policy) {
        (Some(view), Policy::Majority) => view.primary_id().epoch.saturating_sub(1),
        _ => 0,
    }
}

fn member(
    examined: &Examined,
    names: &Names,
    rank: usize,
    known: &antiphon::Member,
    seen: Option<&MemberSeen>,
) -> Member {
    let Examined {
        status,
        inspection,
        paths,
        ..
    } = examined;
    let links = status.links.iter().find(|links| links.peer == known.incarnation);
    let links: Vec<Link> = match links {
        Some(several) => {
            let link = |(number, link): (usize, &antiphon::LinkStatus)| Link {
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
    let mut relayed = status.paths.iter();
    let relayed = relayed.find(|path| path.peer == known.incarnation);
    let suspected_by = seated(inspection).map_or_else(Vec::new, |seated| {
        let against = seated
            .doubts
            .iter()
            .filter(|doubt| doubt.accused == known.incarnation);
        against.map(|doubt| names.name(doubt.accuser)).collect()
    });
    let shares = |group: &&antiphon::GroupStatus| {
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
        heard_by_probes: seen.is_some_and(|seen| seen.by_probes),
        through: relayed
            .and_then(|path| path.sends_through)
            .map(|by| names.name(by)),
        heard_through: relayed
            .and_then(|path| path.heard_through)
            .map(|by| names.name(by)),
        rtt_us: path
            .and_then(|path| path.rtt)
            .map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
        trouble_ms: seen.and_then(|seen| seen.trouble).map(millis),
        dead: seen.is_some_and(|seen| seen.dead),
        lifeline: seen.and_then(|seen| match seen.lifeline {
            Lifeline::Held => Some(true),
            Lifeline::Missing => Some(false),
            _ => None,
        }),
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

fn suspicions(inspection: &Inspection, names: &Names) -> Vec<Suspicion> {
    let doubts = seated(inspection).map_or(&[][..], |seated| &seated.doubts);
    doubts.iter().map(|doubt| suspicion(doubt, names)).collect()
}

fn edges(inspection: &Inspection, names: &Names) -> Vec<Edge> {
    let edges = seated(inspection).map_or(&[][..], |seated| &seated.edges);
    let told = edges.iter().map(|edge| Edge {
        observer: names.name(edge.observer),
        subject: names.name(edge.subject),
        evidence: edge.evidence.to_string(),
        for_ms: millis(edge.since),
    });
    told.collect()
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

fn forming(looking: &Looking, agents: &[SocketAddr]) -> Forming {
    let text = |addrs: &[SocketAddr]| addrs.iter().map(ToString::to_string).collect();
    let is_agent = |addr: &&SocketAddr| agents.contains(addr);
    let candidates = looking.candidates.iter();
    Forming {
        missing: text(&looking.missing),
        rejecting: text(&looking.rejecting),
        agents: looking
            .rejecting
            .iter()
            .filter(is_agent)
            .map(ToString::to_string)
            .collect(),
        candidates: candidates
            .map(|(name, addr, _)| (name.clone(), addr.to_string()))
            .collect(),
        founder: looking.founder,
        asks: looking.asks.map(|addr| addr.to_string()),
        remnant: looking.remnant.is_some(),
        refused: refusal(looking),
    }
}

/// What a node was refused for last.
fn refusal(looking: &Looking) -> Option<Refusal> {
    looking.refused.as_ref().map(|(reason, ago)| Refusal {
        reason: reason.clone(),
        ago_ms: millis(*ago),
    })
}

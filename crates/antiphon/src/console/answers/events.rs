//! What happened to a node, and who began or ceased to suspect whom.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use antiphon_core::{Alone, LinkCause};

use super::{Names, accused_by, millis, seated, suspicion};
use crate::cluster::{Examined, Noted};
use crate::console::protocol::{Departed, Happened, Happening, MergedPart};
use crate::{ClusterEvent, Incarnation, NodeViewId, ViewChange};

/// An event as it is told; `None` for one that has no words.
pub(crate) fn happened(noted: &Noted, names: &Names) -> Option<Happened> {
    let what = match &noted.event {
        ClusterEvent::View(view) => {
            let members = view.members.iter().map(|member| member.name.clone());
            view_told(&ViewChange::of(view), Some(members.collect()), names)
        }
        ClusterEvent::PastView(view) => view_told(view, None, names),
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
        ClusterEvent::Starved { missed, within } => Happening::Starved {
            missed_ms: millis(*missed),
            within_ms: millis(*within),
        },
        ClusterEvent::Lease { held } => Happening::Lease { held: *held },
        ClusterEvent::Path { peer, through, .. } => Happening::Path {
            peer: peer.name.clone(),
            through: through.as_ref().map(|via| via.name.clone()),
        },
        ClusterEvent::Multicast { peer, hears } => Happening::Multicast {
            peer: peer.name.clone(),
            hears: *hears,
        },
        ClusterEvent::Merge { parts } => Happening::Merge {
            parts: parts
                .iter()
                .map(|part| MergedPart {
                    lineage: part.lineage.to_string(),
                    view: part.view.to_string(),
                    members: part.members.iter().map(|member| member.name.clone()).collect(),
                })
                .collect(),
        },
        ClusterEvent::Left => Happening::Left {},
        ClusterEvent::Alone { reason } => Happening::FoundedAlone {
            reason: match reason {
                Alone::Told => "told",
                Alone::NobodyLeft => "nobody-left",
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
pub(crate) fn now(event: ClusterEvent) -> Noted {
    Noted {
        at: SystemTime::now(),
        event,
    }
}

fn view_told(view: &ViewChange, members: Option<Vec<String>>, names: &Names) -> Happening {
    let departed = view.departed.iter().map(|departed| Departed {
        name: departed.name.clone(),
        cause: names.cause(&departed.cause),
        accusers: accused_by(names, &departed.accusers),
    });
    Happening::View {
        number: view.number,
        id: match view.id {
            NodeViewId::Primary { id } => id.to_string(),
            other => other.to_string(),
        },
        primary: view.is_primary(),
        size: Some(view.members),
        members,
        joined: view.joined.iter().map(|(_, name)| name.clone()).collect(),
        departed: departed.collect(),
    }
}

/// The suspicions that a client was told of last.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    known: BTreeSet<(Incarnation, Incarnation)>,
}

impl Doubts {
    /// What has changed about who suspects whom.
    pub(crate) fn follow(&mut self, examined: &Examined, names: &Names) -> Vec<Happened> {
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

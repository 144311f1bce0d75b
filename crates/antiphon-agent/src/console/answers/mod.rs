//! From what a node knows to what people are told.
//!
//! - [`state`]: what it is doing, and what it knows of each member;
//! - [`why`]: why a node is, or is not, a member;
//! - [`doubts`]: which member began or ceased to suspect which.

mod doubts;
mod state;
mod why;

use antiphon_core::inspection::{Inspection, Looking, Seated, State};

use antiphon::{Accusation, ClusterEvent, Noted};
use antiphon_api::console::{Accuser, Suspicion};

use crate::names::Names;
use crate::told::millis;

pub(super) use doubts::Doubts;
pub(super) use state::{members, status};
pub(super) use why::why;

/// What the nodes of the last views are called.
pub(super) fn names(history: &[Noted]) -> Names {
    let mut names = Names::default();
    for noted in history {
        match &noted.event {
            ClusterEvent::View(view) => names.learn(view),
            ClusterEvent::PastView(view) => names.learn_past(view),
            _ => {}
        }
    }
    names
}

fn accused_by(names: &Names, accusations: &[Accusation]) -> Vec<Accuser> {
    let accuser = |accusation: &Accusation| Accuser {
        name: names.name(accusation.accuser),
        evidence: accusation.evidence.to_string(),
        before_ms: accusation.before_ms,
    };
    accusations.iter().map(accuser).collect()
}

fn suspicion(doubt: &antiphon_core::inspection::Doubt, names: &Names) -> Suspicion {
    Suspicion {
        accuser: names.name(doubt.accuser),
        accused: names.name(doubt.accused),
        evidence: doubt.evidence.to_string(),
        for_ms: millis(doubt.since),
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

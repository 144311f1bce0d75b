//! The last views and other events of a node with their times, for people who ask afterwards.
//!
//! It is filled where events are published, under the same lock, so that what it holds and what a new stream of events brings have
//! neither gap nor overlap. It shares views with the core's history, so it costs little more than its entries.

use std::collections::VecDeque;
use std::time::SystemTime;

use crate::ClusterEvent;

/// Views kept, primary or not.
const KEPT_VIEWS: usize = 100;
/// Their members together: in a very large cluster fewer views are kept, but always one.
const KEPT_MEMBERS: usize = 100_000;
/// Other events kept.
const KEPT_EVENTS: usize = 200;

/// An event and when it happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Noted {
    /// By the host's clock.
    pub at: SystemTime,
    /// What happened.
    pub event: ClusterEvent,
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    views: VecDeque<(u64, Noted)>,
    events: VecDeque<(u64, Noted)>,
    members: usize,
    next: u64,
}

impl Journal {
    pub(super) fn note(&mut self, event: &ClusterEvent) {
        let noted = Noted {
            at: SystemTime::now(),
            event: event.clone(),
        };
        let number = self.next;
        self.next += 1;
        if let ClusterEvent::View(view) = event {
            self.members += view.members.len();
            self.views.push_back((number, noted));
            while self.views.len() > KEPT_VIEWS || (self.members > KEPT_MEMBERS && self.views.len() > 1) {
                if let Some((_, old)) = self.views.pop_front()
                    && let ClusterEvent::View(view) = old.event
                {
                    self.members -= view.members.len();
                }
            }
            return;
        }
        // What is still missing, or refused for the same reason, is said every few seconds: the latest is enough.
        let repeated = self
            .events
            .back()
            .is_some_and(|(_, last)| match (&last.event, event) {
                (ClusterEvent::Forming { .. }, ClusterEvent::Forming { .. }) => true,
                (ClusterEvent::Refused { reason, .. }, ClusterEvent::Refused { reason: again, .. }) => {
                    reason == again
                }
                _ => false,
            });
        if repeated || self.events.len() >= KEPT_EVENTS {
            match repeated {
                true => self.events.pop_back(),
                false => self.events.pop_front(),
            };
        }
        self.events.push_back((number, noted));
    }

    /// All that is kept, oldest first.
    pub(super) fn all(&self) -> Vec<Noted> {
        let mut all: Vec<&(u64, Noted)> = self.views.iter().chain(&self.events).collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, noted)| noted.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use antiphon_core::Awaits;
    use antiphon_core::wire::{Lineage, Member, NodeView, NodeViewId, ViewId};

    use super::*;
    use crate::Incarnation;

    fn view(number: u32, members: usize) -> ClusterEvent {
        let member = |number| Member {
            incarnation: Incarnation(number),
            name: format!("n{number}"),
            addr: "127.0.0.1:1".parse().unwrap(),
            further: Vec::new(),
            metadata: Default::default(),
            weight: 1,
        };
        ClusterEvent::View(Arc::new(NodeView {
            lineage: Lineage(1),
            id: NodeViewId::Primary {
                id: ViewId {
                    epoch: 1,
                    counter: number,
                },
            },
            number,
            members: (0..members as u128).map(member).collect(),
            joined: Vec::new(),
            departed: Vec::new(),
            merged: Vec::new(),
            wire_level: 1,
        }))
    }

    fn forming(missing: u16) -> ClusterEvent {
        ClusterEvent::Forming {
            missing: vec![([127, 0, 0, 1], missing).into()],
            rejecting: Vec::new(),
            awaits: Awaits::Cluster,
        }
    }

    fn numbers(journal: &Journal) -> Vec<u32> {
        let number = |noted: Noted| match noted.event {
            ClusterEvent::View(view) => Some(view.number),
            _ => None,
        };
        journal.all().into_iter().filter_map(number).collect()
    }

    #[test]
    fn the_last_hundred_views_are_kept_in_order_whatever_else_happens() {
        let mut journal = Journal::default();
        for number in 0..250 {
            journal.note(&view(number, 3));
            for _ in 0..3 {
                journal.note(&ClusterEvent::Expelled { cause: "x".into() });
            }
        }
        assert_eq!(numbers(&journal), (150..250).collect::<Vec<_>>());
        assert_eq!(journal.all().len(), KEPT_VIEWS + KEPT_EVENTS);
    }

    #[test]
    fn a_node_that_says_whom_it_misses_for_hours_forgets_nothing_else_by_that() {
        let mut journal = Journal::default();
        journal.note(&ClusterEvent::Expelled { cause: "x".into() });
        for number in 0..10_000 {
            journal.note(&forming(number));
        }
        let all = journal.all();
        assert_eq!(all.len(), 2);
        assert!(matches!(&all[0].event, ClusterEvent::Expelled { .. }));
        assert!(matches!(&all[1].event, ClusterEvent::Forming { missing, .. } if missing[0].port() == 9999));
    }

    #[test]
    fn views_of_a_very_large_cluster_are_kept_as_far_as_they_fit() {
        let mut journal = Journal::default();
        for number in 0..10 {
            journal.note(&view(number, KEPT_MEMBERS / 4));
        }
        assert_eq!(numbers(&journal), [6, 7, 8, 9]);
        journal.note(&view(10, KEPT_MEMBERS * 2));
        assert_eq!(numbers(&journal), [10]);
    }
}

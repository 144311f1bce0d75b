//! The last views and other events of a node with their times, for people who ask later.
//!
//! It is filled where events are published, under the same lock. So there is neither gap nor overlap between
//! the journal and a new stream of events. It shares whole views with the core's history as far as that keeps
//! them: in a small cluster it costs little more than its entries.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{ClusterEvent, NodeView, ViewChange};

/// Views kept, primary or not.
const KEPT_VIEWS: usize = 100;
/// The members of these views together. In a large cluster fewer views are kept whole, but always one; of the
/// older ones the journal keeps what they changed.
const KEPT_MEMBERS: usize = 100_000;
/// How many nodes that came and went, and accusations of them, are kept of the older ones: some megabytes.
const KEPT_CHANGES: usize = 100_000;
/// Other events kept.
const KEPT_EVENTS: usize = 200;

/// An event and when it happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Noted {
    /// By the host's clock.
    #[cfg_attr(feature = "serde", serde(rename = "at_ms", serialize_with = "since_1970"))]
    pub at: SystemTime,
    /// What happened.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub event: ClusterEvent,
}

/// The milliseconds since 1970, and the event.
impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        write!(f, "{}  {}", since.as_millis(), self.event)
    }
}

#[cfg(feature = "serde")]
fn since_1970<S: serde::Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    antiphon_core::wire::json::millis::serialize(&since, serializer)
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Before all whole ones.
    past_views: VecDeque<(u64, SystemTime, Arc<ViewChange>)>,
    views: VecDeque<(u64, SystemTime, Arc<NodeView>)>,
    events: VecDeque<(u64, Noted)>,
    next: u64,
}

impl Journal {
    pub(super) fn note(&mut self, event: &ClusterEvent, at: SystemTime) {
        let number = self.next;
        self.next += 1;
        if let ClusterEvent::View(view) = event {
            self.views.push_back((number, at, view.clone()));
            return self.shorten();
        }
        let noted = Noted {
            at,
            event: event.clone(),
        };
        // Of those that came since another event, the latest of each is enough.
        let mut run = self
            .events
            .iter()
            .rev()
            .take_while(|(_, noted)| comes_again(&noted.event));
        match run.position(|(_, noted)| is_same(&noted.event, event)) {
            Some(back) => drop(self.events.remove(self.events.len() - 1 - back)),
            None if self.events.len() >= KEPT_EVENTS => drop(self.events.pop_front()),
            None => {}
        }
        self.events.push_back((number, noted));
    }

    /// Lets go of views, and of the members of views, that are too many.
    fn shorten(&mut self) {
        let mut members: usize = self.views.iter().map(|(_, _, view)| view.members.len()).sum();
        while members > KEPT_MEMBERS && self.views.len() > 1 {
            let Some((number, at, view)) = self.views.pop_front() else {
                break;
            };
            members -= view.members.len();
            self.past_views
                .push_back((number, at, Arc::new(ViewChange::of(&view))));
        }
        let mut weight: usize = self.past_views.iter().map(|(_, _, past)| past.weight()).sum();
        while weight > KEPT_CHANGES || self.past_views.len() + self.views.len() > KEPT_VIEWS {
            match self.past_views.pop_front() {
                Some((_, _, past)) => weight -= past.weight(),
                None => drop(self.views.pop_front()),
            }
        }
    }

    /// All that is kept, oldest first.
    pub(super) fn all(&self) -> Vec<Noted> {
        let past = self.past_views.iter().map(|(number, at, view)| {
            let event = ClusterEvent::PastView(view.clone());
            (*number, Noted { at: *at, event })
        });
        let whole = self.views.iter().map(|(number, at, view)| {
            let event = ClusterEvent::View(view.clone());
            (*number, Noted { at: *at, event })
        });
        let mut all: Vec<(u64, Noted)> = past.chain(whole).chain(self.events.iter().cloned()).collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, noted)| noted).collect()
    }
}

/// Whether such events come every few seconds.
fn comes_again(event: &ClusterEvent) -> bool {
    is_same(event, event)
}

/// Whether a later event of those that come again takes the place of this one.
fn is_same(known: &ClusterEvent, later: &ClusterEvent) -> bool {
    match (known, later) {
        (ClusterEvent::Forming { .. }, ClusterEvent::Forming { .. }) => true,
        (ClusterEvent::Refused { reason, .. }, ClusterEvent::Refused { reason: again, .. }) => {
            reason == again
        }
        // A name may give other addresses at each look.
        (ClusterEvent::Discovery { source, .. }, ClusterEvent::Discovery { source: again, .. }) => {
            source == again
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::Awaits;
    use antiphon_core::wire::{Lineage, Member, NodeViewId, ViewId};

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
            agents: Vec::new(),
            awaits: Awaits::Cluster,
        }
    }

    fn numbers(journal: &Journal) -> Vec<u32> {
        let number = |noted: Noted| match noted.event {
            ClusterEvent::View(view) => Some(view.number),
            ClusterEvent::PastView(view) => Some(view.number),
            _ => None,
        };
        journal.all().into_iter().filter_map(number).collect()
    }

    #[test]
    fn the_last_hundred_views_are_kept_in_order_whatever_else_happens() {
        let mut journal = Journal::default();
        for number in 0..250 {
            journal.note(&view(number, 3), SystemTime::UNIX_EPOCH);
            for _ in 0..3 {
                journal.note(
                    &ClusterEvent::Expelled { cause: "x".into() },
                    SystemTime::UNIX_EPOCH,
                );
            }
        }
        assert_eq!(numbers(&journal), (150..250).collect::<Vec<_>>());
        assert_eq!(journal.all().len(), KEPT_VIEWS + KEPT_EVENTS);
    }

    #[test]
    fn a_node_that_says_whom_it_misses_for_hours_forgets_nothing_else_by_that() {
        let mut journal = Journal::default();
        journal.note(
            &ClusterEvent::Expelled { cause: "x".into() },
            SystemTime::UNIX_EPOCH,
        );
        let refused = |reason: &str| ClusterEvent::Refused {
            reason: reason.into(),
            fatal: false,
        };
        for number in 0..10_000 {
            let found = ClusterEvent::Discovery {
                source: "dns:a:1".into(),
                found: vec![([127, 0, 0, 1], number).into()],
                problem: None,
            };
            for event in [forming(number), refused("x"), found, refused("y")] {
                journal.note(&event, SystemTime::UNIX_EPOCH);
            }
        }
        let all = journal.all();
        assert_eq!(all.len(), 5);
        assert!(matches!(&all[0].event, ClusterEvent::Expelled { .. }));
        assert!(matches!(&all[1].event, ClusterEvent::Forming { missing, .. } if missing[0].port() == 9999));
    }

    #[test]
    fn of_a_large_cluster_old_views_are_kept_without_their_members() {
        let mut journal = Journal::default();
        let members = KEPT_MEMBERS / 40;
        (0..150).for_each(|number| journal.note(&view(number, members), SystemTime::UNIX_EPOCH));
        assert_eq!(numbers(&journal), (50..150).collect::<Vec<_>>());
        let past = journal.all().into_iter().filter_map(|noted| match noted.event {
            ClusterEvent::PastView(view) => Some((view.number, view.members)),
            _ => None,
        });
        let expected = (50..110).map(|number| (number, members));
        assert_eq!(past.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        // One is whole however large it is.
        journal.note(&view(150, KEPT_MEMBERS * 2), SystemTime::UNIX_EPOCH);
        assert_eq!((journal.views.len(), journal.past_views.len()), (1, 99));
    }

    #[test]
    fn crowds_that_come_again_and_again_are_forgotten_before_they_take_much() {
        let mut journal = Journal::default();
        for number in 0..100 {
            let ClusterEvent::View(mut crowd) = view(number, KEPT_MEMBERS / 20) else {
                unreachable!()
            };
            let of_new_ones = Arc::make_mut(&mut crowd);
            let all = of_new_ones.members.iter().map(|member| member.incarnation);
            of_new_ones.joined = all.collect();
            journal.note(&ClusterEvent::View(crowd), SystemTime::UNIX_EPOCH);
        }
        assert_eq!((journal.views.len(), journal.past_views.len()), (20, 20));
    }
}

//! Node events: one sequence for any number of readers. No reader skips a view or holds up another reader.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use antiphon_core::wire::{Incarnation, NodeView};
use tokio::sync::Notify;

use super::journal::{Journal, Noted};
use crate::ClusterEvent;
use crate::host::Host;

/// Events that wait for a reader before its stream ends with [`ClusterEvent::Overrun`]. A view comes a few
/// times a second at worst, so this is many minutes of not reading.
const MAX_WAITING: usize = 4096;

/// The present state, and the readers that follow how it changes. Both change under one lock, so that a
/// subscription neither misses nor repeats an event.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    host: Host,
    state: Mutex<HubState>,
}

#[derive(Debug, Default)]
struct HubState {
    incarnation: Option<Incarnation>,
    view: Option<Arc<NodeView>>,
    /// The last refusal or forming event, for readers that subscribe while the cluster forms.
    forming: Option<ClusterEvent>,
    /// That this incarnation has founded alone.
    alone: Option<ClusterEvent>,
    /// The last word on the lease of the present incarnation.
    lease: Option<ClusterEvent>,
    /// The last event of each source of addresses. Every stream starts with the incarnation: what a source
    /// finds before the node has begun is told behind it.
    discovery: BTreeMap<String, ClusterEvent>,
    /// In order.
    left: bool,
    ended: bool,
    readers: Vec<Weak<Queue>>,
    journal: Journal,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<ClusterEvent>,
    ended: bool,
}

impl HubState {
    /// This incarnation is no member yet, or no more.
    fn forget_membership(&mut self) {
        self.view = None;
        self.alone = None;
        self.lease = None;
    }

    /// Readers that have gone are let go of here, too: in a stable cluster nothing may happen for months.
    fn add_reader(&mut self, queue: &Arc<Queue>) {
        self.readers.retain(|reader| reader.strong_count() > 0);
        self.readers.push(Arc::downgrade(queue));
    }
}

impl Hub {
    pub(crate) fn new(host: Host) -> Self {
        Self {
            host,
            state: Mutex::default(),
        }
    }

    /// Whether the node has left in order.
    pub(crate) fn has_left(&self) -> bool {
        self.lock().left
    }

    /// Whether it has its lease, as it said last.
    pub(crate) fn has_lease(&self) -> bool {
        matches!(self.lock().lease, Some(ClusterEvent::Lease { held: true, .. }))
    }

    #[cfg(feature = "blocks")]
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.lock().incarnation.unwrap_or(Incarnation(0))
    }

    pub(crate) fn view(&self) -> Option<Arc<NodeView>> {
        self.lock().view.clone()
    }

    pub(crate) fn subscribe(&self) -> ClusterEvents {
        let mut state = self.lock();
        let queue = Arc::new(Queue::default());
        if let Some(incarnation) = state.incarnation {
            queue.extend([ClusterEvent::Incarnation(incarnation)]);
            queue.extend(state.discovery.values().cloned());
        }
        queue.extend(state.alone.clone());
        queue.extend(state.view.clone().map(ClusterEvent::View));
        queue.extend(state.lease.clone());
        queue.extend(state.forming.clone());
        if state.ended {
            queue.end();
        } else {
            state.add_reader(&queue);
        }
        ClusterEvents { queue }
    }

    /// What has happened so far, as far as it is kept, and a stream of what follows: without a gap, and
    /// without the present state.
    pub(crate) fn history(&self) -> (Vec<Noted>, ClusterEvents) {
        let mut state = self.lock();
        let queue = Arc::new(Queue::default());
        if state.ended {
            queue.end();
        } else {
            state.add_reader(&queue);
        }
        (state.journal.all(), ClusterEvents { queue })
    }

    pub(crate) fn publish(&self, event: ClusterEvent) {
        let mut state = self.lock();
        state.journal.note(&event, self.host.time_of_day());
        let mut news = vec![event.clone()];
        match &event {
            ClusterEvent::Incarnation(incarnation) => {
                if state.incarnation.is_none() {
                    news.extend(state.discovery.values().cloned());
                }
                state.incarnation = Some(*incarnation);
                state.forget_membership();
            }
            ClusterEvent::View(view) => {
                state.view = Some(view.clone());
                state.forming = None;
            }
            ClusterEvent::Forming { .. } | ClusterEvent::Refused { .. } => {
                state.forming = Some(event.clone())
            }
            ClusterEvent::Expelled { .. } => state.forget_membership(),
            ClusterEvent::Left => {
                state.left = true;
                state.forget_membership();
            }
            ClusterEvent::Alone { .. } => state.alone = Some(event.clone()),
            ClusterEvent::Lease { .. } => state.lease = Some(event.clone()),
            ClusterEvent::Discovery { source, .. } => {
                let source = source.clone();
                state.discovery.insert(source, event.clone());
                if state.incarnation.is_none() {
                    return;
                }
            }
            ClusterEvent::Link { .. }
            | ClusterEvent::Multicast { .. }
            | ClusterEvent::Path { .. }
            | ClusterEvent::Starved { .. }
            | ClusterEvent::Merge { .. }
            | ClusterEvent::PastView(_)
            | ClusterEvent::Overrun => {}
        }
        state.readers.retain(|reader| match reader.upgrade() {
            Some(queue) => news.iter().all(|event| queue.push(event.clone())),
            None => false,
        });
    }

    /// The node has stopped: all streams end after what they hold.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.forget_membership();
        for queue in std::mem::take(&mut state.readers)
            .iter()
            .filter_map(Weak::upgrade)
        {
            queue.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn extend(&self, events: impl IntoIterator<Item = ClusterEvent>) {
        self.lock().events.extend(events);
    }

    /// Adds an event; false if the reader was too slow and its stream has ended.
    fn push(&self, event: ClusterEvent) -> bool {
        let mut waiting = self.lock();
        let overrun = waiting.events.len() >= MAX_WAITING;
        waiting
            .events
            .push_back(if overrun { ClusterEvent::Overrun } else { event });
        waiting.ended = overrun;
        drop(waiting);
        self.arrived.notify_one();
        !overrun
    }

    fn end(&self) {
        self.lock().ended = true;
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of node events. From [`Cluster::events`](crate::Cluster::events). It does not keep the node
/// alive.
#[derive(Debug)]
pub struct ClusterEvents {
    queue: Arc<Queue>,
}

impl ClusterEvents {
    /// The next event; `None` once the node has stopped.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<ClusterEvent> {
        loop {
            {
                let mut waiting = self.queue.lock();
                if let Some(event) = waiting.events.pop_front() {
                    return Some(event);
                }
                if waiting.ended {
                    return None;
                }
            }
            self.queue.arrived.notified().await;
        }
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<ClusterEvent> {
        self.queue.lock().events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(hub: &Hub) {
        hub.publish(ClusterEvent::Discovery {
            source: "file:nodes".into(),
            found: Vec::new(),
            problem: Some("names no node".into()),
        });
    }

    fn all(mut stream: ClusterEvents) -> Vec<ClusterEvent> {
        std::iter::from_fn(|| stream.try_next()).collect()
    }

    /// A node may have its lease before any reader has had the time to subscribe.
    #[test]
    fn who_subscribes_late_is_told_of_the_lease_of_this_incarnation() {
        let hub = Hub::default();
        hub.publish(ClusterEvent::Incarnation(Incarnation(7)));
        hub.publish(ClusterEvent::Lease { held: true });
        let events = all(hub.subscribe());
        let held = |events: &[ClusterEvent]| {
            let mut all = events.iter();
            all.any(|event| matches!(event, ClusterEvent::Lease { held: true }))
        };
        assert!(held(&events), "{events:?}");
        hub.publish(ClusterEvent::Incarnation(Incarnation(8)));
        let events = all(hub.subscribe());
        assert!(!held(&events), "each incarnation begins without: {events:?}");
    }

    /// No incarnation follows where the node does not join again, or has left.
    #[test]
    fn who_is_no_member_any_more_has_nothing_of_its_membership() {
        let cause = "not heard".to_owned();
        for over in [ClusterEvent::Expelled { cause }, ClusterEvent::Left] {
            let hub = Hub::default();
            hub.publish(ClusterEvent::Incarnation(Incarnation(7)));
            hub.publish(ClusterEvent::Lease { held: true });
            assert_eq!(all(hub.subscribe()).len(), 2);
            let has_left = matches!(over, ClusterEvent::Left);
            hub.publish(over);
            assert_eq!(all(hub.subscribe()).len(), 1, "its incarnation alone");
            assert_eq!(hub.has_left(), has_left);
        }
    }

    #[test]
    fn readers_that_have_gone_are_let_go_of_though_nothing_happens() {
        let hub = Hub::default();
        let stays = hub.subscribe();
        for _ in 0..100 {
            drop((hub.history(), hub.subscribe()));
        }
        assert!(hub.lock().readers.len() <= 3);
        hub.publish(ClusterEvent::Incarnation(Incarnation(7)));
        assert_eq!(all(stays).len(), 1);
    }

    /// Sources may be read before the node has had its first turn. A reader that waits for the incarnation
    /// must not miss what they found.
    #[test]
    fn what_is_found_before_the_node_has_begun_is_told_behind_its_incarnation() {
        let hub = Hub::default();
        let early = hub.subscribe();
        found(&hub);
        let late = hub.subscribe();
        hub.publish(ClusterEvent::Incarnation(Incarnation(7)));
        for stream in [early, late, hub.subscribe()] {
            let events = all(stream);
            assert!(
                matches!(
                    &events[..],
                    [
                        ClusterEvent::Incarnation(Incarnation(7)),
                        ClusterEvent::Discovery { problem: Some(_), .. }
                    ]
                ),
                "{events:?}"
            );
        }
        let next = hub.subscribe();
        found(&hub);
        hub.publish(ClusterEvent::Incarnation(Incarnation(8)));
        assert_eq!(all(next).len(), 4, "the present state, and the two that followed");
    }
}

//! The groups of clients that this node takes part in. It stays in each as long as a session is in it, and a
//! little longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use antiphon::Cluster;
use antiphon::clients::{Client, ClientEvent, ClientGroup, ClientSender, Refusal};
use antiphon_api::blocks::{Code, Failure};
use futures_util::future::join_all;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::hub::of_join;

/// How long the node stays in a group after its last client has left: so a client that comes and goes changes
/// no view of nodes.
const LINGER: Duration = Duration::from_secs(10);
/// The longest name of a group: that of a node's group less what stands before it.
const MAX_NAME_BYTES: usize = 56;
/// The most groups of a node.
const MAX_GROUPS: usize = 256;
/// Events taken at once.
const BATCH: usize = 64;
/// How long a client that comes waits until the node has left the group, with all its session says next. That
/// takes a moment with a majority, and as long as the outage without one.
const LEFT_WITHIN: Duration = Duration::from_secs(2);
/// How long leaving all of them may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// All of them, by name.
#[derive(Debug)]
pub(crate) struct Groups {
    cluster: Cluster,
    places: Places,
}

/// The place of a group. It is there while a session is in the group, comes into it, or was in it a moment
/// ago.
type Places = Arc<Mutex<BTreeMap<String, Arc<AsyncMutex<Place>>>>>;

#[derive(Debug, Default)]
struct Place {
    group: Option<ClientGroup>,
    clients: usize,
    /// How often it was entered.
    entered: u64,
    closed: bool,
}

/// A task that uses a place. When the task goes and the place is empty, the place goes with it.
#[derive(Debug)]
struct Visit {
    name: String,
    place: Arc<AsyncMutex<Place>>,
    places: Places,
}

impl Visit {
    /// Whether the group's place is another one meanwhile.
    fn is_stale(&self) -> bool {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let now = places.get(&self.name);
        now.is_none_or(|now| !Arc::ptr_eq(now, &self.place))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // If another visit holds the lock, that visit looks when it goes.
        let empty = self
            .place
            .try_lock()
            .is_ok_and(|place| place.clients == 0 && place.group.is_none());
        if empty
            && places
                .get(&self.name)
                .is_some_and(|now| Arc::ptr_eq(now, &self.place))
        {
            places.remove(&self.name);
        }
    }
}

/// A session's place in a group.
#[derive(Debug)]
pub(crate) struct Seat {
    client: Option<Client>,
    /// None once it is dropped.
    visit: Option<Visit>,
}

impl Groups {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            places: Arc::default(),
        }
    }

    /// How many groups this node is in, comes into or was in a moment ago.
    pub(crate) fn len(&self) -> usize {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// A session comes into a group under this name. It takes bundles whole, or not.
    pub(crate) async fn enter(&self, group: &str, name: &str, bundles: bool) -> Result<Seat, Failure> {
        if !(1..=MAX_NAME_BYTES).contains(&group.len()) || group.chars().any(char::is_control) {
            let reason = format!(
                "a group has a name of 1 to {MAX_NAME_BYTES} bytes without control characters: take another"
            );
            return Err(Failure::nothing_done(Code::Refused, reason));
        }
        let until = Instant::now() + LEFT_WITHIN;
        loop {
            let visit = self.visit(group)?;
            let place = visit.place.clone();
            let Ok(mut inside) = timeout_at(until, place.lock()).await else {
                return Err(still_leaving());
            };
            // The place was left and removed while this task waited for the lock.
            if visit.is_stale() {
                continue;
            }
            let client = self.enter_in(&mut inside, group, name).await?;
            client.takes_bundles(bundles);
            inside.clients += 1;
            inside.entered += 1;
            return Ok(Seat {
                client: Some(client),
                visit: Some(visit),
            });
        }
    }

    fn visit(&self, group: &str) -> Result<Visit, Failure> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MAX_GROUPS && !places.contains_key(group) {
            let reason = format!("this node is in {MAX_GROUPS} groups already: use these, or another node");
            return Err(Failure::nothing_done(Code::Refused, reason));
        }
        Ok(Visit {
            name: group.to_owned(),
            place: places.entry(group.to_owned()).or_default().clone(),
            places: self.places.clone(),
        })
    }

    async fn enter_in(&self, place: &mut Place, group: &str, name: &str) -> Result<Client, Failure> {
        let closing = || Failure::nothing_done(Code::Unavailable, "this node is leaving: ask another one");
        if place.closed {
            return Err(closing());
        }
        if let Some(joined) = &place.group {
            match joined.enter(name) {
                // It has ended by itself: it was refused, and may be no more.
                Err(Refusal::NotIn) => {}
                entered => return entered.map_err(|refusal| of_refusal(&refusal)),
            }
        }
        let started = self.cluster.clients(group).start().await;
        let started = started.map_err(|error| of_join(&error))?;
        let client = started.enter(name).map_err(|refusal| of_refusal(&refusal))?;
        place.group = Some(started);
        Ok(client)
    }

    /// Leaves all of them in order.
    pub(crate) async fn close(&self) {
        let places: Vec<_> = {
            let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.values().cloned().collect()
        };
        // One that cannot be left now does not keep the others from being left.
        let all = places.into_iter().map(|place| async move {
            let mut place = place.lock().await;
            place.closed = true;
            if let Some(group) = place.group.take() {
                group.leave().await;
            }
        });
        let _ = timeout(CLOSE_WITHIN, join_all(all)).await;
    }
}

fn still_leaving() -> Failure {
    let reason =
        "this node is still leaving this group, for which it needs a majority: join again in a moment";
    Failure::nothing_done(Code::Unavailable, reason)
}

fn of_refusal(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::NotIn => Code::Unavailable,
        _ => Code::Refused,
    };
    Failure::nothing_done(code, refusal.to_string())
}

impl Seat {
    pub(crate) fn sender(&self) -> ClientSender {
        self.client
            .as_ref()
            .expect("it is there until it is dropped")
            .sender()
    }

    /// Appends what happened; 0 when it is over.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub(crate) async fn next(&mut self, into: &mut Vec<ClientEvent>) -> usize {
        match &mut self.client {
            Some(client) => client.next_batch(into, BATCH).await,
            None => 0,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // It leaves first.
        self.client = None;
        let (Some(visit), Ok(runtime)) = (self.visit.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            let entered = {
                let mut place = visit.place.lock().await;
                place.clients -= 1;
                place.entered
            };
            tokio::time::sleep(LINGER).await;
            let mut place = visit.place.lock().await;
            if place.clients == 0
                && place.entered == entered
                && let Some(group) = place.group.take()
            {
                group.leave().await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use antiphon::memory::MemoryNetwork;

    use super::*;
    use crate::testing::{SOON, cluster};

    #[tokio::test(start_paused = true)]
    async fn a_client_does_not_wait_for_the_whole_outage_in_which_its_group_is_still_left() {
        let groups = Groups::new(cluster(&MemoryNetwork::new(), 1, true).await);
        let visit = groups.visit("g").unwrap();
        // As the task that leaves it, without a majority.
        let leaving = visit.place.lock().await;
        let entered = timeout(2 * LEFT_WITHIN, groups.enter("g", "ann", false)).await;
        let failure = entered.expect("it waits no longer than that").unwrap_err();
        assert_eq!(failure.code, Code::Unavailable);
        assert!(failure.reason.contains("still leaving"), "{}", failure.reason);
        drop(leaving);
        assert!(groups.enter("g", "ann", false).await.is_ok());
    }

    #[tokio::test]
    async fn a_group_that_cannot_be_left_does_not_keep_the_others_from_being_left() {
        let groups = Groups::new(cluster(&MemoryNetwork::new(), 1, true).await);
        let visit = groups.visit("a").unwrap();
        let _leaving = visit.place.lock().await;
        let mut seat = groups.enter("b", "ann", false).await.unwrap();
        groups.close().await;
        let mut told = Vec::new();
        while timeout(SOON, seat.next(&mut told)).await.expect("it is left") > 0 {}
        assert!(matches!(told.last(), Some(ClientEvent::Left { .. })), "{told:?}");
    }
}

//! Whether a node may act for its cluster, and why not.
//!
//! What needs the cluster waits while there is none, or no majority. A carrier whose programs are not told
//! meanwhile what they wait for, HTTP or RESP, waits no longer than [`PATIENCE`], and says the reason.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon::inspection::State;
use antiphon::{Cluster, ClusterEvent, NodeView};
use antiphon_api::blocks::{Code, Failure};
use antiphon_api::console::REFUSAL_LASTS_MS;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// So long a node may be not ready before what waits for that is refused. A start or an election is shorter.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For how long it counts as known that the node has its lease. Strangers may ask for it, and must not keep
/// the node busy with that.
const KNOWN_FOR: Duration = Duration::from_millis(100);
/// A node that does not answer within this time is not ready, however many ask.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// A refusal counts for so long. The node is told it again and again while it is refused.
const REFUSED_FOR: Duration = Duration::from_millis(REFUSAL_LASTS_MS);

/// Whether the node is ready: a member of a primary view, with its lease, or without one by its settings. Its
/// events say so, and are too late after a standstill of the process. What must know it exactly asks the node
/// itself, too, which looks at the clock.
#[derive(Debug)]
pub(crate) struct Readiness {
    cluster: Cluster,
    said: Arc<Said>,
    /// What the node said last, and when.
    known: AsyncMutex<Option<(Instant, bool)>>,
    _follows: JoinSet<()>,
}

/// What the node's events said.
#[derive(Debug, Default)]
struct Said {
    /// The lease is held.
    held: AtomicBool,
    /// It was held at some time.
    was_held: AtomicBool,
    /// Nothing follows: the node has left, or has stopped.
    over: AtomicBool,
    looking: Mutex<Looking>,
}

/// What a node without a view was told last.
#[derive(Debug, Default)]
struct Looking {
    /// What it waits for.
    awaits: Option<String>,
    /// Why it was not admitted, and when that was said.
    refused: Option<(String, Instant)>,
}

impl Said {
    fn looking(&self) -> MutexGuard<'_, Looking> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: &ClusterEvent) {
        match event {
            ClusterEvent::Lease { held } => {
                self.was_held.fetch_or(*held, Ordering::Relaxed);
                self.held.store(*held, Ordering::Relaxed);
            }
            // Each incarnation begins without it.
            ClusterEvent::Incarnation(_) => {
                self.held.store(false, Ordering::Relaxed);
                *self.looking() = Looking::default();
            }
            ClusterEvent::View(_) => *self.looking() = Looking::default(),
            ClusterEvent::Forming { .. } => {
                let text = event.to_string();
                let awaits = text.strip_prefix("forming: ").unwrap_or(&text);
                self.looking().awaits = Some(awaits.to_owned());
            }
            ClusterEvent::Refused { reason, .. } => {
                self.looking().refused = Some((reason.clone(), Instant::now()));
            }
            _ => {}
        }
    }
}

impl Readiness {
    /// Follows the node from here on.
    pub(crate) fn of(cluster: Cluster) -> Self {
        let said = Arc::<Said>::default();
        let mut follows = JoinSet::new();
        follows.spawn(follow(cluster.clone(), said.clone()));
        Self {
            cluster,
            said,
            known: AsyncMutex::default(),
            _follows: follows,
        }
    }

    /// Why the node is not ready, as far as its events say; none: it is.
    pub(crate) fn why_not(&self) -> Option<String> {
        self.judge(self.said.held.load(Ordering::Relaxed)).err()
    }

    /// Why the node is in no view, if it is in none.
    pub(crate) fn why_no_view(&self) -> Option<String> {
        self.cluster.view().is_none().then(|| self.without_a_view())
    }

    /// The same by the clock; otherwise the view in which it is ready.
    pub(crate) async fn check(&self) -> Result<Arc<NodeView>, String> {
        // Before the view, which may change meanwhile.
        let held = self.is_held().await;
        self.judge(held)
    }

    fn judge(&self, held: bool) -> Result<Arc<NodeView>, String> {
        match self.cluster.view() {
            Some(view) if view.is_primary() && held => Ok(view),
            Some(view) if view.is_primary() => {
                Err("no majority answers this node: the others may go on without it".to_owned())
            }
            Some(_) => Err(
                "this node is in a component without a majority: ask a node of the others, or wait"
                    .to_owned(),
            ),
            None => Err(self.without_a_view()),
        }
    }

    fn without_a_view(&self) -> String {
        if self.said.over.load(Ordering::Relaxed) {
            return OVER.to_owned();
        }
        let looking = self.said.looking();
        let refused = looking.refused.as_ref();
        if let Some((reason, _)) = refused.filter(|(_, at)| at.elapsed() <= REFUSED_FOR) {
            return format!("the cluster does not admit this node: {reason}");
        }
        if self.said.was_held.load(Ordering::Relaxed) {
            return REMOVED.to_owned();
        }
        match &looking.awaits {
            Some(awaits) => format!("there is no cluster yet: {awaits}"),
            None => "there is no cluster yet: wait until the node has found it".to_owned(),
        }
    }

    async fn is_held(&self) -> bool {
        if !self.said.held.load(Ordering::Relaxed) {
            return false;
        }
        let asked = async {
            let mut known = self.known.lock().await;
            if let Some((at, leased)) = *known
                && at.elapsed() < KNOWN_FOR
            {
                return leased;
            }
            let examined = self.cluster.observer().examine().await;
            let leased = examined.is_ok_and(
                |examined| matches!(&examined.inspection.state, State::Seated(seated) if seated.leased),
            );
            *known = Some((Instant::now(), leased));
            leased
        };
        timeout(ANSWERS_WITHIN, asked).await.unwrap_or(false)
    }

    /// Waits for something that needs the cluster, but not when the node has not been ready for a while.
    ///
    /// # Cancel safety
    /// That of the work. It is dropped if it is not waited for.
    pub(crate) async fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        let mut work = pin!(work);
        let mut patience = Patience::default();
        loop {
            if let Some(failure) = patience.look(self) {
                return Err(failure);
            }
            if let Ok(done) = timeout(LOOK_EVERY, &mut work).await {
                return Ok(done);
            }
        }
    }
}

/// For how long a node has not been ready, as far as somebody looked.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// Why what has waited since the first look is refused now, if it is.
    pub(crate) fn look(&mut self, readiness: &Readiness) -> Option<Failure> {
        let Some(reason) = readiness.why_not() else {
            self.since = None;
            return None;
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_over = since.elapsed() >= PATIENCE;
        is_over.then(|| Failure::nothing_done(Code::Unavailable, reason))
    }
}

/// What a node says of itself that has left or stopped.
pub(crate) const OVER: &str = "this node has left the cluster, or has stopped: ask another one";
/// And one that was removed, and joins again.
const REMOVED: &str =
    "this node was removed from the cluster, and comes back by itself: ask another one, or wait";

async fn follow(cluster: Cluster, said: Arc<Said>) {
    let mut events = cluster.events();
    while let Some(event) = events.next().await {
        match event {
            // A new stream begins with the present state.
            ClusterEvent::Overrun => events = cluster.events(),
            event => said.note(&event),
        }
    }
    said.over.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use antiphon::memory::{MemoryNetwork, Weather};
    use antiphon::{Builder, Policy, Profile};

    use super::*;
    use crate::testing::{SOON, cluster, until};

    /// What events said last, and nobody follows any more.
    fn of_events(cluster: Cluster, held: bool) -> Readiness {
        let said = Said {
            held: AtomicBool::new(held),
            ..Said::default()
        };
        Readiness {
            cluster,
            said: Arc::new(said),
            known: AsyncMutex::default(),
            _follows: JoinSet::new(),
        }
    }

    async fn is_ready(readiness: &Readiness) {
        let becomes = async {
            while readiness.check().await.is_err() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(SOON, becomes).await.expect("it becomes so");
    }

    #[tokio::test]
    async fn a_node_is_ready_with_its_lease_or_where_it_does_without() {
        let changes: [fn(Builder) -> Builder; 3] = [
            |builder| builder,
            |builder| builder.primary_lease(false),
            |builder| builder.policy(Policy::Any),
        ];
        for change in changes {
            let builder = Cluster::builder("ready").name("n1").bind("10.0.0.1:7400");
            let builder = builder.memory(&MemoryNetwork::new()).profile(Profile::local());
            let cluster = change(builder.found()).start().await.unwrap();
            let readiness = Readiness::of(cluster.clone());
            is_ready(&readiness).await;
            assert_eq!(readiness.why_not(), None);
            let lost = of_events(cluster, false).check().await.unwrap_err();
            assert!(lost.contains("no majority answers this node"), "{lost}");
        }
    }

    #[tokio::test]
    async fn a_node_that_has_left_or_stopped_says_so_and_not_that_it_comes_back() {
        for leaves in [true, false] {
            let cluster = cluster(&MemoryNetwork::new(), 1, true).await;
            let readiness = Readiness::of(cluster.clone());
            is_ready(&readiness).await;
            match leaves {
                true => cluster.leave().await.unwrap(),
                false => cluster.abort(),
            }
            until(|| readiness.said.over.load(Ordering::Relaxed)).await;
            assert_eq!(readiness.check().await.unwrap_err(), OVER);
        }
    }

    /// After a standstill of the process the last event may still say that there is a lease.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_without_its_lease_is_not_ready_whatever_its_events_said_last() {
        let weather = Weather::new(1);
        let air = weather.clone();
        tokio::spawn(async move { air.carry().await });
        let node = cluster(weather.network(), 1, true).await;
        let others = [
            cluster(weather.network(), 2, false).await,
            cluster(weather.network(), 3, false).await,
        ];
        let all = || {
            let view = node.view();
            view.is_some_and(|view| view.members.len() == 3)
        };
        until(all).await;
        let readiness = of_events(node.clone(), true);
        is_ready(&readiness).await;
        let here = node.addr();
        for other in others.iter().map(Cluster::addr) {
            weather.change(here, other, |path| path.cut = true);
            weather.change(other, here, |path| path.cut = true);
        }
        let refused = async {
            loop {
                match readiness.check().await {
                    Ok(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                    Err(reason) => break reason,
                }
            }
        };
        let reason = timeout(SOON, refused).await.expect("it is refused");
        assert!(reason.contains("no majority answers this node"), "{reason}");
    }

    #[tokio::test]
    async fn a_second_node_of_a_name_says_that_it_is_not_admitted_and_why() {
        let network = MemoryNetwork::new();
        let first = cluster(&network, 1, true).await;
        until(|| first.view().is_some()).await;
        let builder = Cluster::builder("test").name("n1").bind("10.0.0.2:7400");
        let builder = builder.memory(&network).profile(Profile::local());
        let second = builder.seeds(["10.0.0.1:7400"]).start().await.unwrap();
        let readiness = Readiness::of(second);
        let says = || {
            readiness
                .why_not()
                .is_some_and(|reason| reason.contains("the name n1 is taken"))
        };
        until(says).await;
        assert!(
            readiness
                .why_no_view()
                .unwrap()
                .contains("does not admit this node")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_refused_only_when_the_node_was_not_ready_for_a_while() {
        let network = MemoryNetwork::new();
        let looks = Readiness::of(cluster(&network, 2, false).await);
        let begun = Instant::now();
        let failure = looks.wait(std::future::pending::<()>()).await.unwrap_err();
        assert!(failure.reason.contains("there is no cluster yet"), "{failure:?}");
        let waited = begun.elapsed();
        assert!((PATIENCE..2 * PATIENCE).contains(&waited), "{waited:?}");
        // What is there in time is had, ready or not.
        let late = tokio::time::sleep(PATIENCE / 2);
        assert_eq!(looks.wait(late).await, Ok(()));
        let founder = Readiness::of(cluster(&MemoryNetwork::new(), 1, true).await);
        while founder.why_not().is_some() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let slow = tokio::time::sleep(3 * PATIENCE);
        assert_eq!(founder.wait(slow).await, Ok(()));
    }
}

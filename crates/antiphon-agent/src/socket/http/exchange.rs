//! One command of a session, and what comes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use antiphon::inspection::State;
use antiphon::{Cluster, ClusterEvent};
use antiphon_api::blocks::Reply;
use antiphon_api::{Command, Event};
use hyper::StatusCode;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::answer::{self, Answer};
use super::asked::Asked;
use super::problem::Problem;
use crate::hub::{Events, Session};
use crate::{Hub, told};

/// A session for one command. When the request is dropped, so is the session, and a wait of it ends.
pub(super) async fn once(hub: &Hub, command: Command) -> Result<Reply, Problem> {
    let (session, mut events) = hub.session()?;
    ask(&session, &mut events, command).await
}

/// One command of a session that goes on.
pub(super) async fn ask(session: &Session, events: &mut Events, command: Command) -> Result<Reply, Problem> {
    match event(session, events, command).await? {
        Event::Reply(mut reply) => match reply.error.take() {
            Some(failure) => Err(Problem::of_reply(failure, &reply)),
            None => Ok(reply),
        },
        other => Err(Problem::unavailable(format!("it was answered by {other}"))),
    }
}

/// The nodes of the cluster.
pub(super) async fn members(hub: &Hub) -> Result<Answer, Problem> {
    let reply = once(hub, Command::Members(antiphon_api::command::Members::default())).await?;
    Ok(answer::json(StatusCode::OK, &reply.view))
}

/// What is known about a node.
pub(super) async fn why(hub: &Hub, asked: &Asked) -> Result<Answer, Problem> {
    let (session, mut events) = hub.session()?;
    let node = asked.path(0).to_owned();
    let command = Command::Why(antiphon_api::command::AskWhy { node });
    // Any name may be asked for: a node that does not answer is over.
    let answered = event(&session, &mut events, command).await;
    match answered.map_err(|_| over())? {
        Event::Why { node, facts } => {
            let known = serde_json::json!({"node": node, "facts": facts});
            Ok(answer::json(StatusCode::OK, &known))
        }
        other => Err(Problem::unavailable(format!("it was answered by {other}"))),
    }
}

/// For how long it counts as known that the node has its lease. Strangers may ask for it, and must not keep
/// the node busy with that.
const KNOWN_FOR: Duration = Duration::from_millis(100);
/// A node that does not answer within this time is not ready, however many ask.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Whether the node has its lease, or does without. Its events say so, and are too late after a standstill
/// of the process. So the node itself is asked, too, which looks at the clock.
#[derive(Debug)]
pub(super) struct Lease {
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
}

impl Lease {
    pub(super) fn of(cluster: Cluster) -> Self {
        let said = Arc::<Said>::default();
        let mut follows = JoinSet::new();
        follows.spawn(follow(cluster, said.clone()));
        Self {
            said,
            known: AsyncMutex::default(),
            _follows: follows,
        }
    }

    async fn is_held(&self, cluster: &Cluster) -> bool {
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
            let examined = cluster.observer().examine().await;
            let leased = examined.is_ok_and(
                |examined| matches!(&examined.inspection.state, State::Seated(seated) if seated.leased),
            );
            *known = Some((Instant::now(), leased));
            leased
        };
        timeout(ANSWERS_WITHIN, asked).await.unwrap_or(false)
    }
}

async fn follow(cluster: Cluster, said: Arc<Said>) {
    let mut events = cluster.events();
    while let Some(event) = events.next().await {
        match event {
            ClusterEvent::Lease { held: now } => {
                said.was_held.fetch_or(now, Ordering::Relaxed);
                said.held.store(now, Ordering::Relaxed);
            }
            // Each incarnation begins without it.
            ClusterEvent::Incarnation(_) => said.held.store(false, Ordering::Relaxed),
            // A new stream begins with the present state.
            ClusterEvent::Overrun => events = cluster.events(),
            _ => {}
        }
    }
    said.over.store(true, Ordering::Relaxed);
}

/// Whether this node may act for the cluster.
pub(super) async fn ready(hub: &Hub, lease: &Lease) -> Result<Answer, Problem> {
    if hub.is_closing() {
        return Err(Problem::unavailable("this node is leaving: ask another one"));
    }
    // Before the view, which may change meanwhile.
    let is_held = lease.is_held(hub.cluster()).await;
    let view = hub.cluster().view();
    match view.map(|view| told::node_view(&view, &hub.names_now())) {
        Some(view) if view.primary && !is_held => Err(Problem::unavailable(
            "no majority answers this node: the others may go on without it",
        )),
        Some(view) if view.primary => {
            let ready =
                serde_json::json!({"ready": true, "view": view.number, "members": view.members.len()});
            Ok(answer::json(StatusCode::OK, &ready))
        }
        Some(_) => Err(Problem::unavailable(
            "this node is in a component without a majority: see GET /v1/members",
        )),
        None if lease.said.over.load(Ordering::Relaxed) => Err(over()),
        None if lease.said.was_held.load(Ordering::Relaxed) => Err(Problem::unavailable(
            "this node was removed from the cluster, and comes back by itself: ask another one, or wait",
        )),
        None => Err(Problem::unavailable(
            "there is no cluster yet: wait until the node has found it",
        )),
    }
}

fn over() -> Problem {
    Problem::unavailable("this node has left the cluster, or has stopped: ask another one")
}

/// What answers a command.
async fn event(session: &Session, events: &mut Events, command: Command) -> Result<Event, Problem> {
    session.obey(command).await;
    loop {
        match events.next().await {
            Some(Event::Error { reason, .. }) => return Err(Problem::refused(reason)),
            Some(event @ (Event::Reply(_) | Event::Why { .. })) => return Ok(event),
            Some(_) => {}
            None => return Err(Problem::unavailable("this node is leaving: ask another one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use antiphon::memory::{MemoryNetwork, Weather};
    use antiphon::{Builder, Policy, Profile};

    use super::*;
    use crate::testing::{SOON, cluster, until};

    /// What events said last, and nobody follows any more.
    fn of_events(held: bool) -> Lease {
        let said = Said {
            held: AtomicBool::new(held),
            ..Said::default()
        };
        Lease {
            said: Arc::new(said),
            known: AsyncMutex::default(),
            _follows: JoinSet::new(),
        }
    }

    async fn is_ready(hub: &Hub, lease: &Lease, expected: bool) {
        let becomes = async {
            while ready(hub, lease).await.is_ok() != expected {
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
            let hub = Hub::new(change(builder.found()).start().await.unwrap());
            let lease = Lease::of(hub.cluster().clone());
            is_ready(&hub, &lease, true).await;
            let lost = of_events(false);
            let problem = ready(&hub, &lost).await.unwrap_err();
            assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
        }
    }

    #[tokio::test]
    async fn a_node_that_has_left_or_stopped_says_so_and_not_that_it_comes_back() {
        for leaves in [true, false] {
            let hub = Hub::new(cluster(&MemoryNetwork::new(), 1, true).await);
            let lease = Lease::of(hub.cluster().clone());
            is_ready(&hub, &lease, true).await;
            match leaves {
                true => hub.cluster().leave().await.unwrap(),
                false => hub.cluster().abort(),
            }
            until(|| lease.said.over.load(Ordering::Relaxed)).await;
            let failure = format!("{:?}", ready(&hub, &lease).await.unwrap_err());
            assert!(
                failure.contains("has left the cluster, or has stopped"),
                "{failure}"
            );
        }
    }

    /// After a standstill of the process the last event may still say that there is a lease.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_without_its_lease_is_not_ready_whatever_its_events_said_last() {
        let weather = Weather::new(1);
        let air = weather.clone();
        tokio::spawn(async move { air.carry().await });
        let hub = Hub::new(cluster(weather.network(), 1, true).await);
        let others = [
            cluster(weather.network(), 2, false).await,
            cluster(weather.network(), 3, false).await,
        ];
        let all = || {
            let view = hub.cluster().view();
            view.is_some_and(|view| view.members.len() == 3)
        };
        until(all).await;
        let lease = of_events(true);
        is_ready(&hub, &lease, true).await;
        let here = hub.cluster().addr();
        for other in others.iter().map(Cluster::addr) {
            weather.change(here, other, |path| path.cut = true);
            weather.change(other, here, |path| path.cut = true);
        }
        let refused = async {
            loop {
                match ready(&hub, &lease).await {
                    Ok(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                    Err(problem) => break problem,
                }
            }
        };
        let problem = timeout(SOON, refused).await.expect("it is refused");
        let failure = format!("{problem:?}");
        assert!(failure.contains("no majority answers this node"), "{failure}");
    }
}

//! One command of a session, and what comes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use antiphon::{Cluster, ClusterEvent};
use antiphon_api::blocks::Reply;
use antiphon_api::{Command, Event};
use hyper::StatusCode;
use tokio::task::JoinSet;

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
    match event(&session, &mut events, command).await? {
        Event::Why { node, facts } => {
            let known = serde_json::json!({"node": node, "facts": facts});
            Ok(answer::json(StatusCode::OK, &known))
        }
        other => Err(Problem::unavailable(format!("it was answered by {other}"))),
    }
}

/// Whether the node has its lease, or does without. It is followed: strangers may ask for it, and must not
/// keep the node busy with that.
#[derive(Debug)]
pub(super) struct Lease {
    held: Arc<AtomicBool>,
    _follows: JoinSet<()>,
}

impl Lease {
    pub(super) fn of(cluster: Cluster) -> Self {
        let held = Arc::new(AtomicBool::new(false));
        let mut follows = JoinSet::new();
        follows.spawn(follow(cluster, held.clone()));
        Self {
            held,
            _follows: follows,
        }
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

async fn follow(cluster: Cluster, held: Arc<AtomicBool>) {
    let mut events = cluster.events();
    while let Some(event) = events.next().await {
        match event {
            ClusterEvent::Lease { held: now } => held.store(now, Ordering::Relaxed),
            // Each incarnation begins without it.
            ClusterEvent::Incarnation(_) => held.store(false, Ordering::Relaxed),
            // A new stream begins with the present state.
            ClusterEvent::Overrun => events = cluster.events(),
            _ => {}
        }
    }
}

/// Whether this node may act for the cluster.
pub(super) fn ready(hub: &Hub, lease: &Lease) -> Result<Answer, Problem> {
    if hub.is_closing() {
        return Err(Problem::unavailable("this node is leaving: ask another one"));
    }
    let view = hub.cluster().view();
    match view.map(|view| told::node_view(&view, &hub.names_now())) {
        Some(view) if view.primary && !lease.is_held() => Err(Problem::unavailable(
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
        None => Err(Problem::unavailable(
            "there is no cluster yet: wait until the node has found it",
        )),
    }
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
    use antiphon::memory::MemoryNetwork;
    use antiphon::{Builder, Policy, Profile};

    use super::*;
    use crate::testing::until;

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
            until(|| ready(&hub, &lease).is_ok()).await;
            let lost = Lease {
                held: Arc::default(),
                _follows: JoinSet::new(),
            };
            let problem = ready(&hub, &lost).unwrap_err();
            assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
        }
    }
}

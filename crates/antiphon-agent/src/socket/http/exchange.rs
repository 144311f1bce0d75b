//! One command of a session, and what comes of it.

use antiphon_api::blocks::Reply;
use antiphon_api::{Command, Event};
use hyper::StatusCode;

use super::answer::{self, Answer};
use super::asked::Asked;
use super::problem::Problem;
use crate::Hub;
use crate::hub::{Events, Session};
use crate::ready::OVER;

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
    match answered.map_err(|_| Problem::unavailable(OVER))? {
        Event::Why { node, facts } => {
            let known = serde_json::json!({"node": node, "facts": facts});
            Ok(answer::json(StatusCode::OK, &known))
        }
        other => Err(Problem::unavailable(format!("it was answered by {other}"))),
    }
}

/// Whether this node may act for the cluster. A stranger learns no addresses and names of nodes.
pub(super) async fn ready(hub: &Hub, stranger: bool) -> Result<Answer, Problem> {
    if hub.is_closing() {
        return Err(Problem::unavailable("this node is leaving: ask another one"));
    }
    let view = hub.readiness().check().await.map_err(|reason| {
        let may_know = !stranger || hub.cluster().view().is_some();
        Problem::unavailable(if may_know { &reason } else { IN_NO_VIEW })
    })?;
    let ready = serde_json::json!({"ready": true, "view": view.number, "members": view.members.len()});
    Ok(answer::json(StatusCode::OK, &ready))
}

const IN_NO_VIEW: &str = "this node is in no view of the cluster: ask another one, or wait; its log says why";

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

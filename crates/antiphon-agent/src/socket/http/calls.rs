//! Requests to members, commands to peers, counters, and ids: one command each.

use antiphon_api::Command;
use antiphon_api::blocks::{Add, Call, Id, TakeIds, To, Word};
use antiphon_api::commands::{self, Way};
use hyper::StatusCode;
use serde_json::json;

use super::answer::{self, Answer};
use super::asked::Asked;
use super::body::Unread;
use super::exchange::once;
use super::problem::Problem;
use crate::Hub;

pub(super) async fn call(hub: &Hub, asked: &Asked, body: Unread) -> Result<Answer, Problem> {
    let to = to(asked.needed("to", asked.text("to"))?)?;
    let within = asked.span("within")?;
    let command = Command::Call(Call {
        group: asked.path(0).to_owned(),
        verb: asked.path(1).to_owned(),
        to,
        payload: Some(asked.payload(body, "payload").await?),
        within,
        // Only a client with a connection of its own is told requests.
        request: None,
        id: None,
    });
    let reply = once(hub, command).await?;
    let all = json!({"replies": reply.replies.unwrap_or_default(), "failures": reply.failures, "ran": "yes"});
    Ok(answer::json(StatusCode::OK, &all))
}

fn to(text: &str) -> Result<To, Problem> {
    match text {
        "all" => Ok(To::Word(Word::All)),
        "any" => Ok(To::Word(Word::Any)),
        names if names.split(',').all(|name| !name.is_empty()) => {
            Ok(To::Names(names.split(',').map(str::to_owned).collect()))
        }
        _ => Err(Problem::refused(
            "to is all, any, or names of nodes with commas between them",
        )),
    }
}

/// A command to peers.
pub(super) async fn command(hub: &Hub, asked: &Asked, body: Unread) -> Result<Answer, Problem> {
    let to = match asked.needed("to", asked.text("to"))? {
        "all" => commands::To::Word(commands::Word::All),
        "one" => commands::To::Word(commands::Word::One),
        "any" => commands::To::Word(commands::Word::Any),
        names => commands::To::Nodes(names.split(',').map(str::to_owned).collect()),
    };
    let by = match asked.text("by") {
        None => Way::default(),
        Some(word) => Way::of(word).ok_or_else(|| {
            let ways = Way::ALL.map(Way::word).join(", ");
            Problem::refused(format!("by is one of: {ways}"))
        })?,
    };
    let reply = asked.text("reply").is_none() || asked.flag("reply")?;
    let command = Command::Command(commands::Ask {
        verb: asked.path(0).to_owned(),
        args: asked.object(body).await?,
        to,
        by,
        reply,
        within: asked.span("within")?,
        // Without one there is a reply only to what could not be handed over.
        id: Some(Id::Number(0)),
    });
    // Of a command that is only handed over this is not known.
    let ran = if reply { "yes" } else { "maybe" };
    let reply = once(hub, command).await?;
    let all = json!({"replies": reply.replies.unwrap_or_default(), "failures": reply.failures, "ran": ran});
    Ok(answer::json(StatusCode::OK, &all))
}

/// What commands to peers did.
pub(super) async fn commands(hub: &Hub) -> Result<Answer, Problem> {
    let reply = once(hub, Command::Commands(commands::AskStatus::default())).await?;
    Ok(answer::json(StatusCode::OK, &reply.commands))
}

pub(super) async fn add(hub: &Hub, asked: &Asked) -> Result<Answer, Problem> {
    let command = Command::Add(Add {
        counter: asked.path(0).to_owned(),
        by: asked.number("by")?.unwrap_or(1),
        id: None,
    });
    let reply = once(hub, command).await?;
    let counter = json!({"value": reply.value, "version": reply.version});
    Ok(answer::json(StatusCode::OK, &counter))
}

pub(super) async fn take_ids(hub: &Hub, asked: &Asked) -> Result<Answer, Problem> {
    let count = asked.number("count")?.unwrap_or(1);
    let reply = once(hub, Command::TakeIds(TakeIds { count, id: None })).await?;
    Ok(answer::json(
        StatusCode::OK,
        &json!({"first": reply.first, "count": count}),
    ))
}

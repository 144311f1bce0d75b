//! Maps: a key is a resource, its version its entity tag.

use antiphon_api::blocks::{Code, Failure, Get, Put, Remove, Reply, Serial, Value, Watch};
use antiphon_api::{Command, Payload};
use hyper::StatusCode;
use serde_json::json;

use super::answer::{self, Answer};
use super::asked::{Asked, Tags};
use super::body::Unread;
use super::exchange::{ask, once};
use super::problem::Problem;
use super::sse;
use super::wire::Busy;
use crate::Hub;

pub(super) async fn get(hub: &Hub, asked: &Asked) -> Result<Answer, Problem> {
    let (wanted, known) = (asked.if_match()?, asked.if_none_match()?);
    let reply = read(hub, asked, asked.flag("latest")?).await?;
    if wanted.is_some_and(|wanted| !wanted.has(reply.version)) {
        return Err(Problem::of_reply(conflict(), &reply));
    }
    if known.is_some_and(|known| known.has(reply.version)) {
        let unchanged = answer::empty(StatusCode::NOT_MODIFIED);
        return Ok(answer::tagged(unchanged, reply.version));
    }
    value(asked, reply)
}

pub(super) async fn put(hub: &Hub, asked: &Asked, body: Unread) -> Result<Answer, Problem> {
    let if_version = if_version(hub, asked).await?;
    let ttl = asked.span("ttl")?;
    let command = Command::Put(Put {
        map: asked.path(0).to_owned(),
        key: asked.path(1).to_owned(),
        value: asked.payload(body, "value").await?,
        if_version,
        ttl,
        id: None,
    });
    let reply = once(hub, command).await?;
    let answer = answer::json(StatusCode::OK, &json!({"version": reply.version}));
    Ok(answer::tagged(answer, reply.version))
}

pub(super) async fn remove(hub: &Hub, asked: &Asked) -> Result<Answer, Problem> {
    if asked.if_none_match()?.is_some() {
        return Err(Problem::refused(
            "what is not there cannot be removed: leave If-None-Match out",
        ));
    }
    let command = Command::Remove(Remove {
        map: asked.path(0).to_owned(),
        key: asked.path(1).to_owned(),
        if_version: if_version(hub, asked).await?,
        id: None,
    });
    value(asked, once(hub, command).await?)
}

/// How the map changes, while the client is there.
pub(super) async fn watch(hub: &Hub, asked: &Asked, busy: Busy) -> Result<Answer, Problem> {
    let (session, mut events) = hub.session()?;
    let command = Command::Watch(Watch {
        map: asked.path(0).to_owned(),
        key: asked.text("key").map(str::to_owned),
        prefix: asked.text("prefix").map(str::to_owned),
        id: None,
    });
    ask(&session, &mut events, command).await?;
    Ok(answer::events(sse::Stream::new(session, events, busy)))
}

/// What the key of a request has: as this node's copy says, or with `latest` as the cluster does.
async fn read(hub: &Hub, asked: &Asked, latest: bool) -> Result<Reply, Problem> {
    let command = Command::Get(Get {
        map: asked.path(0).to_owned(),
        key: asked.path(1).to_owned(),
        latest,
        id: None,
    });
    once(hub, command).await
}

/// The condition of a write.
async fn if_version(hub: &Hub, asked: &Asked) -> Result<Option<Serial>, Problem> {
    match (asked.if_match()?, asked.if_none_match()?) {
        (None, None) => Ok(None),
        // No value has this version.
        (None, Some(Tags::Any)) => Ok(Some(Serial(0))),
        (Some(Tags::These(tags)), None) if tags.len() < 2 => match tags.first() {
            Some((_, version)) => Ok(*version),
            // Its tag is weak, or no version of this map. The answer has the version that is there, as if the
            // write had been tried.
            None => Err(Problem::of_reply(conflict(), &read(hub, asked, true).await?)),
        },
        _ => Err(Problem::refused(
            "a write depends on one version, If-Match: \"VERSION\", or on there being none, If-None-Match: *",
        )),
    }
}

fn conflict() -> Failure {
    let reason = "If-Match does not hold: another version is there, or none; get it, and decide anew";
    Failure::nothing_done(Code::Conflict, reason)
}

/// What a key has, or had.
fn value(asked: &Asked, reply: Reply) -> Result<Answer, Problem> {
    let Some(Value::Bytes(value)) = reply.value else {
        let (map, key) = (asked.path(0), antiphon_api::shortened(asked.path(1)));
        return Err(Problem::not_found(format!(
            "the map {map} has no value for {key}"
        )));
    };
    let answer = match asked.wants_json() {
        true => answer::json(StatusCode::OK, &json!({"value": value, "version": reply.version})),
        false => answer::bytes(raw(value)?),
    };
    Ok(answer::tagged(answer, reply.version))
}

fn raw(payload: Payload) -> Result<bytes::Bytes, Problem> {
    // A node tells no file and only base64 that it wrote.
    payload.into_bytes().map_err(Problem::unavailable)
}

//! Commands to peers and of them, as sessions speak of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_api::blocks::{Code, Failure, Ran, Reply};
use antiphon_api::commands::{Ask, Asked, To as Told, Word};
use antiphon_api::{Event, Payload};
use antiphon_commands::deliver::{Request, Serving};
use antiphon_commands::{Command, Commands, Replies, To};

use crate::blocks::{Desk, Operation, not_done};

/// Hands a command over, and replies when it is over everywhere.
pub(crate) async fn ask(commands: &Commands, ask: Ask, mut operation: Operation) {
    let command = Command {
        verb: ask.verb,
        args: ask.args,
        to: match ask.to {
            Told::Word(Word::All) => To::All,
            Told::Word(Word::One) => To::One,
            Told::Word(Word::Any) => To::Any,
            Told::Nodes(names) => To::Nodes(names),
        },
        way: ask.by,
        reply: ask.reply,
        within: ask.within.map(|within| within.0),
    };
    let handed = match commands.hand_over(command) {
        Ok(handed) => handed,
        Err(failure) => {
            operation.reply(not_done(failure)).await;
            return;
        }
    };
    if !ask.reply {
        operation.reply(Reply::default()).await;
        return;
    }
    tokio::spawn(async move {
        let done = operation.wait(Ran::Maybe, handed.replies()).await;
        let reply = done.map_or_else(not_done, told);
        operation.reply(reply).await;
    });
}

fn told(all: Replies) -> Reply {
    let replies = all
        .replies
        .iter()
        .map(|(node, reply)| (node.clone(), Payload::from_bytes(reply)));
    let replies: BTreeMap<_, _> = replies.collect();
    let error = replies.is_empty().then(|| {
        let ran = all.failures.values().map(|failure| failure.ran);
        Failure {
            ran: ran.max_by_key(|ran| *ran as u8).unwrap_or(Ran::No),
            ..Failure::nothing_done(Code::Failed, "no node did it: `failures` says why each")
        }
    });
    Reply {
        replies: Some(replies),
        failures: all.failures,
        error,
        ..Reply::default()
    }
}

/// A session serves a verb, until the returned value is dropped.
pub(crate) fn serve(commands: &Commands, verb: &str, desk: &Arc<Desk>) -> Result<Serving, Failure> {
    let desk = Arc::downgrade(desk);
    commands.serve(verb, move |request| {
        let desk = desk.upgrade();
        Box::pin(async move {
            match desk {
                Some(desk) => desk.hand(|number| line(number, request)).await,
                None => Err("the program that serves this has gone".into()),
            }
        })
    })
}

fn line(number: u64, request: Request) -> Event {
    Event::Command(Asked {
        request: number,
        verb: request.verb,
        from: request.from,
        args: request.args,
        within_ms: u64::try_from(request.time_left.as_millis()).unwrap_or(u64::MAX),
    })
}

pub(crate) fn status(commands: &Commands) -> Reply {
    let status = serde_json::to_value(commands.status()).unwrap_or_default();
    Reply {
        commands: Some(Box::new(status)),
        ..Reply::default()
    }
}

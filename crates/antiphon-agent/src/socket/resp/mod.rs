//! RESP, as Redis and its clients speak it: commands of Redis where they mean the same here, and `AP.…` for
//! the rest.
//!
//! ```text
//!   bytes ─► decode ─► talk: each command in turn ─┬─► redis, channels, ours ─► Session
//!                          (table: which there are) │                              │ events
//!   bytes ◄─ encode ◄───── said: window, groups ◄───┴── known at once              │
//!                            ▲ shape: replies                                      │
//!                            └─────────────────────────────────────────────────────┘
//! ```
//! - [`decode`], [`encode`]: bytes and values;
//! - [`table`]: the commands, for the connection and for `COMMAND`;
//! - [`auth`]: what a connection says before it has shown a token;
//! - [`talk`]: reads commands and has each begin; [`redis`], [`server`], [`channels`], [`ours`]: what each
//!   does;
//! - [`window`]: replies in the order of the commands; [`shape`]: how each looks;
//! - [`said`]: what is told to the session, as replies and pushes, and writes that have begun without a
//!   worker.
//!
//! `docs/resp.md` says which commands there are, and how each differs from that of Redis.
//!
//! # What holds
//! - **Replies come in the order of the commands**, whenever the result of each is known. Commands begin in
//!   their order, and up to [`window::MAX_COMMANDS`] are under way.
//! - **A read has the writes before it.** A read of a key waits for the writes of its connection to that key;
//!   then it reads this node's copy, without a message.
//! - **A command that may wait for other programs is alone**: `AP.LOCK`, `AP.LEAD`, `AP.CALL`. No command
//!   behind it begins before it is over, as behind Redis' BLPOP. A command that enters or leaves a group is
//!   alone, too.
//! - **Pushes stand between replies**, in the order in which they were told. A token is replied before its
//!   loss is pushed.
//!
//! # Bounds
//! [`decode::MAX_ARGUMENTS`], [`decode::MAX_ARGUMENT_BYTES`], [`decode::MAX_COMMAND_BYTES`],
//! [`decode::MAX_INLINE_BYTES`]; beyond them the connection ends with `Protocol error`, as Redis has it. No
//! command begins while [`window::MAX_BYTES`] of replies wait. A program that does not read is sent away
//! after [`READ_WITHIN`](super::READ_WITHIN).
//!
//! # What happens when…
//! | what | then |
//! |---|---|
//! | the connection ends | what was read still begins; what it waits for is given [`PART_WITHIN`](super::PART_WITHIN); then the session is over |
//! | `QUIT` | the same, and the session has left in order |
//! | `RESET` | the session is over, and the connection has another one |
//! | no majority | commands are replied to with `-UNAVAILABLE`, or when it is back |
//! | a group is lost, or its node was away | members are pushed `ap.lost`, `ap.resync`; a channel is pushed `unsubscribe`, or nothing |

mod auth;
mod channels;
pub(super) mod decode;
mod encode;
mod ours;
mod redis;
mod said;
mod server;
mod shape;
mod table;
mod talk;
#[cfg(test)]
mod tests;
mod window;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use antiphon::clients::Departure;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::auth::{Gate, Patience};
use self::said::Said;
use self::talk::{End, Input, Talk};
use super::counted::Counted;
use super::hand::Hand;
use super::{Connection, PART_WITHIN, READ_WITHIN, write_all};
use crate::Hub;
use crate::access::Visitor;
use crate::hub::{Events, Session};
use crate::metrics::Meters;

/// Bytes written at once, if there are so many.
const WRITE_BYTES: usize = 64 << 10;

/// For a connection with a first line that is too long.
pub(super) const TOO_LONG: &str = "-ERR Protocol error: too big inline request\r\n";
/// For a connection that there is no place for.
pub(super) const FULL: &str = "-ERR max number of clients reached\r\n";

/// Whether there is a command of this name.
#[cfg(test)]
pub(super) fn has(command: &str) -> bool {
    table::find(command.as_bytes()).is_some()
}

/// What both directions of a connection share.
#[derive(Debug, Default)]
struct Shared {
    said: Mutex<Said>,
    /// Something is to be written.
    written: Notify,
    /// Something was told, or there is room.
    changed: Notify,
}

impl Shared {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves it until one of both ends.
pub(super) async fn serve(
    stream: Counted<impl Connection + 'static>,
    first: &[u8],
    hub: Hub,
    mut session: Session,
    mut events: Events,
    visitor: &Visitor,
) {
    let half_said = stream.said();
    let reader = Hand::new(Box::new(stream));
    let mut writer = reader.clone();
    let mut input = Input::new(reader, half_said, first);
    let mut shared = Shared::default();
    let mut writing = Writing::default();
    let mut patience = Patience::default();
    loop {
        let mut talk = Talk::new(&hub, &session, &shared, Gate::new(visitor, patience));
        let (ended, reads_within) = {
            let mut run = pin!(talk.run(&mut input));
            tokio::select! {
                biased;
                ended = &mut run => (ended, READ_WITHIN),
                slow = write(&mut writer, &mut events, (&shared, hub.meters()), &mut writing) => {
                    // A program that has gone may have said something before, perhaps that it leaves.
                    let has_gone = slow == super::ends::ended();
                    let leaves = has_gone && heard_out(run, &mut events, (&shared, hub.meters())).await;
                    (End::Left(if leaves { Departure::Left } else { slow }), PART_WITHIN)
                }
            }
        };
        patience = talk.gate.patience_left();
        // The rest of what was being written, too: the write may have been dropped in the middle.
        let mut rest = std::mem::take(&mut writing).left().to_vec();
        rest.append(&mut shared.said().out);
        match ended {
            End::Left(departure) => {
                session.ends_for(departure);
                drop(session);
                // Others know. A program that has said all may still read.
                let _ = timeout(reads_within, write_all(&mut writer, &rest)).await;
                input.half_said.end();
                let _ = timeout(PART_WITHIN, super::part(&mut input.reader, &mut writer)).await;
                return;
            }
            End::Reset => {
                session.ends_for(Departure::Left);
                drop(session);
                if write_all(&mut writer, &rest).await.is_err() {
                    return;
                }
                let Ok(next) = hub.session() else {
                    let _ = timeout(PART_WITHIN, write_all(&mut writer, FULL.as_bytes())).await;
                    return;
                };
                (session, events) = next;
                shared = Shared::default();
                shared.said().ready(|to| to.simple("RESET"));
                shared.written.notify_one();
            }
        }
    }
}

/// What was taken to be written, and how much of it was.
#[derive(Default)]
struct Writing {
    bytes: Vec<u8>,
    written: usize,
}

impl Writing {
    fn left(&self) -> &[u8] {
        &self.bytes[self.written..]
    }
}

/// Appends what is there to the bytes to write: replies to what has begun, and events. Pending if that is
/// nothing; otherwise whether other replies are still to come.
fn poll_take(events: &mut Events, (shared, meters): (&Shared, &Meters), cx: &mut Context<'_>) -> Poll<bool> {
    let mut said = shared.said();
    // What is full is written first: nothing is taken before that.
    let mut taken = said.out.len() >= WRITE_BYTES;
    taken |= said.poll_begun(cx, meters).is_ready();
    while said.out.len() < WRITE_BYTES
        && let Poll::Ready(Some(event)) = events.poll_next(cx)
    {
        said.told(event);
        taken = true;
    }
    match taken {
        true => Poll::Ready(!said.window.is_empty() && said.out.len() < WRITE_BYTES),
        false => Poll::Pending,
    }
}

/// Does what a program said that has gone, for a moment. Nobody reads the replies, so that those of later
/// commands have room. Whether it said that it leaves.
async fn heard_out(
    run: impl Future<Output = End>,
    events: &mut Events,
    (shared, meters): (&Shared, &Meters),
) -> bool {
    let drained = poll_fn(|cx| {
        while poll_take(events, (shared, meters), cx).is_ready() {
            shared.said().out.clear();
            shared.changed.notify_one();
        }
        Poll::<()>::Pending
    });
    tokio::select! {
        biased;
        ended = timeout(PART_WITHIN, run) => matches!(ended, Ok(End::Left(Departure::Left))),
        () = drained => false,
    }
}

/// Writes replies and pushes; returns why it cannot.
async fn write(
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    events: &mut Events,
    (shared, meters): (&Shared, &Meters),
    writing: &mut Writing,
) -> Departure {
    let mut take = async |wait: bool| {
        poll_fn(|cx| match poll_take(events, (shared, meters), cx) {
            Poll::Pending if !wait => Poll::Ready(false),
            taken => taken,
        })
        .await
    };
    loop {
        std::mem::swap(&mut shared.said().out, &mut writing.bytes);
        if !writing.bytes.is_empty() {
            shared.changed.notify_one();
            while !writing.left().is_empty() {
                match super::write(writer, writing.left()).await {
                    Ok(written) => writing.written += written,
                    Err(departure) => return departure,
                }
            }
            if let Err(departure) = super::flush(writer).await {
                return departure;
            }
            writing.written = 0;
            writing.bytes.clear();
            // A long reply leaves no long memory behind.
            writing.bytes.shrink_to(WRITE_BYTES);
            continue;
        }
        tokio::select! {
            biased;
            others_come = take(true) => {
                if others_come {
                    // The results of other commands from the same time come a moment later: one write for
                    // all.
                    tokio::task::yield_now().await;
                    take(false).await;
                }
                shared.changed.notify_one();
            }
            () = shared.written.notified() => {}
        }
    }
}

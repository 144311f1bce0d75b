//! Where a session's events go.

use std::sync::Arc;
use std::task::{Context, Poll};

use antiphon_api::blocks::{Reply, Value};
use antiphon_api::{Event, Payload, View, commands};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::pipe::Pipe;
use crate::stdio::Printer;

/// Events that wait for a carrier.
const MAX_EVENTS: usize = 1024;
/// Bytes that wait for a carrier; one event may have more.
const MAX_BYTES: usize = 256 << 10;
/// What a refused request counts that its program is told again.
const ECHOED_BYTES: usize = 8 * 4096;
/// What an event counts beside its payloads.
const EVENT_BYTES: usize = 200;

/// A session's end of the way to its program: bounded, so a task with an event waits while the program is
/// behind.
#[derive(Debug, Clone)]
pub(crate) enum Outlet {
    /// Standard output.
    Printed(Printer),
    /// A carrier takes them.
    Queued(Queue),
    /// A carrier takes their text.
    Written(Pipe),
}

impl Outlet {
    pub(crate) async fn print(&self, event: Event) {
        match self {
            Outlet::Printed(printer) => printer.print(&event).await,
            Outlet::Queued(queue) => queue.push(event).await,
            Outlet::Written(pipe) => pipe.print(&event).await,
        }
    }
}

/// The end of a queue that events go into.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    events: mpsc::Sender<(Event, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

impl Queue {
    async fn push(&self, event: Event) {
        let bytes = weight(&event).min(MAX_BYTES) as u32;
        // Never closed.
        if let Ok(room) = self.room.clone().acquire_many_owned(bytes).await {
            // Fails only when the session is over, and no carrier reads any more.
            let _ = self.events.send((event, room)).await;
        }
    }
}

/// What a session is told, for its carrier. It ends with the session.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<(Event, OwnedSemaphorePermit)>);

impl Events {
    /// The next event; none when the session is over.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await.map(|(event, _)| event)
    }

    /// The same for a carrier that polls.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(context).map(|next| next.map(|(event, _)| event))
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.try_recv().ok().map(|(event, _)| event)
    }
}

/// Both ends of a queue.
pub(crate) fn queue() -> (Queue, Events) {
    let (events, taken) = mpsc::channel(MAX_EVENTS);
    let room = Arc::new(Semaphore::new(MAX_BYTES));
    (Queue { events, room }, Events(taken))
}

fn of_argument(value: &commands::Value) -> usize {
    match value {
        commands::Value::Text(text) => text.len(),
        _ => 8,
    }
}

fn of_view(view: &View) -> usize {
    let lists = [
        &view.members,
        &view.joined,
        &view.left,
        &view.crashed,
        &view.transitional,
    ];
    let names = lists.into_iter().chain(&view.synced).flatten();
    // Each name beside its string.
    names.map(|name| name.len() + 24).sum()
}

/// About how many bytes it keeps.
fn weight(event: &Event) -> usize {
    let of = Payload::len;
    EVENT_BYTES
        + match event {
            Event::Message(message) | Event::Told(message) => of(&message.payload),
            // A payload costs a place, too.
            Event::Bundle(bundle) => bundle.payloads.bytes() + 8 * bundle.payloads.len(),
            // What is echoed is short.
            Event::Refused { .. } | Event::Error { .. } => ECHOED_BYTES,
            Event::Changed(changed) => changed.key.len() + changed.value.as_ref().map_or(0, of),
            Event::Request(request) => of(&request.payload),
            Event::Command(asked) => {
                let of = |(name, value): (&String, &commands::Value)| name.len() + of_argument(value) + 24;
                asked.args.iter().map(of).sum()
            }
            Event::View(view) => of_view(view),
            Event::Reply(Reply {
                group_view: Some(view),
                ..
            }) => of_view(view),
            Event::Reply(Reply { view: Some(view), .. }) => 200 * view.members.len(),
            Event::Why { facts, .. } => facts.iter().map(String::len).sum(),
            Event::Reply(Reply {
                value: Some(Value::Bytes(payload)),
                ..
            }) => of(payload),
            Event::Reply(Reply {
                replies: Some(replies),
                ..
            }) => replies.values().map(of).sum(),
            _ => 0,
        }
}

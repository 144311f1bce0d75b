//! Server-sent events: what a session is told, as long as its client is there.
//!
//! The stream owns the session. If the client is gone or does not read, hyper drops the stream. Then the
//! session is over: it leaves its groups and gives back what it held.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use antiphon_api::Event;
use antiphon_api::blocks::{Kind, Lost};
use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::answer::Never;
use super::wire::Busy;
use crate::hub::{Events, Session};

/// How often something is written to a client while there is nothing to tell.
pub(super) const ALIVE_EACH: Duration = Duration::from_secs(15);
/// Bytes in one piece, if there are so many.
const PIECE_BYTES: usize = 64 << 10;

/// A body of events.
#[derive(Debug)]
pub(super) struct Stream {
    session: Session,
    events: Events,
    alive: Interval,
    busy: Busy,
    is_over: bool,
}

impl Stream {
    pub(super) fn new(session: Session, events: Events, busy: Busy) -> Self {
        let mut alive = interval(ALIVE_EACH);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            session,
            events,
            alive,
            busy,
            is_over: false,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(slow) = self.busy.departure() {
            self.session.ends_for(slow);
        }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        let mut piece = Vec::new();
        while piece.len() < PIECE_BYTES && !this.is_over {
            match this.events.poll_next(context) {
                Poll::Ready(Some(event)) => {
                    this.is_over = is_last(&event);
                    write(&mut piece, &event);
                }
                Poll::Ready(None) => this.is_over = true,
                Poll::Pending => break,
            }
        }
        // The first tick is at once: so the client sees that it is served.
        if piece.is_empty() && !this.is_over && this.alive.poll_tick(context).is_ready() {
            // For the next one.
            let _ = this.alive.poll_tick(context);
            piece.extend_from_slice(b":\n\n");
        }
        match (piece.is_empty(), this.is_over) {
            (true, true) => Poll::Ready(None),
            (true, false) => Poll::Pending,
            (false, _) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
        }
    }
}

/// Whether nothing comes after it.
fn is_last(event: &Event) -> bool {
    matches!(
        event,
        Event::GroupLeft { .. }
            | Event::Lost(Lost {
                what: Kind::Group | Kind::Watch,
                ..
            })
    )
}

/// An event with its name, and its JSON as data.
fn write(into: &mut Vec<u8>, event: &Event) {
    let json = event.to_json();
    // It begins with its name, as an event's tag.
    let name = json
        .strip_prefix(r#"{"event":""#)
        .and_then(|rest| rest.split('"').next());
    into.extend_from_slice(b"event: ");
    into.extend_from_slice(name.unwrap_or("event").as_bytes());
    into.extend_from_slice(b"\ndata: ");
    into.extend_from_slice(json.as_bytes());
    into.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_name_and_one_line_of_data() {
        let mut text = Vec::new();
        let group = "a\nb".to_owned();
        write(&mut text, &Event::GroupLeft { group });
        let expected = "event: group_left\ndata: {\"event\":\"group_left\",\"group\":\"a\\nb\"}\n\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}

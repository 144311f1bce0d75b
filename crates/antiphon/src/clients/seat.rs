//! What waits for one client: the events it has not taken, and what of them it may take.
//!
//! While the lease of its node is over (R7), and after the membership that an event came in has ended, a
//! client is given only what tells it to stop. The inbox of the group does the same to what its reader has
//! not taken.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use super::handle::ClientEvent;

/// What an event counts beside its payload, and beside the members of a view.
pub(super) const EVENT_BYTES: usize = 64;
const MEMBER_BYTES: usize = 16;
/// A client takes no more at once, unless one event has more.
const BATCH_BYTES: usize = 64 << 10;
/// Events that wait for a client, however small: beyond that nothing is taken from the group.
pub(super) const MAX_WAITING: usize = 1 << 14;

/// A client of this node.
pub(super) struct Seat {
    pub(super) queue: VecDeque<Waiting>,
    pub(super) bytes: usize,
    /// How many events wait, each message of a bundle counted that is told alone.
    pub(super) waiting: usize,
    /// How many were told.
    pub(super) told: u64,
    pub(super) arrived: Arc<Notify>,
    pub(super) crowded: Option<Crowded>,
    /// It takes bundles whole.
    pub(super) takes_bundles: bool,
    /// It is told messages.
    pub(super) hears: bool,
    /// It is told what all are told.
    pub(super) is_in: bool,
    /// It has come in before.
    pub(super) was_in: bool,
    /// It was slow: what is said until it is out is not for it.
    pub(super) is_slow: bool,
    /// Nothing follows what waits.
    pub(super) is_over: bool,
}

/// Much waits for a client.
#[derive(Clone, Copy)]
pub(super) struct Crowded {
    /// Since when, in microseconds.
    pub(super) since: u64,
    /// The last message of the group that waited then.
    pub(super) last: u64,
    /// It has taken as much as it must when so many events were told to it.
    pub(super) enough: u64,
}

/// An event that a client has not taken.
pub(super) struct Waiting {
    /// The message of the group that it came with.
    pub(super) number: u64,
    /// What was taken from the group before.
    pub(super) behind: u64,
    pub(super) event: ClientEvent,
}

impl Seat {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            waiting: 0,
            told: 0,
            arrived: Arc::default(),
            crowded: None,
            takes_bundles: false,
            hears: true,
            is_in: false,
            was_in: false,
            is_slow: false,
            is_over: false,
        }
    }

    pub(super) fn push(&mut self, number: u64, behind: u64, event: &ClientEvent) {
        if self.is_in && !self.is_slow {
            self.bytes += bytes(event);
            self.waiting += self.events_of(event);
            self.queue.push_back(Waiting {
                number,
                behind,
                event: event.clone(),
            });
            self.arrived.notify_one();
        }
    }

    /// How many events it is told for this one.
    fn events_of(&self, event: &ClientEvent) -> usize {
        match event {
            ClientEvent::Bundle(bundle) if !self.takes_bundles => bundle.len(),
            _ => 1,
        }
    }

    /// Sets how it takes bundles, those that wait too.
    pub(super) fn take_bundles(&mut self, takes: bool) {
        self.takes_bundles = takes;
        let waiting = self.queue.iter().map(|waiting| self.events_of(&waiting.event));
        self.waiting = waiting.sum();
    }

    /// Takes what is first: so many events at most, and no event more once they have so many bytes.
    pub(super) fn take(&mut self, into: &mut Vec<ClientEvent>, limit: usize) -> usize {
        let (mut count, mut weight) = (0, 0);
        while count < limit
            && let Some(waiting) = self.queue.front_mut()
        {
            let waits = bytes(&waiting.event);
            let event = match &mut waiting.event {
                _ if count > 0 && weight >= BATCH_BYTES => break,
                // One of them at a time; the last one takes the bundle with it.
                ClientEvent::Bundle(bundle) if !self.takes_bundles && bundle.len() > 1 => {
                    let part = bundle.next().map(ClientEvent::Message);
                    self.bytes -= waits - bytes(&waiting.event);
                    part
                }
                _ if count > 0 && weight + waits > BATCH_BYTES => break,
                _ => {
                    let last = self.queue.pop_front().map(|waiting| waiting.event);
                    self.bytes -= waits;
                    last.map(|event| self.alone(event))
                }
            };
            count += 1;
            weight += event.as_ref().map_or(0, bytes);
            into.extend(event);
        }
        self.waiting -= count;
        self.told += count as u64;
        count
    }

    /// Takes the first event that tells the client to stop. All before it is dropped, unless the membership
    /// may go on: then the client takes it when the lease is back.
    pub(super) fn take_stop(&mut self, into: &mut Vec<ClientEvent>, limit: usize) -> usize {
        let stop = self
            .queue
            .iter()
            .position(|waiting| tells_to_stop(&waiting.event));
        let Some(stop) = stop.filter(|_| limit > 0) else {
            return 0;
        };
        let dropped = match self.queue[stop].event {
            ClientEvent::Suspended => 0,
            _ => stop,
        };
        for waiting in self.queue.drain(..dropped).collect::<Vec<_>>() {
            self.took(&waiting.event);
        }
        let Some(waiting) = self.queue.remove(stop - dropped) else {
            return 0;
        };
        self.took(&waiting.event);
        into.push(waiting.event);
        1
    }

    /// Drops what waits, except events that tell the client to stop.
    pub(super) fn drop_void(&mut self) {
        for waiting in std::mem::take(&mut self.queue) {
            match tells_to_stop(&waiting.event) {
                true => self.queue.push_back(waiting),
                false => self.took(&waiting.event),
            }
        }
    }

    /// This event does not wait any more.
    fn took(&mut self, event: &ClientEvent) {
        let count = self.events_of(event);
        self.bytes -= bytes(event);
        self.waiting -= count;
        self.told += count as u64;
    }

    /// A bundle of one message as that message, unless bundles are taken whole.
    fn alone(&self, event: ClientEvent) -> ClientEvent {
        match event {
            ClientEvent::Bundle(mut bundle) if !self.takes_bundles => {
                let last = bundle.next();
                ClientEvent::Message(last.expect("a bundle has a message as long as it waits"))
            }
            event => event,
        }
    }

    /// Whether much waits for it: of its own, or of what the group may not send before it has taken some.
    pub(super) fn is_crowded(&self, taken_bytes: u64, much_bytes: usize) -> bool {
        let behind = self.queue.front().map_or(taken_bytes, |waiting| waiting.behind);
        let kept = taken_bytes.saturating_sub(behind);
        let much = kept >= much_bytes as u64 || self.bytes >= much_bytes || self.waiting > MAX_WAITING;
        self.is_in && !self.is_slow && much
    }
}

/// Whether this tells the client to stop, or that it is out.
fn tells_to_stop(event: &ClientEvent) -> bool {
    matches!(
        event,
        ClientEvent::Suspended | ClientEvent::Resync { .. } | ClientEvent::Left { .. }
    )
}

fn bytes(event: &ClientEvent) -> usize {
    EVENT_BYTES
        + match event {
            ClientEvent::Message(message) => message.payload.len(),
            ClientEvent::Bundle(bundle) => bundle.payloads.bytes(),
            ClientEvent::View(view) => {
                MEMBER_BYTES * (view.members.len() + view.joined.len() + view.departed.len())
            }
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resync() -> ClientEvent {
        ClientEvent::Resync {
            cause: "removed".into(),
        }
    }

    fn transitional() -> ClientEvent {
        ClientEvent::Transitional {
            members: Arc::default(),
        }
    }

    fn seat(events: &[ClientEvent]) -> Seat {
        let mut seat = Seat::new();
        seat.is_in = true;
        for (number, event) in (1..).zip(events) {
            seat.push(number, 0, event);
        }
        seat
    }

    #[test]
    fn without_the_lease_a_client_is_told_to_stop_and_what_a_suspension_came_before_waits() {
        let mut seat = seat(&[transitional(), ClientEvent::Suspended, transitional()]);
        let mut told = Vec::new();
        assert_eq!(seat.take_stop(&mut told, 0), 0, "it asks for nothing");
        assert_eq!(seat.take_stop(&mut told, 9), 1);
        assert_eq!(seat.take_stop(&mut told, 9), 0);
        assert_eq!(seat.take(&mut told, 9), 2);
        assert!(matches!(
            told[..],
            [
                ClientEvent::Suspended,
                ClientEvent::Transitional { .. },
                ClientEvent::Transitional { .. }
            ]
        ));
        assert_eq!((seat.bytes, seat.waiting), (0, 0));
    }

    #[test]
    fn what_waits_before_the_end_of_a_membership_is_dropped_with_it() {
        let mut seat = seat(&[transitional(), resync(), transitional()]);
        let mut told = Vec::new();
        assert_eq!(seat.take_stop(&mut told, 9), 1);
        assert!(matches!(told[..], [ClientEvent::Resync { .. }]));
        assert_eq!(seat.waiting, 1, "what came after it");
        seat.push(9, 0, &resync());
        seat.drop_void();
        assert_eq!(seat.take(&mut told, 9), 1);
        assert!(matches!(told[1..], [ClientEvent::Resync { .. }]));
        assert_eq!((seat.bytes, seat.waiting), (0, 0));
    }
}

//! The machine behind a lock, with the [seat](super::seat) of each client.
//!
//! The lock is never held across an await. Each event that waits for a client has the number of the group's
//! message that it came with. The credit for a message goes back when no event of it or of an earlier message
//! waits for any client. With the end of a membership all credit goes back: only then the group takes this
//! node in again.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use antiphon_core::Ticket;
use antiphon_core::wire::{Incarnation, Level, Member};
use antiphon_replica::clients::{
    BundleWriter, Client as Entry, ClientView as MachineView, Clients as Machine, Departure, Event as Told,
    HEADER_BYTES, Refusal,
};
use tokio::sync::{Notify, watch};

use super::handle::{ClientBundle, ClientEvent, ClientMember, ClientMessage, ClientSendError, ClientView};
use super::seat::{Crowded, EVENT_BYTES, MAX_WAITING, Seat};
use crate::driven::core_view;
use crate::host::Host;
use crate::{Event, GroupSender, MAX_PAYLOAD_BYTES, Outcome, SendError};

/// What handles, clients and the task share.
pub(super) struct Shared {
    pub(super) sender: GroupSender,
    pub(super) host: Host,
    name: Arc<str>,
    slow_after: Duration,
    /// How much must wait for a client before it may count as slow.
    much_bytes: usize,
    /// The most bytes of a payload.
    pub(super) largest: usize,
    inside: Mutex<Inside>,
    /// The task is to come round.
    pub(super) wake: Notify,
    /// No handle is left.
    pub(super) dropped: Notify,
    ended: watch::Sender<bool>,
}

struct Inside {
    machine: Machine,
    me: Incarnation,
    /// How many of its removals this member has read of.
    epoch: u64,
    /// How often what waited in the group's inbox had become void when it last read of one.
    voided: u64,
    /// Of the present view and of the one before.
    nodes: BTreeMap<Incarnation, Arc<Member>>,
    seats: BTreeMap<u32, Seat>,
    /// Messages taken from the group.
    taken: u64,
    /// What they count.
    taken_bytes: u64,
    /// Messages for which credit was given back.
    given: u64,
    /// Messages up to the end of the last membership: no credit is kept for them.
    base: u64,
    /// What the machine has under way.
    sent: Option<(u64, Ticket)>,
    /// A client came in, or is out: what it wanted to say need not wait for that any more.
    changed: bool,
    leaves: bool,
    ended: bool,
}

/// What a client says.
#[derive(Clone, Copy)]
pub(super) enum Said<'a> {
    One(&'a [u8]),
    Bundle(&'a BundleWriter),
}

/// What the task has to wait for.
pub(super) struct Need {
    pub(super) room: bool,
    pub(super) leaves: bool,
    /// Much waits for some client.
    pub(super) crowded: bool,
    /// So much that nothing more is to be taken.
    pub(super) full: bool,
}

/// The handles' side.
impl Shared {
    pub(super) fn enter(&self, name: &str) -> Result<u32, Refusal> {
        let mut inside = self.inside();
        if inside.ended || inside.leaves {
            return Err(Refusal::NotIn);
        }
        let number = inside.machine.enter(name)?;
        inside.seats.insert(number, Seat::new());
        drop(inside);
        self.wake.notify_one();
        Ok(number)
    }

    pub(super) fn leave(&self, number: u32, departure: Departure) {
        let mut inside = self.inside();
        inside.machine.leave(number, departure);
        inside.hand_out(&self.name);
        inside.changed = true;
        self.tell_changed(&mut inside);
        drop(inside);
        self.wake.notify_one();
    }

    pub(super) fn take_bundles(&self, number: u32, takes: bool) {
        if let Some(seat) = self.inside().seats.get_mut(&number) {
            seat.take_bundles(takes);
        }
        // What waits may be fewer events now.
        self.wake.notify_one();
    }

    pub(super) fn set_hears(&self, number: u32, hears: bool) {
        if let Some(seat) = self.inside().seats.get_mut(&number) {
            seat.hears = hears;
        }
    }

    /// The reader of this client is gone.
    pub(super) fn forget(&self, number: u32) {
        let mut inside = self.inside();
        inside.seats.remove(&number);
        self.give_back(&mut inside);
        drop(inside);
        self.leave(number, Departure::Left);
    }

    /// While the lease is over (R7), a client is given only what tells it to stop.
    pub(super) async fn next(&self, number: u32, into: &mut Vec<ClientEvent>, limit: usize) -> usize {
        loop {
            // Made before the bound is asked, so that it is not missed when the lease is back.
            let lease_back = self.sender.room().notified();
            let (arrived, late) = {
                let mut inside = self.inside();
                let late = self.sender.is_late_in(inside.epoch);
                let Some(seat) = inside.seats.get_mut(&number) else {
                    return 0;
                };
                let was_full = seat.waiting > MAX_WAITING;
                let count = match late {
                    true => seat.take_stop(into, limit),
                    false => seat.take(into, limit),
                };
                if count > 0 || limit == 0 || seat.is_over {
                    if was_full && seat.waiting <= MAX_WAITING {
                        self.wake.notify_one();
                    }
                    self.give_back(&mut inside);
                    return count;
                }
                (seat.arrived.clone(), late)
            };
            tokio::select! {
                biased;
                () = arrived.notified() => {}
                () = lease_back, if late => {}
            }
        }
    }

    pub(super) async fn came_in(&self, number: u32) {
        loop {
            let mut changed = pin!(self.sender.room().notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if !self.inside().is_on_its_way(number) {
                return;
            }
            changed.await;
        }
    }

    /// Waits for room, and for the first view of a client that is on its way.
    pub(super) async fn say(
        &self,
        number: u32,
        said: Said<'_>,
        level: Level,
    ) -> Result<Ticket, ClientSendError> {
        loop {
            match self.try_say(number, said, level) {
                Err(ClientSendError::Group(SendError::Full)) => {}
                said => return said,
            }
            let mut room = pin!(self.sender.room().notified());
            // From here on no room is missed.
            room.as_mut().enable();
            match self.try_say(number, said, level) {
                Err(ClientSendError::Group(SendError::Full)) => room.await,
                said => return said,
            }
        }
    }

    fn try_say(&self, number: u32, said: Said<'_>, level: Level) -> Result<Ticket, ClientSendError> {
        let limit = self.largest;
        let length = match said {
            Said::One(payload) => payload.len(),
            Said::Bundle(bundle) => bundle.bytes(),
        };
        if length > limit {
            return Err(ClientSendError::Group(SendError::TooLarge { limit }));
        }
        // Under the lock: what it says comes before its departure.
        let inside = self.inside();
        if inside.is_on_its_way(number) {
            return Err(ClientSendError::Group(SendError::Full));
        }
        let refused = ClientSendError::Refused;
        let sent = match said {
            Said::One(payload) => {
                let said = inside.machine.say(number, payload).map_err(refused)?;
                self.sender.try_send_in(inside.epoch, &said, level)
            }
            Said::Bundle(bundle) => {
                inside.machine.may_say(number).map_err(refused)?;
                self.sender.try_send_in(inside.epoch, bundle.said(), level)
            }
        };
        sent.map_err(ClientSendError::Group)
    }

    pub(super) fn ask_to_leave(&self) {
        self.inside().leaves = true;
        self.wake.notify_one();
    }

    pub(super) async fn ended(&self) {
        // The sender is part of `self`, so waiting cannot fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.sender.spawn(task);
    }
}

/// The task's side.
impl Shared {
    pub(super) fn new(sender: GroupSender, name: &str, slow_after: Duration, window_bytes: usize) -> Self {
        let host = sender.host();
        let me = sender.incarnation();
        Self {
            sender: sender.without_hold(),
            host,
            name: name.into(),
            slow_after,
            much_bytes: window_bytes / 4,
            // What is larger would be an object, which messages overtake.
            largest: MAX_PAYLOAD_BYTES.min(window_bytes) - HEADER_BYTES,
            inside: Mutex::new(Inside {
                machine: Machine::new(me),
                me,
                epoch: 0,
                voided: 0,
                nodes: BTreeMap::new(),
                seats: BTreeMap::new(),
                taken: 0,
                taken_bytes: 0,
                given: 0,
                base: 0,
                sent: None,
                changed: false,
                leaves: false,
                ended: false,
            }),
            wake: Notify::new(),
            dropped: Notify::new(),
            ended: watch::Sender::default(),
        }
    }

    /// Takes what the group delivered, and does what follows from it.
    pub(super) fn take(&self, events: &mut Vec<Event>) -> Need {
        let mut inside = self.inside();
        // What was void before belongs to another membership.
        if events
            .iter()
            .any(|event| matches!(event, Event::View(_) | Event::Resync { .. }))
        {
            inside.voided = self.sender.voided();
        }
        for event in events.drain(..) {
            inside.handle(event, &self.name);
        }
        let mut room = false;
        let (epoch, sender) = (inside.epoch, &self.sender);
        let mut sent = None;
        inside.machine.outputs(|output| {
            let level = if output.safe { Level::Safe } else { Level::Agreed };
            match sender.try_send_in(epoch, &output.payload, level) {
                Ok(ticket) => sent = Some((output.number, ticket)),
                Err(error) => room = error == SendError::Full,
            }
            sent.is_some()
        });
        if sent.is_some() {
            inside.sent = sent;
        }
        inside.hand_out(&self.name);
        self.tell_changed(&mut inside);
        self.give_back(&mut inside);
        Need {
            room,
            leaves: inside.leaves,
            crowded: self.is_crowded(&inside),
            // A client that is out gets nothing more, however slowly it reads what it has. While the lease is
            // over no client may read, and the group gives only what tells them to stop.
            full: !self.sender.is_late_in(inside.epoch)
                && inside
                    .seats
                    .values()
                    .any(|seat| seat.is_in && seat.waiting > MAX_WAITING),
        }
    }

    /// Takes the fate of what the machine has under way, if it is known.
    pub(super) fn poll_receipt(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inside = self.inside();
        let Some((number, ticket)) = inside.sent else {
            return Poll::Pending;
        };
        let Poll::Ready(outcome) = self.sender.poll_fate(ticket, cx) else {
            return Poll::Pending;
        };
        inside.sent = None;
        inside.machine.handle_receipt(number, outcome);
        match outcome {
            // It is, or will be, among the events.
            Outcome::Delivered => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }

    fn is_crowded(&self, inside: &Inside) -> bool {
        let mut seats = inside.seats.values();
        seats.any(|seat| seat.is_crowded(inside.taken_bytes, self.much_bytes))
    }

    /// Removes the clients that have not taken in time what waited for them.
    pub(super) fn remove_slow(&self) {
        let now = self.host.micros();
        let limit = u64::try_from(self.slow_after.as_micros()).unwrap_or(u64::MAX);
        let mut inside = self.inside();
        let inside = &mut *inside;
        if self.sender.is_late_in(inside.epoch) {
            // No client may read now.
            inside.seats.values_mut().for_each(|seat| seat.crowded = None);
            return;
        }
        for (number, seat) in &mut inside.seats {
            let front = seat.queue.front().map_or(0, |waiting| waiting.number);
            let has_taken = |then: Crowded| front > then.last || seat.told >= then.enough;
            if !seat.is_crowded(inside.taken_bytes, self.much_bytes) || seat.crowded.is_some_and(has_taken) {
                seat.crowded = None;
            }
            if !seat.is_crowded(inside.taken_bytes, self.much_bytes) {
                continue;
            }
            let now_crowded = Crowded {
                since: now,
                last: inside.taken,
                enough: seat.told + seat.waiting.min(MAX_WAITING) as u64,
            };
            let crowded = *seat.crowded.get_or_insert(now_crowded);
            if now.saturating_sub(crowded.since) > limit {
                seat.is_slow = true;
                (seat.bytes, seat.waiting) = (0, 0);
                seat.queue.clear();
                let within = self.slow_after.as_secs();
                let cause = format!("slow: it did not take what waited for it within {within} s");
                inside.machine.leave(*number, Departure::lost(cause));
            }
        }
    }

    /// Before the group is left: the task waits for no client any more.
    pub(super) fn give_all_back(&self) {
        let mut inside = self.inside();
        inside.base = u64::MAX;
        self.give_back(&mut inside);
    }

    /// Nothing more happens: the group was left, or the task was dropped with its node.
    pub(super) fn finish(&self) {
        let mut inside = self.inside();
        inside.ended = true;
        if inside.voided != self.sender.voided() {
            inside.drop_void();
        }
        let cause = match std::thread::panicking() {
            true => "the task of its node's clients has panicked",
            false => "its node has left the group, or stopped",
        };
        inside.machine.handle_end(cause);
        inside.hand_out(&self.name);
        self.tell_changed(&mut inside);
        drop(inside);
        self.ended.send_replace(true);
    }

    /// Wakes what waits to say something, if clients came in or are out.
    fn tell_changed(&self, inside: &mut Inside) {
        if std::mem::take(&mut inside.changed) {
            self.sender.room().notify_waiters();
        }
    }

    /// Gives back the credit for messages that wait for no client any more.
    fn give_back(&self, inside: &mut Inside) {
        // A client that is out gets nothing more: so what waits for it is bounded, and needs no credit.
        let seats = inside.seats.values().filter(|seat| !seat.is_over);
        let fronts = seats.filter_map(|seat| seat.queue.front());
        let waits = fronts.map(|waiting| waiting.number.saturating_sub(1)).min();
        let floor = waits.unwrap_or(inside.taken).max(inside.base).min(inside.taken);
        if floor > inside.given {
            self.sender.give_back(floor - inside.given);
            inside.given = floor;
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Another task's panic is one of ours, and the machine is whole between its calls.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Its first view is still to come. A client that was in and is not knows that, or is about to be told.
    fn is_on_its_way(&self, number: u32) -> bool {
        self.seats.get(&number).is_some_and(|seat| !seat.was_in) && self.machine.is_entering(number)
    }

    fn handle(&mut self, event: Event, group: &Arc<str>) {
        match event {
            Event::View(view) => {
                if view.me != self.me {
                    self.me = view.me;
                    self.machine
                        .handle_resync(view.me, "it is back as a fresh incarnation");
                    self.hand_out(group);
                }
                let now = &view.members;
                let gone = |incarnation: &Incarnation| {
                    let departed = view.left.iter().chain(&view.crashed);
                    now.iter()
                        .chain(departed)
                        .any(|member| member.incarnation == *incarnation)
                };
                self.nodes.retain(|incarnation, _| gone(incarnation));
                let known = now.iter().chain(&view.left).chain(&view.crashed);
                self.nodes
                    .extend(known.map(|member| (member.incarnation, member.clone())));
                self.machine.handle_view(&core_view(&view));
            }
            Event::Message(message) => {
                self.taken += 1;
                self.taken_bytes += (EVENT_BYTES / 4 + message.payload.len()) as u64;
                self.machine
                    .handle_message(message.sender.incarnation, &message.payload);
                if let Some(told) = self.machine.poll_event() {
                    self.tell(told, (message.seq, message.safe), group);
                }
            }
            Event::Transitional { members } => {
                let members: Vec<Incarnation> = members.iter().map(|member| member.incarnation).collect();
                self.machine.handle_transitional(&members);
            }
            Event::Suspended => self.machine.handle_suspended(),
            Event::Resync { cause } => {
                self.epoch += 1;
                self.sent = None;
                self.base = self.taken;
                self.drop_void();
                self.machine.handle_resync(self.me, &cause);
            }
            Event::Refused { reason } => self.machine.handle_end(&reason),
            // No node sends direct messages in a group of clients; the end follows when the task has ended.
            Event::Told(_) | Event::Left => {}
        }
        self.hand_out(group);
    }

    /// The membership is over: what waits for clients is of a state that the others have left behind.
    fn drop_void(&mut self) {
        self.seats.values_mut().for_each(Seat::drop_void);
    }

    /// Gives each client what the machine tells.
    fn hand_out(&mut self, group: &Arc<str>) {
        while let Some(told) = self.machine.poll_event() {
            self.tell(told, (0, false), group);
        }
    }

    fn tell(&mut self, told: Told, (seq, safe): (u64, bool), group: &Arc<str>) {
        let event = match told {
            Told::Entered { number } => {
                if let Some(seat) = self.seats.get_mut(&number) {
                    (seat.is_in, seat.was_in) = (true, true);
                }
                self.changed = true;
                return;
            }
            Told::Gone { number, departure } => {
                self.changed = true;
                if let Some(seat) = self.seats.get_mut(&number) {
                    (seat.is_in, seat.is_slow) = (true, false);
                    seat.push(self.taken, self.taken_bytes, &ClientEvent::Left { departure });
                    (seat.is_in, seat.is_over) = (false, true);
                }
                return;
            }
            Told::View(view) => ClientEvent::View(Arc::new(self.view(&view))),
            Told::Message { from, view, payload } => ClientEvent::Message(ClientMessage {
                from: self.member(&from),
                view,
                seq,
                part: 0,
                safe,
                payload,
            }),
            Told::Bundle { from, view, messages } => ClientEvent::Bundle(ClientBundle {
                from: self.member(&from),
                view,
                seq,
                safe,
                payloads: messages,
                part: 0,
            }),
            Told::Transitional { members } => {
                let members = members.iter().map(|client| self.member(client));
                ClientEvent::Transitional {
                    members: Arc::new(members.collect()),
                }
            }
            Told::Suspended => ClientEvent::Suspended,
            Told::Resync { cause } => ClientEvent::Resync { cause: cause.into() },
            Told::Malformed { from, what } => {
                tracing::warn!(target: "antiphon::clients", %group, ?from, expected = what, "a message makes no sense");
                return;
            }
        };
        let is_said = matches!(event, ClientEvent::Message(_) | ClientEvent::Bundle(_));
        for seat in self.seats.values_mut().filter(|seat| seat.hears || !is_said) {
            seat.push(self.taken, self.taken_bytes, &event);
            if let ClientEvent::Resync { .. } = event {
                seat.is_in = false;
            }
        }
    }

    fn view(&self, view: &MachineView) -> ClientView {
        let all = |clients: &[Arc<Entry>]| clients.iter().map(|client| self.member(client)).collect();
        let departed = view.departed.iter();
        ClientView {
            id: view.id,
            members: all(&view.members),
            joined: all(&view.joined),
            departed: departed
                .map(|(client, departure)| (self.member(client), departure.clone()))
                .collect(),
        }
    }

    fn member(&self, client: &Arc<Entry>) -> ClientMember {
        let node = self.nodes.get(&client.id.node);
        ClientMember {
            node: node
                .expect("clients are those of members, or of such as have just gone")
                .clone(),
            client: client.clone(),
        }
    }
}

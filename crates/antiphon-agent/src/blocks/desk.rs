//! The operations under way: by their ids, each with its place, its time, and one reply.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon::Incarnation;
use antiphon::calls::{MAX_CALL_BYTES, Request, RequestId};
use antiphon_api::blocks::{Code, Failure, Id, Ran, Reply, Span};
use antiphon_api::{Event, Payload, blocks, shortened};
use antiphon_commands::deliver::NoReply;
use antiphon_commands::list::MAX_REPLY_BYTES;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::failure::not_done;
use super::writes::Writes;
use super::{LATE, MAX_BYTES, MAX_LONG, MAX_QUICK, MAX_WATCHES};
use crate::metrics::Meters;
use crate::outlet::Outlet;
use crate::ready::{PATIENCE, Readiness};
use crate::{Hub, Names};

/// The longest id that is a string.
const MAX_ID_BYTES: usize = 64;

/// How an operation is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The operation waits for nothing but the cluster: stdin waits for its place.
    Quick,
    /// The operation may wait for other programs: without a place it is refused.
    Long,
    /// The same, of watches.
    Watch,
    /// It is over when it was read.
    AtOnce,
}

/// What all operations of one session share.
#[derive(Debug)]
pub(crate) struct Desk {
    outlet: Outlet,
    /// Its operations are refused rather than to wait for a majority, unless they say for how long they wait.
    hurries: bool,
    readiness: Arc<Readiness>,
    /// The session is over: operations that wait for other programs are cancelled, and what is held is given
    /// back.
    over: watch::Sender<bool>,
    names: Arc<Mutex<Names>>,
    meters: Arc<Meters>,
    quick: Arc<Semaphore>,
    long: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// Of calls: each keeps them until its replies have come.
    call_bytes: Arc<Semaphore>,
    /// Without what cancels it once that was used.
    open: Mutex<BTreeMap<Id, Option<oneshot::Sender<()>>>>,
    requests: Mutex<Requests>,
    writes: Arc<Writes>,
}

/// Requests of members that wait for an answer of this program.
#[derive(Debug, Default)]
struct Requests {
    last: u64,
    open: BTreeMap<u64, Waiting>,
}

/// A request that the program has not answered.
#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<Bytes, Bytes>>,
    /// The group of calls, and the request there. None: a command, and no call can be made within it.
    call: Option<(String, RequestId)>,
    /// The most bytes of the answer.
    most: usize,
}

impl Desk {
    pub(crate) fn new(outlet: Outlet, hurries: bool, hub: &Hub) -> Self {
        Self {
            outlet,
            hurries,
            readiness: hub.readiness().clone(),
            over: watch::Sender::new(false),
            names: hub.names().clone(),
            meters: hub.meters().clone(),
            quick: Arc::new(Semaphore::new(MAX_QUICK)),
            long: Arc::new(Semaphore::new(MAX_LONG)),
            watches: Arc::new(Semaphore::new(MAX_WATCHES)),
            bytes: Arc::new(Semaphore::new(MAX_BYTES)),
            call_bytes: Arc::new(Semaphore::new(MAX_BYTES)),
            open: Mutex::default(),
            requests: Mutex::default(),
            writes: Arc::default(),
        }
    }

    /// The session is over: nothing more is told.
    pub(crate) fn close(&self) {
        self.over.send_replace(true);
        self.requests().open.clear();
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Returns when the session is over.
    pub(crate) async fn until_over(&self) {
        // The sender is part of `self`, so waiting cannot fail.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Gives an operation its place; none if it was refused, and replied to.
    ///
    /// # Errors
    /// The id is of no use, and why.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        op: &'static str,
        id: Option<Id>,
        kind: Kind,
        within: Option<Duration>,
    ) -> Result<Option<Operation>, String> {
        if let Some(Id::Text(text)) = &id
            && text.len() > MAX_ID_BYTES
        {
            return Err(format!(
                "an id that is a string has at most {MAX_ID_BYTES} bytes: {}",
                shortened(text)
            ));
        }
        if let Some(id) = &id
            && self.open().contains_key(id)
        {
            return Err(format!(
                "an operation with the id {id} is under way: give each its own, or wait for its reply"
            ));
        }
        let place = match kind {
            // Never closed.
            Kind::Quick => self.quick.clone().acquire_owned().await.ok(),
            Kind::Long => self.long.clone().try_acquire_owned().ok(),
            Kind::Watch => self.watches.clone().try_acquire_owned().ok(),
            Kind::AtOnce => None,
        };
        let refused = place.is_none() && kind != Kind::AtOnce;
        let cancelled = id.clone().map(|id| {
            let (cancel, cancelled) = oneshot::channel();
            self.open().insert(id, Some(cancel));
            cancelled
        });
        let operation = Operation {
            desk: self.clone(),
            op,
            id,
            kind,
            cancelled,
            since: Instant::now(),
            until: within.and_then(|within| Instant::now().checked_add(within)),
            within,
            places: place.into_iter().collect(),
        };
        if refused {
            let most = if kind == Kind::Watch {
                MAX_WATCHES
            } else {
                MAX_LONG
            };
            let reason = format!(
                "{most} such operations are under way: wait for a reply, give something back, or cancel one"
            );
            operation
                .reply(not_done(Failure::nothing_done(Code::Unavailable, reason)))
                .await;
            return Ok(None);
        }
        Ok(Some(operation))
    }

    /// Ends an operation that waits, or a watch.
    pub(super) fn cancel(&self, of: &Id) -> Reply {
        let cancel = self.open().get_mut(of).and_then(Option::take);
        // Fails only if its reply is on its way.
        match cancel.map(|cancel| cancel.send(())) {
            Some(Ok(())) => Reply::default(),
            _ => not_done(Failure::nothing_done(
                Code::NotHeld,
                format!("no operation with the id {of} is under way: it was replied to, or never asked for"),
            )),
        }
    }

    /// Hands a member's request to the program, and waits for its answer.
    pub(super) async fn ask(self: Arc<Self>, group: String, mut request: Request) -> Result<Bytes, Bytes> {
        let from = self.name(request.id.from);
        let verb = std::mem::take(&mut request.verb);
        let call = (group.clone(), request.id);
        let line = |number| {
            Event::Request(blocks::Request {
                group,
                request: number,
                verb,
                from,
                payload: Payload::from_bytes(&request.payload),
                within_ms: u64::try_from(request.time_left.as_millis()).unwrap_or(u64::MAX),
            })
        };
        let answered = self.hand(Some(call), MAX_CALL_BYTES, line).await;
        answered.map_err(|no_reply| match no_reply {
            NoReply::Failed(error) => error,
            NoReply::Gone | NoReply::NotHanded => {
                request.give_up(no_reply == NoReply::Gone);
                Bytes::new()
            }
        })
    }

    /// Hands something to the program under a number, and waits for its answer to that. If this future is
    /// dropped first, the program is told that nobody waits any more. Until then the program may make calls
    /// within the request `call` of that group.
    pub(crate) async fn hand(
        self: Arc<Self>,
        call: Option<(String, RequestId)>,
        most: usize,
        line: impl FnOnce(u64) -> Event,
    ) -> Result<Bytes, NoReply> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut requests = self.requests();
            // What comes later is not cleared any more.
            if self.is_over() {
                return Err(NoReply::NotHanded);
            }
            requests.last += 1;
            let number = requests.last;
            requests.open.insert(number, Waiting { answer, call, most });
            number
        };
        // Whatever ends it.
        let mut forget = Forget {
            desk: self.clone(),
            number,
            told: false,
        };
        self.print(line(number)).await;
        forget.told = true;
        match answered.await {
            Ok(answer) => answer.map_err(NoReply::Failed),
            // The session has ended.
            Err(_) => Err(NoReply::Gone),
        }
    }

    /// The most bytes of an answer to this request.
    pub(super) fn answer_limit(&self, number: u64) -> usize {
        let requests = self.requests();
        let waiting = requests.open.get(&number);
        // One that nobody waits for is told so.
        waiting.map_or(MAX_REPLY_BYTES as usize, |waiting| waiting.most)
    }

    /// The program's answer to a request.
    pub(super) fn answer(&self, number: u64, failed: bool, data: Bytes) -> Reply {
        let waiting = self.requests().open.remove(&number);
        let result = if failed { Err(data) } else { Ok(data) };
        match waiting.map(|waiting| waiting.answer.send(result)) {
            Some(Ok(())) => Reply::default(),
            _ => not_done(does_not_wait(number)),
        }
    }

    /// The request with this number, for a call of the program that is made within it.
    pub(super) fn request(&self, number: u64, group: &str) -> Result<RequestId, Failure> {
        let requests = self.requests();
        let waiting = requests.open.get(&number).ok_or_else(|| does_not_wait(number))?;
        let reason = match &waiting.call {
            Some((of, id)) if of == group => return Ok(*id),
            Some((of, _)) => {
                format!("request {number} is of group {of}: call in that group, or leave `in` out")
            }
            None => format!("request {number} is a command, and calls are not made in one: leave `in` out"),
        };
        Err(Failure::nothing_done(Code::Refused, reason))
    }

    pub(super) fn name(&self, member: Incarnation) -> String {
        self.names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .name(member)
    }

    /// The writes of the session to maps.
    pub(super) fn writes(&self) -> &Arc<Writes> {
        &self.writes
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Where events for the program go.
    pub(crate) fn outlet(&self) -> &Outlet {
        &self.outlet
    }

    /// Tells the program something, waiting while it is behind.
    pub(crate) async fn print(&self, event: Event) {
        self.outlet.print(event).await;
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Id, Option<oneshot::Sender<()>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that was answered, or is not wanted any more.
struct Forget {
    desk: Arc<Desk>,
    number: u64,
    /// The program knows of it.
    told: bool,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let unanswered = self.desk.requests().open.remove(&self.number).is_some();
        if !unanswered || !self.told {
            return;
        }
        // The program may be behind, so a task waits to tell it. No more tasks wait than there are requests
        // in what it has not read, which is bounded in bytes.
        if let Ok(runtime) = Handle::try_current() {
            let (desk, request) = (self.desk.clone(), self.number);
            runtime.spawn(async move { desk.print(Event::Cancelled { request }).await });
        }
    }
}

/// An operation under way. Its reply ends it.
#[derive(Debug)]
pub(crate) struct Operation {
    desk: Arc<Desk>,
    op: &'static str,
    id: Option<Id>,
    kind: Kind,
    /// None for an operation without an id: nobody can cancel it.
    cancelled: Option<oneshot::Receiver<()>>,
    since: Instant,
    within: Option<Duration>,
    until: Option<Instant>,
    places: Vec<OwnedSemaphorePermit>,
}

/// The place of an operation that goes on behind its reply: it holds something.
pub(crate) type Places = Vec<OwnedSemaphorePermit>;

impl Operation {
    pub(crate) fn id(&self) -> Option<Id> {
        self.id.clone()
    }

    /// Whether it has waited so long for a majority that its carrier would rather have an answer.
    pub(super) fn has_waited(&self) -> bool {
        self.desk.hurries && self.since.elapsed() >= PATIENCE
    }

    /// What did not happen in its time.
    pub(super) fn too_late(&self) -> Failure {
        let within = Span(self.within.unwrap_or_default());
        let why = self.why_not_ready();
        let why = why.unwrap_or_else(|| "give it more time, or try again".to_owned());
        Failure::nothing_done(Code::Timeout, format!("it did not happen within {within}: {why}"))
    }

    /// The group of locks has said that it was not free in its time.
    pub(super) fn held_by_another(&self) -> Failure {
        let reason = match self.within.unwrap_or_default() {
            Duration::ZERO => "it is held by another: give it time to wait, or try again".to_owned(),
            within => format!(
                "it was not free within {}, another holds it: give it more time, or try again",
                Span(within)
            ),
        };
        Failure::nothing_done(Code::Timeout, reason)
    }

    /// Why this node may not act for its cluster now, if it may not.
    pub(super) fn why_not_ready(&self) -> Option<String> {
        self.desk.readiness.why_not()
    }

    /// How much of its time is left, if it has a limit.
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.until
            .map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Waits until so many bytes more may be under way, if the operation waits for nothing but the cluster.
    /// One that may wait for other programs is not to hold up the line that ends such a wait: without room it
    /// fails. What is over when it was read takes none.
    pub(crate) async fn make_room(&mut self, bytes: usize) -> Result<(), Failure> {
        let bytes = u32::try_from(bytes.min(MAX_BYTES)).unwrap_or(u32::MAX);
        let room = match self.kind {
            _ if bytes == 0 => return Ok(()),
            Kind::AtOnce => return Ok(()),
            // Never closed.
            Kind::Quick => self.desk.bytes.clone().acquire_many_owned(bytes).await.ok(),
            Kind::Long | Kind::Watch => self.desk.call_bytes.clone().try_acquire_many_owned(bytes).ok(),
        };
        let Some(room) = room else {
            let reason = format!("calls under way have {MAX_BYTES} bytes: wait for a reply, or cancel one");
            return Err(Failure::nothing_done(Code::Unavailable, reason));
        };
        self.places.push(room);
        Ok(())
    }

    /// Waits for the operation's work, unless it is cancelled or far too late first. Then the failure says
    /// `ran`.
    pub(crate) async fn wait<T>(&mut self, ran: Ran, work: impl Future<Output = T>) -> Result<T, Failure> {
        let until = self.until.map(|until| until + LATE);
        let late = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let mut failure = tokio::select! {
            biased;
            done = work => return Ok(done),
            () = self.cancelled() => cancelled_by_program(),
            () = late => self.too_late(),
        };
        failure.ran = ran;
        Err(failure)
    }

    /// Why an operation that has not begun never will, if so.
    pub(super) fn is_over(&mut self) -> Option<Failure> {
        let cancelled = self.cancelled.as_mut();
        if cancelled.is_some_and(|cancelled| cancelled.try_recv().is_ok()) {
            return Some(cancelled_by_program());
        }
        // An operation that is not to wait at all still waits for the join.
        let grace = match self.within {
            Some(Duration::ZERO) => LATE,
            _ => Duration::ZERO,
        };
        let over = self.until.is_some_and(|until| until + grace <= Instant::now());
        if self.desk.is_over() && self.kind != Kind::Quick {
            return Some(cancelled_by_program());
        }
        over.then(|| self.too_late())
    }

    /// Returns when it is cancelled, or the session is over.
    pub(super) async fn cancelled(&mut self) {
        let asked = async {
            let asked = match &mut self.cancelled {
                Some(cancelled) => cancelled.await.is_ok(),
                None => false,
            };
            if !asked {
                std::future::pending::<()>().await;
            }
        };
        let over = async {
            // An operation that waits for nothing but the cluster is as good as done.
            match self.kind {
                Kind::Quick => std::future::pending().await,
                _ => self.desk.until_over().await,
            }
        };
        tokio::select! {
            () = asked => {}
            () = over => {}
        }
    }

    /// The desk of the session that asked for this operation.
    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Answers it. What it holds keeps its place.
    pub(crate) async fn reply(self, reply: Reply) -> Places {
        if let Some(id) = &self.id {
            self.desk.open().remove(id);
        }
        self.desk.meters.replied(self.op, reply.error.as_ref());
        let line = Event::Reply(Reply {
            op: self.op.to_owned(),
            id: self.id,
            ..reply
        });
        self.desk.print(line).await;
        self.places
    }

    /// Answers it, and goes on under its id until it is cancelled.
    pub(super) async fn reply_and_go_on(&self, reply: Reply) {
        self.desk.meters.replied(self.op, reply.error.as_ref());
        let line = Event::Reply(Reply {
            op: self.op.to_owned(),
            id: self.id.clone(),
            ..reply
        });
        self.desk.print(line).await;
    }

    /// It ends without another reply.
    pub(crate) fn end(self) {
        if let Some(id) = &self.id {
            self.desk.open().remove(id);
        }
    }
}

fn does_not_wait(number: u64) -> Failure {
    let reason =
        format!("request {number} does not wait: it was answered, its caller is gone, or its time is over");
    Failure::nothing_done(Code::NotHeld, reason)
}

fn cancelled_by_program() -> Failure {
    Failure::nothing_done(Code::Cancelled, "it was cancelled")
}

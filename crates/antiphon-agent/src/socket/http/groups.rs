//! Groups: one shared client says what requests send, and each stream of events is a client of its own.
//!
//! ```text
//!   POST ─► enter: join once, first view ─► room ─► send ─► its reply: delivered
//!                    ▲ lingers after the last request
//!   GET events ─► a session: hello, join ─► a stream, as long as its client is there
//! ```
//! # The shared client
//! If each request came as a client and went again, it would change the group's view twice, at each member.
//! So all requests of the node speak through one shared client, called [`NAME`]. It joins a group with the
//! first request, and leaves it [`LINGER`] after the last one. It reads the group's events and forgets them.
//!
//! # Bounds
//! At most [`ROOM_BYTES`] of payloads are under way in a group; further requests wait, until their clients
//! go, and those of other groups do not. Of all groups together as many messages are under way as a session
//! may have. A payload that was handed to the group is sent, whether the client of the request still waits or
//! not. The shared client is in at most as many groups as any session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use antiphon_api::blocks::{Code, Failure, Id, Kind, Reply};
use antiphon_api::{Command, Event, command};
use hyper::StatusCode;
use serde_json::json;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::answer::{self, Answer};
use super::asked::Asked;
use super::body::Unread;
use super::exchange::ask;
use super::problem::Problem;
use super::sse;
use super::wire::Busy;
use crate::Hub;
use crate::hub::{Events, MAX_JOINED, Session};

/// The name of the shared client, unless another client has it.
pub(super) const NAME: &str = "http";
/// How long it stays in a group after the last request.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// Payloads under way in one group.
const ROOM_BYTES: usize = 2 << 20;
/// The least that a message counts of `ROOM_BYTES`.
const LEAST_BYTES: usize = 4 << 10;
/// After this time a group counts as left even if it has not said so.
const LEFT_WITHIN: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_secs(1);

/// The client through which requests speak; none before the first.
#[derive(Debug)]
pub(super) struct Speaker {
    hub: Hub,
    voice: AsyncMutex<Option<Arc<Voice>>>,
}

#[derive(Debug)]
struct Voice {
    session: Session,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// The last number that was given to a stay or a command.
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Reply>>,
    stays: BTreeMap<String, Stay>,
}

/// A group that it is in.
#[derive(Debug)]
struct Stay {
    /// Which one, of those that there were. It is also the id of its join.
    number: u64,
    /// Ends with the stay.
    phase: watch::Sender<Phase>,
    requests: usize,
    /// For payloads under way. Requests whose stay is over may still have some of it.
    room: Arc<Semaphore>,
    /// Since then there is none, or it leaves.
    since: Instant,
}

#[derive(Debug, Clone)]
enum Phase {
    /// The join has no reply. What the group tells until then is of an earlier stay: a session is told the
    /// end of a membership before the reply to its next join.
    Coming,
    /// The join is done, and the first view comes next.
    Joined,
    In,
    Leaving,
    Refused(Failure),
}

impl Inside {
    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Stay {
    fn coming(number: u64) -> Self {
        Self {
            number,
            phase: watch::Sender::new(Phase::Coming),
            requests: 0,
            room: Arc::new(Semaphore::new(ROOM_BYTES)),
            since: Instant::now(),
        }
    }
}

impl Speaker {
    pub(super) fn new(hub: Hub) -> Self {
        Self {
            hub,
            voice: AsyncMutex::default(),
        }
    }

    pub(super) async fn say(&self, asked: &Asked, body: Unread) -> Result<Answer, Problem> {
        let safe = asked.flag("safe")?;
        let payload = asked.payload(body, "payload").await?;
        let length = payload.len();
        let voice = self.voice().await?;
        let group = asked.path(0).to_owned();
        let inside = voice.enter(&group).await?;
        let bytes = length.clamp(LEAST_BYTES, ROOM_BYTES) as u32;
        // Never closed.
        let room = inside.room.clone().acquire_many_owned(bytes).await.ok();
        let send = |id| {
            Command::Send(command::Send {
                group: Some(group),
                payload,
                safe,
                scope: None,
                id: Some(id),
            })
        };
        let reply = voice.ask(send, room).await?;
        match reply.error {
            // The shared client was removed from the group while this request waited for room. The next
            // request makes it join again.
            Some(failure) if failure.code == Code::NotHeld => Err(Problem::unavailable(
                "this node was out of the group before it said this: try again",
            )),
            Some(failure) => Err(failure.into()),
            None => Ok(answer::json(StatusCode::OK, &json!({"delivered": true}))),
        }
    }

    /// The shared client, which comes with the first request.
    async fn voice(&self) -> Result<Arc<Voice>, Problem> {
        let mut voice = self.voice.lock().await;
        if let Some(voice) = &*voice {
            return Ok(voice.clone());
        }
        let (session, events) = self.hub.session()?;
        // Another client may have this name: then this one has the name that the node gave it.
        let _ = session.take_name(NAME);
        let new = Arc::new(Voice {
            session,
            inside: Mutex::default(),
        });
        tokio::spawn(hear(Arc::downgrade(&new), events));
        *voice = Some(new.clone());
        Ok(new)
    }
}

impl Voice {
    /// Enters a group, unless it is in it, and stays at least until the returned value is dropped.
    async fn enter(self: &Arc<Self>, group: &str) -> Result<Staying, Problem> {
        loop {
            let (mut phase, staying) = {
                let mut inside = self.inside();
                if inside.stays.len() >= MAX_JOINED && !inside.stays.contains_key(group) {
                    return Err(Problem::unavailable(format!(
                        "requests speak in {MAX_JOINED} groups already: try again when one of them was quiet for {} s",
                        LINGER.as_secs()
                    )));
                }
                let number = inside.next_number();
                let stay = inside.stays.entry(group.to_owned()).or_insert_with(|| {
                    // A task of its own: the request that asks first may be gone before the shared client is
                    // in.
                    tokio::spawn(self.clone().join(group.to_owned(), number));
                    Stay::coming(number)
                });
                stay.requests += 1;
                let staying = Staying {
                    voice: self.clone(),
                    group: group.to_owned(),
                    number: stay.number,
                    room: stay.room.clone(),
                };
                (stay.phase.subscribe(), staying)
            };
            let arrived = async {
                let there = phase.wait_for(|phase| matches!(phase, Phase::In | Phase::Refused(_)));
                there.await.map(|phase| phase.clone())
            };
            // The stay goes on, and later requests are in when its view comes.
            match self.session.readiness().wait(arrived).await? {
                Ok(Phase::Refused(failure)) => return Err(failure.into()),
                Ok(_) => return Ok(staying),
                // The shared client left, or the group was lost: this request makes it join again.
                Err(_) => drop(staying),
            }
        }
    }

    /// Joins a group for the stay with this number.
    async fn join(self: Arc<Self>, group: String, number: u64) {
        let join = |id| {
            let group = group.clone();
            Command::Join(command::Join {
                group,
                bundles: false,
                bytes: false,
                id: Some(id),
            })
        };
        let refused = match self.ask_as(number, join, ()).await {
            Ok(reply) => reply.error,
            Err(_) => None,
        };
        if let Some(failure) = refused {
            let mut inside = self.inside();
            // A newer stay has a join of its own.
            let is_its_own = inside.stays.get(&group).is_some_and(|stay| stay.number == number);
            if is_its_own && let Some(stay) = inside.stays.remove(&group) {
                stay.phase.send_replace(Phase::Refused(failure));
            }
        }
    }

    /// Sends a command with an id of its own, and returns its reply. `held` is kept until the session has
    /// taken the command.
    async fn ask(
        self: &Arc<Self>,
        command: impl FnOnce(Id) -> Command,
        held: impl Send + 'static,
    ) -> Result<Reply, Problem> {
        let number = self.inside().next_number();
        self.ask_as(number, command, held).await
    }

    /// The same with this number as the id.
    async fn ask_as(
        self: &Arc<Self>,
        number: u64,
        command: impl FnOnce(Id) -> Command,
        held: impl Send + 'static,
    ) -> Result<Reply, Problem> {
        let (told, reply) = oneshot::channel();
        self.inside().waiting.insert(number, told);
        let (voice, command) = (self.clone(), command(Id::Number(number)));
        // An operation that is dropped halfway would keep its id. So a task of its own outlives the request.
        tokio::spawn(async move {
            voice.session.obey(command).await;
            drop(held);
        });
        let ended = |_| Problem::unavailable("this node is leaving: ask another one");
        reply.await.map_err(ended)
    }

    fn told(self: &Arc<Self>, event: Event) {
        match event {
            Event::Reply(reply) => {
                let Some(Id::Number(id)) = reply.id else {
                    return;
                };
                let mut inside = self.inside();
                if let Some(stay) = inside.stays.values().find(|stay| stay.number == id)
                    && reply.error.is_none()
                {
                    stay.phase.send_replace(Phase::Joined);
                }
                if let Some(told) = inside.waiting.remove(&id) {
                    // Its client may be gone.
                    let _ = told.send(reply);
                }
            }
            Event::View(view) => {
                if let Some(stay) = self.inside().stays.get(&view.group) {
                    stay.phase.send_if_modified(|phase| {
                        let comes = matches!(phase, Phase::Joined);
                        if comes {
                            *phase = Phase::In;
                        }
                        comes
                    });
                }
            }
            Event::GroupLeft { group } => {
                let mut inside = self.inside();
                let stay = inside.stays.get(&group);
                let leaves = stay.is_some_and(|stay| matches!(*stay.phase.borrow(), Phase::Leaving));
                // Otherwise it is the end of a stay that was given up after LEFT_WITHIN. The present stay
                // goes on: without it here nobody would leave, and each further join would be refused.
                if leaves {
                    inside.stays.remove(&group);
                }
            }
            Event::Lost(lost) if lost.what == Kind::Group => {
                let mut inside = self.inside();
                let stay = inside.stays.get(&lost.name);
                let comes = stay.is_some_and(|stay| matches!(*stay.phase.borrow(), Phase::Coming));
                // It is the end of an earlier stay, as above.
                if comes {
                    return;
                }
                if let Some(stay) = inside.stays.remove(&lost.name) {
                    let failure = Failure::nothing_done(Code::Unavailable, lost.cause);
                    stay.phase.send_replace(Phase::Refused(failure));
                }
            }
            _ => {}
        }
    }

    /// Leaves the groups in which no request has spoken for a while.
    fn tick(self: &Arc<Self>) {
        let mut inside = self.inside();
        let now = Instant::now();
        inside.stays.retain(|_, stay| {
            !matches!(*stay.phase.borrow(), Phase::Leaving) || now.duration_since(stay.since) < LEFT_WITHIN
        });
        for (group, stay) in &mut inside.stays {
            let idle = stay.requests == 0 && now.duration_since(stay.since) >= LINGER;
            if idle && matches!(*stay.phase.borrow(), Phase::In) {
                stay.phase.send_replace(Phase::Leaving);
                stay.since = now;
                let (voice, group) = (self.clone(), group.clone());
                tokio::spawn(async move {
                    let leave = |id| {
                        let group = Some(group);
                        Command::Leave(command::Leave { group, id: Some(id) })
                    };
                    // What comes of it, the group says.
                    let _ = voice.ask(leave, ()).await;
                });
            }
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the events of the shared client, until its session is over.
async fn hear(voice: Weak<Voice>, mut events: Events) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = events.next() => match (event, voice.upgrade()) {
                (Some(event), Some(voice)) => voice.told(event),
                _ => return,
            },
            _ = ticks.tick() => match voice.upgrade() {
                Some(voice) => voice.tick(),
                None => return,
            },
        }
    }
}

/// A request that speaks in a group.
struct Staying {
    voice: Arc<Voice>,
    group: String,
    number: u64,
    room: Arc<Semaphore>,
}

impl Drop for Staying {
    fn drop(&mut self) {
        let mut inside = self.voice.inside();
        let stay = inside.stays.get_mut(&self.group);
        if let Some(stay) = stay.filter(|stay| stay.number == self.number) {
            stay.requests = stay.requests.saturating_sub(1);
            if !matches!(*stay.phase.borrow(), Phase::Leaving) {
                stay.since = Instant::now();
            }
        }
    }
}

/// A client that is in a group while its stream is read.
pub(super) async fn events(hub: &Hub, asked: &Asked, busy: Busy) -> Result<Answer, Problem> {
    let (session, mut events) = hub.session()?;
    if let Some(name) = asked.text("name") {
        let hello = command::Hello {
            name: Some(name.to_owned()),
            ..command::Hello::default()
        };
        ask(&session, &mut events, Command::Hello(hello)).await?;
    }
    let group = asked.path(0).to_owned();
    ask(
        &session,
        &mut events,
        Command::Join(command::Join {
            group,
            bundles: false,
            bytes: false,
            id: None,
        }),
    )
    .await?;
    Ok(answer::events(sse::Stream::new(session, events, busy)))
}

#[cfg(test)]
mod tests {
    use antiphon_api::View;
    use antiphon_api::blocks::Lost;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::super::{Beginning, Http};
    use super::*;
    use crate::access::Access;
    use crate::socket::halves::Halves;
    use crate::socket::kept::Resumable;
    use crate::testing::{Agent, SOON, until};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_stay_ends_neither_with_the_end_of_an_earlier_one_nor_with_the_join_of_another() {
        let agent = Agent::alone().await;
        let voice = Speaker::new(agent.hub.clone()).voice().await.unwrap();
        let staying = voice.enter("g").await.unwrap();
        let number = staying.number;
        drop(staying);
        // The earlier stay was given up: without a majority the group did not say that it was left.
        voice.told(Event::GroupLeft {
            group: "g".to_owned(),
        });
        assert!(voice.enter("g").await.is_ok());
        // It is refused: the session has joined.
        voice.clone().join("g".to_owned(), number + 1000).await;
        assert!(voice.enter("g").await.is_ok());
        let inside = voice.inside();
        assert_eq!(inside.stays.get("g").map(|stay| stay.number), Some(number));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_group_tells_before_a_join_has_its_reply_is_of_an_earlier_stay() {
        let agent = Agent::alone().await;
        let voice = Speaker::new(agent.hub.clone()).voice().await.unwrap();
        let number = voice.inside().next_number();
        voice.inside().stays.insert("g".to_owned(), Stay::coming(number));
        let phase = || {
            let inside = voice.inside();
            inside.stays.get("g").map(|stay| stay.phase.borrow().clone())
        };
        let view = || {
            Event::View(View {
                group: "g".to_owned(),
                id: "1.1".to_owned(),
                members: Vec::new(),
                joined: Vec::new(),
                left: Vec::new(),
                crashed: Vec::new(),
                causes: BTreeMap::new(),
                transitional: Vec::new(),
                primary: true,
                synced: None,
            })
        };
        let lost = || {
            Event::Lost(Lost {
                what: Kind::Group,
                name: "g".to_owned(),
                token: None,
                id: None,
                cause: "slow: it did not read".to_owned(),
            })
        };
        for earlier in [view(), lost()] {
            voice.told(earlier);
            let phase = phase();
            assert!(matches!(phase, Some(Phase::Coming)), "{phase:?}");
        }
        voice.told(Event::Reply(Reply {
            id: Some(Id::Number(number)),
            ..Reply::default()
        }));
        voice.told(view());
        let is_in = phase();
        assert!(matches!(is_in, Some(Phase::In)), "{is_in:?}");
        // The end of the present stay is its own.
        voice.told(lost());
        let over = phase();
        assert!(over.is_none(), "{over:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_message_that_waits_for_room_when_its_group_goes_may_be_sent_again() {
        let agent = Agent::alone().await;
        let http = Http::new(agent.hub.clone(), Resumable::default(), Halves::default());
        let voice = http.0.speaker.voice().await.unwrap();
        let staying = voice.enter("g").await.unwrap();
        let full = staying.room.clone().acquire_many_owned(ROOM_BYTES as u32).await;
        let visitor = Access::default().local(agent.hub.meters().clone());
        let (mut near, far) = tokio::io::duplex(4096);
        tokio::spawn(http.clone().serve(far, Vec::new(), Beginning::Request, visitor));
        let post = "POST /v1/groups/g/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
        near.write_all(post.as_bytes()).await.unwrap();
        until(|| {
            voice
                .inside()
                .stays
                .get("g")
                .is_some_and(|stay| stay.requests == 2)
        })
        .await;
        agent.hub.close().await;
        until(|| !voice.session.has_joined("g")).await;
        drop(full);
        let mut said = String::new();
        timeout(SOON, near.read_to_string(&mut said))
            .await
            .unwrap()
            .unwrap();
        assert!(
            said.starts_with("HTTP/1.1 503") && said.contains("retry-after: 1\r\n"),
            "{said}"
        );
        assert!(
            said.contains(r#""code":"unavailable""#) && said.contains(r#""ran":"no""#),
            "{said}"
        );
    }
}

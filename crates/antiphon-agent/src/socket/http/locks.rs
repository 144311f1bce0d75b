//! Locks that outlive a request: each is held by a session of its own until it is given back or its time is
//! over.
//!
//! ```text
//!   POST ─► session: lock ─► granted ─► keeper: session, token, ttl ──┬─► DELETE: unlock, 204
//!              │ the client goes: cancelled       ▲ PUT: prolonged    ├─► the ttl is over: the session ends
//!                                                                     └─► the lock is lost
//! ```
//! Each of these ends the keeper's session, and the lock is free. A lock is prolonged only if the clock says
//! that it is held: a client may ask just because it fears that the agent stood still. If the client is gone
//! when its lock is granted, nobody has read the token: then the lock is held until its time is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_api::blocks::{Lock, Serial, Span, Unlock};
use antiphon_api::{Command, Event};
use hyper::StatusCode;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::answer::{self, Answer};
use super::asked::Asked;
use super::exchange::ask;
use super::problem::Problem;
use crate::Hub;
use crate::hub::{Events, Session};

/// The most locks that are held or waited for.
pub(super) const MAX_LOCKS: usize = 1024;
pub(super) const TTL: Duration = Duration::from_secs(30);
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(3600);
/// Messages that wait for a keeper, which takes each at once.
const WORDS: usize = 16;

/// The locks of all requests.
#[derive(Debug)]
pub(super) struct Held {
    places: Arc<Semaphore>,
    keepers: Mutex<BTreeMap<(String, Serial), mpsc::Sender<Word>>>,
}

/// What is said about a lock that is held.
#[derive(Debug)]
enum Word {
    Prolong(Duration, oneshot::Sender<()>),
    GiveBack(oneshot::Sender<Result<(), Problem>>),
}

impl Held {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(MAX_LOCKS)),
            keepers: Mutex::default(),
        })
    }

    pub(super) async fn take(self: &Arc<Self>, hub: &Hub, asked: &Asked) -> Result<Answer, Problem> {
        let (ttl, within) = (ttl(asked)?, asked.span("within")?);
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Err(Problem::unavailable(format!(
                "{MAX_LOCKS} locks are held or waited for by requests: give one back"
            )));
        };
        let (session, mut events) = hub.session()?;
        let name = asked.path(0).to_owned();
        let command = Command::Lock(Lock {
            name: name.clone(),
            within,
            id: None,
        });
        let reply = ask(&session, &mut events, command).await?;
        // A lock that is granted has one.
        let token = reply.token.unwrap_or(Serial(0));
        let (words, heard) = mpsc::channel(WORDS);
        self.keepers().insert((name.clone(), token), words);
        let keeper = Keeper {
            held: self.clone(),
            name,
            token,
            session,
            events,
            _place: place,
        };
        tokio::spawn(keeper.keep(Instant::now() + ttl, heard));
        Ok(granted(StatusCode::CREATED, token, ttl))
    }

    pub(super) async fn prolong(&self, asked: &Asked) -> Result<Answer, Problem> {
        let (token, ttl) = (token(asked)?, ttl(asked)?);
        let (told, done) = oneshot::channel();
        self.tell(asked, token, Word::Prolong(ttl, told)).await?;
        match done.await {
            Ok(()) => Ok(granted(StatusCode::OK, token, ttl)),
            Err(_) => Err(not_held(asked, token)),
        }
    }

    pub(super) async fn give_back(&self, asked: &Asked) -> Result<Answer, Problem> {
        let token = token(asked)?;
        let (told, done) = oneshot::channel();
        self.tell(asked, token, Word::GiveBack(told)).await?;
        match done.await {
            Ok(done) => done.map(|()| answer::empty(StatusCode::NO_CONTENT)),
            Err(_) => Err(not_held(asked, token)),
        }
    }

    async fn tell(&self, asked: &Asked, token: Serial, word: Word) -> Result<(), Problem> {
        let keeper = self.keepers().get(&(asked.path(0).to_owned(), token)).cloned();
        match keeper {
            Some(keeper) => keeper.send(word).await.map_err(|_| not_held(asked, token)),
            None => Err(not_held(asked, token)),
        }
    }

    fn keepers(&self) -> MutexGuard<'_, BTreeMap<(String, Serial), mpsc::Sender<Word>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds one lock.
struct Keeper {
    held: Arc<Held>,
    name: String,
    token: Serial,
    session: Session,
    events: Events,
    _place: OwnedSemaphorePermit,
}

impl Keeper {
    async fn keep(mut self, mut until: Instant, mut heard: mpsc::Receiver<Word>) {
        let asked_back = loop {
            tokio::select! {
                biased;
                event = self.events.next() => match event {
                    Some(Event::Lost(_)) | None => break None,
                    Some(_) => {}
                },
                () = sleep_until(until) => break None,
                word = heard.recv() => match word {
                    Some(Word::Prolong(ttl, told)) => {
                        // Events come through tasks, which a standstill of this process has stopped as well.
                        if !self.session.holds(&self.name, self.token).await {
                            break None;
                        }
                        until = Instant::now() + ttl;
                        // Its client may be gone.
                        let _ = told.send(());
                    }
                    Some(Word::GiveBack(told)) => break Some(told),
                    None => break None,
                },
            }
        };
        self.held.keepers().remove(&(self.name.clone(), self.token));
        if let Some(told) = asked_back {
            let command = Command::Unlock(Unlock {
                name: self.name.clone(),
                token: self.token,
                id: None,
            });
            let done = ask(&self.session, &mut self.events, command).await;
            let _ = told.send(done.map(drop));
        }
    }
}

fn ttl(asked: &Asked) -> Result<Duration, Problem> {
    let ttl = asked.span("ttl")?.map_or(TTL, |ttl| ttl.0);
    match (SHORTEST_TTL..=LONGEST_TTL).contains(&ttl) {
        true => Ok(ttl),
        false => Err(Problem::refused(format!(
            "ttl is {} to {}: prolong the lock with PUT to hold it for longer",
            Span(SHORTEST_TTL),
            Span(LONGEST_TTL)
        ))),
    }
}

fn token(asked: &Asked) -> Result<Serial, Problem> {
    let token = asked.number_of("token", ", as POST gave it")?;
    asked.needed("token", token).map(Serial)
}

fn granted(status: StatusCode, token: Serial, ttl: Duration) -> Answer {
    answer::json(status, &json!({"token": token, "ttl_ms": ttl.as_millis() as u64}))
}

fn not_held(asked: &Asked, token: Serial) -> Problem {
    Problem::not_held(format!(
        "no request holds the lock {} with the token {token} at this node: it was given back, lost, or its ttl is over",
        antiphon_api::shortened(asked.path(0))
    ))
}

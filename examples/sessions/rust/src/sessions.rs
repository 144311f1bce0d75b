//! Sessions that all servers share: a replicated map from the id in a browser's cookie to what the shop
//! knows.
//!
//! ```text
//!  change:  get ──► session, version ──► the change ──► put, if the version is still this one
//!            ▲                                                   │
//!            └───────────── another server was faster ───────────┘
//! ```
//! # What a browser may rely on
//! - **Nothing that was answered is lost while one server lives that has it.** A write is answered when every
//!   server of the view holds it (*safe*), and each server that goes on applies it at the same place of one
//!   order.
//! - **No answer is stale.** A server reads its own copy, which may lag behind an answer of another server.
//!   It answers after its write, and the write is refused unless its version is the newest.
//! - **No change undoes another.** The same condition sees to that, however many servers change a session.
//!
//! A request that failed may have happened: its server may have died between the write and the answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use antiphon::replicated::{Condition, MapError, ReplicaError, Version, Watching};
use antiphon::{Cluster, Map};
use serde::{Deserialize, Serialize};

/// How often a change is tried while other servers change the same session. A browser has few requests under
/// way at once, and of those that collide one is always done.
const MOST_TRIES: usize = 32;
/// A server that may not read the sessions tries to watch them again after this time.
const WATCH_AGAIN: Duration = Duration::from_millis(100);

/// What the shop knows of a browser. A change of these fields is a change of the name in [`Sessions::join`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Session {
    /// Who logged in.
    pub user: String,
    /// How often the page was shown.
    pub visits: u64,
    /// What was put into the basket, oldest first.
    pub basket: Vec<String>,
}

/// The sessions of all browsers. A cheap handle.
#[derive(Clone)]
pub struct Sessions {
    store: Store,
    time_to_live: Duration,
}

/// Where they are.
#[derive(Clone)]
enum Store {
    Shared(Map<String, Session>),
    /// A planted mistake, to show that the check finds it: each server has its own.
    Local(Arc<Mutex<HashMap<String, Session>>>),
    /// A planted mistake: no write has a condition.
    Blind(Map<String, Session>),
}

/// A mistake to make on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// Each server keeps its sessions in its own memory.
    Local,
    /// Servers write without looking at the version.
    Blind,
}

/// Why a session was not changed.
#[derive(Debug)]
pub enum Failure {
    /// There is no such session: it ended, or never was.
    NoSession,
    /// The change itself says no.
    Refused(&'static str),
    /// Other requests changed it all the time.
    Busy,
    /// The map says so.
    Map(MapError),
}

impl Failure {
    /// Whether the change may have happened all the same, or may still.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Map(error) if error.may_have_happened())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSession => f.write_str("there is no such session: log in"),
            Self::Refused(reason) => f.write_str(reason),
            Self::Busy => f.write_str("other requests change this session all the time: try again"),
            Self::Map(error) => error.fmt(f),
        }
    }
}

impl From<MapError> for Failure {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

impl Sessions {
    /// Joins the servers that share the sessions, and waits until this one has them.
    pub async fn join(
        cluster: &Cluster,
        time_to_live: Duration,
        plant: Option<Plant>,
    ) -> Result<Self, ReplicaError> {
        // The map's bounds stay as they are: beyond 64 MiB a login is refused, and no session is dropped.
        let map = || {
            cluster
                .map("sessions")
                .types("session id -> user, visits, basket 1")
                // If all servers that had them die, nothing brings them back: browsers log in again.
                .replicated(|machine| machine.found_anew(true))
                .join()
        };
        let store = match plant {
            None => Store::Shared(map().await?),
            Some(Plant::Blind) => Store::Blind(map().await?),
            Some(Plant::Local) => Store::Local(Arc::default()),
        };
        Ok(Self { store, time_to_live })
    }

    /// Whether this server may answer: it has the state, is among the majority, and has its lease.
    pub fn is_ready(&self) -> Result<(), MapError> {
        match &self.store {
            Store::Shared(map) | Store::Blind(map) => map.len().map(drop),
            Store::Local(_) => Ok(()),
        }
    }

    /// Begins a session and ends the one that the browser had, in one step. The id is new at each login: one
    /// that somebody else made the browser use before is worth nothing.
    pub async fn begin(&self, user: String, before: Option<String>) -> Result<(String, Session), Failure> {
        let session = Session {
            user,
            visits: 0,
            basket: Vec::new(),
        };
        let id = new_id();
        match &self.store {
            Store::Shared(map) | Store::Blind(map) => {
                let mut batch = map.batch().put_for(&id, &session, self.time_to_live)?;
                if let Some(before) = before {
                    batch = batch.remove(&before)?;
                }
                batch.commit().await?;
            }
            Store::Local(sessions) => {
                let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                sessions.insert(id.clone(), session.clone());
            }
        }
        Ok((id, session))
    }

    /// Changes a session, and gives it as it is then, with its version. Its time to live begins again.
    pub async fn change(
        &self,
        id: &String,
        change: impl Fn(&mut Session) -> Result<(), Failure>,
    ) -> Result<(Session, Version), Failure> {
        let (map, blind) = match &self.store {
            Store::Shared(map) => (map, false),
            Store::Blind(map) => (map, true),
            Store::Local(sessions) => {
                let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                let session = sessions.get_mut(id).ok_or(Failure::NoSession)?;
                change(session)?;
                return Ok((session.clone(), Version::default()));
            }
        };
        let mut found = map.get(id)?;
        if found.is_none() {
            // Perhaps it is on its way from the server that the browser has just logged in at.
            found = map.get_latest(id).await?;
        }
        for _ in 0..MOST_TRIES {
            let item = found.ok_or(Failure::NoSession)?;
            let mut session = item.value;
            change(&mut session)?;
            let condition = if blind {
                Condition::Always
            } else {
                Condition::Version(item.version)
            };
            let batch = map
                .batch()
                .put_for(id, &session, self.time_to_live)?
                .when(condition);
            if let Some(versions) = batch.commit().await? {
                let version = versions.into_iter().next().flatten();
                return Ok((session, version.unwrap_or_default()));
            }
            // This server has applied all that stands before the refusal: its copy has what was in the way.
            found = map.get(id)?;
        }
        Err(Failure::Busy)
    }

    /// A session as it is, with all that was answered by any server before, and its version.
    pub async fn read(&self, id: &String) -> Result<(Session, Version), Failure> {
        let found = match &self.store {
            Store::Shared(map) | Store::Blind(map) => {
                map.get_latest(id).await?.map(|item| (item.value, item.version))
            }
            Store::Local(sessions) => {
                let sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                sessions
                    .get(id)
                    .map(|session| (session.clone(), Version::default()))
            }
        };
        found.ok_or(Failure::NoSession)
    }

    /// All sessions as they are, as soon as this server may read them, and then each change by any server.
    /// Those of one server alone are not watched: then this never returns.
    pub async fn watch(&self) -> Watching<String, Session> {
        loop {
            if let Store::Shared(map) | Store::Blind(map) = &self.store
                && let Ok(changes) = map.watch()
            {
                return changes;
            }
            tokio::time::sleep(WATCH_AGAIN).await;
        }
    }

    /// Ends a session. That there is none is no error.
    pub async fn end(&self, id: &String) -> Result<(), Failure> {
        match &self.store {
            Store::Shared(map) | Store::Blind(map) => drop(map.remove(id).await?),
            Store::Local(sessions) => {
                sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
            }
        }
        Ok(())
    }

    /// Leaves in order: writes that were taken happen.
    pub async fn leave(&self) {
        if let Store::Shared(map) | Store::Blind(map) = &self.store {
            map.machine().leave().await;
        }
    }
}

/// 128 random bits: nobody guesses the id of another browser.
fn new_id() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the system has random numbers");
    bits.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Locks and leadership: each that is held has a task, which tells its loss or gives it back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use antiphon::replicated::{Guard, Leadership, LockError, Locks, Loss};
use antiphon::{Cluster, Incarnation};
use antiphon_api::blocks::{Code, Failure, Kind, Lost, Ran, Reply, Serial};
use antiphon_api::{Command, Event};
use tokio::sync::mpsc;

use super::begun::Copies;
use super::desk::{Desk, Operation, too_late};
use super::failure::{not_done, of_hand_over, of_release, of_replica, of_wait};
use super::maps::{until_of_no_use, until_synced};
use super::worker::{Block, Job};

/// The table of all locks.
#[derive(Debug, Clone)]
pub(super) struct LockBlock {
    locks: Locks,
    held: Arc<Mutex<BTreeMap<What, Keeper>>>,
}

/// The session that holds something, and the way to the task that keeps it.
type Keeper = (Arc<Desk>, mpsc::Sender<GiveBack>);

/// What is held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct What {
    lead: bool,
    name: String,
    token: Serial,
}

/// A held lock or leadership is to be given back: to the named node, or to the one that has waited longest.
struct GiveBack {
    to: Option<String>,
    operation: Operation,
}

/// What holds it.
enum Hold {
    Lock(Guard),
    Lead(Leadership),
}

impl Hold {
    fn token(&self) -> Serial {
        match self {
            Hold::Lock(guard) => Serial(guard.token().0),
            Hold::Lead(leadership) => Serial(leadership.token().0),
        }
    }

    async fn lost(&self) -> Loss {
        match self {
            Hold::Lock(guard) => guard.lost().await,
            Hold::Lead(leadership) => leadership.lost().await,
        }
    }

    async fn give_back(self) -> Result<(), LockError> {
        match self {
            Hold::Lock(guard) => guard.unlock().await,
            Hold::Lead(leadership) => leadership.step_down().await,
        }
    }

    async fn hand_over(&self, to: Incarnation) -> Result<(), LockError> {
        match self {
            Hold::Lead(leadership) => leadership.hand_over(to).await,
            Hold::Lock(_) => unreachable!("only a leadership is handed over"),
        }
    }
}

impl LockBlock {
    pub(super) async fn join(cluster: Cluster, group: String, copies: Copies) -> Result<Self, Failure> {
        let started = cluster.locks(group.clone()).start().await;
        let locks = started.map_err(|error| of_replica(&error))?;
        copies.keep_status(group, locks.table().watch_status());
        until_synced(locks.table()).await?;
        Ok(Self {
            locks,
            held: Arc::default(),
        })
    }

    /// Waits for a lock or a leadership, and then keeps it.
    async fn acquire(self, lead: bool, name: String, mut operation: Operation) {
        let left = operation.time_left();
        let wait = async {
            match (lead, left) {
                (true, _) => self.locks.leadership(&name).await.map(Hold::Lead).map(Some),
                (false, None) => self.locks.lock(&name).await.map(Hold::Lock).map(Some),
                (false, Some(left)) => {
                    let guard = self.locks.try_lock(&name, left).await?;
                    Ok(guard.map(Hold::Lock))
                }
            }
        };
        // If the wait is cancelled, a lock that was granted meanwhile is given back.
        let got = operation.wait(Ran::No, wait).await;
        let got = got.and_then(|got| got.map_err(|error| of_wait(&error)));
        let hold = match got {
            Ok(Some(hold)) => hold,
            Ok(None) => {
                let failure = too_late(operation.within());
                operation.reply(not_done(failure)).await;
                return;
            }
            Err(failure) => {
                operation.reply(not_done(failure)).await;
                return;
            }
        };
        let what = What {
            lead,
            name,
            token: hold.token(),
        };
        let (give_back, asked_back) = mpsc::channel(1);
        // Before the program knows of it.
        let (id, desk) = (operation.id(), operation.desk().clone());
        self.held().insert(what.clone(), (desk.clone(), give_back));
        let reply = Reply {
            token: Some(what.token),
            ..Reply::default()
        };
        let _places = operation.reply(reply).await;
        let lost = self.keep(&desk, hold, &what, asked_back).await;
        if let Some(loss) = lost {
            let line = Lost {
                what: if lead { Kind::Lead } else { Kind::Lock },
                name: what.name,
                token: Some(what.token),
                id,
                cause: loss.to_string(),
            };
            desk.print(Event::Lost(line)).await;
        }
    }

    /// Keeps it until it is given back, or lost, or its session is over.
    async fn keep(
        &self,
        desk: &Desk,
        hold: Hold,
        what: &What,
        mut asked_back: mpsc::Receiver<GiveBack>,
    ) -> Option<Loss> {
        let lost = loop {
            let GiveBack { to, operation } = tokio::select! {
                biased;
                loss = hold.lost() => break Some(loss),
                () = desk.until_over() => {
                    // It is free in any case: a handle that is dropped gives it back.
                    let _ = hold.give_back().await;
                    break None;
                }
                Some(give_back) = asked_back.recv() => give_back,
            };
            let Some(name) = to else {
                self.held().remove(what);
                let done = hold.give_back().await;
                operation.reply(reply(done, of_release)).await;
                break None;
            };
            let Some(to) = self.member(&name) else {
                let reason = format!("the group of locks has no member {name}: this node leads on");
                operation
                    .reply(not_done(Failure::nothing_done(Code::Unavailable, reason)))
                    .await;
                continue;
            };
            let done = hold.hand_over(to).await;
            let handed_over = done.is_ok();
            operation.reply(reply(done, of_hand_over)).await;
            if handed_over {
                break None;
            }
        };
        self.held().remove(what);
        asked_back.close();
        while let Ok(late) = asked_back.try_recv() {
            late.operation.reply(not_held(what)).await;
        }
        lost
    }

    /// Asks the task that keeps it to give it back.
    async fn give_back(self, what: What, to: Option<String>, operation: Operation) {
        // What another session holds is not this one's to give back.
        let own = |(desk, _): &&Keeper| Arc::ptr_eq(desk, operation.desk());
        let keeper = self
            .held()
            .get(&what)
            .filter(own)
            .map(|(_, keeper)| keeper.clone());
        let give_back = GiveBack { to, operation };
        let refused = match keeper {
            None => give_back,
            Some(keeper) => match keeper.try_send(give_back) {
                Ok(()) => return,
                // It is being given back, or has just been lost.
                Err(refused) => refused.into_inner(),
            },
        };
        refused.operation.reply(not_held(&what)).await;
    }

    fn member(&self, name: &str) -> Option<Incarnation> {
        let members = self.locks.table().members();
        // Where a node was started again, its latest start.
        let member = members.iter().rev().find(|of| of.member.name == name);
        member.map(|of| of.member.incarnation)
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<What, Keeper>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Block for LockBlock {
    fn begin(&self, job: Job) -> impl Future<Output = ()> + Send + 'static {
        let this = self.clone();
        async move {
            let Job {
                operation, command, ..
            } = job;
            match command {
                Command::Lock(lock) => this.acquire(false, lock.name, operation).await,
                Command::Lead(lead) => this.acquire(true, lead.name, operation).await,
                Command::Unlock(unlock) => {
                    let (name, token) = (unlock.name, unlock.token);
                    let what = What {
                        lead: false,
                        name,
                        token,
                    };
                    this.give_back(what, None, operation).await;
                }
                Command::Resign(resign) => {
                    let (name, token) = (resign.name, resign.token);
                    let what = What {
                        lead: true,
                        name,
                        token,
                    };
                    this.give_back(what, resign.to, operation).await;
                }
                other => unreachable!("nothing that is asked of locks: {other:?}"),
            }
        }
    }

    async fn ended(&self) -> Failure {
        until_of_no_use(self.locks.table()).await
    }

    async fn leave(&self) {
        self.locks.table().leave().await;
    }
}

fn reply(done: Result<(), LockError>, failure: impl FnOnce(&LockError) -> Failure) -> Reply {
    done.map_or_else(|error| not_done(failure(&error)), |()| Reply::default())
}

fn not_held(what: &What) -> Reply {
    let kind = if what.lead { "leadership of" } else { "lock" };
    let reason = format!(
        "this node holds no {kind} {} with the token {}: it was given back, lost, or never granted",
        what.name, what.token
    );
    not_done(Failure::nothing_done(Code::NotHeld, reason))
}

//! Locks and leadership: each that is held has a task, which tells its loss or gives it back.
//!
//! When this node leaves, the tasks tell that first, and only then others get what was held.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon::replicated::{Guard, Leadership, LockError, Locks, Loss};
use antiphon::{Cluster, Incarnation};
use antiphon_api::blocks::{Code, Failure, Kind, Lost, Ran, Reply, Serial};
use antiphon_api::{Command, Event};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::begun::Copies;
use super::desk::{Desk, Operation};
use super::failure::{leaving, not_done, of_hand_over, of_release, of_replica, of_wait};
use super::maps::until_of_no_use;
use super::worker::{Block, Job};

/// How long this node waits, before it leaves, until the programs are told what they lose by that.
const TELL_WITHIN: Duration = Duration::from_secs(1);

/// The table of all locks.
#[derive(Debug, Clone)]
pub(super) struct LockBlock {
    locks: Locks,
    holders: Holders,
    /// This node is about to leave. Each task that keeps something looks at it.
    leaving: watch::Sender<bool>,
}

/// What the sessions of this node hold. A cheap handle.
#[derive(Debug, Clone, Default)]
pub(super) struct Holders(Arc<Mutex<BTreeMap<What, Keeper>>>);

/// The session that holds something, and the way to the task that keeps it.
type Keeper = (Arc<Desk>, mpsc::Sender<Word>);

impl Holders {
    /// Whether this session holds the lock now. The clock is asked: what a program was told may be older than
    /// a standstill of this process.
    pub(super) async fn holds(&self, desk: &Arc<Desk>, name: &str, token: Serial) -> bool {
        let what = What {
            lead: false,
            name: name.to_owned(),
            token,
        };
        let Some(keeper) = self.keeper(&what, desk) else {
            return false;
        };
        let (told, is_held) = oneshot::channel();
        keeper.send(Word::IsHeld(told)).await.is_ok() && is_held.await.unwrap_or(false)
    }

    /// The way to the task that keeps this for the session. What another session holds is not this one's.
    fn keeper(&self, what: &What, desk: &Arc<Desk>) -> Option<mpsc::Sender<Word>> {
        let held = self.all();
        let (of, keeper) = held.get(what)?;
        Arc::ptr_eq(of, desk).then(|| keeper.clone())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<What, Keeper>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct What {
    lead: bool,
    name: String,
    token: Serial,
}

/// What is said to the task that keeps a lock or a leadership.
enum Word {
    /// Give it back: to the named node, or to the one that has waited longest.
    GiveBack {
        to: Option<String>,
        operation: Operation,
    },
    /// Say whether it is held now.
    IsHeld(oneshot::Sender<bool>),
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

    fn is_held(&self) -> bool {
        match self {
            Hold::Lock(guard) => guard.is_held(),
            Hold::Lead(leadership) => leadership.is_held(),
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
    pub(super) async fn join(
        cluster: Cluster,
        group: String,
        copies: Copies,
        holders: Holders,
    ) -> Result<Self, Failure> {
        let started = cluster.locks(group.clone()).start().await;
        let locks = started.map_err(|error| of_replica(&error))?;
        copies.keep_status(group, locks.table().watch_status());
        let joined = locks.table().joined().await;
        joined.map_err(|error| of_replica(&error))?;
        Ok(Self {
            locks,
            holders,
            leaving: watch::Sender::new(false),
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
                let failure = operation.held_by_another();
                operation.reply(not_done(failure)).await;
                return;
            }
            Err(failure) => {
                operation.reply(not_done(failure)).await;
                return;
            }
        };
        // From here on this node does not leave before this task has told that.
        let mut leaves = self.leaving.subscribe();
        let is_leaving = *leaves.borrow();
        if is_leaving {
            // Dropped, it is given back.
            drop(hold);
            operation.reply(not_done(leaving())).await;
            return;
        }
        let what = What {
            lead,
            name,
            token: hold.token(),
        };
        let (words, heard) = mpsc::channel(1);
        // Before the program knows of it.
        let (id, desk) = (operation.id(), operation.desk().clone());
        self.holders.all().insert(what.clone(), (desk.clone(), words));
        let reply = Reply {
            token: Some(what.token),
            ..Reply::default()
        };
        let _places = operation.reply(reply).await;
        let over = self.keep(&desk, hold, &what, heard, &mut leaves).await;
        if let Some((loss, hold)) = over {
            let line = Lost {
                what: if lead { Kind::Lead } else { Kind::Lock },
                name: what.name,
                token: Some(what.token),
                id,
                cause: loss.to_string(),
            };
            desk.print(Event::Lost(line)).await;
            // Only now others may get it.
            drop(hold);
        }
    }

    /// Keeps it until it is given back, or lost, or its session is over. If this node leaves, it counts as
    /// lost, and is returned, since it is free as soon as it is dropped.
    async fn keep(
        &self,
        desk: &Desk,
        hold: Hold,
        what: &What,
        mut heard: mpsc::Receiver<Word>,
        leaves: &mut watch::Receiver<bool>,
    ) -> Option<(Loss, Option<Hold>)> {
        let over = loop {
            let word = tokio::select! {
                biased;
                loss = hold.lost() => break Some((loss, None)),
                () = desk.until_over() => {
                    // It is free in any case: a handle that is dropped gives it back.
                    let _ = hold.give_back().await;
                    break None;
                }
                () = until_leaving(leaves) => break Some((Loss::Left, Some(hold))),
                Some(word) = heard.recv() => word,
            };
            let (to, operation) = match word {
                Word::GiveBack { to, operation } => (to, operation),
                Word::IsHeld(told) => {
                    // Nobody may wait for it any more.
                    let _ = told.send(hold.is_held());
                    continue;
                }
            };
            let Some(name) = to else {
                self.holders.all().remove(what);
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
        self.holders.all().remove(what);
        heard.close();
        // It waits for those that are about to say something.
        while let Some(word) = heard.recv().await {
            if let Word::GiveBack { operation, .. } = word {
                operation.reply(not_held(what)).await;
            }
        }
        over
    }

    /// Asks the task that keeps it to give it back. If the task is asked already, this waits: to hand a
    /// leadership over may fail, and then it is held on.
    async fn give_back(self, what: What, to: Option<String>, operation: Operation) {
        let keeper = self.holders.keeper(&what, operation.desk());
        let word = Word::GiveBack { to, operation };
        let refused = match keeper {
            None => word,
            Some(keeper) => match keeper.send(word).await {
                Ok(()) => return,
                // It was given back, or lost.
                Err(refused) => refused.0,
            },
        };
        if let Word::GiveBack { operation, .. } = refused {
            operation.reply(not_held(&what)).await;
        }
    }

    fn member(&self, name: &str) -> Option<Incarnation> {
        let members = self.locks.table().members();
        // Where a node was started again, its latest start.
        let member = members.iter().rev().find(|of| of.member.name == name);
        member.map(|of| of.member.incarnation)
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

    /// `lost` comes before any other node can be granted what was held here. A program that does not read is
    /// not waited for.
    async fn leave(&self) {
        self.leaving.send_replace(true);
        let _ = timeout(TELL_WITHIN, self.leaving.closed()).await;
        self.locks.table().leave().await;
    }
}

async fn until_leaving(leaves: &mut watch::Receiver<bool>) {
    // The sender is part of the block, so waiting cannot fail.
    let _ = leaves.wait_for(|leaving| *leaving).await;
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

//! Locks, semaphores and leaders, as handles over the [table of locks](antiphon_replica::locks).
//!
//! Each guard is a client of its own in the table. If a caller gives up its claim, or a guard is dropped, a
//! command makes the table forget it. This member gives that command until it is applied, or until the member
//! is removed, which ends all its claims as well. A claim that was given up before there was room for its
//! command leaves nothing behind: so there are never more such commands than claims that were sent.
//!
//! A guard is held while three things hold: the table says so, this member has not been removed, and this
//! node's lease is not over. No other member can be granted the lock before the lease is over (R7), so the
//! guard learns of its loss by the clock before another member can hold the lock. A loss is for good: when
//! the lease comes back, the guard stays lost, and gives the lock back when it is dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use antiphon_replica::Ack;
use antiphon_replica::locks::{Command, Done, LockTable, Mode, Options, Refused, Token, leadership};
use tokio::sync::{oneshot, watch};

use super::claims::{ClaimState, Claims, Handover};
use super::{ReadError, ReplicaError, Replicated, ReplicatedBuilder, WriteError};
use crate::{Cluster, Incarnation};

/// A table of locks to join. From [`Cluster::locks`].
#[must_use = "nothing happens until `join` or `start`"]
pub struct LocksBuilder {
    cluster: Cluster,
    name: String,
    options: Options,
    change: Box<dyn FnOnce(ReplicatedBuilder<LockTable>) -> ReplicatedBuilder<LockTable> + Send>,
}

impl fmt::Debug for LocksBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocksBuilder")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl LocksBuilder {
    /// The bounds of the table; the same at all members.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Changes how the table is replicated. [`agreed`](ReplicatedBuilder::agreed) is refused: a lock might be
    /// granted twice with one token.
    pub fn replicated(
        mut self,
        change: impl FnOnce(ReplicatedBuilder<LockTable>) -> ReplicatedBuilder<LockTable> + Send + 'static,
    ) -> Self {
        self.change = Box::new(change);
        self
    }

    /// See [`ReplicatedBuilder::join`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn join(self) -> Result<Locks, ReplicaError> {
        let locks = self.start().await?;
        locks.table.joined().await?;
        Ok(locks)
    }

    /// See [`ReplicatedBuilder::start`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn start(self) -> Result<Locks, ReplicaError> {
        let claims = Arc::new(Claims::default());
        let options = self.options;
        let builder = self
            .cluster
            .replicated(self.name, move || LockTable::new(options.clone()));
        let told = claims.clone();
        let builder = (self.change)(builder).always_safe("locks")?;
        let builder = builder.observer(move |happened| told.hear(&happened));
        let table = builder.start().await?;
        Ok(Locks { table, claims })
    }
}

impl Cluster {
    /// Locks, semaphores and leaders of the members of the group of this name. Nothing happens until
    /// [`LocksBuilder::join`].
    pub fn locks(&self, name: impl Into<String>) -> LocksBuilder {
        LocksBuilder {
            cluster: self.clone(),
            name: name.into(),
            options: Options::default(),
            change: Box::new(|builder| builder),
        }
    }
}

/// Locks that all members of a group share. A cheap handle.
///
/// ```no_run
/// # async fn run(cluster: antiphon::Cluster) -> Result<(), Box<dyn std::error::Error>> {
/// let locks = cluster.locks("locks").join().await?;
/// let guard = locks.lock("report").await?;
/// // Give the token to what the lock protects, and let that refuse a lower one than it has seen.
/// println!("held with token {}", guard.token());
/// guard.unlock().await?; // or drop it
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    table: Replicated<LockTable>,
    claims: Arc<Claims>,
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locks").field(&self.table).finish()
    }
}

impl Locks {
    /// Waits for a lock, without end, and holds it alone. First come, first served in the group. While the
    /// primary is lost, a claim that is in the queue waits on: it is granted, or lost with this membership,
    /// when the group goes on.
    ///
    /// # Errors
    /// [`LockError`]: it is not held.
    ///
    /// # Cancel safety
    /// If the future is dropped, the wait ends, and the lock is given back if it was granted.
    pub async fn lock(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire(name, |command| command)
            .await?
            .ok_or(LockError::Lost(Loss::Interrupted))
    }

    /// Waits for a lock at most so long, in agreed time, which stands still while the group has no leader;
    /// not at all if that is zero. `None`: it was not free in time.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self, name: &str, within: Duration) -> Result<Option<Guard>, LockError> {
        self.acquire(name, |command| command.within(within)).await
    }

    /// Waits for a lock that is held beside other shared holders, and beside no exclusive one.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn lock_shared(&self, name: &str) -> Result<Guard, LockError> {
        self.acquire(name, |command| command.mode(Mode::Shared))
            .await?
            .ok_or(LockError::Lost(Loss::Interrupted))
    }

    /// [`lock_shared`](Self::lock_shared) that waits at most so long, as [`try_lock`](Self::try_lock) does.
    /// `None`: it was not free in time.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock_shared(&self, name: &str, within: Duration) -> Result<Option<Guard>, LockError> {
        self.acquire(name, |command| command.mode(Mode::Shared).within(within))
            .await
    }

    /// Waits for some permits of a semaphore that has so many. All users of the name must give the same
    /// number.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn permits(&self, name: &str, take: u32, of: u32) -> Result<Guard, LockError> {
        self.acquire(name, |command| command.mode(Mode::Permits { take, of }))
            .await?
            .ok_or(LockError::Lost(Loss::Interrupted))
    }

    /// [`permits`](Self::permits) that waits at most so long, as [`try_lock`](Self::try_lock) does.
    /// `None`: so many were not free in time.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_permits(
        &self,
        name: &str,
        take: u32,
        of: u32,
        within: Duration,
    ) -> Result<Option<Guard>, LockError> {
        let mode = Mode::Permits { take, of };
        self.acquire(name, |command| command.mode(mode).within(within))
            .await
    }

    /// Waits until this member leads the job of this name. When the leader leaves or fails, the candidate
    /// that has waited longest leads.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn leadership(&self, job: &str) -> Result<Leadership, LockError> {
        Ok(Leadership(self.lock(&leadership(job)).await?))
    }

    /// [`leadership`](Self::leadership) that waits at most so long, as [`try_lock`](Self::try_lock) does.
    /// `None`: another candidate leads, or has waited longer.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_leadership(&self, job: &str, within: Duration) -> Result<Option<Leadership>, LockError> {
        Ok(self.try_lock(&leadership(job), within).await?.map(Leadership))
    }

    /// The incarnation of the member that leads this job, as far as this member knows.
    ///
    /// # Errors
    /// [`ReadError::Refused`]: this member does not serve.
    pub fn leader(&self, job: &str) -> Result<Option<Incarnation>, ReadError> {
        let name = leadership(job);
        self.table
            .read(|table| table.state().holder(&name).map(|(owner, _)| owner.member))
    }

    /// The table itself: which members hold locks or wait, events, members, leaving.
    pub fn table(&self) -> &Replicated<LockTable> {
        &self.table
    }

    async fn acquire(
        &self,
        name: &str,
        change: impl FnOnce(Command) -> Command,
    ) -> Result<Option<Guard>, LockError> {
        let client = self.claims.new_client();
        let (sender, state) = watch::channel(ClaimState::Waits);
        let mut claim = Claim {
            locks: self.clone(),
            client,
            state,
            // If this is dropped before the answer, the claim may be in the table.
            armed: true,
        };
        let command = change(Command::acquire(name, client));
        let (mut epoch, mut sender) = (0, Some(sender));
        // Taken together with the command, so that a removal before it does not count.
        let entered = |now: u64| {
            epoch = now;
            self.claims.add(client, sender.take());
        };
        let answer = self
            .table
            .shared()
            .write_entering(command, Ack::Here, entered)
            .await;
        let granted = match answer.map(|(_, reply)| reply) {
            Err(error) => {
                claim.armed = error.may_have_happened();
                return Err(LockError::Write(error));
            }
            Ok(Err(refused)) => {
                claim.armed = false;
                return match refused {
                    Refused::Busy => Ok(None),
                    refused => Err(LockError::Refused(refused)),
                };
            }
            Ok(Ok(Done::Granted(token))) => ClaimState::Held(token),
            Ok(Ok(_)) => {
                let waits = |state: &ClaimState| *state == ClaimState::Waits;
                let known = claim.state.wait_for(|state| !waits(state)).await;
                known.map_or(ClaimState::Lost(Loss::Stopped), |state| *state)
            }
        };
        match granted {
            ClaimState::Held(token) => Ok(Some(Guard {
                name: name.into(),
                claim,
                token,
                epoch,
            })),
            ClaimState::TimedOut => {
                claim.armed = false;
                Ok(None)
            }
            ClaimState::Lost(loss) => Err(LockError::Lost(loss)),
            ClaimState::Waits | ClaimState::HandingOver { .. } => Err(LockError::Lost(Loss::Interrupted)),
        }
    }
}

/// A lock that is held, with the token of its grant. Dropped, it is given back, in the background.
#[must_use = "dropped, it gives the lock back"]
pub struct Guard {
    name: Box<str>,
    claim: Claim,
    token: Token,
    epoch: u64,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("token", &self.token)
            .field("held", &self.is_held())
            .finish()
    }
}

impl Guard {
    /// The fencing token: greater than all tokens that were given before. What the lock protects has to
    /// refuse a token lower than the greatest that it has seen: only that stops a write that was on its way
    /// when the guard was lost.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the lock is still held. Asks the clock as well: after the process was stopped for so long that
    /// its node's lease is over, this is false at once. True means until the lease ends, so check close to
    /// what you do, and use the token.
    pub fn is_held(&self) -> bool {
        if *self.claim.state.borrow() != ClaimState::Held(self.token) {
            return false;
        }
        let Locks { table, claims } = &self.claim.locks;
        let good = table.shared().sender.is_good(self.epoch);
        if !good {
            claims.lose(self.claim.client, Loss::Interrupted);
        }
        good
    }

    /// Returns when the lock is not held any more, and why. For ever pending while it is.
    ///
    /// A member that leaves the table ([`Replicated::leave`]) is told before another one has the lock. If its
    /// node leaves the cluster ([`Cluster::leave`]), that may be told later:
    /// [`is_held`](Self::is_held) is false from the moment at which the node begins to leave. Leave the table
    /// first where that matters.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> Loss {
        let mut state = self.claim.state.clone();
        match state
            .wait_for(|state| matches!(state, ClaimState::Lost(_)))
            .await
            .as_deref()
        {
            Ok(ClaimState::Lost(loss)) => *loss,
            _ => Loss::Stopped,
        }
    }

    /// Gives the lock back, and waits until that has happened.
    ///
    /// # Errors
    /// [`LockError`]; the lock is given back in the background if it is still held.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is given back in the background.
    pub async fn unlock(mut self) -> Result<(), LockError> {
        let released = self.claim.locks.table.write(Command::release(self.token)).await;
        match released.map_err(LockError::Write)? {
            Ok(_) => {
                self.claim.armed = false;
                Ok(())
            }
            Err(Refused::NotHeld { .. }) => {
                self.claim.armed = false;
                Err(LockError::Lost(self.lost().await))
            }
            Err(refused) => Err(LockError::Refused(refused)),
        }
    }
}

/// This member leads a job. Dropped, it steps down, in the background.
#[derive(Debug)]
#[must_use = "dropped, it steps down"]
pub struct Leadership(Guard);

impl Leadership {
    /// See [`Guard::token`].
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// See [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// See [`Guard::lost`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn lost(&self) -> Loss {
        self.0.lost().await
    }

    /// Hands the job to a member that waits for it, past all that have waited longer. This member leads no
    /// more. The other member may hear of it first, so [`is_held`](Self::is_held) is false from the beginning
    /// of the call on. It is true again if the call says that nothing happened.
    ///
    /// # Errors
    /// [`LockError::Refused`] with [`Refused::NoSuccessor`]: that member does not wait, and this one leads
    /// on. [`LockError::Write`]: see there.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, it happens or is refused all the same;
    /// [`lost`](Self::lost) and [`is_held`](Self::is_held) tell.
    pub async fn hand_over(&self, to: impl Into<Incarnation>) -> Result<(), LockError> {
        let Claim { locks, client, .. } = &self.0.claim;
        let shared = locks.table.shared();
        let command = Command::transfer(self.0.token, to.into());
        let mut handover = Handover::begin(&locks.claims, *client);
        let (answer, answered) = oneshot::channel();
        let table = shared.clone();
        // A task of its own, where the node lives: it goes on even if the caller waits no more, or the
        // caller's runtime ends.
        shared.sender.spawn(async move {
            let entered = |_| handover.may_have_happened = true;
            let handed = match table.write_entering(command, Ack::Here, entered).await {
                Ok((_, Ok(_))) => Ok(()),
                Ok((_, Err(refused))) => Err(LockError::Refused(refused)),
                Err(error) => Err(LockError::Write(error)),
            };
            handover.may_have_happened = match &handed {
                Ok(()) => true,
                Err(LockError::Write(error)) => error.may_have_happened(),
                Err(_) => false,
            };
            // Before the answer, which says what `is_held` gives.
            drop(handover);
            // Fails only when the caller has given up.
            let _ = answer.send(handed);
        });
        answered
            .await
            .unwrap_or(Err(LockError::Write(WriteError::Unknown)))
    }

    /// Steps down, and waits until that has happened. See [`Guard::unlock`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn step_down(self) -> Result<(), LockError> {
        self.0.unlock().await
    }
}

/// Why a lock is held no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Loss {
    /// This node lost its lease or the primary: others may have gone on without it, and may hold the lock. It
    /// counts as lost also if they have not.
    Interrupted,
    /// The group removed this member, or the cluster its node, although it lives: it was not heard, read too
    /// slowly, or its component gave way. It goes on as a new member.
    Removed,
    /// This member left the group, or its node left the cluster.
    Left,
    /// This member's state differed from the others', for which it is gone.
    Diverged,
    /// Its node has stopped without leaving, or the task of this table has panicked.
    Stopped,
    /// It was handed over.
    HandedOver,
    /// It was given back.
    Released,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Interrupted => "this node lost its lease or the primary",
            Loss::Removed => "this member was removed from the group",
            Loss::Left => "this member has left the group",
            Loss::Diverged => "this member's state differed from the others'",
            Loss::Stopped => "its node has stopped",
            Loss::HandedOver => "it was handed over",
            Loss::Released => "it was given back",
        })
    }
}

/// Why a lock is not held, or not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockError {
    /// The command was not answered. If it may have happened, the claim is ended in the background.
    Write(WriteError),
    /// The table refused. Nothing changed.
    Refused(Refused),
    /// The lock, or the place in its queue, was lost. Ask for it again.
    Lost(Loss),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(error) => error.fmt(f),
            Self::Refused(refused) => refused.fmt(f),
            Self::Lost(loss) => write!(f, "the lock was lost: {loss}"),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write(error) => Some(error),
            Self::Refused(refused) => Some(refused),
            Self::Lost(_) => None,
        }
    }
}

/// A client of the table. Dropped, the table forgets it.
struct Claim {
    locks: Locks,
    client: u64,
    state: watch::Receiver<ClaimState>,
    /// The table may know it.
    armed: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let known = match *self.state.borrow() {
            ClaimState::Waits | ClaimState::Held(_) | ClaimState::HandingOver { .. } => true,
            ClaimState::Lost(loss) => loss == Loss::Interrupted,
            ClaimState::TimedOut => false,
        };
        // If there was no room for its command, it was never entered.
        let entered = self.locks.claims.remove(self.client);
        if self.armed && known && entered {
            let client = self.client;
            self.locks.table.shared().insist(Command::Forget { client });
        }
    }
}

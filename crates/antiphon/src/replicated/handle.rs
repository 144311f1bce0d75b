//! The handle of a replicated machine, and how a group is joined for it.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use antiphon_core::MAX_TELL_BYTES;
use antiphon_core::wire::Level;
use antiphon_replica::{Ack, At, Config, Replica, Standing};

use super::shared::{Answered, Happened, Observer, Shared, answer};
use super::spill::SpillFile;
use super::{
    ReadError, ReplicaError, ReplicaEvents, ReplicaMember, ReplicaStatus, ReplicaStatusWatch, Replicable,
    WriteError, task,
};
use crate::{Cluster, ConfigError, Error, Incarnation, Order};

/// The most bytes of what the replica adds to a command.
const COMMAND_OVERHEAD: usize = 256;
/// The longest definition of a machine. A source tells it to a joiner in one message, with some words more.
const MAX_DEFINITION_BYTES: usize = MAX_TELL_BYTES - 1024;

/// A machine to replicate. From [`Cluster::replicated`].
#[must_use = "nothing happens until `join` or `start`"]
pub struct ReplicatedBuilder<M: Replicable> {
    cluster: Cluster,
    name: String,
    make: Box<dyn Fn() -> M + Send>,
    config: Config,
    spill_dir: Option<PathBuf>,
    window_bytes: Option<u32>,
    observer: Observer<M::Event>,
}

impl<M: Replicable> fmt::Debug for ReplicatedBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicatedBuilder")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<M: Replicable> ReplicatedBuilder<M> {
    pub(crate) fn new(cluster: Cluster, name: String, make: impl Fn() -> M + Send + 'static) -> Self {
        Self {
            cluster,
            name,
            make: Box::new(make),
            config: Config::default(),
            spill_dir: None,
            window_bytes: None,
            observer: Box::new(|_| {}),
        }
    }

    /// How many bytes of messages this member holds in memory while it waits for the state; 64 MiB unless
    /// given. Further messages go to a file, see [`spill_bytes`](Self::spill_bytes).
    pub fn held_bytes(mut self, held_bytes: usize) -> Self {
        self.config.held_bytes = held_bytes;
        self
    }

    /// How many bytes of messages this member holds in a file when half of [`held_bytes`](Self::held_bytes)
    /// are in memory, before it gives up ([`ReplicaError::Overrun`]); 1 GiB unless given, 0: no file. The
    /// file is made when it is needed, has no name, and is gone when this member has the state or its process
    /// ends. The messages in it are not encrypted; only this user may read it.
    pub fn spill_bytes(mut self, spill_bytes: u64) -> Self {
        self.config.spill_bytes = spill_bytes;
        self
    }

    /// In which directory that file is made; [`std::env::temp_dir`] unless given, which on some systems is
    /// memory.
    pub fn spill_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.spill_dir = Some(dir.into());
        self
    }

    /// Members compare digests of their states after each so many commands; 0: never; 1024 unless given. All
    /// members must say the same.
    pub fn digest_every(mut self, commands: u64) -> Self {
        self.config.digest_every = commands;
        self
    }

    /// If all members with the state are gone, the most senior member founds it anew, as the machine was
    /// made, and goes on. Otherwise, and unless given, the members report [`ReplicaError::StateLost`] and
    /// refuse writes. A member that says something else than the others is refused.
    pub fn found_anew(mut self, found_anew: bool) -> Self {
        self.config.found_anew = found_anew;
        self
    }

    /// See [`GroupBuilder::window_bytes`](crate::GroupBuilder::window_bytes). A command has to fit it.
    pub fn window_bytes(mut self, window_bytes: u32) -> Self {
        self.window_bytes = Some(window_bytes);
        self
    }

    /// This member's commands are delivered as soon as their place in the order is known: a message delay
    /// earlier, two from five members on; and a member that hangs holds up no write. Then a write that was
    /// answered may still be lost with its member's component, if a partition happens at the same moment; and
    /// so may what was read there. So when a member comes back that was removed while it lived, each entry of
    /// a map has another version, and a write on condition of the former version is refused. Unless this is
    /// called, messages are safe ([`GroupSender::send_safe`](crate::GroupSender::send_safe)): what any member
    /// applied, all members that go on apply, at the same place. Use it for a cache, not for what must be
    /// unique: locks and counters refuse it. A member that says something else than the others is refused.
    pub fn agreed(mut self) -> Self {
        self.config.agreed = true;
        self
    }

    /// All of these at once, with limits that have no method of their own here: call it first.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Refuses [`agreed`](Self::agreed): the purpose of this machine would not hold.
    pub(super) fn always_safe(self, what: &str) -> Result<Self, ReplicaError> {
        if self.config.agreed {
            return Err(ReplicaError::Cluster(Error::Config(ConfigError::Conflict {
                reason: format!(
                    "`agreed` is set for {what}: an answer may be undone then, and a token or id given twice; leave it out"
                ),
            })));
        }
        Ok(self)
    }

    pub(super) fn observer(mut self, observer: impl FnMut(Happened<'_, M::Event>) + Send + 'static) -> Self {
        self.observer = Box::new(observer);
        self
    }

    /// Joins the group of this name, or founds it, and waits until this member has the state.
    ///
    /// # Errors
    /// [`ReplicaError`]; then this node is not in the group any more.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node does not become a member, or leaves again in order.
    pub async fn join(self) -> Result<Replicated<M>, ReplicaError> {
        let replicated = self.start().await?;
        replicated.joined().await?;
        Ok(replicated)
    }

    /// Starts to join and returns at once, also while the cluster is still forming.
    /// [`Replicated::events`] tells how far the state is, [`Replicated::synced`] when it is here.
    ///
    /// # Errors
    /// [`ReplicaError::Cluster`]; with [`Error::Config`] if the machine's definition is too long to be told
    /// to a joiner.
    ///
    /// # Cancel safety
    /// As [`join`](Self::join).
    pub async fn start(self) -> Result<Replicated<M>, ReplicaError> {
        let Self {
            cluster,
            name,
            make,
            mut config,
            spill_dir,
            window_bytes,
            observer,
        } = self;
        let definition = make().definition().len();
        if definition > MAX_DEFINITION_BYTES {
            return Err(ReplicaError::Cluster(Error::Config(ConfigError::Conflict {
                reason: format!(
                    "the machine's definition has {definition} bytes, and a joiner can be told {MAX_DEFINITION_BYTES}: \
                     shorten it (of a map: the text of `types`, and the names of functions)"
                ),
            })));
        }
        let level = if config.agreed { Level::Agreed } else { Level::Safe };
        let mut group = cluster.group(name).order(Order::Total);
        if let Some(window_bytes) = window_bytes {
            group = group.window_bytes(window_bytes);
        }
        // A larger payload is an object, which messages behind it pass: a member's commands keep their order.
        let message = group.largest_message().saturating_sub(COMMAND_OVERHEAD);
        config.max_command_bytes = config.max_command_bytes.min(message);
        let group = group.start().await?;
        let host = cluster.handle.shared.hub().host().clone();
        let me = cluster.incarnation();
        let replica = Replica::new(me, config, make);
        let shared = Arc::new(Shared::new(
            group.sender().without_hold(),
            host,
            level,
            me,
            replica,
            observer,
        ));
        let file = SpillFile::new(spill_dir.unwrap_or_else(std::env::temp_dir));
        shared.sender.spawn(task::run(shared.clone(), group, file));
        Ok(Replicated {
            membership: Arc::new(Membership { shared }),
        })
    }
}

/// A machine that all members of a group have a copy of. A cheap handle: clones speak of the same copy.
///
/// Dropping the last one leaves the group in order, in the background.
///
/// ```no_run
/// # async fn run(cluster: antiphon::Cluster) -> Result<(), Box<dyn std::error::Error>> {
/// # use antiphon::replicated::counters::{Command, CounterTable, Options};
/// let counters = cluster.replicated("hits", || CounterTable::new(Options::default())).join().await?;
/// counters.write(Command::Add { name: "front page".into(), by: 1 }).await?; // applied here, in one order
/// let hits = counters.read(|table| table.state().get("front page"))?;       // of this copy: no message
/// let latest = counters.read_latest(|table| table.state().get("front page")).await?; // of all before this call
/// # let (_, _) = (hits, latest);
/// # Ok(())
/// # }
/// ```
pub struct Replicated<M: Replicable> {
    membership: Arc<Membership<M>>,
}

impl<M: Replicable> Clone for Replicated<M> {
    fn clone(&self) -> Self {
        Self {
            membership: self.membership.clone(),
        }
    }
}

impl<M: Replicable> fmt::Debug for Replicated<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated")
            .field("standing", &self.standing())
            .finish_non_exhaustive()
    }
}

/// The last handle to go leaves.
struct Membership<M: Replicable> {
    shared: Arc<Shared<M>>,
}

impl<M: Replicable> Drop for Membership<M> {
    fn drop(&mut self) {
        self.shared.ask_to_leave();
        self.shared.dropped.notify_one();
    }
}

/// A command that was [begun](Replicated::begin_write): what the machine gave at its place in the order. If
/// it is dropped, the command may happen all the same.
#[must_use = "what comes of the command is known when this is awaited"]
pub struct Writing<M: Replicable>(Answered<M>);

impl<M: Replicable> Future for Writing<M> {
    type Output = Result<M::Reply, WriteError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(answer(answered).map(|(_, reply)| reply))
    }
}

impl<M: Replicable> std::fmt::Debug for Writing<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writing").finish_non_exhaustive()
    }
}

impl<M: Replicable> Replicated<M> {
    /// Gives a command to the machine of all members, waiting while too many requests wait, and returns what
    /// it gave at its place in the order. This member has applied it, all members hold it, and all that go on
    /// apply it ([`agreed`](ReplicatedBuilder::agreed) gives that up).
    ///
    /// # Errors
    /// [`WriteError`], which says whether the command may have happened.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the command may happen all the same.
    pub async fn write(&self, command: M::Command) -> Result<M::Reply, WriteError> {
        Ok(self.write_at(command).await?.1)
    }

    /// The same, and at which place of the order.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    pub async fn write_at(&self, command: M::Command) -> Result<(At, M::Reply), WriteError> {
        self.shared().write(command, Ack::Here).await
    }

    /// The same as [`write`](Self::write), but the command takes its place at once: commands that are begun
    /// one after the other happen in this order, and their answers come in it. For a caller that has many
    /// under way, it takes no task for each. A [`write`](Self::write) that waits for room is not before it.
    ///
    /// # Errors
    /// [`WriteError::Refused`] at once, with [`Refusal::Full`](super::Refusal::Full) while too many requests
    /// wait: [`write`](Self::write) waits for room.
    pub fn begin_write(&self, command: M::Command) -> Result<Writing<M>, WriteError> {
        Ok(Writing(self.shared().begin_write(&command)?))
    }

    /// A [`write`](Self::write) that waits for others: it returns when the command is applied at all members
    /// that had the state when it was delivered and still have it. Then a [`read`](Self::read) at any of them
    /// sees it. It takes one more message delay, and as long as the slowest member.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    pub async fn write_acked(&self, command: M::Command) -> Result<M::Reply, WriteError> {
        Ok(self.shared().write(command, Ack::All).await?.1)
    }

    /// Reads this member's copy: it has all answered writes of this member, and the delivered writes of
    /// others. Costs a lock and no message. The closure runs under the lock of the copy: it must be short,
    /// and must not use this handle.
    ///
    /// # Errors
    /// [`ReadError::Refused`]: this member does not serve.
    pub fn read<T>(&self, read: impl FnOnce(&M) -> T) -> Result<T, ReadError> {
        self.shared().read(read)
    }

    /// Reads a state that has all writes answered to any member before this call (linearizable). Costs an
    /// ordered message, which reads that wait at the same time share. The closure as in [`read`](Self::read).
    ///
    /// # Errors
    /// [`ReadError`].
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn read_latest<T>(&self, read: impl FnOnce(&M) -> T) -> Result<T, ReadError> {
        self.shared().read_latest(read).await
    }

    /// What happens from now on.
    pub fn events(&self) -> ReplicaEvents<M::Event> {
        self.shared().events()
    }

    /// Reads this member's copy and subscribes to what happens after it, without a gap. The closure as in
    /// [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_and_follow<T>(
        &self,
        read: impl FnOnce(&M) -> T,
    ) -> Result<(T, ReplicaEvents<M::Event>), ReadError> {
        self.shared().read_on(read)
    }

    /// The members by seniority, and whether each has the state, as far as this member knows.
    pub fn members(&self) -> Vec<ReplicaMember> {
        self.shared().members()
    }

    /// How this member stands: what it is to the state, how far the state is, the view and which of its
    /// members have the state.
    pub fn status(&self) -> ReplicaStatus {
        self.watch_status().current()
    }

    /// Follows that, for a progress bar:
    ///
    /// ```no_run
    /// # async fn run(cluster: antiphon::Cluster) -> Result<(), Box<dyn std::error::Error>> {
    /// let map = cluster.map::<u64, String>("sessions").start().await?;
    /// let mut status = map.machine().watch_status();
    /// tokio::spawn(async move {
    ///     while let Some(status) = status.changed().await {
    ///         println!("{status}"); // receiving: 1048576 of 4194304 bytes from b (25 %); synced: a b
    ///     }
    /// });
    /// map.machine().synced().await?; // or why the state does not come
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch_status(&self) -> ReplicaStatusWatch {
        self.shared().watch_status()
    }

    /// What this member is to the state.
    pub fn standing(&self) -> Standing {
        self.shared().standing()
    }

    /// This member's incarnation in the group.
    pub fn incarnation(&self) -> Incarnation {
        self.shared().me()
    }

    /// Waits until this member has the state: after [`start`](ReplicatedBuilder::start), or after
    /// [`Void`](super::ReplicaEvent::Void).
    ///
    /// # Errors
    /// [`ReplicaError`]: why it does not.
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn synced(&self) -> Result<(), ReplicaError> {
        self.shared().synced().await
    }

    /// The same; if it does not, this node has left the group when the error is returned, and may join again
    /// at once.
    ///
    /// # Errors
    /// As [`synced`](Self::synced).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; if leaving has begun, it goes on.
    #[doc(hidden)]
    pub async fn joined(&self) -> Result<(), ReplicaError> {
        let synced = self.synced().await;
        if synced.is_err() {
            self.leave().await;
        }
        synced
    }

    /// Leaves in order: writes are refused from here on, and writes that were taken happen. The last member
    /// with the state waits for a joiner that receives it, 10 s unless set (`Config::leave_timeout`).
    ///
    /// Waits for the primary: while there is none, no other member can be told. Put a timeout around it, or
    /// leave by [`Cluster::leave`](crate::Cluster::leave), which takes bounded time.
    ///
    /// # Cancel safety
    /// Leaving goes on if the future is dropped.
    pub async fn leave(&self) {
        self.shared().ask_to_leave();
        self.shared().ended().await;
    }

    pub(super) fn shared(&self) -> &Arc<Shared<M>> {
        &self.membership.shared
    }
}

impl Cluster {
    /// Replicates a machine among the members of the group of this name, which is used for nothing else.
    /// `make` makes the machine in its first state, each time and at each member the same. Nothing happens
    /// until [`ReplicatedBuilder::join`].
    pub fn replicated<M: Replicable>(
        &self,
        name: impl Into<String>,
        make: impl Fn() -> M + Send + 'static,
    ) -> ReplicatedBuilder<M> {
        ReplicatedBuilder::new(self.clone(), name.into(), make)
    }
}

//! Counters and ids, as handles over the [table of counters](antiphon_replica::counters).

use std::fmt;

use antiphon_replica::counters::{Changed, Command, Counter, CounterTable, Done, Options, Refused};
use antiphon_replica::{Condition, Version};

use super::{ReadError, ReplicaError, ReplicaEvents, Replicated, ReplicatedBuilder, WriteError};
use crate::Cluster;

/// A table of counters to join. From [`Cluster::counters`].
#[must_use = "nothing happens until `join` or `start`"]
pub struct CountersBuilder {
    cluster: Cluster,
    name: String,
    options: Options,
    change: Box<dyn FnOnce(ReplicatedBuilder<CounterTable>) -> ReplicatedBuilder<CounterTable> + Send>,
}

impl fmt::Debug for CountersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountersBuilder")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl CountersBuilder {
    /// The bounds of the table; the same at all members.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Changes how the table is replicated. [`agreed`](ReplicatedBuilder::agreed) is refused: an id might be
    /// given twice.
    pub fn replicated(
        mut self,
        change: impl FnOnce(ReplicatedBuilder<CounterTable>) -> ReplicatedBuilder<CounterTable> + Send + 'static,
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
    pub async fn join(self) -> Result<Counters, ReplicaError> {
        let counters = self.start().await?;
        counters.table.joined().await?;
        Ok(counters)
    }

    /// See [`ReplicatedBuilder::start`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn start(self) -> Result<Counters, ReplicaError> {
        let options = self.options;
        let make = move || CounterTable::new(options.clone());
        let builder = (self.change)(self.cluster.replicated(self.name, make)).always_safe("counters")?;
        Ok(Counters {
            table: builder.start().await?,
        })
    }
}

impl Cluster {
    /// Counters and ids of the members of the group of this name. Nothing happens until
    /// [`CountersBuilder::join`].
    pub fn counters(&self, name: impl Into<String>) -> CountersBuilder {
        CountersBuilder {
            cluster: self.clone(),
            name: name.into(),
            options: Options::default(),
            change: Box::new(|builder| builder),
        }
    }
}

/// Counters that all members of a group share, and ids that are given once. A cheap handle.
///
/// ```no_run
/// # async fn run(cluster: antiphon::Cluster) -> Result<(), Box<dyn std::error::Error>> {
/// let counters = cluster.counters("counters").join().await?;
/// let visits = counters.add("visits", 1).await?.value;
/// let mut ids = counters.take_ids(1000).await?; // one message for a thousand ids
/// let id = ids.next();
/// # let (_, _) = (visits, id);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Counters {
    table: Replicated<CounterTable>,
}

/// Consecutive ids that no other caller in the cluster ever gets (under the policy `majority`, and as long as
/// clocks of founders do not go back).
pub type Ids = std::ops::Range<u64>;

impl Counters {
    /// Adds to a counter, which is 0 if it was not there, and returns what it is then. Given again after
    /// [`WriteError::Unknown`] it may count twice.
    ///
    /// # Errors
    /// [`CountingError`].
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, it may happen all the same.
    pub async fn add(&self, name: &str, by: i64) -> Result<Counter, CountingError> {
        let name = name.into();
        Ok(self.counter(Command::Add { name, by }).await?.unwrap_or(NOTHING))
    }

    /// Sets a counter if the condition holds, and returns what it is then.
    ///
    /// # Errors
    /// [`CountingError::Refused`] with [`Refused::Condition`] if it does not hold.
    ///
    /// # Cancel safety
    /// As [`add`](Self::add).
    pub async fn set(&self, name: &str, value: i64, condition: Condition) -> Result<Counter, CountingError> {
        let name = name.into();
        let command = Command::Set {
            name,
            value,
            condition,
        };
        Ok(self.counter(command).await?.unwrap_or(NOTHING))
    }

    /// Removes a counter.
    ///
    /// # Errors
    /// [`CountingError`].
    ///
    /// # Cancel safety
    /// As [`add`](Self::add).
    pub async fn remove(&self, name: &str) -> Result<(), CountingError> {
        let (name, condition) = (name.into(), Condition::Always);
        self.counter(Command::Remove { name, condition }).await?;
        Ok(())
    }

    /// A counter in this member's copy: no message. See [`Replicated::read`].
    ///
    /// # Errors
    /// [`ReadError::Refused`].
    pub fn get(&self, name: &str) -> Result<Option<Counter>, ReadError> {
        self.table.read(|table| table.state().get(name))
    }

    /// A counter, with all changes answered to any member before this call. See [`Replicated::read_latest`].
    ///
    /// # Errors
    /// [`ReadError`].
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn get_latest(&self, name: &str) -> Result<Option<Counter>, ReadError> {
        self.table.read_latest(|table| table.state().get(name)).await
    }

    /// Takes ids for the caller alone: 1 to [`MAX_BLOCK`](super::counters::MAX_BLOCK) in one message. Ids
    /// that are not used are lost, also if the future is dropped.
    ///
    /// # Errors
    /// [`CountingError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, ids may be lost.
    pub async fn take_ids(&self, count: u32) -> Result<Ids, CountingError> {
        match self.write(Command::TakeBlock { count }).await? {
            Done::Block(first) => Ok(first..first.saturating_add(count.into())),
            Done::Counter(_) => Ok(0..0),
        }
    }

    /// What changes from now on.
    pub fn events(&self) -> ReplicaEvents<Changed> {
        self.table.events()
    }

    /// The table itself: members, leaving.
    pub fn table(&self) -> &Replicated<CounterTable> {
        &self.table
    }

    async fn counter(&self, command: Command) -> Result<Option<Counter>, CountingError> {
        match self.write(command).await? {
            Done::Counter(counter) => Ok(counter),
            Done::Block(_) => Ok(None),
        }
    }

    async fn write(&self, command: Command) -> Result<Done, CountingError> {
        self.table
            .write(command)
            .await
            .map_err(CountingError::Write)?
            .map_err(CountingError::Refused)
    }
}

/// Why a counter was not changed, or no ids were given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountingError {
    /// See there: it says whether the command may have happened.
    Write(WriteError),
    /// The table refused. Nothing changed.
    Refused(Refused),
}

impl fmt::Display for CountingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(error) => error.fmt(f),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for CountingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write(error) => Some(error),
            Self::Refused(refused) => Some(refused),
        }
    }
}

/// What a counter that is not there counts as.
const NOTHING: Counter = Counter {
    value: 0,
    version: Version(0),
};

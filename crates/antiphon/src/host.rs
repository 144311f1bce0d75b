//! What a node takes from the host it runs on: time, chance, and a place for its task.
//!
//! In a product there is one host, the system's, and this costs nothing. With the feature `testkit` there is
//! a second kind: its time is virtual, and its chance comes from a seed. One branch at each question decides
//! which host a node runs on.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::Error;
use crate::cluster::ClusterShared;
#[cfg(feature = "testkit")]
use crate::testkit::Machine;

/// The host of a node; the system unless said otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    #[cfg(feature = "testkit")]
    machine: Option<Arc<Machine>>,
}

#[cfg(not(feature = "testkit"))]
const _: () = assert!(size_of::<Host>() == 0, "a product carries no host about");

impl Host {
    #[cfg(feature = "testkit")]
    pub(crate) fn simulated(machine: Arc<Machine>) -> Self {
        Self {
            machine: Some(machine),
        }
    }

    /// Whether its time is that of the runtime.
    pub(crate) fn is_simulated(&self) -> bool {
        #[cfg(feature = "testkit")]
        return self.machine.is_some();
        #[cfg(not(feature = "testkit"))]
        false
    }

    /// Time that never goes back, in microseconds, and runs on while the host is suspended.
    pub(crate) fn micros(&self) -> u64 {
        #[cfg(feature = "testkit")]
        if let Some(machine) = &self.machine {
            return machine.micros();
        }
        system_micros()
    }

    /// The time of day.
    pub(crate) fn time_of_day(&self) -> SystemTime {
        #[cfg(feature = "testkit")]
        if let Some(machine) = &self.machine {
            return machine.time_of_day();
        }
        SystemTime::now()
    }

    pub(crate) fn unix_time_ms(&self) -> u64 {
        let since = self.time_of_day().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// # Errors
    /// [`Error::Entropy`].
    pub(crate) fn entropy(&self) -> Result<u64, Error> {
        #[cfg(feature = "testkit")]
        if let Some(machine) = &self.machine {
            return Ok(machine.draw());
        }
        getrandom::u64().map_err(|_| Error::Entropy)
    }

    /// Runs a node's driver.
    pub(crate) fn run(&self, node: &Arc<ClusterShared>, driver: impl Future<Output = ()> + Send + 'static) {
        #[cfg(feature = "testkit")]
        if let Some(machine) = &self.machine {
            return machine.run_node(node.clone(), driver);
        }
        let _ = node;
        tokio::spawn(driver);
    }

    /// Runs a task of the library's that belongs to a node's process. Called on the node's runtime: see
    /// [`ClusterShared::spawn`].
    #[cfg(feature = "blocks")]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(feature = "testkit")]
        if let Some(machine) = &self.machine {
            return machine.start(task);
        }
        tokio::spawn(task);
    }

    /// Runs this where it may wait for a disk. In a simulation it is run at once, so that runs repeat.
    #[cfg(feature = "blocks")]
    pub(crate) async fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        if self.is_simulated() {
            return work();
        }
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

fn system_micros() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    // Both parts are never negative on a clock that counts from the host's start.
    (now.tv_sec as u64) * 1_000_000 + (now.tv_nsec as u64) / 1_000
}

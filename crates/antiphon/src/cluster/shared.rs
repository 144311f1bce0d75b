//! What handles and driver share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Hub, Status};
use crate::Error;
use crate::group::Unclaimed;
use crate::host::Host;
use antiphon_core::wire::NodeView;
use antiphon_core::{
    Config, GroupHandle, GroupOptions, Inspection, Policy, Recovery, RecoveryError, WhyReport,
};
use antiphon_net::{Fault, Lack, PathStatus};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// Requests of handles to the driver that are too rare to need speed.
#[derive(Debug)]
pub(crate) enum Command {
    JoinGroup {
        name: String,
        options: GroupOptions,
        reply: oneshot::Sender<Result<Unclaimed, Error>>,
    },
    Why {
        name: String,
        reply: oneshot::Sender<WhyReport>,
    },
    Status {
        reply: oneshot::Sender<Status>,
    },
    Examine {
        reply: oneshot::Sender<Box<Examined>>,
    },
    SetFaults {
        faults: Vec<(String, Fault)>,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Recovery {
        reply: oneshot::Sender<Result<Recovery, RecoveryError>>,
    },
    Recover {
        shown: Recovery,
        reply: oneshot::Sender<Result<Arc<NodeView>, RecoveryError>>,
    },
    Leave {
        reply: oneshot::Sender<()>,
    },
}

/// All that a node can say of itself, at one moment. From [`Observer::examine`](crate::Observer::examine).
#[derive(Debug, Clone)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Examined {
    /// What it is doing.
    pub status: Status,
    /// What it knows of its cluster.
    pub inspection: Inspection,
    /// What its transport knows of the way to each peer.
    pub paths: Vec<PathStatus>,
    /// What its host refuses it at present.
    pub lacks: Vec<Lack>,
    /// Addresses that were given as nodes', and at which an agent has answered that serves programs there.
    pub agents: Vec<SocketAddr>,
}

/// What a node was told at its start, as far as others may ask for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Settings {
    /// The cluster's name.
    pub cluster: String,
    /// The node's name.
    #[cfg_attr(feature = "serde", serde(rename = "node"))]
    pub name: String,
    /// The seeds, after their names were resolved.
    pub seeds: Vec<SocketAddr>,
    /// Whether it has a cluster key.
    pub keyed: bool,
    /// The name of its timing preset.
    pub profile: String,
    /// Which component goes on after a partition.
    pub policy: Policy,
    /// What its groups promise unless they are told otherwise.
    pub group_options: GroupOptions,
    /// Of its profile.
    #[cfg(feature = "blocks")]
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) leave_within: Duration,
}

/// `a of shop, keyed, profile lan, policy majority, 3 seeds`.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.keyed { "keyed" } else { "without a key" };
        let (node, cluster, profile, seeds) = (&self.name, &self.cluster, &self.profile, self.seeds.len());
        write!(
            f,
            "{node} of {cluster}, {key}, profile {profile}, policy {}, {seeds} seeds",
            self.policy
        )
    }
}

/// What it is doing, what it knows, and what its host refuses it, a line each.
impl fmt::Display for Examined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.status, self.inspection)?;
        self.lacks.iter().try_for_each(|lack| write!(f, "\n- {lack}"))
    }
}

impl Settings {
    pub(crate) fn of(config: &Config, group_options: GroupOptions) -> Self {
        Self {
            cluster: config.cluster.clone(),
            name: config.name.clone(),
            seeds: config.seeds.clone(),
            keyed: config.key.is_some(),
            profile: config.profile.name.to_string(),
            policy: config.policy,
            group_options,
            #[cfg(feature = "blocks")]
            leave_within: config.profile.leave_within,
        }
    }
}

/// How long a node that has left waits for its guests. They need microseconds.
const SEE_OFF_WITHIN: Duration = Duration::from_millis(500);
/// How many [`Guest`](crate::Guest)s a node has at a time.
pub const MAX_GUESTS: usize = 16;
/// Commands that may wait for the driver.
pub(crate) const MAX_COMMANDS: usize = 64;

#[derive(Debug)]
pub(crate) struct ClusterShared {
    pub(crate) settings: Settings,
    /// At least one.
    pub(crate) addrs: Vec<SocketAddr>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) wake: Wake,
    hub: Hub,
    aborted: AtomicBool,
    end: watch::Sender<End>,
    /// Places for observers that are told of the node until its end.
    guests: Arc<Semaphore>,
    /// What is dropped when the driver stops, for whatever reason.
    kept: Mutex<Vec<Box<dyn Kept>>>,
    /// Where the driver runs, and all tasks of blocks.
    #[cfg(feature = "blocks")]
    runtime: tokio::runtime::Handle,
}

/// How far the node's end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    NotYet,
    /// No handle works any more (R9).
    Handles,
    /// Its transport has gone as well: the ports are free.
    Node,
}

/// Anything that is dropped with the node.
pub(crate) trait Kept: Send + std::fmt::Debug {}

impl<T: Send + std::fmt::Debug> Kept for T {}

impl ClusterShared {
    /// Must be called on the tokio runtime that the node is to live on.
    pub(crate) fn new(
        addrs: Vec<SocketAddr>,
        settings: Settings,
        commands: mpsc::Sender<Command>,
        host: Host,
    ) -> Self {
        Self {
            settings,
            addrs,
            commands,
            wake: Wake::default(),
            hub: Hub::new(host),
            aborted: AtomicBool::new(false),
            end: watch::Sender::new(End::NotYet),
            guests: Arc::new(Semaphore::new(MAX_GUESTS)),
            kept: Mutex::default(),
            #[cfg(feature = "blocks")]
            runtime: tokio::runtime::Handle::current(),
        }
    }

    /// Runs a task of a block on the runtime of the node: so it lives as long as the node, and its caller
    /// needs no runtime.
    #[cfg(feature = "blocks")]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _runtime = self.runtime.enter();
        self.hub.host().spawn(task);
    }

    /// Keeps something for as long as the driver runs.
    pub(crate) fn keep_until_closed(&self, kept: Box<dyn Kept>) {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.handles_are_closed() {
            all.push(kept);
        }
    }

    /// A place for an observer that is told of the node until its end, if one is free.
    pub(crate) fn guest(&self) -> Option<OwnedSemaphorePermit> {
        self.guests.clone().try_acquire_owned().ok()
    }

    /// Waits until all guests have heard the last of the node, but not for long.
    pub(crate) async fn see_guests_off(&self) {
        let all = self.guests.acquire_many(MAX_GUESTS as u32);
        // The semaphore is never closed.
        let _ = tokio::time::timeout(SEE_OFF_WITHIN, all).await;
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.wake.notify.notify_one();
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// The driver does nothing more for handles.
    pub(crate) fn close_handles(&self) {
        self.hub.end();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.comes_to(End::Handles);
        kept.clear();
    }

    /// The driver has stopped, and its transport has gone.
    pub(crate) fn close(&self) {
        self.comes_to(End::Node);
    }

    pub(crate) fn handles_are_closed(&self) -> bool {
        *self.end.borrow() >= End::Handles
    }

    pub(crate) async fn handles_closed(&self) {
        self.has_come_to(End::Handles).await;
    }

    pub(crate) async fn closed(&self) {
        self.has_come_to(End::Node).await;
    }

    fn comes_to(&self, stage: End) {
        self.end.send_if_modified(|end| {
            let before = std::mem::replace(end, stage.max(*end));
            before != *end
        });
    }

    async fn has_come_to(&self, stage: End) {
        // The sender is part of `self`, so waiting cannot fail.
        let _ = self.end.subscribe().wait_for(|end| *end >= stage).await;
    }
}

/// Groups with something for the driver to do. Many wake-ups before the driver comes round cost one.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    groups: Mutex<Vec<GroupHandle>>,
    pub(crate) notify: Notify,
}

impl Wake {
    pub(crate) fn group(&self, group: GroupHandle) {
        self.groups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(group);
        self.notify.notify_one();
    }

    pub(crate) fn take(&self) -> Vec<GroupHandle> {
        std::mem::take(&mut *self.groups.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Counts the application's handles; the last one to go stops the node.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<ClusterShared>,
    counts: bool,
}

impl Handle {
    pub(crate) fn new(shared: Arc<ClusterShared>) -> Self {
        Self { shared, counts: true }
    }

    /// One that does not count: with it, a block's task speaks to the node and does not keep it alive.
    #[cfg(feature = "blocks")]
    pub(crate) fn uncounted(shared: Arc<ClusterShared>) -> Self {
        Self {
            shared,
            counts: false,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.counts && !self.shared.handles_are_closed() {
            tracing::warn!(
                target: "antiphon::membership",
                cluster = %self.shared.settings.cluster,
                node = %self.shared.settings.name,
                "dropped without leave(): the others will see a lost connection and remove this node after a while"
            );
            self.shared.abort();
        }
    }
}

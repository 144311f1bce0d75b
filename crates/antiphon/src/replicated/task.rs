//! The task that reads the group for a replica, and comes round when the replica asks for it.

use std::pin::Pin;
use std::sync::Arc;

use antiphon_replica::{Pieces, Snapshot};

use super::shared::Shared;
use super::spill::SpillFile;
use super::{ReplicaError, Replicable};
use crate::driven::{self, EVENTS_PER_TURN, Timer, Wait, any, watch};
use crate::{ClusterEvent, ClusterEvents, Error, Group, GroupSender};

/// Tells the end to all callers that wait, also if the task is dropped with its process.
struct Finish<M: Replicable>(Arc<Shared<M>>);

impl<M: Replicable> Drop for Finish<M> {
    fn drop(&mut self) {
        self.0.finish(match std::thread::panicking() {
            true => ReplicaError::Panicked,
            false => ReplicaError::Cluster(Error::Closed),
        });
    }
}

/// Reads the state for a joiner on a thread for blocking work: a write that comes meanwhile waits neither for
/// the lock nor for the runtime.
struct Reader<S>(Option<Pin<Box<dyn Future<Output = Pieces<S>> + Send>>>);

impl<S: Snapshot> Reader<S> {
    fn begin<M: Replicable<Snapshot = S>>(&mut self, shared: &Shared<M>) {
        if self.0.is_none()
            && let Some(reading) = shared.next_reading()
        {
            let host = shared.host.clone();
            self.0 = Some(Box::pin(
                async move { host.blocking(move || reading.run()).await },
            ));
        }
    }

    /// What was begun is done; never if nothing was.
    async fn done(&mut self) -> Pieces<S> {
        let Some(work) = &mut self.0 else {
            return std::future::pending().await;
        };
        let pieces = work.await;
        self.0 = None;
        pieces
    }
}

/// Runs until the group was left. It tells the end also if the runtime drops it before it has begun.
pub(super) fn run<M: Replicable>(
    shared: Arc<Shared<M>>,
    group: Group,
    file: SpillFile,
) -> impl Future<Output = ()> + Send {
    let work = |shared: Arc<Shared<M>>, group| work(shared.clone(), group, file, Finish(shared));
    driven::run(shared, group, |shared| &shared.dropped, work)
}

async fn work<M: Replicable>(
    shared: Arc<Shared<M>>,
    mut group: Group,
    mut file: SpillFile,
    finish: Finish<M>,
) {
    let mut of_node = shared.sender.node_events();
    let mut events = Vec::with_capacity(EVENTS_PER_TURN);
    let mut timer = Timer::new();
    let mut reader = Reader(None);
    let left = loop {
        let mut need = shared.take(&mut events);
        // The task first makes sure that it will notice new room, and only then asks again: room that came in
        // between is not missed.
        let rooms = need.blocked.rooms(&shared.sender);
        let mut waits: Vec<Wait<'_>> = rooms.iter().map(|room| watch(room)).collect();
        if need.blocked.group {
            waits.push(watch(shared.sender.room()));
        }
        if !waits.is_empty() {
            need = shared.take(&mut events);
        }
        if let Some(reason) = need.leaves.take() {
            break Some(reason);
        }
        reader.begin(&shared);
        if file.is_idle() {
            match shared.next_spill() {
                Some((id, spill)) => file.begin(&shared.host, id, spill),
                None if !shared.needs_file() => file.clear(&shared.host),
                None => {}
            }
        }
        timer.set(&shared.host, need.deadline);
        tokio::select! {
            biased;
            said = node_says(&mut of_node, &shared.sender) => match said {
                Some(said) => said.tell(&shared),
                None => break None,
            },
            // Before more is read: a finished write to the file makes room for it in memory.
            (id, outcome) = file.done() => shared.spilled(id, outcome),
            pieces = reader.done() => shared.read_for_joiner(pieces),
            taken = group.next_turn(&mut events, EVENTS_PER_TURN) => {
                if taken == 0 {
                    // The node ends its groups after its last word, which may have come just now.
                    while let Some(said) = said_by_now(&mut of_node, &shared.sender).await {
                        said.tell(&shared);
                    }
                    break None;
                }
            }
            () = shared.wake.notified() => {}
            // What callers begin that are to run already goes in one message.
            () = shared.begun.notified() => tokio::task::yield_now().await,
            () = any(&mut waits) => {}
            () = timer.rings() => shared.rang(),
        }
    };
    match left {
        None => {}
        Some(reason) => {
            shared.part();
            // The answer is that it has left, whatever it is.
            let _ = group.leave().await;
            shared.finish(match reason.as_str() {
                "left" => ReplicaError::Left,
                _ => ReplicaError::Superseded { reason },
            });
        }
    }
    drop(finish);
}

/// What the node says that changes what a member may do, or why its membership ends.
enum OfNode {
    Lease {
        held: bool,
    },
    /// It has left its cluster in order.
    Left,
}

impl OfNode {
    fn tell<M: Replicable>(self, shared: &Shared<M>) {
        match self {
            Self::Lease { held } => shared.set_lease(held),
            Self::Left => shared.node_has_left(),
        }
    }
}

/// Waits for what the node says. `None` when it has stopped.
async fn node_says(cluster: &mut ClusterEvents, sender: &GroupSender) -> Option<OfNode> {
    loop {
        match cluster.next().await? {
            ClusterEvent::Lease { held } => return Some(OfNode::Lease { held }),
            // Each incarnation begins without.
            ClusterEvent::Incarnation(_) => return Some(OfNode::Lease { held: false }),
            ClusterEvent::Left => return Some(OfNode::Left),
            ClusterEvent::Overrun => *cluster = sender.node_events(),
            _ => {}
        }
    }
}

/// The same without waiting. `None` also when it has said nothing more.
async fn said_by_now(cluster: &mut ClusterEvents, sender: &GroupSender) -> Option<OfNode> {
    tokio::select! {
        biased;
        said = node_says(cluster, sender) => said,
        () = std::future::ready(()) => None,
    }
}

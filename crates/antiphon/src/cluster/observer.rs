//! A handle that only observes a node: for consoles, metrics and supervisors.

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_core::wire::NodeView;
use antiphon_core::{Recovery, WhyReport};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{ClusterEvents, ClusterShared, Command, Examined, Noted, Settings};
use crate::Error;

/// What is to be known of a node, and what an operator may do with it. It does not keep the node alive: once
/// the node has stopped, questions end with [`Error::Closed`]. From
/// [`Cluster::observer`](crate::Cluster::observer).
///
/// # Cancel safety
/// Each question may be dropped: it changes nothing, but for [`recover`](Observer::recover).
#[derive(Debug, Clone)]
pub struct Observer {
    shared: Arc<ClusterShared>,
}

/// A place at a node's end: a node that has left waits until its guests are gone, for half a second at most,
/// so that they can pass on its last events. From [`Observer::guest`].
#[derive(Debug)]
pub struct Guest {
    _place: OwnedSemaphorePermit,
}

impl Observer {
    pub(crate) fn of(shared: Arc<ClusterShared>) -> Self {
        Self { shared }
    }

    /// What the node was told at its start.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Where the others reach the node, best first. At least one address.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.shared.addrs
    }

    /// As [`Cluster::history`](crate::Cluster::history).
    pub fn history(&self) -> (Vec<Noted>, ClusterEvents) {
        self.shared.hub().history()
    }

    /// All that the node can say of itself, at one moment.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn examine(&self) -> Result<Box<Examined>, Error> {
        self.ask(|reply| Command::Examine { reply }).await
    }

    /// As [`Cluster::why`](crate::Cluster::why).
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn why(&self, name: impl Into<String>) -> Result<WhyReport, Error> {
        let name = name.into();
        self.ask(|reply| Command::Why { name, reply }).await
    }

    /// As [`Cluster::recovery`](crate::Cluster::recovery).
    ///
    /// # Errors
    /// [`Error::NotRecovered`]: why that is no way out here. [`Error::Closed`].
    pub async fn recovery(&self) -> Result<Recovery, Error> {
        let shown = self.ask(|reply| Command::Recovery { reply }).await?;
        shown.map_err(Error::NotRecovered)
    }

    /// As [`Cluster::recover`](crate::Cluster::recover): **unsafe**, for an operator's word alone.
    ///
    /// # Errors
    /// [`Error::NotRecovered`]; nothing has changed. [`Error::Closed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, it may or may not have happened.
    pub async fn recover(&self, shown: Recovery) -> Result<Arc<NodeView>, Error> {
        let done = self.ask(|reply| Command::Recover { shown, reply }).await?;
        done.map_err(Error::NotRecovered)
    }

    /// A place for an observer that is told of the node until its end; none if all
    /// [`MAX_GUESTS`](crate::MAX_GUESTS) are taken.
    pub fn guest(&self) -> Option<Guest> {
        self.shared.guest().map(|place| Guest { _place: place })
    }

    /// Keeps something until the node has stopped, for whatever reason, and drops it then.
    pub fn keep_until_closed(&self, kept: impl Send + std::fmt::Debug + 'static) {
        self.shared.keep_until_closed(Box::new(kept));
    }

    /// Returns when the node has stopped, and its ports are free.
    pub async fn closed(&self) {
        self.shared.closed().await;
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.shared
            .commands
            .send(command(reply))
            .await
            .map_err(|_| Error::Closed)?;
        // A node that is ending answers nothing more, and holds what was asked until its last connections are
        // closed.
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| Error::Closed),
            () = self.shared.handles_closed() => Err(Error::Closed),
        }
    }
}

//! The node: routes inputs to the layers and their effects to the outputs.

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_wire::frame::OpenError;
use antiphon_wire::{Incarnation, NodeView};
use bytes::Bytes;

use crate::{
    Config, ConfigError, Event, GroupHandle, GroupOptions, LifelineEvent, Output, PathTrouble, SendError,
    Ticket, Time, WhyReport,
};

/// What a node dropped, and why. Each is harmless by design; a fast rising one deserves a look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames whose header or tag was wrong.
    pub frames_refused: u64,
    /// Authentic frames with records that could not be read: a bug or a peer of a newer version.
    pub frames_malformed: u64,
    /// Records for another incarnation of this process.
    pub records_misaddressed: u64,
    /// Links given up because the peer acknowledged nothing for too long.
    pub links_broken: u64,
    /// Messages that did not fit a frame or whose peer had no address.
    pub messages_dropped: u64,
}

/// One node of a cluster. See the crate's page for the contract.
#[derive(Debug)]
pub struct Node {
    config: Arc<Config>,
}

impl Node {
    /// Starts a node: it begins to look for its seeds at once. `seed` must be fresh entropy in a product.
    pub fn new(config: Config, seed: [u64; 4], now: Time) -> Result<Self, ConfigError> {
        let _ = (seed, now);
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// A frame arrived. `from` is the transport's idea of the sender's address, used only to answer discovery.
    ///
    /// # Errors
    /// Why the frame was refused before anything in it was read; nothing changed. A transport closes a connection
    /// that brings such frames and logs the cause.
    pub fn handle_frame(&mut self, now: Time, from: SocketAddr, frame: Bytes) -> Result<(), OpenError> {
        let _ = (now, from, frame);
        Ok(())
    }

    /// The transport noticed something about the path to an advertised address.
    pub fn handle_path_trouble(&mut self, now: Time, to: SocketAddr, trouble: PathTrouble) {
        let _ = (now, to, trouble);
    }

    /// Something happened to a lifeline.
    ///
    /// # Errors
    /// Why a record was refused; the driver resets that connection.
    pub fn handle_lifeline(&mut self, now: Time, event: LifelineEvent) -> Result<(), OpenError> {
        let _ = (now, event);
        Ok(())
    }

    /// A deadline given by [`Node::poll_timeout`] has passed. Calling it early or late is harmless; lateness is noticed.
    pub fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// Joins (or founds) a group. The first view follows as an event; before the node is in a cluster, it waits.
    pub fn join_group(
        &mut self,
        now: Time,
        name: &str,
        options: GroupOptions,
    ) -> Result<GroupHandle, ConfigError> {
        let _ = (now, name, options);
        Ok(GroupHandle(0))
    }

    /// Sends a message to a group. On success it is queued and will be delivered in order, also here.
    pub fn send(&mut self, now: Time, group: GroupHandle, payload: Bytes) -> Result<Ticket, SendError> {
        let _ = (now, group, payload);
        Err(SendError::NoSuchGroup)
    }

    /// The application has taken this many more message events of the group: their bytes are credit again.
    pub fn consumed(&mut self, now: Time, group: GroupHandle, messages: u64) {
        let _ = (now, group, messages);
    }

    /// Leaves a group in order; [`crate::GroupEvent::Left`] follows.
    pub fn leave_group(&mut self, now: Time, group: GroupHandle) {
        let _ = (now, group);
    }

    /// Leaves the cluster in order: its groups first, then the node view. [`Event::Left`] follows, at the latest
    /// after `Profile::leave_within`.
    pub fn leave(&mut self, now: Time) {
        let _ = now;
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// When [`Node::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// This node's present incarnation.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(0)
    }

    /// The installed node view, primary or not.
    pub fn view(&self) -> Option<Arc<NodeView>> {
        let _ = &self.config;
        None
    }

    /// What was dropped so far.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// What this node knows about why a named node is or is not a member.
    pub fn why(&self, now: Time, name: &str) -> WhyReport {
        let _ = now;
        WhyReport {
            name: name.to_owned(),
            entries: Vec::new(),
        }
    }
}

//! What a node is doing, in one piece.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::wire::{Incarnation, NodeView};
use antiphon_net::TransportCounters;

/// What a node is doing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// The node's name.
    pub name: String,
    /// Where the others reach it.
    pub addr: SocketAddr,
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// Where it stands.
    pub phase: Phase,
    /// The installed node view.
    pub view: Option<Arc<NodeView>>,
    /// Its groups.
    pub groups: Vec<GroupStatus>,
    /// The links to each peer that has several addresses.
    pub links: Vec<crate::PeerLinks>,
    /// The members to which this node has no steady direct path, and through which members it speaks with
    /// them.
    pub paths: Vec<crate::PeerPath>,
    /// What its transport counted.
    pub transport: TransportCounters,
    /// Since its start.
    pub uptime: Duration,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// No cluster yet.
    Forming,
    /// Member of a primary view.
    Primary,
    /// Member of a component without a majority.
    NonPrimary,
    /// On its way out.
    Leaving,
}

antiphon_core::named!(
    Phase, "phase":
    Forming = "forming", Primary = "primary", NonPrimary = "non-primary", Leaving = "leaving"
);

/// A group as this node sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Its last view.
    pub view: Option<Arc<crate::View>>,
    /// Events that wait for the application.
    pub unread_events: usize,
    /// Messages accepted and not yet delivered here.
    pub pending_sends: usize,
}

/// `a of shop: primary, view 57301 [a b c]; groups: main`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.name, self.cluster, self.phase)?;
        if let Some(view) = &self.view {
            write!(f, ", {view}")?;
        }
        if !self.groups.is_empty() {
            let names: Vec<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
            write!(f, "; groups: {}", names.join(" "))?;
        }
        Ok(())
    }
}

/// Its last view, and what waits.
impl fmt::Display for GroupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.view {
            Some(view) => write!(f, "{view}")?,
            None => write!(f, "{} without a view", self.name)?,
        }
        let (unread, pending) = (self.unread_events, self.pending_sends);
        write!(
            f,
            "; {unread} events unread, {pending} messages not delivered yet"
        )
    }
}

/// Of the fields that a console's `status` has as well, each is as it is there. `node_view` is the whole
/// view.
#[cfg(feature = "serde")]
impl serde::Serialize for Status {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Written<'a> {
            node: &'a str,
            cluster: &'a str,
            state: Phase,
            addr: SocketAddr,
            incarnation: Incarnation,
            #[serde(with = "antiphon_core::wire::json::millis")]
            uptime_ms: Duration,
            view: Option<u32>,
            members: usize,
            groups: std::collections::BTreeMap<&'a str, Option<usize>>,
            connections_refused: u64,
            node_view: Option<&'a NodeView>,
            links: &'a [crate::PeerLinks],
            paths: &'a [crate::PeerPath],
            transport: &'a TransportCounters,
        }
        let view = self.view.as_deref();
        let groups = self.groups.iter().map(|group| {
            let members = group.view.as_ref().map(|view| view.members.len());
            (group.name.as_str(), members)
        });
        let written = Written {
            node: &self.name,
            cluster: &self.cluster,
            state: self.phase,
            addr: self.addr,
            incarnation: self.incarnation,
            uptime_ms: self.uptime,
            view: view.map(|view| view.number),
            members: view.map_or(0, |view| view.members.len()),
            groups: groups.collect(),
            connections_refused: self.transport.connections_refused,
            node_view: view,
            links: &self.links,
            paths: &self.paths,
            transport: &self.transport,
        };
        written.serialize(serializer)
    }
}

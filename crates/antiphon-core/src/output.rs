//! What the core asks its driver to do. Outputs are performed in the order they are polled.

use std::net::SocketAddr;

use antiphon_wire::Incarnation;
use antiphon_wire::frame::Frame;
use bytes::Bytes;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Try to bring a frame to an address. It may be lost, doubled, reordered: the core copes.
    Frame {
        /// An address of the peer: the first it advertises, or a further one where that does not work.
        to: SocketAddr,
        /// Which of the peer's connections it belongs on.
        class: Class,
        /// The sealed frame; one encoding is shared by all destinations.
        frame: Frame,
    },
    /// Try to bring a frame to everyone who listens at the cluster's multicast address. Only with
    /// [`Config::multicast`](crate::Config::multicast).
    Multicast {
        /// The sealed frame.
        frame: Frame,
    },
    /// Try to bring a frame to an address in one datagram, from the port that the node listens on, at once:
    /// where there is no room for it, it is lost. Only with
    /// [`Config::udp_probes`](crate::Config::udp_probes).
    Probe {
        /// An address of the peer, as for frames.
        to: SocketAddr,
        /// The sealed frame, of at most [`MAX_PROBE_BYTES`](antiphon_wire::frame::MAX_PROBE_BYTES).
        frame: Bytes,
    },
    /// Something about a lifeline on which this node is the watched side.
    Lifeline(LifelineCommand),
    /// R10: leave this to the witness, in place of all that was left before; `None` is nothing. Only with
    /// [`Config::witness`](crate::Config::witness). Must be done before any later output. If it cannot be
    /// done whole, nothing must be left; if not even that can be, the process must do no later output any
    /// more: the witness would take an earlier vote for the last.
    LastVoteRecord {
        /// The sealed record.
        sealed: Option<Bytes>,
    },
}

/// Frames of different classes never wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Membership, flush, heartbeats, acknowledgements: small and urgent.
    Control,
    /// Messages and repairs.
    Bulk,
}

/// The number of one attempt to have a lifeline, never used again by the process. Whatever a driver says of a
/// lifeline of its own says it of a dial: what comes late, of a dial that was given up, is not taken for the
/// present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u64);

/// The watched side of lifelines. The watched side dials, and only it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifelineCommand {
    /// Dial a lifeline to `to`, so that it watches this process. Answered by [`LifelineEvent::Opened`],
    /// [`LifelineEvent::Failed`] or [`LifelineEvent::NotDialled`].
    Open {
        /// This attempt.
        dial: DialId,
        /// Who shall watch.
        to: Incarnation,
        /// An address of it, as for frames.
        addr: SocketAddr,
    },
    /// Write a whole record at once, without waiting. If the socket cannot take all of it now, reset the
    /// connection (linger 0) and answer [`LifelineEvent::Failed`]. Must be done before any later output.
    Write {
        /// Which lifeline.
        dial: DialId,
        /// The sealed record.
        record: Bytes,
    },
    /// Reset the connection (linger 0): never a FIN.
    Reset {
        /// Which lifeline, open or still being dialled.
        dial: DialId,
    },
}

/// What happened to a lifeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifelineEvent {
    /// An outbound lifeline is connected; the core answers with the hello record as a `Write`.
    Opened {
        /// Which.
        dial: DialId,
        /// This end's address as this side sees it.
        local: SocketAddr,
        /// The other end's address as this side sees it.
        remote: SocketAddr,
    },
    /// An outbound lifeline could not be dialled, could not take a record, or ended.
    Failed {
        /// Which.
        dial: DialId,
    },
    /// An outbound lifeline could not be dialled for want of something that this host does not give the node.
    /// That says nothing of the watcher, nor of the way to it.
    NotDialled {
        /// Which.
        dial: DialId,
    },
    /// A record arrived on an inbound lifeline: this node watches its writer.
    Record {
        /// The driver's number for the connection, never reused.
        connection: u64,
        /// This end's address as this side sees it.
        local: SocketAddr,
        /// The other end's address as this side sees it.
        remote: SocketAddr,
        /// The sealed record.
        record: Bytes,
    },
    /// An inbound lifeline ended.
    Ended {
        /// The driver's number for the connection.
        connection: u64,
        /// How it ended.
        end: LifelineEnd,
    },
}

/// How an inbound lifeline ended. Only a clean FIN can prove a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LifelineEnd {
    /// A read of zero bytes, no error ever seen on this socket, and the socket in CLOSE_WAIT.
    Fin,
    /// A reset, a keepalive failure, any error, or closed by this side.
    Broken,
}

/// What a transport noticed about the path to a peer. Evidence for a suspicion, never proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathTrouble {
    /// A connection was closed or reset by the other side or the network.
    Lost,
    /// A connection attempt was refused.
    Refused,
    /// A connection attempt or write timed out.
    TimedOut,
}

impl std::fmt::Display for PathTrouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PathTrouble::Lost => "lost",
            PathTrouble::Refused => "refused",
            PathTrouble::TimedOut => "timed out",
        })
    }
}

antiphon_wire::written_as_text!(PathTrouble);

//! Errors: which side is at fault, whether anything changed, what to do.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use antiphon_core::{ConfigError, RecoveryError};
use antiphon_net::Lack;

/// Why something could not be done. Nothing was changed unless the variant says so.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot work; change it.
    Config(ConfigError),
    /// An address or host name could not be understood or resolved; the text says which.
    Address {
        /// What was given.
        given: String,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The port could not be bound.
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The multicast group could not be joined.
    Multicast {
        /// Its address.
        group: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The file for the witness cannot be used: no supervisor of this process made it, or `/proc` is not
    /// mounted.
    LastVoteRecord {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A locator's state file could not be read, or its folder is not there.
    State {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The cluster refused this node for good; the text says which side must change what. The node has
    /// stopped.
    Refused {
        /// In the refusing side's words.
        reason: String,
    },
    /// The group refused this member.
    GroupRefused {
        /// Both sides of the difference.
        reason: String,
    },
    /// This process has already joined the group; use the [`Group`](crate::Group) it got then.
    AlreadyJoined {
        /// The group's name.
        group: String,
    },
    /// This process is still leaving the group: its handle was dropped, or leaves. That waits for the
    /// primary. Join again in a moment.
    StillLeaving {
        /// The group's name.
        group: String,
    },
    /// No node of this name has been in a view, so its address is not known.
    UnknownPeer {
        /// What was given.
        name: String,
    },
    /// The node does not go on alone ([`Cluster::recover`](crate::Cluster::recover)), for this reason.
    NotRecovered(RecoveryError),
    /// Faults are injected only into nodes that were built with `allow_faults` (`--allow-faults`).
    FaultsNotAllowed,
    /// The node's timer could not be made: no descriptors are left, most likely.
    Timer {
        /// What the system says.
        source: io::Error,
    },
    /// The system gave no entropy; an incarnation cannot be made.
    Entropy,
    /// The node has left, was dropped, or its task has died. Nothing more will happen on this handle.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(error) => write!(f, "configuration: {error}"),
            Error::Address { given, source } => write!(f, "address {given:?}: {source}"),
            Error::Bind { addr, source } => {
                let remedy = match Lack::of(source) {
                    None => "",
                    Some(Lack::Port) => "; no interface of this host has that address",
                    Some(Lack::Permission) => "; ports below 1024 need a privilege (CAP_NET_BIND_SERVICE)",
                    Some(lack) => &format!("; {}", lack.remedy()),
                };
                write!(f, "cannot listen on {addr}: {source}{remedy}")
            }
            Error::Multicast { group, source } => write!(
                f,
                "cannot join multicast group {group}: {source}; is the interface right, and does it do multicast?"
            ),
            Error::LastVoteRecord { path, source } => write!(
                f,
                "cannot leave anything to a witness at {}: {source}; is /proc mounted, and was this process started by its witness?",
                path.display()
            ),
            Error::State { path, source } => write!(
                f,
                "the state file {} cannot be used: {source}; give another one, or none",
                path.display()
            ),
            Error::Refused { reason } => write!(f, "the cluster refused this node: {reason}"),
            Error::GroupRefused { reason } => write!(f, "the group refused this member: {reason}"),
            Error::AlreadyJoined { group } => {
                write!(
                    f,
                    "this process has already joined group {group:?}; use the handle it got then"
                )
            }
            Error::StillLeaving { group } => {
                write!(
                    f,
                    "this process is still leaving group {group:?}, for which the cluster must be primary; join again in a moment"
                )
            }
            Error::UnknownPeer { name } => {
                write!(
                    f,
                    "no node called {name:?} has been in a view here; give its address instead"
                )
            }
            Error::NotRecovered(reason) => write!(f, "not recovered: {reason}"),
            Error::FaultsNotAllowed => {
                f.write_str("faults are injected only with allow_faults (--allow-faults)")
            }
            Error::Timer { source } => write!(
                f,
                "cannot make a timer: {source}; allow the process more open files"
            ),
            Error::Entropy => f.write_str("the system gave no entropy"),
            Error::Closed => f.write_str("the node has left the cluster or was stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Config(error) => Some(error),
            Error::NotRecovered(reason) => Some(reason),
            Error::Address { source, .. }
            | Error::Bind { source, .. }
            | Error::Multicast { source, .. }
            | Error::Timer { source }
            | Error::State { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// An error of the system cannot be copied: an error with the same number, or kind and text, takes its place.
impl Clone for Error {
    fn clone(&self) -> Self {
        let again = |source: &io::Error| match source.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(source.kind(), source.to_string()),
        };
        match self {
            Error::Config(error) => Error::Config(error.clone()),
            Error::Address { given, source } => Error::Address {
                given: given.clone(),
                source: again(source),
            },
            Error::Bind { addr, source } => Error::Bind {
                addr: *addr,
                source: again(source),
            },
            Error::Multicast { group, source } => Error::Multicast {
                group: *group,
                source: again(source),
            },
            Error::LastVoteRecord { path, source } => Error::LastVoteRecord {
                path: path.clone(),
                source: again(source),
            },
            Error::State { path, source } => Error::State {
                path: path.clone(),
                source: again(source),
            },
            Error::Refused { reason } => Error::Refused {
                reason: reason.clone(),
            },
            Error::GroupRefused { reason } => Error::GroupRefused {
                reason: reason.clone(),
            },
            Error::AlreadyJoined { group } => Error::AlreadyJoined { group: group.clone() },
            Error::StillLeaving { group } => Error::StillLeaving { group: group.clone() },
            Error::UnknownPeer { name } => Error::UnknownPeer { name: name.clone() },
            Error::NotRecovered(reason) => Error::NotRecovered(reason.clone()),
            Error::FaultsNotAllowed => Error::FaultsNotAllowed,
            Error::Timer { source } => Error::Timer {
                source: again(source),
            },
            Error::Entropy => Error::Entropy,
            Error::Closed => Error::Closed,
        }
    }
}

antiphon_core::wire::written_as_text!(Error, SendError);

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Error::Config(error)
    }
}

/// Why a message was not taken. Nothing was sent, nor will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// No view of the group yet, or none again until this node has joined anew. Wait for the next
    /// [`Event::View`](crate::Event::View).
    NotMember,
    /// This component has no majority of the last primary view. Wait for the next
    /// [`Event::View`](crate::Event::View).
    NotPrimary,
    /// Only from [`try_send`](crate::GroupSender::try_send): the queue is full because some member has not
    /// consumed what was sent.
    Full,
    /// Larger than any payload of the group.
    TooLarge {
        /// The most bytes of a payload: what
        /// [`GroupBuilder::max_object_bytes`](crate::GroupBuilder::max_object_bytes) says.
        limit: usize,
    },
    /// The message has a scope, and the group's order is not [`Order::Scoped`](crate::Order::Scoped).
    NotScoped,
    /// The group or the cluster was left, or the node's task has died.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::TooLarge { limit } => {
                return write!(
                    f,
                    "the payload is larger than {limit} bytes, the most that the group takes; send it in parts, or give all its members a larger max_object_bytes (a scoped group takes no more than its window, or 1 MiB)"
                );
            }
            SendError::NotMember => "this node is not a member of the group yet; wait for its next view",
            SendError::NotPrimary => {
                "this component has no majority of the last primary view; sending resumes when it is reunited with it"
            }
            SendError::Full => "the queue is full: some member has not consumed what was sent",
            SendError::NotScoped => "the message has a scope, and the group's order is not `scoped`",
            SendError::Closed => "the group or the cluster was left",
        })
    }
}

impl std::error::Error for SendError {}

impl From<antiphon_core::SendError> for SendError {
    fn from(error: antiphon_core::SendError) -> Self {
        match error {
            antiphon_core::SendError::NotMember => SendError::NotMember,
            antiphon_core::SendError::NotPrimary => SendError::NotPrimary,
            antiphon_core::SendError::Full => SendError::Full,
            antiphon_core::SendError::TooLarge { limit } => SendError::TooLarge { limit },
            antiphon_core::SendError::NotScoped => SendError::NotScoped,
            // A handle outlives its group.
            _ => SendError::Closed,
        }
    }
}

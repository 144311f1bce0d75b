//! What this host does not give the node: never the fault of a peer, and never a reason to doubt a peer.
//!
//! A node without a free file descriptor cannot dial. It must not take that for a peer that ends its
//! connections. It must not tell the core of trouble with the peer's path either: the core would have others
//! doubt a peer that is well.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Input;
use crate::transport::InputSenders;

/// The driver is told of the same lack again after this long.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Something that the system refuses to this process, or has none of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lack {
    /// The process may not open more files (RLIMIT_NOFILE); each connection is one.
    Files,
    /// The whole host may not open more files.
    FilesOfHost,
    /// The kernel has no memory for it.
    Memory,
    /// The disk is full, or the user's share of it.
    Disk,
    /// No local address or port is left for the connection.
    Port,
    /// This process may not do that.
    Permission,
}

impl Lack {
    /// What the system lacks, if that is what the error says.
    pub fn of(error: &io::Error) -> Option<Self> {
        Some(match error.raw_os_error()? {
            libc::EMFILE => Lack::Files,
            libc::ENFILE => Lack::FilesOfHost,
            libc::ENOMEM | libc::ENOBUFS => Lack::Memory,
            libc::ENOSPC | libc::EDQUOT => Lack::Disk,
            libc::EADDRNOTAVAIL => Lack::Port,
            libc::EACCES | libc::EPERM => Lack::Permission,
            _ => return None,
        })
    }

    /// Whether other ways out of this host may be open all the same: another address, another interface.
    pub(crate) fn is_of_one_way(self) -> bool {
        matches!(self, Lack::Port | Lack::Permission)
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Lack::Files => {
                "raise the limit of open files: LimitNOFILE= of a service, `ulimit -Hn` as root before the start"
            }
            Lack::FilesOfHost => "raise fs.file-max (sysctl), or end what holds so many files",
            Lack::Memory => "give the host more memory, or its control group a higher limit",
            Lack::Disk => "make room on that disk, or give another place",
            Lack::Port => {
                "look whether the interface is up and has its address (`ip address`), and whether all local ports are taken (`ss -s`)"
            }
            Lack::Permission => {
                "look at the firewall of this host, at its security module, and at what the user of this process may do"
            }
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::Files => "this process may not open more files",
            Lack::FilesOfHost => "this host may not open more files",
            Lack::Memory => "this host has no memory left for it",
            Lack::Disk => "the disk is full",
            Lack::Port => "this host has no address or port left for it",
            Lack::Permission => "this host forbids it",
        })
    }
}

antiphon_core::wire::written_as_text!(Lack);

/// Tells the driver of each lack, at most once a second: a node usually tries many times a second what it
/// lacks.
#[derive(Debug, Default)]
pub(crate) struct Lacks {
    told: Mutex<BTreeMap<Lack, Instant>>,
}

impl Lacks {
    /// Returns what is lacking, if that is what the error says.
    pub(crate) fn note(&self, inputs: &InputSenders, error: &io::Error) -> Option<Lack> {
        let lack = Lack::of(error)?;
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let due = told
            .get(&lack)
            .is_none_or(|at| now.duration_since(*at) >= TOLD_EVERY);
        // A driver that is too busy is told the next time.
        if due && inputs.urgent.try_send(Input::Lack { lack }).is_ok() {
            told.insert(lack, now);
        }
        Some(lack)
    }
}

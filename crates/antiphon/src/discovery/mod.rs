//! How nodes find each other: where to ask, while that may change.
//!
//! ```text
//!   dns:db.example:7400 ─┐
//!   srv:_antiphon._tcp.… ┤ one task each,     board: what each       hints      core: asks these,
//!   file:/etc/nodes ─────┼─ for ever ───────► found last, and ─────► (bounded) ► besides the seeds
//!   multicast ───────────┤                    what is wrong
//!   your own (channel) ──┘                         │
//!   --locators A,B ──────┘                         └──► ClusterEvent::Discovery, log
//! ```
//! # What is found is only asked
//! Lists that sources find differ from node to node and from second to second, so nothing is decided by them.
//! A cluster is *founded* by what is configured: a majority of the seeds that are written out, the same at
//! each node; or [`expect`](crate::Builder::expect) nodes, wherever they come from; or
//! [`found`](crate::Builder::found). A node that has none of these waits until it finds a cluster, and says
//! so. A node that finds nobody never takes itself for alone. And a node founds no cluster before each source
//! has said something and the addresses that it named have had time to answer: the core is told which of the
//! sources have spoken.
//!
//! # What happens when a source…
//! | source | is empty | is wrong | is slow | changes |
//! |---|---|---|---|---|
//! | `dns`, `srv` | what it gave last stays, and it is said | nobody answers there, or refuses the frames; asked on | 6 s, then it counts as failed; the others go on | asked again for ever: each second or so without a cluster, each 30 s in one, with jitter |
//! | `file` | the last good list stays, and it is said | the same, with the line at fault | 5 s, then that is said; others go on | read each second; a list that can be read replaces the last one |
//! | `multicast` | nobody is heard; announced again and again | datagrams that do not open are dropped | – | a node that was not heard for 30 s is forgotten |
//! | locator | answers with nobody; asked again | frames that do not open are refused | asked again, others go on | its name is resolved again for ever |
//! | your own | as you say | – | – | as you say |
//!
//! - *The two halves of a network see different lists*: at most one of them has a majority of the seeds, or
//!   `expect` nodes.
//! - *Everything is restarted at once*: nodes wait, are found as soon as any source names them, and found by
//!   the same rule as the first time.
//!
//! # Bounds
//! 16 sources; 256 addresses and 16 locators of all sources together, one of each source by turns; the rest
//! is left out with a warning. Without a key and without [`insecure`](crate::Builder::insecure) only loopback
//! addresses are asked.

mod board;
mod dns;
mod file;
mod look;
mod multicast;
mod resolver;
mod source;
mod tasks;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

pub(crate) use board::Board;
pub use look::Looked;
pub(crate) use multicast::{config as multicast_config, open as open_multicast};
pub(crate) use resolver::Resolver;
pub(crate) use source::Kind;
#[cfg(feature = "config")]
pub(crate) use source::interface_of;
pub use source::{DISCOVERY_PORT, LOCATOR_PORT, Source, SourceError};
pub(crate) use tasks::{Sources, Tasks};

/// The most sources a node has, and the most that locators are named in.
pub const MAX_SOURCES: usize = 16;

/// What an application's own discovery says: the latest counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    pub(crate) nodes: Vec<SocketAddr>,
    pub(crate) problem: Option<String>,
    /// Rises with each word of the source, so that only silence looks like silence.
    pub(crate) words: u64,
}

/// An application's own way to find nodes: give the [`Source`] to
/// [`Builder::discover`](crate::Builder::discover), and say what is found with the [`Finder`], whenever it
/// changes. Say also that nobody was found. A source that has said nothing yet may be about to name a member:
/// so a node founds no cluster before the source has spoken, or twice `unreachable_after` of the profile have
/// passed (8 s with `lan`).
///
/// ```
/// let (finder, source) = antiphon::discovery::channel("consul");
/// let builder = antiphon::Cluster::builder("shop").name("a").discover(source).expect(3);
/// finder.found(["10.0.0.2:7400".parse().unwrap(), "10.0.0.3:7400".parse().unwrap()]);
/// finder.failed("the catalogue does not answer"); // the addresses found last stay in use
/// # drop(builder);
/// ```
pub fn channel(name: impl Into<String>) -> (Finder, Source) {
    let (sender, receiver) = watch::channel(Said::default());
    let finder = Finder {
        sender: Arc::new(sender),
    };
    let source = Source(Kind::Own {
        name: name.into(),
        said: receiver,
    });
    (finder, source)
}

/// Says what an application's own discovery has found. From [`channel`]. Clones speak for the same source;
/// when all are dropped, what was said last stays in use.
#[derive(Debug, Clone)]
pub struct Finder {
    sender: Arc<watch::Sender<Said>>,
}

impl Finder {
    /// Nodes may be at these addresses, and nowhere else as far as this source knows: at most 256, what is
    /// above is left out. None is an answer, too.
    pub fn found(&self, nodes: impl IntoIterator<Item = SocketAddr>) {
        let nodes = nodes.into_iter().take(antiphon_core::MAX_HINTS + 1).collect();
        self.sender.send_modify(|said| {
            said.nodes = nodes;
            said.problem = None;
            said.words += 1;
        });
    }

    /// Nothing can be found now, for this reason. What was found last stays in use.
    pub fn failed(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.sender.send_modify(|said| {
            said.problem = Some(reason);
            said.words += 1;
        });
    }
}

//! Nodes in this process, for tests of what serves them.

use std::net::SocketAddr;
use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::{Cluster, Profile};
use tokio::net::TcpStream;

use crate::Hub;
use crate::socket::{Listener, Serving};

/// For what has no failure detection in it, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(2);

/// A node that founds a cluster, or joins that of the first.
pub(crate) async fn cluster(network: &MemoryNetwork, number: u8, founds: bool) -> Cluster {
    let builder = Cluster::builder("test")
        .name(format!("n{number}"))
        .bind(format!("10.0.0.{number}:7400"))
        .memory(network)
        .profile(Profile::local());
    let builder = match founds {
        true => builder.found(),
        false => builder.seeds(["10.0.0.1:7400"]),
    };
    builder.start().await.unwrap()
}

/// An agent: a node that serves programs at a port.
pub(crate) struct Agent {
    pub(crate) hub: Hub,
    pub(crate) addr: SocketAddr,
    _serving: Serving,
}

impl Agent {
    pub(crate) async fn start(network: &MemoryNetwork, number: u8, founds: bool) -> Self {
        Self::of(Hub::new(cluster(network, number, founds).await)).await
    }

    pub(crate) async fn of(hub: Hub) -> Self {
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(None, &[anywhere]).await.unwrap();
        Self {
            addr: listener.addrs()[0],
            _serving: listener.serve(&hub),
            hub,
        }
    }

    /// One that is its cluster.
    pub(crate) async fn alone() -> Self {
        let agent = Self::start(&MemoryNetwork::new(), 1, true).await;
        until(|| agent.hub.cluster().view().is_some()).await;
        agent
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }
}

/// Waits until this holds.
#[track_caller]
pub(crate) fn until(holds: impl Fn() -> bool) -> impl Future<Output = ()> {
    let from = std::panic::Location::caller();
    async move {
        for _ in 0..SOON.as_millis() / TICK.as_millis() {
            if holds() {
                return;
            }
            tokio::time::sleep(TICK).await;
        }
        panic!("{from}: not soon");
    }
}

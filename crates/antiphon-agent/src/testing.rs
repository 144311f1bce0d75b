//! Nodes in this process, for tests of what serves them.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::{Cluster, GroupOptions, Profile};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::Hub;
use crate::socket::{Listener, Serving};
use crate::stdio::stdin::Input;
use crate::stdio::{Groups, Printer, Session, Spool, stdout};

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

/// What is written, to be read by a test.
#[derive(Clone, Default)]
pub(crate) struct Paper(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper {
    /// The lines that have this in them. The last one may not be whole yet.
    pub(crate) fn lines_with(&self, what: &str) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n') && line.contains(what))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// A node that obeys lines, as `antiphon node --json` does.
pub(crate) struct Obedient {
    pub(crate) paper: Paper,
    input: mpsc::Sender<Input>,
    _session: Session,
    _leave: mpsc::Receiver<()>,
}

impl Obedient {
    /// It joins these groups.
    pub(crate) async fn start(hub: Hub, groups: &[&str]) -> Self {
        let paper = Paper::default();
        let (stdout, _writer) = stdout::start(paper.clone());
        let groups = Groups {
            names: groups.iter().map(ToString::to_string).collect(),
            options: GroupOptions::default(),
            hint: None,
        };
        let events = hub.cluster().events();
        let printer = Printer::new(stdout, true);
        let spool = Arc::new(Spool::new(None, hub.cluster().incarnation()));
        let started = Session::start(hub, events, &groups, printer, spool).await;
        let mut session = started.unwrap();
        let (input, lines) = mpsc::channel(64);
        let (asked, _leave) = mpsc::channel(1);
        session.obey(lines, asked);
        Self {
            paper,
            input,
            _session: session,
            _leave,
        }
    }

    pub(crate) async fn say(&self, line: Value) {
        let line = Input::Line(line.to_string().into());
        self.input.send(line).await.unwrap();
    }
}

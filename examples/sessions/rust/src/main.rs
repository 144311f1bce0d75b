//! A web shop on several servers that share the sessions of its browsers: any server answers any request, and
//! one that is killed takes no session with it.
//!
//! ```text
//!  browsers ──► nginx ─┬─► this program, a ─┐
//!                      ├─► this program, b ─┼─ one cluster: the map `sessions`
//!                      └─► this program, c ─┘
//! ```
//! The node's settings come from the environment, as those of the program `antiphon` do:
//!
//! ```sh
//! ANTIPHON_CLUSTER=shop ANTIPHON_NAME=a ANTIPHON_BIND=10.0.0.1:7400 ANTIPHON_KEY_FILE=/etc/antiphon.key \
//!     ANTIPHON_SEEDS=10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 antiphon-example-sessions --serve 10.0.0.1:8080
//! ```
//! SIGTERM ends it in order: it says that it is not ready, takes no new connection, answers what it has
//! taken, and leaves the cluster.

mod sessions;
mod shop;
mod told;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use antiphon::Builder;
use axum::serve::Listener;
use clap::Parser;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use sessions::{Plant, Sessions};
use shop::Shop;
use told::Told;

/// What was taken is answered within this time, or not at all.
const MOST_DRAIN: Duration = Duration::from_secs(10);
/// Leaving the map waits for the majority, so that the other servers are told. After this time this server
/// goes without. The map itself may wait 10 s for a server that receives the sessions.
const MOST_LEAVE: Duration = Duration::from_secs(12);
/// The request on a new connection is here within this time. When the server is told to end, it cuts each
/// connection of which it has read nothing.
const FIRST_BYTES: Duration = Duration::from_millis(300);

/// One server of the shop. The settings of its node are in the environment: ANTIPHON_CLUSTER, ANTIPHON_NAME,
/// ANTIPHON_BIND, ANTIPHON_SEEDS and so on.
#[derive(Parser)]
struct Arguments {
    /// Where to serve browsers.
    #[arg(long, default_value = "127.0.0.1:8080")]
    serve: SocketAddr,
    /// How long a session lives after its last request, in seconds.
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..=86_400 * 365))]
    time_to_live: u64,
    /// After SIGTERM, for how many milliseconds to say at /readyz that this server is not ready before it
    /// takes no connection any more. Give what a balancer that asks there needs; nginx does not ask.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=60_000))]
    not_ready: u64,
    /// A mistake to make, to see that the check finds it.
    #[arg(long)]
    plant: Option<Plant>,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(LOGGED)
        .init();
    let arguments = Arguments::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut asked_to_stop =
        async || tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} };

    let cluster = Builder::from_env("ANTIPHON_")?.start().await?;
    let time_to_live = Duration::from_secs(arguments.time_to_live);
    let sessions = tokio::select! {
        joined = Sessions::join(&cluster, time_to_live, arguments.plant) => joined?,
        () = asked_to_stop() => return Ok(cluster.leave().await?),
    };

    // From here on there are sessions to serve. Before, no connection is taken: the balancer goes elsewhere.
    let stopping = Arc::new(AtomicBool::new(false));
    let told = Told::new();
    let shop = Shop {
        sessions: sessions.clone(),
        told: told.clone(),
        server: cluster.name().to_owned(),
        time_to_live,
        stopping: stopping.clone(),
    };
    let mut telling = tokio::spawn(shop.clone().tell_pages());
    let (close, closing) = watch::channel(false);
    let (closed, mut is_closed) = watch::channel(false);
    let listener = Door::open(arguments.serve, closing, closed).await?;
    println!("serving {}", listener.local_addr()?);
    let server = axum::serve(listener, shop::routes(shop))
        .with_graceful_shutdown(async move { drop(is_closed.wait_for(|closed| *closed).await) });
    let mut server = tokio::spawn(server.into_future());

    tokio::select! {
        () = asked_to_stop() => {}
        ended = &mut server => ended??,
        // Nothing can be served any more: a supervisor starts this program anew.
        _ = &mut telling => return Err("this server is not among those with the sessions any more".into()),
    }
    stopping.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(arguments.not_ready)).await;
    told.close_pages();
    close.send_replace(true);
    if tokio::time::timeout(MOST_DRAIN, server).await.is_err() {
        eprintln!("some requests were not answered within {MOST_DRAIN:?}: they are given up");
    }
    if tokio::time::timeout(MOST_LEAVE, sessions.leave()).await.is_err() {
        eprintln!("the sessions were not left in order within {MOST_LEAVE:?}: this server leaves without");
    }
    cluster.leave().await?;
    println!("left");
    Ok(())
}

const LOGGED: tracing_subscriber::filter::LevelFilter = tracing_subscriber::filter::LevelFilter::WARN;

/// Takes connections until it is told to close, and then those that the system has taken already. A POST on a
/// connection that is cut counts as failed; one whose connection is refused goes to another server.
struct Door {
    listener: Option<TcpListener>,
    addr: SocketAddr,
    closing: watch::Receiver<bool>,
    last: VecDeque<(TcpStream, SocketAddr)>,
    closed: watch::Sender<bool>,
}

impl Door {
    async fn open(
        addr: SocketAddr,
        closing: watch::Receiver<bool>,
        closed: watch::Sender<bool>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        Ok(Self {
            addr: listener.local_addr()?,
            listener: Some(listener),
            closing,
            last: VecDeque::new(),
            closed,
        })
    }

    /// Asks the system itself, since the runtime may not know yet of a connection that is there, and closes
    /// at once.
    fn close(&mut self) -> std::io::Result<()> {
        let Some(listener) = self.listener.take() else {
            return Ok(());
        };
        let listener = listener.into_std()?;
        let mut last = Vec::new();
        while let Ok(accepted) = listener.accept() {
            last.push(accepted);
        }
        drop(listener);
        for (stream, addr) in last {
            stream.set_nonblocking(true)?;
            self.last.push_back((TcpStream::from_std(stream)?, addr));
        }
        Ok(())
    }
}

impl Listener for Door {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        if let Some(listener) = &mut self.listener {
            tokio::select! {
                accepted = Listener::accept(listener) => return accepted,
                _ = self.closing.wait_for(|closing| *closing) => {}
            }
        }
        if let Err(error) = self.close() {
            eprintln!("some connections are cut: {error}");
        }
        match self.last.pop_front() {
            Some(accepted) => accepted,
            None => {
                tokio::time::sleep(FIRST_BYTES).await;
                self.closed.send_replace(true);
                std::future::pending().await
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

//! `antiphon-bench worker`: one node that does what it is told, through the public API alone.
//!
//! ```text
//!  crew ── stdin: Ask, one JSON object a line ──► worker ── Cluster ── map, locks, calls ──► other workers
//!       ◄──────── stdout: Say ──────────────────   │
//! ```
//! - [`words`]: the lines; [`load`]: how a load is counted.
//! - [`maps`], [`locking`], [`calling`], [`patterns`], [`blob`]: the loads, each with what it opens.
//!
//! Node and load run on one thread, as those of `antiphon bench` do. It ends with its crew: when its standard
//! input ends.

mod blob;
mod calling;
pub(crate) mod load;
mod locking;
mod maps;
mod patterns;
pub(crate) mod words;

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;

use antiphon::calls::Calls;
use antiphon::replicated::Replicated;
use antiphon::{Cluster, Locks};
use clap::Args;
use tokio::sync::mpsc;

use super::Figures;
use crate::Failure;
use words::{Ask, Open, Say};

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Name of the cluster
    #[arg(long)]
    cluster: String,
    /// Name of the node
    #[arg(long)]
    name: String,
    /// Where it listens
    #[arg(long)]
    bind: SocketAddr,
    /// All nodes
    #[arg(long, value_delimiter = ',')]
    seeds: Vec<SocketAddr>,
    /// How many members a block has when it is complete
    #[arg(long)]
    members: usize,
}

/// Works until it is told to leave.
pub(crate) fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    let (asking, asked) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                // Fails only when this process is about to end.
                Ok(ask) => _ = asking.blocking_send(ask),
                Err(error) => eprintln!("antiphon-bench worker: {line:?}: {error}"),
            }
        }
        // The crew is gone, and with it whoever wants to know more.
        std::process::exit(0);
    });
    let (cluster, node) = (args.cluster.clone(), args.name.clone());
    let (bind, seeds, members) = (args.bind, args.seeds.clone(), args.members);
    // A task like the node's: what a runtime blocks on itself is woken by way of the system, also from its
    // own thread.
    let lived = runtime.spawn(async move {
        let builder = Cluster::builder(cluster).name(node).bind(bind).seeds(seeds);
        let cluster = builder
            .insecure()
            .join()
            .await
            .map_err(|error| error.to_string())?;
        live(cluster, members, asked).await
    });
    let result = runtime
        .block_on(lived)
        .unwrap_or_else(|error| Err(format!("the load ended by itself: {error}")));
    if let Err(reason) = &result {
        say(&Say::Failed {
            reason: reason.clone(),
        });
    }
    runtime.shutdown_background();
    result
}

/// What is open at this node.
#[derive(Default)]
struct Blocks {
    map: Option<maps::Table>,
    locks: Option<Locks>,
    calls: Option<Calls>,
    versions: Option<patterns::Table>,
    blob: Option<Replicated<blob::Blob>>,
}

async fn live(cluster: Cluster, members: usize, mut asked: mpsc::Receiver<Ask>) -> Result<(), Failure> {
    let mut blocks = Blocks::default();
    say(&Say::Here);
    while let Some(ask) = asked.recv().await {
        match ask {
            Ask::Open { open } => blocks.open(&cluster, open, members).await?,
            Ask::Put { put, time } => done(maps::put(open(&blocks.map)?, put, time).await?),
            Ask::Get { get } => done(maps::get(open(&blocks.map)?, get).await?),
            Ask::Lock { lock, time } => {
                done(locking::lock(open(&blocks.locks)?, cluster.name(), lock, time).await?);
            }
            Ask::Serve { bind } => locking::serve(bind),
            Ask::LockAt {
                server,
                rank,
                lock,
                time,
            } => done(locking::ask(server, rank, lock, time).await?),
            Ask::Hold { hold } => locking::hold(open(&blocks.locks)?, hold).await?,
            Ask::Mix { mix, time } => {
                done(calling::mix(open(&blocks.calls)?, cluster.incarnation(), mix, time).await?);
            }
            Ask::Versions { pattern, time } => {
                let table = blocks.versions.as_mut().ok_or("the block is not open")?;
                done(patterns::run(table, &cluster, pattern, time).await?);
            }
            Ask::Fill { bytes, members } => {
                blob::fill(open(&blocks.blob)?, bytes, members).await?;
                done(Figures::new());
            }
            Ask::Write { pace, time } => done(blob::write(open(&blocks.blob)?, pace, time).await?),
        }
    }
    Ok(())
}

impl Blocks {
    async fn open(&mut self, cluster: &Cluster, open: Open, members: usize) -> Result<(), Failure> {
        match open {
            Open::Map { agreed } => self.map = Some(maps::open(cluster, agreed, members).await?),
            Open::Locks => self.locks = Some(locking::open(cluster, members).await?),
            Open::Calls { bytes } => self.calls = Some(calling::open(cluster, bytes, members).await?),
            Open::Versions => self.versions = Some(patterns::open(cluster, members).await?),
            Open::Blob { bytes } => {
                let (blob, figures) = blob::open(cluster, bytes).await?;
                self.blob = Some(blob);
                done(figures);
                return Ok(());
            }
        }
        say(&Say::Open);
        Ok(())
    }
}

fn open<T>(block: &Option<T>) -> Result<&T, Failure> {
    block.as_ref().ok_or_else(|| "the block is not open".to_owned())
}

fn done(figures: Figures) {
    say(&Say::Done { figures });
}

fn say(say: &Say) {
    let mut line = serde_json::to_string(say).unwrap_or_default();
    line.push('\n');
    // The crew is gone if it fails, and this process is about to end.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

//! Loads on locks: ours, and those of a server that is asked and answers.
//!
//! The server is what a lock costs without any copy of the table: one process, nothing on disk, one message
//! there and one back for each operation. If it dies, all is lost.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use antiphon::{Cluster, Locks};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::load;
use super::words::{Held, Hold, Lock, Say, Time};
use crate::Failure;
use crate::blocks::Figures;

/// Between two looks at whether the server is there.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// To reach the server, one each time that it looks.
const TRIES: usize = 400;
/// Of a request: an operation, and the number of the lock.
const REQUEST_BYTES: usize = 9;
const ACQUIRE: u8 = 1;
const RELEASE: u8 = 2;

/// Joins, and waits until all members have the table.
pub(super) async fn open(cluster: &Cluster, members: usize) -> Result<Locks, Failure> {
    let locks = cluster
        .locks("locks")
        .join()
        .await
        .map_err(|error| error.to_string())?;
    load::until_synced(locks.table().watch_status(), members).await?;
    Ok(locks)
}

/// Takes and gives back locks. One operation is both.
pub(super) async fn lock(locks: &Locks, node: &str, lock: Lock, time: Time) -> Result<Figures, Failure> {
    let (locks, node) = (locks.clone(), node.to_owned());
    let one = move |task: usize, _| {
        let locks = locks.clone();
        let name = if lock.contended {
            "one".to_owned()
        } else {
            format!("{node}-{task}")
        };
        async move {
            let guard = locks.lock(&name).await.map_err(|error| error.to_string())?;
            guard.unlock().await.map_err(|error| error.to_string())
        }
    };
    load::run(lock.clients, time, one).await
}

/// Waits for a lock and tells when it is held; it is held until this process ends.
pub(super) async fn hold(locks: &Locks, hold: Hold) -> Result<(), Failure> {
    let failed = |error: antiphon::replicated::LockError| error.to_string();
    let said = |clock_us: u64| {
        super::say(&Say::Held {
            held: Held { clock_us },
        })
    };
    let for_ever = Duration::from_secs(3600);
    if hold.leads {
        let leadership = locks.leadership(&hold.name).await.map_err(failed)?;
        said(crate::blocks::clock_us());
        tokio::time::sleep(for_ever).await;
        drop(leadership);
    } else {
        let guard = locks.lock(&hold.name).await.map_err(failed)?;
        said(crate::blocks::clock_us());
        tokio::time::sleep(for_ever).await;
        drop(guard);
    }
    Ok(())
}

/// A lock of the server: held, and those that wait for it.
type Table = Arc<Mutex<HashMap<u64, VecDeque<oneshot::Sender<()>>>>>;

/// Serves locks, in a thread of its own, for as long as this process lives.
pub(super) fn serve(bind: SocketAddr) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        let served = runtime.block_on(async {
            let listener = TcpListener::bind(bind).await?;
            let table = Table::default();
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                tokio::spawn(answer(stream, table.clone()));
            }
            #[expect(unreachable_code, reason = "the type of the error")]
            Ok::<(), std::io::Error>(())
        });
        if let Err(error) = served {
            super::say(&Say::Failed {
                reason: error.to_string(),
            });
        }
    });
}

/// One client: a request after the answer to the last one.
async fn answer(mut stream: TcpStream, table: Table) {
    let mut request = [0; REQUEST_BYTES];
    while stream.read_exact(&mut request).await.is_ok() {
        let [operation, lock @ ..] = request;
        let lock = u64::from_be_bytes(lock);
        let waits = {
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            if operation == ACQUIRE {
                match table.get_mut(&lock) {
                    None => {
                        table.insert(lock, VecDeque::new());
                        None
                    }
                    Some(waiting) => {
                        let (grant, granted) = oneshot::channel();
                        waiting.push_back(grant);
                        Some(granted)
                    }
                }
            } else {
                let next = table.get_mut(&lock).and_then(VecDeque::pop_front);
                // A client that is gone does not take it: the load never ends with one that waits.
                if next.is_none_or(|next| next.send(()).is_err()) {
                    table.remove(&lock);
                }
                None
            }
        };
        if let Some(granted) = waits {
            // Its sender is in the table.
            let _ = granted.await;
        }
        if stream.write_all(&[operation]).await.is_err() {
            return;
        }
    }
}

/// The server may be about to listen.
async fn connect(server: SocketAddr) -> Result<TcpStream, Failure> {
    let mut failure = Failure::new();
    for _ in 0..TRIES {
        match TcpStream::connect(server).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = format!("the lock server at {server}: {error}"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(failure)
}

/// Takes and gives back locks of the server: each client has a connection.
pub(super) async fn ask(server: SocketAddr, rank: usize, lock: Lock, time: Time) -> Result<Figures, Failure> {
    let mut streams = Vec::new();
    for _ in 0..lock.clients {
        let stream = connect(server).await?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        streams.push(Arc::new(tokio::sync::Mutex::new(stream)));
    }
    let streams = Arc::new(streams);
    let one = move |task: usize, _| {
        let stream = streams[task].clone();
        let number = if lock.contended {
            u64::MAX
        } else {
            (rank as u64) << 32 | task as u64
        };
        async move {
            let mut stream = stream.lock().await;
            for operation in [ACQUIRE, RELEASE] {
                let mut request = [operation; REQUEST_BYTES];
                request[1..].copy_from_slice(&number.to_be_bytes());
                let asked = async {
                    stream.write_all(&request).await?;
                    stream.read_u8().await
                };
                asked.await.map_err(|error| format!("the lock server: {error}"))?;
            }
            Ok(())
        }
    };
    load::run(lock.clients, time, one).await
}

//! A job that one node at a time does. When that node goes, the next one takes over.
//!
//! `cargo run -p antiphon --example leader_only_job` starts three nodes, and each leader leaves after a
//! while.
//!
//! Or one node a terminal, to be ended by Ctrl-C or kill:
//! `cargo run -p antiphon --example leader_only_job -- a 127.0.0.1:7430` (and `b …:7431`, `c …:7432`)

use std::time::Duration;

use antiphon::Cluster;
use antiphon::replicated::{LockError, Loss};

const ADDRS: [&str; 3] = ["127.0.0.1:7430", "127.0.0.1:7431", "127.0.0.1:7432"];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    if let (Some(name), Some(addr)) = (args.next(), args.next()) {
        return work(name, addr, u32::MAX).await;
    }
    let nodes = ["a", "b", "c"].into_iter().zip(ADDRS);
    let nodes: Vec<_> = nodes
        .map(|(name, addr)| tokio::spawn(work(name.into(), addr.into(), 3)))
        .collect();
    for node in nodes {
        node.await??;
    }
    Ok(())
}

/// Does the job so many times while it leads, then leaves.
async fn work(name: String, addr: String, times: u32) -> Result<()> {
    let cluster = Cluster::builder("jobs")
        .name(&name)
        .bind(addr)
        .seeds(ADDRS)
        .join()
        .await?;
    let locks = cluster.locks("leaders").join().await?;
    let mut done = 0;
    while done < times {
        println!("{name}: standing by");
        let leadership = match locks.leadership("report").await {
            Ok(leadership) => leadership,
            // Cut off from the majority, or removed: it stands by until it is back.
            Err(LockError::Write(_) | LockError::Lost(Loss::Interrupted | Loss::Removed)) => {
                locks.table().synced().await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(over) => return Err(over.into()),
        };
        println!("{name}: I do the job, with token {}", leadership.token());
        // Cut off from the majority, another one may be leading there: then it stops, and stands by again.
        while done < times && leadership.is_held() {
            tokio::select! {
                loss = leadership.lost() => println!("{name}: I lead no more: {loss}"),
                () = tokio::time::sleep(Duration::from_millis(200)) => done += 1,
            }
        }
    }
    println!("{name}: leaves");
    cluster.leave().await?;
    Ok(())
}

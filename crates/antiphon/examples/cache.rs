//! A cache that three nodes share. It survives a rolling restart: each node leaves and joins again in turn,
//! and all entries are still there. An entry with a time to live expires at all nodes.
//!
//! `cargo run -p antiphon --example cache`

use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::replicated::{WatchEvent, map};
use antiphon::{Cluster, Map};

const NAMES: [&str; 3] = ["a", "b", "c"];
const ADDRS: [&str; 3] = ["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"];
const PAGES: u32 = 100;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Pages = Map<String, String>;

/// Starts a node, and returns when it has all entries.
async fn start(network: &MemoryNetwork, number: usize) -> Result<(Cluster, Pages)> {
    let node = Cluster::builder("shop").name(NAMES[number]).bind(ADDRS[number]);
    let node = node.seeds(ADDRS).memory(network).join().await?;
    // Options and types are the same at all nodes: they are compared when a node joins.
    let options = map::Options {
        max_bytes: 16 << 20,
        full: map::Full::EvictOldest,
        ..map::Options::default()
    };
    let builder = node.map("pages").types("path -> page 1").options(options);
    // A cache may forget: a write is answered one message delay earlier.
    let pages = builder.replicated(|machine| machine.agreed()).join().await?;
    Ok((node, pages))
}

fn path(number: u32) -> String {
    format!("/page/{number}")
}

#[tokio::main]
async fn main() -> Result<()> {
    let network = MemoryNetwork::new();
    // A majority of the seeds founds the cluster.
    let (a, b, c) = tokio::try_join!(start(&network, 0), start(&network, 1), start(&network, 2))?;
    let mut nodes = [a, b, c];
    for number in 0..PAGES {
        nodes[0].1.put(&path(number), &format!("page {number}")).await?;
    }
    for (number, (node, pages)) in nodes.iter_mut().enumerate() {
        node.leave().await?;
        node.closed().await; // now its port is free
        (*node, *pages) = start(&network, number).await?;
        println!("{} is back with {} pages", NAMES[number], pages.len()?);
    }
    for (_, pages) in &nodes {
        for number in 0..PAGES {
            let page = pages.get(&path(number))?.ok_or("a page is lost")?;
            assert_eq!(page.value, format!("page {number}"));
        }
    }
    let [(a, of_a), (b, of_b), (c, _)] = &nodes;
    let (offer, mut changes) = (path(PAGES), of_b.watch_key(&path(PAGES))?);
    of_a.put_for(&offer, &"one second only".to_owned(), Duration::from_secs(1))
        .await?;
    while let Some(change) = changes.next().await {
        let change = change?;
        println!("b: {change}");
        if matches!(change, WatchEvent::Gone { .. }) {
            break;
        }
    }
    tokio::try_join!(a.leave(), b.leave(), c.leave())?;
    Ok(())
}

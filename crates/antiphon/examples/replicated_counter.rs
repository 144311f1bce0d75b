//! A counter on three nodes: each adds, all agree on every intermediate value, without a database.
//!
//! `cargo run -p antiphon --example replicated_counter`
//!
//! Or one node a terminal:
//! `cargo run -p antiphon --example replicated_counter -- a 127.0.0.1:7420` (and `b …:7421`,
//! `c …:7422`)

use antiphon::Cluster;

const ADDRS: [&str; 3] = ["127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422"];
const ADDITIONS: i64 = 100;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    if let (Some(name), Some(addr)) = (args.next(), args.next()) {
        println!("{:?}", node(name, addr).await?);
        return Ok(());
    }
    let nodes = ["a", "b", "c"].into_iter().zip(ADDRS);
    let nodes: Vec<_> = nodes
        .map(|(name, addr)| tokio::spawn(node(name.into(), addr.into())))
        .collect();
    let mut sums = Vec::new();
    for node in nodes {
        sums.extend(node.await??);
    }
    // Each addition gave another sum: they came in one order, and none was lost.
    sums.sort_unstable();
    assert_eq!(sums, (1..=3 * ADDITIONS).collect::<Vec<i64>>());
    println!("three nodes counted to {}", sums.len());
    Ok(())
}

/// Adds 1 a hundred times, and returns what the counter was after each.
async fn node(name: String, addr: String) -> Result<Vec<i64>> {
    let builder = Cluster::builder("counter").name(&name).bind(addr).seeds(ADDRS);
    let cluster = builder.join().await?;
    let counters = cluster.counters("counters").join().await?;
    let mut sums = Vec::new();
    for _ in 0..ADDITIONS {
        sums.push(counters.add("visits", 1).await?.value);
    }
    // Stays until the others are done, whose state this is as well.
    while counters
        .get("visits")?
        .is_none_or(|counter| counter.value < 3 * ADDITIONS)
    {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    cluster.leave().await?;
    Ok(sums)
}

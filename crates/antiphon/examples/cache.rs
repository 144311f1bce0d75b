//! A cache that all nodes share: entries expire everywhere at the same time, and each node hears of changes.
//!
//! `cargo run -p antiphon --example cache`

use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::replicated::{WatchEvent, map};
use antiphon::{Cluster, Map};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Pages = Map<String, String>;

/// The same at all nodes: its options and types are compared when a node joins.
async fn pages(cluster: &Cluster) -> Result<Pages> {
    let options = map::Options {
        max_bytes: 16 << 20,
        full: map::Full::EvictOldest,
        ..map::Options::default()
    };
    // A cache may forget: a write is answered one message delay earlier.
    let builder = cluster.map("pages").types("path -> page 1").options(options);
    Ok(builder.replicated(|machine| machine.agreed()).join().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let network = MemoryNetwork::new();
    let node = |name: &str| {
        Cluster::builder("shop")
            .name(name)
            .bind("10.0.0.1:0")
            .memory(&network)
    };
    let a = node("a").found().join().await?;
    let b = node("b").seeds([a.addr()]).join().await?;
    let (of_a, of_b) = (pages(&a).await?, pages(&b).await?);

    let mut changes = of_b.watch()?;
    let path = "/index".to_owned();
    of_a.put_for(&path, &"<h1>Hello</h1>".to_owned(), Duration::from_millis(500))
        .await?;
    println!("b reads {:?}", of_b.get_latest(&path).await?);
    while let Some(change) = changes.next().await {
        match change? {
            WatchEvent::Snapshot(entries) => println!("b: {} entries at first", entries.len()),
            WatchEvent::Put { key, item } => println!("b: {key} is {}", item.value),
            WatchEvent::Gone { key, why, .. } => {
                println!("b: {key} is gone: {why:?}");
                break;
            }
            _ => {}
        }
    }
    assert_eq!(of_a.get_latest(&path).await?, None);
    a.leave().await?;
    b.leave().await?;
    Ok(())
}

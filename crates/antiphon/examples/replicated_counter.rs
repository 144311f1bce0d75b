//! A counter on three nodes: each adds, all agree on every intermediate value, without a database or a
//! leader.
//!
//! `cargo run --example replicated_counter`
//!
//! Or one node a terminal: `cargo run --example replicated_counter -- a 127.0.0.1:7420` (and `b …:7421`,
//! `c …:7422`)

use antiphon::{Cluster, Event, Order};

const ADDRS: [&str; 3] = ["127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422"];
const ADDITIONS: u64 = 100;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    if let (Some(name), Some(addr)) = (args.next(), args.next()) {
        let history = node(name, addr).await?;
        println!("{} values, the last {:?}", history.len(), history.last());
        return Ok(());
    }
    let nodes = ["a", "b", "c"].into_iter().zip(ADDRS);
    let nodes: Vec<_> = nodes
        .map(|(name, addr)| tokio::spawn(node(name.into(), addr.into())))
        .collect();
    let mut histories = Vec::new();
    for node in nodes {
        histories.push(node.await??);
    }
    // Not only the end is the same: every value in between is, for the messages came in one order.
    assert!(histories.iter().all(|history| history == &histories[0]));
    println!(
        "three nodes went through the same {} values, the last {:?}",
        histories[0].len(),
        histories[0].last()
    );
    Ok(())
}

/// Adds 1 to 100, and returns every value the counter had.
async fn node(name: String, addr: String) -> Result<Vec<u64>> {
    let cluster = Cluster::builder("counter")
        .name(&name)
        .bind(addr)
        .seeds(ADDRS)
        .join()
        .await?;
    let mut group = cluster.group("counter").order(Order::Total).join().await?;
    let mut value: u64 = 0;
    let mut history = Vec::new();
    let mut adding = None;
    while history.len() < 3 * ADDITIONS as usize {
        match group.next().await.ok_or("the group has ended")? {
            Event::View(view) if view.members.len() == 3 && adding.is_none() => {
                let sender = group.sender();
                // In a task of its own: whoever waits for room to send must not stop reading.
                adding = Some(tokio::spawn(async move {
                    for amount in 1..=ADDITIONS {
                        sender.send(amount.to_le_bytes().to_vec()).await?;
                    }
                    Ok::<(), antiphon::SendError>(())
                }));
            }
            Event::Message(message) => {
                // Doubling between additions: the result depends on the order.
                let amount = message
                    .payload
                    .first_chunk::<8>()
                    .map_or(0, |bytes| u64::from_le_bytes(*bytes));
                value = value.wrapping_mul(2).wrapping_add(amount);
                history.push(value);
            }
            _ => {}
        }
    }
    if let Some(adding) = adding {
        adding.await??;
    }
    cluster.leave().await?;
    Ok(history)
}

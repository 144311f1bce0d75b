//! Three nodes in one process form a cluster, exchange a message, and leave.
//!
//! `cargo run -p antiphon --example hello_cluster`
//!
//! Or by hand, one node a terminal; each ends after it has heard all three
//! (the others are `b 127.0.0.1:7401` and `c 127.0.0.1:7402`):
//! `cargo run -p antiphon --example hello_cluster -- a 127.0.0.1:7400`

use antiphon::{Cluster, Event, Order};

const ADDRS: [&str; 3] = ["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    if let (Some(name), Some(addr)) = (args.next(), args.next()) {
        return node(name, addr).await;
    }
    let nodes = ["a", "b", "c"].into_iter().zip(ADDRS);
    let nodes: Vec<_> = nodes
        .map(|(name, addr)| tokio::spawn(node(name.into(), addr.into())))
        .collect();
    for node in nodes {
        node.await??;
    }
    Ok(())
}

async fn node(name: String, addr: String) -> Result<()> {
    // All three are given the same seeds; a majority of them founds the cluster, whoever comes first.
    let cluster = Cluster::builder("hello")
        .name(&name)
        .bind(addr)
        .seeds(ADDRS)
        .join()
        .await?;
    let mut group = cluster.group("greetings").order(Order::Total).join().await?;

    let mut greeted = false;
    let mut heard = 0;
    while heard < 3 {
        match group.next().await.ok_or("the group has ended")? {
            Event::View(view) => {
                println!("{name}: view {view}");
                // Messages go to the members of the view they are sent in: wait for everyone, then say hello
                // once.
                if view.members.len() == 3 && !greeted {
                    group.send(format!("hello from {name}")).await?;
                    greeted = true;
                }
            }
            Event::Message(message) => {
                println!("{name}: {}", String::from_utf8_lossy(&message.payload));
                heard += 1;
            }
            _ => {}
        }
    }
    // In order: the others see `left`, not a crash.
    cluster.leave().await?;
    Ok(())
}

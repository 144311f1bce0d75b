//! A counter on three nodes, without a database: each node adds, and all agree on every intermediate value.
//!
//! `cargo run -p antiphon --example replicated_counter`

use antiphon::replicated::{At, Machine, RestoreError};
use antiphon::{Cluster, Incarnation};
use bytes::Bytes;

const ADDRS: [&str; 3] = ["127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422"];
const ADDITIONS: u64 = 100;

/// Each node has one, and gives the same commands to it in the same order.
#[derive(Default)]
struct Counter(u64);

impl Machine for Counter {
    type Command = u64;
    type Reply = u64;
    type Event = ();
    type Snapshot = Bytes;

    fn apply(&mut self, _: At, _: Incarnation, by: u64, _: &mut Vec<()>) -> u64 {
        self.0 += by;
        self.0
    }

    fn snapshot(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_le_bytes())
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        if !complete {
            return Ok(0);
        }
        let reason = "a sum has 8 bytes".to_owned();
        self.0 = u64::from_le_bytes(state.try_into().map_err(|_| RestoreError { reason })?);
        Ok(state.len())
    }

    fn digest(&self) -> Option<u64> {
        Some(self.0)
    }

    fn definition(&self) -> String {
        "counter 1".to_owned()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [a, b, c] = ADDRS;
    let (a, b, c) = tokio::try_join!(node("a", a), node("b", b), node("c", c))?;
    let mut sums = [a, b, c].concat();
    sums.sort_unstable();
    // Each addition gave another sum: they came in one order, and none was lost.
    assert_eq!(sums, (1..=3 * ADDITIONS).collect::<Vec<_>>());
    println!("three nodes counted to {}", sums.len());
    Ok(())
}

/// Adds 1 a hundred times, and returns what the sum was after each.
async fn node(name: &str, addr: &str) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let builder = Cluster::builder("counter").name(name).bind(addr).seeds(ADDRS);
    let cluster = builder.join().await?;
    let counter = cluster.replicated("visits", Counter::default).join().await?;
    let mut sums = Vec::new();
    for _ in 0..ADDITIONS {
        sums.push(counter.write(1).await?);
    }
    println!("{name}: its first ten sums are {:?}", &sums[..10]);
    // Stays until the others are done, whose state this is as well.
    while counter.read(|counter| counter.0)? < 3 * ADDITIONS {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    cluster.leave().await?;
    Ok(sums)
}

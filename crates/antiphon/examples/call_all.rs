//! Three nodes in one process: each is asked for its load, one is asked to add, all are asked together.
//!
//! ```sh
//! cargo run -p antiphon --example call_all
//! ```

use std::time::Duration;

use antiphon::Cluster;
use antiphon::calls::{Calls, Rule, Target, Verb};
use antiphon::memory::MemoryNetwork;

const NAMES: [&str; 3] = ["a", "b", "c"];
const ADDRS: [&str; 3] = ["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"];
const NAME: Verb<(), String, ()> = Verb::new("name");
const DIVIDE: Verb<(u32, u32), u32, String> = Verb::new("divide");
const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let network = MemoryNetwork::new();
    let node = |number: usize| {
        let node = Cluster::builder("sums").name(NAMES[number]).bind(ADDRS[number]);
        node.seeds(ADDRS).memory(&network).join()
    };
    // A majority of the seeds founds the cluster.
    let (a, b, c) = tokio::try_join!(node(0), node(1), node(2))?;
    let nodes = [a, b, c];
    let mut members = Vec::new();
    for node in &nodes {
        members.push(Calls::new(node.group("sums").join().await?));
    }
    for (calls, node) in members.iter().zip(&nodes) {
        let name = node.name().to_owned();
        calls.serve(NAME, move |_, ()| {
            let name = name.clone();
            async move { Ok(name) }
        })?;
        calls.serve(DIVIDE, async |_, (a, b)| {
            a.checked_div(b).ok_or_else(|| format!("{a} by {b}"))
        })?;
    }

    // Each answers; a member that is gone is not waited for.
    let names = members[0].ask_all(NAME, &(), Rule::All, SECOND).await;
    let names = names.map_err(|error| format!("{error:?}"))?;
    for (member, name) in names {
        println!("{member}: {name}");
    }

    // Any one, the least loaded.
    let half = members[1].ask(Target::Any, DIVIDE, &(84, 2), SECOND).await?;
    println!("84 / 2 = {half}");

    // An application's error comes back as it is; any other says whether the handler ran.
    if let Err(error) = members[2].ask(Target::Any, DIVIDE, &(1, 0), SECOND).await {
        println!("{error}");
    }
    Ok(())
}

//! A job that one node at a time does. When that node goes, the next one takes over; all agree on who it is.
//!
//! `cargo run --example leader_only_job` starts three nodes and ends the leader twice.
//!
//! Or one node a terminal, to be ended by Ctrl-C or kill:
//! `cargo run --example leader_only_job -- a 127.0.0.1:7430` (and `b …:7431`, `c …:7432`)

use antiphon::{Cluster, Event, Group};

const ADDRS: [&str; 3] = ["127.0.0.1:7430", "127.0.0.1:7431", "127.0.0.1:7432"];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    if let (Some(name), Some(addr)) = (args.next(), args.next()) {
        let (_cluster, group) = start(name.clone(), addr).await?;
        return work(name, group).await;
    }
    let starts = ["a", "b", "c"].into_iter().zip(ADDRS);
    let starts: Vec<_> = starts
        .map(|(name, addr)| tokio::spawn(start(name.into(), addr.into())))
        .collect();
    let mut nodes = Vec::new();
    for start in starts {
        let (cluster, mut group) = start.await??;
        // Who leads is settled once all three are in.
        let leads = loop {
            if let Event::View(view) = group.next().await.ok_or("the group has ended")?
                && view.members.len() == 3
            {
                break view.is_leader();
            }
        };
        println!(
            "{}: {}",
            cluster.name(),
            if leads { "I do the job" } else { "standing by" }
        );
        nodes.push((cluster, group, leads));
    }
    while nodes.len() > 1 {
        let leader = nodes
            .iter()
            .position(|(_, _, leads)| *leads)
            .ok_or("somebody leads")?;
        let (cluster, group, _) = nodes.remove(leader);
        println!("{} leaves", cluster.name());
        cluster.leave().await?;
        drop(group);
        let members = nodes.len();
        for (cluster, group, leads) in &mut nodes {
            *leads = takes_over(group, members).await?;
            if *leads {
                println!("{}: I do the job now", cluster.name());
            }
        }
    }
    for (cluster, _, _) in nodes {
        cluster.leave().await?;
    }
    Ok(())
}

async fn start(name: String, addr: String) -> Result<(Cluster, Group)> {
    let cluster = Cluster::builder("jobs")
        .name(name)
        .bind(addr)
        .seeds(ADDRS)
        .join()
        .await?;
    let group = cluster.group("workers").join().await?;
    Ok((cluster, group))
}

/// Whether this node leads once the group is this small.
async fn takes_over(group: &mut Group, members: usize) -> Result<bool> {
    loop {
        if let Event::View(view) = group.next().await.ok_or("the group has ended")?
            && view.members.len() == members
        {
            return Ok(view.is_leader());
        }
    }
}

/// Until the process ends.
async fn work(name: String, mut group: Group) -> Result<()> {
    let mut leads = false;
    while let Some(event) = group.next().await {
        leads = match event {
            Event::View(view) => view.is_leader(),
            // Cut off from the majority: another one may be leading there.
            Event::Suspended | Event::Resync { .. } => false,
            _ => continue,
        };
        println!("{name}: {}", if leads { "I do the job" } else { "standing by" });
    }
    println!("{name}: {}", if leads { "done" } else { "nothing to do" });
    Ok(())
}

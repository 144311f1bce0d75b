//! A chat: everybody sees the same lines in the same order, and who comes and goes between which lines.
//!
//! `cargo run -p antiphon --example chat` lets two nodes of one process talk.
//! In terminals, each line typed is sent:
//! `cargo run -p antiphon --example chat -- ann 127.0.0.1:7410`, then
//! `cargo run -p antiphon --example chat -- bob 127.0.0.1:7411 127.0.0.1:7410`

use antiphon::{Cluster, Event, Group};
use tokio::io::{AsyncBufReadExt, BufReader};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [name, addr, seeds @ ..] => by_hand(name, addr, seeds).await,
        _ => by_itself().await,
    }
}

async fn by_hand(name: &str, addr: &str, seeds: &[String]) -> Result<()> {
    let builder = Cluster::builder("chat").name(name).bind(addr).seeds(seeds);
    // The first one has nobody to ask, and starts the cluster.
    let cluster = if seeds.is_empty() {
        builder.found().join().await?
    } else {
        builder.join().await?
    };
    let mut room = cluster.group("room").join().await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) => {
                    if let Err(error) = room.send(line).await {
                        println!("{name}: not sent: {error}");
                    }
                }
                None => break,
            },
            event = room.next() => match event {
                Some(event) => show(name, &event),
                None => break,
            },
        }
    }
    cluster.leave().await?;
    Ok(())
}

async fn by_itself() -> Result<()> {
    let ann = Cluster::builder("chat").name("ann").found().join().await?;
    let bob = Cluster::builder("chat")
        .name("bob")
        .seeds([ann.addr()])
        .join()
        .await?;
    let mut ann_room = ann.group("room").join().await?;
    let mut bob_room = bob.group("room").join().await?;
    bob_room.send("hi ann").await?;
    read_until(&mut ann_room, "ann", "hi ann").await?;
    ann_room.send("hi bob, and bye").await?;
    read_until(&mut bob_room, "bob", "hi bob, and bye").await?;
    ann.leave().await?;
    bob.leave().await?;
    Ok(())
}

async fn read_until(room: &mut Group, me: &str, text: &str) -> Result<()> {
    loop {
        let event = room.next().await.ok_or("the room has closed")?;
        show(me, &event);
        if matches!(&event, Event::Message(message) if message.payload == text) {
            return Ok(());
        }
    }
}

fn show(me: &str, event: &Event) {
    match event {
        Event::View(view) => println!("[{me}] here now: {}", view.names().join(", ")),
        Event::Message(message) => {
            println!(
                "[{me}] {}: {}",
                message.sender.name,
                String::from_utf8_lossy(&message.payload)
            );
        }
        Event::Suspended => println!("[{me}] cut off from the majority; waiting"),
        Event::Resync { cause } => println!("[{me}] back again ({cause}); something may have been missed"),
        _ => {}
    }
}

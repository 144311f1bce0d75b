//! A replicated counter, and the test that it loses nothing: three nodes count, one is cut off, one is
//! killed, fifty schedules. Virtual time: a second or two.
//!
//! `cargo run -p antiphon --example testkit_counter`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use antiphon::testkit::{RunError, SceneError, World};
use antiphon::{Builder, Event, Group, Order, Outcome};

/// The application: adds 1 every 20 ms, and is told how often that is certain to count. With each view it has
/// other things to do for as long as `busy`.
async fn count(
    node: Builder,
    value: Arc<AtomicU64>,
    certain: Arc<AtomicU64>,
    busy: Duration,
) -> Result<(), SceneError> {
    let cluster = node.join().await?;
    let mut group: Group = cluster.group("counter").order(Order::Total).join().await?;
    let sender = group.sender();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            // Safe: counted by all members of the view, or by none that goes on.
            if let Ok(receipt) = sender.send_safe("1").await {
                certain.fetch_add(u64::from(receipt.safe().await == Outcome::Delivered), SeqCst);
            }
        }
    });
    let (mut known, mut since_view) = (false, 0);
    while let Some(event) = group.next().await {
        match event {
            Event::View(view) => {
                // Nobody was there before: it begins at 0.
                known |= view.joined.len() == view.members.len();
                since_view = 0;
                tokio::time::sleep(busy).await;
                if known {
                    // If this view is over already, this is sent in a later one, or refused. Then nobody
                    // takes it, and this member tells its value again with the next view that it reads.
                    let _ = group.try_send(format!("={} {}", view.id, value.load(SeqCst)));
                }
            }
            Event::Message(message) => match std::str::from_utf8(&message.payload)?.strip_prefix('=') {
                // What another had when its view began, and what was added in that view.
                Some(told) if !known => {
                    let (view, had) = told.split_once(' ').ok_or("not a view and a value")?;
                    if view == message.view.to_string() {
                        value.store(had.parse::<u64>()? + since_view, SeqCst);
                        known = true;
                    }
                }
                Some(_) => {}
                None => {
                    since_view += 1;
                    value.fetch_add(1, SeqCst);
                }
            },
            // This node was cut off for long: what it held is void.
            Event::Resync { .. } => known = false,
            _ => {}
        }
    }
    Ok(())
}

/// The test.
pub(crate) fn survives(seed: u64) -> Result<u64, RunError> {
    World::new(seed, ["a", "b", "c"]).run(async |world| {
        let certain = Arc::new(AtomicU64::new(0));
        let values = ["a", "b", "c"].map(|name| (name, Arc::new(AtomicU64::new(0))));
        for (name, value) in &values {
            let node = world.node(name)?;
            world.spawn(name, count(node, value.clone(), certain.clone(), Duration::ZERO))?;
        }
        world.sleep_ms(3_000).await;
        world.partition(["a"], ["b", "c"])?;
        world.sleep_ms(10_000 + world.draw() % 5_000).await;
        world.heal();
        world.sleep_ms(5_000).await;
        world.kill("b")?;
        world.sleep_ms(5_000).await;
        let [a, _, c] = values.map(|(_, value)| value.load(SeqCst));
        let certain = certain.load(SeqCst);
        world.log(format!("a has {a}, c has {c}, {certain} are certain"));
        // One that is on its way may be counted by one of them.
        assert!(a.abs_diff(c) <= 2 && certain <= a.max(c), "{:#?}", world.lines());
        Ok(certain)
    })
}

/// The same where nodes join faster than the members handle views.
pub(crate) fn joins_in_a_hurry(seed: u64) -> Result<(), RunError> {
    World::new(seed, ["a"]).run(async |world| {
        let certain = Arc::new(AtomicU64::new(0));
        let values = ["a", "b", "c", "d"].map(|name| (name, Arc::new(AtomicU64::new(0))));
        let busy = Duration::from_millis(200);
        for (name, value) in &values {
            let node = world.node(name)?;
            world.spawn(name, count(node, value.clone(), certain.clone(), busy))?;
            // Until the first one has founded the cluster, the others could only wait.
            world.sleep_ms(if *name == "a" { 2_000 } else { 50 }).await;
        }
        world.sleep_ms(10_000).await;
        let values = values.map(|(_, value)| value.load(SeqCst));
        let certain = certain.load(SeqCst);
        world.log(format!("they have {values:?}, {certain} are certain"));
        // Of each member one may be on its way.
        let most = values.into_iter().fold(0, u64::max);
        assert!(
            values.iter().all(|value| most - value <= 4),
            "{:#?}",
            world.lines()
        );
        assert!(certain <= most, "{:#?}", world.lines());
        Ok(())
    })
}

fn main() -> Result<(), RunError> {
    let mut certain = 0;
    for seed in 0..50 {
        certain += survives(seed)?;
        joins_in_a_hurry(seed)?;
    }
    println!("50 schedules, {certain} additions, none lost");
    Ok(())
}

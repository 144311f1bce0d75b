//! Groups read scope by scope: a handler that stalls holds up its scope and no other, and what waits for it
//! is bounded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::testkit::{RunError, World};
use antiphon::{Cluster, Event, Order, Profile, Scope, Scopes, SendError, Turn};
use tokio::sync::Notify;

/// Long enough for a loaded machine; no test waits for it unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);
const STALLED: Scope = Scope(1);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}

async fn alone(order: Order) -> (Cluster, antiphon::Group) {
    let network = MemoryNetwork::new();
    let builder = Cluster::builder("test").name("a").profile(Profile::local());
    let node = builder.bind("10.0.0.1:0").memory(&network).found();
    let node = in_time("founding", node.join()).await.expect("founds");
    let group = node.group("sessions").order(order).window_bytes(64 << 10);
    let group = in_time("joining a group", group.join()).await.expect("joins");
    (node, group)
}

/// Handles messages until the end: those of the stalled scope when told to go on. Counts the others, and
/// checks each scope's order.
async fn handle(scopes: Scopes, go_on: Arc<Notify>, handled: Arc<AtomicU64>) {
    while let Some(turn) = scopes.next().await {
        let Turn::Messages(run) = turn else { continue };
        if run.scope() == STALLED {
            go_on.notified().await;
            go_on.notify_one();
            run.for_each(drop);
            continue;
        }
        for message in run {
            assert_eq!(message.scope, Some(Scope(u32::from(message.payload[0]))));
            handled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn a_stalled_handler_delays_its_scope_alone_and_what_waits_for_it_is_bounded() {
    let (_node, group) = alone(Order::Scoped).await;
    let sender = group.sender();
    let scopes = group.by_scope();
    scopes.set_backlog_bytes(64 << 10);
    let (go_on, handled) = (Arc::new(Notify::new()), Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> = (0..2)
        .map(|_| tokio::spawn(handle(scopes.clone(), go_on.clone(), handled.clone())))
        .collect();
    // Far more than a window to the others, and a little to the one that stalls.
    for round in 0..200_u64 {
        if round % 20 == 0 {
            let stalled = sender.in_scope(STALLED);
            in_time("sending", stalled.send([1; 100]))
                .await
                .expect("is a member");
        }
        for scope in 2..7_u8 {
            let way = sender.in_scope(Scope(scope.into()));
            in_time("sending past a stalled scope", way.send([scope; 1000]))
                .await
                .expect("is a member");
        }
    }
    in_time("handling past a stalled scope", async {
        while handled.load(Ordering::Relaxed) < 1000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // Now to the one that stalls, without end: that has its bounds.
    let flood = sender.in_scope(STALLED);
    let mut accepted = 0;
    while tokio::time::timeout(Duration::from_secs(1), flood.send([1; 1000]))
        .await
        .is_ok()
    {
        accepted += 1;
        assert!(accepted < 2000, "nothing holds the sender back");
    }
    let waits = scopes.waiting_bytes();
    assert!(
        (64 << 10..(64 << 10) + 61_000 * 2).contains(&waits),
        "{waits} bytes wait"
    );
    // And all goes on when the handler does.
    go_on.notify_one();
    in_time("going on", sender.in_scope(Scope(2)).send([2; 10]))
        .await
        .expect("is a member");
    in_time("handling the rest", async {
        while handled.load(Ordering::Relaxed) < 1001 || scopes.waiting_bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    in_time("leaving", scopes.leave()).await.expect("leaves");
    for worker in workers {
        in_time("the end of a worker", worker)
            .await
            .expect("did not panic");
    }
}

#[tokio::test]
async fn what_is_not_taken_out_of_a_run_is_handed_out_again_in_its_order() {
    let (_node, group) = alone(Order::Scoped).await;
    let sender = group.in_scope(7);
    for number in 0..5_u8 {
        sender.send([number]).await.expect("is a member");
    }
    let receipt = sender.send([5]).await.expect("is a member");
    in_time("delivering", receipt.delivered()).await;
    let scopes = group.by_scope();
    let mut seen = Vec::new();
    while seen.len() < 6 {
        if let Some(Turn::Messages(mut run)) = in_time("a turn", scopes.next()).await {
            assert!(scopes.try_next().is_none(), "nobody else gets this scope");
            seen.extend(run.by_ref().take(2).map(|message| message.payload[0]));
        }
    }
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
}

/// What a reader is given, in short. It keeps its first messages until it is told that they are void.
async fn note(scopes: Scopes, noted: Arc<Mutex<Vec<String>>>) {
    let mut held = None;
    while let Some(turn) = scopes.next().await {
        let what = match turn {
            Turn::Messages(run) if held.is_none() => {
                held = Some(Some(run));
                "holds".to_owned()
            }
            Turn::Messages(run) => {
                let texts = run.map(|message| String::from_utf8_lossy(&message.payload).into_owned());
                texts.collect::<Vec<_>>().concat()
            }
            Turn::Event(Event::Resync { .. }) => {
                held = Some(None);
                "resync".to_owned()
            }
            _ => "event".to_owned(),
        };
        noted.lock().expect("nobody panics").push(what);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(held);
}

#[test]
fn a_node_that_was_stopped_reads_no_message_of_the_membership_that_ended_meanwhile() -> Result<(), RunError> {
    stopped(false)
}

#[test]
fn a_node_that_was_stopped_and_ends_reads_no_message_any_more() -> Result<(), RunError> {
    stopped(true)
}

/// A node is stopped with messages on its shelves, and comes back, or ends.
fn stopped(ends: bool) -> Result<(), RunError> {
    World::new(1, ["a", "b", "c"]).run(async |world| {
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            nodes.push(world.node(name)?.start().await?);
        }
        let mut groups = Vec::new();
        for node in &nodes {
            groups.push(node.group("sessions").order(Order::Scoped).join().await?);
        }
        world.sleep_ms(500).await;
        let members = |node: &Cluster| node.view().map_or(0, |view| view.members.len());
        let sender = groups[0].sender();
        for scope in 0..50_u32 {
            sender.in_scope(scope).send("old").await?;
        }
        world.sleep_ms(100).await;
        let noted = Arc::new(Mutex::new(Vec::new()));
        let count = |what: &str| {
            let noted = noted.lock().expect("nobody panics");
            noted.iter().filter(|noted| *noted == what).count()
        };
        let over = Arc::new(AtomicBool::new(false));
        let (reader, told, tell) = (groups.remove(1).by_scope(), noted.clone(), over.clone());
        world.spawn("b", async move {
            note(reader, told).await;
            tell.store(true, Ordering::Relaxed);
        })?;
        world.until(|| count("holds") == 1).await;
        world.pause("b", Duration::from_secs(10))?;
        let read = count("old");
        assert!(read < 40, "it has read nearly all");
        if ends {
            world.until(|| members(&nodes[0]) == 2).await;
            nodes[1].abort();
            world.until(|| over.load(Ordering::Relaxed)).await;
            assert_eq!(count("old"), read, "{noted:?}");
            return Ok(());
        }
        world.until(|| members(&nodes[0]) == 2).await;
        world.until(|| members(&nodes[0]) == 3).await;
        while count("new") == 0 {
            sender.in_scope(0).send("new").await?;
            world.sleep_ms(100).await;
        }
        assert_eq!((count("old"), count("resync")), (read, 1), "{noted:?}");
        Ok(())
    })
}

#[tokio::test]
async fn a_scope_in_a_group_without_scopes_is_refused() {
    let (_node, group) = alone(Order::Fifo).await;
    assert_eq!(group.in_scope(7).try_send("x").err(), Some(SendError::NotScoped));
    group.try_send("x").expect("without a scope it is taken");
}

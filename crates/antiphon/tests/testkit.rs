//! The testkit itself: real nodes on virtual time, whose runs repeat.

use std::time::{Duration, Instant};

use antiphon::testkit::{RunError, SceneError, World};
use antiphon::{
    Builder, Cluster, ClusterEvent, ClusterKey, EngineKind, Error, Event, Group, Order, Outcome, Parting,
    SendError, TellOutcome,
};

/// The example is a test, too.
#[path = "../examples/testkit_counter.rs"]
#[allow(dead_code, reason = "its `main`")]
mod counter;

const ABC: [&str; 3] = ["a", "b", "c"];
const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Starts them, and waits until each has them all in a primary view.
async fn cluster(world: &World, names: &[&str]) -> Result<Vec<Cluster>, SceneError> {
    cluster_of(world, names, |builder| builder).await
}

async fn cluster_of(
    world: &World,
    names: &[&str],
    change: impl Fn(Builder) -> Builder,
) -> Result<Vec<Cluster>, SceneError> {
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(change(world.node(name)?).start().await?);
    }
    world
        .until(|| nodes.iter().all(|node| sees(node, names.len())))
        .await;
    Ok(nodes)
}

/// Whether it is in a primary view of so many.
fn sees(node: &Cluster, members: usize) -> bool {
    node.view()
        .is_some_and(|view| view.is_primary() && view.members.len() == members)
}

async fn groups(world: &World, nodes: &[Cluster]) -> Result<Vec<Group>, SceneError> {
    let mut groups = Vec::new();
    for node in nodes {
        groups.push(node.group("g").order(Order::Total).join().await?);
    }
    // All of them have all the others before anybody says anything.
    world.sleep_ms(500).await;
    Ok(groups)
}

/// What it has delivered and was not taken yet.
fn heard(group: &mut Group) -> Vec<String> {
    let text = |event| match event {
        Event::Message(message) => Some(String::from_utf8_lossy(&message.payload).into_owned()),
        _ => None,
    };
    std::iter::from_fn(|| group.try_next()).filter_map(text).collect()
}

/// Three nodes that send while one is cut off and another one is killed.
fn rough_day(seed: u64, change: impl Fn(Builder) -> Builder) -> Result<(u64, Vec<String>), RunError> {
    World::new(seed, ABC).run(async |world| {
        let nodes = cluster_of(&world, &ABC, change).await?;
        let mut groups = groups(&world, &nodes).await?;
        for number in 0..30 {
            let group = &groups[number % 3];
            if let Ok(receipt) = group.try_send(number.to_string()) {
                drop(receipt);
            }
            match number {
                5 => world.lossy(["a", "b"], ["c"], 0.2)?,
                10 => world.partition(["a"], ["b", "c"])?,
                20 => world.heal(),
                25 => world.kill("b")?,
                _ => {}
            }
            world.sleep_ms(200 + world.draw() % 200).await;
        }
        for (name, group) in ABC.iter().zip(&mut groups) {
            world.log(format!("{name} heard {:?}", heard(group)));
        }
        Ok((world.fingerprint(), world.lines()))
    })
}

#[test]
fn a_run_repeats_bit_by_bit_and_another_seed_is_another_run() -> Result<(), RunError> {
    for engine in EngineKind::ALL {
        let change = |builder: Builder| builder.membership(engine).key(ClusterKey::from_bytes([7; 32]));
        let (print, lines) = rough_day(7, change)?;
        for _ in 0..3 {
            let (again, other_lines) = rough_day(7, change)?;
            assert_eq!(lines, other_lines);
            assert_eq!(print, again, "the same lines, and other frames");
        }
        assert!(lines.len() > 20, "it tells what happens: {lines:#?}");
        let (other, other_lines) = rough_day(8, change)?;
        assert!(print != other && lines != other_lines);
    }
    Ok(())
}

/// It is its own majority, so it has its lease again before it can find that it had lost it.
#[test]
fn a_node_alone_tells_that_it_has_its_lease_after_a_pause() -> Result<(), RunError> {
    World::new(3, ["a"]).run(async |world| {
        let _nodes = cluster(&world, &["a"]).await?;
        world.sleep_ms(2_000).await;
        let told = || {
            let lines = world.lines();
            lines
                .iter()
                .filter(|line| line.contains("believes in its view"))
                .count()
        };
        let before = told();
        world.sleep_ms(10_000).await;
        assert_eq!(told(), before, "{:#?}", world.lines());
        world.pause("a", seconds(10))?;
        world.sleep_ms(12_000).await;
        assert_eq!(told(), before + 1, "{:#?}", world.lines());
        Ok(())
    })
}

#[test]
fn five_nodes_form_in_virtual_time() -> Result<(), RunError> {
    let start = Instant::now();
    World::new(1, FIVE).run(async |world| {
        let nodes = cluster(&world, &FIVE).await?;
        assert!(world.now() < seconds(5), "{:?}", world.now());
        let before = Instant::now();
        world.sleep_ms(60_000).await;
        assert!(nodes.iter().all(|node| sees(node, 5)), "{:#?}", world.lines());
        assert!(before.elapsed() < seconds(30), "a minute at rest takes less");
        Ok(())
    })?;
    println!("five nodes formed and rested a minute in {:?}", start.elapsed());
    Ok(())
}

#[test]
fn a_minority_stops_and_the_rest_goes_on_until_the_partition_heals() -> Result<(), RunError> {
    World::new(2, FIVE).run(async |world| {
        let nodes = cluster(&world, &FIVE).await?;
        let mut groups = groups(&world, &nodes).await?;
        world.partition(["a", "b"], ["c", "d", "e"])?;
        world.until(|| nodes[2..].iter().all(|node| sees(node, 3))).await;
        world.sleep_ms(5_000).await;
        for node in &nodes[..2] {
            assert!(!node.view().unwrap().is_primary(), "{:#?}", world.lines());
        }
        let receipt = groups[2].send("without you").await?;
        assert_eq!(receipt.delivered().await, Outcome::Delivered);
        heard(&mut groups[0]);
        world.heal();
        world.until(|| nodes.iter().all(|node| sees(node, 5))).await;
        world.sleep_ms(1_000).await;
        let mut resynced = false;
        while let Some(event) = groups[0].try_next() {
            resynced |= matches!(event, Event::Resync { .. });
            assert!(!matches!(event, Event::Message(_)), "it was not there: {event:?}");
        }
        assert!(resynced);
        Ok(())
    })
}

#[test]
fn a_direction_may_be_cut_alone() -> Result<(), RunError> {
    World::new(3, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let mut events = nodes[0].events();
        world.cut(["a"], ["b"])?;
        // Through c, which both hear: no view changes.
        world.sleep_ms(20_000).await;
        assert!(nodes.iter().all(|node| sees(node, 3)), "{:#?}", world.lines());
        let mut told = false;
        while let Some(event) = events.try_next() {
            told |= matches!(
                &event,
                ClusterEvent::Path {
                    hears_directly: true,
                    heard_directly: false,
                    ..
                }
            );
        }
        assert!(told, "{:#?}", world.lines());
        Ok(())
    })
}

/// Proven by lifelines: long before anybody would be doubted. A host without power proves nothing.
#[test]
fn a_killed_process_is_gone_at_once_and_a_host_without_power_after_a_while() -> Result<(), RunError> {
    let gone_after = |power_off: bool| {
        World::new(4, ABC).run(async move |world| {
            let nodes = cluster(&world, &ABC).await?;
            world.sleep_ms(2_000).await;
            let before = world.now();
            match power_off {
                true => world.power_off("a")?,
                false => world.kill("a")?,
            }
            assert!(matches!(nodes[0].status().await, Err(Error::Closed)), "at once");
            world.until(|| nodes[1..].iter().all(|node| sees(node, 2))).await;
            let took = world.now() - before;
            let again = world.node("a")?.start().await?;
            world.until(|| sees(&again, 3)).await;
            assert_ne!(again.incarnation(), nodes[0].incarnation());
            Ok(took)
        })
    };
    let (killed, dark) = (gone_after(false)?, gone_after(true)?);
    assert!(killed < Duration::from_millis(200), "{killed:?}");
    assert!(dark > Duration::from_millis(700), "{dark:?}");
    Ok(())
}

/// Two of three die one after the other, and the last goes on: both deaths are proven (G5).
#[test]
fn a_cluster_shrinks_to_one_by_proofs() -> Result<(), RunError> {
    World::new(5, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        for (name, left) in [("c", 2), ("a", 1)] {
            world.sleep_ms(3_000).await;
            world.kill(name)?;
            world.until(|| sees(&nodes[1], left)).await;
        }
        Ok(())
    })
}

/// What a lifeline carries, its end included, waits for the path to work again.
#[test]
fn a_death_behind_a_cut_is_proven_when_the_cut_heals() -> Result<(), RunError> {
    World::new(17, ["a", "b"]).run(async |world| {
        let nodes = cluster(&world, &["a", "b"]).await?;
        world.sleep_ms(2_000).await;
        // The elder alone would go on: the other one needs the proof.
        let elder = nodes[0].view().ok_or("no view")?.members[0].name.clone();
        let other = usize::from(elder == "a");
        world.partition(["a"], ["b"])?;
        world.kill(&elder)?;
        world.sleep_ms(10_000).await;
        assert!(!nodes[other].view().unwrap().is_primary(), "{:#?}", world.lines());
        world.heal();
        world.until(|| sees(&nodes[other], 1)).await;
        Ok(())
    })
}

#[test]
fn a_paused_node_loses_its_lease_and_delivers_nothing_stale() -> Result<(), RunError> {
    World::new(6, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let mut groups = groups(&world, &nodes).await?;
        for group in &mut groups {
            heard(group);
        }
        // Delivered at all of them, and not read when a stops.
        groups[1].send("before").await?.delivered().await;
        world.sleep_ms(50).await;
        world.pause("a", seconds(20))?;
        let asked = tokio::time::timeout(seconds(5), nodes[0].status()).await;
        assert!(asked.is_err(), "it does not run: {asked:?}");
        world.until(|| nodes[1..].iter().all(|node| sees(node, 2))).await;
        groups[1].send("without a").await?.delivered().await;
        world.sleep_ms(50).await;
        assert_eq!(heard(&mut groups[2]), ["before", "without a"]);
        assert_eq!(heard(&mut groups[0]), [""; 0], "its lease is over");
        assert!(
            world.now() < seconds(15),
            "it is still stopped at {:?}",
            world.now()
        );
        world.until(|| nodes.iter().all(|node| sees(node, 3))).await;
        assert!(world.now() > seconds(20));
        let mut kinds = Vec::new();
        while kinds.last() != Some(&"view") {
            match groups[0].next().await.ok_or("the group has ended")? {
                Event::Resync { .. } => kinds.push("resync"),
                Event::View(_) => kinds.push("view"),
                Event::Message(_) => kinds.push("message"),
                _ => {}
            }
        }
        assert_eq!(kinds, ["resync", "view"]);
        Ok(())
    })
}

#[test]
fn tasks_of_a_node_stop_and_end_with_it() -> Result<(), RunError> {
    World::new(7, ABC).run(async |world| {
        let ticks = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let count = || ticks.load(std::sync::atomic::Ordering::Relaxed);
        let counted = ticks.clone();
        let task = world.spawn("a", async move {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        })?;
        let done: tokio::task::JoinHandle<Option<u8>> = world.spawn("a", async { 5 })?;
        assert_eq!(done.await?, Some(5));
        world.sleep_ms(1_050).await;
        assert_eq!(count(), 10);
        world.pause("a", seconds(1))?;
        world.pause("a", Duration::from_millis(500))?;
        world.sleep_ms(990).await;
        assert_eq!(count(), 10, "the later end holds");
        world.sleep_ms(1_010).await;
        assert!((18..=20).contains(&count()), "{}", count());
        let before = count();
        world.kill("a")?;
        world.sleep_ms(1_000).await;
        assert_eq!(count(), before);
        assert_eq!(task.await?, None::<()>);
        Ok(())
    })
}

#[test]
fn a_slow_link_costs_time_and_no_view() -> Result<(), RunError> {
    World::new(8, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let mut groups = groups(&world, &nodes).await?;
        let slow = Duration::from_millis(150)..=Duration::from_millis(200);
        world.slow(["a"], ["b", "c"], slow.clone())?;
        world.slow(["b", "c"], ["a"], slow)?;
        world.sleep_ms(1_000).await;
        heard(&mut groups[0]);
        let before = world.now();
        groups[1].send("far").await?;
        let mut far = Vec::new();
        while far.is_empty() {
            world.sleep_ms(1).await;
            far = heard(&mut groups[0]);
        }
        let took = world.now() - before;
        assert!((150..=700).contains(&took.as_millis()), "{took:?}");
        world.sleep_ms(20_000).await;
        assert!(nodes.iter().all(|node| sees(node, 3)), "{:#?}", world.lines());
        Ok(())
    })
}

#[test]
fn what_is_lost_on_the_way_is_sent_again() -> Result<(), RunError> {
    World::new(9, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let mut groups = groups(&world, &nodes).await?;
        world.lossy(ABC, ABC, 0.1)?;
        heard(&mut groups[2]);
        for number in 0..200 {
            groups[number % 2].send(number.to_string()).await?;
            world.sleep_ms(5).await;
        }
        world.heal();
        world.sleep_ms(5_000).await;
        let mut all: Vec<u32> = heard(&mut groups[2])
            .iter()
            .map(|number| number.parse().unwrap())
            .collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..200));
        let lost: u64 = {
            let status = nodes[0].status().await?;
            status.transport.frames_dropped
        };
        assert!(lost > 0, "nothing was lost");
        Ok(())
    })
}

/// Unread messages fill the window, and senders wait: the back-pressure of the product, on virtual time.
#[test]
fn a_reader_that_does_not_read_holds_up_the_sender() -> Result<(), RunError> {
    World::new(10, ["a", "b"]).run(async |world| {
        let nodes = cluster(&world, &["a", "b"]).await?;
        let mut groups = groups(&world, &nodes).await?;
        let sender = groups[0].sender();
        let mut reader = groups.remove(1);
        let (accepted, told) = tokio::sync::watch::channel(0);
        tokio::spawn(async move {
            while sender.send([0; 8_000]).await.is_ok() {
                accepted.send_modify(|accepted| *accepted += 1);
            }
        });
        let mut own = groups.remove(0);
        tokio::spawn(async move { while own.next().await.is_some() {} });
        world.sleep_ms(5_000).await;
        let full = *told.borrow();
        world.sleep_ms(5_000).await;
        assert_eq!(full, *told.borrow(), "nothing is read, nothing more is accepted");
        assert!((100..400).contains(&full), "{full} of 8,000 bytes");
        for _ in 0..100 {
            reader.next().await;
        }
        world.sleep_ms(1_000).await;
        assert!(*told.borrow() > full + 50);
        Ok(())
    })
}

#[test]
fn a_run_that_gets_nowhere_says_what_each_node_waits_for() {
    let start = Instant::now();
    let world = World::new(11, ABC).limit(seconds(60));
    let stuck = world.run(async |world| {
        let a = world.node("a")?.join().await?;
        drop(a);
        Ok(())
    });
    let error = stuck.unwrap_err();
    assert!(matches!(error, RunError::Stuck { seed: 11, .. }));
    let text = format!("{error:?}");
    assert!(
        text.contains("a: for a cluster: missing [127.0.0.2:7400, 127.0.0.3:7400]"),
        "{text}"
    );
    assert!(text.contains("b: does not run"), "{text}");
    assert!(text.contains("seed 11"), "{text}");
    assert!(start.elapsed() < seconds(20), "it waits in virtual time");
}

#[test]
fn a_group_that_waits_is_named() {
    let world = World::new(12, ABC).limit(seconds(60));
    let stuck = world.run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        world.partition(["a"], ["b", "c"])?;
        world.pause("c", seconds(1_000))?;
        world.sleep_ms(10_000).await;
        nodes[1].group("late").join().await?;
        Ok(())
    });
    let text = stuck.unwrap_err().to_string();
    assert!(text.contains("c: is paused until"), "{text}");
    assert!(text.contains("for a majority"), "{text}");
    assert!(text.contains("for a first view of group \"late\""), "{text}");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let world = World::new(13, ABC);
    let unknown = world.run(async |world| {
        world.partition(["a"], ["d"])?;
        Ok(())
    });
    let text = unknown.unwrap_err().to_string();
    assert!(
        text.contains("no node is called \"d\"; there are: a, b, c"),
        "{text}"
    );
    assert!(matches!(world.run(async |_| Ok(())), Err(RunError::Again)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let nested = runtime.block_on(async { World::new(13, ABC).run(async |_| Ok(())) });
    assert!(matches!(nested, Err(RunError::Nested)));
    let many: Vec<String> = (0..251).map(|number| number.to_string()).collect();
    let many = World::new(13, many).run(async |_| Ok(()));
    assert!(matches!(many, Err(RunError::TooMany)));
    let source = World::new(13, ABC).run(async |world| {
        let node = world.node("a")?.seeds(["dns:db.example:7400"]);
        let error = node.start().await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        let first = world.node("a")?.start().await?;
        let second = world.node("a")?.start().await.unwrap_err();
        assert!(matches!(second, Error::Bind { .. }), "{second}");
        first.leave().await?;
        Ok(())
    });
    source.unwrap();
}

#[test]
#[should_panic(expected = "in a task of the node")]
fn a_task_that_panics_ends_the_run() {
    let _ = World::new(14, ABC).run(async |world| {
        world.spawn("a", async { panic!("in a task of the node") })?;
        world.sleep_ms(1_000).await;
        Ok(())
    });
}

#[test]
fn a_node_that_leaves_is_gone_in_order_and_the_time_of_day_is_virtual() -> Result<(), RunError> {
    World::new(15, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        world.sleep_ms(60_000).await;
        nodes[0].leave().await?;
        world.until(|| nodes[1..].iter().all(|node| sees(node, 2))).await;
        let view = nodes[1].view().unwrap();
        assert!(
            matches!(view.departed[..], [ref one] if matches!(one.cause, antiphon::Cause::Left)),
            "{view:?}"
        );
        let (noted, _) = nodes[1].history();
        let (first, last) = (&noted[0], &noted[noted.len() - 1]);
        let between = last.at.duration_since(first.at).unwrap();
        assert!((60..70).contains(&between.as_secs()), "{between:?}");
        Ok(())
    })
}

/// Handles that outlive the run say that the node is gone, and hang nobody.
#[test]
fn what_is_left_of_a_run_is_closed() {
    let node = World::new(16, ["a"])
        .run(async |world| Ok(cluster(&world, &["a"]).await?.remove(0)))
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert!(matches!(node.status().await, Err(Error::Closed)));
        node.closed().await;
    });
}

#[test]
fn the_counter_of_the_example_loses_nothing_in_fifty_schedules() -> Result<(), RunError> {
    for seed in 0..50 {
        let certain = counter::survives(seed)?;
        assert!(certain > 500, "{certain}: it counted little");
    }
    Ok(())
}

#[test]
fn the_counter_of_the_example_loses_nothing_where_nodes_join_faster_than_views_are_handled()
-> Result<(), RunError> {
    (0..10).try_for_each(counter::joins_in_a_hurry)
}

/// Leaving the cluster is the way out that takes bounded time.
#[test]
fn without_a_primary_a_group_is_not_left_and_the_cluster_is() -> Result<(), RunError> {
    World::new(18, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let mut groups = groups(&world, &nodes).await?;
        world.partition(["a"], ["b", "c"])?;
        world
            .until(|| nodes[0].view().is_some_and(|view| !view.is_primary()))
            .await;
        let left = tokio::time::timeout(seconds(60), groups.remove(0).leave()).await;
        assert!(left.is_err(), "nobody else was told: {left:?}");
        tokio::time::timeout(seconds(30), nodes[0].leave()).await??;
        Ok(())
    })
}

/// It has accepted more than the others have room for, so it is a member yet when the primary is back.
#[test]
fn a_group_that_is_left_takes_no_message_when_it_has_a_primary_again() -> Result<(), RunError> {
    World::new(19, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let mut groups = groups(&world, &nodes).await?;
        let left = groups.remove(0);
        let sender = left.sender();
        let filler = left.sender();
        let filling = tokio::spawn(async move { while filler.send([0; 8_000]).await.is_ok() {} });
        world.sleep_ms(5_000).await;
        filling.abort();
        assert_eq!(sender.try_send([0; 8_000]).err(), Some(SendError::Full));
        drop(left);
        world.sleep_ms(50).await;
        assert_eq!(sender.try_send("late").err(), Some(SendError::Closed));
        world.partition(["a"], ["b", "c"])?;
        world.partition(["b"], ["c"])?;
        let no_primary = |node: &Cluster| node.view().is_some_and(|view| !view.is_primary());
        world.until(|| nodes.iter().all(no_primary)).await;
        assert_eq!(sender.try_send("later").err(), Some(SendError::NotPrimary));
        world.heal();
        let mut answer = None;
        world
            .until(|| {
                answer = Some(sender.try_send("again").err());
                answer != Some(Some(SendError::NotPrimary))
            })
            .await;
        assert_eq!(answer, Some(Some(SendError::Closed)), "{:#?}", world.lines());
        let joined = nodes[0].group("g").order(Order::Total).join().await;
        assert!(
            matches!(joined, Err(Error::StillLeaving { .. })),
            "it is a member yet: {joined:?}"
        );
        // The others read, it is out, and may come again.
        for mut group in groups {
            tokio::spawn(async move { while group.next().await.is_some() {} });
        }
        while let Err(error) = nodes[0].group("g").order(Order::Total).join().await {
            assert!(matches!(error, Error::StillLeaving { .. }), "{error}");
            world.sleep_ms(10).await;
        }
        Ok(())
    })
}

/// The others have gone on without it if the pause was long, and it does not know that when it wakes.
#[test]
fn a_group_that_is_left_right_after_a_pause_is_left_and_may_be_joined_again() -> Result<(), RunError> {
    for pause in [Duration::from_millis(500), seconds(20)] {
        World::new(20, ABC).run(async |world| {
            let nodes = cluster(&world, &ABC).await?;
            let mut groups = groups(&world, &nodes).await?;
            let group = groups.remove(0);
            let sender = group.sender();
            // Its time comes while the node stands still, so it leaves as soon as that runs again.
            let leaving = world.spawn("a", async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                group.leave().await
            })?;
            let until = world.now() + pause;
            world.pause("a", pause)?;
            tokio::time::timeout(seconds(60), leaving)
                .await??
                .ok_or("it has ended")??;
            assert!(world.now() >= until, "{:?}", world.now());
            assert_eq!(sender.try_send("late").err(), Some(SendError::Closed));
            let mut members: [Vec<String>; 2] = Default::default();
            world
                .until(|| {
                    for (group, members) in groups.iter_mut().zip(&mut members) {
                        while let Some(event) = group.try_next() {
                            if let Event::View(view) = event {
                                *members = view.members.iter().map(|member| member.name.clone()).collect();
                            }
                        }
                    }
                    members.iter().all(|members| *members == ["b", "c"])
                })
                .await;
            world.until(|| nodes.iter().all(|node| sees(node, 3))).await;
            let mut again = nodes[0].group("g").order(Order::Total).join().await?;
            groups[0].send("welcome").await?.delivered().await;
            world.sleep_ms(50).await;
            assert_eq!(heard(&mut again), ["welcome"]);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn fifty_seeds_take_seconds() -> Result<(), RunError> {
    let start = Instant::now();
    for seed in 0..50 {
        let engine = EngineKind::ALL[seed as usize % EngineKind::ALL.len()];
        rough_day(seed, |builder| builder.membership(engine))?;
    }
    println!("fifty runs took {:?}", start.elapsed());
    assert!(start.elapsed() < seconds(60));
    Ok(())
}

#[test]
fn what_a_member_was_told_before_it_was_killed_is_delivered_or_has_the_cause() -> Result<(), RunError> {
    let mut unheard = 0;
    for seed in 1..=10 {
        World::new(seed, ABC).run(async |world| {
            let nodes = cluster(&world, &ABC).await?;
            let mut groups = groups(&world, &nodes).await?;
            let view = nodes[0].view().unwrap();
            let to = |name| view.members.iter().find(|member| member.name == name).unwrap();
            let (mut to_b, mut to_c) = (Vec::new(), Vec::new());
            for number in 0..20 {
                to_b.push(groups[0].try_tell(to("b"), number.to_string())?);
                to_c.push(groups[0].try_tell(to("c"), number.to_string())?);
                if number == 10 {
                    world.sleep_ms(50).await;
                }
            }
            world.sleep_ms(world.draw() % 2).await;
            world.kill("b")?;
            let mut fates = Vec::new();
            for receipt in to_b {
                fates.push(receipt.await);
            }
            for receipt in to_c {
                assert_eq!(receipt.await, TellOutcome::Delivered);
            }
            let told = std::iter::from_fn(|| groups[2].try_next());
            let told = told.filter(|event| matches!(event, Event::Told(_))).count();
            assert_eq!(told, 20);
            let known = fates
                .iter()
                .take_while(|fate| **fate == TellOutcome::Delivered)
                .count();
            assert!(known > 10, "{fates:?}");
            let crashed = [Parting::Crashed]
                .map(|why| [TellOutcome::Unknown(why.clone()), TellOutcome::NotDelivered(why)]);
            assert!(
                fates[known..].iter().all(|fate| crashed[0].contains(fate)),
                "{fates:?}"
            );
            unheard += fates.len() - known;
            Ok(())
        })?;
    }
    assert!(unheard > 0, "in no world was it killed early enough");
    Ok(())
}

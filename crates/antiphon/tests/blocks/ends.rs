//! A node whose handles are all dropped: it stops, and what its blocks do before that.

use std::any::Any;

use antiphon::calls::Calls;
use antiphon::{ClusterEvents, Profile};

use super::*;

const KINDS: [&str; 4] = ["map", "locks", "calls", "clients"];

/// The handle of a block of this kind.
async fn block(node: &Cluster, kind: &str) -> Result<Box<dyn Any>, SceneError> {
    let block: Box<dyn Any> = match kind {
        "map" => Box::new(node.map::<u64, u64>("map").join().await?),
        "locks" => Box::new(node.locks("locks").join().await?),
        "calls" => Box::new(Calls::new(node.group("calls").join().await?)),
        _ => Box::new(node.clients("clients").join().await?),
    };
    Ok(block)
}

/// Cuts `a` off from `b` and `c`, and waits until it knows.
async fn cut_off(world: &World, a: &Cluster) -> Result<(), SceneError> {
    world.partition(["a"], ["b", "c"])?;
    let lost = || a.view().is_some_and(|view| !view.is_primary());
    world.until(lost).await;
    Ok(())
}

/// How long it takes from now on until the node of these events stops.
async fn stops(world: &World, mut events: ClusterEvents) -> Duration {
    let start = world.now();
    while events.next().await.is_some() {}
    world.now() - start
}

#[test]
fn without_a_majority_a_node_whose_handles_are_dropped_stops_in_bounded_time() -> Result<(), RunError> {
    for (seed, kind) in (50..).zip(KINDS) {
        World::new(seed, ABC).run(async |world| {
            let mut nodes = cluster(&world, &ABC).await?;
            let mut blocks = Vec::new();
            for node in &nodes {
                blocks.push(block(node, kind).await?);
            }
            cut_off(&world, &nodes[0]).await?;
            let events = nodes[0].events();
            drop(blocks.remove(0));
            drop(nodes.remove(0));
            let took = stops(&world, events).await;
            assert!(took <= Profile::lan().leave_within + ms(10), "{kind}: {took:?}");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn without_a_majority_a_hand_over_that_nobody_waits_for_does_not_hold_the_node() -> Result<(), RunError> {
    World::new(54, ABC).run(async |world| {
        let mut nodes = cluster(&world, &ABC).await?;
        let mut locks = locks(&nodes).await?;
        let leads = locks[0].leadership("job").await?;
        world.partition(["a"], ["b", "c"])?;
        // Taken before the node knows, so that it has no answer.
        let mut handing = Box::pin(leads.hand_over(nodes[1].incarnation()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(handing.as_mut().poll(&mut context).is_pending());
        drop(handing);
        cut_off(&world, &nodes[0]).await?;
        let events = nodes[0].events();
        drop((leads, locks.remove(0), nodes.remove(0)));
        let took = stops(&world, events).await;
        assert!(took <= Profile::lan().leave_within + ms(10), "{took:?}");
        Ok(())
    })
}

#[test]
fn with_a_majority_a_dropped_block_has_left_in_order_before_its_node_stops() -> Result<(), RunError> {
    World::new(55, ABC).run(async |world| {
        let mut nodes = cluster(&world, &ABC).await?;
        let mut maps = maps(&nodes).await?;
        let events = nodes[0].events();
        drop((maps.remove(0), nodes.remove(0)));
        let took = stops(&world, events).await;
        assert!(took < ms(1_000), "{took:?}");
        let view = || maps[0].machine().status().view;
        let of_two = || view().is_some_and(|view| view.members.len() == 2);
        world.until(of_two).await;
        let view = view().ok_or("it is a member")?;
        let left: Vec<&str> = view.left.iter().map(|member| &*member.name).collect();
        assert_eq!((left, view.crashed.len()), (vec!["a"], 0));
        Ok(())
    })
}

#[test]
fn a_map_keeps_its_node_and_a_membership_that_has_ended_does_not() -> Result<(), RunError> {
    World::new(56, ABC).run(async |world| {
        let mut nodes = cluster(&world, &ABC).await?;
        let maps = maps(&nodes).await?;
        let events = nodes[0].events();
        drop(nodes.remove(0));
        world.sleep_ms(60_000).await;
        maps[0].put(&text("key"), &1).await?;
        maps[0].machine().leave().await;
        let took = stops(&world, events).await;
        assert!(took < ms(1_000), "{took:?}");
        Ok(())
    })
}

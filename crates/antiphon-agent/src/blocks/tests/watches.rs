//! When a watch is told all entries anew, in virtual time: on a lone node that stands still for a while, and
//! on one without a primary. The lone node does not notice that its lease was over, and says once more that
//! it has it.

use antiphon::testkit::{RunError, SceneError, World};
use antiphon_api::{Command, Event};
use tokio::time::timeout;

use super::*;
use crate::hub::{Events, Session as Client};

/// More than wait for a program and for its watch together.
const CHANGES: usize = 4_000;

/// Sessions of the node `a`, which is its cluster.
async fn lone_hub(world: &World) -> Result<Hub, SceneError> {
    let node = world.node("a")?.start().await?;
    let is_primary = || node.view().is_some_and(|view| view.is_primary());
    world.until(is_primary).await;
    world.sleep_ms(2_000).await;
    Ok(Hub::new(node.clone()))
}

async fn say(client: &Client, line: Value) {
    client.obey(Command::parse(&line.to_string()).unwrap()).await;
}

/// Changes the map so often that a watch whose program does not read lags.
async fn change_much(hub: &Hub) -> Result<(), SceneError> {
    let (writer, mut replies) = hub.session().unwrap();
    for id in 0..CHANGES {
        let put = json!({"put": {"map": "m", "key": "k", "value": "v", "id": id}});
        say(&writer, put).await;
        told(&mut replies, |event| matches!(event, Event::Reply(_))).await?;
    }
    Ok(())
}

fn is_listing(event: &Event) -> bool {
    matches!(event, Event::Watching(_))
}

/// Reads until this is told. Gives what was told before.
async fn told(events: &mut Events, what: impl Fn(&Event) -> bool) -> Result<Vec<Event>, SceneError> {
    let mut before = Vec::new();
    loop {
        let event = events.next().await.ok_or("the session is over")?;
        if what(&event) {
            return Ok(before);
        }
        before.push(event);
    }
}

#[test]
fn a_watch_that_missed_nothing_is_not_told_all_entries_anew() -> Result<(), RunError> {
    World::new(3, ["a"]).run(async |world| {
        let hub = lone_hub(&world).await?;
        let (client, mut events) = hub.session().unwrap();
        say(&client, json!({"watch": {"map": "m", "id": 1}})).await;
        told(&mut events, is_listing).await?;
        world.pause("a", Duration::from_secs(10))?;
        world.sleep_ms(20_000).await;
        let put = json!({"put": {"map": "m", "key": "k", "value": "v", "id": 2}});
        say(&client, put).await;
        let before = told(&mut events, |event| matches!(event, Event::Changed(_))).await?;
        assert!(!before.iter().any(is_listing), "{before:?}");
        Ok(())
    })
}

#[test]
fn a_watch_that_lags_while_its_node_stands_still_is_told_all_entries_behind_that() -> Result<(), RunError> {
    World::new(3, ["a"]).run(async |world| {
        let hub = lone_hub(&world).await?;
        let (slow, mut events) = hub.session().unwrap();
        say(&slow, json!({"watch": {"map": "m", "id": 1}})).await;
        told(&mut events, is_listing).await?;
        change_much(&hub).await?;
        world.pause("a", Duration::from_secs(10))?;
        world.sleep_ms(8_000).await;
        let mut listed = 0;
        while let Ok(Some(event)) = timeout(Duration::from_secs(20), events.next()).await {
            listed += usize::from(is_listing(&event));
        }
        assert_eq!(listed, 1);
        Ok(())
    })
}

/// A lease may be back before the view, and then the entries cannot be read yet. These nodes do without one,
/// so the view is the only word that they may act again.
#[test]
fn a_watch_that_lags_without_a_primary_is_told_all_entries_when_the_view_is_back() -> Result<(), RunError> {
    World::new(11, ["a", "b", "c"]).run(async |world| {
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            nodes.push(world.node(name)?.primary_lease(false).start().await?);
        }
        let sees_all = |node: &Cluster| {
            let view = node.view();
            view.is_some_and(|view| view.is_primary() && view.members.len() == 3)
        };
        world.until(|| nodes.iter().all(sees_all)).await;
        let hub = Hub::new(nodes[0].clone());
        let (slow, mut events) = hub.session().unwrap();
        say(&slow, json!({"watch": {"map": "m", "id": 1}})).await;
        told(&mut events, is_listing).await?;
        change_much(&hub).await?;
        let copy = slow.copy("m").ok_or("this node has no copy of the map")?;
        let serves = || copy.get(b"k").is_ok();
        // None is in the primary, none is removed.
        for (one, other) in [("a", "b"), ("a", "c"), ("b", "c")] {
            world.partition([one], [other])?;
        }
        world.until(|| !serves()).await;
        let mut before = Vec::new();
        while let Ok(event) = timeout(Duration::from_millis(1), events.next()).await {
            before.push(event.ok_or("the session is over")?);
        }
        assert!(before.len() < CHANGES, "it did not lag: {} events", before.len());
        assert!(!before.iter().any(is_listing), "it cannot read the entries now");
        world.heal();
        world.until(serves).await;
        let mut listed = 0;
        while let Ok(Some(event)) = timeout(Duration::from_secs(20), events.next()).await {
            listed += usize::from(is_listing(&event));
        }
        assert_eq!(listed, 1);
        Ok(())
    })
}

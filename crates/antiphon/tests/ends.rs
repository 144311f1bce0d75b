//! What is free again when something has ended: the name of a group that was left, the port of a node.

use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::{Builder, Cluster, ClusterEvent, EngineKind, Error, Profile};

/// Long enough for a loaded machine; no test waits for it unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

type Tested = Result<(), Box<dyn std::error::Error>>;

fn builder(name: &str) -> Builder {
    Cluster::builder("test").name(name).profile(Profile::local())
}

#[tokio::test]
async fn a_group_that_is_being_left_is_joined_again_when_that_is_done() -> Tested {
    let network = MemoryNetwork::new();
    let node = builder("a").bind("10.0.0.1:0").memory(&network).found();
    let node = tokio::time::timeout(PATIENCE, node.join()).await??;
    let group = node.group("g").join().await?;
    let again = node.group("g").join().await;
    assert!(matches!(again, Err(Error::AlreadyJoined { .. })), "{again:?}");
    drop(group);
    let joined = async {
        loop {
            match node.group("g").join().await {
                Err(Error::StillLeaving { group }) => assert_eq!(group, "g"),
                joined => return joined,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, joined).await??;
    Ok(())
}

/// Not a moment later, on a runtime that does nothing else meanwhile.
#[tokio::test]
async fn the_port_of_a_node_that_was_aborted_or_refused_is_free_when_that_is_told() -> Tested {
    let first = builder("a").bind("127.0.0.1:0").found();
    let first = tokio::time::timeout(PATIENCE, first.join()).await??;
    let addr = first.addr();
    first.abort();
    tokio::time::timeout(PATIENCE, first.closed()).await?;
    let second = builder("a").bind(addr).found().start().await?;
    second.abort();
    tokio::time::timeout(PATIENCE, second.closed()).await?;

    let other = builder("b").bind("127.0.0.1:0").found();
    let other = tokio::time::timeout(PATIENCE, other.join()).await??;
    let node = || builder("a").bind(addr).seeds([other.addr()]);
    let refused = node().membership(EngineKind::Cut).join();
    let refused = tokio::time::timeout(PATIENCE, refused).await?;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    node().start().await?;
    Ok(())
}

/// A health check looks at the view, and several paths of a program may end the node.
#[tokio::test]
async fn a_node_that_has_ended_is_in_no_view_and_leaving_again_is_no_error() -> Tested {
    let network = MemoryNetwork::new();
    let node = |name| builder(name).bind("10.0.0.1:0").memory(&network).found();
    let left = tokio::time::timeout(PATIENCE, node("a").join()).await??;
    assert!(left.view().is_some_and(|view| view.is_primary()));
    let leaving = async { tokio::join!(left.leave(), left.leave()) };
    let (one, other) = tokio::time::timeout(PATIENCE, leaving).await?;
    one?;
    other?;
    left.leave().await?;
    assert!(left.view().is_none());
    let mut events = left.events();
    while let Some(event) = events.next().await {
        assert!(!matches!(event, ClusterEvent::View(_)), "{event}");
    }

    let stopped = tokio::time::timeout(PATIENCE, node("b").join()).await??;
    stopped.abort();
    tokio::time::timeout(PATIENCE, stopped.closed()).await?;
    assert!(stopped.view().is_none());
    let left = stopped.leave().await;
    assert!(matches!(left, Err(Error::Closed)), "{left:?}");
    Ok(())
}

//! Blocks live where their node lives, whichever runtime or thread joins them and asks them.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use antiphon::calls::{Calls, Target, Verb};
use antiphon::clients::{ClientEvent, ClientGroup};
use antiphon::memory::MemoryNetwork;
use antiphon::replicated::LockError;
use antiphon::{Cluster, Locks, Map, Profile};
use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Long enough for a loaded machine; no test waits for it unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);
const MILLISECOND: Duration = Duration::from_millis(1);
const DOUBLE: Verb<u64, u64, ()> = Verb::new("double");

type Failed = Box<dyn std::error::Error + Send + Sync>;
type Tested = Result<(), Failed>;

/// A cluster of one.
async fn node() -> Result<Cluster, Failed> {
    let node = Cluster::builder("test").name("a").profile(Profile::local());
    let node = node.bind("10.0.0.1:0").memory(&MemoryNetwork::new()).found();
    Ok(timeout(PATIENCE, node.join()).await??)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// One of each kind.
struct Blocks {
    map: Map<u64, u64>,
    locks: Locks,
    calls: Calls,
    clients: ClientGroup,
}

async fn join(node: &Cluster) -> Result<Blocks, Failed> {
    let calls = Calls::new(node.group("calls").join().await?);
    // The handler needs a runtime with timers.
    calls.serve(DOUBLE, |_, number| async move {
        sleep(MILLISECOND).await;
        Ok(2 * number)
    })?;
    Ok(Blocks {
        map: node.map("map").join().await?,
        locks: node.locks("locks").join().await?,
        calls,
        clients: node.clients("clients").join().await?,
    })
}

/// Needs no runtime.
async fn use_all(node: &Cluster, blocks: &Blocks) -> Tested {
    blocks.map.put(&1, &2).await?;
    let item = blocks.map.get_latest(&1).await?;
    assert_eq!(item.map(|item| item.value), Some(2));
    blocks.map.machine().synced().await?;
    blocks.locks.lock("it").await?.unlock().await?;
    let start = Instant::now();
    while blocks.calls.members().is_empty() {
        assert!(start.elapsed() < PATIENCE, "this member has no view");
        std::thread::sleep(MILLISECOND);
    }
    let me = Target::Member(node.incarnation());
    assert_eq!(blocks.calls.ask(me, DOUBLE, &4, PATIENCE).await, Ok(8));
    let mut ada = blocks.clients.enter("ada")?;
    assert!(matches!(ada.next().await, Some(ClientEvent::View(_))));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_were_joined_on_a_runtime_that_has_ended_go_on() -> Tested {
    let node = node().await?;
    let of = node.clone();
    let blocks = spawn_blocking(move || runtime().block_on(join(&of))).await??;
    timeout(PATIENCE, use_all(&node, &blocks)).await?
}

/// Polls a future on this thread, which is in no runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        let left = PATIENCE.checked_sub(start.elapsed());
        std::thread::park_timeout(left.expect("not in time"));
    }
}

#[test]
fn a_thread_without_a_runtime_joins_blocks_uses_them_and_leaves_them() -> Tested {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let node = runtime.block_on(node())?;
    let blocks = block_on(join(&node))?;
    block_on(use_all(&node, &blocks))?;
    let leads = block_on(blocks.locks.leadership("job"))?;
    let refused = block_on(leads.hand_over(node.incarnation()));
    assert!(matches!(refused, Err(LockError::Refused(_))), "{refused:?}");
    assert!(leads.is_held());
    block_on(leads.step_down())?;
    block_on(blocks.map.machine().leave());
    block_on(blocks.locks.table().leave());
    block_on(blocks.calls.leave());
    block_on(blocks.clients.leave());
    block_on(node.leave())?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_hand_over_is_undone_though_the_runtime_of_its_caller_has_ended() -> Tested {
    let node = node().await?;
    let locks = node.locks("locks").join().await?;
    let leads = Arc::new(locks.leadership("job").await?);
    // To a member that does not wait for the job.
    let (hands, to) = (leads.clone(), node.incarnation());
    let begin = move || {
        runtime().block_on(async {
            let mut handing = pin!(hands.hand_over(to));
            std::future::poll_fn(|context| {
                let _ = handing.as_mut().poll(context);
                Poll::Ready(())
            })
            .await;
        });
    };
    spawn_blocking(begin).await?;
    let held = async {
        while !leads.is_held() {
            sleep(MILLISECOND).await;
        }
    };
    timeout(PATIENCE, held).await?;
    assert_eq!(locks.leader("job")?, Some(node.incarnation()));
    Ok(())
}

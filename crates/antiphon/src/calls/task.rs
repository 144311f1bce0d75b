//! The task that reads the group for the calls, and comes round when the machine wants to.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::shared::{Need, Shared};
use crate::Group;

/// Events handled under one lock.
const EVENTS_PER_TURN: usize = 256;

/// Says the end to all that wait, also if it is dropped with its process.
struct Finish(Arc<Shared>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Runs until the group was left.
pub(super) async fn run(shared: Arc<Shared>, mut group: Group) {
    let _finish = Finish(shared.clone());
    let mut events = Vec::with_capacity(EVENTS_PER_TURN);
    loop {
        let mut need = shared.take(&mut events);
        // Members are asked again after it is known that their next room is noticed.
        let members = need.blocked.members.iter();
        let rooms: Vec<Arc<Notify>> = members
            .filter_map(|member| shared.sender.tell_room(*member))
            .collect();
        let mut waits: Vec<Pin<Box<Notified<'_>>>> = rooms.iter().map(|room| watch(room)).collect();
        if need.blocked.group {
            waits.push(watch(shared.sender.room()));
        }
        if !waits.is_empty() {
            need = shared.take(&mut events);
        }
        if need.leaves {
            // The answer is that it has left, whatever it is.
            let _ = group.leave().await;
            return;
        }
        tokio::select! {
            biased;
            () = std::future::poll_fn(|cx| shared.poll_receipts(cx)) => {}
            taken = group.next_batch(&mut events, EVENTS_PER_TURN) => {
                if taken == 0 {
                    return;
                }
            }
            () = shared.wake.notified() => {}
            () = any(&mut waits) => {}
            () = due(&shared, &need) => {}
        }
    }
}

fn watch(room: &Notify) -> Pin<Box<Notified<'_>>> {
    let mut wait = Box::pin(room.notified());
    wait.as_mut().enable();
    wait
}

/// Returns when one of them has room; never if there are none.
async fn any(waits: &mut [Pin<Box<Notified<'_>>>]) {
    std::future::poll_fn(|cx: &mut Context<'_>| {
        let ready = waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn due(shared: &Shared, need: &Need) {
    match need.deadline {
        // A timer counts whole milliseconds.
        Some(deadline) => {
            tokio::time::sleep(deadline.since(shared.now()).max(Duration::from_micros(1))).await
        }
        None => std::future::pending().await,
    }
}

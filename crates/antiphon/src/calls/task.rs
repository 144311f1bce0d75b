//! The task that reads the group for the calls, and comes round when the machine asks for it.

use std::sync::Arc;

use super::shared::Shared;
use crate::Group;
use crate::driven::{self, EVENTS_PER_TURN, Timer, Wait, any, watch};

/// Tells the end to all callers that wait, also if the task is dropped with its process.
struct Finish(Arc<Shared>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Runs until the group was left. It tells the end also if the runtime drops it before it has begun.
pub(super) fn run(shared: Arc<Shared>, group: Group) -> impl Future<Output = ()> + Send {
    let work = |shared: Arc<Shared>, group| work(shared.clone(), group, Finish(shared));
    driven::run(shared, group, |shared| &shared.dropped, work)
}

async fn work(shared: Arc<Shared>, mut group: Group, _finish: Finish) {
    let mut events = Vec::with_capacity(EVENTS_PER_TURN);
    let mut timer = Timer::new();
    loop {
        let mut need = shared.take(&mut events);
        // Members are asked again after it is known that their next room is noticed.
        let rooms = need.blocked.rooms(&shared.sender);
        let mut waits: Vec<Wait<'_>> = rooms.iter().map(|room| watch(room)).collect();
        if need.blocked.group {
            waits.push(watch(shared.sender.room()));
        }
        if !waits.is_empty() {
            need = shared.take(&mut events);
        }
        if need.leaves {
            shared.part();
            // The answer is that it has left, whatever it is.
            let _ = group.leave().await;
            return;
        }
        timer.set(&shared.host, need.deadline);
        tokio::select! {
            biased;
            () = std::future::poll_fn(|cx| shared.poll_receipts(cx)) => {}
            taken = group.next_turn(&mut events, EVENTS_PER_TURN) => {
                if taken == 0 {
                    return;
                }
            }
            () = shared.wake.notified() => {}
            () = any(&mut waits) => {}
            () = timer.rings() => shared.rang(),
        }
    }
}

//! The task that reads the group for the clients of this node.

use std::sync::Arc;
use std::time::Duration;

use antiphon_core::Time;

use super::shared::Shared;
use crate::Group;
use crate::driven::{self, EVENTS_PER_TURN, Timer, Wait, any, watch};

/// How often slow clients are looked for while there are some.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Says the end to all clients, also if it is dropped with its process.
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
    group.keep_credit();
    let mut events = Vec::with_capacity(EVENTS_PER_TURN);
    let mut timer = Timer::new();
    // When slow clients are looked for next.
    let mut look: Option<Time> = None;
    loop {
        let mut need = shared.take(&mut events);
        let mut waits: Vec<Wait<'_>> = Vec::new();
        if need.room {
            waits.push(watch(shared.sender.room()));
            // It may have come before this task looked for it.
            need = shared.take(&mut events);
        }
        if need.leaves {
            shared.give_all_back();
            // The answer is that it has left, whatever it is.
            let _ = group.leave().await;
            return;
        }
        let next = || Time::from_micros(shared.host.micros()) + LOOK_EVERY;
        look = need.crowded.then(|| look.unwrap_or_else(next));
        timer.set(&shared.host, look);
        tokio::select! {
            biased;
            () = std::future::poll_fn(|cx| shared.poll_receipt(cx)) => {}
            taken = group.next_turn(&mut events, EVENTS_PER_TURN), if !need.full => {
                if taken == 0 {
                    return;
                }
            }
            () = shared.wake.notified() => {}
            () = any(&mut waits) => {}
            () = timer.rings() => {
                look = None;
                shared.remove_slow();
            }
        }
    }
}

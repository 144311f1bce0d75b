//! Shared by the tasks that drive a machine without I/O over a group. It waits until the group has room for
//! the machine's messages, or until the machine's deadline has come; and it turns the group's events into the
//! machine's inputs.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use antiphon_core::wire::GroupId;
use antiphon_core::{GroupView, Time};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, Sleep};

use crate::cluster::Handle;
use crate::host::Host;
use crate::{Group, GroupSender, Incarnation, Member, View};

/// Events handled under one lock.
pub(crate) const EVENTS_PER_TURN: usize = 256;

/// The task of a block: does its work, which ends when the group was left, and holds the node for it. What
/// the work holds is dropped also if the runtime drops the task before it has begun.
pub(crate) fn run<S: Send + Sync, W: Future<Output = ()> + Send>(
    shared: Arc<S>,
    mut group: Group,
    dropped: fn(&S) -> &Notify,
    work: impl FnOnce(Arc<S>, Group) -> W,
) -> impl Future<Output = ()> + Send {
    let node = group.take_hold();
    let work = work(shared.clone(), group);
    async move { hold_while(node, dropped(&shared).notified(), work).await }
}

/// Does the work of a block's task, and holds the node for it. The work of a block that is dropped ends when
/// it has left its group, for which it needs the primary. So from when `dropped` returns on, the node is held
/// for as long as one may take to leave, and then for as long as it has its lease: a member may be giving its
/// state to a joiner.
async fn hold_while(node: Arc<Handle>, dropped: impl Future<Output = ()>, work: impl Future<Output = ()>) {
    let over = async {
        dropped.await;
        loop {
            tokio::time::sleep(node.shared.settings.leave_within).await;
            if !node.shared.hub().has_lease() {
                break;
            }
        }
    };
    let mut work = pin!(work);
    tokio::select! {
        biased;
        () = &mut work => return,
        () = over => {}
    }
    drop(node);
    work.await;
}

/// What the group had no room for.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    /// A message to all.
    pub(crate) group: bool,
    /// Direct messages to these members.
    pub(crate) members: Vec<Incarnation>,
}

impl Blocked {
    /// Whether there was room for all.
    pub(crate) fn is_nothing(&self) -> bool {
        !self.group && self.members.is_empty()
    }

    /// What tells that a member may be told more.
    pub(crate) fn rooms(&self, sender: &GroupSender) -> Vec<Arc<Notify>> {
        let members = self.members.iter();
        members.filter_map(|member| sender.tell_room(*member)).collect()
    }
}

/// Waits for room.
pub(crate) type Wait<'a> = Pin<Box<Notified<'a>>>;

/// From when this is made, no room is missed.
pub(crate) fn watch(room: &Notify) -> Wait<'_> {
    let mut wait = Box::pin(room.notified());
    wait.as_mut().enable();
    wait
}

/// Returns when one of them has room; never if there are none.
pub(crate) async fn any(waits: &mut [Wait<'_>]) {
    std::future::poll_fn(|cx: &mut Context<'_>| {
        let ready = waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Whether this deadline comes before the task looks.
pub(crate) fn is_earlier(deadline: Option<Time>, awaited: Option<Time>) -> bool {
    deadline.is_some_and(|deadline| awaited.is_none_or(|awaited| deadline < awaited))
}

/// The timer that wakes a task at its machine's deadline. The deadline moves with each request, mostly to
/// later. The timer keeps the earliest time that it was set to, so it sometimes rings for nothing; otherwise
/// each request would wake the task to set the timer anew.
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    set: Option<Time>,
}

impl Timer {
    /// Set to nothing.
    pub(crate) fn new() -> Self {
        Self {
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            set: None,
        }
    }

    /// Sets it to this time, in place of any other.
    pub(crate) fn set(&mut self, host: &Host, deadline: Option<Time>) {
        if self.set == deadline {
            return;
        }
        self.set = deadline;
        if let Some(deadline) = deadline {
            let now = Time::from_micros(host.micros());
            // A timer counts whole milliseconds.
            let wait = deadline.since(now).max(Duration::from_micros(1));
            self.sleep.as_mut().reset(Instant::now() + wait);
        }
    }

    /// Returns when it rings, and is set to nothing then; never returns while it is set to nothing.
    pub(crate) async fn rings(&mut self) {
        if self.set.is_none() {
            return std::future::pending().await;
        }
        self.sleep.as_mut().await;
        self.set = None;
    }
}

/// The members as a machine knows them.
pub(crate) fn incarnations(members: &[Arc<Member>]) -> Vec<Incarnation> {
    members.iter().map(|member| member.incarnation).collect()
}

/// A view as a machine takes it.
pub(crate) fn core_view(view: &View) -> GroupView {
    let causes = view.causes.iter();
    GroupView {
        id: view.id,
        group: GroupId(0),
        name: view.group.to_string(),
        order: view.order,
        members: incarnations(&view.members),
        joined: incarnations(&view.joined),
        left: incarnations(&view.left),
        crashed: incarnations(&view.crashed),
        causes: causes
            .map(|(member, cause)| (member.incarnation, cause.clone()))
            .collect(),
        transitional: incarnations(&view.transitional),
        gone: Vec::new(),
    }
}

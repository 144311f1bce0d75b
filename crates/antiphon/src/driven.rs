//! What the tasks share that drive a machine without I/O over a group: waiting until there is room for what
//! the machine wants to say, or until its time has come; and what the group tells, as the machine takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use antiphon_core::wire::GroupId;
use antiphon_core::{GroupView, Time};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::host::Host;
use crate::{GroupSender, Incarnation, Member, View};

/// Events handled under one lock.
pub(crate) const EVENTS_PER_TURN: usize = 256;

/// What the group had no room for.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    /// A message to all.
    pub(crate) group: bool,
    /// Direct messages to these members.
    pub(crate) members: Vec<Incarnation>,
}

impl Blocked {
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

/// Returns when the deadline has come; never without one.
pub(crate) async fn due(host: &Host, deadline: Option<Time>) {
    let Some(deadline) = deadline else {
        return std::future::pending().await;
    };
    let now = Time::from_micros(host.micros());
    // A timer counts whole milliseconds.
    tokio::time::sleep(deadline.since(now).max(Duration::from_micros(1))).await;
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

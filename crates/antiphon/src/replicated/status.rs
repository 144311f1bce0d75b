//! The status of a replica, for a progress bar and for people.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use antiphon_replica::Standing;
use tokio::sync::watch;

use super::ReplicaMember;
use crate::{Incarnation, Member, View};

/// How a replica stands. From [`Replicated::status`](super::Replicated::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// Where this member stands: whether it waits for the state, receives it, or serves.
    pub standing: Standing,
    /// Whether the group is in the primary component and this node has its lease, as far as it was told.
    /// Otherwise others may have gone on without this member, and members and view are those of before. False
    /// while it is in no group.
    pub primary: bool,
    /// How far the state is, while it comes and while what was written meanwhile is applied.
    pub transfer: Option<Transfer>,
    /// The members by seniority, and whether each has the state. Empty until this is known here. A joiner
    /// knows it with the first of the state; before that, if it joined in the group's first view, or if it is
    /// told that no member has the state or that one founds it anew.
    pub members: Vec<ReplicaMember>,
    /// The group's present view, in which [`View::synced`] names the members that have the state. A new view
    /// is here at once; those of the view before that have the state and stay are in `synced` until more is
    /// known.
    pub view: Option<Arc<View>>,
}

/// How far the state is on its way to this member.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Transfer {
    /// Bytes that are here. They begin at 0 again when the source is lost and another one takes its place.
    pub bytes: u64,
    /// Bytes of the state: about, until all are here.
    pub total: u64,
    /// The name of the member that gives it.
    pub source: String,
}

impl Transfer {
    /// How much is here, in percent from 0 to 100.
    pub fn percent(&self) -> u8 {
        match u128::from(self.total) {
            0 => 100,
            total => (u128::from(self.bytes.min(self.total)) * 100 / total) as u8,
        }
    }
}

impl ReplicaStatus {
    /// The members that have the state.
    pub fn synced(&self) -> impl Iterator<Item = &ReplicaMember> {
        self.members.iter().filter(|member| member.synced)
    }
}

/// A new view. Until the replica says more, those of its members that have the state are those that had it.
pub(super) fn view_after(former: Option<&View>, view: &View) -> View {
    let had = former.and_then(|former| former.synced.as_ref());
    let synced = had.map(|had| {
        let stays = |member: &&Arc<Member>| view.members.contains(member) && !view.joined.contains(member);
        had.iter().filter(stays).cloned().collect()
    });
    View {
        synced,
        ..view.clone()
    }
}

/// The members of a view that have the state, as the replica says.
pub(super) fn with_the_state(view: &View, said: &[ReplicaMember]) -> Vec<Arc<Member>> {
    let synced = said.iter().filter(|of| of.synced);
    let synced: BTreeSet<Incarnation> = synced.map(|of| of.member.incarnation).collect();
    let of_view = view.members.iter();
    let of_view = of_view.filter(|member| synced.contains(&member.incarnation));
    of_view.cloned().collect()
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, total, source } = self;
        write!(f, "{bytes} of {total} bytes from {source} ({} %)", self.percent())
    }
}

impl fmt::Display for ReplicaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.standing.fmt(f)?;
        if let Some(transfer) = &self.transfer {
            write!(f, ": {transfer}")?;
        }
        let mut names = self.synced().map(|member| &member.member.name);
        if let Some(first) = names.next() {
            write!(f, "; synced: {first}")?;
        }
        names.try_for_each(|name| write!(f, " {name}"))
    }
}

/// Follows a replica's [`ReplicaStatus`]. From
/// [`Replicated::watch_status`](super::Replicated::watch_status). It keeps neither the node nor the
/// membership alive, and holds only what is so now: a reader that is slow misses what was so in between.
#[derive(Debug, Clone)]
pub struct ReplicaStatusWatch(pub(super) watch::Receiver<ReplicaStatus>);

impl ReplicaStatusWatch {
    /// How it stands now.
    pub fn current(&self) -> ReplicaStatus {
        self.0.borrow().clone()
    }

    /// How it stands after the next change since this was last asked; `None` when the last handle is gone
    /// and the group is left.
    ///
    /// # Cancel safety
    /// No change is lost if the future is dropped.
    pub async fn changed(&mut self) -> Option<ReplicaStatus> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }
}

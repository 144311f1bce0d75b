//! What a group sees of its node while it handles an input.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::group::{GroupMessage, Standing};
use antiphon_wire::{GroupId, GroupViewId, Incarnation, Member};

use super::credit::Credit;
use super::effect::MAX_CAUSE_BYTES;
use super::nodes::Nodes;
use super::{Effect, GroupHandle};
use crate::flush::state::Ghost;
use crate::random::Random;
use crate::{Profile, Time};

/// So many members that departed are remembered, the last ones.
pub(super) const MAX_FORMER: usize = 512;

/// What an incarnation remembers of a group, whether or not it is a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Floor {
    /// The last view that the incarnation has installed or that is void for it.
    pub(crate) view: GroupViewId,
    /// If it was removed, the reason, in at most [`MAX_CAUSE_BYTES`]: the next leader is told.
    removed: Option<String>,
}

impl Floor {
    /// The floor of an incarnation that has installed this view, also if it has left with it.
    pub(crate) fn installed(view: GroupViewId) -> Self {
        Self { view, removed: None }
    }

    /// The floor of an incarnation that was removed.
    pub(crate) fn removed(view: GroupViewId, cause: &str) -> Self {
        let mut end = cause.len().min(MAX_CAUSE_BYTES);
        while !cause.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            view,
            removed: Some(cause[..end].to_owned()),
        }
    }
}

/// What a group sees of its node while it handles an input.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    pub(crate) me: Incarnation,
    pub(crate) node: &'a Nodes,
    /// The members that departed from node views, the last one at the end.
    pub(crate) former: &'a VecDeque<Member>,
    pub(crate) suspended: bool,
    pub(crate) profile: &'a Profile,
    pub(crate) random: &'a mut Random,
    pub(crate) effects: &'a mut VecDeque<Effect>,
    pub(super) loopback: &'a mut VecDeque<GroupMessage>,
    /// What this incarnation remembers of each group.
    pub(crate) floors: &'a mut BTreeMap<GroupId, Floor>,
    /// Per name of a group that was left, the number that this incarnation's next message there will have,
    /// and what it has outstanding there.
    pub(super) sent: &'a mut BTreeMap<String, (u64, Credit)>,
    /// Former memberships that others may still need, of groups that go on at this node.
    pub(crate) ghosts: &'a mut Vec<Ghost>,
    /// Groups that this node is out of, and for which it has nothing to keep.
    pub(crate) over: &'a mut Vec<GroupHandle>,
    /// The number of the last object: none is used again, whatever becomes of a membership.
    pub(super) last_object: &'a mut u64,
    pub(super) nonsense: &'a mut u64,
}

impl Context<'_> {
    /// Sends a control message; to itself by a queue of its own.
    pub(crate) fn send(&mut self, to: Incarnation, message: GroupMessage) {
        if to == self.me {
            self.loopback.push_back(message);
        } else {
            self.effects.push_back(Effect::Send { to, message });
        }
    }

    /// This node is no member of the group: its answer to a flush of it.
    pub(crate) fn gone(&self, group: GroupId) -> Standing {
        let floor = self.floors.get(&group).filter(|_| !planted!(ForgetRemoval));
        Standing::Gone {
            removed: floor.and_then(|floor| floor.removed.clone()),
        }
    }

    /// How people call a member of the node view.
    pub(crate) fn name(&self, incarnation: Incarnation) -> String {
        let members = self.node.members.iter().zip(&self.node.names);
        let mut found = members.filter(|(member, _)| **member == incarnation);
        found
            .next()
            .map_or_else(|| incarnation.to_string(), |(_, name)| name.clone())
    }

    /// Answers a join: this node is no member. The elder seems to think that it is, so it is told as well.
    pub(crate) fn not_here(&mut self, joiner: Incarnation, name: String) {
        if let Some(elder) = self.elder() {
            self.send(elder, GroupMessage::Declined { name: name.clone() });
        }
        self.send(joiner, GroupMessage::Moved { name, leader: None });
    }

    /// The elder, under a primary view.
    pub(crate) fn elder(&self) -> Option<Incarnation> {
        if self.suspended {
            None
        } else {
            self.node.members.first().copied()
        }
    }

    /// A group was left: numbers of this incarnation's messages go on should it join again.
    pub(crate) fn remember_sent(&mut self, name: &str, next_seq: u64, credit: Credit) {
        self.sent.insert(name.to_owned(), (next_seq, credit));
    }

    /// A peer sent something that cannot be right.
    pub(crate) fn nonsense(&mut self) {
        *self.nonsense += 1;
    }
}

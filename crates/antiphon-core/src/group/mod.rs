//! Groups: named closed sets of members with their own views and ordered messages.
//!
//! BOUNDARY (kept stable while the layers are built in parallel; `node.rs` is the only caller):
//! inputs are methods of [`Groups`], everything it wants done is an [`Effect`], drained in order after each call.

use antiphon_wire::group::{GroupData, GroupMessage};
use antiphon_wire::{Evidence, Incarnation};

use crate::{Class, GroupEvent, GroupHandle};

/// What the group layer wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Reliable and ordered per peer, control class. The node adds the installed primary view's id; the receiver
    /// handles it only once it has installed that view.
    Send { to: Incarnation, message: GroupMessage },
    /// Unreliable records, encoded and sealed once for all targets. Together below `frame::MAX_RECORDS_BYTES`.
    Data {
        to: Vec<Incarnation>,
        class: Class,
        records: Vec<GroupData>,
    },
    /// This peer holds up a flush.
    Accuse { peer: Incarnation, evidence: Evidence },
    /// For the application.
    Event(GroupHandle, GroupEvent),
}

// Methods that `node.rs` calls:
//   Groups::new(profile: Profile, random: Random) -> Self
//   handle_new_incarnation(now, me: Incarnation, cause: Option<String>)   -- all group membership is void; joined groups
//                                             emit Resync (if they had been joined) and join again under the next primary view
//   handle_node_view(now, view: &Arc<NodeView>)   -- primary: each one, in order. non-primary: suspends
//   handle_message(now, from: Incarnation, view: ViewId, message: GroupMessage)  -- `view` <= the installed primary view
//   handle_data(now, from: Incarnation, record: GroupData)
//   join(now, name: &str, options: GroupOptions) -> Result<GroupHandle, String>
//   send(now, group: GroupHandle, payload: Bytes) -> Result<Ticket, SendError>
//   consumed(now, group: GroupHandle, messages: u64)    -- the application has taken that many more messages
//   leave_group(now, group: GroupHandle)
//   leave_all(now) ; is_idle() -> bool            -- for the node's graceful leave: all groups left
//   handle_timeout(now); next_timeout() -> Option<Time>
//   poll_effect() -> Option<Effect>

use std::collections::VecDeque;
use std::sync::Arc;

use antiphon_wire::{NodeView, ViewId};
use bytes::Bytes;

use crate::random::Random;
use crate::{GroupOptions, Profile, SendError, Ticket, Time};

/// All groups of one node.
#[derive(Debug, Clone)]
pub(crate) struct Groups {
    profile: Profile,
    random: Random,
    effects: VecDeque<Effect>,
}

#[allow(unused_variables)]
impl Groups {
    pub(crate) fn new(profile: Profile, random: Random) -> Self {
        Self {
            profile,
            random,
            effects: VecDeque::new(),
        }
    }
    pub(crate) fn handle_new_incarnation(&mut self, now: Time, me: Incarnation, cause: Option<String>) {}
    pub(crate) fn handle_node_view(&mut self, now: Time, view: &Arc<NodeView>) {}
    pub(crate) fn handle_message(
        &mut self,
        now: Time,
        from: Incarnation,
        view: ViewId,
        message: GroupMessage,
    ) {
    }
    pub(crate) fn handle_data(&mut self, now: Time, from: Incarnation, record: GroupData) {}
    pub(crate) fn join(
        &mut self,
        now: Time,
        name: &str,
        options: GroupOptions,
    ) -> Result<GroupHandle, String> {
        Ok(GroupHandle(0))
    }
    pub(crate) fn send(
        &mut self,
        now: Time,
        group: GroupHandle,
        payload: Bytes,
    ) -> Result<Ticket, SendError> {
        Err(SendError::NoSuchGroup)
    }
    pub(crate) fn consumed(&mut self, now: Time, group: GroupHandle, messages: u64) {}
    pub(crate) fn leave_group(&mut self, now: Time, group: GroupHandle) {}
    pub(crate) fn leave_all(&mut self, now: Time) {}
    pub(crate) fn is_idle(&self) -> bool {
        true
    }
    pub(crate) fn handle_timeout(&mut self, now: Time) {}
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        None
    }
    /// `&mut self`, and to be drained only when a batch of inputs is over: what was sent meanwhile is packed into
    /// full frames here.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}

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
    Data { to: Vec<Incarnation>, class: Class, records: Vec<GroupData> },
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

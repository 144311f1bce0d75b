//! Messages of the group layer: founding, joins, data, rows, flush.

use crate::{ViewId, wire_enum, wire_struct};

wire_struct! {
    /// A reliable control message between members of a group (or about to be), with the sender's node view.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GroupControl {
        /// The primary node view that the sender had installed when it sent this.
        pub view: ViewId,
        /// The message.
        pub body: GroupMessage,
    }
}

wire_enum! {
    /// What a control message says.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum GroupMessage {
        /// Placeholder until the group layer defines its messages.
        Nothing = 0,
    }
}

wire_enum! {
    /// Unreliable records of a group: data batches, marks, rows, negative acknowledgements.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum GroupData {
        /// Placeholder until the group layer defines its messages.
        Nothing = 0,
    }
}

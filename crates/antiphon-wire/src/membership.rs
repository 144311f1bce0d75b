//! Messages of the membership layer: discovery and founding, the view slot, non-primary views, lifelines.

use crate::{wire_enum, wire_struct};

wire_enum! {
    /// Before membership.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Discovery {
        /// Placeholder until the membership layer defines its messages.
        Ping = 0,
    }
}

wire_struct! {
    /// Life between members.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Heartbeat {
        /// Placeholder.
        pub flags: u8,
    }
}

wire_enum! {
    /// Reliable, between members.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum MembershipMessage {
        /// Placeholder.
        Nothing = 0,
    }
}

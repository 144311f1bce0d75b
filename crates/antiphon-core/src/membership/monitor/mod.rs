//! Who watches whom in a view, and how its members hear of each other.

pub(crate) mod detection;
pub(crate) mod gossip;
pub(crate) mod ranks;
pub(crate) mod reachability;
pub(crate) mod reconnect;
pub(crate) mod report;
pub(crate) mod rings;
pub(crate) mod topology;

//! Memberships that talk to each other, without the layers around them.
#![expect(clippy::duplicate_mod, reason = "the same stories are told with each engine")]

#[path = "behind.rs"]
mod behind_coordinator;
#[path = "behind.rs"]
mod behind_cut;
#[path = "bereft.rs"]
mod bereft_coordinator;
#[path = "bereft.rs"]
mod bereft_cut;
mod chaos;
#[path = "components.rs"]
mod components_coordinator;
#[path = "components.rs"]
mod components_cut;
#[path = "stories.rs"]
mod coordinator;
#[path = "stories.rs"]
mod cut;
mod cuts;
mod deaf;
mod founding;
#[path = "hints.rs"]
mod hints_coordinator;
#[path = "hints.rs"]
mod hints_cut;
mod leases;
mod net;
mod objections;
#[path = "recovery.rs"]
mod recovery_coordinator;
#[path = "recovery.rs"]
mod recovery_cut;
mod succession;
mod wide;
mod withdrawals;

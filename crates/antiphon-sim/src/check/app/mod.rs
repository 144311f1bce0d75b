//! Checkers that see only what an application would see: they could judge what real nodes print.
//!
//! Besides the events of the nodes they read what each application itself did (what it sent, when it asked to
//! join or leave, when it read), when its process began and ended, what it was configured with (the policy,
//! the heartbeat), and whether the cluster was at rest at the end.
//!
//! | file | guarantees |
//! |---|---|
//! | `lifecycle` | what comes before what around an incarnation: R6, R8, R17, resync |
//! | `membership` | node views: G1, G2, G4, G7, G18, seniority, metadata, causes |
//! | `named` | nobody in a group view is a stranger |
//! | `stamps` | G2 over foundings: views are ordered by their stamps |
//! | `overrides` | G38: an operator's word |
//! | `groups` | group views beside node views: G2, G4, G7, G18, causes |
//! | [`account`] | between views and deliveries of a group: G1, G2, G4, G7, G9, G11 to G17, G19, G21 to G23 |
//! | `delivery` | what was sent, and what was delivered of it: G3, G8, G10 |
//! | `order` | order by what was sent when: G19, G20, G33, G34 |
//! | `safe` | G24, G25, G26 |
//! | `receipts` | R17 |
//! | `slow` | members that do not read |
//!
//! What is in [`account`] needs no simulator: it takes a plain [`Account`] of what the members of a group
//! saw, which whoever reads the lines of real nodes can write.

pub mod account;
mod delivery;
mod groups;
mod lifecycle;
mod membership;
mod named;
mod order;
mod overrides;
mod receipts;
mod safe;
mod slow;
mod stamps;

use super::{History, Report};
pub use account::{Account, Delivered, Id, InView, Membership, Notice, judge};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    lifecycle::check(history, report);
    membership::check(history, report);
    named::check(history, report);
    stamps::check(history, report);
    overrides::check(history, report);
    groups::check(history, report);
    for account in account::accounts(history) {
        account::check(&account, report);
    }
    delivery::check(history, report);
    order::check(history, report);
    safe::check(history, report);
    receipts::check(history, report);
    slow::check(history, report);
}

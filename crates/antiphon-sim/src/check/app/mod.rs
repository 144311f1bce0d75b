//! Checkers that see only what an application would see.
//!
//! Besides the events of the nodes they read what each application itself did (what it sent, when it asked to
//! join or leave, when it read), when its process began and ended, its configuration (the policy, the
//! heartbeat), and whether the cluster was at rest at the end.
//!
//! | file | guarantees |
//! |---|---|
//! | `told` | has [`antiphon_judge`] check all that the lines of real nodes tell, too: G1 to G4, G6 to G26, G33, G34, G44 |
//! | `lifecycle` | what comes before what around an incarnation: R6, R8, R17, resync |
//! | `membership` | node views beside what was done to the nodes: G2, G7, metadata, causes |
//! | `named` | no member of a group view is a stranger |
//! | `stamps` | G2 over foundings: views are ordered by their stamps |
//! | `overrides` | G38: an operator's word |
//! | `groups` | group views beside node views: G2, G4, G7, G18, causes |
//! | `receipts` | R17, and G8 for tickets |
//! | `replicas` | replicas and their clients: G28, G30, G45 to G48, G50 |
//! | `calls` | calls and handlers: G29, G49 |
//! | `clients` | clients of members: G51 |
//! | `slow` | members that do not read |
//! | `rest` | G5: at rest nothing changes |

mod calls;
mod clients;
mod groups;
mod lifecycle;
mod membership;
mod named;
mod overrides;
mod receipts;
mod replicas;
mod rest;
mod slow;
mod stamps;
mod told;

use super::{History, Report};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    antiphon_judge::nodes::judge(&told::membership(history), report);
    for account in told::accounts(history) {
        antiphon_judge::group::judge(&account, report);
    }
    lifecycle::check(history, report);
    membership::check(history, report);
    named::check(history, report);
    stamps::check(history, report);
    overrides::check(history, report);
    groups::check(history, report);
    receipts::check(history, report);
    replicas::check(history, report);
    calls::check(history, report);
    clients::check(history, report);
    slow::check(history, report);
    rest::check(history, report);
}

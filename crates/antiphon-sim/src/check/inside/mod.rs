//! Checkers that know more than any application: what happened inside the nodes, on the network, and what the
//! plan rules out.
//!
//! | file | guarantees | what it knows besides what applications saw |
//! |---|---|---|
//! | `chain` | G6, quorum | which members voted for which view |
//! | `votes` | R2 | which members voted, and what proofs of death carried |
//! | `founding` | R4 | which nodes were told of which, which paths worked, which locators were there |
//! | `components` | G41, G5 | which hosts heard each other, and since when |
//! | `rolls` | R12, G18 | which view each node has, which applications were told, members it removed |
//! | `following` | R18 | that processes only start and end and nothing else happens, if the plan says so |
//! | `held` | G24, G33, memory, contract | what a node holds, and what its core promised its driver |
//! | `spread` | R20 | the ways of frames that members hand on |
//! | `paths` | G36, G37, R20 | frames inside of others, votes, paths that worked, stopped processes |
//! | `links` | G32 | that some link worked between any two hosts at any time, if the plan says so |
//! | `cuts` | G35, G5 | which hosts the faults of the plan hit |
//! | `attention` | G37 | which processes were stopped, and for how long |
//! | `leases` | G42, R7 | which processes were stopped, and which nodes have no lease by the plan |

mod attention;
mod chain;
mod components;
mod cuts;
mod dissemination;
mod following;
mod founding;
mod held;
mod leases;
mod links;
mod paths;
mod rolls;
mod votes;

use super::{History, Report};

pub(crate) use chain::decides;

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let trace = history.trace;
    chain::check(history, report);
    votes::check(history, report);
    components::check(history, report);
    rolls::check(history, report);
    following::check(history, report);
    held::check(history, report);
    dissemination::check(history, &trace.hops, report);
    links::check(history, report);
    cuts::check(history, report);
    paths::check(history, report);
    attention::check(trace, report);
    leases::check(trace, report);
}

//! How many files a swarm has open, and whether the system allows them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::Failed;
use antiphon::EngineKind;

/// Of a process without nodes: standard streams, the runtime's own, and some to spare.
const OF_THE_PROCESS: u64 = 64;
/// Of a node alone: its listener, its socket for probes, and connections that come and go.
const OF_A_NODE: u64 = 9;
/// Up to this many members, everyone watches everyone (R9).
const FULL_WATCH: u64 = 16;
/// Lifelines of a member of a larger cluster, each way: to its watchers and to the elder.
const WATCHED: u64 = 9;

/// With the cut engine, up to so many members everyone observes everyone.
const NARROW: u64 = 11;
/// In a larger cluster of that engine, connections of a member each way: with its neighbours, and others for a while.
const NEIGHBOURS: u64 = 32;

/// Files that a process with `here` nodes of `all` may have open at a time. With an engine where all members speak to all, and
/// in a group, a node has two connections with every other: one for each direction.
pub(super) fn needed(here: u64, all: u64, group: bool, engine: EngineKind) -> u64 {
    let others = all.saturating_sub(1);
    let spoken_to = match engine {
        EngineKind::Cut if all > NARROW => others.min(NEIGHBOURS),
        _ => others,
    };
    let watched = if all <= FULL_WATCH { others } else { WATCHED };
    let groups = if group { 2 * others } else { 0 };
    // It has spoken to all that joined, and heard them.
    let elder = 3 * others;
    OF_THE_PROCESS + elder + here * (OF_A_NODE + 2 * spoken_to + 2 * watched + groups)
}

/// Raises this process's limit, which its children inherit, to at least this many. The error says what would help.
pub(super) fn raise(needed: u64, processes: u64) -> Result<(), Failed> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if allows(current, needed) {
        return Ok(());
    }
    let maximum = if allows(maximum, needed) {
        maximum
    } else {
        Some(needed)
    };
    let raised = Rlimit {
        current: Some(needed),
        maximum,
    };
    // Above the hard limit it works only with CAP_SYS_RESOURCE.
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let spread = needed.saturating_mul(processes).div_ceil(limit.max(1)) + 1;
        Failed::run(format!(
            "this takes up to {needed} open files in a process and the system allows {limit}: spread the nodes with \
             --processes {spread}, take fewer of them, or raise the limit (as root `ulimit -Hn {needed}`; for a service \
             LimitNOFILE={needed}); nothing was started"
        ))
    })
}

fn allows(limit: Option<u64>, needed: u64) -> bool {
    limit.is_none_or(|limit| limit >= needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mesh_is_two_connections_a_pair_and_node() {
        let needed = |here, all, group| needed(here, all, group, EngineKind::Coordinator);
        let mesh = needed(100, 100, false);
        assert!((100 * 2 * 99..100 * 2 * 99 + 4000).contains(&mesh), "{mesh}");
        assert_eq!(needed(100, 100, true) - mesh, 100 * 2 * 99);
        assert!(needed(50, 100, false) < mesh / 2 + 200);
    }

    #[test]
    fn neighbours_on_the_rings_take_the_same_in_any_cluster() {
        let of = |all| needed(all, all, false, EngineKind::Cut);
        assert!(of(200) < 2 * of(100) + 100, "{} and {}", of(100), of(200));
        assert!(of(200) < 20_000, "{}", of(200));
        assert_eq!(of(11), needed(11, 11, false, EngineKind::Coordinator));
    }

    #[test]
    fn what_no_system_allows_is_refused_with_what_would_help() {
        let error = raise(u64::MAX / 4, 1).unwrap_err().message;
        assert!(
            error.contains("--processes") && error.contains("LimitNOFILE"),
            "{error}"
        );
        raise(8, 1).unwrap();
    }
}

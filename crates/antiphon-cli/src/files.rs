//! How many files a process may have open: raised as far as the system allows, and compared with what its
//! nodes take.
//!
//! A service manager gives a low soft limit for the sake of programs that use `select`, and a high hard limit
//! for all others. This program uses no `select`: so it raises the soft limit to the hard one when it starts.
//! Children inherit that.

use antiphon::{EngineKind, FILES_OF_A_PROCESS, Lack, files_of_a_node};
use antiphon_agent::hub::MAX_SESSIONS;
use antiphon_core::MAX_GROUP_MEMBERS;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::Failed;
use crate::settings::Settings;

/// Of a process with many nodes beside what the nodes take, some to spare.
const OF_A_SWARM: u64 = 64;
/// At least so many files of an agent are not for programs that connect: its node's, its log's, those of its
/// console, and of probes.
const KEPT: u64 = 64;
/// At least so many programs may connect, however few files there are.
const FEW: usize = 8;

/// Raises the soft limit of this process to the hard one.
pub(crate) fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // Every process may do that. On a system with limits of another kind the process goes on with what it
    // has.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Files that this process may have open; none if there is no limit.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Members that a cluster of these settings has at least, as far as they say, and the files that its node may
/// have open then.
pub(crate) fn needed(settings: &Settings) -> (usize, u64) {
    let expected = usize::from(settings.expect.unwrap_or(1));
    let members = settings.seeds.len().max(expected).max(2);
    let companions = match settings.groups.is_empty() {
        true => 0,
        false => (members - 1).min(MAX_GROUP_MEMBERS),
    };
    let node = files_of_a_node(members, companions, settings.membership);
    (members, FILES_OF_A_PROCESS + node)
}

/// What is wrong with a limit of a process with such a node, and what to do; none if it is enough.
pub(crate) fn shortage(limit: Option<u64>, settings: &Settings) -> Option<(String, String)> {
    let limit = limit?;
    let (members, needed) = needed(settings);
    (limit < needed).then(|| {
        let cause = format!(
            "may open {limit} files, and a node takes up to {needed} in a cluster of {members} members"
        );
        (
            cause,
            format!("{}, to {} or more", Lack::Files.remedy(), 2 * needed),
        )
    })
}

/// Connections of programs that an agent serves at a time, where its node takes `needed` files: all that the
/// limit leaves beside what is kept for the node. Without a file that could neither dial others nor take
/// their connections. It may take twice as many for members that join and leave, and more in a cluster that
/// grows.
pub(crate) fn room_for_programs(limit: Option<u64>, needed: u64) -> usize {
    let Some(limit) = limit else {
        return MAX_SESSIONS;
    };
    let kept = needed.saturating_mul(2).max(limit / 4).max(KEPT);
    let room = usize::try_from(limit.saturating_sub(kept)).unwrap_or(MAX_SESSIONS);
    room.clamp(FEW, MAX_SESSIONS)
}

/// The same of an agent with these settings, under the limit of this process.
pub(crate) fn room_here(settings: &Settings) -> usize {
    room_for_programs(limit(), needed(settings).1)
}

/// That an agent serves fewer programs than it would because of this limit, and what to do; none if it does
/// not.
pub(crate) fn crowding(limit: Option<u64>, needed: u64) -> Option<(String, String)> {
    let room = room_for_programs(limit, needed);
    let limit = limit.filter(|_| room < MAX_SESSIONS)?;
    let cause = format!(
        "may open {limit} files, so at most {room} connections of programs are served at a time, not {MAX_SESSIONS}, and the other files are kept for the node"
    );
    let remedy = format!("{}, to {} or more", Lack::Files.remedy(), enough_for_all(needed));
    Some((cause, remedy))
}

/// The least limit with room for as many programs as an agent serves at all.
fn enough_for_all(needed: u64) -> u64 {
    let all = MAX_SESSIONS as u64;
    // Beside a quarter, and beside what is kept at least.
    (4 * all)
        .div_ceil(3)
        .max(all + needed.saturating_mul(2).max(KEPT))
}

/// Files that a process with `here` nodes of `all` may have open at a time.
pub(crate) fn of_a_swarm(here: u64, all: usize, group: bool, engine: EngineKind) -> u64 {
    let others = all.saturating_sub(1);
    let companions = if group { others } else { 0 };
    // The elder has spoken to all that joined, and heard them.
    OF_A_SWARM + 3 * others as u64 + here * files_of_a_node(all, companions, engine)
}

/// Allows this process and its children at least this many. The error says what would help.
pub(crate) fn allow(needed: u64, processes: u64) -> Result<(), Failed> {
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
    fn a_swarm_in_a_full_mesh_takes_two_connections_a_pair_and_node() {
        let needed = |here, all, group| of_a_swarm(here, all, group, EngineKind::Coordinator);
        let mesh = needed(100, 100, false);
        assert!((100 * 2 * 99..100 * 2 * 99 + 4000).contains(&mesh), "{mesh}");
        assert_eq!(needed(100, 100, true) - mesh, 100 * 2 * 99);
        assert!(needed(50, 100, false) < mesh / 2 + 200);
    }

    #[test]
    fn neighbours_on_the_rings_take_the_same_in_any_cluster() {
        let of = |all: usize| of_a_swarm(all as u64, all, false, EngineKind::Cut);
        assert!(of(200) < 2 * of(100) + 100, "{} and {}", of(100), of(200));
        assert!(of(200) < 20_000, "{}", of(200));
        assert_eq!(of(11), of_a_swarm(11, 11, false, EngineKind::Coordinator));
    }

    #[test]
    fn programs_leave_the_node_its_files() {
        for (limit, needed, room) in [
            (None, 39, MAX_SESSIONS),
            (Some(u64::MAX), 39, MAX_SESSIONS),
            (Some(524_288), 39, MAX_SESSIONS),
            // A quarter is kept.
            (Some(4096), 39, 3072),
            (Some(1024), 39, 768),
            // Or twice what the node takes.
            (Some(1024), 200, 624),
            (Some(128), 37, 54),
            // Or so many.
            (Some(128), 20, 64),
            // There are always some places.
            (Some(80), 39, FEW),
            (Some(0), 39, FEW),
            (Some(1024), u64::MAX, FEW),
        ] {
            assert_eq!(room_for_programs(limit, needed), room, "{limit:?}, {needed}");
        }
    }

    #[test]
    fn a_limit_that_leaves_room_for_fewer_programs_is_told_with_one_that_is_enough() {
        for needed in [20, 39, 1000, 3000] {
            let enough = enough_for_all(needed);
            assert_eq!(crowding(Some(enough), needed), None);
            // It is no more than is needed, but for what is lost in a division.
            assert!(
                room_for_programs(Some(enough - 2), needed) < MAX_SESSIONS,
                "{enough}"
            );
        }
        assert_eq!(crowding(None, 39), None);
        let (cause, remedy) = crowding(Some(1024), 39).unwrap();
        assert!(
            cause.contains("1024 files") && cause.contains("768 connections"),
            "{cause}"
        );
        assert!(
            remedy.contains("LimitNOFILE") && remedy.ends_with("to 10923 or more"),
            "{remedy}"
        );
    }

    #[test]
    fn what_no_system_allows_is_refused_with_what_would_help() {
        let error = allow(u64::MAX / 4, 1).unwrap_err().message;
        assert!(
            error.contains("--processes") && error.contains("LimitNOFILE"),
            "{error}"
        );
        allow(8, 1).unwrap();
    }
}

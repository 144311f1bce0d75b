//! How many files a node may have open, so that its process can be allowed that many.

use antiphon_core::EngineKind;

/// Files of a process beside its nodes: standard streams, the runtime's own, a console and its clients.
pub const FILES_OF_A_PROCESS: u64 = 24;

/// Files of a node alone: its listener, its socket for probes, its timer, and connections that come and go.
const OF_A_NODE: u64 = 9;
/// Up to this many members, every member watches every other (R9).
const FULL_WATCH: u64 = 16;
/// Lifelines of a member of a larger cluster, each way: to its watchers and to the elder.
const WATCHED: u64 = 9;
/// With the cut engine, up to so many members every member observes every other.
const NARROW: u64 = 11;
/// In a larger cluster of that engine, connections of a member each way: with its neighbours, and others for
/// a while.
const NEIGHBOURS: u64 = 32;

/// Files that one node of a cluster of so many members, which shares groups with `companions` others, may
/// have open at a time. With an engine where all members speak to all, and in a group, a node has two
/// connections with every other member: one for each direction. A process has [`FILES_OF_A_PROCESS`] besides;
/// allow it twice the sum, for members that join and leave.
pub fn files_of_a_node(members: usize, companions: usize, engine: EngineKind) -> u64 {
    let others = (members as u64).saturating_sub(1);
    let spoken_to = match engine {
        EngineKind::Cut if others >= NARROW => others.min(NEIGHBOURS),
        _ => others,
    };
    let watched = if others < FULL_WATCH { others } else { WATCHED };
    OF_A_NODE + 2 * spoken_to + 2 * watched + 2 * companions as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mesh_is_two_connections_a_pair_and_the_rings_take_the_same_in_any_cluster() {
        let mesh = |members| files_of_a_node(members, 0, EngineKind::Coordinator);
        assert_eq!(mesh(1), OF_A_NODE);
        assert_eq!(mesh(100) - mesh(99), 2);
        assert_eq!(mesh(10), OF_A_NODE + 36);
        assert_eq!(files_of_a_node(10, 9, EngineKind::Coordinator) - mesh(10), 18);
        let rings = |members| files_of_a_node(members, 0, EngineKind::Cut);
        assert_eq!(rings(100), rings(4000));
        assert_eq!(rings(11), mesh(11));
    }
}

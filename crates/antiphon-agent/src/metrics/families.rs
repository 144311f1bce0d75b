//! Each family: its name with its unit, its type, its labels, and what it tells. `docs/metrics.md` has the
//! same.

use super::page::Family;
use super::page::Kind::{Counter, Gauge};

macro_rules! families {
    ($($family:ident = $name:literal, $kind:expr, [$($label:literal),*], $help:literal;)*) => {
        $(
            pub(super) const $family: Family = Family {
                name: $name,
                kind: $kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        /// All of them, in the order of the page.
        #[cfg(test)]
        pub(super) const FAMILIES: &[&Family] = &[$(&$family),*];
    };
}

families! {
    BUILD = "antiphon_build_info", Gauge, ["version"], "1, with the version of this program.";
    ANSWERS = "antiphon_node_answers", Gauge, [], "Whether the node has answered this question within 2 s; if not, what it measures is left out.";
    UPTIME = "antiphon_node_uptime_seconds", Gauge, [], "Since the node started.";
    PRIMARY = "antiphon_node_primary", Gauge, [], "Whether the node is in a primary view.";
    LEASE = "antiphon_node_lease", Gauge, [], "Whether the node acts as a member of its primary view: a majority answers it.";
    VIEW_NUMBER = "antiphon_node_view_number", Gauge, [], "The number of the node's view; 0 without one.";
    VIEW_MEMBERS = "antiphon_node_view_members", Gauge, [], "Nodes in the node's view; 0 without one.";
    SUSPICIONS = "antiphon_node_suspicions", Gauge, [], "Doubts of one member in another that the node knows of.";
    LACKS = "antiphon_node_lacks", Gauge, [], "Things that the host refuses the node, such as open files.";
    NODE_GROUPS = "antiphon_node_groups", Gauge, [], "Groups that the node is in, those of blocks included.";
    UNREAD = "antiphon_node_group_unread_events", Gauge, [], "Events of all groups that wait for the agent.";
    PENDING = "antiphon_node_group_pending_messages", Gauge, [], "Messages of all groups that the node took and has not delivered.";
    VIEWS = "antiphon_node_views_total", Counter, [], "Views that the node installed.";
    JOINED = "antiphon_node_members_joined_total", Counter, [], "Members that came with these views.";
    DEPARTED = "antiphon_node_members_departed_total", Counter, ["how"], "Members that went with these views: in order (left), or not (removed).";
    INCARNATIONS = "antiphon_node_incarnations_total", Counter, [], "Incarnations of the node; each but the first followed a removal of the node while it lived, or a merge.";
    FRAMES_SENT = "antiphon_transport_frames_sent_total", Counter, [], "Frames to other nodes.";
    FRAMES_RECEIVED = "antiphon_transport_frames_received_total", Counter, [], "Frames of other nodes.";
    BYTES_SENT = "antiphon_transport_sent_bytes_total", Counter, [], "Bytes of frames to other nodes.";
    BYTES_RECEIVED = "antiphon_transport_received_bytes_total", Counter, [], "Bytes of frames of other nodes.";
    FRAMES_DROPPED = "antiphon_transport_frames_dropped_total", Counter, [], "Frames lost in this process: a full queue, a broken connection.";
    FRAMES_INCOMPLETE = "antiphon_transport_frames_incomplete_total", Counter, [], "Frames by UDP that came in part and were given up.";
    CONNECTIONS = "antiphon_transport_connections", Gauge, [], "Open TCP connections with other nodes.";
    CONNECTIONS_REFUSED = "antiphon_transport_connections_refused_total", Counter, [], "Connections to the node's port that were refused at a limit, or closed for what they brought.";
    SEGMENTS_SENT = "antiphon_transport_segments_sent_total", Counter, [], "Datagrams with a part of a frame, sent for the first time.";
    SEGMENTS_REPAIRED = "antiphon_transport_segments_repaired_total", Counter, [], "Datagrams that were sent again because they were missing.";
    SEGMENTS_RECEIVED = "antiphon_transport_segments_received_total", Counter, [], "Parts of frames that came by UDP, each counted once.";
    PROBES_SENT = "antiphon_transport_probes_sent_total", Counter, [], "Heartbeats that also went by UDP.";
    PROBES_RECEIVED = "antiphon_transport_probes_received_total", Counter, [], "Heartbeats that came by UDP.";
    PROBES_DROPPED = "antiphon_transport_probes_dropped_total", Counter, [], "Heartbeats by UDP lost in this process.";
    DATAGRAMS_REFUSED = "antiphon_transport_datagrams_refused_total", Counter, [], "Datagrams that were not of this cluster, or beyond what their sender was granted.";
    OPEN = "antiphon_agent_connections", Gauge, ["carrier"], "Connections of programs now, by what they speak.";
    OPENED = "antiphon_agent_connections_total", Counter, ["carrier"], "Connections of programs that were served.";
    SESSIONS = "antiphon_agent_clients", Gauge, [], "Clients of the node now, at most 8192, fewer where few files may be open; each request of HTTP is one while it is answered.";
    GROUPS = "antiphon_agent_groups", Gauge, [], "Groups of clients that the node is in for its clients, at most 256.";
    OPERATIONS = "antiphon_agent_operations_total", Counter, ["op", "outcome"], "Operations that were replied to: the command's word; done, or the error's code.";
    LOCAL_READS = "antiphon_agent_local_reads_total", Counter, [], "Commands that read this node's copy of a map, and are no operation.";
    MESSAGES = "antiphon_agent_messages_total", Counter, [], "Messages of clients that were taken, a bundle as one.";
    MALFORMED = "antiphon_agent_malformed_commands_total", Counter, [], "Commands that made no sense.";
    SLOW = "antiphon_agent_slow_clients_total", Counter, ["from"], "Clients that did not read and were removed: from a group, or from the node with their connection.";
    REFUSED = "antiphon_agent_connections_refused_total", Counter, ["reason"], "Connections of programs that were not served.";
    FAILED = "antiphon_agent_authentication_failures_total", Counter, ["reason"], "Connections and requests without a token, or with a wrong one, and handshakes without a good certificate.";
    COMMANDS = "antiphon_commands_total", Counter, ["side", "result"], "Commands to peers (asked) and of peers (served), by what came of them; `GET /v1/commands` has them by verb and peer.";
    COMMANDS_QUEUED = "antiphon_commands_queued", Gauge, [], "Commands that wait to be sent to peers.";
    COMMANDS_OLDEST = "antiphon_commands_oldest_seconds", Gauge, [], "How long the oldest of them waits.";
    COMMANDS_DROPPED = "antiphon_commands_dropped_total", Counter, [], "Commands that were refused because a peer's queue was full.";
    RELOADS = "antiphon_agent_reloads_total", Counter, ["outcome"], "Reloads: all was taken (done), or something is as before (kept).";
}

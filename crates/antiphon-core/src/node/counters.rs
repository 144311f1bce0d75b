//! What a node counts of what it passed on, sent and dropped.

/// What a node dropped, and why. Each is harmless by design; a fast rising one deserves a look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames whose header or tag was wrong.
    pub frames_refused: u64,
    /// Authentic frames with records that could not be read: a bug or a peer of a newer version.
    pub frames_malformed: u64,
    /// Records for another incarnation of this process.
    pub records_misaddressed: u64,
    /// Frames by multicast from a node that this one does not speak to, dropped unopened.
    pub multicasts_of_strangers: u64,
    /// Frames that this node passed on, because the direct path from their sender to their target is dead.
    pub frames_passed_on: u64,
    /// Frames that it was asked to pass on and did not: from or for a node in no view of its own, or for
    /// their own sender.
    pub frames_not_passed_on: u64,
    /// Heartbeats that went also as probes, since by the usual way they come late, or may.
    pub probes_sent: u64,
    /// Probes that came of members.
    pub probes_received: u64,
    /// Datagrams that came as probes, and that no member sent to this node as a probe: dropped, most of them
    /// unopened.
    pub probes_refused: u64,
    /// Proofs of death by a witness that were not taken: this cluster has no key.
    pub witnesses_refused: u64,
    /// Channels given up because the peer acknowledged nothing for too long.
    pub links_broken: u64,
    /// Messages that did not fit a frame or whose peer had no address.
    pub messages_dropped: u64,
}

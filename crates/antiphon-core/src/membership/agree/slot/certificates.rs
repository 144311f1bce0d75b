//! Proofs of death in a slot: the last vote of a voter whose process is gone (R2).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::membership::agree::slot::{LastVote, MAX_ROUND, Slot, Step, Value};

impl<A: Ord + Clone + Debug, V: Value<A>> Slot<A, V> {
    /// A voter's process is provably gone. `last` is its last vote in this slot.
    pub fn certify(&mut self, dead: A, last: LastVote<V>) -> Step<A, V> {
        if !self.voters.contains(&dead) || dead == self.me {
            return Step::Wait;
        }
        let last = if planted!(CertificateWithoutLastVote) {
            LastVote::default()
        } else {
            last
        };
        // No member gives such a vote, so no lifeline shows it.
        if last.promised.is_some_and(|promised| promised.round > MAX_ROUND) {
            return Step::Wait;
        }
        if let Some(promised) = last.promised {
            self.highest_round = self.highest_round.max(promised.round);
        }
        // Two lifelines of a voter may end one record apart. The vote that only one of them shows went
        // nowhere, but the later vote is the safer one to use.
        match self.certificates.get(&dead) {
            Some(known) if known.promised >= last.promised => return Step::Wait,
            _ => self.certificates.insert(dead, last),
        };
        self.conclude()
    }

    /// The certificates held: each voter that this node can prove dead, and its last vote.
    pub fn certificates(&self) -> &BTreeMap<A, LastVote<V>> {
        &self.certificates
    }

    /// The voters that this node can prove dead.
    pub fn certified(&self) -> BTreeSet<A> {
        self.certificates.keys().cloned().collect()
    }
}

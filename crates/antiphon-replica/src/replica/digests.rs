//! Comparison of states: at agreed counts of commands each member with the state says its digest.
//!
//! A round begins when a command is applied, so at the same point everywhere, and waits for the members that
//! had the state there and still have it. When all have said theirs, those that differ from more than half of
//! them have diverged; if no digest has more than half, those that differ from the most senior member.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::format::Member;

/// Rounds that are open at once. A member that never says its digest leaves rounds open; the oldest is
/// dropped.
const MAX_ROUNDS: usize = 8;

/// The open rounds, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Rounds(VecDeque<Round>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Round {
    /// Commands applied.
    commands: u64,
    awaited: BTreeSet<Member>,
    said: BTreeMap<Member, Option<u64>>,
}

impl Rounds {
    pub(super) fn begin(&mut self, commands: u64, awaited: BTreeSet<Member>) {
        self.0.push_back(Round {
            commands,
            awaited,
            said: BTreeMap::new(),
        });
        if self.0.len() > MAX_ROUNDS {
            self.0.pop_front();
        }
    }

    /// A member says its digest. What it says first counts.
    pub(super) fn say(&mut self, member: Member, commands: u64, digest: Option<u64>) {
        if let Some(round) = self.0.iter_mut().find(|round| round.commands == commands)
            && round.awaited.remove(&member)
        {
            round.said.insert(member, digest);
        }
    }

    /// This member is not compared any more.
    pub(super) fn remove(&mut self, member: Member) {
        for round in &mut self.0 {
            round.awaited.remove(&member);
            round.said.remove(&member);
        }
    }

    /// Ends a round in which all have said theirs. Gives its count of commands and the members that differ.
    pub(super) fn close(&mut self, seniority: &[Member]) -> Option<(u64, Vec<Member>)> {
        let complete = self.0.iter().position(|round| round.awaited.is_empty())?;
        let round = self.0.remove(complete)?;
        let most_senior = seniority.iter().find_map(|member| round.said.get(member));
        let count = |digest: &Option<u64>| round.said.values().filter(|said| *said == digest).count();
        let majority = round
            .said
            .values()
            .find(|digest| 2 * count(digest) > round.said.len());
        let right = majority.or(most_senior).copied();
        let differs = |(member, digest): (&Member, &Option<u64>)| (Some(*digest) != right).then_some(*member);
        Some((round.commands, round.said.iter().filter_map(differs).collect()))
    }
}

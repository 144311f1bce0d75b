//! What incarnations are called, and what people are told of evidence, causes and times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use antiphon::{Accusation, Cause, Incarnation, NodeView, ViewChange};

/// Incarnations that are remembered beyond the members of the present view. They cover the last hundred
/// views, as does the history that answers `why`.
const MAX_REMEMBERED: usize = 4096;

/// What incarnations are called. Views speak of members that are gone by incarnation alone.
#[derive(Debug, Default)]
pub struct Names {
    names: BTreeMap<Incarnation, String>,
    oldest_first: VecDeque<Incarnation>,
}

impl Names {
    /// Remembers every node that a view names. Its members are forgotten only after views that do not have
    /// them.
    pub fn learn(&mut self, view: &NodeView) {
        let departed = view.departed.iter().map(|departure| &departure.member);
        for member in view.members.iter().chain(departed) {
            self.remember(member.incarnation, &member.name);
        }
        let most = MAX_REMEMBERED + view.members.len();
        if self.oldest_first.len() <= most {
            return;
        }
        let present: BTreeSet<Incarnation> = view.members.iter().map(|member| member.incarnation).collect();
        while self.oldest_first.len() > most
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            match present.contains(&oldest) {
                true => self.oldest_first.push_back(oldest),
                false => drop(self.names.remove(&oldest)),
            }
        }
    }

    /// Remembers the nodes that came or went with a view of the past. The members that stay are in the whole
    /// views, which come later.
    pub fn learn_past(&mut self, view: &ViewChange) {
        for (incarnation, name) in &view.joined {
            self.remember(*incarnation, name);
        }
        for departed in &view.departed {
            self.remember(departed.incarnation, &departed.name);
        }
        while self.oldest_first.len() > MAX_REMEMBERED + view.members
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    fn remember(&mut self, incarnation: Incarnation, name: &str) {
        if self.names.insert(incarnation, name.to_owned()).is_none() {
            self.oldest_first.push_back(incarnation);
        }
    }

    /// The name, or the incarnation's first digits if it was never in a view here.
    pub fn name(&self, incarnation: Incarnation) -> String {
        self.names
            .get(&incarnation)
            .cloned()
            .unwrap_or_else(|| incarnation.short())
    }

    /// An accusation in a sentence.
    pub fn accusation(&self, accusation: &Accusation) -> String {
        accusation.with_names(&|incarnation| self.name(incarnation))
    }

    /// Several, in one line.
    pub fn accusations(&self, accusations: &[Accusation]) -> String {
        let said: Vec<String> = accusations
            .iter()
            .map(|accusation| self.accusation(accusation))
            .collect();
        said.join("; ")
    }

    /// Why a member is gone, in few words.
    pub fn cause(&self, cause: &Cause) -> String {
        cause.with_names(&|incarnation| self.name(incarnation))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use antiphon_core::wire::{Lineage, Member, NodeViewId, ViewId};

    use super::*;

    fn view(number: u32, members: &[u128]) -> NodeView {
        let member = |number: &u128| Member {
            incarnation: Incarnation(*number),
            name: format!("n{number}"),
            addr: ([127, 0, 0, 1], 1).into(),
            further: Vec::new(),
            metadata: BTreeMap::new(),
            weight: 1,
        };
        NodeView {
            lineage: Lineage(1),
            id: NodeViewId::Primary {
                id: ViewId {
                    epoch: 1,
                    counter: number,
                },
            },
            number,
            members: members.iter().map(member).collect(),
            joined: Vec::new(),
            departed: Vec::new(),
            merged: Vec::new(),
            wire_level: 1,
        }
    }

    #[test]
    fn whoever_is_there_keeps_its_name_however_many_come_and_go() {
        let mut names = Names::default();
        for other in 2..10_000 {
            names.learn(&view(other, &[1, other.into()]));
            assert_eq!(names.name(Incarnation(1)), "n1");
        }
        assert_eq!(names.name(Incarnation(9_000)), "n9000");
        assert_eq!(
            names.name(Incarnation(2)),
            Incarnation(2).short(),
            "gone long ago"
        );
        assert_eq!(names.names.len(), MAX_REMEMBERED + 2);
        assert_eq!(names.oldest_first.len(), names.names.len());
    }
}

//! The elder's directory: which groups exist, and which members lead them (R12).
//!
//! Membership of a group is decided inside it. The elder of the node view only says where a group is, and
//! which member may found one that does not exist. It keeps nothing from one node view to the next: at each
//! primary view every member reports its groups, and before all reports have come nothing is granted. A grant
//! names the node view it was made under and is void under any later one.
//!
//! | which member dies | what happens |
//! |---|---|
//! | the elder, before it answers | the next elder rebuilds the directory; the joiner asks it |
//! | the elder, after a grant | the grant is void if the next view came first; otherwise the founder reports the group |
//! | the grantee, before it founds | it departs with a node view, and the grant with it |

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::group::{GroupMessage, GroupReport};
use antiphon_wire::{GroupId, GroupViewId, Incarnation};

/// In views of up to so many members, every member reports, even if it has no groups. In a larger view that
/// would be a thousand reports of nothing. There the elder asks for reports once a member wants to found a
/// group.
pub(crate) const ALL_REPORT: usize = 64;
/// The most names and the most waiting questions the elder keeps.
const MAX_ENTRIES: usize = 16_384;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    group: GroupId,
    view: GroupViewId,
    members: Vec<Incarnation>,
}

/// What the elder knows under the present node view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Directory {
    missing: BTreeSet<Incarnation>,
    present: Vec<Incarnation>,
    entries: BTreeMap<String, Entry>,
    grants: BTreeMap<String, Incarnation>,
    waiting: BTreeSet<(Incarnation, String)>,
    /// Per name, the last `k` under this node view: a group founded again goes on above it, so that no view
    /// id of a name is used twice (R5).
    last_k: BTreeMap<String, u32>,
    /// The same for all names that found no place in there.
    last_other_k: u32,
    /// Whether the members that have not reported were asked to.
    asked: bool,
}

/// Answers to send.
pub(crate) type Answers = Vec<(Incarnation, GroupMessage)>;

impl Directory {
    /// A directory that waits for the report of every member.
    pub(crate) fn new(members: &[Incarnation]) -> Self {
        Self {
            missing: members.iter().copied().collect(),
            present: members.to_vec(),
            ..Self::default()
        }
    }

    pub(crate) fn report(&mut self, from: Incarnation, groups: Vec<GroupReport>) -> Answers {
        for group in groups {
            self.announce(group);
        }
        self.missing.remove(&from);
        let waiting = std::mem::take(&mut self.waiting);
        waiting
            .into_iter()
            .flat_map(|(joiner, name)| self.lookup(joiner, name))
            .collect()
    }

    pub(crate) fn announce(&mut self, report: GroupReport) {
        let GroupReport {
            name,
            group,
            view,
            members,
        } = report;
        let newer = self.entries.get(&name).is_none_or(|entry| entry.view < view);
        if newer && (self.entries.len() < MAX_ENTRIES || self.entries.contains_key(&name)) {
            self.grants.remove(&name);
            self.raise_k(&name, view.k);
            self.entries.insert(name, Entry { group, view, members });
        }
    }

    fn raise_k(&mut self, name: &str, k: u32) {
        let last = if self.last_k.len() < MAX_ENTRIES || self.last_k.contains_key(name) {
            self.last_k.entry(name.to_owned()).or_default()
        } else {
            &mut self.last_other_k
        };
        *last = k.max(*last);
    }

    pub(crate) fn dissolved(&mut self, group: GroupId, name: &str, k: u32) {
        self.raise_k(name, k);
        if self.entries.get(name).is_some_and(|entry| entry.group == group) {
            self.entries.remove(name);
        }
    }

    pub(crate) fn declined(&mut self, from: Incarnation, name: &str) {
        self.strike(name, from);
        if self.grants.get(name) == Some(&from) {
            self.grants.remove(name);
        }
    }

    /// Asks the members that did not report by themselves, once.
    fn ask(&mut self) -> Answers {
        if self.present.len() <= ALL_REPORT || std::mem::replace(&mut self.asked, true) {
            return Vec::new();
        }
        self.missing
            .iter()
            .map(|member| (*member, GroupMessage::ReportWanted))
            .collect()
    }

    /// This member says itself that it is not in the group. No other member's word counts: it may be old.
    fn strike(&mut self, name: &str, stranger: Incarnation) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.members.retain(|member| *member != stranger);
        if entry.members.is_empty() {
            self.entries.remove(name);
        }
    }

    pub(crate) fn lookup(&mut self, joiner: Incarnation, name: String) -> Answers {
        self.strike(&name, joiner);
        let leader = self.entries.get(&name).and_then(|entry| {
            entry
                .members
                .iter()
                .find(|member| self.present.contains(member))
                .copied()
        });
        if let Some(leader) = leader {
            return vec![(joiner, GroupMessage::Located { name, leader })];
        }
        // R12: a group that no member has reported may exist at a member that has not reported yet.
        if !self.missing.is_empty() && !planted!(GrantWithoutReports) {
            if self.waiting.len() < MAX_ENTRIES {
                self.waiting.insert((joiner, name));
            }
            return self.ask();
        }
        if self.grants.len() >= MAX_ENTRIES {
            return Vec::new();
        }
        let grantee = *self.grants.entry(name.clone()).or_insert(joiner);
        vec![(
            joiner,
            if grantee == joiner {
                GroupMessage::Grant {
                    k: self.last_k.get(&name).copied().unwrap_or(self.last_other_k),
                    name,
                }
            } else {
                GroupMessage::Located {
                    name,
                    leader: grantee,
                }
            },
        )]
    }
}

//! What all members with the state agree on besides the machine: a function of the group's stream alone.
//!
//! A joiner gets it with the state. It therefore says the same at every member at the same point; a member's
//! own affairs (its clock, its requests, what it is sending) are elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use antiphon_core::wire::Incarnation;
use serde::{Deserialize, Serialize};

use super::digests::Rounds;
use super::format::{Member, Point, Seen};
use crate::serials::{founded_above, last_before};
use crate::{AgreedTime, At};

/// Views that are remembered. A member that comes back from an earlier one costs a renewal of the numbers.
const MAX_VIEWS: usize = 64;
/// Diverged members that are remembered after they left: a state that they gave may still be under way.
const MAX_DIVERGED: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Agreed {
    /// All up to here is applied.
    pub(super) point: Point,
    /// Where the state was founded.
    pub(super) founding: Point,
    /// [`At::founded`].
    pub(super) founded: u64,
    /// [`At::index`] of what was applied last.
    pub(super) index: u64,
    pub(super) time: AgreedTime,
    /// Commands applied.
    pub(super) commands: u64,
    /// All members, by seniority.
    pub(super) members: Vec<Member>,
    /// Those that have the state.
    pub(super) serving: BTreeSet<Member>,
    /// Of these, those that want to leave.
    pub(super) leaving: BTreeSet<Member>,
    /// Members whose state differed, latest last.
    pub(super) diverged: Vec<Member>,
    /// Of each joiner, what gives it the state.
    pub(super) transfers: BTreeMap<Member, Transfer>,
    pub(super) rounds: Rounds,
    /// Which view this is, and the latest ones before it: which, and how many messages were delivered in it.
    view: u64,
    views: VecDeque<(u64, u64)>,
    /// When this state last rose above what members had seen of others: all that it has is from then or
    /// later.
    risen: AgreedTime,
}

/// The way of the state to one joiner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transfer {
    pub(super) source: Member,
    /// The state is that of this point.
    pub(super) point: Point,
}

impl Agreed {
    /// A state that this member founds here, in this view.
    pub(super) fn found(
        founder: Member,
        members: Vec<Member>,
        point: Point,
        founded: u64,
        view: u64,
    ) -> Self {
        Self {
            view,
            point,
            founding: point,
            founded,
            members,
            serving: BTreeSet::from([founder]),
            ..Self::default()
        }
    }

    /// The place of the next thing that the machine does.
    pub(super) fn step(&mut self) -> At {
        self.index += 1;
        At {
            index: self.index,
            time: self.time,
            founded: self.founded,
        }
    }

    /// The member whose stamps count: the most senior one that has the state.
    pub(super) fn leader(&self) -> Option<Member> {
        self.members
            .iter()
            .copied()
            .find(|member| self.serving.contains(member))
    }

    /// Members that have not got the state and can get it.
    pub(super) fn unsynced(&self) -> impl Iterator<Item = Member> {
        let lacks = |member: &&Member| !self.serving.contains(member) && !self.diverged.contains(member);
        self.members.iter().filter(lacks).copied()
    }

    /// All members whose state has not differed.
    pub(super) fn able(&self) -> Vec<Incarnation> {
        let able = self
            .members
            .iter()
            .filter(|member| !self.diverged.contains(member));
        able.map(|member| (*member).into()).collect()
    }

    /// The members are these from here on.
    pub(super) fn view(&mut self, members: Vec<Member>, gone: &[Member], joined: &[Member]) {
        self.members = members;
        for member in gone.iter().chain(joined) {
            self.serving.remove(member);
            self.leaving.remove(member);
            self.transfers.remove(member);
            self.rounds.remove(*member);
        }
        // It joined anew, with nothing of its former state.
        self.diverged.retain(|member| !joined.contains(member));
    }

    /// This view follows, before its point.
    pub(super) fn next_view(&mut self, view: u64) {
        self.views.push_back((self.view, self.point.messages));
        if self.views.len() > MAX_VIEWS {
            self.views.pop_front();
        }
        self.view = view;
    }

    /// What a member whose state is void has seen of it, of which `serial` is the last. What it saw before
    /// may have lifted the founding, and no number since.
    pub(super) fn seen(&self, serial: u64) -> Seen {
        Seen {
            serial: serial.max(last_before(self.founded)),
            time: self.time,
            view: self.view,
            messages: self.point.messages,
        }
    }

    /// Lifts founding and time above what a member has seen, of which `serial` is the last here. Whether that
    /// was needed: not if its state was this one at an earlier point, as under the policy `majority`; nor if
    /// all that is here is later than what it has seen. Whether it was an earlier point cannot be told where
    /// messages `may_be_undone` (G45): in its last view it may have applied as many, and others.
    pub(super) fn rise(&mut self, seen: Seen, serial: u64, may_be_undone: bool) -> bool {
        let mut views = self
            .views
            .iter()
            .copied()
            .chain([(self.view, self.point.messages)]);
        let earlier =
            !may_be_undone && views.any(|(view, messages)| view == seen.view && seen.messages <= messages);
        let later = founded_above(seen.serial) <= self.founded && seen.time <= self.risen;
        if earlier || later {
            return false;
        }
        self.founded = self.founded.max(founded_above(seen.serial.max(serial)));
        self.time = self.time.max(seen.time);
        self.risen = self.time;
        true
    }

    /// A member says that it has the state. Whether it is right.
    ///
    /// A state of any source is as good as that of the transfer that goes on now: a joiner that had received
    /// all when its source died is not made to begin again. It is wrong if the source's state differed, or if
    /// the state was founded anew since.
    pub(super) fn synced(&mut self, member: Member, source: Member, point: Point) -> bool {
        let right = self.unsynced().any(|lacks| lacks == member)
            && !self.diverged.contains(&source)
            && point >= self.founding;
        if right {
            self.transfers.remove(&member);
            self.serving.insert(member);
        }
        right
    }

    /// This member's state differs from the others'.
    pub(super) fn diverge(&mut self, member: Member) {
        self.serving.remove(&member);
        self.leaving.remove(&member);
        self.rounds.remove(member);
        self.diverged.push(member);
        // Not of members: they would seem to be as able as the others.
        let left = |member: &Member| !self.members.contains(member);
        if self.diverged.len() > MAX_DIVERGED
            && let Some(oldest) = self.diverged.iter().position(left)
        {
            self.diverged.remove(oldest);
        }
    }

    /// Gives each joiner without a source one, the state being that of the present point (R19). Gives what is
    /// new.
    ///
    /// The source is the member with the fewest transfers; among these one that stays, that does not lead,
    /// and that is most senior.
    pub(super) fn assign(&mut self) -> Vec<(Member, Transfer)> {
        let Self {
            transfers, serving, ..
        } = self;
        transfers.retain(|_, transfer| serving.contains(&transfer.source));
        if self.serving.len() + self.transfers.len() >= self.members.len() {
            return Vec::new();
        }
        let waiting: Vec<_> = self
            .unsynced()
            .filter(|member| !self.transfers.contains_key(member))
            .collect();
        let leader = self.leader();
        let mut new = Vec::new();
        for joiner in waiting {
            let busy = |member: &Member| self.transfers.values().filter(|t| t.source == *member).count();
            let serving = self.members.iter().filter(|member| self.serving.contains(member));
            let source = serving.min_by_key(|member| {
                (
                    busy(member),
                    self.leaving.contains(member),
                    leader == Some(**member),
                )
            });
            let Some(source) = source.copied() else { break };
            let transfer = Transfer {
                source,
                point: self.point,
            };
            self.transfers.insert(joiner, transfer);
            new.push((joiner, transfer));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_saw_before_it_was_removed_twice_is_not_forgotten() {
        let founded = |founded| Agreed {
            founded,
            ..Agreed::default()
        };
        let mut first = founded(5);
        let seen = Seen {
            serial: last_before(9),
            ..first.seen(0)
        };
        assert!(first.rise(seen, 0, true));
        assert_eq!(first.founded, 9);
        // It is removed before any number was given.
        let again = first.seen(0);
        let mut second = founded(6);
        second.rise(again, 0, true);
        assert_eq!(second.founded, 9);
    }

    #[test]
    fn members_that_diverged_stay_known_as_such_however_many_there_are() {
        let all: Vec<Member> = (1..=100).map(|n| Incarnation(n).into()).collect();
        let (diverged, well) = all.split_at(2 * MAX_DIVERGED - 30);
        let mut agreed = Agreed {
            members: all.clone(),
            ..Agreed::default()
        };
        for member in diverged {
            agreed.diverge(*member);
        }
        let well: Vec<Incarnation> = well.iter().map(|member| (*member).into()).collect();
        assert_eq!(agreed.able(), well, "what they held goes to others");
        // Of those that left, only so many are kept.
        agreed.view(all[MAX_DIVERGED..].to_vec(), &all[..MAX_DIVERGED], &[]);
        agreed.diverge(all[99]);
        assert_eq!(agreed.able().len(), well.len() - 1);
    }
}

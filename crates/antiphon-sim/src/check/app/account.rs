//! The account of a group: what the applications of its members saw, as plain data, and what must hold
//! between them.
//!
//! ```text
//!  a  ── view 1 {a b c} ─ a1 b1 c1 ── view 2 {a b} ─ a2      a line is a membership: its views, and what
//!  b  ── view 1 {a b c} ─ a1 b1 c1 ── view 2 {a b} ─ a2      was delivered in each; a resync ends it, and
//!  c  ── view 1 {a b c} ─ a1 b1 (killed)                     the next view begins another one
//! ```
//! Whoever has the events of real nodes writes an [`Account`] for each group, and has [`judge`] look at it.
//! It needs nothing else: no trace, no node view, not what was sent. What is judged:
//!
//! - each membership alone: G1 it is in its views, G2 their ids rise, G7 the lists tell the differences, G9
//!   nothing twice, G12 in the view of sending and from a member of it, G17 the notice, G19 a sender's
//!   numbers without gaps;
//! - all that had a view: G4 one id, one list, G21 one order before the flush, G22 nothing later without what
//!   is earlier;
//! - all that delivered a message: G11 in the same view;
//! - all that came into a view: G15 who came along is who came from the same view, G16 nobody that was in
//!   both came from a third;
//! - those that went from one view to the same next one: G14 they delivered the same messages, G23 in
//!   sequences that agree;
//! - those that stay in the last view with nothing under way: G13 they have delivered the same.

mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use antiphon_core::Order;
use antiphon_core::wire::{GroupViewId, Incarnation};

use super::delivery::is_leaving;
use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::{Epoch, GroupKey, History, Life, Stay, StayEnd};
pub(super) use rules::{check, passes_gaps};

/// What the members of one group saw.
#[derive(Debug, Clone)]
pub struct Account {
    /// The group's name.
    pub group: String,
    /// Its order.
    pub order: Order,
    /// All memberships; those of one incarnation in their order.
    pub memberships: Vec<Membership>,
}

/// What one incarnation saw of the group, from a first view until it left, was told to start over, or ended.
#[derive(Debug, Clone)]
pub struct Membership {
    /// How messages call it: the process, and the incarnation.
    pub name: String,
    /// Who.
    pub incarnation: Incarnation,
    /// Its views, and what it delivered in each.
    pub views: Vec<InView>,
    /// Whether it was in the last of them at the end, did not want to leave, and all that was sent had the
    /// time to arrive.
    pub stays: bool,
}

/// The parts of a group view's id, the most significant one first: `57301.2` is `[57301, 2, 0]`.
pub type Id = [u64; 3];

/// A view, and what was delivered in it.
#[derive(Debug, Clone, Default)]
pub struct InView {
    /// Which.
    pub id: Id,
    /// Under the policy `any`, which lineage made it: ids are one within a lineage. Else the same for all.
    pub lineage: u128,
    /// When it was installed; 0 if nobody knows.
    pub at: Micros,
    /// Its members, by group rank.
    pub members: Vec<Incarnation>,
    /// Those that were not in the view before, or that start over.
    pub joined: Vec<Incarnation>,
    /// Those of the view before that are gone, for whatever cause.
    pub departed: Vec<Incarnation>,
    /// The transitional set: who came from the same view as this one.
    pub transitional: Vec<Incarnation>,
    /// What was delivered, in order.
    pub log: Vec<Delivered>,
    /// The transitional notice, if there was one.
    pub notice: Option<Notice>,
}

/// What follows was completed by a flush among some members.
#[derive(Debug, Clone, Default)]
pub struct Notice {
    /// After how many of the view's messages it came.
    pub after: usize,
    /// Among whom.
    pub members: Vec<Incarnation>,
}

/// A message as it was delivered.
#[derive(Debug, Clone, Copy)]
pub struct Delivered {
    /// When; 0 if nobody knows.
    pub at: Micros,
    /// The view named on it.
    pub view: Id,
    /// The sender named on it.
    pub sender: Incarnation,
    /// The sender's number named on it.
    pub seq: u64,
    /// How many of the sender's numbers it takes, up to that one: 1 unless it was sent in pieces.
    pub numbers: u64,
    /// A hash of its bytes. No two messages of a sender are alike.
    pub hash: u64,
}

/// Judges what the members of a group saw.
pub fn judge(account: &Account) -> Report {
    let mut report = Report::default();
    check(account, &mut report);
    report.violations.sort_by_key(|violation| violation.at);
    report
}

impl InView {
    fn key(&self) -> (u128, Id) {
        (self.lineage, self.id)
    }

    /// What was delivered before the flush.
    fn regular(&self) -> &[Delivered] {
        match &self.notice {
            Some(notice) => &self.log[..notice.after.min(self.log.len())],
            None => &self.log,
        }
    }
}

/// The accounts of all groups of a simulation.
pub(super) fn accounts(history: &History<'_>) -> Vec<Account> {
    let mut accounts: BTreeMap<GroupKey, Account> = BTreeMap::new();
    for (life, stay) in history.stays() {
        let Some(first) = stay.epochs.first() else {
            continue;
        };
        let account = accounts.entry(stay.key).or_insert_with(|| Account {
            group: first.view.name.clone(),
            order: first.view.order,
            memberships: Vec::new(),
        });
        account.memberships.push(Membership::of(history, life, stay));
    }
    accounts.into_values().collect()
}

impl Membership {
    fn of(history: &History<'_>, life: &Life, stay: &Stay) -> Self {
        let open = history.at_rest && life.is_open() && stay.end == StayEnd::Open;
        Self {
            name: history.name(life),
            incarnation: life.incarnation,
            views: stay.epochs.iter().map(InView::of).collect(),
            stays: open && !is_leaving(history, life, stay),
        }
    }
}

impl InView {
    fn of(epoch: &Epoch) -> Self {
        let view = &epoch.view;
        let log = epoch.log.iter().zip(&epoch.times).map(|(m, at)| Delivered {
            at: *at,
            view: id_of(m.view),
            sender: m.sender,
            seq: m.seq,
            numbers: m.numbers,
            hash: m.payload,
        });
        let notice = epoch.transitional.as_ref().map(|(after, members)| Notice {
            after: *after,
            members: members.clone(),
        });
        Self {
            id: id_of(view.id),
            lineage: epoch.lineage.0,
            at: epoch.at,
            members: view.members.clone(),
            joined: view.joined.clone(),
            departed: view.left.iter().chain(&view.crashed).copied().collect(),
            transitional: view.transitional.clone(),
            log: log.collect(),
            notice,
        }
    }
}

fn id_of(id: GroupViewId) -> Id {
    [id.node.epoch.into(), id.node.counter.into(), id.k.into()]
}

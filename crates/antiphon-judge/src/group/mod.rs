//! A group: what the applications of its members saw and sent, as plain data, and what must hold between
//! them.
//!
//! ```text
//!  a  ── view 1 {a b c} ─ a1 b1 c1 ── view 2 {a b} ─ a2      a line is a stay: its views, and what was
//!  b  ── view 1 {a b c} ─ a1 b1 c1 ── view 2 {a b} ─ a2      delivered in each; a resync ends it, and the
//!  c  ── view 1 {a b c} ─ a1 b1 (killed)                     next view begins another one
//! ```
//! What is judged:
//!
//! - each stay alone (`views`, `delivery`): G1 it is in its views, G2 their ids rise, G7 the lists tell
//!   the differences, G9 nothing twice, G12 in the view of sending and from a member of it, G17 the notice,
//!   nothing while suspended;
//! - all that had a view: G4 one id, one list, G21 one order before the flush, G22 nothing later without what
//!   is earlier (`order`);
//! - all that delivered a message: G11 in the same view;
//! - all that came into a view: G15 the members that came along are those that came from the same view, G16
//!   no member of both came from a third;
//! - those that went from one view to the same next one: G14 they delivered the same messages, G23 in
//!   sequences that agree;
//! - those that stay in the last view with nothing under way: G13 they have delivered the same;
//! - beside what was sent: G8 nothing else is delivered, G10 each sender delivers its own, G19, G20, G33, G34
//!   the order of sending;
//! - safe messages (`safe`): G24, G25, G26;
//! - what members told one other (`direct`): G44.

mod delivery;
mod direct;
mod order;
mod safe;
#[cfg(test)]
mod tests;
mod views;

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use crate::{Id, Micros, Name, Report};

/// What the members of one group saw and sent. `M` is what members are called: no two alike in one view. `P`
/// is what payloads are called: no two alike of one sender.
#[derive(Debug, Clone)]
pub struct Account<M, P> {
    /// The group's name.
    pub group: String,
    /// Its order.
    pub order: Order,
    /// Whether every component goes on (policy `any`).
    pub any: bool,
    /// Whether its members are clients of nodes (G51). The number of a client's message is given by its node,
    /// which numbers other things as well. The transitional set of a client's first view has the members that
    /// were there before.
    pub clients: bool,
    /// All stays; those of one incarnation in their order.
    pub stays: Vec<Stay<M, P>>,
    /// What was sent to it, that of each sender in the order of sending.
    pub sent: Vec<Sent<M, P>>,
    /// What its members told one other, that of each sender in the order of telling.
    pub tells: Vec<Tell<M, P>>,
}

/// The order of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// None.
    Unordered,
    /// Per sender and scope.
    Scoped,
    /// Per sender.
    Fifo,
    /// One sequence for all.
    Total,
}

/// What one incarnation saw of the group, from a first view until it left, was told to start over, or ended.
#[derive(Debug, Clone)]
pub struct Stay<M, P> {
    /// How findings call it: the process, and the incarnation.
    pub name: String,
    /// How views call it.
    pub member: M,
    /// Of which incarnation it is: another one for each.
    pub life: usize,
    /// Its views, and what it delivered in each.
    pub views: Vec<InView<M, P>>,
    /// Whether it was in the last of them at the end, did not want to leave, and all that was sent had the
    /// time to arrive.
    pub rests: bool,
    /// Whether all that its node took came to its application: not if it crashed or started over.
    pub whole: bool,
}

/// A view, and what was delivered in it.
#[derive(Debug, Clone)]
pub struct InView<M, P> {
    /// Which.
    pub id: Id,
    /// Which lineage made it, where several may be: ids are one within a lineage. Else the same for all. A
    /// reader that cannot know it gives each incarnation one of its own: nothing is compared between stays
    /// then.
    pub lineage: u128,
    /// When it was installed.
    pub at: Micros,
    /// Its members, by group rank.
    pub members: Vec<M>,
    /// Those that were not in the view before, or that start over.
    pub joined: Vec<M>,
    /// Those of the view before that are gone, for whatever cause.
    pub departed: Vec<M>,
    /// The transitional set: the members that came from the same view as this one.
    pub transitional: Vec<M>,
    /// What was delivered, in order.
    pub log: Vec<Delivered<M, P>>,
    /// The transitional notice, if there was one.
    pub notice: Option<Notice<M>>,
    /// Which messages of the log came between the loss of the majority and the first sign that it is back.
    pub suspended: Vec<Range<usize>>,
    /// What it was told by other members in it, in order.
    pub told: Vec<Told<M, P>>,
}

/// What follows was completed by a flush among some members.
#[derive(Debug, Clone)]
pub struct Notice<M> {
    /// After how many of the view's messages it came.
    pub after: usize,
    /// Its members.
    pub members: Vec<M>,
}

/// A message as it was delivered.
#[derive(Debug, Clone, Copy)]
pub struct Delivered<M, P> {
    /// When.
    pub at: Micros,
    /// The view named on it.
    pub view: Id,
    /// The sender named on it.
    pub sender: M,
    /// The sender's number named on it.
    pub seq: u64,
    /// How many of the sender's numbers it takes, up to that one: 1 unless it was sent in pieces.
    pub numbers: u64,
    /// What it says.
    pub payload: P,
    /// Whether it was said to be safe.
    pub safe: bool,
    /// The scope named on it.
    pub scope: Option<u32>,
}

/// A message as it was sent.
#[derive(Debug, Clone, Copy)]
pub struct Sent<M, P> {
    /// Its sender.
    pub sender: M,
    /// What it says.
    pub payload: P,
    /// Whether it was to be safe.
    pub safe: bool,
    /// Its scope, in a scoped group.
    pub scope: Option<u32>,
    /// Whether it is an object: messages pass it.
    pub object: bool,
    /// When the group took it; none if nobody knows.
    pub at: Option<Micros>,
    /// What its sender had seen by then, or some of that; none if it was in no view.
    pub seen: Option<SeenBefore>,
    /// Whether its sender must have delivered it by now: it was taken, its sender is a member still, with
    /// nothing under way, or left in order, and was not told what else became of it.
    pub owed: bool,
}

/// A direct message as its sender told it.
#[derive(Debug, Clone)]
pub struct Tell<M, P> {
    /// Its sender.
    pub sender: M,
    /// Its receiver.
    pub to: M,
    /// What it says.
    pub payload: P,
    /// When the group took it.
    pub at: Micros,
    /// In which of the account's stays.
    pub stay: usize,
    /// In which of its views.
    pub view: usize,
    /// The receipts for it, and when they came.
    pub fates: Vec<(Micros, Fate)>,
    /// Whether its sender must have a receipt by now: it is a member still, with nothing under way.
    pub owed: bool,
}

/// What a receipt says of a direct message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its receiver took it.
    Delivered,
    /// It did not.
    NotDelivered,
    /// Nobody knows.
    Unknown,
}

/// A direct message as it was delivered.
#[derive(Debug, Clone, Copy)]
pub struct Told<M, P> {
    /// When.
    pub at: Micros,
    /// After how many others in this stay.
    pub place: usize,
    /// The view named on it.
    pub view: Id,
    /// The sender named on it.
    pub sender: M,
    /// The number named on it.
    pub seq: u64,
    /// What it says.
    pub payload: P,
}

/// What a sender had seen when it sent: so many messages of one view.
#[derive(Debug, Clone, Copy)]
pub struct SeenBefore {
    /// In which of the account's stays.
    pub stay: usize,
    /// In which of its views.
    pub view: usize,
    /// How many messages it had delivered in that.
    pub messages: usize,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "unordered" => Self::Unordered,
            "scoped" => Self::Scoped,
            "fifo" => Self::Fifo,
            "total" => Self::Total,
            _ => return Err(format!("expected unordered, scoped, fifo or total, not {name:?}")),
        })
    }
}

impl Order {
    /// Whether messages of one sender may come in another order than that of sending.
    fn passes_gaps(self) -> bool {
        matches!(self, Self::Unordered | Self::Scoped)
    }
}

impl<M: Name, P: Name> InView<M, P> {
    fn key(&self) -> (u128, Id) {
        (self.lineage, self.id)
    }

    /// What was delivered before the flush.
    fn regular(&self) -> &[Delivered<M, P>] {
        match &self.notice {
            Some(notice) => &self.log[..notice.after.min(self.log.len())],
            None => &self.log,
        }
    }
}

impl<M: Name, P: Name> Delivered<M, P> {
    /// Of one sender no two messages of a view have one number.
    fn number(&self) -> (M, u64) {
        (self.sender, self.seq)
    }

    fn shown(&self) -> String {
        format!("{} ({}#{})", self.payload, self.sender, self.seq)
    }
}

/// One member's time in one view.
#[derive(Clone, Copy)]
struct Witness<'a, M, P> {
    who: &'a Stay<M, P>,
    view: &'a InView<M, P>,
    /// The view that it went on to, if it did: then it has delivered all that it ever will in this one.
    next: Option<&'a InView<M, P>>,
}

/// Judges what the members of a group saw.
pub fn judge<M: Name, P: Name>(account: &Account<M, P>, report: &mut Report) {
    let mut views: BTreeMap<(u128, Id), Vec<Witness<'_, M, P>>> = BTreeMap::new();
    for who in &account.stays {
        for (index, view) in who.views.iter().enumerate() {
            let next = who.views.get(index + 1);
            views
                .entry(view.key())
                .or_default()
                .push(Witness { who, view, next });
        }
    }
    let views: Vec<_> = views.into_values().collect();
    views::check(account, &views, report);
    delivery::check(account, &views, report);
    order::check(account, &views, report);
    safe::check(account, &views, report);
    direct::check(account, report);
}

fn named<M, P>(group: &str, view: &InView<M, P>) -> String {
    format!("view {} of {group}", view.id)
}

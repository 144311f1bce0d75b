//! The direct messages between one member and each other one.

use std::collections::BTreeMap;

use antiphon_wire::Incarnation;
use antiphon_wire::group::{Decision, TellsHeard};

use crate::group::direct::incoming::Incoming;
use crate::group::direct::limits::{MAX_NUMBER, TELL_CREDIT_BYTES};
use crate::group::direct::outgoing::Outgoing;
use crate::group::direct::outgoing::Receipts;
use crate::group::log::BLOCK_OVERHEAD;
use crate::{Parting, Time};

/// All pairs of a member with the others of its group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Direct {
    pub(super) outgoing: BTreeMap<Incarnation, Outgoing>,
    pub(super) incoming: BTreeMap<Incarnation, Incoming>,
}

impl Direct {
    /// For a flush report: how much this member has taken of each member of the view.
    pub(crate) fn heard(&self, members: &[Incarnation]) -> Vec<(u16, u64)> {
        let heard = members.iter().enumerate().filter_map(|(rank, member)| {
            let next = self.incoming.get(member)?.next();
            (next > 1).then_some((rank as u16, next))
        });
        heard.collect()
    }

    /// Whether everything that was accepted was taken by its receiver.
    pub(crate) fn all_heard(&self) -> bool {
        self.outgoing.values().all(Outgoing::is_heard)
    }

    /// What is kept for others and of others.
    pub(crate) fn bytes(&self) -> usize {
        let own = self.outgoing.values().map(Outgoing::bytes);
        let ahead = self.incoming.values().map(Incoming::ahead_bytes);
        own.chain(ahead).sum()
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let own = self.outgoing.values().filter_map(Outgoing::next_timeout);
        let others = self.incoming.values().filter_map(Incoming::next_timeout);
        own.chain(others).min()
    }

    /// A view ends. Pairs with members that stay go on; pairs with others are over. Returns what becomes of
    /// the messages to those others.
    pub(crate) fn install(
        &mut self,
        decision: &Decision,
        members: &[Incarnation],
        me: Incarnation,
    ) -> Vec<(Incarnation, Receipts)> {
        let joined = |member: &Incarnation| decision.joined.iter().any(|j| j.incarnation == *member);
        let stays = |member: &Incarnation| decision.members.contains(member) && !joined(member);
        let rank = |who: Incarnation| members.iter().position(|member| *member == who);
        // What a receiver took, if it has reported and leaves. If its list does not name this sender, it took
        // nothing.
        let taken = |receiver: Incarnation| {
            let (receiver, me) = (rank(receiver)?, rank(me)?);
            let of_receiver = |told: &&TellsHeard| usize::from(told.member) == receiver;
            let told = decision.told.iter().find(of_receiver)?;
            let mut heard = told.heard.iter();
            let mine = heard.find(|(sender, _)| usize::from(*sender) == me);
            Some(mine.map_or(1, |(_, next)| *next))
        };
        let mut receipts = Vec::new();
        let gone: Vec<_> = self.outgoing.keys().copied().filter(|to| !stays(to)).collect();
        for to in gone {
            let Some(pair) = self.outgoing.remove(&to) else {
                continue;
            };
            let ended = pair.end(taken(to), parting(decision, to));
            receipts.extend(ended.into_iter().map(|receipt| (to, receipt)));
        }
        self.incoming.retain(|from, _| stays(from));
        if planted!(ForgetTellNumbers) {
            self.incoming.clear();
        }
        self.outgoing.values_mut().for_each(Outgoing::begin_view);
        self.incoming.values_mut().for_each(Incoming::begin_view);
        receipts
    }

    /// The membership is over.
    pub(crate) fn end(&mut self) -> Vec<(Incarnation, Receipts)> {
        self.incoming.clear();
        let pairs = std::mem::take(&mut self.outgoing).into_iter();
        let ended = |(to, pair): (Incarnation, Outgoing)| {
            let receipts = pair.end(None, Parting::Ended).into_iter();
            receipts.map(move |receipt| (to, receipt))
        };
        pairs.flat_map(ended).collect()
    }
}

/// Why a member of the view that ends is not in the next one.
pub(crate) fn parting(decision: &Decision, member: Incarnation) -> Parting {
    let cause = decision.causes.iter().find(|cause| cause.incarnation == member);
    match cause {
        Some(cause) => Parting::Removed(cause.cause.clone()),
        None if decision.left.contains(&member) => Parting::Left,
        None => Parting::Crashed,
    }
}

/// Whether what a report or a decision says about direct messages can be of a view with so many members.
pub(crate) fn is_possible(heard: &[(u16, u64)], members: usize) -> bool {
    let ascending = heard.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let within = |(rank, next): &(u16, u64)| usize::from(*rank) < members && *next < MAX_NUMBER;
    ascending && heard.iter().all(within)
}

/// The most that the pairs of a member with so many others may keep at it.
pub(crate) fn bound(others: usize) -> usize {
    2 * others * (TELL_CREDIT_BYTES + BLOCK_OVERHEAD)
}

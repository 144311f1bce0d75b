//! What applications saw, as [`antiphon_judge`] reads it.

use std::collections::BTreeMap;
use std::fmt;

use antiphon_core::wire::{GroupViewId, Incarnation, NodeViewId, ViewId, Wire as _};
use antiphon_core::{Order, TellOutcome};
use antiphon_judge::group::{self, Account, Delivered, Fate, InView, Notice, SeenBefore, Sent, Tell, Told};
use antiphon_judge::nodes::{self, Membership};
use antiphon_judge::{Id, Micros};

use crate::check::history::{End, Epoch, GroupKey, History, Life, Stay, StayEnd};
use crate::trace::{Ending, ProcessId, hash};

/// A member, by the beginning of its incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who(Incarnation);

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.short())
    }
}

fn all(members: &[Incarnation]) -> Vec<Who> {
    members.iter().copied().map(Who).collect()
}

/// What all nodes saw of the membership.
pub(super) fn membership(history: &History<'_>) -> Membership<Who, NodeViewId> {
    let lives = history.lives.iter().map(|life| nodes::Life {
        name: history.name(life),
        member: Who(life.incarnation),
        views: life.views.iter().map(|(at, view)| node_view(*at, view)).collect(),
        rests: history.at_rest && life.is_open(),
        frozen: Vec::new(),
    });
    Membership {
        lives: lives.collect(),
        belief: Micros::MAX,
    }
}

fn node_view(at: Micros, view: &antiphon_core::wire::NodeView) -> nodes::NodeView<Who, NodeViewId> {
    let ViewId { epoch, counter } = view.primary_id();
    let place = |counter: u32| Id([epoch.into(), counter.into(), 0]);
    let mut bytes = Vec::new();
    view.encode(&mut bytes);
    nodes::NodeView {
        id: view.id,
        lineage: view.lineage.0,
        place: place(counter),
        follows: Some(place(counter.saturating_sub(1))),
        primary: view.is_primary(),
        // Whether an operator had it do that is G38's to check, and whether all members of a component
        // wanted it G41's.
        crosses: view.overrides().is_some() || view.separates().is_some(),
        members: view
            .members
            .iter()
            .map(|member| Who(member.incarnation))
            .collect(),
        joined: all(&view.joined),
        departed: view
            .departed
            .iter()
            .map(|departure| Who(departure.member.incarnation))
            .collect(),
        rest: hash(&bytes, 0),
        at,
        // Beliefs are bounded by leases: G42.
        until: None,
    }
}

/// What the members of each group saw and sent.
pub(super) fn accounts(history: &History<'_>) -> Vec<Account<Who, u64>> {
    let mut accounts: BTreeMap<GroupKey, Account<Who, u64>> = BTreeMap::new();
    let receipts = receipts(history);
    let mut fates = fates(history);
    for (number, life) in history.lives.iter().enumerate() {
        // Where each stay stands in its account.
        let mut places: Vec<usize> = Vec::new();
        for stay in &life.stays {
            let Some(first) = stay.epochs.first() else {
                places.push(0);
                continue;
            };
            let account = accounts.entry(stay.key).or_insert_with(|| Account {
                group: first.view.name.clone(),
                order: order(first.view.order),
                any: history.trace.any,
                clients: false,
                stays: Vec::new(),
                sent: Vec::new(),
                tells: Vec::new(),
            });
            places.push(account.stays.len());
            account.stays.push(group::Stay {
                name: history.name(life),
                member: Who(life.incarnation),
                life: number,
                views: views(life, stay),
                rests: rests(history, life, stay),
                whole: is_whole(life, stay),
            });
        }
        for (group, sends) in &life.sends {
            for send in sends {
                let stay = &life.stays[send.stay];
                let Some(account) = accounts.get_mut(&stay.key) else {
                    continue;
                };
                let told = receipts.get(&(life.process, *group, send.ticket));
                account.sent.push(Sent {
                    sender: Who(life.incarnation),
                    payload: send.payload,
                    safe: send.safe,
                    scope: send.scope,
                    object: send.object,
                    at: Some(send.at),
                    seen: Some(SeenBefore {
                        stay: places[send.stay],
                        view: send.epoch,
                        messages: send.after,
                    }),
                    // What waited for the core when the primary was lost is not sent.
                    owed: rests(history, life, stay) && told.is_none_or(|told| *told < send.at),
                });
            }
        }
        for tell in &life.tells {
            let stay = &life.stays[tell.stay];
            let Some(account) = accounts.get_mut(&stay.key) else {
                continue;
            };
            let key = (life.process, tell.group, tell.to, tell.ticket, tell.at);
            account.tells.push(Tell {
                sender: Who(life.incarnation),
                to: Who(tell.to),
                payload: tell.payload,
                at: tell.at,
                stay: places[tell.stay],
                view: tell.epoch,
                fates: fates.remove(&key).unwrap_or_default(),
                owed: rests(history, life, stay),
            });
        }
    }
    accounts.into_values().collect()
}

/// Whether all that its node took came to its application: it is a member still, or left in order, and could
/// have delivered. A process that was killed may have joined again, and its application had heard of no view
/// then.
fn is_whole(life: &Life, stay: &Stay) -> bool {
    let killed = matches!(life.end, End::Process(_, Ending::Killed | Ending::PowerLost));
    match stay.end {
        StayEnd::Open => life.is_open() && life.lost_belief.is_none(),
        StayEnd::Left => !stay.held_back && !killed,
        StayEnd::Resync => false,
    }
}

/// A direct message: the sender's process, the group, the receiver, the ticket, the time it was told.
type TellKey = (ProcessId, usize, Incarnation, u64, Micros);

/// The receipts for each direct message. Tickets begin again when a group is joined again: the last one
/// given before the receipt is meant.
fn fates(history: &History<'_>) -> BTreeMap<TellKey, Vec<(Micros, Fate)>> {
    let mut told: BTreeMap<(ProcessId, usize, Incarnation, u64), Vec<Micros>> = BTreeMap::new();
    for life in &history.lives {
        for tell in &life.tells {
            let key = (life.process, tell.group, tell.to, tell.ticket);
            told.entry(key).or_default().push(tell.at);
        }
    }
    let mut fates: BTreeMap<TellKey, Vec<(Micros, Fate)>> = BTreeMap::new();
    for (process, facts) in &history.processes {
        for (at, group, to, ticket, outcome) in &facts.tell_receipts {
            let times = told.get(&(*process, *group, *to, *ticket));
            let Some(sent) = times.and_then(|times| times.iter().rfind(|sent| *sent <= at)) else {
                continue;
            };
            let fate = match outcome {
                TellOutcome::Delivered => Fate::Delivered,
                TellOutcome::NotDelivered(_) => Fate::NotDelivered,
                TellOutcome::Unknown(_) => Fate::Unknown,
            };
            let key = (*process, *group, *to, *ticket, *sent);
            fates.entry(key).or_default().push((*at, fate));
        }
    }
    fates
}

fn views(life: &Life, stay: &Stay) -> Vec<InView<Who, u64>> {
    let mut views: Vec<_> = stay.epochs.iter().map(|epoch| in_view(life, epoch)).collect();
    let all = views.iter_mut().flat_map(|view| &mut view.told);
    all.enumerate().for_each(|(place, told)| told.place = place);
    views
}

/// When the last receipt for each ticket came: tickets may begin again.
fn receipts(history: &History<'_>) -> BTreeMap<(ProcessId, usize, u64), Micros> {
    let all = history.processes.iter().flat_map(|(process, facts)| {
        let receipts = facts.receipts.iter();
        receipts.map(|(at, group, ticket, _)| ((*process, *group, *ticket), *at))
    });
    all.collect()
}

fn in_view(life: &Life, epoch: &Epoch) -> InView<Who, u64> {
    let view = &epoch.view;
    let log = epoch.log.iter().zip(&epoch.times).map(|(m, at)| Delivered {
        at: *at,
        view: id_of(m.view),
        sender: Who(m.sender),
        seq: m.seq,
        numbers: m.numbers,
        payload: m.payload,
        safe: m.safe,
        scope: m.scope,
    });
    let told = epoch.told.iter().map(|(at, m)| Told {
        at: *at,
        place: 0,
        view: id_of(m.view),
        sender: Who(m.sender),
        seq: m.seq,
        payload: m.payload,
    });
    let notice = epoch.transitional.as_ref().map(|(after, members)| Notice {
        after: *after,
        members: all(members),
    });
    let suspended = epoch.suspended.map(|since| {
        let back = super::lifecycle::returned_to_primary(life, since);
        let until = back.map_or(epoch.times.len(), |back| {
            epoch.times.partition_point(|at| *at < back)
        });
        epoch.times.partition_point(|at| *at <= since)..until
    });
    InView {
        id: id_of(view.id),
        lineage: epoch.lineage.0,
        at: epoch.at,
        members: all(&view.members),
        joined: all(&view.joined),
        departed: view.left.iter().chain(&view.crashed).copied().map(Who).collect(),
        transitional: all(&view.transitional),
        log: log.collect(),
        notice,
        suspended: suspended.into_iter().collect(),
        told: told.collect(),
    }
}

fn id_of(id: GroupViewId) -> Id {
    Id([id.node.epoch.into(), id.node.counter.into(), id.k.into()])
}

fn order(order: Order) -> antiphon_judge::Order {
    match order {
        Order::Unordered => antiphon_judge::Order::Unordered,
        Order::Scoped => antiphon_judge::Order::Scoped,
        Order::Fifo => antiphon_judge::Order::Fifo,
        // `Order` may grow: nothing is promised beyond one sequence for all.
        _ => antiphon_judge::Order::Total,
    }
}

/// Whether it is a member at the end, with nothing under way, and was not asked to leave the cluster or the
/// group.
fn rests(history: &History<'_>, life: &Life, stay: &Stay) -> bool {
    let Some(facts) = history.processes.get(&life.process) else {
        return false;
    };
    let since = stay.epochs.first().map_or(0, |epoch| epoch.at);
    let mut asked = facts.asked_to_leave_group.iter();
    let leaves =
        facts.asked_to_leave.is_some() || asked.any(|(at, group)| *group == stay.group && *at >= since);
    history.at_rest && life.is_open() && stay.end == StayEnd::Open && !leaves
}

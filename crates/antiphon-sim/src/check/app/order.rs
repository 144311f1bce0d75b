//! Order by what was sent when: G19 per sender, G20 cause before effect, G33 gaps that are passed, G34 per
//! scope.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::Order;
use antiphon_core::wire::Incarnation;

use super::account::passes_gaps;
use crate::check::Report;
use crate::check::history::{Epoch, History, Life, Stay, ViewKey};

/// One incarnation's time in one view of a group.
type Witness<'a> = (&'a Life, &'a Stay, &'a Epoch);

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let mut views: BTreeMap<ViewKey, Vec<Witness<'_>>> = BTreeMap::new();
    for (life, stay) in history.stays() {
        as_sent(history, life, stay, report);
        for epoch in &stay.epochs {
            views.entry(epoch.key()).or_default().push((life, stay, epoch));
        }
    }
    for members in views.values() {
        match members[0].2.view.order {
            Order::Total => causal(history, members, report),
            Order::Scoped => {
                per_scope(history, members, report);
                members.iter().for_each(|(_, _, epoch)| past_gaps(epoch, report));
            }
            Order::Unordered => members.iter().for_each(|(_, _, epoch)| past_gaps(epoch, report)),
            _ => {}
        }
    }
}

/// G34: of what a sender sent in a view with one scope, each member delivers a beginning, in that order.
fn per_scope(history: &History<'_>, members: &[Witness<'_>], report: &mut Report) {
    // The order of sending, by what each sender itself was asked.
    let mut sent: BTreeMap<(Incarnation, u32), Vec<u64>> = BTreeMap::new();
    let group = members[0].1.group;
    let senders: BTreeSet<Incarnation> = members
        .iter()
        .flat_map(|(_, _, epoch)| epoch.log.iter().map(|m| m.sender))
        .collect();
    for sender in senders {
        let sends = history.life(sender).and_then(|life| life.sends.get(&group));
        for send in sends.into_iter().flatten() {
            sent.entry((sender, send.scope.unwrap_or(0)))
                .or_default()
                .push(send.payload);
        }
    }
    // What anyone delivered in this view: what was sent before it or is sent after it has no place here.
    let anyone: BTreeSet<u64> = members
        .iter()
        .flat_map(|(_, _, epoch)| epoch.log.iter().map(|m| m.payload))
        .collect();
    for sends in sent.values_mut() {
        sends.retain(|payload| anyone.contains(payload));
    }
    for (life, _, epoch) in members {
        let mut taken: BTreeMap<(Incarnation, u32), usize> = BTreeMap::new();
        for (m, at) in epoch.log.iter().zip(&epoch.times) {
            let scope = (m.sender, m.scope.unwrap_or(0));
            let place = taken.entry(scope).or_default();
            let expected = sent.get(&scope).and_then(|sends| sends.get(*place));
            *place += 1;
            report.check("G34", *at, expected == Some(&m.payload), || {
                format!(
                    "{} delivered {}#{} as number {place} of scope {} in {} of {}, and it is not that",
                    history.name(life),
                    m.sender.short(),
                    m.seq,
                    scope.1,
                    epoch.view.id,
                    epoch.view.name
                )
            });
        }
    }
}

/// G33: a delivery that passes a gap. What breaks it is on the record; here it is counted how often it could
/// have been broken.
fn past_gaps(epoch: &Epoch, report: &mut Report) {
    let mut highest: BTreeMap<Incarnation, u64> = BTreeMap::new();
    for (m, at) in epoch.log.iter().zip(&epoch.times) {
        let before = highest.get(&m.sender).copied();
        if before.is_some_and(|before| m.seq > before + m.numbers) {
            report.check("G33", *at, true, String::new);
        }
        highest.insert(m.sender, before.unwrap_or(0).max(m.seq));
    }
}

/// G19: a sender's messages come in the order in which it sent them, and so do its objects.
fn as_sent(history: &History<'_>, life: &Life, stay: &Stay, report: &mut Report) {
    let mut places: BTreeMap<(Incarnation, bool), usize> = BTreeMap::new();
    for epoch in stay.epochs.iter().filter(|epoch| !passes_gaps(epoch.view.order)) {
        for (m, at) in epoch.log.iter().zip(&epoch.times) {
            let Some((place, object)) = history.place(m.sender, stay.group, m.payload) else {
                continue;
            };
            let earlier = places.insert((m.sender, object), place);
            report.check("G19", *at, earlier.is_none_or(|earlier| earlier < place), || {
                format!(
                    "{} delivered {}#{}, which was sent as number {place}, after number {earlier:?}",
                    history.name(life),
                    m.sender.short(),
                    m.seq
                )
            });
        }
    }
}

/// G20: what a sender had delivered before it sent comes before what it sent.
fn causal(history: &History<'_>, members: &[(&Life, &Stay, &Epoch)], report: &mut Report) {
    // What each message of this view came after, at its sender.
    let mut causes: BTreeMap<(Incarnation, u64), (usize, &Epoch)> = BTreeMap::new();
    for (life, stay, epoch) in members {
        let Some(sends) = life.sends.get(&stay.group) else {
            continue;
        };
        let stay_index = life.stays.iter().position(|other| std::ptr::eq(other, *stay));
        let epoch_index = stay.epochs.iter().position(|other| std::ptr::eq(other, *epoch));
        for send in sends {
            if Some(send.stay) == stay_index && Some(send.epoch) == epoch_index {
                causes.insert((life.incarnation, send.payload), (send.after, epoch));
            }
        }
    }
    for (life, _, epoch) in members {
        let mut delivered: BTreeSet<(Incarnation, u64)> = BTreeSet::new();
        let all: BTreeSet<(Incarnation, u64)> = epoch.log.iter().map(|m| (m.sender, m.seq)).collect();
        let mut checked: BTreeMap<Incarnation, usize> = BTreeMap::new();
        for (index, m) in epoch.log.iter().enumerate() {
            if let Some((after, theirs)) = causes.get(&(m.sender, m.payload)) {
                // A sender's prefix only grows: look at what was added since its last message.
                let from = checked.insert(m.sender, *after).unwrap_or(0).min(*after);
                let late = theirs.log[from..*after].iter().find(|cause| {
                    all.contains(&(cause.sender, cause.seq))
                        && !delivered.contains(&(cause.sender, cause.seq))
                });
                report.check("G20", epoch.times[index], late.is_none(), || {
                    format!(
                        "{} delivered {}#{} in {} before {late:?}, which its sender had delivered first",
                        history.name(life),
                        m.sender.short(),
                        m.seq,
                        epoch.view.id
                    )
                });
            }
            delivered.insert((m.sender, m.seq));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{Story, incarnation};
    use crate::trace::{Inside, Seen};

    #[test]
    fn an_unordered_group_may_deliver_in_any_order_and_must_deliver_once_and_all() {
        let story = || {
            let mut story = Story::of(3, Order::Unordered);
            (1..=3).for_each(|number| story.send(1, number));
            story
        };
        let deliver = |story: &mut Story, to, numbers: &[u64]| {
            numbers.iter().for_each(|number| story.deliver(to, 1, *number, 1));
        };
        let next_view = |story: &mut Story| {
            story.kill(2);
            story.node_view(&[0, 1], &[0, 1, 2], 2, &[0, 1]);
            story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0, 1]);
        };
        let mut good = story();
        deliver(&mut good, 0, &[1, 3, 2]);
        deliver(&mut good, 1, &[1, 2, 3]);
        next_view(&mut good);
        good.is_accepted();

        let mut lost = story();
        deliver(&mut lost, 0, &[1, 3]);
        deliver(&mut lost, 1, &[1, 2, 3]);
        next_view(&mut lost);
        lost.is_rejected_for("G14");

        let mut twice = story();
        deliver(&mut twice, 0, &[1, 3, 2, 3]);
        twice.is_rejected_for("G9");

        let mut kept = story();
        let (group, sender, seq) = (0, incarnation(1), 3);
        kept.add(0, Seen::Inside(Inside::Withheld { group, sender, seq }));
        kept.is_rejected_for("G33");
    }

    #[test]
    fn messages_that_were_numbered_in_another_order_than_they_were_sent_are_rejected() {
        let mut story = Story::of(2, Order::Fifo);
        (1..=2).for_each(|number| story.send(0, number));
        story.deliver_as(1, 0, 2, 1, 1);
        story.deliver_as(1, 0, 1, 2, 1);
        story.is_rejected_for("G19");
    }

    #[test]
    fn a_message_that_comes_again_under_another_number_is_rejected() {
        let mut story = Story::of(2, Order::Fifo);
        story.send(0, 1);
        story.deliver_as(1, 0, 1, 1, 1);
        story.deliver_as(1, 0, 1, 2, 1);
        story.is_rejected_for("G9");
    }

    #[test]
    fn a_scoped_group_may_mix_scopes_and_must_keep_the_order_in_each() {
        let story = || {
            let mut story = Story::of(2, Order::Scoped);
            for number in 1..=4 {
                story.scope = Some(number as u32 % 2);
                story.send(1, number);
            }
            story
        };
        let deliver = |story: &mut Story, to, numbers: &[u64]| {
            for number in numbers {
                story.scope = Some(*number as u32 % 2);
                story.deliver(to, 1, *number, 1);
            }
        };
        let mut good = story();
        deliver(&mut good, 0, &[2, 4, 1, 3]);
        deliver(&mut good, 1, &[1, 2, 3, 4]);
        good.is_accepted();

        let mut swapped = story();
        deliver(&mut swapped, 0, &[1, 4, 2, 3]);
        swapped.is_rejected_for("G34");

        let mut holed = story();
        deliver(&mut holed, 0, &[3]);
        deliver(&mut holed, 1, &[1, 2, 3, 4]);
        holed.is_rejected_for("G34");
    }
}

//! What must be true of group views and messages.

use super::*;

pub(super) fn judge(trace: &Trace, lives: &[Life<'_>], order: &str, rules: &Rules, wrong: &mut Vec<String>) {
    let mut said: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for run in &trace.runs {
        said.entry(&run.name).or_default().extend(
            run.sent
                .iter()
                .map(|(group, payload)| (group.as_str(), payload.as_str())),
        );
    }
    for life in lives {
        each_message_by_itself(life, &said, order, wrong);
        each_view_follows(life, wrong);
    }
    if !rules.any {
        one_list_per_id(lives, wrong);
        one_story_per_step(lives, order, wrong);
    }
    nothing_own_is_lost(lives, wrong);
}

fn each_message_by_itself(
    life: &Life<'_>,
    said: &BTreeMap<&str, BTreeSet<(&str, &str)>>,
    order: &str,
    wrong: &mut Vec<String>,
) {
    let label = life.label();
    let mut current: BTreeMap<&str, &View> = BTreeMap::new();
    let mut delivered = BTreeSet::new();
    let mut last: BTreeMap<(&str, &str, Option<u32>), u64> = BTreeMap::new();
    for (_, event) in &life.events {
        let message = match event {
            Event::View(view) => {
                // A sender that is new in this view counts from its beginning.
                last.retain(|(group, sender, _), _| {
                    *group != view.group || !view.joined.iter().any(|name| name == sender)
                });
                current.insert(&view.group, view);
                continue;
            }
            Event::Resync { group, cause } => {
                // G13: who runs and is heard takes part in a flush, or is removed by a node view; it does not stall one.
                if cause.contains("stalled") && life.run.frozen.is_empty() {
                    wrong.push(format!(
                        "G13 {label}: {cause}, although it was running all the time"
                    ));
                }
                last.retain(|(of, ..), _| of != group);
                current.remove(group.as_str());
                continue;
            }
            Event::Message(message) => message,
            _ => continue,
        };
        let (group, sender, what) = (message.group.as_str(), message.sender.as_str(), &message.payload);
        // G3, G11, G12: in a view, and in the one it was sent in.
        match current.get(group) {
            None => wrong.push(format!("G3 {label}: {what} before the first view of {group}")),
            Some(view) if view.id != message.view => {
                wrong.push(format!(
                    "G12 {label}: {what} of view {} in view {}",
                    message.view, view.id
                ));
            }
            Some(view) if !view.members.contains(&message.sender) => {
                wrong.push(format!(
                    "G11 {label}: {what} in view {}, which {sender} is not in",
                    view.id
                ));
            }
            Some(_) => {}
        }
        // G8: it was sent.
        if !said
            .get(sender)
            .is_some_and(|said| said.contains(&(group, what.as_str())))
        {
            wrong.push(format!("G8 {label}: {what} was never sent by {sender}"));
        }
        // G9: once.
        if !delivered.insert((group, what)) {
            wrong.push(format!("G9 {label}: {what} delivered twice"));
        }
        // G19: in the order of sending, without a gap. G34: in that order within a scope.
        if let Some(before) = last.insert((group, sender, message.scope), message.seq) {
            let (guarantee, follows) = match order {
                "unordered" => ("", true),
                "scoped" => ("G34", message.seq > before),
                _ => ("G19", message.seq == before + 1),
            };
            if !follows {
                wrong.push(format!(
                    "{guarantee} {label}: {what} is number {} of {sender}, after {before}",
                    message.seq
                ));
            }
        }
    }
}

fn each_view_follows(life: &Life<'_>, wrong: &mut Vec<String>) {
    let label = life.label();
    for (_, epochs) in &life.epochs() {
        for epoch in epochs {
            // G1 self-inclusion, G15: those who came along were there before and are here now.
            let view = epoch.view;
            if !view.members.contains(&life.run.name) {
                wrong.push(format!(
                    "G1 {label}: is not in its own view {} of {}",
                    view.id, view.group
                ));
            }
            if let Some(stranger) = view.transitional.iter().find(|name| !view.members.contains(name)) {
                wrong.push(format!(
                    "G15 {label}: {stranger} came along into view {}, but is not in it",
                    view.id
                ));
            }
        }
        for pair in epochs.windows(2) {
            let (before, view) = (pair[0].view, pair[1].view);
            // G2: ids only grow.
            if before.order() >= view.order() {
                wrong.push(format!(
                    "G2 {label}: view {} of {} after {}",
                    view.id, view.group, before.id
                ));
            }
            // G7: what changed is what is said. A name that crashed and is back is in both lists.
            let mut expected: Vec<&String> = before
                .members
                .iter()
                .filter(|name| !view.left.contains(name) && !view.crashed.contains(name))
                .collect();
            expected.extend(&view.joined);
            expected.sort();
            let mut members: Vec<&String> = view.members.iter().collect();
            members.sort();
            if expected != members {
                wrong.push(format!(
                    "G7 {label}: from {:?} to view {} {:?} it says joined {:?}, left {:?}, crashed {:?}",
                    before.members, view.id, view.members, view.joined, view.left, view.crashed
                ));
            }
        }
    }
}

fn one_list_per_id(lives: &[Life<'_>], wrong: &mut Vec<String>) {
    // G4: one id, one list, in one order.
    let mut lists: BTreeMap<(String, String), (String, Vec<String>)> = BTreeMap::new();
    for life in lives {
        for (_, event) in &life.events {
            let Event::View(view) = event else { continue };
            let entry = lists.entry((view.group.clone(), view.id.clone()));
            let (first, members) = entry.or_insert_with(|| (life.label(), view.members.clone()));
            if *members != view.members {
                wrong.push(format!(
                    "G4 view {} differs between {first} and {}: {members:?} and {:?}",
                    view.id,
                    life.label(),
                    view.members
                ));
            }
        }
    }
}

fn one_story_per_step(lives: &[Life<'_>], order: &str, wrong: &mut Vec<String>) {
    // By group and step from view to next view: the first that took it, with what it delivered before it.
    type Steps = BTreeMap<(String, String, String), (String, Vec<String>)>;
    let mut steps = Steps::new();
    for life in lives {
        let label = life.label();
        for (group, epochs) in life.epochs() {
            for pair in epochs.windows(2) {
                let mut delivered: Vec<String> = pair[0].messages.iter().map(|m| m.payload.clone()).collect();
                if order != "total" {
                    // G19 has looked at each sender's order, where there is one; here the set counts.
                    delivered.sort();
                }
                let step = (group.to_owned(), pair[0].view.id.clone(), pair[1].view.id.clone());
                let (first, expected) = steps
                    .entry(step)
                    .or_insert_with(|| (label.clone(), delivered.clone()));
                if *expected != delivered {
                    // G14 virtual synchrony; under total order also G21, G22, G23.
                    wrong.push(format!(
                        "G14 {first} and {label} went from view {} to {} and delivered {} and {} messages: {}",
                        pair[0].view.id, pair[1].view.id, expected.len(), delivered.len(), difference(expected, &delivered)
                    ));
                }
            }
        }
    }
    // In the last view there is no next one: in total order, what one delivered is a beginning of what the other did.
    // Only for those that were not on their way out: a member that departs may end with messages of its own (G27).
    if order == "total" {
        let mut last: BTreeMap<(String, String), (String, Vec<String>)> = BTreeMap::new();
        for life in lives.iter().filter(|life| !life.superseded && !life.run.killed) {
            for (group, epochs) in life.epochs() {
                let Some(epoch) = epochs.last() else { continue };
                let delivered: Vec<String> = epoch.messages.iter().map(|m| m.payload.clone()).collect();
                let key = (group.to_owned(), epoch.view.id.clone());
                let (first, expected) = last
                    .entry(key)
                    .or_insert_with(|| (life.label(), delivered.clone()));
                let common = expected.len().min(delivered.len());
                if expected[..common] != delivered[..common] {
                    // G21 one order.
                    wrong.push(format!(
                        "G21 {first} and {} disagree on the order in view {}: {}",
                        life.label(),
                        epoch.view.id,
                        difference(expected, &delivered)
                    ));
                }
            }
        }
    }
}

fn nothing_own_is_lost(lives: &[Life<'_>], wrong: &mut Vec<String>) {
    // G10: who was told to leave after it had sent, and never was anything but a member, has delivered all it sent.
    for life in lives {
        let whole = !life.superseded
            && life
                .events
                .first()
                .is_some_and(|(_, e)| matches!(e, Event::Ready { .. }));
        let left = life.run.dismissed && life.events.last().is_some_and(|(_, event)| *event == Event::Left);
        let refused = life.run.said(|event| {
            matches!(
                event,
                Event::Refused { .. } | Event::Error { .. } | Event::Receipt { .. } | Event::Suspended { .. }
            )
        });
        if !whole || !left || refused {
            continue;
        }
        for (group, payload) in life
            .run
            .sent
            .iter()
            .filter(|(group, payload)| !life.run.delivered(group).contains(payload))
        {
            wrong.push(format!(
                "G10 {}: sent {payload} to {group}, left in order, and never delivered it",
                life.label()
            ));
        }
    }
}

/// Where two sequences part.
fn difference(a: &[String], b: &[String]) -> String {
    let at = a
        .iter()
        .zip(b)
        .position(|(a, b)| a != b)
        .unwrap_or(a.len().min(b.len()));
    let show = |all: &[String]| all.get(at).cloned().unwrap_or_else(|| "nothing".to_owned());
    format!("at {at} one has {}, the other {}", show(a), show(b))
}

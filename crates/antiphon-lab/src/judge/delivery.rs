//! What must be true of group views and messages.

use super::*;

pub(super) fn judge(trace: &Trace, lives: &[Life<'_>], rules: &Rules, found: &mut Findings) {
    let mut said: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for run in &trace.runs {
        let sent = run.sent.iter();
        said.entry(&run.name)
            .or_default()
            .extend(sent.map(|(group, payload)| (group.as_str(), payload.as_str())));
    }
    for life in lives {
        each_message_by_itself(life, &said, rules, found);
        each_view_follows(life, found);
    }
    if !rules.any {
        one_list_per_id(lives, found);
        one_view_per_message(lives, found);
        one_story_per_step(lives, rules, found);
    }
    nothing_own_is_lost(trace, rules, found);
}

fn each_message_by_itself(
    life: &Life<'_>,
    said: &BTreeMap<&str, BTreeSet<(&str, &str)>>,
    rules: &Rules,
    found: &mut Findings,
) {
    let label = life.label();
    let mut current: BTreeMap<&str, &View> = BTreeMap::new();
    let mut suspended = BTreeSet::new();
    let mut delivered = BTreeSet::new();
    let mut last: BTreeMap<(&str, &str, Option<u32>), u64> = BTreeMap::new();
    for (index, (_, event)) in life.events.iter().enumerate() {
        let message = match event {
            Event::View(view) => {
                // A sender that is new in this view counts from its beginning.
                last.retain(|(group, sender, _), _| {
                    *group != view.group || !view.joined.iter().any(|name| name == sender)
                });
                suspended.remove(view.group.as_str());
                current.insert(&view.group, view);
                continue;
            }
            Event::Resync { group, cause } => {
                // G13: who runs and is heard takes part in a flush, or is removed by a node view; it does not
                // stall one.
                if cause.contains("stalled") && life.run.frozen.is_empty() {
                    let text = format!("{label}: {cause}, although it was running all the time");
                    found.view("G13", text);
                }
                last.retain(|(of, ..), _| of != group);
                suspended.remove(group.as_str());
                current.remove(group.as_str());
                continue;
            }
            Event::Suspended { group } => {
                suspended.insert(group.as_str());
                continue;
            }
            // The majority may come back without a change of the group.
            Event::NodeView(view) => {
                if view.primary {
                    suspended.clear();
                }
                continue;
            }
            Event::Transitional { group, .. } => {
                suspended.remove(group.as_str());
                continue;
            }
            Event::Message(message) => message,
            _ => continue,
        };
        let (group, (sender, what)) = (message.group.as_str(), key(message));
        // G3, G11, G12: in a view, and in the one it was sent in.
        match current.get(group) {
            None => found.view("G3", format!("{label}: {what} before the first view of {group}")),
            Some(view) if view.id != message.view => {
                let text = format!("{label}: {what} of view {} in view {}", message.view, view.id);
                found.view("G12", text);
            }
            Some(view) if !view.members.contains(&message.sender) => {
                let text = format!("{label}: {what} in view {}, which {sender} is not in", view.id);
                found.view("G11", text);
            }
            Some(_) => {}
        }
        // G6: nothing is delivered without a majority. That it is back may be printed behind the message.
        let is_back = || {
            let mut later = life.events[index..].iter();
            let next = later.find_map(|(_, event)| match event {
                Event::NodeView(view) => Some(view.primary),
                _ => None,
            });
            next == Some(true)
        };
        if suspended.contains(group) && !is_back() {
            found.view("G6", format!("{label}: {what} while {group} was suspended"));
        }
        // G8: it was sent.
        if !said.get(sender).is_some_and(|said| said.contains(&(group, what))) {
            let text = format!("{label}: {what} was never sent by {sender}");
            found.add(Wrong::Invented, "G8", text);
        }
        // G9: once.
        if !delivered.insert((group, sender, what)) {
            found.add(
                Wrong::Duplicated,
                "G9",
                format!("{label}: {what} delivered twice"),
            );
            continue;
        }
        // G19: in the order of sending, without a gap. G34: in that order within a scope.
        if let Some(before) = last.insert((group, sender, message.scope), message.seq) {
            let text = format!(
                "{label}: {what} is number {} of {sender}, after {before}",
                message.seq
            );
            let gap = usize::try_from(message.seq.saturating_sub(before + 1)).unwrap_or(usize::MAX);
            match rules.order {
                "unordered" => {}
                "scoped" if message.seq <= before => found.add(Wrong::Order, "G34", text),
                "scoped" => {}
                _ if message.seq <= before => found.add(Wrong::Order, "G19", text),
                _ if gap > 0 => found.add_many(Wrong::Lost, "G19", gap, text),
                _ => {}
            }
        }
    }
}

fn each_view_follows(life: &Life<'_>, found: &mut Findings) {
    let label = life.label();
    for sequence in life.sequences() {
        for Epoch { view, .. } in &sequence.epochs {
            // G1 self-inclusion, G15: those who came along were there before and are here now.
            if !view.members.contains(&life.run.name) {
                let text = format!("{label}: is not in its own view {} of {}", view.id, view.group);
                found.view("G1", text);
            }
            if let Some(stranger) = view.transitional.iter().find(|name| !view.members.contains(name)) {
                let text = format!(
                    "{label}: {stranger} came along into view {}, but is not in it",
                    view.id
                );
                found.view("G15", text);
            }
        }
        for pair in sequence.epochs.windows(2) {
            let (before, view) = (pair[0].view, pair[1].view);
            // G2: ids only grow.
            if order(before) >= order(view) {
                let text = format!("{label}: view {} of {} after {}", view.id, view.group, before.id);
                found.view("G2", text);
            }
            // G7: what changed is what is said. A name that crashed and is back is in both lists.
            let gone = |name: &&String| view.left.contains(name) || view.crashed.contains(name);
            let mut expected: Vec<&String> = before.members.iter().filter(|name| !gone(name)).collect();
            expected.extend(&view.joined);
            expected.sort();
            let mut members: Vec<&String> = view.members.iter().collect();
            members.sort();
            let strangers = view.left.iter().chain(&view.crashed);
            if expected != members || strangers.clone().any(|name| !before.members.contains(name)) {
                found.view(
                    "G7",
                    format!(
                        "{label}: from {:?} to view {} {:?} it says joined {:?}, left {:?}, crashed {:?}",
                        before.members, view.id, view.members, view.joined, view.left, view.crashed
                    ),
                );
            }
        }
    }
}

/// The id of a view as two numbers that can be compared.
fn order(view: &View) -> Option<(u64, u64)> {
    let (n, k) = view.id.split_once('.')?;
    Some((n.parse().ok()?, k.parse().ok()?))
}

/// G4: one id, one list, in one order. G15: those who came along are those that came from the same view.
fn one_list_per_id(lives: &[Life<'_>], found: &mut Findings) {
    type Install<'a> = (&'a Life<'a>, Option<&'a str>, &'a View);
    let mut installed: BTreeMap<(&str, &str), Vec<Install<'_>>> = BTreeMap::new();
    for life in lives {
        for sequence in life.sequences() {
            let mut before = None;
            for Epoch { view, .. } in &sequence.epochs {
                let installs = installed.entry((sequence.group, &view.id)).or_default();
                installs.push((life, before, view));
                before = Some(view.id.as_str());
            }
        }
    }
    for ((_, id), installs) in &installed {
        for (index, (q, q_before, q_view)) in installs.iter().enumerate() {
            if let Some((p, _, p_view)) = installs
                .first()
                .filter(|(_, _, first)| first.members != q_view.members)
            {
                let (p, q) = (p.label(), q.label());
                let lists = format!("{:?} and {:?}", p_view.members, q_view.members);
                found.view("G4", format!("view {id} differs between {p} and {q}: {lists}"));
            }
            for (p, p_before, p_view) in &installs[..index] {
                let together = p_before.is_some() && p_before == q_before;
                let says = |view: &View, of: &Life<'_>| view.transitional.contains(&of.run.name);
                if says(p_view, q) != together || says(q_view, p) != together {
                    let (p, q) = (p.label(), q.label());
                    let from = format!("{p_before:?} and {q_before:?}");
                    let text = format!("view {id}: {p} and {q} came from {from}, and say otherwise");
                    found.view("G15", text);
                }
            }
        }
    }
}

/// G11: whoever delivers a message delivers it in the same view.
fn one_view_per_message(lives: &[Life<'_>], found: &mut Findings) {
    let mut delivered_in: BTreeMap<(&str, Key<'_>), &str> = BTreeMap::new();
    for life in lives {
        for sequence in life.sequences() {
            for Epoch { view, messages } in &sequence.epochs {
                for message in messages {
                    let first = delivered_in
                        .entry((sequence.group, key(message)))
                        .or_insert(&view.id);
                    if *first != view.id {
                        let (what, label) = (key(message).1, life.label());
                        let text = format!(
                            "{what} was delivered in view {first} and, by {label}, in {}",
                            view.id
                        );
                        found.add(Wrong::Order, "G11", text);
                    }
                }
            }
        }
    }
}

/// One that took a step, with what it delivered before.
type Taken<'a> = (String, Vec<Key<'a>>);

fn one_story_per_step(lives: &[Life<'_>], rules: &Rules, found: &mut Findings) {
    // By group and step from view to next view; none: in force when all is quiet.
    let mut steps: BTreeMap<(&str, &str, Option<&str>), Vec<Taken<'_>>> = BTreeMap::new();
    // By group, those whose last view this is. Only of those that were not on their way out: a member that
    // departs may end with messages of its own (G27).
    let mut ends: BTreeMap<(&str, &str), Vec<Taken<'_>>> = BTreeMap::new();
    for life in lives {
        for sequence in life.sequences() {
            for (index, epoch) in sequence.epochs.iter().enumerate() {
                let (group, from) = (sequence.group, epoch.view.id.as_str());
                let next = sequence.epochs.get(index + 1).map(|next| next.view.id.as_str());
                if next.is_some() || sequence.open && life.rests(rules) {
                    let step = steps.entry((group, from, next)).or_default();
                    step.push((life.label(), epoch.keys()));
                } else if !life.superseded && !life.run.killed {
                    let end = ends.entry((group, from)).or_default();
                    end.push((life.label(), epoch.keys()));
                }
            }
        }
    }
    for ((_, from, to), taken) in &steps {
        let all: BTreeSet<Key<'_>> = taken.iter().flat_map(|(_, keys)| keys.iter().copied()).collect();
        let to = to.map_or("the end".to_owned(), |to| format!("view {to}"));
        for (label, keys) in taken {
            let own: BTreeSet<Key<'_>> = keys.iter().copied().collect();
            let missing: Vec<_> = all.difference(&own).collect();
            if let Some((sender, payload)) = missing.first() {
                // G14 virtual synchrony.
                let text = format!(
                    "{label} went from view {from} to {to} without {} messages that others delivered, first {payload} of {sender}",
                    missing.len()
                );
                found.add_many(Wrong::Lost, "G14", missing.len(), text);
            }
        }
        // G19 has looked at each sender's order, where there is one. G21, G22, G23: one order for all.
        if rules.order == "total" && taken.iter().all(|(_, keys)| keys.len() == all.len()) {
            one_order(from, taken, found);
        }
    }
    // In the last view there is no next one: in total order, what one delivered is a beginning of what the
    // other did.
    if rules.order == "total" {
        ends.iter()
            .for_each(|((_, view), taken)| one_order(view, taken, found));
    }
}

/// G21: as far as both go.
fn one_order(view: &str, taken: &[Taken<'_>], found: &mut Findings) {
    let Some((first, expected)) = taken.iter().max_by_key(|(_, keys)| keys.len()) else {
        return;
    };
    for (label, keys) in taken {
        if let Some(at) = (0..keys.len()).find(|at| keys[*at] != expected[*at]) {
            let (one, other) = (expected[at].1, keys[at].1);
            let text = format!("in view {view}, at {at}, {first} delivered {one} and {label} {other}");
            found.add(Wrong::Order, "G21", text);
        }
    }
}

/// G10: who rests, or was told to leave after it had sent and never was anything but a member, has delivered
/// all it sent, or has said what became of it.
fn nothing_own_is_lost(trace: &Trace, rules: &Rules, found: &mut Findings) {
    for run in &trace.runs {
        let rests = rules.quiet && run.stays();
        let left = run.dismissed && run.events.last().is_some_and(|(_, event)| *event == Event::Left);
        let troubled = run.said(|event| {
            matches!(
                event,
                Event::Incarnation { .. }
                    | Event::Refused { .. }
                    | Event::Error { .. }
                    | Event::Receipt { .. }
                    | Event::Suspended { .. }
            )
        });
        if !rests && (!left || troubled) {
            continue;
        }
        let refused = run.refused();
        let told: BTreeSet<(&str, u64)> = run
            .events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Receipt { group, ticket, .. } => Some((group.as_str(), *ticket)),
                _ => None,
            })
            .collect();
        let delivered: BTreeSet<(&String, &String)> = run
            .sent
            .iter()
            .map(|(group, _)| group)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .flat_map(|group| run.delivered(group).iter().map(move |payload| (group, payload)))
            .collect();
        // Each accepted send of a group has a number of its own.
        let mut tickets: BTreeMap<&str, u64> = BTreeMap::new();
        for (group, payload) in run
            .sent
            .iter()
            .filter(|(_, payload)| !refused.contains(payload.as_str()))
        {
            let ticket = tickets.entry(group).or_default();
            *ticket += 1;
            if !delivered.contains(&(group, payload)) && !told.contains(&(group.as_str(), *ticket)) {
                let text = format!(
                    "{}#{}: took {payload} for {group}, and neither delivered it nor said what became of it",
                    run.name, run.start
                );
                found.add(Wrong::Lost, "G10", text);
            }
        }
    }
}

//! What members told one other: G44.

use std::collections::BTreeMap;

use super::{Account, Fate, InView, Stay, Tell, Told, named};
use crate::{Name, Report};

/// Where a message was delivered.
struct Place<'a, M, P> {
    /// In which of the account's stays.
    stay: usize,
    view: &'a InView<M, P>,
    told: &'a Told<M, P>,
}

pub(super) fn check<M: Name, P: Name>(account: &Account<M, P>, report: &mut Report) {
    let mut places: BTreeMap<(M, M, P), Vec<Place<'_, M, P>>> = BTreeMap::new();
    for (stay, who) in account.stays.iter().enumerate() {
        numbers(account, who, report);
        for view in &who.views {
            for told in &view.told {
                let key = (told.sender, who.member, told.payload);
                places.entry(key).or_default().push(Place { stay, view, told });
            }
        }
    }
    let mut pairs: BTreeMap<(M, M), Vec<&Tell<M, P>>> = BTreeMap::new();
    for tell in &account.tells {
        pairs.entry((tell.sender, tell.to)).or_default().push(tell);
    }
    let mut known = BTreeMap::new();
    for tells in pairs.values() {
        let mut last = None;
        for tell in tells {
            let key = (tell.sender, tell.to, tell.payload);
            let delivered = places.get(&key).map(Vec::as_slice).unwrap_or_default();
            known.insert(key, ());
            each(account, tell, delivered, report);
            in_order(tell, delivered, &mut last, report);
            receipts(account, tell, delivered, report);
        }
    }
    for ((sender, to, payload), delivered) in &places {
        let at = delivered.first().map_or(0, |place| place.told.at);
        report.check("G44", at, known.contains_key(&(*sender, *to, *payload)), || {
            format!("{to} was given {payload} as told by {sender}, which never told it that")
        });
    }
}

/// In the present view, from a member of it, and without a gap as long as both are members.
fn numbers<M: Name, P: Name>(account: &Account<M, P>, who: &Stay<M, P>, report: &mut Report) {
    let mut next: BTreeMap<M, u64> = BTreeMap::new();
    for view in &who.views {
        for member in view.joined.iter().chain(&view.departed) {
            next.remove(member);
        }
        for told in &view.told {
            let here = told.view == view.id && view.members.contains(&told.sender);
            report.check("G44", told.at, here && told.sender != who.member, || {
                format!(
                    "{}: was told {} by {} of view {} in {}",
                    who.name,
                    told.payload,
                    told.sender,
                    told.view,
                    named(&account.group, view)
                )
            });
            let next = next.entry(told.sender).or_insert(1);
            let expected = std::mem::replace(next, told.seq + 1);
            report.check("G44", told.at, told.seq == expected, || {
                format!(
                    "{}: was told number {} by {}, and {expected} comes next",
                    who.name, told.seq, told.sender
                )
            });
        }
    }
}

/// Once, and in a view that its sender had when it told, or went on to.
fn each<M: Name, P: Name>(
    account: &Account<M, P>,
    tell: &Tell<M, P>,
    delivered: &[Place<'_, M, P>],
    report: &mut Report,
) {
    report.check("G44", tell.at, delivered.len() <= 1, || {
        let (sender, to, payload) = (tell.sender, tell.to, tell.payload);
        format!(
            "{to} was given {payload} {} times, told once by {sender}",
            delivered.len()
        )
    });
    for Place { view, told, .. } in delivered {
        let sent = &account.stays[tell.stay];
        let began = &sent.views[tell.view];
        let later = |other: &&InView<M, P>| other.lineage == view.lineage && other.id > view.id;
        let has_it = sent.views.iter().any(|other| other.key() == view.key());
        let passed = sent.views.iter().any(|other| later(&other));
        let holds = tell.at <= told.at
            && (began.lineage != view.lineage || began.id <= view.id)
            && (has_it || !passed);
        report.check("G44", told.at, holds, || {
            format!(
                "{} was given {} in view {}, which {} told in view {} at {}",
                tell.to, tell.payload, view.id, tell.sender, began.id, tell.at
            )
        });
    }
}

/// In the order of telling.
fn in_order<M: Name, P: Name>(
    tell: &Tell<M, P>,
    delivered: &[Place<'_, M, P>],
    last: &mut Option<(usize, usize)>,
    report: &mut Report,
) {
    for Place { stay, told, .. } in delivered {
        let place = (*stay, told.place);
        let before = last.replace(place);
        report.check("G44", told.at, before.is_none_or(|before| before < place), || {
            format!(
                "{} was given {} of {} after what was told later",
                tell.to, tell.payload, tell.sender
            )
        });
    }
}

/// One receipt at most, which is true; and one for each sender that stays.
fn receipts<M: Name, P: Name>(
    account: &Account<M, P>,
    tell: &Tell<M, P>,
    delivered: &[Place<'_, M, P>],
    report: &mut Report,
) {
    let (sender, to, payload) = (tell.sender, tell.to, tell.payload);
    report.check("G44", tell.at, tell.fates.len() <= 1, || {
        format!(
            "{sender} has {} receipts for {payload}, told to {to}",
            tell.fates.len()
        )
    });
    for (at, fate) in &tell.fates {
        // A receiver that starts over, or leaves before it has a lease, may have held back all that it took,
        // and its first view as well: there is no such stay then.
        let shared = |view: &InView<M, P>| {
            let views = account.stays[tell.stay].views[tell.view..].iter();
            let mut until = views.filter(|other| other.at <= *at);
            until.any(|other| other.key() == view.key())
        };
        let stays = || account.stays.iter().filter(|who| who.member == to);
        let started_over = stays().any(|who| !who.whole) || !stays().any(|who| who.views.iter().any(shared));
        let truthful = match fate {
            Fate::Delivered => !delivered.is_empty() || started_over,
            Fate::NotDelivered => delivered.is_empty(),
            Fate::Unknown => true,
        };
        report.check("G44", *at, truthful, || {
            format!(
                "{sender} was told {fate:?} of {payload} for {to}, where it was delivered {} times",
                delivered.len()
            )
        });
        let together = |view: &InView<M, P>| view.members.contains(&to) && !view.joined.contains(&to);
        let sent = &account.stays[tell.stay];
        let mut until = sent.views[tell.view + 1..].iter().filter(|view| view.at <= *at);
        let parted = !sent.rests || !until.all(together);
        report.check("G44", *at, *fate == Fate::Delivered || parted, || {
            format!("{sender} was told {fate:?} of {payload} for {to}, which was with it all the time")
        });
    }
    report.check("G44", tell.at, !tell.owed || !tell.fates.is_empty(), || {
        format!("{sender} never learned what became of {payload}, told to {to}")
    });
}

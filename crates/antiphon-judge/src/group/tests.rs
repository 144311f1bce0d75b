//! Accounts that were written by hand.

use super::*;
use crate::Report;

type Told = Stay<char, &'static str>;

/// A stay in a few words: `V1:abc` a view, `a1` message 1 of a, `a1!` a safe one, `N:ab` a notice.
fn stay(letter: char, rests: bool, story: &'static str) -> Told {
    let mut views: Vec<InView<char, &str>> = Vec::new();
    for word in story.split_whitespace() {
        if let Some((id, members)) = word.strip_prefix('V').and_then(|view| view.split_once(':')) {
            let members: Vec<char> = members.chars().collect();
            let before = views.last().map(|view| view.members.clone()).unwrap_or_default();
            let minus = |all: &[char], other: &[char]| -> Vec<char> {
                all.iter()
                    .filter(|member| !other.contains(member))
                    .copied()
                    .collect()
            };
            let joined = minus(&members, &before);
            views.push(InView {
                id: Id([id.parse().expect("a number"), 1, 0]),
                lineage: 0,
                at: 0,
                transitional: if before.is_empty() {
                    vec![letter]
                } else {
                    minus(&members, &joined)
                },
                departed: minus(&before, &members),
                joined,
                members,
                log: Vec::new(),
                notice: None,
                suspended: Vec::new(),
                told: Vec::new(),
            });
            continue;
        }
        let view = views.last_mut().expect("a story begins with a view");
        if let Some(members) = word.strip_prefix("N:") {
            view.notice = Some(Notice {
                after: view.log.len(),
                members: members.chars().collect(),
            });
            continue;
        }
        let payload = word.trim_end_matches('!');
        view.log.push(Delivered {
            at: 0,
            view: view.id,
            sender: word.chars().next().expect("a word has letters"),
            seq: payload[1..].parse().expect("a number"),
            numbers: 1,
            payload,
            safe: word.ends_with('!'),
            scope: None,
        });
    }
    Stay {
        name: letter.to_string(),
        member: letter,
        life: letter as usize,
        views,
        rests,
        whole: true,
    }
}

/// Each message that any of these delivered was sent in the beginning, in the order of the numbers.
fn account(order: Order, stays: Vec<Told>) -> Account<char, &'static str> {
    let logs = stays.iter().flat_map(|who| &who.views).flat_map(|view| &view.log);
    let sent: BTreeMap<_, _> = logs.map(|m| ((m.sender, m.seq), *m)).collect();
    let sent = sent.into_values().map(|m| Sent {
        sender: m.sender,
        payload: m.payload,
        safe: m.safe,
        scope: m.scope,
        object: false,
        at: Some(0),
        seen: None,
        owed: false,
    });
    Account {
        group: "g".to_owned(),
        order,
        any: false,
        clients: false,
        sent: sent.collect(),
        stays,
        tells: Vec::new(),
    }
}

fn broken(account: &Account<char, &'static str>) -> Vec<&'static str> {
    let mut report = Report::default();
    judge(account, &mut report);
    report
        .violations
        .iter()
        .map(|violation| violation.guarantee)
        .collect()
}

fn judged(order: Order, stays: Vec<Told>) -> Vec<&'static str> {
    broken(&account(order, stays))
}

/// Of three, the last one was killed; `a` and `b` have these stories.
fn told(order: Order, a: &'static str, b: &'static str) -> Vec<&'static str> {
    let stays = vec![
        stay('a', true, a),
        stay('b', true, b),
        stay('c', false, "V1:abc a1 b1"),
    ];
    judged(order, stays)
}

#[test]
fn two_that_survive_a_third_and_keep_every_promise_are_accepted() {
    let good = "V1:abc a1 b1 N:ab c1 V2:ab a2";
    for order in [Order::Total, Order::Fifo, Order::Unordered, Order::Scoped] {
        assert!(told(order, good, good).is_empty());
    }
    assert!(told(Order::Fifo, good, "V1:abc b1 a1 N:ab c1 V2:ab a2").is_empty());
}

#[test]
fn each_broken_promise_is_named() {
    let good = "V1:abc a1 b1 N:ab c1 V2:ab a2";
    for (bad, guarantee) in [
        ("V1:abc a1 b1 N:ab c1 V2:a a2", "G1"),
        ("V2:abc a1 b1 N:ab c1 V1:ab a2", "G2"),
        ("V1:abc a1 b1 N:ab c1 V2:abc a2", "G4"),
        ("V1:abc a1 b1 b1 N:ab c1 V2:ab a2", "G9"),
        ("V1:abc a1 b1 N:ab V2:ab c1 a2", "G11"),
        ("V1:abc a1 b1 N:ab V2:ab c1 a2", "G12"),
        ("V1:abc a1 b1 N:ab c1 V2:ab", "G13"),
        ("V1:abc a1 b1 V2:ab a2", "G14"),
        ("V0:abc V2:ab a2", "G15"),
        ("V0:abc V2:ab a2", "G16"),
        ("V1:abc a1 b1 N:ad c1 V2:ab a2", "G17"),
        ("V1:abc a1 b1 N:ab c1 V2:ab a3", "G19"),
        ("V1:abc b1 a1 N:ab c1 V2:ab a2", "G21"),
        ("V1:abc b1 N:ab a1 c1 V2:ab a2", "G22"),
        ("V1:abc a1 N:ab c1 b1 V2:ab a2", "G23"),
    ] {
        let broken = told(Order::Total, good, bad);
        assert!(
            broken.contains(&guarantee),
            "{bad} breaks {guarantee}: {broken:?}"
        );
    }
}

#[test]
fn a_message_under_two_numbers_is_rejected() {
    let good = "V1:ab a1 b1";
    let mut stays = vec![stay('a', true, good), stay('b', true, good)];
    assert_eq!(judged(Order::Unordered, stays.clone()), Vec::<&str>::new());
    stays[1].views[0].log[0].seq = 9;
    assert!(judged(Order::Unordered, stays).contains(&"G11"));
}

#[test]
fn what_the_lists_do_not_tell_and_who_came_along_unsaid_are_rejected() {
    let good = "V1:abc a1 b1 N:ab c1 V2:ab a2";
    let tampered = |change: fn(&mut InView<char, &'static str>)| {
        let mut liar = stay('b', true, good);
        change(liar.views.last_mut().expect("it has views"));
        judged(Order::Total, vec![stay('a', true, good), liar])
    };
    assert!(tampered(|_| {}).is_empty());
    assert!(tampered(|view| view.departed.clear()).contains(&"G7"));
    assert!(tampered(|view| view.transitional.truncate(1)).contains(&"G15"));
}

#[test]
fn whoever_was_killed_owes_nothing_for_its_last_view() {
    let good = "V1:abc a1 b1 c1";
    let stays = vec![stay('a', true, good), stay('c', false, "V1:abc a1")];
    assert!(judged(Order::Total, stays).is_empty());
}

#[test]
fn what_was_sent_is_compared_with_what_is_delivered() {
    let of = |change: fn(&mut Account<char, &'static str>)| {
        let good = "V1:ab a1 b1 a2";
        let mut account = account(Order::Total, vec![stay('a', true, good), stay('b', true, good)]);
        change(&mut account);
        broken(&account)
    };
    assert_eq!(of(|_| {}), [""; 0]);
    assert_eq!(of(|account| account.sent.truncate(2)), ["G8", "G8"]);
    assert_eq!(of(|account| account.sent[0].at = Some(1)), ["G8", "G8"]);
    assert_eq!(of(|account| account.sent[0].at = None), [""; 0]);
    assert_eq!(of(|account| account.sent[0].safe = true), ["G8", "G8"]);
    assert_eq!(of(|account| account.sent.swap(0, 1)), ["G19", "G19"]);
    assert_eq!(
        of(|account| account.sent.iter_mut().for_each(|send| send.owed = true)),
        [""; 0]
    );
    let never = |account: &mut Account<char, &'static str>| {
        account.sent.push(Sent {
            payload: "a3",
            owed: true,
            ..account.sent[0]
        });
    };
    assert_eq!(of(never), ["G10"]);
    // a had delivered b1 when it sent a2, or had not when it sent a1.
    const SEEN: Option<SeenBefore> = Some(SeenBefore {
        stay: 0,
        view: 0,
        messages: 2,
    });
    assert_eq!(of(|account| account.sent[1].seen = SEEN), [""; 0]);
    assert_eq!(of(|account| account.sent[0].seen = SEEN), ["G20", "G20"]);
}

#[test]
fn a_safe_message_that_one_goes_on_without_is_rejected() {
    let two = |a, b| judged(Order::Fifo, vec![stay('a', true, a), stay('b', true, b)]);
    let with = "V1:abc a1 b1! V2:ab";
    assert!(two(with, with).is_empty());
    assert!(two(with, "V1:abc a1 V2:ab").contains(&"G24"));
    assert!(two("V1:abc a1 N:ab b1! V2:ab", "V1:abc a1 N:ab V2:ab").contains(&"G25"));
    let crashed = vec![stay('a', true, "V1:abc b1 a1!"), stay('c', false, "V1:abc a1!")];
    assert!(judged(Order::Total, crashed).contains(&"G26"));
}

#[test]
fn a_message_while_suspended_is_rejected() {
    let with = |void: Range<usize>| {
        let mut who = stay('a', true, "V1:ab a1 b1");
        who.views[0].suspended.push(void);
        judged(Order::Total, vec![who])
    };
    assert_eq!(with(2..2), [""; 0]);
    assert_eq!(with(1..2), ["suspended"]);
}

#[test]
fn scopes_keep_their_order_and_nothing_else_does() {
    let of = |story: &'static str| {
        let scoped = |letter| {
            let mut who = stay(letter, true, if letter == 'a' { "V1:ab a1 a2 a3" } else { story });
            // Odd numbers have one scope, even ones another.
            for m in &mut who.views[0].log {
                m.scope = Some(m.seq as u32 % 2);
            }
            who
        };
        judged(Order::Scoped, vec![scoped('a'), scoped('b')])
    };
    assert_eq!(of("V1:ab a2 a1 a3"), [""; 0]);
    assert_eq!(of("V1:ab a3 a1 a2"), ["G34", "G34"]);
}

/// `a` told `b` these, by number, each with its receipt if it has one; `b` was told these in each of its
/// views.
fn tells(told: &[(&'static str, Option<Fate>)], heard: [&[&'static str]; 2]) -> Vec<&'static str> {
    let mut stays = vec![stay('a', true, "V1:ab V2:ab"), stay('b', true, "V1:ab V2:ab")];
    let mut place = 0;
    for (view, heard) in stays[1].views.iter_mut().zip(heard) {
        for payload in heard {
            let (payload, named) = payload.split_once('@').unwrap_or((payload, ""));
            view.told.push(super::Told {
                at: 1,
                place,
                view: named.parse().map_or(view.id, |id| Id([id, 1, 0])),
                sender: 'a',
                seq: payload[1..].parse().expect("a number"),
                payload,
            });
            place += 1;
        }
    }
    let mut account = account(Order::Fifo, stays);
    account.tells = told
        .iter()
        .map(|(payload, fate)| Tell {
            sender: 'a',
            to: 'b',
            payload: *payload,
            at: 0,
            stay: 0,
            view: 0,
            fates: fate.iter().map(|fate| (2, *fate)).collect(),
            owed: true,
        })
        .collect();
    broken(&account)
}

#[test]
fn what_a_member_tells_one_other_is_there_once_in_order_and_in_a_view_of_both() {
    let delivered = Some(Fate::Delivered);
    let two = [("a1", delivered), ("a2", delivered)];
    assert!(tells(&two, [&["a1", "a2"], &[]]).is_empty());
    assert!(tells(&two, [&["a1"], &["a2"]]).is_empty());
    for heard in [
        [&["a2", "a1"][..], &[][..]],
        [&["a1", "a2"], &["a2"]],
        [&["a1", "a2@2"], &[]],
        [&["a1", "a2", "a3"], &[]],
        [&["a1"], &[]],
    ] {
        assert!(tells(&two, heard).contains(&"G44"), "{heard:?}");
    }
    let said_wrongly = [("a1", Some(Fate::NotDelivered))];
    assert!(tells(&said_wrongly, [&["a1"], &[]]).contains(&"G44"));
    assert!(tells(&[("a1", None)], [&["a1"], &[]]).contains(&"G44"));
}

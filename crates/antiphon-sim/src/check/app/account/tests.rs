//! Accounts that were written by hand, without a world: as a reader of real nodes' lines would write them.

use super::*;

fn who(letter: char) -> Incarnation {
    Incarnation(u128::from(u32::from(letter)))
}

/// A membership in a few words: `V1:abc` a view, `a1` message 1 of a, `N:ab` a notice.
fn membership(letter: char, stays: bool, story: &str) -> Membership {
    let list = |letters: &str| letters.chars().map(who).collect::<Vec<_>>();
    let mut views: Vec<InView> = Vec::new();
    for word in story.split_whitespace() {
        if let Some((id, members)) = word.strip_prefix('V').and_then(|view| view.split_once(':')) {
            let members = list(members);
            let before = views.last().map(|view| view.members.clone()).unwrap_or_default();
            let both = |member: &&Incarnation| before.contains(member);
            let came = members.iter().filter(both).copied().collect();
            views.push(InView {
                id: [id.parse().expect("a number"), 1, 0],
                joined: members
                    .iter()
                    .filter(|member| !before.contains(member))
                    .copied()
                    .collect(),
                departed: before
                    .iter()
                    .filter(|member| !members.contains(member))
                    .copied()
                    .collect(),
                transitional: if before.is_empty() {
                    vec![who(letter)]
                } else {
                    came
                },
                members,
                ..InView::default()
            });
            continue;
        }
        let view = views.last_mut().expect("a story begins with a view");
        if let Some(members) = word.strip_prefix("N:") {
            view.notice = Some(Notice {
                after: view.log.len(),
                members: list(members),
            });
            continue;
        }
        let sender = word.chars().next().expect("a word has letters");
        let seq = word[1..].parse().expect("a number");
        view.log.push(Delivered {
            at: 0,
            view: view.id,
            sender: who(sender),
            seq,
            numbers: 1,
            hash: u64::from(u32::from(sender)) * 1000 + seq,
        });
    }
    Membership {
        name: letter.to_string(),
        incarnation: who(letter),
        views,
        stays,
    }
}

fn judged(order: Order, memberships: Vec<Membership>) -> Vec<&'static str> {
    let report = judge(&Account {
        group: "g".to_owned(),
        order,
        memberships,
    });
    let broken = report.violations.iter().map(|violation| violation.guarantee);
    broken.collect()
}

/// Of three, the last one was killed; `a` and `b` have these stories.
fn told(order: Order, a: &str, b: &str) -> Vec<&'static str> {
    let memberships = vec![
        membership('a', true, a),
        membership('b', true, b),
        membership('c', false, "V1:abc a1 b1"),
    ];
    judged(order, memberships)
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
fn what_the_lists_do_not_tell_and_who_came_along_unsaid_are_rejected() {
    let good = "V1:abc a1 b1 N:ab c1 V2:ab a2";
    let tampered = |change: fn(&mut InView)| {
        let mut liar = membership('b', true, good);
        change(liar.views.last_mut().expect("it has views"));
        judged(Order::Total, vec![membership('a', true, good), liar])
    };
    assert!(tampered(|_| {}).is_empty());
    assert!(tampered(|view| view.departed.clear()).contains(&"G7"));
    assert!(tampered(|view| view.transitional.truncate(1)).contains(&"G15"));
}

#[test]
fn whoever_was_killed_owes_nothing_for_its_last_view() {
    let good = "V1:abc a1 b1 c1";
    let memberships = vec![membership('a', true, good), membership('c', false, "V1:abc a1")];
    assert!(judged(Order::Total, memberships).is_empty());
}

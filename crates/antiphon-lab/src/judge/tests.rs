//! The judge must notice each kind of crime, and must not accuse the innocent.

use antiphon_api::blocks::{Code, Failure, Id, Ran, Request, To, Welcome, Word};
use antiphon_api::{Departed, NodeView, Payload, Removed, View, ViewMember, ViewName};

use super::*;
use crate::{Called, Said, Tells};

/// A process that said these words, one every 100 ms, the first `ready`. Members have one-letter names.
///
/// `N7:abc` a primary node view, `V7:abc` the group's view 7.1, with what changed since the one before,
/// `V7:abc+c` if it is a first one in which c alone is new; `T:ab` a notice; `a1` message 1 of a in the
/// current view, `a1#x` another of that number, `a1@7` one of view 7.1; `S` suspended, `R` resync, `I` a
/// fresh incarnation, `L` left, `!a1` a refused send, `?1` a receipt for ticket 1, `<a1` what a told it
/// alone, `-1` a receipt for what it told first. It was told at its beginning what to send. Of an agent's
/// program: `W` it is welcome, `=a1` a reply that a1 was delivered, `~a1` that it was not. Of calls: `*a1` it
/// is asked to run the call a1, `0a1` a reply that its call a1 did not run, `0a1:bc` that it did not at b and
/// c, `%a1` and `%a1:bc` that it may have run.
fn run(name: &str, sent: &str, words: &str) -> Run {
    let mut run = Run {
        name: name.into(),
        ..Run::default()
    };
    run.sent = sent
        .split_whitespace()
        .map(|what| Said {
            group: "g".into(),
            what: what.into(),
            scope: None,
            object: false,
            heard: 0,
        })
        .collect();
    let group = || "g".to_owned();
    let list = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
    let (mut views, mut nodes) = (Vec::<View>::new(), Vec::<String>::new());
    let ready = Event::Ready {
        name: name.into(),
        addr: "127.0.0.1:1".into(),
        further: Vec::new(),
        incarnation: format!("i{name}"),
    };
    let mut events = vec![ready];
    for word in words.split_whitespace() {
        let (id, members) = word.split_once(':').unwrap_or((word, ""));
        let (kind, id) = id.split_at(1);
        let (members, new) = members.split_once('+').unwrap_or((members, members));
        let (members, new) = (list(members), list(new));
        events.push(match kind {
            "N" => {
                let before = std::mem::replace(&mut nodes, members.clone());
                node_view(id.parse().unwrap(), &before, &members)
            }
            "V" => {
                let before = views.last().map(|view| view.members.clone());
                let joined = before.as_ref().map_or(new, |before| minus(&members, before));
                let came = before.as_ref().map_or(list(name), |_| minus(&members, &joined));
                let before = before.unwrap_or_default();
                views.push(View {
                    group: group(),
                    id: format!("{id}.1"),
                    joined,
                    left: vec![],
                    crashed: minus(&before, &members),
                    causes: BTreeMap::new(),
                    transitional: came,
                    members,
                    primary: true,
                    synced: None,
                });
                Event::View(views[views.len() - 1].clone())
            }
            "T" => Event::Transitional {
                group: group(),
                members,
            },
            "S" => Event::Suspended { group: group() },
            "R" => {
                views.clear();
                let cause = "removed".into();
                Event::Resync {
                    group: group(),
                    cause,
                }
            }
            "I" => Event::Incarnation {
                incarnation: format!("i{name}2"),
            },
            "L" => Event::Left,
            "!" => Event::Refused {
                group: Some(group()),
                reason: "not primary".into(),
                fatal: false,
                request: Some(serde_json::json!({"send": {"group": "g", "payload": id}})),
            },
            "W" => {
                views.clear();
                let [client, node, cluster, build] = ["p", name, "", ""].map(String::from);
                let welcome = Welcome {
                    client,
                    node,
                    cluster,
                    build,
                    resume: None,
                    resumed: None,
                };
                Event::Reply(Reply {
                    welcome: Some(Box::new(welcome)),
                    ..Reply::default()
                })
            }
            "=" | "~" => Event::Reply(Reply {
                op: "send".into(),
                id: Some(Id::Text(id.into())),
                error: (kind == "~").then(|| Failure {
                    code: Code::Unavailable,
                    reason: "not primary".into(),
                    ran: Ran::No,
                    payload: None,
                }),
                ..Reply::default()
            }),
            "*" => Event::Request(Request {
                group: group(),
                request: 1,
                verb: "v".into(),
                from: id[..1].into(),
                payload: Payload::Text(id.into()),
                within_ms: 1000,
            }),
            "0" | "%" => {
                let failure = Failure {
                    code: Code::Unavailable,
                    reason: "not now".into(),
                    ran: if kind == "0" { Ran::No } else { Ran::Maybe },
                    payload: None,
                };
                let at = members.into_iter().map(|member| (member, failure.clone()));
                let failures: BTreeMap<_, _> = at.collect();
                Event::Reply(Reply {
                    op: "call".into(),
                    id: Some(Id::Text(id.into())),
                    error: failures.is_empty().then_some(failure),
                    failures,
                    ..Reply::default()
                })
            }
            "?" => Event::Receipt {
                group: group(),
                ticket: id.parse().unwrap(),
                outcome: "unknown".into(),
            },
            "<" => {
                let current = views.last().map(|view| view.id.clone()).unwrap_or_default();
                Event::Told(Message {
                    part: 0,
                    group: group(),
                    view: current,
                    sender: id[..1].into(),
                    seq: id[1..].parse().unwrap(),
                    payload: Payload::Text(id.into()),
                    safe: false,
                    scope: None,
                })
            }
            "-" => Event::TellReceipt {
                group: group(),
                to: "b".into(),
                ticket: id.parse().unwrap(),
                outcome: "not_delivered".into(),
                cause: "crashed".into(),
            },
            sender => {
                let (what, view) = word.split_once('@').unwrap_or((word, ""));
                let current = views.last().map(|view| view.id.clone()).unwrap_or_default();
                Event::Message(Message {
                    group: group(),
                    view: if view.is_empty() {
                        current
                    } else {
                        format!("{view}.1")
                    },
                    sender: sender.into(),
                    seq: what[1..].split('#').next().unwrap().parse().unwrap(),
                    part: 0,
                    payload: Payload::Text(what.into()),
                    safe: false,
                    scope: None,
                })
            }
        });
    }
    for (at, event) in events.into_iter().enumerate() {
        run.record(Duration::from_millis(100 * at as u64), event);
    }
    run
}

fn minus(a: &[String], b: &[String]) -> Vec<String> {
    a.iter().filter(|name| !b.contains(name)).cloned().collect()
}

fn node_view(number: u32, before: &[String], members: &[String]) -> Event {
    let member = |name: &String| ViewMember {
        incarnation: format!("i{name}"),
        addr: "127.0.0.1:1".into(),
        further: Vec::new(),
        metadata: BTreeMap::new(),
        name: name.clone(),
    };
    let removed = |name: &String| Removed {
        member: Departed {
            name: name.clone(),
            incarnation: format!("i{name}"),
            addr: None,
            further: Vec::new(),
            metadata: BTreeMap::new(),
        },
        cause: "crashed".into(),
        accusers: vec!["a".into()],
        evidence: "its process ended".into(),
        before_ms: 0,
    };
    Event::NodeView(NodeView {
        id: ViewName::Primary(number),
        number,
        primary: true,
        members: members.iter().map(member).collect(),
        size: None,
        joined: members
            .iter()
            .filter(|name| !before.contains(name))
            .cloned()
            .collect(),
        left: vec![],
        crashed: before
            .iter()
            .filter(|name| !members.contains(name))
            .map(removed)
            .collect(),
    })
}

/// It had been killed.
fn killed(run: Run) -> Run {
    Run { killed: true, ..run }
}

/// What the judge finds broken.
fn accused(runs: Vec<Run>, rules: &Rules) -> Vec<String> {
    let found = judge(&Trace { runs }, rules);
    found.iter().map(ToString::to_string).collect()
}

/// The guarantees that the judge finds broken, when all is quiet in groups of this order.
fn broken(order: &str, runs: Vec<Run>) -> Vec<&'static str> {
    let rules = Rules {
        order: order.parse().unwrap(),
        quiet: true,
        ..Rules::default()
    };
    let mut names: Vec<_> = judge(&Trace { runs }, &rules)
        .iter()
        .map(|f| f.guarantee)
        .collect();
    names.dedup();
    names
}

fn in_total(runs: Vec<Run>) -> Vec<&'static str> {
    broken("total", runs)
}

const NONE: [&str; 0] = [];
/// What a and b say of a cluster in which c was killed.
const A: &str = "N7:abc V7:abc a1 b1 N8:ab V8:ab a2";

/// The guarantees that the judge finds broken if b's words are these.
fn crimes(order: &str, b: &str) -> Vec<&'static str> {
    broken(order, vec![run("a", "a1 a2", A), run("b", "b1", b)])
}

#[test]
fn the_innocent_are_acquitted() {
    for order in ["total", "fifo", "scoped", "unordered"] {
        assert_eq!(crimes(order, A), NONE);
        // c delivered less than the survivors: it promised nothing.
        let c = killed(run("c", "c1", "N7:abc V7:abc a1"));
        assert_eq!(
            broken(order, vec![run("a", "a1 a2", A), run("b", "b1", A), c]),
            NONE
        );
    }
}

#[test]
fn a_lost_message_breaks_virtual_synchrony() {
    let lost = "N7:abc V7:abc b1 N8:ab V8:ab a2";
    assert_eq!(crimes("total", lost), ["G14", "G22"]);
    assert_eq!(crimes("fifo", lost), ["G14"]);
    // Also if it comes late, in the next view: then it is in two views, too.
    let late = crimes("total", "N7:abc V7:abc b1 N8:ab V8:ab a1 a2");
    assert!(late.contains(&"G14") && late.contains(&"G11"), "{late:?}");
    // Members of the last view are compared when all is quiet, and only then.
    let short = "N7:abc V7:abc a1 b1 N8:ab V8:ab";
    assert_eq!(crimes("total", short), ["G13"]);
    assert_eq!(
        accused(
            vec![run("a", "a1 a2", A), run("b", "b1", short)],
            &Rules::default()
        ),
        NONE
    );
}

#[test]
fn another_order_is_a_crime_in_total_groups_only() {
    let other = "N7:abc V7:abc b1 a1 N8:ab V8:ab a2";
    assert_eq!(crimes("total", other), ["G23", "G22"]);
    assert_eq!(crimes("fifo", other), NONE);
    // Also in the last view, as far as both go.
    let runs = || vec![run("a", "a1", "V1:ab a1 b1"), run("b", "b1 b2", "V1:ab b1 a1 b2")];
    assert_eq!(
        accused(runs(), &Rules::default()),
        ["G22 a#0/ia: delivered a1 (a#1) as number 0 in view 1.1 of g, b#0/ib b1 (b#1)"]
    );
    let backwards = || vec![run("a", "a1 a2", "V1:ab a2 a1"), run("b", "", "V1:ab a2 a1")];
    assert_eq!(broken("fifo", backwards()), ["G19"], "each sender has its order");
}

#[test]
fn a_killed_sequencer_may_have_delivered_in_an_order_that_nobody_learned() {
    let judged = |b, c| {
        in_total(vec![
            killed(run("a", "a1", "V1:abc c1 b1 a1")),
            run("b", "b1", b),
            run("c", "c1", c),
        ])
    };
    let flushed = "V1:abc T:bc b1 c1 V2:bc";
    assert_eq!(judged(flushed, flushed), NONE);
    // Before the notice there is one order, also of what it delivered.
    assert!(judged("V1:abc b1 T:bc c1 V2:bc", flushed).contains(&"G22"));
    assert!(judged("V1:abc T:b b1 c1 V2:bc", flushed) == NONE);
    assert_eq!(judged("V1:abc T:c b1 c1 V2:bc", flushed), ["G17"]);
    assert_eq!(judged("V1:abc T:bc T:bc b1 c1 V2:bc", flushed), ["G17"]);
}

#[test]
fn what_its_sender_had_delivered_before_it_was_told_to_send_comes_first() {
    let runs = |heard: usize| {
        let mut sender = run("a", "a1", "V1:ab b1 a1");
        sender.sent[0].heard = heard;
        vec![sender, run("b", "b1", "V1:ab a1 b1")]
    };
    // Ready, the view, b1: then it was told.
    let broken = |heard| accused(runs(heard), &Rules::default());
    assert!(
        broken(3)
            .iter()
            .any(|line| line.starts_with("G20 b#0/ib: delivered a1"))
    );
    assert!(!broken(2).iter().any(|line| line.starts_with("G20")));
}

#[test]
fn a_duplicate_is_noticed_also_across_views() {
    assert!(in_total(vec![run("a", "a1 a2", "V1:a a1 a2 a1")]).contains(&"G9"));
    let across = in_total(vec![
        run("a", "a1", "V1:ab a1 V2:a a1"),
        killed(run("b", "", "V1:ab")),
    ]);
    assert!(across.contains(&"G9"), "{across:?}");
}

#[test]
fn a_message_nobody_sent_is_noticed() {
    let runs = vec![run("a", "", "V1:ab b1"), run("b", "", "V1:ab b1")];
    assert_eq!(in_total(runs), ["G8"]);
}

#[test]
fn a_gap_in_a_senders_messages_is_noticed_even_if_all_agree_on_it() {
    let runs = || vec![run("a", "a1 a3", "V1:ab a1 a3"), run("b", "", "V1:ab a1 a3")];
    assert_eq!(in_total(runs()), ["G19"]);
    for order in ["scoped", "unordered"] {
        assert_eq!(broken(order, runs()), NONE);
    }
    let back = || vec![run("a", "a1 a2", "V1:a a2 a1")];
    assert_eq!(broken("scoped", back()), ["G34"]);
    // Two are missing: as many are counted.
    let found = judge(
        &Trace {
            runs: vec![run("a", "a1 a4", "V1:a a1 a4")],
        },
        &Rules::default(),
    );
    assert_eq!((found[0].wrong, found[0].count), (Wrong::Lost, 2));
    // A restarted sender counts from one again.
    let runs = vec![
        run("a", "", "V1:ab b1 b2 V2:a V3:ab b1#again"),
        killed(run("b", "b1 b2", "V1:ab b1 b2")),
        run("b", "b1#again", "V3:ab+b b1#again"),
    ];
    assert_eq!(in_total(runs), NONE);
}

#[test]
fn a_message_in_another_view_than_its_own_is_noticed() {
    assert_eq!(in_total(vec![run("a", "a1", "V7:a V8:a a1@7")]), ["G12"]);
    assert_eq!(
        accused(vec![run("a", "a1", "a1 V1:a")], &Rules::default()),
        ["G3 a#0/ia: a1 before the first view of g"]
    );
    let stranger = vec![run("a", "", "V1:a b1"), killed(run("b", "b1", ""))];
    assert_eq!(in_total(stranger), ["G12"]);
}

#[test]
fn a_message_without_a_majority_is_noticed() {
    let runs = vec![run("a", "", "V1:ab S b1 V2:a"), killed(run("b", "b1", "V1:ab"))];
    assert_eq!(in_total(runs), ["suspended"]);
    // That it is back may be printed behind the message, that it is lost not.
    let words = |words| accused(vec![run("a", "a1", words)], &Rules::default());
    assert_eq!(words("N1:ab V1:ab S a1 N2:a"), NONE);
    assert_eq!(words("N1:ab V1:ab S a1").len(), 1);
}

#[test]
fn what_a_group_says_between_the_new_incarnation_and_its_resync_is_the_old_lifes() {
    let judged = |words| accused(vec![run("a", "a1 a2", words)], &Rules::default());
    assert_eq!(judged("N7:ab V7:ab I a1 a2 R"), NONE);
    assert_eq!(
        judged("N7:ab V7:ab I a1 R a2"),
        ["G3 a#0/ia2: a2 before the first view of g"]
    );
}

#[test]
fn a_minority_that_comes_back_begins_a_new_life() {
    let judged = |a| {
        in_total(vec![
            run("a", "a1 a2 x4", a),
            run("b", "b1", "V1:abc a1 b1 V2:bc V3:bca"),
            run("c", "", "V1:abc a1 b1 V2:bc V3:bca"),
        ])
    };
    assert_eq!(judged("V1:abc a1 S !x4 R ?2 V3:bca+a"), NONE);
    // a2 was taken before the cut was noticed, and nobody ever said what became of it.
    assert_eq!(judged("V1:abc a1 S !x4 R V3:bca+a"), ["G10"]);
}

#[test]
fn one_id_with_two_lists_is_noticed() {
    assert_eq!(crimes("total", "N7:abc V7:abc a1 b1 N8:ba V8:ab a2"), ["G4"]);
    let groups = in_total(vec![run("a", "", "V1:ab"), run("b", "", "V1:b")]);
    assert!(groups.contains(&"G4"), "{groups:?}");
}

#[test]
fn a_view_without_oneself_is_noticed() {
    assert!(crimes("total", "N7:abc V7:abc a1 b1 N9:a V8:ab a2").contains(&"G1"));
    assert_eq!(in_total(vec![killed(run("a", "", "V1:b"))]), ["G1"]);
}

#[test]
fn a_false_difference_is_noticed() {
    let mut group = run("a", "", "V1:abc V2:a");
    let mut nodes = run("a", "", "N1:abc N2:a");
    for run in [&mut group, &mut nodes] {
        match &mut run.events[2].1 {
            Event::View(view) => drop(view.crashed.pop()),
            Event::NodeView(view) => drop(view.crashed.pop()),
            _ => unreachable!("the second is a view"),
        }
    }
    assert_eq!(in_total(vec![group]), ["G7"]);
    assert_eq!(in_total(vec![nodes]), ["G7"]);
    let mut unfounded = run("a", "", "N1:ab N2:a");
    if let Event::NodeView(view) = &mut unfounded.events[2].1 {
        view.crashed[0].evidence.clear();
    }
    assert_eq!(in_total(vec![unfounded]), ["G7"]);
}

#[test]
fn a_transitional_set_that_claims_too_much_is_noticed() {
    // b came to V3 from V2, a directly from V1; both claim to have come together.
    let runs = vec![run("a", "", "V1:abc V3:ab"), run("b", "", "V1:abc V2:abc V3:ab")];
    let broken = in_total(runs);
    assert!(broken.contains(&"G15") && broken.contains(&"G16"), "{broken:?}");
}

#[test]
fn a_view_id_that_goes_back_is_noticed() {
    assert!(crimes("total", "N7:abc V7:abc a1 b1 N6:ab V8:ab a2").contains(&"G2"));
    assert!(in_total(vec![run("a", "", "V2:a V1:a")]).contains(&"G2"));
}

#[test]
fn a_skipped_view_is_noticed() {
    assert!(crimes("fifo", "N7:abc V7:abc a1 b1 N9:ab V8:ab a2").contains(&"G18"));
}

#[test]
fn two_primaries_are_noticed() {
    let mut runs = vec![run("a", "a1 a2", A), run("b", "b1", A), run("d", "", "N9:d")];
    runs[2].events[1].0 = Duration::from_millis(600);
    for run in &mut runs {
        run.ended = Some(Duration::from_secs(1));
    }
    let wrong = accused(runs, &Rules::default());
    assert!(
        wrong.iter().any(|line| line.starts_with("G6 two primaries")),
        "{wrong:?}"
    );
    // Of two in a row nobody installed both.
    let wrong = in_total(vec![run("a", "", "N1:ab"), run("c", "", "N2:c")]);
    assert!(wrong.contains(&"G6"), "{wrong:?}");
}

#[test]
fn a_running_node_that_goes_on_believing_is_noticed_and_a_frozen_one_excused() {
    let runs = |frozen: bool| {
        let mut runs = vec![run("a", "a1 a2", A), run("b", "b1", A), run("c", "", "N7:abc")];
        for run in &mut runs {
            run.ended = Some(Duration::from_secs(20));
        }
        if frozen {
            runs[2].frozen.push((Duration::from_secs(1), None));
        }
        accused(runs, &Rules::default())
    };
    assert!(
        runs(false).iter().any(|line| line.starts_with("G6 c#0")),
        "{:?}",
        runs(false)
    );
    assert_eq!(runs(true), NONE);
}

#[test]
fn an_own_message_that_is_undelivered_at_the_end_is_noticed() {
    // Of one that left in order.
    let judged = |words| {
        let dismissed = true;
        accused(
            vec![Run {
                dismissed,
                ..run("a", "a1", words)
            }],
            &Rules::default(),
        )
    };
    assert!(judged("N7:a V7:a L")[0].starts_with("G10"));
    assert_eq!(judged("N7:a V7:a a1 L"), NONE);
    // Of one that runs when all is quiet; not if it was killed, refused it, or said what became of it.
    assert_eq!(in_total(vec![run("a", "a1 a2", "V1:a a1")]), ["G10"]);
    assert_eq!(in_total(vec![killed(run("a", "a1 a2", "V1:a a1"))]), NONE);
    assert_eq!(in_total(vec![run("a", "a1 x2", "V1:a a1 !x2")]), NONE);
    assert_eq!(in_total(vec![run("a", "x0 a1 x2", "V1:a !x0 a1 ?2")]), NONE);
    assert_eq!(in_total(vec![run("a", "x0 a1 x2", "V1:a !x0 a1 ?1")]), ["G10"]);
}

#[test]
fn a_panic_a_line_that_is_no_event_and_words_after_the_end_are_noticed() {
    let mut runs = vec![run("a", "a1 a2", A), run("b", "b1", A)];
    runs[0].garbage.push("hello".into());
    runs[1].log.push("thread 'main' panicked at src/main.rs:1".into());
    assert_eq!(accused(runs, &Rules::default()).len(), 2);
    let wrong = accused(vec![run("a", "", "N7:a L N8:a")], &Rules::default());
    assert_eq!(wrong, ["G7 a#0/ia: said something after it left"]);
}

/// The guarantees that the judge finds broken if a told b two things in view 1, and these were their words.
fn told_crimes(a: &str, b: Run) -> Vec<&'static str> {
    let mut a = run("a", "", a);
    a.told = ["a1", "a2"]
        .map(|what| Tells {
            group: "g".into(),
            to: "b".into(),
            what: what.into(),
            heard: 2,
        })
        .into();
    in_total(vec![a, b])
}

#[test]
fn what_one_member_told_another_comes_once_in_order_or_has_a_receipt() {
    let b = |words| run("b", "", words);
    assert_eq!(told_crimes("V1:ab", b("V1:ab <a1 <a2")), NONE);
    for words in [
        "V1:ab <a1",
        "V1:ab <a2 <a1",
        "V1:ab <a1 <a2 <a2",
        "V1:ab <a1 <a2 <a3",
    ] {
        assert_eq!(told_crimes("V1:ab", b(words)), ["G44"], "{words}");
    }
    // A receipt says that it did not come, and it did, or both were there all the time.
    assert_eq!(told_crimes("V1:ab -2", b("V1:ab <a1 <a2")), ["G44"]);
    assert_eq!(told_crimes("V1:ab -2", b("V1:ab <a1")), ["G44"]);
    assert_eq!(told_crimes("V1:ab V2:a -2", killed(b("V1:ab <a1"))), NONE);
    assert_eq!(told_crimes("V1:ab V2:a -2 -2", killed(b("V1:ab <a1"))), ["G44"]);
}

/// It was to make the call a1, which asks these.
fn calls(asks: &To, run: Run) -> Run {
    let called = vec![Called {
        group: "g".into(),
        to: asks.clone(),
        what: "a1".into(),
        heard: 1,
    }];
    Run { called, ..run }
}

#[test]
fn a_call_runs_nowhere_that_its_caller_was_told_of_and_once_where_it_does() {
    let (any, all) = (To::Word(Word::Any), To::Word(Word::All));
    let of_b = To::Names(vec!["b".into()]);
    let judged = |asks: &To, a, b, c| {
        let a = calls(asks, run("a", "", a));
        in_total(vec![a, run("b", "", b), run("c", "", c)])
    };
    for asks in [&any, &all, &of_b] {
        assert_eq!(judged(asks, "0a1", "", ""), NONE);
        assert_eq!(judged(asks, "0a1", "*a1", ""), ["G49"], "{asks:?}");
        assert_eq!(judged(asks, "0a1:b", "*a1", ""), ["G49"]);
        for a in ["", "%a1", "%a1:b", "0a1:c"] {
            assert_eq!(judged(asks, a, "*a1", ""), NONE);
        }
        assert_eq!(judged(asks, "%a1", "*a1 *a1", ""), ["G49"]);
        // Nobody called it.
        assert_eq!(judged(asks, "", "*c1", ""), ["G49"]);
    }
    assert_eq!(judged(&all, "0a1:c", "*a1", "*a1"), ["G49"]);
    assert_eq!(judged(&all, "*a1 0a1:d", "*a1", "*a1"), NONE);
    assert_eq!(judged(&any, "", "*a1", "*a1"), ["G49"]);
    assert_eq!(judged(&of_b, "", "", "*a1"), ["G49"]);
    // One that was asked and killed ran it, too; the program of an agent is asked for its node.
    for b in [killed(run("b", "", "*a1")), agent("b", "", "W *a1")] {
        let a = calls(&any, run("a", "", "0a1"));
        let found = judge(&Trace { runs: vec![a, b] }, &Rules::default());
        assert_eq!((found[0].wrong, found.len()), (Wrong::Call, 1), "{found:?}");
        assert_eq!(
            found[0].text,
            "b#0: was handed a1 of a in g, which was told that it does not run there"
        );
    }
}

#[test]
fn a_call_is_open_until_its_reply_or_the_end_of_the_connection() {
    let open = |words| {
        let asks = To::Word(Word::Any);
        let run = calls(&asks, agent("a", "", words));
        run.open_calls()
            .map(|called| called.what.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(open("V1:a"), ["a1"]);
    assert_eq!(open("V1:a %a1"), NONE);
    // `heard` is 1: before it was welcome.
    assert_eq!(open("W V1:a"), NONE);
}

/// An agent that said these words, or its program was told them. The numbers of messages have gaps. The
/// program was asked to send when it was welcome.
fn agent(name: &str, sent: &str, words: &str) -> Run {
    let member = |name: &String| format!("{name}/p");
    let all = |names: &[String]| names.iter().map(member).collect::<Vec<_>>();
    let node = run(name, sent, words);
    let mut agent = Run {
        name: name.into(),
        ..Run::default()
    };
    let mut first = true;
    for (at, mut event) in node.events {
        match &mut event {
            Event::View(view) => {
                let before: Vec<String> = minus(&view.members, &view.joined);
                let came = if first { &before } else { &view.transitional };
                *view = View {
                    id: format!("{}.0", view.id),
                    transitional: all(came),
                    members: all(&view.members),
                    joined: all(&view.joined),
                    crashed: all(&view.crashed),
                    ..view.clone()
                };
                first = false;
            }
            Event::Message(message) => {
                message.view += ".0";
                message.sender += "/p";
                message.seq *= 10;
            }
            Event::Transitional { members, .. } => *members = all(members),
            Event::Reply(Reply { welcome: Some(_), .. }) | Event::Resync { .. } => first = true,
            _ => {}
        }
        agent.record(at, event);
    }
    agent.sent = node.sent;
    agent.sent.iter_mut().for_each(|said| said.heard = 2);
    agent
}

/// The guarantees that the judge finds broken if the agents a and b say these words.
fn of_agents(a: (&str, &str), b: (&str, &str)) -> Vec<&'static str> {
    in_total(vec![agent("a", a.0, a.1), agent("b", b.0, b.1)])
}

#[test]
fn programs_of_agents_are_judged_as_nodes_are() {
    const STORY: &str = "W N7:ab V7:ab a1 b1 N8:abc V8:abc a2 b3";
    let crimes = |b| {
        let mut agents = vec![agent("a", "a1 a2", STORY), agent("b", "b1 b3", b)];
        agents.push(killed(agent("c", "", "W V8:abc+c")));
        in_total(agents)
    };
    assert_eq!(crimes(STORY), NONE);
    // A line that is not there, or stands at another place.
    assert_eq!(crimes("W N7:ab V7:ab b1 N8:abc V8:abc a2 b3"), ["G14", "G22"]);
    assert_eq!(crimes("W N7:ab V7:ab a1 b1 N8:abc V8:abc b3"), ["G13", "G22"]);
    assert!(crimes("W N7:ab V7:ab b1 a1 N8:abc V8:abc a2 b3").contains(&"G23"));
    assert!(crimes("W N7:ab V7:ab a1 b1 b1 N8:abc V8:abc a2 b3").contains(&"G9"));
    // Numbers have gaps, and rise.
    assert_eq!(
        of_agents(("a2 a1", "W V1:ab a2 a1"), ("", "W V1:ab a2 a1")),
        ["G19"]
    );
    // A client that comes is told which members were there.
    let mut joiner = agent("b", "", "W V2:ab+b");
    assert_eq!(in_total(vec![agent("a", "", "W V1:a V2:ab"), joiner]), NONE);
    joiner = agent("b", "", "W V2:ab+b");
    for (_, event) in &mut joiner.events {
        if let Event::View(view) = event {
            view.transitional.clear();
        }
    }
    assert_eq!(in_total(vec![agent("a", "", "W V1:a V2:ab"), joiner]), ["G15"]);
}

#[test]
fn a_reply_tells_the_fate_of_what_a_program_said() {
    let alone = |words| in_total(vec![agent("a", "a1", words)]);
    assert_eq!(alone("W V1:a a1 =a1"), NONE);
    assert_eq!(alone("W V1:a ~a1"), NONE);
    assert_eq!(alone("W V1:a"), ["G10"]);
    assert_eq!(alone("W V1:a =a1"), ["G10"]);
    // Others delivered it, while its node was away.
    assert_eq!(alone("W V1:a S R V2:a =a1"), NONE);
    assert_eq!(alone("W V1:a S R V2:a"), ["G10"]);
}

#[test]
fn a_program_is_told_nothing_while_its_group_is_suspended() {
    let judged = |words| in_total(vec![agent("a", "a1", words), killed(agent("b", "b1", "W V1:ab"))]);
    assert_eq!(judged("W V1:ab b1 S V2:a a1"), NONE);
    // A flush completes a view once the majority is back.
    assert_eq!(judged("W V1:ab S T:a b1 V2:a a1"), NONE);
    for words in [
        "W V1:ab S b1 V2:a a1",
        "W V1:ab S b1 T:a V2:a a1",
        "W V1:ab S b1 S V2:a a1",
        "W V1:ab S b1 R V2:a a1",
        "W V1:ab S b1 W V2:a+a a1",
        // What its agent says of the majority comes by another way.
        "N1:ab W V1:ab S N2:a b1 V2:a a1",
    ] {
        assert_eq!(judged(words), ["suspended"], "{words}");
    }
}

#[test]
fn a_program_that_connects_again_is_another_client() {
    let other = ("", "W V1:ab a1 V2:b V3:ba a3");
    assert_eq!(of_agents(("a1 a2 a3", "W V1:ab a1 W V3:ba+a a3"), other), NONE);
    let missed = of_agents(("a1 a2 a3", "W V1:ab a1 V3:ba a3"), other);
    assert!(missed.contains(&"G16"), "{missed:?}");
    let early = vec![agent("a", "a1 a2", "W V1:a a1 W a2")];
    assert_eq!(in_total(early), ["G3"]);
}

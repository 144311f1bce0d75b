//! The judge must notice each kind of crime, and must not accuse the innocent.

use super::*;

/// A process that said these lines, one every 100 ms.
fn run(name: &str, start: usize, sent: &[&str], lines: &[String]) -> Run {
    let mut run = Run {
        name: name.into(),
        start,
        ..Run::default()
    };
    run.sent = sent
        .iter()
        .map(|payload| ("g".into(), (*payload).into()))
        .collect();
    for (at, line) in lines.iter().enumerate() {
        let event = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        run.record(Duration::from_millis(100 * at as u64), event);
    }
    run
}

fn ready(name: &str) -> String {
    format!(r#"{{"event":"ready","name":"{name}","addr":"127.0.0.1:1","incarnation":"i{name}"}}"#)
}

fn list(names: &str) -> String {
    let names: Vec<_> = names.chars().map(|name| format!("\"{name}\"")).collect();
    format!("[{}]", names.join(","))
}

/// A primary node view of members with one-letter names.
fn node_view(id: u64, members: &str, joined: &str, crashed: &str) -> String {
    let member = |c| format!(r#"{{"name":"{c}","incarnation":"i{c}","addr":"127.0.0.1:1","metadata":{{}}}}"#);
    let members: Vec<_> = members.chars().map(member).collect();
    let crash = |c| format!(r#"{{"name":"{c}","accusers":["a"],"evidence":"its process ended"}}"#);
    let crashed: Vec<_> = crashed.chars().map(crash).collect();
    format!(
        r#"{{"event":"node_view","id":{id},"members":[{}],"joined":{},"left":[],"crashed":[{}],"primary":true}}"#,
        members.join(","),
        list(joined),
        crashed.join(",")
    )
}

fn view(id: &str, members: &str, joined: &str, crashed: &str) -> String {
    format!(
        r#"{{"event":"view","group":"g","id":"{id}","members":{},"joined":{},"left":[],"crashed":{},"transitional":[],"primary":true}}"#,
        list(members),
        list(joined),
        list(crashed)
    )
}

fn message(view: &str, sender: &str, seq: u64, payload: &str) -> String {
    format!(
        r#"{{"event":"message","group":"g","view":"{view}","sender":"{sender}","seq":{seq},"payload":"{payload}"}}"#
    )
}

/// Two nodes that see two views and two messages in the first.
fn innocent() -> Trace {
    let lines = |name: &str| {
        vec![
            ready(name),
            node_view(7, "abc", "abc", ""),
            view("7.1", "abc", "abc", ""),
            message("7.1", "a", 1, "x"),
            message("7.1", "b", 1, "y"),
            node_view(8, "ab", "", "c"),
            view("8.1", "ab", "", "c"),
            message("8.1", "a", 2, "z"),
        ]
    };
    Trace {
        runs: vec![
            run("a", 0, &["x", "z"], &lines("a")),
            run("b", 0, &["y"], &lines("b")),
        ],
    }
}

/// The guarantees that the judge finds broken once b's story is changed.
fn crimes(order: &str, change: impl FnOnce(&mut Vec<String>)) -> Vec<String> {
    let mut lines = vec![
        ready("b"),
        node_view(7, "abc", "abc", ""),
        view("7.1", "abc", "abc", ""),
        message("7.1", "a", 1, "x"),
        message("7.1", "b", 1, "y"),
        node_view(8, "ab", "", "c"),
        view("8.1", "ab", "", "c"),
        message("8.1", "a", 2, "z"),
    ];
    change(&mut lines);
    let mut trace = innocent();
    trace.runs[1] = run("b", 0, &["y"], &lines);
    let mut names: Vec<String> = judge(&trace, order, &Rules::default())
        .iter()
        .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
        .collect();
    names.dedup();
    names
}

#[test]
fn the_innocent_are_acquitted() {
    assert_eq!(
        judge(&innocent(), "total", &Rules::default()),
        Vec::<String>::new()
    );
    assert_eq!(
        judge(&innocent(), "fifo", &Rules::default()),
        Vec::<String>::new()
    );
}

#[test]
fn a_lost_message_breaks_virtual_synchrony() {
    assert_eq!(crimes("total", |b| drop(b.remove(4))), ["G14"]);
    assert_eq!(crimes("fifo", |b| drop(b.remove(4))), ["G14"]);
}

#[test]
fn another_order_is_a_crime_in_total_groups_only() {
    assert_eq!(crimes("total", |b| b.swap(3, 4)), ["G14"]);
    assert_eq!(crimes("fifo", |b| b.swap(3, 4)), Vec::<String>::new());
}

#[test]
fn a_duplicate_is_noticed() {
    let twice = crimes("total", |b| b.insert(4, b[3].clone()));
    assert!(twice.contains(&"G9".to_owned()), "{twice:?}");
}

#[test]
fn a_message_nobody_sent_is_noticed() {
    let forged = crimes("total", |b| b.push(message("8.1", "a", 3, "forged")));
    assert_eq!(forged, ["G8"]);
}

#[test]
fn a_gap_in_a_senders_messages_is_noticed() {
    assert_eq!(crimes("total", |b| b[7] = message("8.1", "a", 3, "z")), ["G19"]);
    let unordered = crimes("unordered", |b| b[7] = message("8.1", "a", 3, "z"));
    assert_eq!(unordered, Vec::<String>::new());
    let scoped = crimes("scoped", |b| b[7] = message("8.1", "a", 3, "z"));
    assert_eq!(scoped, Vec::<String>::new());
    let back = crimes("scoped", |b| b[7] = message("8.1", "a", 1, "z"));
    assert_eq!(back, ["G34"]);
}

#[test]
fn a_message_in_another_view_than_its_own_is_noticed() {
    assert_eq!(crimes("total", |b| b[7] = message("7.1", "a", 2, "z")), ["G12"]);
    assert_eq!(crimes("total", |b| drop(b.remove(2))), ["G3"]);
}

#[test]
fn what_a_group_says_between_the_new_incarnation_and_its_resync_is_the_old_lifes() {
    let trace = |resync: usize| {
        let mut lines = vec![
            ready("a"),
            node_view(7, "ab", "ab", ""),
            view("7.1", "ab", "ab", ""),
            r#"{"event":"incarnation","incarnation":"i2"}"#.to_owned(),
            message("7.1", "a", 1, "x"),
            message("7.1", "a", 2, "y"),
        ];
        lines.insert(
            resync,
            r#"{"event":"resync","group":"g","cause":"removed"}"#.to_owned(),
        );
        Trace {
            runs: vec![run("a", 0, &["x", "y"], &lines)],
        }
    };
    let accused = |trace: Trace| judge(&trace, "total", &Rules::default());
    assert_eq!(accused(trace(6)), Vec::<String>::new());
    let wrong = accused(trace(5));
    assert!(
        matches!(&wrong[..], [one] if one == "G3 a#0/i2: y before the first view of g"),
        "{wrong:?}"
    );
}

#[test]
fn one_id_with_two_lists_is_noticed() {
    let split = crimes("total", |b| b[5] = node_view(8, "ba", "", "c"));
    assert_eq!(split, ["G4"]);
}

#[test]
fn a_view_without_oneself_and_a_false_difference_are_noticed() {
    let absent = crimes("total", |b| b[5] = node_view(9, "a", "", "c"));
    assert!(
        absent.contains(&"G1".to_owned()) && absent.contains(&"G7".to_owned()),
        "{absent:?}"
    );
}

#[test]
fn a_view_id_that_goes_back_is_noticed() {
    let back = crimes("total", |b| b[5] = node_view(6, "ab", "", "c"));
    assert!(back.contains(&"G2".to_owned()), "{back:?}");
}

#[test]
fn a_skipped_view_is_noticed() {
    let skipped = crimes("total", |b| {
        b.truncate(5);
        b.push(node_view(9, "ab", "", "c"));
    });
    assert!(skipped.contains(&"G18".to_owned()), "{skipped:?}");
}

#[test]
fn two_primaries_at_one_time_are_noticed() {
    let lone = vec![ready("d"), node_view(9, "d", "d", "")];
    let mut trace = innocent();
    trace.runs.push(run("d", 0, &[], &lone));
    trace.runs[2].events[1].0 = Duration::from_millis(600);
    for run in &mut trace.runs {
        run.ended = Some(Duration::from_secs(1));
    }
    let wrong = judge(&trace, "total", &Rules::default());
    assert!(
        wrong.iter().any(|line| line.starts_with("G6 two primaries")),
        "{wrong:?}"
    );
}

#[test]
fn a_running_node_that_goes_on_believing_is_noticed_and_a_frozen_one_excused() {
    let mut trace = innocent();
    let stale = vec![ready("c"), node_view(7, "abc", "abc", "")];
    trace.runs.push(run("c", 0, &[], &stale));
    for run in &mut trace.runs {
        run.ended = Some(Duration::from_secs(20));
    }
    let wrong = judge(&trace, "total", &Rules::default());
    assert!(wrong.iter().any(|line| line.starts_with("G6 c#0")), "{wrong:?}");
    trace.runs[2].frozen.push((Duration::from_secs(1), None));
    assert_eq!(judge(&trace, "total", &Rules::default()), Vec::<String>::new());
}

#[test]
fn who_leaves_in_order_with_a_message_undelivered_is_noticed() {
    let mut lines = vec![
        ready("a"),
        node_view(7, "a", "a", ""),
        view("7.1", "a", "a", ""),
        r#"{"event":"left"}"#.into(),
    ];
    let judged = |lines: &[String]| {
        let mut run = run("a", 0, &["x"], lines);
        run.dismissed = true;
        judge(&Trace { runs: vec![run] }, "total", &Rules::default())
    };
    assert!(
        judged(&lines).iter().any(|line| line.starts_with("G10")),
        "{:?}",
        judged(&lines)
    );
    lines.insert(3, message("7.1", "a", 1, "x"));
    assert_eq!(judged(&lines), Vec::<String>::new());
}

#[test]
fn a_panic_or_a_line_that_is_no_event_is_noticed() {
    let mut trace = innocent();
    trace.runs[0].garbage.push("hello".into());
    trace.runs[1]
        .log
        .push("thread 'main' panicked at src/main.rs:1".into());
    assert_eq!(judge(&trace, "total", &Rules::default()).len(), 2);
}

//! Stories about those who ask: what they are told, and that nothing changes by it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use antiphon_core::inspection::State;
use antiphon_core::wire::Evidence;
use antiphon_core::wire::enquiry::Answer;
use antiphon_core::{Config, EngineKind, Enquirer, Event, GroupOptions, Order, Told, WhyEntry};

use super::cluster::{Cluster, addr};
use super::{SOON, formed, grouped};

/// Where nobody is.
fn elsewhere() -> SocketAddr {
    addr(200)
}

fn newcomer(name: &str, seeds: usize) -> Config {
    let mut config = Config::new("story", name, elsewhere());
    config.seeds = (1..=seeds).map(addr).collect();
    config
}

fn enquirer(config: &Config, groups: &[(String, GroupOptions)]) -> Enquirer {
    // Each is somebody else: what one has said, another may not repeat.
    static NEXT: AtomicU64 = AtomicU64::new(1000);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    Enquirer::new(config, groups, [next, 8, 9], vec![elsewhere()]).expect("a valid configuration")
}

/// Asks a host, and gives what it answers.
fn ask(cluster: &mut Cluster, host: usize, enquirer: &mut Enquirer) -> Answer {
    cluster.strays.clear();
    let question = enquirer.question(host as u16);
    cluster.hear(host, elsewhere(), question);
    let mut answers = Vec::new();
    for (to, frame) in std::mem::take(&mut cluster.strays) {
        assert_eq!(to, elsewhere());
        answers.extend(enquirer.open(frame).expect("a frame of this cluster"));
    }
    let [(number, answer)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(usize::from(*number), host);
    match answer {
        Told::Node(answer) => (**answer).clone(),
        other => panic!("a node answers as a locator: {other:?}"),
    }
}

#[test]
fn a_cluster_that_is_asked_by_a_thousand_remembers_none_of_them() {
    let mut cluster = Cluster::start(3);
    let hosts = [1, 2, 3];
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &hosts)));
    cluster.run_for(Duration::from_secs(1));
    let before = hosts.map(|host| cluster.log(host).events.len());
    for number in 0..1000 {
        let mut enquirer = enquirer(&newcomer(&format!("new-{number}"), 3), &[]);
        let host = hosts[number % 3];
        let answer = ask(&mut cluster, host, &mut enquirer);
        assert_eq!(answer.node.name, format!("n{host}"));
        assert_eq!(
            (answer.members, answer.present, &answer.objection),
            (3, false, &None)
        );
        assert!(answer.standing.expect("a view").primary);
        assert!(answer.coordinator.is_some());
        cluster.run_for(Duration::from_millis(25));
    }
    cluster.run_for(Duration::from_secs(5));
    assert_eq!(
        hosts.map(|host| cluster.log(host).events.len()),
        before,
        "nothing happened by it"
    );
    assert!(cluster.strays.is_empty(), "nobody speaks to who asked");
    for host in hosts {
        let State::Seated(seated) = cluster.inspect(host).state else {
            panic!("no member any more");
        };
        assert!(seated.joining.is_empty() && seated.doubts.is_empty());
    }
}

#[test]
fn many_questions_get_few_answers_and_no_address_two() {
    let mut cluster = Cluster::start(2);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2])));
    let flood = |cluster: &mut Cluster, first: u64, answer_to: Vec<SocketAddr>| {
        cluster.strays.clear();
        for number in first..first + 500 {
            let newcomer = newcomer("new", 2);
            let mut enquirer =
                Enquirer::new(&newcomer, &[], [9, number, 9], answer_to.clone()).expect("valid");
            let question = enquirer.question(1);
            cluster.hear(1, elsewhere(), question);
        }
        cluster.strays.len()
    };
    assert_eq!(flood(&mut cluster, 0, (200..208).map(addr).collect()), 16 * 8);
    cluster.run_for(Duration::from_secs(2));
    assert_eq!(flood(&mut cluster, 500, vec![elsewhere(); 8]), 16);
}

#[test]
fn whoever_forms_is_asked_without_becoming_a_founder_with_those_who_ask() {
    // One of three seeds: with one more that only asks, it must not found.
    let mut cluster = Cluster::start(0);
    cluster.start_host(1, &[1, 2, 3]);
    let mut config = newcomer("n2", 3);
    config.addr = addr(2);
    for _ in 0..50 {
        let answer = ask(&mut cluster, 1, &mut enquirer(&config, &[]));
        assert_eq!((answer.standing, answer.members), (None, 0));
        assert_eq!(answer.missing, [addr(2), addr(3)]);
        cluster.run_for(Duration::from_millis(200));
    }
    let founded = cluster
        .log(1)
        .events
        .iter()
        .any(|event| matches!(event, Event::NodeView(_)));
    assert!(!founded);
    config.seeds.pop();
    let answer = ask(&mut cluster, 1, &mut enquirer(&config, &[]));
    let objection = answer.objection.expect("another seed list");
    assert!(
        objection.reason.contains("another seed list") && !objection.fatal,
        "{objection:?}"
    );
}

#[test]
fn objections_are_those_that_a_joiner_would_hear() {
    let mut cluster = Cluster::start(2);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2])));
    let total = GroupOptions::default();
    let group = [1, 2].map(|host| cluster.join(host, "g", total))[0];
    assert!(cluster.run_until(SOON, |cluster| grouped(cluster, &[1, 2], group)));
    let answer = ask(&mut cluster, 1, &mut enquirer(&newcomer("n2", 2), &[]));
    let reason = answer.objection.expect("the name is taken").reason;
    assert!(
        reason.contains("the name n2 is taken by a live member"),
        "{reason}"
    );
    // A member that asks about itself is one.
    let mut itself = newcomer("n2", 2);
    itself.addr = addr(2);
    let answer = ask(&mut cluster, 1, &mut enquirer(&itself, &[]));
    assert_eq!((answer.present, answer.objection), (true, None));
    let groups = [
        ("g".to_owned(), total.order(Order::Fifo)),
        ("other".to_owned(), total),
    ];
    let answer = ask(&mut cluster, 2, &mut enquirer(&newcomer("n3", 2), &groups));
    let [(name, reason)] = &answer.groups[..] else {
        panic!("{:?}", answer.groups);
    };
    assert!(
        name == "g" && reason.contains("order total") && reason.contains("order fifo"),
        "{reason}"
    );
    let alike = [("g".to_owned(), total)];
    assert!(
        ask(&mut cluster, 2, &mut enquirer(&newcomer("n3", 2), &alike))
            .groups
            .is_empty()
    );
}

#[test]
fn a_joiner_that_is_refused_is_known_to_whoever_refused_it() {
    let mut cluster = Cluster::start_with(2, |host, config| {
        if host == 9 {
            config.name = "n1".to_owned();
        }
    });
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2])));
    cluster.start_host(9, &[1, 2]);
    cluster.run_for(Duration::from_secs(3));
    let refused: Vec<_> = [1, 2]
        .into_iter()
        .flat_map(|host| cluster.why(host, "n1").entries)
        .filter_map(|entry| match entry {
            WhyEntry::Refused {
                addr, reason, times, ..
            } => Some((addr, reason, times)),
            _ => None,
        })
        .collect();
    let [(from, reason, times)] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert_eq!(*from, addr(9));
    assert!(reason.contains("is taken") && *times > 1, "{reason} {times}");
    let said = |host| {
        let entries = cluster.why(host, "n1").entries;
        entries
            .iter()
            .any(|entry| matches!(entry, WhyEntry::Said { primary: true, .. }))
    };
    assert!(said(2) && !said(1), "what a member said is known to the others");
}

#[test]
fn a_member_that_is_silent_is_seen_to_be_doubted_by_each_who_does_not_hear_it() {
    let mut cluster = Cluster::start(3);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    cluster.run_for(Duration::from_secs(1));
    cluster.partition(&[1], &[2, 3]);
    let doubts_two = |cluster: &Cluster| match cluster.inspect(1).state {
        State::Seated(seated) => seated.doubts.len() == 2 && !seated.quorum,
        _ => false,
    };
    assert!(cluster.run_until(SOON, doubts_two));
    let State::Seated(seated) = cluster.inspect(1).state else {
        panic!("a member");
    };
    let me = cluster.inspect(1).incarnation;
    assert!(seated.doubts.iter().all(|doubt| doubt.accuser == me));
    for member in &seated.members {
        assert_eq!(member.last_heard.is_none(), member.incarnation == me);
        assert_eq!(member.said.is_some(), member.incarnation != me);
    }
}

#[test]
fn a_way_that_loses_much_is_told_as_a_bad_edge_and_nobody_is_doubted_for_it() {
    let hosts = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut cluster = Cluster::start_with(8, |_, config| config.engine = EngineKind::Cut);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &hosts)));
    cluster.run_for(Duration::from_secs(1));
    cluster.thin(2, 3);
    let who = |cluster: &Cluster, host| cluster.inspect(host).incarnation;
    let misses = |cluster: &Cluster, host| {
        let State::Seated(seated) = cluster.inspect(host).state else {
            panic!("n{host} is no member");
        };
        assert!(seated.doubts.is_empty(), "{:?}", seated.doubts);
        seated.edges.iter().any(|edge| {
            (edge.observer, edge.subject) == (who(cluster, 3), who(cluster, 2))
                && matches!(edge.evidence, Evidence::Lossy { lost_percent: 50.. })
        })
    };
    // By who misses the frames, and by others that it tells.
    let known = |cluster: &Cluster| [1, 3].into_iter().all(|host| misses(cluster, host));
    assert!(cluster.run_until(Duration::from_secs(20), known));
    for host in [1, 3] {
        let entries = cluster.why(host, "n2").entries;
        let unsuspected =
            |entry: &WhyEntry| matches!(entry, WhyEntry::Member { accusers, .. } if accusers.is_empty());
        assert!(entries.iter().any(unsuspected), "{entries:?}");
    }
    cluster.heal();
    let clear = |cluster: &Cluster| !hosts.into_iter().any(|host| misses(cluster, host));
    assert!(cluster.run_until(Duration::from_secs(20), clear));
}

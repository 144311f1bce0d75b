//! Finding each other while that changes: names, files, multicast and locators.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::*;
use crate::dns::{DnsServer, Mood};
use crate::locator::LocatorProcess;
use crate::{Cluster, Event, Options, Trace};

pub(super) const STORIES: &[Story] = &[
    story!(ten_nodes_that_know_locators_alone_found_one_cluster_in_whatever_order_all_start),
    story!(a_newcomer_waits_while_no_locator_knows_anybody_and_joins_when_one_does).on(Engine::Cut),
    story!(who_restarts_together_with_the_only_locator_founds_nothing_beside_the_member_that_stayed),
    story!(a_node_that_finds_nobody_founds_nothing_until_somebody_says_so),
    story!(a_file_is_followed_while_it_is_edited_and_a_bad_edit_changes_nothing).on(Engine::Coordinator),
    story!(nodes_find_each_other_by_names_that_come_late_change_and_fail).on(Engine::Coordinator),
    story!(hosts_and_ports_come_from_srv_records_with_ipv4_and_ipv6),
    story!(nodes_of_one_host_find_each_other_by_multicast),
    story!(two_that_start_again_and_find_each_other_by_multicast_join_the_member_that_stayed),
    story!(hosts_find_each_other_by_multicast_sealed_with_the_key),
];

/// The port of the locators of a story; each has an address of its own.
const LOCATOR: u16 = 7410;

/// An address of the story's network that is no node's.
fn own(cluster: &Cluster, last: u8) -> IpAddr {
    match cluster.address("n1").ip() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            [a, b, c, last].into()
        }
        IpAddr::V6(_) => unreachable!("these stories are told over IPv4"),
    }
}

fn locator(cluster: &Cluster, number: u8, more: &[&str]) -> LocatorProcess {
    let mut command = cluster.locator(SocketAddr::new(own(cluster, 200 + number), LOCATOR));
    command.args(more);
    LocatorProcess::start(command)
}

fn locators(cluster: &Cluster, count: u8) -> String {
    let all = (1..=count).map(|number| SocketAddr::new(own(cluster, 200 + number), LOCATOR).to_string());
    all.collect::<Vec<_>>().join(",")
}

/// Whether a node says that it waits: for a number of others, or for any cluster.
fn waits(trace: &Trace, name: &str, with: Option<(usize, usize)>) -> bool {
    trace.last(name).said(|event| match event {
        Event::Forming { present, needed, .. } => (*present).zip(*needed) == with,
        _ => false,
    })
}

fn complains(trace: &Trace, name: &str, of: &str) -> bool {
    trace.last(name).said(
        |event| matches!(event, Event::Discovery { problem: Some(problem), .. } if problem.contains(of)),
    )
}

/// A free port of loopback IPv6: stories have no addresses of their own there.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).expect("loopback has IPv6");
    listener.local_addr().expect("it is bound").port()
}

fn ten_nodes_that_know_locators_alone_found_one_cluster_in_whatever_order_all_start(engine: Engine) {
    let names = names(11);
    let names = all(&names);
    let mut cluster = Cluster::on_loopback(1, told_on(engine));
    let locators = locators(&cluster, 2);
    cluster.finds_by(&["--locators", &locators, "--expect", "10"]);
    // Some before any locator is there, one locator between them, one after all.
    cluster.start(&names[..4]);
    let first = locator(&cluster, 1, &[]);
    cluster.start(&names[4..9]);
    cluster.until("nine of ten are known to each other", SOON, |trace| {
        names[..9].iter().all(|name| waits(trace, name, Some((9, 10))))
    });
    let second = locator(&cluster, 2, &[]);
    first.kill();
    cluster.start(&names[9..10]);
    let took = cluster.until_together(&names[..10], SOON);
    println!("together {took:?} after the tenth was started");
    second.until(|line| line["event"] == "node" && line["member"] == true);
    cluster.start(&names[10..]);
    cluster.until_together(&names, SOON);
    assert!(second.stop().success());
    cluster.finish();
}

fn a_newcomer_waits_while_no_locator_knows_anybody_and_joins_when_one_does(engine: Engine) {
    let mut cluster = Cluster::on_loopback(
        1,
        Options {
            keyed: true,
            ..told_on(engine)
        },
    );
    let both = locators(&cluster, 2);
    let state = cluster.file("state", "");
    std::fs::remove_file(&state).expect("it was just written");
    let state = state.display().to_string();
    cluster.finds_by(&["--locators", &both, "--expect", "2"]);
    let one = locator(&cluster, 1, &["--state", &state]);
    let other = locator(&cluster, 2, &[]);
    cluster.start(&["n1", "n2"]);
    cluster.until_together(&["n1", "n2"], SOON);
    for name in ["n1", "n2"] {
        one.until(|line| line["event"] == "node" && line["name"] == name && line["member"] == true);
    }
    other.kill();
    assert!(one.stop().success());
    // A newcomer that no locator answers founds nothing.
    cluster.start(&["n3"]);
    cluster.until("n3 waits", SOON, |trace| waits(trace, "n3", Some((1, 2))));
    cluster.throughout("n3 is in no view", WATCHED, |trace| {
        trace.last("n3").node_view().is_none()
    });
    // One that remembers is enough at once, though nobody has registered with it yet.
    let one = locator(&cluster, 1, &["--state", &state]);
    assert_eq!(one.until(|line| line["event"] == "ready")["restored"], 2);
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    // Killed in the middle of whatever it did, it leaves a whole file; damaged, it is set aside.
    one.until(|line| line["event"] == "node" && line["name"] == "n3");
    one.kill();
    std::fs::write(&state, "antiphon locator 1\ncluster real\nnode ").expect("it can be written");
    let one = locator(&cluster, 1, &["--state", &state]);
    let trouble = one.until(|line| line["event"] == "trouble");
    assert!(trouble["problem"].to_string().contains("damaged"), "{trouble}");
    assert!(std::path::Path::new(&format!("{state}.damaged")).exists());
    // Without state: who is there registers anew.
    for name in ["n1", "n2", "n3"] {
        one.until(|line| line["event"] == "node" && line["name"] == name && line["member"] == true);
    }
    cluster.start(&["n4"]);
    cluster.until_together(&["n1", "n2", "n3", "n4"], SOON);
    cluster.finish();
}

fn who_restarts_together_with_the_only_locator_founds_nothing_beside_the_member_that_stayed(engine: Engine) {
    let mut cluster = Cluster::on_loopback(1, told_on(engine));
    let only = locators(&cluster, 1);
    cluster.finds_by(&["--locators", &only, "--expect", "2"]);
    let mut at = locator(&cluster, 1, &[]);
    cluster.start(&["n1", "n2"]);
    cluster.until_together(&["n1", "n2"], SOON);
    for round in 0..3 {
        cluster.kill("n2");
        at.kill();
        at = locator(&cluster, 1, &[]);
        // These two are as many as are expected, and the locator knows nobody else yet.
        if round == 0 {
            cluster.start(&["n2", "n3"]);
        } else {
            cluster.kill("n3");
            cluster.start(&["n3", "n2"]);
        }
        cluster.until_together(&["n1", "n2", "n3"], SOON);
        cluster.look(|trace| {
            let expelled = |event: &Event| matches!(event, Event::Expelled { .. });
            assert!(!trace.last("n1").said(expelled), "round {round}: it gave way");
        });
    }
    cluster.finish();
}

fn a_node_that_finds_nobody_founds_nothing_until_somebody_says_so(engine: Engine) {
    let mut cluster = Cluster::on_loopback(1, told_on(engine));
    let list = cluster.file("nodes", "");
    let source = format!("file:{}", list.display());
    cluster.finds_by(&["--seeds", &source]);
    cluster.start(&["n1", "n2"]);
    cluster.until("both wait for a cluster to join", SOON, |trace| {
        ["n1", "n2"].iter().all(|name| waits(trace, name, None))
    });
    cluster.until("the empty file is complained of", SOON, |trace| {
        complains(trace, "n1", "names no node")
    });
    let addresses = ["n1", "n2", "n3"].map(|name| cluster.address(name).to_string());
    cluster.file("nodes", &addresses.join("\n"));
    cluster.throughout("nobody founds", WATCHED, |trace| {
        ["n1", "n2"]
            .iter()
            .all(|name| trace.last(name).node_view().is_none())
    });
    cluster.start_with("n3", &["--found"]);
    cluster.until("n3 says that it founds alone", SOON, |trace| {
        trace
            .last("n3")
            .said(|event| matches!(event, Event::FoundedAlone { reason } if reason.contains("--found")))
    });
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    cluster.finish();
}

fn a_file_is_followed_while_it_is_edited_and_a_bad_edit_changes_nothing(engine: Engine) {
    let mut cluster = Cluster::on_loopback(1, told_on(engine));
    let address = |cluster: &Cluster, name: &str| cluster.address(name).to_string();
    let path = cluster.file("nodes", "");
    std::fs::remove_file(&path).expect("it was just written");
    let source = format!("file:{}", path.display());
    cluster.finds_by(&["--seeds", &source, "--expect", "2"]);
    cluster.start(&["n1", "n2"]);
    cluster.until("a file that is not there is complained of", SOON, |trace| {
        complains(trace, "n1", "cannot be read")
    });
    let list = format!(
        "# the first\n{}\n{} # and another\n",
        address(&cluster, "n1"),
        address(&cluster, "n2")
    );
    cluster.file("nodes", &list);
    cluster.until_together(&["n1", "n2"], SOON);
    // One who was found by the other may not have read it yet.
    cluster.until("n1 has read the file too", SOON, |trace| {
        trace
            .last("n1")
            .said(|event| matches!(event, Event::Discovery { found, problem: None, .. } if found.len() == 2))
    });
    // Nobody is thrown out or cut off by what a file says.
    cluster.file("nodes", "10.0.0.1:99999\n");
    cluster.start(&["n3"]);
    cluster.until("the bad line is named, and what stays in use", SOON, |trace| {
        complains(trace, "n1", "line 1")
            && complains(trace, "n1", "last good list")
            && complains(trace, "n3", "line 1")
    });
    cluster.throughout("all stay as they are", WATCHED, |trace| {
        trace.together(&["n1", "n2"]) && trace.last("n3").node_view().is_none()
    });
    // Replaced as editors do: another file under the same name.
    let new = cluster.file("nodes.new", &list);
    std::fs::rename(new, &path).expect("both are in one folder");
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    cluster.finish();
}

fn nodes_find_each_other_by_names_that_come_late_change_and_fail(engine: Engine) {
    let mut cluster = Cluster::on_loopback(1, told_on(engine));
    let dns = DnsServer::start(own(&cluster, 253));
    let server = dns.addr().to_string();
    cluster.finds_by(&[
        "--seeds",
        "dns:nodes.test:7400",
        "--dns-server",
        &server,
        "--expect",
        "3",
    ]);
    let ip = |cluster: &Cluster, name: &str| cluster.address(name).ip();
    dns.mood(Mood::Silent);
    cluster.start(&["n1", "n2"]);
    cluster.until("silence is complained of", SOON * 2, |trace| {
        complains(trace, "n1", "nodes.test")
    });
    dns.mood(Mood::Answers);
    cluster.until("a name that is not there is complained of", SOON * 2, |trace| {
        complains(trace, "n1", "NXDOMAIN")
    });
    // Each is told of another one only, and of an address where nobody is.
    dns.addresses("nodes.test", &[ip(&cluster, "n2"), own(&cluster, 77)]);
    cluster.until("n1 and n2 see each other", SOON * 2, |trace| {
        waits(trace, "n1", Some((2, 3)))
    });
    cluster.start(&["n3"]);
    cluster.until_together(&["n1", "n2", "n3"], SOON * 2);
    // The name fails; the cluster does not care, and a newcomer waits.
    dns.mood(Mood::Fails);
    cluster.start(&["n4"]);
    cluster.until("the failure is complained of", SOON * 2, |trace| {
        complains(trace, "n4", "nodes.test")
    });
    cluster.throughout("all stay as they are", WATCHED, |trace| {
        trace.together(&["n1", "n2", "n3"]) && trace.last("n4").node_view().is_none()
    });
    dns.mood(Mood::Answers);
    dns.addresses("nodes.test", &[ip(&cluster, "n3")]);
    cluster.until_together(&["n1", "n2", "n3", "n4"], SOON * 2);
    let founded = |event: &Event| matches!(event, Event::FoundedAlone { .. });
    assert!(cluster.look(|trace| !trace.last("n4").said(founded)));
    cluster.finish();
}

fn hosts_and_ports_come_from_srv_records_with_ipv4_and_ipv6(engine: Engine) {
    let mut cluster = Cluster::on_loopback(1, told_on(engine));
    let dns = DnsServer::start(own(&cluster, 253));
    let server = dns.addr().to_string();
    let port = free_port();
    let bind = format!("[::1]:{port}");
    dns.addresses("one.test", &[cluster.address("n1").ip()]);
    dns.addresses("six.test", &[Ipv6Addr::LOCALHOST.into()]);
    let of = cluster.address("n1").port();
    let (one, six, gone) = (("one.test", of), ("six.test", port), ("gone.test", 1));
    dns.service("_antiphon._tcp.test", &[one, six, gone]);
    cluster.finds_by(&[
        "--seeds",
        "srv:_antiphon._tcp.test",
        "--dns-server",
        &server,
        "--expect",
        "3",
    ]);
    cluster.start(&["n1", "n2"]);
    let mut third = cluster.bare_command("n3");
    third.args(["--bind", &bind]);
    cluster.start_command("n3", third);
    cluster.until_together(&["n1", "n2", "n3"], SOON * 2);
    cluster.look(|trace| {
        let view = trace.last("n1").node_view().expect("it is in one");
        assert!(view.members.iter().any(|member| member.addr == bind), "{view:?}");
    });
    // What can be found is used, and what cannot is named.
    cluster.until("the host without an address is complained of", SOON, |trace| {
        complains(trace, "n1", "gone.test")
    });
    cluster.finish();
}

fn nodes_of_one_host_find_each_other_by_multicast(engine: Engine) {
    let mut cluster = Cluster::on_loopback(1, told_on(engine));
    cluster.finds_by(&["--seeds", "multicast@127.0.0.1", "--expect", "3"]);
    cluster.start(&["n1", "n2", "n3"]);
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    cluster.start(&["n4"]);
    cluster.until_together(&["n1", "n2", "n3", "n4"], SOON);
    cluster.look(|trace| {
        for name in ["n1", "n2", "n3", "n4"] {
            let found = |event: &Event| matches!(event, Event::Discovery { source, found, .. } if source == "multicast@127.0.0.1" && !found.is_empty());
            assert!(trace.last(name).said(found), "{name}");
        }
    });
    cluster.finish();
}

fn two_that_start_again_and_find_each_other_by_multicast_join_the_member_that_stayed(engine: Engine) {
    let options = Options {
        keyed: true,
        ..told_on(engine)
    };
    let mut cluster = Cluster::on_loopback(1, options);
    cluster.finds_by(&["--seeds", "multicast@127.0.0.1", "--expect", "2"]);
    cluster.start(&["n1", "n2", "n3"]);
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    for round in 0..3 {
        cluster.kill("n2");
        cluster.kill("n3");
        cluster.until_together(&["n1"], SOON);
        // They are as many as are expected, and hear each other before the member that stayed has answered.
        cluster.start(&["n2", "n3"]);
        let took = cluster.until_together(&["n1", "n2", "n3"], SOON);
        println!("together {took:?} after two were started again");
        cluster.look(|trace| {
            let gave_way = |event: &Event| matches!(event, Event::Expelled { .. } | Event::Merge { .. });
            assert!(!trace.last("n1").said(gave_way), "round {round}: it gave way");
        });
    }
    cluster.finish();
}

fn hosts_find_each_other_by_multicast_sealed_with_the_key(engine: Engine) {
    let options = Options {
        keyed: true,
        ..told_on(engine)
    };
    for (links, source) in [(1, "multicast"), (2, "multicast:[ff15::7402]:7402@eth1")] {
        let Some(mut cluster) = Cluster::on_hosts_with_links(3, links, options.clone()) else {
            return;
        };
        cluster.finds_by(&["--seeds", source, "--expect", "3"]);
        cluster.start(&["n1", "n2", "n3"]);
        cluster.until_together(&["n1", "n2", "n3"], SOON * 2);
        cluster.finish();
    }
}

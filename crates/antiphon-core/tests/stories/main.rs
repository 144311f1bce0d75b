//! Stories about whole nodes: a cluster forms, orders, loses members and goes on.

mod cluster;
mod enquiries;
mod probes;
mod witness;

use std::time::Duration;

use antiphon_core::wire::Incarnation;
use antiphon_core::wire::frame::{FrameCodec, Kind, OpenError};
use antiphon_core::{
    Config, ConfigError, Event, GroupEvent, GroupOptions, Node, Order, Profile, SendError, Time,
};
use bytes::Bytes;
use cluster::{Cluster, addr};

const SOON: Duration = Duration::from_secs(5);

fn formed(cluster: &Cluster, hosts: &[usize]) -> bool {
    hosts.iter().all(|host| {
        let (names, primary) = cluster.log(*host).view();
        primary && names.len() == hosts.len() && cluster.log(*host).view().0 == cluster.log(hosts[0]).view().0
    })
}

fn grouped(cluster: &Cluster, hosts: &[usize], group: antiphon_core::GroupHandle) -> bool {
    hosts.iter().all(|host| {
        cluster
            .log(*host)
            .group_view(group)
            .is_some_and(|view| view.members.len() == hosts.len())
    })
}

#[test]
fn five_nodes_started_at_once_form_one_cluster_within_a_second() {
    let mut cluster = Cluster::start(5);
    assert!(cluster.run_until(Duration::from_secs(1), |cluster| formed(
        cluster,
        &[1, 2, 3, 4, 5]
    )));
}

#[test]
fn messages_of_all_are_delivered_by_all_in_one_order() {
    let mut cluster = Cluster::start(3);
    let hosts = [1, 2, 3];
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &hosts)));
    let group = hosts.map(|host| cluster.join(host, "orders", GroupOptions::default()))[0];
    assert!(cluster.run_until(SOON, |cluster| grouped(cluster, &hosts, group)));
    for i in 0..100 {
        for host in hosts {
            cluster.send(host, group, &format!("{host}:{i}")).unwrap();
        }
        cluster.run_for(Duration::from_micros(150));
    }
    let all = |cluster: &Cluster| {
        hosts
            .iter()
            .all(|host| cluster.log(*host).messages(group).len() == 300)
    };
    assert!(cluster.run_until(SOON, all));
    let order = cluster.log(1).payloads(group);
    assert_eq!(cluster.log(2).payloads(group), order);
    assert_eq!(cluster.log(3).payloads(group), order);
}

#[test]
fn the_elder_is_killed_and_the_others_go_on_within_a_tenth_of_a_second() {
    let mut cluster = Cluster::start(3);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    let group = [1, 2, 3].map(|host| cluster.join(host, "g", GroupOptions::default()))[0];
    assert!(cluster.run_until(SOON, |cluster| grouped(cluster, &[1, 2, 3], group)));
    let elder: usize = cluster.log(1).view().0[0][1..].parse().unwrap();
    let others: Vec<usize> = (1..=3).filter(|host| *host != elder).collect();
    cluster.kill(elder);
    assert!(
        cluster.run_until(Duration::from_millis(100), |cluster| formed(cluster, &others)
            && grouped(cluster, &others, group))
    );
}

#[test]
fn hosts_that_are_frozen_at_any_step_of_a_flush_remove_nobody_for_it() {
    for step in 0..30 {
        let mut cluster = Cluster::start(5);
        let all = [1, 2, 3, 4, 5];
        assert!(cluster.run_until(SOON, |cluster| formed(cluster, &all)));
        let group = all.map(|host| cluster.join(host, "g", GroupOptions::default()))[0];
        assert!(cluster.run_until(SOON, |cluster| grouped(cluster, &all, group)));
        cluster.send(1, group, "before").unwrap();
        cluster.kill(5);
        cluster.run_for(Duration::from_micros(100) * step);
        cluster.freeze(Duration::from_secs(7));
        cluster.freeze(Duration::from_secs(7));
        let others = [1, 2, 3, 4];
        assert!(
            cluster.run_until(SOON, |cluster| grouped(cluster, &others, group)),
            "step {step}"
        );
        for host in others {
            let events = &cluster.log(host).events;
            let expelled = |event: &Event| matches!(event, Event::Expelled { .. });
            assert!(!events.iter().any(expelled), "step {step}, host {host}");
            let resync = |event: &GroupEvent| matches!(event, GroupEvent::Resync { .. });
            assert!(
                !cluster.log(host).group_events(group).any(resync),
                "step {step}, host {host}"
            );
        }
    }
}

#[test]
fn three_shrink_to_one_by_kills_and_stay_primary() {
    let mut cluster = Cluster::start(3);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    cluster.kill(1);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[2, 3])));
    cluster.kill(2);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[3])));
}

#[test]
fn the_minority_of_a_cut_cluster_is_not_primary_and_comes_back_with_a_resync() {
    let mut cluster = Cluster::start(5);
    let hosts = [1, 2, 3, 4, 5];
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &hosts)));
    let options = GroupOptions::default().order(Order::Total);
    let group = hosts.map(|host| cluster.join(host, "g", options))[0];
    assert!(cluster.run_until(SOON, |cluster| grouped(cluster, &hosts, group)));
    cluster.partition(&[1, 2], &[3, 4, 5]);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[3, 4, 5])));
    assert!(cluster.run_until(SOON, |cluster| !cluster.log(1).view().1
        && !cluster.log(2).view().1));
    assert_eq!(cluster.send(1, group, "lost?"), Err(SendError::NotPrimary));
    cluster.send(3, group, "the primary goes on").unwrap();
    cluster.run_for(Duration::from_secs(20));
    assert!(!cluster.log(1).view().1, "no timeout promotes a minority");
    cluster.heal();
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &hosts)
        && grouped(cluster, &hosts, group)));
    for host in [1, 2] {
        let resynced = |event: &GroupEvent| matches!(event, GroupEvent::Resync { .. });
        assert!(cluster.log(host).group_events(group).any(resynced));
    }
}

#[test]
fn a_restarted_node_supersedes_its_old_incarnation_at_once() {
    let mut cluster = Cluster::start(3);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    cluster.kill(2);
    cluster.start_host(2, &[1, 2, 3]);
    assert!(cluster.run_until(Duration::from_secs(1), |cluster| formed(cluster, &[1, 2, 3])));
}

#[test]
fn a_node_that_leaves_is_gone_at_once_and_not_called_crashed() {
    let mut cluster = Cluster::start(3);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    let group = [1, 2, 3].map(|host| cluster.join(host, "g", GroupOptions::default()))[0];
    assert!(cluster.run_until(SOON, |cluster| grouped(cluster, &[1, 2, 3], group)));
    cluster.send(2, group, "last words").unwrap();
    cluster.leave(2);
    assert!(cluster.run_until(Duration::from_millis(500), |cluster| formed(cluster, &[1, 3])));
    assert!(
        cluster
            .log(2)
            .events
            .iter()
            .any(|event| matches!(event, Event::Left))
    );
    assert_eq!(cluster.log(1).payloads(group), ["last words"]);
    assert_eq!(cluster.log(3).payloads(group), ["last words"]);
}

/// What anybody can write: the header of a frame sent to all, of nobody, with a tag that is none.
fn forged(kind: Kind) -> Bytes {
    let mut frame = FrameCodec::new("c", None, Incarnation(99))
        .seal(kind, b"")
        .to_vec();
    *frame.last_mut().expect("a tag") ^= 1;
    frame.into()
}

#[test]
fn a_frame_of_nobody_is_passed_over_by_multicast_only_and_refused_elsewhere() {
    let now = Time::from_micros(1);
    let from = addr(9);
    let mut config = Config::new("c", "n", addr(0));
    config.found = true;
    let mut node = Node::new(config, [1, 2, 3, 4], now).expect("a good configuration");
    let cast = forged(Kind::Multicast);
    assert_eq!(
        node.handle_multicast(now, from, cast.clone()),
        Err(OpenError::Stranger)
    );
    assert_eq!(node.counters().multicasts_of_strangers, 1);
    assert_eq!(node.handle_frame(now, from, cast), Err(OpenError::BadTag));
    // What was recorded elsewhere is nothing to send to all.
    let control = forged(Kind::Control);
    assert_eq!(
        node.handle_multicast(now, from, control),
        Err(OpenError::NotAFrame)
    );
    assert_eq!(node.counters().frames_refused, 2);
}

#[test]
fn a_profile_whose_timers_would_flood_others_or_have_no_end_is_refused() {
    let timers: [fn(&mut Profile) -> &mut Duration; 4] = [
        |profile| &mut profile.heartbeat,
        |profile| &mut profile.suspect_after_loss,
        |profile| &mut profile.retransmit,
        |profile| &mut profile.batch,
    ];
    for timer in timers {
        for time in [Duration::ZERO, Duration::MAX] {
            let mut config = Config::new("c", "n", addr(0));
            config.profile.suspect_after = Duration::from_secs(24 * 3600);
            *timer(&mut config.profile) = time;
            let refused = Node::new(config, [1, 2, 3, 4], Time::from_micros(1));
            assert!(matches!(refused, Err(ConfigError::Conflict { .. })));
        }
    }
    let waits: [fn(&mut Profile) -> &mut Duration; 5] = [
        |profile| &mut profile.suspect_after,
        |profile| &mut profile.unreachable_after,
        |profile| &mut profile.founding_wait,
        |profile| &mut profile.flush_stall,
        |profile| &mut profile.leave_within,
    ];
    for wait in waits {
        let mut config = Config::new("c", "n", addr(0));
        *wait(&mut config.profile) = Duration::MAX;
        let refused = Node::new(config, [1, 2, 3, 4], Time::from_micros(1));
        assert!(matches!(refused, Err(ConfigError::Conflict { .. })));
    }
}

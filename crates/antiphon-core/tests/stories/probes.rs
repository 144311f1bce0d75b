//! Probes: heartbeats that go another way where the usual one is silent.

use std::time::Duration;

use antiphon_core::inspection::State;
use antiphon_core::wire::codec::encode_to_vec;
use antiphon_core::wire::frame::{FrameCodec, Kind, MAX_PROBE_BYTES, OpenError};
use antiphon_core::wire::record::Record;
use antiphon_core::wire::{Cause, Incarnation};
use antiphon_core::{Event, Node};
use bytes::Bytes;

use crate::cluster::{Cluster, addr};
use crate::{SOON, formed};

fn three(configure: fn(usize, &mut antiphon_core::Config)) -> Cluster {
    let mut cluster = Cluster::start_with(3, configure);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    cluster.run_for(Duration::from_secs(2));
    cluster
}

/// What a cluster sends as probes.
fn sent(cluster: &Cluster) -> u64 {
    [1, 2, 3]
        .map(|host| cluster.node(host).counters().probes_sent)
        .iter()
        .sum()
}

#[test]
fn a_cluster_whose_paths_are_well_sends_no_probes() {
    let mut cluster = three(|_, _| {});
    let before = sent(&cluster);
    cluster.run_for(Duration::from_secs(30));
    assert_eq!(sent(&cluster), before);
}

#[test]
fn who_is_heard_by_probes_alone_stays_for_a_while_and_not_for_ever() {
    let mut cluster = three(|_, _| {});
    cluster.probes_pass = true;
    cluster.partition(&[3], &[1, 2]);
    cluster.run_for(Duration::from_secs(9));
    assert!(formed(&cluster, &[1, 2, 3]), "nobody is removed");
    let third = cluster.node(3).incarnation();
    let State::Seated(seated) = cluster.inspect(1).state else {
        panic!("n1 is a member");
    };
    let seen = |who: Incarnation| seated.members.iter().find(|member| member.incarnation == who);
    let third = seen(third).expect("n3 is a member");
    assert!(
        third.by_probes
            && third
                .last_heard
                .is_some_and(|ago| ago < Duration::from_millis(300))
    );
    assert!(
        !seen(cluster.node(2).incarnation())
            .expect("n2 is a member")
            .by_probes
    );
    // What shows life shows no path.
    let paths = cluster.node(1).paths(cluster.now);
    assert!(
        paths
            .iter()
            .any(|path| path.peer == third.incarnation && !path.hears_directly)
    );
    assert!(cluster.run_until(Duration::from_secs(8), |cluster| formed(cluster, &[1, 2])));
    let views = cluster.log(1).events.iter().filter_map(|event| match event {
        Event::NodeView(view) => Some(view.clone()),
        _ => None,
    });
    let gone = &views.last().expect("a view").departed[0];
    assert_eq!((gone.member.name.as_str(), &gone.cause), ("n3", &Cause::Crashed));
    cluster.heal();
    assert!(
        cluster.run_until(Duration::from_secs(20), |cluster| formed(cluster, &[1, 2, 3])
            || cluster.log(3).view().0.len() == 3)
    );
}

#[test]
fn without_probes_the_same_goes_as_soon_as_it_is_silent() {
    let mut cluster = three(|host, config| config.udp_probes = host != 3);
    cluster.probes_pass = true;
    cluster.partition(&[3], &[1, 2]);
    assert!(cluster.run_until(Duration::from_secs(3), |cluster| formed(cluster, &[1, 2])));
    assert_eq!(cluster.node(3).counters().probes_sent, 0);
}

#[test]
fn while_probes_pass_a_lease_is_kept() {
    let mut cluster = three(|_, _| {});
    cluster.probes_pass = true;
    let before = cluster.log(3).events.len();
    cluster.partition(&[3], &[1, 2]);
    cluster.run_for(Duration::from_secs(8));
    let lost = |event: &Event| matches!(event, Event::Lease { held: false });
    assert!(!cluster.log(3).events[before..].iter().any(lost));
}

#[test]
fn a_probe_is_taken_from_members_alone_and_has_nothing_else_in_it() {
    let mut cluster = three(|_, _| {});
    let me = cluster.node(1).incarnation();
    let probe = |to: Incarnation| Record::Probe { to, asks: true };
    let call = Record::MulticastProbe {
        round: 1,
        filler: Bytes::new(),
    };
    // As its own node would seal them, which has sent no probe yet.
    let mut sealer = FrameCodec::new("story", None, cluster.node(2).incarnation());
    let encoded = encode_to_vec(&probe(me));
    let with = |more: &[u8]| [&encoded[..], more].concat();
    let others = [
        ("of another kind", sealer.seal(Kind::Control, &encoded)),
        (
            "with more in it",
            sealer.seal(Kind::Probe, &with(&encode_to_vec(&call))),
        ),
        (
            "too large",
            sealer.seal(Kind::Probe, &with(&[0; MAX_PROBE_BYTES])),
        ),
        (
            "without the record that begins one",
            sealer.seal(Kind::Probe, b""),
        ),
    ];
    let misaddressed = sealer.seal(Kind::Probe, &encode_to_vec(&probe(Incarnation(99))));
    let good = sealer.seal(Kind::Probe, &encoded);
    let now = cluster.now;
    let node = cluster.node_mut(1);
    let stranger = FrameCodec::new("story", None, Incarnation(99)).seal(Kind::Probe, &encoded);
    assert_eq!(node.handle_probe(now, stranger), Err(OpenError::Stranger));
    for (what, frame) in others {
        assert!(node.handle_probe(now, frame).is_err(), "{what}");
    }
    assert_eq!(node.handle_probe(now, misaddressed), Ok(()));
    assert_eq!(node.counters().probes_received, 0);
    assert_eq!(node.counters().probes_refused, 5);
    assert_eq!(
        node.handle_frame(now, addr(2), good.clone()),
        Err(OpenError::NotAFrame),
        "on a stream"
    );
    assert_eq!(node.handle_probe(now, good.clone()), Ok(()));
    assert_eq!(node.handle_probe(now, good), Err(OpenError::Replayed));
    assert_eq!(node.counters().probes_received, 1);
    // It asked, and is answered at once.
    let answered = |node: &mut Node| {
        std::iter::from_fn(|| node.poll_output())
            .filter(|output| matches!(output, antiphon_core::Output::Probe { to, .. } if *to == addr(2)))
            .count()
    };
    assert_eq!(answered(node), 1);
}

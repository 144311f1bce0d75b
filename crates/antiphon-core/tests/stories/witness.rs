//! Stories about witnesses: deaths that no lifeline shows (R10).

use antiphon_core::wire::codec::encode_to_vec;
use antiphon_core::wire::frame::{FrameCodec, Kind};
use antiphon_core::wire::membership::{Certificate, VoteState, VotedIn};
use antiphon_core::wire::record::Record;
use antiphon_core::wire::{Incarnation, NodeView};
use antiphon_core::witness::{Death, Unproven};
use antiphon_core::{ClusterKey, Config, Event};

use crate::cluster::{Cluster, addr};
use crate::{SOON, formed};

const NOBODY: Incarnation = Incarnation(77);

fn key() -> ClusterKey {
    ClusterKey::from_bytes([5; 32])
}

fn witnessed(_: usize, config: &mut Config) {
    config.key = Some(key());
    config.witness = true;
}

/// What the supervisor of this host's process makes of what it left.
fn death(cluster: &Cluster, host: usize) -> Result<Death, Unproven> {
    Death::of(
        "story",
        &key(),
        cluster.last_vote(host),
        Incarnation(70 + host as u128),
    )
}

/// Three of which two vanish: the last is not primary any more.
fn bereft(configure: fn(usize, &mut Config)) -> Cluster {
    let mut cluster = Cluster::start_with(3, configure);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    cluster.vanish(1);
    cluster.vanish(2);
    assert!(cluster.run_until(SOON, |cluster| !cluster.log(3).view().1));
    cluster
}

/// The last primary view of the third.
fn last_primary(cluster: &Cluster) -> NodeView {
    let views = cluster.log(3).events.iter().filter_map(|event| match event {
        Event::NodeView(view) if view.is_primary() => Some((**view).clone()),
        _ => None,
    });
    views.last().expect("a primary view")
}

#[test]
fn the_last_of_three_is_primary_again_once_the_witnesses_of_the_others_were_heard() {
    let mut cluster = bereft(witnessed);
    for host in [2, 1] {
        let mut death = death(&cluster, host).expect("a proof");
        assert!(death.tell().contains(&vec![addr(3)]));
        cluster.hear(3, addr(host), death.frame());
    }
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[3])));
}

#[test]
fn a_certificate_of_one_death_does_not_stand_for_another() {
    let mut cluster = bereft(witnessed);
    let mut death = death(&cluster, 2).expect("a proof");
    for _ in 0..3 {
        cluster.hear(3, addr(2), death.frame());
    }
    cluster.run_for(SOON);
    // Of three, one is dead and one silent: the elder of the two that are left is missing.
    assert!(!cluster.log(3).view().1);
}

#[test]
fn who_can_make_nothing_of_a_death_says_so_and_who_knows_it_or_is_past_it_needs_to_hear_it_no_more() {
    let mut cluster = Cluster::start_with(4, witnessed);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3, 4])));
    cluster.vanish(2);
    let mut death = death(&cluster, 2).expect("a proof");
    // Started again somewhere else, and in no view: whoever tells it that a member died must go on.
    cluster.start_host(5, &[6, 7]);
    cluster.hear(5, addr(2), death.frame());
    assert!(cluster.node(5).made_nothing_of_it());
    for _ in 0..2 {
        cluster.hear(3, addr(2), death.frame());
        assert!(!cluster.node(3).made_nothing_of_it());
    }
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 3, 4])));
    cluster.hear(4, addr(2), death.frame());
    assert!(!cluster.node(4).made_nothing_of_it(), "it was removed");
    // It is said of the last frame.
    cluster.hear(5, addr(2), death.frame());
    assert!(cluster.node(5).made_nothing_of_it());
    cluster.run_for(SOON);
    assert!(!cluster.node(3).made_nothing_of_it());
}

#[test]
fn who_hears_of_its_own_death_is_nobody_any_more() {
    let mut cluster = Cluster::start_with(3, witnessed);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    let mut false_death = death(&cluster, 3).expect("what the living left");
    cluster.hear(3, addr(3), false_death.frame());
    let expelled = |event: &Event| matches!(event, Event::Expelled { cause } if cause.contains("witness"));
    assert!(cluster.log(3).events.iter().any(expelled));
}

#[test]
fn without_a_key_a_witness_is_not_believed() {
    let mut cluster = bereft(|_, _| {});
    let view = last_primary(&cluster);
    let others = view.members.iter().filter(|member| member.name != "n3");
    let dead: Vec<Incarnation> = others.map(|member| member.incarnation).collect();
    let mut codec = FrameCodec::new("story", None, NOBODY);
    for dead in dead {
        let certificate = Certificate {
            dead,
            vote: VoteState {
                view: VotedIn::Whole(Box::new(view.clone())),
                promised: None,
                accepted: None,
            },
        };
        let record = Record::Witnessed(Box::new(certificate));
        cluster.hear(3, addr(1), codec.seal(Kind::Control, &encode_to_vec(&record)));
    }
    cluster.run_for(SOON);
    assert!(!cluster.log(3).view().1);
}

#[test]
fn who_has_left_in_order_has_left_nothing_to_its_witness() {
    let mut cluster = Cluster::start_with(3, witnessed);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 2, 3])));
    assert!(death(&cluster, 2).is_ok());
    cluster.leave(2);
    assert!(cluster.run_until(SOON, |cluster| formed(cluster, &[1, 3])));
    assert!(matches!(death(&cluster, 2), Err(Unproven::Nothing)));
}

#[test]
fn a_witness_without_a_key_is_refused_with_the_settings() {
    let mut config = Config::new("story", "n1", addr(1));
    config.witness = true;
    let refused = antiphon_core::Node::new(config, [1, 2, 3, 4], antiphon_core::Time::ZERO);
    let error = refused.expect_err("refused").to_string();
    assert!(error.contains("key"), "{error}");
}

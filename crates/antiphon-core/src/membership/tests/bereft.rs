//! Stories of components without a quorum under the policy `majority`, told with each engine: this file is
//! two modules.

use antiphon_wire::membership::{MembershipMessage, SlotMessage};

use super::net::{Net, config};
use crate::EngineKind;
use crate::inspection::State;

fn engine() -> EngineKind {
    if module_path!().ends_with("cut") {
        EngineKind::Cut
    } else {
        EngineKind::Coordinator
    }
}

/// The last two of five are cut off, and have agreed that they are.
fn cut_off() -> Net {
    let mut net = Net::formed(5, engine());
    net.partition(&[0, 1, 2], &[3, 4]);
    net.run_ms(10_000);
    assert_settled(&net, &["n3", "n4"], &[3, 4]);
    net
}

/// All of them are in one non-primary view, which has these.
fn assert_settled(net: &Net, names: &[&str], nodes: &[usize]) {
    let view = net.view(nodes[0]).unwrap();
    assert!(!view.is_primary());
    for node in nodes {
        assert_eq!(net.names(*node), names, "{:?}", net.summary());
        assert_eq!(net.view(*node).unwrap(), view, "{:?}", net.summary());
    }
}

#[test]
fn a_coordinator_that_was_stopped_agrees_with_the_one_that_went_on_alone() {
    let mut net = cut_off();
    net.pause(3);
    net.run_ms(4_000);
    assert_settled(&net, &["n4"], &[4]);
    net.resume(3);
    net.run_ms(6_000);
    assert_settled(&net, &["n3", "n4"], &[3, 4]);
    let settled = net.view(3).unwrap();
    net.run_ms(60_000);
    assert_eq!(net.view(3).unwrap(), settled, "and that was it");
}

#[test]
fn who_is_not_heard_by_another_is_in_no_view_with_it() {
    let mut net = cut_off();
    net.cut_one_way(3, 4);
    net.run_ms(10_000);
    assert_settled(&net, &["n3"], &[3]);
    assert_settled(&net, &["n4"], &[4]);
    net.join_up(3, 4);
    net.run_ms(6_000);
    assert_settled(&net, &["n3", "n4"], &[3, 4]);
}

/// It said yes to one proposal, and then to the next one of somebody else, who gave that up.
#[test]
fn a_member_that_agreed_to_a_view_that_never_came_is_gathered_again() {
    let mut net = Net::formed(7, engine());
    net.partition(&[0, 1, 2, 3], &[4, 5, 6]);
    net.run_ms(10_000);
    assert_settled(&net, &["n4", "n5", "n6"], &[4, 5, 6]);
    // The middle one does not hear the first for a while, gathers with the last, and hears it again.
    for quiet in (1_500..3_000).step_by(50) {
        net.cut_one_way(4, 5);
        net.run_ms(quiet);
        net.join_up(4, 5);
        net.run_ms(8_000);
        assert_settled(&net, &["n4", "n5", "n6"], &[4, 5, 6]);
    }
}

/// Of six, the elder was killed, which the junior one of those that are left can prove, and two lost power,
/// in parts that were no quorum: these three are one by that proof.
fn proven_to_one() -> Net {
    let mut net = Net::formed(6, engine());
    net.partition(&[0, 3], &[1]);
    net.partition(&[0, 3], &[2, 4, 5]);
    net.partition(&[1], &[2, 4, 5]);
    net.run_ms(10_000);
    net.kill(0);
    net.power_off(4);
    net.power_off(5);
    net.run_ms(5_000);
    net.switch_off(0);
    net
}

#[test]
fn who_was_not_heard_when_a_death_was_proven_is_told_later() {
    let mut net = proven_to_one();
    net.heal();
    net.run_ms(15_000);
    net.assert_one_view(&[1, 2, 3]);
    assert_eq!(net.names(1), ["n1", "n2", "n3"]);
}

#[test]
fn who_does_not_take_what_it_was_sent_is_told_when_it_has() {
    let mut net = proven_to_one();
    net.crowd(3, &[1, 2]);
    net.heal();
    net.run_ms(15_000);
    assert!(!net.is_primary(1) && !net.is_primary(3), "{:?}", net.summary());
    net.crowd(3, &[]);
    net.run_ms(15_000);
    net.assert_one_view(&[1, 2, 3]);
}

/// Of three the elder was cut off, and the second lost power when the third had accepted the view without the
/// elder, before it heard that. Whether the second had decided that nobody knows; the other two are a
/// majority, and may not decide anything else.
fn left_with_a_vote() -> Net {
    let mut net = Net::formed(3, engine());
    net.partition(&[0], &[1, 2]);
    let is_accepted = |message: &MembershipMessage| {
        let MembershipMessage::Slot { message, .. } = message else {
            return false;
        };
        matches!(message, SlotMessage::Accepted { .. })
    };
    let took = net.run_while_ms(20_000, |net| !net.on_the_way(2, 1).iter().any(is_accepted));
    assert!(took < 20_000, "the third never accepted anything");
    net.power_off(1);
    net.heal();
    net
}

fn has_quorum(net: &Net, node: usize) -> bool {
    let State::Seated(seated) = net.host(node).membership.inspect(net.now).state else {
        panic!("{:?}", net.summary());
    };
    seated.quorum
}

#[test]
fn two_that_hear_a_majority_and_can_decide_nothing_say_that_they_have_none() {
    let mut net = left_with_a_vote();
    net.run_ms(20_000);
    assert_settled(&net, &["n0", "n2"], &[0, 2]);
    for node in [0, 2] {
        assert!(!has_quorum(&net, node), "and an operator is told so");
        let shown = net.host(node).membership.recovery(net.now).unwrap();
        assert!(shown.undecided && !shown.quorum);
        assert!(shown.may_fork(), "the one that is missing may have gone on alone");
    }
    let settled = net.view(0).unwrap();
    net.run_ms(30_000);
    assert_eq!(net.view(2).unwrap(), settled, "and that was it");
}

/// The time in which a node did not run is none in which it heard too few of those whom it needs.
#[test]
fn a_node_that_was_stopped_has_waited_for_nobody_meanwhile() {
    let patience = config(0, 3).profile.unreachable_after.as_millis();
    let waits = |stopped: u64| {
        let mut net = left_with_a_vote();
        net.run_ms(1_000);
        if stopped > 0 {
            net.pause(2);
            net.run_ms(stopped);
            net.resume(2);
        }
        net.run_while_ms(20_000, |net| has_quorum(net, 2))
    };
    let (running, stopped) = (waits(0), waits(600));
    assert!(
        running.abs_diff(stopped) < 300,
        "{running} ms, and {stopped} ms; {patience} ms are waited"
    );
}

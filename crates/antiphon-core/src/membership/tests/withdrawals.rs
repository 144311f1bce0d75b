//! Nodes that leave before they have seen a view: whoever admits them says that they left.

use antiphon_wire::Cause;

use super::net::{Net, config};
use crate::{EngineKind, Event};

const ENGINES: [EngineKind; 2] = [EngineKind::Coordinator, EngineKind::Cut];

/// Nobody was ever said to have crashed but these.
fn assert_nobody_crashed_but(net: &Net, dead: &[&str]) {
    for view in net.primaries.values() {
        for departure in &view.departed {
            let known = dead.contains(&departure.member.name.as_str());
            let text = format!("{} in {}", departure.member.name, view.id);
            assert!(known || departure.cause == Cause::Left, "{text}");
        }
    }
}

fn assert_left(net: &Net, node: usize) {
    assert!(net.host(node).stopped && net.host(node).events.contains(&Event::Left));
}

#[test]
fn a_joiner_that_leaves_at_any_moment_has_left_and_did_not_crash() {
    for engine in ENGINES {
        for step in 0..60 {
            let mut net = Net::formed(3, engine);
            net.start(3, config(3, 3));
            net.run_micros(step * 250);
            net.leave(3);
            net.run_ms(400);
            assert_left(&net, 3);
            net.assert_one_view(&[0, 1, 2]);
            net.kill(3);
            net.run_ms(3000);
            net.assert_one_view(&[0, 1, 2]);
            assert_nobody_crashed_but(&net, &[]);
        }
    }
}

#[test]
fn a_joiner_that_leaves_while_the_elder_dies_has_left_and_did_not_crash() {
    for engine in ENGINES {
        for step in 0..60 {
            let mut net = Net::formed(4, engine);
            net.start(4, config(4, 4));
            net.run_micros(step * 250);
            net.leave(4);
            let elder = net.view(1).unwrap().members[0].name.clone();
            net.kill(0);
            net.run_ms(6500);
            assert_left(&net, 4);
            net.assert_one_view(&[1, 2, 3]);
            assert_nobody_crashed_but(&net, &[&elder]);
        }
    }
}

#[test]
fn a_founder_that_leaves_at_any_moment_has_left_and_did_not_crash() {
    for engine in ENGINES {
        for step in 0..60 {
            let mut net = Net::new(step, engine);
            for node in 0..3 {
                net.start(node, config(node, 3));
            }
            net.run_micros(step * 250);
            net.leave(2);
            net.run_ms(2000);
            assert_left(&net, 2);
            net.kill(2);
            net.run_ms(3000);
            net.assert_one_view(&[0, 1]);
            assert_nobody_crashed_but(&net, &[]);
        }
    }
}

#[test]
fn a_node_that_nobody_has_heard_of_leaves_at_once() {
    let mut net = Net::new(1, EngineKind::Coordinator);
    net.start(0, config(0, 3));
    net.run_ms(1000);
    net.leave(0);
    net.run_ms(250);
    assert_left(&net, 0);
}

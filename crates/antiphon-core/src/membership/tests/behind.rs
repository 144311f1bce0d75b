//! Members that are some views behind, told with each engine: this file is two modules, by their names.

use antiphon_wire::ViewId;
use antiphon_wire::membership::{MembershipMessage, SlotMessage};

use super::net::{Net, config};
use crate::EngineKind;

fn engine() -> EngineKind {
    if module_path!().ends_with("cut") {
        EngineKind::Cut
    } else {
        EngineKind::Coordinator
    }
}

/// R1: two of the three members of the last view live, and one of them lacks what only the dead third and
/// nobody else has installed.
#[test]
fn who_is_behind_follows_by_what_a_joiner_was_told_when_all_who_were_there_are_dead() {
    for seed in 0..10 {
        let mut net = Net::new(seed, engine());
        for node in 0..3 {
            net.start(node, config(node, 3));
            net.run_ms(500);
        }
        net.assert_one_view(&[0, 1, 2]);
        let before = net.view(2).unwrap().primary_id();
        for node in [0, 1, 3] {
            net.cut_one_way(node, 2);
        }
        net.kill(1);
        net.run_ms(150);
        net.start(3, config(3, 3));
        net.run_while_ms(400, |net| net.view(3).is_none());
        let last = net.view(3).expect("the fourth is admitted");
        assert_eq!(net.names(3), ["n0", "n2", "n3"]);
        assert!(last.primary_id().counter > before.counter + 1);
        // Nothing of it reaches the one that is behind any more.
        net.power_off(0);
        net.run_ms(100);
        assert_eq!(net.view(2).unwrap().primary_id(), before);
        net.heal();
        net.run_ms(10_000);
        net.assert_one_view(&[2, 3]);
        assert!(
            net.lineages() == 1 && net.is_primary(2),
            "seed {seed}: {:#?}",
            net.summary()
        );
    }
}

/// R6: its vote may be the one that is missing, and a fresh incarnation of it has none.
#[test]
fn who_joined_later_does_not_call_a_member_removed_that_asks_for_what_came_before() {
    let mut net = Net::formed(3, engine());
    // One does not hear of the view that admits the fourth.
    net.partition(&[1], &[0, 2]);
    net.start(3, config(3, 3));
    net.run_while_ms(800, |net| net.view(3).is_none());
    assert_eq!(net.names(3).len(), 4);
    let view = net.view(3).unwrap();
    assert!(net.view(1).unwrap().primary_id() < view.primary_id());
    let (asks, lineage) = (net.host(1).me, view.lineage);
    let epoch = view.primary_id().epoch;
    let after = ViewId { epoch, counter: 0 };
    net.lie(1, 3, MembershipMessage::Pull { lineage, after });
    net.run_ms(20);
    assert_eq!(net.host(1).me, asks, "it is still the same incarnation");
    net.heal();
    net.run_ms(1_000);
    assert_eq!(net.host(1).me, asks, "it is still the same incarnation");
    net.assert_one_view(&[0, 1, 2, 3]);
}

/// R1: the one that a joiner asked is dead before it has decided, and whoever decides it never met the
/// joiner, which knows nobody else to ask.
#[test]
fn who_is_admitted_by_a_stranger_takes_its_seat() {
    for seed in 0..10 {
        let mut net = Net::new(seed, engine());
        for node in 0..3 {
            net.start(node, config(node, 1));
            net.run_ms(500);
        }
        net.assert_one_view(&[0, 1, 2]);
        net.pause(1);
        net.start(3, config(3, 1));
        let answers = |message: &MembershipMessage| {
            let MembershipMessage::Slot { message, .. } = message else {
                return false;
            };
            matches!(message, SlotMessage::Accepted { .. } | SlotMessage::Cast { .. })
        };
        let took = net.run_while_ms(400, |net| {
            let answered = |node| net.on_the_way(node, 0).iter().any(answers);
            !(answered(2) && answered(3))
        });
        assert!(took < 400, "nobody wants to admit it");
        net.kill(0);
        net.run_ms(100);
        net.resume(1);
        net.run_ms(10_000);
        // With `cut` a vote that the living one did not cast binds nobody: there the joiner may be none.
        let admitted = engine() == EngineKind::Coordinator || net.names(1).len() == 3;
        net.assert_one_view(if admitted { &[1, 2, 3] } else { &[1, 2] });
        assert_eq!(
            net.view(3).is_some(),
            admitted,
            "seed {seed}: {:#?}",
            net.summary()
        );
    }
}

/// R5: whatever it is told, a process goes back to no earlier view of a lineage that it was in.
#[test]
fn who_was_removed_is_admitted_by_no_view_of_the_time_before() {
    let mut net = Net::formed(3, engine());
    let mut old = (*net.view(0).unwrap()).clone();
    net.partition(&[0], &[1, 2]);
    net.run_ms(5_000);
    net.heal();
    net.run_while_ms(5_000, |net| net.view(0).is_some());
    let me = net.host(0).me;
    for member in &mut old.members {
        if member.name == "n0" {
            member.incarnation = me;
        }
    }
    old.joined = vec![me];
    old.departed.clear();
    net.lie(1, 0, MembershipMessage::Decide(Box::new(old)));
    assert_eq!(net.view(0), None);
    net.run_ms(5_000);
    net.assert_one_view(&[1, 2, 0]);
}

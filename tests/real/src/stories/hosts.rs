//! What only separate hosts can show: that silence and refusal are no proof of death, and that a dead process
//! is one.

use super::*;
use crate::{Cluster, Event, Refusal};

pub(super) const STORIES: &[Story] = &[
    story!(three_hosts_killed_down_to_one_stay_primary_by_proof_of_death),
    story!(cut_cables_are_no_proof_of_death),
    story!(a_firewall_that_resets_is_no_proof_of_death)
        .on(Engine::Coordinator)
        .long(),
    story!(a_firewall_that_answers_with_icmp_is_no_proof_of_death),
    story!(all_three_cut_apart_at_once_nobody_is_primary),
    story!(a_member_killed_behind_a_cut_cable_proves_nothing_to_those_before_it),
    story!(one_of_three_cut_off_and_restarted_stays_forming_and_joins_when_healed)
        .on(Engine::Coordinator)
        .long(),
    story!(an_asymmetric_link_of_a_pair_that_a_third_joins_costs_nobody)
        .on(Engine::Cut)
        .long(),
];

fn three_hosts(engine: Engine) -> Option<(Cluster, Vec<String>)> {
    let mut cluster = Cluster::on_hosts(3, told_on(engine))?;
    cluster.start(&["n1", "n2", "n3"]);
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    let order = cluster.look(|trace| {
        trace
            .last("n1")
            .node_view()
            .map(|v| v.members.iter().map(|m| m.name.clone()).collect())
    });
    Some((cluster, order.unwrap_or_default()))
}

fn three_hosts_killed_down_to_one_stay_primary_by_proof_of_death(engine: Engine) {
    let Some((mut cluster, order)) = three_hosts(engine) else {
        return;
    };
    // The elder first, so that the proof decides and not the tie-break.
    cluster.kill(&order[0]);
    cluster.until_together(&[&order[1], &order[2]], DETECTED);
    cluster.kill(&order[1]);
    cluster.until_together(&[&order[2]], DETECTED);
    cluster.say(&order[2], 10);
    cluster.until_delivered(&[&order[2]], SOON);
    cluster.finish();
}

/// Separates the elder, then the next elder, in one way or another: the last one must not go on.
fn separated_one_by_one(engine: Engine, separate: impl Fn(&mut Cluster, &[&[&str]])) {
    let Some((mut cluster, order)) = three_hosts(engine) else {
        return;
    };
    let [first, second, third] = [0, 1, 2].map(|rank| order[rank].as_str());
    separate(&mut cluster, &[&[first], &[second, third]]);
    cluster.until_together(&[second, third], DETECTED);
    cluster.until(
        "the elder, alone, knows that it has no majority",
        DETECTED,
        |trace| !trace.last(first).primary(),
    );
    separate(&mut cluster, &[&[first], &[second], &[third]]);
    // Two of two: the elder of the two may go on by the tie-break, the other never.
    cluster.until(
        "the junior of the last two knows that it has no majority",
        DETECTED,
        |trace| !trace.last(third).primary(),
    );
    cluster.throughout("neither of those cut off becomes primary", WATCHED, |trace| {
        !trace.last(first).primary() && !trace.last(third).primary()
    });
    cluster.heal();
    cluster.until_together(&[first, second, third], Duration::from_secs(30));
    [first, second, third]
        .iter()
        .for_each(|name| cluster.say(name, 20));
    cluster.until_delivered(&[first, second, third], SOON);
    cluster.finish();
}

fn cut_cables_are_no_proof_of_death(engine: Engine) {
    separated_one_by_one(engine, |cluster, sides| cluster.partition(sides));
}

fn a_firewall_that_resets_is_no_proof_of_death(engine: Engine) {
    separated_one_by_one(engine, |cluster, sides| cluster.refuse(sides, Refusal::Reset));
}

fn a_firewall_that_answers_with_icmp_is_no_proof_of_death(engine: Engine) {
    separated_one_by_one(engine, |cluster, sides| cluster.refuse(sides, Refusal::Icmp));
}

fn all_three_cut_apart_at_once_nobody_is_primary(engine: Engine) {
    let Some((mut cluster, _)) = three_hosts(engine) else {
        return;
    };
    let names = ["n1", "n2", "n3"];
    cluster.partition(&[&["n1"], &["n2"], &["n3"]]);
    cluster.until("nobody is primary", DETECTED, |trace| {
        names.iter().all(|name| !trace.last(name).primary())
    });
    cluster.throughout("nobody becomes primary", WATCHED, |trace| {
        names.iter().all(|name| !trace.last(name).primary())
    });
    cluster.heal();
    cluster.until_together(&names, Duration::from_secs(30));
    cluster.finish();
}

fn a_member_killed_behind_a_cut_cable_proves_nothing_to_those_before_it(engine: Engine) {
    let Some((mut cluster, order)) = three_hosts(engine) else {
        return;
    };
    let [first, second, third] = [0, 1, 2].map(|rank| order[rank].as_str());
    cluster.partition(&[&[first], &[second], &[third]]);
    cluster.kill(first);
    cluster.kill(second);
    cluster.until("the last one knows that it has no majority", DETECTED, |trace| {
        !trace.last(third).primary()
    });
    cluster.throughout("it does not go on", WATCHED, |trace| !trace.last(third).primary());
    cluster.finish();
}

fn one_of_three_cut_off_and_restarted_stays_forming_and_joins_when_healed(engine: Engine) {
    let Some((mut cluster, order)) = three_hosts(engine) else {
        return;
    };
    for rank in [2, 0] {
        let outcast = order[rank].as_str();
        let rest: Vec<&str> = order
            .iter()
            .map(String::as_str)
            .filter(|name| *name != outcast)
            .collect();
        cluster.partition(&[&rest, &[outcast]]);
        cluster.until_together(&rest, DETECTED);
        cluster.kill(outcast);
        cluster.start(&[outcast]);
        cluster.until("it says whom it misses", SOON, |trace| {
            trace.last(outcast).said(
                |event| matches!(event, Event::Forming { missing, reason: None, .. } if missing.len() == 2),
            )
        });
        cluster.throughout("it stays forming", Duration::from_secs(8), |trace| {
            !trace.last(outcast).primary()
        });
        cluster.heal();
        cluster.until_together(
            &order.iter().map(String::as_str).collect::<Vec<_>>(),
            Duration::from_secs(30),
        );
    }
    cluster.finish();
}

fn an_asymmetric_link_of_a_pair_that_a_third_joins_costs_nobody(engine: Engine) {
    for (from, to) in [(2, 0), (0, 2)] {
        let Some((mut cluster, order)) = three_hosts(engine) else {
            return;
        };
        let load = cluster.load(Duration::from_millis(10));
        cluster.deafen(&order[from], &order[to]);
        let names: Vec<&str> = order.iter().map(String::as_str).collect();
        // Longer than a pair that nobody joins may last.
        cluster.throughout("the third passes on what they send", WATCHED * 2, |trace| {
            trace.together(&names)
        });
        load.end();
        cluster.until_delivered(&names, SOON);
        cluster.heal();
        cluster.until_together(&names, Duration::from_secs(30));
        names.iter().for_each(|name| cluster.say(name, 20));
        cluster.until_delivered(&names, SOON);
        cluster.finish();
    }
}

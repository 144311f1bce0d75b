//! Faults drawn from a seed; every guarantee is checked, and at the end all must be together.

use antiphon_wire::Level;

use super::world::{Kind, World};
use crate::{Dissemination, GroupEvent, Order, TotalEngine};

/// One random history. `Err` names what broke.
pub(crate) fn history(seed: u64, kind: Kind, dissemination: Dissemination) -> Result<(), String> {
    let options = kind.options().dissemination(dissemination);
    let mut world = World::with_options(options, seed);
    let mut ids: Vec<u8> = (1..=3 + (seed % 4) as u8).collect();
    for id in &ids {
        world.start(*id);
    }
    let swarm = world.random.next_u64();
    (world.loss, world.duplicates) = (swarm % 4 * 8, (swarm >> 8) % 3 * 10);
    world.jitter_ms = (swarm >> 16) % 4 * 2;
    let safe_too = (swarm >> 24).is_multiple_of(2);
    world.primary_within(&ids, 10);
    let mut text = 0;
    let mut cut_off: Vec<u8> = Vec::new();
    for _ in 0..60 {
        let pick = world.random.below(100);
        let who = ids[world.random.below(ids.len() as u64) as usize];
        match pick {
            0..50 => {
                for _ in 0..1 + world.random.below(4) {
                    text += 1;
                    let safe = safe_too && text % 3 == 0;
                    let level = if safe { Level::Safe } else { Level::Agreed };
                    let _ = world.send_at(who, level, &format!("{who}:{text}"));
                }
            }
            50..60 if world.peers[&who].handle.is_none() => {
                world.join(who);
            }
            60..64 => world.leave(who),
            64..72 if ids.len() > 1 => {
                world.crash(who);
                ids.retain(|id| *id != who);
                cut_off.retain(|id| *id != who);
                let within = 1 + world.random.below(15);
                if cut_off.is_empty() {
                    world.primary_within(&ids, within);
                }
            }
            72..77 if ids.len() < 7 => {
                let id = world.peers.keys().next_back().unwrap() + 1;
                world.start(id);
                ids.push(id);
                world.join(id);
                cut_off.clear();
                let within = 1 + world.random.below(15);
                world.primary_within(&ids, within);
            }
            77..81 => {
                world.non_primary(&[who]);
                cut_off.push(who);
            }
            81..86 => {
                cut_off.clear();
                let within = 1 + world.random.below(15);
                world.primary_within(&ids, within);
            }
            86..89 if ids.len() > 1 => {
                // Removed while alive: the others go on, it comes back as another.
                ids.retain(|id| *id != who);
                let within = 1 + world.random.below(5);
                world.primary_within(&ids, within);
                let wait = world.random.below(10);
                world.run(wait);
                world.reincarnate(who, "removed");
                ids.push(who);
                cut_off.clear();
                world.primary_within(&ids, within);
            }
            _ => {}
        }
        let pause = world.random.below(12);
        world.run(pause);
        world.check()?;
    }
    (world.loss, world.duplicates) = (0, 0);
    world.primary_within(&ids, 10);
    world.run(30_000);
    for id in &ids {
        if world.peers[id].handle.is_none() {
            world.join(*id);
        }
    }
    world.run(30_000);
    world.check()?;
    let expected = world.members(ids[0]);
    for id in &ids {
        if world.members(*id) != expected || expected.len() != ids.len() {
            return Err(format!(
                "liveness: {id} sees {:?}, {} sees {expected:?}",
                world.members(*id),
                ids[0]
            ));
        }
        let me = world.inc(*id);
        let sent = world.peers[id].sent.iter().filter(|(who, _, _)| *who == me);
        for (_, ticket, payload) in sent {
            let delivered = world
                .messages(*id)
                .iter()
                .any(|message| message.ticket == Some(*ticket));
            let resolved = world.events(*id).iter().any(
                |event| matches!(event, GroupEvent::Receipts { first, count, .. } if (first.0..first.0 + count).contains(&ticket.0)),
            );
            let started_over = world
                .events(*id)
                .iter()
                .any(|event| matches!(event, GroupEvent::Left));
            if !delivered && !resolved && !started_over {
                return Err(format!("G10: {id} never delivered its own {payload:?}"));
            }
        }
    }
    if !world.accusations.is_empty() {
        return Err(format!("accusations without a stall: {:?}", world.accusations));
    }
    Ok(())
}

fn seeds(kind: impl Into<Kind>, dissemination: Dissemination) {
    let kind = kind.into();
    let count = std::env::var("ANTIPHON_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(150);
    let first = std::env::var("ANTIPHON_FROM")
        .ok()
        .and_then(|from| from.parse().ok())
        .unwrap_or(0);
    for seed in first..first + count {
        if let Err(broken) = history(seed, kind, dissemination) {
            panic!("seed {seed} {kind:?} {dissemination:?}: {broken}");
        }
    }
}

#[test]
fn random_histories_keep_every_guarantee_in_fifo_order() {
    seeds(Order::Fifo, Dissemination::Direct);
}

#[test]
fn random_histories_keep_every_guarantee_in_total_order_by_sequencer() {
    seeds(TotalEngine::Sequencer, Dissemination::Direct);
}

#[test]
fn random_histories_keep_every_guarantee_in_total_order_by_rotation() {
    seeds(TotalEngine::Rotation, Dissemination::Direct);
}

#[test]
fn random_histories_keep_every_guarantee_in_total_order_by_token() {
    seeds(TotalEngine::Token, Dissemination::Direct);
}

#[test]
fn random_histories_of_chains_keep_every_guarantee_in_total_order_by_token() {
    seeds(TotalEngine::Token, Dissemination::Chain);
}

#[test]
fn random_histories_of_chains_keep_every_guarantee_in_fifo_order() {
    seeds(Order::Fifo, Dissemination::Chain);
}

#[test]
fn random_histories_of_chains_keep_every_guarantee_in_total_order_by_sequencer() {
    seeds(TotalEngine::Sequencer, Dissemination::Chain);
}

#[test]
fn random_histories_of_chains_keep_every_guarantee_in_total_order_by_rotation() {
    seeds(TotalEngine::Rotation, Dissemination::Chain);
}

#[test]
fn random_histories_keep_every_guarantee_in_no_order() {
    seeds(Order::Unordered, Dissemination::Direct);
}

#[test]
fn random_histories_keep_every_guarantee_in_no_order_by_chain() {
    seeds(Order::Unordered, Dissemination::Chain);
}

#[test]
fn random_histories_keep_every_guarantee_in_scopes() {
    seeds(Order::Scoped, Dissemination::Direct);
}

#[test]
fn random_histories_keep_every_guarantee_in_scopes_by_chain() {
    seeds(Order::Scoped, Dissemination::Chain);
}

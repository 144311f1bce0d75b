//! How long messages take where little is sent and nothing is lost: their delays, and no timer.

use super::world::{Id, World};
use crate::TotalEngine;

const MEMBERS: [Id; 4] = [1, 2, 3, 4];
/// What the world takes from member to member.
const DELAY_MICROS: u64 = 300;

/// The delays until every member has a message that one member sends while no other is on its way.
fn delays(world: &mut World, sender: Id, text: &str) -> u64 {
    world.send(sender, text).unwrap();
    for delays in 0..100 {
        let has = |id: &Id| world.texts(*id).last().is_some_and(|last| last == text);
        if MEMBERS.iter().all(has) {
            return delays;
        }
        world.run_micros(DELAY_MICROS);
    }
    panic!("{text:?} waits for a timer");
}

#[test]
fn a_message_waits_for_delays_only() {
    for engine in TotalEngine::ALL {
        let mut world = World::with_group(engine, 1, &MEMBERS);
        let mut worst = 0;
        // Every pause ends somewhere else between the timers of acknowledgements, marks and probes.
        for turn in 0..400u64 {
            let sender = MEMBERS[world.random.below(4) as usize];
            worst = worst.max(delays(&mut world, sender, &format!("{engine:?} {turn}")));
            world.run_micros(turn * 173 % 10_007);
        }
        let most = match engine {
            // The message, and its number or the nulls that it waits for.
            TotalEngine::Sequencer | TotalEngine::Rotation => 2,
            // The message, the token's way around, and its number.
            TotalEngine::Token => MEMBERS.len() as u64 + 1,
        };
        assert!(worst <= most, "{engine:?}: {worst} delays");
        world.check().unwrap();
    }
}

//! A member with the key that runs other code. It can break what groups promise; it cannot make another one
//! panic.

use super::world::{Kind, World};
use crate::Dissemination;
use crate::random::Random;

#[test]
fn a_member_that_lies_stops_no_process() {
    for (seed, kind) in (0..40).flat_map(|seed| Kind::ALL.map(|kind| (seed, kind))) {
        let mut options = kind.options().window_bytes(1 << 16);
        if seed % 4 == 1 {
            options = options.dissemination(Dissemination::Chain);
        }
        let mut world = World::with_options(options, seed).gather(&[1, 2, 3, 4]);
        let mut random = Random::new([seed, 12, 13, 14]);
        world.liar = Some((1 + random.below(2) as u8, Random::new([seed, 15, 16, 17])));
        (world.loss, world.duplicates, world.jitter_ms) = (10, 10, 3);
        let large = "x".repeat(100_000);
        for step in 0..30 {
            let id = 1 + random.below(4) as u8;
            match random.below(10) {
                0 => world.leave(id),
                1 => world.join_again(id),
                2 => world.primary(&[1, 2, 3, 4]),
                // A node that is not a member any more, or has no room, sends nothing.
                3 => drop(world.send_safe(id, "safe")),
                4 if step % 5 == 0 => drop(world.send(id, &large)),
                5 => drop(world.tell(id, 1 + random.below(4) as u8, b"told")),
                6 => world.take_told(id, 1 + random.below(4) as u8, random.below(3)),
                _ => drop(world.send(id, "text")),
            }
            world.run_micros(random.below(200_000));
        }
    }
}

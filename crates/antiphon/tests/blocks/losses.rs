//! What a lost lock says of the cause. None of these asks `is_held` first, which speaks of the lease.

use super::*;

#[test]
fn a_lock_that_is_lost_by_leaving_or_with_its_node_says_so() -> Result<(), RunError> {
    World::new(31, ABCD).run(async |world| {
        let nodes = cluster(&world, &ABCD).await?;
        let locks = locks(&nodes).await?;
        let of_a = locks[0].lock("of a").await?;
        let of_b = locks[1].lock("of b").await?;
        let of_c = locks[2].lock("of c").await?;
        let next = locks[3].clone();
        let next = tokio::spawn(async move { next.lock("of a").await });
        world.sleep_ms(200).await;
        let lost = async {
            let loss = of_a.lost().await;
            (loss, next.is_finished())
        };
        let ((), lost) = tokio::join!(locks[0].table().leave(), lost);
        assert_eq!(lost, (Loss::Left, false), "it knows before another member has it");
        assert!(next.await??.is_held());
        nodes[1].leave().await?;
        assert_eq!(of_b.lost().await, Loss::Left);
        world.kill("c")?;
        assert_eq!(of_c.lost().await, Loss::Stopped);
        Ok(())
    })
}

#[test]
fn a_partition_interrupts_what_is_held_and_the_removal_ends_what_waits() -> Result<(), RunError> {
    World::new(32, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let locks = locks(&nodes).await?;
        let held = locks[0].lock("held").await?;
        let other = locks[1].lock("other").await?;
        let of_a = locks[0].clone();
        let waits = tokio::spawn(async move { of_a.lock("other").await });
        world.sleep_ms(500).await;
        assert!(!waits.is_finished());
        world.partition(["a"], ["b", "c"])?;
        assert_eq!(held.lost().await, Loss::Interrupted);
        world.sleep_ms(10_000).await;
        assert!(!waits.is_finished(), "it may go on where it was");
        world.heal();
        assert_eq!(waits.await?.err(), Some(LockError::Lost(Loss::Removed)));
        assert_eq!(held.lost().await, Loss::Removed, "by now it is known");
        assert!(other.is_held());
        Ok(())
    })
}

//! What a lost lock says of the cause, and when. `is_held` is asked of other locks than `lost`: it makes a
//! lock lost whose lease is over.

use antiphon::replicated::Standing;

use super::*;

#[test]
fn a_lock_that_is_lost_by_leaving_or_with_its_node_says_so() -> Result<(), RunError> {
    World::new(31, ABCD).run(async |world| {
        let nodes = cluster(&world, &ABCD).await?;
        let locks = locks(&nodes).await?;
        let of_a = locks[0].lock("of a").await?;
        let of_b = locks[1].lock("of b").await?;
        let asked_of_b = locks[1].lock("asked of b").await?;
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
        let next = locks[3].clone();
        let next = tokio::spawn(async move { next.lock("asked of b").await });
        world.sleep_ms(200).await;
        assert!(!next.is_finished() && asked_of_b.is_held());
        let begun = async {
            world.sleep_ms(1).await;
            asked_of_b.is_held()
        };
        let granted = async { (next.await, asked_of_b.is_held()) };
        let (left, held, (granted, still)) = tokio::join!(nodes[1].leave(), begun, granted);
        left?;
        assert!(
            !held,
            "it is lost from the moment at which the node begins to leave"
        );
        assert!(granted??.is_held() && !still, "and before another member has it");
        assert_eq!(of_b.lost().await, Loss::Left);
        world.kill("c")?;
        assert_eq!(of_c.lost().await, Loss::Stopped);
        Ok(())
    })
}

#[test]
fn a_node_that_leaves_its_cluster_without_a_majority_or_as_the_last_one_has_left() -> Result<(), RunError> {
    World::new(33, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let locks = locks(&nodes).await?;
        let held = locks[0].lock("held").await?;
        world.partition(["a"], ["b", "c"])?;
        assert_eq!(held.lost().await, Loss::Interrupted);
        nodes[0].leave().await?;
        world
            .until(|| locks[0].table().standing() == Standing::Gone)
            .await;
        assert_eq!(held.lost().await, Loss::Left);
        Ok(())
    })?;
    World::new(34, ["a"]).run(async |world| {
        let nodes = cluster(&world, &["a"]).await?;
        let locks = locks(&nodes).await?;
        let held = locks[0].lock("held").await?;
        nodes[0].leave().await?;
        world
            .until(|| locks[0].table().standing() == Standing::Gone)
            .await;
        assert_eq!(held.lost().await, Loss::Left);
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

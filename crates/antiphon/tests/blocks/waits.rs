//! Locks: shared ones, permits and leadership that are waited for at most so long.

use super::*;

#[test]
fn shared_locks_permits_and_leadership_are_waited_for_no_longer_than_asked() -> Result<(), RunError> {
    World::new(20, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let locks = locks(&nodes).await?;
        let at_once = Duration::ZERO;

        let one = locks[0].try_lock_shared("doc", at_once).await?;
        let two = locks[1].try_lock_shared("doc", at_once).await?;
        assert!(one.is_some() && two.is_some(), "they share it");
        drop((one, two));
        let alone = locks[2].try_lock("doc", ms(1_000)).await?.expect("it is free");
        assert!(locks[0].try_lock_shared("doc", at_once).await?.is_none());
        assert!(locks[0].try_lock_shared("doc", ms(200)).await?.is_none());
        let waits = locks[0].clone();
        let waits = tokio::spawn(async move { waits.try_lock_shared("doc", ms(60_000)).await });
        world.sleep_ms(200).await;
        assert!(!waits.is_finished());
        alone.unlock().await?;
        assert!(waits.await??.is_some_and(|guard| guard.is_held()));

        let two = locks[0].try_permits("pool", 2, 3, at_once).await?;
        assert!(two.is_some_and(|guard| guard.is_held()));
        let two = locks[1].try_permits("pool", 2, 3, ms(1_000)).await?;
        let two = two.expect("they are given back");
        assert!(locks[2].try_permits("pool", 2, 3, at_once).await?.is_none());
        assert!(locks[2].try_permits("pool", 2, 3, ms(200)).await?.is_none());
        let one = locks[2].try_permits("pool", 1, 3, at_once).await?;
        assert!(one.is_some(), "a claim that timed out holds up nobody");
        let never = locks[2].try_permits("pool", 4, 3, at_once).await;
        assert!(matches!(never, Err(LockError::Refused(_))), "{never:?}");
        two.unlock().await?;

        let first = locks[0].try_leadership("job", at_once).await?;
        let first = first.expect("no member leads");
        assert!(locks[1].try_leadership("job", at_once).await?.is_none());
        assert!(locks[1].try_leadership("job", ms(200)).await?.is_none());
        assert_eq!(locks[1].leader("job")?, Some(nodes[0].incarnation()));
        first.step_down().await?;
        let second = locks[1].try_leadership("job", at_once).await?;
        assert!(second.is_some_and(|second| second.is_held()));
        Ok(())
    })
}

#[test]
fn a_guard_prints_its_own_lock_and_no_other_claim() -> Result<(), RunError> {
    World::new(21, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let locks = locks(&nodes).await?;
        let _other = locks[0].lock("other").await?;
        let guard = locks[0].lock("report").await?;
        let expected = format!(
            "Guard {{ name: \"report\", token: {:?}, held: true }}",
            guard.token()
        );
        assert_eq!(format!("{guard:?}"), expected);
        guard.unlock().await?;
        Ok(())
    })
}

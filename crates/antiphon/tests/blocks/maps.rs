//! Maps: conditions, functions, times to live, iteration, merges.

use super::*;

#[test]
fn an_entry_with_a_time_to_live_goes_everywhere() -> Result<(), RunError> {
    World::new(6, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let maps = maps(&nodes).await?;
        maps[1].put_for(&text("short"), &1, ms(2_000)).await?;
        maps[1].put(&text("long"), &2).await?;
        world.sleep_ms(1_000).await;
        let has = |map: &Map<String, u64>, key: &str| map.get(&text(key)).ok().flatten().is_some();
        assert!(maps.iter().all(|map| has(map, "short")));
        world.sleep_ms(2_000).await;
        assert!(maps.iter().all(|map| !has(map, "short") && has(map, "long")));
        // The leader, whose clock it is, dies: the time passes all the same.
        maps[1].put_for(&text("short"), &1, ms(2_000)).await?;
        world.kill("a")?;
        world.sleep_ms(10_000).await;
        assert!(maps[1..].iter().all(|map| !has(map, "short") && has(map, "long")));
        Ok(())
    })
}

/// A map of what is in stock, of which members take at once.
fn stock(node: &Cluster, version: u32) -> MapBuilder<(String, u64), u64> {
    let take = |have: Option<u64>, count: u64| {
        let left = have
            .unwrap_or(0)
            .checked_sub(count)
            .ok_or("there are not so many")?;
        Ok((left > 0).then_some(left))
    };
    node.map("stock")
        .types("(shelf, article) -> pieces 1")
        .function("take", version, take)
        .function("drop", 1, |_, ()| panic!("it fell"))
}

#[test]
fn a_registered_function_computes_at_its_place_of_the_order_at_all_members() -> Result<(), RunError> {
    World::new(17, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let mut maps = Vec::new();
        for node in &nodes {
            maps.push(stock(node, 1).join().await?);
        }
        let article = |number: u64| (text("a"), number);
        let put = maps[0].put_for(&article(1), &100, ms(60_000)).await?;
        let expires = maps[0].get(&article(1))?.expect("it was put").expires;
        let mut takes = Vec::new();
        for number in 0..60 {
            let map = maps[number % 3].clone();
            takes.push(tokio::spawn(async move {
                map.compute(&(text("a"), 1), "take", &2_u64).await
            }));
        }
        let (mut left, mut refused) = (BTreeSet::new(), 0);
        for take in takes {
            match take.await? {
                Ok(item) => assert!(
                    left.insert(item.map_or(0, |item| item.value)),
                    "each is given once"
                ),
                Err(MapError::Refused(map::Refused::Function { reason, .. })) => {
                    assert_eq!(reason, "there are not so many");
                    refused += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        assert_eq!((left.len(), left.first(), refused), (50, Some(&0), 10));
        assert_eq!(maps[1].get_latest(&article(1)).await?, None);
        // With the value it takes its time to live along, and gets a version and a stamp.
        maps[1].put_for(&article(1), &100, ms(60_000)).await?;
        let item = maps[2].compute(&article(1), "take", &1_u64).await?.expect("99");
        assert!(item.value == 99 && item.version > put && item.expires >= expires && item.expires.is_some());
        let batch = maps[0].batch().compute(&article(1), "take", &90_u64)?;
        let batch = batch
            .put_for(&article(2), &1, ms(60_000))?
            .check(&article(3), Condition::Absent)?;
        assert!(batch.commit().await?.is_some());
        // Without a write before it a condition would hold for nothing.
        let misplaced = maps[0].batch().when(Condition::Present).put(&article(9), &1)?;
        assert!(matches!(misplaced.commit().await, Err(MapError::Codec { .. })));
        let of_a = maps[0]
            .entries_prefix(&text("a"))?
            .collect::<Result<Vec<_>, _>>()?;
        let of_a: Vec<_> = of_a
            .into_iter()
            .map(|((_, number), item)| (number, item.value))
            .collect();
        assert_eq!(of_a, [(1, 9), (2, 1)]);
        let refused = [
            maps[0].compute(&article(1), "give", &1_u64).await,
            // The first byte of a text would do for a number.
            maps[0].compute(&article(1), "take", &"\u{1}").await,
            maps[0].compute(&article(1), "drop", &()).await,
        ];
        let reasons = refused.map(|refused| match refused {
            Err(MapError::Refused(refused)) => refused.to_string(),
            other => format!("{other:?}"),
        });
        assert!(reasons[0].contains("give"), "{reasons:?}");
        assert!(reasons[1].contains("left over"), "{reasons:?}");
        assert!(reasons[2].contains("it panicked: it fell"), "{reasons:?}");
        assert_eq!(maps[0].get(&article(1))?.map(|item| item.value), Some(9));
        maps[2].machine().leave().await;
        let Err(ReplicaError::Refused { reason }) = stock(&nodes[2], 2).join().await else {
            return Err("another function was taken".into());
        };
        assert!(reason.contains("take 1") && reason.contains("take 2"), "{reason}");
        Ok(())
    })
}

#[test]
fn a_batch_gives_versions_of_what_it_put_and_not_of_what_it_checked_or_removed() -> Result<(), RunError> {
    World::new(20, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let maps = maps(&nodes).await?;
        for key in ["checked", "removed"] {
            maps[0].put(&text(key), &2).await?;
        }
        let batch = maps[1].batch().put(&text("put"), &1)?;
        let batch = batch.check(&text("checked"), Condition::Present)?;
        let batch = batch.remove(&text("removed"))?;
        let versions = batch.commit().await?.ok_or("the condition holds")?;
        let put = maps[1].get(&text("put"))?.map(|item| item.version);
        assert!(put.is_some());
        assert_eq!(versions, [put, None, None]);
        Ok(())
    })
}

#[test]
fn what_was_read_in_a_component_that_gave_way_is_not_followed_by_an_older_version() -> Result<(), RunError> {
    for seed in 40..45 {
        World::new(seed, ABC).run(async |world| {
            let mut maps: Vec<Map<String, u64>> = Vec::new();
            let mut nodes = Vec::new();
            for name in ABC {
                nodes.push(world.node(name)?.policy(Policy::Any).start().await?);
            }
            let sees = |node: &Cluster, count| {
                node.view()
                    .is_some_and(|view| view.is_primary() && view.members.len() == count)
            };
            world.until(|| nodes.iter().all(|node| sees(node, 3))).await;
            for node in &nodes {
                maps.push(node.map("map").types("name -> number 1").join().await?);
            }
            maps[0].put(&text("it"), &0).await?;
            world.partition(["a"], ["b", "c"])?;
            world
                .until(|| sees(&nodes[0], 1) && nodes[1..].iter().all(|node| sees(node, 2)))
                .await;
            world.sleep_ms(3_000).await;
            // Each goes on, one of them for longer.
            let longer = seed as usize % 2;
            for number in 0..50 {
                maps[longer].put(&text("it"), &number).await?;
            }
            maps[1 - longer].put(&text("it"), &100).await?;
            let mut read = Vec::new();
            for map in &maps {
                read.push(map.get_latest(&text("it")).await?.expect("it is there"));
            }
            world.heal();
            world.until(|| nodes.iter().all(|node| sees(node, 3))).await;
            world
                .until(|| {
                    maps.iter()
                        .all(|map| map.machine().status().synced().count() == 3)
                })
                .await;
            let mut now = BTreeSet::new();
            for (map, before) in maps.iter().zip(read) {
                let item = map.get(&text("it"))?.expect("it is there");
                assert!(
                    item.version > before.version && item.modified >= before.modified,
                    "{before} {item}"
                );
                now.insert((item.value, item.version));
            }
            assert_eq!(now.len(), 1, "{now:?}");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn an_iteration_sees_one_point_while_writes_go_on() -> Result<(), RunError> {
    World::new(18, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let maps = maps(&nodes).await?;
        for number in 0..50 {
            maps[0].put(&format!("{number:02}"), &1).await?;
        }
        let last = maps[1]
            .get_latest(&text("49"))
            .await?
            .expect("it was put")
            .version;
        let mut seen = 0;
        for entry in maps[1].entries()? {
            let (key, item) = entry?;
            assert!(item.value == 1 && item.version <= last, "{key}: {item}");
            maps[1].put(&text("49"), &2).await?;
            maps[1].remove(&key).await?;
            seen += 1;
        }
        assert_eq!((seen, maps[1].len()?), (50, 0));
        Ok(())
    })
}

#[test]
fn of_all_that_put_if_absent_one_wins() -> Result<(), RunError> {
    for seed in 30..40 {
        World::new(seed, ABC).run(async |world| {
            let nodes = cluster(&world, &ABC).await?;
            let maps = maps(&nodes).await?;
            let mut tries = Vec::new();
            for number in 0..30_u64 {
                let map = maps[number as usize % 3].clone();
                tries.push(tokio::spawn(async move {
                    (number, map.put_if_absent(&text("it"), &number).await)
                }));
            }
            let mut winner = None;
            let mut found = BTreeSet::new();
            for one in tries {
                match one.await? {
                    (number, Ok(Put::Done(version))) => assert_eq!(winner.replace((number, version)), None),
                    (_, Ok(Put::Found(version))) => found.extend(version),
                    (_, Err(error)) => return Err(error.into()),
                }
            }
            let (number, version) = winner.expect("one wins");
            assert_eq!(found, BTreeSet::from([version]));
            let item = maps[2].get_latest(&text("it")).await?.expect("it is there");
            assert_eq!(item.value, number);
            let put = maps[0].replace_if(&text("it"), &99, item.version).await?;
            assert!(
                put.is_done()
                    && !maps[1]
                        .replace_if(&text("it"), &98, item.version)
                        .await?
                        .is_done()
            );
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_member_with_another_definition_is_refused_and_told_both() -> Result<(), RunError> {
    World::new(8, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let map = nodes[0]
            .map::<String, u64>("map")
            .types("name -> number 1")
            .join()
            .await?;
        let other = nodes[1]
            .map::<String, String>("map")
            .types("name -> text 2")
            .join()
            .await;
        let Err(ReplicaError::Refused { reason }) = other else {
            return Err(format!("{other:?}").into());
        };
        assert!(
            reason.contains("name -> number 1") && reason.contains("name -> text 2"),
            "{reason}"
        );
        let larger = map::Options {
            max_bytes: 1 << 20,
            ..map::Options::default()
        };
        let other = nodes[1]
            .map::<String, u64>("map")
            .types("name -> number 1")
            .options(larger)
            .join()
            .await;
        assert!(matches!(other, Err(ReplicaError::Refused { .. })), "{other:?}");
        world.sleep_ms(1_000).await;
        map.put(&text("it"), &1).await?;
        let same = nodes[1]
            .map::<String, u64>("map")
            .types("name -> number 1")
            .join()
            .await?;
        assert_eq!(same.get(&text("it"))?.map(|item| item.value), Some(1));
        Ok(())
    })
}

#[test]
fn maps_of_other_types_are_refused_and_both_are_named_also_if_neither_member_names_them()
-> Result<(), RunError> {
    World::new(8, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let first = nodes[0].map::<u64, u32>("map").join().await?;
        let other = nodes[1].map::<u64, String>("map").join().await;
        let Err(ReplicaError::Refused { reason }) = other else {
            return Err(format!("{other:?}").into());
        };
        assert!(
            reason.contains("u64, u32)") && reason.contains("String)"),
            "{reason}"
        );
        first.put(&1, &2).await?;
        let same = nodes[1].map::<u64, u32>("map").join().await?;
        assert_eq!(same.get(&1)?.map(|item| item.value), Some(2));
        Ok(())
    })
}

#[test]
fn a_definition_that_cannot_be_told_to_a_joiner_is_refused_and_one_that_can_is_taken() -> Result<(), RunError>
{
    World::new(8, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let map = |node: &Cluster, bytes: usize| node.map::<u64, u64>("map").types("x".repeat(bytes));
        let refused = map(&nodes[0], 60_000).join().await.err();
        let refused = refused.ok_or("a joiner would wait for ever")?.to_string();
        assert!(refused.contains("shorten it"), "{refused}");
        let mut maps = Vec::new();
        for node in &nodes {
            maps.push(map(node, 58_000).join().await?);
        }
        maps[0].put(&1, &2).await?;
        assert_eq!(maps[2].get_latest(&1).await?.map(|item| item.value), Some(2));
        Ok(())
    })
}

#[test]
fn a_reader_that_is_slow_misses_the_oldest_changes_before_they_fill_the_memory() -> Result<(), RunError> {
    World::new(19, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let map: Map<u64, Vec<u8>> = nodes[0].map("map").join().await?;
        let mut events = map.machine().events();
        for key in 0..30 {
            map.put(&key, &vec![7; 600_000]).await?;
        }
        let (mut waited, mut missed) = (0, 0);
        while let Ok(Some(event)) = tokio::time::timeout(ms(1), events.next()).await {
            match event {
                ReplicaEvent::Lagged { missed: more } => missed += more,
                ReplicaEvent::Machine { .. } => waited += 1,
                _ => {}
            }
        }
        assert!(
            missed > 0 && waited > 20,
            "{waited} waited, {missed} were dropped"
        );
        Ok(())
    })
}

#[test]
fn a_watch_that_lags_while_its_member_may_not_act_begins_again_when_it_may() -> Result<(), RunError> {
    World::new(11, ABC).run(async |world| {
        let mut nodes = Vec::new();
        for name in ABC {
            nodes.push(world.node(name)?.primary_lease(false).start().await?);
        }
        let maps = maps(&nodes).await?;
        let mut watch = maps[0].watch()?;
        for value in 0..1_500 {
            maps[1].put(&text("key"), &value).await?;
        }
        maps[0].get_latest(&text("key")).await?;
        // None is in the primary, none is removed.
        for (one, other) in [("a", "b"), ("a", "c"), ("b", "c")] {
            world.partition([one], [other])?;
        }
        let serves = |map: &Map<String, u64>| map.get(&text("key")).is_ok();
        world.until(|| !serves(&maps[0])).await;
        let mut snapshots = 0;
        for _ in 0..20 {
            let event = watch.next().await.ok_or("it has ended")??;
            snapshots += usize::from(matches!(event, WatchEvent::Snapshot(_)));
        }
        assert_eq!(snapshots, 1, "it cannot read the entries now");
        world.heal();
        world.until(|| maps.iter().all(serves)).await;
        maps[0].put(&text("end"), &0).await?;
        loop {
            match watch.next().await.ok_or("it has ended")?? {
                WatchEvent::Snapshot(_) => snapshots += 1,
                WatchEvent::Put { key, .. } if key == "end" => break,
                _ => {}
            }
            if snapshots == 2 {
                break;
            }
        }
        assert_eq!(snapshots, 2, "what it missed was not told");
        Ok(())
    })
}

/// A lone node does not notice that its lease was over while it stood still.
#[test]
fn a_watch_that_lags_while_a_lone_node_stands_still_begins_again_behind_that() -> Result<(), RunError> {
    World::new(3, ["a"]).run(async |world| {
        let nodes = cluster(&world, &["a"]).await?;
        let maps = maps(&nodes).await?;
        let mut watch = maps[0].watch()?;
        let first = watch.next().await.ok_or("it has ended")??;
        assert_eq!(first, WatchEvent::Snapshot(Vec::new()));
        for value in 0..2_000 {
            maps[0].put(&text("key"), &value).await?;
        }
        world.sleep_ms(2_000).await;
        world.pause("a", ms(10_000))?;
        world.until(|| maps[0].get(&text("key")).is_err()).await;
        while let Ok(event) = tokio::time::timeout(ms(1), watch.next()).await {
            let event = event.ok_or("it has ended")??;
            assert!(
                matches!(event, WatchEvent::Put { .. }),
                "it cannot read the entries now: {event}"
            );
        }
        let next = tokio::time::timeout(ms(60_000), watch.next()).await?;
        let Some(Ok(WatchEvent::Snapshot(entries))) = next else {
            return Err(format!("what it missed was not told: {next:?}").into());
        };
        assert_eq!(entries[0].1.value, 1_999);
        Ok(())
    })
}

#[test]
fn a_watch_that_missed_nothing_does_not_begin_again_when_the_lease_comes_back() -> Result<(), RunError> {
    World::new(12, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let maps = maps(&nodes).await?;
        let mut watch = maps[0].watch()?;
        let first = watch.next().await.ok_or("it has ended")??;
        assert_eq!(first, WatchEvent::Snapshot(Vec::new()));
        // None is in the primary, none is removed.
        for (one, other) in [("a", "b"), ("a", "c"), ("b", "c")] {
            world.partition([one], [other])?;
        }
        let serves = |map: &Map<String, u64>| map.get(&text("key")).is_ok();
        world.until(|| !serves(&maps[0])).await;
        world.heal();
        world.until(|| maps.iter().all(serves)).await;
        maps[1].put(&text("end"), &0).await?;
        let next = watch.next().await.ok_or("it has ended")??;
        assert!(matches!(next, WatchEvent::Put { key, .. } if key == "end"));
        Ok(())
    })
}

/// Some values of this type have bytes that cannot be read: the field's name is what postcard does not write.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Skips {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<u64>,
    pieces: u64,
}

#[test]
fn what_cannot_be_read_is_told_as_that_and_hides_neither_what_was_done_nor_the_rest() -> Result<(), RunError>
{
    World::new(18, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let map = nodes[0].map::<u64, Skips>("skips").join().await?;
        let (pieces, note) = (7, Some(1));
        map.put(&1, &Skips { note, pieces }).await?;
        for key in 2..4 {
            map.put(&key, &Skips { note: None, pieces }).await?;
        }
        let mut watch = map.watch()?;
        let Some(Ok(WatchEvent::Snapshot(entries))) = watch.next().await else {
            return Err("a snapshot comes first".into());
        };
        assert_eq!(entries.len(), 1);
        let Some(Err(MapError::Codec { reason })) = watch.next().await else {
            return Err("what was left out is told".into());
        };
        assert!(reason.starts_with("2 entries, "), "{reason}");
        let removed = map.remove(&2).await;
        assert!(
            matches!(removed, Err(MapError::Undecodable { .. })),
            "{removed:?}"
        );
        assert!(removed.is_err_and(|error| error.may_have_happened()));
        assert_eq!(map.get(&2)?, None);
        let next = watch.next().await;
        assert!(
            matches!(next, Some(Ok(WatchEvent::Gone { key: 2, .. }))),
            "{next:?}"
        );
        Ok(())
    })
}

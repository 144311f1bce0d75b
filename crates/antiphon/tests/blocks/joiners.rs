//! Joiners: the state comes while writes go on, and what goes wrong is told.

use antiphon::Profile;
use antiphon::memory::MemoryNetwork;
use antiphon::replicated::{ReplicaStatus, Snapshot, Standing};

use super::*;

#[test]
fn a_joiner_gets_the_state_while_writes_go_on() -> Result<(), RunError> {
    World::new(3, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let maps = maps(&nodes).await?;
        for key in 0..3_000_u64 {
            let batch = maps[0].batch().put(&format!("key {key}"), &key)?;
            batch.commit().await?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (writer, writes) = (maps[1].clone(), stop.clone());
        let writing = tokio::spawn(async move {
            let mut written = 0_u64;
            while !writes.load(SeqCst) {
                writer
                    .put(&text("written"), &written)
                    .await
                    .expect("no write waits for a transfer");
                written += 1;
            }
            written
        });
        let joiner = world.node("d")?.join().await?;
        let map = joiner
            .map::<String, u64>("map")
            .types("name -> number 1")
            .start()
            .await?;
        let mut events = map.machine().events();
        map.machine().synced().await?;
        assert_eq!(map.len()?, 3_001);
        world.sleep_ms(500).await;
        stop.store(true, SeqCst);
        let written = writing.await?;
        assert!(written > 10, "{written}");
        assert_eq!(
            map.get_latest(&text("written")).await?.map(|item| item.value),
            Some(written - 1)
        );
        let (mut progress, mut synced, mut changes) = (0, false, 0);
        while let Ok(Some(event)) = tokio::time::timeout(ms(1), events.next()).await {
            match event {
                ReplicaEvent::Progress(transfer) => {
                    assert!(transfer.bytes <= transfer.total && transfer.bytes >= progress);
                    progress = transfer.bytes;
                }
                ReplicaEvent::Synced => synced = true,
                ReplicaEvent::Machine { .. } => {
                    assert!(synced, "what it applies to catch up is not shown");
                    changes += 1;
                }
                _ => {}
            }
        }
        assert!(progress > 0, "it tells how far the state is");
        assert!(changes > 0, "it shows what is applied since it serves");
        Ok(())
    })
}

#[test]
fn a_progress_bar_and_the_members_with_the_state_are_one_watch() -> Result<(), RunError> {
    World::new(14, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let first: Map<u64, Vec<u8>> = nodes[0].map("map").join().await?;
        for key in 0..20 {
            first.put(&key, &vec![7; 100_000]).await?;
        }
        let second: Map<u64, Vec<u8>> = nodes[1].map("map").start().await?;
        let mut watch = second.machine().watch_status();
        let mut shown = Vec::new();
        while shown
            .last()
            .is_none_or(|last: &String| !last.starts_with("serving"))
        {
            let status = watch.changed().await.ok_or("it has left")?;
            if let Some(transfer) = &status.transfer {
                assert_eq!(transfer.source, "a");
                assert!(transfer.total > 2_000_000 && transfer.bytes <= transfer.total);
            }
            shown.push(status.to_string());
        }
        assert!(
            shown.iter().any(|line| line.contains("bytes from a (5")),
            "{shown:#?}"
        );
        assert_eq!(shown.last().map(String::as_str), Some("serving; synced: a b"));
        world
            .until(|| first.machine().status().synced().count() == 2)
            .await;
        second.machine().leave().await;
        assert_eq!(watch.current().to_string(), "gone");
        world
            .until(|| first.machine().status().synced().count() == 1)
            .await;
        Ok(())
    })
}

/// The names of those that have the state, in the view; none: it is not known.
fn synced(status: &ReplicaStatus) -> Option<Vec<&str>> {
    let synced = status.view.as_ref()?.synced.as_ref()?;
    Some(synced.iter().map(|member| member.name.as_str()).collect())
}

#[test]
fn a_joiner_sees_which_members_have_the_state_before_it_has_it() -> Result<(), RunError> {
    World::new(16, ABCD).run(async |world| {
        let nodes = cluster(&world, &ABCD).await?;
        let mut maps: Vec<Map<u64, Vec<u8>>> = Vec::new();
        for node in &nodes[..3] {
            maps.push(node.map("map").join().await?);
        }
        for key in 0..20 {
            maps[0].put(&key, &vec![7; 100_000]).await?;
        }
        world.slow(["a", "b", "c"], ["d"], ms(200)..=ms(200))?;
        let joiner = nodes[3].map::<u64, Vec<u8>>("map").start().await?;
        let mut watch = joiner.machine().watch_status();
        let before = loop {
            let status = watch.changed().await.ok_or("it has left")?;
            if synced(&status).is_some() {
                break status;
            }
            assert!(status.members.is_empty(), "it does not know: {status}");
        };
        assert_eq!(before.standing, Standing::Receiving);
        assert_eq!(synced(&before), Some(ABC.to_vec()));
        assert_eq!(before.view.as_ref().map(|view| view.names()), Some(ABCD.to_vec()));
        joiner.machine().synced().await?;
        maps.push(joiner);
        for map in &maps {
            world
                .until(|| synced(&map.machine().status()) == Some(ABCD.to_vec()))
                .await;
        }
        let status = maps[0].machine().status();
        let view = status.view.ok_or("it is a member")?;
        assert!(view.to_string().ends_with("; synced: a b c d"), "{view}");
        Ok(())
    })
}

#[test]
fn a_status_says_whether_others_may_have_gone_on_without_this_member() -> Result<(), RunError> {
    World::new(17, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let maps = maps(&nodes).await?;
        let status = |node: usize| maps[node].machine().status();
        let shows = |node: usize, names: &[&str]| synced(&status(node)) == Some(names.to_vec());
        world.until(|| status(0).primary && shows(0, &ABC)).await;
        world.partition(["a"], ["b", "c"])?;
        world.until(|| !status(0).primary).await;
        assert!(shows(0, &ABC), "that is what was so before: {}", status(0));
        world.until(|| shows(1, &["b", "c"])).await;
        assert!(status(1).primary && !status(0).primary);
        world.heal();
        world
            .until(|| status(0).primary && shows(0, &["b", "c", "a"]))
            .await;
        Ok(())
    })
}

/// What a joiner comes to whose source is slow, with this little memory, while two megabytes are written.
fn joins_while_much_is_written(
    dir: &Path,
    change: impl Fn(ReplicatedBuilder<map::MapMachine>) -> ReplicatedBuilder<map::MapMachine> + Send + 'static,
) -> Result<Result<u64, ReplicaError>, RunError> {
    World::new(15, ABCD).run(async |world| {
        let nodes = cluster(&world, &ABCD).await?;
        let mut maps: Vec<Map<u64, Vec<u8>>> = Vec::new();
        for node in &nodes[..3] {
            maps.push(node.map("map").join().await?);
        }
        for key in 0..20 {
            maps[0].put(&key, &vec![7; 100_000]).await?;
        }
        world.slow(["a", "b", "c"], ["d"], ms(200)..=ms(200))?;
        let dir_of = dir.to_owned();
        let joiner = nodes[3].map::<u64, Vec<u8>>("map");
        let joiner = joiner.replicated(move |it| change(it.held_bytes(700_000).spill_dir(dir_of)));
        let joiner = joiner.start().await?;
        let mut watch = joiner.machine().watch_status();
        while watch.current().transfer.is_none() {
            watch.changed().await.ok_or("it has left")?;
        }
        let writes = (0..2_000).map(|number| {
            let map = maps[number as usize % 3].clone();
            tokio::spawn(async move { map.put(&(100 + number), &vec![1; 1_000]).await })
        });
        let writes: Vec<_> = writes.collect();
        for write in writes {
            write.await??;
            let names = std::fs::read_dir(dir).map_or(0, Iterator::count);
            assert_eq!(names, 0, "the file has no name");
        }
        let synced = joiner.machine().synced().await;
        if synced.is_err() {
            assert_eq!(joiner.machine().status().to_string(), "gone");
            return Ok(synced.map(|()| 0));
        }
        joiner.get_latest(&0).await?;
        Ok(Ok(joiner.len()? as u64))
    })
}

#[test]
fn a_joiner_holds_more_than_its_memory_in_a_file_without_a_name() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("antiphon-blocks-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let kept = joins_while_much_is_written(&dir, |it| it)?;
    assert!(matches!(kept, Ok(2_020)), "{kept:?}");
    let overrun = joins_while_much_is_written(&dir, |it| it.spill_bytes(200_000))?;
    let overrun = overrun.expect_err("it is too much");
    assert!(
        matches!(
            overrun,
            ReplicaError::Overrun {
                spilled: 100_000..=200_000,
                ..
            }
        ),
        "{overrun:?}"
    );
    let none = joins_while_much_is_written(&dir, |it| it.spill_bytes(0))?;
    assert!(
        matches!(none, Err(ReplicaError::Overrun { spilled: 0, .. })),
        "{none:?}"
    );
    std::fs::remove_dir(&dir)?;
    let failed = joins_while_much_is_written(&dir, |it| it)?.expect_err("the directory is not there");
    let text = failed.to_string();
    assert!(
        matches!(failed, ReplicaError::SpillFailed { .. }) && text.contains(&dir.display().to_string()),
        "{text}"
    );
    Ok(())
}

/// A machine whose state cannot be given, or not be taken.
struct Sick {
    gives: bool,
}

impl Machine for Sick {
    type Command = ();
    type Reply = ();
    type Event = ();
    type Snapshot = Result<Bytes, SnapshotError>;

    fn apply(&mut self, _: At, _: Incarnation, (): (), _: &mut Vec<()>) {}

    fn snapshot(&self) -> Self::Snapshot {
        let reason = "page 7 is damaged".to_owned();
        self.gives.then(Bytes::new).ok_or(SnapshotError { reason })
    }

    fn restore(&mut self, _: &[u8], _: bool) -> Result<usize, RestoreError> {
        let reason = "page 8 is missing".to_owned();
        Err(RestoreError { reason })
    }

    fn definition(&self) -> String {
        "sick".to_owned()
    }
}

#[test]
fn who_cannot_give_the_state_and_who_cannot_take_it_is_told_to_the_caller_of_join() -> Result<(), RunError> {
    for gives in [true, false] {
        World::new(16, ABC).run(async |world| {
            let nodes = cluster(&world, &ABC).await?;
            let first = nodes[0].replicated("sick", move || Sick { gives }).join().await?;
            let second = nodes[1].replicated("sick", move || Sick { gives }).join().await;
            match second.err() {
                Some(ReplicaError::SourceFailed { source, reason }) if !gives => {
                    assert_eq!((&*source, &*reason), ("a", "page 7 is damaged"));
                }
                Some(ReplicaError::RestoreFailed { reason }) if gives => {
                    assert!(reason.contains("page 8 is missing"), "{reason}");
                }
                other => return Err(format!("{other:?}").into()),
            }
            first.write(()).await?;
            Ok(())
        })?;
    }
    Ok(())
}

/// A machine that panics when its state is taken or read, and at the command `true`.
struct Fragile {
    when_taken: bool,
}

#[derive(Clone)]
struct Broken;

impl Snapshot for Broken {
    fn read(&mut self, _: usize) -> Result<Bytes, SnapshotError> {
        panic!("page 9 is torn")
    }

    fn bytes(&self) -> u64 {
        0
    }
}

impl Machine for Fragile {
    type Command = bool;
    type Reply = ();
    type Event = ();
    type Snapshot = Broken;

    fn apply(&mut self, _: At, _: Incarnation, breaks: bool, _: &mut Vec<()>) {
        assert!(!breaks, "it is told to break");
    }

    fn snapshot(&self) -> Broken {
        assert!(!self.when_taken, "page 9 is torn");
        Broken
    }

    fn restore(&mut self, _: &[u8], _: bool) -> Result<usize, RestoreError> {
        Ok(0)
    }

    fn definition(&self) -> String {
        "fragile".to_owned()
    }
}

/// In real time: there the state is read on a thread of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_panics_when_its_state_is_taken_or_read_goes_on_and_the_joiner_is_told()
-> Result<(), Box<dyn std::error::Error>> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let network = MemoryNetwork::new();
    let node = |name: &str| {
        let builder = Cluster::builder("test").name(name).profile(Profile::local());
        builder.bind("10.0.0.1:0").memory(&network)
    };
    let a = tokio::time::timeout(PATIENCE, node("a").found().join()).await??;
    let b = tokio::time::timeout(PATIENCE, node("b").seeds([a.addr()]).join()).await??;
    let fragile = |when_taken| move || Fragile { when_taken };
    let taken = a.replicated("taken", fragile(true)).join().await?;
    let first = a.replicated("read", fragile(false)).join().await?;
    for (name, when_taken) in [("taken", true), ("read", false)] {
        let second = b.replicated(name, fragile(when_taken)).join();
        let second = tokio::time::timeout(PATIENCE, second).await?;
        let Some(ReplicaError::SourceFailed { source, reason }) = second.err() else {
            return Err("there is no state to join with".into());
        };
        assert_eq!((&*source, &*reason), ("a", "it panicked: page 9 is torn"));
    }
    taken.write(false).await?;
    tokio::time::timeout(PATIENCE, async {
        while first.read(|_| ()).is_err() {
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await?;
    // A panic in what all members apply is the end of the member, and is told as that.
    assert!(first.write(true).await.is_err());
    let ended = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Err(error) = first.synced().await {
                return error;
            }
            tokio::time::sleep(ms(10)).await;
        }
    });
    assert!(matches!(ended.await?, ReplicaError::Panicked));
    assert!(a.status().await.is_ok(), "its node goes on");
    Ok(())
}

#[test]
fn a_state_whose_last_member_dies_is_lost_or_founded_anew() -> Result<(), RunError> {
    for found_anew in [false, true] {
        World::new(12, ABCD).run(async |world| {
            let nodes = cluster(&world, &ABCD).await?;
            let join = |node: &Cluster| {
                let map = node.map::<u64, Vec<u8>>("map");
                map.replicated(move |machine| machine.found_anew(found_anew))
            };
            let first = join(&nodes[0]).join().await?;
            for key in 0..100 {
                first.put(&key, &vec![7; 100_000]).await?;
            }
            let second = join(&nodes[1]).start().await?;
            let mut events = second.machine().events();
            loop {
                let event = events.next().await.ok_or("it has ended")?;
                if matches!(event, ReplicaEvent::Progress(transfer) if transfer.percent() < 100) {
                    break;
                }
            }
            world.kill("a")?;
            match (found_anew, second.machine().synced().await) {
                (true, Ok(())) => assert_eq!(second.len()?, 0),
                (false, Err(ReplicaError::StateLost)) => {
                    let refused = MapError::Write(WriteError::Refused(Refusal::Lost));
                    assert_eq!(second.put(&1, &vec![]).await, Err(refused));
                }
                (_, other) => return Err(format!("{other:?}").into()),
            }
            second.machine().leave().await;
            let again = join(&nodes[1]).join().await?;
            assert!(again.is_empty()?);
            Ok(())
        })?;
    }
    Ok(())
}

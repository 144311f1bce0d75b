//! Groups of clients on real nodes in virtual time: what each client is told while clients and nodes come, go
//! and stop.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use antiphon::clients::{Client, ClientEvent, ClientGroup, ClientSendError, ClientView, Departure, Refusal};
use antiphon::testkit::{RunError, SceneError, World};
use antiphon::{Cluster, Outcome, SendError};

const ABC: [&str; 3] = ["a", "b", "c"];

/// Starts them, each in the group, and waits until all are members.
async fn groups(world: &World) -> Result<(Vec<Cluster>, Vec<ClientGroup>), SceneError> {
    let mut nodes = Vec::new();
    for name in ABC {
        nodes.push(world.node(name)?.start().await?);
    }
    let mut groups = Vec::new();
    for node in &nodes {
        let clients = node.clients("chat").window_bytes(64 << 10);
        groups.push(clients.start().await?);
    }
    Ok((nodes, groups))
}

fn names(view: &ClientView) -> String {
    let names: Vec<String> = view.members.iter().map(ToString::to_string).collect();
    names.join(" ")
}

/// Reads until it is told a view of so many.
async fn view_of(client: &mut Client, count: usize) -> Result<String, SceneError> {
    while let Some(event) = client.next().await {
        if let ClientEvent::View(view) = event
            && view.members.len() == count
        {
            return Ok(names(&view));
        }
    }
    Err("it is out".into())
}

/// What it is told until it has heard this, in short.
async fn until(client: &mut Client, last: &str) -> Result<Vec<String>, SceneError> {
    let mut told = Vec::new();
    while told.last().is_none_or(|told| told != last) {
        told.push(match client.next().await.ok_or("it is out")? {
            ClientEvent::View(view) => {
                let gone = view.departed.iter();
                let gone: Vec<String> = gone.map(|(who, why)| format!("; {who}: {why}")).collect();
                format!("{}{}", names(&view), gone.concat())
            }
            ClientEvent::Message(message) => {
                format!("{}: {}", message.from, String::from_utf8_lossy(&message.payload))
            }
            other => format!("{other:?}"),
        });
    }
    Ok(told)
}

#[test]
fn what_a_client_says_at_once_waits_until_it_is_in() -> Result<(), RunError> {
    World::new(1, ABC).run(async |world| {
        let (_nodes, groups) = groups(&world).await?;
        let mut ada = groups[0].enter("ada")?;
        let said = ada.send("at once").await?;
        assert_eq!(view_of(&mut ada, 1).await?, "a/ada");
        assert_eq!(until(&mut ada, "a/ada: at once").await?, ["a/ada: at once"]);
        assert_eq!(said.delivered().await, Outcome::Delivered);
        // One that goes before it came in says nothing.
        world.partition(["a"], ["b", "c"])?;
        let bob = groups[0].enter("bob")?;
        let (voice, waits) = (bob.sender(), Arc::new(Mutex::new(None)));
        let told = waits.clone();
        world.spawn("a", async move {
            let said = voice.send("never").await;
            *told.lock().unwrap() = Some(said.err());
        })?;
        world.sleep_ms(50).await;
        assert!(waits.lock().unwrap().is_none(), "it waits");
        drop(bob);
        world.until(|| waits.lock().unwrap().is_some()).await;
        let refused = ClientSendError::Refused(Refusal::NotIn);
        assert_eq!(waits.lock().unwrap().take(), Some(Some(refused)));
        Ok(())
    })
}

#[test]
fn clients_of_all_nodes_see_the_same_views_and_messages_in_one_order() -> Result<(), RunError> {
    World::new(1, ABC).run(async |world| {
        let (_nodes, groups) = groups(&world).await?;
        let mut ada = groups[0].enter("ada")?;
        assert_eq!(view_of(&mut ada, 1).await?, "a/ada");
        let mut bob = groups[1].enter("bob")?;
        assert_eq!(view_of(&mut bob, 2).await?, "a/ada b/bob");
        // Two of one node, of the same name.
        let (cy, mut cyd) = (groups[2].enter("cy")?, groups[2].enter("cy")?);
        view_of(&mut cyd, 4).await?;
        drop(cy);
        for client in [&mut ada, &mut cyd] {
            until(client, "a/ada b/bob c/cy; c/cy: left").await?;
        }
        for round in 0..20 {
            ada.send(format!("{round}")).await?;
            bob.sender().send_safe(format!("{round}")).await?;
            cyd.send(format!("{round}")).await?;
        }
        bob.leave(Departure::lost("its connection ended"));
        assert!(matches!(
            bob.send("late").await,
            Err(ClientSendError::Refused(Refusal::NotIn))
        ));
        let without_bob = "a/ada c/cy; b/bob: its connection ended";
        let told = until(&mut ada, without_bob).await?;
        assert_eq!(told.len(), 61, "{told:?}");
        assert_eq!(told, until(&mut cyd, without_bob).await?);
        while let Some(event) = bob.next().await {
            if let ClientEvent::Left { departure } = event {
                assert_eq!(departure, Departure::lost("its connection ended"));
                return Ok(());
            }
        }
        Err("it was not told that it is out".into())
    })
}

#[test]
fn a_bundle_is_told_together_to_those_that_take_it_so_and_one_by_one_to_others() -> Result<(), RunError> {
    World::new(3, ABC).run(async |world| {
        let (_nodes, groups) = groups(&world).await?;
        let mut clients: Vec<Client> = Vec::new();
        for (group, name) in groups.iter().zip(["ada", "bob", "cy"]) {
            clients.push(group.enter(name)?);
        }
        for client in &mut clients {
            view_of(client, 3).await?;
        }
        clients[1].takes_bundles(true);
        let bundle = |from: usize, round: usize| (0..3).map(move |part| format!("{from} {round} {part}"));
        for round in 0..30 {
            for (from, client) in clients.iter().enumerate() {
                let sender = client.sender();
                match round % 3 {
                    0 => drop(sender.send(format!("{from} {round} 0")).await?),
                    1 => drop(sender.send_bundle(bundle(from, round)).await?),
                    _ => drop(sender.send_bundle_safe(bundle(from, round)).await?),
                }
            }
        }
        // 10 alone and 20 bundles of each: 70 messages.
        let mut all: Vec<Vec<String>> = Vec::new();
        for (reader, client) in clients.iter_mut().enumerate() {
            let mut told = Vec::new();
            let mut note = |message: antiphon::clients::ClientMessage| {
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                assert!(
                    text.ends_with(&format!(" {}", message.part)),
                    "{text} is part {}",
                    message.part
                );
                told.push(format!("{text} {} {}", message.seq, message.safe));
                told.len()
            };
            let mut count = 0;
            while count < 210 {
                match client.next().await.ok_or("it is out")? {
                    ClientEvent::Message(message) => count = note(message),
                    ClientEvent::Bundle(bundle) => {
                        assert_eq!((reader, bundle.len()), (1, 3));
                        count = bundle.map(&mut note).last().ok_or("an empty bundle")?;
                    }
                    other => return Err(format!("{other:?}").into()),
                }
            }
            all.push(told);
        }
        assert!(all[0] == all[1] && all[1] == all[2]);
        // Nothing comes between the messages of a bundle.
        for part in all[0].chunk_by(|one, next| one.rsplit(' ').nth(1) == next.rsplit(' ').nth(1)) {
            assert!(part.len() == 1 || part.len() == 3, "{part:?}");
        }
        let sender = clients[0].sender();
        let none: [&str; 0] = [];
        assert_eq!(
            sender.send_bundle(none).await.err(),
            Some(ClientSendError::NoBundle)
        );
        let large = sender.send_bundle(vec![vec![0; 1000]; 100]).await.err();
        assert!(
            matches!(large, Some(ClientSendError::Group(SendError::TooLarge { .. }))),
            "{large:?}"
        );
        Ok(())
    })
}

#[test]
fn a_client_that_takes_large_bundles_one_by_one_is_as_slow_as_it_takes() -> Result<(), RunError> {
    const BUNDLES: usize = 30;
    // 4096 messages of 3 digits.
    let bundle = || (0..4096).map(|part| format!("{:03}", part % 1000));
    // So many at once, a hundred times a second: 16,384 in 10 s are enough, and fewer are not.
    for (at_once, stays) in [(20, true), (10, false)] {
        World::new(4, ABC).run(async |world| {
            // In the window of a group there is room for all of them.
            let nodes = [world.node("a")?.start().await?, world.node("b")?.start().await?];
            let mut ada = nodes[0].clients("chat").start().await?.enter("ada")?;
            let mut bob = nodes[1].clients("chat").start().await?.enter("bob")?;
            view_of(&mut ada, 2).await?;
            view_of(&mut bob, 2).await?;
            ada.sender().hears(false);
            let (sender, mut told, mut goes) = (ada.sender(), Vec::new(), false);
            let sends = async {
                for _ in 0..BUNDLES {
                    sender.send_bundle(bundle()).await?;
                }
                Ok::<(), SceneError>(())
            };
            let takes = async {
                while told.len() < BUNDLES * 4096 {
                    let mut events = Vec::new();
                    if bob.next_batch(&mut events, at_once).await == 0 {
                        break;
                    }
                    assert!(events.len() <= at_once);
                    for event in events {
                        match event {
                            ClientEvent::Message(message) => {
                                told.push(message.part);
                                assert_eq!(message.payload, format!("{:03}", message.part % 1000));
                            }
                            ClientEvent::Left { .. } => goes = true,
                            other => return Err(format!("{other:?}").into()),
                        }
                    }
                    world.sleep_ms(10).await;
                }
                Ok::<(), SceneError>(())
            };
            let (sent, took) = tokio::join!(sends, takes);
            sent?;
            took?;
            assert_eq!(goes, !stays, "{} told", told.len());
            let in_order = told
                .iter()
                .enumerate()
                .all(|(at, part)| at % 4096 == *part as usize);
            assert!(in_order && (!stays || told.len() == BUNDLES * 4096));
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_client_that_takes_nothing_holds_up_its_senders_and_is_then_removed() -> Result<(), RunError> {
    World::new(2, ABC).run(async |world| {
        let (_nodes, groups) = groups(&world).await?;
        let mut ada = groups[0].enter("ada")?;
        view_of(&mut ada, 1).await?;
        let _bob = groups[1].enter("bob")?;
        let mut cy = groups[1].enter("cy")?;
        view_of(&mut cy, 3).await?;
        let begun = world.now();
        let voice = ada.sender();
        world.spawn("a", async move { while ada.next().await.is_some() {} })?;
        let reading = world.spawn("b", async move {
            until(
                &mut cy,
                "a/ada b/cy; b/bob: slow: it did not take what waited for it within 10 s",
            )
            .await
            .is_ok()
        })?;
        // Some 25 windows.
        for _ in 0..400 {
            voice.send(vec![b'x'; 4096]).await?;
        }
        let held_up = world.now() - begun;
        assert!(
            held_up > Duration::from_secs(9) && held_up < Duration::from_secs(20),
            "{held_up:?}"
        );
        assert_eq!(reading.await?, Some(true));
        Ok(())
    })
}

/// Others go on saying a little: that keeps nobody in.
#[test]
fn a_client_that_takes_nothing_is_removed_also_while_little_is_said_all_the_time() -> Result<(), RunError> {
    World::new(6, ABC).run(async |world| {
        let (_nodes, groups) = groups(&world).await?;
        let (mut ada, mut cy) = (groups[0].enter("ada")?, groups[2].enter("cy")?);
        view_of(&mut cy, 2).await?;
        view_of(&mut ada, 2).await?;
        let _bob = groups[1].enter("bob")?;
        view_of(&mut cy, 3).await?;
        let (voice, drip) = (ada.sender(), cy.sender());
        world.spawn("a", async move { while ada.next().await.is_some() {} })?;
        let removed = world.spawn("c", async move {
            until(
                &mut cy,
                "a/ada c/cy; b/bob: slow: it did not take what waited for it within 10 s",
            )
            .await
            .is_ok()
        })?;
        let begun = world.now();
        world.spawn("c", async move {
            while drip.send("drip").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })?;
        for _ in 0..400 {
            voice.send(vec![b'x'; 4096]).await?;
        }
        assert_eq!(removed.await?, Some(true));
        let took = world.now() - begun;
        assert!(took < Duration::from_secs(15), "{took:?}");
        Ok(())
    })
}

#[test]
fn a_client_that_does_not_read_keeps_none_of_its_node_out_when_that_comes_back() -> Result<(), RunError> {
    World::new(7, ABC).run(async |world| {
        let (_nodes, groups) = groups(&world).await?;
        let mut ada = groups[0].enter("ada")?;
        let _deaf = groups[2].enter("deaf")?;
        let mut cy = groups[2].enter("cy")?;
        view_of(&mut cy, 3).await?;
        world.partition(["c"], ["a", "b"])?;
        view_of(&mut ada, 3).await?;
        until(
            &mut ada,
            "a/ada; c/deaf: its node crashed or was cut off; c/cy: its node crashed or was cut off",
        )
        .await?;
        world.heal();
        view_of(&mut ada, 3).await?;
        ada.send("here").await?;
        until(&mut cy, "a/ada: here").await?;
        Ok(())
    })
}

#[test]
fn with_a_node_its_clients_go_and_one_that_comes_back_has_others() -> Result<(), RunError> {
    World::new(3, ABC).run(async |world| {
        let (_nodes, groups) = groups(&world).await?;
        let (mut ada, _bob) = (groups[0].enter("ada")?, groups[1].enter("bob")?);
        let mut cy = groups[2].enter("cy")?;
        view_of(&mut cy, 3).await?;
        world.kill("b")?;
        let gone = "; b/bob: its node crashed or was cut off";
        let told = until(&mut cy, &format!("a/ada c/cy{gone}")).await;
        assert!(told.is_ok(), "{told:?}");
        // A component without a majority goes on as such: nothing is told there.
        world.partition(["c"], ["a"])?;
        world.sleep_ms(5000).await;
        world.heal();
        let again = world.node("b")?.start().await?;
        let mut bob = again
            .clients("chat")
            .window_bytes(64 << 10)
            .join()
            .await?
            .enter("bob")?;
        assert_eq!(view_of(&mut bob, 3).await?.split(' ').count(), 3);
        view_of(&mut ada, 3).await?;
        view_of(&mut cy, 3).await?;
        bob.send("here").await?;
        until(&mut ada, "b/bob: here").await?;
        until(&mut cy, "b/bob: here").await?;
        Ok(())
    })
}

#[test]
fn a_client_of_a_node_that_was_cut_off_is_told_and_comes_in_again_as_another_one() -> Result<(), RunError> {
    World::new(4, ABC).run(async |world| {
        let (nodes, groups) = groups(&world).await?;
        let (mut ada, _bob) = (groups[0].enter("ada")?, groups[1].enter("bob")?);
        let mut cy = groups[2].enter("cy")?;
        view_of(&mut cy, 3).await?;
        let before = nodes[2].incarnation();
        world.partition(["c"], ["a", "b"])?;
        until(&mut ada, "a/ada b/bob; c/cy: its node crashed or was cut off").await?;
        world.heal();
        let mut told = Vec::new();
        loop {
            match cy.next().await.ok_or("it is out")? {
                ClientEvent::View(view) if view.members.len() == 3 => {
                    let [me] = &view.joined[..] else {
                        return Err(format!("{view}").into());
                    };
                    assert_ne!(me.client.id.node, before, "it is another one");
                    break;
                }
                other => told.push(other),
            }
        }
        let resync = |event: &ClientEvent| matches!(event, ClientEvent::Resync { .. });
        assert!(told.iter().any(resync), "{told:?}");
        view_of(&mut ada, 3).await?;
        Ok(())
    })
}

#[test]
fn a_client_of_a_node_that_was_stopped_is_told_no_message_of_the_membership_that_ended()
-> Result<(), RunError> {
    World::new(10, ABC).run(async |world| {
        let (nodes, groups) = groups(&world).await?;
        let (ada, mut bob) = (groups[0].enter("ada")?, groups[1].enter("bob")?);
        view_of(&mut bob, 2).await?;
        for _ in 0..50 {
            ada.send("old").await?;
        }
        world.sleep_ms(100).await;
        let first = bob.next().await.ok_or("it is out")?;
        assert!(matches!(first, ClientEvent::Message(_)), "{first:?}");
        world.pause("b", Duration::from_secs(10))?;
        let without_b = || nodes[0].view().is_some_and(|view| view.members.len() == 2);
        world.until(without_b).await;
        let late = tokio::time::timeout(Duration::from_secs(1), bob.next()).await;
        assert!(late.is_err(), "its lease is over: {late:?}");
        let mut told = Vec::new();
        loop {
            match bob.next().await.ok_or("it is out")? {
                ClientEvent::View(view) if view.members.len() == 2 => break,
                other => told.push(other),
            }
        }
        let resyncs = told
            .iter()
            .filter(|event| matches!(event, ClientEvent::Resync { .. }));
        assert_eq!(resyncs.count(), 1, "{told:?}");
        let is_message = |event: &ClientEvent| matches!(event, ClientEvent::Message(_));
        assert!(!told.iter().any(is_message), "{told:?}");
        Ok(())
    })
}

#[test]
fn the_end_of_a_node_is_told_to_its_clients() -> Result<(), RunError> {
    World::new(5, ABC).run(async |world| {
        let (nodes, groups) = groups(&world).await?;
        let mut ada = groups[0].enter("ada")?;
        let mut bob = groups[1].enter("bob")?;
        view_of(&mut bob, 2).await?;
        nodes[0].leave().await?;
        let told = until(&mut bob, "b/bob; a/ada: its node left the group").await;
        assert!(told.is_ok(), "{told:?}");
        let mut last = None;
        while let Some(event) = ada.next().await {
            last = Some(event);
        }
        assert!(
            matches!(
                last,
                Some(ClientEvent::Left {
                    departure: Departure::Lost { .. }
                })
            ),
            "{last:?}"
        );
        assert_eq!(groups[0].enter("late").err(), Some(Refusal::NotIn));
        Ok(())
    })
}

//! Calls on real nodes in virtual time: what handles promise while members answer, wait, fail and leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use antiphon::calls::{
    AskError, Call, Calls, CallsError, Config, Failure, MAX_CALL_BYTES, Ran, Refusal, Rule, Target, Verb, Why,
};
use antiphon::testkit::{RunError, SceneError, World};
use antiphon::{Cluster, Order, Parting};

const ABC: [&str; 3] = ["a", "b", "c"];
const ADD: Verb<(u32, u32), u32, String> = Verb::new("add");
const DEPTH: Verb<(), u32, String> = Verb::new("depth");
const HANG: Verb<(), (), ()> = Verb::new("hang");
/// What a member of another version takes it for.
const ADD_OTHERWISE: Verb<(), u32, String> = Verb::new("add");
/// Its reply cannot be read.
const ADD_AS_TEXT: Verb<(u32, u32), String, String> = Verb::new("add");
/// A time before 1970 cannot be written.
const ADD_TIMES: Verb<SystemTime, u32, String> = Verb::new("add");
/// An error of this type can be read from any bytes.
const ADD_NOTHING: Verb<(), u32, ()> = Verb::new("add");
const MUCH: Verb<(), Vec<u8>, u32> = Verb::new("much");
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Starts them, each with its calls, and waits until all are members.
async fn calls(world: &World, order: Order) -> Result<(Vec<Cluster>, Vec<Calls>), SceneError> {
    let mut nodes = Vec::new();
    for name in ABC {
        nodes.push(world.node(name)?.start().await?);
    }
    let mut all = Vec::new();
    for node in &nodes {
        let group = node.group("calls").order(order).start().await?;
        let config = Config {
            max_running: 2,
            ..Config::default()
        };
        all.push(Calls::with_config(group, config));
    }
    let together = |calls: &Calls| calls.members().len() == ABC.len();
    world.until(|| all.iter().all(together)).await;
    Ok((nodes, all))
}

fn member(of: &Cluster) -> Target {
    Target::Member(of.incarnation())
}

fn serve_add(calls: &Calls) -> Result<(), Refusal> {
    calls.serve(ADD, async |_, (a, b)| {
        a.checked_add(b).ok_or_else(|| "too much".to_owned())
    })
}

/// Counts the handlers that are alive.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn one(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self(alive.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn serve_hang(calls: &Calls) -> Result<Arc<AtomicUsize>, Refusal> {
    let alive = Arc::new(AtomicUsize::new(0));
    let inside = alive.clone();
    calls.serve(HANG, move |_, ()| {
        let alive = Alive::one(&inside);
        async move {
            std::future::pending::<()>().await;
            drop(alive);
            Ok(())
        }
    })?;
    Ok(alive)
}

#[test]
fn one_any_and_all_members_answer_in_groups_of_each_order() -> Result<(), RunError> {
    for order in [Order::Total, Order::Fifo, Order::Unordered] {
        World::new(1, ABC).run(async |world| {
            let (nodes, calls) = calls(&world, order).await?;
            for calls in &calls {
                serve_add(calls)?;
            }
            for node in &nodes {
                let sum = calls[0].ask(member(node), ADD, &(1, 2), MINUTE).await?;
                assert_eq!(sum, 3);
            }
            let sum = calls[1].ask(Target::Any, ADD, &(2, 2), MINUTE).await?;
            assert_eq!(sum, 4);
            let sums = calls[2].ask_all(ADD, &(3, 4), Rule::All, MINUTE).await?;
            assert_eq!(sums.iter().map(|(_, sum)| *sum).collect::<Vec<_>>(), [7, 7, 7]);
            let error = calls[2].ask(Target::Any, ADD, &(1, u32::MAX), MINUTE).await;
            assert_eq!(error, Err(AskError::Application("too much".to_owned())));
            let wrong = calls[2].ask(member(&nodes[0]), ADD_OTHERWISE, &(), MINUTE).await;
            let Err(AskError::Failed(unread)) = wrong else {
                return Err(format!("{wrong:?}").into());
            };
            assert_eq!(unread.ran(), Ran::No);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_killed_server_ends_its_calls_with_the_cause_long_before_their_deadline() -> Result<(), RunError> {
    World::new(2, ABC).run(async |world| {
        let (nodes, calls) = calls(&world, Order::Total).await?;
        let alive = serve_hang(&calls[2])?;
        let (from, to) = (calls[0].clone(), member(&nodes[2]));
        let asked = world.spawn(
            "a",
            async move { from.ask::<_, (), ()>(to, HANG, &(), MINUTE).await },
        )?;
        world.until(|| alive.load(SeqCst) == 1).await;
        let before = world.now();
        world.kill("c")?;
        let error = asked.await?.ok_or("killed")?;
        assert!(
            world.now() - before < Duration::from_secs(20),
            "{:?}",
            world.now() - before
        );
        let Err(AskError::Failed(CallsError::Failed(error))) = error else {
            return Err(format!("{error:?}").into());
        };
        assert_eq!((error.why, error.ran), (Why::Failed, Ran::Maybe));
        assert_eq!(error.failures[0].1, Failure::Departed(Parting::Crashed));
        Ok(())
    })
}

#[test]
fn a_call_to_all_of_a_member_that_is_cut_off_ends_long_before_its_deadline() -> Result<(), RunError> {
    World::new(6, ABC).run(async |world| {
        let (nodes, calls) = calls(&world, Order::Total).await?;
        for calls in &calls {
            serve_add(calls)?;
        }
        world.partition(["c"], ["a", "b"])?;
        let from = calls[2].clone();
        let asked = world.spawn("c", async move {
            from.ask_all(ADD, &(1, 2), Rule::All, 5 * MINUTE).await
        })?;
        world
            .until(|| nodes[0].view().is_some_and(|view| view.members.len() == 2))
            .await;
        let parted = world.now();
        world.heal();
        let Err(AskError::Failed(CallsError::Failed(error))) = asked.await?.ok_or("killed")? else {
            panic!("a call that has run may have run");
        };
        assert_eq!((error.why, error.ran), (Why::MembershipEnded, Ran::Maybe));
        assert!(
            world.now() - parted < Duration::from_secs(5),
            "{:?}",
            world.now() - parted
        );
        Ok(())
    })
}

#[test]
fn a_member_that_leaves_without_a_primary_ends_its_calls_and_handlers_and_takes_no_call()
-> Result<(), RunError> {
    World::new(11, ABC).run(async |world| {
        let (nodes, calls) = calls(&world, Order::Total).await?;
        serve_add(&calls[1])?;
        let alive = serve_hang(&calls[0])?;
        let (from, to) = (calls[1].clone(), member(&nodes[0]));
        let _served = world.spawn("b", async move {
            from.ask::<_, (), ()>(to, HANG, &(), 5 * MINUTE).await
        })?;
        world.until(|| alive.load(SeqCst) == 1).await;
        world.partition(["a"], ["b", "c"])?;
        let lost = || nodes[0].view().is_some_and(|view| !view.is_primary());
        world.until(lost).await;
        assert_eq!(alive.load(SeqCst), 1);
        let before = world.now();
        let (from, to) = (calls[0].clone(), member(&nodes[1]));
        let asked = world.spawn("a", async move { from.ask(to, ADD, &(1, 2), SECOND).await })?;
        let leaves = calls[0].clone();
        let left = world.spawn("a", async move { leaves.leave().await })?;
        let asked = asked.await?.ok_or("killed")?;
        let Err(AskError::Failed(error)) = asked else {
            return Err(format!("{asked:?}").into());
        };
        assert_ne!(error.ran(), Ran::Yes);
        assert!(world.now() - before <= SECOND, "{:?}", world.now() - before);
        world.until(|| alive.load(SeqCst) == 0).await;
        let late = calls[0].ask(member(&nodes[1]), ADD, &(1, 2), MINUTE).await;
        let refused = CallsError::Refused(Refusal::NotMember);
        assert_eq!(late, Err(AskError::Failed(refused)));
        assert!(!left.is_finished(), "it cannot tell the others");
        Ok(())
    })
}

#[test]
fn whoever_asked_a_handler_that_gives_up_is_told_at_once_whether_it_may_have_run() -> Result<(), RunError> {
    World::new(8, ABC).run(async |world| {
        let (nodes, calls) = calls(&world, Order::Total).await?;
        calls[1].serve_bytes("gives up", async |request| {
            request.give_up(false);
            Err("".into())
        })?;
        let to = member(&nodes[1]);
        let given_up = calls[0]
            .call(Call {
                target: to,
                verb: "gives up".to_owned(),
                payload: "".into(),
                rule: Rule::First,
                deadline: MINUTE,
                within: None,
            })
            .await;
        let Err(CallsError::Failed(error)) = given_up else {
            return Err(format!("{given_up:?}").into());
        };
        assert_eq!(error.ran, Ran::No);
        assert_eq!(error.failures[0].1, Failure::GivenUp { may_have_run: false });
        assert!(world.now() < MINUTE);
        Ok(())
    })
}

#[test]
fn no_error_of_a_handler_is_made_up_for_what_cannot_be_read_or_is_too_large() -> Result<(), RunError> {
    World::new(9, ABC).run(async |world| {
        let (nodes, calls) = calls(&world, Order::Total).await?;
        serve_add(&calls[1])?;
        calls[1].serve(MUCH, async |_, ()| Ok(vec![7; 2 * MAX_CALL_BYTES]))?;
        let unread = calls[0].ask(member(&nodes[1]), ADD_NOTHING, &(), MINUTE).await;
        let Err(AskError::Failed(no_handler_ran)) = unread else {
            return Err(format!("{unread:?}").into());
        };
        assert_eq!(no_handler_ran.ran(), Ran::No);
        let untold = calls[0].ask(member(&nodes[1]), MUCH, &(), MINUTE).await;
        let Err(AskError::Failed(has_run)) = untold else {
            return Err(format!("{untold:?}").into());
        };
        assert_ne!(has_run.ran(), Ran::No);
        assert!(world.now() < MINUTE);
        Ok(())
    })
}

#[test]
fn each_error_of_a_typed_call_says_whether_a_handler_ran() -> Result<(), RunError> {
    World::new(10, ABC).run(async |world| {
        let (nodes, calls) = calls(&world, Order::Total).await?;
        serve_add(&calls[1])?;
        let to = || member(&nodes[1]);
        let own = calls[0].ask(to(), ADD, &(1, u32::MAX), MINUTE).await;
        assert_eq!(own, Err(AskError::Application("too much".to_owned())));
        let unread = calls[0].ask(to(), ADD_AS_TEXT, &(1, 2), MINUTE).await;
        assert_eq!(unread, Err(AskError::Undecodable));
        let early = SystemTime::UNIX_EPOCH - MINUTE;
        let unwritten = calls[0].ask(to(), ADD_TIMES, &early, MINUTE).await;
        assert_eq!(unwritten, Err(AskError::Unencodable));
        let unserved = calls[0].ask(member(&nodes[2]), ADD, &(1, 2), MINUTE).await;
        assert!(matches!(unserved, Err(AskError::Failed(_))), "{unserved:?}");
        let errors = [own.err(), unread.err(), unwritten.err(), unserved.err()];
        let ran = errors.map(|error| error.map(|error| error.ran()));
        let expected = [Ran::Yes, Ran::Yes, Ran::No, Ran::No];
        assert_eq!(ran, expected.map(Some));
        Ok(())
    })
}

#[test]
fn deadlines_and_dropped_calls_drop_their_handlers() -> Result<(), RunError> {
    World::new(3, ABC).run(async |world| {
        let (nodes, calls) = calls(&world, Order::Total).await?;
        let alive = serve_hang(&calls[1])?;
        let short = Duration::from_millis(300);
        let error = calls[0]
            .ask::<_, (), ()>(member(&nodes[1]), HANG, &(), short)
            .await;
        let Err(AskError::Failed(error)) = error else {
            return Err(format!("{error:?}").into());
        };
        assert_eq!(error.ran(), Ran::Maybe);
        world.until(|| alive.load(SeqCst) == 0).await;
        let call = calls[0].ask::<_, (), ()>(member(&nodes[1]), HANG, &(), MINUTE);
        let dropped = tokio::time::timeout(short, call).await;
        assert!(dropped.is_err());
        world.until(|| alive.load(SeqCst) == 0).await;
        assert!(world.now() < MINUTE);
        Ok(())
    })
}

#[test]
fn handlers_that_call_each_other_in_a_circle_all_end() -> Result<(), RunError> {
    World::new(4, ABC).run(async |world| {
        let (_, calls) = calls(&world, Order::Total).await?;
        for calls in &calls {
            // Each asks the member after it, until handlers may not call any more.
            calls.serve(DEPTH, async |request, ()| {
                let within = request.calls();
                let members = within.members();
                let here = members.iter().map(|member| member.incarnation);
                let next = here.cycle().skip(1).nth(request.id.number as usize % 3);
                let next = Target::Member(next.ok_or("nobody")?);
                match within.ask(next, DEPTH, &(), MINUTE).await {
                    Ok(depth) => Ok(depth + 1),
                    Err(AskError::Failed(CallsError::Refused(Refusal::TooDeep))) => Ok(0),
                    Err(error) => Err(format!("{error}")),
                }
            })?;
        }
        let mut asked = Vec::new();
        for number in 0..12 {
            let calls = calls[number % 3].clone();
            let target = Target::Member(calls.members()[(number + 1) % 3].incarnation);
            asked.push(world.spawn(ABC[number % 3], async move {
                calls.ask(target, DEPTH, &(), MINUTE).await
            })?);
        }
        for asked in asked {
            assert_eq!(asked.await?, Some(Ok(u32::from(Config::default().max_depth))));
        }
        Ok(())
    })
}

#[test]
fn what_is_too_large_is_refused_with_the_limit_and_leaving_ends_calls() -> Result<(), RunError> {
    World::new(5, ABC).run(async |world| {
        let (nodes, mut calls) = calls(&world, Order::Total).await?;
        calls[1].serve_bytes("double", async |request| {
            Ok([&request.payload[..], &request.payload[..]].concat().into())
        })?;
        let call = |bytes: usize| Call {
            target: member(&nodes[1]),
            verb: "double".to_owned(),
            payload: vec![7; bytes].into(),
            rule: Rule::All,
            deadline: MINUTE,
            within: None,
        };
        let limit = MAX_CALL_BYTES;
        let refused = calls[0].call(call(limit + 1)).await;
        assert_eq!(refused, Err(CallsError::Refused(Refusal::TooLarge { limit })));
        let replies = calls[0].call(call(limit / 2)).await?;
        assert_eq!(replies.replies[0].1.len(), limit / 2 * 2);
        let Err(CallsError::Failed(error)) = calls[0].call(call(limit)).await else {
            return Err("the reply is too large".into());
        };
        assert_eq!(error.failures[0].1, Failure::GivenUp { may_have_run: true });
        let alive = serve_hang(&calls[1])?;
        let (from, to) = (calls[0].clone(), member(&nodes[1]));
        let asked = world.spawn(
            "a",
            async move { from.ask::<_, (), ()>(to, HANG, &(), MINUTE).await },
        )?;
        world.until(|| alive.load(SeqCst) == 1).await;
        calls.remove(1).leave().await;
        assert_eq!(alive.load(SeqCst), 0);
        let Err(AskError::Failed(CallsError::Failed(error))) = asked.await?.ok_or("killed")? else {
            return Err("the server has left".into());
        };
        assert_eq!(error.failures[0].1, Failure::Departed(Parting::Left));
        Ok(())
    })
}

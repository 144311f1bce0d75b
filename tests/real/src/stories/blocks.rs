//! Locks, maps and requests as lines, through kills and pauses.

use antiphon_api::blocks::{self, Answer, Get, Id, Lock, Put, Reply, Serial, Serve, To, Unlock, Watch, Word};
use antiphon_api::{Command as Request, Payload};

use super::*;
use crate::{Cluster, Event, Options, Trace};

pub(super) const STORIES: &[Story] = &[
    story!(a_lock_goes_to_a_node_that_waits_when_its_holder_is_killed_with_a_greater_token),
    story!(a_holder_that_was_stopped_is_told_that_its_lock_is_lost_and_another_has_it_by_then),
    story!(of_three_nodes_that_replace_one_version_one_does_and_all_watch_the_same),
    story!(a_call_to_all_has_the_answers_of_those_that_live_and_says_of_the_killed_one_that_it_may_have_run),
    story!(without_a_majority_operations_are_refused_and_with_it_they_are_done_again).on(Engine::Cut),
];

fn started(count: usize, options: Options) -> Cluster {
    let names = names(count);
    let mut cluster = Cluster::on_loopback(count, options);
    cluster.start(&all(&names));
    cluster.until_together(&all(&names), SOON);
    cluster
}

fn id(id: u64) -> Option<Id> {
    Some(Id::Number(id))
}

fn text(text: &str) -> Payload {
    Payload::Text(text.to_owned())
}

fn lock(name: &str, number: u64) -> Request {
    let (name, id) = (name.to_owned(), id(number));
    Request::Lock(Lock {
        name,
        within: None,
        id,
    })
}

fn get(key: &str, number: u64) -> Request {
    Request::Get(Get {
        map: "m".into(),
        key: key.into(),
        latest: true,
        id: id(number),
    })
}

fn put(key: &str, value: &str, if_version: Option<Serial>, number: u64) -> Request {
    Request::Put(Put {
        map: "m".into(),
        key: key.into(),
        value: text(value),
        if_version,
        ttl: None,
        id: id(number),
    })
}

/// The reply to an operation, if there is one already; one alone.
fn replied(trace: &Trace, name: &str, number: u64) -> Option<Reply> {
    let events = trace.last(name).events.iter();
    let mut replies = events.filter_map(|(_, event)| match event {
        Event::Reply(reply) if reply.id == id(number) => Some(reply.clone()),
        _ => None,
    });
    let reply = replies.next();
    assert_eq!(replies.next(), None, "{name} was replied to twice");
    reply
}

#[track_caller]
fn reply(cluster: &Cluster, name: &str, number: u64, bound: Duration) -> Reply {
    cluster.until(&format!("{name} has the reply {number}"), bound, |trace| {
        replied(trace, name, number).is_some()
    });
    cluster
        .look(|trace| replied(trace, name, number))
        .expect("it was there")
}

#[track_caller]
fn ask(cluster: &Cluster, name: &str, request: &Request, number: u64) -> Reply {
    cluster.tell(name, request);
    reply(cluster, name, number, SOON)
}

fn lost(trace: &Trace, name: &str) -> Vec<blocks::Lost> {
    let events = trace.last(name).events.iter();
    let lost = events.filter_map(|(_, event)| match event {
        Event::Lost(lost) => Some(lost.clone()),
        _ => None,
    });
    lost.collect()
}

fn a_lock_goes_to_a_node_that_waits_when_its_holder_is_killed_with_a_greater_token(engine: Engine) {
    let mut cluster = started(3, told_on(engine));
    let first = ask(&cluster, "n1", &lock("x", 1), 1).token.expect("it is free");
    cluster.tell("n2", &lock("x", 1));
    // Behind the wait for the lock in its group's order.
    assert!(ask(&cluster, "n2", &lock("y", 2), 2).token.is_some());
    assert_eq!(cluster.look(|trace| replied(trace, "n2", 1)), None);
    cluster.kill("n1");
    let second = reply(&cluster, "n2", 1, DETECTED).token.expect("its turn");
    assert!(second > first);
    cluster.start(&["n1"]);
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    let unlock = |token, number| {
        let (name, id) = ("x".to_owned(), id(number));
        Request::Unlock(Unlock { name, token, id })
    };
    let stale = ask(&cluster, "n1", &unlock(second, 1), 1)
        .error
        .expect("it is another node's");
    assert_eq!((stale.code, stale.ran), (blocks::Code::NotHeld, blocks::Ran::No));
    assert_eq!(ask(&cluster, "n2", &unlock(second, 3), 3).error, None);
    assert!(ask(&cluster, "n1", &lock("x", 2), 2).token > Some(second));
    cluster.leave("n1");
    cluster.finish();
}

fn a_holder_that_was_stopped_is_told_that_its_lock_is_lost_and_another_has_it_by_then(engine: Engine) {
    let mut cluster = started(3, told_on(engine));
    let first = ask(&cluster, "n1", &lock("x", 1), 1).token.expect("it is free");
    cluster.tell("n2", &lock("x", 1));
    cluster.freeze("n1");
    let second = reply(&cluster, "n2", 1, DETECTED).token.expect("its turn");
    assert!(second > first);
    assert!(cluster.look(|trace| lost(trace, "n1").is_empty()));
    cluster.thaw("n1");
    cluster.until("n1 knows that it lost the lock", SOON, |trace| {
        !lost(trace, "n1").is_empty()
    });
    let told = cluster.look(|trace| lost(trace, "n1"));
    assert_eq!((told[0].token, &told[0].id, told.len()), (Some(first), &id(1), 1));
    cluster.until_together(&["n1", "n2", "n3"], DETECTED);
    let (name, token) = ("x".to_owned(), second);
    let unlock = Request::Unlock(Unlock {
        name,
        token,
        id: id(2),
    });
    assert_eq!(ask(&cluster, "n2", &unlock, 2).error, None);
    // As a fresh member of the group of locks, which it is a moment after it is one of the other.
    let mut again = (2..1000).map(|number| ask(&cluster, "n1", &lock("x", number), number));
    let again = again.find(|reply| reply.error.is_none());
    assert!(again.and_then(|reply| reply.token) > Some(second));
    cluster.finish();
}

fn of_three_nodes_that_replace_one_version_one_does_and_all_watch_the_same(engine: Engine) {
    const ROUNDS: u64 = 20;
    let names = ["n1", "n2", "n3"];
    let mut cluster = started(3, told_on(engine));
    for name in names {
        let watch = Request::Watch(Watch {
            map: "m".into(),
            key: None,
            prefix: None,
            id: id(0),
        });
        assert_eq!(ask(&cluster, name, &watch, 0).error, None);
    }
    let mut version = Serial(0);
    for round in 1..=ROUNDS {
        for name in names {
            cluster.tell(name, &put("k", &format!("{name} {round}"), Some(version), round));
        }
        let replies = names.map(|name| reply(&cluster, name, round, SOON));
        let winners: Vec<_> = replies.iter().filter(|reply| reply.error.is_none()).collect();
        assert_eq!(winners.len(), 1, "{replies:?}");
        let next = winners[0].version.expect("a put has a version");
        assert!(next > version);
        for other in replies.iter().filter(|reply| reply.error.is_some()) {
            let error = other.error.as_ref().expect("it is there");
            assert_eq!((error.code, error.ran), (blocks::Code::Conflict, blocks::Ran::No));
            assert_eq!(other.version, Some(next));
        }
        version = next;
    }
    let watched = |trace: &Trace, name: &str| -> Vec<blocks::Changed> {
        let events = trace.last(name).events.iter();
        let changes = events.filter_map(|(_, event)| match event {
            Event::Changed(changed) => Some(changed.clone()),
            _ => None,
        });
        changes.collect()
    };
    cluster.until("all were told all changes", SOON, |trace| {
        names
            .iter()
            .all(|name| watched(trace, name).len() == ROUNDS as usize)
    });
    let seen = names.map(|name| cluster.look(|trace| watched(trace, name)));
    assert!(seen[0] == seen[1] && seen[1] == seen[2]);
    // What a killed node wrote is there; a node that comes gets it.
    cluster.kill("n1");
    cluster.until_together(&["n2", "n3"], DETECTED);
    cluster.start(&["n1"]);
    cluster.until_together(&names, SOON);
    assert_eq!(ask(&cluster, "n1", &get("k", 1), 1).version, Some(version));
    assert_eq!(
        ask(&cluster, "n2", &get("none", 100), 100).value,
        Some(blocks::Value::Nothing)
    );
    cluster.finish();
}

fn a_call_to_all_has_the_answers_of_those_that_live_and_says_of_the_killed_one_that_it_may_have_run(
    engine: Engine,
) {
    let mut cluster = started(3, told_on(engine));
    for name in ["n1", "n2", "n3"] {
        let (group, verb) = ("g".to_owned(), "v".to_owned());
        let serve = Request::Serve(Serve {
            group,
            verb,
            id: id(1),
        });
        assert_eq!(ask(&cluster, name, &serve, 1).error, None);
    }
    let call = cluster.call("n1", "g", "v", To::Word(Word::All), "60s");
    let replies = |trace: &Trace| -> Vec<Reply> {
        let replies = trace.last("n1").replies_to_calls();
        let of_it = replies.filter(|(what, _)| *what == call);
        of_it.map(|(_, reply)| reply.clone()).collect()
    };
    let request = |trace: &Trace, name: &str| {
        let mut events = trace.last(name).events.iter();
        events.find_map(|(_, event)| match event {
            Event::Request(request) => Some(request.clone()),
            _ => None,
        })
    };
    for name in ["n1", "n2"] {
        cluster.until("it was asked", SOON, |trace| request(trace, name).is_some());
        let request = cluster.look(|trace| request(trace, name)).expect("it was there");
        assert_eq!((request.from.as_str(), &request.payload), ("n1", &text(&call)));
        let answer = Request::Answer(Answer {
            request: request.request,
            payload: Some(text(name)),
            error: None,
            id: id(3),
        });
        assert_eq!(ask(&cluster, name, &answer, 3).error, None);
    }
    cluster.until("n3 was asked", SOON, |trace| request(trace, "n3").is_some());
    assert_eq!(cluster.look(replies), []);
    cluster.kill("n3");
    cluster.until("the call ends", DETECTED, |trace| !replies(trace).is_empty());
    let [reply] = cluster.look(replies).try_into().expect("it ends once");
    let answers = reply.replies.expect("answers");
    assert_eq!(
        answers.into_iter().collect::<Vec<_>>(),
        [("n1".to_owned(), text("n1")), ("n2".to_owned(), text("n2"))]
    );
    assert_eq!(reply.failures["n3"].ran, blocks::Ran::Maybe);
    assert_eq!(reply.error, None);
    cluster.finish();
}

fn without_a_majority_operations_are_refused_and_with_it_they_are_done_again(engine: Engine) {
    let mut cluster = started(3, told_on(engine));
    let version = ask(&cluster, "n3", &put("k", "before", None, 1), 1).version;
    assert!(version.is_some());
    assert_eq!(ask(&cluster, "n1", &get("k", 1), 1).version, version);
    let token = ask(&cluster, "n3", &lock("x", 2), 2).token.expect("it is free");
    cluster.partition(&[&["n1", "n2"], &["n3"]]);
    cluster.until(
        "n3 is alone, and knows that its lock is lost",
        DETECTED,
        |trace| !trace.last("n3").primary() && !lost(trace, "n3").is_empty(),
    );
    let refused = ask(&cluster, "n3", &put("k", "alone", None, 3), 3)
        .error
        .expect("no majority");
    assert_eq!(
        (refused.code, refused.ran),
        (blocks::Code::Unavailable, blocks::Ran::No)
    );
    assert!(ask(&cluster, "n1", &lock("x", 2), 2).token > Some(token));
    assert!(ask(&cluster, "n1", &put("k", "after", version, 3), 3).version > version);
    cluster.heal();
    cluster.until_together(&["n1", "n2", "n3"], DETECTED);
    // Its map is a group of its own, in which it is a member again a moment later.
    let mut read = (4..1000).map(|number| ask(&cluster, "n3", &get("k", number), number));
    let read = read.find(|reply| reply.error.is_none());
    assert_eq!(
        read.and_then(|reply| reply.value),
        Some(blocks::Value::Bytes(text("after")))
    );
    cluster.finish();
}

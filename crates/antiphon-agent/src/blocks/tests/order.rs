//! What is said right behind something else, and what is told before something else.

use antiphon_api::blocks::{Lost, Reply};
use antiphon_api::{Command, Event};
use tokio::time::timeout;

use super::*;
use crate::hub::{Events, Session as Client};

async fn say(client: &Client, line: Value) {
    client.obey(Command::parse(&line.to_string()).unwrap()).await;
}

async fn reply(events: &mut Events) -> Reply {
    loop {
        let event = timeout(SOON, events.next()).await.expect("a reply comes");
        match event {
            Some(Event::Reply(reply)) => return reply,
            Some(_) => {}
            None => panic!("the session is over"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resign_behind_one_that_fails_is_carried_out() {
    let node = alone().await;
    for round in 0..20 {
        let id = 10 * round;
        let token = node.ask("lead", json!({"name": "job"}), id).await["token"].clone();
        let resign = |more: Value| {
            let mut resign = json!({"name": "job", "token": token});
            let fields = resign.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            json!({ "resign": resign })
        };
        node.say(resign(json!({"to": "nobody", "id": id + 1}))).await;
        node.say(resign(json!({"id": id + 2}))).await;
        node.say(resign(json!({"id": id + 3}))).await;
        let nobody = node.reply(id + 1).await;
        assert_eq!(nobody["error"]["code"], "unavailable", "{nobody}");
        let resigned = node.reply(id + 2).await;
        assert!(resigned["error"].is_null(), "{resigned}");
        let again = node.reply(id + 3).await;
        assert_eq!(again["error"]["code"], "not_held", "{again}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_sees_the_writes_of_its_session_that_stand_before_it() {
    let node = alone().await;
    let mut id = 0;
    for number in 0..30 {
        let key = json!({"map": "m", "key": format!("k{number}")});
        let line = |op: &str, more: Value| {
            let mut of = key.clone();
            let fields = of.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            json!({ op: of })
        };
        for op in ["put", "remove"] {
            let expected = if op == "put" { json!("new") } else { Value::Null };
            let value = if op == "put" {
                json!({"value": "new"})
            } else {
                json!({})
            };
            let mut write = line(op, value);
            write[op]["id"] = json!(id);
            node.say(write).await;
            node.say(line("get", json!({"id": id + 1}))).await;
            node.say(line("get", json!({"latest": true, "id": id + 2}))).await;
            for read in [id + 1, id + 2] {
                let read = node.reply(read).await;
                assert!(read["error"].is_null(), "{read}");
                assert_eq!(read["value"], expected, "{op}: {read}");
            }
            id += 3;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_said_to_be_held_by_the_session_that_holds_it_and_no_longer() {
    let node = alone().await;
    let (holder, mut told) = node.hub.session().unwrap();
    let (other, _told) = node.hub.session().unwrap();
    say(&holder, json!({"lock": {"name": "x"}})).await;
    let token = reply(&mut told).await.token.unwrap();
    assert!(holder.holds("x", token).await);
    assert!(!other.holds("x", token).await);
    assert!(!holder.holds("y", token).await);
    say(&holder, json!({"unlock": {"name": "x", "token": token}})).await;
    let unlocked = reply(&mut told).await;
    assert_eq!(unlocked.error, None);
    assert!(!holder.holds("x", token).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_tells_what_is_lost_before_others_are_granted_it() {
    for _ in 0..5 {
        let network = MemoryNetwork::new();
        let first = Node::start(&network, 1, true).await;
        let second = Node::start(&network, 2, false).await;
        let (holder, mut told) = first.hub.session().unwrap();
        let (waits, mut granted) = second.hub.session().unwrap();
        for number in 0..10 {
            let lock = json!({"lock": {"name": format!("x{number}"), "id": number}});
            say(&holder, lock.clone()).await;
            assert_eq!(reply(&mut told).await.error, None);
            say(&waits, lock).await;
        }
        let hub = first.hub.clone();
        let closes = tokio::spawn(async move { hub.close().await });
        let mut lost = Vec::new();
        for _ in 0..10 {
            let reply = reply(&mut granted).await;
            assert_eq!(reply.error, None);
            while let Some(event) = told.try_next() {
                if let Event::Lost(Lost { id, .. }) = event {
                    lost.push(id);
                }
            }
            assert!(
                lost.contains(&reply.id),
                "{:?} is granted, lost are {lost:?}",
                reply.id
            );
        }
        closes.await.unwrap();
    }
}

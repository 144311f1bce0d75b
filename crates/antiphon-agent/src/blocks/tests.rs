//! The operations, line by line, on nodes in one process.

use std::time::Duration;

use antiphon::Cluster;
use antiphon::memory::MemoryNetwork;
use serde_json::{Value, json};

use super::{MAX_NAME_BYTES, MAX_WATCHES};
use crate::Hub;
use crate::testing::{self, Obedient, SOON};

mod order;
mod watches;

const TICK: Duration = Duration::from_millis(2);

struct Node {
    told: Obedient,
    hub: Hub,
    cluster: Cluster,
}

impl Node {
    /// A node that founds a cluster, if it is the first, or joins that of the first.
    async fn start(network: &MemoryNetwork, number: u8, founds: bool) -> Self {
        let cluster = testing::cluster(network, number, founds).await;
        let hub = Hub::new(cluster.clone());
        let told = Obedient::start(hub.clone(), &[]).await;
        Self { told, hub, cluster }
    }

    async fn say(&self, line: Value) {
        self.told.say(line).await;
    }

    fn lines(&self) -> Vec<Value> {
        self.told.paper.lines_with("")
    }

    #[track_caller]
    fn until(&self, what: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        self.until_nth(0, what)
    }

    #[track_caller]
    fn until_nth(&self, nth: usize, what: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        let from = std::panic::Location::caller();
        async move {
            for _ in 0..SOON.as_millis() / TICK.as_millis() {
                if let Some(line) = self.lines().into_iter().filter(|line| what(line)).nth(nth) {
                    return line;
                }
                tokio::time::sleep(TICK).await;
            }
            panic!("{from}: not told soon: {:#?}", self.lines())
        }
    }

    /// The reply to an operation.
    #[track_caller]
    fn reply(&self, id: impl Into<Value>) -> impl Future<Output = Value> {
        let id = id.into();
        self.until(move |line| line["event"] == "reply" && line["id"] == id)
    }

    /// Asks with this id, and waits for the reply.
    #[track_caller]
    fn ask(&self, op: &str, mut of: Value, id: u64) -> impl Future<Output = Value> {
        of["id"] = id.into();
        let line = json!({ op: of });
        let reply = self.reply(id);
        async move {
            self.say(line).await;
            reply.await
        }
    }
}

async fn alone() -> Node {
    Node::start(&MemoryNetwork::new(), 1, true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_granted_waited_for_given_back_and_not_twice() {
    let node = alone().await;
    let first = node.ask("lock", json!({"name": "x"}), 1).await;
    let token = first["token"].as_u64().unwrap();
    let busy = node.ask("lock", json!({"name": "x", "within": "0s"}), 2).await;
    assert_eq!(
        (&busy["error"]["code"], &busy["error"]["ran"]),
        (&json!("timeout"), &json!("no"))
    );
    let late = node.ask("lock", json!({"name": "x", "within": "50ms"}), 3).await;
    assert_eq!(late["error"]["code"], "timeout");
    for reason in [&busy, &late].map(|reply| reply["error"]["reason"].as_str().unwrap()) {
        assert!(reason.contains("another"), "{reason}");
    }
    node.say(json!({"lock": {"name": "x", "id": "next"}})).await;
    let wrong = node
        .ask("unlock", json!({"name": "x", "token": token + 1}), 4)
        .await;
    assert_eq!(wrong["error"]["code"], "not_held");
    let other = node.ask("unlock", json!({"name": "y", "token": token}), 5).await;
    assert_eq!(other["error"]["code"], "not_held");
    // As a string, for languages that cannot hold it as a number.
    let given = node
        .ask("unlock", json!({"name": "x", "token": token.to_string()}), 6)
        .await;
    assert!(given["error"].is_null(), "{given}");
    let next = node.reply("next").await["token"].as_u64().unwrap();
    assert!(next > token);
    let again = node.ask("unlock", json!({"name": "x", "token": token}), 7).await;
    assert_eq!(again["error"]["code"], "not_held");
    node.say(json!({"lock": {"name": "x", "id": "waits"}})).await;
    let cancelled = node.ask("cancel", json!({"of": "waits"}), 8).await;
    assert!(cancelled["error"].is_null(), "{cancelled}");
    let waited = node.reply("waits").await;
    assert_eq!(
        (&waited["error"]["code"], &waited["error"]["ran"]),
        (&json!("cancelled"), &json!("no"))
    );
    let nothing = node.ask("cancel", json!({"of": "waits"}), 9).await;
    assert_eq!(nothing["error"]["code"], "not_held");
    assert!(!node.lines().iter().any(|line| line["event"] == "lost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_has_one_leader_which_hands_it_over_to_a_node_that_waits() {
    let network = MemoryNetwork::new();
    let (first, second) = (
        Node::start(&network, 1, true).await,
        Node::start(&network, 2, false).await,
    );
    let token = first.ask("lead", json!({"name": "job"}), 1).await["token"]
        .as_u64()
        .unwrap();
    let nobody = first
        .ask("resign", json!({"name": "job", "token": token, "to": "n2"}), 2)
        .await;
    assert_eq!(nobody["error"]["code"], "unavailable");
    // That of one kind is none of the other.
    let lock = first
        .ask("unlock", json!({"name": "job", "token": token}), 3)
        .await;
    assert_eq!(lock["error"]["code"], "not_held");
    second.say(json!({"lead": {"name": "job", "id": 1}})).await;
    let mut id = 4;
    // Until it waits.
    let handed = loop {
        let resign = json!({"name": "job", "token": token, "to": "n2"});
        let handed = first.ask("resign", resign, id).await;
        id += 1;
        if handed["error"]["code"] != "unavailable" {
            break handed;
        }
        tokio::time::sleep(TICK).await;
    };
    assert!(handed["error"].is_null(), "{handed}");
    let next = second.reply(1).await["token"].as_u64().unwrap();
    assert!(next > token);
    assert!(!first.lines().iter().any(|line| line["event"] == "lost"));
    first.hub.close().await;
    second.hub.close().await;
    let lost = second.until(|line| line["event"] == "lost").await;
    assert_eq!(
        (&lost["what"], &lost["name"], &lost["token"], &lost["id"]),
        (&json!("lead"), &json!("job"), &json!(next), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_has_versions_conditions_times_and_any_bytes() {
    let node = alone().await;
    let nothing = node.ask("get", json!({"map": "m", "key": "k"}), 1).await;
    assert!(nothing.as_object().unwrap().contains_key("value") && nothing["value"].is_null());
    let put = node
        .ask(
            "put",
            json!({"map": "m", "key": "k", "value": "v", "if_version": 0}),
            2,
        )
        .await;
    let version = put["version"].as_u64().unwrap();
    let conflict = node
        .ask(
            "put",
            json!({"map": "m", "key": "k", "value": "w", "if_version": 0}),
            3,
        )
        .await;
    assert_eq!(
        (
            &conflict["error"]["code"],
            &conflict["error"]["ran"],
            &conflict["version"]
        ),
        (&json!("conflict"), &json!("no"), &json!(version))
    );
    let bytes = json!({"map": "m", "key": "k", "value": {"base64": "/wD+"}, "if_version": version});
    let next = node.ask("put", bytes, 4).await["version"].as_u64().unwrap();
    assert!(next > version);
    let got = node
        .ask("get", json!({"map": "m", "key": "k", "latest": true}), 5)
        .await;
    assert_eq!(
        (&got["value"], &got["version"]),
        (&json!({"base64": "/wD+"}), &json!(next))
    );
    let gone = node
        .ask(
            "remove",
            json!({"map": "m", "key": "k", "if_version": version}),
            6,
        )
        .await;
    assert_eq!(gone["error"]["code"], "conflict");
    let gone = node.ask("remove", json!({"map": "m", "key": "k"}), 7).await;
    assert_eq!(
        (&gone["value"], &gone["version"]),
        (&json!({"base64": "/wD+"}), &json!(next))
    );
    let gone = node.ask("remove", json!({"map": "m", "key": "k"}), 8).await;
    assert!(gone["value"].is_null() && gone["error"].is_null());
    node.ask("put", json!({"map": "m", "key": "user/1", "value": "a"}), 9)
        .await;
    node.ask("watch", json!({"map": "m", "prefix": "user/"}), 10)
        .await;
    let begun = node.until(|line| line["event"] == "watching").await;
    assert_eq!((&begun["entries"], &begun["id"]), (&json!(1), &json!(10)));
    node.ask("put", json!({"map": "m", "key": "other", "value": "a"}), 11)
        .await;
    node.ask(
        "put",
        json!({"map": "m", "key": "user/2", "value": "b", "ttl": "50ms"}),
        12,
    )
    .await;
    let expired = node.until(|line| line["gone"] == "expired").await;
    assert!(expired["key"] == "user/2" && expired["value"].is_null());
    node.ask("cancel", json!({"of": 10}), 13).await;
    node.ask("put", json!({"map": "m", "key": "user/3", "value": "c"}), 14)
        .await;
    let told: Vec<Value> = node.lines();
    let keys: Vec<&Value> = told
        .iter()
        .filter(|line| line["event"] == "changed")
        .map(|line| &line["key"])
        .collect();
    assert_eq!(keys, ["user/1", "user/2", "user/2"]);
    let both = json!({"watch": {"map": "m", "key": "k", "prefix": "k"}});
    node.say(both.clone()).await;
    let error = node.until(|line| line["event"] == "error").await;
    assert_eq!(error["request"], both);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_one_block_happen_in_the_order_of_their_lines() {
    const COUNT: u64 = 2000;
    let node = alone().await;
    for id in 0..COUNT {
        node.say(json!({"put": {"map": "m", "key": "k", "value": id.to_string(), "id": id}}))
            .await;
    }
    let mut before = 0;
    for id in 0..COUNT {
        let version = node.reply(id).await["version"].as_u64().unwrap();
        assert!(version > before, "{id}");
        before = version;
    }
    let last = node.ask("get", json!({"map": "m", "key": "k"}), COUNT).await;
    assert_eq!(last["value"], (COUNT - 1).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_count_down_too_and_ids_are_given_once() {
    let node = alone().await;
    assert_eq!(
        node.ask("add", json!({"counter": "c", "by": 5}), 1).await["value"],
        5
    );
    assert_eq!(
        node.ask("add", json!({"counter": "c", "by": -7}), 2).await["value"],
        -2
    );
    let much = node.ask("add", json!({"counter": "c", "by": i64::MIN}), 3).await;
    assert_eq!(
        (&much["error"]["code"], &much["error"]["ran"]),
        (&json!("refused"), &json!("no"))
    );
    let first = node.ask("take_ids", json!({"count": 100}), 4).await["first"]
        .as_u64()
        .unwrap();
    let next = node.ask("take_ids", json!({"count": 1}), 5).await["first"]
        .as_u64()
        .unwrap();
    assert!(next >= first + 100);
    let none = node.ask("take_ids", json!({"count": 0}), 6).await;
    assert_eq!(none["error"]["code"], "refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_stands_for_one_operation_until_its_reply() {
    let node = alone().await;
    let token = node.ask("lock", json!({"name": "x"}), 1).await["token"].clone();
    node.say(json!({"lock": {"name": "x", "id": 2}})).await;
    let double = json!({"get": {"map": "m", "key": "k", "id": 2}});
    node.say(double.clone()).await;
    let error = node.until(|line| line["event"] == "error").await;
    assert_eq!(error["request"], double);
    assert!(error["reason"].as_str().unwrap().contains("under way"));
    node.ask("unlock", json!({"name": "x", "token": token}), 3).await;
    assert!(node.reply(2).await["token"].is_u64());
    node.say(double).await;
    let again = |line: &Value| line["event"] == "reply" && line["op"] == "get";
    assert_eq!(node.until(again).await["id"], 2);
    // Without an id there is a reply all the same.
    node.say(json!({"add": {"counter": "c", "by": 1}})).await;
    let reply = node.until(|line| line["op"] == "add").await;
    assert!(reply.get("id").is_none() && reply["value"] == 1);
    node.say(json!({"add": {"counter": "c", "by": 1, "id": "x".repeat(65)}}))
        .await;
    let error = node.until_nth(1, |line| line["event"] == "error").await;
    assert!(error["reason"].as_str().unwrap().contains("64 bytes"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_answer_calls_and_the_caller_learns_what_each_said() {
    let network = MemoryNetwork::new();
    let first = Node::start(&network, 1, true).await;
    let second = Node::start(&network, 2, false).await;
    let third = Node::start(&network, 3, false).await;
    for node in [&first, &second] {
        let served = node.ask("serve", json!({"group": "g", "verb": "v"}), 1).await;
        assert!(served["error"].is_null(), "{served}");
    }
    let asked = |line: &Value| line["event"] == "request";
    third
        .say(json!({"call": {"group": "g", "verb": "v", "to": "all", "payload": "?", "id": 1}}))
        .await;
    for (node, answer) in [
        (&first, json!({"payload": "yes"})),
        (&second, json!({"error": "no"})),
    ] {
        let request = node.until(asked).await;
        assert_eq!(
            (
                &request["from"],
                &request["verb"],
                &request["payload"],
                &request["group"]
            ),
            (&json!("n3"), &json!("v"), &json!("?"), &json!("g"))
        );
        let mut answer = answer;
        answer["request"] = request["request"].clone();
        assert!(node.ask("answer", answer.clone(), 2).await["error"].is_null());
        let again = node.ask("answer", answer, 3).await;
        assert_eq!(again["error"]["code"], "not_held");
    }
    let reply = third.reply(1).await;
    assert_eq!(reply["replies"], json!({"n1": "yes"}));
    assert_eq!(reply["failures"]["n2"]["payload"], "no");
    assert_eq!(reply["failures"]["n2"]["ran"], "yes");
    assert_eq!(reply["failures"]["n3"]["ran"], "no");
    assert!(reply.get("error").is_none());

    third
        .say(json!({"call": {"group": "g", "verb": "v", "to": ["n2"], "id": 2}}))
        .await;
    let request = second.until_nth(1, asked).await;
    second
        .ask(
            "answer",
            json!({"request": request["request"], "payload": {"base64": "/wD+"}}),
            4,
        )
        .await;
    assert_eq!(third.reply(2).await["replies"], json!({"n2": {"base64": "/wD+"}}));

    let late = json!({"group": "g", "verb": "v", "to": "any", "within": "100ms"});
    let late = third.ask("call", late, 3).await;
    assert_eq!(
        (&late["error"]["code"], &late["error"]["ran"]),
        (&json!("timeout"), &json!("maybe"))
    );
    let nobody = third
        .ask("call", json!({"group": "g", "verb": "v", "to": ["n9"]}), 4)
        .await;
    assert_eq!(nobody["error"]["ran"], "no");
    let other = json!({"group": "g", "verb": "w", "to": "any", "within": "100ms"});
    assert_eq!(third.ask("call", other, 5).await["error"]["ran"], "no");
    let long = json!({"group": "g", "verb": "v", "to": "any", "payload": "x".repeat(60_000)});
    assert_eq!(third.ask("call", long, 6).await["error"]["code"], "refused");
}

/// Otherwise its caller would wait for the whole time of the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_refused_answers_the_request_with_the_reason() {
    let node = alone().await;
    node.ask("serve", json!({"group": "g", "verb": "v"}), 1).await;
    node.say(json!({"call": {"group": "g", "verb": "v", "to": "any", "within": "60s", "id": 2}}))
        .await;
    let request = node.until(|line| line["event"] == "request").await["request"].clone();
    let long = json!({"request": request, "payload": "x".repeat(60_000)});
    let refused = node.ask("answer", long, 3).await;
    assert_eq!(refused["error"]["code"], "refused");
    let replied = node.reply(2).await;
    let failure = &replied["failures"]["n1"];
    assert_eq!(failure["code"], "failed");
    assert_eq!(failure["payload"], refused["error"]["reason"]);
    let again = node.ask("answer", json!({"request": request}), 4).await;
    assert_eq!(again["error"]["code"], "not_held");
}

/// Otherwise handlers that call each other would wait for the places that they take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_in_a_request_has_a_place_when_requests_take_all_of_them() {
    let places = antiphon::calls::Config::default().max_running;
    let node = alone().await;
    node.ask("serve", json!({"group": "g", "verb": "v"}), 1).await;
    for place in 0..places {
        node.say(
            json!({"call": {"group": "g", "verb": "v", "to": "any", "within": "60s", "id": 100 + place}}),
        )
        .await;
    }
    let asked = |line: &Value| line["event"] == "request";
    let last = node.until_nth(places - 1, asked).await["request"].clone();
    for (payload, of, id) in [("outer", Value::Null, 2), ("inner", last.clone(), 3)] {
        node.say(json!({"call": {"group": "g", "verb": "v", "to": "any", "within": "60s", "payload": payload, "in": of, "id": id}}))
            .await;
    }
    let inner = node.until(|line| line["payload"] == "inner").await["request"].clone();
    assert!(!node.lines().iter().any(|line| line["payload"] == "outer"));
    node.ask("answer", json!({"request": inner, "payload": "yes"}), 4)
        .await;
    assert_eq!(node.reply(3).await["replies"], json!({"n1": "yes"}));
    node.ask("answer", json!({"request": last}), 5).await;
    node.until(|line| line["payload"] == "outer").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_calls_in_requests_ends_before_its_time() {
    let deepest = usize::from(antiphon::calls::Config::default().max_depth);
    let node = alone().await;
    node.ask("serve", json!({"group": "g", "verb": "v"}), 100).await;
    let asked = |line: &Value| line["event"] == "request";
    node.say(json!({"call": {"group": "g", "verb": "v", "to": "any", "within": "60s"}}))
        .await;
    for depth in 0..=deepest {
        let request = node.until_nth(depth, asked).await["request"].clone();
        node.say(json!({"call": {"group": "g", "verb": "v", "to": "any", "within": "60s", "in": request, "id": depth}}))
            .await;
    }
    let refused = node.reply(deepest).await;
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["ran"]),
        (&json!("refused"), &json!("no"))
    );
    assert!(
        refused["error"]["reason"]
            .as_str()
            .unwrap()
            .contains("in a circle"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_in_a_request_that_does_not_wait_or_is_of_another_group_is_refused() {
    let node = alone().await;
    node.ask("serve", json!({"group": "g", "verb": "v"}), 1).await;
    node.say(json!({"call": {"group": "g", "verb": "v", "to": "any", "within": "60s", "id": 2}}))
        .await;
    let request = node.until(|line| line["event"] == "request").await["request"].clone();
    let call = |group: &str, of: &Value| json!({"group": group, "verb": "v", "to": "any", "in": of});
    let other = node.ask("call", call("h", &request), 3).await;
    assert_eq!(
        (&other["error"]["code"], &other["error"]["ran"]),
        (&json!("refused"), &json!("no"))
    );
    assert!(
        other["error"]["reason"]
            .as_str()
            .unwrap()
            .contains("is of group g"),
        "{other}"
    );
    node.ask("answer", json!({"request": request}), 4).await;
    for (of, id) in [(&request, 5), (&json!(99), 6)] {
        let over = node.ask("call", call("g", of), id).await;
        assert_eq!(
            (&over["error"]["code"], &over["error"]["ran"]),
            (&json!("not_held"), &json!("no"))
        );
        let reason = over["error"]["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("request {of} does not wait")), "{over}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_told_when_nobody_waits_for_its_answer_any_more() {
    let network = MemoryNetwork::new();
    let first = Node::start(&network, 1, true).await;
    let second = Node::start(&network, 2, false).await;
    first.ask("serve", json!({"group": "g", "verb": "v"}), 1).await;
    let call = |within: &str, id: u64| json!({"call": {"group": "g", "verb": "v", "to": ["n1"], "within": within, "id": id}});
    let request = async |nth: usize| {
        let asked = |line: &Value| line["event"] == "request";
        first.until_nth(nth, asked).await["request"].clone()
    };
    let cancelled = async |request: &Value| {
        let is_it = |line: &Value| line["event"] == "cancelled" && line["request"] == *request;
        first.until(is_it).await;
    };
    // Its answer comes in time.
    second.say(call("60s", 1)).await;
    let answered = request(0).await;
    first
        .ask("answer", json!({"request": answered, "payload": "yes"}), 2)
        .await;
    assert_eq!(second.reply(1).await["replies"], json!({"n1": "yes"}));
    // Its time is over.
    second.say(call("5s", 2)).await;
    let late = request(1).await;
    cancelled(&late).await;
    let too_late = first.ask("answer", json!({"request": late}), 3).await;
    assert_eq!(too_late["error"]["code"], "not_held");
    // The caller cancels it, and with it the call that was made in it.
    second.say(call("60s", 3)).await;
    let outer = request(2).await;
    first
        .say(
            json!({"call": {"group": "g", "verb": "v", "to": ["n1"], "within": "60s", "in": outer, "id": 4}}),
        )
        .await;
    let inner = request(3).await;
    second.ask("cancel", json!({"of": 3}), 4).await;
    cancelled(&outer).await;
    cancelled(&inner).await;
    assert_eq!(first.reply(4).await["error"]["code"], "cancelled");
    // The caller goes.
    second.say(call("60s", 5)).await;
    let orphan = request(4).await;
    second.hub.close().await;
    second.cluster.leave().await.unwrap();
    cancelled(&orphan).await;
    let told = first.lines();
    let told = told.iter().filter(|line| line["event"] == "cancelled").count();
    assert_eq!(told, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_there_is_a_cluster_operations_wait_for_their_time_or_until_they_are_cancelled() {
    let network = MemoryNetwork::new();
    // Its seed is not there.
    let node = Node::start(&network, 2, false).await;
    node.say(json!({"lock": {"name": "x", "within": "100ms", "id": 1}}))
        .await;
    node.say(json!({"lock": {"name": "x", "id": 2}})).await;
    node.say(json!({"put": {"map": "m", "key": "k", "value": "v", "id": 3}}))
        .await;
    let late = node.reply(1).await;
    assert_eq!(
        (&late["error"]["code"], &late["error"]["ran"]),
        (&json!("timeout"), &json!("no"))
    );
    node.ask("cancel", json!({"of": 2}), 4).await;
    assert_eq!(node.reply(2).await["error"]["code"], "cancelled");
    let _seed = Node::start(&network, 1, true).await;
    let mut put = node.reply(3).await;
    // On a busy machine a node of this profile is without its lease for moments, and says so.
    for id in 5..50 {
        if put["error"]["code"] != "unavailable" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        put = node
            .ask("put", json!({"map": "m", "key": "k", "value": "v"}), id)
            .await;
    }
    assert!(put["version"].is_u64(), "{put}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_answers_what_waits_and_others_go_on_with_what_it_wrote() {
    let network = MemoryNetwork::new();
    let first = Node::start(&network, 1, true).await;
    let second = Node::start(&network, 2, false).await;
    let held = first.ask("lock", json!({"name": "x"}), 1).await["token"]
        .as_u64()
        .unwrap();
    second.say(json!({"lock": {"name": "x", "id": 1}})).await;
    second.ask("get", json!({"map": "m", "key": "k"}), 2).await;
    first.say(json!({"lock": {"name": "x", "id": 2}})).await;
    first
        .say(json!({"put": {"map": "m", "key": "k", "value": "v", "id": 3}}))
        .await;
    first.ask("watch", json!({"map": "m"}), 4).await;
    first.hub.close().await;
    assert!(first.reply(3).await["version"].is_u64());
    let waited = first.reply(2).await;
    assert_eq!(waited["error"]["ran"], "no");
    let closed = first.ask("add", json!({"counter": "c", "by": 1}), 5).await;
    assert_eq!(closed["error"]["code"], "unavailable");
    first.cluster.leave().await.unwrap();
    assert!(second.reply(1).await["token"].as_u64().unwrap() > held);
    assert_eq!(
        second.ask("get", json!({"map": "m", "key": "k"}), 3).await["value"],
        "v"
    );
    let lost: Vec<Value> = first.lines();
    let lost: Vec<&Value> = lost.iter().filter(|line| line["event"] == "lost").collect();
    assert_eq!(lost.len(), 2, "{lost:?}");
    let lock = lost.iter().find(|line| line["what"] == "lock").unwrap();
    assert_eq!(lock["cause"], "this member has left the group");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_asks_for_the_members_of_a_block_is_told_which_of_them_have_the_state() {
    let network = MemoryNetwork::new();
    let nodes = [
        Node::start(&network, 1, true).await,
        Node::start(&network, 2, false).await,
    ];
    let both = json!(["n1", "n2"]);
    for node in &nodes {
        let put = node
            .ask("put", json!({"map": "m", "key": "k", "value": "v"}), 1)
            .await;
        assert!(put["error"].is_null(), "{put}");
    }
    for node in &nodes {
        let mut id = 2;
        // The first one hears a moment later that the other has the state.
        let view = loop {
            let told = node.ask("members", json!({"group": "block/map/m"}), id).await;
            if told["group_view"]["synced"] == both {
                break told["group_view"].clone();
            }
            assert!(id < 10_000 && told["error"].is_null(), "{told}");
            id += 1;
            tokio::time::sleep(TICK).await;
        };
        assert_eq!(view["group"], "block/map/m");
        assert_eq!(view["members"], both);
    }
    for (id, group, code) in [
        (10_001, "block/map/none", "unavailable"),
        (10_002, "block/calls/c", "refused"),
        (10_003, "chat", "refused"),
    ] {
        let told = nodes[0].ask("members", json!({ "group": group }), id).await;
        assert_eq!(told["error"]["code"], code, "{told}");
    }
    let nodes_of_the_cluster = nodes[0].ask("members", json!({}), 10_004).await;
    assert!(nodes_of_the_cluster["view"].is_object());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_beyond_a_bound_is_refused_and_changes_nothing() {
    let node = alone().await;
    let code = |reply: Value| (reply["error"]["code"].clone(), reply["error"]["ran"].clone());
    let refused = (json!("refused"), json!("no"));
    let long = "m".repeat(MAX_NAME_BYTES + 1);
    for (id, name) in [(1, long.as_str()), (2, ""), (3, "a\nb")] {
        let get = node.ask("get", json!({"map": name, "key": "k"}), id).await;
        assert_eq!(code(get), refused);
    }
    let longest = "m".repeat(MAX_NAME_BYTES);
    let get = node.ask("get", json!({"map": longest, "key": "k"}), 4).await;
    assert!(get["error"].is_null(), "{get}");
    assert_eq!(code(node.ask("lock", json!({"name": ""}), 5).await), refused);
    let value = json!({"map": "m", "key": "k".repeat(1024), "value": "v".repeat(super::MAX_VALUE_BYTES)});
    assert!(node.ask("put", value, 6).await["version"].is_u64());
    let value = json!({"map": "m", "key": "k", "value": "v".repeat(super::MAX_VALUE_BYTES + 1)});
    assert_eq!(code(node.ask("put", value, 7).await), refused);
    let key = json!({"map": "m", "key": "k".repeat(1025), "value": ""});
    assert_eq!(code(node.ask("put", key, 8).await), refused);
    let base64 = json!({"map": "m", "key": "k", "value": {"base64": "no"}});
    assert_eq!(code(node.ask("put", base64, 9).await), refused);
    let file = json!({"map": "m", "key": "k", "value": {"file": "/nonexistent"}});
    assert_eq!(code(node.ask("put", file, 10).await), refused);
    let verb = json!({"group": "g", "verb": "v".repeat(129)});
    assert_eq!(code(node.ask("serve", verb, 11).await), refused);
    for watch in 0..=MAX_WATCHES as u64 {
        let reply = node
            .ask("watch", json!({"map": "m", "key": "none"}), 100 + watch)
            .await;
        assert_eq!(reply["error"].is_null(), watch < MAX_WATCHES as u64, "{watch}");
    }
    node.ask("cancel", json!({"of": 100}), 12).await;
    let mut id = 1000;
    // Its place is free a moment later.
    while !node.ask("watch", json!({"map": "m", "key": "none"}), id).await["error"].is_null() {
        id += 1;
    }
}

/// Each call keeps its payload until its reply. What ends calls may stand behind one that has no room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_fill_their_room_hold_up_no_answer() {
    let node = alone().await;
    let served = node.ask("serve", json!({"group": "g", "verb": "v"}), 1).await;
    assert!(served["error"].is_null(), "{served}");
    let payload = "x".repeat(59_000);
    for id in 100..180 {
        node.say(json!({"call": {"group": "g", "verb": "v", "to": "any", "payload": payload, "within": "60s", "id": id}}))
            .await;
    }
    let request = node.until(|line| line["event"] == "request").await;
    let answer = json!({"request": request["request"], "payload": payload});
    assert!(node.ask("answer", answer, 2).await["error"].is_null());
    let refused = node.reply(179).await;
    assert_eq!(refused["error"]["code"], "unavailable", "{refused}");
    assert!(node.ask("cancel", json!({"of": 150}), 3).await["error"].is_null());
}

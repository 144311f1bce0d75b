//! Requests as texts, to a node in this process.

use antiphon::memory::MemoryNetwork;
use antiphon_api::{Command, Event};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::access::Access;
use crate::testing::{Agent, SOON, until};

mod conditions;
mod endings;

/// What came back.
#[derive(Debug)]
struct Said {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(of, _)| of.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.to_owned())
    }

    /// Status, code, and whether it happened.
    fn failed(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        let text = |field: &str| error[field].as_str().unwrap().to_owned();
        (self.status, text("code"), text("ran"))
    }
}

/// A connection that is kept.
struct Wired(BufReader<TcpStream>);

impl Wired {
    async fn write(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(SOON, self.0.read_line(&mut line)).await.unwrap().unwrap();
        line
    }

    async fn head(&mut self) -> (u16, String) {
        let mut head = String::new();
        loop {
            let line = self.line().await;
            assert!(!line.is_empty(), "it ended: {head}");
            if line == "\r\n" {
                break;
            }
            head += &line;
        }
        (head[9..12].parse().unwrap(), head)
    }

    async fn said(&mut self) -> Said {
        let (status, head) = self.head().await;
        let mut said = Said {
            status,
            head,
            body: Vec::new(),
        };
        let length = said
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        said.body.resize(length, 0);
        timeout(SOON, self.0.read_exact(&mut said.body))
            .await
            .unwrap()
            .unwrap();
        said
    }

    /// What comes until the end.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // It may be reset behind that.
        let _ = timeout(SOON, self.0.read_to_end(&mut rest)).await.unwrap();
        String::from_utf8(rest).unwrap()
    }

    /// The next server-sent event with this name: its data.
    async fn event(&mut self, name: &str) -> Value {
        loop {
            if self.line().await != format!("event: {name}\n") {
                continue;
            }
            let data = self.line().await;
            return serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        }
    }
}

impl Agent {
    async fn wired(&self) -> Wired {
        Wired(BufReader::new(self.connect().await))
    }

    async fn ask(&self, line: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Said {
        let mut wired = self.wired().await;
        wired.write(request(line, headers, body)).await;
        wired.said().await
    }

    async fn websocket(&self) -> WebSocketStream<BufReader<TcpStream>> {
        Self::upgraded(self.wired().await).await
    }

    async fn upgraded(mut wired: Wired) -> WebSocketStream<BufReader<TcpStream>> {
        let headers = [
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ];
        wired.write(request("GET /v1/stream", &headers, "")).await;
        let (status, head) = wired.head().await;
        assert!(
            status == 101 && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            "{head}"
        );
        WebSocketStream::from_raw_socket(wired.0, Role::Client, None).await
    }

    async fn get(&self, path: &str) -> Said {
        self.ask(&format!("GET {path}"), &[], "").await
    }

    async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Said {
        self.ask(&format!("POST {path}"), &[], body).await
    }
}

fn request(line: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut text = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n",
        body.len()
    );
    for header in headers {
        text += header;
        text += "\r\n";
    }
    [(text + "\r\n").as_bytes(), body].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_has_entity_tags_conditions_times_and_any_bytes() {
    let node = Agent::alone().await;
    let missing = node.get("/v1/maps/m/k").await;
    assert_eq!(missing.failed(), (404, "not_found".into(), "no".into()));
    let put = node
        .ask("PUT /v1/maps/m/k", &["If-None-Match: *"], [0xff, 0, 0xfe])
        .await;
    let version = put.json()["version"].as_u64().unwrap();
    let tag = put.header("etag").unwrap();
    assert_eq!((put.status, &tag), (200, &format!("\"{version}\"")));
    let got = node.get("/v1/maps/m/k?latest=true").await;
    assert_eq!((got.status, &got.body[..]), (200, &[0xff, 0, 0xfe][..]));
    assert_eq!(
        (got.header("etag"), got.header("content-type").as_deref()),
        (Some(tag.clone()), Some("application/octet-stream"))
    );
    let object = node
        .ask("GET /v1/maps/m/k", &["Accept: application/json"], "")
        .await;
    assert_eq!(
        object.json(),
        json!({"value": {"base64": "/wD+"}, "version": version})
    );
    let same = node
        .ask("GET /v1/maps/m/k", &[&format!("If-None-Match: {tag}")], "")
        .await;
    assert_eq!(
        (same.status, same.body.len(), same.header("etag")),
        (304, 0, Some(tag.clone()))
    );

    for (condition, status) in [
        (format!("If-None-Match: \"1\", W/{tag}"), 304),
        ("If-None-Match: *".to_owned(), 304),
        ("If-Match: *".to_owned(), 200),
        (format!("If-Match: \"1\"\r\nIf-Match: {tag}"), 200),
        (format!("If-Match: W/{tag}"), 412),
        ("If-Match: 1".to_owned(), 400),
    ] {
        let got = node.ask("GET /v1/maps/m/k", &[&condition], "").await;
        assert_eq!(got.status, status, "{condition}");
    }
    for (condition, status) in [
        (format!("If-Match: W/{tag}"), 412),
        (format!("If-Match: {tag}, \"1\""), 400),
        ("If-Match: *".to_owned(), 400),
        (format!("If-None-Match: {tag}"), 400),
    ] {
        let put = node.ask("PUT /v1/maps/m/k", &[&condition], "w").await;
        assert_eq!(put.status, status, "{condition}");
    }
    let mut head = node.wired().await;
    head.write(request("HEAD /v1/maps/m/k", &[], "")).await;
    let (status, headers) = head.head().await;
    assert!(status == 200 && headers.contains("content-length: 3") && headers.contains(&tag));
    head.write(request("OPTIONS /v1/maps/m/k", &[], "")).await;
    let options = head.said().await;
    assert_eq!(
        (options.status, options.header("allow").as_deref()),
        (204, Some("GET, HEAD, PUT, DELETE, OPTIONS"))
    );

    let conflict = node.ask("PUT /v1/maps/m/k", &["If-None-Match: *"], "w").await;
    assert_eq!(conflict.failed(), (412, "conflict".into(), "no".into()));
    assert_eq!(
        (conflict.json()["version"].as_u64(), conflict.header("etag")),
        (Some(version), Some(tag.clone()))
    );
    let json_put = ["Content-Type: application/json", &format!("If-Match: {tag}")];
    let next = node.ask("PUT /v1/maps/m/k", &json_put, r#"{"value":"w"}"#).await;
    assert!(next.json()["version"].as_u64().unwrap() > version);
    let old = node
        .ask("DELETE /v1/maps/m/k", &[&format!("If-Match: {tag}")], "")
        .await;
    assert_eq!(old.failed().0, 412);
    let gone = node.ask("DELETE /v1/maps/m/k", &[], "").await;
    assert_eq!((gone.status, &gone.body[..]), (200, &b"w"[..]));
    assert_eq!(node.ask("DELETE /v1/maps/m/k", &[], "").await.failed().0, 404);
    assert_eq!(
        node.ask("DELETE /v1/maps/m/k", &[&format!("If-Match: {tag}")], "")
            .await
            .failed()
            .0,
        412
    );

    let mut watch = node.wired().await;
    watch
        .write(request("GET /v1/maps/m/events?prefix=user/", &[], ""))
        .await;
    let (status, head) = watch.head().await;
    assert!(status == 200 && head.contains("text/event-stream"), "{head}");
    assert_eq!(watch.event("watching").await["entries"], 0);
    node.ask("PUT /v1/maps/m/other", &[], "x").await;
    node.ask("PUT /v1/maps/m/user%2F%C3%BC?ttl=50ms", &[], "x").await;
    let changed = watch.event("changed").await;
    assert_eq!(
        (&changed["key"], &changed["value"]),
        (&json!("user/ü"), &json!("x"))
    );
    assert_eq!(watch.event("changed").await["gone"], "expired");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_by_a_request_is_read_from_a_stream_and_the_speaker_lingers() {
    let node = Agent::alone().await;
    let mut ann = node.wired().await;
    ann.write(request("GET /v1/groups/chat/events?name=ann", &[], ""))
        .await;
    assert_eq!(ann.head().await.0, 200);
    assert_eq!(ann.event("view").await["members"], json!(["n1/ann"]));
    let taken = node.get("/v1/groups/chat/events?name=ann").await;
    assert_eq!(taken.failed(), (400, "refused".into(), "no".into()));

    for (path, headers, body) in [
        ("POST /v1/groups/chat/messages", &[][..], &b"hello"[..]),
        (
            "POST /v1/groups/chat/messages?safe=true",
            &["Content-Type: application/json"][..],
            br#"{"payload":"safe"}"#,
        ),
        ("POST /v1/groups/chat/messages", &[][..], &[0xff]),
    ] {
        let said = node.ask(path, headers, body).await;
        assert_eq!((said.status, said.json()), (200, json!({"delivered": true})));
    }
    assert_eq!(ann.event("view").await["joined"], json!(["n1/http"]));
    for payload in [json!("hello"), json!("safe"), json!({"base64": "/w=="})] {
        let message = ann.event("message").await;
        assert_eq!(
            (&message["sender"], &message["payload"]),
            (&json!("n1/http"), &payload)
        );
    }
    let said = timeout(2 * groups::LINGER + SOON, ann.event("view"))
        .await
        .unwrap();
    assert_eq!(said["left"], json!(["n1/http"]));
    // It comes again.
    assert_eq!(node.post("/v1/groups/chat/messages", "again").await.status, 200);
    assert_eq!(ann.event("message").await["payload"], "again");
    let long = node
        .post("/v1/groups/chat/messages", vec![b'x'; MAX_BODY_BYTES])
        .await;
    assert_eq!(long.failed(), (400, "refused".into(), "no".into()));
    let name = node
        .post(&format!("/v1/groups/{}/messages", "g".repeat(57)), "x")
        .await;
    assert_eq!(name.failed().0, 400);

    // A client that goes is out of the group.
    let mut bob = node.wired().await;
    bob.write(request("GET /v1/groups/chat/events?name=bob", &[], ""))
        .await;
    bob.event("view").await;
    drop(ann);
    loop {
        let view = bob.event("view").await;
        if view["crashed"] == json!(["n1/ann"]) {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_held_behind_its_request_until_it_is_given_back_or_its_time_is_over() {
    let node = Agent::alone().await;
    let idle = node.hub.sessions();
    let held = node.post("/v1/locks/x?ttl=1h", "").await;
    assert_eq!((held.status, &held.json()["ttl_ms"]), (201, &json!(3_600_000)));
    let token = held.json()["token"].as_u64().unwrap();
    let late = node.post("/v1/locks/x?within=0s", "").await;
    assert_eq!(late.failed(), (504, "timeout".into(), "no".into()));
    // A wait ends with its client.
    let mut waits = node.wired().await;
    waits.write(request("POST /v1/locks/x", &[], "")).await;
    until(|| node.hub.sessions() == idle + 2).await;
    drop(waits);
    until(|| node.hub.sessions() == idle + 1).await;
    let longer = node
        .ask(&format!("PUT /v1/locks/x?token={token}&ttl=2m"), &[], "")
        .await;
    assert_eq!((longer.status, &longer.json()["ttl_ms"]), (200, &json!(120_000)));
    let other = node
        .ask(&format!("DELETE /v1/locks/y?token={token}"), &[], "")
        .await;
    assert_eq!(other.failed(), (409, "not_held".into(), "no".into()));
    let given = node
        .ask(&format!("DELETE /v1/locks/x?token={token}"), &[], "")
        .await;
    assert_eq!((given.status, given.body.len()), (204, 0));
    for again in ["DELETE", "PUT"] {
        let again = node
            .ask(&format!("{again} /v1/locks/x?token={token}"), &[], "")
            .await;
        assert_eq!(again.failed().0, 409);
    }
    let short = node.post("/v1/locks/x?ttl=1s", "").await.json()["token"]
        .as_u64()
        .unwrap();
    let next = node.post("/v1/locks/x?within=20s", "").await;
    assert_eq!(next.status, 201, "{next:?}");
    assert!(next.json()["token"].as_u64().unwrap() > short && short > token);
    for wrong in ["ttl=999ms", "ttl=61m", "ttl=x", "ttl=5", "tl=5s"] {
        assert_eq!(
            node.post(&format!("/v1/locks/z?{wrong}"), "").await.failed().0,
            400
        );
    }
    for wrong in ["", "?token=", "?token=x", "?token=-1"] {
        assert_eq!(
            node.ask(&format!("DELETE /v1/locks/x{wrong}"), &[], "")
                .await
                .failed()
                .0,
            400
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_ids_and_calls_are_one_request_each() {
    let node = Agent::alone().await;
    assert_eq!(node.post("/v1/counters/c?by=5", "").await.json()["value"], 5);
    assert_eq!(node.post("/v1/counters/c?by=-7", "").await.json()["value"], -2);
    assert_eq!(node.post("/v1/counters/c?by=1.5", "").await.failed().0, 400);
    // As curl says it to a server of forms.
    assert_eq!(node.post("/v1/counters/c", "by=5").await.failed().0, 400);
    assert_eq!(node.post("/v1/counters/c?by=0", "").await.json()["value"], -2);
    let much = node.post(&format!("/v1/counters/c?by={}", i64::MIN), "").await;
    assert_eq!(much.failed(), (400, "refused".into(), "no".into()));
    let first = node.post("/v1/ids?count=100", "").await.json()["first"]
        .as_u64()
        .unwrap();
    assert!(node.post("/v1/ids", "").await.json()["first"].as_u64().unwrap() >= first + 100);

    let (session, mut events) = node.hub.session().unwrap();
    session
        .obey(Command::parse(r#"{"serve":{"group":"g","verb":"v"}}"#).unwrap())
        .await;
    let serving = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let Event::Request(request) = event {
                let word = if request.payload == antiphon_api::Payload::Text("bad".into()) {
                    "error"
                } else {
                    "payload"
                };
                if request.payload == antiphon_api::Payload::Text("go".into()) {
                    return;
                }
                let answer = json!({"answer": {"request": request.request, word: "yes"}});
                if request.payload != antiphon_api::Payload::Text("silent".into()) {
                    session.obey(Command::parse(&answer.to_string()).unwrap()).await;
                }
            }
        }
    });
    // Nobody tells this hub what incarnations are called: the program does.
    let first = |of: &Value| of.as_object().unwrap().values().next().cloned();
    let all = node.post("/v1/calls/g/v?to=all", "?").await;
    let json = all.json();
    assert_eq!((all.status, first(&json["replies"])), (200, Some(json!("yes"))));
    assert_eq!((&json["failures"], &json["ran"]), (&json!({}), &json!("yes")));
    let failed = node.post("/v1/calls/g/v?to=n1", "bad").await;
    assert_eq!(failed.failed(), (502, "failed".into(), "yes".into()));
    assert_eq!(first(&failed.json()["failures"]).unwrap()["payload"], "yes");
    let late = node.post("/v1/calls/g/v?to=any&within=100ms", "silent").await;
    assert_eq!(late.failed(), (504, "timeout".into(), "maybe".into()));
    let nobody = node.post("/v1/calls/g/w?to=any&within=100ms", "").await;
    assert_eq!(nobody.failed(), (503, "unavailable".into(), "no".into()));
    assert_eq!(nobody.header("retry-after").as_deref(), Some("1"));
    for to in ["", "?to=", "?to=a,,b"] {
        assert_eq!(node.post(&format!("/v1/calls/g/v{to}"), "").await.failed().0, 400);
    }
    let gone = node.post("/v1/calls/g/v?to=any&within=1m", "go").await;
    assert_eq!(gone.failed(), (502, "failed".into(), "maybe".into()));
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_told_and_a_node_without_a_cluster_lives_but_is_not_ready() {
    let network = MemoryNetwork::new();
    let second = Agent::start(&network, 2, false).await;
    assert_eq!(second.get("/livez").await.json(), json!({"live": true}));
    for path in ["/readyz", "/v1/members"] {
        let none = second.get(path).await;
        assert_eq!(none.failed(), (503, "unavailable".into(), "no".into()));
        assert!(none.header("retry-after").is_some());
    }
    let _first = Agent::start(&network, 1, true).await;
    let ready = async { while second.get("/readyz").await.status != 200 {} };
    timeout(SOON, ready).await.unwrap();
    let members = second.get("/v1/members").await.json();
    assert_eq!(
        (&members["primary"], &members["members"][0]["name"]),
        (&json!(true), &json!("n1"))
    );
    let why = second.get("/v1/why/x%20y").await.json();
    assert!(why["node"] == "x y" && why["facts"][0].as_str().unwrap().contains("x y"));
    let document = second.get("/v1/openapi.json").await;
    assert_eq!(
        (document.status, &document.json()["openapi"]),
        (200, &json!("3.1.0"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_speaks_as_json_lines_do() {
    let node = Agent::alone().await;
    let mut socket = node.websocket().await;
    let say = |line: Value| Message::text(line.to_string());
    socket
        .send(say(json!({"hello": {"name": "web", "id": 0}})))
        .await
        .unwrap();
    socket
        .send(say(json!({"join": {"group": "g", "id": 1}})))
        .await
        .unwrap();
    socket
        .send(say(json!({"send": {"group": "g", "payload": "early"}})))
        .await
        .unwrap();
    socket.send(Message::text("nonsense")).await.unwrap();
    socket.send(Message::binary(vec![1, 2])).await.unwrap();
    socket.send(Message::Ping(vec![7].into())).await.unwrap();
    let mut told: Vec<Value> = Vec::new();
    let mut pongs = 0;
    let count = |told: &[Value], what: &str| told.iter().filter(|event| event["event"] == what).count();
    let all = async {
        // A view and a pong may come before what is told of the lines between them.
        while pongs == 0 || count(&told, "view") == 0 || count(&told, "error") < 2 {
            match socket.next().await.unwrap().unwrap() {
                Message::Text(text) => told.push(serde_json::from_str(&text).unwrap()),
                Message::Pong(_) => pongs += 1,
                other => panic!("{other:?}"),
            }
        }
    };
    timeout(SOON, all).await.unwrap();
    let reply = told.iter().find(|event| event["event"] == "reply").unwrap();
    assert_eq!(reply["welcome"]["client"], "web");
    let errors: Vec<&Value> = told.iter().filter(|event| event["event"] == "error").collect();
    assert_eq!((errors.len(), &errors[0]["request"]), (2, &json!("nonsense")));
    let view = told.iter().find(|event| event["event"] == "view").unwrap();
    assert_eq!(view["members"], json!(["n1/web"]));
    socket.send(say(json!({"leave": {}}))).await.unwrap();
    let closed = async {
        loop {
            if let Message::Close(_) = socket.next().await.unwrap().unwrap() {
                break;
            }
        }
    };
    timeout(SOON, closed).await.unwrap();
    until(|| node.hub.sessions() == 0).await;
    assert_eq!(node.get("/v1/stream").await.failed().0, 426);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_comes_back_by_a_websocket_and_by_lines() {
    let node = Agent::alone().await;
    let hello = |more: Value| {
        let mut hello = json!({"name": "ann", "grace": "10s", "id": 0});
        hello
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"hello": hello}).to_string()
    };
    let said = async |socket: &mut WebSocketStream<BufReader<TcpStream>>| -> Value {
        match timeout(SOON, socket.next()).await.unwrap().unwrap().unwrap() {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let mut socket = node.websocket().await;
    socket.send(Message::text(hello(json!({})))).await.unwrap();
    let key = said(&mut socket).await["welcome"]["resume"].clone();
    assert!(key.is_string());
    drop(socket);

    let mut lines = node.wired().await;
    let comes = json!({"resume": key, "lines": 1});
    lines.write(hello(comes.clone()) + "\n").await;
    let welcome: Value = serde_json::from_str(&lines.line().await).unwrap();
    assert_eq!(welcome["welcome"]["resumed"], 1);
    drop(lines);

    let mut socket = node.websocket().await;
    socket.send(Message::text(hello(comes))).await.unwrap();
    assert_eq!(said(&mut socket).await["welcome"]["resumed"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_connection_are_answered_in_order_however_they_are_cut() {
    let node = Agent::alone().await;
    let mut wired = node.wired().await;
    let many: Vec<u8> = (0..50)
        .flat_map(|number| match number % 2 {
            0 => request(&format!("PUT /v1/maps/m/{number}"), &[], number.to_string()),
            _ => request(&format!("GET /v1/maps/m/{}", number - 1), &[], ""),
        })
        .collect();
    wired.write(many).await;
    for number in 0..50 {
        let said = wired.said().await;
        assert_eq!(said.status, 200, "{said:?}");
        if number % 2 == 1 {
            assert_eq!(said.body, (number - 1).to_string().into_bytes());
        }
    }
    for byte in request("PUT /v1/maps/m/k", &[], "slow") {
        wired.write([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(wired.said().await.status, 200);
    let chunked = "PUT /v1/maps/m/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
    wired.write(chunked).await;
    assert_eq!(wired.said().await.status, 200);
    assert_eq!(node.get("/v1/maps/m/k").await.body, b"abc");
    // Another way to speak, at the same port.
    let mut lines = node.wired().await;
    lines.write("{\"hello\":{\"id\":1}}\n").await;
    assert!(lines.line().await.contains("welcome"));
    let mut other = node.wired().await;
    other.write("QUIT\r\n").await;
    assert!(other.line().await.contains("OK"), "RESP");
    let mut nobody = node.wired().await;
    nobody.write("\u{0}\r\n").await;
    assert!(nobody.line().await.contains("JSON lines, HTTP/1.1 and RESP"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_hostile_or_wrong_is_refused_and_changes_nothing() {
    let node = Agent::alone().await;
    let host = "Host: localhost\r\n";
    let long = "x".repeat(MAX_REQUEST_LINE);
    let header = format!("X: {}\r\n", "x".repeat(MAX_HEAD_BYTES));
    let headers = "X: x\r\n".repeat(MAX_HEADERS + 1);
    let put = "PUT /v1/maps/m/k HTTP/1.1\r\nHost: localhost\r\n";
    let too_long = MAX_BODY_BYTES + 1;
    let chunk = format!(
        "{put}Transfer-Encoding: chunked\r\n\r\n{too_long:x}\r\n{}",
        "x".repeat(too_long)
    );
    for (text, status) in [
        (format!("GET /{long} HTTP/1.1\r\n{host}\r\n"), 414),
        (format!("GET /{long}"), 414),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        (format!("GET /livez HTTP/1.1\r\n{host}{header}\r\n"), 431),
        (format!("GET /livez HTTP/1.1\r\n{host}{headers}\r\n"), 431),
        (format!("GET /livez HTTP/1.1\r\n{host}bad header\r\n\r\n"), 400),
        ("GET /livez HTTP/1.1\r\n\r\n".to_owned(), 400),
        (
            "GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
            403,
        ),
        (
            "GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            403,
        ),
        (
            format!("GET /livez HTTP/1.1\r\n{host}Origin: https://evil.example\r\n\r\n"),
            403,
        ),
        (format!("GET /livez HTTP/1.1\r\n{host}Origin: null\r\n\r\n"), 403),
        (
            format!("OPTIONS /livez HTTP/1.1\r\n{host}Origin: https://evil.example\r\n\r\n"),
            403,
        ),
        (format!("{put}Content-Length: {too_long}\r\n\r\n"), 413),
        (chunk, 413),
        (format!("{put}Content-Length: x\r\n\r\n"), 400),
        (
            format!("{put}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            400,
        ),
        (
            format!("{put}Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n"),
            400,
        ),
        (
            format!("{put}Transfer-Encoding: chunked\r\n\r\n-1\r\nab\r\n"),
            400,
        ),
        (format!("{put}Transfer-Encoding: gzip\r\n\r\n"), 400),
        (
            format!("{put}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            415,
        ),
        (
            format!("{put}Content-Type: multipart/form-data\r\nContent-Length: 1\r\n\r\nx"),
            415,
        ),
        (
            format!("{put}Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"),
            415,
        ),
        (
            format!("{put}Content-Type: application/json\r\nContent-Length: 3\r\n\r\n\"v\""),
            400,
        ),
        (
            format!("PUT /v1/maps/m/%ff HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\nx"),
            400,
        ),
        (
            format!("PUT /v1/maps/m%0a/k HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\nx"),
            400,
        ),
        (
            format!(
                "PUT /v1/maps/{}/k HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\nx",
                "m".repeat(53)
            ),
            400,
        ),
        (format!("GET /../etc/passwd HTTP/1.1\r\n{host}\r\n"), 404),
        (format!("GET /v1/maps/m/../../../etc HTTP/1.1\r\n{host}\r\n"), 404),
        (format!("GET * HTTP/1.1\r\n{host}\r\n"), 404),
        (format!("CONNECT localhost:1 HTTP/1.1\r\n{host}\r\n"), 404),
        (format!("DELETE /v1/members HTTP/1.1\r\n{host}\r\n"), 405),
    ] {
        let mut wired = node.wired().await;
        // It may be refused before all of it is sent.
        let _ = wired.0.write_all(text.as_bytes()).await;
        let (said, _) = wired.head().await;
        assert_eq!(said, status, "{}", antiphon_api::shortened(&text));
    }
    let mut half = node.wired().await;
    half.write("GET /livez HT").await;
    half.0.shutdown().await.unwrap();
    assert_eq!(half.rest().await, "");
    let mut last = node.wired().await;
    last.write(request("PUT /v1/maps/m/last", &[], "x")).await;
    last.0.shutdown().await.unwrap();
    assert_eq!(last.said().await.status, 200);
    let mut cut = node.wired().await;
    cut.write(format!("{put}Content-Length: 10\r\n\r\nhalf")).await;
    cut.0.shutdown().await.unwrap();
    cut.rest().await;
    until(|| node.hub.sessions() == 0).await;
    // A key like any other: there are no folders here.
    assert_eq!(node.ask("PUT /v1/maps/m/..", &[], "dots").await.status, 200);
    assert_eq!(node.get("/v1/maps/m/%2E%2E").await.body, b"dots");
    assert_eq!(node.get("/v1/maps/m/k").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_left_half_sent_do_not_keep_others_out() {
    let node = Agent::alone().await;
    // A little more than all of them may take. The last byte never comes.
    let whole = request("PUT /v1/maps/m/half", &[], vec![b'x'; MAX_BODY_BYTES]);
    let mut halves = tokio::task::JoinSet::new();
    for _ in 0..72 {
        let (mut wired, half) = (node.wired().await, whole[..whole.len() - 1].to_vec());
        halves.spawn(async move {
            let _ = wired.0.write_all(&half).await;
            wired.said().await
        });
    }
    // Some have given way to others.
    let first = timeout(SOON, halves.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.failed(), (503, "unavailable".into(), "no".into()));
    assert!(first.header("retry-after").is_some());
    let put = node
        .ask("PUT /v1/maps/m/k", &[], vec![b'y'; MAX_BODY_BYTES / 2])
        .await;
    assert_eq!(put.status, 200, "{put:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_stands_still_holds_up_no_message_to_another_one() {
    let node = Agent::alone().await;
    let mut slow = node.wired().await;
    slow.write(request("GET /v1/groups/slow/events", &[], "")).await;
    slow.event("view").await;
    // From now on nobody reads it. More than its connection, its group and the room for requests take.
    let mut posts = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let mut wired = node.wired().await;
        posts.spawn(async move {
            let body = vec![b'x'; 900 << 10];
            wired
                .write(request("POST /v1/groups/slow/messages", &[], body))
                .await;
            wired.said().await
        });
    }
    while let Ok(Some(_)) = timeout(SPEAK_WITHIN / 10, posts.join_next()).await {}
    assert!(!posts.is_empty(), "all of it was taken");
    let other = node.post("/v1/groups/other/messages", "x");
    let said = timeout(SOON, other).await.unwrap();
    assert_eq!(said.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_keeps_its_place_among_connections() {
    let node = Agent::alone().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let places = Arc::new(tokio::sync::Semaphore::new(1));
    let visitor = Access::default().local(Arc::default());
    let visitor = visitor.seated(places.clone().try_acquire_owned().unwrap());
    let http = Http::new(node.hub.clone(), Resumable::default(), Halves::default());
    let served = tokio::spawn(http.serve(server, Vec::new(), Beginning::Request, visitor));
    let socket = Agent::upgraded(Wired(BufReader::new(client))).await;
    timeout(SOON, served).await.unwrap().unwrap();
    assert_eq!(places.available_permits(), 0);
    drop(socket);
    until(|| places.available_permits() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_the_node_leaves() {
    let node = Agent::alone().await;
    let mut group = node.wired().await;
    group.write(request("GET /v1/groups/g/events", &[], "")).await;
    group.event("view").await;
    let mut map = node.wired().await;
    map.write(request("GET /v1/maps/m/events", &[], "")).await;
    map.event("watching").await;
    node.hub.close().await;
    assert_eq!(group.event("lost").await["what"], "group");
    assert_eq!(map.event("lost").await["what"], "watch");
    // The last piece of a body, behind which the connection is as good as new.
    for mut wired in [group, map] {
        while wired.line().await != "0\r\n" {}
    }
    assert_eq!(node.post("/v1/groups/g/messages", "late").await.failed().0, 503);
}

//! Ends of connections, and standstills of the process.

use super::*;

/// A frame of a client, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0][..], payload].concat()
}

/// The frames that the agent sends until it ends the connection.
async fn frames(wired: &mut Wired) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    let read = wired.0.read_to_end(&mut all);
    timeout(SOON, read).await.expect("it ends").unwrap();
    let (mut frames, mut rest) = (Vec::new(), &all[..]);
    while let [first, length, behind @ ..] = rest {
        let (length, behind) = match *length {
            126 => (
                usize::from(u16::from_be_bytes([behind[0], behind[1]])),
                &behind[2..],
            ),
            length => (usize::from(length), behind),
        };
        frames.push((*first, behind[..length].to_vec()));
        rest = &behind[length..];
    }
    frames
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_that_says_something_and_closes_in_one_piece_gets_its_replies_and_a_close() {
    let node = Agent::alone().await;
    // All is there, so that nothing takes long.
    for there in ["/v1/groups/g/messages", "/v1/counters/c?by=0"] {
        let body = if there.ends_with("messages") { "x" } else { "" };
        assert_eq!(node.post(there, body).await.status, 200);
    }
    assert_eq!(node.ask("PUT /v1/maps/m/k", &[], "x").await.status, 200);
    let close = frame(0x88, &[3, 232]);
    let text = |line: &Value| frame(0x81, line.to_string().as_bytes());
    let grace = json!({"hello": {"name": "ann", "grace": "1s", "id": 0}});
    for (lines, replies) in [
        (vec![], 0),
        (vec![json!({"add": {"counter": "c", "by": 1, "id": 1}})], 1),
        (
            vec![
                json!({"add": {"counter": "c", "by": 1, "id": 1}}),
                json!({"put": {"map": "m", "key": "k", "value": "v", "id": 2}}),
                json!({"get": {"map": "m", "key": "k", "id": 3}}),
            ],
            3,
        ),
        (
            vec![
                json!({"join": {"group": "g", "id": 1}}),
                json!({"send": {"group": "g", "payload": "bye"}}),
            ],
            1,
        ),
        // It may come back: what it is told is kept for that.
        (vec![grace], 0),
    ] {
        for _ in 0..5 {
            let mut wired = node.wired().await;
            let headers = [
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            ];
            wired.write(request("GET /v1/stream", &headers, "")).await;
            assert_eq!(wired.head().await.0, 101);
            let said: Vec<u8> = lines.iter().flat_map(text).chain(close.clone()).collect();
            wired.write(said).await;
            let frames = frames(&mut wired).await;
            let (last, before) = frames.split_last().expect("it is answered");
            assert_eq!(*last, (0x88, vec![3, 232]), "{lines:?}");
            let told = |frame: &&(u8, Vec<u8>)| {
                let (first, payload) = frame;
                *first == 0x81 && String::from_utf8_lossy(payload).contains(r#""event":"reply""#)
            };
            assert!(
                before.iter().filter(told).count() >= replies,
                "{lines:?}: {before:?}"
            );
        }
    }
    until(|| node.hub.sessions() <= 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_left_is_unavailable_to_those_that_ask_it_about_others() {
    let node = Agent::alone().await;
    assert_eq!(node.get("/v1/why/n2").await.status, 200);
    node.hub.cluster().leave().await.unwrap();
    timeout(SOON, node.hub.cluster().closed()).await.unwrap();
    let said = node.get("/v1/why/n2").await;
    assert_eq!(said.failed(), (503, "unavailable".into(), "no".into()));
    assert_eq!(said.header("retry-after").as_deref(), Some("1"));
}

/// All stands still, on one thread: nodes, agent and client. Then the client asks before the agent has read
/// any event of what it has missed.
#[tokio::test]
async fn a_lock_is_not_prolonged_after_a_standstill_in_which_others_may_have_got_it() {
    let network = MemoryNetwork::new();
    let node = Agent::start(&network, 1, true).await;
    let _others = [
        Agent::start(&network, 2, false).await,
        Agent::start(&network, 3, false).await,
    ];
    let three = || {
        let view = node.hub.cluster().view();
        view.is_some_and(|view| view.members.len() == 3)
    };
    until(three).await;
    let held = loop {
        let held = node.post("/v1/locks/x?ttl=1h", "").await;
        if held.status == 201 {
            break held;
        }
    };
    let token = held.json()["token"].as_u64().unwrap();
    let prolong = request(&format!("PUT /v1/locks/x?token={token}&ttl=1h"), &[], "");
    let mut wired = node.wired().await;
    wired.write(&prolong).await;
    // Longer than any lease.
    std::thread::sleep(Duration::from_secs(3));
    for _ in 0..3 {
        assert_eq!(wired.said().await.failed(), (409, "not_held".into(), "no".into()));
        wired.write(&prolong).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_loaded_anew_gets_its_name_again() {
    let node = Agent::alone().await;
    for _ in 0..3 {
        let mut page = node.wired().await;
        page.write(request("GET /v1/groups/g/events?name=page", &[], ""))
            .await;
        assert_eq!(page.head().await.0, 200);
        page.event("view").await;
    }
}

//! What becomes of commands when a node stops, a way cannot carry them, or a peer is not where it was.

use std::net::SocketAddr;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// A node that joins the first one. It has the IP address of its gate, and tells others where that is.
async fn joined(first: &Member, name: &str, gate: Gate, told: SocketAddr) -> Member {
    let addr = gate.addr();
    let builder = Cluster::builder("commands")
        .name(name)
        .bind(SocketAddr::new(addr.ip(), 0))
        .metadata(ways::METADATA, told.to_string());
    let builder = builder
        .key(ClusterKey::from_bytes(KEY))
        .seeds([first.cluster.addr().to_string()]);
    let cluster = builder.join().await.unwrap();
    let config = Config {
        list: list_file(LIST),
        key: Some(ClusterKey::from_bytes(KEY)),
        tls: None,
    };
    let list = config.list.clone();
    let commands = Commands::start(cluster.clone(), config, Some(gate)).unwrap();
    let echo = commands.serve("echo", |_| Box::pin(async { Ok(Bytes::from_static(b"echoed")) }));
    let member = Member {
        commands,
        cluster,
        gate: addr,
        list,
        _serving: echo.into_iter().collect(),
    };
    for node in [first, &member] {
        while node.commands.0.node.members().len() < 2 {
            sleep(Duration::from_millis(10)).await;
        }
    }
    member
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_that_stops_has_asked_may_have_run() {
    let members = members(&["a", "b"], LIST).await;
    let both = asked("slow", "{}", to(&["a", "b"]), Way::HttpKept);
    let any = asked("slow", "{}", To::Any, Way::HttpKept);
    let handed = [both, any].map(|command| members[0].commands.hand_over(command).unwrap());
    let is_under_way = || {
        let queues = members[0].commands.status().queues;
        queues.iter().any(|queue| queue.open > 0)
    };
    while !is_under_way() {
        sleep(Duration::from_millis(10)).await;
    }
    members[0].commands.stop();
    for (handed, asked) in handed.into_iter().zip([2, 1]) {
        let done = handed.replies().await;
        assert_eq!((done.replies.len(), done.failures.len()), (0, asked), "{done:?}");
        for failed in done.failures.values() {
            assert_eq!((failed.code, failed.ran), (Code::Unknown, Ran::Maybe));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_cannot_carry_is_refused_or_says_that_it_ran() {
    const LARGE: &str = r#"
        [[verb]]
        name = "large"
        from = "all"
        to = "all"
        deliver = "session"
        args.one = { type = "text", max-bytes = 16384, optional = true }
        args.two = { type = "text", max-bytes = 16384, optional = true }
        args.three = { type = "text", max-bytes = 16384, optional = true }
        args.four = { type = "text", max-bytes = 16384, optional = true }
    "#;
    let members = members(&["a", "b"], &format!("{LIST}{LARGE}")).await;
    let reply = |_| -> Handled { Box::pin(async { Ok(Bytes::from(vec![b'x'; 60_000])) }) };
    let _serving = members[1].commands.serve("large", reply).unwrap();
    let text = "x".repeat(15_000);
    let large = format!(r#"{{"one":"{text}","two":"{text}","three":"{text}","four":"{text}"}}"#);
    for (way, args, expected) in [
        (Way::Http, large.as_str(), None),
        (Way::Library, large.as_str(), Some((Code::Refused, Ran::No))),
        (Way::Library, "{}", Some((Code::Failed, Ran::Yes))),
    ] {
        let command = asked("large", args, to(&["b"]), way);
        let mut done = members[0].commands.hand_over(command).unwrap().replies().await;
        let length = done.replies.get("b").map(Bytes::len);
        assert_eq!(length, expected.is_none().then_some(60_000));
        let failed = done.failures.remove("b");
        let said = failed.as_ref().map(|failed| (failed.code, failed.ran));
        assert_eq!(said, expected, "{failed:?}");
        assert!(failed.is_none_or(|failed| failed.reason.contains("take another way")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_the_librarys_way_refuses_at_once_and_others_go_on() {
    let members = members(&["a", "b", "c", "d", "e"], LIST).await;
    for gone in &members[2..] {
        gone.cluster.abort();
    }
    let begun = Instant::now();
    let is_alone = |member: &Member| {
        let node = &member.commands.0.node;
        !node.is_primary() && node.members() == ["a", "b"]
    };
    while !members[..2].iter().all(is_alone) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(10)).await;
    }
    let begun = Instant::now();
    let failed = echo(&members[0], &["b"], Way::Library).await.failures;
    assert!(begun.elapsed() < Duration::from_secs(2), "{failed:?}");
    let failed = &failed["b"];
    assert_eq!((failed.code, failed.ran), (Code::Unavailable, Ran::No));
    assert!(failed.reason.contains("needs a majority"), "{failed:?}");
    let done = echo(&members[0], &["b"], Way::HttpKept).await;
    assert_eq!(done.replies.len(), 1, "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_left_or_stopped_has_no_peers() {
    let members = members(&["a", "b", "c"], LIST).await;
    members[1].cluster.leave().await.unwrap();
    members[2].cluster.abort();
    for gone in &members[1..] {
        let begun = Instant::now();
        while !gone.commands.0.node.members().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            sleep(Duration::from_millis(10)).await;
        }
        let failed = echo(gone, &["a"], Way::HttpKept).await.failures;
        let failed = &failed["a"];
        assert_eq!((failed.code, failed.ran), (Code::Unavailable, Ran::No));
        assert!(failed.reason.contains("is in no view"), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_that_brings_no_replies_is_opened_anew() {
    let members = members(&["a"], LIST).await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gate = Gate::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (told, behind) = (proxy.local_addr().unwrap(), gate.addr());
    let _peer = joined(&members[0], "b", gate, told).await;
    let cut = Arc::new(Notify::new());
    let cuts = cut.clone();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = proxy.accept().await {
            let mut to = TcpStream::connect(behind).await.unwrap();
            let cut = cuts.clone();
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                    // The connection stays open, and carries nothing any more.
                    () = cut.notified() => std::future::pending::<()>().await,
                }
            });
        }
    });
    let mut command = asked("echo", r#"{"text":"x"}"#, to(&["b"]), Way::Websocket);
    let ask = async |command: &Command| {
        let handed = members[0].commands.hand_over(command.clone()).unwrap();
        handed.replies().await
    };
    assert_eq!(ask(&command).await.replies.len(), 1);
    cut.notify_waiters();
    command.within = Some(Duration::from_secs(2));
    assert_eq!(ask(&command).await.failures["b"].ran, Ran::Maybe);
    let _ = ask(&command).await;
    command.within = Some(Duration::from_secs(20));
    let third = ask(&command).await;
    assert_eq!(third.replies.len(), 1, "{third:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_an_address_that_the_peer_has_no_more_is_not_used() {
    let members = members(&["a", "b", "c"], LIST).await;
    for way in [Way::HttpKept, Way::Websocket, Way::Resp] {
        let connections = ways::Connections::default();
        for peer in &members[1..] {
            let name = peer.commands.0.node.name.clone();
            let envelope = envelope(&members, |asked| {
                asked.way = way;
                asked.to.clone_from(&name);
                asked.to_incarnation = peer.cluster.incarnation().to_string();
            });
            let gate = ways::Endpoint {
                addr: peer.gate,
                tls: false,
                name,
            };
            let reply = connections.exchange(way, &gate, None, envelope).await;
            assert!(reply.is_ok(), "{way:?}: {reply:?}");
        }
    }
    let forged = |member| count(member, Side::Served, Counted::Forged);
    assert_eq!(members.iter().map(forged).sum::<u64>(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_that_shows_no_envelope_loses_its_place() {
    let members = members(&["a"], LIST).await;
    let websocket = websocket(members[0].gate).await.unwrap();
    let mut resp = TcpStream::connect(members[0].gate).await.unwrap();
    resp.write_all(b"*2\r\n").await.unwrap();
    for mut stranger in [websocket, resp] {
        let ended = tokio::time::timeout(2 * gate::HEAD_WITHIN, stranger.read_u8());
        assert!(ended.await.unwrap().is_err());
    }
}

/// Like a stranger that recorded an envelope.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_an_envelope_ends_its_connection() {
    let members = members(&["a", "b"], LIST).await;
    let gate = members[1].gate;
    let copy = envelope(&members, |_| {});
    assert_eq!(post(gate, &copy).await.0, 200);
    let mut stream = TcpStream::connect(gate).await.unwrap();
    let length = copy.len();
    let head = format!("POST /v1/peer HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&copy).await.unwrap();
    let mut answer = String::new();
    let ended = tokio::time::timeout(gate::HEAD_WITHIN / 2, stream.read_to_string(&mut answer)).await;
    assert!(ended.is_ok() && answer.starts_with("HTTP/1.1 409"), "{answer}");

    let socket = websocket(gate).await.unwrap();
    let mut socket = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;
    let copy = envelope(&members, |asked| asked.way = Way::Websocket);
    for is_first in [true, false] {
        socket.send(Message::Binary(copy.clone())).await.unwrap();
        let answer = tokio::time::timeout(gate::HEAD_WITHIN / 2, socket.next())
            .await
            .unwrap();
        let is_reply = matches!(answer, Some(Ok(Message::Binary(_))));
        assert_eq!(is_reply, is_first, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_no_more_time_than_a_list_may_give() {
    let members = members(&["a", "b"], LIST).await;
    let most = u64::try_from(list::MAX_WITHIN.as_millis()).unwrap();
    let envelope = envelope(&members, |asked| {
        asked.within_ms = u64::MAX;
        asked.sent_ms -= most + 10_000;
    });
    let (status, body) = post(members[1].gate, &envelope).await;
    assert!(status == 200 && body.contains("it is late"), "{status} {body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datagram_from_an_address_that_its_sender_does_not_have_is_counted_and_not_answered() {
    let members = members(&["a", "b"], LIST).await;
    let gate = members[1].gate;
    let late = |asked: &mut Asked| asked.sent_ms -= 10_000;
    let of_no_member = |asked: &mut Asked| asked.from_incarnation = "2".repeat(32);
    let datagram = |change: fn(&mut Asked)| {
        envelope(&members, |asked| {
            asked.way = Way::Udp;
            change(asked);
        })
    };
    let elsewhere = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    for datagram in [datagram(|_| {}), datagram(late), datagram(of_no_member)] {
        elsewhere.send_to(&datagram, gate).await.unwrap();
    }
    let begun = Instant::now();
    while count(&members[1], Side::Served, Counted::Forged) < 3 {
        assert!(begun.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(count(&members[1], Side::Served, Counted::Forged), 3);
    assert_eq!(count(&members[1], Side::Served, Counted::Done), 0);
    let mut answer = [0; 2000];
    let answered = tokio::time::timeout(Duration::from_millis(300), elsewhere.recv_from(&mut answer));
    assert!(answered.await.is_err());
    // At an address of its own, the sender is told.
    let own = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    own.send_to(&datagram(late), gate).await.unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(10), own.recv_from(&mut answer));
    let (length, _) = answered.await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.contains("it is late"), "{answer}");
}

/// The routes of the host would send from 127.0.0.1.
#[tokio::test(flavor = "multi_thread")]
async fn datagrams_go_out_from_the_only_address_of_their_node() {
    let members = members(&["a"], LIST).await;
    let gate = Gate::bind("127.0.0.2:0".parse().unwrap()).await.unwrap();
    let told = gate.addr();
    let other = joined(&members[0], "b", gate, told).await;
    let done = echo(&other, &["a"], Way::Udp).await;
    assert_eq!(done.replies["a"], Bytes::from("a b grüße"), "{done:?}");
}

/// These members hand over 64 commands each to the last one, which no session of it answers. Returns when all
/// of them run.
async fn fill(members: &mut [Member], asking: usize, way: Way) -> (Vec<Handed>, Serving) {
    let running = Arc::new(AtomicUsize::new(0));
    let begun = running.clone();
    let last = members.last_mut().unwrap();
    // The second one is `slow`.
    last._serving.truncate(1);
    let serving = last.commands.serve("slow", move |_| {
        begun.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            std::future::pending::<()>().await;
            Ok(Bytes::new())
        })
    });
    let serving = serving.unwrap();
    let name = last.commands.0.node.name.clone();
    let mut handed = Vec::new();
    for member in &members[..asking] {
        for _ in 0..MAX_RUNNING_OF_ONE {
            let command = asked("slow", "{}", to(&[&name]), way);
            handed.push(member.commands.hand_over(command).unwrap());
        }
    }
    let since = Instant::now();
    while running.load(Ordering::Relaxed) < asking * MAX_RUNNING_OF_ONE {
        assert!(since.elapsed() < Duration::from_secs(20), "{way:?}: {running:?}");
        sleep(Duration::from_millis(10)).await;
    }
    (handed, serving)
}

/// What comes of a command within a time that is far shorter than those have that fill the node.
async fn ask_soon(member: &Member, of: &str, verb: &str, way: Way) -> Replies {
    let args = if verb == "echo" { r#"{"text":"x"}"# } else { "{}" };
    let mut command = asked(verb, args, to(&[of]), way);
    command.within = Some(Duration::from_secs(2));
    member.commands.hand_over(command).unwrap().replies().await
}

/// A list by which a node can be filled for half a minute.
fn patient() -> String {
    let list = LIST.replace(r#"within = "5s""#, r#"within = "30s""#);
    list.replace("max-running = 64", "max-running = 300")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_peer_has_running_shuts_out_no_other_peer() {
    for way in [Way::Library, Way::Websocket] {
        let mut members = members(&["a", "b", "c"], &patient()).await;
        let _filled = fill(&mut members, 1, way).await;
        for verb in ["members", "echo"] {
            let done = ask_soon(&members[1], "c", verb, way).await;
            assert_eq!(done.replies.len(), 1, "{way:?}, {verb}: {done:?}");
        }
        // One more of that peer waits in its own queue, and by another way it is refused.
        for (way, expected) in [(way, Code::Timeout), (Way::HttpKept, Code::Unavailable)] {
            let failed = ask_soon(&members[0], "c", "echo", way).await.failures;
            let failed = &failed["c"];
            assert_eq!((failed.code, failed.ran), (expected, Ran::No), "{failed:?}");
            let is_of_one = failed.reason.contains("64 commands of a run already");
            assert_eq!(is_of_one, way == Way::HttpKept, "{failed:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_runs_all_it_may_refuses_at_once_by_the_librarys_way() {
    let mut members = members(&["a", "b", "c", "d", "e", "f"], &patient()).await;
    let _filled = fill(&mut members, MAX_RUNNING / MAX_RUNNING_OF_ONE, Way::Library).await;
    let failed = ask_soon(&members[4], "f", "echo", Way::Library).await.failures;
    let failed = &failed["f"];
    assert_eq!((failed.code, failed.ran), (Code::Unavailable, Ran::No));
    assert!(failed.reason.contains("256 commands run already"), "{failed:?}");
    // What takes no place is done.
    let done = ask_soon(&members[4], "f", "members", Way::Library).await;
    assert_eq!(done.replies.len(), 1, "{done:?}");
}

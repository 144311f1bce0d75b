//! What a program may do to an agent that means it harm, or is broken: it takes no more than its part of
//! memory and time, and what it held is free when it has gone.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::testing::{Agent, SOON, until};

/// No socket holds so much that nobody reads.
const MUCH: usize = 64 << 20;
/// A peer that takes nothing for so long takes nothing more.
const STALLED: Duration = Duration::from_secs(2);

const UPGRADE: &str = "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Writes pieces until they are not taken any more.
async fn flood(stream: &mut TcpStream, piece: &[u8]) {
    let mut written = 0;
    while let Ok(write) = timeout(STALLED, stream.write_all(piece)).await {
        write.unwrap();
        written += piece.len();
        assert!(
            written < MUCH,
            "it is read on and on, by one that writes to nobody"
        );
    }
}

/// Reads until this is there.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut said = Vec::new();
    let read = async {
        while !said.ends_with(end.as_bytes()) {
            assert!(
                stream.read_buf(&mut said).await.unwrap() > 0,
                "it ended: {}",
                String::from_utf8_lossy(&said)
            );
        }
    };
    timeout(SOON, read).await.unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_program_says_and_does_not_read_the_answers_to_is_not_read_on() {
    let agent = Agent::alone().await;
    let mut lines = agent.connect().await;
    flood(&mut lines, "{\"members\":{}}\n".repeat(1000).as_bytes()).await;
    let mut resp = agent.connect().await;
    flood(&mut resp, "PING\r\n".repeat(1000).as_bytes()).await;
    let mut http = agent.connect().await;
    flood(
        &mut http,
        "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
            .repeat(1000)
            .as_bytes(),
    )
    .await;
    let mut socket = agent.connect().await;
    socket.write_all(UPGRADE.as_bytes()).await.unwrap();
    read_until(&mut socket, "\r\n\r\n").await;
    let mut ping = vec![0x89, 0x80 | 125, 0, 0, 0, 0];
    ping.resize(6 + 125, b'p');
    flood(&mut socket, &ping.repeat(1000)).await;
    // Others are served.
    let mut good = agent.connect().await;
    good.write_all(b"PING\r\n").await.unwrap();
    read_until(&mut good, "+PONG\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_client_has_gone_waits_no_more_whatever_was_sent_behind_it() {
    let agent = Agent::alone().await;
    let lock = "POST /v1/locks/x HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut holds = agent.connect().await;
    holds
        .write_all(lock.replace("/x", "/x?ttl=1h").as_bytes())
        .await
        .unwrap();
    read_until(&mut holds, "}\n").await;
    let held = agent.hub.sessions();
    // The last is more than hyper reads ahead.
    for behind in [String::new(), lock.to_owned(), "x".repeat(32 << 10)] {
        let mut waits = agent.connect().await;
        waits.write_all(lock.as_bytes()).await.unwrap();
        until(|| agent.hub.sessions() == held + 1).await;
        waits.write_all(behind.as_bytes()).await.unwrap();
        drop(waits);
        until(|| agent.hub.sessions() == held).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_goes_while_a_line_of_it_waits_holds_nothing_any_more() {
    let agent = Agent::alone().await;
    let join = "{\"join\":{\"group\":\"g\"}}\n";
    let mut slow = agent.connect().await;
    slow.write_all(join.as_bytes()).await.unwrap();
    read_until(&mut slow, "}\n").await;
    let mut holds = agent.connect().await;
    let lock = "{\"lock\":{\"name\":\"x\",\"id\":0}}\n";
    holds.write_all(lock.as_bytes()).await.unwrap();
    assert!(read_until(&mut holds, "}\n").await.contains("token"));
    holds.write_all(join.as_bytes()).await.unwrap();
    read_until(&mut holds, "}\n").await;
    // The other member does not read, so at last a message waits for room, and lines behind it are not read.
    // TCP tells of the end only behind what its buffers hold.
    let (mut hears, mut says) = tokio::io::split(holds);
    let hears = tokio::spawn(async move { tokio::io::copy(&mut hears, &mut tokio::io::sink()).await });
    let payload = "x".repeat(59_744);
    let send = format!("{{\"send\":{{\"group\":\"g\",\"payload\":\"{payload}\"}}}}\n");
    let mut sent = 0;
    while let Ok(written) = timeout(STALLED, says.write_all(send.as_bytes())).await {
        written.unwrap();
        sent += 1;
        assert!(sent < 1_000, "it never waits");
    }
    hears.abort();
    let _ = hears.await;
    drop(says);
    let mut waits = agent.connect().await;
    waits.write_all(lock.as_bytes()).await.unwrap();
    assert!(read_until(&mut waits, "}\n").await.contains("token"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_line_that_is_too_long_is_told_so_by_the_words_of_its_protocol() {
    let agent = Agent::alone().await;
    let long = "v".repeat(9000);
    for (line, expected) in [
        (
            format!("SET k {long}\r\n"),
            "-ERR Protocol error: too big inline request\r\n",
        ),
        (format!("GET /{long} HTTP/1.1\r\n"), "HTTP/1.1 414 "),
        // It is none of a browser's methods, and no command either.
        (format!("set /{long} HTTP/1.1\r\n"), "-ERR Protocol error: "),
    ] {
        let mut program = agent.connect().await;
        program.write_all(line.as_bytes()).await.unwrap();
        let mut said = String::new();
        timeout(SOON, program.read_to_string(&mut said))
            .await
            .unwrap()
            .unwrap();
        assert!(said.starts_with(expected), "{said}");
    }
    let mut program = agent.connect().await;
    program.write_all(b"PING\r\n").await.unwrap();
    read_until(&mut program, "+PONG\r\n").await;
    let longest = "v".repeat((64 << 10) - "SET k \r".len());
    program
        .write_all(format!("SET k {longest}\r\nGET k\r\n").as_bytes())
        .await
        .unwrap();
    let said = read_until(&mut program, "v\r\n").await;
    assert!(
        said.starts_with("+OK\r\n$65529\r\nvvv"),
        "{}",
        antiphon_api::shortened(&said)
    );
    program
        .write_all(format!("SET k {longest}v\r\n").as_bytes())
        .await
        .unwrap();
    read_until(&mut program, "-ERR Protocol error: too big inline request\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_websocket_is_none_is_sent_away_and_its_group_is_told_why() {
    let agent = Agent::alone().await;
    let (hears, mut says) = tokio::io::split(agent.connect().await);
    let mut hears = BufReader::new(hears).lines();
    let mut view_of = async |members: usize| -> Value {
        loop {
            let line = timeout(SOON, hears.next_line()).await.unwrap().unwrap().unwrap();
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["event"] == "view" && event["members"].as_array().unwrap().len() == members {
                return event;
            }
        }
    };
    let hello = |name: &str| json!({"hello": {"name": name}}).to_string();
    let join = json!({"join": {"group": "g"}}).to_string();
    says.write_all(format!("{}\n{join}\n", hello("bob")).as_bytes())
        .await
        .unwrap();
    view_of(1).await;
    // A text of the client with a mask of zeros.
    let text = |said: &[u8]| [&[0x81, 0x80 | said.len() as u8, 0, 0, 0, 0][..], said].concat();
    let mut long = vec![0x81, 0xff];
    long.extend_from_slice(&(antiphon_api::MAX_LINE_BYTES as u64 + 1).to_be_bytes());
    long.extend_from_slice(&[0; 4]);
    for (name, said, told, cause) in [
        (
            "long",
            long,
            "a message has at most",
            "it sent a message that is too long",
        ),
        ("text", text(b"\xff"), "", "it sent a text that is not UTF-8"),
        // Without a mask.
        ("frame", vec![0x81, 1, b'x'], "", "it sent what is no WebSocket"),
    ] {
        let mut socket = agent.connect().await;
        socket.write_all(UPGRADE.as_bytes()).await.unwrap();
        read_until(&mut socket, "\r\n\r\n").await;
        for line in [hello(name), join.clone()] {
            socket.write_all(&text(line.as_bytes())).await.unwrap();
        }
        view_of(2).await;
        socket.write_all(&said).await.unwrap();
        let view = view_of(1).await;
        assert_eq!(view["causes"][format!("n1/{name}")], cause);
        let mut heard = Vec::new();
        // It may be reset behind that.
        let _ = timeout(SOON, socket.read_to_end(&mut heard)).await.unwrap();
        assert!(String::from_utf8_lossy(&heard).contains(told), "{cause}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_half_sent_does_not_keep_others_out_however_it_is_carried() {
    const LONG: usize = 900_000;
    let agent = Agent::alone().await;
    let value = "x".repeat(LONG);
    let line = format!("{{\"put\":{{\"map\":\"m\",\"key\":\"k\",\"id\":1,\"value\":\"{value}\"}}}}\n");
    let resp = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${LONG}\r\n{value}\r\n");
    // A text of the client with a mask of zeros.
    let mut message = vec![0x81, 0xff];
    message.extend_from_slice(&(LONG as u64).to_be_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(value.as_bytes());
    // The same in pieces, with pongs between them, which a server may not take for its end.
    let mut pieces = Vec::new();
    for (nth, piece) in value.as_bytes().chunks(32 << 10).enumerate() {
        pieces.extend_from_slice(&[u8::from(nth == 0), 0xfe]);
        pieces.extend_from_slice(&(piece.len() as u16).to_be_bytes());
        pieces.extend_from_slice(&[0; 4]);
        pieces.extend_from_slice(piece);
        pieces.extend_from_slice(&[0x8a, 0x80, 0, 0, 0, 0]);
    }
    let ways = [line.as_bytes(), resp.as_bytes(), &message, &pieces];
    let mut halves = tokio::task::JoinSet::new();
    // More than all of them may take. The last byte never comes.
    for number in 0..96 {
        let mut stream = agent.connect().await;
        let half = ways[number % 4][..ways[number % 4].len() - 1].to_vec();
        halves.spawn(async move {
            if number % 4 >= 2 {
                stream.write_all(UPGRADE.as_bytes()).await.unwrap();
                read_until(&mut stream, "\r\n\r\n").await;
            }
            let _ = stream.write_all(&half).await;
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said).await;
            (number % 4, String::from_utf8_lossy(&said).into_owned())
        });
    }
    // Some of each have given way, and were told why.
    let mut told = [false; 4];
    while told.contains(&false) {
        let (way, said) = timeout(SOON, halves.join_next()).await.unwrap().unwrap().unwrap();
        assert!(said.contains("others needed its room"), "{way}: {said}");
        told[way] = true;
    }
    for way in &ways[..2] {
        let mut good = agent.connect().await;
        good.write_all(way).await.unwrap();
        let end = if way[0] == b'*' { "+OK\r\n" } else { "}\n" };
        let said = read_until(&mut good, end).await;
        assert!(!said.contains("others needed"), "{said}");
    }
}

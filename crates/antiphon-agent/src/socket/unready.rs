//! What HTTP and RESP answer at a node that has no cluster, or no majority.

use std::time::Duration;

use antiphon::Cluster;
use antiphon::memory::{MemoryNetwork, Weather};
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::{Instant, timeout};

use crate::Hub;
use crate::ready::PATIENCE;
use crate::testing::{Agent, SOON, cluster, until};

/// Answers, and refusals, come within so much more time than they wait.
const SLACK: Duration = Duration::from_secs(8);

/// What it answers to one request, whole.
async fn http(agent: &Agent, line: &str, body: &str) -> String {
    let mut stream = agent.connect().await;
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = String::new();
    let read = timeout(SOON, stream.read_to_string(&mut said)).await;
    read.unwrap_or_else(|_| panic!("{line}: nothing is said"))
        .unwrap();
    said
}

/// The first line that it replies to a command.
async fn resp(agent: &Agent, line: &str) -> String {
    let mut stream = BufReader::new(agent.connect().await);
    stream.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
    let mut said = String::new();
    let read = timeout(SOON, stream.read_line(&mut said)).await;
    read.unwrap_or_else(|_| panic!("{line}: nothing is said"))
        .unwrap();
    said
}

const REQUESTS: [(&str, &str); 9] = [
    ("POST /v1/groups/new/messages", "hello"),
    ("PUT /v1/maps/new/k", "v"),
    ("GET /v1/maps/new/k", ""),
    ("DELETE /v1/maps/new/k", ""),
    ("GET /v1/maps/new/events", ""),
    ("POST /v1/counters/new", ""),
    ("POST /v1/ids", ""),
    ("POST /v1/locks/new", ""),
    ("POST /v1/calls/new/verb?to=all", "x"),
];
const COMMANDS: [&str; 8] = [
    "SET k v",
    "GET k",
    "INCR c",
    "PUBLISH g hello",
    "SUBSCRIBE g",
    "AP.LOCK l",
    "AP.PUT new k v",
    "AP.CALL new verb ALL x",
];

/// All of them are refused with this reason, and did not happen.
async fn are_refused(agent: &Agent, because: &str) {
    let begun = Instant::now();
    let requests = REQUESTS.map(|(line, body)| async move {
        let said = http(agent, line, body).await;
        assert!(said.starts_with("HTTP/1.1 503"), "{line}: {said}");
        for has in [
            "retry-after: 1\r\n",
            r#""code":"unavailable""#,
            r#""ran":"no""#,
            because,
        ] {
            assert!(said.contains(has), "{line}: {said}");
        }
    });
    let commands = COMMANDS.map(|line| async move {
        let said = resp(agent, line).await;
        assert!(
            said.starts_with("-UNAVAILABLE ") && said.contains(because),
            "{line}: {said}"
        );
        assert!(!said.contains("may have happened"), "{line}: {said}");
    });
    tokio::join!(join_all(requests), join_all(commands));
    let took = begun.elapsed();
    assert!((PATIENCE..PATIENCE + SLACK).contains(&took), "{took:?}");
    // With `within` that counts, and the error says what is missing.
    let said = http(agent, "POST /v1/locks/new?within=100ms", "").await;
    assert!(
        said.starts_with("HTTP/1.1 504") && said.contains(because),
        "{said}"
    );
    let said = resp(agent, "AP.LOCK l 100").await;
    assert!(said.starts_with("-TIMEOUT ") && said.contains(because), "{said}");
    let said = http(agent, "GET /readyz", "").await;
    assert!(
        said.starts_with("HTTP/1.1 503") && said.contains(because),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_cluster_requests_are_refused_after_a_moment_and_work_as_soon_as_there_is_one() {
    let network = MemoryNetwork::new();
    let agent = Agent::start(&network, 2, false).await;
    are_refused(&agent, "there is no cluster yet").await;
    // A channel that was not joined in time is joined all the same, and confirmed when it is asked for again.
    let mut stream = BufReader::new(agent.connect().await);
    stream.write_all(b"SUBSCRIBE news\r\n").await.unwrap();
    let mut line = String::new();
    timeout(SOON, stream.read_line(&mut line)).await.unwrap().unwrap();
    assert!(line.starts_with("-UNAVAILABLE "), "{line}");
    let _founder = cluster(&network, 1, true).await;
    let ready = async {
        while !http(&agent, "GET /readyz", "").await.starts_with("HTTP/1.1 200") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, ready).await.expect("it joins");
    let (put, said) = tokio::join!(
        http(&agent, "PUT /v1/maps/new/k", "v"),
        http(&agent, "POST /v1/groups/new/messages", "hello")
    );
    assert!(put.starts_with("HTTP/1.1 200"), "{put}");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    // What was refused did not happen.
    let counted = resp(&agent, "INCRBY c 0").await;
    assert_eq!(counted, ":0\r\n");
    stream.write_all(b"SUBSCRIBE news\r\nPING\r\n").await.unwrap();
    let mut lines = Vec::new();
    for _ in 0..6 {
        line.clear();
        timeout(SOON, stream.read_line(&mut line)).await.unwrap().unwrap();
        lines.push(line.trim_end().to_owned());
    }
    // Once, and nothing else before it.
    assert_eq!(lines, ["*3", "$9", "subscribe", "$4", "news", ":1"]);
    line.clear();
    timeout(SOON, stream.read_line(&mut line)).await.unwrap().unwrap();
    assert_eq!(line, "*2\r\n", "the answer to PING of a subscriber");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_a_moment_before_the_cluster_is_answered() {
    let network = MemoryNetwork::new();
    let agent = Agent::start(&network, 2, false).await;
    let founder = async {
        tokio::time::sleep(PATIENCE / 10).await;
        cluster(&network, 1, true).await
    };
    let (put, said, _founder) = tokio::join!(
        http(&agent, "PUT /v1/maps/new/k", "v"),
        http(&agent, "POST /v1/groups/new/messages", "hello"),
        founder
    );
    assert!(put.starts_with("HTTP/1.1 200"), "{put}");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_minority_what_was_not_used_before_is_refused_after_a_moment() {
    let weather = Weather::new(1);
    let air = weather.clone();
    tokio::spawn(async move { air.carry().await });
    let agent = Agent::of(Hub::new(cluster(weather.network(), 1, true).await)).await;
    let others = [
        cluster(weather.network(), 2, false).await,
        cluster(weather.network(), 3, false).await,
    ];
    until(|| {
        let view = agent.hub.cluster().view();
        view.is_some_and(|view| view.members.len() == 3)
    })
    .await;
    let here = agent.hub.cluster().addr();
    for other in others.iter().map(Cluster::addr) {
        weather.change(here, other, |path| path.cut = true);
        weather.change(other, here, |path| path.cut = true);
    }
    until(|| agent.hub.readiness().why_not().is_some()).await;
    are_refused(&agent, "majority").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_wait_for_the_cluster_as_their_page_promises() {
    let network = MemoryNetwork::new();
    let agent = Agent::start(&network, 2, false).await;
    let mut stream = BufReader::new(agent.connect().await);
    let put = r#"{"put":{"map":"m","key":"k","value":"v","id":1}}"#;
    stream.write_all(format!("{put}\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    let early = timeout(PATIENCE + PATIENCE / 2, stream.read_line(&mut line)).await;
    assert!(early.is_err(), "{line}");
    let _founder = cluster(&network, 1, true).await;
    timeout(SOON, stream.read_line(&mut line)).await.unwrap().unwrap();
    assert!(line.contains(r#""op":"put","id":1,"version""#), "{line}");
}

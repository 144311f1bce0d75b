//! Nodes that command each other by every way, on the loopback interface.

mod changes;
mod deliver;
mod failures;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use antiphon::ClusterKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::{Instant, sleep};

use super::*;
use crate::counts::{Counted, Side};
use crate::envelope::{Asked, Signer};

const KEY: [u8; 32] = [7; 32];
const LIST: &str = r#"
    version = 3
    [[verb]]
    name = "echo"
    from = "all"
    to = "all"
    deliver = "session"
    args.text = { type = "text", max-bytes = 16384 }
    max-running = 64
    [[verb]]
    name = "slow"
    from = "all"
    to = "all"
    deliver = "session"
    within = "5s"
    max-running = 64
    [[verb]]
    name = "print"
    from = ["a"]
    to = ["b"]
    deliver = { program = ["/bin/echo", "--", { arg = "text" }, "x y", { arg = "number" }] }
    args.text = { type = "text", max-bytes = 100 }
    args.number = { type = "integer", min = 0, max = 9, default = 4 }
    [[verb]]
    name = "hang"
    from = "all"
    to = "all"
    deliver = { program = ["/bin/sleep", "61.25"] }
    within = "300ms"
    [[verb]]
    name = "fail"
    from = "all"
    to = "all"
    deliver = { program = ["/bin/ls", "/no-such-folder"] }
    [[verb]]
    name = "much"
    from = "all"
    to = "all"
    deliver = { program = ["/usr/bin/yes"] }
    max-reply-bytes = 1000
    [[verb]]
    name = "long"
    from = "all"
    to = "all"
    deliver = { program = ["/usr/bin/head", "-c", "3000", "/usr/bin/head"] }
    [[verb]]
    name = "members"
    from = "all"
    to = "all"
    deliver = { node = "members" }
    [[verb]]
    name = "leave"
    from = ["a"]
    to = ["b"]
    deliver = { node = "leave" }
"#;

struct Member {
    commands: Commands,
    cluster: Cluster,
    gate: std::net::SocketAddr,
    list: PathBuf,
    _serving: Vec<Serving>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.cluster.abort();
        let _ = std::fs::remove_file(&self.list);
    }
}

fn list_file(text: &str) -> PathBuf {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("antiphon-commands-{}-{number}.toml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

/// The named nodes in one cluster, each of which echoes and is slow on request.
async fn members(names: &[&str], list: &str) -> Vec<Member> {
    members_with(names, list, |_| None).await
}

/// A file of certificates that were made for these tests.
fn pki(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/pki")).join(name)
}

/// The certificate of a node.
fn tls_of(node: &str) -> Tls {
    let (certificate, key) = (pki(&format!("{node}.pem")), pki(&format!("{node}.key")));
    Tls::read(&certificate, &key, &pki("ca.pem")).unwrap()
}

async fn members_with(names: &[&str], list: &str, tls: impl Fn(&str) -> Option<Tls>) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for name in names {
        let gate = Gate::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let tls = tls(name);
        let (key, value) = gate.metadata(tls.is_some());
        let builder = Cluster::builder("commands")
            .name(*name)
            .bind("127.0.0.1:0")
            .metadata(key, value);
        let builder = builder.key(ClusterKey::from_bytes(KEY));
        let cluster = match members.first() {
            Some(first) => builder.seeds([first.cluster.addr().to_string()]),
            None => builder.found(),
        };
        let cluster = cluster.join().await.unwrap();
        let config = Config {
            list: list_file(list),
            key: Some(ClusterKey::from_bytes(KEY)),
            tls,
        };
        let (addr, list) = (gate.addr(), config.list.clone());
        let commands = Commands::start(cluster.clone(), config, Some(gate)).unwrap();
        let own = (*name).to_owned();
        let echo = commands.serve("echo", move |request| {
            let text = request.args["text"].to_string();
            let reply = format!("{own} {} {text}", request.from);
            Box::pin(async move { Ok(Bytes::from(reply)) })
        });
        let slow = commands.serve("slow", |_| {
            Box::pin(async {
                sleep(Duration::from_secs(4)).await;
                Ok(Bytes::from_static(b"done"))
            })
        });
        members.push(Member {
            commands,
            cluster,
            gate: addr,
            list,
            _serving: echo.into_iter().chain(slow).collect(),
        });
    }
    for member in &members {
        while member.commands.0.node.members().len() < names.len() {
            sleep(Duration::from_millis(10)).await;
        }
    }
    members
}

fn asked(verb: &str, args: &str, to: To, way: Way) -> Command {
    Command {
        verb: verb.to_owned(),
        args: serde_json::from_str(args).unwrap(),
        to,
        way,
        reply: true,
        within: None,
    }
}

fn to(names: &[&str]) -> To {
    To::Nodes(names.iter().map(|name| (*name).to_owned()).collect())
}

/// A command without arguments to the second member.
async fn ask_one(members: &[Member], verb: &str, way: Way) -> Replies {
    let command = asked(verb, "{}", to(&["b"]), way);
    members[0].commands.hand_over(command).unwrap().replies().await
}

const PLAIN: [Way; 6] = [
    Way::Library,
    Way::Http,
    Way::HttpKept,
    Way::Websocket,
    Way::Resp,
    Way::Udp,
];

async fn echo(member: &Member, of: &[&str], way: Way) -> Replies {
    let command = asked("echo", r#"{"text":"grüße"}"#, to(of), way);
    member.commands.hand_over(command).unwrap().replies().await
}

fn count(member: &Member, side: Side, result: Counted) -> u64 {
    let rows = member.commands.status().counts;
    rows.iter()
        .filter(|row| (row.side, row.result) == (side, result))
        .map(|row| row.count)
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_and_its_reply_go_by_every_way() {
    let members = members(&["a", "b", "c"], LIST).await;
    for way in PLAIN {
        for _ in 0..3 {
            let done = echo(&members[0], &["a", "b", "c"], way).await;
            assert_eq!(done.failures, BTreeMap::new(), "{way:?}");
            assert_eq!(done.replies["b"], Bytes::from("b a grüße"), "{way:?}");
            assert_eq!(done.replies.len(), 3, "{way:?}");
        }
        let mut quiet = asked("echo", r#"{"text":"x"}"#, to(&["b"]), way);
        quiet.reply = false;
        let done = members[0].commands.hand_over(quiet).unwrap().replies().await;
        assert_eq!(done.replies["b"], Bytes::new(), "{way:?}");
    }
    assert_eq!(count(&members[0], Side::Asked, Counted::Sent), 6);
    while count(&members[1], Side::Served, Counted::Done) < 24 {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(members[0].commands.status().last_contact_ms.contains_key("b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn by_https_a_peer_shows_a_certificate_for_its_name_or_is_not_asked() {
    let members = members_with(&["a", "b"], LIST, |node| Some(tls_of(node))).await;
    for way in [Way::Https, Way::HttpsKept, Way::Http, Way::HttpKept] {
        let done = echo(&members[0], &["b"], way).await;
        assert_eq!(done.failures, BTreeMap::new(), "{way:?}");
    }
    // One that shows another node's, and one without any.
    for (tls, expected) in [(Some("a"), "certificate"), (None, "has no certificate")] {
        let members = members_with(&["a", "b"], LIST, |node| match node {
            "a" => Some(tls_of("a")),
            _ => tls.map(tls_of),
        });
        let members = members.await;
        let failed = echo(&members[0], &["b"], Way::HttpsKept)
            .await
            .failures
            .remove("b")
            .unwrap();
        assert_eq!(
            (failed.code, failed.ran),
            (Code::Unavailable, Ran::No),
            "{failed:?}"
        );
        assert!(failed.reason.contains(expected), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_as_a_whole_or_not_at_all() {
    let (of_a, of_b) = (tls_of("a"), tls_of("b"));
    let members = members_with(&["a", "b"], LIST, |node| {
        Some(if node == "a" { of_a.clone() } else { of_b.clone() })
    });
    let members = members.await;
    let failed = async |way| echo(&members[0], &["b"], way).await.failures.remove("b");
    assert_eq!(failed(Way::HttpsKept).await, None);
    // What cannot be used, or does not fit the rest, changes nothing.
    let wrong = list_file("no certificate");
    for (certificate, key, authorities) in [
        (&wrong, &pki("b.key"), &pki("ca.pem")),
        (&pki("b.pem"), &wrong, &pki("ca.pem")),
        (&pki("b.pem"), &pki("b.key"), &wrong),
        (&pki("b.pem"), &pki("a.key"), &pki("ca.pem")),
        (&pki("b.pem"), &pki("b.key"), &pki("no such file")),
    ] {
        assert!(of_b.renew(certificate, key, authorities).is_err());
        assert_eq!(of_b.renewal(), 0);
    }
    std::fs::remove_file(wrong).unwrap();
    assert_eq!(failed(Way::Https).await, None);
    // Another certificate is shown from here on; a connection that is there stays.
    of_b.renew(&pki("a.pem"), &pki("a.key"), &pki("ca.pem")).unwrap();
    let refused = failed(Way::Https).await.unwrap();
    assert!(refused.reason.contains("certificate"), "{refused:?}");
    assert_eq!(failed(Way::HttpsKept).await, None);
    // Authorities that do not know the peer: not even by a connection from before.
    of_b.renew(&pki("b.pem"), &pki("b.key"), &pki("ca.pem")).unwrap();
    of_a.renew(&pki("a.pem"), &pki("a.key"), &pki("b.pem")).unwrap();
    for way in [Way::HttpsKept, Way::Https] {
        let refused = failed(way).await.unwrap();
        assert_eq!(
            (refused.code, refused.ran),
            (Code::Unavailable, Ran::No),
            "{refused:?}"
        );
    }
    of_a.renew(&pki("a.pem"), &pki("a.key"), &pki("ca.pem")).unwrap();
    assert_eq!(failed(Way::HttpsKept).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_one_and_any_choose_among_the_nodes_that_the_list_lets_be_asked() {
    let members = members(&["a", "b", "c"], LIST).await;
    let ask = async |wanted: To| {
        let command = asked("echo", r#"{"text":"x"}"#, wanted, Way::Library);
        members[0].commands.hand_over(command).unwrap().replies().await
    };
    assert_eq!(ask(To::All).await.replies.len(), 3);
    let mut one = std::collections::BTreeSet::new();
    for _ in 0..3 {
        one.extend(ask(To::One).await.replies.into_keys());
    }
    assert_eq!(one.len(), 3);
    let none = asked("echo", r#"{"text":"x"}"#, to(&["nobody"]), Way::Library);
    let done = members[0].commands.hand_over(none).unwrap().replies().await;
    assert_eq!(
        (done.failures["nobody"].code, done.failures["nobody"].ran),
        (Code::Unavailable, Ran::No)
    );
    let printed = asked("print", r#"{"text":"a; b $(c)"}"#, To::All, Way::Library);
    let printed = members[0].commands.hand_over(printed).unwrap().replies().await;
    assert_eq!(
        printed.replies,
        BTreeMap::from([("b".to_owned(), Bytes::from("-- a; b $(c) x y 4\n"))])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn any_goes_on_as_long_as_it_is_certain_that_nothing_ran() {
    let mut members = members(&["a", "b", "c"], LIST).await;
    // Nobody but c serves the verb any more.
    members[0]._serving.clear();
    members[1]._serving.clear();
    for _ in 0..3 {
        let command = asked("echo", r#"{"text":"x"}"#, To::Any, Way::HttpKept);
        let done = members[0].commands.hand_over(command).unwrap().replies().await;
        assert_eq!(done.replies.keys().collect::<Vec<_>>(), ["c"], "{done:?}");
    }
    // What may have run is not tried elsewhere.
    let command = asked("hang", "{}", To::Any, Way::HttpKept);
    let done = members[0].commands.hand_over(command).unwrap().replies().await;
    assert_eq!((done.replies.len(), done.failures.len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ends_check_with_their_own_list() {
    let members = members(&["a", "b"], LIST).await;
    let refused = |member: &Member, command| {
        let failed = member.commands.hand_over(command).unwrap_err();
        assert_eq!((failed.code, failed.ran), (Code::Refused, Ran::No));
        failed.reason
    };
    let print = asked("print", r#"{"text":"x"}"#, to(&["b"]), Way::Library);
    assert!(refused(&members[1], print.clone()).contains("b is not among the nodes that may ask"));
    assert!(
        refused(
            &members[0],
            asked("print", r#"{"text":"x"}"#, to(&["a"]), Way::Library)
        )
        .contains("a is not")
    );
    assert!(refused(&members[0], asked("print", "{}", to(&["b"]), Way::Library)).contains("lacks"));
    // The receiver's list becomes another one: the sender still allows what it does not.
    let stricter = LIST
        .replace("version = 3", "version = 4")
        .replace(r#"from = ["a"]"#, r#"from = ["z"]"#);
    std::fs::write(&members[1].list, stricter).unwrap();
    assert_eq!(members[1].commands.reload(), Ok(4));
    let done = members[0]
        .commands
        .hand_over(print.clone())
        .unwrap()
        .replies()
        .await;
    let failed = &done.failures["b"];
    assert_eq!((failed.code, failed.ran), (Code::Refused, Ran::No));
    assert!(
        failed
            .reason
            .contains("the list of b (version 4): a is not among"),
        "{}",
        failed.reason
    );
    // One that is not right changes nothing.
    std::fs::write(&members[1].list, "version = five").unwrap();
    assert!(members[1].commands.reload().is_err());
    assert_eq!(members[1].commands.status().list, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_member_has_cost_nothing() {
    let members = members(&["a", "b"], LIST).await;
    for number in 0..2000 {
        let name = format!("nobody-{number}");
        let command = asked("echo", r#"{"text":"x"}"#, to(&[&name]), Way::Udp);
        let mut handed = members[0].commands.hand_over(command).unwrap();
        // At once.
        assert_eq!(handed.so_far().failures[&name].ran, Ran::No);
    }
    let status = members[0].commands.status();
    assert_eq!(status.queues, []);
    assert_eq!(status.counts.len(), 1, "{:?}", status.counts);
    let many: Vec<String> = (0..=MAX_NAMED).map(|number| number.to_string()).collect();
    let command = asked("echo", r#"{"text":"x"}"#, To::Nodes(many), Way::Udp);
    assert_eq!(
        members[0].commands.hand_over(command).unwrap_err().code,
        Code::Refused
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_stopped_neither_asks_nor_serves() {
    let members = members(&["a", "b"], LIST).await;
    let _ = echo(&members[0], &["b"], Way::Library).await;
    members[1].commands.stop();
    let mut command = asked("echo", r#"{"text":"x"}"#, to(&["b"]), Way::Library);
    command.within = Some(Duration::from_millis(500));
    let done = members[0].commands.hand_over(command).unwrap().replies().await;
    assert_ne!(done.failures["b"].ran, Ran::Yes, "{done:?}");
    let back = asked("echo", r#"{"text":"x"}"#, to(&["a"]), Way::Library);
    let mut handed = members[1].commands.hand_over(back).unwrap();
    assert_eq!(handed.so_far().failures["a"].ran, Ran::No);
}

/// An envelope as `a` would send it to `b`.
fn envelope(members: &[Member], change: impl FnOnce(&mut Asked)) -> Bytes {
    static NUMBER: AtomicUsize = AtomicUsize::new(1000);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let mut asked = Asked {
        cluster: "commands".to_owned(),
        from: "a".to_owned(),
        from_incarnation: members[0].cluster.incarnation().to_string(),
        to: "b".to_owned(),
        to_incarnation: members[1].cluster.incarnation().to_string(),
        way: Way::Http,
        number: NUMBER.fetch_add(1, Ordering::Relaxed) as u64,
        sent_ms: u64::try_from(now.as_millis()).unwrap(),
        within_ms: 2000,
        reply: true,
        list: 3,
        verb: "echo".to_owned(),
        args: serde_json::from_str(r#"{"text":"x"}"#).unwrap(),
    };
    change(&mut asked);
    Signer::new(&ClusterKey::from_bytes(KEY)).sign_command(&asked)
}

/// The status of a gate's HTTP answer, and its body.
async fn post(gate: std::net::SocketAddr, envelope: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(gate).await.unwrap();
    let head = format!(
        "POST /v1/peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        envelope.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(envelope).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envelope_that_came_is_of_another_or_is_forged_is_not_carried_out() {
    let members = members(&["a", "b"], LIST).await;
    let gate = members[1].gate;
    let good = envelope(&members, |_| {});
    assert_eq!(post(gate, &good).await.0, 200);
    // Again, as it was: nothing is answered that could be taken for the first answer.
    assert_eq!(post(gate, &good).await, (409, String::new()));
    assert_eq!(count(&members[1], Side::Served, Counted::Replayed), 1);
    let mut forged = good.to_vec();
    forged[80] ^= 1;
    assert_eq!(post(gate, &forged).await, (403, String::new()));
    for change in [
        (|asked| asked.cluster = "other".to_owned()) as fn(&mut Asked),
        |asked| asked.to = "c".to_owned(),
        |asked| asked.to_incarnation = "1".repeat(32),
        |asked| asked.way = Way::Udp,
    ] {
        assert_eq!(
            post(gate, &envelope(&members, change)).await,
            (403, String::new())
        );
    }
    assert_eq!(count(&members[1], Side::Served, Counted::Forged), 5);
    // Signed refusals: an old one, one of the future, a sender that is no member.
    for (change, expected) in [
        ((|asked| asked.sent_ms -= 10_000) as fn(&mut Asked), "it is late"),
        (|asked| asked.sent_ms += 10_000, "clocks differ"),
        (
            |asked| asked.from_incarnation = "2".repeat(32),
            "no member in the view of b",
        ),
        (|asked| asked.verb = "rm".to_owned(), "no verb rm"),
    ] {
        let envelope = envelope(&members, change);
        let (status, body) = post(gate, &envelope).await;
        assert!(
            status == 200 && body.contains(expected) && body.contains(r#""ran":"no""#),
            "{status} {body}"
        );
        // A copy of what was refused cannot run later.
        assert_eq!(post(gate, &envelope).await.0, 409);
    }
    assert_eq!(count(&members[1], Side::Served, Counted::Done), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_command_holds_up_no_other_by_any_way() {
    let members = members(&["a", "b"], LIST).await;
    for way in PLAIN {
        let slow = members[0]
            .commands
            .hand_over(asked("slow", "{}", to(&["b"]), way))
            .unwrap();
        let begun = Instant::now();
        for _ in 0..30 {
            assert_eq!(echo(&members[0], &["b"], way).await.replies.len(), 1, "{way:?}");
        }
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{way:?}: {:?}",
            begun.elapsed()
        );
        drop(slow);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_hangs_costs_its_own_commands_alone() {
    // It accepts, and never answers; its datagrams go nowhere.
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _datagrams = UdpSocket::bind(hung.local_addr().unwrap()).await.unwrap();
    let members = members(&["a", "b"], LIST).await;
    let told = hung.local_addr().unwrap().to_string();
    let builder = Cluster::builder("commands")
        .name("h")
        .bind("127.0.0.1:0")
        .metadata(ways::METADATA, told);
    let builder = builder
        .key(ClusterKey::from_bytes(KEY))
        .seeds([members[0].cluster.addr().to_string()]);
    let hanging = builder.join().await.unwrap();
    while members[0].commands.0.node.members().len() < 3 {
        sleep(Duration::from_millis(10)).await;
    }
    for way in PLAIN {
        let mut command = asked("echo", r#"{"text":"x"}"#, to(&["b", "h"]), way);
        command.within = Some(Duration::from_millis(600));
        let begun = Instant::now();
        let handed: Vec<_> = (0..100)
            .map(|_| members[0].commands.hand_over(command.clone()).unwrap())
            .collect();
        assert!(begun.elapsed() < Duration::from_millis(300), "{way:?}");
        for handed in handed {
            let done = handed.replies().await;
            assert_eq!(done.replies.len(), 1, "{way:?}: {done:?}");
            assert!(!done.failures["h"].reason.is_empty());
        }
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{way:?}: {:?}",
            begun.elapsed()
        );
    }
    // More than its queue takes.
    let mut command = asked("echo", r#"{"text":"x"}"#, to(&["h"]), Way::HttpKept);
    command.within = Some(Duration::from_millis(600));
    let queue = || {
        let mut queues = members[0].commands.status().queues.into_iter();
        queues
            .find(|queue| queue.peer == "h" && queue.way == Way::HttpKept)
            .unwrap()
    };
    let before = queue();
    let handed: Vec<_> = (0..1100)
        .map(|_| members[0].commands.hand_over(command.clone()).unwrap())
        .collect();
    let full = queue();
    assert!(
        full.dropped > before.dropped && full.queued <= lane::MAX_QUEUED,
        "{full:?}"
    );
    let mut may_have_run = 0;
    for handed in handed {
        let failed = handed.replies().await.failures.remove("h").unwrap();
        may_have_run += u64::from(failed.ran != Ran::No);
    }
    // Only what was sent may have run, and of what was not that is certain.
    let after = queue();
    assert_eq!(after.sent - before.sent, may_have_run);
    assert!(may_have_run < 1100 && after.expired > before.expired, "{after:?}");
    assert_eq!((after.queued, after.queued_bytes, after.open), (0, 0, 0));
    hanging.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_goes_ends_what_it_was_asked() {
    let members = members(&["a", "b", "c"], LIST).await;
    for way in [Way::HttpKept, Way::Udp] {
        let _ = echo(&members[0], &["b"], way).await;
    }
    let handed: Vec<_> = [Way::Websocket, Way::Udp, Way::Library]
        .map(|way| {
            members[0]
                .commands
                .hand_over(asked("slow", "{}", to(&["b"]), way))
                .unwrap()
        })
        .into();
    sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    members[1].cluster.leave().await.unwrap();
    for handed in handed {
        let failed = handed.replies().await.failures.remove("b").unwrap();
        assert_eq!(
            (failed.code, failed.ran),
            (Code::Unknown, Ran::Maybe),
            "{failed:?}"
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(3));
    let failed = echo(&members[0], &["b"], Way::Udp)
        .await
        .failures
        .remove("b")
        .unwrap();
    assert_eq!((failed.code, failed.ran), (Code::Unavailable, Ran::No));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_leaves_when_a_node_that_may_say_so_says_so() {
    let members = members(&["a", "b"], LIST).await;
    let done = members[0]
        .commands
        .hand_over(asked("members", "{}", to(&["b"]), Way::Resp))
        .unwrap()
        .replies()
        .await;
    assert_eq!(done.replies["b"], Bytes::from(r#"{"members":["a","b"]}"#));
    let done = members[0]
        .commands
        .hand_over(asked("leave", "{}", to(&["b"]), Way::HttpKept))
        .unwrap()
        .replies()
        .await;
    assert_eq!(done.replies["b"], Bytes::from(r#"{"leaves":"b"}"#));
    members[1].commands.told_to_leave().await;
    assert!(
        members[1]
            .commands
            .hand_over(asked("leave", "{}", to(&["b"]), Way::HttpKept))
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_does_not_fit_says_so_and_that_it_ran() {
    let members = members(&["a", "b"], LIST).await;
    let long = "x".repeat(2000);
    let args = format!(r#"{{"text":"{long}"}}"#);
    let done = members[0]
        .commands
        .hand_over(asked("echo", &args, to(&["b"]), Way::Resp))
        .unwrap()
        .replies()
        .await;
    assert_eq!(done.replies["b"].len(), 2004);
    let done = members[0]
        .commands
        .hand_over(asked("echo", &args, to(&["b"]), Way::Udp))
        .unwrap()
        .replies()
        .await;
    assert_eq!(
        (done.failures["b"].code, done.failures["b"].ran),
        (Code::Refused, Ran::No)
    );
    // The command fits, and its reply does not.
    for (way, length) in [(Way::Resp, Some(3000)), (Way::Udp, None)] {
        let mut done = ask_one(&members, "long", way).await;
        assert_eq!(done.replies.get("b").map(Bytes::len), length, "{way:?}");
        let failed = done.failures.remove("b").map(|failed| (failed.code, failed.ran));
        let expected = length.is_none().then_some((Code::Failed, Ran::Yes));
        assert_eq!(failed, expected, "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_at_a_gate_get_no_answer_of_use() {
    let members = members(&["a", "b"], LIST).await;
    let gate = members[1].gate;
    for (said, expected) in [
        (&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], "HTTP/1.1 404"),
        (b"GET /v1/peer HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 426"),
        (b"PUT /v1/peer HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 405"),
        (
            b"POST /v1/peer HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi",
            "HTTP/1.1 403",
        ),
        (
            b"POST /v1/peer HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n",
            "HTTP/1.1 400",
        ),
        (b"*1\r\n$4\r\nPING\r\n", "-ERR expected AP.PEER"),
        (b"*2\r\n$7\r\nAP.PEER\r\n$99999999\r\n", "-ERR"),
        (b"*2\r\n$7\r\nAP.PEER\r\n$2\r\nhi\r\n", "-NOPERM"),
        (b"{\"hello\":{}}\n", ""),
        (&[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5], ""),
    ] {
        let mut stream = TcpStream::connect(gate).await.unwrap();
        stream.write_all(said).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            answer.starts_with(expected) && (!expected.is_empty() || answer.is_empty()),
            "{said:?}: {answer}"
        );
        // A stranger cannot keep its place with one request after the other.
        assert!(
            !expected.starts_with("HTTP") || answer.contains("connection: close"),
            "{said:?}: {answer}"
        );
    }
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"hello", gate).await.unwrap();
    socket.send_to(&[b'x'; 60_000], gate).await.unwrap();
    let mut datagram = [0; 10];
    let answered = tokio::time::timeout(Duration::from_millis(200), socket.recv_from(&mut datagram));
    assert!(answered.await.is_err());
    // It serves on.
    assert_eq!(echo(&members[0], &["b"], Way::Udp).await.replies.len(), 1);
}

/// A WebSocket at a gate, unless the gate refuses the connection.
async fn websocket(gate: std::net::SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(gate).await.unwrap();
    let head = "GET /v1/peer HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.ok()?);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    Some(stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_keeps_the_place_of_its_connection_and_ends_with_the_gate() {
    let members = members(&["a"], LIST).await;
    let gate = members[0].gate;
    let mut sockets = Vec::new();
    for _ in 0..crate::gate::MAX_OF_MEMBER {
        sockets.push(websocket(gate).await.unwrap());
    }
    assert!(websocket(gate).await.is_none());
    // Its place is free when it has gone.
    sockets.pop();
    let begun = Instant::now();
    let next = loop {
        if let Some(next) = websocket(gate).await {
            break next;
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    };
    sockets.push(next);
    members[0].commands.stop();
    for mut socket in sockets {
        let ended = tokio::time::timeout(Duration::from_secs(10), socket.read_u8());
        assert!(ended.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn commands_need_a_key() {
    let config = Config {
        list: list_file(LIST),
        key: None,
        tls: None,
    };
    let refused = Commands::check(&config).unwrap_err().to_string();
    assert!(refused.contains("--key-file"), "{refused}");
    let _ = std::fs::remove_file(&config.list);
}

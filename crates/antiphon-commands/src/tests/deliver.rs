//! What carries commands out: programs that behave badly, sessions that do not answer.

use tokio::net::TcpSocket;
use tokio::sync::mpsc;

use super::*;
use crate::deliver::{Handlers, NoReply};

#[tokio::test(flavor = "multi_thread")]
async fn programs_end_with_their_time_and_say_what_they_printed() {
    let members = members(&["a", "b"], LIST).await;
    let ask = async |verb| {
        let command = asked(verb, "{}", to(&["b"]), Way::Library);
        members[0]
            .commands
            .hand_over(command)
            .unwrap()
            .replies()
            .await
            .failures
            .remove("b")
            .unwrap()
    };
    let begun = Instant::now();
    let failed = ask("hang").await;
    assert_eq!(
        (failed.code, failed.ran),
        (Code::Timeout, Ran::Maybe),
        "{failed:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(3), "{failed:?}");
    let failed = ask("fail").await;
    assert_eq!((failed.code, failed.ran), (Code::Failed, Ran::Yes));
    assert!(format!("{failed:?}").contains("no-such-folder"), "{failed:?}");
    let failed = ask("much").await;
    assert!(failed.reason.contains("more than 1000 bytes"), "{failed:?}");
    // The process is gone.
    let running = || {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
            .any(|line| line == b"/bin/sleep\x0061.25\x00")
    };
    while running() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_complain_much_leave_children_behind_and_ignore_signals() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::env::temp_dir().join(format!("antiphon-programs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut list = LIST.to_owned();
    for (name, script) in [
        // More than a pipe holds: it would wait for ever, or be killed for it.
        ("complains", "head -c 300000 /dev/zero >&2 || exit 3; echo well"),
        ("leaves", "setsid sleep 8 & sleep 0.3; echo left"),
        (
            "ignores",
            "trap '' PIPE; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
        ),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let deliver = format!("{{ program = [\"{}\"] }}", path.display());
        list += &format!(
            "[[verb]]\nname = \"{name}\"\nfrom = \"all\"\nto = \"all\"\ndeliver = {deliver}\nwithin = \"20s\"\n"
        );
    }
    let members = members(&["a", "b"], &list).await;
    let begun = Instant::now();
    let done = ask_one(&members, "complains", Way::Library).await;
    assert_eq!(done.replies.get("b"), Some(&Bytes::from("well\n")), "{done:?}");
    let left = Instant::now();
    let done = ask_one(&members, "leaves", Way::Library).await;
    assert_eq!(done.replies.get("b"), Some(&Bytes::from("left\n")), "{done:?}");
    assert!(left.elapsed() < Duration::from_secs(6), "{:?}", left.elapsed());
    let failed = ask_one(&members, "ignores", Way::Library)
        .await
        .failures
        .remove("b")
        .unwrap();
    assert!(failed.reason.contains("and was killed"), "{failed:?}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_does_for_a_command_ends_with_its_time() {
    let mut members = members(&["a", "b"], LIST).await;
    members[1]._serving.clear();
    let (ends, mut ended) = mpsc::unbounded_channel();
    let serving = members[1].commands.serve("slow", move |_| {
        let ends = End(ends.clone());
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(ends);
            Ok(Bytes::new())
        })
    });
    let _serving = serving.unwrap();
    let mut command = asked("slow", "{}", to(&["b"]), Way::HttpKept);
    command.within = Some(Duration::from_millis(200));
    let done = members[0].commands.hand_over(command).unwrap().replies().await;
    assert_eq!(done.failures["b"].code, Code::Timeout);
    let ended = tokio::time::timeout(Duration::from_secs(10), ended.recv()).await;
    assert_eq!(ended, Ok(Some(())));
}

#[tokio::test]
async fn a_handler_without_a_reply_says_whether_the_command_ran() {
    let handlers = Arc::new(Handlers::default());
    for (no_reply, expected) in [
        (NoReply::Failed(Bytes::from("why")), (Code::Failed, Ran::Yes)),
        (NoReply::Gone, (Code::Failed, Ran::Maybe)),
        (NoReply::NotHanded, (Code::Unavailable, Ran::No)),
    ] {
        let told = no_reply.clone();
        let handler = move |_| -> Handled { Box::pin(std::future::ready(Err(told.clone()))) };
        let _serving = handlers.serve("echo", Arc::new(handler));
        let request = Request {
            verb: "echo".to_owned(),
            from: "a".to_owned(),
            args: Args::new(),
            time_left: Duration::from_secs(1),
            max_reply_bytes: 100,
        };
        let failed = handlers.deliver(request).await.unwrap_err();
        assert_eq!((failed.code, failed.ran), expected, "{failed:?}");
        // Only what ran has something to say of its own.
        assert_eq!(failed.payload.is_some(), matches!(no_reply, NoReply::Failed(_)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_hook_that_does_not_do_its_command_says_so_and_one_that_hangs_is_let_go() {
    let (addr, mut told) = web_server().await;
    // Its port is taken, and nothing listens there.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = closed.local_addr().unwrap();
    let failed = |ran, said| Err((Code::Failed, ran, said));
    let cases = [
        ("done", Ok("well done")),
        ("empty", Ok("")),
        ("refuses", failed(Ran::Yes, "out of tea")),
        ("moved", failed(Ran::Yes, "answered 302")),
        ("overlong", failed(Ran::Maybe, "it may have 1000 bytes")),
        ("breaks", failed(Ran::Maybe, "the reply of the web hook")),
        ("ends", failed(Ran::Maybe, "did not answer")),
        ("nobody", Err((Code::Unavailable, Ran::No, "is not there"))),
        // Either end may be the first to see that its time is over, and says so in its words.
        ("hangs", Err((Code::Timeout, Ran::Maybe, ""))),
    ];
    let mut list = LIST.to_owned();
    for (verb, _) in &cases {
        let addr = if *verb == "nobody" { nobody } else { addr };
        let within = if *verb == "hangs" { "5s" } else { "20s" };
        list += &format!(
            r#"
            [[verb]]
            name = "{verb}"
            from = "all"
            to = "all"
            deliver = {{ hook = "http://{addr}/{verb}" }}
            args.text = {{ type = "text", max-bytes = 100, default = "grüße" }}
            within = "{within}"
            max-reply-bytes = 1000
            "#
        );
    }
    let members = members(&["a", "b"], &list).await;
    for (verb, expected) in cases {
        let mut done = ask_one(&members, verb, Way::Library).await;
        match expected {
            Ok(reply) => assert_eq!(
                done.replies.get("b"),
                Some(&Bytes::from(reply)),
                "{verb}: {done:?}"
            ),
            Err((code, ran, said)) => {
                let failed = done.failures.remove("b").unwrap();
                assert_eq!((failed.code, failed.ran), (code, ran), "{verb}: {failed:?}");
                assert!(format!("{failed:?}").contains(said), "{verb}: {failed:?}");
                // Only a hook that has answered has something to say of its own.
                assert_eq!(failed.payload.is_some(), ran == Ran::Yes, "{verb}: {failed:?}");
            }
        }
        if verb != "nobody" {
            let asked = tokio::time::timeout(Duration::from_secs(10), told.recv());
            let (path, body) = asked.await.unwrap().unwrap();
            assert_eq!(path, format!("/{verb}"), "{body}");
            assert_eq!(body["verb"], verb);
            assert_eq!(body["from"], "a");
            assert_eq!(body["args"], serde_json::json!({ "text": "grüße" }));
            assert!(
                body["within_ms"].as_u64().is_some_and(|within| within > 0),
                "{body}"
            );
        }
    }
    let let_go = tokio::time::timeout(Duration::from_secs(10), told.recv()).await;
    assert_eq!(let_go.unwrap().unwrap().0, "let go");
    // No hook was asked twice, and no redirection followed.
    assert!(told.try_recv().is_err());
}

/// A web server. It tells the path and the body of each request, and when the client of the one that it does
/// not answer has gone.
async fn web_server() -> (
    std::net::SocketAddr,
    mpsc::UnboundedReceiver<(String, serde_json::Value)>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let (path, body) = web_request(&mut stream).await;
                let answer = web_answer(&path);
                let _ = tell.send((path, body));
                match answer {
                    Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                    None => {
                        let _ = stream.read_u8().await;
                        let _ = tell.send(("let go".to_owned(), serde_json::Value::Null));
                    }
                }
            });
        }
    });
    (addr, told)
}

async fn web_request(stream: &mut TcpStream) -> (String, serde_json::Value) {
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let length = stream.read_buf(&mut bytes).await.unwrap();
        assert_ne!(length, 0, "the request ended");
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            let path = head.strip_prefix("POST ").unwrap().split(' ').next();
            return (path.unwrap().to_owned(), body);
        }
    }
}

/// None: no answer, and the connection stays.
fn web_answer(path: &str) -> Option<String> {
    let (status, header, body) = match path {
        "/done" => ("201 Created", "", "well done".to_owned()),
        "/refuses" => ("409 Conflict", "", "out of tea".to_owned()),
        "/moved" => ("302 Found", "location: /done\r\n", String::new()),
        "/overlong" => ("200 OK", "", "x".repeat(1001)),
        "/empty" => return Some("HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
        "/breaks" => return Some("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nwell".to_owned()),
        "/ends" => return Some(String::new()),
        _ => return None,
    };
    let length = body.len();
    Some(format!(
        "HTTP/1.1 {status}\r\n{header}content-length: {length}\r\n\r\n{body}"
    ))
}

/// Tells when it is dropped.
struct End(mpsc::UnboundedSender<()>);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

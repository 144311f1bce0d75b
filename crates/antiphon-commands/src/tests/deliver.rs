//! What carries commands out: programs that behave badly, sessions that do not answer.

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
        };
        let failed = handlers.deliver(request).await.unwrap_err();
        assert_eq!((failed.code, failed.ran), expected, "{failed:?}");
        // Only what ran has something to say of its own.
        assert_eq!(failed.payload.is_some(), matches!(no_reply, NoReply::Failed(_)));
    }
}

/// Tells when it is dropped.
struct End(mpsc::UnboundedSender<()>);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

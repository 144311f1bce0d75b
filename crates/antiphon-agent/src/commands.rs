//! Commands to peers and of them, as sessions speak of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_api::blocks::{Failure, Ran, Reply};
use antiphon_api::commands::{Ask, Asked, To as Told, Word};
use antiphon_api::{Event, Payload};
use antiphon_commands::deliver::{NoReply, Request, Serving};
use antiphon_commands::{Command, Commands, Replies, To};

use crate::blocks::{Desk, Operation, not_done, of_all};

/// Hands a command over, and replies when it is over everywhere.
pub(crate) async fn ask(commands: &Commands, ask: Ask, mut operation: Operation) {
    let command = Command {
        verb: ask.verb,
        args: ask.args,
        to: match ask.to {
            Told::Word(Word::All) => To::All,
            Told::Word(Word::One) => To::One,
            Told::Word(Word::Any) => To::Any,
            Told::Nodes(names) => To::Nodes(names),
        },
        way: ask.by,
        reply: ask.reply,
        within: ask.within.map(|within| within.0),
    };
    let mut handed = match commands.hand_over(command) {
        Ok(handed) => handed,
        Err(failure) => {
            operation.reply(not_done(failure)).await;
            return;
        }
    };
    if !ask.reply {
        // Of full queues, and of nodes that are not there. The others have it in their queues.
        let failures = handed.so_far().failures;
        if failures.is_empty() && operation.id().is_none() {
            operation.end();
            return;
        }
        let error = (failures.len() == handed.asked()).then(|| nobody(&failures));
        let reply = Reply {
            failures,
            error,
            ..Reply::default()
        };
        operation.reply(reply).await;
        return;
    }
    tokio::spawn(async move {
        let done = operation.wait(Ran::Maybe, handed.replies()).await;
        let reply = done.map_or_else(not_done, told);
        operation.reply(reply).await;
    });
}

fn told(all: Replies) -> Reply {
    let replies = all
        .replies
        .iter()
        .map(|(node, reply)| (node.clone(), Payload::from_bytes(reply)));
    let replies: BTreeMap<_, _> = replies.collect();
    let error = replies.is_empty().then(|| nobody(&all.failures));
    Reply {
        replies: Some(replies),
        failures: all.failures,
        error,
        ..Reply::default()
    }
}

fn nobody(failures: &BTreeMap<String, Failure>) -> Failure {
    of_all(failures, "no node did it: `failures` says why each")
}

/// A session serves a verb, until the returned value is dropped.
pub(crate) fn serve(commands: &Commands, verb: &str, desk: &Arc<Desk>) -> Result<Serving, Failure> {
    let desk = Arc::downgrade(desk);
    commands.serve(verb, move |request| {
        let desk = desk.upgrade();
        Box::pin(async move {
            match desk {
                Some(desk) => {
                    let most = request.max_reply_bytes;
                    desk.hand(None, most, |number| line(number, request)).await
                }
                None => Err(NoReply::NotHanded),
            }
        })
    })
}

fn line(number: u64, request: Request) -> Event {
    Event::Command(Asked {
        request: number,
        verb: request.verb,
        from: request.from,
        args: request.args,
        within_ms: u64::try_from(request.time_left.as_millis()).unwrap_or(u64::MAX),
    })
}

pub(crate) fn status(commands: &Commands) -> Reply {
    let status = serde_json::to_value(commands.status()).unwrap_or_default();
    Reply {
        commands: Some(Box::new(status)),
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests {
    use antiphon::memory::MemoryNetwork;
    use antiphon::{Cluster, ClusterKey, Profile};
    use antiphon_api::Command as Line;
    use antiphon_api::blocks::Code;
    use antiphon_commands::Config;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::Hub;
    use crate::outlet::Outlet;
    use crate::socket::{Listener, Serving as Served};

    const LIST: &str = r#"
        version = 5
        [[verb]]
        name = "say"
        from = "all"
        to = "all"
        deliver = { program = ["/bin/echo", "said", { arg = "text" }] }
        args.text = { type = "text", max-bytes = 20 }
        [[verb]]
        name = "flush"
        from = "all"
        to = "all"
        deliver = "session"
    "#;

    /// A node alone, which commands itself.
    async fn alone(name: &str) -> (Hub, u16, Served) {
        let network = MemoryNetwork::new();
        let builder = Cluster::builder("commands")
            .name("n1")
            .bind("10.0.0.1:7400")
            .memory(&network);
        let builder = builder
            .profile(Profile::local())
            .found()
            .key(ClusterKey::from_bytes([7; 32]));
        let cluster = builder.join().await.unwrap();
        let list = std::env::temp_dir().join(format!("antiphon-agent-{}-{name}.toml", std::process::id()));
        std::fs::write(&list, LIST).unwrap();
        let config = Config {
            list: list.clone(),
            key: Some(ClusterKey::from_bytes([7; 32])),
            tls: None,
        };
        let commands = Commands::start(cluster.clone(), config, None).unwrap();
        std::fs::remove_file(list).unwrap();
        let hub = Hub::new(cluster);
        hub.set_commands(commands);
        let listener = Listener::bind(None, &["127.0.0.1:0".parse().unwrap()])
            .await
            .unwrap();
        let port = listener.addrs()[0].port();
        let serving = listener.serve(&hub);
        (hub, port, serving)
    }

    async fn answer(port: u16, request: &str, until: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        while !answer.contains(until) {
            let mut bytes = [0; 4096];
            let length = stream.read(&mut bytes).await.unwrap();
            assert!(length > 0, "{answer}");
            answer += std::str::from_utf8(&bytes[..length]).unwrap();
        }
        answer
    }

    fn post(path: &str, body: &str) -> String {
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn http_and_resp_ask_what_lines_ask() {
        let (_hub, port, _serving) = alone("carriers").await;
        let said = answer(port, &post("/v1/commands/say?to=all", r#"{"text":"hi"}"#), "}}").await;
        assert!(said.contains(r#""replies":{"n1":"said hi\n"}"#), "{said}");
        let handed = answer(
            port,
            &post("/v1/commands/say?to=n1,n9&reply=false", r#"{"text":"hi"}"#),
            "}}",
        )
        .await;
        assert!(
            handed.contains(r#""ran":"maybe""#) && handed.contains(r#""n9":{"code":"unavailable""#),
            "{handed}"
        );
        let taken = post("/v1/commands/say?to=n1&reply=false", r#"{"text":"hi"}"#);
        let taken = answer(port, &taken, "}").await;
        assert!(
            taken.contains(r#""failures":{}"#) && taken.contains(r#""ran":"maybe""#),
            "{taken}"
        );
        let nobody = post("/v1/commands/say?to=n9&reply=false", r#"{"text":"hi"}"#);
        let nobody = answer(port, &nobody, "}}").await;
        assert!(
            nobody.starts_with("HTTP/1.1 502") && nobody.contains(r#""n9":{"code":"unavailable""#),
            "{nobody}"
        );
        let refused = answer(port, &post("/v1/commands/say?to=all", r#"{"text":1.5}"#), "}}").await;
        assert!(
            refused.starts_with("HTTP/1.1 400") && refused.contains("an argument must be"),
            "{refused}"
        );
        let refused = answer(port, &post("/v1/commands/say?to=all&by=post", "{}"), "}}").await;
        assert!(refused.contains("by is one of: library, http,"), "{refused}");
        let said = answer(
            port,
            "AP.COMMAND say n1 '{\"text\":\"x\"}' BY library WITHIN 5000\r\n",
            "said x",
        )
        .await;
        assert!(said.starts_with("*1\r\n*3\r\n$2\r\nn1\r\n$2\r\nOK"), "{said:?}");
        let handed = answer(
            port,
            "AP.COMMAND say n1 '{\"text\":\"x\"}' NOREPLY\r\nAP.COMMAND say n9 '{\"text\":\"x\"}' NOREPLY\r\n",
            "member",
        )
        .await;
        assert!(
            handed.starts_with("+OK\r\n*1\r\n*3\r\n$2\r\nn9\r\n$11\r\nUNAVAILABLE\r\n"),
            "{handed:?}"
        );
        let status = answer(port, "AP.COMMANDS\r\n", "\"verbs\"").await;
        assert!(status.contains(r#""list":5"#), "{status}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_serves_a_verb_until_it_ends() {
        let (hub, _port, _serving) = alone("sessions").await;
        let say = async |session: &crate::hub::Session, line: &str| {
            session.obey(Line::parse(line).unwrap()).await;
        };
        let (serves, mut asked) = hub.session().unwrap();
        let (asks, mut replies) = hub.session().unwrap();
        say(&serves, r#"{"serve_command":{"verb":"flush","id":1}}"#).await;
        assert!(matches!(
            asked.next().await,
            Some(Event::Reply(Reply { error: None, .. }))
        ));
        say(&asks, r#"{"command":{"verb":"flush","to":"one","id":1}}"#).await;
        let Some(Event::Command(command)) = asked.next().await else {
            panic!()
        };
        assert_eq!((command.verb.as_str(), command.from.as_str()), ("flush", "n1"));
        let call = r#"{"call":{"group":"g","verb":"v","to":"any","in":1,"id":2}}"#;
        say(&serves, &call.replace(":1,", &format!(":{},", command.request))).await;
        let Some(Event::Reply(Reply {
            error: Some(error), ..
        })) = asked.next().await
        else {
            panic!()
        };
        assert_eq!(error.code, Code::Refused);
        assert!(error.reason.contains("is a command"), "{error:?}");
        say(
            &serves,
            &format!(
                r#"{{"answer":{{"request":{},"payload":"gone"}}}}"#,
                command.request
            ),
        )
        .await;
        let Some(Event::Reply(reply)) = replies.next().await else {
            panic!()
        };
        assert_eq!(reply.replies.unwrap()["n1"], Payload::Text("gone".to_owned()));
        // It does not answer in time.
        say(
            &asks,
            r#"{"command":{"verb":"flush","to":"one","within":"5s","id":4}}"#,
        )
        .await;
        let late = loop {
            if let Some(Event::Command(late)) = asked.next().await {
                break late.request;
            }
        };
        assert_eq!(asked.next().await, Some(Event::Cancelled { request: late }));
        assert!(matches!(replies.next().await, Some(Event::Reply(_))));
        // Without an id, and without a reply of its peers, only those are told that did not get it.
        let told = r#"{"command":{"verb":"flush","to":["n1"],"reply":false}}"#;
        say(&asks, told).await;
        say(&asks, &told.replace(r#"["n1"]"#, r#"["n1","n9"]"#)).await;
        let Some(Event::Reply(reply)) = replies.next().await else {
            panic!()
        };
        assert_eq!(reply.failures.keys().collect::<Vec<_>>(), ["n9"]);
        for _ in 0..2 {
            while !matches!(asked.next().await, Some(Event::Command(_))) {}
        }
        // It ends with commands in its hands.
        say(&asks, r#"{"command":{"verb":"flush","to":"one","id":2}}"#).await;
        while !matches!(asked.next().await, Some(Event::Command(_))) {}
        drop(serves);
        let Some(Event::Reply(reply)) = replies.next().await else {
            panic!()
        };
        let gone = &reply.failures["n1"];
        assert_eq!((gone.code, gone.ran), (Code::Failed, Ran::Maybe), "{gone:?}");
        assert!(
            gone.reason.contains("the program that serves the verb went"),
            "{gone:?}"
        );
        // No session serves it now: that is certain.
        say(&asks, r#"{"command":{"verb":"flush","to":"one","id":3}}"#).await;
        let Some(Event::Reply(reply)) = replies.next().await else {
            panic!()
        };
        assert_eq!(
            (reply.failures["n1"].code, reply.failures["n1"].ran),
            (Code::Unavailable, Ran::No)
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_answer_may_be_as_long_as_a_reply_and_one_that_is_refused_answers_with_the_reason() {
        let (hub, _port, _serving) = alone("answers").await;
        let say = async |session: &crate::hub::Session, line: String| {
            session.obey(Line::parse(&line).unwrap()).await;
        };
        let (serves, mut asked) = hub.session().unwrap();
        let (asks, mut replies) = hub.session().unwrap();
        say(&serves, r#"{"serve_command":{"verb":"flush","id":1}}"#.to_owned()).await;
        asked.next().await.unwrap();
        // Longer than a call's answer, and longer than the list allows.
        for (bytes, refused) in [(62_000, false), (65_537, true)] {
            let command = r#"{"command":{"verb":"flush","to":"one","id":2}}"#;
            say(&asks, command.to_owned()).await;
            let Some(Event::Command(command)) = asked.next().await else {
                panic!()
            };
            let (request, payload) = (command.request, "x".repeat(bytes));
            let answer = format!(r#"{{"answer":{{"request":{request},"payload":"{payload}","id":3}}}}"#);
            say(&serves, answer).await;
            let Some(Event::Reply(taken)) = asked.next().await else {
                panic!()
            };
            assert_eq!(
                taken.error.map(|error| error.code),
                refused.then_some(Code::Refused)
            );
            let Some(Event::Reply(reply)) = replies.next().await else {
                panic!()
            };
            if !refused {
                assert_eq!(reply.replies.unwrap()["n1"], Payload::Text("x".repeat(bytes)));
                continue;
            }
            let failure = &reply.failures["n1"];
            assert_eq!(failure.code, Code::Failed, "{failure:?}");
            let Some(Payload::Text(reason)) = &failure.payload else {
                panic!("{failure:?}")
            };
            assert!(reason.contains("at most 65536"), "{reason}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sessions_that_serve_a_verb_have_equal_turns_however_often_each_says_so() {
        let (hub, _port, _serving) = alone("turns").await;
        let say = async |session: &crate::hub::Session, line: &str| {
            session.obey(Line::parse(line).unwrap()).await;
        };
        let (asks, _replies) = hub.session().unwrap();
        let mut servers = [hub.session().unwrap(), hub.session().unwrap()];
        for (session, times) in servers.iter().map(|server| &server.0).zip([5, 1]) {
            for _ in 0..times {
                say(session, r#"{"serve_command":{"verb":"flush"}}"#).await;
            }
        }
        let flush = r#"{"command":{"verb":"flush","to":["n1"],"reply":false}}"#;
        for _ in 0..4 {
            say(&asks, flush).await;
        }
        for (_, asked) in &mut servers {
            for _ in 0..2 {
                let next = async { while !matches!(asked.next().await, Some(Event::Command(_))) {} };
                let turn = tokio::time::timeout(crate::testing::SOON, next).await;
                turn.expect("the other one has more turns");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_command_whose_session_ended_before_it_was_handed_over_did_not_run() {
        let (hub, _port, _serving) = alone("ended").await;
        let commands = hub.commands().unwrap();
        let (queue, _events) = crate::outlet::queue();
        let desk = Arc::new(Desk::new(Outlet::Queued(queue), false, &hub));
        // The verb is still served, as it is for a command whose turn came just before the session's end.
        let _serving = serve(commands, "flush", &desk).unwrap();
        desk.close();
        let ask = async || {
            let command = Command {
                verb: "flush".to_owned(),
                args: BTreeMap::new(),
                to: To::One,
                way: antiphon_commands::Way::Library,
                reply: true,
                within: None,
            };
            let failed = commands.hand_over(command).unwrap().replies().await.failures;
            (failed["n1"].code, failed["n1"].ran)
        };
        assert_eq!(ask().await, (Code::Unavailable, Ran::No));
        drop(desk);
        assert_eq!(ask().await, (Code::Unavailable, Ran::No));
    }
}

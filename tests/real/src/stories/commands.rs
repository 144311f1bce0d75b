//! Nodes that ask each other to do what their lists allow: agents die, lists change, a node is told to leave.

use std::process::Command;

use antiphon_api::blocks::{Code, Ran, Reply};
use antiphon_lab::Signal;

use super::agents::{Program, agent};
use super::*;
use crate::{Cluster, Event};

pub(super) const STORIES: &[Story] = &[
    story!(a_command_is_done_once_by_every_way_and_a_killed_agent_ends_what_it_was_asked),
    story!(a_list_is_read_again_and_a_node_leaves_when_it_is_told_to).on(Engine::Coordinator),
];

const LIST: &str = r#"
    version = 1
    [[verb]]
    name = "flush"
    from = "all"
    to = "all"
    deliver = "session"
    within = "8s"
    args.key = { type = "text", max-bytes = 100 }
    [[verb]]
    name = "leave"
    from = ["n1"]
    to = ["n3"]
    deliver = { node = "leave" }
"#;

/// Agents that command each other.
fn commanding(count: usize, engine: Engine) -> Cluster {
    let names = names(count);
    let options = Options {
        keyed: true,
        ..told_on(engine)
    };
    let mut cluster = Cluster::on_loopback(count, options);
    cluster.file("commands.toml", LIST);
    for name in &names {
        let command = commander(&cluster, name);
        cluster.start_command(name, command);
    }
    cluster.until("they are a cluster", SOON, |trace| trace.together(&all(&names)));
    cluster
}

fn commander(cluster: &Cluster, name: &str) -> Command {
    let mut command = agent(cluster, name);
    command
        .arg("--commands")
        .arg(cluster.folder().join("commands.toml"));
    command.args(["--commands-listen", "127.0.0.1:0"]);
    command
}

/// A command by a way, and what came of it.
fn flush(program: &mut Program, to: &str, by: &str) -> Reply {
    program.ask(&format!(
        r#""command":{{"verb":"flush","args":{{"key":"x"}},"to":{to},"by":"{by}","within":"3s","#
    ))
}

/// The commands that a program was told of.
fn asked(program: &Program) -> Vec<u64> {
    let told = program.told();
    let asked = told.iter().filter_map(|event| match event {
        Event::Command(asked) => Some(asked.request),
        _ => None,
    });
    asked.collect()
}

/// The next command of a program, answered.
fn answer_next(program: &mut Program, answered: usize) {
    let request = program.until(SOON, |told| {
        let mut asked = told.iter().filter_map(|event| match event {
            Event::Command(asked) => Some(asked.request),
            _ => None,
        });
        asked.nth(answered)
    });
    program.say(&format!(
        r#"{{"answer":{{"request":{request},"payload":"done"}}}}"#
    ));
}

fn a_command_is_done_once_by_every_way_and_a_killed_agent_ends_what_it_was_asked(engine: Engine) {
    let mut cluster = commanding(3, engine);
    let mut ann = Program::connect(&cluster, "n1", "ann");
    let mut bob = Program::connect(&cluster, "n2", "bob");
    assert_eq!(bob.ask(r#""serve_command":{"verb":"flush","#).error, None);
    let none = bob.ask(r#""serve_command":{"verb":"leave","#).error;
    assert_eq!(none.map(|error| error.code), Some(Code::Refused));
    let ways = ["library", "http", "http_kept", "websocket", "resp", "udp"];
    for (number, way) in ways.iter().enumerate() {
        let id = ann.begin(&format!(
            r#""command":{{"verb":"flush","args":{{"key":"x"}},"to":["n2"],"by":"{way}","#
        ));
        answer_next(&mut bob, number);
        let reply = ann.reply(id, SOON);
        assert_eq!(reply.error, None, "{way}: {reply:?}");
        assert_eq!(reply.replies.map(|replies| replies.len()), Some(1), "{way}");
    }
    assert_eq!(asked(&bob).len(), ways.len());
    // Nobody serves it there: that is certain, and any other is asked in its place.
    let id = ann.begin(r#""command":{"verb":"flush","args":{"key":"x"},"to":"any","by":"udp","#);
    answer_next(&mut bob, ways.len());
    let reply = ann.reply(id, SOON);
    assert!(
        reply.replies.is_some_and(|replies| replies.contains_key("n2")),
        "{:?}",
        reply.failures
    );
    // Its agent dies while the program thinks.
    let waiting: Vec<_> = ["library", "udp", "http_kept"]
        .iter()
        .map(|way| {
            ann.begin(&format!(
                r#""command":{{"verb":"flush","args":{{"key":"x"}},"to":["n2"],"by":"{way}","#
            ))
        })
        .collect();
    bob.until(SOON, |told| {
        let asked = told.iter().filter(|event| matches!(event, Event::Command(_)));
        (asked.count() == ways.len() + 1 + waiting.len()).then_some(())
    });
    cluster.kill("n2");
    for id in waiting {
        let reply = ann.reply(id, DETECTED);
        let failure = reply.failures.get("n2").unwrap_or_else(|| panic!("{reply:?}"));
        assert_eq!((failure.code, failure.ran), (Code::Unknown, Ran::Maybe));
    }
    cluster.until("the others go on", DETECTED, |trace| {
        trace.together(&["n1", "n3"])
    });
    let gone = flush(&mut ann, r#"["n2"]"#, "http").failures.remove("n2");
    assert_eq!(gone.map(|failure| failure.ran), Some(Ran::No));
    // It comes back as another start of itself, and is commanded again.
    let command = commander(&cluster, "n2");
    cluster.start_command("n2", command);
    cluster.until("it is back", SOON, |trace| trace.together(&["n1", "n2", "n3"]));
    let mut bob = Program::connect(&cluster, "n2", "bob");
    assert_eq!(bob.ask(r#""serve_command":{"verb":"flush","#).error, None);
    let id = ann.begin(r#""command":{"verb":"flush","args":{"key":"x"},"to":["n2"],"by":"http_kept","#);
    answer_next(&mut bob, 0);
    assert_eq!(ann.reply(id, SOON).error, None);
    cluster.finish();
}

fn a_list_is_read_again_and_a_node_leaves_when_it_is_told_to(engine: Engine) {
    let cluster = commanding(3, engine);
    let mut ann = Program::connect(&cluster, "n1", "ann");
    let version = |program: &mut Program| {
        let status = program.ask(r#""commands":{"#).commands.expect("it has a list");
        status["list"].as_u64()
    };
    assert_eq!(version(&mut ann), Some(1));
    // One that is not right changes nothing.
    for (list, then) in [
        ("version = \"two\"", 1),
        (&LIST.replace("version = 1", "version = 2"), 2),
    ] {
        cluster.file("commands.toml", list);
        cluster.process("n1").signal(Signal::HUP);
        let begun = std::time::Instant::now();
        while version(&mut ann) != Some(then) || begun.elapsed() < Duration::from_millis(200) {
            assert!(begun.elapsed() < SOON, "version {then} is not read");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let refused = ann
        .ask(r#""command":{"verb":"leave","to":["n2"],"#)
        .error
        .expect("n2 is not to be asked");
    assert!(refused.reason.contains("version 2"), "{refused:?}");
    let reply = ann.ask(r#""command":{"verb":"leave","to":["n3"],"by":"resp","#);
    assert_eq!(reply.error, None, "{reply:?}");
    cluster.until("it has left in order", SOON, |trace| {
        trace.together(&["n1", "n2"])
    });
    let left = cluster.process("n3").exit(SOON);
    assert!(left.is_some_and(|status| status.success()), "{left:?}");
    cluster.finish();
}

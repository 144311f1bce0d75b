//! Programs that use a cluster through agents: they end, agents end, one reads nothing, one is no program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use antiphon_api::blocks::{Code, Reply};

use super::*;
use crate::{Cluster, Event, View};

pub(super) const STORIES: &[Story] = &[
    story!(clients_of_three_agents_see_the_same_and_one_that_ends_is_gone_at_once_with_its_lock),
    story!(with_a_killed_agent_its_clients_go_and_another_has_their_lock),
    story!(a_program_that_reads_nothing_is_removed_and_holds_up_no_other_group).on(Engine::Coordinator),
    story!(what_is_no_program_is_told_so_and_an_agent_goes_on).on(Engine::Cut),
    story!(an_agent_that_leaves_tells_its_clients_and_others_say_why_they_are_gone).on(Engine::Coordinator),
];

/// As long as a program may take nothing that waits for it.
const SLOW: Duration = Duration::from_secs(30);

fn socket(cluster: &Cluster, agent: &str) -> std::path::PathBuf {
    cluster.folder().join(format!("{agent}.sock"))
}

/// Starts agents in place of nodes, and waits until they are a cluster.
pub(super) fn agents(count: usize, engine: Engine) -> Cluster {
    let names = names(count);
    let mut cluster = Cluster::on_loopback(count, told_on(engine));
    for name in &names {
        let command = agent(&cluster, name);
        cluster.start_command(name, command);
    }
    cluster.until("they are a cluster", SOON, |trace| trace.together(&all(&names)));
    cluster
}

pub(super) fn agent(cluster: &Cluster, name: &str) -> Command {
    let node = cluster.command(name);
    let mut command = Command::new(node.get_program());
    command.args(
        node.get_args()
            .map(|arg| if arg == "node" { "agent".as_ref() } else { arg }),
    );
    command.envs(node.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.arg("--socket").arg(socket(cluster, name));
    command
}

/// A program that is connected to an agent, and what it was told.
pub(super) struct Program {
    stream: UnixStream,
    told: Arc<Mutex<Vec<Event>>>,
    last: u64,
}

impl Program {
    pub(super) fn connect(cluster: &Cluster, agent: &str, name: &str) -> Self {
        let mut program = Self::silent(cluster, agent);
        let (stream, told) = (
            program.stream.try_clone().expect("a descriptor"),
            program.told.clone(),
        );
        std::thread::spawn(move || {
            let (mut stream, mut line) = (BufReader::new(stream), String::new());
            // What ends without a newline is of an agent that was killed within a line.
            while stream.read_line(&mut line).is_ok() && line.ends_with('\n') {
                let event = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                told.lock().expect("no reader panics").push(event);
                line.clear();
            }
        });
        let welcome = program.ask(&format!(r#""hello":{{"name":"{name}","#)).welcome;
        assert_eq!(welcome.map(|welcome| welcome.client).as_deref(), Some(name));
        program
    }

    /// One that reads nothing.
    fn silent(cluster: &Cluster, agent: &str) -> Self {
        let stream = UnixStream::connect(socket(cluster, agent)).expect("the agent listens");
        Self {
            stream,
            told: Arc::default(),
            last: 0,
        }
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        self.stream.shutdown(Shutdown::Both).expect("it is open");
    }

    pub(super) fn say(&mut self, line: &str) {
        let said = self.stream.write_all(format!("{line}\n").as_bytes());
        said.unwrap_or_else(|error| panic!("{line}: {error}"));
    }

    pub(super) fn begin(&mut self, command: &str) -> u64 {
        self.last += 1;
        self.say(&format!(r#"{{{command}"id":{}}}}}"#, self.last));
        self.last
    }

    /// Says it with an id, and waits for the reply.
    #[track_caller]
    pub(super) fn ask(&mut self, command: &str) -> Reply {
        let id = self.begin(command);
        self.reply(id, SOON)
    }

    #[track_caller]
    pub(super) fn reply(&self, id: u64, bound: Duration) -> Reply {
        let wanted = Some(antiphon_api::blocks::Id::Number(id));
        self.until(bound, |told| {
            told.iter().find_map(|event| match event {
                Event::Reply(reply) if reply.id == wanted => Some(reply.clone()),
                _ => None,
            })
        })
    }

    #[track_caller]
    pub(super) fn until<T>(&self, bound: Duration, what: impl Fn(&[Event]) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let told = self.told();
            if let Some(found) = what(&told) {
                return found;
            }
            let last = told.len().saturating_sub(5);
            assert!(
                begun.elapsed() < bound,
                "not told within {bound:?}: … {:#?}",
                &told[last..]
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The group's view of these members, as soon as it is told.
    #[track_caller]
    fn view(&self, members: &[&str], bound: Duration) -> View {
        self.until(bound, |told| {
            told.iter().rev().find_map(|event| match event {
                Event::View(view) if view.members == members => Some(view.clone()),
                _ => None,
            })
        })
    }

    pub(super) fn told(&self) -> Vec<Event> {
        self.told.lock().expect("no reader panics").clone()
    }

    /// What the view's group told from this view on, as lines.
    pub(super) fn since(&self, view: &View) -> Vec<String> {
        let told = self.told();
        let of_group = told.iter().filter(|event| match event {
            Event::View(other) => other.group == view.group,
            Event::Message(message) => message.group == view.group,
            _ => false,
        });
        let from = of_group.skip_while(|event| !matches!(event, Event::View(other) if other.id == view.id));
        from.skip(1).map(Event::to_json).collect()
    }
}

fn clients_of_three_agents_see_the_same_and_one_that_ends_is_gone_at_once_with_its_lock(engine: Engine) {
    let cluster = agents(3, engine);
    let mut ann = Program::connect(&cluster, "n1", "ann");
    let mut bob = Program::connect(&cluster, "n2", "bob");
    let mut cy = Program::connect(&cluster, "n3", "cy");
    for program in [&mut ann, &mut bob, &mut cy] {
        assert_eq!(program.ask(r#""join":{"group":"chat","#).error, None);
        program.until(SOON, |told| {
            told.iter()
                .any(|event| matches!(event, Event::View(_)))
                .then_some(())
        });
    }
    let everyone = ["n1/ann", "n2/bob", "n3/cy"];
    let view = ann.view(&everyone, SOON);
    assert_eq!(bob.view(&everyone, SOON), view);
    assert_eq!(cy.view(&everyone, SOON).id, view.id);
    let first = ann.ask(r#""lock":{"name":"till","#).token.expect("it is free");
    let waits = bob.begin(r#""lock":{"name":"till","#);
    for round in 0..100 {
        for program in [&mut ann, &mut bob, &mut cy] {
            program.say(&format!(r#"{{"send":{{"group":"chat","payload":"{round}"}}}}"#));
        }
    }
    // Behind all of it.
    for program in [&mut ann, &mut bob, &mut cy] {
        assert_eq!(
            program.ask(r#""send":{"payload":"last","safe":true,"#).error,
            None
        );
    }
    let all = |told: &[Event]| {
        let last = told
            .iter()
            .filter(|event| matches!(event, Event::Message(said) if said.safe));
        (last.count() == 3).then_some(())
    };
    [&ann, &bob, &cy]
        .iter()
        .for_each(|program| program.until(SOON, all));
    assert_eq!(bob.since(&view), ann.since(&view));
    assert_eq!(bob.since(&view), cy.since(&view));
    assert_eq!(bob.since(&view).len(), 303);
    let ended = Instant::now();
    ann.end();
    let gone = cy.view(&["n2/bob", "n3/cy"], SOON);
    assert_eq!(gone.crashed, ["n1/ann"]);
    assert_eq!(gone.causes["n1/ann"], "its connection ended");
    let second = bob.reply(waits, SOON).token.expect("its turn");
    assert!(second > first);
    assert!(ended.elapsed() < Duration::from_secs(2), "{:?}", ended.elapsed());
    assert_eq!(cy.ask(r#""leave":{"group":"chat","#).error, None);
    assert_eq!(bob.view(&["n2/bob"], SOON).left, ["n3/cy"]);
    cy.until(SOON, |told| {
        told.iter()
            .any(|event| matches!(event, Event::GroupLeft { .. }))
            .then_some(())
    });
    // It comes again: what it is told of its first time comes first.
    cy.begin(r#""join":{"group":"chat","#);
    cy.ask(r#""leave":{"group":"chat","#);
    cy.ask(r#""join":{"group":"chat","#);
    cy.until(SOON, |told| {
        let left = |event: &&Event| matches!(event, Event::GroupLeft { .. });
        let last = told.iter().rposition(|event| left(&event))?;
        let after = told[last..].iter().any(|event| matches!(event, Event::View(_)));
        (after && told.iter().filter(left).count() == 2).then_some(())
    });
    cluster.finish();
}

fn with_a_killed_agent_its_clients_go_and_another_has_their_lock(engine: Engine) {
    let mut cluster = agents(3, engine);
    let mut ann = Program::connect(&cluster, "n1", "ann");
    let mut eve = Program::connect(&cluster, "n1", "eve");
    let mut bob = Program::connect(&cluster, "n2", "bob");
    for program in [&mut ann, &mut eve, &mut bob] {
        program.ask(r#""join":{"group":"chat","#);
        program.until(SOON, |told| {
            told.iter()
                .any(|event| matches!(event, Event::View(_)))
                .then_some(())
        });
    }
    bob.view(&["n1/ann", "n1/eve", "n2/bob"], SOON);
    let first = eve.ask(r#""lock":{"name":"till","#).token.expect("it is free");
    // Another program of the same agent cannot give it back.
    let stolen = ann.ask(&format!(r#""unlock":{{"name":"till","token":{first},"#));
    assert_eq!(stolen.error.map(|error| error.code), Some(Code::NotHeld));
    let waits = bob.begin(r#""lock":{"name":"till","#);
    cluster.kill("n1");
    let gone = bob.view(&["n2/bob"], DETECTED);
    assert_eq!(gone.crashed, ["n1/ann", "n1/eve"]);
    assert_eq!(gone.causes["n1/eve"], "its node crashed or was cut off");
    assert!(bob.reply(waits, DETECTED).token.expect("its turn") > first);
    // The program comes again, at another agent.
    let mut ann = Program::connect(&cluster, "n3", "ann");
    ann.ask(r#""join":{"group":"chat","#);
    assert_eq!(
        ann.view(&["n2/bob", "n3/ann"], SOON),
        bob.view(&["n2/bob", "n3/ann"], SOON)
    );
    cluster.finish();
}

fn a_program_that_reads_nothing_is_removed_and_holds_up_no_other_group(engine: Engine) {
    let cluster = agents(2, engine);
    let mut ann = Program::connect(&cluster, "n1", "ann");
    let mut quick = Program::connect(&cluster, "n2", "quick");
    let mut deaf = Program::silent(&cluster, "n2");
    deaf.say(r#"{"hello":{"name":"deaf"}}"#);
    deaf.say(r#"{"join":{"group":"big"}}"#);
    ann.ask(r#""join":{"group":"big","#);
    ann.until(SOON, |told| {
        let view = |event: &Event| matches!(event, Event::View(view) if view.members.len() == 2);
        told.iter().any(view).then_some(())
    });
    for program in [&mut ann, &mut quick] {
        program.ask(r#""join":{"group":"small","#);
    }
    quick.until(SOON, |told| {
        let view = |event: &Event| matches!(event, Event::View(view) if view.members.len() == 2);
        told.iter().any(view).then_some(())
    });
    // More than all queues hold. It goes out behind the requests of another program, which go on.
    let mut flood = ann.stream.try_clone().expect("a descriptor");
    let flooding = std::thread::spawn(move || {
        let line = format!(
            r#"{{"send":{{"group":"big","payload":"{}"}}}}"#,
            "x".repeat(60_000)
        );
        (0..200).all(|_| flood.write_all(format!("{line}\n").as_bytes()).is_ok())
    });
    let mut slowest = Duration::ZERO;
    let gone = |told: &[Event]| {
        told.iter().find_map(|event| match event {
            Event::View(view) if view.crashed == ["n2/deaf"] => Some(view.causes["n2/deaf"].clone()),
            _ => None,
        })
    };
    let begun = Instant::now();
    while gone(&ann.told()).is_none() {
        let asked = Instant::now();
        assert_eq!(
            quick.ask(r#""send":{"group":"small","payload":"tick","#).error,
            None
        );
        slowest = slowest.max(asked.elapsed());
        assert!(begun.elapsed() < SLOW, "it is never removed");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        slowest < Duration::from_secs(3),
        "another group was held up for {slowest:?}"
    );
    assert!(
        gone(&ann.told()).is_some_and(|cause| cause.starts_with("slow: ")),
        "{:?}",
        gone(&ann.told())
    );
    assert!(flooding.join().expect("it ends"), "all was taken in the end");
    cluster.finish();
}

fn what_is_no_program_is_told_so_and_an_agent_goes_on(engine: Engine) {
    let mut cluster = agents(1, engine);
    let told = |said: &[u8]| {
        let mut stream = UnixStream::connect(socket(&cluster, "n1")).expect("the agent listens");
        // It may have ended the connection before all is written.
        let _ = stream.write_all(said);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("it speaks UTF-8")
    };
    for (said, answer) in [
        (&b"\x00\xff\x00"[..], "begin with an object"),
        (b"{\"hello\":\n", "not JSON"),
        (b"{\"fault\":{}}\n", "faults are for a node's own program"),
        (
            b"{\"put\":{\"map\":\"m\",\"key\":\"k\",\"value\":{\"file\":\"/etc/passwd\"}}}\n",
            "from a file",
        ),
        (b"{\"send\":{\"payload\":\"x\"}}\n", "name a group"),
        (b"{\"hello\":{\"name\":\"a/b\"}}\n", "slashes"),
        (b"{\"join\":{\"group\":\"\"}}\n", "group"),
        (b"\xff{}\n", "begin with an object"),
        (b"{\"a\":\"\xff\"}\n", "not UTF-8"),
    ] {
        let told = told(said);
        assert!(told.contains(answer), "{}: {told}", String::from_utf8_lossy(said));
    }
    let long = [b"{\"send\":\"".to_vec(), vec![b'x'; 5 << 20]].concat();
    assert!(
        told(&long).contains("a line has at most"),
        "a line without an end"
    );
    // Many that say nothing keep nobody out.
    let idle: Vec<_> = (0..200)
        .map(|_| UnixStream::connect(socket(&cluster, "n1")))
        .collect();
    let mut ann = Program::connect(&cluster, "n1", "ann");
    let two = Program::connect(&cluster, "n1", "ben");
    let taken = ann
        .ask(r#""hello":{"name":"ben","#)
        .error
        .expect("the name is taken");
    assert_eq!(taken.code, Code::Refused);
    drop((idle, two));
    // Another agent finds the place taken, and says so.
    let twin = agent(&cluster, "n1")
        .arg("--bind")
        .arg("127.0.0.1:0")
        .output()
        .expect("the program runs");
    let error = String::from_utf8_lossy(&twin.stderr).into_owned();
    assert!(error.contains("cannot listen for programs"), "{error}");
    let open = agent(&cluster, "n2")
        .args(["--listen", "0.0.0.0:0"])
        .output()
        .expect("the program runs");
    let error = String::from_utf8_lossy(&open.stderr).into_owned();
    assert!(
        error.contains("loopback") && open.status.code() == Some(2),
        "{error}"
    );
    assert!(cluster.leave("n1").success());
    assert!(!socket(&cluster, "n1").exists(), "it takes its socket away");
    cluster.finish();
}

fn an_agent_that_leaves_tells_its_clients_and_others_say_why_they_are_gone(engine: Engine) {
    let mut cluster = agents(3, engine);
    let mut ann = Program::connect(&cluster, "n1", "ann");
    let mut bob = Program::connect(&cluster, "n2", "bob");
    for program in [&mut ann, &mut bob] {
        program.ask(r#""join":{"group":"chat","#);
    }
    bob.until(SOON, |told| {
        let view = |event: &Event| matches!(event, Event::View(view) if view.members.len() == 2);
        told.iter().any(view).then_some(())
    });
    assert!(cluster.leave("n1").success());
    let gone = bob.view(&["n2/bob"], SOON);
    assert_eq!(gone.crashed, ["n1/ann"]);
    assert!(gone.causes["n1/ann"].contains("left"), "{:?}", gone.causes);
    ann.until(SOON, |told| {
        let lost = |event: &Event| matches!(event, Event::Lost(lost) if lost.name == "chat");
        told.iter().any(lost).then_some(())
    });
    cluster.finish();
}

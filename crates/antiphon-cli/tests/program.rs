//! The program as a shell or a service manager meets it: settings, lines, signals, exit codes.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use antiphon::config::Given;
use common::{Bench, Node, PATIENCE, end_of, key};
#[cfg(target_os = "linux")]
use common::{catches, stop_when};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The node `a` of a cluster of its own.
const ALONE: &str = "--cluster program --name a --bind 127.0.0.1:0";

fn alone(bench: &Bench, arguments: &str) -> Node {
    bench.start(&format!("{ALONE} {arguments}"))
}

/// Whether a line is of this event.
fn is(event: &str) -> impl Fn(&Value) -> bool + '_ {
    move |line| line["event"] == event
}

#[test]
fn the_file_yields_to_the_environment_and_the_environment_to_the_flag() {
    let bench = Bench::new();
    let file = bench.directory.join("precedence.toml");
    let text = "cluster = \"file\"\nname = \"file\"\nbind = \"127.0.0.1:1\"\norder = \"fifo\"\nallow-faults = true\ngroup = [\"f\"]\n";
    std::fs::write(&file, text).unwrap();
    let output = bench
        .program()
        .args(["node", "--print-config", "--name", "flag", "--config"])
        .arg(&file)
        .env("ANTIPHON_NAME", "environment")
        .env("ANTIPHON_BIND", "127.0.0.1:2")
        .env("ANTIPHON_ALLOW_FAULTS", "false")
        .env("ANTIPHON_GROUP", "g,h")
        .env("ANTIPHON_METADATA", "role=db,zone=1")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in [
        "cluster = \"file\"",
        "name = \"flag\"",
        "bind = \"127.0.0.1:2\"",
        "order = \"fifo\"",
        "allow-faults = false",
        "group = [\"g\", \"h\"]",
        "metadata = { role = \"db\", zone = \"1\" }",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line} is not in\n{printed}"
        );
    }
}

/// What is in force, by the program and by the library, without what the program has for itself.
fn in_force(printed: &str) -> toml::Table {
    let mut table: toml::Table = printed.parse().unwrap();
    for own in ["spool", "console", "socket", "listen", "json", "witness"] {
        table.remove(own);
    }
    table
}

#[test]
fn a_file_and_an_environment_mean_the_same_to_the_program_and_to_the_library() {
    let bench = Bench::new();
    let file = bench.directory.join("node.toml");
    let key = bench.directory.join("key");
    assert!(bench.run(&format!("key {}", key.display())).status.success());
    let texts = [
        "cluster = \"c\"\nname = \"n\"\n".to_owned(),
        format!(
            "cluster = \"c\"\nname = \"n\"\nbind = [\"10.0.0.1\", \"[fd00::1]:7\"]\nkey-file = \"{}\"\n\
             seeds = \"10.0.0.1/10.1.0.1, dns:db\"\nlocators = \"10.0.0.9\"\nexpect = 3\nweight = 2\n\
             group = \"a,b\"\norder = \"fifo\"\nslow-after = \"90s\"\nmax-object = \"1MiB\"\n\
             profile = \"wan\"\nmembership = \"cut\"\npolicy = \"any\"\ntransport = \"udp\"\nmax-datagram = 1400\n\
             json = true\nsocket = \"none\"\nspool = \"/\"\nmetadata = {{ role = \"db\" }}\n",
            key.display()
        ),
        "cluster = \"c\"\nname = \"n\"\nno-group = true\nfound = true\nprimary-lease = false\nudp-probes = false\n\
         insecure = true\ndissemination = \"multicast\"\nmulticast-group = \"239.1.2.3\"\nmulticast-hops = 3\n"
            .to_owned(),
    ];
    let variables = [
        ("ANTIPHON_WEIGHT", "5"),
        ("ANTIPHON_METADATA", "zone=1"),
        ("ANTIPHON_GROUP", "z"),
    ];
    for text in texts {
        std::fs::write(&file, text).unwrap();
        for variables in [&[][..], &variables] {
            let program = bench
                .program()
                .args(["node", "--print-config", "--config"])
                .arg(&file)
                .envs(variables.iter().copied())
                .output()
                .unwrap();
            let printed = String::from_utf8(program.stdout).unwrap();
            let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
            let environment =
                Given::from_variables("ANTIPHON_", |name| find(name).map(|(_, value)| (*value).into()));
            let given = environment.unwrap().over(Given::from_toml_file(&file).unwrap());
            let effective = given.effective().unwrap();
            assert_eq!(in_force(&printed), in_force(&effective.to_toml()));
        }
    }
}

#[test]
fn a_key_that_neither_the_program_nor_the_library_has_is_refused_by_both() {
    let bench = Bench::new();
    let file = bench.directory.join("node.toml");
    std::fs::write(&file, "cluster = \"c\"\nname = \"n\"\nspools = \"/\"\n").unwrap();
    let output = bench.run(&format!("node --config {}", file.display()));
    let by_program = String::from_utf8(output.stderr).unwrap();
    let by_library = Given::from_toml_file(&file).unwrap_err().to_string();
    assert!(by_program.contains(&by_library), "{by_program}");
    assert!(
        by_library.contains("line 3") && by_library.contains("`spool`"),
        "{by_library}"
    );
}

#[test]
fn wrong_settings_end_with_two_and_say_what_is_wrong() {
    let bench = Bench::new();
    let file = bench.directory.join("unknown.toml");
    std::fs::write(&file, "cluster = \"c\"\nseed = [\"127.0.0.1:1\"]\n").unwrap();
    let path = file.display();
    for (arguments, expected) in [
        ("node".to_owned(), "no cluster is given"),
        (format!("node --config {path}"), "seed"),
        ("node --cluster c --name n --bind 10.1.2.3".to_owned(), "loopback"),
        ("node --cluster c --name n --order causal".to_owned(), "causal"),
        (
            "node --cluster c --name n --engine cut".to_owned(),
            "membership engines are chosen with `--membership`",
        ),
        ("node --cluster c --name n --bnid 1".to_owned(), "--bind"),
        (
            "node --cluster c --name n --max-object 2GiB".to_owned(),
            "max-object",
        ),
        (
            "node --cluster c --name n --object-memory 1MiB --print-config".to_owned(),
            "object-memory",
        ),
        (
            "node --cluster c --name n --found --expect 2 --print-config".to_owned(),
            "`expect`",
        ),
        ("node --cluster c --name n --seeds=".to_owned(), "seeds is empty"),
        (
            "node --cluster c --name n --seeds 10.0.0.1;10.0.0.2".to_owned(),
            "neither an address nor a name",
        ),
        (
            "locator --cluster c --bind _bad_name!!".to_owned(),
            "neither an address nor a name",
        ),
        (
            format!("agent --cluster c --name n --seeds {}", "x".repeat(300)),
            "it is no name",
        ),
        ("demo --nodes 2".to_owned(), "3..=9"),
        (String::new(), "Usage"),
    ] {
        let output = bench.run(&arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
        assert!(error.contains(expected), "{arguments}: {error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_name_that_does_not_resolve_ends_with_one() {
    let bench = Bench::new();
    for arguments in [
        "node --cluster c --name n --seeds nowhere.invalid:7400",
        "node --cluster c --name n --seeds 127.0.0.1:7400,127.0.0.1:7401/nowhere.invalid",
        "node --cluster c --name n --bind nowhere.invalid",
        "agent --cluster c --name n --seeds nowhere.invalid",
        "locator --cluster c --bind nowhere.invalid",
    ] {
        let output = bench.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {error}");
        assert!(error.contains("nowhere.invalid"), "{arguments}: {error}");
        assert!(output.stdout.is_empty());
    }
    let doctor = bench.run("doctor --within 1s --cluster c --name n --bind nowhere.invalid");
    assert_eq!(doctor.status.code(), Some(1));
}

#[test]
fn an_agent_whose_socket_has_no_directory_says_how_to_make_it() {
    let bench = Bench::new();
    let output = bench.run(&format!("agent {ALONE} --socket /nodir/agent.sock"));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("/nodir/agent.sock") && error.contains("install -d -m 700"),
        "{error}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_comes_while_the_settings_are_read_ends_the_program_in_order() {
    let bench = Bench::new();
    // A file that takes as long as a name may: nobody writes to it.
    let slow = bench.directory.join("slow");
    let made = std::process::Command::new("mkfifo").arg(&slow).status();
    assert!(made.unwrap().success());
    for command in ["node", "agent", "node --witness"] {
        let mut program = bench.program();
        program.args(command.split(' ')).arg("--config").arg(&slow);
        let child = program.stdin(Stdio::null()).spawn().unwrap();
        let deadline = std::time::Instant::now() + PATIENCE;
        while !catches(Pid::from_child(&child), Signal::TERM) {
            assert!(std::time::Instant::now() < deadline, "{command}");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(end_of(child).code(), Some(0), "{command}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_comes_before_the_settings_are_printed_is_no_success() {
    let bench = Bench::new();
    // Nobody writes to it.
    let slow = bench.directory.join("slow");
    let made = std::process::Command::new("mkfifo").arg(&slow).status();
    assert!(made.unwrap().success());
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut program = bench.program();
        program.args(["node", "--print-config", "--config"]).arg(&slow);
        let child = program.stdin(Stdio::null()).spawn().unwrap();
        let deadline = std::time::Instant::now() + PATIENCE;
        while !(catches(Pid::from_child(&child), Signal::TERM)
            && catches(Pid::from_child(&child), Signal::INT))
        {
            assert!(std::time::Instant::now() < deadline, "{code}");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(end_of(child).code(), Some(code));
    }
}

/// A node with its stdout unread, stopped when it catches signals and has not begun: before its console is
/// there, or between that and its first line. None if it was past that when it was looked at.
#[cfg(target_os = "linux")]
fn stopped_while_it_starts(bench: &Bench, has_console: bool) -> Option<std::process::Child> {
    let mut program = bench.program();
    let settings = format!("node --json {ALONE} --seeds 127.0.0.1:9");
    program.args(settings.split(' ')).stdin(Stdio::null());
    program.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let node = Pid::from_child(&child);
    let stdout = child.stdout.as_ref().unwrap();
    let is_there = stop_when(node, || {
        let is_console_there = !bench.sockets().is_empty();
        let has_spoken = rustix::io::ioctl_fionread(stdout).unwrap() > 0;
        match (
            has_spoken || is_console_there && !has_console,
            is_console_there == has_console,
        ) {
            (true, _) => Some(false),
            (false, true) => catches(node, Signal::TERM).then_some(true),
            (false, false) => None,
        }
    });
    if is_there == Some(true) {
        return Some(child);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_comes_while_the_node_starts_ends_it_without_a_line_or_with_the_last_one() {
    for has_console in [false, true] {
        let deadline = std::time::Instant::now() + PATIENCE;
        let (_bench, mut child) = loop {
            let bench = Bench::new();
            if let Some(child) = stopped_while_it_starts(&bench, has_console) {
                break (bench, child);
            }
            assert!(
                std::time::Instant::now() < deadline,
                "it is always past that: {has_console}"
            );
        };
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        assert_eq!(end_of(child).code(), Some(0), "{has_console}");
        let lines = std::io::read_to_string(stdout).unwrap();
        let log = std::io::read_to_string(stderr).unwrap();
        assert!(!log.contains("dropped without leave"), "{has_console}: {log}");
        let events: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        if let [first, .., last] = &events[..] {
            assert_eq!(first["event"], "ready", "{has_console}: {lines}");
            assert_eq!(last["event"], "left", "{has_console}: {lines}");
        } else {
            // Others may have heard of a node that has opened its console.
            assert!(lines.is_empty() && !has_console, "{has_console}: {lines}");
        }
    }
}

#[test]
fn a_list_that_was_not_reloaded_is_not_said_to_be_none() {
    let bench = Bench::new();
    let list = bench.directory.join("commands.toml");
    let verb =
        "[[verb]]\nname = \"members\"\nfrom = \"all\"\nto = \"all\"\ndeliver = { node = \"members\" }\n";
    std::fs::write(&list, format!("version = 1\n{verb}")).unwrap();
    let agent = bench.spoken_to(&format!(
        "agent --json {ALONE} --listen 127.0.0.1:0 --commands {} --key-file {}",
        list.display(),
        key(&bench, "key").display()
    ));
    agent.event(is("serving"));
    std::fs::write(&list, "version = 1\n[[verb]]\nname = 3\n").unwrap();
    agent.signal(Signal::HUP);
    loop {
        let line = agent.log.recv_timeout(PATIENCE).expect("a word on the list");
        if line.contains("the list of commands stays as it is") {
            break;
        }
    }
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit().code(), Some(0));
    let log = agent.log();
    assert!(!log.contains("nothing to reload"), "{log}");
}

#[test]
fn a_key_that_cannot_be_written_leaves_no_file() {
    let bench = Bench::new();
    let file = bench.directory.join("key");
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" key \"$1\"";
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", script, env!("CARGO_BIN_EXE_antiphon")])
        .arg(&file);
    let output = shell.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write") && !file.exists(), "{error}");
    assert!(bench.run(&format!("key {}", file.display())).status.success());
}

#[test]
fn a_benchmark_has_its_key_in_no_file_that_its_end_would_leave() {
    let bench = Bench::new();
    let mut program = bench.program();
    program.args([
        "bench",
        "idle",
        "--nodes",
        "2",
        "--keyed",
        "--seconds",
        "1",
        "--warmup",
        "0",
    ]);
    program.env("TMPDIR", &bench.directory).stdout(Stdio::null());
    let mut child = program.stderr(Stdio::null()).spawn().unwrap();
    // From its start on, through the forming of the group, to its end: SIGINT may come at any time.
    let deadline = std::time::Instant::now() + PATIENCE;
    let status = loop {
        assert_eq!(std::fs::read_dir(&bench.directory).unwrap().count(), 0);
        assert!(std::time::Instant::now() < deadline);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success());
}

#[test]
fn a_node_that_founds_nothing_by_its_settings_says_what_it_lacks() {
    let bench = Bench::new();
    let file = bench.directory.join("nodes");
    std::fs::write(&file, "localhost:1\n").unwrap();
    let node = alone(&bench, &format!("--seeds file:{}", file.display()));
    let forming = node.event(is("forming"));
    assert!(
        forming["reason"].as_str().unwrap().contains("--expect"),
        "{forming}"
    );
}

#[test]
fn a_file_with_a_name_in_it_is_no_trouble_when_it_is_edited() {
    let bench = Bench::new();
    let file = bench.directory.join("nodes");
    std::fs::write(&file, "127.0.0.1:1\nlocalhost:1\n").unwrap();
    let node = alone(&bench, &format!("--seeds file:{} --expect 2", file.display()));
    let found = |port: u16| {
        node.event(|line| {
            assert_eq!(line["problem"], Value::Null, "{line}");
            line["event"] == "discovery" && line["found"].to_string().contains(&format!(":{port}\""))
        })
    };
    found(1);
    let edited = bench.directory.join("edited");
    std::fs::write(&edited, "127.0.0.1:2\nlocalhost:1\n").unwrap();
    std::fs::rename(&edited, &file).unwrap();
    found(2);
}

#[test]
fn a_port_that_is_taken_ends_with_one_and_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = Bench::new().run(&format!(
        "node --cluster c --name n --bind {}",
        listener.local_addr().unwrap()
    ));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("in use"));
}

#[test]
fn a_fresh_key_is_for_its_owner_only_and_a_node_takes_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new();
    let file = bench.directory.join("key");
    assert!(bench.run(&format!("key {}", file.display())).status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.trim().len() == 64 && text.trim().bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{text}"
    );
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        bench.run(&format!("key {}", file.display())).status.code(),
        Some(1),
        "a key is never overwritten"
    );
    let node = alone(&bench, &format!("--key-file {}", file.display()));
    node.event(is("view"));
    node.say(json!({"leave": {}}));
    assert_eq!(node.exit().code(), Some(0));
}

#[test]
fn a_node_prints_json_objects_from_ready_to_left_and_nothing_else() {
    let bench = Bench::new();
    let node = alone(&bench, "--group chat --group jobs --metadata role=db");
    let ready = node.line();
    assert_eq!((&ready["event"], &ready["name"]), (&json!("ready"), &json!("a")));
    let incarnation = ready["incarnation"].as_str().unwrap().to_owned();
    assert_eq!(incarnation.len(), 32);
    // The node and each of its groups tell in their own order; a group may be first. Of the node there are
    // two words more: it founded alone, and answers itself.
    let views: Vec<Value> = (0..5).map(|_| node.line()).collect();
    assert!(
        views.contains(&json!({"event": "lease", "held": true})),
        "{views:?}"
    );
    assert!(
        views.iter().any(|line| line["event"] == "founded_alone"),
        "{views:?}"
    );
    let is_node_view = |line: &&Value| line["event"] == "node_view";
    let view = views.iter().find(is_node_view).expect("a node view");
    assert_eq!(view["id"], view["number"]);
    assert_eq!(view["primary"], true);
    assert_eq!(view["joined"], json!(["a"]));
    assert_eq!(
        view["members"],
        json!([{"name": "a", "incarnation": incarnation, "addr": ready["addr"], "metadata": {"role": "db"}}])
    );
    let of_groups = views.iter().filter(|line| line["event"] == "view");
    let mut groups: Vec<Value> = of_groups.map(|line| line["group"].clone()).collect();
    groups.sort_by_key(Value::to_string);
    assert_eq!(groups, ["chat", "jobs"]);

    node.say(json!({"send": {"group": "jobs", "payload": "grüße"}}));
    let message = node.event(is("message"));
    assert_eq!(
        (
            &message["group"],
            &message["sender"],
            &message["seq"],
            &message["payload"]
        ),
        (&json!("jobs"), &json!("a"), &json!(1), &json!("grüße"))
    );
    node.say(json!({"send": {"payload": {"base64": "/wD+"}}}));
    let message = node.event(is("message"));
    assert_eq!(
        (&message["group"], &message["payload"]),
        (&json!("chat"), &json!({"base64": "/wD+"}))
    );
    node.say(json!({"why": {"node": "a"}}));
    assert_eq!(node.event(is("why"))["node"], "a");

    node.say(json!({"leave": {}}));
    assert_eq!(node.exit().code(), Some(0));
    assert_eq!(node.rest().last(), Some(&json!({"event": "left"})));
}

#[test]
fn whatever_stands_on_stdin_the_node_answers_with_an_error_and_lives() {
    let bench = Bench::new();
    let node = alone(&bench, "--group chat --max-object 1MiB");
    node.event(is("view"));
    for (line, expected) in [
        (&b"hello"[..], "not JSON"),
        (b"\xff\xfe", "UTF-8"),
        (br#"{"send":{"group":"nowhere","payload":"x"}}"#, "chat"),
        (br#"{"send":{"group":"chat","payload":7}}"#, "payload"),
        (br#"{"send":{"payload":{"base64":"!"}}}"#, "base64"),
        (
            br#"{"send":{"payload":{"file":"/nonexistent/x"}}}"#,
            "/nonexistent/x",
        ),
        (br#"{"fault":{"block":["b"]}}"#, "--allow-faults"),
        (br#"{"dance":{}}"#, "dance"),
        (&[b'['; 100_000], "not JSON"),
        (&[b'x'; (4 << 20) + 10], "4194304"),
    ] {
        assert!(node.child.say(line));
        let error = node.event(is("error"));
        assert!(
            error["reason"].as_str().unwrap().contains(expected),
            "{expected}: {error}"
        );
        assert!(error.get("request").is_some());
    }
    let large = json!({"send": {"group": "chat", "payload": "x".repeat((1 << 20) + 1)}});
    node.say(large.clone());
    let refused = node.event(is("refused"));
    assert!(refused["reason"].as_str().unwrap().contains("1048576 bytes"));
    assert_eq!(refused["group"], "chat");
    assert_eq!(refused["request"], large, "the request is echoed");
    let large = "y".repeat(1 << 20);
    node.say(json!({"send": {"group": "chat", "payload": large}}));
    assert_eq!(node.event(is("message"))["payload"], large);
    node.say(json!({"send": {"group": "chat", "payload": "still here"}}));
    assert_eq!(node.event(is("message"))["payload"], "still here");
}

#[test]
fn the_end_of_stdin_changes_nothing_and_each_signal_leaves_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let bench = Bench::new();
        let node = alone(&bench, "");
        node.child.hush();
        node.event(is("view"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            node.child.exit(Duration::ZERO).is_none(),
            "the node ended with its stdin"
        );
        // As `timeout` and some service managers do: to the process, and to its group.
        node.signal(signal);
        node.signal(signal);
        assert_eq!(node.exit().code(), Some(0));
        assert_eq!(node.rest().last(), Some(&json!({"event": "left"})));
    }
}

/// A node alone, in the hands of the test.
fn raw(bench: &Bench) -> Child {
    let mut program = bench.program();
    program.args(["node", "--json"]).args(ALONE.split_whitespace());
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    program.stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_node_whose_lines_nobody_reads_any_more_leaves_and_says_so_with_four() {
    let bench = Bench::new();
    let mut child = raw(&bench);
    drop(child.stdout.take());
    // The pipe breaks with the first line after its end was closed.
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(b"{\"send\":{\"payload\":\"x\"}}\n");
    assert_eq!(end_of(child).code(), Some(4));
}

#[test]
fn a_node_with_nothing_to_say_notices_that_nobody_reads_any_more() {
    let bench = Bench::new();
    let mut child = raw(&bench);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The view of its group is the last that a node tells that is alone.
    let last = lines.find(|line| {
        line.as_ref()
            .is_ok_and(|line| line.contains("\"event\":\"view\""))
    });
    assert!(last.is_some());
    drop(lines);
    assert_eq!(end_of(child).code(), Some(4));
}

#[test]
fn a_reader_that_stops_reading_does_not_keep_a_node_from_leaving() {
    let bench = Bench::new();
    let mut child = raw(&bench);
    let mut stdin = child.stdin.take().unwrap();
    // Held and never read: the pipe fills, then the queue, then the group's window.
    let stdout = child.stdout.take();
    let line = json!({"send": {"payload": "x".repeat(10_000)}}).to_string() + "\n";
    for _ in 0..50 {
        stdin.write_all(line.as_bytes()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    end_of(child);
    drop(stdout);
}

/// A line that is no command, and its answer: the node has taken all lines before it.
fn is_taken(node: &Node) {
    assert!(node.child.say("?"));
    node.event(is("error"));
}

#[test]
fn each_file_whose_line_was_taken_has_a_line_of_its_own_before_the_node_has_left() {
    for (count, bytes, by_signal) in [
        (1, 200 << 20, false),
        (3, 64 << 20, false),
        (1, 200 << 20, true),
        (3, 64 << 20, true),
    ] {
        let bench = Bench::new();
        let node = alone(&bench, "--found");
        node.event(is("view"));
        let path = bench.directory.join("file");
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        for _ in 0..count {
            node.say(json!({"send": {"payload": {"file": &path}}}));
        }
        if by_signal {
            is_taken(&node);
            node.signal(Signal::TERM);
        } else {
            node.say(json!({"leave": {}}));
        }
        assert_eq!(node.exit().code(), Some(0));
        let mut lines = node.rest();
        assert_eq!(lines.pop(), Some(json!({"event": "left"})));
        lines.retain(|line| {
            let event = line["event"].as_str().unwrap();
            ["message", "refused", "error", "receipt"].contains(&event)
        });
        assert_eq!(lines.len(), count, "{by_signal}: {lines:?}");
    }
}

#[test]
fn no_line_comes_behind_left_while_stdin_goes_on() {
    let bench = Bench::new();
    let mut child = raw(&bench);
    let mut stdin = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    std::thread::spawn(move || {
        let line = json!({"send": {"payload": "x"}}).to_string() + "\n";
        while stdin.write_all(line.repeat(100).as_bytes()).is_ok() {}
    });
    let is_message = |line: &String| line.contains("\"event\":\"message\"");
    assert!(lines.by_ref().filter(is_message).nth(1000).is_some());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(lines.last().unwrap(), json!({"event": "left"}).to_string());
    assert_eq!(end_of(child).code(), Some(0));
}

#[test]
fn operations_that_wait_for_a_cluster_are_answered_before_left_though_the_reader_is_slow() {
    const LOCKS: usize = 2000;
    let bench = Bench::new();
    let mut program = bench.program();
    program.args(["node", "--json", "--seeds", "127.0.0.1:9"]);
    program.args(ALONE.split_whitespace());
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    for id in 0..LOCKS {
        writeln!(stdin, "{}", json!({"lock": {"name": "x", "id": id}})).unwrap();
    }
    writeln!(stdin, "?").unwrap();
    assert!(
        lines.any(|line| line.contains("\"event\":\"error\"")),
        "all lines are taken"
    );
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    // Longer than the node needs for all but the replies.
    std::thread::sleep(Duration::from_millis(500));
    let told: Vec<String> = lines.collect();
    assert_eq!(told.last(), Some(&json!({"event": "left"}).to_string()));
    let replies = told.iter().filter(|line| line.contains("\"event\":\"reply\""));
    assert_eq!(replies.count(), LOCKS);
    assert_eq!(end_of(child).code(), Some(0));
}

#[test]
fn messages_of_the_programs_own_client_are_answered_before_left_though_the_reader_is_slow() {
    // As many as may wait for their replies.
    const MESSAGES: usize = 1000;
    let bench = Bench::new();
    let mut child = raw(&bench);
    let mut stdin = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    let mut say = |line: Value| writeln!(stdin, "{line}").unwrap();
    say(json!({"join": {"group": "clients"}}));
    let is_view = |line: &String| line.contains("\"event\":\"view\"") && line.contains("clients");
    assert!(lines.by_ref().any(|line| is_view(&line)));
    for id in 0..MESSAGES {
        say(json!({"send": {"group": "clients", "payload": "x".repeat(100), "id": id}}));
    }
    say(json!({"leave": {}}));
    // Longer than the node needs for all but the lines.
    std::thread::sleep(Duration::from_millis(700));
    let told: Vec<String> = lines.collect();
    assert_eq!(told.last(), Some(&json!({"event": "left"}).to_string()));
    let replies = told.iter().filter(|line| line.contains("\"event\":\"reply\""));
    assert_eq!(replies.count(), MESSAGES);
    assert_eq!(end_of(child).code(), Some(0));
}

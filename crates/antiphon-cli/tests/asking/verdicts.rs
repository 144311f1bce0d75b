//! What `antiphon doctor` must not promise, and whom it must not blame.

use super::common::{Bench, Proxy, exists, free_addrs, list};
use super::doctor::{doctor, doctor_with, locator, newcomer};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn whoever_names_a_seed_that_does_not_resolve_is_not_told_that_it_gets_in() {
    let bench = Bench::new();
    let addr = free_addrs(1)[0];
    for seeds in [
        "nowhere.invalid:7".to_owned(),
        format!("{addr},nowhere.invalid:7,no.invalid:7"),
    ] {
        let told = doctor(
            &bench,
            &format!("--cluster tea --name n --bind {addr} --seeds {seeds}"),
        );
        assert_eq!(
            (told.code, &told.verdict["gets_in"]),
            (Some(1), &false.into()),
            "{told}"
        );
        let text = told.verdict["text"].as_str().unwrap();
        assert!(
            text.contains("nowhere.invalid:7") && text.contains("ends at once"),
            "{told}"
        );
    }
}

#[test]
fn founders_without_a_vote_are_not_enough() {
    let bench = Bench::new();
    let addrs = free_addrs(2);
    let _other = bench.node("b", addrs[1], &format!("--seeds {} --weight 0", list(&addrs)));
    let without = doctor(&bench, &format!("{} --weight 0", newcomer(addrs[0], &addrs)));
    assert_eq!(without.verdict["gets_in"], false, "{without}");
    let text = without.verdict["text"].as_str().unwrap();
    assert!(text.contains("none of them has a vote"), "{without}");
    let with = doctor(&bench, &newcomer(addrs[0], &addrs));
    assert_eq!(with.verdict["gets_in"], true, "{with}");
}

#[test]
fn a_locator_among_the_seeds_and_a_node_among_the_locators_are_told_so() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let _locator = locator(&bench, addrs[1]);
    let node = bench.node("m", addrs[2], "");
    node.view_of(1);
    let told = doctor(
        &bench,
        &format!(
            "--cluster tea --name n --bind {} --seeds {},{} --locators {}",
            addrs[0], addrs[0], addrs[1], addrs[2]
        ),
    );
    assert_eq!(told.failures(), ["is-a-locator", "is-a-node"], "{told}");
    let step = told.failed("is-a-locator");
    assert_eq!(step["subject"], addrs[1].to_string());
    assert!(
        step["remedy"]
            .as_str()
            .unwrap()
            .contains("give it with --locators")
    );
    assert!(
        told.failed("is-a-node")["remedy"]
            .as_str()
            .unwrap()
            .contains("give it with --seeds")
    );
}

#[test]
fn bad_options_of_groups_are_told_with_a_verdict() {
    let bench = Bench::new();
    let told = doctor(
        &bench,
        "--cluster tea --name n --bind 127.0.0.1:0 --max-object 2GiB",
    );
    assert_eq!(
        (told.code, told.failures()),
        (Some(2), vec!["settings"]),
        "{told}"
    );
    assert!(
        told.failed("settings")["text"]
            .as_str()
            .unwrap()
            .contains("max-object")
    );
}

#[test]
fn a_directory_that_cannot_have_consoles_is_named_by_those_who_look_for_nodes_there() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new();
    let open = bench.directory.join("antiphon");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    for command in ["members", "doctor"] {
        let output = bench.run(command);
        let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(told.contains("(mode 755); `chmod 700` it"), "{command}: {told}");
    }
    let nowhere = bench
        .program()
        .args(["members"])
        .env("ANTIPHON_RUNTIME_DIR", bench.directory.join("no/such"))
        .output()
        .unwrap();
    let told = String::from_utf8(nowhere.stderr).unwrap();
    assert!(told.contains("no is no directory"), "{told}");
}

#[test]
fn a_node_that_would_found_a_second_cluster_at_once_is_told_not_to() {
    let bench = Bench::new();
    let (_nodes, addrs) = bench.cluster(1);
    let joins = newcomer(free_addrs(1)[0], &addrs);
    for founds in ["--found", "--expect 1", "--found --weight 5"] {
        let told = doctor(&bench, &format!("{joins} {founds}"));
        let step = told.failed("second-cluster");
        assert!(
            step["remedy"].as_str().unwrap().contains("leave --found"),
            "{told}"
        );
        assert_eq!(
            (told.code, &told.verdict["gets_in"]),
            (Some(1), &false.into()),
            "{told}"
        );
    }
    let told = doctor(&bench, &joins);
    assert_eq!(
        (told.code, &told.verdict["gets_in"]),
        (Some(0), &true.into()),
        "{told}"
    );
}

#[test]
fn a_member_that_answers_is_not_enough_where_the_one_that_admits_nodes_cannot_be_reached() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let proxy = Proxy::to(addrs[0]);
    let a = bench.node("a", addrs[0], &format!("--advertise {} --found", proxy.at));
    a.view_of(1);
    let b = bench.node("b", addrs[1], &format!("--seeds {}", proxy.at));
    b.view_of(2);
    let settings = newcomer(addrs[2], &addrs[1..2]);
    let open = doctor(&bench, &settings);
    assert_eq!(open.verdict["gets_in"], true, "{open}");
    let admits = proxy.at.to_string();
    proxy.close();
    let closed = doctor(&bench, &settings);
    assert_eq!(closed.failed("nobody-listens")["subject"], admits, "{closed}");
    assert_eq!(
        (closed.code, &closed.verdict["gets_in"]),
        (Some(1), &false.into()),
        "{closed}"
    );
    let text = closed.verdict["text"].as_str().unwrap();
    assert!(
        text.contains(&format!("a at {admits}, which admits nodes")),
        "{closed}"
    );
}

#[test]
fn the_one_that_admits_nodes_must_answer_where_it_is_asked_for_that() {
    let bench = Bench::new();
    let addrs = free_addrs(4);
    let [bind, closed, second, new] = addrs[..] else {
        panic!()
    };
    let proxy = Proxy::to(bind);
    let a = bench.node("a", bind, &format!("--advertise {closed} --found"));
    a.view_of(1);
    // It answers by the proxy, and is asked in vain at the address that it advertises.
    for seed in [proxy.at.to_string(), format!("{closed}/{}", proxy.at)] {
        let settings = format!("--cluster tea --name new --bind {new} --seeds {seed} --profile local");
        let told = doctor(&bench, &settings);
        assert_eq!(told.failed("nobody-listens")["subject"], closed.to_string());
        assert_eq!(told.verdict["gets_in"], false, "{told}");
        let text = told.verdict["text"].as_str().unwrap();
        assert!(text.contains(&format!("a at {closed}, which admits")), "{told}");
    }
    a.leave();
    // One of its own two addresses is closed: a node gets in if its seed names both, as the doctor says.
    let two = format!("--bind {second} --advertise {closed} --advertise {second} --found");
    let a = bench.node("a", bind, &two);
    a.view_of(1);
    for (seed, gets_in) in [(format!("{closed}/{second}"), true), (second.to_string(), false)] {
        let settings = format!("--cluster tea --name new --bind {new} --seeds {seed} --profile local");
        let told = doctor(&bench, &settings);
        assert_eq!(told.verdict["gets_in"], gets_in, "{told}");
    }
    let joins = bench.node("new", new, &format!("--seeds {closed}/{second}"));
    joins.view_of(2);
}

#[test]
fn a_seed_that_is_listed_twice_is_one_seed() {
    let bench = Bench::new();
    let addrs = free_addrs(2);
    let twice = [addrs[0], addrs[0], addrs[1], addrs[1]];
    let _waits = bench.node("y", addrs[1], &format!("--seeds {}", list(&twice)));
    let told = doctor(&bench, &newcomer(addrs[0], &twice));
    assert_eq!(
        (told.code, &told.verdict["gets_in"]),
        (Some(0), &true.into()),
        "{told}"
    );
    let text = told.verdict["text"].as_str().unwrap();
    assert!(text.contains("2 of 2 seeds are ready"), "{told}");
    let reached = told.steps.iter().filter(|step| step["step"] == "reach");
    assert_eq!(reached.count(), 1, "{told}");
}

#[test]
fn what_else_ends_a_node_at_its_start_is_found() {
    let bench = Bench::new();
    let console = bench.directory.join("mine.sock");
    let has_it = format!("--console {}", console.display());
    let node = bench.node("a", free_addrs(1)[0], &has_it);
    node.view_of(1);
    let file = bench.directory.join("agent.toml");
    let settings = format!("--cluster coffee --name n --bind {} --found", free_addrs(1)[0]);
    for (given, code) in [
        ("--console /nodir/c.sock".to_owned(), "console"),
        (has_it.clone(), "console"),
        (
            "--dissemination multicast --multicast-interface 10.9.9.9 --insecure".to_owned(),
            "multicast",
        ),
    ] {
        let told = doctor(&bench, &format!("{settings} {given}"));
        assert_eq!(told.failures(), [code], "{told}");
        assert_eq!(
            (told.code, &told.verdict["gets_in"]),
            (Some(1), &false.into()),
            "{told}"
        );
        assert!(
            told.verdict["text"].as_str().unwrap().contains("ends at once"),
            "{told}"
        );
    }
    // To try it left no trace: the node has its console still, and a free place is free.
    assert_eq!(bench.json(&format!("members {has_it}"))["node"], "a");
    let free = bench.directory.join("free.sock");
    let socket = bench.directory.join("agent.sock");
    std::fs::write(
        &file,
        format!("listen = [\"127.0.0.1:0\"]\nsocket = \"{}\"\n", socket.display()),
    )
    .unwrap();
    let told = doctor(
        &bench,
        &format!(
            "{settings} --config {} --console {}",
            file.display(),
            free.display()
        ),
    );
    assert_eq!(told.failures(), [""; 0], "{told}");
    told.step("agent", "ok");
    assert!(!exists(&free) && !exists(&socket));
}

#[test]
fn what_an_agent_alone_would_open_keeps_no_node_out() {
    let bench = Bench::new();
    let file = bench.directory.join("agent.toml");
    let text = "listen = [\"10.1.2.3:7480\"]\nsocket = \"/run/antiphon-no-such/agent.sock\"\n";
    std::fs::write(&file, text).unwrap();
    let settings = format!(
        "--cluster tea --name n --bind {} --found --config {}",
        free_addrs(1)[0],
        file.display()
    );
    let told = doctor(&bench, &settings);
    let step = told.step("agent", "warning");
    assert_eq!(step["code"], "agent", "{told}");
    assert!(
        step["remedy"].as_str().unwrap().contains("`antiphon node`"),
        "{told}"
    );
    assert_eq!(
        (told.code, &told.verdict["gets_in"]),
        (Some(0), &true.into()),
        "{told}"
    );
    // The environment of an agent wins over its file.
    let socket = bench.directory.join("agent.sock");
    let socket = socket.to_str().unwrap();
    let environment = [("ANTIPHON_LISTEN", "127.0.0.1:0"), ("ANTIPHON_SOCKET", socket)];
    let told = doctor_with(&bench, &environment, &settings);
    told.step("agent", "ok");
    let told = doctor_with(&bench, &environment[..1], &settings);
    let text = told.step("agent", "warning")["text"].as_str().unwrap();
    assert!(text.contains("/run/antiphon-no-such/agent.sock"), "{told}");
    // Without a file, too; and what an agent does not even read is said.
    for (environment, outcome) in [
        ([("ANTIPHON_LISTEN", "127.0.0.1:0")], "ok"),
        ([("ANTIPHON_LISTEN", "10.1.2.3:7480")], "warning"),
        ([("ANTIPHON_SOCKET", "")], "warning"),
    ] {
        let addr = free_addrs(1)[0];
        let found = format!("--cluster tea --name n --bind {addr} --found");
        let told = doctor_with(&bench, &environment, &found);
        told.step("agent", outcome);
        assert_eq!(told.verdict["gets_in"], true, "{told}");
    }
}

#[test]
fn a_directory_that_a_service_manager_makes_may_be_missing_while_the_service_is_stopped() {
    let bench = Bench::new();
    let settings = format!("--cluster tea --name n --bind {} --found", free_addrs(1)[0]);
    let told = doctor(
        &bench,
        &format!("{settings} --console /run/antiphon-no-such/console.sock"),
    );
    let step = told.step("console", "warning");
    assert_eq!(step["code"], "console", "{told}");
    assert!(
        step["remedy"]
            .as_str()
            .unwrap()
            .contains("only while the service runs"),
        "{told}"
    );
    assert_eq!(
        (told.code, &told.verdict["gets_in"]),
        (Some(0), &true.into()),
        "{told}"
    );
}

#[test]
fn whether_nodes_that_only_multicast_finds_are_there_is_not_known() {
    let bench = Bench::new();
    let settings = format!(
        "--cluster tea --name c --bind {} --seeds multicast@127.0.0.1",
        free_addrs(1)[0]
    );
    for expect in ["", "--expect 2"] {
        let told = doctor(&bench, &format!("{settings} {expect}"));
        assert_eq!(told.failures(), [""; 0], "{told}");
        assert_eq!(
            (told.code, &told.verdict["gets_in"]),
            (Some(0), &Value::Null),
            "{told}"
        );
        let text = told.verdict["text"].as_str().unwrap();
        assert!(
            text.contains("multicast@127.0.0.1") && text.contains("`discovery` lines"),
            "{told}"
        );
        assert!(!text.contains("start the others"), "{told}");
    }
}

#[test]
fn a_member_without_a_majority_is_not_told_to_found_a_cluster() {
    let bench = Bench::new();
    let (nodes, addrs) = bench.cluster(3);
    for silent in &nodes[1..] {
        silent.signal(Signal::STOP);
    }
    bench.until("members --node a", |answer| answer["state"] == "non-primary");
    let told = doctor(
        &bench,
        &format!(
            "--cluster tea --name a --bind {} --seeds {} --profile local",
            addrs[0],
            list(&addrs)
        ),
    );
    told.failed("no-majority");
    assert_eq!(
        (told.code, &told.verdict["gets_in"]),
        (Some(1), &false.into()),
        "{told}"
    );
    let text = told.verdict["text"].as_str().unwrap();
    assert!(
        text.contains("hears no majority") && text.contains("antiphon recover"),
        "{told}"
    );
    assert!(!text.contains("start the others"), "{told}");
    for silent in &nodes[1..] {
        silent.signal(Signal::CONT);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_node_that_is_stopped_is_to_be_continued_and_not_to_be_ended() {
    let bench = Bench::new();
    let elsewhere = format!("--console {}", bench.directory.join("own.sock").display());
    for (console, addr) in ["", elsewhere.as_str()].into_iter().zip(free_addrs(2)) {
        let node = bench.node("a", addr, console);
        node.view_of(1);
        node.signal(Signal::STOP);
        let settings = format!("--cluster tea --name a --bind {addr} --profile local {console}");
        let told = doctor(&bench, &settings);
        assert_eq!(told.failures(), ["node-stopped"], "{told}");
        let bind = told.step("bind", "skipped");
        assert_eq!(bind["subject"], addr.to_string(), "{told}");
        assert!(
            bind["text"].as_str().unwrap().contains("this very node"),
            "{told}"
        );
        assert_eq!(
            (told.code, &told.verdict["gets_in"]),
            (Some(1), &false.into()),
            "{told}"
        );
        let text = told.verdict["text"].as_str().unwrap();
        assert!(text.contains("runs and does not answer"), "{told}");
        node.signal(Signal::CONT);
        node.leave();
    }
}

#[test]
fn founders_of_one_name_are_told_to_take_different_names() {
    let bench = Bench::new();
    let addrs = free_addrs(3);
    let seeds = format!("--seeds {}", list(&addrs));
    let _founders = [
        bench.node("a", addrs[0], &seeds),
        bench.node("a", addrs[1], &seeds),
    ];
    let settings = format!(
        "--cluster tea --name a --bind {} {seeds} --profile local",
        addrs[2]
    );
    let told = doctor(&bench, &settings);
    assert_eq!(told.verdict["gets_in"], false, "{told}");
    let text = told.verdict["text"].as_str().unwrap();
    assert!(
        text.contains("called a count as one: give them different names"),
        "{told}"
    );
}

#[test]
fn nodes_of_the_cluster_with_another_profile_are_warned_of() {
    let bench = Bench::new();
    let (_nodes, addrs) = bench.cluster(2);
    let other = bench.node("x", free_addrs(1)[0], "--cluster coffee");
    other.view_of(1);
    let settings = format!(
        "--cluster tea --name new --bind {} --seeds {}",
        free_addrs(1)[0],
        list(&addrs)
    );
    let told = doctor(&bench, &settings);
    let text = told.step("profile", "warning")["text"].as_str().unwrap();
    assert!(
        text.contains("a, b of this cluster") && text.contains("profile local") && text.contains("say lan"),
        "{told}"
    );
    assert_eq!(told.code, Some(0), "{told}");
    let told = doctor(&bench, &format!("{settings} --profile local"));
    let mut steps = told.steps.iter();
    assert!(steps.all(|step| step["step"] != "profile"), "{told}");
}

#[test]
fn help_says_what_within_does_not_bound() {
    let help = Bench::new().text("doctor --help");
    let words: Vec<&str> = help.split_whitespace().collect();
    assert!(
        words.join(" ").contains("sources have six seconds of their own"),
        "{help}"
    );
}

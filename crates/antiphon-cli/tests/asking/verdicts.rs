//! What `antiphon doctor` must not promise, and whom it must not blame.

use super::common::{Bench, Proxy, exists, free_addrs, list};
use super::doctor::{doctor, locator, newcomer};

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
    let text = "listen = [\"10.1.2.3:7480\"]\ntoken-file = \"/nonexistent\"\n";
    std::fs::write(&file, text).unwrap();
    let settings = format!("--cluster coffee --name n --bind {} --found", free_addrs(1)[0]);
    for (given, code) in [
        ("--console /nodir/c.sock".to_owned(), "console"),
        (has_it.clone(), "console"),
        (
            "--dissemination multicast --multicast-interface 10.9.9.9 --insecure".to_owned(),
            "multicast",
        ),
        (format!("--config {}", file.display()), "agent"),
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
    assert!(!exists(&free) && !exists(&socket));
}

//! What `antiphon doctor` must not promise, and whom it must not blame.

use super::common::{Bench, free_addrs, list};
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

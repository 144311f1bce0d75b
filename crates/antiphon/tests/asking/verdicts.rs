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

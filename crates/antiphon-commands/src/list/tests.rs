//! Lists that are right and lists that are not.

use super::*;

const LIST: &str = r#"
    version = 3
    [[verb]]
    name = "cache.flush"
    from = ["a", "b"]
    to = "all"
    deliver = { program = ["/bin/echo", "--key", { arg = "key" }] }
    within = "2s"
    args.key = { type = "text", max-bytes = 8 }
    args.depth = { type = "integer", min = 0, max = 10, default = 1 }
    args.how = { type = "choice", of = ["soft", "hard"], optional = true }
    args.now = { type = "boolean", optional = true }
"#;

/// With a program that this host has.
#[test]
fn the_list_of_the_documentation_is_one() {
    let page = include_str!("mod.rs")
        .lines()
        .map_while(|line| line.strip_prefix("//!"));
    let block = page.skip_while(|line| *line != " ```toml").skip(1);
    let block: Vec<_> = block.take_while(|line| *line != " ```").collect();
    let list = List::parse(&block.join("\n").replace("/usr/local/bin/flush", "/bin/echo")).unwrap();
    assert_eq!(list.verb("cache.flush").unwrap().args.len(), 2);
}

fn args(json: &str) -> Args {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_command_is_allowed_with_its_arguments_from_its_nodes_to_its_nodes() {
    let list = List::parse(LIST).unwrap();
    let mut given = args(r#"{"key":"x"}"#);
    let verb = list.check("a", "z", "cache.flush", &mut given).unwrap();
    assert_eq!(verb.within, Duration::from_secs(2));
    assert_eq!(given, args(r#"{"key":"x","depth":1}"#));
    for (from, verb, json, refusal) in [
        (
            "c",
            "cache.flush",
            r#"{"key":"x"}"#,
            "c is not among the nodes that may ask",
        ),
        ("a", "cache.flusj", r#"{"key":"x"}"#, "no verb cache.flusj"),
        ("a", "cache.flush", "{}", "lacks its argument key"),
        ("a", "cache.flush", r#"{"key":"123456789"}"#, "at most 8 bytes"),
        ("a", "cache.flush", r#"{"key":"a\nb"}"#, "control"),
        ("a", "cache.flush", r#"{"key":"-rf"}"#, "does not begin with `-`"),
        ("a", "cache.flush", r#"{"key":"\u0000"}"#, "control"),
        ("a", "cache.flush", r#"{"key":7}"#, "a text"),
        ("a", "cache.flush", r#"{"key":"x","depth":11}"#, "from 0 to 10"),
        ("a", "cache.flush", r#"{"key":"x","depth":"1"}"#, "whole number"),
        ("a", "cache.flush", r#"{"key":"x","how":"mild"}"#, "soft, hard"),
        ("a", "cache.flush", r#"{"key":"x","now":1}"#, "true or false"),
        (
            "a",
            "cache.flush",
            r#"{"key":"x","more":1}"#,
            "no argument more; it has: depth, how, key, now",
        ),
    ] {
        let refused = list
            .check(from, "z", verb, &mut args(json))
            .unwrap_err()
            .to_string();
        assert!(refused.contains(refusal), "{json}: {refused}");
    }
}

#[test]
fn only_nodes_that_the_list_names_are_asked() {
    let text = LIST.replace(r#"to = "all""#, r#"to = ["z"]"#);
    let list = List::parse(&text).unwrap();
    let mut given = args(r#"{"key":"x"}"#);
    assert!(list.check("a", "z", "cache.flush", &mut given).is_ok());
    let refused = list.check("a", "y", "cache.flush", &mut given);
    assert_eq!(refused, Err(Refusal::To("y".to_owned())));
}

#[test]
fn a_list_that_is_not_right_is_refused_with_the_place_and_the_reason() {
    for (from, to, expected) in [
        ("version = 3", "", "version"),
        ("version = 3", "version = 3\nverbs = 1", "verbs"),
        ("cache.flush", "cache flush", "letters"),
        ("/bin/echo", "echo", "absolute path"),
        (
            "/bin/echo",
            "/bin/no-such-program",
            "/bin/no-such-program is no file",
        ),
        ("/bin/echo", "/bin/sh", "name the program itself"),
        (r#"{ arg = "key" }"#, r#"{ arg = "how" }"#, "give it a default"),
        (r#"{ arg = "key" }"#, r#"{ arg = "kay" }"#, "takes kay"),
        (r#"from = ["a", "b"]"#, "from = []", "at least one name"),
        (r#"from = ["a", "b"]"#, "", "from"),
        (r#"from = ["a", "b"]"#, r#"from = "any""#, "\"all\" or a list"),
        ("max-bytes = 8", "max-bytes = 999999", "at most 16384"),
        (", max-bytes = 8", "", "max-bytes is missing"),
        ("min = 0", "min = 11", "min is above max"),
        (
            "default = 1",
            "default = 99",
            "its default: expected a whole number from 0 to 10",
        ),
        (
            r#"type = "boolean""#,
            r#"type = "boolean", min = 1"#,
            "min is not for this type",
        ),
        (r#"within = "2s""#, r#"within = "2""#, "such as 250ms"),
        (r#"within = "2s""#, r#"within = "99m""#, "at most 10m"),
        (
            r#"{ program = ["/bin/echo", "--key", { arg = "key" }] }"#,
            r#"{ hook = "http://example.com/x" }"#,
            "loopback",
        ),
        (
            r#"{ program = ["/bin/echo", "--key", { arg = "key" }] }"#,
            r#"{ hook = "http://192.0.2.1:80/x" }"#,
            "loopback",
        ),
        (
            r#"{ program = ["/bin/echo", "--key", { arg = "key" }] }"#,
            r#"{ shell = "echo" }"#,
            "shell",
        ),
        (
            r#"{ program = ["/bin/echo", "--key", { arg = "key" }] }"#,
            r#"{ node = "leave" }"#,
            "name in `to`",
        ),
    ] {
        assert!(LIST.contains(from), "{from}");
        let refused = List::parse(&LIST.replace(from, to)).unwrap_err().to_string();
        assert!(refused.contains(expected), "{to}: {refused}");
    }
    let twice = format!("{LIST}{}", &LIST[LIST.find("[[verb]]").unwrap()..]);
    assert!(List::parse(&twice).unwrap_err().to_string().contains("twice"));
}

#[test]
fn a_default_that_a_program_would_take_for_an_option_is_refused_with_the_list() {
    let list = LIST.replace("max-bytes = 8", r#"max-bytes = 8, default = "-x""#);
    let refused = List::parse(&list).unwrap_err().to_string();
    assert!(
        refused.contains("argument key: its default: expected what does not begin with `-`"),
        "{refused}"
    );
    // The program does not take this argument.
    let list = LIST.replace("min = 0", "min = -3");
    assert!(List::parse(&list.replace("default = 1", "default = -3")).is_ok());
}

#[test]
fn a_key_that_was_given_in_place_of_a_list_is_not_shown() {
    let key = "ab12".repeat(16);
    let refused = List::parse(&key).unwrap_err().to_string();
    assert!(
        refused.contains("line 1") && !refused.contains("ab12"),
        "{refused}"
    );
}

#[test]
fn a_list_of_no_verbs_allows_nothing() {
    let list = List::parse("version = 1").unwrap();
    let refused = list.check("a", "b", "node.leave", &mut Args::new());
    assert_eq!(refused, Err(Refusal::Verb("node.leave".to_owned())));
}

#[test]
fn a_file_is_trusted_if_nobody_but_this_user_and_root_can_write_it() {
    let (root, us, other) = (0, 1000, 1001);
    for (owner, mode, expected) in [
        (us, 0o100_600, "trusted"),
        (us, 0o100_755, "trusted"),
        (root, 0o100_644, "trusted"),
        (us, 0o100_664, "can be written by others"),
        (root, 0o100_646, "can be written by others"),
        (other, 0o100_644, "belongs to another user"),
        (other, 0o100_400, "belongs to another user"),
    ] {
        let said = may_be_trusted(owner, mode, us).err().unwrap_or("trusted");
        assert!(said.contains(expected), "{mode:o} of {owner}: {said}");
    }
    // Root, too, runs nothing that another user can write.
    assert!(may_be_trusted(us, 0o100_755, root).is_err());
}

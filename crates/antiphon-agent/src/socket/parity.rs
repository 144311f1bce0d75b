//! Which commands of JSON lines HTTP and RESP have, too. A new command is missing here until somebody decides
//! that for both of them; what one of them lacks stands on its page.

use std::collections::BTreeSet;

use antiphon_api::Command;

use super::{http, resp};

/// What a command is elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// A route, or a command of RESP.
    As(&'static str),
    /// Not there: its page says so.
    Not,
    /// No command of a client: for the node's own program alone.
    Own,
}
use Is::{As, Not, Own};

/// Of each command its word, its HTTP route and its command of RESP.
const COMMANDS: &[(&str, Is, Is)] = &[
    ("send", As("POST /v1/groups/{group}/messages"), As("ap.send")),
    ("send_bundle", Not, Not),
    ("tell", Own, Own),
    ("fault", Own, Own),
    ("lock", As("POST /v1/locks/{lock}"), As("ap.lock")),
    ("unlock", As("DELETE /v1/locks/{lock}"), As("ap.unlock")),
    ("lead", Not, As("ap.lead")),
    ("resign", Not, As("ap.resign")),
    ("put", As("PUT /v1/maps/{map}/{key}"), As("ap.put")),
    ("get", As("GET /v1/maps/{map}/{key}"), As("ap.get")),
    ("remove", As("DELETE /v1/maps/{map}/{key}"), As("ap.remove")),
    ("watch", As("GET /v1/maps/{map}/events"), Not),
    ("add", As("POST /v1/counters/{counter}"), As("incrby")),
    ("take_ids", As("POST /v1/ids"), Not),
    // They are asked at any time, which a request does not do.
    ("serve", Not, As("ap.serve")),
    ("answer", Not, As("ap.answer")),
    ("call", As("POST /v1/calls/{group}/{verb}"), As("ap.call")),
    ("command", As("POST /v1/commands/{verb}"), As("ap.command")),
    ("serve_command", Not, Not),
    ("commands", As("GET /v1/commands"), As("ap.commands")),
    // The end of the connection cancels what it waits for.
    ("cancel", Not, Not),
    ("why", As("GET /v1/why/{node}"), As("ap.why")),
    ("members", As("GET /v1/members"), As("ap.members")),
    // `join` has the name, and the end of its answer is `leave`.
    ("hello", Not, As("ap.hello")),
    ("join", As("GET /v1/groups/{group}/events"), As("ap.join")),
    ("leave", Not, As("ap.leave")),
    // A client comes back by lines and text messages alone.
    ("took", Not, Not),
];

/// The words of all commands, as the error about another one lists them.
fn words() -> BTreeSet<String> {
    let error = serde_json::from_str::<Command>("{\"\":{}}")
        .unwrap_err()
        .to_string();
    let (_, all) = error.split_once("expected one of ").unwrap();
    all.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The commands that a page says are not there.
fn told(page: &str) -> BTreeSet<String> {
    let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut paragraphs = text.split("\n\n");
    let not_here = paragraphs.find(|paragraph| paragraph.starts_with("Not here, but in JSON lines"));
    let words = not_here.unwrap().split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

#[test]
fn each_command_is_in_http_and_in_resp_or_their_pages_say_that_it_is_not() {
    let listed: BTreeSet<String> = COMMANDS.iter().map(|(word, ..)| (*word).to_owned()).collect();
    assert_eq!(listed, words());
    for (word, in_http, in_resp) in COMMANDS {
        if let As(route) = in_http {
            let (method, path) = route.split_once(' ').unwrap();
            assert!(http::has(method, path), "{word}: {route}");
        }
        if let As(command) = in_resp {
            assert!(resp::has(command), "{word}: {command}");
        }
    }
    let lacking = |of: fn(&(&str, Is, Is)) -> Is| -> BTreeSet<String> {
        let lacking = COMMANDS.iter().filter(|command| of(command) == Not);
        lacking.map(|(word, ..)| (*word).to_owned()).collect()
    };
    assert_eq!(told("http.md"), lacking(|(_, in_http, _)| *in_http));
    assert_eq!(told("resp.md"), lacking(|(.., in_resp)| *in_resp));
}

//! Each line as programs in other languages see it.

use super::*;

/// Checks that the line is written as the text and read back as itself.
#[track_caller]
fn golden(line: Line, text: &str) {
    assert_eq!(line.to_json(), text);
    let event = serde_json::from_str::<serde_json::Value>(text).unwrap()["event"].clone();
    let mut named = crate::args::JSON_HELP.split([' ', ',', '\n']);
    assert!(
        named.any(|word| event == word),
        "`antiphon node --help` does not name {event}"
    );
    assert_eq!(serde_json::from_str::<Line>(text).unwrap(), line);
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_shapes_that_programs_in_other_languages_rely_on_do_not_change() {
    golden(
        Line::Ready {
            name: "a".into(),
            addr: "127.0.0.1:7400".into(),
            further: vec![],
            incarnation: "00ff".into(),
        },
        r#"{"event":"ready","name":"a","addr":"127.0.0.1:7400","incarnation":"00ff"}"#,
    );
    golden(
        Line::Multicast {
            peer: "b".into(),
            hears: false,
        },
        r#"{"event":"multicast","peer":"b","hears":false}"#,
    );
    golden(
        Line::Starved {
            missed_ms: 2900,
            within_ms: 3100,
        },
        r#"{"event":"starved","missed_ms":2900,"within_ms":3100}"#,
    );
    golden(Line::Lease { held: false }, r#"{"event":"lease","held":false}"#);
    golden(
        Line::Path {
            peer: "c".into(),
            through: Some("b".into()),
            hears: true,
            heard: false,
        },
        r#"{"event":"path","peer":"c","through":"b","hears":true,"heard":false}"#,
    );
    golden(
        Line::Link {
            peer: "b".into(),
            number: 0,
            cause: "silent".into(),
            links: vec![
                LinkLine {
                    addr: "10.0.0.2:7400".into(),
                    up: false,
                },
                LinkLine {
                    addr: "[fd00::2]:7400".into(),
                    up: true,
                },
            ],
            in_use: 1,
        },
        r#"{"event":"link","peer":"b","number":0,"cause":"silent","links":[{"addr":"10.0.0.2:7400","up":false},{"addr":"[fd00::2]:7400","up":true}],"in_use":1}"#,
    );
    golden(
        Line::NodeView {
            id: ViewName::Primary(57301),
            number: 57301,
            primary: true,
            members: vec![MemberLine {
                name: "b".into(),
                incarnation: "0a".into(),
                addr: "[::1]:1".into(),
                further: names(&["127.0.0.1:1"]),
                metadata: BTreeMap::from([("role".into(), "db".into())]),
            }],
            joined: names(&["b"]),
            left: names(&["c"]),
            crashed: vec![CrashLine {
                name: "a".into(),
                cause: "crashed".into(),
                accusers: names(&["b"]),
                evidence: "b: its process ended".into(),
                before_ms: 3,
            }],
        },
        r#"{"event":"node_view","id":57301,"number":57301,"primary":true,"members":[{"name":"b","incarnation":"0a","addr":"[::1]:1","further":["127.0.0.1:1"],"metadata":{"role":"db"}}],"joined":["b"],"left":["c"],"crashed":[{"name":"a","cause":"crashed","accusers":["b"],"evidence":"b: its process ended","before_ms":3}]}"#,
    );
    golden(
        Line::NodeView {
            id: ViewName::NonPrimary("57301-1@ab12cd34".into()),
            number: 57301,
            primary: false,
            members: vec![],
            joined: vec![],
            left: vec![],
            crashed: vec![],
        },
        r#"{"event":"node_view","id":"57301-1@ab12cd34","number":57301,"primary":false,"members":[],"joined":[],"left":[],"crashed":[]}"#,
    );
    golden(
        Line::View {
            group: "g".into(),
            id: "57301.2".into(),
            members: names(&["a", "b"]),
            joined: names(&["b"]),
            left: vec![],
            crashed: names(&["c"]),
            causes: BTreeMap::new(),
            transitional: names(&["a"]),
            primary: true,
        },
        r#"{"event":"view","group":"g","id":"57301.2","members":["a","b"],"joined":["b"],"left":[],"crashed":["c"],"transitional":["a"],"primary":true}"#,
    );
    golden(
        Line::View {
            group: "g".into(),
            id: "57301.3".into(),
            members: names(&["a"]),
            joined: vec![],
            left: vec![],
            crashed: names(&["b"]),
            causes: BTreeMap::from([("b".into(), "slow: why".into())]),
            transitional: names(&["a"]),
            primary: true,
        },
        r#"{"event":"view","group":"g","id":"57301.3","members":["a"],"joined":[],"left":[],"crashed":["b"],"causes":{"b":"slow: why"},"transitional":["a"],"primary":true}"#,
    );
    golden(
        Line::Message {
            group: "g".into(),
            view: "57301.2".into(),
            sender: "a".into(),
            seq: 7,
            payload: Payload::Text("hi".into()),
            safe: false,
            scope: None,
        },
        r#"{"event":"message","group":"g","view":"57301.2","sender":"a","seq":7,"payload":"hi"}"#,
    );
    golden(
        Line::Message {
            group: "g".into(),
            view: "57301.2".into(),
            sender: "a".into(),
            seq: 8,
            payload: Payload::Text("hi".into()),
            safe: true,
            scope: Some(17),
        },
        r#"{"event":"message","group":"g","view":"57301.2","sender":"a","seq":8,"payload":"hi","safe":true,"scope":17}"#,
    );
    golden(
        Line::Resync {
            group: "g".into(),
            cause: "merged".into(),
        },
        r#"{"event":"resync","group":"g","cause":"merged"}"#,
    );
    golden(
        Line::Expelled {
            cause: "silent".into(),
        },
        r#"{"event":"expelled","cause":"silent"}"#,
    );
    golden(
        Line::Forming {
            missing: names(&["127.0.0.1:1"]),
            present: Some(1),
            needed: Some(2),
            reason: None,
        },
        r#"{"event":"forming","missing":["127.0.0.1:1"],"present":1,"needed":2}"#,
    );
    golden(
        Line::Forming {
            missing: names(&["127.0.0.1:1"]),
            present: None,
            needed: None,
            reason: Some("why".into()),
        },
        r#"{"event":"forming","missing":["127.0.0.1:1"],"reason":"why"}"#,
    );
    golden(
        Line::Refused {
            group: Some("g".into()),
            reason: "order differs".into(),
            fatal: false,
            request: None,
        },
        r#"{"event":"refused","group":"g","reason":"order differs","fatal":false}"#,
    );
    golden(
        Line::Refused {
            group: None,
            reason: "the name is taken".into(),
            fatal: true,
            request: None,
        },
        r#"{"event":"refused","group":null,"reason":"the name is taken","fatal":true}"#,
    );
    golden(
        Line::Refused {
            group: Some("g".into()),
            reason: "not primary: wait".into(),
            fatal: false,
            request: Some(serde_json::json!({"send": {"group": "g", "payload": "x"}})),
        },
        r#"{"event":"refused","group":"g","reason":"not primary: wait","fatal":false,"request":{"send":{"group":"g","payload":"x"}}}"#,
    );
    golden(Line::Left, r#"{"event":"left"}"#);
}

#[test]
fn the_extra_events_keep_their_shapes_too() {
    golden(
        Line::Incarnation {
            incarnation: "0b".into(),
        },
        r#"{"event":"incarnation","incarnation":"0b"}"#,
    );
    golden(
        Line::Suspended { group: "g".into() },
        r#"{"event":"suspended","group":"g"}"#,
    );
    golden(
        Line::Transitional {
            group: "g".into(),
            members: names(&["a"]),
        },
        r#"{"event":"transitional","group":"g","members":["a"]}"#,
    );
    golden(
        Line::Receipt {
            group: "g".into(),
            ticket: 3,
            outcome: "not_delivered".into(),
        },
        r#"{"event":"receipt","group":"g","ticket":3,"outcome":"not_delivered"}"#,
    );
    golden(
        Line::GroupLeft { group: "g".into() },
        r#"{"event":"group_left","group":"g"}"#,
    );
    golden(
        Line::Why {
            node: "a".into(),
            facts: names(&["joined"]),
        },
        r#"{"event":"why","node":"a","facts":["joined"]}"#,
    );
    golden(
        Line::Error {
            reason: "no".into(),
            request: serde_json::json!({"leave": {}}),
        },
        r#"{"event":"error","reason":"no","request":{"leave":{}}}"#,
    );
}

#[test]
fn payloads_that_are_not_utf8_survive_both_ways() {
    let bytes = [0xff, 0x00, 0xfe];
    let payload = Payload::from_bytes(&bytes);
    assert_eq!(serde_json::to_string(&payload).unwrap(), r#"{"base64":"/wD+"}"#);
    assert_eq!(&payload.into_bytes().unwrap()[..], &bytes);
    assert_eq!(
        Payload::from_bytes("grüße".as_bytes()),
        Payload::Text("grüße".into())
    );
}

#[test]
fn every_request_of_the_documentation_is_understood() {
    let send = Request::parse(r#"{"send":{"group":"g","payload":"x"}}"#).unwrap();
    assert_eq!(
        send,
        Request::Send(SendRequest {
            group: Some("g".into()),
            payload: Payload::Text("x".into()),
            safe: false,
            scope: None,
        })
    );
    assert_eq!(send.to_json(), r#"{"send":{"group":"g","payload":"x"}}"#);
    let text = r#"{"send":{"payload":"x","safe":true}}"#;
    let safe = Request::parse(text).unwrap();
    assert!(matches!(safe, Request::Send(SendRequest { safe: true, .. })));
    assert_eq!(safe.to_json(), text);
    assert!(matches!(
        Request::parse(r#"{"send":{"payload":{"base64":"AA=="}}}"#).unwrap(),
        Request::Send(SendRequest {
            group: None,
            payload: Payload::Binary { .. },
            safe: false,
            scope: None,
        })
    ));
    let text = r#"{"send":{"group":"g","payload":{"file":"/tmp/x"}}}"#;
    let from_file = Request::parse(text).unwrap();
    assert!(matches!(
        &from_file,
        Request::Send(SendRequest {
            payload: Payload::File { file, bytes: None },
            ..
        }) if file == "/tmp/x"
    ));
    assert_eq!(from_file.to_json(), text);
    assert_eq!(
        Request::parse(r#"{"fault":{"block":["a","b"]}}"#).unwrap(),
        Request::Fault(FaultRequest {
            block: names(&["a", "b"])
        })
    );
    assert_eq!(
        Request::parse(r#"{"fault":{}}"#).unwrap(),
        Request::Fault(FaultRequest::default())
    );
    assert_eq!(
        Request::parse(r#"{"why":{"node":"a"}}"#).unwrap(),
        Request::Why(WhyRequest { node: "a".into() })
    );
    assert_eq!(
        Request::parse(r#" {"leave":{}} "#).unwrap(),
        Request::Leave(LeaveRequest {})
    );
}

#[test]
fn a_line_that_makes_no_sense_is_answered_with_the_reason_and_the_line() {
    for (line, expected) in [
        ("hello", "not JSON"),
        (r#"{"send":{"grp":"g","payload":"x"}}"#, "grp"),
        (r#"{"send":{"group":"g"}}"#, "payload"),
        (
            r#"{"send":{"group":"g","payload":7}}"#,
            "payload must be a string",
        ),
        (r#"{"sned":{}}"#, "sned"),
        (r#"{"leave":{},"why":{"node":"a"}}"#, "expected"),
        ("[]", "expected"),
        ("7", "expected"),
    ] {
        match Request::parse(line).map_err(|line| *line) {
            Err(Line::Error { reason, .. }) => assert!(reason.contains(expected), "{line}: {reason}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn an_endless_line_is_echoed_only_in_part() {
    let line = "ä".repeat(10_000);
    match Request::parse(&line).map_err(|line| *line) {
        Err(Line::Error {
            request: serde_json::Value::String(text),
            ..
        }) => {
            assert_eq!(text.chars().count(), 201);
        }
        other => panic!("{other:?}"),
    }
}

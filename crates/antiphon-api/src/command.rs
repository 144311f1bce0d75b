//! What a program tells its node to do: one JSON object a line.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mistake::{self, EXAMPLE};
use crate::{Event, Payload, Payloads, blocks, commands};

/// The longest line of a command, in bytes, without its end.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// One line of stdin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Send a message.
    Send(Send),
    /// Send several messages together.
    SendBundle(SendBundle),
    /// Tell one member of a group something.
    Tell(Tell),
    /// Cut this node off from others, or heal it (with `--allow-faults`).
    Fault(Fault),
    /// Acquire a lock.
    Lock(blocks::Lock),
    /// Give a lock back.
    Unlock(blocks::Unlock),
    /// Lead a job.
    Lead(blocks::Lead),
    /// Lead a job no more.
    Resign(blocks::Resign),
    /// Write into a map.
    Put(blocks::Put),
    /// Read from a map.
    Get(blocks::Get),
    /// Remove from a map.
    Remove(blocks::Remove),
    /// Tell how a map changes.
    Watch(blocks::Watch),
    /// Add to a counter.
    Add(blocks::Add),
    /// Take ids that no other client is given.
    TakeIds(blocks::TakeIds),
    /// Serve requests.
    Serve(blocks::Serve),
    /// Answer a request.
    Answer(blocks::Answer),
    /// Call members.
    Call(blocks::Call),
    /// Ask peers to do what their lists allow.
    Command(commands::Ask),
    /// Serve what peers ask.
    ServeCommand(commands::Serve),
    /// Tell what commands to peers did.
    Commands(commands::AskStatus),
    /// End an operation that waits, or a watch.
    Cancel(blocks::Cancel),
    /// Tell what is known about a node.
    Why(AskWhy),
    /// Tell which nodes are in the cluster.
    Members(Members),
    /// Take a name as a client.
    Hello(Hello),
    /// Join a group of clients.
    Join(Join),
    /// Leave a group of clients; or all of them, in order, and end.
    Leave(Leave),
    /// What a client that may come back has taken.
    Took(Took),
}

/// `{"send":{"group":G,"payload":P,"safe":true,"scope":S}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// The group's name; the first group if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What to say.
    pub payload: Payload,
    /// Deliver it only when every member of the view holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe: bool,
    /// In a scoped group, what it is about: its number, or a name of which one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeName>,
    /// In a group of clients: for a reply when it is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<blocks::Id>,
}

/// `{"send_bundle":{"group":G,"payloads":[P,…],"safe":true}}`: several messages of a client that are
/// delivered together, in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendBundle {
    /// The group's name; the only group if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What to say.
    pub payloads: Payloads,
    /// Deliver them only when every node of the group holds them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe: bool,
    /// For a reply when they are delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<blocks::Id>,
}

/// `{"tell":{"group":G,"to":NAME,"payload":P,"wait":true}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tell {
    /// The group's name; the first group if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The name of a member of the group's present view.
    pub to: String,
    /// What to say.
    pub payload: Payload,
    /// Wait while there is no room for it, and with it the lines behind it. Otherwise it is refused then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

/// A scope on standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "scope must be a number below 4294967296 or a string")]
pub enum ScopeName {
    /// As it is.
    Number(u32),
    /// A name, of which the node makes a number.
    Name(String),
}

/// `{"fault":{"block":[NAME,…]}}`; without names it clears all faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Nothing is sent to or taken from these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block: Vec<String>,
}

/// `{"why":{"node":NAME}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskWhy {
    /// The name asked for.
    pub node: String,
}

/// `{"members":{"id":1}}`, `{"members":{"group":"block/map/m","id":1}}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Members {
    /// A block's group; the cluster if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<blocks::Id>,
}

/// `{"hello":{"name":"web-1","id":0}}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// What this client is called in groups, at its node; the node gives it a name if left out. Not after it
    /// has joined one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The token, if the agent has tokens: it asks for one in the first line of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// How long it remains a client when its connection breaks, and may come back; not at all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<blocks::Span>,
    /// The key by which it comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Secret>,
    /// How many lines it took before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<blocks::Id>,
}

/// `{"took":{"lines":120}}`: this client took so many lines since its first. There is no reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Took {
    /// How many.
    pub lines: u64,
}

/// A text that no log shows.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `{"join":{"group":"chat","id":1}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// A group of clients.
    pub group: String,
    /// Tell messages that were sent together as one `bundle`, and not one by one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bundles: bool,
    /// Tell payloads as they are, behind their lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bytes: bool,
    /// For the reply, which comes before the first view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<blocks::Id>,
}

/// `{"leave":{"group":"chat","id":2}}`; `{"leave":{}}` ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leave {
    /// A group of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// For the reply; only with a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<blocks::Id>,
}

/// A request up to this length is echoed whole.
const ECHOED_BYTES: usize = 4096;
/// Of a longer one, the longest id and the longest word that are.
const MAX_ECHOED_ID: usize = 64;

fn is_twofold_behind(answer: &blocks::Answer) -> bool {
    let both = [&answer.payload, &answer.error];
    let is_behind = |payload: &Option<Payload>| matches!(payload, Some(Payload::Behind { .. }));
    both.iter().all(|payload| payload.is_some()) && both.iter().any(|payload| is_behind(payload))
}

impl Command {
    /// Reads a line of stdin. The error says what was expected.
    pub fn parse(line: &str) -> Result<Self, Box<Event>> {
        let refused = match serde_json::from_str(line) {
            // Bytes may stand behind one of both, which is not looked at.
            Ok(Self::Answer(answer)) if is_twofold_behind(&answer) => {
                let reason = "an answer has a payload or an error, not both".to_owned();
                let request = Value::String(shortened(line));
                return Err(Box::new(Event::Error { reason, request }));
            }
            Ok(command) => return Ok(command),
            Err(refused) => refused,
        };
        // Once more, for the reason and the echo.
        let error = |reason, request| Box::new(Event::Error { reason, request });
        let value: Value = serde_json::from_str(line).map_err(|parse| {
            let reason = format!("not JSON ({parse}); expected one object, such as {EXAMPLE}");
            error(reason, Value::String(shortened(line)))
        })?;
        let reason = mistake::reason(&value, &refused);
        let echoed = match line.len() <= ECHOED_BYTES {
            true => value,
            false => id_of(&value).unwrap_or_else(|| Value::String(shortened(line))),
        };
        Err(error(reason, echoed))
    }

    /// The payload of a command that has one.
    fn payload_mut(&mut self) -> Option<&mut Payload> {
        match self {
            Command::Send(send) => Some(&mut send.payload),
            Command::Tell(tell) => Some(&mut tell.payload),
            Command::Put(put) => Some(&mut put.value),
            Command::Call(call) => call.payload.as_mut(),
            Command::Answer(answer) => answer.payload.as_mut().or(answer.error.as_mut()),
            _ => None,
        }
    }

    /// How many bytes stand behind the line, if it says that they do.
    pub fn bytes_behind(&mut self) -> Option<u64> {
        if let Command::SendBundle(send) = self {
            return send.payloads.bytes_behind();
        }
        match self.payload_mut()? {
            Payload::Behind { bytes, .. } => Some(*bytes),
            _ => None,
        }
    }

    /// Takes the bytes that stood behind the line.
    pub fn fill(&mut self, bytes: Vec<u8>) {
        if let Command::SendBundle(send) = self {
            send.payloads.fill(bytes);
        } else if let Some(Payload::Behind { read, .. }) = self.payload_mut() {
            *read = Some(bytes.into());
        }
    }

    /// Whether bytes stand behind the line that were not read.
    pub fn is_unread(&mut self) -> bool {
        if let Command::SendBundle(send) = self {
            return send.payloads.bytes_behind().is_some();
        }
        matches!(self.payload_mut(), Some(Payload::Behind { read: None, .. }))
    }

    /// Whether its payload is in a file.
    pub fn names_a_file(&mut self) -> bool {
        matches!(self.payload_mut(), Some(Payload::File { .. }))
    }

    /// The command's word.
    pub fn word(&self) -> &'static str {
        match self {
            Command::Send(_) => "send",
            Command::SendBundle(_) => "send_bundle",
            Command::Tell(_) => "tell",
            Command::Fault(_) => "fault",
            Command::Lock(_) => "lock",
            Command::Unlock(_) => "unlock",
            Command::Lead(_) => "lead",
            Command::Resign(_) => "resign",
            Command::Put(_) => "put",
            Command::Get(_) => "get",
            Command::Remove(_) => "remove",
            Command::Watch(_) => "watch",
            Command::Add(_) => "add",
            Command::TakeIds(_) => "take_ids",
            Command::Serve(_) => "serve",
            Command::Answer(_) => "answer",
            Command::Call(_) => "call",
            Command::Command(_) => "command",
            Command::ServeCommand(_) => "serve_command",
            Command::Commands(_) => "commands",
            Command::Cancel(_) => "cancel",
            Command::Why(_) => "why",
            Command::Members(_) => "members",
            Command::Hello(_) => "hello",
            Command::Join(_) => "join",
            Command::Leave(_) => "leave",
            Command::Took(_) => "took",
        }
    }

    /// The request as it is echoed in an error.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a request has only string keys")
    }

    /// The request for a program that is told what of it was refused: whole if it is short; of a long message
    /// all but its payloads, for a shortened one looks like one that was sent; of another long request its
    /// word and its id. Always an object. A tree of all payloads of a bundle would be many times as long as
    /// the line.
    pub fn echo(&self) -> Value {
        const ELEMENT_BYTES: usize = 32;
        let long = match self {
            Command::Send(send) if send.payload.len() > ECHOED_BYTES => Some(Command::Send(Send {
                payload: Payload::Text(String::new()),
                group: send.group.clone(),
                safe: send.safe,
                scope: send.scope.clone(),
                id: send.id.clone(),
            })),
            Command::SendBundle(send)
                if send.payloads.bytes() + ELEMENT_BYTES * send.payloads.len() > ECHOED_BYTES =>
            {
                Some(Command::SendBundle(SendBundle {
                    payloads: Payloads::default(),
                    group: send.group.clone(),
                    safe: send.safe,
                    id: send.id.clone(),
                }))
            }
            _ => None,
        };
        let mut value = long.as_ref().unwrap_or(self).to_value();
        let fields = value.get_mut(self.word()).and_then(Value::as_object_mut);
        if let (Some(_), Some(fields)) = (&long, fields) {
            fields.retain(|name, _| !matches!(name.as_str(), "payload" | "payloads"));
        }
        // Escapes may make six bytes of one.
        match value.to_string().len() <= 8 * ECHOED_BYTES {
            true => value,
            false => id_of(&value).unwrap_or_else(|| serde_json::json!({ self.word(): {} })),
        }
    }

    /// The line without its end.
    pub fn to_json(&self) -> String {
        self.to_value().to_string()
    }
}

/// Of a long request its word and its id, by which its program knows what is answered.
fn id_of(request: &Value) -> Option<Value> {
    let (word, fields) = request.as_object()?.iter().next()?;
    let id = fields.get("id")?;
    let is_short = id.is_u64() || id.as_str().is_some_and(|id| id.len() <= MAX_ECHOED_ID);
    (is_short && word.len() <= MAX_ECHOED_ID).then(|| serde_json::json!({word: {"id": id}}))
}

/// The beginning of a text that may be long, for echoing.
pub fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 200;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_request_of_the_documentation_is_understood() {
        let send = Command::parse(r#"{"send":{"group":"g","payload":"x"}}"#).unwrap();
        assert_eq!(
            send,
            Command::Send(Send {
                group: Some("g".into()),
                payload: Payload::Text("x".into()),
                safe: false,
                scope: None,
                id: None,
            })
        );
        assert_eq!(send.to_json(), r#"{"send":{"group":"g","payload":"x"}}"#);
        let text = r#"{"send":{"payload":"x","safe":true}}"#;
        let safe = Command::parse(text).unwrap();
        assert!(matches!(safe, Command::Send(Send { safe: true, .. })));
        assert_eq!(safe.to_json(), text);
        assert!(matches!(
            Command::parse(r#"{"send":{"payload":{"base64":"AA=="}}}"#).unwrap(),
            Command::Send(Send {
                group: None,
                payload: Payload::Binary { .. },
                safe: false,
                scope: None,
                id: None,
            })
        ));
        let text = r#"{"send":{"group":"g","payload":{"file":"/tmp/x"}}}"#;
        let from_file = Command::parse(text).unwrap();
        assert!(matches!(
            &from_file,
            Command::Send(Send {
                payload: Payload::File { file, bytes: None },
                ..
            }) if file == "/tmp/x"
        ));
        assert_eq!(from_file.to_json(), text);
        let tell = Command::parse(r#"{"tell":{"group":"g","to":"b","payload":"x"}}"#).unwrap();
        assert!(matches!(&tell, Command::Tell(Tell { to, wait: false, .. }) if to == "b"));
        assert!(!tell.to_json().contains("wait"), "{}", tell.to_json());
        assert_eq!(Command::parse(&tell.to_json()), Ok(tell));
        let waits = Command::parse(r#"{"tell":{"to":"b","payload":"x","wait":true}}"#).unwrap();
        assert!(matches!(&waits, Command::Tell(Tell { wait: true, .. })));
        assert!(waits.to_json().contains(r#""wait":true"#), "{}", waits.to_json());
        assert_eq!(Command::parse(&waits.to_json()), Ok(waits));
        assert_eq!(
            Command::parse(r#"{"fault":{"block":["a","b"]}}"#).unwrap(),
            Command::Fault(Fault {
                block: names(&["a", "b"])
            })
        );
        assert_eq!(
            Command::parse(r#"{"fault":{}}"#).unwrap(),
            Command::Fault(Fault::default())
        );
        assert_eq!(
            Command::parse(r#"{"why":{"node":"a"}}"#).unwrap(),
            Command::Why(AskWhy { node: "a".into() })
        );
        assert_eq!(
            Command::parse(r#" {"leave":{}} "#).unwrap(),
            Command::Leave(Leave::default())
        );
    }

    #[test]
    fn every_operation_on_a_block_is_read_and_written_as_the_documentation_has_it() {
        for line in [
            r#"{"lock":{"name":"x","within":"5s","id":1}}"#,
            r#"{"unlock":{"name":"x","token":9223372036854775809}}"#,
            r#"{"lead":{"name":"job","id":5}}"#,
            r#"{"resign":{"name":"job","token":7,"to":"b","id":"r"}}"#,
            r#"{"put":{"map":"m","key":"k","value":"v","if_version":3,"ttl":"10s","id":2}}"#,
            r#"{"put":{"map":"m","key":"k","value":{"base64":"/wD+"}}}"#,
            r#"{"get":{"map":"m","key":"k","latest":true,"id":3}}"#,
            r#"{"remove":{"map":"m","key":"k","if_version":3}}"#,
            r#"{"watch":{"map":"m"}}"#,
            r#"{"watch":{"map":"m","prefix":"user/","id":"w"}}"#,
            r#"{"add":{"counter":"c","by":-1,"id":4}}"#,
            r#"{"take_ids":{"count":100,"id":4}}"#,
            r#"{"serve":{"group":"g","verb":"v"}}"#,
            r#"{"answer":{"request":1,"payload":"yes"}}"#,
            r#"{"answer":{"request":1,"error":"no"}}"#,
            r#"{"call":{"group":"g","verb":"v","to":"all","payload":"x","within":"2s","id":6}}"#,
            r#"{"call":{"group":"g","verb":"v","to":"any"}}"#,
            r#"{"call":{"group":"g","verb":"v","to":"any","in":1}}"#,
            r#"{"call":{"group":"g","verb":"v","to":["a","b"]}}"#,
            r#"{"command":{"verb":"cache.flush","args":{"depth":1,"key":"x","now":true},"to":"all","id":1}}"#,
            r#"{"command":{"verb":"v","to":["b"],"by":"http_kept","reply":false,"within":"2s"}}"#,
            r#"{"serve_command":{"verb":"cache.flush","id":2}}"#,
            r#"{"commands":{"id":3}}"#,
            r#"{"cancel":{"of":6,"id":7}}"#,
            r#"{"hello":{"name":"web-1","id":0}}"#,
            r#"{"hello":{"name":"web-1","grace":"5s","resume":"6f","lines":120,"id":0}}"#,
            r#"{"took":{"lines":120}}"#,
            r#"{"join":{"group":"chat","id":1}}"#,
            r#"{"send":{"group":"chat","payload":"hello","id":2}}"#,
            r#"{"leave":{"group":"chat","id":3}}"#,
            r#"{"members":{"id":4}}"#,
            r#"{"members":{"group":"block/locks","id":4}}"#,
        ] {
            let command = Command::parse(line).unwrap();
            let parsed: Value = serde_json::from_str(line).unwrap();
            assert_eq!(command.to_value(), parsed);
            assert!(parsed.get(command.word()).is_some(), "{line}");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_answered_with_the_reason_and_the_line() {
        for (line, expected) in [
            ("hello", "not JSON"),
            (r#"{"send":{"grp":"g","payload":"x"}}"#, "grp"),
            (r#"{"send":{"group":"g"}}"#, "payload"),
            (r#"{"send":{"group":"g","payload":7}}"#, "expected a payload"),
            (r#"{"sned":{}}"#, "sned"),
            (r#"{"leave":{},"why":{"node":"a"}}"#, "expected"),
            (r#"{"lock":{"name":"x","within":5}}"#, "such as \"5s\""),
            (r#"{"lock":{"name":"x","within":"5"}}"#, "such as 250ms"),
            (r#"{"lock":{"name":"x","id":-1}}"#, "id must be"),
            (r#"{"unlock":{"name":"x"}}"#, "token"),
            (r#"{"add":{"counter":"c","by":1.5}}"#, "i64"),
            (r#"{"call":{"group":"g","verb":"v","to":"a"}}"#, "to must be"),
            (r#"{"call":{"group":"g","verb":"v","to":"any","in":"x"}}"#, "u64"),
            (r#"{"command":{"verb":"v","to":"every"}}"#, "to must be"),
            (r#"{"command":{"verb":"v","to":"all","by":"post"}}"#, "post"),
            (
                r#"{"command":{"verb":"v","to":"all","args":{"x":1.5}}}"#,
                "an argument must be",
            ),
            ("[]", "expected"),
            ("7", "expected"),
        ] {
            match Command::parse(line).map_err(|line| *line) {
                Err(Event::Error { reason, .. }) => assert!(reason.contains(expected), "{line}: {reason}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused_and_named() {
        for (line, expected) in [
            (
                r#"{"send":{"payload":"a","payload":"b"}}"#,
                "duplicate field `payload`",
            ),
            (
                r#"{"put":{"map":"m","key":"k","value":"v","key":"l"}}"#,
                "duplicate field `key`",
            ),
            (r#"{"leave":{},"leave":{}}"#, "expected"),
        ] {
            match Command::parse(line).map_err(|line| *line) {
                Err(Event::Error { reason, .. }) => assert!(reason.contains(expected), "{line}: {reason}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_long_request_that_is_not_understood_is_echoed_and_named_only_in_part() {
        let long = "x".repeat(100_000);
        for line in [
            format!(r#"{{"{long}":{{}}}}"#),
            format!(r#"{{"leave":{{"{long}":1}}}}"#),
            format!(r#"{{"send":{{"payload":7,"group":"{long}"}}}}"#),
        ] {
            let Err(error) = Command::parse(&line) else {
                panic!("{line}")
            };
            let told = serde_json::to_string(&error).unwrap();
            let has_remedy = told.contains("expected") || told.contains("takes");
            assert!(told.len() < 1100 && has_remedy, "{told}");
        }
    }

    #[test]
    fn a_long_request_that_is_not_understood_is_answered_with_its_id() {
        let long = "x".repeat(10_000);
        let line = format!(r#"{{"put":{{"map":"m","key":"k","value":"{long}","ttl":"9000h","id":7}}}}"#);
        match Command::parse(&line).map_err(|line| *line) {
            Err(Event::Error { request, .. }) => assert_eq!(request, serde_json::json!({"put": {"id": 7}})),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_endless_line_is_echoed_only_in_part() {
        let line = "ä".repeat(10_000);
        match Command::parse(&line).map_err(|line| *line) {
            Err(Event::Error {
                request: serde_json::Value::String(text),
                ..
            }) => {
                assert_eq!(text.chars().count(), 201);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_echo_is_short_whatever_was_sent() {
        let short = r#"{"send_bundle":{"group":"g","payloads":["a","b"],"id":1}}"#;
        assert_eq!(
            Command::parse(short).unwrap().echo().to_string().len(),
            short.len()
        );
        let bytes = vec![r#"{"base64":"/w=="}"#; 100_000].join(",");
        let text = "x".repeat(1 << 20);
        for long in [
            format!(r#"{{"send_bundle":{{"payloads":[{bytes}],"id":7}}}}"#),
            format!(r#"{{"send_bundle":{{"payloads":["{text}"],"id":7}}}}"#),
            format!(r#"{{"send":{{"payload":"{text}","id":7}}}}"#),
            format!(r#"{{"put":{{"map":"m","key":"k","value":"{text}","id":7}}}}"#),
        ] {
            let echo = Command::parse(&long).unwrap().echo().to_string();
            assert!(echo.len() < 200 && echo.contains(r#""id":7"#), "{echo}");
            assert!(!echo.contains("payload"), "{echo}");
        }
        let safe = format!(r#"{{"send":{{"group":"g","payload":"{text}","safe":true}}}}"#);
        assert_eq!(
            Command::parse(&safe).unwrap().echo(),
            serde_json::json!({"send": {"group": "g", "safe": true}})
        );
        // A driver looks into the object, also of a request without an id.
        for (word, fields) in [
            ("send", format!(r#""payload":"{text}""#)),
            ("send_bundle", format!(r#""payloads":["{text}"]"#)),
            ("put", format!(r#""map":"m","key":"k","value":"{text}""#)),
        ] {
            let nameless = format!(r#"{{"{word}":{{{fields}}}}}"#);
            let echo = Command::parse(&nameless).unwrap().echo();
            assert!(echo[word].is_object() && echo.to_string().len() < 200, "{echo}");
        }
    }
}

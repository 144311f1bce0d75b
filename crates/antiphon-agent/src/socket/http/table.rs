//! The routes: the one table that requests are dispatched by, and that `/v1/openapi.json` is made of.

use super::answer::{BYTES, EVENTS, JSON, TEXT};
use super::problem::Problem;

/// One method of one path.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// Its parts in braces are names, in percent encoding.
    pub(super) path: &'static str,
    pub(super) does: Does,
    /// Its `operationId`.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// In its query and its headers.
    pub(super) takes: &'static [Parameter],
    /// It takes a payload, in JSON the field of this name.
    pub(super) payload: Option<&'static str>,
    /// Beside the error that each may give.
    pub(super) answers: &'static [Gives],
}

impl Route {
    /// Whether a request of it has a body.
    pub(super) fn has_body(&self) -> bool {
        self.payload.is_some() || self.does == Does::Command
    }

    /// Whether it is answered at once, and not by events.
    fn is_whole(&self) -> bool {
        !matches!(self.does, Does::GroupEvents | Does::MapEvents | Does::Stream)
    }

    pub(super) fn query(&self) -> impl Iterator<Item = &'static Parameter> {
        self.takes.iter().filter(|parameter| !parameter.is_header)
    }
}

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Live,
    Ready,
    Metrics,
    OpenApi,
    Members,
    Why,
    Say,
    GroupEvents,
    Get,
    Put,
    Remove,
    MapEvents,
    Add,
    TakeIds,
    Lock,
    Prolong,
    Unlock,
    Call,
    Command,
    Commands,
    Stream,
}

impl Does {
    /// Whether it is answered without a token: to what watches over the process, and tells nothing of others.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Does::Live | Does::Ready)
    }
}

/// Something that a request may say.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) is_header: bool,
    pub(super) is_needed: bool,
    pub(super) shape: Shape,
    pub(super) what: &'static str,
}

/// What a parameter looks like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Text,
    Flag,
    Number,
    /// A time with its unit.
    Span,
}

/// An answer when all is well, or when a condition does not hold.
#[derive(Debug)]
pub(super) struct Gives {
    pub(super) status: u16,
    pub(super) what: &'static str,
    /// Media types, and the schema of what is JSON.
    pub(super) content: &'static [&'static str],
    pub(super) schema: &'static str,
}

const fn query(name: &'static str, shape: Shape, what: &'static str) -> Parameter {
    Parameter {
        name,
        is_header: false,
        is_needed: false,
        shape,
        what,
    }
}

const fn needed(name: &'static str, shape: Shape, what: &'static str) -> Parameter {
    Parameter {
        is_needed: true,
        ..query(name, shape, what)
    }
}

const fn header(name: &'static str, what: &'static str) -> Parameter {
    Parameter {
        is_header: true,
        ..query(name, Shape::Text, what)
    }
}

const fn json(status: u16, schema: &'static str, what: &'static str) -> Gives {
    Gives {
        status,
        what,
        content: &[JSON],
        schema,
    }
}

const fn value(what: &'static str) -> Gives {
    Gives {
        content: &[BYTES, JSON],
        ..json(200, "Entry", what)
    }
}

const fn events(what: &'static str) -> Gives {
    Gives {
        content: &[EVENTS],
        ..json(200, "", what)
    }
}

const fn empty(status: u16, what: &'static str) -> Gives {
    Gives {
        content: &[],
        ..json(status, "", what)
    }
}

const IF_MATCH: Parameter = header("If-Match", "\"VERSION\": only if the key has this version");
const IF_ABSENT: Parameter = header("If-None-Match", "*: only if the key has no value");
const IF_CHANGED: Parameter = header(
    "If-None-Match",
    "\"VERSION\": only if the key has another version",
);
const CONFLICT: Gives = json(
    412,
    "Error",
    "the condition does not hold; `version` is what is there",
);
const NO_VALUE: Gives = json(404, "Error", "the key has no value");
const NOT_HELD: Gives = json(409, "Error", "no request holds this lock with this token");
const LATE: Gives = json(
    504,
    "Error",
    "not in its time; `ran` says whether it may have happened",
);
const TOKEN: Parameter = needed("token", Shape::Number, "that of the grant");
const TTL: Parameter = query(
    "ttl",
    Shape::Span,
    "1s to 1h, 30s if left out: then the lock is free by itself",
);
const PLAIN: &[Parameter] = &[];

/// All routes.
pub(super) const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/livez",
        does: Does::Live,
        id: "live",
        summary: "Whether the process serves; whatever its peers do",
        takes: PLAIN,
        payload: None,
        answers: &[json(200, "Live", "it does")],
    },
    Route {
        method: "GET",
        path: "/readyz",
        does: Does::Ready,
        id: "ready",
        summary: "Whether the node is in a primary view, and may act for the cluster",
        takes: PLAIN,
        payload: None,
        answers: &[
            json(200, "Ready", "it is"),
            json(503, "Error", "it is not, and why"),
        ],
    },
    Route {
        method: "GET",
        path: "/metrics",
        does: Does::Metrics,
        id: "metrics",
        summary: "What the agent counts and its node measures, for Prometheus",
        takes: PLAIN,
        payload: None,
        answers: &[Gives {
            content: &[TEXT],
            ..json(200, "", "the text format of Prometheus, version 0.0.4")
        }],
    },
    Route {
        method: "GET",
        path: "/v1/openapi.json",
        does: Does::OpenApi,
        id: "openapi",
        summary: "This document",
        takes: PLAIN,
        payload: None,
        answers: &[json(200, "Object", "an OpenAPI 3.1 document")],
    },
    Route {
        method: "GET",
        path: "/v1/members",
        does: Does::Members,
        id: "members",
        summary: "The nodes of the cluster",
        takes: PLAIN,
        payload: None,
        answers: &[json(200, "NodeView", "the present view, by seniority")],
    },
    Route {
        method: "GET",
        path: "/v1/why/{node}",
        does: Does::Why,
        id: "why",
        summary: "What is known about a node, present or gone",
        takes: PLAIN,
        payload: None,
        answers: &[json(200, "Why", "one sentence each, latest last")],
    },
    Route {
        method: "POST",
        path: "/v1/groups/{group}/messages",
        does: Does::Say,
        id: "say",
        summary: "Says something to all clients of a group, and answers when it was delivered",
        takes: &[query(
            "safe",
            Shape::Flag,
            "delivered only when every node of the group holds it",
        )],
        payload: Some("payload"),
        answers: &[json(200, "Delivered", "it was delivered")],
    },
    Route {
        method: "GET",
        path: "/v1/groups/{group}/events",
        does: Does::GroupEvents,
        id: "groupEvents",
        summary: "Is a client of the group as long as the answer is read, and tells its views and messages",
        takes: &[query(
            "name",
            Shape::Text,
            "what this client is called, in the group NODE/NAME",
        )],
        payload: None,
        answers: &[events(
            "server-sent events; the name is the event's, the data its JSON",
        )],
    },
    Route {
        method: "GET",
        path: "/v1/maps/{map}/events",
        does: Does::MapEvents,
        id: "mapEvents",
        summary: "Tells what the map has, and how it changes",
        takes: &[
            query("key", Shape::Text, "this key alone"),
            query("prefix", Shape::Text, "keys that begin so"),
        ],
        payload: None,
        answers: &[events("server-sent events: watching, changed, lost")],
    },
    Route {
        method: "GET",
        path: "/v1/maps/{map}/{key}",
        does: Does::Get,
        id: "get",
        summary: "What a key has",
        takes: &[
            query(
                "latest",
                Shape::Flag,
                "with all that was answered to any client of any node before",
            ),
            IF_MATCH,
            IF_CHANGED,
        ],
        payload: None,
        answers: &[
            value("its value; the ETag is its version in quotes"),
            empty(304, "it has this version still"),
            NO_VALUE,
            CONFLICT,
        ],
    },
    Route {
        method: "PUT",
        path: "/v1/maps/{map}/{key}",
        does: Does::Put,
        id: "put",
        summary: "Writes what a key is to have",
        takes: &[
            query(
                "ttl",
                Shape::Span,
                "how long the value is there; for ever if left out",
            ),
            IF_MATCH,
            IF_ABSENT,
        ],
        payload: Some("value"),
        answers: &[
            json(200, "Version", "it was written; the ETag is its version"),
            CONFLICT,
        ],
    },
    Route {
        method: "DELETE",
        path: "/v1/maps/{map}/{key}",
        does: Does::Remove,
        id: "remove",
        summary: "Removes what a key has",
        takes: &[IF_MATCH],
        payload: None,
        answers: &[value("what it had"), NO_VALUE, CONFLICT],
    },
    Route {
        method: "POST",
        path: "/v1/counters/{counter}",
        does: Does::Add,
        id: "add",
        summary: "Adds to a counter",
        takes: &[query(
            "by",
            Shape::Number,
            "how much, less than 0 to subtract; 1 if left out",
        )],
        payload: None,
        answers: &[json(200, "Counter", "its number now")],
    },
    Route {
        method: "POST",
        path: "/v1/ids",
        does: Does::TakeIds,
        id: "takeIds",
        summary: "Takes ids that no other caller is ever given",
        takes: &[query(
            "count",
            Shape::Number,
            "how many, 1 to 4096; 1 if left out",
        )],
        payload: None,
        answers: &[json(200, "Ids", "the first of them; the others follow it")],
    },
    Route {
        method: "POST",
        path: "/v1/locks/{lock}",
        does: Does::Lock,
        id: "lock",
        summary: "Waits for a lock, and holds it until it is given back or its time is over",
        takes: &[
            query(
                "within",
                Shape::Span,
                "how long to wait; as long as the client does if left out",
            ),
            TTL,
        ],
        payload: None,
        answers: &[json(201, "Grant", "it is held"), LATE],
    },
    Route {
        method: "PUT",
        path: "/v1/locks/{lock}",
        does: Does::Prolong,
        id: "prolong",
        summary: "Holds a lock for longer: its time begins anew",
        takes: &[TOKEN, TTL],
        payload: None,
        answers: &[json(200, "Grant", "it is held"), NOT_HELD],
    },
    Route {
        method: "DELETE",
        path: "/v1/locks/{lock}",
        does: Does::Unlock,
        id: "unlock",
        summary: "Gives a lock back",
        takes: &[TOKEN],
        payload: None,
        answers: &[empty(204, "it is free"), NOT_HELD],
    },
    Route {
        method: "POST",
        path: "/v1/calls/{group}/{verb}",
        does: Does::Call,
        id: "call",
        summary: "Calls nodes that serve a verb",
        takes: &[
            needed(
                "to",
                Shape::Text,
                "all, any, or names of nodes with commas between them",
            ),
            query(
                "within",
                Shape::Span,
                "after so much time it ends; 10s if left out",
            ),
        ],
        payload: Some("payload"),
        answers: &[
            json(200, "Replies", "what each node answered"),
            json(502, "Error", "no node answered; `failures` says why each"),
            LATE,
        ],
    },
    Route {
        method: "POST",
        path: "/v1/commands/{verb}",
        does: Does::Command,
        id: "command",
        summary: "Asks nodes to do what their lists allow; the body has the arguments, a JSON object",
        takes: &[
            needed(
                "to",
                Shape::Text,
                "all, one, any, or names of nodes with commas between them",
            ),
            query(
                "by",
                Shape::Text,
                "how it gets to them: library (if left out), http, https, http_kept, https_kept, websocket, resp, udp",
            ),
            query(
                "reply",
                Shape::Flag,
                "false: it is replied to when it is handed over",
            ),
            query(
                "within",
                Shape::Span,
                "how long it may take; as long as the list says if left out",
            ),
        ],
        payload: None,
        answers: &[
            json(200, "Replies", "what each node did"),
            json(502, "Error", "no node did it; `failures` says why each"),
        ],
    },
    Route {
        method: "GET",
        path: "/v1/commands",
        does: Does::Commands,
        id: "commands",
        summary: "What commands to peers did: the list, queues, counts",
        takes: PLAIN,
        payload: None,
        answers: &[json(200, "Object", "they are told")],
    },
    Route {
        method: "GET",
        path: "/v1/stream",
        does: Does::Stream,
        id: "stream",
        summary: "A WebSocket: each text message is a command, and each event one, as in JSON lines",
        takes: PLAIN,
        payload: None,
        answers: &[
            empty(101, "it begins"),
            json(426, "Error", "it is asked for without an upgrade"),
        ],
    },
];

/// The route of a request, and the names in its path as they are written.
pub(super) fn find<'a>(method: &str, path: &'a str) -> Result<(&'static Route, Vec<&'a str>), Problem> {
    match route(method, path) {
        Some(found) => Ok(found),
        None => Err(Problem::method(&allow(path)?)),
    }
}

/// The methods of a path.
pub(super) fn allow(path: &str) -> Result<String, Problem> {
    let all = ["GET", "HEAD", "POST", "PUT", "DELETE"].into_iter();
    let mut taken: Vec<&str> = all.filter(|method| route(method, path).is_some()).collect();
    if taken.is_empty() {
        let path = antiphon_api::shortened(path);
        return Err(Problem::not_found(format!(
            "there is no {path}: GET /v1/openapi.json has all there is, and a slash in a name is written %2F"
        )));
    }
    taken.push("OPTIONS");
    Ok(taken.join(", "))
}

/// HEAD is GET, and hyper leaves the body out. What goes on is not begun for that.
fn route<'a>(method: &str, path: &'a str) -> Option<(&'static Route, Vec<&'a str>)> {
    let of = if method == "HEAD" { "GET" } else { method };
    let mut names = Vec::new();
    let mut routes = ROUTES.iter().filter(|route| route.method == of);
    let found = routes.find(|route| matches(route.path, path, &mut names))?;
    (method == of || found.is_whole()).then_some((found, names))
}

/// Whether a path is one of a template, and the names in it.
fn matches<'a>(template: &str, path: &'a str, names: &mut Vec<&'a str>) -> bool {
    names.clear();
    let (mut parts, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (parts.next(), given.next()) {
            (None, None) => return true,
            (Some(part), Some(given)) if part.starts_with('{') => {
                if given.is_empty() {
                    return false;
                }
                names.push(given);
            }
            (Some(part), Some(given)) if part == given => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> Result<(Does, Vec<String>), u16> {
        let found = find(method, path).map_err(|problem| problem.status.as_u16());
        found.map(|(route, names)| (route.does, names.iter().map(|name| (*name).to_owned()).collect()))
    }

    #[test]
    fn each_route_is_found_by_its_own_method_and_path() {
        for route in ROUTES {
            let path = route.path.replace(['{', '}'], "");
            let (does, names) = found(route.method, &path).unwrap();
            assert_eq!(does, route.does);
            assert_eq!(names.len(), route.path.matches('{').count(), "{}", route.path);
        }
    }

    #[test]
    fn what_is_no_route_is_404_and_another_method_405() {
        for path in [
            "/",
            "",
            "/v1",
            "/v1/",
            "/v1/maps/m",
            "/v1/maps/m/",
            "/v1/maps/m/a/b",
            "/v1/maps//k",
            "*",
            "/v2/members",
        ] {
            assert_eq!(found("GET", path), Err(404), "{path}");
        }
        for (method, path) in [
            ("POST", "/v1/members"),
            ("HEAD", "/v1/ids"),
            ("HEAD", "/v1/stream"),
            ("HEAD", "/v1/maps/m/events"),
            ("BREW", "/v1/ids"),
            ("get", "/livez"),
        ] {
            assert_eq!(found(method, path), Err(405), "{path}");
        }
        let allow = find("POST", "/v1/maps/m/k").unwrap_err().answer();
        assert_eq!(allow.headers()["allow"], "GET, HEAD, PUT, DELETE, OPTIONS");
        assert_eq!(found("HEAD", "/v1/maps/m/k").unwrap().0, Does::Get);
    }

    #[test]
    fn a_key_that_is_called_like_a_route_is_written_in_percent_encoding() {
        assert_eq!(found("GET", "/v1/maps/m/events").unwrap().0, Does::MapEvents);
        assert_eq!(found("GET", "/v1/maps/m/%65vents").unwrap().0, Does::Get);
        assert_eq!(found("PUT", "/v1/maps/m/events").unwrap().0, Does::Put);
    }
}

//! The routes as an OpenAPI 3.1 document, for tools that make clients from it.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer::{BYTES, EVENTS, JSON};
use super::table::{Does, Gives, Parameter, ROUTES, Route, Shape};

/// The document as it is served, and committed as `docs/openapi.json`.
pub(super) static TEXT: LazyLock<Bytes> = LazyLock::new(|| {
    let text = serde_json::to_string_pretty(&document()).expect("a document has only string keys");
    Bytes::from(text + "\n")
});

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Antiphon agent",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Groups, locks, maps, counters and requests of an Antiphon cluster, at one of its nodes",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:7480", "description": "where an agent listens unless it is told"}],
        // A token, where the agent asks for one.
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn operation(route: &Route) -> Value {
    let names = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let names = names.map(|name| {
        json!({
            "name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1},
            "description": "in percent encoding, a slash as %2F",
        })
    });
    let parameters: Vec<Value> = names.chain(route.takes.iter().map(parameter)).collect();
    let mut answers: Map<String, Value> = Map::new();
    for gives in route.answers {
        answers.insert(gives.status.to_string(), answer(gives));
    }
    let error = json!({"description": "what is wrong, and whether anything happened", "content": content(JSON, "Error")});
    answers.insert("default".to_owned(), error);
    let mut operation = json!({
        "operationId": route.id, "summary": route.summary, "parameters": parameters, "responses": answers,
    });
    if let Some(field) = route.payload {
        let payload = json!({
            "type": "object", "required": [field], "additionalProperties": false,
            "properties": {field: {"$ref": "#/components/schemas/Payload"}},
        });
        operation["requestBody"] = json!({
            "description": "up to 1 MiB: bytes as they are, or JSON",
            "content": {BYTES: {}, "text/plain": {}, JSON: {"schema": payload}},
        });
    }
    if route.does == Does::Command {
        let arguments = json!({
            "type": "object",
            "additionalProperties": {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]},
        });
        operation["requestBody"] = json!({
            "description": "the arguments, as the list has them",
            "content": {JSON: {"schema": arguments}},
        });
    }
    operation
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.shape {
        Shape::Text => json!({"type": "string"}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Number => json!({"type": "integer"}),
        Shape::Span => json!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}),
    };
    json!({
        "name": parameter.name, "in": if parameter.is_header { "header" } else { "query" },
        "required": parameter.is_needed, "schema": schema, "description": parameter.what,
    })
}

fn answer(gives: &Gives) -> Value {
    let mut answer = json!({"description": gives.what});
    let mut all = Map::new();
    for media in gives.content {
        if let Value::Object(one) = content(media, gives.schema) {
            all.extend(one);
        }
    }
    if !all.is_empty() {
        answer["content"] = all.into();
    }
    answer
}

fn content(media: &str, schema: &str) -> Value {
    match media {
        JSON => json!({JSON: {"schema": {"$ref": format!("#/components/schemas/{schema}")}}}),
        EVENTS => json!({EVENTS: {"schema": {"type": "string"}}}),
        other => json!({other: {}}),
    }
}

fn schemas() -> Value {
    let serial = json!({"type": "integer", "format": "uint64", "minimum": 0});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
    let map_of = |schema: Value| json!({"type": "object", "additionalProperties": schema});
    let payload = json!({"$ref": "#/components/schemas/Payload"});
    let ran = json!({"type": "string", "enum": ["no", "maybe", "yes"]});
    let failure = object(
        json!({"code": {"type": "string"}, "reason": {"type": "string"}, "ran": ran, "payload": payload}),
        &["code", "reason", "ran"],
    );
    json!({
        "Payload": {
            "description": "bytes: a string if they are UTF-8",
            "oneOf": [{"type": "string"}, object(json!({"base64": {"type": "string"}}), &["base64"])],
        },
        "Failure": failure,
        "Error": object(
            json!({
                "error": {"$ref": "#/components/schemas/Failure"},
                "version": serial,
                "replies": map_of(payload.clone()),
                "failures": map_of(json!({"$ref": "#/components/schemas/Failure"})),
            }),
            &["error"],
        ),
        "Object": {"type": "object"},
        "Live": object(json!({"live": {"type": "boolean"}}), &["live"]),
        "Ready": object(
            json!({"ready": {"type": "boolean"}, "view": {"type": "integer"}, "members": {"type": "integer"}}),
            &["ready", "view", "members"],
        ),
        "NodeView": object(
            json!({
                "id": {"type": ["integer", "string"]},
                "number": {"type": "integer"},
                "primary": {"type": "boolean"},
                "members": {"type": "array", "items": object(
                    json!({"name": {"type": "string"}, "incarnation": {"type": "string"}, "addr": {"type": "string"}}),
                    &["name", "incarnation", "addr"],
                )},
            }),
            &["id", "number", "primary", "members"],
        ),
        "Why": object(
            json!({"node": {"type": "string"}, "facts": {"type": "array", "items": {"type": "string"}}}),
            &["node", "facts"],
        ),
        "Delivered": object(json!({"delivered": {"type": "boolean"}}), &["delivered"]),
        "Entry": object(json!({"value": payload, "version": serial}), &["value", "version"]),
        "Version": object(json!({"version": serial}), &["version"]),
        "Counter": object(json!({"value": {"type": "integer", "format": "int64"}, "version": serial}), &["value"]),
        "Ids": object(json!({"first": serial, "count": {"type": "integer"}}), &["first", "count"]),
        "Grant": object(json!({"token": serial, "ttl_ms": {"type": "integer"}}), &["token", "ttl_ms"]),
        "Replies": object(
            json!({
                "replies": map_of(payload),
                "failures": map_of(json!({"$ref": "#/components/schemas/Failure"})),
                "ran": ran,
            }),
            &["replies", "failures", "ran"],
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_route_is_in_the_document_with_an_id_its_names_and_its_answers() {
        let document = document();
        let mut ids = BTreeSet::new();
        for route in ROUTES {
            let operation = &document["paths"][route.path][route.method.to_ascii_lowercase()];
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{}",
                route.id
            );
            let parameters = operation["parameters"].as_array().unwrap();
            let names = parameters
                .iter()
                .filter(|parameter| parameter["in"] == "path")
                .count();
            assert_eq!(names, route.path.matches('{').count(), "{}", route.path);
            assert_eq!(parameters.len(), names + route.takes.len());
            let answers = operation["responses"].as_object().unwrap();
            assert!(
                answers.len() > 1 && answers.contains_key("default"),
                "{}",
                route.path
            );
            assert_eq!(operation.get("requestBody").is_some(), route.has_body());
        }
        let count: usize = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .map(|path| path.as_object().unwrap().len())
            .sum();
        assert_eq!(count, ROUTES.len());
    }

    #[test]
    fn each_schema_that_is_named_is_there() {
        let document = document();
        let text = document.to_string();
        for named in text.split("#/components/schemas/").skip(1) {
            let name = named.split('"').next().unwrap();
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_committed_document_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let committed = std::fs::read(path).unwrap();
        let [committed, served]: [Value; 2] =
            [&committed[..], &TEXT[..]].map(|text| serde_json::from_slice(text).unwrap());
        assert!(
            committed == served,
            "write it anew: curl -s http://127.0.0.1:7480/v1/openapi.json > docs/openapi.json, of an agent of this build"
        );
    }
}

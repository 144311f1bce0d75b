//! What a request asks: the names in its path, its query, its conditions, its payload.

use std::fmt;
use std::str::FromStr;

use antiphon_api::Payload;
use antiphon_api::blocks::{Serial, Span};
use hyper::StatusCode;
use hyper::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, IF_MATCH, IF_NONE_MATCH, TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::{BYTES, JSON};
use super::body::Unread;
use super::problem::Problem;
use super::table::Route;

/// A whole number in a query.
pub(super) trait Whole: FromStr + fmt::Display {
    const LEAST: Self;
    const MOST: Self;
}

impl Whole for u32 {
    const LEAST: Self = Self::MIN;
    const MOST: Self = Self::MAX;
}

impl Whole for u64 {
    const LEAST: Self = Self::MIN;
    const MOST: Self = Self::MAX;
}

impl Whole for i64 {
    const LEAST: Self = Self::MIN;
    const MOST: Self = Self::MAX;
}

/// A request, taken apart.
#[derive(Debug)]
pub(super) struct Asked {
    names: Vec<String>,
    query: Vec<(String, String)>,
    head: Parts,
}

/// The entity tags that a condition names (RFC 9110, 8.8.3 and 13.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tags {
    /// `*`: whatever is there.
    Any,
    /// Each with whether it is weak, and the version that it is, if it is one.
    These(Vec<(bool, Option<Serial>)>),
}

impl Tags {
    fn parse(mut text: &str) -> Option<Self> {
        if text.trim() == "*" {
            return Some(Tags::Any);
        }
        let mut tags = Vec::new();
        loop {
            text = text.trim_start();
            let strong = text.strip_prefix("W/");
            let (tag, behind) = strong.unwrap_or(text).strip_prefix('"')?.split_once('"')?;
            // `parse` takes a sign, too. No value has the version 0.
            let is_number = tag.bytes().all(|byte| byte.is_ascii_digit());
            let version = is_number.then(|| tag.parse().ok()).flatten();
            let version = version.filter(|version| *version > 0).map(Serial);
            tags.push((strong.is_some(), version));
            match behind.trim_start() {
                "" => return Some(Tags::These(tags)),
                behind => text = behind.strip_prefix(',')?,
            }
        }
    }

    /// Whether one of them is the version that is there, as `If-None-Match` compares them.
    pub(super) fn has(&self, there: Option<Serial>) -> bool {
        match self {
            Tags::Any => there.is_some(),
            Tags::These(tags) => there.is_some() && tags.iter().any(|(_, version)| *version == there),
        }
    }

    /// The versions of the tags that are not weak, for `If-Match`: a weak tag names no version that can be
    /// written over.
    pub(super) fn strong(self) -> Self {
        match self {
            Tags::Any => Tags::Any,
            Tags::These(mut tags) => {
                tags.retain(|(is_weak, version)| !is_weak && version.is_some());
                Tags::These(tags)
            }
        }
    }
}

impl Asked {
    /// Of a route, with the parts of its path that are names.
    pub(super) fn new(route: &Route, names: &[&str], head: Parts) -> Result<Self, Problem> {
        let names = names.iter().map(|name| decoded(name));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let mut query: Vec<(String, String)> = Vec::new();
        for pair in head.uri.query().unwrap_or_default().split('&') {
            if pair.is_empty() {
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // As forms write spaces.
            let (name, value) = (
                decoded(&name.replace('+', " "))?,
                decoded(&value.replace('+', " "))?,
            );
            if !route.query().any(|known| known.name == name) {
                let known: Vec<&str> = route.query().map(|known| known.name).collect();
                let name = antiphon_api::shortened(&name);
                let reason = match known.is_empty() {
                    true => format!("unknown parameter {name}: this takes none"),
                    false => format!("unknown parameter {name}: this takes {}", known.join(", ")),
                };
                return Err(Problem::refused(reason));
            }
            if query.iter().any(|(other, _)| *other == name) {
                return Err(Problem::refused(format!("{name} is given twice: once is enough")));
            }
            query.push((name, value));
        }
        Ok(Self { names, query, head })
    }

    /// A name of the path.
    pub(super) fn path(&self, number: usize) -> &str {
        self.names.get(number).map_or("", String::as_str)
    }

    pub(super) fn head(&self) -> &Parts {
        &self.head
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let given = self.query.iter().find(|(other, _)| other == name);
        given.map(|(_, value)| value.as_str())
    }

    /// Given without a value it is true.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(_) => Err(Problem::refused(format!("{name} is true or false"))),
        }
    }

    pub(super) fn span(&self, name: &str) -> Result<Option<Span>, Problem> {
        let span = self.text(name).map(Span::from_str).transpose();
        span.map_err(|reason| Problem::refused(format!("{name}: {reason}")))
    }

    pub(super) fn number<T: Whole>(&self, name: &str) -> Result<Option<T>, Problem> {
        self.number_of(name, "")
    }

    /// `source`: where the number comes from, for a program that gave another.
    pub(super) fn number_of<T: Whole>(&self, name: &str, source: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let wrong = |_| {
            let (least, most, got) = (T::LEAST, T::MOST, antiphon_api::shortened(text));
            Problem::refused(format!(
                "{name}: expected a whole number from {least} to {most}{source}; got {got:?}"
            ))
        };
        text.parse::<T>().map(Some).map_err(wrong)
    }

    /// What cannot be left out.
    pub(super) fn needed<T>(&self, name: &str, given: Option<T>) -> Result<T, Problem> {
        given.ok_or_else(|| Problem::refused(format!("{name} is missing: give it, as in ?{name}=…")))
    }

    pub(super) fn wants_json(&self) -> bool {
        self.header(ACCEPT).is_some_and(|accept| accept.contains(JSON))
    }

    /// The versions of which one must be there.
    pub(super) fn if_match(&self) -> Result<Option<Tags>, Problem> {
        Ok(self.tags(IF_MATCH)?.map(Tags::strong))
    }

    /// The versions of which none may be there.
    pub(super) fn if_none_match(&self) -> Result<Option<Tags>, Problem> {
        self.tags(IF_NONE_MATCH)
    }

    fn tags(&self, name: HeaderName) -> Result<Option<Tags>, Problem> {
        let Some(text) = self.header(name) else {
            return Ok(None);
        };
        match Tags::parse(&text) {
            Some(tags) => Ok(Some(tags)),
            None => Err(Problem::refused(
                "a condition is * or a version in quotes, as the ETag of an answer has it: If-Match: \"VERSION\"",
            )),
        }
    }

    /// What a header says: a list, if it is there several times.
    fn header(&self, name: HeaderName) -> Option<String> {
        let values = self.head.headers.get_all(name).iter();
        // What is no text is no version and no type that is known.
        let texts: Vec<&str> = values.map(|value| value.to_str().unwrap_or("?").trim()).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// A JSON object, whatever its media type is said to be; an empty one if there is no body.
    pub(super) async fn object<T: DeserializeOwned + Default>(&self, body: Unread) -> Result<T, Problem> {
        let bytes = body.read().await?;
        if bytes.is_empty() {
            return Ok(T::default());
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| Problem::refused(format!("the body: {error}; expected one JSON object")))
    }

    /// The payload in a body: its bytes, or in JSON an object with this field.
    pub(super) async fn payload(&self, body: Unread, field: &str) -> Result<Payload, Problem> {
        let media = self.header(CONTENT_TYPE).unwrap_or_default();
        let media = media
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        let is_json = match media.as_str() {
            JSON => true,
            // The last is what curl says of each body unless it is told otherwise.
            "" | BYTES | "text/plain" | "application/x-www-form-urlencoded" => false,
            _ => {
                let reason =
                    format!("a payload is {BYTES} or text/plain, as it is, or {JSON}: {{\"{field}\":…}}");
                return Err(unsupported(reason));
            }
        };
        let coded = |name, plain| {
            self.header(name)
                .is_some_and(|coding| !coding.eq_ignore_ascii_case(plain))
        };
        if coded(CONTENT_ENCODING, "identity") || coded(TRANSFER_ENCODING, "chunked") {
            let reason = "a body is sent as it is, without Content-Encoding, in chunks or not";
            return Err(unsupported(reason.to_owned()));
        }
        let bytes = body.read().await?;
        match is_json {
            true => parse(&bytes, field),
            false => Ok(Payload::from_bytes(&bytes)),
        }
    }
}

pub(super) fn parse(bytes: &[u8], field: &str) -> Result<Payload, Problem> {
    let expected = || {
        Problem::refused(format!(
            "expected {{\"{field}\":\"…\"}} or {{\"{field}\":{{\"base64\":\"…\"}}}}: to send these bytes as they are, say Content-Type: {BYTES}"
        ))
    };
    let object: Value = serde_json::from_slice(bytes).map_err(|_| expected())?;
    let Value::Object(mut object) = object else {
        return Err(expected());
    };
    let payload = object
        .remove(field)
        .filter(|_| object.is_empty())
        .ok_or_else(expected)?;
    // A file of the node is no part of a request, and base64 that is none is not sent on.
    match serde_json::from_value(payload).map_err(|_| expected())? {
        Payload::File { .. } | Payload::Behind { .. } => Err(expected()),
        payload => payload
            .into_bytes()
            .map(|bytes| Payload::from_bytes(&bytes))
            .map_err(Problem::refused),
    }
}

fn unsupported(reason: String) -> Problem {
    Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        reason,
    )
}

/// A part of a URL as text.
fn decoded(text: &str) -> Result<String, Problem> {
    let bytes = text.as_bytes();
    let is_whole = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'%')
        .all(|(at, _)| {
            let digits = bytes.get(at + 1..at + 3);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        });
    let decoded = percent_decode_str(text).decode_utf8();
    match decoded {
        Ok(decoded) if is_whole => Ok(decoded.into_owned()),
        _ => {
            let text = antiphon_api::shortened(text);
            Err(Problem::refused(format!(
                "{text} is no UTF-8 in percent encoding: write a % as %25"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::super::table;
    use super::*;

    fn asked(uri: &str, headers: &[(&str, &str)]) -> Result<Asked, Problem> {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let path = head.uri.path().to_owned();
        let (route, names) = table::find("GET", &path)?;
        Asked::new(route, &names, head)
    }

    #[test]
    fn names_and_parameters_are_texts_in_percent_encoding() {
        let get = asked("/v1/maps/a%20b/user%2F1%C3%BC?latest", &[]).unwrap();
        assert_eq!((get.path(0), get.path(1)), ("a b", "user/1ü"));
        assert!(get.flag("latest").unwrap());
        let watch = asked("/v1/maps/m/events?prefix=a+b%2Bc", &[]).unwrap();
        assert_eq!(watch.text("prefix"), Some("a b+c"));
        // A key like any other: there are no folders here.
        assert_eq!(asked("/v1/maps/m/..", &[]).unwrap().path(1), "..");
        for wrong in [
            "/v1/maps/m/%ff",
            "/v1/maps/m/%",
            "/v1/maps/m/%2",
            "/v1/maps/m/%zz",
            "/v1/maps/m/k?latest=1",
            "/v1/maps/m/k?latest=%ff",
            "/v1/maps/m/k?lastest",
            "/v1/maps/m/k?latest&latest",
            "/livez?x=1",
        ] {
            let asked = asked(wrong, &[]).and_then(|asked| asked.flag("latest"));
            assert_eq!(asked.unwrap_err().status, StatusCode::BAD_REQUEST, "{wrong}");
        }
    }

    #[test]
    fn a_number_that_is_none_is_told_with_its_range() {
        for (wrong, expected) in [
            (
                "by=1.5",
                "by: expected a whole number from -9223372036854775808 to 9223372036854775807; got \"1.5\"",
            ),
            ("by=", "got \"\""),
        ] {
            let request = Request::post(format!("/v1/counters/c?{wrong}"));
            let (head, ()) = request.body(()).unwrap().into_parts();
            let (route, names) = table::find("POST", "/v1/counters/c").unwrap();
            let asked = Asked::new(route, &names, head).unwrap();
            let problem = format!("{:?}", asked.number::<i64>("by").unwrap_err());
            assert!(problem.replace("\\\"", "\"").contains(expected), "{problem}");
        }
    }

    #[test]
    fn conditions_are_entity_tags_as_the_standard_has_them() {
        let there = Some(Serial(7));
        for (header, is_match, is_none_match) in [
            ("\"7\"", true, true),
            ("*", true, true),
            ("W/\"7\"", false, true),
            ("\"6\", \"7\"", true, true),
            ("\"6\",W/\"7\" , \"a,b\"", false, true),
            ("\"8\"", false, false),
            ("\"\"", false, false),
            ("\"0\"", false, false),
            ("\"+7\"", false, false),
            ("\"99999999999999999999\"", false, false),
        ] {
            let headers = [("if-match", header), ("if-none-match", header)];
            let asked = asked("/v1/maps/m/k", &headers).unwrap();
            let (wanted, other) = (asked.if_match().unwrap(), asked.if_none_match().unwrap());
            assert_eq!(wanted.unwrap().has(there), is_match, "{header}");
            let other = other.unwrap();
            assert_eq!(
                (other.has(there), other.has(None)),
                (is_none_match, false),
                "{header}"
            );
        }
        let twice = [("if-match", "\"6\""), ("if-match", "\"7\"")];
        let twice = asked("/v1/maps/m/k", &twice).unwrap().if_match().unwrap();
        assert!(twice.unwrap().has(there));
        assert_eq!(asked("/v1/maps/m/k", &[]).unwrap().if_match().unwrap(), None);
        for wrong in [
            "",
            "7",
            "\"7",
            "7\"",
            "\"7\" \"8\"",
            "\"7\",",
            "w/\"7\"",
            "*, \"7\"",
        ] {
            let asked = asked("/v1/maps/m/k", &[("if-match", wrong)]).unwrap();
            assert_eq!(
                asked.if_match().unwrap_err().status,
                StatusCode::BAD_REQUEST,
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_payload_in_json_is_one_field() {
        assert_eq!(
            parse(br#"{"value":"v"}"#, "value").unwrap(),
            Payload::Text("v".to_owned())
        );
        assert!(parse(br#"{"value":{"base64":"/wD+"}}"#, "value").is_ok());
        for wrong in [
            "",
            "{",
            "[]",
            "\"v\"",
            "{}",
            r#"{"value":7}"#,
            r#"{"payload":"v"}"#,
            r#"{"value":"v","x":1}"#,
            "\u{ff}",
            r#"{"value":{"base64":"no"}}"#,
            r#"{"value":{"file":"/etc/passwd"}}"#,
        ] {
            assert!(parse(wrong.as_bytes(), "value").is_err(), "{wrong}");
        }
        assert!(parse(&[b'"', 0xff, b'"'], "value").is_err());
    }
}

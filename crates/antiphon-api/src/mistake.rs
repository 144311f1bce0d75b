//! What is wrong with a line that is JSON and no command, and what its word takes.
//!
//! The fields of a word and the words themselves are those that serde names when it is given none of them, so
//! that they are written down once, in the types.

use serde_json::{Map, Value, json};

use crate::command::{Command, shortened};

/// A command.
pub(crate) const EXAMPLE: &str = r#"{"send":{"group":"chat","payload":"hello"}}"#;
/// No word takes more fields.
const MOST_FIELDS: usize = 16;
const EXPECTED: &str = ", expected ";

/// Why the line of this value is no command. `refused` is what serde says of the line itself: a value has
/// only the last of two fields of one name, so it may make sense where its line does not.
pub(crate) fn reason(value: &Value, refused: &serde_json::Error) -> String {
    let Some((word, fields)) = only_entry(value) else {
        return one_word();
    };
    let Some(takes) = fields_of(word) else {
        let word = shortened(word);
        let words = words();
        return format!(
            "unknown word `{word}`; expected one of {words}, such as {EXAMPLE} (`antiphon node --help` has their fields)"
        );
    };
    let said = error_of(value.clone());
    // One word that is there twice.
    if said.is_none() && refused.is_syntax() {
        return one_word();
    }
    let said = said.unwrap_or_else(|| refused.to_string());
    let Some(given) = fields.as_object() else {
        return format!("`{word}`: expected its fields in braces, as in {EXAMPLE}; `{word}` takes {takes}");
    };
    let missing = said.strip_prefix("missing field ");
    let field = match missing {
        Some(missing) if takes.contains(missing) => None,
        _ => at_fault(word, given, &said),
    };
    let is_unknown = |what: &str| {
        let name = field.map(|field| format!("`{field}`"));
        // A payload may have an unknown field of its own that is called as it is.
        name.is_some_and(|name| !takes.contains(&name) && what == format!("unknown field {name}"))
    };
    // What stands in the line may be as long as the line.
    let (what, is_unknown) = match said.rsplit_once(EXPECTED) {
        Some((what, _)) if is_unknown(what) => (shortened(what), true),
        Some((what, wanted)) => (
            format!("{}{EXPECTED}{}", shortened(what), shortened(wanted)),
            false,
        ),
        None => (shortened(&said), false),
    };
    match field {
        Some(field) if !is_unknown && !what.starts_with(&format!("{field} ")) => {
            format!("`{field}` of `{word}`: {what}; `{word}` takes {takes}")
        }
        _ => format!("`{word}`: {what}; `{word}` takes {takes}"),
    }
}

fn one_word() -> String {
    format!("expected one object with one word and its fields, such as {EXAMPLE}")
}

fn only_entry(value: &Value) -> Option<(&String, &Value)> {
    let mut entries = value.as_object()?.iter();
    let first = entries.next()?;
    entries.next().is_none().then_some(first)
}

/// What is wrong with a value, if anything is.
fn error_of(value: Value) -> Option<String> {
    serde_json::from_value::<Command>(value)
        .err()
        .map(|error| error.to_string())
}

/// The field whose value has this error, also if it stands alone.
fn at_fault<'a>(word: &str, given: &'a Map<String, Value>, said: &str) -> Option<&'a str> {
    given.iter().take(MOST_FIELDS).find_map(|(field, value)| {
        let alone = error_of(json!({ word: { field: value } }));
        (alone.as_deref() == Some(said)).then_some(field.as_str())
    })
}

/// The fields that a word takes; none if there is no such word.
fn fields_of(word: &str) -> Option<String> {
    listed(json!({ word: { "": 0 } }), "unknown field ``, expected ")
}

fn words() -> String {
    listed(json!({ "": {} }), "unknown variant ``, expected ").unwrap_or_default()
}

/// What would have been right in place of a name that is empty.
fn listed(probe: Value, said: &str) -> Option<String> {
    let error = error_of(probe)?;
    let names = error.strip_prefix(said)?;
    let names = names.strip_prefix("one of ").unwrap_or(names);
    Some(names.replace(" or ", ", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    fn told(line: &str) -> String {
        match Command::parse(line).map_err(|event| *event) {
            Err(Event::Error { reason, .. }) => reason,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_time_without_its_unit_is_told_with_its_field_and_what_the_word_takes() {
        assert_eq!(
            told(r#"{"lock":{"name":"x","within":5}}"#),
            r#"`within` of `lock`: invalid type: integer `5`, expected a time with its unit, such as "5s"; `lock` takes `name`, `within`, `id`"#
        );
        assert_eq!(
            told(r#"{"lock":{"name":"x","within":"5"}}"#),
            "`within` of `lock`: expected a time with its unit, such as 250ms, 5s, 10m or 2h, of up to 8760h; `lock` takes `name`, `within`, `id`"
        );
        assert!(
            told(r#"{"put":{"map":"m","key":"k","value":"v","ttl":1.5}}"#).starts_with("`ttl` of `put`: ")
        );
        assert!(told(r#"{"hello":{"grace":5}}"#).starts_with("`grace` of `hello`: "));
    }

    #[test]
    fn each_kind_of_mistake_is_told_with_its_remedy() {
        for (line, expected) in [
            ("hello", "not JSON ("),
            (
                "[]",
                "expected one object with one word and its fields, such as {\"send\"",
            ),
            (
                "{}",
                "expected one object with one word and its fields, such as {\"send\"",
            ),
            (
                r#"{"leave":{},"why":{"node":"a"}}"#,
                "expected one object with one word",
            ),
            (r#"{"leave":{},"leave":{}}"#, "expected one object with one word"),
            (
                r#"{"sned":{}}"#,
                "unknown word `sned`; expected one of `send`, `send_bundle`, ",
            ),
            (
                r#"{"send":{"grp":"g","payload":"x"}}"#,
                "`send`: unknown field `grp`; `send` takes `group`, `payload`, `safe`, `scope`, `id`",
            ),
            (
                r#"{"send":{"group":"g"}}"#,
                "`send`: missing field `payload`; `send` takes `group`, ",
            ),
            (
                r#"{"send":"x"}"#,
                "`send`: expected its fields in braces, as in {\"send\"",
            ),
            (r#"{"why":7}"#, "`why`: expected its fields in braces, as in "),
            (
                r#"{"send":{"group":7,"payload":"x"}}"#,
                "`group` of `send`: invalid type: integer `7`, expected a string; `send` takes ",
            ),
            (
                r#"{"send":{"group":"g","payload":7}}"#,
                "`payload` of `send`: invalid type: integer `7`, expected a payload, which is a string, ",
            ),
            (
                r#"{"send":{"group":"g","payload":{"bse64":"AA=="}}}"#,
                "`payload` of `send`: unknown field `bse64`, expected one of `base64`, `file`, `bytes`; `send` ",
            ),
            (
                r#"{"send":{"payload":"a","payload":"b"}}"#,
                "`send`: duplicate field `payload` at line 1 ",
            ),
            (
                r#"{"lock":{"name":"x","id":-1}}"#,
                "`lock`: id must be a whole number",
            ),
            (
                r#"{"call":{"group":"g","verb":"v","to":"any","in":"x"}}"#,
                "`in` of `call`: invalid type: string \"x\", expected u64; `call` takes `group`, `verb`, ",
            ),
            (
                r#"{"members":{"of":"g"}}"#,
                "`members`: unknown field `of`; `members` takes `group`, `id`",
            ),
            (
                r#"{"took":{}}"#,
                "`took`: missing field `lines`; `took` takes `lines`",
            ),
        ] {
            let told = told(line);
            assert!(told.starts_with(expected), "{line}: {told}");
        }
    }

    #[test]
    fn all_words_are_named_only_if_the_word_is_unknown() {
        let unknown = told(r#"{"dance":{}}"#);
        let word = |command: &str| Command::parse(command).unwrap().word();
        for known in [word(r#"{"leave":{}}"#), word(r#"{"took":{"lines":1}}"#)] {
            assert!(unknown.contains(&format!("`{known}`")), "{unknown}");
        }
        assert!(unknown.len() < 600, "{unknown}");
        assert!(!told(r#"{"lock":{}}"#).contains("send"));
    }

    #[test]
    fn what_is_told_is_short_however_long_the_line_is() {
        let long = "ä".repeat(100_000);
        for (line, expected) in [
            (format!(r#"{{"{long}":{{}}}}"#), "expected one of `send`"),
            (format!(r#"{{"send":{{"{long}":1}}}}"#), "`send` takes `group`"),
            (
                format!(r#"{{"send":{{"payload":"x","safe":"{long}"}}}}"#),
                ", expected a boolean; `send` takes",
            ),
            (
                format!(r#"{{"send":{{"payload":{{"{long}":1}}}}}}"#),
                ", expected one of `base64`, `file`, `bytes`; `send` takes",
            ),
            (
                format!(r#"{{"command":{{"verb":"v","to":"all","by":"{long}"}}}}"#),
                "`command` takes `verb`",
            ),
        ] {
            let told = told(&line);
            assert!(told.chars().count() < 700 && told.contains(expected), "{told}");
        }
    }
}

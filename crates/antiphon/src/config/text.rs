//! The text of a configuration file: read within bounds, and what is wrong with it told within bounds.

use std::fmt::Write as _;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use antiphon_core::text::shortened;
use serde::de::DeserializeOwned;

use super::Error;

/// A configuration file larger than this is a mistake.
const MAX_BYTES: u64 = 1 << 20;
/// Characters shown of a line, before what is wrong in it and from there on.
const BEFORE: usize = 40;
const FROM: usize = 60;
/// Characters of what is said of it: it may name what is written there.
const MOST: usize = 1000;

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| Error::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    match text.len() as u64 <= MAX_BYTES {
        true => Ok(text),
        false => Err(Error::File {
            path: Some(path.to_owned()),
            reason: "it is larger than 1 MiB: is it one?".to_owned(),
        }),
    }
}

/// In which line a key is given, from 1.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let gives = |line: &str| {
        let line = line.trim_start_matches(['\u{feff}', ' ', '\t', '"', '\'']);
        let rest = line
            .strip_prefix(key)
            .map(|rest| rest.trim_start_matches([' ', '\t', '"', '\'']));
        rest.is_some_and(|rest| rest.starts_with(['=', '.']))
    };
    text.lines().position(gives).map(|before| before + 1)
}

/// What a text in TOML says. An error names the line, the unknown key and the keys there are.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // Some editors begin each text with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    toml::from_str(text).map_err(|error| {
        let message = shortened(error.message(), MOST);
        match error.span() {
            Some(span) => format!("{}{message}", excerpt(text, span)),
            None => message.into_owned(),
        }
    })
}

/// The part of a line that is meant, with its number and a mark below. A line that TOML cannot have may be a
/// secret of a file that was named by mistake: of that only the number is told.
fn excerpt(text: &str, span: Range<usize>) -> String {
    let within = span.start.min(text.len());
    let start = (0..=within)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let (before, after) = text.split_at(start);
    let number = before.matches('\n').count() + 1;
    let before = before.rsplit('\n').next().unwrap_or_default();
    let after = after.lines().next().unwrap_or_default();
    let column = before.chars().count();
    let mut shown = format!("line {number}, column {}\n", column + 1);
    // Base64 may end in signs of equality.
    let line = [before, after].concat();
    if !line.trim_end().trim_end_matches('=').contains(['=', '[', '#']) {
        return shown;
    }
    let (left, cut) = match column > BEFORE {
        true => (before.chars().skip(column - BEFORE).collect::<String>(), "…"),
        false => (before.to_owned(), ""),
    };
    let right: String = after.chars().take(FROM).collect();
    let more = if right.len() < after.len() { "…" } else { "" };
    let margin = " ".repeat(number.to_string().len());
    let mark = " ".repeat(cut.chars().count() + left.chars().count());
    // Never fails: it is a string.
    let _ = writeln!(
        shown,
        "{margin} |\n{number} | {cut}{left}{right}{more}\n{margin} | {mark}^"
    );
    shown
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Given;
    use super::*;

    type Table = BTreeMap<String, u16>;

    #[test]
    fn an_error_shows_the_line_and_marks_what_is_wrong_in_it() {
        let error = parse::<Table>("a = 1\nbcd = \"x\"\n").unwrap_err();
        assert!(
            error.starts_with("line 2, column 7\n  |\n2 | bcd = \"x\"\n  |       ^\ninvalid type"),
            "{error}"
        );
    }

    #[test]
    fn a_key_that_was_given_in_place_of_a_file_is_not_shown() {
        let key = "ab12".repeat(16);
        let token = "q83vASNFZ4mrze8BI0VniQ==";
        for text in [&key, &format!("# the key\n{key}\n"), token] {
            let error = Given::from_toml_str(text).unwrap_err().to_string();
            assert!(error.contains("line "), "{error}");
            assert!(!error.contains("ab12") && !error.contains("q83v"), "{error}");
        }
    }

    #[test]
    fn of_a_giant_line_the_part_that_matters_is_shown() {
        let giant = "é".repeat(400_000);
        for text in [
            format!("a = \"{giant}\""),
            format!("{giant} = 1"),
            format!("# {giant}\na = [1, \"{giant}\"]"),
            format!("a = 1{}x", " ".repeat(500_000)),
            format!("a = \"\"\"{giant}"),
        ] {
            let error = parse::<Table>(&text).unwrap_err();
            assert!(error.starts_with("line "), "{error}");
            assert!(error.chars().count() < 1_500, "{}", error.len());
        }
    }

    #[test]
    fn a_byte_order_mark_is_none_of_the_first_key() {
        let table = parse::<Table>("\u{feff}a = 1").unwrap();
        assert_eq!(table["a"], 1);
    }
    #[test]
    fn a_key_is_found_in_its_line() {
        let text = "# bind = 1\nbinder = 1\n  bind = \"x\"\n\"weight\"=1\nmetadata.role = \"db\"";
        for (key, line) in [
            ("bind", Some(3)),
            ("weight", Some(4)),
            ("metadata", Some(5)),
            ("name", None),
        ] {
            assert_eq!(line_of(text, key), line, "{key}");
        }
    }
}

//! Texts of others that people are to read.
//!
//! Whatever comes from elsewhere may hold characters that move the cursor, change the title of the window,
//! forge lines, or turn the direction in which the rest is shown. They are shown as what they are.

use std::borrow::Cow;

/// The most characters of a reason that is passed on.
const MOST: usize = 1000;

/// What another node gave as a reason, for people at terminals: not too long, and without characters that
/// move the cursor or forge lines.
pub(crate) fn printable(text: &str) -> String {
    escaped(text.chars().take(MOST))
}

/// All of a text of somebody else's on one line, for people at terminals.
pub fn on_one_line(text: &str) -> String {
    escaped(text.chars())
}

/// A text whose lines are one's own, for people at terminals.
pub fn in_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(on_one_line).collect();
    lines.join("\n")
}

/// A line of JSON, for programs, that may come to a terminal: the same value, with JSON's own escapes. Only
/// spaces stand between its tokens.
pub fn in_json(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            // JSON has these between tokens alone.
            '\t' | '\n' | '\r' => shown.push(' '),
            // It has the others within strings alone, and all of them have four digits.
            c if acts(c) => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// A text with something in it that others gave: whole if it has at most so many characters, else its
/// beginning and its end, which says what to do
/// about it, and how much is left out between them.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= most {
        return Cow::Borrowed(text);
    }
    let tail = most / 3;
    let at = |number: usize| text.char_indices().nth(number).map_or(text.len(), |(at, _)| at);
    let (end, begin) = (at(most - tail), at(count - tail));
    let left_out = count - most;
    Cow::Owned(format!(
        "{} […{left_out} characters…] {}",
        &text[..end],
        &text[begin..]
    ))
}

fn escaped(text: impl Iterator<Item = char>) -> String {
    let mut shown = String::new();
    for c in text {
        match acts(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Whether a terminal does something else with it than show it.
fn acts(c: char) -> bool {
    // Ends of lines and paragraphs, and what sets directions.
    let is_layout = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_layout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_move_the_cursor_or_go_on_for_ever() {
        assert_eq!(printable("the name is taken, é"), "the name is taken, é");
        assert_eq!(
            printable("a\x1b]0;t\x07\nb\u{9b}"),
            "a\\u{1b}]0;t\\u{7}\\nb\\u{9b}"
        );
        assert_eq!(printable(&"x".repeat(60_000)).len(), MOST);
        assert_eq!(on_one_line("a\rb\u{202e}c"), "a\\rb\\u{202e}c");
        assert_eq!(on_one_line(&"x".repeat(60_000)).len(), 60_000);
    }

    #[test]
    fn of_what_is_too_long_the_beginning_and_the_end_are_left() {
        assert_eq!(shortened("short", 5), "short");
        let long = format!("metadata \"{}\" must look like key=value", "é".repeat(1 << 20));
        let shown = shortened(&long, 90);
        assert!(
            shown.starts_with("metadata \"é") && shown.ends_with("é\" must look like key=value"),
            "{shown}"
        );
        let left_out = long.chars().count() - 90;
        assert!(shown.contains(&format!("[…{left_out} characters…]")), "{shown}");
        assert!(shown.chars().count() < 130, "{shown}");
        assert_eq!(shortened("abc", 0), " […3 characters…] ");
    }

    #[test]
    fn a_line_of_json_stays_one_and_moves_no_cursor() {
        let line = "{\"a\u{200f}\":\t\"é\u{7f}\u{9b}2J\u{2028}\u{2069}\\n\"}";
        assert_eq!(
            in_json(line),
            "{\"a\\u200f\": \"é\\u007f\\u009b2J\\u2028\\u2069\\n\"}"
        );
        assert_eq!(in_json("{\"a\":1}"), "{\"a\":1}");
    }

    #[test]
    fn lines_of_ones_own_stay_lines() {
        assert_eq!(in_lines("a\x1b[2J\n  b\n"), "a\\u{1b}[2J\n  b\n");
    }
}

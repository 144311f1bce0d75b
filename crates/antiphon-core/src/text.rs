//! Texts of others that people are to read.
//!
//! Whatever comes from elsewhere may hold characters that move the cursor, change the title of the window, forge lines, or turn the direction in which the rest
//! is shown. They are shown as what they are.

/// The most characters of a reason that is passed on.
const MOST: usize = 1000;

/// What another node gave as a reason, for people at terminals: not too long, and without characters that move the cursor or forge lines.
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
    fn lines_of_ones_own_stay_lines() {
        assert_eq!(in_lines("a\x1b[2J\n  b\n"), "a\\u{1b}[2J\n  b\n");
    }
}

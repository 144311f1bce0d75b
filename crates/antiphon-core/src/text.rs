//! Texts of others that people are to read.

/// The most characters of a reason that is passed on.
const MOST: usize = 1000;

/// What another node gave as a reason, for people at terminals: not too long, and without characters that move the cursor or forge lines.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().collect(),
        false => String::from(c),
    };
    text.chars().take(MOST).map(shown).collect()
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
    }
}

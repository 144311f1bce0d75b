//! How much is written, how plainly, and how wide.

use crate::documents::has_a_break;
use crate::{File, Tree};

/// Documents with a reading time: the most words that each may have.
const MAX_WORDS: [(&str, usize); 2] = [
    // Ten minutes.
    ("ARCHITECTURE.md", 2200),
    ("docs/decisions/0", 400),
];

/// How often the comments of these folders may say [`VAGUE_WORDS`]. Lower a number when its folder needs
/// less; never raise one.
const MOST_VAGUE_WORDS: [(&[&str], usize); 9] = [
    (&["crates/antiphon-wire/"], 1),
    (&["crates/antiphon-core/"], 121),
    (&["crates/antiphon-net/"], 5),
    (&["crates/antiphon-judge/"], 0),
    (&["crates/antiphon-sim/"], 0),
    (
        &[
            "crates/antiphon/",
            "crates/antiphon-api/",
            "crates/antiphon-agent/",
            "crates/antiphon-cli/",
            "crates/antiphon-lab/",
        ],
        32,
    ),
    (&["benches/"], 10),
    (&["fuzz/"], 0),
    (&["tests/"], 19),
];

/// The longest line of a comment, as of the code beside it.
const MAX_COMMENT_COLUMNS: usize = 110;

/// They stand for people. Where a node is meant, a comment names it: the observer, the leader, the sender.
const VAGUE_WORDS: [&str; 3] = ["who", "whom", "whoever"];

/// Documents that take longer to read than they promise.
pub fn wordy_documents(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (beginning, most) in MAX_WORDS {
        for file in tree.documents().filter(|file| file.path.starts_with(beginning)) {
            let words = file.text.split_whitespace().count();
            if words > most {
                complaints.push(format!(
                    "{}: {words} words, at most {most}: cut it, or move a part to the page of its folder",
                    file.path
                ));
            }
        }
    }
    complaints
}

/// Folders whose comments leave out the noun more often than before.
pub fn vague_comments(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (folders, most) in MOST_VAGUE_WORDS {
        let inside = |file: &&File| folders.iter().any(|folder| file.under(folder));
        let found: usize = tree.rust().filter(inside).map(vague_words).sum();
        if found > most {
            complaints.push(format!(
                "{}: {found} times one of {VAGUE_WORDS:?} in comments, at most {most}: name the actor",
                folders.join(", ")
            ));
        }
    }
    complaints
}

fn vague_words(file: &File) -> usize {
    let comments = file
        .lines()
        .filter(|(_, line)| line.trim_start().starts_with("//"));
    let is_vague = |word: &&str| VAGUE_WORDS.iter().any(|vague| word.eq_ignore_ascii_case(vague));
    comments
        .map(|(_, line)| line.split(|c: char| !c.is_alphabetic()).filter(is_vague).count())
        .sum()
}

/// Comments on lines of their own that are wider than the code. Tables, code blocks, code spans and links
/// cannot be broken.
pub fn wide_comments(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.rust() {
        let mut in_code = false;
        for (at, line) in file.lines() {
            let Some(text) = line.trim_start().strip_prefix("//") else {
                in_code = false;
                continue;
            };
            let text = text.trim_start_matches(['/', '!']).trim();
            let fence = text.starts_with("```");
            in_code ^= fence;
            let columns = line.chars().count();
            let prose = !in_code && !fence && !text.starts_with('|');
            if columns > MAX_COMMENT_COLUMNS && prose && has_a_break(text) {
                complaints.push(format!(
                    "{}:{at}: {columns} columns of comment: wrap it at {MAX_COMMENT_COLUMNS}",
                    file.path
                ));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_promises_to_be_short_is_short() {
        let long = "word ".repeat(401);
        let bad = Tree::of(&[
            ("docs/decisions/0001-a.md", &long),
            ("docs/decisions/README.md", &long),
            ("ARCHITECTURE.md", &long),
        ]);
        assert_eq!(wordy_documents(&bad).len(), 1);
        crate::nothing_to_say(wordy_documents(&Tree::of_this_repository()));
    }

    #[test]
    fn comments_name_the_actor() {
        let text = "//! Who asks whom.\nlet who = 1; // whoever\n    /// The whole of it.\n";
        assert_eq!(vague_words(&Tree::of(&[("a.rs", text)]).files[0]), 2);
        let bad = Tree::of(&[("fuzz/a.rs", text), ("crates/antiphon-core/a.rs", text)]);
        assert_eq!(vague_comments(&bad).len(), 1, "only a folder above its number");
        crate::nothing_to_say(vague_comments(&Tree::of_this_repository()));
    }

    #[test]
    fn a_comment_is_no_wider_than_the_code() {
        let long = "word ".repeat(30);
        let text = format!(
            "//! {long}\n//! ```\n//! {long}\n//! ```\n/// | {long} |\n    // {long}\nlet a = 1; // {long}\n/// `{long}`\n"
        );
        let bad = Tree::of(&[("a.rs", &text)]);
        assert_eq!(wide_comments(&bad).len(), 2, "{:?}", wide_comments(&bad));
        crate::nothing_to_say(wide_comments(&Tree::of_this_repository()));
    }
}

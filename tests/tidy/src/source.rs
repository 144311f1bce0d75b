//! Rules on the text of source files.

use crate::Tree;

/// A file of more lines holds several ideas.
pub const MAX_LINES: usize = 800;

/// Files that are too long.
pub fn too_long(tree: &Tree) -> Vec<String> {
    let long = tree.rust().filter(|file| file.text.lines().count() > MAX_LINES);
    long.map(|file| {
        format!(
            "{}: {} lines, at most {MAX_LINES}: split it by ideas",
            file.path,
            file.text.lines().count()
        )
    })
    .collect()
}

/// Rust files that do not open with a page; a module's `tests.rs` belongs to the page of its module.
pub fn without_page(tree: &Tree) -> Vec<String> {
    let opens_with_page = |text: &str| {
        let mut lines = text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with("#!["));
        lines.next().is_some_and(|l| l.starts_with("//!"))
    };
    let pages = tree.rust().filter(|file| !file.path.ends_with("/tests.rs"));
    let bare = pages.filter(|file| !opens_with_page(&file.text));
    bare.map(|file| {
        format!(
            "{}:1: opens without a page (`//! …`) that says what it is for",
            file.path
        )
    })
    .collect()
}

/// Marks of unfinished work.
pub fn forgotten_marks(tree: &Tree) -> Vec<String> {
    // Put together here so that this file does not contain them.
    let marks = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X:"],
        ["HA", "CK:"],
        ["unimplemented", "!("],
        ["todo", "!("],
    ];
    complain(
        tree,
        &marks.map(|m| m.concat()),
        "a forgotten mark: finish it, or write an issue",
    )
}

/// Files that no build reads and every package would have.
pub fn left_by_a_merge(tree: &Tree) -> Vec<String> {
    let left = tree.files.iter().filter(|file| file.is("orig") || file.is("rej"));
    left.map(|file| format!("{}: a merge or a patch has left it: remove it", file.path))
        .collect()
}

/// Paths and names of somebody's machine.
pub fn machine_words(tree: &Tree) -> Vec<String> {
    let words = [
        ["/wo", "rk/"],
        ["/ro", "ot/"],
        ["/ho", "me/"],
        ["shared/", "research"],
        ["shared/", "protocols"],
        ["shared/", "design"],
    ];
    complain(tree, &words.map(|w| w.concat()), "a path of somebody's machine")
}

fn complain(tree: &Tree, words: &[String], what: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|f| !f.path.ends_with("Cargo.lock")) {
        for (at, line) in file.lines() {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                complaints.push(format!("{}:{at}: {word:?}: {what}", file.path));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_source_file_is_too_long() {
        assert_eq!(
            too_long(&Tree::of(&[("a.rs", &"//! a\n".repeat(MAX_LINES + 1))])).len(),
            1
        );
        crate::nothing_to_say(too_long(&Tree::of_this_repository()));
    }

    #[test]
    fn every_source_file_opens_with_a_page() {
        let bad = Tree::of(&[
            ("a.rs", "use b;\n"),
            ("b.rs", "#![forbid(x)]\n//! A page.\n"),
            ("c.rs", ""),
        ]);
        assert_eq!(without_page(&bad).len(), 2);
        crate::nothing_to_say(without_page(&Tree::of_this_repository()));
    }

    #[test]
    fn no_forgotten_marks() {
        let bad = Tree::of(&[("a.rs", &format!("// {} later\n", ["TO", "DO"].concat()))]);
        assert_eq!(forgotten_marks(&bad).len(), 1);
        crate::nothing_to_say(forgotten_marks(&Tree::of_this_repository()));
    }

    #[test]
    fn nothing_is_left_by_a_merge() {
        let bad = Tree::of(&[("a.rs.orig", ""), ("b/c.rej", ""), ("original.rs", "")]);
        assert_eq!(left_by_a_merge(&bad).len(), 2);
        crate::nothing_to_say(left_by_a_merge(&Tree::of_this_repository()));
    }

    #[test]
    fn no_paths_of_somebodys_machine() {
        let bad = Tree::of(&[("a.md", &format!("see {}x\n", ["/ho", "me/"].concat()))]);
        assert_eq!(machine_words(&bad).len(), 1);
        crate::nothing_to_say(machine_words(&Tree::of_this_repository()));
    }
}

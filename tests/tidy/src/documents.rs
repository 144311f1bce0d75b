//! Documents must not name what is not there.

use std::collections::BTreeSet;

use crate::{File, Tree};

/// Relative links to files or headings that do not exist.
pub fn dead_links(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.documents() {
        for (at, line) in prose(file) {
            for target in links(line).filter(|t| !t.contains("://") && !t.starts_with("mailto:")) {
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() {
                    file.path.clone()
                } else {
                    resolve(&file.path, path)
                };
                if !tree.exists(&path) {
                    complaints.push(format!("{}:{at}: dead link: {target}", file.path));
                } else if !heading.is_empty()
                    && !tree.get(&path).is_some_and(|to| anchors(to).contains(heading))
                {
                    complaints.push(format!("{}:{at}: no such heading: {target}", file.path));
                }
            }
        }
    }
    complaints
}

/// Flags of our programs, constants, variables and paths that a document names and the code does not have.
pub fn names_of_nothing(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let code: String = tree
        .files
        .iter()
        .filter(|f| f.is("rs") && !f.under("tests/tidy/") || f.path == ".ci/run" || f.is("toml") || f.is("h"))
        .map(|f| f.text.as_str())
        .collect();
    let knows_flag = |flag: &str| {
        if flag == "--help" {
            return true;
        }
        let name = flag.trim_start_matches('-');
        code.contains(flag)
            || code.contains(&format!("\"{name}\""))
            || code.contains(&format!(" {}:", name.replace('-', "_")))
    };
    for file in tree.documents().filter(|f| f.path != "CHANGELOG.md") {
        for (at, line) in file.lines() {
            let spans = line.split('`').skip(1).step_by(2);
            for span in spans.clone() {
                let word = span.split([' ', '=', '(']).next().unwrap_or_default();
                if word.starts_with("--") && word.len() > 2 && !knows_flag(word) {
                    complaints.push(format!("{}:{at}: no such flag in the code: {word}", file.path));
                }
                if is_constant(word) && !code.contains(word) {
                    complaints.push(format!(
                        "{}:{at}: no such constant or variable in the code: {word}",
                        file.path
                    ));
                }
                let word = &in_full(file, word);
                let ours = ["crates/", "tests/", "fuzz/", ".ci/"]
                    .iter()
                    .any(|folder| word.starts_with(folder));
                if ours && !word.contains(['*', '<', '{', '…']) && !tree.exists(word) {
                    complaints.push(format!("{}:{at}: no such file: {word}", file.path));
                }
            }
            if let Some((_, arguments)) = line
                .split_once("antiphon node ")
                .or(line.split_once("antiphon-sim -- "))
            {
                let flags = arguments
                    .split([' ', '`', '[', ']', '|'])
                    .filter(|word| word.starts_with("--") && word.len() > 2);
                for flag in flags
                    .map(|f| f.trim_end_matches([',', '.', ')', ';']))
                    .filter(|f| !knows_flag(f))
                {
                    complaints.push(format!("{}:{at}: no such flag in the code: {flag}", file.path));
                }
            }
        }
    }
    complaints
}

/// Short names of folders in ARCHITECTURE.md, which says them itself.
const SHORT: [(&str, &str); 4] = [
    ("lib/", "crates/antiphon/src/"),
    ("core/", "crates/antiphon-core/src/"),
    ("net/", "crates/antiphon-net/src/"),
    ("wire/", "crates/antiphon-wire/src/"),
];

/// A path as it is from the root.
fn in_full(file: &File, path: &str) -> String {
    let short = SHORT.iter().filter(|_| file.path == "ARCHITECTURE.md");
    short
        .filter_map(|(short, full)| Some(format!("{full}{}", path.strip_prefix(short)?)))
        .next()
        .unwrap_or_else(|| path.to_owned())
}

/// Table rows `| … CONSTANT … | number |` whose number is not the one in the code.
pub fn stale_limits(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.documents() {
        for (at, line) in file.lines().filter(|(_, line)| line.starts_with('|')) {
            let Some(name) = line.split('`').skip(1).step_by(2).find(|span| is_constant(span)) else {
                continue;
            };
            let Some(truth) = tree.rust().find_map(|source| constant(&source.text, name)) else {
                continue;
            };
            let cells = line.split('|').filter(|cell| !cell.contains(name));
            let said: Vec<u64> = cells
                .filter_map(|cell| number(cell.trim().trim_matches('`')))
                .collect();
            if !said.is_empty() && !said.contains(&truth) {
                complaints.push(format!("{}:{at}: {name} is {truth} in the code", file.path));
            }
        }
    }
    complaints
}

/// The longest line of prose.
const MAX_COLUMNS: usize = 120;

/// Lines of prose that are longer than a screen is wide. Tables and headings cannot be broken, and neither
/// can code and the targets of links.
pub fn long_lines(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.documents() {
        let breakable = prose(file).filter(|(_, line)| !line.trim_start().starts_with(['|', '#', '<']));
        for (at, line) in breakable {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS && has_a_break(line) {
                complaints.push(format!(
                    "{}:{at}: {columns} columns of prose: wrap it at {MAX_COLUMNS}",
                    file.path
                ));
            }
        }
    }
    complaints
}

/// Whether a line could be shorter: whether there is a space in it, behind what begins a list item, in no
/// code and no link.
pub(crate) fn has_a_break(line: &str) -> bool {
    let words = line.trim_start().trim_start_matches(['-', '*']).trim();
    let outside_code: String = words.split('`').step_by(2).collect();
    let mut rest = outside_code.as_str();
    while let Some((before, link)) = rest.split_once('[') {
        if before.contains(' ') {
            return true;
        }
        rest = link
            .split_once("](")
            .and_then(|(_, target)| target.split_once(')'))
            .map_or(link, |(_, after)| after);
    }
    rest.contains(' ')
}

/// The lines of a document outside its code blocks.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains(' '))
}

fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a document's headings, the way forges make them.
fn anchors(file: &File) -> BTreeSet<String> {
    let headings = prose(file).filter(|(_, line)| line.starts_with('#'));
    let slug = |heading: &str| {
        let kept = heading
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
            .collect()
    };
    headings.map(|(_, line)| slug(line)).collect()
}

fn is_constant(word: &str) -> bool {
    word.len() > 4
        && word.contains('_')
        && word
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        && word.starts_with(|c: char| c.is_ascii_uppercase())
}

/// The value of `const NAME: … = value;` if it is a plain number.
fn constant(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("const {name}:"))?;
    number(rest.split_once('=')?.1.split(';').next()?.trim())
}

fn number(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_document_has_a_dead_link() {
        let bad = Tree::of(&[
            (
                "docs/a.md",
                "# A b\n[x](../c.md) [y](b.md) [z](#a-b) [w](#nothing) [v](https://x.y/z)\n",
            ),
            ("docs/b.md", ""),
        ]);
        assert_eq!(dead_links(&bad).len(), 2);
        crate::nothing_to_say(dead_links(&Tree::of_this_repository()));
    }

    #[test]
    fn no_line_of_prose_is_longer_than_a_screen_is_wide() {
        let long = |word: &str| format!("{word} ").repeat(40);
        let document = format!(
            "# {0}\n{0}\n- {0}\n| {0} |\n```\n{0}\n```\n`{0}`\n- [{0}](b.md)\n{1}\n[{0}](b.md) and more\nshort\n",
            long("word"),
            "x".repeat(130)
        );
        let complaints = long_lines(&Tree::of(&[("a.md", &document)]));
        let lines: Vec<&str> = complaints
            .iter()
            .filter_map(|said| said.split(':').nth(1))
            .collect();
        assert_eq!(lines, ["2", "3", "11"], "{complaints:?}");
        crate::nothing_to_say(long_lines(&Tree::of_this_repository()));
    }

    #[test]
    fn documents_name_only_flags_constants_and_paths_that_exist() {
        let document = "`--colour` `--seed` `MAX_THINGS` `NO_THINGS` `crates/x/a.rs` `crates/y`\n    antiphon node --seed 1 --gone 2\n";
        let bad = Tree::of(&[
            ("a.md", document),
            ("crates/x/a.rs", "const MAX_THINGS: usize = 3; \"--seed\"\n"),
        ]);
        assert_eq!(names_of_nothing(&bad).len(), 4, "{:?}", names_of_nothing(&bad));
        let bad = Tree::of(&[
            ("ARCHITECTURE.md", "`core/node.rs` `core/gone.rs`\n"),
            ("crates/antiphon-core/src/node.rs", ""),
        ]);
        assert_eq!(names_of_nothing(&bad).len(), 1, "{:?}", names_of_nothing(&bad));
        crate::nothing_to_say(names_of_nothing(&Tree::of_this_repository()));
    }

    #[test]
    fn limits_in_tables_are_those_of_the_code() {
        let code = ("crates/x/a.rs", "pub const MAX_THINGS: usize = 65_536;\n");
        assert_eq!(
            stale_limits(&Tree::of(&[code, ("a.md", "| `MAX_THINGS` | 65,536 |\n")])).len(),
            0
        );
        assert_eq!(
            stale_limits(&Tree::of(&[code, ("a.md", "| `MAX_THINGS` | 1024 |\n")])).len(),
            1
        );
        crate::nothing_to_say(stale_limits(&Tree::of_this_repository()));
    }
}

//! GUARANTEES.md, the code, the checkers and the planted bugs must tell the same story.

use std::collections::{BTreeMap, BTreeSet};

use crate::Tree;

/// Where the checkers live.
const CHECKERS: [&str; 2] = ["crates/antiphon-judge/src/", "crates/antiphon-sim/src/check/"];

/// Where mistakes are planted.
const PLANTED: [&str; 2] = ["crates/antiphon-core/src/", "crates/antiphon-replica/src/"];

/// Guarantees that hold and that no checker quotes; numbers quoted somewhere that GUARANTEES.md does not
/// have.
pub fn disagreements(tree: &Tree) -> Vec<String> {
    let offered = offered(tree);
    let mut complaints = Vec::new();
    let mut checked = BTreeSet::new();
    for file in tree
        .files
        .iter()
        .filter(|f| f.is("rs") || f.is("md"))
        .filter(|f| !f.under("tests/tidy/"))
    {
        for (at, line) in file.lines() {
            for number in quoted(line) {
                if !offered.contains_key(&number) {
                    complaints.push(format!("{}:{at}: G{number} is not in GUARANTEES.md", file.path));
                }
                if CHECKERS.iter().any(|folder| file.under(folder)) {
                    checked.insert(number);
                }
            }
        }
    }
    for (number, holds) in offered {
        if holds && !checked.contains(&number) {
            complaints.push(format!(
                "GUARANTEES.md: G{number} is said to hold and no checker in {CHECKERS:?} quotes it"
            ));
        }
    }
    complaints
}

/// Planted bugs without a description, or not planted anywhere.
pub fn idle_bugs(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let Some(list) = tree.get("crates/antiphon-core/src/planted.rs") else {
        return complaints;
    };
    let planted: BTreeSet<&str> = tree
        .rust()
        .filter(|f| PLANTED.iter().any(|folder| f.under(folder)))
        .flat_map(|f| f.text.split("planted!(").skip(1))
        .filter_map(|rest| rest.split(')').next()?.rsplit(',').next())
        .map(str::trim)
        .collect();
    let mut described = false;
    let bugs = list
        .lines()
        .skip_while(|(_, line)| !line.starts_with("bugs! {"))
        .skip(1);
    for (at, line) in bugs.take_while(|(_, line)| !line.starts_with('}')) {
        let line = line.trim();
        if line.starts_with("///") {
            described = true;
        } else if let Some(name) = line.strip_suffix(',') {
            if !described {
                complaints.push(format!(
                    "{}:{at}: the planted bug {name} has no description",
                    list.path
                ));
            }
            if !planted.contains(name) {
                complaints.push(format!(
                    "{}:{at}: the planted bug {name} is planted nowhere",
                    list.path
                ));
            }
            described = false;
        }
    }
    complaints
}

/// The numbers of GUARANTEES.md, and whether each is said to hold.
fn offered(tree: &Tree) -> BTreeMap<u32, bool> {
    let mut offered = BTreeMap::new();
    let mut current = None;
    for (_, line) in tree.get("GUARANTEES.md").into_iter().flat_map(|f| f.lines()) {
        if line.starts_with("## ") {
            current = None;
        } else if let Some(heading) = line.strip_prefix("### ") {
            current = quoted(heading).next();
            offered.extend(current.map(|number| (number, false)));
        } else if let (Some(number), true) = (current, line.starts_with("Holds: ")) {
            offered.insert(number, true);
        }
    }
    offered
}

/// The numbers `Gn` in a line, as words of their own.
fn quoted(line: &str) -> impl Iterator<Item = u32> + '_ {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter_map(|word| word.strip_prefix('G'))
        .filter(|digits| (1..=2).contains(&digits.len()))
        .filter_map(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guarantee_has_its_checker_and_every_checker_its_guarantee() {
        let bad = Tree::of(&[
            (
                "GUARANTEES.md",
                "### G1 One\nHolds: all.\n### G2 Two\nHolds: all.\n### G3 Three\nNot offered yet.\n",
            ),
            ("crates/antiphon-sim/src/check/a.rs", "// G1 and G9\n"),
        ]);
        assert_eq!(disagreements(&bad).len(), 2, "G2 is unchecked, G9 does not exist");
        crate::nothing_to_say(disagreements(&Tree::of_this_repository()));
    }

    #[test]
    fn every_planted_bug_is_described_and_planted() {
        let list = "bugs! {\n    /// It forgets.\n    Forgets,\n    Lies,\n}\n";
        let core = "if planted!(Forgets) {}\n";
        let bad = Tree::of(&[
            ("crates/antiphon-core/src/planted.rs", list),
            ("crates/antiphon-core/src/a.rs", core),
        ]);
        assert_eq!(
            idle_bugs(&bad).len(),
            2,
            "one bug is neither described nor planted"
        );
        crate::nothing_to_say(idle_bugs(&Tree::of_this_repository()));
    }
}

//! Who may depend on whom: `wire ← core ← {sim, net, replica}`, `{net, replica} ← antiphon`,
//! `{judge, replica} ← sim`, `judge ← lab`.

use crate::{File, Tree};

/// For each crate, which of ours it may depend on outside its tests.
const MAY_DEPEND: [(&str, &[&str]); 9] = [
    ("antiphon-wire", &[]),
    ("antiphon-core", &["antiphon-wire"]),
    ("antiphon-judge", &[]),
    ("antiphon-replica", &["antiphon-core"]),
    ("antiphon-api", &[]),
    (
        "antiphon-sim",
        &[
            "antiphon-wire",
            "antiphon-core",
            "antiphon-judge",
            "antiphon-replica",
        ],
    ),
    ("antiphon-net", &["antiphon-wire", "antiphon-core"]),
    ("antiphon-lab", &["antiphon-api", "antiphon-judge"]),
    // `api`: how its events look as JSON, for its feature `serde`. `replica`: for its feature `blocks`.
    (
        "antiphon",
        &[
            "antiphon-wire",
            "antiphon-core",
            "antiphon-net",
            "antiphon-api",
            "antiphon-replica",
        ],
    ),
];

/// What would let the world into the deterministic crates.
const WORLDLY_CRATES: [&str; 8] = [
    "tokio",
    "mio",
    "socket2",
    "rand",
    "getrandom",
    "libc",
    "rustix",
    "async-std",
];
const WORLDLY_WORDS: [&str; 9] = [
    "std::thread::spawn",
    "std::thread::sleep",
    "std::env::",
    "std::fs::",
    "std::process::",
    "SystemTime",
    "Instant::now",
    "TcpStream",
    "UdpSocket",
];

/// Dependencies against the rule.
pub fn wrong_dependence(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, may) in MAY_DEPEND {
        let path = format!("crates/{name}/Cargo.toml");
        let Some(manifest) = tree.get(&path) else { continue };
        let pure = matches!(name, "antiphon-wire" | "antiphon-core" | "antiphon-judge");
        for (at, dependency) in dependencies(manifest) {
            let ours = dependency == "antiphon" || dependency.starts_with("antiphon-");
            if ours && !may.contains(&dependency) {
                complaints.push(format!("{path}:{at}: {name} must not depend on {dependency}"));
            }
            if pure && WORLDLY_CRATES.contains(&dependency) {
                complaints.push(format!(
                    "{path}:{at}: {name} is deterministic and must not know {dependency}"
                ));
            }
        }
    }
    complaints
}

/// Clocks, sockets, threads, environment and unordered maps in the deterministic crates, outside their tests.
pub fn world_in_the_core(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let pure = |path: &str| {
        ["core", "wire", "judge"]
            .iter()
            .any(|name| path.starts_with(&format!("crates/antiphon-{name}/src/")))
    };
    let test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    for file in tree.rust().filter(|f| pure(&f.path) && !test(&f.path)) {
        let product = file
            .lines()
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
        for (at, line) in product {
            let code = line.split("//").next().unwrap_or_default();
            let unordered = ["HashMap", "HashSet"].iter().find(|word| code.contains(**word));
            if let Some(word) = WORLDLY_WORDS
                .iter()
                .find(|word| code.contains(**word))
                .or(unordered)
            {
                complaints.push(format!("{}:{at}: {word} in a deterministic crate", file.path));
            }
        }
    }
    complaints
}

/// Dependencies in the root manifest without a comment that says why, and others that bypass the root
/// manifest.
pub fn without_reason(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    if let Some(root) = tree.get("Cargo.toml") {
        let lines: Vec<_> = root.text.lines().collect();
        for (at, line) in section(root, |name| name == "workspace.dependencies") {
            let declares = line.contains('=') && !line.starts_with(['#', ' ', '"', ']', '}']);
            let outside = declares && !line.contains("path =");
            // Lines that follow each other directly share the reason above them.
            let above = lines[..at - 1]
                .iter()
                .rev()
                .find(|line| line.starts_with('#') || !line.contains('='));
            if outside && !above.is_some_and(|line| line.starts_with('#')) {
                complaints.push(format!(
                    "Cargo.toml:{at}: no reason above this dependency: {line}"
                ));
            }
        }
    }
    // These are no members of the workspace.
    let apart = |f: &File| f.under("fuzz/") || f.under("benches/peers/") || f.under("examples/");
    for manifest in tree
        .files
        .iter()
        .filter(|f| f.path.ends_with("/Cargo.toml") && !apart(f))
    {
        for (at, line) in section(manifest, |name| name.ends_with("dependencies")) {
            let ours_or_shared = line.contains("workspace") || line.contains("path =");
            if line.contains('=') && !line.starts_with('#') && !ours_or_shared {
                complaints.push(format!(
                    "{}:{at}: declare it in the root manifest, with its reason: {line}",
                    manifest.path
                ));
            }
        }
    }
    complaints
}

/// The names under `[dependencies]` and `[target.….dependencies]`, with their lines.
fn dependencies(manifest: &File) -> impl Iterator<Item = (usize, &str)> {
    let product =
        |name: &str| name == "dependencies" || name.starts_with("target.") && name.ends_with(".dependencies");
    section(manifest, product)
        .filter(|(_, line)| !line.starts_with('#') && line.contains('='))
        .map(|(at, line)| {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            (at, &line[..end])
        })
}

fn section(manifest: &File, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    manifest.lines().filter(move |(_, line)| {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = wanted(name);
            return false;
        }
        inside && !line.trim().is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_depend_on_each_other_in_one_direction() {
        let bad = Tree::of(&[(
            "crates/antiphon-core/Cargo.toml",
            "[dependencies]\nantiphon-net.workspace = true\ntokio.workspace = true\n",
        )]);
        assert_eq!(wrong_dependence(&bad).len(), 2);
        let fine = Tree::of(&[(
            "crates/antiphon-core/Cargo.toml",
            "[dependencies]\nantiphon-wire.workspace = true\n",
        )]);
        assert_eq!(wrong_dependence(&fine).len(), 0);
        crate::nothing_to_say(wrong_dependence(&Tree::of_this_repository()));
    }

    #[test]
    fn the_core_knows_no_clock_no_socket_and_no_unordered_map() {
        let text = "//! a\nlet t = Instant::now();\nuse std::collections::HashMap;\n// Instant::now\n#[cfg(test)]\nInstant::now()\n";
        assert_eq!(
            world_in_the_core(&Tree::of(&[("crates/antiphon-core/src/a.rs", text)])).len(),
            2
        );
        crate::nothing_to_say(world_in_the_core(&Tree::of_this_repository()));
    }

    #[test]
    fn every_dependency_has_a_reason() {
        let bad = Tree::of(&[
            (
                "Cargo.toml",
                "[workspace.dependencies]\na = { path = \"a\" }\n\nb = \"1\"\n# why\nc = \"1\"\n[x]\ny = 1\n",
            ),
            (
                "crates/a/Cargo.toml",
                "[dependencies]\nb = \"1\"\nc.workspace = true\n",
            ),
        ]);
        assert_eq!(without_reason(&bad).len(), 2);
        crate::nothing_to_say(without_reason(&Tree::of_this_repository()));
    }
}

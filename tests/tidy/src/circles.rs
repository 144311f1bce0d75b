//! No file of the core imports a file that imports it, directly or by way of others; and so it is with rooms.
//! Of groups, flush and order, each part imports only those below it.
//!
//! A path leads to the file that declares its last name, also through `pub use`: what a folder's `mod.rs`
//! re-exports is imported from where it is, and declaring a module is no import of it. Tests do not count.
//! What this does not see: a method of a type that is declared in another file than the type.

use std::collections::{BTreeMap, BTreeSet};

use crate::Tree;

const CORE: &str = "crates/antiphon-core/src/";
/// Folders of it whose rooms import each other one way only.
const HOUSES: [&str; 1] = ["membership"];
/// Folders and files of it in the order of the table in `group/mod.rs`: each imports none of a later line. A
/// file stands where the first of these names leads to it.
const LAYERS: [&[&str]; 5] = [
    &[
        "group::cut",
        "group::effect",
        "group::large",
        "group::log",
        "group::nodes",
        "group::reached",
        "group::standstill",
    ],
    &["order"],
    &[
        "group::stream",
        "group::direct::incoming",
        "group::direct::limits",
        "group::direct::outgoing",
        "group::direct::state",
    ],
    &["flush"],
    &["group"],
];
/// What declares a name.
const DECLARES: [&str; 7] = ["struct", "enum", "fn", "const", "static", "trait", "type"];

/// A module by its path from the crate.
type Module = Vec<String>;

/// Files of the core that import each other in a circle.
pub fn import_circles(tree: &Tree) -> Vec<String> {
    let files = Files::of(tree);
    let found = circles(&files.imports());
    let complaint = |(module, back): (Module, Vec<String>)| {
        let file = &files.of[&module].path;
        format!("{file}: in a circle of imports by {}", back.join(", "))
    };
    found.into_iter().map(complaint).collect()
}

/// Rooms, which are the folders and files directly in one of these, that import each other in a circle.
pub fn room_circles(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for house in HOUSES {
        let mut rooms: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        // The file of the house itself stands above all of them.
        let room = |module: &Module| (module.len() > 1 && module[0] == house).then(|| module[..2].to_vec());
        for (module, to) in Files::of(tree).imports() {
            if let Some(from) = room(&module) {
                let others = to.iter().filter_map(room).filter(|other| *other != from);
                rooms.entry(from.clone()).or_default().extend(others);
            }
        }
        let found = circles(&rooms).into_iter();
        complaints.extend(found.map(|(room, back)| {
            let room = room.join("::");
            format!("{room}: in a circle of rooms by {}", back.join(", "))
        }));
    }
    complaints
}

/// Files that import what stands on them.
pub fn turned_layers(tree: &Tree) -> Vec<String> {
    let files = Files::of(tree);
    let mut complaints = Vec::new();
    for (module, to) in files.imports() {
        let Some(own) = layer(&module) else { continue };
        for above in to.iter().filter(|to| layer(to) > Some(own)) {
            let (file, above) = (&files.of[&module].path, above.join("::"));
            complaints.push(format!("{file}: imports {above}, which stands on it"));
        }
    }
    complaints
}

fn layer(module: &Module) -> Option<usize> {
    let path = format!("{}::", module.join("::"));
    let leads_there = |name: &&str| path.starts_with(&format!("{name}::"));
    LAYERS.iter().position(|names| names.iter().any(&leads_there))
}

/// Those that lead back to themselves, and by which of those that they import.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<(Module, Vec<String>)> {
    let mut found = Vec::new();
    for (module, direct) in imports {
        let back = |to: &&Module| *to == module || reaches(imports, to, module);
        let back: Vec<String> = direct.iter().filter(back).map(|to| to.join("::")).collect();
        if !back.is_empty() {
            found.push((module.clone(), back));
        }
    }
    found
}

fn reaches(imports: &BTreeMap<Module, BTreeSet<Module>>, from: &Module, to: &Module) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut waiting = vec![from];
    while let Some(at) = waiting.pop() {
        for next in imports.get(at).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next) {
                waiting.push(next);
            }
        }
    }
    false
}

/// What one file says that matters here.
#[derive(Default)]
struct Source {
    path: String,
    /// Names that `use` brings in, with the path of each, and whether it is re-exported.
    uses: Vec<(String, Vec<String>, bool)>,
    declared: BTreeSet<String>,
    children: BTreeSet<String>,
    /// Paths in the code itself.
    paths: Vec<Vec<String>>,
}

struct Files {
    of: BTreeMap<Module, Source>,
}

impl Files {
    fn of(tree: &Tree) -> Self {
        let mut of = BTreeMap::new();
        for file in tree.rust().filter(|file| file.under(CORE)) {
            let path = &file.path[CORE.len()..file.path.len() - ".rs".len()];
            let mut module: Module = path.split('/').map(str::to_owned).collect();
            if module
                .iter()
                .any(|name| matches!(name.as_str(), "tests" | "testing"))
            {
                continue;
            }
            if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
                module.pop();
            }
            of.insert(module, Source::read(&file.path, &file.text));
        }
        Self { of }
    }

    fn imports(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let of_one = |(module, source): (&Module, &Source)| {
            let used = source.uses.iter().filter(|(_, _, again)| !again);
            let paths = used.map(|(_, path, _)| path).chain(&source.paths);
            let to = paths.filter_map(|path| self.declaring(&self.absolute(module, path)?, 0));
            (module.clone(), to.filter(|to| to != module).collect())
        };
        self.of.iter().map(of_one).collect()
    }

    /// The path from the crate, if it is one of this crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut from = module.clone();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module.as_slice(), rest].concat()),
            "super" => {
                from.pop();
                match rest.first() {
                    Some(next) if next == "super" => self.absolute(&from, rest),
                    _ => Some([from.as_slice(), rest].concat()),
                }
            }
            child if self.of[module].children.contains(child) => Some([module.as_slice(), path].concat()),
            _ => None,
        }
    }

    /// The file that declares what a path leads to.
    fn declaring(&self, path: &[String], depth: usize) -> Option<Module> {
        let mut module = Module::new();
        let mut rest = path;
        while let Some((next, after)) = rest.split_first() {
            let deeper = [module.as_slice(), std::slice::from_ref(next)].concat();
            if !self.of.contains_key(&deeper) {
                break;
            }
            (module, rest) = (deeper, after);
        }
        let source = self.of.get(&module)?;
        let Some((name, after)) = rest.split_first() else {
            return Some(module);
        };
        if depth > 8 || source.declared.contains(name) {
            return Some(module);
        }
        for (used, from, _) in &source.uses {
            let Some(from) = self.absolute(&module, from) else {
                continue;
            };
            if used == name {
                return self.declaring(&[from.as_slice(), after].concat(), depth + 1);
            }
            let all = &from[..from.len().saturating_sub(1)];
            let is_there = |source: &Source| source.declared.contains(name);
            if used == "*" && self.of.get(all).is_some_and(is_there) {
                return Some(all.to_vec());
            }
        }
        Some(module)
    }
}

impl Source {
    fn read(path: &str, text: &str) -> Self {
        let mut source = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        let words = product(&words(text));
        let mut at = 0;
        while at < words.len() {
            let word = words[at].as_str();
            let next = words.get(at + 1).cloned().unwrap_or_default();
            if word == "use" {
                let end = at + words[at..].iter().position(|word| word == ";").unwrap_or(1);
                let again = at > 0 && matches!(words[at - 1].as_str(), "pub" | ")");
                for (name, path) in expand(&words[at + 1..end]) {
                    source.uses.push((name, path, again));
                }
                at = end;
            } else if word == "mod" && words.get(at + 2).is_some_and(|word| word == ";") {
                source.children.insert(next);
                at += 2;
            } else if DECLARES.contains(&word) {
                source.declared.insert(next);
            } else if next == "::" && (at == 0 || words[at - 1] != "::") {
                let mut path = vec![word.to_owned()];
                while words.get(at + 1).is_some_and(|word| word == "::") {
                    path.extend(words.get(at + 2).cloned());
                    at += 2;
                }
                source.paths.push(path);
            }
            at += 1;
        }
        source
    }
}

/// The names that the tree of a `use` brings in, each with its path.
fn expand(words: &[String]) -> Vec<(String, Vec<String>)> {
    if let Some(open) = words.iter().position(|word| word == "{") {
        let before = words[..open].iter().filter(|word| *word != "::").cloned();
        let before: Vec<String> = before.collect();
        let (mut names, mut depth, mut from) = (Vec::new(), 0, open + 1);
        for at in open + 1..words.len() {
            match words[at].as_str() {
                "{" => depth += 1,
                "}" if depth > 0 => depth -= 1,
                "," | "}" if depth == 0 => {
                    for (name, path) in expand(&words[from..at]) {
                        names.push((name, [before.as_slice(), &path].concat()));
                    }
                    from = at + 1;
                }
                _ => {}
            }
        }
        return names;
    }
    let path: Vec<String> = words.iter().filter(|word| *word != "::").cloned().collect();
    match path.as_slice() {
        [] => Vec::new(),
        [path @ .., keyword, name] if keyword == "as" => vec![(name.clone(), path.to_vec())],
        [.., name] => vec![(name.clone(), path.clone())],
    }
}

/// Names and marks, without comments and without what stands between quotation marks.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut is_quoted = false;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for (at, part) in code.split('"').enumerate() {
            // A line that ends within a text says so by its last character.
            is_quoted = if at == 0 {
                is_quoted && line.ends_with('\\')
            } else {
                !is_quoted
            };
            let mut rest = if is_quoted { "" } else { part };
            while let Some(first) = rest.chars().next() {
                let is_name = |c: char| c.is_alphanumeric() || c == '_';
                let length = if is_name(first) {
                    rest.find(|c| !is_name(c)).unwrap_or(rest.len())
                } else if rest.starts_with("::") {
                    2
                } else {
                    first.len_utf8()
                };
                let (word, after) = rest.split_at(length);
                if !word.trim().is_empty() {
                    words.push(word.to_owned());
                }
                rest = after;
            }
        }
    }
    words
}

/// What is left without items that are compiled for tests only.
fn product(words: &[String]) -> Vec<String> {
    let mut product = Vec::new();
    let test = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut at = 0;
    while at < words.len() {
        if !words[at..].iter().take(test.len()).eq(test.iter()) {
            product.push(words[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0;
        while at < words.len() {
            let ends = match words[at].as_str() {
                "{" => {
                    depth += 1;
                    false
                }
                "}" => {
                    depth -= 1;
                    depth == 0
                }
                ";" => depth == 0,
                _ => false,
            };
            at += 1;
            if ends {
                break;
            }
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("{CORE}{path}")).collect();
        let files: Vec<(&str, &str)> = paths
            .iter()
            .zip(files)
            .map(|(path, (_, text))| (path.as_str(), *text))
            .collect();
        import_circles(&Tree::of(&files))
    }

    #[test]
    fn files_that_import_each_other_are_found_through_what_is_re_exported() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
            ("a/mod.rs", "mod c;\npub use c::A;\n"),
            ("a/c.rs", "pub struct A(crate::b::B);\n"),
            ("b.rs", "use crate::A;\npub struct B;\nstruct D(A);\n"),
        ];
        assert_eq!(
            core(&files),
            [
                format!("{CORE}a/c.rs: in a circle of imports by b"),
                format!("{CORE}b.rs: in a circle of imports by a::c"),
            ]
        );
    }

    #[test]
    fn declaring_a_module_and_importing_in_a_test_make_no_circle() {
        let files = [
            ("lib.rs", "mod a;\n"),
            ("a/mod.rs", "mod b;\nuse self::b::B;\nstruct A(B); // super::A\n"),
            (
                "a/b.rs",
                "pub struct B;\n#[cfg(test)]\nmod tests {\n    use super::super::A;\n}\n",
            ),
        ];
        assert_eq!(core(&files), [""; 0]);
    }

    #[test]
    fn rooms_import_each_other_one_way() {
        let files = [
            ("membership/mod.rs", "mod a;\nmod b;\n"),
            ("membership/a/mod.rs", "mod c;\npub struct A;\n"),
            ("membership/a/c.rs", "use crate::membership::b::B;\n"),
            ("membership/b.rs", "use crate::membership::a::A;\npub struct B;\n"),
        ]
        .map(|(path, text)| (format!("{CORE}{path}"), text));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        assert_eq!(room_circles(&Tree::of(&files)).len(), 2);
        crate::nothing_to_say(room_circles(&Tree::of_this_repository()));
    }

    #[test]
    fn the_flush_imports_the_stream_and_the_group_imports_the_flush() {
        let files = [
            ("lib.rs", "mod flush;\nmod group;\n"),
            (
                "flush/mod.rs",
                "use crate::group::stream::Stream;\npub struct Flush(Stream);\n",
            ),
            ("flush/a.rs", "use crate::group::member::Group;\n"),
            ("group/mod.rs", "mod member;\nmod stream;\n"),
            (
                "group/member.rs",
                "use crate::flush::Flush;\npub struct Group(Flush);\n",
            ),
            ("group/stream.rs", "pub struct Stream;\n"),
        ]
        .map(|(path, text)| (format!("{CORE}{path}"), text));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let complaint = format!("{CORE}flush/a.rs: imports group::member, which stands on it");
        assert_eq!(turned_layers(&Tree::of(&files)), [complaint]);
        crate::nothing_to_say(turned_layers(&Tree::of_this_repository()));
    }

    #[test]
    fn nothing_in_the_core_imports_what_imports_it() {
        crate::nothing_to_say(import_circles(&Tree::of_this_repository()));
    }
}

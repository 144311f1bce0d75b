//! The source tree as the rules see it: every text file that is ours, with its path from the root.

use std::path::Path;

/// One text file.
#[derive(Debug, Clone)]
pub struct File {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// What it says.
    pub text: String,
}

impl File {
    /// Whether its name ends with `.extension`.
    pub fn is(&self, extension: &str) -> bool {
        self.path
            .rsplit_once('.')
            .is_some_and(|(_, ext)| ext == extension)
    }

    /// Its lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }

    /// Whether it lies under `folder` (which ends with a slash).
    pub fn under(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }
}

/// All files.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<File>,
}

impl Tree {
    /// This repository.
    ///
    /// # Panics
    /// If it cannot be read: the rules cannot be checked then.
    pub fn of_this_repository() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut tree = Tree::default();
        tree.read(&root, "");
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(
            tree.get("README.md").is_some(),
            "{} is not the root of the repository",
            root.display()
        );
        tree
    }

    /// A tree of these files.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).into(),
                text: (*text).into(),
            })
            .collect();
        Tree { files }
    }

    /// The file at a path.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or folder is there.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.iter().any(|f| {
            f.path == path
                || f.path
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// The Rust sources.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is("rs"))
    }

    /// The documents.
    pub fn documents(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is("md"))
    }

    fn read(&mut self, folder: &Path, prefix: &str) {
        const NOT_OURS: [&str; 7] = [
            ".git",
            "target",
            "corpus",
            "artifacts",
            "node_modules",
            "build",
            "__pycache__",
        ];
        let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let Ok(kind) = entry.file_type() else { continue };
            if NOT_OURS.contains(&name.as_str()) {
                continue;
            }
            if kind.is_dir() {
                self.read(&entry.path(), &format!("{path}/"));
            } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
                self.files.push(File { path, text });
            } else {
                // A binary file (a golden vector, say): it can be linked to, and has no text to check.
                self.files.push(File {
                    path,
                    text: String::new(),
                });
            }
        }
    }
}

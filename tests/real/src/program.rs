//! The program under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the `antiphon` program: `ANTIPHON_BIN` if set, otherwise built once per test run, the way it
/// ships (the workspace's other members must not switch features on in it, so it cannot simply be a
/// dependency).
///
/// # Panics
/// If it cannot be built.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("ANTIPHON_BIN") {
        Some(path) => {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "ANTIPHON_BIN={}: no such file", path.display());
            path
        }
        None => build(),
    })
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(cargo)
        .current_dir(&root)
        .args([
            "build",
            "--profile",
            "test",
            "--package",
            "antiphon-cli",
            "--bin",
            "antiphon",
            "--message-format",
            "json",
        ])
        .stderr(std::process::Stdio::inherit())
        .output()
        .expect("cargo starts: it started this test");
    assert!(built.status.success(), "the antiphon program cannot be built");
    let messages = String::from_utf8_lossy(&built.stdout);
    let executable = messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    executable.expect("cargo names the executable that it built")
}

//! The program under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which build of the `antiphon` program.
#[derive(Clone, Copy, Debug)]
pub enum Build<'a> {
    /// As it ships, under this directory of Cargo's: the workspace's other members must not switch features
    /// on in it, so it cannot simply be a dependency of those that start it.
    Released(&'a Path),
    /// As `cargo test --workspace` has built it for the program's own tests: then nothing is compiled.
    Tested,
}

/// The path of the `antiphon` program: `ANTIPHON_BIN` if set, otherwise built by Cargo.
///
/// # Errors
/// `ANTIPHON_BIN` is no file, or the program cannot be built.
pub fn program(build: Build<'_>) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("ANTIPHON_BIN") {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("ANTIPHON_BIN={}: no such file", path.display())),
        };
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    // What Cargo tells a test of its package is not there when Cargo is called by hand: build scripts that
    // look at it would run again, and all that depends on them be compiled again.
    let of_this_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_this_package) {
            cargo.env_remove(name);
        }
    }
    match build {
        Build::Released(target) => cargo
            .args([
                "build",
                "--profile",
                "dist",
                "--package",
                "antiphon-cli",
                "--bin",
                "antiphon",
            ])
            .arg("--target-dir")
            .arg(target),
        // The one test by this name is the program's.
        Build::Tested => cargo.args(["test", "--workspace", "--no-run", "--test", "program"]),
    };
    let built = cargo
        .args(["--locked", "--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !built.status.success() {
        return Err(format!(
            "antiphon cannot be built: cargo ended with {}",
            built.status
        ));
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    let executable = messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let program = message["target"]["name"] == "antiphon" && message["profile"]["test"] == false;
        program.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executable.ok_or_else(|| "cargo built antiphon and does not say where it is".to_owned())
}

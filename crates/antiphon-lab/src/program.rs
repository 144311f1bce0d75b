//! The program under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of the `antiphon` program: `ANTIPHON_BIN` if set, otherwise built in this profile of Cargo's, the
/// way it ships: the workspace's other members must not switch features on in it, so it cannot simply be a
/// dependency of those that start it. It goes into `target`, or where Cargo puts it.
///
/// # Errors
/// `ANTIPHON_BIN` is no file, or the program cannot be built.
pub fn program(profile: &str, target: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("ANTIPHON_BIN") {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("ANTIPHON_BIN={}: no such file", path.display())),
        };
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args([
            "build",
            "--locked",
            "--package",
            "antiphon-cli",
            "--bin",
            "antiphon",
        ])
        .args(["--profile", profile, "--message-format", "json"])
        .stderr(Stdio::inherit());
    if let Some(target) = target {
        cargo.arg("--target-dir").arg(target);
    }
    let built = cargo
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
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    executable.ok_or_else(|| "cargo built antiphon and does not say where it is".to_owned())
}

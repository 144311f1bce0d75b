//! `antiphon key`: key files, 64 hex digits, for the eyes of their owner only.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::exit::Failed;

/// Makes a fresh key in a new file with mode 0600.
pub(crate) fn generate(path: &Path) -> Result<(), Failed> {
    let shown = path.display();
    let hex: String = fresh()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Failed::run(format!(
                "{shown} exists already and may hold a key in use; remove it first if it does not"
            )),
            _ => Failed::run(format!("cannot create {shown}: {error}")),
        })?;
    writeln!(file, "{hex}")
        .and_then(|()| file.sync_all())
        .map_err(|error| {
            // This process has made it, and the next try must not take it for a key in use.
            let _ = fs::remove_file(path);
            Failed::run(format!("cannot write {shown}: {error}"))
        })
}

/// A fresh key.
pub(crate) fn fresh() -> Result<[u8; 32], Failed> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)
        .map_err(|error| Failed::run(format!("the system gives no random numbers: {error}")))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use antiphon::config::read_key as read;

    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("antiphon-key-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn a_generated_key_is_read_back_without_a_warning_and_is_never_overwritten() {
        let path = scratch("generated");
        generate(&path).unwrap();
        let first = read(&path).unwrap();
        assert!(first.warning.is_none());
        assert!(generate(&path).unwrap_err().message.contains("exists already"));
        assert_eq!(read(&path).unwrap().key, first.key);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_key_file_that_others_can_read_is_warned_about() {
        let path = scratch("open");
        generate(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap().warning.unwrap().contains("mode 640"));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_key_file_with_anything_else_in_it_is_refused_without_showing_it() {
        let path = scratch("wrong");
        for text in ["", "secret", "0123", &"s".repeat(64)] {
            fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(
                error.contains("antiphon key") && !error.contains("secret") && !error.contains("sss"),
                "{error}"
            );
        }
        fs::remove_file(&path).unwrap();
    }
}

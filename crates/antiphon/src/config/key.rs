//! Key files: 64 hex digits, for the eyes of their owner only. `antiphon key` makes them.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Error;
use crate::ClusterKey;

/// More than any key file with spaces and a comment-free end has; guards against `--key-file /dev/zero`.
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// A key as read, and what its owner should hear about the file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyFile {
    /// The cluster's secret.
    pub key: ClusterKey,
    /// Set if others can read the file.
    pub warning: Option<String>,
}

/// Reads a key file.
///
/// # Errors
/// [`Error::Value`] for `key-file`: what is wrong with the file, without what is in it.
pub fn read_key(path: impl AsRef<Path>) -> Result<KeyFile, Error> {
    let path = path.as_ref();
    let shown = path.display();
    let refused = |reason: String| Error::value("key-file", reason);
    let make_one = format!("make one with `antiphon key {shown}` and copy it to every node");
    let read = || -> std::io::Result<(Vec<u8>, u32)> {
        let file = fs::File::open(path)?;
        let mode = file.metadata()?.permissions().mode();
        let mut text = Vec::new();
        file.take(MAX_KEY_FILE_BYTES).read_to_end(&mut text)?;
        Ok((text, mode))
    };
    let (text, mode) =
        read().map_err(|error| refused(format!("cannot read key file {shown}: {error}; {make_one}")))?;
    let key = ClusterKey::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
        refused(format!(
            "key file {shown}: {error}; if there is no key in it, remove it and {make_one}"
        ))
    })?;
    let warning = is_open(mode, path, credentials().as_deref()).then(|| {
        format!(
            "key file {shown} can be read by others (mode {:03o}); `chmod 600 {shown}` keeps it yours",
            mode & 0o777
        )
    });
    Ok(KeyFile { key, warning })
}

/// Where a service manager has put what it hands to this process alone.
fn credentials() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// Whether others can read a file with this mode. The credentials of a service have an access list that names
/// its user, and where there is a list, the bits of the group are its mask.
fn is_open(mode: u32, path: &Path, credentials: Option<&Path>) -> bool {
    let is_credential =
        credentials.is_some_and(|directory| directory.is_absolute() && path.starts_with(directory));
    let others = if is_credential { 0o007 } else { 0o077 };
    mode & others != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_a_credentials_access_list_opens_it_to_nobody() {
        let directory = Path::new("/run/credentials/antiphon-agent.service");
        let credential = directory.join("cluster.key");
        let elsewhere = Path::new("/etc/antiphon/cluster.key");
        let opens = |mode, path| is_open(mode, path, Some(directory));
        assert!(!opens(0o440, &credential) && !opens(0o400, &credential));
        assert!(opens(0o644, &credential) && opens(0o444, &credential));
        assert!(opens(0o440, elsewhere) && opens(0o644, elsewhere) && !opens(0o600, elsewhere));
        assert!(is_open(0o440, &credential, None));
        // An empty variable is no directory.
        assert!(is_open(0o440, elsewhere, Some(Path::new(""))));
    }
}

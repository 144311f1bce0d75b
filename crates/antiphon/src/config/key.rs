//! Key files: 64 hex digits, for the eyes of their owner only. `antiphon key` makes them.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

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
    let warning = (mode & 0o077 != 0).then(|| {
        format!(
            "key file {shown} can be read by others (mode {:03o}); `chmod 600 {shown}` keeps it yours",
            mode & 0o777
        )
    });
    Ok(KeyFile { key, warning })
}

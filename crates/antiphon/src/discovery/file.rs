//! A file of addresses, which may be edited, replaced or mounted anew at any time.
//!
//! ```text
//! # one node a line; what follows a # is a comment
//! 10.0.0.2:7400
//! [fd00::3]:7400, db3.example:7400
//! ```
//! It is read again each second or so, whole: the time of its last change says too little (editors that write twice in a second,
//! mounts without such times). What cannot be read or understood, to the last line, is not used at all: half a list
//! would be taken for the whole. Names in it are resolved again as often as those of `dns:`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::board::Place;
use super::dns::resolve;
use super::resolver::Resolver;
use super::source::{Kind, NODE_PORT, target};
use super::tasks::Pace;

/// More is no list of nodes.
const MAX_BYTES: u64 = 64 << 10;
/// The most entries.
const MAX_ENTRIES: usize = 256;
/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Reads one file again and again.
pub(super) async fn run(path: PathBuf, resolver: Resolver, place: Place, mut pace: Pace) {
    let mut known: Vec<Kind> = Vec::new();
    let mut text = String::new();
    let mut resolve_at = Instant::now();
    let mut spoilt = false;
    loop {
        let looked = path.clone();
        // It may be on a disk that hangs: the node does not wait for it, only this task does.
        let read = tokio::task::spawn_blocking(move || read(&looked)).await;
        let read = read.unwrap_or_else(|_| Err("reading it failed".to_owned()));
        let parsed = match read {
            Ok(now) if now == text && !known.is_empty() => Ok(None),
            Ok(now) => parse(&now).map(|kinds| Some((now, kinds))),
            Err(problem) => Err(problem),
        };
        match parsed {
            Ok(new) => {
                let changed = new.is_some();
                if let Some((now, kinds)) = new {
                    (text, known) = (now, kinds);
                }
                if changed || std::mem::take(&mut spoilt) || Instant::now() >= resolve_at {
                    let (found, problem) = resolve(&known, &resolver).await;
                    let failed = found.is_empty();
                    resolve_at = Instant::now() + pace.next(failed);
                    match problem {
                        None => place.found(found),
                        Some(problem) if failed => place.failed(problem),
                        Some(problem) => place.partly(found, problem),
                    }
                }
            }
            Err(problem) => {
                spoilt = true;
                let kept = if known.is_empty() {
                    ""
                } else {
                    "; the last good list stays in use"
                };
                place.failed(format!("{}: {problem}{kept}", path.display()));
            }
        }
        tokio::time::sleep(super::tasks::jitter(EVERY)).await;
    }
}

/// What the file says now, or what is wrong with it.
pub(super) async fn entries(path: PathBuf) -> Result<Vec<Kind>, String> {
    let read = tokio::task::spawn_blocking(move || read(&path)).await;
    let text = read.unwrap_or_else(|_| Err("reading it failed".to_owned()))?;
    parse(&text)
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err("is larger than 64 KiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

fn parse(text: &str) -> Result<Vec<Kind>, String> {
    let mut kinds = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let entries = line.split(|c: char| c == ',' || c.is_whitespace());
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let kind = target(entry, NODE_PORT).map_err(|error| format!("line {}: {error}", index + 1))?;
            if kinds.len() == MAX_ENTRIES {
                return Err(format!("line {}: more than {MAX_ENTRIES} entries", index + 1));
            }
            kinds.push(kind);
        }
    }
    match kinds.as_slice() {
        [] => Err("names no node".to_owned()),
        _ => Ok(kinds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_stand_on_lines_with_comments() {
        let text = "# nodes\n10.0.0.2:7400 # the first\n\n  [fd00::3]:1,db3.example:7500\n10.0.0.9\n";
        let shown: Vec<String> = parse(text)
            .unwrap()
            .into_iter()
            .map(|kind| crate::discovery::Source(kind).to_string())
            .collect();
        assert_eq!(
            shown,
            [
                "10.0.0.2:7400",
                "[fd00::3]:1",
                "dns:db3.example:7500",
                "10.0.0.9:7400"
            ]
        );
    }

    #[test]
    fn one_bad_line_spoils_the_list_and_is_named() {
        for (text, expected) in [
            ("", "names no node"),
            ("# none\n\n", "names no node"),
            ("10.0.0.1:7400\n10.0.0.2:99999\n", "line 2"),
            ("<html>", "line 1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let many: String = (0..257)
            .map(|host| format!("10.0.{}.{}\n", host / 250, host % 250))
            .collect();
        assert!(parse(&many).unwrap_err().contains("line 257"));
    }

    #[test]
    fn what_is_no_text_or_too_large_is_not_read() {
        let folder = std::env::temp_dir().join(format!("antiphon-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("nodes");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&path).unwrap_err().contains("UTF-8"));
        std::fs::write(&path, vec![b'#'; 70_000]).unwrap();
        assert!(read(&path).unwrap_err().contains("64 KiB"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(read(&path).unwrap_err().contains("cannot be read"));
        assert!(read(Path::new("/dev/zero")).unwrap_err().contains("64 KiB"));
    }
}

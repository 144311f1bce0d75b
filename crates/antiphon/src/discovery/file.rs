//! A file of addresses, which may be edited, replaced or mounted anew at any time.
//!
//! ```text
//! # one node a line; what follows a # is a comment
//! 10.0.0.2:7400
//! [fd00::3]:7400, db3.example:7400
//! ```
//! The whole file is read again each second or so: the time of its last change says too little (editors that
//! write twice in a second, mounts without such times). If any line cannot be read or understood, nothing of
//! the file is used: half a list would be taken for the whole. Names in it are resolved again as often as
//! those of `dns:`.
//!
//! A thread of its own reads it. If the disk hangs, neither the node nor the end of its program waits for it,
//! and the node says that the file does not answer.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::board::Place;
use super::dns::{Names, tell};
use super::resolver::Resolver;
use super::source::{Kind, target};
use super::tasks::Pace;

/// More is no list of nodes.
const MAX_BYTES: u64 = 64 << 10;
/// The most entries.
const MAX_ENTRIES: usize = 256;
/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A disk that takes longer hangs.
const WITHIN: Duration = Duration::from_secs(5);

/// Reads one file again and again.
pub(super) async fn run(path: PathBuf, port: u16, resolver: Resolver, place: Place, mut pace: Pace) {
    let mut known: Vec<Kind> = Vec::new();
    let mut text = String::new();
    let mut resolve_at = Instant::now();
    let mut spoilt = false;
    let mut names = Names::default();
    let mut reading = Reading::default();
    let mut was_settled = pace.settled();
    loop {
        let parsed = match reading.read(&path, WITHIN).await {
            Ok(now) if now == text && !known.is_empty() => Ok(None),
            Ok(now) => parse(&now, port).map(|kinds| Some((now, kinds))),
            Err(problem) => Err(problem),
        };
        if std::mem::replace(&mut was_settled, pace.settled()) && !was_settled {
            // The cluster is lost: names may now resolve to other addresses.
            resolve_at = Instant::now();
        }
        match parsed {
            Ok(new) => {
                let changed = new.is_some();
                if let Some((now, kinds)) = new {
                    (text, known) = (now, kinds);
                }
                if changed || std::mem::take(&mut spoilt) || Instant::now() >= resolve_at {
                    let at_once = names.known_of(&known);
                    if changed && !at_once.is_empty() && known.iter().any(|kind| kind.fixed().is_none()) {
                        // Addresses need not wait for names, nor known names for new ones.
                        place.found(at_once);
                    }
                    let (found, problem) = names.resolve(&known, &resolver).await;
                    resolve_at = Instant::now() + pace.next(problem.is_some());
                    tell(&place, found, problem);
                }
            }
            Err(problem) => {
                spoilt = true;
                let kept = if known.is_empty() {
                    ""
                } else {
                    "; the last good list stays in use"
                };
                let problem = format!("{}: {problem}{kept}", path.display());
                if known.iter().any(|kind| kind.fixed().is_none()) && Instant::now() >= resolve_at {
                    let (found, trouble) = names.resolve(&known, &resolver).await;
                    resolve_at = Instant::now() + pace.next(trouble.is_some());
                    tell(&place, found, Some(problem));
                } else {
                    place.failed(problem);
                }
            }
        }
        tokio::time::sleep(super::tasks::jitter(EVERY)).await;
    }
}

/// What the file says now, or what is wrong with it.
pub(super) async fn entries(path: &Path, port: u16) -> Result<Vec<Kind>, String> {
    let text = Reading::default().read(path, WITHIN).await?;
    parse(&text, port)
}

/// A thread that reads, if there is one.
#[derive(Debug, Default)]
struct Reading {
    answer: Option<oneshot::Receiver<Result<String, String>>>,
}

impl Reading {
    /// Reads the file, or says that it takes too long. While a former thread hangs, no other one is started.
    async fn read(&mut self, path: &Path, within: Duration) -> Result<String, String> {
        let mut answer = match self.answer.take() {
            Some(answer) => answer,
            None => {
                let (tell, answer) = oneshot::channel();
                let path = path.to_owned();
                std::thread::Builder::new()
                    .name("antiphon-file".to_owned())
                    // The task that asked may be gone.
                    .spawn(move || drop(tell.send(read(&path))))
                    .map_err(|error| format!("cannot be read: {error}"))?;
                answer
            }
        };
        match timeout(within, &mut answer).await {
            Ok(read) => read.unwrap_or_else(|_| Err("reading it failed".to_owned())),
            Err(_) => {
                self.answer = Some(answer);
                Err(format!(
                    "does not answer within {} s: does its disk hang?",
                    within.as_secs_f32()
                ))
            }
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err("is larger than 64 KiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// Opens what is a file. A pipe or a device would keep its reader waiting, for ever or for nothing.
fn open(path: &Path) -> io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

fn parse(text: &str, port: u16) -> Result<Vec<Kind>, String> {
    // Some editors begin each text with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut kinds = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let entries = line.split(|c: char| c == ',' || c.is_whitespace());
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let kind = target(entry, port).map_err(|error| format!("line {}: {error}", index + 1))?;
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
    use super::super::source::NODE_PORT;
    use super::*;

    #[test]
    fn addresses_and_names_stand_on_lines_with_comments() {
        let text = "\u{feff}# nodes\n10.0.0.2:7400 # the first\n\n  [fd00::3]:1,db3.example:7500\n10.0.0.9\n";
        let shown: Vec<String> = parse(text, NODE_PORT)
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
            ("10.0.0.1\n0.0.0.0:7400\n", "line 2"),
        ] {
            let error = parse(text, NODE_PORT).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let many: String = (0..257)
            .map(|host| format!("10.0.{}.{}\n", host / 250, host % 250))
            .collect();
        assert!(parse(&many, NODE_PORT).unwrap_err().contains("line 257"));
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
        for none in ["/dev/zero", "/"] {
            assert!(
                read(Path::new(none)).unwrap_err().contains("no regular file"),
                "{none}"
            );
        }
    }

    #[tokio::test]
    async fn a_pipe_keeps_nobody_waiting_and_a_reader_that_hangs_is_asked_once() {
        let path = std::env::temp_dir().join(format!("antiphon-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        let mut reading = Reading::default();
        let said = reading.read(&path, WITHIN).await.unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(said.contains("no regular file"), "{said}");
        let (tell, answer) = oneshot::channel();
        reading.answer = Some(answer);
        for _ in 0..2 {
            let said = reading.read(&path, Duration::from_millis(10)).await.unwrap_err();
            assert!(said.contains("does not answer"), "{said}");
        }
        tell.send(Ok("10.0.0.1".to_owned())).unwrap();
        assert_eq!(reading.read(&path, WITHIN).await.unwrap(), "10.0.0.1");
    }
}

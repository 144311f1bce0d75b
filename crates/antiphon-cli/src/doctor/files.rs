//! Open files: whether a node's process may have enough of them, and whether a running node's process has any
//! left.

use super::report::{Report, Step};
use crate::files;
use crate::settings::Settings;

/// A process this close to its limit is at it: what it dials and takes comes and goes.
const SPARE: u64 = 2;

/// Tells whether a node with these settings, started like this program, may open as many files as it takes.
pub(super) fn limit(report: &mut Report, settings: &Settings) {
    let limit = files::limit();
    let step = match files::shortage(limit, settings) {
        Some((cause, remedy)) => Step::failed(
            "files",
            "open-files",
            "",
            format!("a process started from here {cause}"),
            remedy,
        ),
        None => {
            let limit = limit.map_or("any number of".to_owned(), |limit| limit.to_string());
            let (members, needed) = files::needed(settings);
            let text = format!(
                "a process started from here may open {limit} files (a service has a limit of its own), and a node takes up to {needed} in a cluster of {members} members"
            );
            Step::ok("files", "", text)
        }
    };
    report.add(step);
}

/// What is wrong with a node's process that runs, if it has no file left.
pub(super) fn used_up(subject: &str, pid: u32) -> Option<Step> {
    let (open, limit) = of_process(pid)?;
    (open + SPARE >= limit).then(|| {
        Step::failed(
            "running",
            "open-files",
            subject,
            format!("it has {open} files open and may open {limit}: it can neither dial others nor take their connections"),
            antiphon::Lack::Files.remedy(),
        )
    })
}

/// Files that a process has open and may open, as far as this user may see.
#[cfg(target_os = "linux")]
fn of_process(pid: u32) -> Option<(u64, u64)> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let limit = line.split_whitespace().next()?.parse().ok()?;
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some((open, limit))
}

#[cfg(not(target_os = "linux"))]
fn of_process(_pid: u32) -> Option<(u64, u64)> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_files_left_is_not_blamed() {
        let (open, limit) = of_process(std::process::id()).expect("this process");
        assert!((3..limit).contains(&open), "{open} of {limit}");
        assert_eq!(used_up("this", std::process::id()), None);
        assert_eq!(used_up("nobody", 0), None);
    }
}

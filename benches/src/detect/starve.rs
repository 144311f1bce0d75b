//! Little CPU: a control group for each process, with a quota.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Failure;

/// Of the quota: the kernel's default.
const PERIOD_US: u64 = 100_000;
/// How long processes may take to be out of a group.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);

/// Processes with little CPU, until this is dropped.
pub(super) struct Starved {
    groups: Vec<PathBuf>,
    root: PathBuf,
}

impl Starved {
    /// Gives each process this many percent of a core.
    pub(super) fn new(processes: &[u32], percent: u8) -> Result<Self, Failure> {
        let failed = |path: &Path, error: std::io::Error| {
            format!(
                "{}: {error} (quotas of CPU need control groups, v1 or v2, and root)",
                path.display()
            )
        };
        let (root, is_v2) =
            hierarchy().ok_or("there is no control group with quotas of CPU on this machine")?;
        let mut starved = Self {
            groups: Vec::new(),
            root,
        };
        let write =
            |path: PathBuf, text: String| std::fs::write(&path, text).map_err(|error| failed(&path, error));
        if is_v2 {
            write(starved.root.join("cgroup.subtree_control"), "+cpu".to_owned())?;
        }
        let quota = PERIOD_US * u64::from(percent) / 100;
        for process in processes {
            let group = starved.root.join(format!("antiphon-bench-{process}"));
            std::fs::create_dir_all(&group).map_err(|error| failed(&group, error))?;
            starved.groups.push(group.clone());
            if is_v2 {
                write(group.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
            } else {
                write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                write(group.join("cpu.cfs_quota_us"), quota.to_string())?;
            }
            write(group.join("cgroup.procs"), process.to_string())?;
        }
        Ok(starved)
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        for group in &self.groups {
            let inside = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            for process in inside.lines() {
                // It may have ended.
                let _ = std::fs::write(self.root.join("cgroup.procs"), process);
            }
            let deadline = Instant::now() + EMPTY_WITHIN;
            while std::fs::remove_dir(group).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Where quotas are given, and whether in the newer way.
fn hierarchy() -> Option<(PathBuf, bool)> {
    let v1 = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].map(PathBuf::from);
    if let Some(root) = v1
        .into_iter()
        .find(|root| root.join("cpu.cfs_quota_us").exists() || root.join("tasks").exists())
    {
        return Some((root, false));
    }
    let root = PathBuf::from("/sys/fs/cgroup");
    let controllers = std::fs::read_to_string(root.join("cgroup.controllers")).ok()?;
    controllers
        .split_whitespace()
        .any(|controller| controller == "cpu")
        .then_some((root, true))
}

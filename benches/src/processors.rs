//! The processors of the machine: one for all, or shared out.
//!
//! - A virtual machine takes longer to wake another processor than a message takes on the link, and each end
//!   of one call at a time may have to. So both ends share one processor there.
//! - The more nodes share the machine, the less each has of it. Whether a node does as much in a larger
//!   cluster shows only if each gets the same share, whatever their number.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use crate::Failure;
use crate::lab::Lab;

/// Over which a share is counted.
const PERIOD_US: u32 = 10_000;
/// The kernel gives a group no less than a millisecond of each period.
pub(crate) const LEAST_PERCENT: i64 = 10;
/// Where the kernel's groups are, and how the names of ours begin.
const GROUPS: &str = "/sys/fs/cgroup";
const GROUP: &str = "antiphon-bench-";
/// For the kernel to take the last process out of a group.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);

/// From now on what runs on the first hosts has one processor.
pub(crate) fn share_one(lab: &Lab, hosts: usize) -> Result<(), Failure> {
    let mut one = CpuSet::new();
    one.set(0);
    for pid in (1..=hosts).flat_map(|host| lab.pids(host)) {
        let failed = |error: std::io::Error| format!("process {pid}: {error}");
        for thread in std::fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)? {
            let thread = thread.map_err(failed)?.file_name();
            let thread = thread.to_string_lossy().parse().ok().and_then(Pid::from_raw);
            sched_setaffinity(thread, &one).map_err(|error| failed(error.into()))?;
        }
    }
    Ok(())
}

/// The shares of some hosts of a lab, until it is dropped.
pub(crate) struct Shares(Vec<PathBuf>);

impl Shares {
    /// From now on what runs on each of the first hosts gets so many percent of one processor.
    pub(crate) fn give(lab: &Lab, hosts: usize, percent: u32) -> Result<Self, Failure> {
        let mut shares = Self(Vec::new());
        for host in 1..=hosts {
            let group = make_group(host, percent)?;
            shares.0.push(group.clone());
            for pid in lab.pids(host) {
                write(group.join("cgroup.procs"), &pid.to_string())?;
            }
        }
        Ok(shares)
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes the groups that this program has left, or an earlier one. Nothing may run in them.
pub(crate) fn remove_shares() {
    let is_ours = |group: &PathBuf| {
        let name = group.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with(GROUP))
    };
    let roots = [PathBuf::from(GROUPS), Path::new(GROUPS).join("cpu")];
    let entries = roots.iter().flat_map(std::fs::read_dir).flatten().flatten();
    let left: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
    remove(&left);
}

fn remove(groups: &[PathBuf]) {
    let deadline = Instant::now() + EMPTY_WITHIN;
    for group in groups {
        while std::fs::remove_dir(group).is_err() && group.is_dir() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A control group of the second version, or of the first, whichever the host has.
fn make_group(host: usize, percent: u32) -> Result<PathBuf, Failure> {
    let quota = PERIOD_US / 100 * percent;
    let root = PathBuf::from(GROUPS);
    let name = format!("{GROUP}{host}");
    let first = root.join("cpu");
    let make = |group: PathBuf| match std::fs::create_dir(&group) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("{}: {error}", group.display()))
        }
        _ => Ok(group),
    };
    if first.is_dir() {
        let group = make(first.join(name))?;
        write(group.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
        write(group.join("cpu.cfs_quota_us"), &quota.to_string())?;
        return Ok(group);
    }
    write(root.join("cgroup.subtree_control"), "+cpu")?;
    let group = make(root.join(name))?;
    write(group.join("cpu.max"), &format!("{quota} {PERIOD_US}"))?;
    Ok(group)
}

fn write(file: PathBuf, text: &str) -> Result<(), Failure> {
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
}

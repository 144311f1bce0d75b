//! CPU time and memory of processes, from /proc. Times are exact to the nanosecond: with ticks of 10 ms an
//! idle node would seem to take no time at all.

use std::path::Path;
use std::time::Duration;

/// CPU time this process has taken.
pub(crate) fn own_cpu() -> Option<Duration> {
    cpu_of(Path::new("/proc/self"))
}

/// CPU time the process of this /proc folder has taken so far; `None` where the system does not tell. Threads
/// that have ended are not in it.
pub(crate) fn cpu_of(process: &Path) -> Option<Duration> {
    let mut nanoseconds = 0u64;
    for thread in std::fs::read_dir(process.join("task")).ok()? {
        let Ok(text) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else {
            continue;
        };
        nanoseconds += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanoseconds))
}

/// Resident bytes of the process of this /proc folder; `None` where the system does not tell.
pub(crate) fn memory_of(process: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Seconds from one to the other.
pub(crate) fn between(before: Option<Duration>, after: Option<Duration>) -> Option<f64> {
    Some(after?.saturating_sub(before?).as_secs_f64())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Of a process with one thread: those of this one's other tests come and go.
    #[test]
    fn work_is_seen_as_cpu_time() {
        let mut worker = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let process = format!("/proc/{}", worker.id());
        let before = cpu_of(Path::new(&process));
        let mut taken = 0.0;
        for _ in 0..500 {
            std::thread::sleep(Duration::from_millis(20));
            taken = between(before, cpu_of(Path::new(&process))).unwrap();
            if taken > 0.01 {
                break;
            }
        }
        worker.kill().unwrap();
        worker.wait().unwrap();
        assert!(taken > 0.01, "{taken}");
        assert!(own_cpu() > Some(Duration::ZERO));
    }

    #[test]
    fn memory_that_is_written_to_is_seen() {
        let own = Path::new("/proc/self");
        let before = memory_of(own).unwrap();
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(memory_of(own).unwrap() > before + (32 << 20));
        drop(block);
    }
}

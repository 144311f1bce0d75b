//! A benchmark that is told to end leaves nothing behind, whatever it was doing.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use antiphon_lab::Network;
use rustix::process::{Pid, Signal, kill_process};

/// For everything that is waited for.
const WITHIN: Duration = Duration::from_secs(60);

/// A benchmark that would run for long.
struct Bench(Child);

impl Bench {
    /// `limits`, whose own processes are all that it needs.
    fn start() -> Self {
        let program = env!("CARGO_BIN_EXE_antiphon-bench");
        let child = Command::new(program)
            .args(["limits", "--members", "8", "--seconds", "600"])
            // It does not come to measure `antiphon`, which so need not be built.
            .env("ANTIPHON_BIN", program)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn namespaces(&self) -> Vec<String> {
        let prefix = format!("ab{}x", self.0.id());
        let names = words(&["netns", "list"]);
        names
            .into_iter()
            .filter(|name| name.starts_with(&prefix))
            .collect()
    }

    /// Its processes on the hosts.
    fn members(&self) -> Vec<String> {
        let namespaces = self.namespaces();
        let pids = namespaces.iter().flat_map(|name| words(&["netns", "pids", name]));
        let is_member = |pid: &String| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "antiphon-bench")
        };
        pids.filter(is_member).collect()
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// What it said, once it has ended.
    fn said(&mut self) -> String {
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // It has ended, unless the test failed. The next one removes what it leaves then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `ip` tells.
fn words(arguments: &[&str]) -> Vec<String> {
    let output = Command::new("ip").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().map(str::to_owned).collect()
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that was killed and that nobody has waited for has no command line.
fn runs(pid: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn a_signal_while_hosts_are_made_and_one_while_they_measure_leave_nothing_behind() {
    if let Err(missing) = Network::new("absignal", 1, 1) {
        return eprintln!("SKIPPED: {missing}");
    }
    for (signal, code, measures) in [(Signal::TERM, 143, false), (Signal::INT, 130, true)] {
        let mut bench = Bench::start();
        let mut members = Vec::new();
        until("the benchmark", || {
            members = bench.members();
            let is_there = match measures {
                true => members.len() >= 2,
                false => !bench.namespaces().is_empty(),
            };
            is_there || bench.has_ended()
        });
        if bench.has_ended() {
            let said = bench.said();
            assert!(said.contains("another antiphon-bench runs"), "{said}");
            return eprintln!("SKIPPED: {said}");
        }
        kill_process(Pid::from_child(&bench.0), signal).unwrap();
        until("its end", || bench.has_ended());
        let status = bench.0.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{}", bench.said());
        assert_eq!(bench.namespaces(), [""; 0]);
        until("its processes to be gone", || {
            !members.iter().any(|pid| runs(pid))
        });
    }
}

//! Real processes of the program on loopback, each test with a directory of its own, where its consoles are.
#![allow(dead_code)]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) use antiphon_lab::free_addrs;
use antiphon_lab::{Child, Heard, Signal};
#[cfg(target_os = "linux")]
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};

/// Whatever is waited for takes less than a second; this long, and it does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A test's world: the directory that its programs take for their user's.
pub(crate) struct Bench {
    pub(crate) directory: PathBuf,
}

impl Bench {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Not below a long $TMPDIR: paths of sockets are short.
        let directory = PathBuf::from(format!("/tmp/antiphon-test-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        Self { directory }
    }

    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        for (variable, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ANTIPHON_"))
        {
            command.env_remove(variable);
        }
        command.env("ANTIPHON_RUNTIME_DIR", self.directory.join("antiphon"));
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &str) -> Output {
        self.program()
            .args(arguments.split_whitespace())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs a command that must succeed, and gives what it printed.
    pub(crate) fn text(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{arguments}: {} {text} {error}",
            output.status
        );
        text
    }

    /// The same, as the one JSON object it must be.
    pub(crate) fn json(&self, arguments: &str) -> Value {
        let text = self.text(&format!("{arguments} --json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Asks again and again until the answer is as it is wanted.
    pub(crate) fn until(&self, arguments: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.json(arguments);
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{arguments}: {answer:#}");
        }
    }

    /// The sockets of consoles.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.directory.join("antiphon")) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// A node of cluster `tea`, in group `main`, with timing `local`.
    pub(crate) fn node(&self, name: &str, addr: SocketAddr, arguments: &str) -> Node {
        let cluster = if arguments.contains("--cluster") {
            ""
        } else {
            "--cluster tea"
        };
        let node = self.start(&format!(
            "--name {name} --bind {addr} --profile local {cluster} {arguments}"
        ));
        node.event(|line| line["event"] == "ready");
        node
    }

    /// A node with these settings that speaks JSON, not a line of which was read.
    pub(crate) fn start(&self, arguments: &str) -> Node {
        let mut program = self.program();
        let arguments = arguments.split_whitespace();
        program
            .args(["node", "--json"])
            .args(arguments)
            .stderr(Stdio::null());
        spoken_to(program)
    }

    /// Any of its programs that tells JSON lines.
    pub(crate) fn spoken_to(&self, arguments: &str) -> Node {
        let mut program = self.program();
        program.args(arguments.split_whitespace()).stderr(Stdio::piped());
        spoken_to(program)
    }

    /// A cluster of these many nodes, `a`, `b`, … , all members of one view.
    pub(crate) fn cluster(&self, count: usize) -> (Vec<Node>, Vec<SocketAddr>) {
        let addrs = free_addrs(count);
        let seeds = list(&addrs);
        let nodes: Vec<Node> = addrs
            .iter()
            .zip('a'..)
            .map(|(addr, name)| self.node(&name.to_string(), *addr, &format!("--seeds {seeds}")))
            .collect();
        for node in &nodes {
            node.view_of(count);
        }
        (nodes, addrs)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Starts a node, or what else tells JSON lines, to speak with it through its stdin and stdout.
pub(crate) fn spoken_to(command: Command) -> Node {
    let ((to_lines, lines), (to_log, log)) = (mpsc::channel(), mpsc::channel());
    let child = Child::start(command, move |heard| match heard {
        Heard::Line(line) => {
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(value.is_object(), "{line}");
            let _ = to_lines.send(value);
        }
        Heard::Log(line) => drop(to_log.send(line)),
        Heard::End => {}
    });
    Node {
        child: child.unwrap(),
        lines,
        log,
    }
}

/// A running process; killed with the test.
pub(crate) struct Node {
    pub(crate) child: Child,
    pub(crate) lines: mpsc::Receiver<Value>,
    pub(crate) log: mpsc::Receiver<String>,
}

impl Node {
    /// The next line.
    pub(crate) fn line(&self) -> Value {
        self.lines.recv_timeout(PATIENCE).expect("a line")
    }

    /// All lines that are still to come, until the end of stdout.
    pub(crate) fn rest(&self) -> Vec<Value> {
        self.lines.iter().collect()
    }

    /// All that it said on stderr, until its end, if that is piped.
    pub(crate) fn log(&self) -> String {
        self.log.iter().map(|line| line + "\n").collect()
    }

    /// Reads on to the first such line.
    pub(crate) fn event(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .expect("an event that is waited for");
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Waits for a primary view of so many members.
    pub(crate) fn view_of(&self, members: usize) -> Value {
        self.event(|line| {
            line["event"] == "node_view"
                && line["primary"] == true
                && line["members"]
                    .as_array()
                    .is_some_and(|list| list.len() == members)
        })
    }

    pub(crate) fn say(&self, request: Value) {
        assert!(self.child.say(request.to_string()), "it reads");
    }

    pub(crate) fn leave(self) {
        self.say(json!({"leave": {}}));
        self.event(|line| line["event"] == "left");
        self.exit();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    pub(crate) fn kill(&self) {
        self.child.kill();
    }

    /// How it ends, in bounded time.
    pub(crate) fn exit(&self) -> ExitStatus {
        self.child.exit(PATIENCE).expect("it ends")
    }
}

/// Waits for the end of a process that must come; otherwise kills it.
pub(crate) fn end_of(mut child: process::Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Passes on what comes to one address to another one, both ways: what a proxy does, whose ends prove
/// nothing.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) at: SocketAddr,
    is_closed: Arc<AtomicBool>,
    listens: JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn to(addr: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = is_closed.clone();
        let listens = thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if closed.load(Ordering::Relaxed) {
                    return;
                }
                // Nobody may be there any more.
                let Ok(far) = TcpStream::connect(addr) else {
                    continue;
                };
                pass_on(near.try_clone().unwrap(), far.try_clone().unwrap());
                pass_on(far, near);
            }
        });
        Self {
            at,
            is_closed,
            listens,
        }
    }

    /// It takes no connection any more; those that it has stay.
    pub(crate) fn close(self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // So that it looks.
        drop(TcpStream::connect(self.at));
        self.listens.join().unwrap();
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// Addresses as flags take them.
pub(crate) fn list(addrs: &[SocketAddr]) -> String {
    let texts: Vec<String> = addrs.iter().map(ToString::to_string).collect();
    texts.join(",")
}

/// A new key file.
pub(crate) fn key(bench: &Bench, name: &str) -> PathBuf {
    let path = bench.directory.join(name);
    let output = bench.program().arg("key").arg(&path).output().unwrap();
    assert!(output.status.success());
    path
}

/// The names in a list of objects.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|entry| entry["name"].as_str().expect("a name"))
        .collect()
}

/// Whether a path is a file.
pub(crate) fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Whether a process catches a signal, as the kernel knows it.
#[cfg(target_os = "linux")]
pub(crate) fn catches(process: Pid, signal: Signal) -> bool {
    has_signal(process, "SigCgt:", signal)
}

/// Whether a signal has come to a process that has not taken it yet.
#[cfg(target_os = "linux")]
pub(crate) fn is_pending(process: Pid, signal: Signal) -> bool {
    has_signal(process, "ShdPnd:", signal)
}

#[cfg(target_os = "linux")]
fn has_signal(process: Pid, mask: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let signals = status.lines().find_map(|line| line.strip_prefix(mask));
    let signals = signals.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
    signals.unwrap_or(0) & (1 << (signal.as_raw() - 1)) != 0
}

/// Looks at a process again and again, each time while all of it is stopped, until there is an answer. Then
/// it stays stopped: what it is sent now comes where it was seen. No answer if it has ended.
#[cfg(target_os = "linux")]
pub(crate) fn stop_when<T>(process: Pid, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    while stop(process) {
        let answer = look();
        if answer.is_some() {
            return answer;
        }
        kill_process(process, Signal::CONT).unwrap();
        assert!(Instant::now() < deadline, "{process} does not get there");
        // It goes on for so long.
        thread::sleep(Duration::from_micros(100));
    }
    None
}

/// Stops a process, and waits until none of its threads runs; false if it has ended.
#[cfg(target_os = "linux")]
pub(crate) fn stop(process: Pid) -> bool {
    let deadline = Instant::now() + PATIENCE;
    // It fails if it has ended and was waited for.
    let _ = kill_process(process, Signal::STOP);
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        let stats = tasks.into_iter().flatten().flatten().map(|task| {
            // "PID (NAME) STATE …"; of a thread that has just ended there is none.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
        });
        let states: Vec<char> = stats.flatten().collect();
        if states.is_empty() || states.contains(&'Z') {
            return false;
        }
        if states.iter().all(|state| *state == 'T') {
            return true;
        }
        assert!(Instant::now() < deadline, "{process} does not stop: {states:?}");
        thread::yield_now();
    }
}

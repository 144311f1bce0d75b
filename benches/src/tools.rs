//! Programs of the host: run, and installed where they are missing.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::Failure;

/// Runs a program to its end and gives what it printed.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{program} {}: {}: {}",
            args.join(" "),
            output.status,
            complaint.trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program that the kernel kills when this one ends, however it ends: for what is on no host of a lab. Call
/// it from the main thread, which is what the kernel takes for its parent.
pub(crate) fn ends_with_this(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Whether a program is in the PATH.
fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
        || ["/usr/sbin", "/sbin"]
            .iter()
            .any(|dir| Path::new(dir).join(program).is_file())
}

/// Makes a program present, from the Debian packages that carry it and what goes with it.
pub(crate) fn need(program: &str, packages: &[&str]) -> Result<(), Failure> {
    let missing =
        !has(program) || program == "corosync" && !Path::new("/usr/include/corosync/cpg.h").exists();
    if !missing {
        return Ok(());
    }
    eprintln!("installing {}", packages.join(", "));
    let install = |packages: &[&str]| {
        let args = [
            &[
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "install",
                "-y",
                "-qq",
                "--no-install-recommends",
            ],
            packages,
        ]
        .concat();
        run("env", &args)
    };
    if install(packages).is_err() {
        // The lists may be missing or old.
        run("apt-get", &["update", "-qq"])?;
        install(packages)
            .map_err(|error| format!("{program} is missing and cannot be installed: {error}"))?;
    }
    Ok(())
}

/// The folder of this workspace's builds.
pub(crate) fn target() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let folder = program
        .ancestors()
        .nth(2)
        .ok_or("this program is in no target folder")?;
    Ok(folder.to_path_buf())
}

/// A folder for what is made or fetched.
pub(crate) fn cache() -> Result<PathBuf, Failure> {
    let folder = target()?.join("antiphon-bench");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Compiles a client of ours in Java for these libraries; gives the folder of its class.
pub(crate) fn compile(source: &str, libraries: &str) -> Result<String, Failure> {
    need("javac", &["default-jdk-headless"])?;
    let classes = cache()?.to_string_lossy().into_owned();
    let source = root().join("benches/peers").join(source);
    let made = Path::new(&classes)
        .join(source.file_name().unwrap_or_default())
        .with_extension("class");
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    if changed(&made).is_none_or(|made| Some(made) < changed(&source)) {
        run(
            "javac",
            &["-cp", libraries, "-d", &classes, &source.to_string_lossy()],
        )?;
    }
    Ok(classes)
}

/// Builds a client of ours in Go, a folder of `peers`.
pub(crate) fn go(client: &str) -> Result<PathBuf, Failure> {
    need("go", &["golang-go"])?;
    let program = cache()?.join(client);
    eprintln!("building the {client} client");
    let output = Command::new("go")
        .args(["build", "-mod=readonly", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(root().join("benches/peers").join(client))
        .output()
        .map_err(|error| format!("cannot run go: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "the {client} client cannot be built: {}",
            complaint.trim()
        ));
    }
    Ok(program)
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The lines that a child prints, as they come.
pub(crate) struct Lines {
    lines: Receiver<String>,
}

impl Lines {
    /// Reads in a thread of its own until the end.
    pub(crate) fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines }
    }

    /// Drops the lines that are here already.
    pub(crate) fn forget(&self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// The first line from here on that the question has an answer to.
    pub(crate) fn find<T>(
        &self,
        within: Duration,
        what: &str,
        mut question: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + within;
        let mut last = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(answer) = question(&line) {
                        return Ok(answer);
                    }
                    last = line;
                }
                Err(ended) => {
                    let why = match ended {
                        RecvTimeoutError::Timeout => "waited in vain",
                        RecvTimeoutError::Disconnected => "the process ended while it was waited",
                    };
                    return Err(format!("{why} for {what}\nthe last line was {last:?}"));
                }
            }
        }
    }
}

/// CPU time of a process, to the nanosecond; threads that have ended are not in it.
pub(crate) fn cpu_of(pid: i32) -> Result<Duration, Failure> {
    let failed = |error: std::io::Error| format!("CPU time of process {pid}: {error}");
    let mut nanoseconds = 0u64;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)? {
        let path = thread.map_err(failed)?.path().join("schedstat");
        let text = std::fs::read_to_string(path).map_err(failed)?;
        nanoseconds += text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

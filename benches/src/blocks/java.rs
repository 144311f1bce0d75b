//! Peers that run in a JVM, and those that are told and heard as they are: a line in, a line out.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Pid;

use super::Figures;
use crate::Failure;
use crate::jgroups::JGroups;
use crate::lab::Lab;
use crate::tools::{self, Lines};

/// Of Hazelcast, as `peers/jvm/pom.xml` says.
pub(super) const HAZELCAST: &str = "Hazelcast 5.7.0";
/// The same.
pub(super) const ZOOKEEPER: &str = "ZooKeeper 3.9.5 with Curator 5.9.0";
/// For a member to be there.
const START_WITHIN: Duration = Duration::from_secs(60);

/// Classes and jars.
pub(super) struct Java {
    classes: String,
}

/// A process of a peer. It ends with the value.
pub(crate) struct Peer {
    child: Child,
    lines: Lines,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Gone already if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Java {
    /// JGroups, and what Maven has of the other peers, with a client of ours compiled for them.
    pub(super) fn get(client: &str) -> Result<Self, Failure> {
        let jgroups = JGroups::get()?;
        tools::need("javac", &["default-jdk-headless"])?;
        let jars = tools::cache()?.join("jvm");
        let pom = tools::root().join("benches/peers/jvm/pom.xml");
        let made = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
        let done = jars.join("done");
        if made(&done).is_none_or(|done| Some(done) < made(&pom)) {
            tools::need("mvn", &["maven"])?;
            eprintln!("fetching the peers that run in a JVM");
            let (pom, out) = (
                pom.to_string_lossy(),
                format!("-DoutputDirectory={}", jars.display()),
            );
            // -C: a checksum that does not hold is an error.
            tools::run(
                "mvn",
                &["-q", "-B", "-C", "-f", &pom, "dependency:copy-dependencies", &out],
            )?;
            std::fs::write(&done, "").map_err(|error| format!("{}: {error}", done.display()))?;
        }
        let libraries = format!("{}:{}/*", jgroups.jar().display(), jars.display());
        let classes = tools::compile(client, &libraries)?;
        Ok(Self {
            classes: format!("{libraries}:{classes}"),
        })
    }

    /// A process on this host.
    pub(super) fn start(&self, lab: &Lab, nodes: usize, node: usize, args: &[&str]) -> Result<Peer, Failure> {
        self.start_with(lab, nodes, node, "1g", args)
    }

    /// The same with so much memory for its heap.
    pub(super) fn start_with(
        &self,
        lab: &Lab,
        nodes: usize,
        node: usize,
        heap: &str,
        args: &[&str],
    ) -> Result<Peer, Failure> {
        let hosts: Vec<String> = (1..=nodes)
            .map(|node| format!("{}[7800]", lab.ip(node)))
            .collect();
        let mut command = lab.command(node, "java".as_ref());
        command
            .args([
                "-Xms128m",
                &format!("-Xmx{heap}"),
                "-Djava.net.preferIPv4Stack=true",
            ])
            .arg(format!("-Djgroups.bind_addr={}", lab.ip(node)))
            .arg(format!("-Djgroups.tcpping.initial_hosts={}", hosts.join(",")))
            // What Hazelcast asks for under Java 17.
            .args([
                "--add-modules",
                "java.se",
                "--add-exports",
                "java.base/jdk.internal.ref=ALL-UNNAMED",
            ])
            .args(["--add-opens", "java.base/java.lang=ALL-UNNAMED"])
            .args(["--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"])
            .args(["--add-opens", "java.management/sun.management=ALL-UNNAMED"])
            .args([
                "--add-opens",
                "jdk.management/com.sun.management.internal=ALL-UNNAMED",
            ])
            .args(["-cp", &self.classes])
            .args(args);
        Peer::start(command, "java")
    }

    /// A member on each host, one after the other: a member that finds none in time would found a cluster of
    /// its own. `args` are those of a member of this number.
    pub(super) fn cluster(
        &self,
        lab: &Lab,
        nodes: usize,
        args: impl Fn(usize) -> Vec<String>,
    ) -> Result<Vec<Peer>, Failure> {
        let mut members: Vec<Peer> = Vec::new();
        for node in 1..=nodes {
            let args = args(node);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            members.push(self.start(lab, nodes, node, &args)?);
            for member in &members {
                member.expect(&format!("members {node}"), START_WITHIN)?;
            }
        }
        Ok(members)
    }
}

impl Peer {
    pub(crate) fn start(mut command: std::process::Command, what: &str) -> Result<Self, Failure> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {what}: {error}"))?;
        let lines = Lines::of(child.stdout.take().expect("stdout is a pipe"));
        Ok(Self { child, lines })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for this line.
    pub(crate) fn expect(&self, line: &str, within: Duration) -> Result<(), Failure> {
        self.lines.find(within, &format!("{line:?} of a peer"), |said| {
            (said == line).then_some(())
        })
    }

    /// Waits for a line that has an answer to the question.
    pub(crate) fn find<T>(
        &self,
        within: Duration,
        what: &str,
        question: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        self.lines.find(within, what, question)
    }

    /// Drops the lines that it has said already.
    pub(crate) fn forget(&self) {
        self.lines.forget();
    }

    /// Tells it a line.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Failure> {
        let stdin = self.child.stdin.as_mut().expect("stdin is a pipe");
        writeln!(stdin, "{line}").map_err(|error| format!("a peer has ended: {error}"))
    }

    /// What came of what it was told: `done` and a JSON object.
    ///
    /// # Errors
    /// It said `failed` before: what it counted is without the part of it that failed, and looks slow.
    pub(crate) fn done(&self, within: Duration) -> Result<Figures, Failure> {
        self.lines.find(within, "figures of a peer", outcome)?
    }
}

/// What a line says came of what a peer was told.
fn outcome(line: &str) -> Option<Result<Figures, Failure>> {
    match line.split_once(' ')? {
        ("done", figures) => serde_json::from_str(figures).ok().map(Ok),
        ("failed", why) => Some(Err(why.to_owned())),
        _ => None,
    }
}

/// Tells all the same, and waits for the figures of each.
pub(super) fn all_done(peers: &mut [Peer], line: &str, within: Duration) -> Result<Vec<Figures>, Failure> {
    for peer in &mut *peers {
        peer.tell(line)?;
    }
    peers.iter().map(|peer| peer.done(within)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_whose_client_has_failed_has_no_figures() {
        assert_eq!(outcome("connected"), None);
        assert_eq!(outcome("members 3"), None);
        let rate = Figures::from([("rate".to_owned(), 1.5)]);
        assert_eq!(outcome("done {\"rate\":1.5}"), Some(Ok(rate)));
        let why = "java.io.IOException: lost".to_owned();
        assert_eq!(outcome("failed java.io.IOException: lost"), Some(Err(why)));
    }
}

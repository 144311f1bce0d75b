//! JGroups: its own MPerf, and a client of ours for latency, from the jar that Maven Central has.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::lab::Lab;
use crate::tools::{self, Lines};
use crate::{Common, Failure};

/// The release measured against.
pub(crate) const VERSION: &str = "5.5.7.Final";
const SHA256: &str = "0280f032a37b1d3c9e2a7c8235a652888d6acb35d43b2fd7d8878c5e9d4b2493";
/// A JVM's first half minute says nothing about the next hours.
const WARMUP_S: u32 = 30;
/// In a shorter test its members' results get lost.
const LEAST_S: u32 = 3;
/// For the results of a test, beyond its time; MPerf at times prints none, and the test is done again.
const RESULTS_WITHIN: Duration = Duration::from_secs(20);
const TRIES: usize = 4;
/// For a member to start and be in the view.
const START_WITHIN: Duration = Duration::from_secs(60);

/// The jar.
pub(crate) struct JGroups {
    jar: PathBuf,
}

/// One measurement with MPerf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mperf<'a> {
    /// A file, in the jar or outside.
    pub(crate) stack: &'a str,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// How many of the members send, if not all.
    pub(crate) senders: Option<usize>,
}

/// Ends with the value.
struct Member {
    child: Child,
    lines: Lines,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Gone already if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Member {
    /// A line on MPerf's stdin; it throws away what came before it asked.
    fn type_in(&mut self, line: &str) -> Result<(), Failure> {
        std::thread::sleep(Duration::from_millis(500));
        let stdin = self.child.stdin.as_mut().expect("stdin is a pipe");
        writeln!(stdin, "{line}").map_err(|error| format!("MPerf has ended: {error}"))
    }
}

impl JGroups {
    /// Java and the jar, fetched once and checked every time.
    pub(crate) fn get() -> Result<Self, Failure> {
        tools::need("java", &["default-jre-headless"])?;
        let jar = tools::cache()?.join(format!("jgroups-{VERSION}.jar"));
        let shown = jar.to_string_lossy().into_owned();
        if !jar.exists() {
            tools::need("curl", &["curl", "ca-certificates"])?;
            let from =
                format!("https://repo1.maven.org/maven2/org/jgroups/jgroups/{VERSION}/jgroups-{VERSION}.jar");
            let part = format!("{shown}.part");
            eprintln!("fetching jgroups-{VERSION}.jar");
            tools::run("curl", &["-sSf", "--retry", "3", "-m", "120", "-o", &part, &from])?;
            std::fs::rename(&part, &jar).map_err(|error| format!("{shown}: {error}"))?;
        }
        let sum = tools::run("sha256sum", &[&shown])?;
        if !sum.starts_with(SHA256) {
            return Err(format!(
                "{shown} is not the jar that was measured before ({sum}); remove it and try again"
            ));
        }
        Ok(Self { jar })
    }

    /// Messages per second per member with this stack, as MPerf counts: received, its own included, after a
    /// warm-up.
    pub(crate) fn mperf(
        &self,
        lab: &Lab,
        nodes: usize,
        mperf: Mperf<'_>,
        common: &Common,
    ) -> Result<f64, Failure> {
        let result = self.mperf_rounds(lab, nodes, mperf, common);
        lab.kill_all();
        result
    }

    fn mperf_rounds(
        &self,
        lab: &Lab,
        nodes: usize,
        mperf: Mperf<'_>,
        common: &Common,
    ) -> Result<f64, Failure> {
        let stack = mperf.stack;
        let size = mperf.size.to_string();
        let seconds = common.seconds().max(LEAST_S);
        let time = seconds.to_string();
        let class = "org.jgroups.tests.perf.MPerf";
        let first = [
            "-props", stack, "-name", "m1", "-time", &time, "-size", &size, "-threads", "10",
        ];
        let mut members = vec![self.member(lab, nodes, 1, class, &first, None)?];
        for node in 2..=nodes {
            // One at a time: a member that finds none in time would found a cluster of its own.
            let alone = format!("({})", node - 1);
            let has_view = |line: &str| (line.starts_with("** [m1|") && line.contains(&alone)).then_some(());
            members[0]
                .lines
                .find(START_WITHIN, "JGroups members to join", has_view)?;
            let name = format!("m{node}");
            members.push(self.member(
                lab,
                nodes,
                node,
                class,
                &["-props", stack, "-name", &name, "-nohup"],
                None,
            )?);
        }
        let all = format!("({nodes})");
        let has_view = |line: &str| (line.starts_with("** [m1|") && line.contains(&all)).then_some(());
        members[0]
            .lines
            .find(START_WITHIN, "all JGroups members to join", has_view)?;
        if let Some(senders) = mperf.senders.filter(|senders| *senders < nodes) {
            members[0].type_in("8")?;
            members[0].type_in(&senders.to_string())?;
        }
        // MPerf warms up by running: the same test, until the warm-up is over, then the one that counts.
        let warmups = if common.smoke {
            0
        } else {
            WARMUP_S.div_ceil(seconds)
        };
        let mut rate = 0.0;
        for _ in 0..=warmups {
            rate = round(&mut members[0], seconds)?;
        }
        // Whoever does not end by it is killed.
        let _ = members[0].type_in("X");
        Ok(rate)
    }

    fn member(
        &self,
        lab: &Lab,
        nodes: usize,
        node: usize,
        class: &str,
        args: &[&str],
        more_classes: Option<&str>,
    ) -> Result<Member, Failure> {
        let hosts: Vec<String> = (1..=nodes)
            .map(|node| format!("{}[7800]", lab.ip(node)))
            .collect();
        let mut classes = self.jar.to_string_lossy().into_owned();
        if let Some(more) = more_classes {
            classes = format!("{classes}:{more}");
        }
        let mut child = lab
            .command(node, "java".as_ref())
            .args(["-Xms256m", "-Xmx1g", "-Djava.net.preferIPv4Stack=true"])
            .arg(format!("-Djgroups.bind_addr={}", lab.ip(node)))
            .arg(format!("-Djgroups.tcpping.initial_hosts={}", hosts.join(",")))
            .args(["-cp", &classes, class])
            .args(args)
            .spawn()
            .map_err(|error| format!("cannot start java: {error}"))?;
        let lines = Lines::of(child.stdout.take().expect("stdout is a pipe"));
        Ok(Member { child, lines })
    }

    /// Latencies in nanoseconds of messages in total order (SEQUENCER over tcp.xml), one way, at this rate in
    /// all.
    pub(crate) fn latencies(
        &self,
        lab: &Lab,
        nodes: usize,
        rate: u32,
        size: u32,
        common: &Common,
    ) -> Result<Vec<u64>, Failure> {
        let classes = self.compiled("OrderLatency.java")?;
        let stack = self.stack("sequencer-tcp.xml", "<FRAG2", "<SEQUENCER/><FRAG2")?;
        let result = self.latency_rounds(lab, nodes, &stack, &classes, rate, size, common);
        lab.kill_all();
        result
    }

    /// Compiles a client of ours; gives the folder of its class.
    fn compiled(&self, source: &str) -> Result<String, Failure> {
        tools::compile(source, &self.jar.to_string_lossy())
    }

    /// The jar.
    pub(crate) fn jar(&self) -> &Path {
        &self.jar
    }

    /// So many members in one process, on loopback with tcp.xml: the first three are asked for the cluster,
    /// as with ours.
    pub(crate) fn swarm(&self, nodes: &str, joins: &str) -> Result<Command, Failure> {
        let classes = self.compiled("Members.java")?;
        let mut command = tools::ends_with_this("java".as_ref());
        command
            .args(["-Xms256m", "-Xmx2g", "-Djava.net.preferIPv4Stack=true"])
            .args(["-Djgroups.bind_addr=127.0.0.1", "-Djgroups.tcp.port_range=0"])
            .arg("-Djgroups.tcpping.initial_hosts=127.0.0.1[7800],127.0.0.1[7801],127.0.0.1[7802]")
            .arg("-cp")
            .arg(format!("{}:{classes}", self.jar.to_string_lossy()))
            .args(["Members", "swarm", "tcp.xml", nodes, joins]);
        Ok(command)
    }

    /// A member in a node's namespace that tells its views.
    pub(crate) fn teller(
        &self,
        lab: &Lab,
        nodes: usize,
        node: usize,
        stack: &str,
    ) -> Result<Command, Failure> {
        let classes = self.compiled("Members.java")?;
        let hosts: Vec<String> = (1..=nodes.min(3))
            .map(|node| format!("{}[7800]", lab.ip(node)))
            .collect();
        let mut command = lab.command(node, "java".as_ref());
        command
            .args([
                "-Xms16m",
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
            ])
            .arg("-Djava.net.preferIPv4Stack=true")
            .arg(format!("-Djgroups.bind_addr={}", lab.ip(node)))
            .arg(format!("-Djgroups.tcpping.initial_hosts={}", hosts.join(",")))
            .arg("-cp")
            .arg(format!("{}:{classes}", self.jar.to_string_lossy()))
            .args(["Members", "member", stack, &format!("m{node}")]);
        Ok(command)
    }

    /// A stack that sends multicasts from member to member.
    pub(crate) fn daisy_chain(&self) -> Result<String, Failure> {
        self.stack("daisychain-tcp.xml", "<MERGE3", "<DAISYCHAIN/><MERGE3")
    }

    /// A file with tcp.xml changed in one place.
    pub(crate) fn stack(&self, name: &str, old: &str, new: &str) -> Result<String, Failure> {
        tools::need("unzip", &["unzip"])?;
        let path = tools::cache()?.join(name);
        let tcp = tools::run("unzip", &["-p", &self.jar.to_string_lossy(), "tcp.xml"])?;
        let changed = tcp.replace(old, new);
        if changed == tcp {
            return Err(format!("tcp.xml of JGroups has no {old} where {new} could stand"));
        }
        std::fs::write(&path, changed).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }

    #[expect(clippy::too_many_arguments, reason = "all of one call, named there")]
    fn latency_rounds(
        &self,
        lab: &Lab,
        nodes: usize,
        stack: &str,
        classes: &str,
        rate: u32,
        size: u32,
        common: &Common,
    ) -> Result<Vec<u64>, Failure> {
        let mut members: Vec<Member> = Vec::new();
        for node in 1..=nodes {
            let name = format!("m{node}");
            members.push(self.member(lab, nodes, node, "OrderLatency", &[stack, &name], Some(classes))?);
            let expected = format!("members {node}");
            let last = &members[node - 1];
            last.lines.find(START_WITHIN, "JGroups members to join", |line| {
                (line == expected).then_some(())
            })?;
        }
        let expected = format!("members {nodes}");
        members[0]
            .lines
            .find(START_WITHIN, "all JGroups members to join", |line| {
                (line == expected || nodes == 1).then_some(())
            })?;
        let warmup = if common.smoke { 1 } else { WARMUP_S };
        for (index, member) in members.iter_mut().enumerate() {
            let interval_ns = 1_000_000_000 * nodes as u64 / u64::from(rate);
            let offset_ns = interval_ns * index as u64 / nodes as u64;
            let order = format!(
                "pace {interval_ns} {size} {warmup} {} {offset_ns}\n",
                common.seconds()
            );
            let stdin = member.child.stdin.as_mut().expect("stdin is a pipe");
            stdin
                .write_all(order.as_bytes())
                .map_err(|error| format!("the JGroups client has ended: {error}"))?;
        }
        let mut all = Vec::new();
        for member in &members {
            let within = common.patience() + Duration::from_secs(warmup.into());
            member.lines.find(within, "JGroups latencies", |line| {
                all.extend(line.strip_prefix("lat ").and_then(|ns| ns.parse::<u64>().ok()));
                (line == "end").then_some(())
            })?;
        }
        Ok(all)
    }
}

/// One test of MPerf, started at its first member.
fn round(first: &mut Member, seconds: u32) -> Result<f64, Failure> {
    let within = Duration::from_secs(seconds.into()) + RESULTS_WITHIN;
    let mut failure = Failure::new();
    for _ in 0..TRIES {
        first.type_in("1")?;
        match first.lines.find(within, "MPerf's figures", average) {
            Ok(rate) => return Ok(rate),
            Err(vain) => failure = vain,
        }
    }
    Err(failure)
}

/// `Average/node: … msgs/sec=103,456.78, …`
fn average(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("Average/node:")?.1.split_once("msgs/sec=")?;
    rest.split(", ").next()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn mperfs_average_is_read_with_its_commas() {
        let line = " Average/node:    108,304 msgs, 108.30MB received, time=3,207 ms, msgs/sec=33,771.13, throughput=33.77MB";
        assert_eq!(super::average(line), Some(33771.13));
        assert_eq!(super::average("m1: 66,462 msgs, msgs/sec=21,078.97, x"), None);
    }
}

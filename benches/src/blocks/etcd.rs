//! etcd: three servers from Debian's package, and a client of ours in Go.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::java::{Peer, all_done};
use super::locks::Load;
use super::sum;
use crate::Failure;
use crate::lab::Lab;
use crate::scratch::Scratch;
use crate::tools;

/// What is measured.
pub(super) const ETCD: &str = "etcd 3.4 of Debian with client 3.6.16";
/// For the servers to have a leader.
const START_WITHIN: Duration = Duration::from_secs(60);

/// The client.
pub(super) struct Etcd {
    client: PathBuf,
}

impl Etcd {
    /// Installs the server and builds the client; what that is made of is checked against `go.sum`.
    pub(super) fn get() -> Result<Self, Failure> {
        tools::need("etcd", &["etcd-server"])?;
        let client = tools::go("etcd")?;
        Ok(Self { client })
    }

    /// Locks taken and given back per second.
    pub(super) fn locks(&self, lab: &Lab, servers: usize, load: Load) -> Result<f64, Failure> {
        let result = self.measure(lab, servers, load);
        lab.kill_all();
        result
    }

    fn measure(&self, lab: &Lab, servers: usize, load: Load) -> Result<f64, Failure> {
        let scratch = Scratch::new("etcd")?;
        let url = |node: usize, port: u16| format!("http://{}:{port}", lab.ip(node));
        let members: Vec<String> = (1..=servers)
            .map(|node| format!("e{node}={}", url(node, 2380)))
            .collect();
        let mut running = Vec::new();
        for node in 1..=servers {
            let folder = scratch.folder(&node.to_string())?;
            let mut command: Command = lab.command(node, "etcd".as_ref());
            command
                .args(["--name", &format!("e{node}"), "--data-dir"])
                .arg(folder)
                .args(["--listen-peer-urls", &url(node, 2380)])
                .args(["--initial-advertise-peer-urls", &url(node, 2380)])
                .args(["--listen-client-urls", &url(node, 2379)])
                .args(["--advertise-client-urls", &url(node, 2379)])
                .args([
                    "--initial-cluster",
                    &members.join(","),
                    "--initial-cluster-state",
                    "new",
                ])
                .stderr(Stdio::null());
            running.push(Peer::start(command, "etcd")?);
        }
        let endpoints: Vec<String> = (1..=servers).map(|node| url(node, 2379)).collect();
        let mut clients = Vec::new();
        for node in 1..=servers {
            let mut command = lab.command(node, &self.client);
            command
                .args([endpoints.join(","), format!("c{node}")])
                .stderr(Stdio::inherit());
            let client = Peer::start(command, "the etcd client")?;
            client.expect("connected", START_WITHIN)?;
            clients.push(client);
        }
        let told = all_done(&mut clients, &load.line(), load.within())?;
        Ok(sum(&told, "rate"))
    }
}

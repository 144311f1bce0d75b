//! gRPC as Rust programs have it, by tonic: a server and a client of ours, a package of its own beside the
//! workspace, which so has nothing of tonic's seventy packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::java::Peer;
use crate::lab::Lab;
use crate::processors::share_one;
use crate::tools;
use crate::{Common, Failure};

pub(super) const VERSION: &str = "tonic 0.14";
const PORT: u16 = 7600;
const START_WITHIN: Duration = Duration::from_secs(20);

/// Builds both; what they are made of is in a lock file.
pub(super) fn get() -> Result<PathBuf, Failure> {
    let target = tools::cache()?.join("grpc");
    eprintln!("building the gRPC server and client");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--quiet", "--target-dir"])
        .arg(&target)
        .current_dir(tools::root().join("benches/peers/grpc"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the gRPC client cannot be built: {}", complaint.trim()));
    }
    Ok(target.join("release/grpc"))
}

/// The median of calls one after the other that get so many bytes, in microseconds.
pub(super) fn one_at_a_time(
    lab: &Lab,
    program: &Path,
    bytes: usize,
    common: &Common,
) -> Result<f64, Failure> {
    let result = (|| {
        let addr = format!("{}:{PORT}", lab.ip(2));
        let mut command = lab.command(2, program);
        command
            .args(["serve", &addr, &bytes.to_string()])
            .stderr(Stdio::inherit());
        let server = Peer::start(command, "the gRPC server")?;
        server.expect("serves", START_WITHIN)?;
        let mut command = lab.command(1, program);
        let (warmup, seconds) = (common.warmup().to_string(), common.seconds().to_string());
        command
            .args(["call", &addr, &warmup, &seconds])
            .stderr(Stdio::inherit());
        let client = Peer::start(command, "the gRPC client")?;
        // It has to be on its host to be found there; it warms up.
        std::thread::sleep(Duration::from_millis(300));
        share_one(lab, 2)?;
        let told = client.done(common.patience())?;
        told.get("p50_us").copied().ok_or_else(|| "no median".to_owned())
    })();
    lab.kill_all();
    result
}

//! HashiCorp memberlist: a client of ours in Go, built with the module that Go's own registry has.

use std::path::PathBuf;
use std::process::Command;

use crate::Failure;
use crate::tools;

/// The release measured against, as in `peers/memberlist/go.mod`.
pub(crate) const VERSION: &str = "0.7.0";

/// The client.
pub(crate) struct Memberlist {
    pub(crate) program: PathBuf,
}

impl Memberlist {
    /// Builds it; what it is made of is checked against `go.sum`.
    pub(crate) fn get() -> Result<Self, Failure> {
        tools::need("go", &["golang-go"])?;
        let source = tools::root().join("benches/peers/memberlist");
        let program = tools::cache()?.join("memberlist");
        eprintln!("building the memberlist client");
        let output = Command::new("go")
            .args(["build", "-mod=readonly", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(&source)
            .output()
            .map_err(|error| format!("cannot run go: {error}"))?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "the memberlist client cannot be built: {}",
                complaint.trim()
            ));
        }
        Ok(Self { program })
    }
}

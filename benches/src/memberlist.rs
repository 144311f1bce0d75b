//! HashiCorp memberlist: a client of ours in Go, built with the module that Go's own registry has.

use std::path::PathBuf;

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
        let program = tools::go("memberlist")?;
        Ok(Self { program })
    }
}

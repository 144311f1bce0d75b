//! The command line of `antiphon doctor`.

use std::time::Duration;

use antiphon::config::limited;
use clap::Args;

use crate::args::NodeArgs;

/// The table of `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  a node with these settings gets in, as far as can be seen, and no step failed
  1  a step failed, or it would not get in
  2  the command line or the settings are wrong, or none are given and no node runs here
  4  nobody reads the output";

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// How long each attempt to reach a node may take, 1s to 1h; sources have six seconds of their own
    #[arg(long, value_name = "DURATION", value_parser = limited, default_value = "3s")]
    pub(crate) within: Duration,

    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

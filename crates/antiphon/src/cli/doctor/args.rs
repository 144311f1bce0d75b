//! The command line of `antiphon doctor`.

use clap::Args;

use crate::cli::args::NodeArgs;
use crate::cli::patience::Patience;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// How long each attempt to reach a node may take, 1s to 1h
    #[arg(long, value_name = "DURATION", value_parser = Patience::parse, default_value = "3s")]
    pub(crate) within: Patience,

    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

//! The command lines of the commands that ask a running node.

use std::path::PathBuf;

use clap::Args;

/// The table of `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  answered
  1  no node answers, or the connection was cut before the end
  2  the command line is wrong, several nodes run here and none was chosen, or another node than
     --node and --cluster say listens at --console
  4  nobody reads the output";

/// Which node is asked, and how the answer is shown.
#[derive(Debug, Default, Args)]
pub(crate) struct AskArgs {
    /// The node to ask, by name, if several run on this host
    #[arg(long, value_name = "N")]
    pub(crate) node: Option<String>,

    /// Its cluster, if nodes of several run on this host under that name
    #[arg(long, value_name = "C")]
    pub(crate) cluster: Option<String>,

    /// The socket of its console, if it was started with this
    #[arg(long, env = "ANTIPHON_CONSOLE", value_name = "PATH")]
    pub(crate) console: Option<PathBuf>,

    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The name of the node that the question is about
    #[arg(value_name = "NODE")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// The survivor to go on from: a node on this host, by name
    #[arg(long, value_name = "NODE")]
    pub(crate) from: String,

    /// Its cluster, if nodes of several run on this host under that name
    #[arg(long, value_name = "C")]
    pub(crate) cluster: Option<String>,

    /// The socket of its console, if it was started with this
    #[arg(long, env = "ANTIPHON_CONSOLE", value_name = "PATH")]
    pub(crate) console: Option<PathBuf>,

    /// Do it without asking: what is given up is only shown. Needed where stdin is no terminal
    #[arg(long)]
    pub(crate) yes: bool,

    /// Show in JSON what it would mean, and then that it is done: one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// Go on with what happens from now on, until the node ends or Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,

    /// Of what happened before, only the last so many
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<u16>,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

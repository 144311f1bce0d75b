//! `antiphon locator`: the server that tells newcomers where the nodes of a cluster are.
//!
//! Lines on stdout, for people or with `--json` for programs; the first is `ready`, the last `stopped`. The
//! first signal stops it in order: its file is written, answers may leave. The second ends it at once. When
//! nobody reads stdout any more, it goes on silently: newcomers need it more than a log does. If a reader is
//! there but does not read, the locator waits two seconds at its end for the reader to take the last lines.

use std::io;
use std::path::PathBuf;

use antiphon::config;
use antiphon::discovery::LOCATOR_PORT;
use antiphon::{Error, Located, Locator, LocatorEvent};
use clap::Args;
use serde::Serialize;

use super::exit::{Exit, Failed, complain};
use super::node;
use super::signals::Signals;
use antiphon_agent::stdio::stdout::{self, LAST_LINES_WITHIN, Stdout};

/// Settings of a locator. Flags win over the environment.
#[derive(Debug, Args)]
pub(crate) struct LocatorArgs {
    /// Name of the cluster, 1 to 64 bytes
    #[arg(long, env = "ANTIPHON_CLUSTER", value_name = "C")]
    cluster: String,

    /// Address to listen at; the port is 7410 if left out. Give it again, best first, for more
    #[arg(
        long,
        env = "ANTIPHON_LOCATOR_BIND",
        value_name = "ADDR:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:7410"
    )]
    bind: Vec<String>,

    /// Address nodes reach it at, where it differs from --bind (0.0.0.0, NAT)
    #[arg(
        long,
        env = "ANTIPHON_LOCATOR_ADVERTISE",
        value_name = "ADDR:PORT",
        value_delimiter = ','
    )]
    advertise: Vec<String>,

    /// File to remember nodes in across restarts: not needed, but newcomers find the cluster at once. Its
    /// folder must exist
    #[arg(long, env = "ANTIPHON_LOCATOR_STATE", value_name = "FILE")]
    state: Option<PathBuf>,

    /// File with the cluster key, as of the nodes
    #[arg(long, env = "ANTIPHON_KEY_FILE", value_name = "F")]
    key_file: Option<PathBuf>,

    /// Without a key, allow addresses that are not loopback: whoever reaches the port can lead newcomers
    /// astray
    #[arg(long, env = "ANTIPHON_INSECURE", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    insecure: bool,

    /// Print JSON: one object a line
    #[arg(long, env = "ANTIPHON_JSON", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    json: bool,

    /// End when this process ends: set by tests for their children
    #[arg(long, value_name = "PID", hide = true)]
    die_with: Option<i32>,
}

/// One line of stdout.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    /// It listens.
    Ready {
        /// Where nodes reach it.
        addr: String,
        /// How many nodes it knows from its file.
        restored: usize,
    },
    /// A node was heard that is new, was not heard for long, became a member, or is none any more.
    Node {
        name: String,
        addr: String,
        /// Whether it is in a primary view.
        member: bool,
    },
    /// Something is wrong; it works on.
    Trouble { problem: String },
    /// The last line.
    Stopped,
}

impl Line {
    fn of(event: LocatorEvent) -> Option<Self> {
        match event {
            LocatorEvent::Heard(Located {
                name,
                addr,
                member_of,
                ..
            }) => Some(Line::Node {
                name,
                addr: addr.to_string(),
                member: member_of.is_some(),
            }),
            LocatorEvent::State { problem } => Some(Line::Trouble { problem }),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        match self {
            Line::Ready { addr, restored: 0 } => format!("locator listens at {addr} and knows nobody yet"),
            Line::Ready { addr, restored } => {
                format!("locator listens at {addr} and knows {restored} nodes from its file")
            }
            Line::Node { name, addr, member } => {
                let what = if *member {
                    "is a member"
                } else {
                    "looks for its cluster"
                };
                format!("{name} at {addr} {what}")
            }
            Line::Trouble { problem } => format!("TROUBLE: {problem}"),
            Line::Stopped => "locator stopped".to_owned(),
        }
    }
}

/// Runs a locator until it is told to stop.
pub(crate) fn run(args: LocatorArgs) -> Result<Exit, Failed> {
    if let Some(parent) = args.die_with {
        node::die_with(parent);
    }
    node::start_log();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failed::cannot("start threads", &error))?;
    let exit = runtime.block_on(serve(args));
    runtime.shutdown_background();
    exit
}

async fn serve(args: LocatorArgs) -> Result<Exit, Failed> {
    let json = args.json;
    let mut signals = Signals::new().map_err(no_signals)?;
    let mut locator = start(&args).await?;
    let (stdout, writer) = stdout::start(io::stdout());
    tokio::select! {
        _ = signals.next() => {}
        () = tell(&mut locator, json, &stdout) => {
            return Err(Failed::run("the locator's task has stopped; this is a defect of Antiphon"));
        }
    }
    let end = async {
        let rest = locator.stop().await;
        // A reader that does not take the last lines does not hold up the end.
        let last_lines = async {
            for line in rest.into_iter().filter_map(Line::of) {
                print(&stdout, json, &line).await;
            }
            print(&stdout, json, &Line::Stopped).await;
            drop(stdout);
            writer.written().await;
        };
        let _ = tokio::time::timeout(LAST_LINES_WITHIN, last_lines).await;
    };
    tokio::select! {
        () = end => Ok(Exit::Success),
        signal = signals.next() => Ok(Exit::Signal(signal)),
    }
}

/// Tells what the locator hears, as long as it runs. While nobody reads, the locator leaves out what is too
/// much.
async fn tell(locator: &mut Locator, json: bool, stdout: &Stdout) {
    let ready = Line::Ready {
        addr: locator.addr().to_string(),
        restored: locator.restored(),
    };
    print(stdout, json, &ready).await;
    while let Some(event) = locator.next().await {
        if let Some(line) = Line::of(event) {
            print(stdout, json, &line).await;
        }
    }
}

async fn start(args: &LocatorArgs) -> Result<Locator, Failed> {
    let mut builder = Locator::builder(&args.cluster);
    for bind in &args.bind {
        builder = builder.bind(config::address("bind", bind, LOCATOR_PORT)?);
    }
    for advertise in &args.advertise {
        builder = builder.advertise(config::address("advertise", advertise, LOCATOR_PORT)?);
    }
    if let Some(path) = &args.key_file {
        let file = config::read_key(path)?;
        if let Some(warning) = file.warning {
            complain!("antiphon: warning: {warning}");
        }
        builder = builder.key(file.key);
    } else if args.insecure {
        complain!(
            "antiphon: warning: insecure: without a key whoever reaches the port can lead newcomers astray"
        );
    }
    if args.insecure {
        builder = builder.insecure();
    }
    if let Some(path) = &args.state {
        builder = builder.state(path);
    }
    builder.start().await.map_err(|error| match error {
        Error::Bind { addr, source } if source.kind() == io::ErrorKind::AddrInUse => Failed::run(format!(
            "cannot listen at {addr}: it is in use, perhaps by a locator that still runs; stop that or give another --bind"
        )),
        Error::Config(_) | Error::Address { .. } => Failed::usage(error.to_string()),
        other => Failed::run(other.to_string()),
    })
}

fn no_signals(error: io::Error) -> Failed {
    Failed::cannot("handle signals", &error)
}

async fn print(stdout: &Stdout, json: bool, line: &Line) {
    let text = match json {
        // A line holds nothing that JSON could not say.
        true => serde_json::to_string(line).unwrap_or_default(),
        false => format!(
            "{}  {}",
            antiphon_api::time_of_day(antiphon_api::now_ms()),
            line.describe()
        ),
    };
    stdout.print(text).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_shapes() {
        let lines = [
            (
                Line::Ready {
                    addr: "127.0.0.1:7410".into(),
                    restored: 3,
                },
                r#"{"event":"ready","addr":"127.0.0.1:7410","restored":3}"#,
            ),
            (
                Line::Node {
                    name: "a".into(),
                    addr: "127.0.0.1:7400".into(),
                    member: true,
                },
                r#"{"event":"node","name":"a","addr":"127.0.0.1:7400","member":true}"#,
            ),
            (
                Line::Trouble { problem: "x".into() },
                r#"{"event":"trouble","problem":"x"}"#,
            ),
            (Line::Stopped, r#"{"event":"stopped"}"#),
        ];
        for (line, json) in lines {
            assert_eq!(serde_json::to_string(&line).unwrap(), json);
            assert!(!line.describe().is_empty());
        }
    }
}

//! `antiphon node`: one node, served on standard input and output and at a console ([`antiphon_agent`]).
//! `antiphon agent`: a node that serves programs that connect, in place of standard input.
//!
//! With `--witness` the node is the child of a process that only waits for its end ([`supervisor`]).
//!
//! If nobody reads stdout any more, the node leaves in order. At the first signal it leaves in order, too. A
//! second signal, half a second later or of the other kind, ends the process at once.

mod commands;
mod reload;
mod service;
mod supervisor;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use antiphon::{Cluster, ClusterEvent, ClusterEvents, Error, Incarnation};
use antiphon_agent::Hub;
use antiphon_agent::access::Access;
use antiphon_agent::socket::{Listener, Serving};
use antiphon_agent::stdio::stdout::{self, LAST_LINES_WITHIN};
use antiphon_agent::stdio::{Ended, Printer, Session, Spool, stdin};
use antiphon_api::Event;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::commands::Opened;
use self::reload::Reloads;
use self::service::Manager;
use super::args::{AgentArgs, NodeArgs};
use super::exit::{Exit, Failed, complain};
use super::files;
use super::say::say;
use super::settings::{Agent, Settings};
use super::signals::Signals;

/// Where an agent listens unless it is told where.
const LISTEN: &str = "127.0.0.1:7480";

/// Runs a node until it leaves.
pub(crate) fn run(args: NodeArgs) -> Result<Exit, Failed> {
    run_as(args, None)
}

/// Runs an agent until it leaves.
pub(crate) fn run_agent(args: AgentArgs) -> Result<Exit, Failed> {
    // Before anything is opened.
    let sockets = service::sockets()?;
    let given = args.agent();
    let config = args.node.config.clone();
    let serves = Serves {
        given,
        config,
        sockets,
    };
    run_as(args.node, Some(serves))
}

/// What an agent has beside its node.
struct Serves {
    /// What the command line and the environment say of it.
    given: Agent,
    config: Option<PathBuf>,
    /// What a service manager has handed over.
    sockets: Vec<OwnedFd>,
}

fn run_as(args: NodeArgs, serves: Option<Serves>) -> Result<Exit, Failed> {
    let print_config = args.print_config;
    // A node with a witness was told of its witness's parent.
    if let Some(parent) = args.die_with {
        die_with(if args.last_vote.is_some() {
            parent_of_this()
        } else {
            parent
        });
    }
    // The driver and the tasks that print get a thread each; more would only move cache lines about.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failed::cannot("start threads", &error))?;
    let (mut settings, signals) = match runtime.block_on(settings_of(args)) {
        Ok(Ok(resolved)) => resolved,
        ended => {
            // A name may still be looked up: that is not waited for.
            runtime.shutdown_background();
            // A program that asked for the settings must not take their absence for them.
            let exit_by = |signal| match print_config {
                true => Exit::Signal(signal),
                false => Exit::Success,
            };
            return ended.map(|ended| ended.err().map_or(Exit::Success, exit_by));
        }
    };
    if let Some(serves) = &serves {
        let mut agent = serves.given.clone().over(std::mem::take(&mut settings.agent));
        if agent.listen.is_none() && agent.socket.is_none() && serves.sockets.is_empty() {
            agent.listen = Some(vec![LISTEN.to_owned()]);
        }
        settings.agent = agent;
        if settings.witness {
            return Err(Failed::usage("an agent has no witness yet: leave --witness out"));
        }
    }
    if settings.witness && settings.last_vote.is_none() && !print_config {
        // It is a process of one thread, the one that the node is a child of.
        drop(runtime);
        return supervisor::run(&settings, signals);
    }
    for warning in &settings.warnings {
        complain!("antiphon: warning: {warning}");
    }
    if let Some((cause, remedy)) = files::shortage(files::limit(), &settings).filter(|_| !print_config) {
        complain!("antiphon: warning: this process {cause}: {remedy}");
    }
    if serves.is_some() && !print_config {
        let (_, needed) = files::needed(&settings);
        if let Some((cause, remedy)) = files::crowding(files::limit(), needed) {
            complain!("antiphon: warning: this process {cause}: {remedy}");
        }
    }
    if print_config {
        say!("{}", settings.to_toml().trim_end())?;
        return Ok(Exit::Success);
    }
    start_log();
    // A quiet cluster gives nothing to write, and the reader may be the program that this node is for.
    let (stdout, writer) = stdout::start_watched(io::stdout())
        .map_err(|error| Failed::cannot("watch standard output", &error))?;
    let printer = Printer::new(stdout, settings.json);
    let result = runtime.block_on(live(settings, signals, printer, serves));
    // Tasks that hold the printer end with the runtime; stdin's thread may be reading for ever and is left to
    // the exit.
    runtime.shutdown_background();
    writer.finish(LAST_LINES_WITHIN);
    result
}

/// Puts the settings together, and catches signals from here on; a signal that came meanwhile is the inner
/// error. Names and files may take long, and process 1 of a container gets no signal that it does not catch.
async fn settings_of(args: NodeArgs) -> Result<Result<(Settings, Signals), i32>, Failed> {
    let mut signals = Signals::new().map_err(|error| Failed::cannot("handle signals", &error))?;
    let resolving = tokio::task::spawn_blocking(move || Settings::resolve(args));
    let resolved = tokio::select! {
        resolved = resolving => resolved,
        // Nothing to leave yet.
        signal = signals.next() => return Ok(Err(signal)),
    };
    let settings = resolved.map_err(|error| {
        Failed::run(format!(
            "the settings could not be read ({error}); this is a defect of Antiphon"
        ))
    })??;
    Ok(Ok((settings, signals)))
}

/// Logs of the library to stderr: warnings, or what ANTIPHON_LOG says (`info`, `debug`, `antiphon=trace`).
pub(crate) fn start_log() {
    let level = std::env::var("ANTIPHON_LOG").unwrap_or_else(|_| "warn".to_owned());
    let filter = level
        .parse::<tracing_subscriber::filter::Targets>()
        .unwrap_or_else(|error| {
            complain!(
                "antiphon: warning: ANTIPHON_LOG={level:?} is not understood ({error}); logging warnings"
            );
            tracing_subscriber::filter::Targets::new().with_default(tracing::Level::WARN)
        });
    use tracing_subscriber::layer::SubscriberExt as _;
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false);
    // Fails only if a subscriber is set already, which nothing else in this process does.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(filter).with(layer));
}

async fn live(
    settings: Settings,
    mut signals: Signals,
    printer: Printer,
    serves: Option<Serves>,
) -> Result<Exit, Failed> {
    let is_agent = serves.is_some();
    // Before the node starts: a place that cannot be used starts nothing.
    let listener = match serves {
        Some(serves) => Some(Listening::open(&settings, serves).await?),
        None => None,
    };
    let metadata = listener.as_ref().and_then(Listening::metadata);
    let mut starting = std::pin::pin!(start(&settings, metadata));
    let mut is_told_to_end = false;
    let (cluster, events, incarnation) = loop {
        tokio::select! {
            started = &mut starting => break started?,
            // The others may have heard the node by now: it begins, and then leaves in order.
            signal = signals.next() => match is_told_to_end {
                false => is_told_to_end = true,
                true => return Ok(Exit::Signal(signal)),
            },
        }
    };
    let ready = Event::Ready {
        name: settings.name.clone(),
        addr: cluster.addr().to_string(),
        further: cluster.further().iter().map(ToString::to_string).collect(),
        incarnation: incarnation.to_string(),
    };
    printer.print(&ready).await;
    match &listener {
        Some(_) => {}
        None if !printer.is_json() => hint(&settings, &printer).await,
        None => {}
    }
    let hub = Hub::of(cluster.clone(), files::room_here(&settings));
    let spool = Arc::new(Spool::new(settings.spool.as_deref(), incarnation));
    let _files = CleanUp(spool.clone());
    let groups = settings.groups(is_agent);
    let started = Session::start(hub.clone(), events, &groups, printer.clone(), spool).await;
    let mut session = match started {
        Ok(session) => session,
        Err((group, error)) => {
            // The others may have seen the node: for them this must be no crash.
            tokio::select! {
                _ = cluster.leave() => {}
                _ = signals.next() => {}
            }
            return Err(Failed::run(format!("cannot join group {group}: {error}")));
        }
    };
    let (asked, mut leave_asked) = mpsc::channel(1);
    let mut manager = None;
    let serving = match listener {
        Some(listening) => {
            let event = listening.event();
            manager = Some(listening.manager.clone());
            let serving = listening.serve(&hub, asked)?;
            // Behind it, since the list of commands is read once more.
            printer.print(&event).await;
            Some(serving)
        }
        None => {
            let input = stdin::start(io::BufReader::new(io::stdin()));
            session.obey(input, asked);
            None
        }
    };
    let told_to_end = async {
        if !is_told_to_end {
            signals.next().await;
        }
    };
    let exit = tokio::select! {
        () = told_to_end => Exit::Success,
        _ = leave_asked.recv() => Exit::Success,
        () = printer.closed() => Exit::StdoutClosed,
        ended = session.ended() => match ended {
            Ended::Refused => Exit::Refused,
            Ended::Stopped => return Err(Failed::run("the node's task has stopped; this is a defect of Antiphon")),
        },
    };
    if let Some(manager) = manager {
        manager.stopping();
    }
    if exit == Exit::Refused {
        cluster.abort();
        return Ok(exit);
    }
    let leave = async {
        // No new program is served any more.
        drop(serving);
        session.stop().await;
        hub.close().await;
        cluster.leave().await
    };
    tokio::select! {
        left = leave => match left {
            Ok(()) | Err(Error::Closed) => {}
            Err(error) => return Err(Failed::run(format!("cannot leave in order: {error}"))),
        },
        signal = signals.next() => return Ok(Exit::Signal(signal)),
    }
    // The groups' last lines go before the last line of all; a reader that stopped reading does not hold up
    // the end.
    let last_lines = async {
        session.finish().await;
        let _ = tokio::time::timeout(LAST_LINES_WITHIN, printer.print_last(&Event::Left)).await;
    };
    tokio::select! {
        () = last_lines => {}
        signal = signals.next() => return Ok(Exit::Signal(signal)),
    }
    Ok(if printer.is_stdout_closed() {
        Exit::StdoutClosed
    } else {
        exit
    })
}

/// An agent's places, before there is a node.
struct Listening {
    listener: Listener,
    reloads: Reloads,
    /// Caught from the beginning: unless it is, this signal ends the process.
    hangup: tokio::signal::unix::Signal,
    manager: Arc<Manager>,
    commands: Option<Opened>,
}

/// An agent's places and tasks, as long as it serves.
struct ServingAgent {
    _serving: Serving,
    _tasks: JoinSet<()>,
    /// Nobody asks an agent to leave by its standard input.
    _leaves: mpsc::Sender<()>,
}

impl Listening {
    /// Opens the places at which programs reach an agent.
    async fn open(settings: &Settings, serves: Serves) -> Result<Self, Failed> {
        let agent = &settings.agent;
        let hangup =
            signal(SignalKind::hangup()).map_err(|error| Failed::cannot("handle signals", &error))?;
        let access = Access::read(&agent.files).map_err(Failed::usage)?;
        let mut listener = listen(agent, access.clone()).await?;
        for socket in serves.sockets {
            listener.inherit(socket).map_err(refused)?;
        }
        let commands = Opened::open(settings).await?;
        let tls = commands.as_ref().and_then(Opened::tls);
        Ok(Self {
            listener,
            reloads: Reloads::new(serves.given, serves.config, access, tls)?,
            hangup,
            manager: Arc::new(Manager::of_environment()?),
            commands,
        })
    }

    /// What the node's metadata says of the agent.
    fn metadata(&self) -> Option<(String, String)> {
        self.commands.as_ref().and_then(Opened::metadata)
    }

    fn event(&self) -> Event {
        Event::Serving {
            addrs: self.listener.addrs().iter().map(ToString::to_string).collect(),
            socket: self.listener.path().map(|path| path.display().to_string()),
            commands: self.commands.as_ref().and_then(Opened::addr),
        }
    }

    fn serve(self, hub: &Hub, leaves: mpsc::Sender<()>) -> Result<ServingAgent, Failed> {
        let mut tasks = JoinSet::new();
        if let Some(opened) = self.commands {
            let commands = opened.start(hub.cluster().clone())?;
            hub.set_commands(commands.clone());
            let leaves = leaves.clone();
            tasks.spawn(async move {
                commands.told_to_leave().await;
                // It leaves already if nobody hears.
                let _ = leaves.send(()).await;
            });
        }
        let serving = self.listener.serve(hub);
        tasks.spawn(self.reloads.watch(self.hangup, hub.clone(), self.manager.clone()));
        let cluster = hub.cluster().clone();
        tasks.spawn(async move { self.manager.attend(cluster).await });
        Ok(ServingAgent {
            _serving: serving,
            _tasks: tasks,
            _leaves: leaves,
        })
    }
}

async fn listen(agent: &Agent, access: Access) -> Result<Listener, Failed> {
    let mut addrs = Vec::new();
    for text in agent.listen.iter().flatten() {
        addrs.push(address("--listen", text, &format!("{LISTEN} or [::1]:7480")).await?);
    }
    let listening = Listener::guarded(agent.socket.as_deref(), &addrs, access).await;
    listening.map_err(refused)
}

/// The address of a flag; a name is looked up once, now.
async fn address(flag: &str, text: &str, such_as: &str) -> Result<SocketAddr, Failed> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let is_name = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains([':', '[']) && port.parse::<u16>().is_ok()
    });
    if !is_name {
        return Err(Failed::usage(format!(
            "{flag} {text}: expected an address or a name with its port, such as {such_as}"
        )));
    }
    let found = tokio::net::lookup_host(text).await;
    let found = found.map_err(|error| {
        Failed::run(format!(
            "{flag} {text} is no address and no name that resolves ({error})"
        ))
    });
    let first = found?.next();
    first.ok_or_else(|| Failed::run(format!("{flag} {text}: the name has no address")))
}

/// Opens all that an agent with these settings opens for programs and for commands, and closes it again.
pub(crate) async fn try_places(settings: &Settings) -> Result<(), Failed> {
    let access = Access::read(&settings.agent.files).map_err(Failed::usage)?;
    listen(&settings.agent, access).await?;
    Opened::open(settings).await.map(drop)
}

/// Why an agent does not listen.
fn refused(error: io::Error) -> Failed {
    let what = format!("cannot listen for programs: {error}");
    match error.kind() {
        io::ErrorKind::InvalidInput => Failed::usage(what),
        io::ErrorKind::AddrInUse => Failed::run(format!(
            "{what}; perhaps another agent runs there: stop that, or give another --listen or --socket"
        )),
        io::ErrorKind::NotFound => Failed::run(format!(
            "{what}; make the directory first, for the agent's user alone (`install -d -m 700 DIRECTORY`)"
        )),
        _ => Failed::run(what),
    }
}

/// Removes a node's own files when it has ended, in whatever way it returns.
struct CleanUp(Arc<Spool>);

impl Drop for CleanUp {
    fn drop(&mut self) {
        self.0.clean_up();
    }
}

/// Starts the node: it listens and has its first incarnation.
async fn start(
    settings: &Settings,
    metadata: Option<(String, String)>,
) -> Result<(Cluster, ClusterEvents, Incarnation), Failed> {
    let console = settings.console()?;
    let mut builder = settings.builder();
    if let Some((key, value)) = metadata {
        builder = builder.metadata(key, value);
    }
    let cluster = builder.start().await.map_err(|error| match error {
        Error::Bind { addr, source } if source.kind() == io::ErrorKind::AddrInUse => Failed::run(format!(
            "cannot listen at {addr}: it is in use, perhaps by a node that still runs; stop that or give another --bind"
        )),
        Error::Config(_) | Error::Address { .. } => Failed::usage(error.to_string()),
        other => Failed::run(other.to_string()),
    })?;
    if let Some(console) = console {
        console.serve(cluster.observer());
    }
    let mut events = cluster.events();
    loop {
        match events.next().await {
            Some(ClusterEvent::Incarnation(incarnation)) => return Ok((cluster, events, incarnation)),
            Some(_) => {}
            None => return Err(Failed::run("the node stopped before it had begun")),
        }
    }
}

async fn hint(settings: &Settings, printer: &Printer) {
    let sends = match settings.groups.first() {
        Some(group) => format!("type a line to send it to group {group}; "),
        None => "in no group; ".to_owned(),
    };
    printer
        .print_text(format!(
            "              {sends}/why NAME, /view; Ctrl-C leaves (times are UTC)"
        ))
        .await;
}

/// Makes the kernel end this process when its parent ends, however that happens.
#[cfg(target_os = "linux")]
pub(crate) fn die_with(parent: i32) {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    // Fails only for signals that do not exist.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before the line above.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        std::process::exit(Exit::Failure.code());
    }
}

/// Ends this process soon after its parent.
#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with(parent: i32) {
    use rustix::process::getppid;
    std::thread::spawn(move || {
        while getppid().map(|pid| pid.as_raw_nonzero().get()) == Some(parent) {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        std::process::exit(Exit::Failure.code());
    });
}

/// The process that has started this one.
fn parent_of_this() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}
